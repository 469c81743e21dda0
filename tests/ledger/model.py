"""A small model that charges a ledger, and an exact figure, for the tests of the ledger."""

import math

import numpy as np

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from tests.command_line import facts

RNG = np.random.default_rng(0)
DATA = RNG.uniform(-1, 1, (30, 1)), RNG.integers(0, 2, 30), RNG.uniform(-1, 1, 30)


def model(
    ledger: object, dataset: object = "trial", epsilon: float = 0.4, **changes
) -> PrivateTwoStageERM:
    domain = Domain(1.0, 1.0)
    stages = ("uniform", "arm_means")
    return PrivateTwoStageERM(
        domain, Budget(epsilon), *stages, ledger=ledger, dataset=dataset, **changes
    )


def spent() -> float:
    """Of the one account in ``b.db``."""
    (account,) = facts("ledger", "b.db")
    return float(account["spent"]["epsilon"])


def optimal_delta(epsilon: float, count: int, target: float) -> float:
    """Delta of ``count`` releases of pure ``epsilon`` at ``target`` (Kairouz, Oh and Viswanath
    2015).
    """
    terms = (
        math.comb(count, k)
        * math.exp(k * epsilon)
        * (1 - math.exp(target - (2 * k - count) * epsilon))
        for k in range(count + 1)
        if (2 * k - count) * epsilon > target
    )
    return sum(terms) / (1 + math.exp(epsilon)) ** count
