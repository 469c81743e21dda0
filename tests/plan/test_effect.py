"""What is declared about an effect, how its budget is divided, and what its plan predicts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import EffectStudy, effect_error, make_plan
from dp2erm_cvx.plan.plan import STEADY
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.solve import uncertified_start
from dp2erm_cvx.steps import fit
from dp2erm_cvx.steps.covariates import CovariateLaw
from dp2erm_cvx.steps.record_map import RAREST
from dp2erm_cvx.steps.step import Execution

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)
RICH, POOR = Universe(DOMAIN, 5000, 2), Universe(DOMAIN, 400, 2)


def study(universe=RICH, epsilon=1.0, delta=0.0, **changes):
    return EffectStudy(universe, Budget(epsilon, delta), **({"residual_scale": 0.5} | changes))


ORDER = ("rate", "mean", "spread", "center", "propensity", "score")


@pytest.mark.parametrize("universe", [RICH, POOR], ids=["rich", "poor"])
@pytest.mark.parametrize(
    ("noise", "delta", "arithmetic"), [("gamma", 0.0, "counted"), ("gaussian", 1e-6, "assumed")]
)
@pytest.mark.parametrize("propensity", ["logistic", "constant", 0.5])
def test_the_steps_spend_the_budget_and_no_more(universe, arithmetic, noise, delta, propensity):
    declared = study(
        universe, 1.0, delta, noise=noise, arithmetic=arithmetic, declared={"propensity": propensity}
    )
    plan = make_plan(declared)
    spent = [step.guarantee for step in plan.steps]
    assert 1.0 - 1e-9 < sum(part.epsilon for part in spent) <= 1.0
    assert sum(part.delta for part in spent) <= delta
    # all of delta, or none of it where gamma noise is the shorter everywhere
    gaussian = [step for step in plan.steps if step.calibration.noise == "gaussian"]
    assert all(step.name in ("mean", "center", "propensity") for step in gaussian)
    assert plan.guarantee == Budget(1.0, delta if gaussian else 0.0)
    assert plan.counted is (arithmetic == "counted")
    assert not plan.joint  # Laplace noise of a few numbers has no part of one delta
    names = [step.name for step in plan.steps]
    settings = declared.settings
    for name in ("rate", "mean", "spread", "center", "propensity"):
        share = getattr(settings, f"{name}_share")
        known = {"rate": propensity != 0.5, "propensity": propensity == "logistic"}
        assert (name in names) is known.get(name, share is not None)
        if name in names:
            assert plan.step(name).guarantee.epsilon == pytest.approx(share, rel=1e-9)
    assert names == [name for name in ORDER if name in names]


def test_every_step_has_the_stability_of_weights_one():
    plan = make_plan(study())
    assert [step.bound.V for step in plan.steps] == [2.0] * len(plan.steps)
    assert plan.proven
    assert plan.certified_by_design


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
        ({"squared_radius": 1.0}, "squared_radius"),
        ({"arms": "both"}, "arms"),
        ({"mean_share": 1.0}, "mean_share"),
        ({"center_share": 0.9, "rate_share": 0.1}, "leave nothing"),
    ],
)
def test_what_is_no_setting_is_refused(declared, complaint):
    with pytest.raises(DeclarationError, match=complaint):
        study(declared=declared)


def test_clips_of_events_are_as_wide_as_noise_allows():
    """What they cut is a bias, as residuals of an event are longer on one side; a trial has none."""
    event = Domain(1.5, 0.5, 0.5, binary_outcome=True)
    bounds = {(4000, 1.0): 4.0, (50_000, 1.0): 0.03 * math.sqrt(50_000), (50_000, 4.0): 10.0}
    for (n, epsilon), bound in bounds.items():
        settings = study(Universe(event, n, 2), epsilon).settings
        assert settings.propensity == "logistic"
        assert settings.score_bound == pytest.approx(bound)


def test_risks_are_of_events():
    for changes in ({"outcome_bound": 1.0}, {"outcome_bound": 0.4}, {"outcome_center": 0.0}):
        domain = replace(Domain(covariate_bound=1.5, outcome_bound=0.5, outcome_center=0.5), **changes)
        with pytest.raises(DeclarationError, match="a risk is of an event"):
            study(Universe(domain, 400, 2), estimand="risks")


@pytest.mark.parametrize("estimand", ["ate", "att", "risks"])
@pytest.mark.parametrize("released", [-1e12, 0.0, 3.0, 200.0, 1e12])
def test_no_bound_follows_a_released_rate_that_is_noise(released, estimand):
    """Where n eps of the rate is below 20, scores reach at most four outcome bounds."""
    bound = 0.5 if estimand == "risks" else 4.0
    domain = replace(DOMAIN, outcome_bound=bound, outcome_center=0.5)
    for epsilon, steady in ((0.25, False), (8.0, True)):
        plan = make_plan(
            study(Universe(domain, 400, 2), epsilon, estimand=estimand, residual_scale=bound / 4)
        )
        assert (400 * epsilon * plan.study.settings.rate_share >= STEADY) is steady
        numbers = {"rate": [released], "mean": np.zeros(2), "propensity": np.zeros(3)}
        numbers["spread"] = np.full(max(len(plan.step("spread").numbers), 1), 2.0**20)
        numbers["center"] = np.zeros(plan.step("center").calibration.n_parameters)
        result = plan.main.at(plan.main.universe, numbers)
        most = max(4.0 * bound, plan.main.score_bound) * (1 + 1e-12)
        assert result.widening * result.score_bound <= most or steady
        # a steady rate that is rare is followed, up to the public cap of its inverse
        assert result.widening <= RAREST
        assert (
            result.widening * result.score_bound > most or not steady or released != 3.0 or estimand == "att"
        )


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
    monkeypatch.setattr(fit, "released_minimizer", lambda *args: uncertified_start(args[0]))
    assert not plan.run(data, run).certified


def test_errors_of_a_regression_stay_where_the_cap_and_the_clips_cut(monkeypatch):
    """Derivatives of the mean score, by quadrature, at arms that hardly overlap; noise and ridge are tiny."""
    declared = {"propensity": "logistic", "cap": 10.0, "mean_share": None, "spread_share": None} | {
        "rows": "common"
    }
    universe = Universe(Domain(1.0, 10.0, ranges=[(-1.0, 1.0)]), 10**9, 1)
    plan = make_plan(EffectStudy(universe, Budget(1.0), residual_scale=1.0, declared=declared))
    released = {"rate": np.array([5 * 10**8]), "center": np.zeros(3), "propensity": np.array([-0.2, 7.0])}
    score = plan.main.at(plan.main.universe, released)
    spread, grid = score.nuisances.spreads[0], np.linspace(-2.7, 2.7, 81)
    z, residual, arm = (one.ravel() for one in np.meshgrid(grid, grid, [0, 1], indexing="ij"))
    e = expit(-0.2 + 7.0 * spread * z)
    monkeypatch.setattr(effect_error, "_NODES", grid)  # covariates further out are shrunk by the domain
    monkeypatch.setattr(effect_error, "_WEIGHTS", np.exp(-0.5 * grid**2) / np.sum(np.exp(-0.5 * grid**2)))
    mass = np.exp(-0.5 * (z**2 + residual**2)) * np.where(arm == 1, e, 1.0 - e)
    records = universe.domain.records(spread * z[:, None], arm, residual)

    def mean(center):
        own = plan.main.at(plan.main.universe, result := released | {"center": center})
        return np.average(own.score(own.parts(records, result)), weights=mass) + own.center

    effect = np.array([mean(-step) - mean(step) for step in 1e-3 * np.eye(3)]) / 2e-3
    left, reach, _, _ = effect_error.overlap_error(plan, released, 1.0)
    assert left == pytest.approx(abs(effect[2]) / spread, rel=0.01)
    fit = score.nuisances.regressions[0]
    rows = np.stack([arm == 0, arm == 1, fit.scale * spread * z])
    curved = mass * fit.curvature(1.0, 0.5)[arm] / np.bincount(arm, mass)[arm]
    slopes = np.linalg.solve((rows * curved) @ rows.T, effect * [1.0, 1.0, fit.scale])
    within = plan.study.assumed.within(0.5) * np.sum(fit.curvature(1.0, 0.5)) * fit.scale * spread
    assert reach == pytest.approx(np.linalg.norm(slopes) * within, rel=0.05)


@pytest.mark.parametrize("mean", [0.06, None])
def test_what_noise_adds_to_all_levels_of_a_column_is_no_poor_overlap(mean, monkeypatch):
    """They add up to 1: the propensities stay, and so does what is counted for their overlap."""
    book = Codebook(levels={"ward": ["N", "S", "other"]})
    ranges = book.ranges({"age": (-1.0, 1.0)})
    universe = Universe(Domain(2.0, 4.0, ranges=ranges, codebook=book), 4000, 4)
    declared = {"propensity": "logistic", "mean_share": mean}
    plan = make_plan(study(universe, declared=declared))
    total, shares = 4000 * 2.0**20, [0.5, 0.3, 0.2] if mean else [1 / 3] * 3
    released = {"rate": np.full(2, total / 2), "spread": np.array([0.3 * total]), "center": np.zeros(6)}
    released["mean"] = total * np.array([0.0, *shares])

    def result(added):
        own = np.array([0.1, 1.0, 0.2, -0.3, 0.4]) + added * np.array([0.0, 0.0, 1.0, 1.0, 1.0])
        return effect_error.overlap_error(plan, released | {"propensity": own}, 0.5)[:3]

    assert result(0.0)[0] > 0.0
    assert result(3.0) == pytest.approx(result(0.0), rel=1e-6)
    # planted: levels as independent covariates
    monkeypatch.setattr(CovariateLaw, "correlations", np.eye(4))
    assert result(3.0)[0] > 1.5 * result(0.0)[0]


@pytest.mark.parametrize("rate", [0.02, 0.07, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("scale", [None, 0.5])
def test_a_trial_of_unequal_arms_has_a_score_that_reaches_its_weighted_residuals(rate, scale):
    """Clipped at the bounds of equal arms, errors of the released regression would stay in the effect."""
    inverse = 1.0 / min(rate, 1.0 - rate)
    settings = study(residual_scale=scale, declared={"propensity": rate}).settings
    assert settings.cap >= inverse
    assert settings.residual_bound >= 3.0 * (scale or 0.0)
    reached = settings.residual_bound if scale else DOMAIN.outcome_bound  # three guessed deviations
    assert settings.score_bound >= reached * inverse * (1 - 1e-12)
    if rate == 0.5:
        assert settings.score_bound == 2.0 * settings.residual_bound
    treated = study(residual_scale=scale, estimand="att", declared={"propensity": rate}).settings
    assert treated.score_bound >= treated.residual_bound * max(rate / (1.0 - rate), 1.0) * (1 - 1e-12)
