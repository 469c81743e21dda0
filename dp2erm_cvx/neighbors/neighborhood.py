"""Solve a first stage on many neighbors of one dataset, and certify every one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.neighbors.gradients import by_covariates, mean_signs
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
#: Error in l1 of weights in closed form, in parts of n: the function of a record is exact by
#: declaration, but may round differently when other records are asked for along with it.
_CLOSED_FORM_ERROR = 1e-11


class Neighborhood:
    """The neighbors of one dataset, with what their solves share, which is made once.

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
        self.program = program
        self.records = records
        self._base = base
        #: Whether common steps have been confirmed.
        self._judged = False

    @property
    def shares(self) -> bool:
        """True if the neighbors have common steps; without them each is solved by itself.

        Raises
        ------
        InfeasibleError
            Where the dataset has no weights.
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

    def solve(
        self,
        replacements: Replacements,
        reading: Reading | None = None,
        *,
        tolerance: float = TOLERANCE,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[NeighborSolutions]:
        """Weights of every neighbor with a bound on their l1 error, or a reading of them.

        Some hundred neighbors are solved at a time. A reading takes one more pass, which holds no
        weights.

        Parameters
        ----------
        replacements
            The neighbors.
        reading
            What is asked of their weights; None: the weights themselves.
        tolerance
            Certified is an l1 error of at most ``tolerance * n``.
        stopped
            Once it says so, neighbors that would each be solved alone are left with an infinite
            bound, but for the first one.

        Returns
        -------
        chunks
            The neighbors in their order, some at a time.

        Raises
        ------
        DeclarationError
            For an invalid ``tolerance``, and replacements of other records.
        InfeasibleError
            Where the dataset itself has no weights.
        """
        if replacements.base is not self.records:
            raise DeclarationError("replacements: made for other records")
        tolerance = public_number("tolerance", tolerance, above=0)
        return self._solved(replacements, reading, tolerance, stopped)

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
        instance, point = self._base
        return fast_path(instance, self.records, point)

    @property
    def knows_gradients(self) -> bool:
        """True if :meth:`gradients` are known.

        Raises InfeasibleError where the dataset has no weights.
        """
        return self._path is not None and self._path.knows_gradients

    def gradients(self, replacements: Replacements, base: Array) -> Array:
        """How V changes with the covariates of the new records, by the implicit function theorem.

        Nothing is proved about them: they tell where to look.

        Parameters
        ----------
        replacements
            The neighbors, in the order of the result.
        base
            The weights (n,) of the dataset.

        Returns
        -------
        Array
            Gradients (m, p); NaN where common steps did not solve a neighbor, and everywhere
            unless :attr:`knows_gradients`.
        """
        found = [np.zeros((0, self.records.n_features))]
        for _, part, fast in self._parts(replacements, TOLERANCE):
            if fast.gradients is None:
                found.append(np.full((len(part), self.records.n_features), np.nan))
            else:
                found.append(fast.gradients(base))
        return np.concatenate(found)

    def _solved(
        self,
        replacements: Replacements,
        reading: Reading | None,
        tolerance: float,
        stopped: Callable[[], bool],
    ) -> Iterator[NeighborSolutions]:
        """Chunks of neighbors by common steps, with those solved alone that these left."""
        goal = tolerance * self.records.n_samples
        n_alone = 0
        for first, part, claims in self._parts(replacements, tolerance):
            values = _values_of(claims, reading)
            by_single = ~(claims.radius <= goal)
            for k in map(int, np.flatnonzero(by_single)):
                if n_alone and stopped():
                    claims.radius[k] = np.inf
                    continue
                n_alone += 1
                weights, claims.radius[k], claims.iterations[k] = self._alone(part, k, tolerance)
                row = _values_of_one(weights, int(part.index[k]), reading)
                for column, value in zip(values, row, strict=True):
                    column[k] = value
            certified = claims.radius <= goal
            yield NeighborSolutions(
                first, claims.radius, certified, claims.iterations, by_single, values
            )

    def _parts(
        self, replacements: Replacements, tolerance: float
    ) -> Iterator[tuple[int, Replacements, Claims]]:
        """The number of the first of a chunk, the chunk, and the claims of common steps about it.

        The first claim that is certified has to be confirmed; otherwise there are no common steps.
        """
        n = self.records.n_samples
        first = 0
        while first < len(replacements):
            path = self._path
            part = replacements.take(first, first + self._size_of_chunk())
            claims = _claimed(path, part, _AIM * tolerance * n)
            certified = np.flatnonzero(claims.radius <= tolerance * n)
            if not self._judged and len(certified):
                self._judged = True
                if not _confirmed(self.program, part, claims, int(certified[0]), tolerance):
                    self._path = None
                    continue
            yield first, part, claims
            first += len(part)

    def _size_of_chunk(self) -> int:
        """Neighbors in a chunk, so few that their weights stay in a cache."""
        n = self.records.n_samples
        size = min(max(_CHUNK // n, 128), 1024)
        if self._path is not None and not self._path.holds_weights:
            return size
        return max(min(size, _LARGEST_CHUNK // n), 1)

    def _alone(self, part: Replacements, k: int, tolerance: float) -> tuple[Array, float, int]:
        """Weights (n,) of neighbor k, their l1 radius, and iterations."""
        with contextlib.suppress(InfeasibleError):
            instance = self.program.instance(part.neighbor(k))
            solution = solve(instance, tolerance=tolerance, throw=False)
            if not solution.substituted:
                return solution.value, solution.certificate.output_radius, solution.iterations
        return np.full(part.base.n_samples, np.nan), np.inf, 0


def _claimed(path: FastPath | None, part: Replacements, goal: float) -> Claims:
    """What common steps claim of the neighbors; nothing without such steps."""
    if path is None:
        return Claims.nothing(part)
    return path.solve(part, goal)


def _values_of(claims: Claims, reading: Reading | None) -> tuple[Array, ...]:
    """What is asked of the weights of all neighbors of a chunk."""
    if reading is None:
        return (claims.weights(slice(None)),)
    return claims.read(reading)


def _values_of_one(weights: Array, replaced: int, reading: Reading | None) -> tuple[Any, ...]:
    """The same of one neighbor with weights (n,), whose record ``replaced`` is the new one."""
    if reading is None:
        return (weights,)
    sums, largest = reading.of(weights[None, :], *reading.beside)
    return sums[0], largest[0], weights[replaced]


def fast_path(instance: Instance, records: Records, point: Array) -> FastPath | None:
    """The fast path of the neighbors of a dataset; None without one.

    Only exact types have one.

    Parameters
    ----------
    instance
        A first stage on the dataset.
    records
        The dataset.
    point
        The solution (d,) of the instance.
    """
    program = instance.program
    model = instance.model
    assert isinstance(program, FirstStage)
    if isinstance(program, ClosedFormWeights) and type(program).model is ClosedFormWeights.model:
        base = np.concatenate(records.rows(program.unnormalized).each())
        return FastPath(
            partial(_closed_form, program, base), holds_weights=True, knows_gradients=True
        )
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
    if not batch.usable:
        return None
    return FastPath(partial(minimize_together, batch), holds_weights=False, knows_gradients=True)


def _closed_form(
    program: ClosedFormWeights, base: Array, part: Replacements, goal: float
) -> Claims:
    """Weights ``n f_i / sum f`` with f_i a function of record i.

    In ``base`` (n,), the f of all records, that of one is replaced for each neighbor.
    """
    m = len(part)
    n = len(base)
    weights = np.tile(base, (m, 1))
    f_of_new = program.unnormalized(part.records())
    weights[np.arange(m), part.index] = f_of_new
    largest = weights.max(axis=1, keepdims=True)
    weights /= largest
    total = weights.sum(axis=1)
    weights *= (n / total)[:, None]
    radius = np.full(m, _CLOSED_FORM_ERROR * n)
    points = (2 * n / total)[:, None]
    steps = np.zeros(m, dtype=np.int64)
    claims = Claims.held(weights, radius, steps, points, part.index)

    def gradients(moved_from: Array) -> Array:
        """Gradients (m, p) of V, by ``dV/df_j = (1 - c) n / sum f`` with the mean sign c."""
        mean_sign = mean_signs(claims.read, moved_from, part.index)
        own = weights[np.arange(m), part.index]
        by_own = (1.0 - mean_sign) * own / f_of_new

        def of_new_records(near: Replacements) -> Array:
            return program.unnormalized(near.records())[:, None]

        return by_covariates(by_own[:, None], part, of_new_records)

    return replace(claims, gradients=gradients)


def _confirmed(
    program: FirstStage, part: Replacements, fast: Claims, k: int, tolerance: float
) -> bool:
    """True if the judge of single instances agrees on the solution that the fast path certified."""
    instance = program.instance(part.neighbor(k))
    point = fast.points[k]
    weights = fast.weights(slice(k, k + 1))[0]
    distance = float(np.sum(np.abs(instance.composite.output(point) - weights)))
    judged = certify(instance, point)
    agrees = bool(distance <= judged.output_radius + fast.radius[k])
    return agrees and judged.certifies(10 * tolerance)
