"""The constants of the private logistic regression of diffprivlib 0.6.6, for data norms above one.

``models/logistic_regression.py`` line 398 passes ``function_sensitivity=0.25, data_sensitivity=data_norm``
and ``mechanisms/vector.py`` line 149 takes ``epsilon - 2 log(1 + 0.25 data_norm / alpha)``. The Hessian of
the logistic loss is bounded by 0.25 data_norm^2. The library is not imported: its formulas are restated.
"""

import math

import numpy as np
from scipy.special import expit

NORM, ALPHA, EPSILON = 12.0, 1.0, 3.0


def mechanism(curvature):
    """(noise scale, ridge) of the ``Vector`` mechanism for n times the mean loss."""
    left, extra = EPSILON - 2 * math.log1p(curvature / ALPHA), 0.0
    if left <= 0:
        extra, left = curvature / math.expm1(EPSILON / 4) - ALPHA, EPSILON / 2
    return 2 * NORM / left, ALPHA + extra


def worst_loss(curvature):
    """Largest log ratio of the densities of theta: one record of covariate NORM instead of 0, p = 1."""
    scale, ridge = mechanism(curvature)
    theta = np.linspace(-3.0, 3.0, 60_001)
    # theta minimizes the losses + ridge theta^2 / 2 + b theta; a record at 0 adds nothing
    noise_without = -ridge * theta
    noise_with = NORM * expit(-NORM * theta) - ridge * theta
    slope = ridge + NORM**2 * expit(NORM * theta) * expit(-NORM * theta)
    loss = np.log(slope / ridge) + (np.abs(noise_without) - np.abs(noise_with)) / scale
    return float(np.max(np.abs(loss)))


def test_the_declared_epsilon_is_exceeded():
    assert worst_loss(0.25 * NORM) > 3.5 > EPSILON


def test_it_is_kept_with_the_square():
    assert worst_loss(0.25 * NORM**2) <= EPSILON
