"""Proof that no weights meet the constraints of the imbalance: a direction that separates them.

Theorem 38 of ``docs/theory/weights_certificate.md``. Directions come from a linear program or from
prices of a solver; none of them is believed, and what each proves is computed with its rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.weighting.solving.dataset import OUTWARD, SumOfBlock, WeightingData
from dp2erm_cvx.weighting.solving.moments import moment_names, moment_units

#: Moments with less than this part of the largest multiplier are not named.
_NAMED = 1e-9
#: Names that are listed at most.
_MOST_NAMES = 5
#: What is advised is rounded to three digits, and never below what a linear program found.
_ADVISED = 1.006


@dataclass(frozen=True)
class LeastTolerance:
    """What a linear program says of entries of an imbalance, each with a tolerance.

    Parameters
    ----------
    common
        Whether all entries have one tolerance, which ``excess`` is the least of. Else it is added
        to each, or entries of a norm are told apart that the constraint adds up.
    stated
        The tolerance that is stated for all, in units of the moments; 0 where ``excess`` is added.
    excess
        The least that it finds weights for, in units of the moments.
    direction
        Multipliers (K,) that no less holds by.
    """

    common: bool
    stated: float
    excess: float
    direction: Array = field(repr=False)


def separates(data: WeightingData, direction: Array, *, tolerated: bool = True) -> float:
    """Proved lower bound of ``<direction, imbalance> - what constraints allow`` over all weights.

    Above 0 no weights within their boxes and sums meet the constraints (Theorem 38).

    Parameters
    ----------
    data
        The dataset; its imbalances of vectors count.
    direction
        Any numbers (K,); those of imbalances that are priced are taken as 0.
    tolerated
        Whether the constraints allow their tolerances; else 0.

    Returns
    -------
    float
        The bound, less all rounding.
    """
    lam = _of_constraints(data, direction)
    if not np.all(np.isfinite(lam)):
        return -math.inf
    cost = data.rows @ lam
    error = 2.0 * (data.rows.shape[1] + 4.0) * UNIT * (data.row_sizes @ np.abs(lam))
    parts: list[float] = []
    for block in data.blocks:
        multiplier = _best_multiplier(data, block, cost[block.members])
        cost[block.members] = cost[block.members] + multiplier
        error[block.members] += 4.0 * UNIT * (abs(multiplier) + np.abs(cost[block.members]))
        parts.append(-multiplier * block.total)
    low = data.curve.low
    cap = _caps(data)
    parts += np.where(cost >= 0.0, low * cost, cap * cost).tolist()
    parts += (-lam * data.targets).tolist()
    rounding = cap * error
    rounded = math.fsum(rounding) + 2.0 * UNIT * math.fsum(map(abs, parts))
    rounded += float(np.abs(lam) @ data.target_errors)
    allowed = sum(one.support(lam[one.columns]) for one in data.priced) if tolerated else 0.0
    return math.fsum(parts) - (rounded + allowed) * OUTWARD


def refuse_separated(data: WeightingData, records: Records, prices: Array) -> None:
    """Raise InfeasibleError where it is proved that no weights meet the constraints.

    Parameters
    ----------
    data
        The dataset.
    records
        Its records, for names.
    prices
        Prices (K,) that a solver ended with: where there are no weights they grow along such a
        direction.
    """
    least = least_tolerance(data)
    if least is not None and separates(data, least.direction) > 0.0:
        raise _infeasible(data, records, least)
    if separates(data, prices) > 0.0:
        raise _unmet(_held(data, records, prices))


def least_tolerance(data: WeightingData) -> LeastTolerance | None:
    """The least tolerance of entries for which a linear program finds weights, or None.

    Parameters
    ----------
    data
        The dataset. No entry is larger than a norm of all.
    """
    columns, sided, tolerances = _entries(data)
    if not len(columns):
        return None
    units = moment_units(data)[columns]
    tolerances = tolerances / units
    alike = bool(np.ptp(tolerances) <= 1e-12 * np.max(tolerances)) and not np.any(sided)
    stated = float(tolerances[0]) if alike else 0.0
    beside = np.zeros_like(tolerances) if alike else tolerances
    rows = (data.rows[:, columns] / units).T
    targets = data.targets[columns] / units
    both = ~sided
    slack = -np.ones((len(columns), 1))
    above = np.hstack([rows, slack])
    below = np.hstack([-rows[both], slack[both]])
    sums = np.zeros((len(data.blocks), data.form.n + 1))
    for number, block in enumerate(data.blocks):
        sums[number, :-1][block.members] = 1.0
    ends: list[tuple[float, float | None]] = list(
        zip(data.curve.low.tolist(), _caps(data).tolist(), strict=True)
    )
    solved = scipy.optimize.linprog(
        np.append(np.zeros(data.form.n), 1.0),
        A_ub=np.vstack([above, below]),
        b_ub=np.concatenate([targets + beside, (beside - targets)[both]]),
        A_eq=sums,
        b_eq=[block.total for block in data.blocks],
        bounds=[*ends, (0.0, None)],
        method="highs",
    )
    if solved.status != 0 or solved.fun is None:
        return None
    multipliers = -np.asarray(solved.ineqlin.marginals)
    held = multipliers[: len(columns)].copy()
    held[both] -= multipliers[len(columns) :]
    direction = np.zeros(data.rows.shape[1])
    direction[columns] = held / units
    of_entries = all(
        one.penalty.norm in (None, math.inf) for one in data.priced if one.penalty.hard
    )
    return LeastTolerance(alike and of_entries, stated, float(solved.fun), direction)


def _infeasible(data: WeightingData, records: Records, least: LeastTolerance) -> InfeasibleError:
    names = _held(data, records, least.direction)
    lam = _of_constraints(data, least.direction)
    size = float(moment_units(data) @ np.abs(lam))
    if not least.common:
        return _unmet(names)
    proved = separates(data, lam, tolerated=False) / (size * OUTWARD)
    # exact balance is a program of its own, without a tolerance to raise; three digits are no less
    allow = "Allow" if least.stated else "Use a program with a tolerance of"
    return InfeasibleError(
        f"no weights meet the targets within {least.stated:.4g}: {_listed(names)} cannot be "
        f"balanced better than {proved:.3g}. {allow} {_ADVISED * least.excess:.3g} or more, drop "
        "those balance functions, or use a program with a ridge",
        covariates=names,
        smallest_tolerance=least.excess,
    )


def _unmet(names: tuple[str, ...]) -> InfeasibleError:
    return InfeasibleError(
        f"no weights meet the constraints: {_listed(names)} cannot be balanced as far as is "
        "declared. Allow more, drop those balance functions, or use a program with a ridge",
        covariates=names,
    )


def _held(data: WeightingData, records: Records, direction: Array) -> tuple[str, ...]:
    """Names of the moments that a direction has multipliers of, the largest first."""
    held = np.abs(_of_constraints(data, direction)) * moment_units(data)
    names = moment_names(data, records)
    most = _NAMED * float(np.max(held))
    order = np.argsort(-held)
    return tuple(names[k] for k in order if held[k] > most)


def _listed(names: tuple[str, ...]) -> str:
    listed = ", ".join(names[:_MOST_NAMES])
    beyond = len(names) - _MOST_NAMES
    return f"{listed} and {beyond} more" if beyond > 0 else listed


def _of_constraints(data: WeightingData, direction: Array) -> Array:
    """A direction (K,) that uses constraints alone.

    It is 0 where an imbalance is priced, and above 0 where one side alone is constrained.
    """
    found = np.zeros(data.rows.shape[1])
    for one in data.priced:
        if one.penalty.hard:
            own = direction[one.columns]
            found[one.columns] = np.maximum(own, 0.0) if one.penalty.sided else own
    return found


def _entries(data: WeightingData) -> tuple[NDArray[np.intp], NDArray[np.bool_], Array]:
    """Columns (m,) that are constrained entry by entry, their sides and tolerances."""
    columns = [np.zeros(0, dtype=np.intp)]
    sided = [np.zeros(0, dtype=bool)]
    tolerances = [np.zeros(0)]
    for one in data.priced:
        penalty = one.penalty
        if not penalty.hard:
            continue
        own = np.arange(one.columns.start, one.columns.stop)
        columns.append(own)
        sided.append(np.full(len(own), penalty.sided))
        tolerances.append(
            np.broadcast_to(np.asarray(penalty.tolerance, dtype=np.float64), own.shape)
        )
    return np.concatenate(columns), np.concatenate(sided), np.concatenate(tolerances)


def _caps(data: WeightingData) -> Array:
    """Upper ends (n,) of the boxes, which no weight of a block can leave for its sum."""
    cap = data.curve.cap.copy()
    for block in data.blocks:
        cap[block.members] = np.minimum(cap[block.members], max(block.total, 0.0))
    return np.maximum(cap, data.curve.low)


def _best_multiplier(data: WeightingData, block: SumOfBlock, cost: Array) -> float:
    """The multiplier of a sum that proves the most.

    The cheapest records take what the sum leaves to give.
    """
    low = data.curve.low[block.members]
    room = _caps(data)[block.members] - low
    order = np.argsort(cost)
    given = np.cumsum(room[order])
    left = block.total - float(np.sum(low))
    place = min(int(np.searchsorted(given, left)), len(order) - 1)
    return -float(cost[order[place]])
