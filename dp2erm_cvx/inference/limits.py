"""Limits that plans and releases both go by.

The module imports nothing, so that a ledger reads releases at once.
"""

#: From this declared distance of the arms on, in standard deviations, a constant propensity and a
#: better outcome regression err less than a logistic propensity, whose inverses are large there
#: (measured: docs/experiments/far_arms.py).
FAR = 1.2


def surely_more(least: float, declared: float) -> bool:
    """Whether even the lower end of a released distance of the arms exceeds the declared one."""
    return least > declared
