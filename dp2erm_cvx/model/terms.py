"""Terms of a read objective at data: derivatives, curvatures and bounds of their rounding (Lemma B)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.model.tree import Affine, AtomTerm, Sums, walked

#: Covers about 1e6 roundings of sums of numbers that are not negative.
UP = 1.0 + 1e-9
#: Entries of the dense matrix of a term that couples weights.
LARGEST = 2e7


def gamma(k: float) -> float:
    """``k u / (1 - k u)`` for k operations, u the unit roundoff (Higham, section 3.1)."""
    return k * UNIT / (1.0 - k * UNIT)


class Loaded:
    """A term that can be loaded with data: its matrix and majorant, its offset, and its coefficients.

    A *separable* term has one weight for each row: ``A`` (..., rows) then multiplies ``w[..., col]``; that of
    any other is dense (..., rows, n).
    """

    A: Array
    M: Array
    b: Array
    c: Array
    s: Array
    major_s: Array
    #: The point of the set of a kink that its smoothing stays near to.
    dual: Array | float = 0.0

    def __init__(self, term: AtomTerm, n: int, outer: Affine) -> None:
        self.term, self.n, inner = term, n, term.inner
        self.atom = atom(term.atom, term.power) if term.atom else None
        entries, cells = inner.col >= 0, inner.row * n + inner.col
        single = np.unique(cells[entries])
        r, col = np.divmod(single, n)
        self.longest, self.tallest = (int(np.max(np.bincount(i, minlength=1))) for i in (r, col))
        self.separable = term.elementwise and len(r) == len(np.unique(r)) == len(np.unique(col))
        if self.separable:
            self.rows, self.col = r, col
            self.shape: tuple[int, ...] = (len(r),)
            self.matrix = Sums(inner, entries, np.searchsorted(single, cells), len(r))
        else:
            if inner.size * n > LARGEST:
                raise ProgramError(f"{term.kind} of {inner.size} rows that couple {n} weights is too large")
            self.rows, self.shape = np.arange(inner.size), (inner.size, n)
            self.matrix = Sums(inner, entries, cells, inner.size * n)
        self.offset = Sums(inner, ~entries, inner.row, inner.size)
        mine = (outer.col >= term.start) & (outer.col < term.start + term.outputs)
        self.factor = Sums(outer, mine, outer.col - term.start, term.outputs)
        self.count, self.count_s = inner.count + self.matrix.most + 1, outer.count + self.factor.most + 1

    def at(self, center: Array, bound: Array) -> Loaded:
        """The term at data and at bounds of its absolute values, (..., 1 + D) with any leading axes."""
        new = copy(self)
        new.A, new.M = (X.reshape(*X.shape[:-1], *self.shape) for X in self.matrix.both(center, bound))
        new.b, new.c = (X[..., self.rows] for X in self.offset.both(center, bound))
        new.s, new.major_s = self.factor.both(center, bound)
        if self.term.outputs > 1:
            new.s, new.major_s = new.s[..., self.rows], new.major_s[..., self.rows]
        return new

    def grouped(self, first: NDArray[np.int64], kind: NDArray[np.int64], count: Array) -> Loaded:
        """As :meth:`ReadObjective.grouped`."""
        new, (k, m), size = copy(self), first.shape, np.maximum(count, 1.0)
        new.n, many = m, np.arange(k)[:, None]
        if not self.separable:
            inside = (kind[:, :, None] == np.arange(m)) / size[:, None, :]
            new.A = self.A @ inside
            return new
        row = np.full(self.n + 1, -1)
        row[self.col] = np.arange(len(self.col))
        at = row[first]
        A, b, s = (np.broadcast_to(X, (k, len(self.col)))[many, at] for X in (self.A, self.b, self.s))
        # an empty group stays at a weight of 1, where derivatives are finite
        new.A, new.b = np.where(count > 0, A / size, 0.0), np.where(count > 0, b, A + b)
        new.s = np.where(at < 0, 0.0, s * count)
        new.col = np.arange(m)
        return new

    def forward(self, X: Array, v: Array) -> Array:
        """``X v`` (..., rows) for ``X`` one of ``A``, ``M`` and v (..., n)."""
        if self.separable:
            return X * v[..., self.col]
        product: Array = (X @ v[..., None])[..., 0]
        return product

    def back(self, X: Array, h: Array) -> Array:
        """``X' h`` (..., n) for h (..., rows)."""
        if not self.separable:
            product: Array = (h[..., None, :] @ X)[..., 0, :]
            return product
        entries = X * h
        out = np.zeros((*entries.shape[:-1], self.n))
        out[..., self.col] = entries
        return out

    def argument_error(self, x: Array, moved: Array | None) -> Array:
        """Bound (..., rows) of what the computed argument is off, for every y within ``moved`` of x."""
        error = gamma(self.count + self.longest + 2) * (self.forward(self.M, np.abs(x)) + self.c) * UP
        return error if moved is None else error + self.forward(self.M, moved) * UP

    def slope(self, a: Array, e: Array, smoothing: float = 0.0) -> tuple[Array, Array]:
        """``T'(a)`` (..., rows) and a bound of its error for every exact argument within ``e`` of ``a``.

        The rounding is that of the atom, and 14 units more, of which a divisor takes two. With ``smoothing``
        > 0 a kink ``max over U of <u, a>`` is ``max <u, a> - smoothing ||u - dual||^2 / 2``: its derivative
        is a point of U, without an error but of its own rounding. ``inf`` where nothing is known.
        """
        term, own = self.term, self.atom
        if term.kink:
            return _kink_slope(term.kind, a, e, smoothing, self.dual)
        with np.errstate(all="ignore"):
            if own is not None:
                q = own.slope(a) / term.divisor
                moved = np.where(e == 0, 0.0, e * own.largest_near(a, e) / term.divisor) * UP
                return q, moved + UNIT * (own.absolute + (own.relative + 14.0) * np.abs(q))
            if term.kind == "log_det":
                return _inverse(a, e)
            P = np.abs(term.matrix)
            q = a @ (term.matrix + term.matrix.T)
            return q, (e + gamma(a.shape[-1] + 5) * np.abs(a)) @ (P + P.T) * UP

    def curvature(self, low: Array, high: Array, smoothing: float = 0.0) -> tuple[Array, Array]:
        """Least and largest ``|T''|`` between two (..., rows): by component, or of the spectrum.

        Of a smoothed absolute value at a point where ``smoothing`` > 0.
        """
        if self.term.kink and smoothing > 0:
            bend = (np.abs(self.dual + low / smoothing) < 1.0) / smoothing
            return bend, bend
        term, one = self.term, np.ones_like(low)
        if self.atom is not None:
            with np.errstate(all="ignore"):
                least, largest = self.atom.curvatures(low, high)
                return least / term.divisor, largest / term.divisor
        largest = np.inf * one
        if term.kind == "QuadForm":
            largest = 2.0 * float(np.linalg.norm(term.matrix)) * UP * one
        elif term.kind == "log_det" and term.floor is not None:
            largest = one / term.floor**2
        return 0.0 * one, largest

    def excess(self, a: Array, e: Array, u: Array) -> Array:
        """``max <., a> - <u, a>`` over the set of a kink, rounded up, for every exact argument within ``e``.

        By component for ``abs``, else one number (..., 1).
        """
        kind, size = self.term.kind, gamma(a.shape[-1] + 12)
        if kind == "abs":
            return np.maximum(np.abs(a) - u * a, 0.0) + 2.0 * e + 2.0 * size * np.abs(a)
        if kind == "norm1":
            parts = np.abs(a) - u * a + 2.0 * e + 2.0 * size * np.abs(a)
            return np.asarray(np.sum(np.maximum(parts, 0.0), axis=-1, keepdims=True))
        if kind == "max":
            top, off, far = np.max(a, axis=-1), np.max(e, axis=-1), np.max(np.abs(a), axis=-1)
        else:
            top, off = np.linalg.norm(a, axis=-1), np.linalg.norm(e, axis=-1)
            far = top
        lost = np.maximum(top - np.sum(u * a, axis=-1), 0.0) + 2.0 * off + 2.0 * size * far
        return np.asarray(lost)[..., None]

    def value(self, a: Array) -> Array:
        """``T(a)``: by component (..., rows) where the coefficients are, else spread over the components."""
        term, k = self.term, self.term.kind
        if self.atom is not None:
            with np.errstate(all="ignore"):
                return np.asarray(self.atom.value(a) / term.divisor)
        if k in ("abs", "norm1"):
            return np.abs(a)
        if k == "QuadForm":
            return np.asarray(a * (a @ term.matrix))
        if k == "log_det":
            p = math.isqrt(a.shape[-1])
            whole = np.linalg.slogdet(a.reshape(*a.shape[:-1], p, p))[1]
        else:
            whole = np.max(a, axis=-1) if k == "max" else np.linalg.norm(a, axis=-1)
        return np.asarray(whole)[..., None]

    def half_hessian(self, a: Array, smoothing: float) -> Array:
        """B (..., r, n) with B'B the Hessian of a term that couples weights, at its argument ``a``."""
        k, t, A = self.term.kind, self.term, self.A
        scale = np.sqrt(np.max(np.abs(self.s), axis=-1))[..., None, None]
        root: Array
        if k == "log_det":
            p = math.isqrt(a.shape[-1])
            C = np.swapaxes(np.linalg.cholesky(np.linalg.inv(a.reshape(*a.shape[:-1], p, p))), -1, -2)
            both = C[..., :, None, :, None] * C[..., None, :, None, :]
            return np.asarray(scale * (both.reshape(*a.shape[:-1], p * p, p * p) @ A))
        if k == "Pnorm":
            v = self.dual + a / smoothing
            size = np.maximum(np.linalg.norm(v, axis=-1), 1.0)[..., None, None]
            along = np.where(size > 1.0, v[..., :, None] * (v[..., None, :] @ A) / size**2, 0.0)
            return np.asarray(scale * (A - along) / np.sqrt(size * smoothing))
        if k == "max":
            on = (_projected(k, self.dual + a / smoothing) > 0)[..., :, None]
            mean = np.sum(A * on, axis=-2, keepdims=True) / np.sum(on, axis=-2, keepdims=True)
            return np.asarray(scale * np.where(on, A - mean, 0.0) / math.sqrt(smoothing))
        if k == "QuadForm":
            size, vectors = np.linalg.eigh(t.matrix + t.matrix.T)
            root = scale * (np.sqrt(np.maximum(size, 0.0))[:, None] * vectors.T @ A)
            return root
        bend = np.sqrt(np.abs(self.s) * self.curvature(a, a, smoothing)[0])
        root = bend[..., :, None] * A
        return root

    def range(self, floor: float, cap: float) -> tuple[Array, Array, Array]:
        """Least, largest and absolute value (rows,) of the argument on the set, for all data in bounds."""
        least, most = self.A - (spare := self.M - np.abs(self.A)), self.A + spare
        off = self.c - np.abs(self.b)
        if self.separable:
            high = np.where(most > 0, most * cap, most * floor) + self.b + off
            low = np.where(least > 0, least * floor, least * cap) + self.b - off
            size = self.M * cap + self.c
            return low - 1e-9 * np.abs(low), high + 1e-9 * np.abs(high), size * UP
        n = self.n  # the total of nonnegative weights
        high = np.sum(np.where(most > 0, most * cap, most * floor), axis=1)
        low = np.sum(np.where(least > 0, least * floor, least * cap), axis=1)
        high = np.minimum(high, n * np.max(most, axis=1)) + self.b + off
        low = np.maximum(low, n * np.min(least, axis=1)) + self.b - off
        size = np.minimum(cap * np.sum(self.M, axis=1), n * np.max(self.M, axis=1)) + self.c
        return low - 1e-9 * size, high + 1e-9 * size, size * UP

    def public_slope(self, low: Array, high: Array, e: Array) -> tuple[Array, Array]:
        """Bounds (rows,) of ``|T'|`` and of its error where arguments are in a range, wrong by ``e``."""
        t = self.term
        far = np.maximum(np.abs(low), np.abs(high))
        if t.kink:
            return np.ones_like(e), np.full_like(e, np.inf)
        if t.kind == "QuadForm":
            P = np.abs(t.matrix)
            return far @ (P + P.T), self.slope(far, e)[1]
        if t.kind == "log_det":
            if t.floor is None:
                return np.full_like(e, np.inf), np.full_like(e, np.inf)
            # of an inversion: a residual of 64 p u cond is assumed, and checked where it is judged
            p, one = math.isqrt(len(e)), np.ones_like(e)
            error = (
                64 * p * UNIT * p * float(np.linalg.norm(far)) + 2 * float(np.linalg.norm(e))
            ) / t.floor**2
            return one / t.floor, error * one
        ends = [self.slope(end, e) for end in (low, high)]
        q, w = (np.maximum(*(np.abs(end[i]) for end in ends)) for i in (0, 1))
        return q, np.where(np.isfinite(q), w, np.inf)


class ReadObjective:
    """An objective of n weights that can be loaded with data: gradients (..., n), bounds of their error.

    ``objective`` is a convex CVXPY expression of the Variable ``weights`` (n,), whose data are the Parameters
    ``params``; ``eigenvalue_floor`` is a public lower bound of the eigenvalues of every argument of
    ``log_det``. Raises ProgramError, with the reason, for what is not read.
    """

    linear: Array
    major: Array
    constant: Array

    def __init__(
        self, objective: Any, weights: Any, params: Mapping[str, Any], eigenvalue_floor: float | None = None
    ) -> None:
        terms, outer = walked(objective, weights, params, eigenvalue_floor)
        self.n = self.total = weights.size
        self.params, n = params, weights.size
        self.terms = [Loaded(term, n, outer) for term in terms]
        self.direct = Sums(outer, (outer.col >= 0) & (outer.col < n), outer.col, n)
        self.offset = Sums(outer, outer.col < 0, outer.row, 1)
        self.count = outer.count + self.direct.most + 2
        self.kinks = any(term.term.kink for term in self.terms)

    def vector(self, data: Mapping[str, Any]) -> Array:
        """The number 1 and the data, by columns, in one vector (1 + D,)."""
        parts = [np.ravel(np.asarray(data[name], dtype=np.float64), order="F") for name in self.params]
        return np.concatenate([np.ones(1), *parts])

    def bound_vector(self, bounds: Mapping[str, Any]) -> Array:
        """Public bounds of the absolute value of every number, as :meth:`vector` orders them.

        Raises ProgramError where a parameter has none.
        """
        if missing := [name for name in self.params if name not in bounds]:
            raise ProgramError(f"state a public bound of the entries of {missing[0]!r} in data_bounds")
        whole = {k: np.broadcast_to(np.asarray(bounds[k], float), e.shape) for k, e in self.params.items()}
        return self.vector(whole)

    def at(self, center: Array, bound: Array | None = None) -> ReadObjective:
        """The objective at data (..., 1 + D) and at bounds of its absolute values, by default its own."""
        new, bound = copy(self), np.abs(center) if bound is None else bound
        new.terms = [term.at(center, bound) for term in self.terms]
        new.linear, new.major = self.direct.both(center, bound)
        new.constant = self.offset.at(center, self.offset.value)[..., 0]
        return new

    def grouped(self, kind: NDArray[np.int64], count: Array) -> ReadObjective:
        """The objective (k,) as one of the totals (k, m) of groups of equal weights, up to a constant.

        Weight i is in group ``kind[i]``, groups in order, and ``count`` (k, m) are their sizes, some 0. Right
        where the objective does not tell the weights of a group apart, which its user has to check.
        """
        new = copy(self)
        first = np.minimum(np.cumsum(count, axis=1) - count, self.n - 1).astype(np.int64)
        new.terms, new.n = [t.grouped(first, kind, count) for t in self.terms], count.shape[1]
        new.linear = np.take_along_axis(np.broadcast_to(self.linear, kind.shape), first, axis=1)
        return new

    def value(self, x: Array) -> Array:
        """The objective (...)."""
        total: Array = self.constant + np.sum(self.linear * x, axis=-1)
        for t in self.terms:
            total = total + np.sum(t.s * t.value(t.forward(t.A, x) + t.b), axis=-1)
        return total

    def slope(self, x: Array, smoothing: float = 0.0, separable: bool | None = None) -> Array:
        """The gradient (..., n); of the separable terms alone, or of all others with the linear part."""
        g = np.zeros_like(x) if separable else self.linear + np.zeros_like(x)
        for t in self.terms:
            # a prox of a separable term without a kink is one number at a time
            if separable is None or (t.separable and not t.term.kink) is separable:
                a = t.forward(t.A, x) + t.b
                g = g + t.back(t.A, t.s * t.slope(a, np.zeros_like(a), smoothing)[0])
        return g

    def gradient(
        self, x: Array, moved: Array | None = None, smoothing: float = 0.0
    ) -> tuple[Array, Array, Array]:
        """Gradient, a bound (..., n) of its error at every y within ``moved`` of x (Lemma B), and the excess.

        With ``smoothing`` > 0 every kink is replaced by ``<u, A w + b>`` for a point u of its set; the excess
        (...) bounds what that leaves out at y.
        """
        g = self.linear + np.zeros_like(x)
        total, error = np.abs(g), gamma(self.count) * self.major + np.zeros_like(x)
        left_out = np.zeros(x.shape[:-1])
        for t in self.terms:
            a, e = t.forward(t.A, x) + t.b, t.argument_error(x, moved)
            q, w = t.slope(a, e, smoothing)
            h = t.s * q
            off = t.major_s * (w + gamma(t.count_s + 1) * np.abs(q))
            part = t.back(t.A, h)
            error = error + t.back(t.M, off) + gamma(t.count + t.tallest + 2) * t.back(t.M, np.abs(h))
            g, total = g + part, total + np.abs(part)
            if smoothing > 0 and t.term.kink:
                left_out = left_out + np.sum(t.major_s * t.excess(a, e, q), axis=-1) * UP
        return g, (error + gamma(len(self.terms) + 2) * total) * UP, left_out

    def diagonal(self, x: Array, smoothing: float = 0.0) -> Array:
        """Diagonal (..., n) of the Hessian of the separable terms."""
        h = np.zeros_like(x)
        for t in self.terms:
            if t.separable:
                a = t.forward(t.A, x) + t.b
                h = h + t.back(t.A**2, np.abs(t.s) * t.curvature(a, a, smoothing)[0])
        return h

    def half_hessian(self, x: Array, smoothing: float = 0.0) -> Array:
        """B (..., r, n) with B'B the Hessian of the terms that couple weights."""
        coupled = [t for t in self.terms if not t.separable]
        rows = [t.half_hessian(t.forward(t.A, x) + t.b, smoothing) for t in coupled]
        return np.concatenate(rows, axis=-2) if rows else np.zeros((*x.shape[:-1], 0, self.n))

    def shifted(self, x: Array, smoothing: float) -> ReadObjective:
        """The objective with its kinks held near the points of their sets at x: a step of multipliers."""
        new = copy(self)
        new.terms = [copy(t) for t in self.terms]
        for t in new.terms:
            if t.term.kink:
                t.dual = t.slope(t.forward(t.A, x) + t.b, np.zeros(len(t.rows)), smoothing)[0]
        return new

    def first(self) -> ReadObjective:
        """The objective with kinks that :meth:`shifted` held at points (1, n), now as at the one (n,)."""
        new = copy(self)
        new.terms = [copy(t) for t in self.terms]
        for t in new.terms:
            t.dual = t.dual[0] if isinstance(t.dual, np.ndarray) else t.dual
        return new


def _inverse(a: Array, e: Array) -> tuple[Array, Array]:
    """Inverse Y of S, judged after the fact: ``||Y S - I|| < 1`` bounds its error, whoever computed it."""
    p = math.isqrt(a.shape[-1])
    S = np.swapaxes(a.reshape(*a.shape[:-1], p, p), -1, -2)
    try:
        Y = np.linalg.inv(S)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan), np.full_like(a, np.inf)
    size = np.linalg.norm(Y, axis=(-2, -1)) * UP
    off = np.abs(Y) @ np.abs(S) + np.eye(p)
    rho = np.linalg.norm(Y @ S - np.eye(p), axis=(-2, -1)) + gamma(p + 2) * np.linalg.norm(off, axis=(-2, -1))
    moved, exact = np.linalg.norm(e, axis=-1), size / (1.0 - rho)
    w = (size * rho / (1.0 - rho) + exact**2 * moved / (1.0 - exact * moved)) * UP
    w = np.where((rho < 1.0) & (exact * moved < 1.0), w, np.inf)
    return np.swapaxes(Y, -1, -2).reshape(a.shape), np.broadcast_to(w[..., None], a.shape)


def _kink_slope(kind: str, a: Array, e: Array, smoothing: float, dual: Array | float) -> tuple[Array, Array]:
    size = gamma(a.shape[-1] + 8)
    if smoothing > 0:
        u = _projected(kind, dual + a / smoothing)
        return u, size * np.abs(u)  # of a point of the set, which is u but for its own rounding
    if kind == "max":
        return np.full_like(a, np.nan), np.full_like(a, np.inf)
    if kind in ("abs", "norm1"):
        return np.sign(a), np.where(np.abs(a) > e, 0.0, np.inf)
    r, t = np.linalg.norm(a, axis=-1, keepdims=True), np.linalg.norm(e, axis=-1, keepdims=True)
    u = a / (r + 1e-300)
    room = np.where(r > t, r - t, 1.0)
    return u, np.where(r > t, 2.0 * t / room * UP + size * np.abs(u), np.inf)


def _projected(kind: str, v: Array) -> Array:
    """Projection of v (..., rows) into the set of a kink: a box, a simplex or the unit ball."""
    if kind in ("abs", "norm1"):
        return np.clip(v, -1.0, 1.0)
    if kind == "max":
        down = -np.sort(-v, axis=-1)
        number = np.arange(1, v.shape[-1] + 1)
        tau = np.max((np.cumsum(down, axis=-1) - 1.0) / number, axis=-1, keepdims=True)
        u = np.maximum(v - tau, 0.0)
        return np.asarray(u / np.sum(u, axis=-1, keepdims=True))
    return np.asarray(v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1.0))
