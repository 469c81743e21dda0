"""Log-partition dual of entropy balancing: the composite that its weights are read from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from dp2erm_cvx.blocks import Blocks, tree_sum, whole
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty, Recent
from dp2erm_cvx.model.sets import L2Ball, WholeSpace
from dp2erm_cvx.model.sums import (
    CACHED,
    UNIT,
    blocked_rmatvec,
    column_sums,
    dot_error,
    exact_sum,
    product_error,
    sum_error,
    weighted_gram,
)


class ExponentialModel(Composite):
    """f(v) = n (log mean_i exp(<b_i, v>) - <target, v> + ridge/2 ||v||^2) over ``||v|| <= radius``.

    ``rows`` B are (n, d) or blocks of such, ``target`` (d,). The output is the weights ``w_i = n exp(<b_i,
    v>) / sum`` (Proposition entropy_weight_duality with a uniform base measure). ``log_base`` (n,) is
    ``log(n q_i)`` of another base measure q, added to every score; ``trim`` caps ``exp(<b_i, v>)`` in the
    output.

    One pass over the records yields whatever is asked about a point, which is kept for the next question.
    """

    def __init__(
        self,
        rows: Array | Blocks[Array],
        target: Array,
        ridge: float,
        radius: float,
        *,
        row_error: float = 0.0,
        trim: float = math.inf,
        log_base: Array | float = 0.0,
    ) -> None:
        self.blocks = rows if isinstance(rows, Blocks) else whole(rows, len(rows))
        self.trim, self.log_base = trim, log_base
        self.row_error = row_error  # norm of the error with which the rows were computed
        self.n = self.blocks.n_samples
        # log mean exp(<b, v>) - <t, v> is unchanged by a common shift of b and t, which is chosen to lose
        # no digits
        self.center: Array = tree_sum(self.blocks.map(column_sums)) / self.n
        self.dimension = len(self.center)
        self.target: Array = target - self.center
        self.row_norms: Array = np.concatenate(self.blocks.map(partial(_norms, center=self.center)))
        self.ridge = self.n * ridge
        self.spread = float(np.max(self.row_norms, initial=0.0)) * (1 + 1e-12)
        self.size = self.spread + 2 * float(np.linalg.norm(self.center))  # what centering rounds against
        self.smoothness = self.n * self.spread**2 + self.ridge
        # third central moments are at most the range 2 * spread * ||v|| times the variance
        self.self_concordance = 2 * self.spread
        self.penalty = Penalty(WholeSpace() if math.isinf(radius) else L2Ball(radius))
        self._sums: Recent[_Tilted] = Recent()
        self._scores: Recent[Array] = Recent(1)

    @cached_property
    def B(self) -> Array:
        """The centered rows (n, d), in memory."""
        rows: Array = np.concatenate(self.blocks.each()) - self.center
        return rows

    def look(self, v: Array) -> None:
        self._at(v, curved=True)

    def value(self, v: Array) -> float:
        found = self._at(v)
        log_mean = found.top + math.log(found.total / self.n)
        return self.n * (log_mean - float(self.target @ v)) + 0.5 * self.ridge * float(v @ v)

    def gradient(self, v: Array) -> Array:
        return self.n * (self._at(v).mean - self.target) + self.ridge * v

    def hessian(self, v: Array) -> Array:
        found = self._at(v, curved=True)
        assert found.second is not None
        covariance: Array = found.second / found.total - np.outer(found.mean, found.mean)
        return self.n * covariance + self.ridge * np.eye(self.dimension)

    def hessian_rounding(self, v: Array) -> float:
        # the second moment, the square of the mean and, by Jensen, what either rounds are at most second
        found = self._at(v)
        second = found.relative(found.squares, found.square_errors) + product_error(self.n) * found.squares
        total = 4 * second + 32 * UNIT * found.squares + 4 * self.row_error * found.norms
        return self.n * total / found.total + 4 * UNIT * self.ridge

    def rounding(self, v: Array) -> float:
        found = self._at(v)
        moment = found.relative(found.norms, found.norm_errors) + sum_error(self.n) * found.norms
        shift = 4 * UNIT * (float(np.linalg.norm(self.target)) + self.size) + 2 * self.row_error
        return self.n * (moment / found.total + shift) + 4 * UNIT * self.ridge * float(np.linalg.norm(v))

    def output(self, v: Array) -> Array:
        score = self._score(v)
        if math.isfinite(self.trim):
            # the cap is on the score without the common shift
            score = np.minimum(score + float(self.center @ v), math.log(self.trim))
        tilt: Array = np.exp(score - np.max(score))
        tilt *= self.n / exact_sum(tilt)
        return tilt

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        # tilt lemma without a changed record: the range of <b_i, error> is at most 2 kappa
        kappa = self.spread * radius
        if local is not None:
            kappa = min(kappa, max(self.blocks.map(partial(_largest, center=self.center, local=local))))
        if math.isfinite(self.trim):
            # a cap breaks the common shift: every score counts with its own size
            kappa = self.size * (radius + dot_error(self.dimension) * float(np.linalg.norm(v)))
            kappa += 2 * UNIT * abs(math.log(self.trim))
        kappa += self._at(v).largest_error
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)

    def _at(self, v: Array, *, curved: bool = False) -> _Tilted:
        error = dot_error(self.dimension), self.row_error
        ask = partial(_tilted, center=self.center, v=v, errors=error, curved=curved)
        return self._sums.find(
            v,
            lambda: _together(self.blocks.map(ask, self.row_norms, *self._base)),
            lambda found: not curved or found.second is not None,
        )

    def _score(self, v: Array) -> Array:
        """<b_i, v> plus the base measure (n,), less the common shift."""
        ask = partial(_scores, center=self.center, v=v)
        return self._scores.find(v, lambda: np.concatenate(self.blocks.map(ask, *self._base)))

    @property
    def _base(self) -> tuple[Array, ...]:
        base = self.log_base
        if isinstance(base, np.ndarray):
            return (base,)
        return (np.full(self.n, base),) if base else ()


@dataclass(frozen=True)
class _Tilted:
    """Sums over records of ``t = exp(score - top)`` at one point, of centered rows b.

    ``moment`` is that of ``t b``, ``second`` of ``t b b'``, ``norms`` and ``squares`` of ``t ||b||`` and ``t
    ||b||^2``; the errors are the same sums times the error of a score, of which the largest is kept.
    """

    top: float
    total: float
    moment: Array
    norms: float
    squares: float
    norm_errors: float
    square_errors: float
    largest_error: float
    second: Array | None = None

    @property
    def mean(self) -> Array:
        """Of b, tilted."""
        found: Array = self.moment / self.total
        return found

    def relative(self, size: float, error: float) -> float:
        """``sum size_i r_i``, r the relative error of a computed ``t / sum(t)``, from the sums over i.

        An error e of a score is a relative one of its exponential, and at most the largest one E of the sum
        of them: with ``m = E + 8 u`` is ``r = expm1(e + m) + 8 u <= (e + m) exp(2 m) + 8 u``. Capped, because
        a dual that diverges for lack of a ridge would overflow here.
        """
        most = min(self.largest_error, 150.0) + 8 * UNIT
        return (min(error, 150.0 * size) + most * size) * math.exp(2 * most) + 8 * UNIT * size

    def raised(self, top: float) -> _Tilted:
        """The same sums less another top, which moves every score by a rounding of the difference."""
        share, shift = math.exp(self.top - top), UNIT * (top - self.top)
        return _Tilted(
            top,
            share * self.total,
            share * self.moment,
            share * self.norms,
            share * self.squares,
            share * (self.norm_errors + shift * self.norms),
            share * (self.square_errors + shift * self.squares),
            self.largest_error + shift,
            None if self.second is None else share * self.second,
        )


def _together(parts: Sequence[_Tilted]) -> _Tilted:
    top = max(part.top for part in parts)
    raised = [part.raised(top) for part in parts] if len(parts) > 1 else list(parts)
    seconds = [part.second for part in raised if part.second is not None]
    return _Tilted(
        top,
        _total(part.total for part in raised),
        tree_sum([part.moment for part in raised]),
        _total(part.norms for part in raised),
        _total(part.squares for part in raised),
        _total(part.norm_errors for part in raised),
        _total(part.square_errors for part in raised),
        max(part.largest_error for part in raised),
        tree_sum(seconds) if seconds else None,
    )


def _tilted(
    rows: Array,
    norms: Array,
    base: Array | None = None,
    *,
    center: Array,
    v: Array,
    errors: tuple[float, float],
    curved: bool,
) -> _Tilted:
    product, row_error = errors
    size, found = float(np.linalg.norm(v)), []
    for begin in range(0, len(rows), CACHED):
        part = slice(begin, begin + CACHED)
        B, norm = rows[part] - center, norms[part]
        score, error = B @ v, (product * size) * norm + row_error * size
        if base is not None:
            score, error = score + base[part], error + 2 * UNIT * np.abs(base[part])
            error = error + UNIT * np.abs(score)
        top = float(np.max(score))
        error = error + UNIT * (top - score)
        tilt = np.exp(score - top)
        weighed = tilt * norm
        found.append(
            _Tilted(
                top,
                exact_sum(tilt),
                blocked_rmatvec(B, tilt),
                float(np.sum(weighed)),
                float(weighed @ norm),
                float(weighed @ error),
                float((weighed * norm) @ error),
                float(np.max(error)),
                weighted_gram(B, tilt) if curved else None,
            )
        )
    return _together(found)


def _total(numbers: Iterable[float]) -> float:
    """A sum that overflows to infinity, where math.fsum would raise."""
    return float(np.sum(list(numbers)))


def _scores(rows: Array, base: Array | None = None, *, center: Array, v: Array) -> Array:
    score: Array = (rows - center) @ v
    return score if base is None else score + base


def _norms(rows: Array, *, center: Array) -> Array:
    norms: Array = np.linalg.norm(rows - center, axis=1)
    return norms


def _largest(rows: Array, *, center: Array, local: LocalError) -> float:
    return local.largest(rows - center)


class HardExponentialModel(ExponentialModel):
    """The dual without ridge, on the directions in which it is not flat.

    ``v = basis @ u`` with ``basis`` an orthonormal basis of the span of ``b_i - mean(b)``. Along every other
    direction the dual is constant where the targets can be met, so the weights do not depend on it.

    Raises InfeasibleError where the target leaves the affine span of the b_i.
    """

    def __init__(self, B: Array, target: Array, *, rank_tolerance: float = 1e-10) -> None:
        center = B.mean(axis=0)
        # the triangular factor has the singular values of all rows
        _, singular, rows = np.linalg.svd(np.linalg.qr(B - center, mode="r"))
        largest = float(np.max(singular, initial=0.0))
        self.basis = rows[: len(singular)][singular > rank_tolerance * max(largest, 1e-300)].T
        gap = target - center
        missed = gap - self.basis @ (self.basis.T @ gap)
        if np.linalg.norm(missed) > 1e-9 * (1.0 + np.linalg.norm(gap)):
            raise InfeasibleError(
                "the moment targets lie outside the span of the records: a balance function is constant "
                "within an arm. Set a positive ridge or drop that balance function"
            )
        # B @ basis rounds entry by entry
        row_error = dot_error(B.shape[1]) * math.sqrt(B.shape[1]) * float(np.max(np.linalg.norm(B, axis=1)))
        super().__init__(B @ self.basis, self.basis.T @ target, 0.0, math.inf, row_error=row_error)
