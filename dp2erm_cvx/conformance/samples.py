"""Records that programs are checked on: ordinary, adversarial, neighbors, and the same few beside others."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.universe import Universe

#: Covariates of all records here, an intercept apart.
N_FEATURES = 3

#: Records of a :class:`FourDatasets`, the place of the one that changes, and of those that stay.
SIZE, CHANGED, KEPT = 8, 3, (0, 5, 6)

#: Sizes that checks look at once, beside the few records that they search: some errors begin at a size.
LARGER = (500, 5000)


def check_domain(n_samples: int = 60) -> Domain:
    """The universe of the checks: 3 covariates in [-1, 1], an intercept, an arm floor of a tenth.

    Not round, so that M^2 is not 2 M and no other slip of a formula goes unseen.
    """
    return Domain(math.hypot(math.sqrt(N_FEATURES), 1.2), 4.7, intercept=1.2, arm_floor=_floor(n_samples))


def other_domains(n_samples: int = 60) -> tuple[Domain, ...]:
    """Universes of other scales, in one of which M^2 is less than M: constants must hold there as well.

    In the other one every covariate has a bound of its own.
    """
    floor = _floor(n_samples)
    return (
        Domain(0.37, 0.83, intercept=0.11, arm_floor=floor),
        Domain(6.3, 0.29, intercept=1.7, arm_floor=floor, coordinate_bound=(5.0, 4.0, 2.5)),
    )


def check_universe(domain: Domain, n_samples: int = 60) -> Universe:
    """Datasets of that many records of a domain of the checks."""
    return Universe(domain, n_samples, N_FEATURES)


def _floor(n_samples: int) -> int:
    return max(2, n_samples // 10)


def standard_records(n_samples: int = 60, seed: int = 0) -> Records:
    """Confounded records: propensity and outcome depend on the first covariates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_samples, N_FEATURES))
    propensity = 1 / (1 + np.exp(-(0.6 * X[:, 0] - 0.8 * X[:, -1] + 0.1)))
    a = (rng.uniform(size=n_samples) < propensity).astype(int)
    y = X[:, 0] * (2 * a - 1) + 0.5 * X[:, -1] + rng.normal(size=n_samples)
    return check_domain(n_samples).records(X, a, y)


def edge_records() -> dict[str, Records]:
    """Datasets of the universe that break careless code, by name; not all of them keep the arm floor."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (12, N_FEATURES))
    y = rng.normal(size=12)
    half = np.arange(12) % 2
    domain = check_domain(12)
    constant, separable = X.copy(), X.copy()
    constant[:, 1] = 0.7
    separable[:, 0] = np.where(half == 1, 0.9, -0.9)
    return {
        "two records": domain.records(X[:2], [0, 1], y[:2]),
        "two records of one arm": domain.records(X[:2], [1, 1], y[:2]),
        "three records": domain.records(X[:3], [0, 1, 1], y[:3]),
        "constant column": domain.records(constant, half, y),
        "separable arms": domain.records(separable, half, y),
        "no treated": domain.records(X, np.zeros(12), y),
        "no control": domain.records(X, np.ones(12), y),
        "duplicate rows": domain.records(np.repeat(X[:1], 12, axis=0), half, np.full(12, y[0])),
        "zero covariates": domain.records(np.zeros((12, N_FEATURES)), half, y),
        "outcome at its bound": domain.records(X, half, np.where(half == 1, 99.0, -99.0)),
    }


def neighbors(count: int, n_samples: int, seed: int) -> Iterator[tuple[Records, Records]]:
    """Pairs that differ in record 0, with and without a flip; each arm keeps the floor in both.

    Clusters at few places with unequal arms, and a record that moves across the ball. In every third pair the
    other records are well inside, and the changed one alone becomes the longest or the shortest, and that of
    the largest or the smallest outcome.
    """
    rng = np.random.default_rng([seed, 7])
    domain = check_domain(n_samples)
    floor = int(domain.arm_floor or 0)
    for index in range(count):
        ends = rng.choice([-3.0, -1.0, 0.0, 1.0, 3.0], (n_samples + 1, N_FEATURES))
        X = ends * rng.choice([1.0, rng.uniform()], ends.shape)
        if rng.random() < 0.5:  # two places only
            X = np.where(rng.random((n_samples + 1, 1)) < rng.uniform(), X[:1], X[1:2])
        a = (rng.random(n_samples + 1) < rng.choice([0.15, 0.5, 0.85])).astype(int)
        a[1 : 1 + floor], a[1 + floor : 1 + 2 * floor] = 0, 1
        X[0] *= -1.0 if rng.random() < 0.5 else 1.0
        y = rng.normal(size=n_samples + 1)
        if index % 3 == 1:
            X, y = 0.2 * X + 0.1, 0.2 * y
            X[n_samples] *= 1e3 if index % 2 else 0.0
            y[n_samples] = 1e3 * (1 - 2 * (index % 2))
        other = np.r_[n_samples, 1:n_samples]
        yield domain.records(X[:-1], a[:-1], y[:-1]), domain.records(X[other], a[other], y[other])


def unequal_weights(n_samples: int, seed: int = 1) -> Array:
    """Weights with sum n, for second stages."""
    raw = np.random.default_rng(seed).uniform(0.2, 3.0, n_samples)
    weights: Array = raw * (n_samples / math.fsum(raw))
    return weights


def one_record(domain: Domain, record: Array) -> Records:
    """Of a point (x, a) or (x, a, y - center) that a search tries."""
    y = record[N_FEATURES + 1] if len(record) > N_FEATURES + 1 else 0.0
    return domain.records(record[None, :N_FEATURES], [int(record[N_FEATURES])], [y])


_T = TypeVar("_T")


def shared(function: Callable[..., _T]) -> Callable[..., _T]:
    """The same function, whose results all programs with equal parts share; not those without a hash."""
    known = lru_cache(maxsize=64)(function)

    def found(*arguments: Any) -> _T:
        try:
            hash(arguments)
        except TypeError:
            return function(*arguments)
        return known(*arguments)

    return found


@dataclass(frozen=True)
class FourDatasets:
    """Four datasets that share the records ``KEPT``: to tell what depends on these alone.

    In each of ``here`` and ``there`` record ``CHANGED`` is before and after one change, the same in both;
    the other records differ between them.
    """

    here: tuple[Records, Records]
    there: tuple[Records, Records]

    @property
    def corners(self) -> tuple[Records, Records, Records, Records]:
        """All four."""
        return (*self.here, *self.there)


#: Of the other records that differ, of all before they do, and of the record that changes.
_SPREADS = ((1.0, 1.0, 1.0), (3.0, 1.0, 1.0), (0.0, 1.0, 1.0), (3.0, 0.3, 50.0), (0.0, 0.3, 0.0))


def squares(*, same_arms: bool, seed: int = 0, size: int = SIZE) -> Iterator[FourDatasets]:
    """Ordinary others, others at the edge, and others that are all alike; with their arms kept or not.

    Then a record that alone becomes the longest, or the shortest, where the others are well inside.
    """
    universe = check_domain(size)
    rng = np.random.default_rng([seed, 13])
    changing = [index for index in range(size) if index != CHANGED and index not in KEPT]
    for spread, scale, jump in _SPREADS:
        raw = scale * rng.uniform(-1, 1, (size, N_FEATURES)), np.arange(size) % 2, rng.normal(size=size)
        changed = _replaced(raw, [CHANGED], rng, jump, same_arms)
        others = _replaced(raw, changing, rng, spread, same_arms)
        again = tuple(values.copy() for values in others)
        for whole, new in zip(again, changed, strict=True):
            whole[CHANGED] = new[CHANGED]
        first, second, third, fourth = (universe.records(*one) for one in (raw, changed, others, again))
        yield FourDatasets((first, second), (third, fourth))


#: Covariates, treatments and outcomes.
_Raw = tuple[Array, NDArray[np.int64], Array]


def _replaced(raw: _Raw, where: list[int], rng: np.random.Generator, spread: float, same_arms: bool) -> _Raw:
    X, a, y = raw[0].copy(), raw[1].copy(), raw[2].copy()
    X[where] = spread * rng.uniform(-1, 1, (len(where), N_FEATURES)) + (0.4 if spread == 0.0 else 0.0)
    y[where] = spread * rng.normal(size=len(where)) + 2.0
    if not same_arms:
        a[where[: max(3 * len(where) // 4, 4)]] = 1 - a[where[0]]  # of many, some stay in either arm
    return X, a, y
