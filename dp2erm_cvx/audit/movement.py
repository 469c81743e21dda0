"""How far weights move between neighbors.

Here stands what is claimed of it, and what two certificates prove of it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import ROUND_DOWN, ROUND_UP, UNIT, Array
from dp2erm_cvx.audit.search import Deadline
from dp2erm_cvx.audit.weighing import Weighed, Weighing
from dp2erm_cvx.checks import json_types, public_number
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.neighbors import Reading
from dp2erm_cvx.paper import (
    PrintedBound,
    in_paper,
    printed_bound,
    universal_corollary,
    usable_bound,
)
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import Solver

#: The paper's statement about a program as it stands, and its minimum with the universal corollary.
_PRINTED = "paper, printed"
_USABLE = "paper, usable"


class Quantity(enum.StrEnum):
    """A movement of weights w, w' (n,) of neighbors that differ in record j.

    ``V`` is ``sum_{i != j} |w_i - w'_i| + w_j + w'_j``; ``L1``, ``L2`` norms of ``w - w'``; ``L0``
    the number of weights that differ. The paper's are
    ``W1 = ||w - w'||_1 + 2 max_i min(w_i, w'_i)`` and
    ``W2 = sqrt((||w - w'||_2^2 + 2 max_i w_i w'_i) (1 + ||w - w'||_0))``.
    ``LARGEST`` is the largest weight.
    """

    V = "V"
    L1 = "||w - w'||_1"
    L2 = "||w - w'||_2"
    L0 = "||w - w'||_0"
    W1 = "W1"
    W2 = "W2"
    LARGEST = "largest weight"


@dataclass(frozen=True)
class Claim:
    """``quantity <= bound`` for all neighbors of the universe; raises DeclarationError below 0."""

    name: str
    quantity: Quantity
    bound: float
    theorem: str = ""

    def __post_init__(self) -> None:
        bound = public_number(f"bound {self.name!r}", self.bound, at_least=0.0)
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "quantity", Quantity(self.quantity))

    @classmethod
    def of(cls, name: str, bound: StabilityBound) -> list[Claim]:
        """The finite claims of a bound: on V and the largest weight, or on the paper's measures."""
        if isinstance(bound, PrintedBound):
            return cls.of_printed(name, bound)
        return cls._finite(name, bound, {Quantity.V: bound.V, Quantity.LARGEST: bound.w_max})

    @classmethod
    def of_printed(cls, name: str, bound: PrintedBound, *, norm: bool = False) -> list[Claim]:
        """The finite claims of a bound of the paper, in its measures.

        A claim on the ``norm`` is among them if it is asked for.

        A bound on W1 states no more about V than that V <= W1.
        """
        bounds: dict[Quantity, float | None] = {}
        if bound.V != bound.W1:
            bounds[Quantity.V] = bound.V
        bounds |= {Quantity.W1: bound.W1, Quantity.W2: bound.W2, Quantity.LARGEST: bound.w_max}
        if norm:
            bounds[Quantity.L2] = bound.L2
        return cls._finite(name, bound, bounds)

    @classmethod
    def _finite(
        cls, name: str, bound: StabilityBound, bounds: Mapping[Quantity, float | None]
    ) -> list[Claim]:
        return [
            cls(name, quantity, value, bound.theorem)
            for quantity, value in bounds.items()
            if value is not None and math.isfinite(value)
        ]


def claims_of(
    program: FirstStage, universe: MappedUniverse
) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Every finite claim about a first stage, and the reasons of those families that make none.

    The sharp theorem (V and the largest weight), which is called stated where the program is an
    author's own and nothing here proves what it states; the paper's statement as printed (its norm
    bound, W1, W2) and as it can be used (its minimum with the universal corollary), and the
    universal corollary. Public quantities only. Raises DeclarationError for a setting that is not
    valid in itself.
    """
    resolved = program.at(universe)
    # neither this package's nor derived: its author's
    own = "stated" if resolved.uses_stated_bound(universe) else "sharp"
    families: dict[str, Callable[[], list[Claim]]] = {
        own: lambda: Claim.of(own, resolved.stability(universe)),
    }
    if in_paper(resolved):
        # as it stands, without an exception for a flipped treatment, under which it can be false
        keep = Neighboring.REPLACE_ONE_KEEP_TREATMENT
        # of records that count alike, whatever a codebook says of them
        same = dataclasses.replace(universe.space, relation=keep, units=None, weighted=False)
        where = universe.within(same)
        families[_PRINTED] = lambda: Claim.of_printed(
            _PRINTED, printed_bound(resolved, where), norm=True
        )
    families[_USABLE] = lambda: Claim.of_printed(_USABLE, usable_bound(resolved, universe))
    claims = list[Claim]()
    refused = dict[str, str]()
    heaviest = list[float]()
    for name, compute in families.items():
        try:
            stated = compute()
        except CalibrationError as error:
            refused[name] = str(error)
            continue
        claims += stated
        if name != _USABLE:
            heaviest += [claim.bound for claim in stated if claim.quantity is Quantity.LARGEST]
    largest = max(1.0, *heaviest) if heaviest else math.inf
    claims += Claim.of_printed("universal", universal_corollary(universe.n_samples, largest))
    return tuple(dict.fromkeys(claims)), refused


@dataclass(frozen=True)
class Interval:
    """An interval that holds the exact value, at least 0; an end that is no number is unknown."""

    low: float
    high: float

    def __post_init__(self) -> None:
        for name, unknown in (("low", 0.0), ("high", math.inf)):
            end = float(getattr(self, name))
            object.__setattr__(self, name, unknown if math.isnan(end) else end)

    def __str__(self) -> str:
        return f"[{self.low:.6g}, {self.high:.6g}]"

    def apart(self, other: Interval) -> float:
        """How far the middles lie apart, over what both intervals allow.

        It is at most 1 where both hold one value.
        """
        widths = (self.high - self.low) + (other.high - other.low)
        if math.isinf(widths):  # an unknown end is anywhere
            return 0.0
        return abs((self.low + self.high) - (other.low + other.high)) / max(widths, 1e-300)


@dataclass(frozen=True, eq=False)
class Intervals:
    """m intervals, each as an :class:`Interval` is, by their ends (m,)."""

    low: Array
    high: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", np.where(np.isnan(self.low), 0.0, self.low))
        object.__setattr__(self, "high", np.where(np.isnan(self.high), math.inf, self.high))

    def __getitem__(self, k: int) -> Interval:
        return Interval(float(self.low[k]), float(self.high[k]))


class Movement(Reading):
    """Reads the movement from the weights ``base`` (n,) to those of neighbors.

    The weights ``base`` are off by ``radius`` in l1.

    Gaps of at most ``least`` do not count as a difference: neighbors are off by ``other`` at most.
    """

    def __init__(self, base: Array, radius: float, other: float) -> None:
        self.beside, self.n, self.radius = (base,), len(base), radius
        self.least = _error(self.n, radius + other)
        self.heaviest = float(np.max(base, initial=0.0))

    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        """Sums and maxima of the movement.

        Parameters
        ----------
        weights
            Weights (m, k) of some records of m neighbors.
        beside
            The base weights (k,) of these records.

        Returns
        -------
        sums
            Sums (m, 3) of the gaps, of their squares, and of those that count as a difference.
        largest
            The largest product, minimum and weight of both datasets, (m, 3).
        """
        (w,) = beside
        gap, differ = weights - w, np.zeros(len(weights))
        np.abs(gap, out=gap)
        some = ~(np.max(gap, axis=1) <= self.least)  # of most parts all weights stay
        differ[some] = np.count_nonzero(gap[some] > self.least, axis=1)
        sums = np.stack([np.sum(gap, axis=1), np.einsum("ij,ij->i", gap, gap), differ], axis=1)
        heaviest = np.max(weights, axis=1, initial=0.0)
        # what beats the record of the largest w has a w of at least ...
        top = int(np.argmax(w))
        least = np.min(weights[:, top] * np.minimum(w[top] / np.maximum(heaviest, 1e-300), 1.0))
        few = np.flatnonzero(~(w < least * ROUND_DOWN))
        both = (weights[:, few] * w[few], np.minimum(weights[:, few], w[few]))
        return sums, np.stack(
            [*(np.max(pair, axis=1, initial=0.0) for pair in both), heaviest], axis=1
        )

    def intervals(
        self, sums: Array, largest: Array, ends: Array, radius: Array
    ) -> dict[Quantity, Intervals]:
        """From what was read (m, 3), (m, 3), of weights off by ``radius`` (m,).

        ``ends`` (m, 2) are the weights of the changed record before and after. The exact weights
        are within both radii of the computed ones in the 1-norm, hence in any other norm and each
        weight by itself.
        """
        n, own = self.n, self.radius
        error = _error(n, own + radius)
        each = np.maximum(own, radius) * (1 + 1e-9)
        moved, squares, differ = sums.T
        product, both, heaviest = largest.T
        before, after = ends.T
        with np.errstate(all="ignore"):  # of a neighbor that nothing was proved about
            norm = np.sqrt(squares)
            common = np.maximum(moved - np.abs(before - after), 0.0)
            differ = np.where(error <= self.least, differ, 0.0)
            # of the largest product, when both weights move
            slack = own * heaviest + radius * self.heaviest
            low_norm = np.maximum(norm - error, 0.0)
            low_product = np.maximum(product - slack, 0.0)
            high_product = product + slack + own * radius
            return {
                Quantity.V: _around(common + before + after, error),
                Quantity.L1: _around(moved, error),
                Quantity.L2: _around(norm, error),
                Quantity.L0: Intervals(differ, np.full(len(differ), float(n))),
                Quantity.W1: _around(moved + 2 * both, error + 2 * each),
                Quantity.W2: Intervals(
                    np.sqrt((low_norm**2 + 2 * low_product) * (1 + differ)) * ROUND_DOWN,
                    np.sqrt(((norm + error) ** 2 + 2 * high_product) * (1 + n)) * ROUND_UP,
                ),
                Quantity.LARGEST: _around(np.maximum(self.heaviest, heaviest), each),
            }


def _error(n: int, radius: float | Array) -> Any:
    # weights have sum n, and what is added up of them has no more than 2 n terms
    return radius * (1 + 1e-9) + 16 * n * UNIT * 2 * n


def _around(value: Array, error: Array) -> Intervals:
    return Intervals(np.maximum(value - error, 0.0), value + error)


@dataclass(frozen=True)
class NeighborPair:
    """Two neighbors that differ in one record, and how their weights move.

    The record is ``changed``; ``origin`` says where the neighbors come from.

    ``movements`` are certified, from ``solved``: the weights (n,) of both with their radii in the
    1-norm.
    """

    first: Records = field(repr=False)
    second: Records = field(repr=False)
    changed: int = field(repr=False)
    origin: str
    movements: dict[Quantity, Interval] = field(default_factory=dict)
    solved: tuple[tuple[Array, float], ...] = field(default=(), repr=False)

    @property
    def radius(self) -> float:
        """Sum of both certified errors of the weights, in the 1-norm."""
        return sum(radius for _, radius in self.solved)

    @property
    def datasets(self) -> list[tuple[Records, Weighed]]:
        """Both datasets with their weights."""
        return list(zip((self.first, self.second), self.solved, strict=True))

    def moved(self, *solved: tuple[Array, float]) -> NeighborPair:
        """A copy with both weights (n,), each within its radius of the exact ones in the 1-norm."""
        (w, w_radius), (v, v_radius) = solved
        reading = Movement(w, w_radius, v_radius)
        ends = np.array([[w[self.changed], v[self.changed]]])
        moves = reading.intervals(*reading.of(v[None, :], w), ends, np.array([v_radius]))
        each = {quantity: intervals[0] for quantity, intervals in moves.items()}
        return dataclasses.replace(self, movements=each, solved=solved)


@dataclass(frozen=True)
class Verdict:
    """The largest movement found of what one claim bounds.

    ``movement`` holds the exact movement of the ``worst`` pair of ``neighbors``, whose weights are
    certified. ``saved`` is that in the file of a pair that is replayed, None where another audit
    wrote it.
    """

    claim: Claim
    movement: Interval
    worst: NeighborPair = field(repr=False)
    neighbors: int
    saved: Interval | None = None

    @property
    def violated(self) -> bool:
        """True if the movement exceeds the bound whatever the numerical error is."""
        return self.movement.low > self.claim.bound

    @property
    def agrees(self) -> bool | None:
        """True if the movement and the saved one have a point in common.

        Those of two right certificates must.
        """
        if self.saved is None:
            return None
        return self.movement.low <= self.saved.high and self.saved.low <= self.movement.high

    @property
    def ratio(self) -> float:
        """The lower end of the movement over the bound."""
        return self.movement.low / self.claim.bound if self.claim.bound > 0 else float("inf")

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.violated:
            where = f"violated by this pair ({self.worst.origin}): movement in"
            return f"{where} {self.movement} > {self.claim.bound:.6g}"
        share = f"{100 * self.ratio:.3g} % of the bound: no proof"
        return f"not violated in {self.neighbors} re-solves; the largest movement is {share}"

    def __str__(self) -> str:
        return (
            f"{self.claim.name}: {self.claim.quantity} <= {self.claim.bound:.6g}: {self.sentence}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; no record."""
        facts = asdict(self.claim) | {"movement": asdict(self.movement), "violated": self.violated}
        facts |= {
            "ratio": json_types(self.ratio),
            "origin": self.worst.origin,
        }  # a bound of 0 has no ratio
        return facts | {"numerical_error": self.worst.radius, "verdict": str(self)}


@dataclass(frozen=True)
class SolverCheck:
    """How many datasets were solved again by ``solver``, and its largest disagreement.

    ``disagreement`` is ``||w - w~||_1`` over the sum of both radii: at most 1 if both certificates
    are right. ``radius`` is the largest that its own points were certified to: how much the
    comparison can tell. ``unsolved`` counts datasets for which it returned no point.
    """

    solver: str
    datasets: int = 0
    disagreement: float = 0.0
    radius: float = 0.0
    unsolved: int = 0

    def __str__(self) -> str:
        text = f"{self.datasets} datasets solved again by {self.solver}: largest disagreement "
        text += f"{self.disagreement:.3g} of the radii, its own at most {self.radius:.2g}"
        return f"{text}, {self.unsolved} not solved" if self.unsolved else text


#: Seconds that a solver has where a search has none left.
_LEAST_SECONDS = 0.5


def resolve(
    weighing: Weighing,
    pairs: Iterable[NeighborPair | None],
    solver: str | Solver = "first_certified",
    known: Mapping[int, Weighed] | None = None,
    until: Deadline | None = None,
    seconds: float | None = None,
) -> list[NeighborPair]:
    """Certified movements of every pair whose datasets are solved.

    A dataset that pairs share is solved once.

    ``known`` are weights with their radii by the id of the records. After the deadline ``until`` no
    further pair is solved, where one has been. ``seconds`` limit the solver.
    """
    until = until or Deadline()
    solved = dict(known or {})
    there = [pair for pair in pairs if pair is not None]
    moved = list[NeighborPair]()
    for pair in there:
        if moved and until.passed:
            break
        for records in (pair.first, pair.second):
            if id(records) not in solved:
                weighed = weighing.weights(records, solver, seconds)
                if weighed is not None:
                    solved[id(records)] = weighed
        if id(pair.first) in solved and id(pair.second) in solved:
            moved.append(pair.moved(solved[id(pair.first)], solved[id(pair.second)]))
    return moved


def check(
    weighing: Weighing,
    datasets: Iterable[tuple[Records, Weighed]],
    solver: str,
    *,
    until: Deadline | None = None,
    seconds: float | None = None,
) -> SolverCheck:
    """Weigh datasets in another way: by the declared CVXPY problem, without any polishing.

    Each of the ``datasets``, with its weights, is solved once. After the deadline ``until`` no
    further one is solved, where one has been. The solver has ``seconds`` for each, and no more than
    are left until then.
    """
    until = until or Deadline()
    ends = {id(records): (records, solved) for records, solved in datasets}
    ratios, radii = [0.0], [0.0]
    tried = unsolved = 0
    for records, (weights, radius) in ends.values():
        if tried and until.passed:
            break
        tried += 1
        limit = seconds if seconds is None else min(seconds, until.left + _LEAST_SECONDS)
        other = weighing.again(records, solver, limit)
        if other is None:
            unsolved += 1
            continue
        apart = float(np.sum(np.abs(other[0] - weights)))
        radii.append(other[1])
        ratios.append(_over(apart, radius + other[1]))
    # a point that is no number agrees with nothing: it must not be passed over
    most, widest = float(np.max(ratios)), float(np.max(radii))
    return SolverCheck(solver, tried, most, widest, unsolved)


def _over(apart: float, radii: float) -> float:
    """How far weights are apart over what both radii allow; infinite where these allow nothing."""
    if apart == 0.0:
        return 0.0
    return apart / radii if radii > 0.0 else math.inf
