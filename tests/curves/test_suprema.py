"""Certified suprema against closed forms, brute force and planted errors."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from dp2erm_cvx.arrays import largest_bound
from dp2erm_cvx.curves import suprema
from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import EXPONENTIAL, LOGISTIC, SQUARE, Curve, Part
from dp2erm_cvx.curves.log_weights import INVERSE_PROPENSITY, OVERLAP, LogWeight
from dp2erm_cvx.curves.suprema import Saturation, corners, gradient_diameter, largest_multiple
from dp2erm_cvx.stability import ArmCurves, minimizer_norm
from tests.helpers import BOUNDED_INFLUENCE, logistic_diameter
from tests.rows import one_of

HUBER = Curve((Part(1.0, atom("huber", 0.8)),))
BOUNDED = Curve((Part(1.0, atom("saturating", 0.7)),))
HINGE = Curve((Part(1.0, atom("hinge"), -1.0, 1.0),))
POISSON = Curve((Part(1.0, atom("exp")),))
PINBALL = Curve((Part(0.5, atom("logistic"), -2.0), Part(0.2, atom("logistic"), 2.0)))


def squared_radius(reach, response):
    """Half the diameter of ``{2 (<x, v> - z) x}`` in closed form: the extreme gradients trace a
    limacon.
    """
    A, B = 2 * reach, 2 * response
    cosine = 2 * A / (B + math.hypot(B, math.sqrt(8) * A))
    return math.sqrt(1 - cosine**2) * (A * cosine + B)


def test_diameters_of_the_logistic_loss_and_of_least_squares_are_those_of_their_closed_forms():
    for reach in (0.1, 1.0, 2.7, 9.0, 40.0):
        exact = logistic_diameter(reach)
        assert exact * (1 - 1e-9) <= gradient_diameter(LOGISTIC, reach) <= exact * (1 + 1e-4)
    for reach, response in ((1.0, 2.0), (0.3, 2.0), (5.0, 1.0), (2.0, 0.5)):
        exact, within = 2 * squared_radius(reach, response), (-response, response)
        assert exact <= gradient_diameter(SQUARE, reach, within) <= exact * (1 + 1e-9)
        # the same function within reach, but not one whose slope is a line everywhere
        assert exact <= gradient_diameter(WIDE, reach, within) <= exact * (1 + 1e-4)


WIDE = Curve((Part(1.0, atom("huber", 1e3)),))
CASES = {
    "Huber": (HUBER, 1.0, (-2.0, 2.0), (1.0, 1.0), (0.0, 0.0)),
    "a small Huber": (
        Curve((Part(1.0, atom("huber", 3.0)),)),
        1.0,
        (-1.0, 1.0),
        (1.0, 1.0),
        (0.0, 0.0),
    ),
    "bounded influence": (BOUNDED, 2.0, (-1.0, 1.0), (1.0, 1.0), (0.0, 0.0)),
    "squared hinge": (HINGE, 1.5, (0.0, 0.0), (0.5, 2.0), (0.0, 0.0)),
    "Poisson": (POISSON, 1.0, (0.0, 0.0), (1.0, 1.0), (-4.0, 0.0)),
    "pinball": (PINBALL, 2.0, (-1.0, 1.0), (0.0, 3.0), (-0.2, 0.4)),
    "one-sided offset": (LOGISTIC, 2.0, (0.5, 1.5), (1.0, 1.0), (0.0, 0.0)),
}


def gradients(case, v, rng, size):
    """Gradients (size, 2) of random records at v, with rows of norm 1 and numbers at their ends."""
    curve, _, offset, factor, tilt = CASES[case]
    angle = rng.uniform(0, 2 * np.pi, size)
    rows = np.column_stack([np.cos(angle), np.sin(angle)])
    o, c, t = (rng.choice(ends, size) for ends in (offset, factor, tilt))
    return (c * curve.slope(rows @ v + o) + t)[:, None] * rows


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("case", CASES)
def test_the_diameter_is_attained_and_never_exceeded(case):
    curve, reach, *numbers = CASES[case]
    bound, rng, best, longest = (
        gradient_diameter(curve, reach, *numbers),
        np.random.default_rng(3),
        0.0,
        0.0,
    )
    for length in reach * np.sqrt(np.linspace(0.02, 1.0, 60)):
        result = gradients(case, np.array([length, 0.0]), rng, 600)
        squared = np.sum(result**2, axis=1)
        apart = squared[:, None] + squared[None, :] - 2 * result @ result.T
        best = max(best, math.sqrt(max(float(np.max(apart)), 0.0)))
        longest = max(longest, math.sqrt(float(np.max(squared))))
    assert 0.97 * bound <= best <= bound
    assert 0.97 * largest_multiple(curve, reach, *numbers) <= longest
    assert longest <= largest_multiple(curve, reach, *numbers)


def test_a_grid_in_place_of_cells_is_caught(monkeypatch):
    """At a few radii alone, with nothing for what lies between them, the diameter is too small."""
    exact = 2 * squared_radius(1.0, 2.0)

    def on_a_grid(reach, width, close=0.0):
        return max(width(radius, radius) for radius in np.linspace(0.0, reach, 9)[:-1])

    monkeypatch.setattr(suprema, "_largest_over_radii", on_a_grid)
    suprema.diameter_of_kinds.cache_clear()
    assert gradient_diameter(WIDE, 1.0, (-2.0, 2.0)) < exact
    suprema.diameter_of_kinds.cache_clear()


ARMS = (ArmCurves(LOGISTIC, LogWeight()),)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("ridge", [1e-3, 0.01, 0.1, 1.0, 10.0])
def test_norms_of_minimizers_are_those_of_their_closed_form(ridge):
    # s sigma(-s) grows up to s = 1.2785, where it is 0.27846, and falls afterwards
    crossing = brentq(lambda s: ridge * s - expit(-s), 0.0, 1e4)
    exact = crossing if crossing < 1.2785 else math.sqrt(0.278464542761 / ridge)
    assert exact * (1 - 1e-9) <= minimizer_norm(ARMS, ridge) <= exact * (1 + 1e-4)
    assert minimizer_norm(ARMS, ridge, 0.01) == min(0.01, minimizer_norm(ARMS, ridge))


GROWN = LogWeight("atom", (LogWeight(),), atom=atom("exp"))
TRIMMED = LogWeight("minimum", (INVERSE_PROPENSITY, LogWeight("constant", number=math.log(3.0))))
WEIGHTS = {
    "overlap": (OVERLAP, lambda s: -np.logaddexp(0, s)),
    "ipw": (INVERSE_PROPENSITY, lambda s: np.logaddexp(0, -s)),
    "trimmed": (TRIMMED, lambda s: np.minimum(np.logaddexp(0, -s), np.log(3.0))),
    "matching": (
        LogWeight("minimum", (LogWeight().times(-1.0), LogWeight("constant", number=0.0))),
        lambda s: np.minimum(-s, 0.0),
    ),
    "bell": (
        LogWeight("atom", (LogWeight(),), atom=atom("square")).times(-0.5),
        lambda s: -s * s / 2,
    ),
    "log of a sum": (
        LogWeight("log", (LogWeight("sum", (GROWN, LogWeight("constant", number=0.5))),)),
        lambda s: np.log(np.exp(s) + 0.5),
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_enclosures_hold_values_and_slopes(name):
    weight, exact = WEIGHTS[name]
    rng = np.random.default_rng(0)
    low = rng.uniform(-4, 4, 300)
    high = low + rng.uniform(1e-6, 1.0, 300)
    result = weight.enclose(low, high)
    for share in np.linspace(0, 1, 9):
        s = low + share * (high - low)
        value, step = exact(s), 1e-6
        slope = (exact(s + step) - exact(s - step)) / (2 * step)
        assert np.all(result.low - 1e-12 <= value)
        assert np.all(value <= result.high + 1e-12)
        inside = (s - step > low) & (s + step < high)
        assert np.all((result.down - 1e-6 <= slope)[inside])
        assert np.all((slope <= result.up + 1e-6)[inside])
    values, (low, high) = exact(np.linspace(-3, 3, 2001)), weight.range(-3.0, 3.0)
    assert np.min(values) - 1e-2 <= low <= np.min(values) + 1e-12
    assert np.max(values) - 1e-12 <= high <= np.max(values) + 1e-2


def test_the_diameter_of_log_weights_is_that_of_the_logistic_loss():
    result = suprema.log_weight_diameter(
        LogWeight("sum", (OVERLAP, LogWeight().times(0.0))), 2.0, clipped=False
    )
    assert logistic_diameter(2.0) <= result <= 1.003 * logistic_diameter(2.0)
    for weight in (OVERLAP, INVERSE_PROPENSITY):
        assert suprema.log_weight_diameter(weight, 2.0, clipped=False) <= result
    m = np.linspace(-1, 1, 2001)
    y = expit(-2 * m) * (np.logaddexp(0, -2 * m) <= np.log(3.0))
    clipped = suprema.log_weight_diameter(TRIMMED, 2.0, clipped=True)
    assert clipped >= 2 * np.max(y * np.sqrt(1 - m * m))


U = np.linspace(0.0, 1.0, 20_001)


@pytest.mark.parametrize("shape", BOUNDED_INFLUENCE)
def test_slope_and_curvature_of_a_loss_whose_shape_is_known(shape):
    curve, h = BOUNDED_INFLUENCE[shape]
    rng = np.random.default_rng(0)
    for S, kappa in 10 ** rng.uniform(-2, 2, (3, 2)):
        loss = Saturation(curve(S, kappa), 3.0)
        q = {"1 - u": 1.0, "4 u (1 - u)": 4.0}[shape]
        assert (loss.slope, loss.curvature, loss.steepness) == pytest.approx(
            (S, kappa, q), rel=1e-14
        )
        s = (
            np.concatenate([-np.geomspace(1e-9, 40, 200), np.geomspace(1e-9, 40, 200)])
            / loss.loss.bend
        )
        u = np.abs(loss.loss.slope(s)) / S
        np.testing.assert_allclose(loss.loss.curvature(s), kappa * h(u), atol=1e-14 * kappa)
        for a, k in [
            *10 ** rng.uniform(-3, 3, (10, 2)),
            (1.0, 0.0),
            (0.0, 1.0),
            (0.0, 0.0),
            (q, 1.0),
        ]:
            bound, on_grid = loss.largest(a, k) - a, float(np.max(a * U + k * h(U)))
            assert on_grid * (1 - 1e-12) - 1e-15 * a <= bound <= on_grid + 1e-8 * (a + k)


LOG = atom("logistic")
MIXTURES = {
    "two logistic losses": Curve((Part(1.0, LOG, -1.0), Part(2.0, LOG, -0.3))),
    "an even one": Curve((Part(1.0, LOG, 2.0), Part(-1.0, atom("line")))),
    "one that bends far away": Curve((Part(1.0, LOG, -1.0, 60.0), Part(0.05, LOG, -1.0))),
    "bounded influence and logistic": Curve(
        (Part(1.0, atom("saturating", 0.7)), Part(1.0, LOG, -1.0, 0.5))
    ),
}


def on_a_grid(loss, ball):
    """``(|g - g'|, |g| + |g'|, h)`` of two records, scaled: rows at all angles to coefficients."""
    t = np.linspace(-np.pi / 2, np.pi / 2, 181)
    for rho in min(ball, 90.0) * np.array([0.1, 0.3, 0.8, 1.0]):
        for length in (1.0, 0.7):
            s = rho * np.sin(t)
            g, other = (loss.loss.slope(one) / loss.slope for one in (length * s, s[:, None]))
            g = length * g
            steep = loss.loss.curvature(s)
            assert np.all(
                steep <= loss.curvature * loss.steepness * (1 - np.abs(other[:, 0])) + 1e-14
            )
            both = g * other
            dot = (
                both * np.sin(t) * np.sin(t)[:, None]
                - np.abs(both) * np.cos(t) * np.cos(t)[:, None]
            )
            apart = np.sqrt(np.maximum(g**2 + other**2 - 2 * dot, 0.0))
            h = loss.loss.curvature(length * s) * length**2 / loss.curvature
            yield apart, np.abs(g) + np.abs(other), h


@pytest.mark.one_row_in(9)
@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize(
    ("name", "ball"),
    [
        *one_of(((name, math.inf) for name in MIXTURES), 2),
        *one_of(((name, 0.8) for name in list(MIXTURES)[::2]), 2),
        *one_of((("logistic", ball) for ball in (0.5, 3.3, 20.0, math.inf)), 2),
    ],
)
def test_sums_of_slope_and_curvature_are_not_exceeded(name, ball, box):
    """Theorems 15 and 19, in a box as well: nearly met by a logistic loss, whose supremum is
    known.
    """
    loss = Saturation.of((MIXTURES | {"logistic": LOGISTIC})[name], 1.0, 1.0, ball)
    q, grid = loss.steepness, [(one[box], one[2]) for one in on_a_grid(loss, ball)]
    slack = 1.05 if name == "logistic" else 1.35

    def reached(a, k):
        return max(float(np.max(a * distance + k * h)) for distance, h in grid)

    for a, k in ((1.0, 0.2 / q), (1.0, 1.0), (0.01, 0.1)):
        assert (
            reached(a, k)
            <= loss.largest(a, k, box=box) * (1 + 1e-12)
            <= slack * reached(a, k) + 1e-6
        )
    for k in (0.05, 0.4):
        a = loss.largest_noise_factor(1.0, k, box=box)
        assert loss.largest(a, k, box=box) <= 1.0
        # none is found where the curvature takes as much as a record that it leaves alone
        assert (0.98 if a else -1) < reached(a, k) <= 1 + 1e-12
        assert a or k > 0.05


def test_a_loss_that_keeps_its_curvature_at_full_slope_is_none():
    for curve in (HUBER, HINGE, POISSON, SQUARE, Curve((Part(1.0, atom("line")),))):
        assert Saturation.of(curve, 1.0, 1.0, 2.0) is None


@pytest.mark.parametrize("size", [1e-200, 1e-160, 1e160, 1e300])
def test_corners_of_the_smallest_and_the_largest_numbers_are_all_found(size):
    turn = np.linspace(0.0, math.pi / 2, 100)
    found = corners(size * np.sin(turn), size * np.cos(turn))
    assert np.array_equal(found, corners(np.sin(turn), np.cos(turn)))


@pytest.mark.parametrize("size", [1e-160, 1e160])
def test_a_diameter_is_proportional_to_the_loss_at_any_size(size):
    # products of differences overflowed at 1e160, and 1.1354 stood where the diameter is 1.1419
    of_one = gradient_diameter(EXPONENTIAL.scaled(math.exp(-1.0)), 1.0, factor=(0.5, 1.0))
    of_size = gradient_diameter(EXPONENTIAL.scaled(size * math.exp(-1.0)), 1.0, factor=(0.5, 1.0))
    assert of_size / size == pytest.approx(of_one, rel=1e-9)


def test_where_a_turn_overflows_twice_the_largest_slope_is_left():
    assert gradient_diameter(EXPONENTIAL, 705.0) == pytest.approx(2 * math.exp(705.0))


def test_a_cell_whose_bound_is_no_number_is_not_passed_over():
    """No comparison holds of what is no number: neither may it leave a search unseen."""
    assert largest_bound(1.0, math.nan) == math.inf
    assert largest_bound(1.0, 2.0) == 2.0

    def bounds(centers, _, half_width):
        cells = np.where(centers < 0.0, math.nan, centers + half_width)
        return centers, cells

    assert suprema.largest_of(bounds, (-1.0, 1.0), 1, 1e-3) == math.inf

    def width(low, high):
        return math.nan if 0.3 < low < 0.6 else high

    assert suprema._largest_over_radii(1.0, width) == math.inf
