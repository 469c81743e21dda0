"""What is declared about an effect, how its budget is divided, and what its plan predicts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.plan import EffectStudy, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.solve import uncertified_start
from dp2erm_cvx.steps import CenterPlan, Execution, PropensityPlan, Rows, Term, propensity
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)
RICH, POOR = Universe(DOMAIN, 5000, 2), Universe(DOMAIN, 400, 2)


def study(universe=RICH, epsilon=1.0, delta=0.0, **changes):
    return EffectStudy(universe, Budget(epsilon, delta), residual_scale=0.5, **changes)


@pytest.mark.parametrize("universe", [RICH, POOR], ids=["rich", "poor"])
@pytest.mark.parametrize("arithmetic", ["assumed", "counted"])
@pytest.mark.parametrize(("noise", "delta"), [("gamma", 0.0), ("gaussian", 1e-6)])
@pytest.mark.parametrize("propensity", ["logistic", "constant", 0.5])
def test_the_steps_spend_the_budget_and_no_more(universe, arithmetic, noise, delta, propensity):
    declared = study(
        universe, 1.0, delta, noise=noise, arithmetic=arithmetic, declared={"propensity": propensity}
    )
    plan = make_plan(declared)
    spent = [step.guarantee for step in plan.steps]
    # Gaussian steps that share one delta spend more by themselves
    assert plan.joint is (noise == "gaussian" and propensity != "logistic")
    assert 1.0 - 1e-9 < sum(part.epsilon for part in spent) <= (2.0 if plan.joint else 1.0)
    assert sum(part.delta for part in spent) <= delta
    assert plan.guarantee == Budget(1.0, delta)
    assert plan.counted is (arithmetic == "counted")
    if plan.joint:
        return
    settings = declared.settings
    shares = {step.name: step.guarantee.epsilon for step in plan.steps}
    center = math.fsum(shares[name] for name in ("center", "refit") if name in shares)
    assert center == pytest.approx(settings.center_share, rel=1e-9)
    assert ("propensity" in shares) is (propensity != 0.5)
    if propensity != 0.5:
        assert shares["propensity"] == pytest.approx(settings.propensity_share, rel=1e-9)


def test_every_step_has_the_stability_of_weights_one():
    plan = make_plan(study())
    assert [step.bound.V for step in plan.steps] == [2.0] * len(plan.steps)
    assert plan.proven
    assert plan.certified_by_design


def test_the_center_is_planned_on_its_own_rows():
    plan = make_plan(study(declared={"rows": "mix"}))
    for step in plan.steps:
        if isinstance(step, CenterPlan):
            # covariates of norm 1.5 are scaled to norm 3
            assert step.universe.domain.covariate_bound == pytest.approx(math.sqrt(1 + 1.25 * 3.0**2))
            assert "declared" not in step.reason
            assert step.calibration.n_parameters == len(Rows.MIX.names(("u", "v")))
        if isinstance(step, PropensityPlan):
            assert step.universe.domain.covariate_bound == pytest.approx(math.sqrt(1 + 1.5**2))
            assert step.first.radius * step.universe.domain.covariate_bound == pytest.approx(4.0)


def test_more_records_make_the_noise_of_nuisances_negligible():
    ratios = [make_plan(study(Universe(DOMAIN, n, 2))).nuisance_ratio for n in (2000, 20000, 200000)]
    assert ratios == sorted(ratios, reverse=True)
    assert make_plan(study(declared={"propensity": 0.5})).nuisance_ratio == 0.0


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        ({"shares": 1}, "is no setting"),
        ({"rows": "lines"}, "rows"),
        ({"cap": 1.0}, "cap"),
        ({"propensity": 1.0}, "propensity"),
        ({"propensity": "forest"}, "propensity"),
        ({"center_share": 0.95, "propensity_share": 0.2}, "leave nothing"),
        ({"first_fit": 0.0}, "first_fit"),
        ({"slope": math.nan}, "slope"),
        ({"split": 1.0}, "split"),
        ({"squared_radius": 0.0}, "squared_radius"),
        ({"squared_radius": 1.0}, "first_fit"),
    ],
)
def test_what_is_no_setting_is_refused(declared, complaint):
    with pytest.raises(DeclarationError, match=complaint):
        study(declared=declared)


def test_gaussian_noise_of_a_center_does_not_follow_the_outcome_bound():
    wide = Universe(Domain(covariate_bound=1.5, outcome_bound=400.0), 5000, 2)
    one, other = (
        make_plan(study(where, 1.0, 1e-6, noise="gaussian")).steps[0].calibration for where in (RICH, wide)
    )
    assert other.scale == one.scale
    assert one.theorem.startswith("Theorem 16")
    assert one.split == 1.0


def test_a_squared_center_in_a_small_ball():
    """Noise by the diameter of its gradients: ``max sin t (2 M^2 r cos t + 2 M M')``, here by a grid."""
    step = make_plan(study(declared={"squared_radius": 0.5, "first_fit": None})).step("center")
    M, bound, t = math.sqrt(1.0 + 3.0**2), DOMAIN.outcome_bound, np.linspace(0.0, math.pi / 2, 100_001)
    radius = np.max(np.sin(t) * (2 * M**2 * 0.5 * bound * np.cos(t) + 2 * M * bound))
    assert step.calibration.sensitivity == pytest.approx(2.0 * radius, rel=1e-8)
    assert step.theorem == "Theorem 1 (pure)"


def test_risks_of_few_records_have_a_squared_center():
    binary = Domain(covariate_bound=1.5, outcome_bound=0.5, outcome_center=0.5)
    for n, radius in ((400, 1.0), (5000, None)):
        assert study(Universe(binary, n, 2), estimand="risks").settings.squared_radius == radius
    public = study(Universe(binary, 400, 2), estimand="risks", public_center=Term(Rows.POOLED, (0.0,) * 3))
    assert public.settings.squared_radius is None
    # a first fit that is declared takes its place
    assert (
        study(Universe(binary, 400, 2), estimand="risks", declared={"first_fit": 0.3}).settings.squared_radius
        is None
    )


def test_gaussian_noise_needs_a_delta():
    with pytest.raises(CalibrationError, match="delta"):
        make_plan(study(noise="gaussian"))


def test_a_public_center_has_public_coefficients():
    plan = make_plan(study(public_center=Term(Rows.POOLED, (0.1, 0.2, 0.3))))
    assert plan.steps[0].map.after == (Term(Rows.POOLED, (0.1, 0.2, 0.3)),)
    for wrong in (
        Term(Rows.POOLED, "center"),
        Term(Rows.POOLED, (0.1,)),
        Term(Rows.POOLED, (0.1, 0.2, math.inf)),
    ):
        with pytest.raises(DeclarationError, match="public_center"):
            study(public_center=wrong)


def test_a_propensity_that_missed_its_tolerance_is_not_certified(monkeypatch):
    """Its coefficient is published: that V covers all weights, as with no cap, certifies nothing."""
    declared = study(
        Universe(DOMAIN, 20, 2), declared={"propensity": "logistic", "cap": 1e18, "radius": 200.0}
    )
    plan = make_plan(declared)
    assert plan.step("propensity").weights.covers_all
    rng = np.random.default_rng(0)
    data = Dataset.from_arrays(rng.uniform(-1, 1, (20, 2)), np.arange(20) % 2, rng.standard_normal(20))
    run = Execution("first_certified", 1e-6, 1)
    assert plan.run(data, run).steps["propensity"].certified
    monkeypatch.setattr(propensity, "released_minimizer", lambda *args: uncertified_start(args[0]))
    assert not plan.run(data, run).certified
