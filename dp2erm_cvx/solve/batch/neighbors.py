"""Solve a first stage on many neighbors of one dataset, and certify every one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial

import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.program.exponential import ExponentialModel
from dp2erm_cvx.program.first_stage import ClosedFormWeights, FirstStage
from dp2erm_cvx.program.kernel_model import KernelModel
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.program.stage import Instance, RowNeighbors, model_of
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve.batch.kernel import KernelPath
from dp2erm_cvx.solve.batch.newton import Points, minimize_together
from dp2erm_cvx.solve.batch.replacements import (
    FastSolutions,
    NeighborReadings,
    NeighborSolutions,
    Reading,
    Replacements,
    Tally,
)
from dp2erm_cvx.solve.batch.row_models import ExponentialBatch, MarginBatch
from dp2erm_cvx.solve.batch.rows import Members
from dp2erm_cvx.solve.certificate import certify
from dp2erm_cvx.solve.solve import TOLERANCE, solve

#: Weights per chunk by default: 2 MB, which stay in the cache for small n.
_CHUNK = 2**18
#: The most weights that one chunk may hold.
LARGEST_CHUNK = 2 * 10**7
#: A fast path aims below the tolerance by this factor, which its last step nearly always gains for nothing.
_AIM = 0.1


class Neighborhood:
    """The neighbors of one dataset, with what their solves share: made once, by the first that asks.

    The fast path of a program is not trusted. The first solution that it certifies must be certified by the
    judge of single instances, or it is not used at all. Every neighbor that it does not
    certify is solved alone by its usual solver and marked. A neighbor counts as certified where the bound on
    the l1 error of its weights is at most ``tolerance * n``. ``base`` is the instance of the records with its
    solution, where a caller has them.
    """

    def __init__(
        self, program: FirstStage, records: Records, base: tuple[Instance, Array] | None = None
    ) -> None:
        self.program, self.records, self._base = program, records, base
        self._judged = False

    @cached_property
    def _path(self) -> RowPath | KernelPath | _ClosedFormPath | None:
        """The fast path, from the solution of the base problem."""
        if self._base is None:
            instance = self.program.instance(self.records)
            # any point will do to start from; certificates are about the neighbors alone
            found = solve(instance, solver=self.program.usual_solver, throw=False)
            self._base = instance, found.point
        return fast_path(self._base[0], self.records, self._base[1])

    def solve(
        self,
        replacements: Replacements,
        *,
        tolerance: float = TOLERANCE,
        chunk: int | None = None,
    ) -> Iterator[NeighborSolutions]:
        """Weights of every neighbor with a bound on their l1 error, in chunks of ``chunk`` neighbors.

        The memory is that of ``chunk * n`` weights, plus the factorization of the base problem.

        Raises DeclarationError for an invalid ``tolerance`` or ``chunk``, and where the replacements are for
        other records; InfeasibleError where the base problem has no solution.
        """
        tolerance = self._checked(replacements, tolerance)
        return self._solved(replacements, tolerance, _chunk(self.records.n_samples, chunk))

    def read(
        self, replacements: Replacements, reading: Reading, *, tolerance: float = TOLERANCE
    ) -> Iterator[NeighborReadings]:
        """What ``reading`` says of the weights of every neighbor, with the bound on their l1 error.

        Where the program is a sum over rows no neighbor's weights are held: they are read block by block, in
        one pass over the records besides those that solve. Raises as :meth:`solve`.
        """
        return self._read(replacements, reading, self._checked(replacements, tolerance))

    def _checked(self, replacements: Replacements, tolerance: float) -> float:
        if replacements.base is not self.records:
            raise DeclarationError("replacements: made for other records")
        return public_number("tolerance", tolerance, above=0)

    def _agreed(
        self, part: Replacements, radius: Array, one: Callable[[int], FastSolutions], tolerance: float
    ) -> bool:
        """Whether the judge of single instances agrees on the first solution that the fast path certifies.

        ``radius`` (m,) are its claims, ``one(k)`` what it found for neighbor k. Asked until it has an answer.
        """
        certified = np.flatnonzero(radius <= tolerance * part.base.n_samples)
        if not self._judged and len(certified):
            k = int(certified[0])
            self._judged = True
            if not _confirmed(self.program, part.neighbor(k), one(k), tolerance):
                self._path = None
        return self._path is not None

    def _solved(self, replacements: Replacements, tolerance: float, size: int) -> Iterator[NeighborSolutions]:
        for first in range(0, len(replacements), size):
            part = replacements.take(first, first + size)
            fast = None
            if (path := self._path) is not None:
                fast = path.solve(part, _AIM * tolerance * self.records.n_samples)
                if not self._agreed(part, fast.radius, fast.one, tolerance):
                    fast = None
            yield _finish(self.program, part, fast, tolerance, first)

    def _read(
        self, replacements: Replacements, reading: Reading, tolerance: float
    ) -> Iterator[NeighborReadings]:
        n = self.records.n_samples
        size = min(max(_CHUNK // n, 128), 1024)
        for first in range(0, len(replacements), size):
            part = replacements.take(first, first + size)
            read = None
            if isinstance(path := self._path, RowPath):
                read = path.read(part, _AIM * tolerance * n, reading)
                if not self._agreed(part, read[0].radius, partial(path.held, part, read[0]), tolerance):
                    read = None
            if read is None:
                yield from self._held(part, reading, tolerance, first)
                continue
            found, tally = read
            radius, iterations = found.radius, found.sweeps
            by_single = ~(radius <= tolerance * n)
            for k in map(int, np.flatnonzero(by_single)):
                weights, radius[k], iterations[k] = _single(self.program, part.neighbor(k), tolerance)
                tally.put(k, weights, int(part.index[k]))
            yield tally.readings(first, radius, tolerance * n, iterations, by_single)

    def _held(
        self, part: Replacements, reading: Reading, tolerance: float, first: int
    ) -> Iterator[NeighborReadings]:
        for held in self.solve(part, tolerance=tolerance):
            index = part.index[held.first : held.first + len(held)]
            tally = Tally.held(reading, held.weights, index)
            goal = tolerance * self.records.n_samples
            yield tally.readings(first + held.first, held.radius, goal, held.iterations, held.by_single)


def fast_path(
    instance: Instance, records: Records, point: Array
) -> RowPath | KernelPath | _ClosedFormPath | None:
    """The fast path of a bound first stage with solution ``point`` (d,), or None. Exact types only."""
    program, model = instance.program, instance.model
    assert isinstance(program, FirstStage)
    if isinstance(program, ClosedFormWeights) and type(program).model is ClosedFormWeights.model:
        return _ClosedFormPath(program, records)
    if isinstance(program, KernelFirstStage) and type(model) is KernelModel:
        return KernelPath.build(program, model, records, point)
    rows = program.row_neighbors(records)
    if rows is None:
        return None
    if type(model) is MarginModel and model.weight is not None and isinstance(program, SeparableFirstStage):
        margin = MarginBatch(model, model.weight, point)
        return RowPath(margin, rows) if margin.usable else None
    if type(model) is ExponentialModel:
        exponential = ExponentialBatch(model, point)
        return RowPath(exponential, rows) if exponential.usable else None
    return None


class RowPath:
    """A model that is a sum over rows: margin losses, or the dual of entropy balancing."""

    def __init__(self, batch: ExponentialBatch | MarginBatch, rows: RowNeighbors) -> None:
        self.batch, self.rows = batch, rows

    def solve(self, part: Replacements, goal: float) -> FastSolutions:
        """Newton steps for all of them at once."""
        members = self.members(part)
        out = self.batch.room(len(part))
        found = minimize_together(self.batch, members, goal, out)
        weights = self.batch.finished(out, members, found.points, found.total, found.last)
        return FastSolutions(weights, found.radius, found.sweeps, found.points)

    def read(self, part: Replacements, goal: float, reading: Reading) -> tuple[Points, Tally]:
        """The same without their weights, of which a reading is taken at the points that were found."""
        members = self.members(part)
        found = minimize_together(self.batch, members, goal)
        with np.errstate(all="ignore"):  # of a point that nothing was proved about
            return found, self.batch.read(found.points, members, found.total, reading)

    def held(self, part: Replacements, found: Points, k: int) -> FastSolutions:
        """The weights that :meth:`read` reads of neighbor k at the points that were found."""
        one = np.array([k])
        weights = self.batch.weights(found.points[one], self.members(part.take(k, k + 1)), found.total[one])
        return FastSolutions(weights, found.radius[one], found.sweeps[one], found.points[one])

    def members(self, part: Replacements) -> Members:
        """The rows that leave and those that come."""
        old = part.leaving
        return self.batch.members(part.index, self.rows(old, old).rows, self.rows(old, part.records()))


class _ClosedFormPath:
    """Weights ``n f_i / sum f`` with f_i a function of record i."""

    def __init__(self, program: ClosedFormWeights, records: Records) -> None:
        self.program = program
        self.base: Array = np.concatenate(records.rows(program.unnormalized).each())

    def solve(self, part: Replacements, goal: float) -> FastSolutions:
        """One replaced f each."""
        m, n = len(part), len(self.base)
        weights = np.tile(self.base, (m, 1))
        new = self.program.unnormalized(part.records())
        weights[np.arange(m), part.index] = new
        largest = weights.max(axis=1, keepdims=True)
        weights /= largest
        total = weights.sum(axis=1)
        weights *= (n / total)[:, None]
        # f is exact by declaration, but may round differently when other records are asked for along with it
        radius = np.full(m, 1e-11 * n)
        return FastSolutions(weights, radius, np.zeros(m, dtype=np.int64), (2 * n / total)[:, None])


def _chunk(n: int, chunk: int | None) -> int:
    if chunk is None:
        return max(min(max(_CHUNK // n, 128), 1024, LARGEST_CHUNK // n), 1)
    if isinstance(chunk, bool) or not isinstance(chunk, int | np.integer) or chunk < 1:
        raise DeclarationError(f"chunk = {chunk!r}: must be a whole number of at least 1")
    if chunk * n > LARGEST_CHUNK and chunk > 1:
        raise DeclarationError(
            f"chunk = {chunk}: {chunk} times {n} weights need {chunk * n * 8 / 1e6:.0f} MB; choose at most "
            f"{max(LARGEST_CHUNK // n, 1)}"
        )
    return int(chunk)


def _confirmed(program: FirstStage, neighbor: Records, fast: FastSolutions, tolerance: float) -> bool:
    """Whether the judge of single instances agrees on the one solution that the fast path certified."""
    instance = program.instance(neighbor)
    model = model_of(instance, Composite)  # type: ignore[type-abstract]
    apart = float(np.sum(np.abs(model.output(fast.points[0]) - fast.weights[0])))
    judged = certify(instance, fast.points[0])
    return bool(apart <= judged.output_radius + fast.radius[0]) and judged.certifies(10 * tolerance)


def _finish(
    program: FirstStage, part: Replacements, fast: FastSolutions | None, tolerance: float, first: int
) -> NeighborSolutions:
    m, n = len(part), part.base.n_samples
    if fast is None:
        weights, radius = np.full((m, n), np.nan), np.full(m, np.inf)
        iterations = np.zeros(m, dtype=np.int64)
    else:
        weights, radius, iterations = fast.weights, fast.radius, fast.iterations
    by_single = ~(radius <= tolerance * n)
    for k in np.flatnonzero(by_single):
        weights[k], radius[k], iterations[k] = _single(program, part.neighbor(int(k)), tolerance)
    return NeighborSolutions(first, weights, radius, radius <= tolerance * n, iterations, by_single)


def _single(program: FirstStage, neighbor: Records, tolerance: float) -> tuple[Array, float, int]:
    try:
        found = solve(
            program.instance(neighbor), solver=program.usual_solver, tolerance=tolerance, throw=False
        )
    except (InfeasibleError, SolverError):
        return np.full(neighbor.n_samples, np.nan), np.inf, 0
    return found.value, found.certificate.output_radius, found.stats.iterations
