"""Which fast path a program has, by the exact form of its model."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program.first_stage import ClosedFormWeights, FirstStage
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.schemes.exponential import ExponentialModel
from dp2erm_cvx.program.schemes.kernel_model import KernelModel
from dp2erm_cvx.program.schemes.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.schemes.separable_stage import SeparableFirstStage
from dp2erm_cvx.program.stage import Instance, RowNeighbors
from dp2erm_cvx.solve.batch.exponential import ExponentialBatch
from dp2erm_cvx.solve.batch.fast_path import FastPath, FastSolutions
from dp2erm_cvx.solve.batch.kernel import KernelPath
from dp2erm_cvx.solve.batch.margin import MarginBatch
from dp2erm_cvx.solve.batch.newton import Points, minimize_together
from dp2erm_cvx.solve.batch.reading import Reading, Tally
from dp2erm_cvx.solve.batch.replacements import Replacements
from dp2erm_cvx.solve.batch.rows import Members


class RowPath(FastPath):
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


class ClosedFormPath(FastPath):
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


def fast_path(instance: Instance, records: Records, point: Array) -> FastPath | None:
    """The fast path of a bound first stage with solution ``point`` (d,), or None. Exact types only."""
    program, model = instance.program, instance.model
    assert isinstance(program, FirstStage)
    if isinstance(program, ClosedFormWeights) and type(program).model is ClosedFormWeights.model:
        return ClosedFormPath(program, records)
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
