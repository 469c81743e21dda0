"""Records in changing company: the same few beside others, to tell what depends on these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.conformance.samples import N_FEATURES, check_domain
from dp2erm_cvx.domain import Array, Domain, Records

#: Records of every dataset here, the place of the one that changes, and of those that stay.
SIZE, CHANGED, KEPT = 8, 3, (0, 5, 6)
_OTHERS = [index for index in range(SIZE) if index != CHANGED and index not in KEPT]


@dataclass(frozen=True)
class Company:
    """Four datasets: the changed record before and after, ``here`` beside some records, ``there`` others."""

    here: tuple[Records, Records]
    there: tuple[Records, Records]


def companies(*, same_arms: bool, seed: int = 0, domain: Domain | None = None) -> Iterator[Company]:
    """Ordinary others, others at the edge, and others that are all alike; with their arms kept or not."""
    universe = domain or check_domain(SIZE)
    rng = np.random.default_rng([seed, 13])
    for reach in (1.0, 3.0, 0.0):
        X = rng.uniform(-1, 1, (SIZE, N_FEATURES))
        a, y = np.arange(SIZE) % 2, rng.normal(size=SIZE)
        changed = _replaced(X, a, y, [CHANGED], rng, 1.0, same_arms)
        Z, c, z = _replaced(X, a, y, _OTHERS, rng, reach, same_arms)
        again = (Z.copy(), c.copy(), z.copy())
        for whole, new in zip(again, changed, strict=True):
            whole[CHANGED] = new[CHANGED]
        yield Company(
            here=(universe.records(X, a, y), universe.records(*changed)),
            there=(universe.records(Z, c, z), universe.records(*again)),
        )


def _replaced(
    X: Array,
    a: NDArray[np.int64],
    y: Array,
    where: list[int],
    rng: np.random.Generator,
    reach: float,
    same_arms: bool,
) -> tuple[Array, NDArray[np.int64], Array]:
    X, a, y = X.copy(), a.copy(), y.copy()
    X[where] = reach * rng.uniform(-1, 1, (len(where), N_FEATURES)) + (0.4 if reach == 0.0 else 0.0)
    y[where] = reach * rng.normal(size=len(where)) + 2.0
    if not same_arms:
        a[where] = 1 - a[where[0]]
    return X, a, y
