"""Both arm means, and the mean among the treated: joint sensitivities by brute force over all records."""

import itertools
import math

import numpy as np
import pytest

from dp2erm_cvx.calibration import GridSums, Noise, SumLaw, calibrate_sums
from dp2erm_cvx.calibration.numbers import calibrate_integers
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

BUDGET = Budget(1.0, 1e-6)
ORDER = {Noise.GAMMA: 1, Noise.GAUSSIAN: 2}


def movement(points, order):
    points = np.array(points, dtype=float)
    return max(float(np.linalg.norm(points - point, ord=order, axis=1).max()) for point in points)


def span(largest):
    return range(-largest, largest + 1)


def arm_points(noise, own=None, other=None):
    """What any record may contribute: the score of its own arm is large, that of the other arm small."""
    high, low = own or noise.largest, other or noise.largest_other
    scores = [*itertools.product(span(high), span(low)), *itertools.product(span(low), span(high))]
    m = noise.multipliers
    return [
        (m[0] * k, m[1] * j, m[2] * (k - j) ** 2, m[3] * (k + j) ** 2, m[4] * (k * k - j * j))
        for k, j in scores
    ]


def arms(largest, other, kind, sensitivity=1):
    return GridSums(SumLaw.ARMS, 0, largest, 2, calibrate_integers(sensitivity, BUDGET, kind), other)


def stated(largest, other, kind):
    both = largest + other
    return 2 * both * (19 * largest - other) if kind is Noise.GAMMA else 32 * largest * both


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize(("largest", "other"), [(1, 1), (8, 1), (8, 2), (9, 4), (6, 6)])
def test_second_moments_of_the_arms_cost_little(kind, largest, other):
    noise, bound = arms(largest, other, kind), stated(largest, other, kind)
    found = movement(arm_points(noise), ORDER[kind])
    assert found == bound if kind is Noise.GAMMA else 0.85 * bound < found <= bound
    # both means alone: 2 (K + L) in the l1 norm
    means = movement([point[:2] for point in arm_points(noise)], 1)
    assert means == 2 * (largest + other) * noise.multipliers[0] >= bound / 1.06
    # were the other arm not clipped, both scores would be large at once
    assert movement(arm_points(noise, other=largest + 1), 1) > bound
    calibrated = calibrate_sums(SumLaw.ARMS, 5.0, 1000, BUDGET, kind, other_bound=1.0)
    assert calibrated.integers.sensitivity == stated(calibrated.largest, calibrated.largest_other, kind)


@pytest.mark.parametrize("x", np.linspace(0, 1, 41))
def test_l2_norm_of_the_arms_on_a_fine_grid(x):
    """In units of the means: x and y the distances of the sum and of the difference of both scores."""
    y = np.linspace(0, 1, 401)
    product = x * (1 - y) + (1 - x) * y
    found = x**2 + y**2 + 8 * (x * (1 - x)) ** 2 + 8 * (y * (1 - y)) ** 2 + product**2 / 2
    assert found.max() <= 2 + 1e-12


def treated_points(noise, largest=None):
    m = noise.multipliers
    return [
        (m[0] * k, m[1] * a, m[2] * k * k, m[3] * (2 * a - 1) * k)
        for k, a in itertools.product(span(largest or noise.largest), (0, 1))
    ]


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize("largest", [1, 2, 7, 30])
def test_number_of_treated_and_moments_cost_an_eighth(kind, largest):
    noise = GridSums(SumLaw.TREATED, 0, largest, 2, calibrate_integers(1, BUDGET, kind))
    stated = 32.0 if kind is Noise.GAMMA else math.sqrt(272.0)
    assert movement(treated_points(noise), ORDER[kind]) == pytest.approx(stated * largest**2)
    assert movement(treated_points(noise, largest + 1), ORDER[kind]) > stated * largest**2
    calibrated = calibrate_sums(SumLaw.TREATED, 5.0, 1000, BUDGET, kind)
    assert calibrated.integers.sensitivity >= stated * calibrated.largest**2 * (1 - 1e-12)
    assert calibrated.integers.sensitivity <= stated * calibrated.largest**2 + 1


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize("largest", [2**15, 2**16 - 1, 2**20])
def test_the_size_of_the_overlap_costs_a_quarter(kind, largest):
    noise = calibrate_sums(SumLaw.OVERLAP, float(largest), 1000, BUDGET, kind)
    top, (first, size, last) = noise.largest, noise.multipliers
    scores = np.unique(np.linspace(-top, top, 61).astype(int))
    points = [(first * k, size * h, last * k * k) for k in scores for h in (0.0, 0.2, 0.5)]
    found, stated = movement(points, ORDER[kind]), noise.integers.sensitivity
    assert (1 - 1e-4) * stated < found <= stated
    assert stated <= (5.0 if kind is Noise.GAMMA else math.sqrt(20.0)) * top**2 + 1
    # a record that counted as one would cost more
    assert movement([*points, (first * top, size, last * top**2)], ORDER[kind]) > stated


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize("bound", [1.0, 3.0])
def test_a_score_within_its_share_costs_a_sixteenth(kind, bound):
    """Records of sampling weights u have scores within u B, and shares u / 2; rounded to their grids."""
    noise = calibrate_sums(SumLaw.WITHIN, bound, 2, BUDGET, kind)
    u, sign = (grid.ravel() for grid in np.meshgrid(np.linspace(0, 1, 41), [-1.0, -0.7, -0.1, 0.3, 1.0]))
    points = [noise.totals([s, 0.0], [h, 0.0]) for s, h in zip(sign * u * noise.bound, u / 2, strict=True)]
    found, stated = movement(points, ORDER[kind]), noise.integers.sensitivity
    assert (1 - 1e-4) * stated < found <= stated
    assert stated <= (17 / 4 if kind is Noise.GAMMA else math.sqrt(17.0)) * (1 + 1e-4) * noise.largest**2
    # a record without a share that has a score costs more
    assert movement([*points, noise.totals([noise.bound, 0.0], [0.0, 0.0])], ORDER[kind]) > stated


def counted_points(largest, size, last, shares):
    """2K sum k, size K^2 sum h, last sum k^2 of a record that counts h, with |k| <= h K."""
    return [
        (2 * largest * k, size * largest**2 * h, last * k * k)
        for h in shares
        for k in span(largest)
        if abs(k) <= h * largest
    ]


@pytest.mark.parametrize("largest", [1, 2, 3, 8, 20])
def test_not_counting_a_record_is_free_where_others_count_in_full(largest):
    square, whole, any_share = largest**2, (0, 1), np.linspace(0, 1, 2 * largest + 1)
    assert movement(counted_points(largest, 1, 1, whole), 1) == 4 * square
    for size, last in itertools.product((0.5, 1.0, 1.5, 2.0), (0.25, 0.5, 1.0)):
        found = movement(counted_points(largest, size, last, whole), 1)
        assert found == max(4.0, 2 + size + last) * square
        within = movement(counted_points(largest, size, last, any_share), 1)
        assert within >= found
        if size + 2 * last <= 2:
            assert within == 4 * square
    if largest % 2 == 0:
        assert movement(counted_points(largest, 1, 1, any_share), 1) == 17 / 4 * square
    assert movement(counted_points(largest, math.sqrt(3), 3, whole), 2) == pytest.approx(4 * square)
    assert movement(counted_points(largest, 2, 3, whole), 2) > 4.1 * square


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize("bound", [1.0, 3.0])
def test_sums_over_whole_records_move_as_a_mean_alone(kind, bound):
    noise = calibrate_sums(SumLaw.WHOLE, bound, 2, BUDGET, kind)
    scores = np.linspace(-1.0, 1.0, 201) * noise.bound
    points = [noise.totals([one, 0.0], [0.5, 0.0]) for one in scores]
    silent = noise.totals([noise.bound, 0.0], [0.0, 0.0])
    assert silent == (0, 0, 0)
    assert movement([*points, silent], ORDER[kind]) == noise.integers.sensitivity == 4 * noise.largest**2
    assert noise.totals([bound, bound], [0.4, 0.2]) == noise.totals([bound, bound], [0.5, 0.0])


def test_shares_are_clipped_to_one_half_and_summed_exactly():
    noise = calibrate_sums(SumLaw.OVERLAP, 3.0, 4, BUDGET)
    found = noise.totals([1.0, -9.0, np.nan, 0.0], [0.25, 0.9, np.nan, -1.0])
    means = noise.means(found)
    bound = noise.bound
    assert means == pytest.approx(((1.0 - bound) / 4, 0.75 / 4, (1.0 + bound**2) / 4), rel=1e-5)
    with pytest.raises(DeclarationError, match="share of shape"):
        noise.totals([1.0] * 4, [0.1])


@pytest.mark.parametrize("kind", list(ORDER))
def test_scales(kind):
    budget = Budget(0.5, 1e-6)
    both = calibrate_sums(SumLaw.ARMS, 4.0, 1000, budget, kind, other_bound=0.5)
    effect = calibrate_sums(SumLaw.TREATED, 4.0, 1000, budget, kind)
    unit = both.integers.scale / both.integers.sensitivity
    # means: 2 (B + G) / n and a little, number of treated over n: 8 / n and sqrt(17) / n
    extra = 1 + 3.5 / (18 * 4.0) if kind is Noise.GAMMA else 1.0
    assert both.scales[0] == both.scales[1] == pytest.approx(2 * 4.5 * extra / 1000 * unit, rel=1e-4)
    assert both.other_bound == pytest.approx(0.5, rel=1e-4)
    scale, cost = (16 / 7, 8) if kind is Noise.GAMMA else (2 * math.sqrt(17 / 16), math.sqrt(17))
    assert effect.scales[0] == pytest.approx(scale * 4.0 / 1000 * unit, rel=1e-4)
    assert effect.scales[1] == pytest.approx(cost / 1000 * unit, rel=1e-4)


def test_refusals():
    with pytest.raises(DeclarationError, match="other_bound = 2: must be at most score_bound"):
        calibrate_sums(SumLaw.ARMS, 1.0, 100, BUDGET, other_bound=2.0)
    with pytest.raises(CalibrationError, match="beyond 64-bit"):
        calibrate_sums(SumLaw.TREATED, 1.0, 10**9, BUDGET)
    for law, other in ((SumLaw.ARMS, None), (SumLaw.SCORE, 0.5)):
        with pytest.raises(DeclarationError, match="other_bound: is for both arms alone"):
            calibrate_sums(law, 1.0, 100, BUDGET, other_bound=other)
    with pytest.raises(DeclarationError, match="2 columns are not what"):
        calibrate_sums("score", 1.0, 100, BUDGET).totals([0.5], [1.0])
    with pytest.raises(DeclarationError, match="law = 'sums': must be one of score, contrasts"):
        calibrate_sums("sums", 1.0, 100, BUDGET)
    with pytest.raises(CalibrationError, match="needs a delta"):
        calibrate_sums(SumLaw.ARMS, 1.0, 100, Budget(1.0), "gaussian", other_bound=0.5)
