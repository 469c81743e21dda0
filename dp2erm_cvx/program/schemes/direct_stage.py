"""Weights that are themselves the variable of a convex program, judged by its duality gap."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.program.declaration import Declaration, Leaves
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.stage import Instance, Kind, smooth_of


class DirectFirstStage(FirstStage):
    """minimize ``objective(leaf, w)`` subject to ``sum(w) = n``, ``w >= 0``: the shortest way to a program.

    A concrete program states the leaves of its objective (``data``), the objective itself as a convex
    expression of CVXPY, and its strong convexity in w. Quadratics, norms and absolute values will do; an
    entropy will not, because its duality gap is not checked. It has no smooth form, so that only conic
    solvers solve it and a duality gap certifies it, with half of the digits; and no theorem, so that V is 2n.
    This covers any weights of sum n, solved for to whatever accuracy.
    """

    kind: ClassVar[Kind] = Kind.DIRECT
    usual_solver: ClassVar[str] = "clarabel"
    cone: ClassVar[str] = "second-order"

    @abc.abstractmethod
    def objective(self, leaf: Leaves, weights: cp.Variable) -> Any:
        """A convex CVXPY expression of the weights (n,), DPP in the leaves."""

    @abc.abstractmethod
    def strong_convexity(self, records: Records) -> float:
        """M > 0 such that the objective less ``m/2 ||w||^2`` is convex, declared."""

    def constraints(self, leaf: Leaves, weights: cp.Variable) -> dict[str, Any]:
        """Further constraints by name. Where they depend on the data no theorem covers the program."""
        return {}

    def declare(self, leaf: Leaves) -> Declaration:
        n = leaf("ones").shape[0]
        w = cp.Variable(n, name="weights", nonneg=True)
        total = {"total": leaf("ones") @ w == n}
        return Declaration(self.objective(leaf, w), {"weights": w}, total | self.constraints(leaf, w))

    def instance(self, records: Records) -> Instance:
        program = self.resolve(records.domain)
        n = records.n_samples
        data = {**program.data(records), "ones": np.ones(n)}
        convexity, targets = program.strong_convexity(records), program.targets(records)
        return Instance(program, lambda: data, None, convexity, _OnSimplex(n), targets)

    def model(self, records: Records) -> Composite:
        raise ProgramError(f"{self.name} has no smooth form: solve it by a conic solver such as clarabel")

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        # a solver meets the total only approximately
        return smooth_of(instance).penalty.set.project(values["weights"])


class _OnSimplex(Composite):
    """The feasible set and the scale of weights; nothing is known of their objective."""

    ridge, smoothness, self_concordance = 0.0, 1.0, 0.0

    def __init__(self, n: int) -> None:
        self.n = self.dimension = n
        self.penalty = Penalty(Simplices(np.zeros(n, dtype=np.int64), float(n)))

    def value(self, v: Array) -> float:
        return 0.0

    def gradient(self, v: Array) -> Array:
        return np.zeros(self.n)

    def hessian(self, v: Array) -> Array:
        return np.zeros((self.n, self.n))

    def rounding(self, v: Array) -> float:
        return 0.0

    def start(self) -> Array:
        return np.ones(self.n)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return math.sqrt(self.n) * radius

    def output_scale(self, v: Array) -> float:
        return float(self.n)
