"""Separable schemes whose weights are normalized by arm, as authors declare them."""

import cvxpy as cp

from dp2erm_cvx.program import scheme


@scheme.separable(ridge="M**2 / 10", radius="2 / M", normalize="arm")
def hajek_overlap(s):
    """Overlap weights of which either arm has half (Hajek 1971; Li, Morgan & Zaslavsky 2018)."""
    return cp.logistic(-s), -cp.logistic(s)


@scheme.separable(ridge="M**2 / 10", radius="2 / M", normalize="arm", arm_total=0.05)
def saturated_overlap(s):
    """The same without an arm floor: no arm is divided by less than a twentieth of the records."""
    return cp.logistic(-s), -cp.logistic(s)


@scheme.separable(ridge="M**2 / 10", radius="2 / M", normalize="arm")
def hajek_odds(u, arm):
    """Odds weights of which either arm has half, for the effect on the treated."""
    if arm:
        return cp.logistic(-u), 0
    return cp.logistic(u), u
