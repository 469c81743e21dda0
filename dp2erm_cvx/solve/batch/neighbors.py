"""Solve a first stage on many neighbors of one dataset, and certify every one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve.batch.fast_path import FastPath, FastSolutions, NeighborSolutions
from dp2erm_cvx.solve.batch.paths import RowPath, fast_path
from dp2erm_cvx.solve.batch.reading import Kept, NeighborReadings, Reading, Tally
from dp2erm_cvx.solve.batch.replacements import Replacements
from dp2erm_cvx.solve.batch.rows import Index, Mask
from dp2erm_cvx.solve.certificate import certify
from dp2erm_cvx.solve.solve import TOLERANCE, solve

#: Weights per chunk by default: 2 MB, which stay in the cache for small n.
_CHUNK = 2**18
#: The most weights that one chunk may hold.
LARGEST_CHUNK = 2 * 10**7
#: A fast path aims below the tolerance by this factor, which its last step nearly always gains for nothing.
_AIM = 0.1


def solve_neighbors(
    program: FirstStage,
    records: Records,
    replacements: Replacements,
    *,
    tolerance: float = TOLERANCE,
    chunk: int | None = None,
) -> Iterator[NeighborSolutions]:
    """Weights of every neighbor with a bound on their l1 error, in chunks of ``chunk`` neighbors.

    A neighbor counts as certified where the bound is at most ``tolerance * n``. The fast path of a program
    is not trusted: its first solution must be certified by the judge of single instances, or it is not used
    at all, and every neighbor that it does not certify is solved alone by its usual solver and marked.
    The memory is that of ``chunk * n`` weights, plus the factorization of the base problem.

    Raises DeclarationError for an invalid ``tolerance`` or ``chunk``, and where the replacements are for
    other records; InfeasibleError where the base problem has no solution.
    """
    tolerance = public_number("tolerance", tolerance, above=0)
    if replacements.base is not records:
        raise DeclarationError("replacements: made for other records")
    size = _chunk(records.n_samples, chunk)
    return _chunks(program, records, replacements, tolerance, size)


def read_neighbors(
    program: FirstStage,
    records: Records,
    replacements: Replacements,
    reading: Reading,
    *,
    tolerance: float = TOLERANCE,
) -> Iterator[NeighborReadings]:
    """What ``reading`` says of the weights of every neighbor, with the bound on their l1 error.

    As :func:`solve_neighbors`, and nothing else is trusted: but where the program is a sum over rows no
    neighbor's weights are held. Neighbors then need memory for blocks of them, and two sweeps over the
    records more: the solution is theirs once it is certified, and its weights are read block by block.

    Raises what :func:`solve_neighbors` does.
    """
    tolerance = public_number("tolerance", tolerance, above=0)
    if replacements.base is not records:
        raise DeclarationError("replacements: made for other records")
    if not len(replacements):
        return iter(())
    path = _path(program, records)
    if isinstance(path, RowPath) and _read_alike(program, path, replacements, tolerance):
        return _read(program, path, replacements, reading, tolerance)
    return _read_held(program, replacements, reading, tolerance)


def _read(
    program: FirstStage, path: RowPath, replacements: Replacements, reading: Reading, tolerance: float
) -> Iterator[NeighborReadings]:
    n = replacements.base.n_samples
    size = min(max(_CHUNK // n, 128), 1024)
    for first in range(0, len(replacements), size):
        part = replacements.take(first, first + size)
        fast, tally = path.read(part, _AIM * tolerance * n, reading)
        radius, iterations = fast.radius, fast.iterations
        by_single = ~(radius <= tolerance * n)
        for k in map(int, np.flatnonzero(by_single)):
            weights, radius[k], iterations[k] = _single(program, part.neighbor(k), tolerance)
            tally.put(k, weights, int(part.index[k]))
        yield _readings(first, tally, radius, iterations, by_single, tolerance * n)


def _read_held(
    program: FirstStage, replacements: Replacements, reading: Reading, tolerance: float
) -> Iterator[NeighborReadings]:
    goal = tolerance * replacements.base.n_samples
    for held in solve_neighbors(program, replacements.base, replacements, tolerance=tolerance):
        tally = Tally(reading, len(held))
        for k, index in enumerate(replacements.index[held.first : held.first + len(held)]):
            tally.put(k, held.weights[k], int(index))
        yield _readings(held.first, tally, held.radius, held.iterations, held.by_single, goal)


def _readings(
    first: int, tally: Tally, radius: Array, iterations: Index, by_single: Mask, goal: float
) -> NeighborReadings:
    return NeighborReadings(
        first, tally.sums, tally.largest, tally.own, radius, radius <= goal, iterations, by_single
    )


def _read_alike(program: FirstStage, path: RowPath, replacements: Replacements, tolerance: float) -> bool:
    """Whether the judge of single instances agrees on the weights of the first neighbor that are read."""
    part = replacements.take(0, 1)
    kept = Kept(part.base.n_samples)
    fast, tally = path.read(part, _AIM * tolerance * part.base.n_samples, kept)
    weights = kept.weights[None, :]
    own = tally.own[0] == kept.weights[part.index[0]]
    return bool(own) and _confirmed(program, part, replace(fast, weights=weights), tolerance)


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


def _chunks(
    program: FirstStage, records: Records, replacements: Replacements, tolerance: float, size: int
) -> Iterator[NeighborSolutions]:
    path = _path(program, records) if len(replacements) else None
    for first in range(0, len(replacements), size):
        part = replacements.take(first, first + size)
        fast = None
        if path is not None:
            fast = path.solve(part, _AIM * tolerance * records.n_samples)
            if first == 0 and not _confirmed(program, part, fast, tolerance):
                path = fast = None
        yield _finish(program, part, fast, tolerance, first)


def _path(program: FirstStage, records: Records) -> FastPath | None:
    instance = program.instance(records)
    # any point will do to start from; certificates are about the neighbors alone
    return fast_path(instance, records, solve(instance, solver=program.usual_solver, throw=False).point)


def _confirmed(program: FirstStage, part: Replacements, fast: FastSolutions, tolerance: float) -> bool:
    """Whether the judge of single instances agrees on the first neighbor that the fast path certified."""
    certified = np.flatnonzero(fast.radius <= tolerance * part.base.n_samples)
    if not len(certified):
        return True  # nothing was claimed
    k = int(certified[0])
    instance = program.instance(part.neighbor(k))
    assert instance.model is not None
    point = _coordinates(instance.model.output(fast.points[k]), fast.weights[k])
    judged = certify(instance, fast.points[k])
    return bool(point <= judged.output_radius + fast.radius[k]) and judged.certifies(10 * tolerance)


def _coordinates(first: Array, second: Array) -> float:
    return float(np.sum(np.abs(first - second)))


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
