"""Theorems 22 and 23 with curves by arm: no pair of neighbors that a search finds moves more."""

import math
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import LOGISTIC, SQUARE, Curve, Part
from dp2erm_cvx.curves.log_weights import OVERLAP, LogWeight
from dp2erm_cvx.curves.suprema import corners
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program.form import read_curve, read_log_weight
from dp2erm_cvx.stability import ArmCurves, margin_movement, minimizer_norm
from dp2erm_cvx.stability.arm_curves import record_diameter, weight_diameter
from dp2erm_cvx.stability.separable import _largest_over_sizes
from dp2erm_cvx.stability.weight_sizes import pairs_of_hulls
from tests.stability.by_arm import INF, Scheme, Search, logistic, movements, own

#: Losses and log weights at the log odds u of treatment, of controls and of the treated.
FALLING = Curve((Part(1.0, atom("logistic"), 1.0),))
MARGIN, NOTHING = LogWeight(), LogWeight("constant", number=0.0)
MIRRORED = LogWeight("atom", (MARGIN.times(-1.0),), atom=atom("logistic")).times(-1.0)
EXPONENTIAL, DOWN = Curve((Part(1.0, atom("exp"), 1.0),)), Curve((Part(1.0, atom("line"), -1.0),))


def arms(
    controls: tuple[Any, Any], treated: tuple[Any, Any], **numbers: Any
) -> tuple[ArmCurves, ArmCurves]:
    """Curves of both arms with the same intervals."""
    return ArmCurves(*controls, **numbers), ArmCurves(*treated, **numbers)


def odds(**numbers: Any) -> tuple[ArmCurves, ...]:
    """Odds weights of the controls for the effect on the treated."""
    return arms((FALLING, MARGIN), (LOGISTIC, NOTHING), **numbers)


def overlap(**numbers: Any) -> tuple[ArmCurves, ...]:
    """Overlap weights."""
    return arms((FALLING, MIRRORED), (LOGISTIC, OVERLAP), **numbers)


def tailored(**numbers: Any) -> tuple[ArmCurves, ...]:
    """Tailored loss of the effect on the treated: a line in the treated arm."""
    return arms((EXPONENTIAL, MARGIN), (DOWN, NOTHING), **numbers)


def raking(**numbers: Any) -> tuple[ArmCurves, ...]:
    """Weights exp(s) of all records whose mean row is a public target."""
    return (ArmCurves(EXPONENTIAL, MARGIN, **numbers),)


def raking_slope(s, treated):
    return np.exp(np.minimum(s, 300.0))


def raking_weight(s, treated):
    return s


def odds_weight(s, treated):
    return np.where(treated, 0.0, s)


def overlap_weight(s, treated):
    return -np.logaddexp(0.0, own(s, treated))


def tailored_slope(s, treated):
    return np.where(treated, -1.0, np.exp(np.minimum(s, 300.0)))


@dataclass(frozen=True)
class Case:
    """A scheme twice: as curves of the library and as functions of NumPy; the least share that is
    found.
    """

    label: str
    curves: Any
    slope: Any
    log_weight: Any
    ridge: float
    least: float
    radius: float = INF
    numbers: tuple[tuple[str, Any], ...] = ()
    l1: float = 0.0
    target: float = 0.0

    def bound(self, n: int, **changes: Any) -> float:
        """V of the library."""
        curves = self.curves(**(dict(self.numbers) | changes))
        public = {"radius": self.radius, "l1": self.l1, "pull": self.target}
        return float(margin_movement(n, self.ridge, 1.0, curves, **public).bound.V)

    def found(self, n: int, seed: int = 0, **settings: Any) -> float:
        """The largest movement that a search finds."""
        settings_of_records = dict(self.numbers) | {"l1": self.l1, "target": self.target}
        scheme = Scheme(self.slope, self.log_weight, self.ridge, self.radius, **settings_of_records)
        return Search(scheme, n, seed=seed).run(**settings)


#: A search that comes near enough to the bounds.
SHORT = {"generations": 40, "population": 200}
HALF = (("offset", (-0.5, 0.5)),)
TIED = (("factor", (0.5, 2.0)), ("tied", True))
BASE = (("base", (0.5, 2.0)),)
FACTOR = (("factor", (0.5, 2.0)),)
CASES = (
    Case("odds", odds, logistic, odds_weight, 0.1, 0.75),
    Case("odds, small ridge", odds, logistic, odds_weight, 0.01, 0.75),
    Case("odds, radius", odds, logistic, odds_weight, 0.01, 0.3, 2.0),
    Case("tailored", tailored, tailored_slope, odds_weight, 1.0, 0.6, 1.0),
    Case("tailored, small ridge", tailored, tailored_slope, odds_weight, 0.1, 0.5, 1.0),
    Case("overlap", overlap, logistic, overlap_weight, 0.1, 0.7),
    Case("overlap, offset", overlap, logistic, overlap_weight, 0.1, 0.6, INF, HALF),
    Case("overlap, tied factor", overlap, logistic, overlap_weight, 0.1, 0.65, INF, TIED),
    Case("overlap, base", overlap, logistic, overlap_weight, 0.1, 0.7, INF, BASE),
    Case("overlap, factor", overlap, logistic, overlap_weight, 0.1, 0.45, INF, FACTOR),
    Case("overlap, l1", overlap, logistic, overlap_weight, 0.1, 0.6, l1=0.02),
    Case("overlap, l1, small ridge", overlap, logistic, overlap_weight, 0.01, 0.4, l1=0.05),
    Case("odds, l1", odds, logistic, odds_weight, 0.01, 0.6, l1=0.05),
    Case("raking", raking, raking_slope, raking_weight, 1.0, 0.7, 1.0, target=0.6),
    Case("raking, small ridge", raking, raking_slope, raking_weight, 0.1, 0.5, 1.0, target=0.6),
    Case("odds, offset", odds, logistic, odds_weight, 0.1, 0.7, INF, HALF),
    Case("odds, tied factor", odds, logistic, odds_weight, 0.1, 0.6, INF, TIED),
)


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_no_pair_moves_more_than_its_bound(case):
    bound, found = case.bound(400), case.found(400, **SHORT)
    assert case.least * bound <= found <= bound


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("n", [3, 400])
@pytest.mark.parametrize("label", ["odds", "overlap, offset", "overlap, tied factor"])
def test_the_largest_weight_is_nearly_attained(label, n):
    (case,) = [case for case in CASES if case.label == label]
    bound = margin_movement(n, case.ridge, 1.0, case.curves(**dict(case.numbers))).largest
    scheme = Scheme(case.slope, case.log_weight, case.ridge, **dict(case.numbers))
    found = Search(scheme, n, of_weights=True).run(generations=60, population=200)
    assert 0.97 * bound <= found <= bound


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 40, 2000])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_no_pair_of_a_longer_search_moves_more(case, n):
    for seed in range(3):
        assert case.found(n, seed=seed) <= case.bound(n)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    ("label", "wrong"),
    [
        # the bound of another weight, of no offset, and of no base weights
        ("odds", margin_movement(400, 0.1, 1.0, overlap())),
        ("odds, offset", margin_movement(400, 0.1, 1.0, odds())),
        ("overlap, base", margin_movement(400, 0.1, 1.0, overlap())),
        # a price that is not there, and a public term left out
        ("odds", margin_movement(400, 0.1, 1.0, odds(), l1=0.05)),
        ("raking", margin_movement(400, 1.0, 1.0, raking())),
    ],
)
def test_a_search_finds_the_bound_of_another_scheme_wrong(label, wrong):
    (case,) = [case for case in CASES if case.label == label]
    assert case.found(400, **SHORT) > 1.1 * wrong.bound.V


def test_one_curve_alone_stands_for_both_arms():
    one, two = (margin_movement(300, 0.05, 1.0, arms) for arms in ((CURVES,), (CURVES, CURVES)))
    assert two.bound.V == pytest.approx(one.bound.V, rel=1e-3)
    assert two.least_mean == pytest.approx(one.least_mean, rel=1e-3)


CURVES = ArmCurves(LOGISTIC, OVERLAP)


def test_log_odds_and_signed_margins_give_the_same_bound():
    by_arm, signed = (margin_movement(300, 0.05, 1.0, arms) for arms in (overlap(), (CURVES,)))
    assert by_arm.bound.V == pytest.approx(signed.bound.V, rel=1e-2)
    assert by_arm.reach == pytest.approx(signed.reach, rel=1e-4)
    assert by_arm.gradient_diameter == pytest.approx(signed.gradient_diameter, rel=1e-4)


@pytest.mark.parametrize("reach", [0.3, 2.0, 9.0])
def test_diameters_are_those_of_the_union(reach):
    """Gradients of two arms differ by more than those of one: a line's and an exponential's."""
    curves, angle = tailored(), np.linspace(0.0, 2.0 * np.pi, 721)
    z = np.exp(1j * angle)  # rows of full norm, v along the real axis
    gradients = np.concatenate([np.exp(reach * z.real) * z, -z])
    farthest = np.max(np.abs(gradients[:, None] - gradients))
    union = record_diameter(curves, reach)
    assert 0.995 * union <= farthest <= union
    assert union > 1.02 * record_diameter(curves[:1], reach) or reach == 9.0
    assert weight_diameter(curves, reach) == pytest.approx(2.0, rel=1e-3)


def test_a_tied_factor_cancels_where_the_loss_bends():
    wide = {"factor": (0.25, 4.0)}
    free = margin_movement(400, 0.1, 1.0, overlap(**wide, base=(0.25, 4.0)))
    tied = margin_movement(400, 0.1, 1.0, overlap(**wide, tied=True))
    assert tied.variance < free.variance
    assert tied.bound.V < free.bound.V


def test_norms_of_minimizers_of_two_arms():
    # a line pulls without end; the exponential of controls has rho^2 / 2 = rho exp(-rho)
    assert minimizer_norm(tailored(), 0.5) == pytest.approx(2.0, rel=1e-4)
    assert minimizer_norm(tailored()[:1], 0.5) == pytest.approx(0.8526055, rel=1e-4)
    within = minimizer_norm(overlap(offset=(-0.5, 0.5)), 0.1)
    assert within > minimizer_norm(overlap(), 0.1)
    shifted = minimizer_norm((ArmCurves(SQUARE, MARGIN, offset=(-1.0, -1.0)),), 0.5)
    assert shifted == pytest.approx(
        1.0, rel=1e-4
    )  # 2 x (1 - x) >= x^2 / 2 up to .8, 1/2 at x = 1/2 is most


def test_a_flat_loss_needs_a_weight_that_does_not_move():
    assert math.isfinite(margin_movement(400, 1.0, 1.0, tailored(), radius=1.0).variance)
    moving = arms((EXPONENTIAL, MARGIN), (DOWN, MARGIN))
    assert math.isinf(margin_movement(400, 1.0, 1.0, moving, radius=1.0).variance)


@pytest.mark.parametrize(
    "numbers",
    [
        {"offset": (1.0, -1.0)},
        {"offset": (0.0, INF)},
        {"factor": (0.0, 1.0)},
        {"factor": (2.0, 1.0)},
        {"base": (-1.0, 1.0)},
        {"base": (1.0, math.nan)},
    ],
)
def test_intervals_that_are_none_are_refused(numbers):
    with pytest.raises(DeclarationError, match=next(iter(numbers))):
        ArmCurves(LOGISTIC, OVERLAP, **numbers)


def test_no_curve_and_three_curves_are_refused():
    for curves in ((), (CURVES,) * 3):
        with pytest.raises(DeclarationError, match="two arms"):
            margin_movement(400, 1.0, 1.0, curves)
    with pytest.raises(CalibrationError, match="ridge"):
        margin_movement(400, 0.0, 1.0, (CURVES, CURVES))


def test_a_box_is_a_ball_of_its_corners():
    boxed = margin_movement(400, 0.01, 1.0, overlap(), box=1.0, dimension=2)
    assert (
        boxed.bound.V
        == margin_movement(400, 0.01, 1.0, overlap(), radius=math.sqrt(2) * (1 + 1e-12)).bound.V
    )
    with pytest.raises(DeclarationError, match="dimension"):
        margin_movement(400, 0.01, 1.0, overlap(), box=1.0)


def test_units_of_rows_change_no_public_term():
    small = margin_movement(300, 0.05, 1.0, overlap(), l1=0.01, pull=0.02, box=4.0, dimension=3)
    large = margin_movement(300, 0.45, 3.0, overlap(), l1=0.03, pull=0.06, box=4.0 / 3, dimension=3)
    assert large.bound.V == pytest.approx(small.bound.V, rel=1e-9)


def test_a_floor_on_both_arms_raises_the_mean_weight():
    scheme = Scheme(logistic, odds_weight, 0.1)
    plain, floored = (
        margin_movement(400, 0.1, 1.0, odds(), arm_floor=floor) for floor in (None, 40)
    )
    assert floored.least_mean > 1.2 * plain.least_mean
    assert floored.bound.V < 0.8 * plain.bound.V
    assert 0.6 * floored.bound.V <= Search(scheme, 400, floor=40).run(**SHORT) <= floored.bound.V
    # without the floor the bound is wrong, and one of a single record is none
    assert Search(scheme, 400).run(**SHORT) > floored.bound.V
    assert margin_movement(400, 0.1, 1.0, odds(), arm_floor=1).bound.V == plain.bound.V


def test_the_mean_weight_of_a_floor_against_linear_programs():
    """The least mean of b f under a mean of the pull, each arm with its share, by a solver."""
    rng = np.random.default_rng(4)
    pulls, weights = rng.normal(size=60), rng.uniform(0.1, 2.0, 60)
    arm = rng.integers(0, 2, 60)
    hulls = [
        np.flatnonzero(arm == k)[corners(pulls[arm == k], -weights[arm == k])[::-1]] for k in (0, 1)
    ]
    pairs = pairs_of_hulls(pulls, weights, hulls)
    for share in (0.1, 0.4):
        first = np.repeat([share, 1.0 - share], len(pairs))
        rows = np.concatenate([pairs, pairs])
        pull = first * pulls[rows[:, 0]] + (1.0 - first) * pulls[rows[:, 1]]
        weight = first * weights[rows[:, 0]] + (1.0 - first) * weights[rows[:, 1]]
        on = corners(pull, -weight)[::-1]
        for need in (-1.0, 0.3, 0.9):
            solved = linprog(
                weights,
                A_ub=np.stack([-pulls, -(arm == 0).astype(float), -(arm == 1).astype(float)]),
                b_ub=[-need, -share, -share],
                A_eq=np.ones((1, 60)),
                b_eq=[1.0],
            )
            assert solved.status == 0
            assert np.interp(need, pull[on], weight[on]) == pytest.approx(solved.fun, rel=1e-8)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("floor", "least"), [(80, 0.5), (20, 0.5)])
def test_no_pair_of_a_normalization_by_arm_moves_more(floor, least):
    scheme = Scheme(logistic, overlap_weight, 0.1, normalization="arm")
    settings = {"normalization": "arm", "arm_floor": floor}
    bound = margin_movement(400, 0.1, 1.0, overlap(), **settings).bound
    found = Search(scheme, 400, floor=floor).run(**SHORT)
    assert least * bound.V <= found <= bound.V
    assert "Theorem 43" in bound.theorem
    # the bound of one normalization is wrong
    assert found > 1.5 * margin_movement(400, 0.1, 1.0, overlap()).bound.V


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("total", "least"), [(0.05, 0.4), (0.2, 0.3)])
def test_no_pair_of_a_saturated_normalization_moves_more(total, least):
    scheme = Scheme(logistic, overlap_weight, 0.1, normalization="arm", total=total)
    settings = {"normalization": "arm", "arm_total": total}
    bound = margin_movement(400, 0.1, 1.0, overlap(), **settings).bound
    found = max(Search(scheme, 400, keep=keep).run(**SHORT) for keep in (False, True))
    assert least * bound.V <= found <= bound.V
    assert "Theorem 44" in bound.theorem


@pytest.mark.slow
@pytest.mark.parametrize("n", [4, 40, 1000])
@pytest.mark.parametrize("ridge", [1.0, 0.1, 0.01])
def test_no_pair_of_longer_searches_by_arm_moves_more(n, ridge):
    curves = (("overlap", overlap(), overlap_weight), ("odds", odds(), odds_weight))
    for _, both, log_weight in curves:
        for floor in sorted({1, max(n // 20, 1), n // 4}):
            scheme = Scheme(logistic, log_weight, ridge, normalization="arm")
            bound = margin_movement(
                n, ridge, 1.0, both, normalization="arm", arm_floor=floor
            ).bound.V
            assert Search(scheme, n, floor=floor, seed=1).run() <= bound
        for total in (0.01, 0.1, 1.0):
            scheme = Scheme(logistic, log_weight, ridge, normalization="arm", total=total)
            bound = margin_movement(
                n, ridge, 1.0, both, normalization="arm", arm_total=total
            ).bound.V
            for keep in (False, True):
                assert Search(scheme, n, keep=keep, seed=2).run() <= bound


def test_by_arm_without_floor_or_total_a_record_moves_half_of_all():
    scheme = Scheme(logistic, overlap_weight, 1.0, normalization="arm")
    # all others are controls; the treated record keeps its arm and weighs n/2
    control, treated = [-1.0, 1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0, 0.0]
    replaced = [1.0, -1.0, 0.0, 0.0, 0.0]
    common, shares = np.array([[control]]), np.zeros((1, 1))
    for n in (10, 400):
        moved = movements(scheme, common, shares, np.array([treated]), np.array([replaced]), n)
        assert moved[0] >= n
        with pytest.raises(CalibrationError, match="at least n"):
            margin_movement(n, 1.0, 1.0, overlap(), normalization="arm")
        assert (
            margin_movement(n, 1.0, 1.0, overlap(), normalization="arm", arm_floor=1).bound.V
            >= moved[0]
        )


def test_settings_of_a_normalization_are_checked():
    for settings in (
        {"normalization": "own"},
        {"arm_total": 0.1},
        {"normalization": "arm", "arm_total": 0.0},
    ):
        with pytest.raises(DeclarationError):
            margin_movement(400, 1.0, 1.0, overlap(), **settings)
    with pytest.raises(DeclarationError, match="arm_floor"):
        margin_movement(400, 1.0, 1.0, overlap(), arm_floor=201)


def test_margins_beyond_floating_point_need_a_radius():
    """The line of the treated pulls up to 1/ridge, where no curvature of the controls is left."""
    u = cp.Variable()
    # weights from .2 to 3 of controls, as in a bounded calibration to the treated
    loss, _ = read_curve(0.2 * u + 2.8 * cp.logistic(u), u)
    weight = read_log_weight(cp.log(0.2 + 2.8 * cp.exp(-cp.logistic(-u))), u)
    curves = arms((loss, weight), (DOWN, NOTHING))
    far, near = (margin_movement(400, 1e-3, 1.0, curves, radius=radius) for radius in (INF, 30.0))
    assert far.reach > 600
    assert math.isinf(far.variance)
    assert far.bound.V == 800
    assert math.isfinite(near.variance)
    assert near.bound.V < 400


def test_a_size_whose_bound_is_no_number_has_the_trivial_bound() -> None:
    def bound(first: int, last: int) -> float:
        return math.nan if first <= 7 <= last else 1.0 / first

    assert _largest_over_sizes(bound, 2, 20) == math.inf
