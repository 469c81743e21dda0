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

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.weighting.solving.dataset import SumOfBlock, WeightingData
from dp2erm_cvx.weighting.solving.moments import moment_names, moment_units

#: Moments with less than this part of the largest multiplier are not named.
_NAMED = 1e-9
#: Names that are listed at most.
_MOST_NAMES = 5
#: Tolerances that differ by no more than this part of the largest are one.
_ALIKE = 1e-12
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
    # c_i = <z_i, lambda> + nu_b, each with its rounding.
    cost = data.rows @ lam
    error = 2.0 * (data.rows.shape[1] + 4.0) * UNIT * data.sizes_times(np.abs(lam))
    terms: list[float] = []
    for block in data.blocks:
        multiplier = _best_multiplier(data, block, cost[block.members])
        cost[block.members] = cost[block.members] + multiplier
        error[block.members] += 4.0 * UNIT * (abs(multiplier) + np.abs(cost[block.members]))
        terms.append(-multiplier * block.total)
    # L = sum_i min(l_i c_i, u'_i c_i) - <lambda, tau> - sum_b nu_b T_b.
    low = data.curve.low
    cap = _caps(data)
    terms += np.where(cost >= 0.0, low * cost, cap * cost).tolist()
    terms += (-lam * data.targets).tolist()
    rounding = math.fsum(cap * error) + 2.0 * UNIT * math.fsum(map(abs, terms))
    rounding += float(np.abs(lam) @ data.target_errors)
    # The supremum of <lambda, s> over the imbalances s that the constraints allow.
    allowed = 0.0
    if tolerated:
        allowed = sum(priced.support(lam[priced.columns]) for priced in data.priced)
    return math.fsum(terms) - (rounding + allowed) * ROUND_UP


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

    Raises
    ------
    InfeasibleError
        Where the proof holds.
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

    Returns
    -------
    LeastTolerance or None
        None where no entry is constrained, or the linear program is not solved.
    """
    entries = _entries(data)
    if not len(entries.columns):
        return None
    tolerances = entries.tolerances
    spread = float(np.ptp(tolerances))
    alike = spread <= _ALIKE * np.max(tolerances) and not np.any(entries.sided)
    stated = 0.0
    beside = tolerances
    if alike:
        stated = float(tolerances[0])
        beside = np.zeros_like(tolerances)
    program = _linear_program(data, entries, beside)
    if program is None:
        return None
    excess, direction = program
    common = bool(alike) and _of_entries(data)
    return LeastTolerance(common, stated, excess, direction)


@dataclass(frozen=True)
class _Entries:
    """The m entries of an imbalance that are constrained each, in units of the moments.

    Parameters
    ----------
    columns
        Their columns (m,).
    units
        Units (m,) of their moments.
    sided
        Whether one side alone is constrained (m,).
    tolerances
        What an entry (m,) may be off.
    """

    columns: NDArray[np.intp]
    units: Array
    sided: NDArray[np.bool_]
    tolerances: Array


def _linear_program(
    data: WeightingData, entries: _Entries, beside: Array
) -> tuple[float, Array] | None:
    """The least excess over tolerances that weights exist for, and multipliers that prove it.

    Parameters
    ----------
    data
        The dataset.
    entries
        The m entries that are constrained.
    beside
        Tolerances (m,) that the excess is added to.

    Returns
    -------
    tuple or None
        The excess and the multipliers (K,), which are not believed; None where it is not solved.
    """
    n = data.form.n
    rows = (data.rows[:, entries.columns] / entries.units).T
    targets = data.targets[entries.columns] / entries.units
    two_sided = ~entries.sided
    # The variables are the n weights and the excess: rows w - excess <= targets + beside, and
    # -rows w - excess <= beside - targets where both sides are constrained.
    slack = -np.ones((len(entries.columns), 1))
    above = np.hstack([rows, slack])
    below = np.hstack([-rows[two_sided], slack[two_sided]])
    sums = np.zeros((len(data.blocks), n + 1))
    for number, block in enumerate(data.blocks):
        sums[number, :-1][block.members] = 1.0
    ends: list[tuple[float, float | None]] = []
    ends += zip(data.curve.low.tolist(), _caps(data).tolist(), strict=True)
    ends.append((0.0, None))
    solved = scipy.optimize.linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.vstack([above, below]),
        b_ub=np.concatenate([targets + beside, (beside - targets)[two_sided]]),
        A_eq=sums,
        b_eq=[block.total for block in data.blocks],
        bounds=ends,
        method="highs",
    )
    if solved.status != 0 or solved.fun is None:
        return None
    multipliers = -np.asarray(solved.ineqlin.marginals)
    of_entries = multipliers[: len(entries.columns)].copy()
    of_entries[two_sided] -= multipliers[len(entries.columns) :]
    direction = np.zeros(data.rows.shape[1])
    direction[entries.columns] = of_entries / entries.units
    return float(solved.fun), direction


def _of_entries(data: WeightingData) -> bool:
    """Whether every constraint is one of entries, and none of a norm of them."""
    for priced in data.priced:
        if priced.penalty.hard and priced.penalty.norm not in (None, math.inf):
            return False
    return True


def _infeasible(data: WeightingData, records: Records, least: LeastTolerance) -> InfeasibleError:
    """The error of constraints that a linear program finds no weights for."""
    names = _held(data, records, least.direction)
    if not least.common:
        return _unmet(names)
    lam = _of_constraints(data, least.direction)
    # max_k |m_k| / u_k >= L / sum_k u_k |lambda_k| (Theorem 38).
    size = float(moment_units(data) @ np.abs(lam))
    proved = separates(data, lam, tolerated=False) / (size * ROUND_UP)
    # Exact balance is a program of its own, without a tolerance to raise; three digits are no less.
    allow = "Use a program with a tolerance of"
    if least.stated:
        allow = "Allow"
    return InfeasibleError(
        f"no weights meet the targets within {least.stated:.4g}: {_listed(names)} cannot be "
        f"balanced better than {proved:.3g}. {allow} {_ADVISED * least.excess:.3g} or more, drop "
        "those balance functions, or use a program with a ridge",
        covariates=names,
        smallest_tolerance=least.excess,
    )


def _unmet(names: tuple[str, ...]) -> InfeasibleError:
    """The error of constraints without a tolerance that is known to be met."""
    return InfeasibleError(
        f"no weights meet the constraints: {_listed(names)} cannot be balanced as far as is "
        "declared. Allow more, drop those balance functions, or use a program with a ridge",
        covariates=names,
    )


def _held(data: WeightingData, records: Records, direction: Array) -> tuple[str, ...]:
    """Names of the moments that a direction has multipliers of, the largest first."""
    sizes = np.abs(_of_constraints(data, direction)) * moment_units(data)
    names = moment_names(data, records)
    least = _NAMED * float(np.max(sizes))
    return tuple(names[k] for k in np.argsort(-sizes) if sizes[k] > least)


def _listed(names: tuple[str, ...]) -> str:
    """Names in words, the first few of them."""
    listed = ", ".join(names[:_MOST_NAMES])
    beyond = len(names) - _MOST_NAMES
    if beyond > 0:
        return f"{listed} and {beyond} more"
    return listed


def _of_constraints(data: WeightingData, direction: Array) -> Array:
    """A direction (K,) that uses constraints alone.

    It is 0 where an imbalance is priced, and above 0 where one side alone is constrained.
    """
    lam = np.zeros(data.rows.shape[1])
    for priced in data.priced:
        if not priced.penalty.hard:
            continue
        lam[priced.columns] = direction[priced.columns]
        if priced.penalty.sided:
            lam[priced.columns] = np.maximum(direction[priced.columns], 0.0)
    return lam


def _entries(data: WeightingData) -> _Entries:
    """The entries of an imbalance that are constrained each."""
    columns = [np.zeros(0, dtype=np.intp)]
    sided = [np.zeros(0, dtype=bool)]
    tolerances = [np.zeros(0)]
    for priced in data.priced:
        penalty = priced.penalty
        if not penalty.hard:
            continue
        of_priced = np.arange(priced.columns.start, priced.columns.stop)
        tolerance = np.asarray(penalty.tolerance, dtype=np.float64)
        columns.append(of_priced)
        sided.append(np.full(len(of_priced), penalty.sided))
        tolerances.append(np.broadcast_to(tolerance, of_priced.shape))
    every = np.concatenate(columns)
    units = moment_units(data)[every]
    return _Entries(
        columns=every,
        units=units,
        sided=np.concatenate(sided),
        tolerances=np.concatenate(tolerances) / units,
    )


def _caps(data: WeightingData) -> Array:
    """Upper ends (n,) of the boxes, which no weight of a block can leave for its sum."""
    cap = data.curve.cap.copy()
    for block in data.blocks:
        cap[block.members] = np.minimum(cap[block.members], max(block.total, 0.0))
    return np.maximum(cap, data.curve.low)


def _best_multiplier(data: WeightingData, block: SumOfBlock, cost: Array) -> float:
    """The multiplier of a sum that proves the most.

    The cheapest records take what the least weights leave of the sum.
    """
    low = data.curve.low[block.members]
    room = _caps(data)[block.members] - low
    order = np.argsort(cost)
    room_up_to = np.cumsum(room[order])
    remainder = block.total - float(np.sum(low))
    place = min(int(np.searchsorted(room_up_to, remainder)), len(order) - 1)
    return -float(cost[order[place]])
