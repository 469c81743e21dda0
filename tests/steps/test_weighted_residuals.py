"""The sum of weighted residuals is as private as it claims, on neighbors that a search finds
(Theorem 28).
"""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sums import grid_exponent
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.steps.weighted_residuals import (
    PLANNED_RATES,
    ReleasedLines,
    ResidualSquares,
    WeightedSum,
    weights_at_rate,
    whole_weights,
)

N = 24
#: Where records are moved: both ends of the covariate, in both arms.
KINDS = [(x, a) for x in (-1.0, 1.0) for a in (0, 1)]


@cache
def planned(outcome_bound: float = 6.0) -> Plan[Any]:
    """An effect of one covariate by entropy balancing, at a large epsilon for so few records."""
    domain = Domain(covariate_bound=1.0, outcome_bound=outcome_bound)
    model = PrivateEffect(
        domain,
        Budget(40.0),
        residual_scale=1.0,
        weights="entropy_balancing",
        arithmetic="assumed",
        settings={"norm_bound": 1.0},
    )
    return model.plan(N, 1)


def score_of(plan: Plan[Any]) -> WeightedSum:
    score = plan.main
    assert isinstance(score, WeightedSum)
    return score


def released_at(plan: Plan[Any], treated: int) -> dict[str, Array]:
    """Numbers that earlier steps may have released: this rate, and a regression that is 0."""
    released: dict[str, Array] = {"rate": np.array([treated])}
    for step in plan.steps:
        if step.name in ("mean", "spread"):
            released[step.name] = np.array(
                [round(0.3 * plan.study.universe.n_samples / step.integers.unit)]
            )
    released["center"] = np.zeros(3)
    return released


def records_of(plan: Plan[Any], kinds: Array, outcomes: Array) -> Records:
    """Records of these numbers of kinds, at the largest norm."""
    space = score_of(plan).universe.space
    points = np.array(KINDS)[kinds]
    X = points[:, :1] * space.features_bound * (1.0 - 1e-9)
    return Records(X, points[:, 1].astype(np.int64), outcomes, space)


def neighbors(rng: np.random.Generator) -> tuple[Array, Array]:
    """Kinds of the records of two neighbors; the last one differs."""
    shares = rng.dirichlet(np.full(len(KINDS), 0.4))
    kinds = rng.choice(len(KINDS), N, p=shares)
    first, second = rng.choice(len(KINDS), 2, replace=False)
    one, other = kinds.copy(), kinds.copy()
    one[-1], other[-1] = first, second
    return one, other


def test_no_pair_of_neighbors_moves_the_sum_by_more_than_its_noise_covers() -> None:
    """And outcomes that are chosen against it move it by what the weights move: Theorem S is
    attained.
    """
    plan = planned()
    score = score_of(plan)
    rng = np.random.default_rng(2)
    largest = 0.0
    for trial in range(35):
        treated = [1, 6, 12, 18, 23][trial % 5]
        released = released_at(plan, treated)
        known = score.at_rate(treated / N)
        parts = score.parts(known)
        pair = neighbors(rng)
        plain = [records_of(plan, kinds, np.zeros(N)) for kinds in pair]
        weights = [whole_weights(known, records) for records in plain]
        assert all(int(one.sum()) == N << grid_exponent(N) for one in weights)
        moved = np.sign(weights[0] - weights[1]).astype(np.float64)
        signs = [np.where(records.a == 1, 1.0, -1.0) for records in plain]
        bound = 2.0 * score.lines.bound
        outcomes = [bound * signs[0] * moved, bound * signs[1] * moved]
        outcomes[0][-1], outcomes[1][-1] = bound * signs[0][-1], -bound * signs[1][-1]
        attacked = [replace(records, y=y) for records, y in zip(plain, outcomes, strict=True)]
        sums = [score.exact_sums(records, released)[0] for records in attacked]
        movement = int(np.sum(np.abs(weights[0] - weights[1])[:-1])) + int(
            weights[0][-1] + weights[1][-1]
        )
        assert abs(sums[0] - sums[1]) == parts * movement
        assert parts * movement <= score.calibration.sensitivity
        assert movement <= known.in_steps
        loss = abs(sums[0] - sums[1]) / score.calibration.scale
        assert loss <= score.calibration.epsilon
        # all that rounding of the parts costs
        part = movement / known.in_steps
        assert loss >= 0.98 * part * score.calibration.epsilon
        largest = max(largest, part)
    assert largest > 0.6
    # what a smaller claim would not have covered: the movement of the other records, half, and W of
    # arm 0
    assert largest * score.at_rate(0.5).movement > 4.0


@cache
def movements() -> dict[int, tuple[float, float]]:
    """By number of treated in the released rate: how far the weights moved, and squares of weights.

    The largest over pairs of neighbors, in units of weights; squares are those of weights, by
    records whose squared residuals are chosen against them.
    """
    score = score_of(planned())
    rng = np.random.default_rng(4)
    found = {}
    for treated in (1, 12):
        known = score.at_rate(treated / N)
        largest, squares = 0.0, 0.0
        for _ in range(60):
            pair = [records_of(planned(), kinds, np.zeros(N)) for kinds in neighbors(rng)]
            one, other = (np.ldexp(whole_weights(known, each), -grid_exponent(N)) for each in pair)
            largest = max(largest, float(np.sum(np.abs(one - other)[:-1]) + one[-1] + other[-1]))
            rising = np.sum(np.maximum(one**2 - other**2, 0.0)[:-1]) + one[-1] ** 2
            squares = max(squares, float(rising))
        found[treated] = (largest, squares)
    return found


def test_claims_that_would_be_too_small_are_exceeded() -> None:
    """Planted errors of the page: each is found by the same search that finds V itself to hold."""
    score = score_of(planned())
    largest, squares = movements()[12]
    rare = movements()[1][0]
    assert largest <= score.at_rate(0.5).movement
    assert rare <= score.at_rate(1 / N).movement
    # r_0 V / n in the place of 2 r_0 V / n
    assert largest > 0.5 * score.at_rate(0.5).movement
    # caps and bases of equal arms at a released rate of one in 24
    assert rare > 1.2 * score.at_rate(0.5).movement
    # the sensitivity of Q for a sum of squared weights times squared residuals
    assert squares > 1.5
    # a mean of an arm by its own mass, of one treated record whose residual turns over
    assert 2.0 > 2.0 * score.at_rate(0.5).movement / N


#: Covariate and arm of records that are searched for the movement of the others.
INSIDE = np.array([(x, a) for x in (-1.0, -0.6, 0.0, 0.6, 1.0) for a in (0, 1)])


def movement_of(common: Array, pair: Array) -> float:
    """How far the weights move where one record is replaced; all are given by their rows of
    INSIDE.
    """
    score = score_of(planned())
    space = score.universe.space
    weights = []
    for last in pair:
        points = INSIDE[np.append(common, last)]
        X = points[:, :1] * space.features_bound * (1.0 - 1e-9)
        records = Records(X, points[:, 1].astype(np.int64), np.zeros(N), space)
        weights.append(np.ldexp(whole_weights(score.at_rate(0.5), records), -grid_exponent(N)))
    one, other = weights
    return float(np.sum(np.abs(one - other)[:-1]) + one[-1] + other[-1])


def test_the_movement_of_the_other_records_alone_is_exceeded() -> None:
    """Planted: S in the place of V. Records at the ends alone move by .63 of V; S is .72 of it.

    Those inside the range make up the difference: a few at one end and more in the middle and at
    the other.
    """
    score = score_of(planned())
    known = score.at_rate(0.5)
    constants = known.program.form_in(score.universe).constants
    W = known.stability.w_max
    at_corners = (
        known.stability.V - 2.0 * W,
        math.hypot(W, math.sqrt(constants.factor) * W * constants.diameter),
    )
    claimed = max(at_corners)
    assert movements()[12][0] < claimed < 0.75 * known.movement
    rng = np.random.default_rng(1)
    common = rng.choice(len(INSIDE), N - 1, p=rng.dirichlet(np.full(len(INSIDE), 0.3)))
    pair = rng.integers(len(INSIDE), size=2)
    found = movement_of(common, pair)
    for _ in range(200):
        others, ends = common.copy(), pair.copy()
        if rng.random() < 0.4:
            ends[rng.integers(2)] = rng.integers(len(INSIDE))
        else:
            alike = np.flatnonzero(others == rng.choice(others))
            others[alike[: rng.integers(1, len(alike) + 1)]] = rng.integers(len(INSIDE))
        moved = movement_of(others, ends)
        if moved > found:
            common, pair, found = others, ends, moved
        if found > 1.02 * claimed:
            break
    assert 1.02 * claimed < found <= known.movement


def test_random_outcomes_move_the_sum_by_less() -> None:
    plan = planned()
    score = score_of(plan)
    rng = np.random.default_rng(1)
    released = released_at(plan, 10)
    released["center"] = np.array([0.3, -0.2, 1.5])
    for _ in range(10):
        pair = [records_of(plan, kinds, np.zeros(N)) for kinds in neighbors(rng)]
        y = rng.uniform(-6.0, 6.0, N)
        last = rng.uniform(-6.0, 6.0)
        one = replace(pair[0], y=y)
        other = replace(pair[1], y=np.append(y[:-1], last))
        sums = [score.exact_sums(records, released)[0] for records in (one, other)]
        assert abs(sums[0] - sums[1]) <= score.calibration.sensitivity


def test_a_residual_is_made_of_its_own_record() -> None:
    """And is 0 where it is no number, whatever stands beside it."""
    plan = planned()
    score = score_of(plan)
    rng = np.random.default_rng(2)
    released = released_at(plan, 12)
    released["center"] = np.array([0.5, 1.0, -2.0])
    lines = score.lines.at(released, N)
    records = records_of(plan, rng.choice(len(KINDS), N), rng.uniform(-6.0, 6.0, N))
    whole = lines.ratios(records, released)
    each = [lines.ratios(records.at(np.array([place])), released)[0] for place in range(N)]
    assert whole.tolist() == each
    released["center"] = np.array([np.inf, 1.0, -2.0])
    ratios = score.lines.at(released, N).ratios(records, released)
    assert np.all(ratios[records.a == 0] == 0.0)
    assert np.all(np.abs(ratios) <= 1.0)


def two_valued_lines(center: list[float]) -> tuple[ReleasedLines, dict[str, Array], Space]:
    """Lines of an outcome of two values at a released regression, what was released, and their
    space.
    """
    domain = Domain(covariate_bound=1.0, outcome_bound=0.5, outcome_center=0.5, binary_outcome=True)
    model = PrivateEffect(
        domain,
        Budget(40.0),
        weights="entropy_balancing",
        arithmetic="assumed",
        settings={"norm_bound": 1.0},
    )
    plan = model.plan(N, 1)
    score = score_of(plan)
    released = released_at(plan, 12)
    released["center"] = np.array(center)
    return score.lines.at(released, N), released, score.universe.space


def test_predictions_of_two_values_are_mean_outcomes_record_by_record() -> None:
    """Those of a tangent at 0 have too little slope: a bent line is flattest in its middle."""
    lines, released, space = two_valued_lines([0.05, 0.05, 0.6])
    x = np.linspace(-1.0, 1.0, N)[:, None] * space.features_bound * (1.0 - 1e-9)
    a = np.arange(N) % 2
    y = np.where(np.arange(N) % 3 == 0, 0.5, -0.5)
    ratios = lines.ratios(Records(x, a, y, space), released)
    expected = lines.nuisances.outcome(x, a.astype(np.float64), released)
    np.testing.assert_allclose(y - lines.bound * ratios, expected, atol=1e-12)
    tangent = lines.steepness(released)[0] * 0.6 * x[:, 0]
    spread = np.std(expected)
    assert np.std(tangent) < 0.9 * spread


def test_arms_of_two_values_differ_by_one_number() -> None:
    """So that the mean of ``m_1 - m_0`` over the records is no private number."""
    lines, released, space = two_valued_lines([-0.3, 0.25, 0.4])
    x = np.linspace(-1.0, 1.0, N)[:, None] * space.features_bound * (1.0 - 1e-9)
    outcomes = np.zeros(N)
    by_arm = [
        lines.ratios(Records(x, np.full(N, arm), outcomes, space), released) * lines.bound
        for arm in (0, 1)
    ]
    b_0, b_1 = lines.intercepts(released)
    np.testing.assert_allclose(by_arm[0] - by_arm[1], b_1 - b_0, atol=1e-12)
    own = [lines.nuisances.outcome(x, np.full(N, float(arm)), released) for arm in (0, 1)]
    assert np.ptp(own[1] - own[0]) > 0.01


def test_an_own_regression_in_place_of_the_released_one_is_found() -> None:
    """Least squares of the records themselves: one outcome of 24 moves the residuals of its arm."""
    plan = planned(60.0)
    score = score_of(plan)
    released = released_at(plan, 12)
    known = score.at_rate(0.5)
    records = records_of(plan, np.arange(N) % len(KINDS), np.zeros(N))
    sums = []
    for last in (-60.0, 60.0):
        near = replace(records, y=np.append(records.y[:-1], last))
        rows = np.column_stack([1.0 - near.a, near.a, near.covariates])
        theta = np.linalg.lstsq(rows, near.y)[0]
        sums.append(score.exact_sums(near, released | {"center": theta})[0])
    largest = abs(sums[0] - sums[1]) / (score.parts(known) * known.in_steps)
    assert largest > 1.5


def test_squares_move_by_at_most_one_record() -> None:
    plan = planned()
    squares = plan.step("squares")
    assert isinstance(squares, ResidualSquares)
    rng = np.random.default_rng(3)
    for treated in (1, 5, 12, 23):
        released = released_at(plan, treated)
        for _ in range(20):
            pair = [records_of(plan, kinds, np.zeros(N)) for kinds in neighbors(rng)]
            y = rng.choice([-6.0, 0.0, 6.0], N)
            sums = [
                squares.exact_sums(replace(records, y=np.append(y[:-1], last)), released)[0]
                for records, last in zip(pair, (0.0, 6.0), strict=True)
            ]
            assert abs(sums[0] - sums[1]) <= squares.calibration.sensitivity
    # attained by a record of the smaller arm
    released = released_at(plan, 6)
    kinds = np.zeros(N, dtype=np.int64)
    first = records_of(plan, kinds, np.zeros(N))
    second = records_of(plan, np.append(kinds[:-1], 1), np.append(np.zeros(N - 1), 6.0))
    moved = squares.exact_sums(second, released)[0] - squares.exact_sums(first, released)[0]
    assert moved == squares.calibration.sensitivity


def test_the_mean_square_is_that_of_arms_by_half() -> None:
    plan = planned()
    squares = plan.step("squares")
    assert isinstance(squares, ResidualSquares)
    released = released_at(plan, 6)
    kinds = np.where(np.arange(N) < 6, 1, 0)
    y = np.where(np.arange(N) < 6, 1.0, 0.5)
    exact = squares.exact_sums(records_of(plan, kinds, y), released)
    found = squares.mean_square(released | {"squares": np.array(exact)})
    weights = np.where(kinds == 1, 4.0, 4.0 / 3.0) ** 2 / 4.0
    assert found == pytest.approx(float(np.sum(weights * y**2) / np.sum(weights)), rel=1e-5)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("rate", [*PLANNED_RATES, 0.13])
def test_weights_are_within_the_public_radius_whatever_newton_does(
    rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newton is replaced by one that fails, by one that stops early, and by one that claims too
    much.
    """
    plan = planned()
    score = score_of(plan)
    known = score.at_rate(rate)
    assert known.radius is not None
    records = records_of(plan, np.array([0] * 20 + [1, 1, 2, 3]), np.zeros(N))
    expected = whole_weights(known, records)
    room = math.ldexp(2.0 * (2.0 * known.radius + N * 2.0**-29), grid_exponent(N))

    from dp2erm_cvx.weighting.solving.dual import DualProblem

    honest = DualProblem.newton

    def fails(self: DualProblem, tolerance: float = 1e-12) -> Any:
        raise np.linalg.LinAlgError("singular")

    def stops(self: DualProblem, tolerance: float = 1e-12) -> Any:
        found = honest(self, tolerance)
        return replace(found, weights=np.ones(N), claim=1.0)

    for wrong in (fails, stops):
        monkeypatch.setattr(DualProblem, "newton", wrong)
        again = whole_weights(known, records)
        assert int(again.sum()) == N << grid_exponent(N)
        assert int(np.sum(np.abs(again - expected))) <= room


def test_bounds_follow_the_released_rate() -> None:
    """Base weights and caps at the data's own rate would be a scale of noise that is data."""
    plan = planned()
    score = score_of(plan)
    known = {rate: score.at_rate(rate) for rate in (0.5, 0.25, *PLANNED_RATES)}
    assert known[0.25].movement > 1.3 * known[0.5].movement
    for rate, one in known.items():
        assert one.movement <= 2.0 * N
        assert score.parts(one) * one.in_steps <= score.calibration.sensitivity
        assert score.parts(one) * N << grid_exponent(N) <= 2**62
        noise = score.value(one) * score.calibration.scale
        exact = 2.0 * score.lines.bound * one.movement / (N * score.calibration.epsilon)
        assert noise == pytest.approx(exact, rel=1e-4), rate
    counted = known[0.5].stability.V + 4.0 * (known[0.5].radius or 0.0)
    assert known[0.5].movement >= counted


def test_a_bound_beyond_the_noise_leaves_nothing_of_the_residuals() -> None:
    """K is 0 then: the sum is 0 whatever the records are, and no unit of it is worth anything."""
    plan = planned()
    score = score_of(plan)
    released = released_at(plan, 12)
    known = score.at_rate(0.5)
    little = replace(score, calibration=replace(score.calibration, sensitivity=known.in_steps - 1))
    records = records_of(plan, np.arange(N) % len(KINDS), np.full(N, 5.0))
    assert little.parts(known) == 0
    assert little.value(known) == 0.0
    assert little.exact_sums(records, released) == [0]


def test_records_of_another_universe_are_refused() -> None:
    plan = planned()
    score = score_of(plan)
    records = records_of(plan, np.arange(N) % len(KINDS), np.zeros(N))
    wider = replace(records, space=replace(records.space, covariate_bound=2.0))
    for wrong in (wider, records.at(np.arange(N - 1))):
        with pytest.raises(DeclarationError, match="universe"):
            score.exact_sums(wrong, released_at(plan, 12))


def test_caps_below_1_are_raised() -> None:
    """Where all records are in the larger arm the cap of 1.5 base weights would leave no
    weights.
    """
    plan = planned()
    score = score_of(plan)
    known = score.at_rate(0.02)
    records = records_of(plan, np.zeros(N, dtype=np.int64), np.zeros(N))
    model = known.program.instance(records).composite
    assert isinstance(model, WeightsModel)
    assert float(np.max(model.cap)) == pytest.approx(1.0)
    assert np.all(whole_weights(known, records) == 1 << grid_exponent(N))


def test_a_rate_without_a_radius_leaves_all_weights_covered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = planned()
    score = score_of(plan)
    from dp2erm_cvx.program.direct_stage import WeightsProgram

    monkeypatch.setattr(WeightsProgram, "certified_error", lambda *_: None)
    known = (
        weights_at_rate.__wrapped__ if hasattr(weights_at_rate, "__wrapped__") else weights_at_rate
    )
    found = known(score.program, score.universe, 0.37)
    assert found.movement == 2.0 * N
    assert found.in_steps == 2 * N << grid_exponent(N)


def test_the_plan_spends_its_budget_in_turn() -> None:
    plan = planned()
    names = [step.name for step in plan.steps]
    assert names[-3:] == ["center", "squares", "weighted_sum"]
    assert sum(step.guarantee.epsilon for step in plan.steps) <= 40.0
    assert plan.guarantee.delta == 0.0
    assert plan.proven
    assert plan.certified_by_design
    assert plan.bound.V == score_of(plan).at_rate(0.5).stability.V
