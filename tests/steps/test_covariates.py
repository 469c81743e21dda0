"""What is released before a regression: exact movements, maps at any released number, slopes."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dp2erm_cvx import Budget, Codebook, Dataset, Domain, PrivateEffect, Treatment, Universe
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.plan import EffectStudy, RuleStudy, make_plan
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.covariates import ArmMeans, CovariateLaw, CovariateMean, MeanSquare
from dp2erm_cvx.steps.execution import Execution, Inputs
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.record_map import RAREST, Arms
from dp2erm_cvx.steps.sums import IntegerSums, TreatmentRate

PAIR = {"u": (-1.0, 1.0), "v": (0.0, 4.0)}
WARDS = {"ward=N": (-1.0, 1.0), "ward=S": (-1.0, 1.0), "u": (-2.0, 2.0)}
LEVELS, SURVEY = {"ward": ["N", "S"]}, SamplingWeights("wt", 2.0, mean=1.0)
BOTH, ONE = (Codebook(levels=one, sampling_weights=SURVEY) for one in (LEVELS, {"ward": ["N"]}))
DOMAINS = {
    "box": Domain(math.sqrt(2.0), 1.0, ranges=PAIR),
    "ball": Domain(0.5, 1.0),
    "constant": Domain(1.3, 1.0, intercept=0.5),
    "center": Domain(1.8, 1.0, ranges=PAIR, center={"v": 1.0}),
    "weights": Domain(
        1.8, 1.0, ranges=PAIR, center=(0.5, 1.0), codebook=Codebook(sampling_weights=SURVEY)
    ),
    "levels": Domain(math.sqrt(2.0), 1.0, ranges=WARDS, codebook=Codebook(levels=LEVELS)),
    "shares": Domain(1.4, 1.0, ranges=WARDS, center={"ward=N": 0.2}, codebook=BOTH),
    # 0, which a record of weight 0 adds, lies outside of what such a switch scales to
    "outside": Domain(1.5, 1.0, ranges={"ward=N": (-1.0, 1.0)}, center=(-0.5,), codebook=ONE),
}


def size(domain):
    return 2 if domain.ranges is None else len(domain.ranges)


def grid(domain):
    """Single records: corners, middles and the ball, either arm, sampling weights of all sizes."""
    columns = [(-3.0, -0.5, 0.0, 0.5, 3.0)] * 2 if domain.ranges is None else []
    for name, (low, high) in (domain.ranges or {}).items():
        columns.append((0.0, 1.0) if "=" in name else (low, (low + high) / 2, high))
    for x, a in itertools.product(itertools.product(*columns), (0, 1)):
        if "ward=S" not in (domain.ranges or {}) or x[:2] != (1.0, 1.0):
            for weight in (0.0, 0.7, 2.0) if domain.weighted else (2.0,):
                yield domain.records([x], [a], [0.0], [weight] if domain.weighted else None)


def planned(kind, domain, noise=Noise.GAMMA):
    universe, budget = Universe(domain, 50, size(domain)), Budget(1.0, 1e-6)
    law = CovariateLaw.of(domain, size(domain))
    steps = {
        "rate": TreatmentRate(share=0.1, noise=noise),
        "mean": CovariateMean(share=0.1, noise=noise, law=law, norm=0.7),
        "spread": MeanSquare(share=0.1, noise=noise, law=law, norm=0.7),
        "each": MeanSquare(share=0.1, noise=noise, law=law, norm=0.7, numbers=law.numbers),
    }
    return steps[kind].planned(universe, steps[kind].calibrate(universe, budget))


def exact(step, records, released=None):
    """The integers of a planned step before their noise."""
    return np.array(step.exact_sums(records, released or {}), dtype=float)


def movement(plan, noise):
    """The most that one replacement moves the sums by, over all pairs of the grid."""
    sums = np.array([exact(plan, one) for one in grid(plan.universe.domain)])
    apart = np.abs(sums[:, None] - sums[None])
    return np.max(
        np.sum(apart, axis=2) if noise is Noise.GAMMA else np.sqrt(np.sum(apart**2.0, axis=2))
    )


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("noise", [Noise.GAMMA, Noise.GAUSSIAN])
@pytest.mark.parametrize("kind", ["rate", "mean", "spread", "each"])
@pytest.mark.parametrize("name", DOMAINS)
def test_no_replacement_moves_a_sum_by_more_than_is_claimed(name, kind, noise):
    plan = planned(kind, DOMAINS[name], noise)
    claimed, moved = plan.calibration.sensitivity, movement(plan, noise)
    assert moved <= claimed
    # attained, so that half of it would be caught
    assert moved >= 0.85 * claimed


def test_a_box_without_zero_would_move_by_more(monkeypatch):
    """Planted: a record of weight 0 adds 0, which lies outside of such a box."""
    plan = planned("mean", DOMAINS["outside"])
    low, high = plan.law.box(plan.universe)
    assert max(low) <= 0.0 <= min(high)
    tight = np.array([0.5]), np.array([1.5])
    monkeypatch.setattr(CovariateLaw, "box", lambda self, universe: tight)
    broken = planned("mean", DOMAINS["outside"])
    assert movement(broken, Noise.GAMMA) > broken.calibration.sensitivity


def study(domain, n=400, epsilon=4.0, **changes):
    universe = Universe(domain, n, size(domain))
    return EffectStudy(universe, Budget(epsilon), **({"residual_scale": 0.3} | changes))


ALL = {"mean_share": 0.06, "propensity": "logistic", "center_share": 0.4, "propensity_share": 0.2}


def drawn(domain, n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, size(domain)))
    if domain.ranges is not None:
        low, high = np.array(domain.range_pairs).T
        X = low + (high - low) * (X + 1.0) / 2.0
        for place, name in enumerate(domain.ranges):
            X[:, place] = rng.integers(0, 2, n) if "=" in name else X[:, place]
    a = (rng.random(n) < 0.3).astype(np.int64)
    return X, a, 0.4 * X[:, 0] + 0.3 * a + 0.1 * rng.standard_normal(n), rng.uniform(0, 2, n)


def walked(plan, records, released):
    """Every step, the records that it computes on, what it makes of each, and between which public
    bounds.
    """
    inputs = Inputs(Dataset.from_arrays(records.X, records.a, records.y), records)
    for place, step in enumerate(plan.steps):
        here = inputs.records
        if step.regression is not None:
            where = step.regression.at(released, here.n_samples)
            yield step, where.records(here, released), where.factors(here, released), (0.0, 1.0)
        elif step.name == "propensity":
            yield step, step.map.records(here, released), here.counts, (0.0, 1.0)
        elif step.name in ("score", "value"):
            own = step.at(here, released)
            most = step.score_bound * (1.0 + 1e-12) if own.widening <= RAREST / 2 else 0.0
            yield step, here, own.score(own.parts(here, released)) / own.widening, (-most, most)
        else:
            yield step, here, here.counts, (0.0, 1.0)
            known = {one.name: released[one.name] for one in plan.steps[: place + 1]}
            inputs = step.hand_on(inputs, known)


#: Of effects and of rules: what records count is then public.
RULES = [f"rule {name}" for name in ("box", "ball", "center", "levels")]


@cache
def numbers(case, rate=0.3, epsilon=4.0):
    """A plan of every step, of an effect or a rule, and one value of all that it releases before a
    score.
    """
    name = case.removeprefix("rule ")
    n, k, unit = 400, size(DOMAINS[name]), 2.0**20
    declared = ALL | (
        {"rows": "common"} if name == case else {"spread_share": 0.1, "value_share": 0.3}
    )
    if name == case:
        plan = make_plan(study(DOMAINS[name], n, epsilon, declared=declared))
    else:
        plan = make_plan(
            RuleStudy(Universe(DOMAINS[name], n, k), Budget(epsilon), declared=declared)
        )
    both = [rate * n * unit, (1 - rate) * n * unit] if DOMAINS[name].weighted else [rate * n]
    squares = np.full(max(len(plan.step("spread").numbers), 1), 0.3 * n * unit)
    mean = np.full(k, 0.1)
    if isinstance(plan.step("mean"), ArmMeans):  # of the untreated, then of the treated
        mean = np.concatenate(
            [np.append(1.0 - rate, np.full(k, 0.02)), np.append(rate, np.full(k, 0.08))]
        )
    result = {
        "rate": both,
        "mean": mean * n * unit,
        "spread": squares,
        "along": np.array([1.2 * n * unit]),
    }
    coefficients = {
        "center": np.linspace(-0.3, 0.4, 2 + k),
        "propensity": np.linspace(-1.0, 0.5, 1 + k),
    }
    if name != case:
        coefficients["center"] = coefficients["rule"] = np.linspace(-0.3, 0.4, 1 + k)
        result |= {
            "sides": np.array([0.1, 0.2, 0.3, 0.4]) * n * unit,
            "arms": np.linspace(-0.3, 0.4, 2 + 2 * k),
        }
    named = (result | coefficients).items()
    return plan, {
        key: np.array(value, dtype=float) for key, value in named if plan.step(key) is not None
    }


def alike(name, epsilon=4.0):
    """Whether all but the record that was replaced come out alike in every step, to the last
    bit.
    """
    plan, released = numbers(name, epsilon=epsilon)
    domain, mine = plan.study.start.domain, drawn(plan.study.universe.domain)
    theirs, kept = [column.copy() for column in mine], np.arange(400) != 7
    for column, value in zip(theirs, (1e9, 1 - mine[1][7], -1e9, 0.1), strict=True):
        column[7] = value
    one, other = (
        [
            own[kept]
            for _, here, made, _ in walked(plan, domain.records(*data), released)
            for own in (here.X, here.a, here.y, here.counts, made)
        ]
        for data in ((*data[:3], data[3] if domain.weighted else None) for data in (mine, theirs))
    )
    return all(map(np.array_equal, one, other))


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", [*DOMAINS, *RULES])
def test_a_neighbor_has_the_same_other_records_in_every_step(name, monkeypatch):
    along = "along " if size(DOMAINS[name.removeprefix("rule ")]) > 1 else ""
    names = {"effect": f"rate mean spread {along}center propensity score"}
    names["rule"] = "mean spread center propensity rule sides arms value"
    goal = "rule" if name in RULES else "effect"
    assert [step.name for step in numbers(name)[0].steps] == names[goal].split()
    assert alike(name)
    assert alike(name, 200.0)
    # planted: the mean of the records in place of the released one
    honest = CovariateMean.mapped

    def leaking(self, records, released):
        return honest(self, records, released | {"mean": exact(self, records, released)})

    monkeypatch.setattr(CovariateMean, "mapped", leaking)
    assert not alike(name)


def test_levels_of_a_column_exclude_each_other():
    """Correlations of 0/1 columns at shares of .5, .3 and .1, where a tenth is of no declared
    level.
    """
    law = CovariateLaw((1.0,) * 4, (0.0,) * 4, (0.0, 0.5, 0.3, 0.1), (0.0,) * 4, (0, 4, 4, 4))
    rows = np.vstack([np.repeat(np.eye(3), (5, 3, 1), axis=0), np.zeros(3)])
    assert law.correlations[1:, 1:] == pytest.approx(np.corrcoef(rows.T), abs=1e-12)
    assert np.array_equal(law.correlations[0], [1.0, 0.0, 0.0, 0.0])
    # released shares may add up to more than 1
    above = replace(law, shares=(0.0, 0.7, 0.6, 0.4)).correlations
    assert np.min(np.linalg.eigvalsh(above)) >= -1e-9


def joint_loss(steps, domain, released):
    """The most that one replacement loses in these steps together, at these released numbers."""
    sums = {step.name: [] for step in steps}
    for one in grid(domain):
        records = one
        for step in steps:
            sums[step.name].append(exact(step, records, released))
            records = step.mapped(records, released)
    losses = 0.0
    for step in steps:
        own = np.array(sums[step.name]) / step.calibration.scale
        blocks = np.abs(own[:, None] - own[None]).reshape(
            len(own), len(own), -1, step.calibration.block
        )
        losses = losses + blocks.max(axis=3).sum(axis=2)
    return float(np.max(losses))


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", ["box", "levels", "rule box"])
def test_what_comes_before_a_regression_loses_its_shares_together(name):
    """At every mean that may be released; attained where one record falls on it, and another far
    from it.
    """
    plan, released = numbers(name)
    steps, domain = plan.steps[: 2 if name in RULES else 3], plan.study.start.domain
    assert steps[-1].numbers or name == "box"
    k = plan.study.universe.n_features
    means = [np.array(ends) * 400 * 2.0**20 for ends in itertools.product((-1.0, 1.0), repeat=k)]
    if isinstance(steps[-2], ArmMeans):
        means = [np.tile(np.append(200 * 2.0**20, 0.5 * one), 2) for one in means]
    paid = sum(step.guarantee.epsilon for step in steps)
    assert (
        0.9 * paid
        < max(joint_loss(steps, domain, released | {"mean": one}) for one in means)
        <= paid
    )
    # planted: a share that follows what is released later, as the mean square here: twice where
    # that is large
    *first, mean, square = steps
    half = replace(mean.calibration, scale=0.5 * mean.calibration.scale)
    wrong = (*first, replace(mean, calibration=half), square)
    assert max(joint_loss(wrong, domain, released | {"mean": one}) for one in means) > 1.3 * paid


def test_no_step_rests_on_what_is_released_later(monkeypatch):
    plan, seen = numbers("levels")[0], {}
    data = Dataset.from_arrays(*drawn(DOMAINS["levels"])[:3], DOMAINS["levels"].columns)
    for kind, run in ((Fit, Fit.run), (IntegerSums, IntegerSums.run)):

        def watched(self, inputs, released, execution, run=run):
            seen[self.name] = list(released)
            return run(self, inputs, released, execution)

        monkeypatch.setattr(kind, "run", watched)
    plan.run(data, Execution("newton", 1e-6, 1))
    names = [step.name for step in plan.steps]
    assert seen == {name: names[:place] for place, name in enumerate(names)}
    # planted: arm weights of a center that are those of a rate which is released after it
    rate, mean, spread, along, center, *others = plan.steps
    with pytest.raises(KeyError, match="rate"):
        replace(plan, steps=(mean, spread, along, center, rate, *others)).run(
            data, Execution("newton", 1e-6, 1)
        )


HUGE = 1e15
EXTREME = [
    {"rate": rate, "mean": mean, "spread": spread}
    for rate, mean, spread in itertools.product((-HUGE, 1.0, HUGE), (-HUGE, HUGE), (0.0, HUGE))
]


def outside(name, extreme, epsilon=4.0):
    """By how much records, factors and scores leave what every step was calibrated for before any
    release.
    """
    plan, released = numbers(name, epsilon=epsilon)
    released = {
        key: np.full(len(value), extreme[key]) if key in extreme else 1e6 * value
        for key, value in released.items()
    }
    if extreme["rate"] == 1.0 and len(released.get("rate", ())) == 2:
        released["rate"] = np.array([1.0, -HUGE])
    domain, data = plan.study.start.domain, drawn(plan.study.universe.domain)
    excess = []
    for step, here, made, (low, high) in walked(
        plan, domain.records(*data[:3], data[3] if domain.weighted else None), released
    ):
        bounds, widths = step.universe.space, step.universe.widths
        excess += [low - np.min(made), np.max(made) - high]
        excess.append(np.max(np.linalg.norm(here.X, axis=1)) - bounds.covariate_bound)
        excess.append(np.max(np.abs(here.y)) - bounds.outcome_bound)
        excess.append(-math.inf if widths is None else np.max(np.abs(here.X) - np.array(widths)))
    return max(excess)


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("name", [*DOMAINS, *RULES])
def test_no_released_number_takes_a_record_out_of_its_universe(name, monkeypatch):
    assert max(outside(name, extreme) for extreme in EXTREME) <= 0.0
    # of that many records covariates are shrunk to a wider norm first
    assert max(outside(name, extreme, 200.0) for extreme in EXTREME) <= 0.0
    reaches = [numbers(name, epsilon=one)[0].step("spread").universe.space for one in (4.0, 200.0)]
    assert reaches[0].features_bound <= reaches[1].features_bound
    if name in RULES:
        return
    # planted: arms by their inverse rates, which no public number bounds at 1
    monkeypatch.setattr(Arms, "weights", lambda self, rate, ratio: (1.0 / (1.0 - rate), 1.0 / rate))
    assert max(outside(name, extreme) for extreme in EXTREME) > 1.0


def test_log_odds_beyond_a_cap_are_those_of_numbers_and_levels():
    """Against draws: two numbers, and four columns of nine levels, which are more atoms than are
    carried.
    """
    rng, levels, k = np.random.default_rng(8), 9, 38
    shares = np.concatenate([np.zeros(2), np.tile(rng.dirichlet(np.ones(levels + 1))[:levels], 4)])
    deviations = np.where(shares, np.sqrt(shares * (1.0 - shares)), 1.0 / 3.0)
    own, scale = tuple(range(2)) + tuple(np.repeat(np.arange(2, 6), levels).tolist()), 0.7
    law = CovariateLaw(tuple(scale * deviations), (0.0,) * k, tuple(shares), (0.0,) * k, own)
    slopes = rng.normal(size=k)
    drawn = scale / 3.0 * rng.standard_normal((200_000, 2)) @ slopes[:2]
    for column in range(4):
        places = np.arange(2 + column * levels, 2 + (column + 1) * levels)
        effects = np.append(slopes[places], 0.0) * scale
        chances = np.append(shares[places], 1.0 - np.sum(shares[places]))
        drawn += rng.choice(effects, len(drawn), p=chances) - chances @ effects
    low, high = np.quantile(drawn, 0.03), np.quantile(drawn, 0.9)
    assert law.beyond(slopes, low, high) == pytest.approx(0.13, abs=0.005)


@pytest.mark.parametrize(
    ("n", "epsilon", "width"), [(800, 0.5, 1.0), (400, 0.5, 1.0), (800, 0.5, 3.0)]
)
def test_slopes_are_what_they_would_be_without_ridge(n, epsilon, width):
    """Normal covariates, no noise: .2 to .5 of the slopes is gone, and is put back within a few
    percent.
    """
    rng, k = np.random.default_rng(1), 5
    domain = Domain(math.sqrt(k), 6.0, ranges=[(-3.0 * width, 3.0 * width)] * k)
    x, a = rng.standard_normal((n, k)), rng.integers(0, 2, n)
    y = x @ np.array([1.0, -0.5, 0.5, 0.8, 0.3]) + rng.standard_normal(n)
    chosen = {
        "propensity": "constant",
        "center_share": 0.3,
        "spread_share": 0.3,
        "mean_share": None,
    }
    universe = Universe(domain, n, k)
    plan = make_plan(
        EffectStudy(universe, Budget(epsilon), residual_scale=1.0, declared=chosen, confounding=0.0)
    )
    records = plan.study.start.domain.records(x, a, y)
    inputs, released = Inputs(Dataset.from_arrays(x, a, y), records), {}
    for step in plan.steps[:2]:
        released[step.name] = exact(step, inputs.records, released)
        inputs = step.hand_on(inputs, released)
    step = plan.step("center")
    where = step.regression.at(released, n)
    mapped, factors = (
        where.records(inputs.records, released),
        where.factors(inputs.records, released),
    )

    def slopes(gamma):
        quiet = np.zeros(step.calibration.n_parameters)
        instance = step.solved().instance(mapped, factors, gamma=gamma, noise=quiet)
        return where.unscaled(solve(instance, tolerance=1e-5).value, k)

    released["center"] = slopes(step.calibration.gamma)
    nuisances = plan.main.at(plan.main.universe, released).nuisances
    true = slopes(1e-6 * step.calibration.gamma)[2:]
    left = float(released["center"][2:] @ true / (true @ true))
    assert 0.5 < left < 0.8
    again = nuisances.term.coefficient(k, released)[2:]
    assert float(again @ true / (true @ true)) == pytest.approx(1.0, abs=0.05)


def test_sums_that_would_leave_64_bits_are_refused():
    several = Codebook(treatment=Treatment("a", levels=["0", "1", "2"]), outcome="y")
    for changes, settings in (({"codebook": several}, {}), ({}, {"mean_share": 0.1})):
        model = PrivateEffect(Domain(1e10, 1.0, **changes), Budget(1.0), settings=settings)
        assert model.plan(100, 1)
        with pytest.raises(CalibrationError, match="beyond 64-bit integers: declare ranges"):
            model.plan(1000, 1)
