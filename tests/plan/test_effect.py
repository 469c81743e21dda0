"""What the plan of an effect predicts and bounds, whatever is released."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx import Budget, Codebook, Dataset, Domain, Universe
from dp2erm_cvx.inference import overlap
from dp2erm_cvx.inference.skewed import skewed
from dp2erm_cvx.plan import EffectStudy, RuleStudy, make_plan
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.plan.plan import STEADY
from dp2erm_cvx.solve import uncertified_start
from dp2erm_cvx.steps import fit
from dp2erm_cvx.steps.covariates import ArmMeans, CovariateLaw
from dp2erm_cvx.steps.execution import Execution
from dp2erm_cvx.steps.record_map import RAREST, UNIT
from tests.plan.changed import changed

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)
RICH = Universe(DOMAIN, 5000, 2)


def study(universe=RICH, epsilon=1.0, delta=0.0, **changes):
    return EffectStudy(universe, Budget(epsilon, delta), **({"residual_scale": 0.5} | changes))


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("estimand", ["ate", "att", "risks"])
@pytest.mark.parametrize("released", [-1e12, 0.0, 3.0, 1e12])
def test_no_bound_follows_a_released_rate_that_is_noise(released, estimand):
    """Where n eps of the rate is below 20, scores reach at most four outcome bounds."""
    bound = 0.5 if estimand == "risks" else 4.0
    universe = Universe(replace(DOMAIN, outcome_bound=bound, outcome_center=0.5), 400, 2)
    for epsilon, steady in ((0.25, False), (8.0, True)):
        plan = make_plan(study(universe, epsilon, estimand=estimand, residual_scale=bound / 4))
        assert (400 * epsilon * plan.study.settings.rate_share >= STEADY) is steady
        sums = 6 if isinstance(plan.step("mean"), ArmMeans) else 2
        numbers = {"rate": [released], "mean": np.zeros(sums), "propensity": np.zeros(3)}
        numbers["spread"] = np.full(max(len(plan.step("spread").numbers), 1), 2.0**20)
        numbers["center"] = np.zeros(plan.step("center").calibration.n_parameters)
        result = plan.main.at(plan.main.universe, numbers)
        most = max(4.0 * bound, plan.main.score_bound) * (1 + 1e-12)
        assert result.widening * result.score_bound <= most or steady
        # a steady rate that is rare is followed, up to the public cap of its inverse
        assert result.widening <= RAREST
        followed = result.widening * result.score_bound > most
        assert followed or not steady or released != 3.0 or estimand == "att"


def test_a_released_propensity_is_certified_to_a_public_radius(monkeypatch):
    """It is published: neither a relative tolerance nor a V that covers all weights certifies
    it.
    """
    declared = {
        "propensity": "logistic",
        "center_share": None,
        "mean_share": None,
        "spread_share": None,
    }
    data, run = (
        Dataset.from_arrays(np.zeros((8, 1)), np.ones(8), np.ones(8)),
        Execution("newton", 1e-6),
    )
    plan = make_plan(
        RuleStudy(Universe(DOMAIN, 8, 1), Budget(1e4), outcome_scale=1.0, declared=declared)
    )
    radius = plan.step("propensity").radius
    assert radius > 1e-5  # more than a relative tolerance would ask for
    assert plan.run(data, run).steps["propensity"].solution.within == radius
    # a radius that nothing reaches is missed, and one that is not known certifies nothing by design
    assert not changed(plan, "propensity", radius=1e-60).run(data, run).certified
    assert (
        plan.certified_by_design,
        changed(plan, "propensity", radius=None).certified_by_design,
    ) == (
        True,
        False,
    )
    free = {"propensity": "logistic", "cap": 1e18, "radius": 200.0}
    plan = make_plan(study(Universe(DOMAIN, 8, 1), declared=free))
    assert plan.step("propensity").weights.covers_all
    run = Execution("first_certified", 1e-6, 1)
    assert plan.run(data, run).steps["propensity"].certified
    monkeypatch.setattr(fit, "released_minimizer", lambda *args, **how: uncertified_start(args[0]))
    assert not plan.run(data, run).certified


def test_errors_of_a_regression_stay_where_the_cap_and_the_clips_cut(monkeypatch):
    """Derivatives of the mean score, by quadrature, at arms that hardly overlap; noise and ridge
    are tiny.
    """
    declared = {"propensity": "logistic", "cap": 10.0, "mean_share": None, "spread_share": None} | {
        "rows": "common"
    }
    universe = Universe(Domain(1.0, 10.0, ranges=[(-1.0, 1.0)]), 10**9, 1)
    plan = make_plan(EffectStudy(universe, Budget(1.0), residual_scale=1.0, declared=declared))
    released = {
        "rate": np.array([5 * 10**8]),
        "center": np.zeros(3),
        "propensity": np.array([-0.2, 7.0]),
    }
    score = plan.main.at(plan.main.universe, released)
    spread, grid = score.nuisances.spreads[0], np.linspace(-2.7, 2.7, 81)
    z, residual, arm = (one.ravel() for one in np.meshgrid(grid, grid, [0, 1], indexing="ij"))
    e = expit(-0.2 + 7.0 * spread * z)
    monkeypatch.setattr(overlap, "NODES", grid)  # covariates further out are shrunk by the domain
    monkeypatch.setattr(overlap, "WEIGHTS", np.exp(-0.5 * grid**2) / np.sum(np.exp(-0.5 * grid**2)))
    mass = np.exp(-0.5 * (z**2 + residual**2)) * np.where(arm == 1, e, 1.0 - e)
    records = universe.domain.records(spread * z[:, None], arm, residual)

    def mean(center):
        own = plan.main.at(plan.main.universe, result := released | {"center": center})
        return np.average(own.score(own.parts(records, result)), weights=mass) + own.center

    effect = np.array([mean(-step) - mean(step) for step in 1e-3 * np.eye(3)]) / 2e-3
    left, reach, _, _ = overlap.overlap_error(effect_facts(plan), released, 1.0)
    assert left == pytest.approx(abs(effect[2]) / spread, rel=0.01)
    fit = score.nuisances.fit
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
    released = {
        "rate": np.full(2, total / 2),
        "spread": np.array([0.3 * total]),
        "center": np.zeros(6),
    }
    released["mean"] = total * np.array([0.0, *shares])

    def result(added):
        own = np.array([0.1, 1.0, 0.2, -0.3, 0.4]) + added * np.array([0.0, 0.0, 1.0, 1.0, 1.0])
        return overlap.overlap_error(effect_facts(plan), released | {"propensity": own}, 0.5)[:3]

    assert result(0.0)[0] > 0.0
    assert result(3.0) == pytest.approx(result(0.0), rel=1e-6)
    # planted: levels as independent covariates
    monkeypatch.setattr(CovariateLaw, "correlations", np.eye(4))
    assert result(3.0)[0] > 1.5 * result(0.0)[0]


def test_records_that_do_not_count_hide_no_skewed_residuals():
    """2,000 records tell as much alone as among 8,000 of which a quarter counts."""

    def told(part):
        book = Codebook(eligible=["age >= 18"], eligible_share=part)
        domain = Domain(2.0, 4.0, ranges=book.ranges({"age": (-1.0, 1.0)}), codebook=book)
        universe = Universe(domain, round(2000 / part), 1)
        declared = {"mean_share": None, "spread_share": None}
        plan = make_plan(study(universe, 2.0, estimand="att", declared=declared))
        means = part * np.array([-0.3, 0.4, 1.0, 0.3])
        released = {
            "rate": UNIT * np.array([800, 1200]),
            "center": np.zeros(plan.step("center").calibration.n_parameters),
            plan.main.name: np.rint(means / np.array(plan.main.calibration.units)),
        }
        return skewed(effect_facts(plan), released, 0.5, 0.0)

    assert told(1.0) > 0.1
    assert told(0.25) == pytest.approx(told(1.0), rel=1e-3)


@pytest.mark.parametrize(("share", "deviations"), [(0.9, 2.5), (0.1, 4.0)])
def test_a_mean_residual_is_compared_with_what_so_many_untreated_vary_by(share, deviations):
    """2.5 standard deviations of their mean are chance, and 4 are not, whatever their number."""
    n = 20_000
    declared = {"mean_share": None, "spread_share": None}
    universe = Universe(Domain(2.0, 4.0), n, 1)
    plan = make_plan(study(universe, 1000.0, estimand="att", declared=declared))
    facts = effect_facts(plan)
    deviation = facts.residuals.deviation(0.5)
    mean_residual = deviations * deviation / np.sqrt(n * (1.0 - share))
    # (A30): omega (S - T) / 2 is A times the mean residual
    widening = max(share / (1.0 - share), 1.0)
    apart = 2.0 * share * mean_residual / widening
    means = np.array([-apart / 2.0, share, 1.0, apart / 2.0])
    released = {
        "rate": np.array([n * share]),
        "center": np.zeros(plan.step("center").calibration.n_parameters),
        plan.main.name: np.rint(means / np.array(plan.main.calibration.units)),
    }
    told = skewed(facts, released, 0.5, 0.0)
    assert (told > 0.0) == (deviations > 3.0)


@pytest.mark.parametrize("part", [1.0, 0.25])
def test_noise_of_a_released_rate_is_that_among_the_records_that_count(part):
    """It is at least that of the ratio, and at most the root of 2 times that."""
    book = Codebook(eligible=["age >= 18"], eligible_share=part)
    domain = Domain(2.0, 4.0, ranges=book.ranges({"age": (-1.0, 1.0)}), codebook=book)
    step = make_plan(study(Universe(domain, round(2000 / part), 1))).step("rate")
    noise = np.random.default_rng(1).laplace(scale=step.calibration.scale, size=(4000, 2))
    counts = UNIT * np.array([800.0, 1200.0]) + noise
    found = np.std(counts[:, 0] / np.sum(counts, axis=1))
    assert found <= np.sqrt(step.predicted_error) <= 1.5 * found
