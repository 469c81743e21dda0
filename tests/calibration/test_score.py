"""A mean and its second moment for the price of the mean: sensitivities by brute force, losses exactly."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from dp2erm_cvx.calibration import (
    GridSums,
    Noise,
    SumLaw,
    calibrate_integers,
    calibrate_sums,
)
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import Budget

LAPLACE, GAUSSIAN = Budget(1.0), Budget(1.0, 1e-6)


def movement(contributions, order):
    """Largest distance between the contributions (k, m) of any two records."""
    gaps = np.abs(contributions[:, None, :] - contributions[None, :, :]).astype(float)
    return float(np.linalg.norm(gaps, ord=order, axis=-1).max())


def contributions(largest, second, reach=None):
    """``(2K k, second(k))`` for every score of at most ``reach`` steps."""
    k = np.arange(-(reach or largest), (reach or largest) + 1)
    return np.stack([2 * largest * k, second(k)], axis=1)


@pytest.mark.parametrize("largest", [1, 2, 3, 8, 37, 200])
def test_the_second_moment_is_free(largest):
    noise = GridSums(SumLaw.SCORE, 0, largest, 2, calibrate_integers(4 * largest**2, LAPLACE))
    by_two = GridSums(SumLaw.SCORE, 0, largest, 2, calibrate_integers(4 * largest**2, GAUSSIAN, "gaussian"))
    assert noise.multipliers == (2 * largest, 1)
    assert by_two.multipliers == (2 * largest, 3)
    for weight, order in ((noise.multipliers[1], 1), (by_two.multipliers[1], 2)):
        found = movement(contributions(largest, lambda k, w=weight: w * k * k), order)
        assert found == 4 * largest**2


@pytest.mark.parametrize("largest", [1, 2, 3, 8, 37])
def test_two_means_of_which_a_record_adds_to_one_cost_what_one_does(largest):
    k = np.arange(-largest, largest + 1)
    for budget, kind, order in ((LAPLACE, "gamma", 1), (GAUSSIAN, "gaussian", 2)):
        noise = GridSums(SumLaw.CONTRASTS, 0, largest, 2, calibrate_integers(4 * largest**2, budget, kind))
        first, second, square = noise.multipliers
        nothing = np.zeros_like(k)
        one = np.stack([first * k, nothing, square * k * k], axis=1)
        other = np.stack([nothing, second * k, square * k * k], axis=1)
        assert movement(np.concatenate([one, other]), order) == 4 * largest**2
        assert replace(noise, law=SumLaw.SCORE).scales == (noise.scales[0], noise.scales[2])
        # a record that adds to both is not covered
        both = np.stack([first * k, second * k, square * k * k], axis=1)
        assert movement(both, order) > 4 * largest**2


def test_the_noise_of_two_means_is_that_of_one():
    for budget, kind in ((LAPLACE, "gamma"), (GAUSSIAN, "gaussian")):
        two, one = (calibrate_sums(law, 3.0, 500, budget, kind) for law in (SumLaw.CONTRASTS, SumLaw.SCORE))
        assert (two.integers, two.largest, two.step) == (one.integers, one.largest, one.step)


@pytest.mark.parametrize(
    ("second", "reach", "order"),
    [
        (lambda k: 2 * k * k, None, 1),  # half of the noise that the second moment needs
        (lambda k: 4 * k * k, None, 2),
        (lambda k: k * k, 41, 1),  # a score that is not clipped
        (lambda k: 3 * k * k, 41, 2),
        (lambda k: 7 * np.rint(k * k / 7), None, 1),  # squares rounded to the grid by themselves
    ],
)
def test_planted_errors_move_more(second, reach, order):
    assert movement(contributions(40, second, reach), order) > 4 * 40**2


def log_laplace(k, scale):
    return -abs(k) / scale


@pytest.mark.parametrize("largest", [1, 3, 6])
def test_exact_privacy_loss_of_the_pair(largest):
    noise = calibrate_integers(4 * largest**2, Budget(0.7))
    k = np.arange(-largest, largest + 1)
    points = np.stack([2 * largest * k, k * k], axis=1)
    # the log ratio of the probabilities is piecewise linear: extreme at the contributions and far out
    far = 10 * largest**2
    firsts = sorted({*points[:, 0].tolist(), -far, far})
    seconds = sorted({*points[:, 1].tolist(), -far, far})
    worst = max(
        sum(
            log_laplace(o - a, noise.scale) - log_laplace(o - b, noise.scale)
            for o, a, b in zip(out, left, right, strict=True)
        )
        for out in itertools.product(firsts, seconds)
        for left, right in itertools.permutations(points.tolist(), 2)
    )
    assert worst == pytest.approx(0.7, rel=1e-9)
    assert worst <= 0.7


@pytest.mark.parametrize("bound", [1.0, 1.0000001, 7.3, 2.0**-40, 3e-99, 9e99])
@pytest.mark.parametrize("n", [2, 500, 1_300_000, 10**9])
def test_the_grid_holds_the_bound_and_the_sums(bound, n):
    for budget, kind in ((LAPLACE, Noise.GAMMA), (GAUSSIAN, Noise.GAUSSIAN)):
        noise = calibrate_sums(SumLaw.SCORE, bound, n, budget, kind)
        assert Fraction(noise.bound) == noise.largest * Fraction(2) ** noise.step_exponent
        assert bound <= noise.bound <= bound * (1 + 2.0**-14 if n > 1_300_000 else 1 + 2.0**-19)
        assert max(noise.multipliers[0], noise.multipliers[1] * noise.largest) * n * noise.largest <= 2**62
        assert 60 * noise.integers.scale < 2**62
        assert noise.integers.sensitivity == 4 * noise.largest**2


def test_scales_are_those_of_the_theorem():
    noise = calibrate_sums(SumLaw.SCORE, 5.0, 1000, Budget(0.5, 1e-6))
    b = 2 * noise.bound / (1000 * 0.5)
    assert noise.scales[0] == pytest.approx(b, rel=1e-9)
    assert noise.scales[1] == pytest.approx(2 * noise.bound * b, rel=1e-9)
    assert (noise.epsilon, noise.delta) == (0.5, 0.0)
    normal = calibrate_sums(SumLaw.SCORE, 5.0, 1000, Budget(0.5, 1e-6), "gaussian")
    sigma = normal.integers.scale / normal.integers.sensitivity * 2 * normal.bound / 1000
    assert normal.scales[0] == pytest.approx(sigma, rel=1e-9)
    assert normal.scales[1] == pytest.approx(2 * normal.bound * sigma / 3, rel=1e-9)
    assert (normal.epsilon, normal.delta) == (0.5, 1e-6)


def test_refusals():
    with pytest.raises(CalibrationError, match="beyond 64-bit"):
        calibrate_sums(SumLaw.SCORE, 1.0, 10**10, LAPLACE)
    with pytest.raises(CalibrationError, match="out of the range of 64-bit"):
        calibrate_sums(SumLaw.SCORE, 1.0, 100, Budget(1e-9))
    with pytest.raises(CalibrationError, match="out of the range of 64-bit"):
        calibrate_integers(2**62, Budget(0.5))
    with pytest.raises(CalibrationError, match="needs a delta"):
        calibrate_sums(SumLaw.SCORE, 1.0, 100, LAPLACE, "gaussian")
    with pytest.raises(DeclarationError, match="score_bound"):
        calibrate_sums(SumLaw.SCORE, math.inf, 100, LAPLACE)
    with pytest.raises(DeclarationError, match="noise"):
        calibrate_sums(SumLaw.SCORE, 1.0, 100, LAPLACE, "uniform")


def grouped(n_groups, sizes, vector):
    """What a record adds to the sums of all groups, by its size h and score u, ``|u| <= h``, or nothing."""
    found = [np.zeros(3 * n_groups)]
    for place in range(n_groups):
        for h in sizes:
            for u in np.linspace(-h, h, 21):
                row = np.zeros(3 * n_groups)
                row[3 * place : 3 * place + 3] = vector(u, h)
                found.append(row)
    return np.array(found)


SIZES = ([1.0], np.linspace(0.05, 1.0, 20))


@pytest.mark.parametrize("sizes", SIZES, ids=["whole", "weighted"])
@pytest.mark.parametrize("n_groups", [1, 2, 3])
@pytest.mark.parametrize(("c", "s"), [(1.0, 1.0), (0.25, 0.25), (1.0, 0.0), (0.5, 0.5)])
def test_a_change_of_group_moves_both(n_groups, c, s, sizes):
    found = grouped(n_groups, sizes, lambda u, h: (2 * u, c * h, s * u * u))
    moved, squared = movement(found, 1), movement(found, 2) ** 2
    if n_groups > 1:
        assert moved == pytest.approx(2 * (2 + c + s))
        assert squared == pytest.approx(max(16, 2 * (4 + c * c + s * s)))
    else:
        one = max(4.0, 2 + c + s)
        assert moved == pytest.approx(one) if len(sizes) == 1 or c + 2 * s <= 2 else moved > one
        assert squared == pytest.approx(16)


def of_one_record(noise, n_groups, shares):
    """The released sums of tables of one record, by the code that adds them up."""
    rows = [np.zeros(3 * n_groups, dtype=object)]
    for place, share, part in itertools.product(range(n_groups), shares, np.linspace(-1.3, 1.3, 27)):
        row = np.zeros(3 * n_groups, dtype=object)
        row[3 * place : 3 * place + 3] = noise.totals([part * noise.bound], [share])
        rows.append(row)
    return np.array(rows, dtype=object)


@pytest.mark.parametrize("n_groups", [2, 3])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(("kind", "order"), [("gamma", 1), ("gaussian", 2)])
def test_the_noise_of_groups_covers_whatever_a_record_does(kind, order, whole, n_groups):
    law = SumLaw.WHOLE_GROUPS if whole else SumLaw.GROUPS
    noise = calibrate_sums(law, 3.0, 100, GAUSSIAN, kind)
    shares = [0.0, 0.5] if whole else [0.0, 0.1, 0.2371, 1 / 3, 0.49, 0.5]
    found = of_one_record(noise, n_groups, shares).astype(float)
    assert noise.integers.sensitivity == 20 * noise.largest**2
    moved = movement(found, order)
    assert moved <= 20 * noise.largest**2
    assert moved >= 19.9 * noise.largest**2
    one = calibrate_sums(SumLaw.SCORE, 3.0, 100, GAUSSIAN, kind)
    # halves of a score over halves of a record
    assert noise.scales[0] == pytest.approx((1.25 if order == 1 else 1.0) * one.scales[0], rel=1e-9)


def test_groups_at_the_noise_of_one_would_cost_twice_as_much():
    noise = calibrate_sums(SumLaw.WHOLE, 3.0, 100, LAPLACE)
    found = of_one_record(noise, 2, [0.0, 0.5]).astype(float)
    loss = movement(found, 1) / noise.integers.scale
    assert loss == pytest.approx(2.0, rel=1e-4)
    right = calibrate_sums(SumLaw.WHOLE_GROUPS, 3.0, 100, LAPLACE)
    found = of_one_record(right, 2, [0.0, 0.5]).astype(float)
    assert 0.999 < movement(found, 1) / right.integers.scale <= 1.0
    # a score that is larger than its record's share is clipped to it
    wide = [
        noise.totals([right.bound], [0.1])[0]
        for noise in (right, calibrate_sums(SumLaw.GROUPS, 3.0, 9, LAPLACE))
    ]
    assert wide[0] == 0
    assert wide[1] == pytest.approx(0.2 * 8 * right.largest**2, rel=1e-4)
