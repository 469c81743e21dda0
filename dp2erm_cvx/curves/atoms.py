"""Atoms: functions of one number, and the few facts that losses and objectives need of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import entr, erfcx, log_ndtr

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.checks import public_size
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import ModuleOnDemand
from dp2erm_cvx.on_demand import cvxpy as cp

#: The same functions as atoms of CVXPY, which imports it.
_cvxpy_atoms = ModuleOnDemand("dp2erm_cvx.curves.cvxpy_atoms")
_Map = Callable[[Array], Array]


@dataclass(frozen=True, eq=False, repr=False)
class Atom:
    """A convex or concave function phi of one number u, elementwise; :func:`atom` makes it.

    Parameters
    ----------
    kind, number
        What :func:`atom` makes it from.
    value, slope, curvature
        The value phi(u), the monotone phi'(u), and ``|phi''(u)|``.
    declared
        The function of a CVXPY expression.
    ends
        Limits of the slope far to the left and far to the right.
    bend
        A number c with ``|phi'''| <= c phi''`` between kinks; ``inf`` where it grows with
        ``|u|``.
    bend_at_zero
        Where it grows, c with ``|phi'''| <= (c + |u|) phi''``.
    kinks
        Arguments at which the curvature jumps.
    absolute, relative
        A computed slope is off by ``absolute + relative |slope|`` units of roundoff.
    flat
        A computed curvature is off by ``flat + 8 phi''`` units of roundoff.
    cells
        Least and largest curvature on cells; by default those of an even one that does not rise
        with ``|u|``.
    near
        Bound on the curvature within a distance; by default that of the cell.
    together
        Value, slope and curvature, where they share exponentials.
    """

    kind: str
    number: float
    value: _Map
    slope: _Map
    curvature: _Map
    declared: Callable[[Any], Any]
    ends: tuple[float, float]
    bend: float = 0.0
    bend_at_zero: float = math.inf
    kinks: tuple[float, ...] = ()
    absolute: float = 0.0
    relative: float = 0.0
    flat: float = 0.0
    cells: Callable[[Array, Array], tuple[Array, Array]] | None = None
    near: Callable[[Array, Array], Array] | None = None
    together: Callable[[Array], tuple[Array, Array, Array]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return atom, (self.kind, self.number)

    def __repr__(self) -> str:
        return f"atom({self.kind!r}, {self.number!r})"

    @property
    def concordance(self) -> float:
        """Ratio c with ``|phi'''| <= c phi''``; ``inf`` where the curvature jumps."""
        return math.inf if self.kinks else self.bend

    def bend_within(self, reach: float) -> float:
        """A number c with ``|phi'''| <= c phi''`` between kinks over ``|u| <= reach``."""
        return min(self.bend, self.bend_at_zero + reach)

    def curvatures(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Least and largest curvature over every cell ``[low, high]``."""
        if self.cells is not None:
            return self.cells(low, high)
        near, far = _sizes(low, high)
        return self.curvature(far), self.curvature(near)

    def largest_near(self, u: Array, distance: Array) -> Array:
        """Bound on the curvature within ``distance`` of u."""
        if self.near is not None:
            return self.near(u, distance)
        if self.cells is not None:
            return self.cells(u - distance, u + distance)[1]
        return self.curvature(np.maximum(np.abs(u) - distance, 0.0))

    def at(self, u: Array) -> tuple[Array, Array, Array]:
        """Value, slope and curvature."""
        if self.together is not None:
            return self.together(u)
        return self.value(u), self.slope(u), self.curvature(u)


def atom(kind: str, number: float = 1.0) -> Atom:
    """The atom of a kind; there is one object for each kind and number.

    Parameters
    ----------
    kind
        ``line`` (u), ``square`` (u^2), ``exp``, ``logistic`` (``log(1 + exp(u))``), ``hinge``
        (``max(u, 0)^2``), ``probit`` (``-log Phi(-u)``); ``huber`` (Huber 1964), which is u^2 up to
        k and ``2 k |u| - k^2`` beyond; ``saturating``, ``k |u| + k^2 (exp(-|u|/k) - 1)``: no loss
        of the same largest slope k needs less of a ridge (Theorem 15). Of weights, which are no
        margins, also ``log``, ``entr`` (-u log u) and ``power`` (u^k).
    number
        The k of those that have one.

    Returns
    -------
    Atom

    Raises
    ------
    DeclarationError
        For another kind, and for a k that is no positive size.
    """
    if kind not in _ATOMS:
        raise DeclarationError(f"atom {kind!r}: must be one of {', '.join(_ATOMS)}")
    if kind != "power":
        number = public_size("full_slope" if kind == "saturating" else "threshold", number)
    return _made(kind, number)


@cache
def _made(kind: str, number: float) -> Atom:
    return _ATOMS[kind](number)


def _line(k: float) -> Atom:
    def value(u: Array) -> Array:
        return u

    def declared(u: Any) -> Any:
        return u

    return Atom("line", k, value, np.ones_like, np.zeros_like, declared, ends=(1.0, 1.0))


def _square(k: float) -> Atom:
    def value(u: Array) -> Array:
        return u * u

    def slope(u: Array) -> Array:
        return 2.0 * u

    def curvature(u: Array) -> Array:
        return np.full_like(u, 2.0)

    return Atom("square", k, value, slope, curvature, _of_cvxpy("square"), (-math.inf, math.inf))


def _exponential(k: float) -> Atom:
    def grown(u: Array) -> Array:
        with np.errstate(over="ignore"):
            values: Array = np.exp(u)
        return values

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        return grown(low), grown(high)

    def near(u: Array, distance: Array) -> Array:
        return grown(u + distance)

    def together(u: Array) -> tuple[Array, Array, Array]:
        values = grown(u)
        return values, values, values

    return Atom(
        kind="exp",
        number=k,
        value=grown,
        slope=grown,
        curvature=grown,
        declared=_of_cvxpy("exp"),
        ends=(0.0, math.inf),
        bend=1.0,
        relative=4.0,
        cells=cells,
        near=near,
        together=together,
    )


def _logistic(k: float) -> Atom:
    def value(u: Array) -> Array:
        return np.log1p(np.exp(-np.abs(u))) + np.maximum(u, 0.0)

    def slope(u: Array) -> Array:
        # scipy's expit costs several times as much per element
        half: Array = 0.5 * np.tanh(0.5 * u)
        return 0.5 + half

    def curvature(u: Array) -> Array:
        # not of the slope through tanh: far out the error would be as large as the curvature
        tilt = np.exp(-np.abs(u))
        bent: Array = tilt / (1 + tilt) ** 2
        return bent

    def near(u: Array, distance: Array) -> Array:
        return np.broadcast_to(0.25, np.shape(u))

    def together(u: Array) -> tuple[Array, Array, Array]:
        tilt = np.exp(-np.abs(u))
        # the probability of the less likely sign
        rare = tilt / (1 + tilt)
        values = np.log1p(tilt) + np.maximum(u, 0.0)
        return values, np.where(u < 0, rare, 1 - rare), rare * (1 - rare)

    return Atom(
        kind="logistic",
        number=k,
        value=value,
        slope=slope,
        curvature=curvature,
        declared=_of_cvxpy("logistic"),
        ends=(0.0, 1.0),
        bend=1.0,
        absolute=2.0,  # through tanh the error of a slope is absolute
        flat=8.0,
        near=near,
        together=together,
    )


def _huber(k: float) -> Atom:
    def value(u: Array) -> Array:
        inner = np.clip(u, -k, k)
        return inner * (2 * u - inner)

    def slope(u: Array) -> Array:
        return 2 * np.clip(u, -k, k)

    def curvature(u: Array) -> Array:
        return _two(np.abs(u) <= k)

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        return _two((low > -k) & (high < k)), _two((low <= k) & (high >= -k))

    def declared(u: Any) -> Any:
        return cp.huber(u, k)

    return Atom(
        kind="huber",
        number=k,
        value=value,
        slope=slope,
        curvature=curvature,
        declared=declared,
        ends=(-2 * k, 2 * k),
        kinks=(-k, k),
        cells=cells,
    )


def _hinge(k: float) -> Atom:
    def value(u: Array) -> Array:
        return np.square(np.maximum(u, 0.0))

    def slope(u: Array) -> Array:
        return 2.0 * np.maximum(u, 0.0)

    def curvature(u: Array) -> Array:
        return _two(u > 0)

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        return _two(low > 0), _two(high >= 0)

    def declared(u: Any) -> Any:
        return cp.square(cp.pos(u))

    return Atom(
        kind="hinge",
        number=k,
        value=value,
        slope=slope,
        curvature=curvature,
        declared=declared,
        ends=(0.0, math.inf),
        kinks=(0.0,),
        cells=cells,
    )


def _saturating(S: float) -> Atom:
    def together(u: Array) -> tuple[Array, Array, Array]:
        t = np.abs(u) / S
        fallen = np.expm1(-t)
        return S * (S * (t + fallen)), np.copysign(S * -fallen, u), 1.0 + fallen

    def value(u: Array) -> Array:
        return together(u)[0]

    def slope(u: Array) -> Array:
        return together(u)[1]

    def curvature(u: Array) -> Array:
        return np.exp(-np.abs(u) / S)

    def declared(u: Any) -> Any:
        return bounded_influence(u, S)

    return Atom(
        kind="saturating",
        number=S,
        value=value,
        slope=slope,
        curvature=curvature,
        declared=declared,
        ends=(-S, S),
        bend=1.0 / S,
        # expm1 to within 4 units in the last place, and what the quotient and the product round
        relative=10.0,
        flat=16.0,
        together=together,
    )


def _probit(k: float) -> Atom:
    """``-log Phi(-u)``, whose slope is the hazard ``m = density(u) / Phi(-u)``.

    Its curvature is ``m (m - u)``. m and the curvature rise, the latter from 0 to 1 (Sampford
    1953). ``phi''' = m ((m - u) (2 m - u) - 1)``, so that
    ``phi''' / phi'' = 2 m - u - 1 / (m - u)``. For u <= 0 it is at most ``2 m(0) + |u|``; for
    u > 0, where ``m (m - u) < 1``, at most ``m - u <= m(0)``, and m(0) is below 0.8.
    """

    def value(u: Array) -> Array:
        return -log_ndtr(-u)

    def hazard(u: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore"):
            values: Array = math.sqrt(2.0 / math.pi) / erfcx(u / math.sqrt(2.0))
        return values

    def curvature(u: Array) -> Array:
        near = np.clip(u, -1e8, 1e8)
        m = hazard(near)
        return np.clip(m * (m - near), 0.0, 1.0)

    def off(u: Array) -> Array:
        """What a computed curvature is off by: both factors are sums of m and u."""
        return 32 * UNIT * (1.0 + np.minimum(np.abs(u), 1e8)) ** 2

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        least = curvature(low) - off(low)
        largest = curvature(high) + off(high)
        return np.clip(least, 0.0, 1.0), np.clip(largest, 0.0, 1.0)

    return Atom(
        kind="probit",
        number=k,
        value=value,
        slope=hazard,
        curvature=curvature,
        declared=probit,
        ends=(0.0, math.inf),
        bend=math.inf,
        bend_at_zero=1.6,
        # of erfcx and its argument, which counts u^2 times where the slope is exp(-u^2 / 2)
        absolute=8.0,
        relative=16.0,
        cells=cells,
    )


def _log(k: float) -> Atom:
    def slope(u: Array) -> Array:
        return 1.0 / u

    def curvature(u: Array) -> Array:
        return 1.0 / u**2

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        return 1.0 / high**2, np.where(low > 0, 1.0 / low**2, np.inf)

    return Atom(
        kind="log",
        number=k,
        value=np.log,
        slope=slope,
        curvature=curvature,
        declared=_of_cvxpy("log"),
        ends=(math.inf, 0.0),
        relative=2.0,
        cells=cells,
    )


def _entropy(k: float) -> Atom:
    def slope(u: Array) -> Array:
        return -np.log(u) - 1.0

    def curvature(u: Array) -> Array:
        return 1.0 / u

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        return 1.0 / high, np.where(low > 0, 1.0 / low, np.inf)

    return Atom(
        kind="entr",
        number=k,
        value=entr,
        slope=slope,
        curvature=curvature,
        declared=_of_cvxpy("entr"),
        ends=(math.inf, -math.inf),
        # of the logarithm, at most 8 (|log u| + 1), where the slope may be 0
        absolute=16.0,
        relative=8.0,
        cells=cells,
    )


def _power(p: float) -> Atom:
    bend = abs(p * (p - 1.0))

    def value(u: Array) -> Array:
        return np.asarray(u**p)

    def slope(u: Array) -> Array:
        return np.asarray(p * u ** (p - 1.0))

    def curvature(u: Array) -> Array:
        if p in (1.0, 2.0):
            return np.full_like(u, bend)
        return bend * np.abs(u) ** (p - 2.0)

    def cells(low: Array, high: Array) -> tuple[Array, Array]:
        if p % 2.0:
            # defined for arguments of one sign
            low = np.maximum(low, 0.0)
            high = np.maximum(high, 0.0)
        near, far = _sizes(low, high)
        at_near = curvature(near)
        at_far = curvature(far)
        finite = (low > 0) | (p >= 1.0)
        return np.minimum(at_near, at_far), np.where(finite, np.maximum(at_near, at_far), np.inf)

    def declared(u: Any) -> Any:
        return cp.power(u, p)

    return Atom(
        kind="power",
        number=p,
        value=value,
        slope=slope,
        curvature=curvature,
        declared=declared,
        ends=(-math.inf, math.inf),
        relative=8.0,
        cells=cells,
    )


def _of_cvxpy(name: str) -> Callable[[Any], Any]:
    """The function of CVXPY of this name, which is imported when it is called."""

    def declared(u: Any) -> Any:
        return getattr(cp, name)(u)

    return declared


def _sizes(low: Array, high: Array) -> tuple[Array, Array]:
    """Least and largest ``|u|`` on cells."""
    near = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    return near, np.maximum(np.abs(low), np.abs(high))


def _two(inside: Any) -> Array:
    """The curvature 2 where a condition holds."""
    bent: Array = 2.0 * inside.astype(np.float64)
    return bent


_ATOMS: dict[str, Callable[[float], Atom]] = {
    "line": _line,
    "square": _square,
    "exp": _exponential,
    "logistic": _logistic,
    "huber": _huber,
    "hinge": _hinge,
    "saturating": _saturating,
    "probit": _probit,
    "log": _log,
    "entr": _entropy,
    "power": _power,
}


def probit(u: Any) -> Any:
    """``-log Phi(-u)``, elementwise and convex, as a CVXPY expression.

    Phi is the normal distribution. ``probit(-s)`` is the loss of a probit regression at a margin s,
    as ``cp.logistic(-s)`` is that of a logistic one, and its exponential is one over the
    probability. No cone has this function, so that solvers of CVXPY refuse it, and those of this
    library take it; ``cp.log_normcdf`` is another function, near it.
    """
    return _cvxpy_atoms.Probit(u)


def bounded_influence(u: Any, slope: float) -> Any:
    """``slope |u| + slope^2 (exp(-|u| / slope) - 1)``, as a convex CVXPY expression.

    It is elementwise, ``u^2 / 2`` near 0, and its derivative stays below ``slope`` in size (the
    atom ``saturating``).
    """
    return _cvxpy_atoms.BoundedInfluence(u, slope)
