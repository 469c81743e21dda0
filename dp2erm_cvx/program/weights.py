"""Schemes whose variable is the weights themselves, with 2n or a bound that their author states."""

from __future__ import annotations

import dataclasses
import inspect
from types import MappingProxyType
from typing import Any, ClassVar, Self

import cvxpy as cp

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.declared import STANDARD, DeclaredProgram, Function, called
from dp2erm_cvx.program.form import weights_curvature
from dp2erm_cvx.program.printing import printed
from dp2erm_cvx.program.rows import DeclaredRecords
from dp2erm_cvx.program.schemes.direct_stage import DirectFirstStage
from dp2erm_cvx.program.stage import Kind
from dp2erm_cvx.public import public_number
from dp2erm_cvx.universe import Universe


@dataclasses.dataclass(frozen=True)
class Bound:
    """Movement of weights as an author states it, by public numbers: in l2, or as that of the gradient.

    ``largest`` bounds every weight. A strongly convex program on a fixed set whose gradient moves by at most
    g between neighbors has weights that move by at most g over its strong convexity, which is derived.
    """

    largest: float
    l2: float | None = None
    gradient: float | None = None

    @classmethod
    def from_l2(cls, l2: float, w_max: float) -> Bound:
        """``||w - w'||_2 <= l2`` and ``w <= w_max``: V is at most ``sqrt(n) l2 + 2 w_max``."""
        return cls(public_number("w_max", w_max, at_least=1), public_number("l2", l2, at_least=0))

    @classmethod
    def from_gradient(cls, gradient: float, w_max: float) -> Bound:
        """``||grad F(w) - grad F'(w)||_2 <= gradient`` at every weight vector, and ``w <= w_max``."""
        size = public_number("gradient", gradient, at_least=0)
        return cls(public_number("w_max", w_max, at_least=1), gradient=size)


class _Stated:
    """``bound`` of a class is a decorator that states one; of a program it is its bound."""

    def __get__(self, program: WeightsProgram | None, owner: type[WeightsProgram]) -> Any:
        if program is not None:
            return program.bound_at

        def state(function: Function) -> Function:
            owner.stated_bound = staticmethod(function)
            owner.kind = Kind.QUADRATIC
            owner.theorem = "a bound that its author states"
            return function

        return state


@dataclasses.dataclass(frozen=True)
class WeightsProgram(DeclaredProgram, DirectFirstStage):
    """Weights that are themselves the variable of a declared convex problem."""

    theorem = "none: universal corollary"
    defaults = MappingProxyType({})
    stated_bound: ClassVar[Function | None] = None
    bound = _Stated()

    def resolve(self, domain: Domain) -> Self:
        return self.resolved_numbers(domain)

    def mapped_data(self) -> tuple[str, ...] | None:
        if type(self).stated_bound is not None:
            return None
        w = cp.Variable(5, name="w")
        records = DeclaredRecords(STANDARD, 5, 3)
        called(type(self).function, w, records, **dict(self.resolved_numbers(STANDARD).own_settings()))
        return records.own

    def refuse_misread(self) -> None:
        self.curvature_of(STANDARD, 6)

    def bound_at(self, universe: Universe) -> StabilityBound:
        """V by the author's bound, or 2n."""
        function, n = type(self).stated_bound, universe.n_samples
        if function is None:
            return DirectFirstStage.bound(self, universe)
        known = {"n": n, "M": universe.domain.covariate_bound, "outcome_bound": universe.domain.outcome_bound}
        known |= {name: getattr(self, name) for name in self.stated}
        wanted = inspect.signature(function).parameters
        if unknown := [name for name in wanted if name not in known]:
            raise DeclarationError(
                f"{self.name}: its bound asks for {unknown[0]!r}: it may ask for {', '.join(known)}"
            )
        stated = called(function, **{name: known[name] for name in wanted})
        if not isinstance(stated, Bound):
            raise DeclarationError(
                f"{self.name}: its bound returns Bound.from_l2(...) or Bound.from_gradient(...)"
            )
        l2 = stated.l2
        if l2 is None:
            l2 = float(stated.gradient or 0.0) / self.curvature_of(universe.domain, n)
        return stability.stated_movement(n, l2, stated.largest)

    def data(self, records: Records) -> dict[str, Value]:
        problem = self._problem(records.domain, records.n_samples, records.X.shape[1])[1]
        return {leaf.name(): leaf.of(records) for leaf in problem.parameters()}

    def declare(self, leaf: Leaves) -> Declaration:
        n = leaf("ones").shape[0]
        w, records = cp.Variable(n, name="weights", nonneg=True), DeclaredRecords(STANDARD, n, 0, leaf=leaf)
        problem = called(type(self).function, w, records, **dict(self.own_settings()))
        named = {f"constraint_{k}": constraint for k, constraint in enumerate(problem.constraints)}
        return Declaration(
            problem.objective.args[0], {"weights": w}, {"total": leaf("ones") @ w == n} | named
        )

    def objective(self, leaf: Leaves, weights: cp.Variable) -> Any:
        raise ProgramError(f"{self.name} is declared as a whole")

    def strong_convexity(self, records: Records) -> float:
        return self.curvature_of(records.domain, records.n_samples)

    def curvature_of(self, domain: Domain, n: int) -> float:
        """Strong convexity in the weights, of squares of the weights themselves; the rest adds none."""
        w, problem = self._problem(domain, n, 3)
        return weights_curvature(problem, w)

    def declared_formula(self) -> str:
        """The program in one line."""
        _, problem = self._problem(STANDARD, 5, 3)
        sets = "".join(f", {printed(constraint)}" for constraint in problem.constraints)
        return f"w = argmin {printed(problem.objective.args[0])}, sum(w) == n, w >= 0{sets}"

    def _problem(self, domain: Domain, n: int, p: int) -> tuple[Any, Any]:
        w, records = cp.Variable(n, name="w"), DeclaredRecords(domain, n, p)
        return w, called(type(self).function, w, records, **dict(self.own_settings()))
