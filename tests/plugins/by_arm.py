"""Separable schemes of the literature with a loss and a log weight for each arm, as authors declare
them.
"""

import math

import cvxpy as cp

from dp2erm_cvx.program import scheme


def own(u, arm):
    """The margin that is large where the arm of the record is likely; u is the log odds of
    treatment.
    """
    return u if arm else -u


@scheme.separable(ridge="M**2 / 10", radius="2 / M")
def tailored_to_the_treated(u, arm):
    """Covariate balancing of controls to the treated by a tailored loss (Zhao 2019)."""
    if arm:
        return -u, 0
    return cp.exp(u), u


@scheme.separable(ridge="M**2 / 10", treated=2.0, controls=3.0)
def beta_family(u, arm, treated, controls):
    """Beta family of balancing weights (Matsouaka & Zhou 2024): e^(treated - 1) (1 - e)^(controls -
    1).
    """
    log_propensity, log_rest = -cp.logistic(-u), -cp.logistic(u)
    loss = cp.logistic(-own(u, arm))
    if arm:
        return loss, (treated - 2) * log_propensity + (controls - 1) * log_rest
    return loss, (treated - 1) * log_propensity + (controls - 2) * log_rest


@scheme.separable(ridge="M**2 / 10", cut=0.9, width=0.05)
def smooth_trimming(u, arm, cut, width):
    """Odds weights, smoothly cut off where the propensity is above a number (Yang & Ding 2018)."""
    propensity = cp.exp(-cp.logistic(-u))
    kept = -cp.logistic((propensity - cut) / width)
    return cp.logistic(-own(u, arm)), kept if arm else kept + u


@scheme.separable(ridge="M**2 / 5", radius="20 / M", low=0.05, high=4.0)
def bounded_to_the_treated(u, arm, low, high):
    """Bounded calibration of controls to the treated (Deville & Sarndal 1992)."""
    if arm:
        return -u, 0
    scale = (high - low) / ((1 - low) * (high - 1))
    shift = math.log((1 - low) / (high - 1))
    weight = cp.log(low + (high - low) * cp.exp(-cp.logistic(-scale * u - shift)))
    return low * u + (high - low) / scale * cp.logistic(scale * u + shift), weight
