"""Numbers and things that are no numbers, for public settings and for private cells."""

import datetime
import decimal
import fractions
from typing import Any

import numpy as np

Generator = np.random.Generator

TINY = (5e-324, 2.3e-308, 1e-300, 1e-160, 1e-100, 1e-20, 1e-9)
HUGE = (1e9, 1e20, 1e100, 1e154, 1e160, 1e300, 1.7976931348623157e308)
WRONG: tuple[Any, ...] = (
    float("nan"), float("inf"), -float("inf"), 0, -0.0, -1, -1e300, None, True, "", "1", "abc", "nan", b"1",
    (), [1.0, 2.0], {"a": 1}, 1j, 10**400, 10**5000, decimal.Decimal("sNaN"), decimal.Decimal("1e999"),
    fractions.Fraction(1, 3), np.float32(0.5), np.int64(1), np.array(1.0), np.array([1.0]),
    np.zeros((9, 9)), np.ma.masked, datetime.date(2020, 1, 1), np.datetime64("2020-01-01"),
    np.timedelta64(5, "ns"), object, "a\nb", "\ud800", "x" * 5000,
)  # fmt: skip


#: Whether public settings are nearly always valid, so that hostile records come to be solved for.
CALM = [False]


def pick(rng: Generator, pool: Any) -> Any:
    """One entry as it is (``rng.choice`` would turn it into a numpy type)."""
    pool = tuple(pool)
    if CALM[0]:
        pool = tuple(one for one in pool if not (isinstance(one, str) and one == "nope")) or pool
    return pool[int(rng.integers(len(pool)))]


def setting(rng: Generator, tame: Any, wild: float = 0.1) -> Any:
    """A public number: one of ``tame``, now and then extreme, more rarely no number at all."""
    luck = rng.uniform()
    wild = 0.01 * wild if CALM[0] else wild
    if luck < 0.25 * wild:
        return pick(rng, WRONG)
    if luck < wild:
        return pick(rng, (*TINY, *HUGE))
    return pick(rng, tame)


def happens(rng: Generator, chance: float) -> bool:
    return bool(rng.uniform() < chance)
