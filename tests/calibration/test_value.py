"""Noise for the contrasts of a rule and for a mean (Theorem 8), against exact movements and exact losses."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx.calibration import Objective, calibrate_output
from dp2erm_cvx.calibration.numbers import SUM_ERROR, ValueStatistic, calibrate_value
from dp2erm_cvx.privacy import Budget, LossConstants
from dp2erm_cvx.stability import randomized_trial, uniform_weights
from tests.helpers import bound_of

M_OUT = 3.0
CELLS, CONTRASTS = ValueStatistic.CELLS, ValueStatistic.CONTRASTS


def contributions(a, y, d, statistic=CONTRASTS):
    """The vectors t_i, (n, 2) or (n, 8), from their definition."""
    if statistic is CELLS:
        cell = np.eye(4)[2 * np.asarray(d) + a]
        return np.hstack([cell * y[:, None], cell * M_OUT / 2])
    return 2 * np.column_stack([1.0 * (a == d) - (a == 1), 1.0 * (a == d) - (a == 0)]) * y[:, None]


def distance(first, second, statistic=CONTRASTS):
    """l1 movement of T between two datasets (a, y, d, w)."""
    T = [(w[:, None] * contributions(a, y, d, statistic)).mean(axis=0) for a, y, d, w in (first, second)]
    return float(np.abs(T[0] - T[1]).sum())


def trial_weights(a, propensity):
    f = np.where(a == 1, 1 / propensity, 1 / (1 - propensity))
    return len(a) * f / f.sum()


def trial_pair(rng, n, propensity):
    """Neighboring trials with outcomes at their bounds; the changed record may flip and change sides."""
    a = (rng.random(n) < rng.choice([0.0, propensity, 1.0])).astype(int)
    d = rng.integers(2, size=n) if rng.random() < 0.5 else np.full(n, rng.integers(2))
    y = M_OUT * rng.choice([-1.0, 1.0], n)
    if rng.random() < 0.8:  # every common record pulls its own way
        y = M_OUT * np.where(a == 1, 1.0, -1.0)
    a_new, y_new, d_new = a.copy(), y.copy(), d.copy()
    a[0], a_new[0], d[0], d_new[0] = rng.integers(2, size=4)
    y[0], y_new[0] = M_OUT * rng.choice([-1.0, 1.0], 2)
    return (a, y, d, trial_weights(a, propensity)), (a_new, y_new, d_new, trial_weights(a_new, propensity))


def sensitivity_of(bound, n, statistic=CONTRASTS):
    return calibrate_value(bound, M_OUT, n, 1.0, statistic=statistic).l1_sensitivity


@pytest.mark.parametrize(("statistic", "radius", "numbers"), [("contrasts", 2.0, 2), ("cells", 1.5, 8)])
def test_noise_is_the_stated_formula_rounded_up(statistic, radius, numbers):
    for V, n, epsilon in ((2.0, 2, 0.1), (8.0, 400, 0.5), (21.7, 100_003, 3.0)):
        noise = calibrate_value(bound_of(V), M_OUT, n, epsilon, statistic=statistic)
        largest = Fraction(radius) * Fraction(M_OUT)
        exact = largest * Fraction(V) / n + 2 * Fraction(SUM_ERROR) * largest
        step = Fraction(2) ** noise.exponent
        assert exact < Fraction(noise.l1_sensitivity) < exact * (1 + Fraction(1, 10**11))
        assert exact + numbers * step <= Fraction(noise.scale) * Fraction(epsilon)
        assert noise.scale == pytest.approx(radius * M_OUT * V / (n * epsilon), rel=0.02)
        assert (noise.epsilon, noise.n_parameters) == (epsilon, numbers)


@pytest.mark.parametrize("statistic", ValueStatistic)
def test_no_contribution_is_larger_than_stated(statistic):
    a, y, d = (grid.ravel() for grid in np.meshgrid([0, 1], M_OUT * np.linspace(-1, 1, 5), [0, 1]))
    t = contributions(a, y, d, statistic)
    assert np.abs(t).sum(axis=1).max() == pytest.approx(statistic.radius * M_OUT)
    apart = np.abs(t[:, None] - t[None]).sum(axis=2)
    assert apart.max() == pytest.approx(2 * statistic.radius * M_OUT)


@pytest.mark.parametrize("statistic", ValueStatistic)
def test_uniform_weights_attain_the_bound(statistic):
    n = 10
    a, y, d, w = np.zeros(n, dtype=int), np.full(n, M_OUT), np.zeros(n, dtype=int), np.ones(n)
    sensitivity, moves = sensitivity_of(uniform_weights(n), n, statistic), []
    for a_new, y_new in ((0, -M_OUT), (1, M_OUT)):  # the outcome turns over, or the treatment flips
        other = a.copy(), y.copy(), d, w
        other[0][0], other[1][0] = a_new, y_new
        moves.append(distance((a, y, d, w), other, statistic))
        assert moves[-1] <= sensitivity
    # where the cell stays, its mass does
    assert moves[0] == pytest.approx(sensitivity * (1 if statistic is CONTRASTS else 2 / 3), rel=1e-9)
    assert moves[1] == pytest.approx(sensitivity, rel=1e-9)


@pytest.mark.parametrize("statistic", ValueStatistic)
def test_free_weights_attain_the_bound_on_both_sides_of_the_rule(statistic):
    rng = np.random.default_rng(4)
    n = 7
    for _ in range(300):
        w, v = n * rng.dirichlet(np.ones(n), size=2)
        V = float(np.abs(w - v).sum() + 2 * min(w[0], v[0]))
        a, d = rng.integers(2, size=(2, n))
        if statistic is CELLS:  # weight leaves two cells, and the record jumps from one of them to another
            a, y = np.where(w > v, 1, 0), np.full(n, M_OUT)
            a[0] = 1
        else:  # every record pulls T away from T'
            y = M_OUT * np.where(w > v, 1.0, -1.0) * np.where(a == d, 1, -1)
            y[0] = M_OUT * (1 if a[0] == d[0] else -1)
        y_new, d_new, a_new = y.copy(), d.copy(), a.copy()
        d_new[0], a_new[0] = rng.integers(2, size=2) if statistic is CONTRASTS else (d[0], 0)
        if statistic is CONTRASTS:
            y_new[0] = -M_OUT * (1 if a_new[0] == d_new[0] else -1)
        moved = distance((a, y, d, w), (a_new, y_new, d_new, v), statistic)
        assert moved <= sensitivity_of(bound_of(V), n, statistic)
        assert moved == pytest.approx(statistic.radius * M_OUT * V / n, rel=1e-9)


@pytest.mark.parametrize("statistic", ValueStatistic)
def test_trials_stay_within_and_planted_bugs_do_not(statistic):
    rng = np.random.default_rng(2)
    n, propensity = 12, 0.2
    sensitivity = sensitivity_of(randomized_trial(n, propensity), n, statistic)
    largest, forgotten = 0.0, 0
    for _ in range(1500):
        first, second = trial_pair(rng, n, propensity)
        moved = distance(first, second, statistic)
        assert moved <= sensitivity
        largest = max(largest, moved)
        # had the treatment of the changed record been kept, its own weight would count twice
        kept = sensitivity_of(bound_of(2 * float(first[3][0])), n, statistic)
        forgotten += moved > kept * (1 + 1e-9)
    assert largest > 0.75 * sensitivity  # so that half of the noise would be seen
    assert forgotten > 20


def exact_loss(noise, first, second):
    """Log ratio of the two laws on the grid where it is largest: beyond both centers."""
    step = Fraction(2) ** noise.exponent
    points = [[round(Fraction(float(value)) / step) for value in T] for T in (first, second)]
    shift = sum(abs(one - two) for one, two in zip(*points, strict=True))
    return float(shift * step / Fraction(noise.scale))


@pytest.mark.parametrize("statistic", ValueStatistic)
def test_exact_privacy_loss_keeps_the_budget_and_nearly_spends_it(statistic):
    rng = np.random.default_rng(3)
    n, propensity, epsilon, losses, halved = 12, 0.2, 0.7, [], []
    noise = calibrate_value(randomized_trial(n, propensity), M_OUT, n, epsilon, statistic=statistic)
    weak = dataclasses.replace(noise, scale=noise.scale / 2)
    for _ in range(800):
        pair = [
            (w[:, None] * contributions(a, y, d, statistic)).mean(axis=0)
            for a, y, d, w in trial_pair(rng, n, propensity)
        ]
        losses.append(exact_loss(noise, *pair))
        halved.append(exact_loss(weak, *pair))
    assert 0.7 * epsilon < max(losses) <= epsilon
    assert max(halved) > epsilon


def mean_of(bound, n, outcome_bound=M_OUT):
    """The plug-in mean of responses within ``2 outcome_bound``."""
    constants = {"covariate_bound": 1.0, "response_bound": 2 * outcome_bound, "is_mean": True}
    return Objective(bound, LossConstants(1, 4.0, 2.0, 0.0, None, 1.0, **constants), n)


def effect(a, y, w):
    return float(np.mean(w * 2 * (2 * a - 1) * y))


def test_scale_is_the_stated_formula():
    found = calibrate_output(mean_of(bound_of(8.0), 400), Budget(0.5, 1e-6))
    assert found.scale == pytest.approx(2 * M_OUT * 8.0 / (400 * 0.5), rel=1e-9)
    assert found.scale >= 2 * M_OUT * 8.0 / (400 * 0.5)
    assert found.sensitivity == pytest.approx(2 * M_OUT * 8.0 / 400)
    assert (found.epsilon, found.delta, found.expected_noise) == (0.5, 0.0, found.scale)


def largest_loss(weaken=1.0):
    """Largest exact privacy loss of the released mean over neighboring randomized trials, over epsilon."""
    rng = np.random.default_rng(2)
    epsilon, n, propensity, worst = 1.0, 12, 0.2, 0.0
    found = calibrate_output(mean_of(randomized_trial(n, propensity), n), Budget(epsilon))
    law = stats.laplace(scale=found.scale * weaken)
    for _ in range(1000):
        a = (rng.random(n) < rng.choice([0.0, 0.2, 1.0])).astype(int)
        y = M_OUT * (rng.choice([-1, 1], n) if rng.random() < 0.5 else np.ones(n)) * (2 * a - 1)
        a_new, y_new = a.copy(), y.copy()
        a[0], a_new[0] = rng.integers(2, size=2)
        y[0], y_new[0] = M_OUT * rng.choice([-1, 1], 2)
        first, second = (
            effect(*pair, trial_weights(pair[0], propensity)) for pair in ((a, y), (a_new, y_new))
        )
        points = np.array([first, second])
        worst = max(worst, np.abs(law.logpdf(points - first) - law.logpdf(points - second)).max())
    return worst / epsilon


def test_exact_privacy_loss_of_a_mean():
    assert 0.8 < largest_loss() <= 1.0
    # the same neighbors tell half of the noise
    assert largest_loss(weaken=0.5) > 1.0


def test_movement_is_attained_by_free_weights():
    rng = np.random.default_rng(4)
    n, closest = 6, 0.0
    for _ in range(500):
        w, w_new = n * rng.dirichlet(np.ones(n), size=2)
        V = float(np.abs(w - w_new).sum() + 2 * min(w[0], w_new[0]))
        t = 2 * M_OUT * np.where(w > w_new, 1.0, -1.0)
        t_new = t.copy()
        t[0], t_new[0] = 2 * M_OUT, -2 * M_OUT
        movement = abs(np.mean(w * t) - np.mean(w_new * t_new))
        sensitivity = calibrate_output(mean_of(bound_of(V), n), Budget(1.0)).sensitivity
        assert movement <= sensitivity
        closest = max(closest, movement / sensitivity)
    assert closest > 1 - 1e-9
