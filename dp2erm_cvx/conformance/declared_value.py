"""The declared objective at chosen points of the model, as CVXPY evaluates it."""

from __future__ import annotations

from typing import Any

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Compiled, Instance

#: Constraints that define variables beside the main one.
_EQUALITIES = ("Equality", "Zero")


class DeclaredValue:
    """``objective(point)`` of an instance, the variables beside the main one filled in by its equalities.

    Raises ProgramError where the equalities do not determine them.
    """

    def __init__(self, instance: Instance, main: str | None = None) -> None:
        self._compiled = Compiled(instance.program.declare, instance.data)
        self._compiled.load(instance.data)
        variables = dict(self._compiled.declaration.variables)
        name = main if main in variables else next(iter(variables))
        self._main = variables.pop(name)
        self._others = list(variables.values())
        constraints = self._compiled.declaration.constraints.values()
        self._equalities = [one for one in constraints if type(one).__name__ in _EQUALITIES]
        #: Entries of the main variable.
        self.dimension = int(self._main.size)

    def __call__(self, point: Array) -> float:
        """The objective at values of the main variable."""
        self._main.value = np.reshape(point, self._main.shape)
        if self._others:
            self._fill()
        return float(self._compiled.problem.objective.value)

    def _fill(self) -> None:
        size = sum(int(variable.size) for variable in self._others)
        start = self._missed(np.zeros(size))
        columns = np.column_stack([self._missed(unit) - start for unit in np.eye(size)])
        found, _, rank, _ = np.linalg.lstsq(columns, -start, rcond=None)
        solution: Array = found.astype(np.float64)
        scale = 1.0 + float(np.max(np.abs(start), initial=0.0))
        if rank < size or float(np.max(np.abs(self._missed(solution)), initial=0.0)) > 1e-9 * scale:
            raise ProgramError("the constraints do not determine the variables beside the main one")

    def _missed(self, values: Array) -> Array:
        """What the equalities miss at values of the other variables, which they are left with."""
        place = 0
        for variable in self._others:
            variable.value = np.reshape(values[place : place + variable.size], variable.shape)
            place += int(variable.size)
        missed: list[Any] = [np.ravel(one.expr.value) for one in self._equalities]
        return np.concatenate(missed) if missed else np.zeros(0)
