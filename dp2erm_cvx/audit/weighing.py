"""Weights that an audit looks at: those of a program, certified, or what any function returns."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DataError, DeclarationError, InfeasibleError
from dp2erm_cvx.neighbors import Neighborhood, NeighborSolutions, Reading, Replacements
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import Solver, solve

#: A function of covariates X (n, d), in the units of the data, and treatments a (n,), to weights
#: (n,).
WeightFunction = Callable[[Array, NDArray[np.int64]], Any]
#: Weights (n,) with a bound of their distance to the exact ones in the 1-norm.
Weighed = tuple[Array, float]

#: Settings of a function in files, which no registry builds.
FUNCTION = {"function": True}

#: Part of n by which the weights of a function may miss the sum n.
_SUM_MISSED = 1e-6
#: Part of n by which a weight of a function may be below 0.
_BELOW = 1e-9


class Neighbors(Protocol):
    """The neighbors of one dataset."""

    @property
    def shares(self) -> bool:
        """Whether they have common steps, without which each is weighed by itself."""

    @property
    def knows_gradients(self) -> bool:
        """Whether gradients of V cost one solve of each."""

    def gradients(self, replacements: Replacements, base: Array) -> Array:
        """Gradients (m, d) of V from the weights ``base`` (n,), by covariates of new records."""

    def solve(
        self,
        replacements: Replacements,
        reading: Reading | None = None,
        *,
        stopped: Callable[[], bool],
    ) -> Iterator[NeighborSolutions]:
        """What a reading says of the weights of every neighbor, some at a time."""


@dataclass(frozen=True, eq=False)
class Begun:
    """One dataset with its weights, from which a search for neighbors begins.

    Parameters
    ----------
    weights, radius
        Weights (n,), and a bound of their error in the 1-norm.
    point
        Variable of the model that they come from, whose direction a search follows; the weights
        themselves where nothing else is known.
    neighbors
        The neighbors of the dataset.
    """

    weights: Array
    radius: float
    point: Array
    neighbors: Neighbors


class Weighing(abc.ABC):
    """What weighs records, and is audited."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it is called in files."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Its settings, in plain JSON types."""

    def at(self, universe: MappedUniverse) -> Weighing:
        """The same, read once for all datasets of a universe."""
        return self

    @abc.abstractmethod
    def weights(
        self,
        records: Records,
        solver: str | Solver = "first_certified",
        seconds: float | None = None,
    ) -> Weighed | None:
        """Weights of records; None where they have none, or none were found."""

    @abc.abstractmethod
    def again(self, records: Records, solver: str, seconds: float | None) -> Weighed | None:
        """Weights in another way, to compare with; None where it finds none."""

    @abc.abstractmethod
    def begun(self, records: Records) -> Begun:
        """A dataset whose neighbors are searched."""


@dataclass(frozen=True)
class ProgramWeights(Weighing):
    """Weights of a program, each certified.

    Parameters
    ----------
    program
        A first stage without noise of its own.
    """

    program: FirstStage

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.program.name

    def settings(self) -> dict[str, Any]:
        """Settings of the program."""
        return self.program.settings()

    def at(self, universe: MappedUniverse) -> ProgramWeights:
        """The program, read in a universe."""
        return ProgramWeights(self.program.at(universe))

    def weights(
        self,
        records: Records,
        solver: str | Solver = "first_certified",
        seconds: float | None = None,
    ) -> Weighed | None:
        """Certified weights; None where hard constraints cannot be met, and without any point."""
        with contextlib.suppress(InfeasibleError):
            instance = self.program.instance(records)
            solution = solve(instance, solver=solver, throw=False, seconds=seconds)
            if not solution.substituted:
                return solution.value, solution.certificate.output_radius
        return None

    def again(self, records: Records, solver: str, seconds: float | None) -> Weighed | None:
        """Weights by the declared CVXPY problem, without any polishing."""
        instance = self.program.instance(records)
        solution = solve(instance, solver=solver, polish=False, throw=False, seconds=seconds)
        if solution.substituted:
            return None
        return solution.value, solution.certificate.output_radius

    def begun(self, records: Records) -> Begun:
        """The solution of the dataset, and what neighbors share."""
        instance = self.program.instance(records)
        solution = solve(instance, throw=False)
        neighbors = Neighborhood(self.program, records, (instance, solution.point))
        return Begun(solution.value, solution.certificate.output_radius, solution.point, neighbors)


@dataclass(frozen=True)
class FunctionWeights(Weighing):
    """Weights that a function returns, taken as they are: what it computes is what is released.

    Parameters
    ----------
    function
        The function, of covariates (n, d) in the units of the data and treatments (n,). It may
        return None for records that it has no weights for.

    Raises
    ------
    DeclarationError
        For anything that cannot be called.
    """

    function: WeightFunction = field(repr=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise DeclarationError(
                "function: must map covariates (n, d) and treatments (n,) to weights (n,)"
            )

    @property
    def name(self) -> str:
        """Name of the function."""
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def settings(self) -> dict[str, Any]:
        """That it is a function, which no registry builds."""
        return dict(FUNCTION)

    def weights(
        self,
        records: Records,
        solver: str | Solver = "first_certified",
        seconds: float | None = None,
    ) -> Weighed | None:
        """What the function returns, which is exact.

        Raises
        ------
        DataError
            For anything but n finite weights, none of them negative, of sum n.
        """
        X = records.space.raw(np.array(records.covariates))
        returned = self.function(np.array(X), records.a.copy())
        if returned is None:
            return None
        try:
            weights = np.array(returned, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"{self.name}: returned {type(returned).__name__}, which are no weights"
            ) from None
        self._check(weights, records.n_samples)
        return weights, 0.0

    def _check(self, weights: Array, n: int) -> None:
        """Raise DataError unless these are n finite weights, none of them negative, of sum n."""
        if weights.shape != (n,) or not np.all(np.isfinite(weights)):
            raise DataError(
                f"{self.name}: must return {n} finite weights, not an array {weights.shape}"
            )
        least = np.min(weights)
        total = float(np.sum(weights))
        if least < -_BELOW * n or abs(total - n) > _SUM_MISSED * n:
            raise DataError(
                f"{self.name}: least weight {least:.3g}, sum of weights {total:.9g}: V "
                f"is about weights >= 0 of sum n = {n}: multiply them by n / sum(w)"
            )

    def again(self, records: Records, solver: str, seconds: float | None) -> Weighed | None:
        """What the function returns when it is called once more."""
        return self.weights(records)

    def begun(self, records: Records) -> Begun:
        """The weights of the dataset.

        Raises
        ------
        DataError
            Where it has none, or another call returns others.
        """
        first = self.weights(records)
        second = self.weights(records)
        if first is None or second is None:
            raise DataError(f"{self.name}: has no weights for the records that it is audited on")
        if np.any(first[0] != second[0]):
            raise DataError(self.differs())
        return Begun(first[0], 0.0, first[0], _FunctionNeighbors(self))

    def differs(self) -> str:
        """What is said of a function that returns different weights for the same records."""
        return (
            f"{self.name}: two calls for the same records return different weights: a bound V is "
            "about weights that the records determine; search_runs audits a function with noise"
        )


class _FunctionNeighbors:
    """Neighbors of a dataset, for each of which a function is called.

    Parameters
    ----------
    weighing
        The function.
    """

    def __init__(self, weighing: FunctionWeights) -> None:
        self.weighing = weighing

    @property
    def shares(self) -> bool:
        """A function is called for each."""
        return False

    @property
    def knows_gradients(self) -> bool:
        """Nothing is known of a function."""
        return False

    def gradients(self, replacements: Replacements, base: Array) -> Array:
        """Numbers (m, d) that are none."""
        return np.full((len(replacements), replacements.base.n_features), np.nan)

    def solve(
        self,
        replacements: Replacements,
        reading: Reading | None = None,
        *,
        stopped: Callable[[], bool],
    ) -> Iterator[NeighborSolutions]:
        """What a reading says of the weights of every neighbor, one at a time."""
        assert reading is not None
        for k in range(len(replacements)):
            if k and stopped():
                return
            weighed = self.weighing.weights(replacements.neighbor(k))
            if weighed is None:
                continue
            weights = weighed[0]
            sums, largest = reading.of(weights[None, :], *reading.beside)
            of_replaced = weights[replacements.index[k], None]
            yield NeighborSolutions(
                first=k,
                radius=np.zeros(1),
                certified=np.ones(1, dtype=bool),
                iterations=np.ones(1, dtype=np.int64),
                by_single=np.ones(1, dtype=bool),
                values=(sums, largest, of_replaced),
            )
