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
from dp2erm_cvx.model.tree import GROUPS, Affine, Read, Sums, Walk

#: Covers about 1e6 roundings of sums of numbers that are not negative.
UP = 1.0 + 1e-9
#: Entries of the dense matrix of a term that couples weights.
LARGEST = 2e7


def gamma(k: float) -> float:
    """``k u / (1 - k u)`` for k operations, u the unit roundoff (Higham, section 3.1)."""
    return k * UNIT / (1.0 - k * UNIT)


class ReadTerm:
    """One term that can be loaded with data: its matrix A and majorant M, offset b, c, coefficients s.

    A *separable* term has one weight for each row: ``A`` (..., rows) multiplies ``w[..., col]``; any other
    is dense (..., rows, n). A *kink* is ``max <u, a>`` over a box, a simplex or the unit ball; with
    ``smoothing`` t > 0, ``t ||u - dual||^2 / 2`` is taken off inside.
    """

    A: Array
    M: Array
    b: Array
    c: Array
    s: Array
    major_s: Array
    #: The point of the set of a kink that its smoothing stays near to.
    dual: Array | float = 0.0

    def __init__(self, read: Read, n: int, outer: Affine) -> None:
        self.kind, inner, start, self.own = read
        self.kink, single = self.kind in ("abs", "max", "Pnorm"), self.kind not in GROUPS
        self.n, self.atom = n, None if self.kink or not single else atom(self.kind, self.own)
        entries, cells = inner.col >= 0, inner.row * n + inner.col
        places = np.unique(cells[entries])
        r, col = np.divmod(places, n)
        self.longest, self.tallest = (int(np.max(np.bincount(i, minlength=1))) for i in (r, col))
        self.separable = single and len(r) == len(np.unique(r)) == len(np.unique(col))
        if self.separable:
            self.rows, self.col = r, col
            self.shape: tuple[int, ...] = (len(r),)
            self.matrix = Sums(inner, entries, np.searchsorted(places, cells), len(r))
        else:
            if inner.size * n > LARGEST:
                raise ProgramError(f"{self.kind} of {inner.size} rows that couple {n} weights is too large")
            self.rows, self.shape = np.arange(inner.size), (inner.size, n)
            self.matrix = Sums(inner, entries, cells, inner.size * n)
        self.offset = Sums(inner, ~entries, inner.row, inner.size)
        outputs = inner.size if single else 1
        mine = (outer.col >= start) & (outer.col < start + outputs)
        self.factor = Sums(outer, mine, outer.col - start, outputs)
        self.outputs = self.rows if single else np.zeros(1, dtype=np.int64)
        self.count, self.count_s = inner.count + self.matrix.most + 1, outer.count + self.factor.most + 1
        #: Largest second derivative of a term without an atom.
        self.steepest = math.inf
        if self.kind == "QuadForm":
            self.steepest = 2.0 * float(np.linalg.norm(self.own)) * UP
        elif self.kind == "log_det" and self.own > 0:
            self.steepest = 1.0 / self.own**2

    def at(self, center: Array, bound: Array) -> ReadTerm:
        """The term at data and at bounds of its absolute values, (..., 1 + D) with any leading axes."""
        new = copy(self)
        new.A, new.M = (X.reshape(*X.shape[:-1], *self.shape) for X in self.matrix.both(center, bound))
        new.b, new.c = (X[..., self.rows] for X in self.offset.both(center, bound))
        new.s, new.major_s = (X[..., self.outputs] for X in self.factor.both(center, bound))
        return new

    def grouped(self, first: NDArray[np.int64], kind: NDArray[np.int64], count: Array) -> ReadTerm:
        """As :meth:`ReadObjective.grouped`."""
        new, (k, m), size = copy(self), first.shape, np.maximum(count, 1.0)
        new.n, many = m, np.arange(k)[:, None]
        new.longest, new.tallest = self.longest + m, self.tallest + self.n
        if not self.separable:
            inside = (kind[:, :, None] == np.arange(m)) / size[:, None, :]
            new.A, new.M = self.A @ inside, self.M @ inside
            return new
        row = np.full(self.n + 1, -1)
        row[self.col] = np.arange(len(self.col))
        at = row[first]
        own = self.A, self.M, self.b, self.c, self.s, self.major_s
        A, M, b, c, s, major_s = (np.broadcast_to(X, (k, len(self.col)))[many, at] for X in own)
        # an empty group stays at a weight of 1, where derivatives are finite
        new.A, new.b = np.where(count > 0, A / size, 0.0), np.where(count > 0, b, A + b)
        new.M, new.c = np.where(count > 0, M / size, 0.0), np.where(count > 0, c, M + c)
        new.s, new.major_s = (np.where(at < 0, 0.0, X * count) for X in (s, major_s))
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

    def argument(self, x: Array) -> Array:
        """``A x + b`` (..., rows)."""
        return self.forward(self.A, x) + self.b

    def argument_error(self, x: Array, moved: Array | None) -> Array:
        """Bound (..., rows) of what the computed argument is off, for every y within ``moved`` of x."""
        error = gamma(self.count + self.longest + 2) * (self.forward(self.M, np.abs(x)) + self.c) * UP
        return error if moved is None else error + self.forward(self.M, moved) * UP

    def slope(self, a: Array, e: Array, smoothing: float = 0.0) -> tuple[Array, Array]:
        """``T'(a)`` (..., rows) and a bound of its error for every exact argument within ``e`` of ``a``.

        That of an atom and 14 units more; of a smoothed kink only the rounding of a point of its set.
        """
        with np.errstate(all="ignore"):
            if self.atom is not None:
                q = self.atom.slope(a)
                moved = np.where(e == 0, 0.0, e * self.atom.largest_near(a, e)) * UP
                return q, moved + UNIT * (self.atom.absolute + (self.atom.relative + 14.0) * np.abs(q))
            if self.kind == "log_det":
                return _inverse(a, e)
            if self.kind == "QuadForm":
                P = np.abs(self.own)
                q = a @ (self.own + self.own.T)
                return q, (e + gamma(a.shape[-1] + 5) * np.abs(a)) @ (P + P.T) * UP
            rounded = gamma(a.shape[-1] + 8)
            if smoothing > 0:
                u = self.nearest(self.dual + a / smoothing)
                return u, rounded * np.abs(u)
            if self.kind == "max":
                return np.full_like(a, np.nan), np.full_like(a, np.inf)
            if self.kind == "abs":
                return np.sign(a), np.where(np.abs(a) > e, 0.0, np.inf)
            r, t = self.norm(a), self.norm(e)
            u = a / (r + 1e-300)
            wrong = 2.0 * t / np.where(r > t, r - t, 1.0) * UP + rounded * np.abs(u)
            return u, np.where(r > t, wrong, np.inf)

    def nearest(self, v: Array) -> Array:
        """Projection of v (..., rows) into the set of a kink."""
        if self.kind == "abs":
            return np.clip(v, -1.0, 1.0)
        if self.kind == "max":
            down = -np.sort(-v, axis=-1)
            number = np.arange(1, v.shape[-1] + 1)
            tau = np.max((np.cumsum(down, axis=-1) - 1.0) / number, axis=-1, keepdims=True)
            u = np.maximum(v - tau, 0.0)
            return np.asarray(u / np.sum(u, axis=-1, keepdims=True))
        return np.asarray(v / np.maximum(self.norm(v), 1.0))

    def norm(self, v: Array) -> Array:
        """Sizes (..., 1) of v that a kink grows by at most, (..., rows) for ``abs``."""
        if self.kind == "abs":
            return np.abs(v)
        return np.asarray(np.linalg.norm(v, np.inf if self.kind == "max" else 2, axis=-1, keepdims=True))

    def excess(self, a: Array, e: Array, u: Array) -> Array:
        """``max <., a> - <u, a>`` over the set of a kink, rounded up, for arguments within ``e``."""
        along = u * a if self.kind == "abs" else np.sum(u * a, axis=-1, keepdims=True)
        size = gamma(a.shape[-1] + 12)
        return np.maximum(self.value(a) - along, 0.0) + 2.0 * self.norm(e) + 2.0 * size * self.norm(a)

    def curvature(self, low: Array, high: Array, smoothing: float = 0.0) -> tuple[Array, Array]:
        """Least and largest ``|T''|`` between two (..., rows); of a smoothed absolute value at a point."""
        if self.kind == "abs" and smoothing > 0:
            bend = (np.abs(self.dual + low / smoothing) < 1.0) / smoothing
            return bend, bend
        if self.atom is None:
            return np.zeros_like(low), np.full_like(low, self.steepest)
        with np.errstate(all="ignore"):
            return self.atom.curvatures(low, high)

    def value(self, a: Array) -> Array:
        """``T(a)`` (..., outputs), or spread over the components (..., rows)."""
        if self.atom is not None:
            with np.errstate(all="ignore"):
                return self.atom.value(a)
        if self.kind == "QuadForm":
            return np.asarray(a * (a @ self.own))
        if self.kind == "log_det":
            return np.asarray(np.linalg.slogdet(_square(a))[1][..., None])
        return np.max(a, axis=-1, keepdims=True) if self.kind == "max" else self.norm(a)

    def half_hessian(self, x: Array, smoothing: float) -> Array:
        """B (..., r, n) with B'B the Hessian at x of a term that couples weights."""
        a, A = self.argument(x), self.A
        if self.kind == "log_det":
            C = np.swapaxes(np.linalg.cholesky(np.linalg.inv(_square(a))), -1, -2)
            both = C[..., :, None, :, None] * C[..., None, :, None, :]
            B = both.reshape(*a.shape, a.shape[-1]) @ A
        elif self.kind == "QuadForm":
            size, vectors = np.linalg.eigh(self.own + self.own.T)
            B = np.sqrt(np.maximum(size, 0.0))[:, None] * vectors.T @ A
        elif self.kind == "Pnorm":
            v = self.dual + a / smoothing
            size = np.maximum(self.norm(v), 1.0)[..., None]
            along = np.where(size > 1.0, v[..., :, None] * (v[..., None, :] @ A) / size**2, 0.0)
            B = (A - along) / np.sqrt(size * smoothing)
        elif self.kind == "max":
            on = (self.nearest(self.dual + a / smoothing) > 0)[..., :, None]
            mean = np.sum(A * on, axis=-2, keepdims=True) / np.sum(on, axis=-2, keepdims=True)
            B = np.where(on, A - mean, 0.0) / math.sqrt(smoothing)
        else:
            B = np.sqrt(self.curvature(a, a, smoothing)[0])[..., None] * A
        return np.asarray(np.sqrt(np.abs(self.s))[..., None] * B)

    def range(self, floor: float, cap: float) -> tuple[Array, Array, Array]:
        """Least, largest and absolute value (rows,) of the argument on the set, for all data in bounds."""
        least, most = self.A - (spare := self.M - np.abs(self.A)), self.A + spare
        off = self.c - np.abs(self.b)
        high, low = (
            np.where(most > 0, most * cap, most * floor),
            np.where(least > 0, least * floor, least * cap),
        )
        size = self.M * cap
        if not self.separable:
            n = self.n  # the total of nonnegative weights
            high = np.minimum(np.sum(high, axis=1), n * np.max(most, axis=1))
            low = np.maximum(np.sum(low, axis=1), n * np.min(least, axis=1))
            size = np.minimum(np.sum(size, axis=1), n * np.max(self.M, axis=1))
        low, high, size = low + self.b - off, high + self.b + off, size + self.c
        if self.separable:  # of one product: a logarithm needs the end at 0 as it is
            return low - 1e-9 * np.abs(low), high + 1e-9 * np.abs(high), size * UP
        return low - 1e-9 * size, high + 1e-9 * size, size * UP

    def public_slope(self, low: Array, high: Array, e: Array) -> tuple[Array, Array]:
        """Bounds (rows,) of ``|T'|`` and its error, of no kink: arguments in a range, off by ``e``."""
        far = np.maximum(np.abs(low), np.abs(high))
        if self.kind == "QuadForm":
            P = np.abs(self.own)
            return far @ (P + P.T), self.slope(far, e)[1]
        if self.kind == "log_det":
            # of an inversion: a residual of 64 p u cond is assumed, and checked where it is judged
            p, one = math.isqrt(len(e)), np.ones_like(e)
            error = 64 * p * UNIT * p * float(np.linalg.norm(far)) + 2 * float(np.linalg.norm(e))
            return math.sqrt(self.steepest) * one, error * self.steepest * one
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
    #: Sizes (k, m) of groups of equal weights, where it is of their totals.
    sizes: Array

    def __init__(
        self, objective: Any, weights: Any, params: Mapping[str, Any], eigenvalue_floor: float | None = None
    ) -> None:
        walk = Walk(objective, weights, params, eigenvalue_floor)
        outer = walk.outer
        self.n = self.total = weights.size
        self.params, n = params, weights.size
        self.terms = [ReadTerm(term, n, outer) for term in walk.terms]
        self.direct = Sums(outer, (outer.col >= 0) & (outer.col < n), outer.col, n)
        self.offset = Sums(outer, outer.col < 0, outer.row, 1)
        self.count = outer.count + self.direct.most + 2
        self.kinks = any(term.kink for term in self.terms)

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
        """The objective (k,) of totals (k, m) of groups of equal weights, which it must not tell apart.

        Weight i is in group ``kind[i]``, groups in order, and ``count`` (k, m) are their sizes, some 0.
        """
        new = copy(self)
        first = np.minimum(np.cumsum(count, axis=1) - count, self.n - 1).astype(np.int64)
        new.terms, new.n = [t.grouped(first, kind, count) for t in self.terms], count.shape[1]
        new.sizes = count
        new.linear, new.major = (
            np.take_along_axis(np.broadcast_to(X, kind.shape), first, axis=1)
            for X in (self.linear, self.major)
        )
        return new

    def value(self, x: Array) -> Array:
        """The objective (...)."""
        total: Array = self.constant + np.sum(self.linear * x, axis=-1)
        for t in self.terms:
            total = total + np.sum(t.s * t.value(t.argument(x)), axis=-1)
        return total

    def slope(self, x: Array, smoothing: float = 0.0, separable: bool | None = None) -> Array:
        """The gradient (..., n); of the separable terms alone, or of all others with the linear part."""
        g = np.zeros_like(x) if separable else self.linear + np.zeros_like(x)
        for t in self.terms:
            # a prox of a separable term without a kink is one number at a time
            if separable is None or (t.separable and not t.kink) is separable:
                a = t.argument(x)
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
            a, e = t.argument(x), t.argument_error(x, moved)
            q, w = t.slope(a, e, smoothing)
            h = t.s * q
            off = t.major_s * (w + gamma(t.count_s + 1) * np.abs(q))
            part = t.back(t.A, h)
            error = error + t.back(t.M, off) + gamma(t.count + t.tallest + 2) * t.back(t.M, np.abs(h))
            g, total = g + part, total + np.abs(part)
            if smoothing > 0 and t.kink:
                left_out = left_out + np.sum(t.major_s * t.excess(a, e, q), axis=-1) * UP
        return g, (error + gamma(len(self.terms) + 2) * total) * UP, left_out

    def diagonal(self, x: Array, smoothing: float = 0.0) -> Array:
        """Diagonal (..., n) of the Hessian of the separable terms."""
        h = np.zeros_like(x)
        for t in self.terms:
            if t.separable:
                a = t.argument(x)
                h = h + t.back(t.A**2, np.abs(t.s) * t.curvature(a, a, smoothing)[0])
        return h

    def half_hessian(self, x: Array, smoothing: float = 0.0) -> Array:
        """B (..., r, n) with B'B the Hessian of the terms that couple weights."""
        coupled = [t for t in self.terms if not t.separable]
        rows = [t.half_hessian(x, smoothing) for t in coupled]
        return np.concatenate(rows, axis=-2) if rows else np.zeros((*x.shape[:-1], 0, self.n))

    def shifted(self, x: Array, smoothing: float) -> ReadObjective:
        """The objective with its kinks held near the points of their sets at x: a step of multipliers."""
        new = copy(self)
        new.terms = [copy(t) for t in self.terms]
        for t in new.terms:
            if t.kink:
                t.dual = t.slope(t.argument(x), np.zeros(len(t.rows)), smoothing)[0]
        return new


def _inverse(a: Array, e: Array) -> tuple[Array, Array]:
    """Inverse Y of S, judged after the fact: ``||Y S - I|| < 1`` bounds its error, whoever computed it."""
    S, p = _square(a), math.isqrt(a.shape[-1])
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


def _square(a: Array) -> Array:
    """Matrices (..., p, p) of arguments (..., p p), column by column."""
    p = math.isqrt(a.shape[-1])
    return np.swapaxes(a.reshape(*a.shape[:-1], p, p), -1, -2)
