"""How far weights move between neighbors: what is claimed of it, and what certificates prove.

A claim bounds one quantity for all neighbors. Certified weights of two neighbors put the exact
quantity into an interval, which a claim is compared with.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_DOWN, ROUND_UP, ROUND_UP_SUMS, Array
from dp2erm_cvx.audit.search import Deadline
from dp2erm_cvx.audit.weighing import Weighed, Weighing
from dp2erm_cvx.checks import json_types, public_number
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.neighbors import Reading
from dp2erm_cvx.neighbors.movements import movement_error
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
#: Stands for 0 below a fraction line.
_SMALLEST = 1e-300


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
    """A bound on one quantity for all neighbors of a universe.

    Parameters
    ----------
    name
        Whose bound it is, such as "sharp" or "universal".
    quantity
        What is bounded.
    bound
        The bound, in the unit of the quantity.
    theorem
        The statement that it comes from.

    Raises
    ------
    DeclarationError
        For a bound below 0.
    """

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

        A claim on the ``norm`` is among them if it is asked for. A bound on W1 states no more about
        V than that V <= W1.
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
        claims = []
        for quantity, value in bounds.items():
            if value is not None and math.isfinite(value):
                claims.append(cls(name, quantity, value, bound.theorem))
        return claims


def claims_of(
    program: FirstStage, universe: MappedUniverse
) -> tuple[tuple[Claim, ...], dict[str, str]]:
    """Every finite claim about a first stage, and the reasons of those families that make none.

    The families are the sharp theorem (V and the largest weight), which is called stated where the
    program is an author's own and nothing here proves what it states; the paper's statement as
    printed (its norm bound, W1, W2) and as it can be used (its minimum with the universal
    corollary); and the universal corollary. Only public quantities are read.

    Parameters
    ----------
    program
        The first stage.
    universe
        The datasets whose neighbors the claims are about.

    Returns
    -------
    claims
        The finite claims, each once.
    refused
        Why a family makes no claim, by its name.

    Raises
    ------
    DeclarationError
        For a setting that is not valid in itself.
    """
    resolved = program.at(universe)
    claims = list[Claim]()
    refused = dict[str, str]()
    largest_weights = list[float]()
    for name, compute in _families(resolved, universe).items():
        try:
            family = compute()
        except CalibrationError as error:
            refused[name] = str(error)
            continue
        claims += family
        if name != _USABLE:
            of_largest = [claim.bound for claim in family if claim.quantity is Quantity.LARGEST]
            largest_weights += of_largest
    largest_weight = math.inf
    if largest_weights:
        largest_weight = max(1.0, *largest_weights)
    universal = universal_corollary(universe.n_samples, largest_weight)
    claims += Claim.of_printed("universal", universal)
    return tuple(dict.fromkeys(claims)), refused


def _families(
    resolved: FirstStage, universe: MappedUniverse
) -> dict[str, Callable[[], list[Claim]]]:
    """By name, what computes the claims of a family; it raises CalibrationError for none."""
    # a bound that is neither this package's nor derived is its author's
    name = "stated" if resolved.uses_stated_bound(universe) else "sharp"
    families: dict[str, Callable[[], list[Claim]]] = {}
    families[name] = partial(_claims_of_theorem, name, resolved, universe)
    if in_paper(resolved):
        families[_PRINTED] = partial(_claims_as_printed, _PRINTED, resolved, universe)
    families[_USABLE] = partial(_claims_as_usable, _USABLE, resolved, universe)
    return families


def _claims_of_theorem(name: str, resolved: FirstStage, universe: MappedUniverse) -> list[Claim]:
    return Claim.of(name, resolved.stability(universe))


def _claims_as_printed(name: str, resolved: FirstStage, universe: MappedUniverse) -> list[Claim]:
    """The paper's claims as they stand, without an exception for a flipped treatment.

    Under a flip they can be false. They are about records that count alike, whatever a codebook
    says of them.
    """
    keep = Neighboring.REPLACE_ONE_KEEP_TREATMENT
    space = dataclasses.replace(universe.space, relation=keep, units=None, weighted=False)
    return Claim.of_printed(name, printed_bound(resolved, universe.within(space)), norm=True)


def _claims_as_usable(name: str, resolved: FirstStage, universe: MappedUniverse) -> list[Claim]:
    return Claim.of_printed(name, usable_bound(resolved, universe))


@dataclass(frozen=True)
class Interval:
    """An interval that holds the exact value, which is at least 0.

    An end that is no number is unknown.

    Parameters
    ----------
    low, high
        The ends, in the unit of a :class:`Quantity`.
    """

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
        if math.isinf(widths):
            # an unknown end is anywhere
            return 0.0
        distance = abs((self.low + self.high) - (other.low + other.high))
        return distance / max(widths, _SMALLEST)


@dataclass(frozen=True, eq=False)
class Intervals:
    """m intervals, each as an :class:`Interval` is.

    Parameters
    ----------
    low, high
        Their ends (m,).
    """

    low: Array
    high: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", np.where(np.isnan(self.low), 0.0, self.low))
        object.__setattr__(self, "high", np.where(np.isnan(self.high), math.inf, self.high))

    def __getitem__(self, k: int) -> Interval:
        return Interval(float(self.low[k]), float(self.high[k]))


class Movement(Reading):
    """Reads the movement from the weights of one dataset to those of neighbors.

    Parameters
    ----------
    base
        Weights (n,) of the dataset.
    radius
        Bound of their error in l1.
    neighbor_radius
        Bound of the errors in l1 of the weights of all neighbors. Gaps that both errors can explain
        do not count as a difference.
    """

    def __init__(self, base: Array, radius: float, neighbor_radius: float) -> None:
        self.beside = (base,)
        self.n = len(base)
        self.radius = radius
        #: The largest gap of a weight that is not counted as a difference.
        self.least = movement_error(self.n, radius + neighbor_radius)
        #: The largest weight of the dataset.
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
        gap = weights - w
        np.abs(gap, out=gap)
        n_differing = np.zeros(len(weights))
        # of most parts all weights stay
        differs = ~(np.max(gap, axis=1) <= self.least)
        n_differing[differs] = np.count_nonzero(gap[differs] > self.least, axis=1)
        squares = np.einsum("ij,ij->i", gap, gap)
        sums = np.stack([np.sum(gap, axis=1), squares, n_differing], axis=1)
        largest_weight = np.max(weights, axis=1, initial=0.0)
        few = self._candidates(weights, w, largest_weight)
        largest_product = np.max(weights[:, few] * w[few], axis=1, initial=0.0)
        largest_common = np.max(np.minimum(weights[:, few], w[few]), axis=1, initial=0.0)
        return sums, np.stack([largest_product, largest_common, largest_weight], axis=1)

    @staticmethod
    def _candidates(weights: Array, w: Array, largest_weight: Array) -> NDArray[np.int64]:
        """Records that may have the largest product or minimum of both weights.

        What beats the record ``top`` of the largest w has a w of at least
        ``w'_top min(w_top / max w', 1)``.
        """
        top = int(np.argmax(w))
        share = np.minimum(w[top] / np.maximum(largest_weight, _SMALLEST), 1.0)
        least = np.min(weights[:, top] * share)
        return np.flatnonzero(~(w < least * ROUND_DOWN))

    def intervals(
        self, sums: Array, largest: Array, ends: Array, radius: Array
    ) -> dict[Quantity, Intervals]:
        """Intervals of every quantity, from what was read.

        The exact weights are within both radii of the computed ones in the 1-norm, hence in any
        other norm and each weight by itself.

        Parameters
        ----------
        sums, largest
            What :meth:`of` returns of all records, (m, 3) each.
        ends
            The weights (m, 2) of the changed record before and after.
        radius
            Bounds (m,) of the errors in l1 of the weights of the neighbors.
        """
        error = movement_error(self.n, self.radius + radius)
        weight_error = np.maximum(self.radius, radius) * ROUND_UP_SUMS
        l1, squares, n_differing = sums.T
        largest_product, largest_common, largest_weight = largest.T
        before, after = ends.T
        # radii are infinite of a neighbor that nothing was proved about
        with np.errstate(all="ignore"):
            l2 = _around(np.sqrt(squares), error)
            most_differing = np.full(len(n_differing), float(self.n))
            l0 = Intervals(np.where(error <= self.least, n_differing, 0.0), most_differing)
            # the largest product, when both weights move
            slack = self.radius * largest_weight + radius * self.heaviest
            product = Intervals(
                np.maximum(largest_product - slack, 0.0),
                largest_product + slack + self.radius * radius,
            )
            # V holds both weights of the changed record in place of their gap
            of_others = np.maximum(l1 - np.abs(before - after), 0.0)
            return {
                Quantity.V: _around(of_others + before + after, error),
                Quantity.L1: _around(l1, error),
                Quantity.L2: l2,
                Quantity.L0: l0,
                Quantity.W1: _around(l1 + 2 * largest_common, error + 2 * weight_error),
                Quantity.W2: _intervals_of_w2(l2, product, l0),
                Quantity.LARGEST: _around(np.maximum(self.heaviest, largest_weight), weight_error),
            }


def _intervals_of_w2(l2: Intervals, product: Intervals, l0: Intervals) -> Intervals:
    """``W2 = sqrt((||w - w'||_2^2 + 2 max_i w_i w'_i) (1 + ||w - w'||_0))``, rounded outward."""
    low = np.sqrt((l2.low**2 + 2 * product.low) * (1 + l0.low))
    high = np.sqrt((l2.high**2 + 2 * product.high) * (1 + l0.high))
    return Intervals(low * ROUND_DOWN, high * ROUND_UP)


def _around(value: Array, error: Array) -> Intervals:
    """The numbers of at least 0 that are within an error of a value."""
    return Intervals(np.maximum(value - error, 0.0), value + error)


@dataclass(frozen=True)
class NeighborPair:
    """Two neighbors that differ in one record, and how their weights move.

    Parameters
    ----------
    first, second
        The records of both.
    changed
        Number of the record that differs.
    origin
        Where the neighbors come from, in words.
    movements
        Certified movements by quantity, from ``solved``.
    solved
        The weights (n,) of both datasets with their radii in the 1-norm.
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
        movements = {quantity: intervals[0] for quantity, intervals in moves.items()}
        return dataclasses.replace(self, movements=movements, solved=solved)


@dataclass(frozen=True)
class Verdict:
    """The largest movement found of what one claim bounds.

    Parameters
    ----------
    claim
        The bound.
    movement
        Holds the exact movement of the worst pair, whose weights are certified.
    worst
        The pair that moves most.
    neighbors
        How many neighbors were solved.
    saved
        The movement in the file of a pair that is replayed; None where another audit wrote it.
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
        if self.claim.bound > 0:
            return self.movement.low / self.claim.bound
        return math.inf

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
        return {
            **asdict(self.claim),
            "movement": asdict(self.movement),
            "violated": self.violated,
            # a bound of 0 has no ratio
            "ratio": json_types(self.ratio),
            "origin": self.worst.origin,
            "numerical_error": self.worst.radius,
            "verdict": str(self),
        }


@dataclass(frozen=True)
class SolverCheck:
    """How far a second solver disagrees with the certified weights.

    Parameters
    ----------
    solver
        The second solver.
    datasets
        How many datasets it was given.
    disagreement
        The largest ``||w - w~||_1`` over the sum of both radii: at most 1 if both certificates are
        right.
    radius
        The largest radius that its own points were certified to: how much the comparison can tell.
    unsolved
        Datasets for which it returned no point.
    """

    solver: str
    datasets: int = 0
    disagreement: float = 0.0
    radius: float = 0.0
    unsolved: int = 0

    def __str__(self) -> str:
        text = f"{self.datasets} datasets solved again by {self.solver}: largest disagreement "
        text += f"{self.disagreement:.3g} of the radii, its own at most {self.radius:.2g}"
        if self.unsolved:
            text += f", {self.unsolved} not solved"
        return text


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

    Parameters
    ----------
    weighing
        What weighs the records.
    pairs
        The pairs; None stands for a pair that there is not.
    solver
        The solver of programs.
    known
        Weights with their radii by the id of the records, which are not solved for again.
    until
        After this deadline no further pair is solved, where one has been.
    seconds
        The limit of the solver for each dataset.
    """
    until = until or Deadline()
    solved = dict(known or {})
    moved = list[NeighborPair]()
    for pair in pairs:
        if pair is None:
            continue
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

    Parameters
    ----------
    weighing
        What weighs the records.
    datasets
        Datasets with their certified weights, each of which is solved once.
    solver
        The second solver.
    until
        After this deadline no further dataset is solved, where one has been.
    seconds
        The limit of the solver for each dataset; it has no more than are left until the deadline.
    """
    until = until or Deadline()
    distinct = {id(records): (records, solved) for records, solved in datasets}
    ratios = [0.0]
    radii = [0.0]
    tried = 0
    unsolved = 0
    for records, (weights, radius) in distinct.values():
        if tried and until.passed:
            break
        tried += 1
        limit = None
        if seconds is not None:
            limit = min(seconds, until.left + _LEAST_SECONDS)
        second = weighing.again(records, solver, limit)
        if second is None:
            unsolved += 1
            continue
        second_weights, second_radius = second
        distance = float(np.sum(np.abs(second_weights - weights)))
        radii.append(second_radius)
        ratios.append(_disagreement(distance, radius + second_radius))
    # a point that is no number agrees with nothing: it must not be passed over
    disagreement = float(np.max(ratios))
    return SolverCheck(solver, tried, disagreement, float(np.max(radii)), unsolved)


def _disagreement(distance: float, radii: float) -> float:
    """A distance over what both radii allow; infinite where these allow nothing."""
    if distance == 0.0:
        return 0.0
    if radii > 0.0:
        return distance / radii
    return math.inf
