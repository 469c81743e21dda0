"""Constraints of the imbalance: backward errors and proofs that there are no weights, in exact
arithmetic.
"""

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightSums
from dp2erm_cvx.weighting.solving import certificate
from dp2erm_cvx.weighting.solving.certificate import Point, Residual, residual_of
from dp2erm_cvx.weighting.solving.dataset import WeightingData
from dp2erm_cvx.weighting.solving.dual import DualProblem
from dp2erm_cvx.weighting.solving.moments import moment_units
from dp2erm_cvx.weighting.solving.separation import least_tolerance, refuse_separated, separates
from tests.weighting.examples import form_of, moments_by_arm, records_of

N = 60
HALVES = WeightSums(SumKind.PUBLIC, (N / 2, N / 2))
#: Constraints of the moments of both arms.
CONSTRAINTS = {
    "equation": ImbalancePenalty(math.inf, price=math.inf),
    "entries": ImbalancePenalty(math.inf, price=math.inf, tolerance=0.02 * N),
    "largest": ImbalancePenalty(math.inf, price=math.inf, tolerance=0.02 * N, norm=math.inf),
    "ball": ImbalancePenalty(math.inf, price=math.inf, tolerance=0.03 * N, norm=2.0),
    "sum": ImbalancePenalty(math.inf, price=math.inf, tolerance=0.04 * N, norm=1.0),
    "3-norm": ImbalancePenalty(math.inf, price=math.inf, tolerance=0.03 * N, norm=3.0),
    "one side": ImbalancePenalty(math.inf, price=math.inf, sided=True),
}
EXACT = {"square": lambda x: x + 1, "entropy": mp.exp}


def problem_of(name: str, dispersion: str) -> DualProblem:
    form = form_of(
        N, moments_by_arm(CONSTRAINTS[name]), dispersion=dispersion, sums=HALVES, cap=(4.0, 4.0)
    )
    return DualProblem(form, records_of(N))


def exact_point(data: WeightingData, point: Point, dispersion: str) -> tuple[list, list, list]:
    """Weights at a point of the dual, their imbalance and their sums, to 40 digits."""
    lam = [mp.mpf(float(x)) for x in point.prices]
    rows = [[mp.mpf(float(x)) for x in row] for row in data.rows]
    weights = []
    for i, row in enumerate(rows):
        nu = next(
            mp.mpf(float(point.multipliers[b]))
            for b, block in enumerate(data.blocks)
            if isinstance(block.members, slice) or i in block.members
        )
        x = -mp.fdot(row, lam) - mp.mpf(float(data.linear[i])) - nu
        low, cap = mp.mpf(float(data.curve.low[i])), mp.mpf(float(data.curve.cap[i]))
        weights.append(min(max(EXACT[dispersion](x), low), cap))
    sums = [
        mp.fsum(np.array(weights)[block.members]) - mp.mpf(block.total) for block in data.blocks
    ]
    columns = list(zip(*rows, strict=True))
    reached = [
        mp.fdot(weights, c) - mp.mpf(float(t)) for c, t in zip(columns, data.targets, strict=True)
    ]
    return weights, reached, sums


@pytest.mark.parametrize("dispersion", ["square", "entropy"])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_weights_are_found_with_a_small_residual(name: str, dispersion: str) -> None:
    solution = problem_of(name, dispersion).newton()
    assert solution.residual is not None
    assert solution.residual.largest <= 1e-10
    assert math.isinf(solution.claim)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("dispersion", ["square", "entropy"])
@pytest.mark.parametrize("name", ["equation", "entries"])
@pytest.mark.parametrize("away", [0.0, 1e-9, 1e-3, 1.0])
@mp.workdps(40)
def test_no_true_residual_exceeds_the_stated_one(name: str, dispersion: str, away: float) -> None:
    """Theorem 37: weights at the point solve the problem whose targets and sums are those they
    have.
    """
    problem = problem_of(name, dispersion)
    data = problem.data
    solution = problem.newton()
    rng = np.random.default_rng(3)
    prices = solution.prices + away * rng.normal(size=len(solution.prices))
    multipliers = solution.multipliers + away * rng.normal(size=len(solution.multipliers))
    tolerance = np.asarray(data.priced[0].penalty.tolerance)
    reached = data.rows.T @ solution.weights - data.targets
    inside = np.clip(reached, -tolerance, tolerance)
    s = np.where(prices == 0.0, inside, np.sign(prices) * tolerance)
    point = Point(s, prices, multipliers)
    weights, stated = residual_of(data, point)
    exact, reached_exactly, sums = exact_point(data, point, dispersion)
    moved = mp.fsum(abs(a - mp.mpf(float(b))) for a, b in zip(exact, weights, strict=True))
    assert moved <= stated.moved
    assert mp.fsum(map(abs, sums)) <= stated.sums
    units = moment_units(data)
    for k, value in enumerate(reached_exactly):
        assert abs(mp.mpf(float(s[k])) - value) <= mp.mpf(float(stated.moments[k])) * mp.mpf(
            float(units[k])
        )
    # and what is stated is no more than the rounding above what is true
    truth = max(
        abs(mp.mpf(float(s[k])) - v) / float(units[k]) for k, v in enumerate(reached_exactly)
    )
    assert float(np.max(stated.moments)) <= 1.01 * float(truth) + 1e-11


@pytest.mark.parametrize("name", ["ball", "3-norm", "sum", "entries", "largest", "one side"])
def test_prices_of_a_drawn_point_are_outward(name: str) -> None:
    """No imbalance that is allowed has a larger product with the prices than the one beside the
    point.
    """
    problem = problem_of(name, "square")
    (one,) = problem.data.priced
    K = len(problem.data.targets)
    rng = np.random.default_rng(4)
    for _ in range(20):
        y = rng.normal(size=K) * 10.0 ** rng.uniform(-2, 2)
        s = one.proximal_point(y, 0.7)
        prices = one.price(s, (y - s) / 0.7)
        off = float(np.abs(prices) @ one.drift(s, prices))
        assert one.support(prices) - float(prices @ s) <= off + 1e-12 * one.support(prices)
        assert np.all(one.drift(s, prices) <= 1e-11 * (1.0 + np.abs(y)))


def exact_separation(data: WeightingData, direction: np.ndarray, tolerance: Fraction) -> bool:
    """Whether a direction separates the weights from the constraints, over all multipliers, in
    fractions.
    """
    lam = [Fraction(float(x)) for x in direction]
    total = -sum(a * Fraction(float(t)) for a, t in zip(lam, data.targets, strict=True))
    cost = [sum(a * Fraction(float(z)) for a, z in zip(lam, row, strict=True)) for row in data.rows]
    for block in data.blocks:
        left = Fraction(block.total)
        for i in sorted(np.arange(N)[block.members], key=lambda i: cost[i]):
            given = min(Fraction(float(data.curve.cap[i])), left)
            total += given * cost[i]
            left -= given
    return total > tolerance * sum(map(abs, lam))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("factor", [0.9, 0.999999, 1.000001, 1.1])
def test_a_proof_is_one_in_fractions_and_the_least_tolerance_is_the_least(factor: float) -> None:
    """Records of separated arms, whose means cannot be alike."""
    records = records_of(N)
    columns = records.X.copy()
    columns[:, -1] = np.where(records.a == 1, np.abs(columns[:, -1]), -np.abs(columns[:, -1]))
    apart = type(records)(columns, records.a, records.y, records.space)

    def problem(tolerance: float) -> DualProblem:
        penalty = ImbalancePenalty(math.inf, price=math.inf, tolerance=tolerance * N / 2)
        form = form_of(
            N, moments_by_arm(penalty), dispersion="square", sums=HALVES, cap=(math.inf, math.inf)
        )
        return DualProblem(form, apart)

    first = least_tolerance(problem(1e-3).data)
    assert first is not None
    unit = float(moment_units(problem(1e-3).data)[0]) / (N / 2)
    least = first.excess * unit
    assert 1e-2 < least < 1.0
    own = problem(factor * least)
    proved = separates(own.data, first.direction) > 0.0
    assert proved == (factor < 1.0)
    assert proved == exact_separation(own.data, first.direction, Fraction(factor * least * N / 2))
    solution = own.newton()
    assert solution.residual is not None
    if factor >= 1.1:
        assert solution.residual.largest <= 1e-9
    if factor < 1.0:
        assert solution.residual.largest > 1e-9
        with pytest.raises(InfeasibleError, match="cannot be balanced better than") as caught:
            refuse_separated(own.data, apart, solution.prices)
        assert caught.value.smallest_tolerance == pytest.approx(first.excess)
    else:
        refuse_separated(own.data, apart, solution.prices)


def test_a_ball_that_no_weights_reach_is_refused_by_the_prices_of_the_solver() -> None:
    records = records_of(N)
    columns = records.X.copy()
    columns[:, -1] = np.where(records.a == 1, np.abs(columns[:, -1]), -np.abs(columns[:, -1]))
    apart = type(records)(columns, records.a, records.y, records.space)
    penalty = ImbalancePenalty(math.inf, price=math.inf, tolerance=1e-3, norm=2.0)
    form = form_of(
        N, moments_by_arm(penalty), dispersion="square", sums=HALVES, cap=(math.inf, math.inf)
    )
    problem = DualProblem(form, apart)
    with pytest.raises(InfeasibleError, match="no weights meet the constraints"):
        refuse_separated(problem.data, apart, problem.newton().prices)


def test_noise_is_no_proof() -> None:
    """Directions that are drawn separate nothing where weights exist."""
    problem = problem_of("entries", "square")
    rng = np.random.default_rng(5)
    for _ in range(200):
        direction = rng.normal(size=len(problem.data.targets)) * 10.0 ** rng.uniform(-200, 200)
        assert not separates(problem.data, direction) > 0.0
    assert separates(problem.data, np.full(len(problem.data.targets), np.nan)) == -math.inf


def test_a_residual_that_is_no_number_certifies_nothing() -> None:
    for moved, sums in ((math.nan, 0.0), (0.0, math.nan)):
        assert Residual(4, moved, sums, np.zeros(2)).largest == math.inf
    assert Residual(4, 0.0, 0.0, np.array([0.0, math.nan])).largest == math.inf


def test_sums_and_kinks_that_are_no_numbers_move_weights_without_bound() -> None:
    assert certificate._moved([0.1, math.nan], 0.0) == math.inf
    assert certificate._moved([0.1], certificate._spread(1.0, (0.1, math.nan), 1.0)) == math.inf
