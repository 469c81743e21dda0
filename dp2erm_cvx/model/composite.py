"""A smooth function plus a prox-friendly term: what every solve is judged against."""

from __future__ import annotations

import abc
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.sets import Projectable, WholeSpace
from dp2erm_cvx.model.sums import UNIT

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Penalty:
    """``h(v) = sum_k l1_k |v_k| + indicator(v in set)``, the non-smooth part of a program.

    ``l1`` is one price for all coordinates, or one for each (d,).
    """

    set: Projectable = WholeSpace()
    l1: float | Array = 0.0

    @property
    def is_zero(self) -> bool:
        """Whether there is neither a set nor a price."""
        return self.set == WholeSpace() and not self.priced and self.l1 == 0.0

    @property
    def priced(self) -> bool:
        """Whether every coordinate has a price of its own."""
        return isinstance(self.l1, np.ndarray)

    def value(self, v: Array) -> float:
        """The priced sizes of the coordinates at a point of the set."""
        if isinstance(self.l1, np.ndarray):
            return float(self.l1 @ np.abs(v))
        return self.l1 * float(np.sum(np.abs(v)))

    def prox(self, v: Array, step: float) -> Array:
        """argmin_u h(u) + ||u - v||^2 / (2 step).

        Soft threshold, then projection: exact for the sets of this package because the l1 norm is
        positively homogeneous (balls) or separable (box).
        """
        return self.set.project(self._shrink(v, step))

    def jacobian(self, v: Array, step: float) -> Array:
        """A symmetric element of the generalized Jacobian of :meth:`prox`."""
        outer = self.set.jacobian(self._shrink(v, step))
        if not self.priced and self.l1 == 0.0:
            return outer
        kept = (np.abs(v) > step * self.l1).astype(np.float64)
        return outer * kept[None, :] * kept[:, None]

    def _shrink(self, v: Array, step: float) -> Array:
        if not self.priced and self.l1 == 0.0:
            return v
        return np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0)


@dataclass(frozen=True)
class LocalError:
    """The error of a point as ``e + s``: ``e'He <= energy^2`` for a Hessian H, and ``||s|| <= step``.

    Sharper than a bound on the norm where the output hardly depends on the flat directions of H.
    ``inverse_root`` (d, d) is ``H^(-1/2)``, not smaller than the exact one.
    """

    inverse_root: Array
    energy: float
    step: float

    def largest(self, rows: Array) -> float:
        """Bound on the largest ``|<row, error>|`` over rows (n, d)."""
        steep = np.linalg.norm(rows @ self.inverse_root, axis=1)
        lengths = np.linalg.norm(rows, axis=1)
        return float(np.max(steep * self.energy + lengths * self.step, initial=0.0)) * (1 + 1e-9)


class Composite(abc.ABC):
    """minimize f(v) + h(v) over R^d, d the ``dimension``, f smooth and convex, h the ``penalty``.

    ``ridge`` is the declared m with ``f - m/2 ||.||^2`` convex, ``smoothness`` an upper bound on the
    Lipschitz constant of the gradient of f, ``self_concordance`` c with ``|D^3 f[u, u, v]| <= c ||v|| D^2
    f[u, u]`` (0 for a quadratic, ``inf`` where the Hessian jumps).
    """

    dimension: int
    ridge: float
    smoothness: float
    self_concordance: float
    penalty: Penalty = Penalty()

    def look(self, v: Array) -> None:
        """Hint that value, gradient and Hessian at ``v`` will be asked for: one pass may find all of them."""
        return

    @abc.abstractmethod
    def value(self, v: Array) -> float:
        """f(v)."""

    @abc.abstractmethod
    def gradient(self, v: Array) -> Array:
        """Gradient of f, (d,), summed in blocks."""

    @abc.abstractmethod
    def hessian(self, v: Array) -> Array:
        """Hessian of f, (d, d)."""

    def newton_direction(self, trial: Array, move: Array, step: float) -> Array | None:
        """Newton's direction (d,) on ``v - prox(v - step grad f(v))``, or None to let the solver form it.

        ``trial = v - step grad f(v)``, ``move = prox(trial) - v``. For a Hessian that is better not formed.
        """
        return None

    def spectrum(self, v: Array) -> tuple[float, float]:
        """Lower and upper bound on the eigenvalues of the Hessian at ``v``."""
        eigenvalues = np.linalg.eigvalsh(self.hessian(v))
        error = 64 * self.dimension * UNIT * float(eigenvalues[-1]) + self.hessian_rounding(v)
        return float(eigenvalues[0]) - error, float(eigenvalues[-1]) + error

    def lowest_within(self, v: Array, distance: float) -> float:
        """Lower bound on the eigenvalues of every Hessian within ``distance`` of ``v``; here the ridge."""
        return self.ridge

    def hessian_rounding(self, v: Array) -> float:
        """Bound on the spectral norm of the floating-point error of :meth:`hessian` at ``v``.

        Here a few units of its trace, which suits a Hessian that is not a sum over records.
        """
        return 64 * UNIT * float(np.trace(self.hessian(v)))

    @abc.abstractmethod
    def rounding(self, v: Array) -> float:
        """Bound on the 2-norm of the floating-point error of ``gradient`` at ``v``."""

    def rounding_by_coordinate(self, v: Array) -> Array:
        """The same bound for every coordinate (d,), where it is known apart."""
        return np.full(self.dimension, self.rounding(v))

    def start(self) -> Array:
        """Where a solver begins: the origin."""
        return np.zeros(self.dimension)

    def output(self, v: Array) -> Array:
        """What the program is solved for: weights (n,) in a first stage, theta in a second."""
        return v

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        """Bound on the distance of ``output(v)`` to the exact output, given that of ``v``."""
        return radius

    def output_scale(self, v: Array) -> float:
        """What a relative radius divides by: the norm of the output."""
        norm = float(np.linalg.norm(v))
        return norm if norm > 0 else 1.0


class Recent(Generic[T]):
    """What is known about the last ``most`` points v (d,), by their bits: a pass is made once for each."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._known: OrderedDict[bytes, T] = OrderedDict()

    def find(self, v: Array, make: Callable[[], T], enough: Callable[[T], bool] = lambda _: True) -> T:
        """What is known about v; made anew if that is not enough."""
        key = v.tobytes()
        found = self._known.get(key)
        if found is None or not enough(found):
            self._known[key] = found = make()
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return found
