"""A scheme on public records: what its weights leave of a distance, and how they move.

The records are normal quantiles, or those of a table that was declared public. Nothing private is
read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.rehearsal import REHEARSED, resized
from dp2erm_cvx.neighbors import Neighborhood, Replacements
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.weighting.forms.form import WeightingForm

#: The most records that it is rehearsed on where only n of them tell what it does at n.
MOST_REHEARSED = 20_000
#: The least part of the variance along the difference of the arms that lies within them.
LEAST_WITHIN = 0.2
#: Weights that dispersions are compared at.
_AT = (0.25, 0.5, 1.0, 1.5, 2.5)
#: Records of every arm that are replaced, at either end of the weights.
_REPLACED = 2
#: Constants that differ by no more than this part of them differ by rounding alone.
_ALIKE = 1e-6
#: Bounds of the features by which a record is sent outside, to be brought back to the end.
_FAR = 1e3


def largest_distance(treated: float) -> float:
    """The largest distance of two arms that leaves ``LEAST_WITHIN`` of the variance within them."""
    return math.sqrt((1.0 - LEAST_WITHIN) / (treated * (1.0 - treated)))


def rehearsed_size(program: FirstStage, universe: Universe) -> int:
    """How many public records tell what a resolved program does at n.

    ``REHEARSED`` where prices are the same per record at both numbers; else n itself.

    Raises
    ------
    DeclarationError
        Where n are too many to solve for at every setting.
    """
    n = universe.n_samples
    if n <= REHEARSED:
        return n
    smaller = Universe(resized(universe.domain, n, REHEARSED), REHEARSED, universe.n_features)
    if not isinstance(program, WeightsProgram) or _priced_alike(program, universe, smaller):
        return REHEARSED
    if n > MOST_REHEARSED:
        raise DeclarationError(
            f"{program.name}: at n = {n:,} its prices per record are not known to be those at "
            f"{REHEARSED:,}: take n = {MOST_REHEARSED:,} at most"
        )
    return n


def _priced_alike(program: WeightsProgram, universe: Universe, smaller: Universe) -> bool:
    """Whether all prices are smooth, and the same per record at the sizes of both universes."""
    here = _per_record(program, universe)
    there = _per_record(program, smaller)
    if here is None or there is None or len(here) != len(there):
        return False
    return bool(np.allclose(here, there, rtol=_ALIKE, atol=0.0))


def _per_record(program: WeightsProgram, universe: Universe) -> list[float] | None:
    """What a form is per record, whatever its objective is multiplied by; None if not known.

    A declaration may differ between numbers of records by powers of n on its terms alone. In rows
    that are scaled by the roots of n, of their price's smoothness and of the response R, the
    numbers are the diameter, ``R phi''`` at some weights, then for every imbalance what costs
    nothing, where squares end, and the largest slope.
    """
    form = program.at(universe).form(universe)
    if not isinstance(form, WeightingForm) or form.kinked or form.hard:
        return None
    if (form.linear, form.base, form.low_of, form.cap_of) != (None,) * 4:
        return None
    constants = program.form_in(universe).constants
    response = constants.response
    numbers = [response * constants.diameter**2]
    numbers += (response * form.dispersion.curvature(np.array(_AT))).tolist()
    for one in form.imbalances:
        penalty = one.penalty
        scale = math.sqrt(response * penalty.smoothness / form.n)
        slope_scale = math.sqrt(response / (form.n * penalty.smoothness))
        numbers.append(float(np.max(penalty.tolerance)) * scale)
        numbers.append(penalty.knee * scale)
        numbers.append(penalty.gradient_size(len(one.shift)) * slope_scale)
    return numbers


@dataclass(frozen=True)
class PublicBalance:
    """What weights do to public records.

    Parameters
    ----------
    left
        Distance of the weighted means of both arms over that of the means, in standard deviations.
    effective
        Records without weights that have the same sampling error of a difference of means, over n.
    largest
        The largest weight, where the mean weight is 1.
    treated
        Share of the weight that the treated have.
    """

    left: float
    effective: float
    largest: float
    treated: float

    @classmethod
    def of(cls, records: Records, w: Array) -> PublicBalance:
        """Balance at weights w (n,) of sum n.

        The records of an arm without weights, which the other arm is matched to, count alike.

        Raises
        ------
        DeclarationError
            Where the arms do not differ.
        """
        n = records.n_samples
        members = (records.a == 0, records.a == 1)
        before = _distance(records, np.ones(n), members)
        if not before > 0.0:
            raise DeclarationError(
                "the arms of the public records do not differ: there is nothing to balance"
            )
        counted = w.copy()
        even = 0.0
        weighted = 0.0
        for arm in members:
            if not np.any(w[arm] > 0.0):
                counted[arm] = 1.0
            size = int(np.sum(arm))
            even += 1.0 / size
            weighted += float(np.sum(counted[arm] ** 2)) / float(np.sum(counted[arm])) ** 2
        return cls(
            left=_distance(records, counted, members) / before,
            effective=even / weighted,
            largest=float(np.max(w)),
            treated=float(np.sum(w[members[1]])) / n,
        )


def _distance(
    records: Records, w: Array, arms: tuple[NDArray[np.bool_], NDArray[np.bool_]]
) -> float:
    """Distance of the weighted means of both arms, in standard deviations of the covariates."""
    x = records.covariates
    spread = np.std(x, axis=0)
    controls, treated = (np.average(x[arm], axis=0, weights=w[arm]) for arm in arms)
    varying = spread > 0.0
    return float(np.linalg.norm((treated - controls)[varying] / spread[varying]))


def largest_movement(program: FirstStage, records: Records, w: Array) -> float:
    """The largest movement ``V(D, D')`` found among few neighbors of public records.

    The records of largest and smallest weight of every arm are replaced by records at the ends of
    the domain, along the difference of the arms and along the first covariate, in both arms. It is
    proved of these pairs, and says nothing of others: of V it is a lower bound.

    Parameters
    ----------
    program
        The program, read at the number of these records.
    records
        The records.
    w
        Their weights (n,).

    Returns
    -------
    float
        The movement; 0 where no neighbor is certified.
    """
    index = []
    for arm in (0, 1):
        members = np.flatnonzero(records.a == arm)
        order = members[np.argsort(w[members], kind="stable")]
        index += [*order[:_REPLACED], *order[-_REPLACED:]]
    new = _ends_of_space(records)
    count = new.n_samples
    pairs = np.repeat(np.array(index, dtype=np.int64), count)
    place = np.tile(np.arange(count), len(index))
    replacements = Replacements(records, pairs, new.X[place], new.a[place])
    admitted = replacements[replacements.admitted]
    return Neighborhood(program, records).movements(admitted).V_found


def _ends_of_space(records: Records) -> Records:
    """Records at the ends of the space, in both arms."""
    space = records.space
    x = records.covariates
    difference = np.mean(x[records.a == 1], axis=0) - np.mean(x[records.a == 0], axis=0)
    first = np.eye(x.shape[1])[0]
    directions = np.array([difference, -difference, first, -first])
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    directions *= _FAR * space.features_bound / lengths
    ends = space.inside(directions)
    if space.intercept:
        ends = np.hstack([np.full((len(ends), 1), space.intercept), ends])
    in_both_arms = np.vstack([ends, ends])
    arms = np.repeat([0, 1], len(ends))
    return Records(in_both_arms, arms, np.zeros(len(arms)), space)
