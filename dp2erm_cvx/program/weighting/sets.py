"""Constraints of a problem in the weights: boxes, sums, and constraints on imbalances."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import printed
from dp2erm_cvx.program.weighting.data import ONE
from dp2erm_cvx.program.weighting.prices import (
    ScaledNode,
    entries_of,
    is_public,
    node_kind,
    norm_of,
    size_and_limit,
)
from dp2erm_cvx.program.weighting.sums import (
    AffineReader,
    SumsOverRecords,
    WeightLine,
    flat,
    is_constant,
)
from dp2erm_cvx.weighting.forms.features import IntervalSet
from dp2erm_cvx.weighting.forms.form import (
    FeatureRows,
    ImbalancePenalty,
    SumKind,
    WeightSums,
    least_and_largest,
)

#: Public numbers are the same where they differ by less than this part.
_SAME = 1e-9

#: What refuses other sums.
_SUMS = (
    "w: sums of weights are n in all, public by arm with sum n, the counts of the arms, n over the "
    "controls where the treated have 0, or the number of the treated over the controls where the "
    "treated have 1: write one of these"
)
#: What refuses fixed weights of the treated alone.
_NO_SUM_OF_CONTROLS = "w: no sum of the controls is stated: write (1 - a) @ w == cp.sum(a)"


@dataclass(frozen=True)
class HardSums:
    """A constraint on sums over records, which have not been put in groups yet.

    Parameters
    ----------
    sums
        The sums, each divided by the factor that the constraint has.
    penalty
        The tolerance or the norm.
    expressions
        Expressions of CVXPY that are at most 0; their largest is ``factor`` times the excess.
    factor
        Public factors of the entries.
    equality
        Whether the one expression is 0.
    text
        What messages call it.
    """

    sums: SumsOverRecords
    penalty: ImbalancePenalty
    expressions: tuple[Any, ...]
    factor: float | Array
    equality: bool
    text: str


@dataclass(frozen=True)
class _SumRow:
    """``weights of the controls S_0 + weights of the treated S_1 = counts (n_0, n_1) + shift``."""

    weights: Array
    counts: Array
    shift: float
    text: str


@dataclass
class ConstraintReader:
    """What has been read of constraints so far.

    Parameters
    ----------
    affine
        Reads affine expressions.
    low, cap
        Ends of the box by arm, (2,), as they are written.
    hard
        Constraints on imbalances.
    boxes
        The constraints that boxes were read of: expressions, each with whether it is 0.
    rows
        Equations of sums of weights.
    low_of, cap_of
        Ends of the boxes of records that are data, or None.
    boxes_of_records
        The expressions of at most 0 that these were read of.
    sides
        One-sided constraints on imbalances that wait for the other side.
    equations
        Expressions that are 0, with the places that are equations of sums.
    """

    affine: AffineReader
    low: Array = field(default_factory=lambda: np.array([-math.inf, -math.inf]))
    cap: Array = field(default_factory=lambda: np.array([math.inf, math.inf]))
    hard: list[HardSums] = field(default_factory=list)
    boxes: list[tuple[Any, bool]] = field(default_factory=list)
    rows: list[_SumRow] = field(default_factory=list)
    low_of: FeatureRows | None = None
    cap_of: FeatureRows | None = None
    boxes_of_records: list[Any] = field(default_factory=list)
    sides: list[tuple[SumsOverRecords, Any]] = field(default_factory=list)
    equations: list[tuple[Any, NDArray[np.int64]]] = field(default_factory=list)

    def read(self, constraint: Any) -> None:
        """Read one constraint of CVXPY. Raises DeclarationError for what no theorem covers."""
        kind = type(constraint).__name__
        if kind == "Inequality" and is_no_bound(*constraint.args):
            return
        if kind == "Inequality":
            self._below(constraint.args[0] - constraint.args[1], constraint)
        elif kind == "NonPos":
            self._below(constraint.args[0], constraint)
        elif kind == "NonNeg":
            self._below(-constraint.args[0], constraint)
        elif kind == "Equality":
            self._zero(constraint.args[0] - constraint.args[1], constraint)
        elif kind == "Zero":
            self._zero(constraint.args[0], constraint)
        else:
            raise DeclarationError(
                f"{printed(constraint)}: is not read: write cp.norm(m) <= a public number, boxes "
                "and sums"
            )

    def close(self) -> None:
        """Join one-sided constraints with their other side, where there is one.

        Raises DeclarationError where both contradict each other.
        """
        while self.sides:
            sums, e = self.sides.pop(0)
            opposites = [_opposite(sums, other) for other, _ in self.sides]
            if not any(opposites):
                penalty = ImbalancePenalty(math.inf, price=math.inf, sided=True)
                self.hard.append(HardSums(sums, penalty, (e,), 1.0, False, printed(e)))
                continue
            other_sums, other_e = self.sides.pop(opposites.index(True))
            self._two_sided(sums, other_sums, (e, other_e))

    def _below(self, e: Any, constraint: Any) -> None:
        """``e <= 0``."""
        if is_public(e):
            if np.any(flat(e.value) > 0.0):
                raise DeclarationError(f"{printed(constraint)}: holds for no weights: leave it out")
            return
        if not e.is_affine():
            self._size_below(e, constraint)
            return
        line = self.affine.line(e)
        if line is not None:
            self._box(line, e, constraint, equality=False)
            return
        sums = self.affine.sums(e)
        if not sums.rows:
            raise DeclarationError(f"{printed(constraint)}: bounds data, not weights: leave it out")
        if is_constant(sums.rows) and not sums.means:
            raise DeclarationError(f"{printed(constraint)}: bounds a sum of weights: fix it by ==")
        self.sides.append((sums, e))

    def _zero(self, e: Any, constraint: Any) -> None:
        """``e = 0``."""
        text = printed(constraint)
        if is_public(e):
            if np.any(flat(e.value) != 0.0):
                raise DeclarationError(f"{text}: holds for no weights: leave it out")
            return
        line = self.affine.line(e)
        if line is not None:
            self._box(line, e, constraint, equality=True)
            return
        sums = self.affine.sums(e)
        is_sum = _places_of_arms(sums)
        places_of_sums = np.flatnonzero(is_sum)
        for place in places_of_sums:
            self.rows.append(_row_of(sums, int(place), text))
        if len(places_of_sums) > 0:
            self.equations.append((e, places_of_sums))
        places = np.flatnonzero(~is_sum)
        if len(places) > 0:
            penalty = ImbalancePenalty(math.inf, price=math.inf)
            imbalances = _entries_at(e, places)
            self.hard.append(HardSums(sums.at(places), penalty, (imbalances,), 1.0, True, text))

    def _of_every_entry(self, e: Any) -> list[Any]:
        """Entrywise expressions of weights that are at most 0 where ``e <= 0``.

        There are none for another constraint.

        ``max(w) <= 3``, ``min(w) >= 0.1`` and ``norm_inf(w - 1) <= 2`` are boxes.
        """
        limit = 0.0
        extremes: list[ScaledNode] = []
        for term in entries_of(e):
            if is_public(term.node):
                limit += float(np.sum(term.factor * flat(term.node.value)))
            else:
                extremes.append(term)
        if len(extremes) != 1:
            return []
        extreme = extremes[0]
        kind = node_kind(extreme.node)
        if kind not in ("max", "min", "norm_inf"):
            return []
        factor = extreme.number
        bounds_above = factor > 0.0
        if bounds_above == (kind == "min"):
            return []
        argument = extreme.node.args[0]
        is_size = kind == "norm_inf"
        if node_kind(argument) == "abs":
            is_size = True
            argument = argument.args[0]
        if not argument.is_affine() or self.affine.line(argument) is None:
            return []
        upper = factor * argument + limit
        if not is_size:
            return [upper]
        return [upper, -factor * argument + limit]

    def _size_below(self, e: Any, constraint: Any) -> None:
        """A size or a norm of an imbalance, or the largest weight, below a public number."""
        text = printed(constraint)
        boxes = self._of_every_entry(e)
        if boxes:
            for box in boxes:
                self._below(box, constraint)
            return
        bounded = size_and_limit(e)
        if bounded is None:
            raise DeclarationError(_no_size(text))
        size, factor, limit = bounded
        tolerance = limit / factor
        if np.any(np.asarray(tolerance) < 0.0):
            raise DeclarationError(f"{text}: holds for no weights: the tolerance is below 0")
        argument, norm = _sized(size, text)
        if norm is not None:
            tolerance = _one(tolerance, text)
        if norm == math.inf:
            norm = None  # the largest entry is within a tolerance where all are
        if self.affine.line(argument) is not None:
            raise DeclarationError(
                f"{text}: bounds a size of weights: write w <= cap and w >= floor"
            )
        sums = self.affine.sums(argument)
        if is_constant(sums.rows) and is_constant(sums.targets) and not sums.means:
            raise DeclarationError(f"{text}: bounds a sum of weights: fix it by ==")
        penalty = ImbalancePenalty(math.inf, tolerance, norm=norm, price=math.inf)
        self.hard.append(HardSums(sums, penalty, (e,), factor, False, text))

    def _two_sided(
        self, sums: SumsOverRecords, other: SumsOverRecords, expressions: tuple[Any, Any]
    ) -> None:
        """``sums <= 0`` and ``other <= 0`` of opposite rows.

        The middle is the target, and the half is left.
        """
        text = printed(expressions[0])
        middle = (sums.shift - other.shift) / 2.0
        half = (sums.shift + other.shift) / 2.0
        if np.any(half < 0.0):
            raise DeclarationError(
                f"{text}: holds for no weights: its two sides contradict each other"
            )
        penalty = ImbalancePenalty(math.inf, half, price=math.inf)
        self.hard.append(
            HardSums(replace(sums, shift=middle), penalty, expressions, 1.0, False, text)
        )

    def _box(self, line: WeightLine, e: Any, constraint: Any, *, equality: bool) -> None:
        """``slope_a w + offset_a <= 0``, or ``= 0``, in both arms."""
        text = printed(constraint)
        if not is_constant(line.data) and not equality:
            self._end_of_records(line, e, text)
            return
        if not is_constant(line.data) or not is_constant(line.crossed):
            raise DeclarationError(f"{text}: is a box made of data: write a public number by arm")
        if line.total != 0.0:
            raise DeclarationError(f"{text}: is a box made of a mean of weights: write a number")
        slopes = [line.slope + _of_arm(line.crossed, arm) for arm in (0, 1)]
        largest = max(map(abs, slopes))
        if largest == 0.0:
            raise DeclarationError(f"{text}: bounds data, not weights: leave it out")
        for arm in (0, 1):
            # in units of the largest slope, so that a constraint may have any scale
            slope = slopes[arm] / largest
            offset = (line.offset + _of_arm(line.data, arm)) / largest
            self._bound(arm, slope, offset, equality=equality, text=text)
        self.boxes.append((e / largest, equality))

    def _end_of_records(self, line: WeightLine, e: Any, text: str) -> None:
        """``slope w + factor d <= 0`` with a number d of every record.

        It is an end of the box of its weight.
        """
        reason = (
            f"{text}: is a box made of data: write a public number by arm, or w <= d or w >= d for "
            "a number d of every record in an interval, such as of records.numbers"
        )
        if line.crossed or line.total != 0.0 or line.offset != 0.0 or len(line.data) != 1:
            raise DeclarationError(reason)
        name, tensor = next(iter(line.data.items()))
        features = self.affine.table.features[name]
        if features.width != 1 or tensor[0, 0, 0] != tensor[1, 0, 0] or line.slope == 0.0:
            raise DeclarationError(reason)
        # the end is w = -(factor / slope) d, and 0.0 - x is never -0
        multiple = 0.0 - float(tensor[0, 0, 0]) / line.slope
        if not isinstance(features.within, IntervalSet) or not multiple > 0.0:
            raise DeclarationError(reason)
        rows = FeatureRows(features, np.array([[multiple]]), np.ones(2), np.zeros(2))
        if line.slope > 0.0:
            if self.cap_of is not None:
                raise DeclarationError(f"{text}: is a second cap made of data: keep one of them")
            self.cap_of = rows
        else:
            if self.low_of is not None:
                raise DeclarationError(f"{text}: is a second floor made of data: keep one of them")
            self.low_of = rows
        self.boxes_of_records.append(e / abs(line.slope))

    def _bound(self, arm: int, slope: float, offset: float, *, equality: bool, text: str) -> None:
        """``slope w + offset <= 0``, or ``= 0``, in one arm."""
        if abs(slope) <= _SAME:
            met = abs(offset) <= _SAME if equality else offset <= _SAME
            if not met:
                raise DeclarationError(f"{text}: holds for no weights in arm {arm}: leave it out")
            return
        end = 0.0 - offset / slope
        if equality or slope > 0.0:
            self.cap[arm] = min(self.cap[arm], end)
        if equality or slope < 0.0:
            self.low[arm] = max(self.low[arm], end)

    def box(self) -> tuple[Array, Array]:
        """Ends of the box by arm, with weights not below 0.

        Raises DeclarationError where it is empty.
        """
        low = np.maximum(self.low, 0.0)
        for arm in (0, 1):
            if low[arm] > self.cap[arm]:
                raise DeclarationError(
                    f"w: no weight of arm {arm} is between {low[arm]:g} and {self.cap[arm]:g}: "
                    "widen its box"
                )
        return low, self.cap

    def sums(self, n: int) -> WeightSums:
        """Sums of weights that the equations state, with the sum n of all where one is missing.

        Raises DeclarationError for sums that no theorem covers.
        """
        fixed = self._fixed_treated()
        equations = _Equations(n)
        for row in self.rows:
            equations.add(row)
        if fixed is not None:
            of_treated = np.array([0.0, 1.0])
            equations.add(_SumRow(of_treated, fixed * of_treated, 0.0, "w of the treated"))
        if equations.rank < 2 and fixed != 1.0:
            text = f"cp.sum(w) == {n}, part of every problem"
            equations.add(_SumRow(np.ones(2), np.zeros(2), float(n), text))
        return equations.kind(fixed)

    def _fixed_treated(self) -> float | None:
        """The weight of all treated, 0 or 1, where the box fixes it; None where it does not."""
        low, cap = self.box()
        if low[0] == cap[0]:
            raise DeclarationError(
                "w: the weights of all controls are fixed: fix those of the treated"
            )
        if low[1] != cap[1]:
            return None
        fixed = float(low[1])
        if fixed not in (0.0, 1.0):
            raise DeclarationError(
                f"w: the weights of all treated are {fixed:g}: fix them at 0 or 1"
            )
        return fixed

    def refuse_unmet(self, sums: WeightSums) -> None:
        """Raise DeclarationError where no weights of these sums are in the box."""
        low, cap = self.box()
        fixed_arms = (1,) if sums.kind in (SumKind.CONTROLS, SumKind.TREATED) else ()
        self._refuse_fixed_outside(fixed_arms, cap)
        for arm in (0, 1):
            if arm in fixed_arms:
                continue
            if cap[arm] < 1.0:
                raise DeclarationError(
                    f"w: no weights of mean 1 have cap = {cap[arm]:g}: raise it to 1"
                )
            if low[arm] > 1.0:
                raise DeclarationError(
                    f"w: no weights of mean 1 have floor = {low[arm]:g}: lower it to 1"
                )
        if sums.kind is SumKind.CONTROLS and cap[0] == 1.0:
            raise DeclarationError(
                "w: no weights of the controls have sum n and cap = 1: raise the cap"
            )

    def _refuse_fixed_outside(self, arms: tuple[int, ...], fixed: Array) -> None:
        """Raise DeclarationError where fixed weights of an arm may be outside of a box."""
        for arm in arms:
            above = self.cap_of is not None and fixed[arm] > least_and_largest(self.cap_of)[0][arm]
            below = self.low_of is not None and fixed[arm] < least_and_largest(self.low_of)[1][arm]
            if above or below:
                raise DeclarationError(
                    f"w: the fixed weight {fixed[arm]:g} of the treated is outside of the box of "
                    "some record: let numbers of treated records admit it"
                )


class _Equations:
    """Equations ``S = of_n n + of_treated n_1`` of the sums of both arms, in reduced form.

    Each is a row (4,): the factors of S_0 and S_1, the public number ``of_n n`` and
    ``of_treated n``.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.table: list[Array] = []

    @property
    def rank(self) -> int:
        """Number of equations that do not follow from others."""
        return len(self.table)

    def add(self, row: _SumRow) -> None:
        """Add an equation. Raises DeclarationError where it contradicts the others."""
        # with n_0 = n - n_1, everything is linear in 1 and n_1
        public = row.counts[0] * self.n + row.shift
        of_treated = row.counts[1] - row.counts[0]
        largest_factor = np.max(np.abs(row.weights))
        equation = np.array([*row.weights, public, of_treated * self.n]) / largest_factor
        for known_row in self.table:
            pivot = _pivot(known_row)
            equation = equation - equation[pivot] * known_row / known_row[pivot]
        largest = float(np.max(np.abs(equation[:2])))
        if largest > _SAME:
            self._reduce(equation, largest)
        elif not np.max(np.abs(equation[2:])) <= _SAME * self.n:
            raise DeclarationError(
                f"{row.text}: contradicts another sum of weights: write one total n, or totals of "
                "both arms"
            )

    def _reduce(self, equation: Array, largest: float) -> None:
        """Keep an equation, and take it from the others so that its pivot stands in it alone."""
        pivot = int(np.argmax(np.abs(equation[:2]) >= largest * (1.0 - _SAME)))
        scaled = equation / equation[pivot]
        table = []
        for known_row in self.table:
            reduced = known_row - known_row[pivot] * scaled
            table.append(reduced / reduced[_pivot(reduced)])
        self.table = [*table, scaled]

    def kind(self, fixed: float | None) -> WeightSums:
        """What the equations say.

        Raises DeclarationError for sums that no theorem covers.

        Parameters
        ----------
        fixed
            The weight of all treated, where it is fixed.
        """
        if self.rank == 0:
            raise DeclarationError(_NO_SUM_OF_CONTROLS)
        if self.rank == 1:
            return self._one_total(fixed)
        of_controls = self._sum_of(1.0, 0.0)
        of_treated = self._sum_of(0.0, 1.0)
        assert of_controls is not None
        assert of_treated is not None
        if fixed == 0.0 and _are(of_controls, 1.0, 0.0):
            return WeightSums(SumKind.CONTROLS)
        if fixed == 1.0 and _are(of_controls, 0.0, 1.0):
            return WeightSums(SumKind.TREATED)
        if fixed is not None:
            raise DeclarationError(_SUMS)
        if _are(of_controls, 1.0, -1.0) and _are(of_treated, 0.0, 1.0):
            return WeightSums(SumKind.COUNTS)
        share = float(of_controls[0])
        share_of_treated = float(of_treated[0])
        public = _are(of_controls, share, 0.0) and _are(of_treated, share_of_treated, 0.0)
        of_all = abs(float(of_controls[0] + of_treated[0]) - 1.0) <= _SAME
        positive = share > 0.0 and share_of_treated > 0.0
        if not (public and of_all and positive):
            raise DeclarationError(_SUMS)
        # shares such as 0.3333333333 and 0.6666666666 add up to 1 but for their digits, and weights
        # to n
        sum_of_controls = share * self.n
        return WeightSums(SumKind.PUBLIC, (sum_of_controls, self.n - sum_of_controls))

    def _one_total(self, fixed: float | None) -> WeightSums:
        """One equation: all weights have sum n."""
        if fixed == 1.0:
            raise DeclarationError(_NO_SUM_OF_CONTROLS)
        of_all = self._sum_of(1.0, 1.0)
        if fixed is None and of_all is not None and _are(of_all, 1.0, 0.0):
            return WeightSums(SumKind.ALL)
        raise DeclarationError(_SUMS)

    def _sum_of(self, controls: float, treated: float) -> Array | None:
        """``(of_n, of_treated)`` of this sum of S_0 and S_1; None where no equation states it."""
        for row in self.table:
            if tuple(np.round(row[:2], 9).tolist()) == (controls, treated):
                return row[2:] / self.n
        return None


def _pivot(row: Array) -> int:
    """Place of the larger factor of a sum in an equation."""
    return int(np.argmax(np.abs(row[:2])))


def is_no_bound(left: Any, right: Any) -> bool:
    """True for a bound that is infinite, such as a cap that is not set."""
    above = is_public(right) and bool(np.all(flat(right.value) == math.inf))
    below = is_public(left) and bool(np.all(flat(left.value) == -math.inf))
    return above or below


def _no_size(text: str) -> str:
    """What refuses a constraint that bounds neither sizes nor a norm."""
    return f"{text}: write cp.abs(m) <= tolerance or cp.norm(m) <= a public number"


def _sized(size: Any, text: str) -> tuple[Any, float | None]:
    """The affine argument of absolute values or of a norm, and its order; None for each entry."""
    kind = node_kind(size)
    if kind == "abs" and size.args[0].is_affine():
        return size.args[0], None
    if kind == "norm1" and size.args[0].is_affine() and size.axis is None:
        return size.args[0], 1.0
    if kind in ("Pnorm", "norm_inf", "max"):
        return norm_of(size)
    raise DeclarationError(_no_size(text))


def _entries_at(e: Any, places: NDArray[np.int64]) -> Any:
    """Entries of an expression at places, in the order of CVXPY."""
    return cp.vec(e, order="F")[places]


def _are(pair: Array, of_n: float, of_treated: float) -> bool:
    """True if a sum is ``of_n n + of_treated n_1``."""
    return bool(np.max(np.abs(pair - np.array([of_n, of_treated]))) <= _SAME)


def _of_arm(parts: dict[str, Array], arm: int) -> float:
    """A number that depends on the arm alone."""
    return float(parts[ONE][arm, 0, 0]) if parts else 0.0


def _one(value: float | Array, text: str) -> float:
    """One number for all entries."""
    values = np.ravel(value)
    if np.ptp(values) != 0.0:
        raise DeclarationError(f"{text}: has a limit for every entry of a norm: write one number")
    return float(values[0])


def _places_of_arms(sums: SumsOverRecords) -> NDArray[np.bool_]:
    """Which entries are sums of weights by arm alone, (K,)."""
    K = len(sums.shift)
    others = np.zeros(K, dtype=bool)
    for parts in (sums.rows, sums.targets, sums.means):
        for name, tensor in parts.items():
            if name != ONE:
                others |= np.any(tensor != 0.0, axis=(0, 2))
    return ~others


def _row_of(sums: SumsOverRecords, place: int, text: str) -> _SumRow:
    """An entry that is a sum of weights by arm."""
    nothing = np.zeros(2)
    weights = sums.rows[ONE][:, place, 0] if ONE in sums.rows else nothing
    counts = sums.targets[ONE][:, place, 0] if ONE in sums.targets else nothing
    if not np.any(weights):
        raise DeclarationError(f"{text}: equates numbers without weights: leave it out")
    return _SumRow(weights, counts, float(sums.shift[place]), text)


def _opposite(one: SumsOverRecords, other: SumsOverRecords) -> bool:
    """True if sums are the negative of others, but for their shifts."""
    if one.shift.shape != other.shift.shape:
        return False
    pairs = ((one.rows, other.rows), (one.targets, other.targets), (one.means, other.means))
    for matrices, negatives in pairs:
        if set(matrices) != set(negatives):
            return False
        for name, tensor in matrices.items():
            if not np.allclose(tensor, -negatives[name], rtol=_SAME, atol=1e-12):
                return False
    return True
