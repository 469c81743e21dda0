"""Atoms of this library as atoms of CVXPY, in a file of its own: importing CVXPY takes long."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.elementwise.elementwise import Elementwise
from cvxpy.constraints.exponential import ExpCone
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS

from dp2erm_cvx.curves.atoms import Atom, atom


class _OwnAtom(Elementwise):  # type: ignore[misc]
    """A convex CVXPY atom of one of the atoms above."""

    atom: Atom

    def numeric(self, values: Any) -> Any:
        return self.atom.value(np.asarray(values[0], dtype=np.float64))

    def sign_from_args(self) -> tuple[bool, bool]:
        return True, False

    def is_atom_convex(self) -> bool:
        return True

    def is_atom_concave(self) -> bool:
        return False

    def _grad(self, values: Any) -> list[Any]:
        slopes = self.atom.slope(np.asarray(values[0], dtype=np.float64))
        return [Elementwise.elemwise_grad_to_diag(slopes, self.args[0].size, self.size)]


class Probit(_OwnAtom):
    """The CVXPY atom of ``probit``, for which no solver of CVXPY has a cone."""

    atom = atom("probit")

    def is_incr(self, index: int) -> bool:
        return True

    def is_decr(self, index: int) -> bool:
        return False


class BoundedInfluence(_OwnAtom):
    """The CVXPY atom of ``saturating``."""

    def __init__(self, u: Any, slope: float) -> None:
        self.atom = atom("saturating", slope)
        super().__init__(u)

    def get_data(self) -> list[float]:
        return [self.atom.number]

    def is_incr(self, index: int) -> bool:
        return bool(self.args[index].is_nonneg())

    def is_decr(self, index: int) -> bool:
        return bool(self.args[index].is_nonpos())


def _canonical(e: Any, args: Any, **context: Any) -> tuple[Any, list[Any]]:
    # S^2 min (v + exp(-v) - 1) over v >= |u| / S, where it increases with v
    S = e.atom.number
    shape = e.shape
    v = cp.Variable(shape)
    falls = cp.Variable(shape)
    cone = ExpCone(-v, cp.Constant(np.ones(shape)), falls)
    return S**2 * (v + falls - 1), [cone, args[0] <= S * v, -args[0] <= S * v]


def _no_cone(e: Any, args: Any, **context: Any) -> tuple[Any, list[Any]]:
    raise cp.error.SolverError(
        "no cone of CVXPY has log Phi, the loss of a probit: use the solver newton"
    )


CANON_METHODS[BoundedInfluence] = _canonical
CANON_METHODS[Probit] = _no_cone
