"""Separable schemes of the literature with public means, offsets and sampling weights."""

import math

import cvxpy as cp

from dp2erm_cvx.program import scheme
from dp2erm_cvx.program.kernels import PublicSample


def design(x, a):
    """A sampling weight that the design of a study gives."""
    return 0.5 + 1.5 * (x[0] > 0)


def known_log_odds(x, a):
    """What is known of the log odds of treatment beforehand."""
    return 0.4 * x[1] if a else -0.4 * x[1]


@scheme.separable(ridge="M**2 / 10", radius="1 / M", target=PublicSample([[0.1, 0.05, -0.1]]))
def raking_to_public_means(u):
    """Raking (Deming & Stephan 1940) of a sample to means that are published."""
    return cp.exp(u), u


@scheme.separable(ridge="M**2 / 10", offset=(known_log_odds, -0.5, 0.5))
def overlap_with_offset(s):
    """Overlap weights of a propensity of which a part is known."""
    return cp.logistic(-s), -cp.logistic(s)


@scheme.separable(
    ridge="M**2 / 10",
    radius="10 / M",
    low=0.2,
    high=5.0,
    target=PublicSample([[0.1, 0.05, -0.1]]),
    base=(design, 0.5, 2.0),
)
def calibration_of_a_survey(u, low, high):
    """Bounded calibration of sampling weights to public means (Deville & Sarndal 1992)."""
    scale = (high - low) / ((1 - low) * (high - 1))
    shift = math.log((1 - low) / (high - 1))
    weight = cp.log(low + (high - low) * cp.exp(-cp.logistic(-scale * u - shift)))
    return low * u + (high - low) / scale * cp.logistic(scale * u + shift), weight


@scheme.separable(ridge="M**2 / 10", base=(design, 0.5, 2.0), offset=(known_log_odds, -0.5, 0.5))
def sampled_to_the_treated(u, arm):
    """Odds weights of the effect on the treated in a population, with a known part of the log
    odds.
    """
    if arm:
        return cp.logistic(-u), 0
    return cp.logistic(u), u
