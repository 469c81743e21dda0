"""Structured datasets that a search for large movements starts from, drawn at random."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.audit.stability.groups import CLUSTERS, Groups, admitted
from dp2erm_cvx.domain import Array
from dp2erm_cvx.universe import Universe

_Raw = tuple[Array, NDArray[np.int64], Array]


def _direction(rng: np.random.Generator, d: int) -> Array:
    u = rng.normal(size=d)
    return u / np.linalg.norm(u)


def _sizes(rng: np.random.Generator, least: int = 1) -> Array:
    """Shares of ``least`` to CLUSTERS clusters, even or very uneven; the others 0."""
    k = int(rng.integers(least, CLUSTERS + 1))
    share = np.zeros(CLUSTERS)
    share[:k] = rng.dirichlet(np.full(k, 10.0 ** rng.uniform(-1.0, 1.0)))
    return share


def _arms(rng: np.random.Generator) -> NDArray[np.int64]:
    return rng.integers(0, 2, CLUSTERS + 2)


def _anywhere(rng: np.random.Generator, d: int) -> _Raw:
    """Clusters anywhere, most on the sphere."""
    points = np.stack([_direction(rng, d) for _ in range(CLUSTERS + 2)])
    points *= np.where(rng.random((CLUSTERS + 2, 1)) < 0.6, 1.0, rng.random((CLUSTERS + 2, 1)))
    return points, _arms(rng), _sizes(rng)


def _collinear(rng: np.random.Generator, d: int) -> _Raw:
    """All records on one axis."""
    at = rng.choice([-1.0, 1.0], CLUSTERS + 2) * np.where(
        rng.random(CLUSTERS + 2) < 0.5, 1.0, rng.random(CLUSTERS + 2)
    )
    return at[:, None] * _direction(rng, d), _arms(rng), _sizes(rng)


def _one_sided(rng: np.random.Generator, d: int) -> _Raw:
    """All common records in a half-space; the changed one crosses."""
    points, arm, share = _anywhere(rng, d)
    u = _direction(rng, d)
    points *= np.where(points @ u < 0, -1.0, 1.0)[:, None]
    points[-2:] = np.array([[1.0], [-1.0]]) * u
    return points, arm, share


def _separable(rng: np.random.Generator, d: int) -> _Raw:
    """Treated and untreated on either side of a hyperplane; the changed record anywhere."""
    points, arm, share = _anywhere(rng, d)
    side = np.where((points @ _direction(rng, d)) * (2 * arm - 1) < 0, -1.0, 1.0)
    side[-2:] = 1.0
    return points * side[:, None], arm, share


def _nearly_empty(rng: np.random.Generator, d: int) -> _Raw:
    """One arm with hardly any records."""
    points, arm, share = _anywhere(rng, d) if rng.random() < 0.5 else _collinear(rng, d)
    side = int(rng.integers(0, 2))
    arm[:CLUSTERS] = side
    if rng.random() < 0.5:
        arm[CLUSTERS - 1] = 1 - side
        share[CLUSTERS - 1] = 10.0 ** rng.uniform(-4.0, -1.0)
    return points, arm, share


def _jump(rng: np.random.Generator, d: int) -> _Raw:
    """A record that jumps from +u to -u with a flip, u along the coefficient the others ask for."""
    points, arm, share = _one_sided(rng, d) if rng.random() < 0.5 else _anywhere(rng, d)
    pull = (share * (2 * arm[:CLUSTERS] - 1)) @ points[:CLUSTERS]
    size = float(np.linalg.norm(pull))
    u = pull / size if size > 0 else _direction(rng, d)
    points[-2:] = rng.choice([-1.0, 1.0]) * np.array([[1.0], [-1.0]]) * u
    points[-2:] += 0.3 * rng.random() * rng.normal(size=(2, d))
    arm[-1] = 1 - arm[-2]
    return points, arm, share


def _across(rng: np.random.Generator, d: int) -> _Raw:
    """Records along u and a few against it, both split sideways; one jumps between the sides."""
    u, v = _direction(rng, d), _direction(rng, d)
    along, against, split, spread = rng.random(4)
    points = np.stack([along * u + split * v, along * u - split * v, spread * v - against * u])
    points = np.vstack([points, -spread * v - against * u, v - rng.random() * u, -v - rng.random() * u])
    part = rng.random()
    arm = np.full(CLUSTERS + 2, int(rng.integers(0, 2)))
    swapped = rng.random(CLUSTERS + 2) < 0.5
    # (x, a) and (-x, 1 - a) are alike to a logistic coefficient
    return (
        np.where(swapped[:, None], -points, points),
        np.where(swapped, 1 - arm, arm),
        np.array([part, part, 1 - part, 1 - part]) / 2,
    )


def _with_both_arms(points: Array, arm: NDArray[np.int64], share: Array) -> _Raw:
    """The same, where no arm of the common records is empty."""
    present = np.flatnonzero(share > 0)
    if len(np.unique(arm[present])) == 1:
        place = present[-1] if len(present) > 1 else (present[0] + 1) % CLUSTERS
        arm[place] = 1 - arm[present[0]]
        share[place] = max(share[place], 1e-3)
    return points, arm, share


#: Families of starts by name.
FAMILIES: dict[str, Callable[[np.random.Generator, int], _Raw]] = {
    "anywhere": _anywhere,
    "collinear": _collinear,
    "one-sided": _one_sided,
    "separable": _separable,
    "nearly empty arm": _nearly_empty,
    "jump along the coefficient": _jump,
    "across": _across,
}


def structured_starts(universe: Universe, number: int, rng: np.random.Generator) -> Groups:
    """``number`` pairs drawn from all families in turn."""
    makers = list(FAMILIES.values())
    raw = [makers[index % len(makers)](rng, universe.n_features) for index in range(number)]
    if (universe.domain.arm_floor or 0) > 1:
        raw = [_with_both_arms(*each) for each in raw]
    points = np.stack([points for points, _, _ in raw]) * universe.domain.features_bound
    return admitted(
        universe, points, np.stack([arm for _, arm, _ in raw]), np.stack([share for _, _, share in raw])
    )
