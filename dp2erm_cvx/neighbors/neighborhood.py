"""Solve a first stage on many neighbors of one dataset, and certify every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.neighbors.movements import NeighborMovements, OthersMoved, movements_of
from dp2erm_cvx.neighbors.row_batch import RowBatch, minimize_together
from dp2erm_cvx.neighbors.rows import Claims, FastPath, NeighborSolutions, Reading, Replacements
from dp2erm_cvx.neighbors.weighting import weighting_path
from dp2erm_cvx.program.first_stage import ClosedFormWeights, FirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.certificate import certify
from dp2erm_cvx.solve.solving import TOLERANCE, solve

__all__ = ["NeighborMovements", "NeighborSolutions", "Neighborhood", "Reading", "Replacements"]

#: Weights per chunk by default: 2 MB, which stay in the cache for small n.
_CHUNK = 2**18
#: The most weights that one chunk may hold.
_LARGEST_CHUNK = 2 * 10**7
#: A fast path aims below the tolerance by this factor, which its last step nearly always gains for
#: nothing.
_AIM = 0.1


class Neighborhood:
    """The neighbors of one dataset, with what their solves share.

    That is made once, by the first that asks.

    Programs that are the weights of a form, separable first stages and functions of one record have
    steps that all neighbors share; any other, and every neighbor that these steps do not certify,
    is solved and certified by itself, and marked. Common steps are not trusted: the first solution
    that they certify must be certified by the judge of single instances, or they are not used at
    all.

    Parameters
    ----------
    program
        A first stage without noise of its own.
    records
        The dataset, mapped into its space.
    base
        Its instance with the solution (d,) of it, where a caller has them.
    """

    def __init__(
        self, program: FirstStage, records: Records, base: tuple[Instance, Array] | None = None
    ) -> None:
        self.program, self.records, self._base = program, records, base
        self._judged = False

    @property
    def shares(self) -> bool:
        """True if the neighbors have common steps.

        Without them each is solved and certified by itself.

        Raises InfeasibleError where the dataset has no weights.
        """
        return self._path is not None

    def movements(
        self, replacements: Replacements, *, weights: bool = False, tolerance: float = TOLERANCE
    ) -> NeighborMovements:
        """How far the weights move to those of every neighbor.

        Parameters
        ----------
        replacements
            The neighbors, in the order of the result.
        weights
            Whether the weights (m, n) of all of them are kept.
        tolerance
            Certified is an l1 error of at most ``tolerance * n``.

        Returns
        -------
        NeighborMovements

        Raises
        ------
        DeclarationError
            For an invalid ``tolerance``, and replacements of other records.
        InfeasibleError
            Where the dataset itself has no weights.
        """
        base, radius = self._base_weights
        reading = None if weights else OthersMoved(base)
        chunks = self.solve(replacements, reading, tolerance=tolerance)
        return movements_of(base, radius, replacements.index, chunks, held=weights)

    @cached_property
    def _base_weights(self) -> tuple[Array, float]:
        """Weights (n,) of the dataset as they are released, and their proved error in l1."""
        solution = solve(self.program.instance(self.records), throw=False)
        if solution.substituted:
            raise InfeasibleError(f"{self.program.name}: no weights were found on these records")
        return solution.value, solution.certificate.output_radius

    @cached_property
    def _path(self) -> FastPath | None:
        """The fast path, from the solution of the base problem."""
        if self._base is None:
            instance = self.program.instance(self.records)
            # any point will do to start from; certificates are about the neighbors alone
            self._base = instance, solve(instance, throw=False).point
        return fast_path(self._base[0], self.records, self._base[1])

    def solve(
        self,
        replacements: Replacements,
        reading: Reading | None = None,
        *,
        tolerance: float = TOLERANCE,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[NeighborSolutions]:
        """Weights of every neighbor with a bound on their l1 error.

        Some hundred neighbors are solved at a time.

        Or a ``reading`` of them, in one more pass that holds no weights. Certified is an l1 error
        of at most ``tolerance * n``. Once ``stopped`` says so, neighbors that would each be solved
        alone are left with an infinite bound, but for the first one. Raises DeclarationError for an
        invalid ``tolerance`` and for replacements of other records; InfeasibleError where the base
        problem has no solution.
        """
        if replacements.base is not self.records:
            raise DeclarationError("replacements: made for other records")
        tolerance = public_number("tolerance", tolerance, above=0)
        return self._each(replacements, reading, tolerance, stopped)

    def _each(
        self,
        replacements: Replacements,
        reading: Reading | None,
        tolerance: float,
        stopped: Callable[[], bool],
    ) -> Iterator[NeighborSolutions]:
        goal = tolerance * self.records.n_samples
        alone = 0
        for first, part, fast in self._parts(replacements, tolerance):
            values = (fast.weights(slice(None)),) if reading is None else fast.read(reading)
            by_single = ~(fast.radius <= goal)
            for k in map(int, np.flatnonzero(by_single)):
                if alone and stopped():
                    fast.radius[k] = np.inf
                    continue
                alone += 1
                weights, fast.radius[k], fast.iterations[k] = self._alone(part, k, tolerance)
                row: tuple[Array, ...] = (weights[None, :],)
                if reading is not None:
                    row = *reading.of(*row, *reading.beside), weights[part.index[k], None]
                for column, (value,) in zip(values, row, strict=True):
                    column[k] = value
            yield NeighborSolutions(
                first, fast.radius, fast.radius <= goal, fast.iterations, by_single, values
            )

    def _parts(
        self, replacements: Replacements, tolerance: float
    ) -> Iterator[tuple[int, Replacements, Claims]]:
        """The number of the first of a chunk, the chunk, and its claims.

        A chunk is so small that its weights stay in a cache.
        """
        n, first = self.records.n_samples, 0
        while first < len(replacements):
            path, size = self._path, min(max(_CHUNK // n, 128), 1024)
            if not (
                isinstance(path, partial) and path.func is minimize_together
            ):  # which holds weights
                size = max(min(size, _LARGEST_CHUNK // n), 1)
            part = replacements.take(first, first + size)
            fast = Claims.nothing(part) if path is None else path(part, _AIM * tolerance * n)
            if not self._judged and len(certified := np.flatnonzero(fast.radius <= tolerance * n)):
                self._judged = True
                if not _confirmed(self.program, part, fast, int(certified[0]), tolerance):
                    self._path = None
                    continue
            yield first, part, fast
            first += len(part)

    def _alone(self, part: Replacements, k: int, tolerance: float) -> tuple[Array, float, int]:
        """Weights (n,) of neighbor k, their l1 radius, and iterations."""
        try:
            solution = solve(
                self.program.instance(part.neighbor(k)), tolerance=tolerance, throw=False
            )
        except InfeasibleError:
            return np.full(part.base.n_samples, np.nan), np.inf, 0
        if solution.substituted:
            return np.full(part.base.n_samples, np.nan), np.inf, 0
        return solution.value, solution.certificate.output_radius, solution.iterations


def fast_path(instance: Instance, records: Records, point: Array) -> FastPath | None:
    """The fast path of a bound first stage with solution ``point`` (d,), or None.

    Only exact types have one.
    """
    program, model = instance.program, instance.model
    assert isinstance(program, FirstStage)
    if isinstance(program, ClosedFormWeights) and type(program).model is ClosedFormWeights.model:
        base = np.concatenate(records.rows(program.unnormalized).each())
        return partial(_closed_form, program, base)
    if type(model) is WeightsModel:
        return weighting_path(model, records)
    rows = program.row_neighbors(records)
    if rows is None:
        return None
    if type(model) is not MarginModel or not isinstance(program, SeparableFirstStage):
        return None
    if not RowBatch.knows(model):
        return None
    batch = RowBatch(model, point, rows)
    return partial(minimize_together, batch) if batch.usable else None


def _closed_form(
    program: ClosedFormWeights, base: Array, part: Replacements, goal: float
) -> Claims:
    """Weights ``n f_i / sum f`` with f_i a function of record i.

    In ``base`` (n,), the f of all records, that of one is replaced for each neighbor.
    """
    m, n = len(part), len(base)
    weights = np.tile(base, (m, 1))
    new = program.unnormalized(part.records())
    weights[np.arange(m), part.index] = new
    largest = weights.max(axis=1, keepdims=True)
    weights /= largest
    total = weights.sum(axis=1)
    weights *= (n / total)[:, None]
    # f is exact by declaration, but may round differently when other records are asked for along
    # with it
    radius, points = np.full(m, 1e-11 * n), (2 * n / total)[:, None]
    return Claims.held(weights, radius, np.zeros(m, dtype=np.int64), points, part.index)


def _confirmed(
    program: FirstStage, part: Replacements, fast: Claims, k: int, tolerance: float
) -> bool:
    """True if the judge of single instances agrees on the solution that the fast path certified."""
    instance, point = program.instance(part.neighbor(k)), fast.points[k]
    model = instance.composite
    apart = float(np.sum(np.abs(model.output(point) - fast.weights(slice(k, k + 1))[0])))
    judged = certify(instance, point)
    return bool(apart <= judged.output_radius + fast.radius[k]) and judged.certifies(10 * tolerance)
