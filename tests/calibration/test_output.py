"""Noise for a mean (Theorem 8), against exact movements and exact losses."""

import numpy as np
from scipy import stats

from dp2erm_cvx.calibration import Objective, calibrate_output
from dp2erm_cvx.privacy import Budget, LossConstants
from tests.helpers import bound_of, randomized_trial

M_OUT = 3.0


def trial_weights(a, propensity):
    f = np.where(a == 1, 1 / propensity, 1 / (1 - propensity))
    return len(a) * f / f.sum()


def mean_of(bound, n, outcome_bound=M_OUT):
    """The plug-in mean of responses within ``2 outcome_bound``."""
    constants = {"covariate_bound": 1.0, "response_bound": 2 * outcome_bound, "is_mean": True}
    return Objective(bound, LossConstants(1, 4.0, 2.0, 0.0, None, 1.0, **constants), n)


def effect(a, y, w):
    return float(np.mean(w * 2 * (2 * a - 1) * y))


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
