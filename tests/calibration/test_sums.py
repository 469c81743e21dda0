"""Exact sums with noise: sensitivities by brute force over all records, and losses exactly."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dp2erm_cvx.calibration import GridSums, Noise, SumLaw, calibrate_integers, calibrate_sums
from dp2erm_cvx.privacy import Budget

LAPLACE, GAUSSIAN = Budget(1.0), Budget(1.0, 1e-6)


def movement(points, order):
    """Largest distance between the contributions of any two records, one at a time."""
    points = np.array(points, dtype=float)
    return max(float(np.linalg.norm(points - point, ord=order, axis=1).max()) for point in points)


@pytest.mark.parametrize("bound", [1.0, 1.0000001, 7.3, 2.0**-40, 3e-99, 9e99])
@pytest.mark.parametrize("n", [2, 500, 1_300_000, 10**9])
def test_the_grid_holds_the_bound_and_the_sums(bound, n):
    for budget, kind in ((LAPLACE, Noise.GAMMA), (GAUSSIAN, Noise.GAUSSIAN)):
        noise = calibrate_sums(SumLaw.SCORE, bound, n, budget, kind)
        assert Fraction(noise.bound) == noise.largest * Fraction(2) ** noise.step_exponent
        assert bound <= noise.bound <= bound * (1 + 2.0**-14 if n > 1_300_000 else 1 + 2.0**-19)
        assert max(noise.multipliers[0], noise.multipliers[1] * noise.largest) * n * noise.largest <= 2**62
        assert 60 * noise.scale < 2**62
        assert noise.sensitivity == 4 * noise.largest**2


def of_one_record(noise, n_groups, shares):
    """The released sums of tables of one record, by the code that adds them up."""
    rows = [np.zeros(3 * n_groups, dtype=object)]
    for place, share, part in itertools.product(range(n_groups), shares, np.linspace(-1.3, 1.3, 27)):
        row = np.zeros(3 * n_groups, dtype=object)
        row[3 * place : 3 * place + 3] = noise.totals([part * noise.bound], [share])
        rows.append(row)
    return np.array(rows, dtype=object)


def test_groups_at_the_noise_of_one_would_cost_twice_as_much():
    noise = calibrate_sums(SumLaw.WHOLE, 3.0, 100, LAPLACE)
    found = of_one_record(noise, 2, [0.0, 0.5]).astype(float)
    loss = movement(found, 1) / noise.scale
    assert loss == pytest.approx(2.0, rel=1e-4)
    right = calibrate_sums(SumLaw.WHOLE_GROUPS, 3.0, 100, LAPLACE)
    found = of_one_record(right, 2, [0.0, 0.5]).astype(float)
    assert 0.999 < movement(found, 1) / right.scale <= 1.0
    # a score that is larger than its record's share is clipped to it
    wide = [
        noise.totals([right.bound], [0.1])[0]
        for noise in (right, calibrate_sums(SumLaw.GROUPS, 3.0, 9, LAPLACE))
    ]
    assert wide[0] == 0
    assert wide[1] == pytest.approx(0.2 * 8 * right.largest**2, rel=1e-4)


ORDER = {Noise.GAMMA: 1, Noise.GAUSSIAN: 2}


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
    noise, grid = calibrate_integers(sensitivity, GAUSSIAN, kind), {"law": SumLaw.ARMS, "step_exponent": 0}
    return GridSums(**vars(noise), **grid, largest=largest, n_samples=2, largest_other=other)


def stated_of_arms(largest, other, kind):
    both = largest + other
    return 2 * both * (19 * largest - other) if kind is Noise.GAMMA else 32 * largest * both


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize(("largest", "other"), [(1, 1), (8, 1), (8, 2), (9, 4), (6, 6)])
def test_second_moments_of_the_arms_cost_little(kind, largest, other):
    noise, bound = arms(largest, other, kind), stated_of_arms(largest, other, kind)
    found = movement(arm_points(noise), ORDER[kind])
    assert found == bound if kind is Noise.GAMMA else 0.85 * bound < found <= bound
    # both means alone: 2 (K + L) in the l1 norm
    means = movement([point[:2] for point in arm_points(noise)], 1)
    assert means == 2 * (largest + other) * noise.multipliers[0] >= bound / 1.06
    # were the other arm not clipped, both scores would be large at once
    assert movement(arm_points(noise, other=largest + 1), 1) > bound
    calibrated = calibrate_sums(SumLaw.ARMS, 5.0, 1000, GAUSSIAN, kind, other_bound=1.0)
    assert calibrated.sensitivity == stated_of_arms(calibrated.largest, calibrated.largest_other, kind)


@pytest.mark.parametrize("kind", list(ORDER))
@pytest.mark.parametrize(("largest", "other"), [(1, 1), (6, 1), (6, 2), (7, 5), (6, 6)])
def test_the_number_of_records_that_count_is_free_with_both_arms(kind, largest, other):
    """All pairs of records, one of them silent, and of means of several: every point of the octagon."""
    stated = stated_of_arms(largest, other, kind)
    if kind is Noise.GAMMA:  # edges of the octagon reach beyond its corners
        stated += max(7 * largest - 9 * other, 0) ** 2 // 16 + 1
    noise = replace(arms(largest, other, kind), law=SumLaw.COUNTED_ARMS)
    m = noise.multipliers
    points = [
        (m[0] * k, m[1] * j, m[2] * (k - j) ** 2, m[3] * (k + j) ** 2, m[4] * (k * k - j * j), m[5])
        for k, j in itertools.product(span(largest), span(largest))
        if abs(k) + abs(j) <= largest + other
    ]
    silent = (0,) * 6
    found = movement([*points, silent], ORDER[kind])
    assert 0.85 * stated < found <= stated
    assert m[5] >= 13 * largest**2
    if m[5] < m[0] * largest:  # nothing is left: were h to count any more, a silent record would be too much
        left = np.linalg.norm(np.array(points, dtype=float), ord=ORDER[kind], axis=1).max()
        assert left <= stated < left + 1 + stated * 1e-9
    # what a record adds is what the code adds up
    cells = [noise.totals([k], [j], [0.5], [1.0]) for k, j in itertools.product(span(9), span(9))]
    assert set(cells) <= set(points)
    assert noise.totals([3.0, 3.0], [1.0, 1.0], [1, 0], [0.0, 0.0]) == silent
    real = calibrate_sums(SumLaw.COUNTED_ARMS, 1.5, 1000, GAUSSIAN, kind, other_bound=0.5)
    arms_alone = stated_of_arms(real.largest, real.largest_other, kind)
    assert arms_alone <= real.sensitivity < 1.03 * arms_alone


def test_shares_are_clipped_to_one_half_and_summed_exactly():
    noise = calibrate_sums(SumLaw.OVERLAP, 3.0, 4, GAUSSIAN)
    found = noise.totals([1.0, -9.0, np.nan, 0.0], [0.25, 0.9, np.nan, -1.0])
    means = noise.means(found)
    bound = noise.bound
    assert means == pytest.approx(((1.0 - bound) / 4, 0.75 / 4, (1.0 + bound**2) / 4), rel=1e-5)
