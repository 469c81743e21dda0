"""What the weights of a scheme leave of a distance between the arms: a rehearsal on public records.

Nothing private enters: the scheme is solved on records that are made of the released rate and
spreads and of the declared distance. ``docs/theory/scheme_effects.md`` says what they have to have
in common with the own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtri

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space, clip_norm
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.steps.nuisances import Confounding
from dp2erm_cvx.steps.weighted_residuals import at_rate
from dp2erm_cvx.weighting.forms.form import WeightingForm
from dp2erm_cvx.weighting.solving.dual import DualProblem

#: Public records, at least.
_RECORDS = 2000
#: Public records, at most.
_MOST = 20_000
#: Public records of the smaller arm for every covariate.
_EACH = 3.0
#: Scales of the noise of the rate that the masses of the arms are tried at.
RATE_SCALES = 3.0
#: Records that a scheme is rehearsed on where they tell as much as n do.
REHEARSED = 4_000
#: The part of normal covariates that is within the bound on their norm, where no ranges are
#: declared.
_INSIDE = 0.95
#: A declared range is so many standard deviations wide.
_WIDE = 6.0


@dataclass(frozen=True)
class Rehearsal:
    """What is left on the public records.

    Parameters
    ----------
    left
        The part of the distance between the arms that the weights leave.
    inflation
        ``sum w^2`` over that of the base weights, at least 1.
    mass
        ``|m_1 - m_0| / n``, m_a the sum of the weights of arm a: the largest of rates that the
        noise of the released one may hide.
    """

    left: float
    inflation: float
    mass: float


@dataclass(frozen=True)
class Public:
    """What the public records are made of.

    Parameters
    ----------
    space
        Of the records that the weights are computed on.
    rate
        The released rate of treatment.
    rate_noise
        The scale of its noise.
    spreads
        Standard deviations (k,) of the covariates, released or guessed.
    distance
        How far the arms lie apart, in pooled standard deviations, at least a hundredth.
    """

    space: Space
    rate: float
    rate_noise: float
    spreads: tuple[float, ...]
    distance: float


@lru_cache(maxsize=64)
def rehearsed(program: WeightsProgram, public: Public) -> Rehearsal:
    """What a scheme leaves on public records whose arms lie apart along one direction.

    Covariates are normal.

    Parameters
    ----------
    program
        The scheme as it is declared.
    public
        What the records are made of.

    Returns
    -------
    Rehearsal
    """
    k = len(public.spreads)
    smaller = min(public.rate, 1.0 - public.rate)
    n = min(max(_RECORDS, math.ceil(_EACH * k / smaller)), _MOST)
    universe = MappedUniverse(public.space, n, k)
    form = at_rate(program, public.rate).at(universe).form(universe)
    assert isinstance(form, WeightingForm)
    off = RATE_SCALES * public.rate_noise
    masses = []
    for rate in (public.rate - off, public.rate, public.rate + off):
        records, along = _records(public, n, min(max(rate, 0.01), 0.99))
        weights = DualProblem(form, records).newton().weights
        treated = records.a == 1
        signed_weights = weights * np.where(treated, 1.0, -1.0)
        masses.append(abs(float(np.sum(signed_weights))) / n)
        if rate == public.rate:
            apart = float(np.mean(along[treated]) - np.mean(along[records.a == 0]))
            left = abs(2.0 / n * float(np.sum(signed_weights * along))) / apart
            even = 0.25 / (1.0 - rate) + 0.25 / rate
            inflation = float(np.mean(np.square(weights))) / even
    return Rehearsal(left, max(inflation, 1.0), max(masses))


def normal_arms(
    n: int, columns: int, treated: float, distance: float
) -> tuple[Array, NDArray[np.int64]]:
    """Normal covariates of two arms that lie apart along the sum of all columns.

    They are the same in every call. Along the difference the variance within arms is
    ``1 - treated (1 - treated) distance^2``, so that every covariate has the standard deviation 1
    over both arms.

    Parameters
    ----------
    n
        Number of records.
    columns
        Number of covariates.
    treated
        Share of the treated.
    distance
        Distance of the means of both arms, in standard deviations.

    Returns
    -------
    tuple
        Covariates (n, columns) in standard deviations, of mean 0; arms (n,), the controls first.
    """
    n_treated = round(n * treated)
    direction = np.full(columns, 1.0 / math.sqrt(columns))
    within = math.sqrt(Confounding(distance).within(treated))
    rows = []
    for size, middle in ((n - n_treated, -treated), (n_treated, 1.0 - treated)):
        scores = _normal_scores(size, columns)
        # along the direction they are normal quantiles, across it numbers that fill the cube
        across = np.zeros((size, columns))
        if columns > 1:
            across = scores[:, 1:] @ _across(columns).T
        along = middle * distance + within * scores[:, 0]
        rows.append(np.outer(along, direction) + across)
    return np.vstack(rows), np.repeat([0, 1], [n - n_treated, n_treated])


def normal_records(universe: Universe, size: int, treated: float, distance: float) -> Records:
    """Public records of a universe: normal covariates of two arms.

    A declared range is ``_WIDE`` standard deviations wide, around what scales to 0. Without ranges
    a part ``_INSIDE`` of the records is within the bound on the norm, to which the others are
    shrunk.

    Parameters
    ----------
    universe
        What records may look like.
    size
        Number of records.
    treated
        Share of the treated.
    distance
        Distance of the means of both arms, in standard deviations.
    """
    domain = universe.domain
    p = universe.n_features
    x, a = normal_arms(size, p, treated, distance)
    if domain.ranges is None:
        longest = math.sqrt(2.0 * gammaincinv(0.5 * p, _INSIDE))
        raw = x * (domain.features_bound / longest)
    else:
        low, high = np.array(domain.range_pairs).T
        raw = np.array(domain.middles(p)) + x * ((high - low) / _WIDE)
    outcomes = np.full(size, domain.outcome_middle)
    return resized(domain, universe.n_samples, size).records(raw, a, outcomes)


def resized(domain: Domain, n: int, size: int) -> Domain:
    """The domain for ``size`` records in the place of n.

    An arm floor stays the share of the records that it is.
    """
    if domain.arm_floor is None or size == n:
        return domain
    return replace(domain, arm_floor=max(1, math.floor(domain.arm_floor * size / n)))


def _records(public: Public, n: int, rate: float) -> tuple[Records, Array]:
    """Public records, and where each lies along the difference of the arms (n,).

    Places are in standard deviations.
    """
    k = len(public.spreads)
    spreads = np.array(public.spreads)
    direction = np.full(k, 1.0 / math.sqrt(k))
    standard, arms = normal_arms(n, k, rate, public.distance)
    covariates = clip_norm(standard * spreads, public.space.features_bound)
    X = covariates
    if public.space.intercept:
        X = np.hstack([np.full((n, 1), public.space.intercept), covariates])
    in_deviations = np.zeros_like(covariates)
    np.divide(covariates, spreads, out=in_deviations, where=spreads > 0.0)
    return Records(X, arms, np.zeros(n), public.space), in_deviations @ direction


def _across(k: int) -> Array:
    """An orthonormal basis (k, k - 1) of what is orthogonal to (1, ..., 1): Helmert's contrasts."""
    basis = np.zeros((k, k - 1))
    for column in range(1, k):
        basis[:column, column - 1] = 1.0
        basis[column, column - 1] = -float(column)
        basis[:, column - 1] /= math.sqrt(column * (column + 1.0))
    return basis


def _normal_scores(size: int, k: int) -> Array:
    """Fixed numbers (size, k) like independent normal ones.

    Their mean is 0 and their covariance the identity, but for rounding. The first column holds
    normal quantiles; others follow multiples of roots of primes, modulo 1.
    """
    places = np.arange(size)
    columns = [ndtri((places + 0.5) / size)]
    for prime in _primes(k - 1):
        fractions = np.mod((places + 1.0) * math.sqrt(prime), 1.0)
        columns.append(ndtri((np.argsort(np.argsort(fractions)) + 0.5) / size))
    scores: Array = np.column_stack(columns)
    for column in range(k):
        # what a column has in common with those before it is chance, where records are enough
        earlier = column if size > 2 * k else 0
        for other in range(earlier):
            own = scores[:, other]
            scores[:, column] -= own * float(own @ scores[:, column]) / float(own @ own)
        scores[:, column] -= np.mean(scores[:, column])
        scores[:, column] /= float(np.std(scores[:, column]))
    return scores


def _primes(count: int) -> list[int]:
    """The first primes."""
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % prime for prime in found):
            found.append(candidate)
        candidate += 1
    return found
