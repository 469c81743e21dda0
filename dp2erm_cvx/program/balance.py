"""Balance functions g(x), hard targets for their means, and the dual model of weights that meet them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import optimize

from dp2erm_cvx.domain import Array, Records, clip_norm
from dp2erm_cvx.errors import DataError, DeclarationError, InfeasibleError
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sums import (
    UNIT,
    blocked_rmatvec,
    dot_error,
    exact_sum,
    product_error,
    sum_error,
)
from dp2erm_cvx.public import public_size
from dp2erm_cvx.text import number_or_text

#: A tolerance is called too small only beyond what the linear program may be wrong by.
_SLACK = 1e-7


@dataclass(frozen=True)
class Moments:
    """Raw moments ``(x, x^2, ..., x^degree)`` of every scaled covariate, without cross products."""

    degree: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or not 1 <= self.degree <= 10:
            raise DeclarationError(f"degree = {self.degree!r}: must be a whole number from 1 to 10")

    @classmethod
    def from_text(cls, text: str) -> Moments:
        """``2`` or ``moments:2``: the degree. Raises DeclarationError."""
        return cls(number_or_text(text.strip().lower().removeprefix("moments:")))  # type: ignore[arg-type]

    def bound(self, features_bound: float) -> float:
        """Norm bound over the ball: ``sqrt(sum_k M^(2k))``, because sum_j x_j^(2k) <= ||x||^(2k)."""
        try:
            return math.sqrt(math.fsum(features_bound ** (2 * k) for k in range(1, self.degree + 1)))
        except OverflowError:
            raise DeclarationError(
                f"degree = {self.degree}: moments of covariates up to {features_bound:g} are out of "
                "floating-point range"
            ) from None

    def size(self, n_features: int) -> int:
        """The number of functions of records with ``n_features`` covariates."""
        return n_features * self.degree

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, p * degree)."""
        return X if self.degree == 1 else np.hstack([X**k for k in range(1, self.degree + 1)])

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"moments": self.degree}


@dataclass(frozen=True)
class BalanceFunctions:
    """The user's own ``function`` of one covariate vector (p,) -> (k,), shrunk radially to ``norm_bound``.

    It sees a copy of one record at a time and must depend on nothing else; the bound is enforced, and a
    record for which it fails gets zeros: a fixed rule, not a refusal.
    """

    function: Callable[[Array], Array]
    norm_bound: float
    name: str = "custom"

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm_bound", public_size("norm_bound", self.norm_bound))

    def bound(self, features_bound: float) -> float:
        """The declared norm bound."""
        return self.norm_bound

    def size(self, n_features: int) -> int:
        """k, read off at the origin and so public. Raises DeclarationError where the function fails."""
        try:
            return len(self._row(np.zeros(n_features)))
        except Exception as error:
            raise DeclarationError(
                f"balance function {self.name!r} fails at the origin: {type(error).__name__}"
            ) from None

    def __call__(self, X: Array) -> Array:
        """(n, p) -> (n, k), k read off at the origin.

        Raises DeclarationError where the function fails at the origin; DataError (for the data holder) where
        a record has other values when it is asked for in another order: the function then remembers other
        records.
        """
        size = self.size(X.shape[1])
        # once for all rows: number by number it takes longer than most functions do
        rows = np.nan_to_num(np.stack([self._guarded(row, size) for row in X]))
        again = np.nan_to_num(np.stack([self._guarded(row, size) for row in X[::-1]])[::-1])
        if not np.array_equal(rows, again):
            raise DataError(
                f"balance function {self.name!r} gives one record two different values: it must depend on "
                "that record alone"
            )
        return clip_norm(rows, self.norm_bound)

    def _row(self, row: Array) -> Array:
        # a copy, because a function that writes into its argument would move the record out of the universe
        return np.atleast_1d(np.asarray(self.function(row.copy()), dtype=np.float64)).ravel()

    def _guarded(self, row: Array, size: int) -> Array:
        try:
            values = self._row(row)
        except Exception:
            return np.zeros(size)
        return values if len(values) == size else np.zeros(size)

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release."""
        return {"custom": self.name, "norm_bound": self.norm_bound}


def checked_balance(name: str, balance: object) -> object:
    """``balance``. Raises DeclarationError unless it is one of the two kinds here.

    Exact types: a balance of another kind could see all records at once, or understate its bound.
    """
    if type(balance) not in (Moments, BalanceFunctions):
        raise DeclarationError(f"{name} = {balance!r}: must be Moments or BalanceFunctions")
    return balance


def moment_names(balance: Moments | BalanceFunctions, records: Records) -> tuple[str, ...]:
    """A name for every balance function: those of the covariates where the domain declares them."""
    p = records.covariates.shape[1]
    columns = records.domain.columns or tuple(f"x{k + 1}" for k in range(p))
    if isinstance(balance, Moments):
        powers = ("", *(f"^{k}" for k in range(2, balance.degree + 1)))
        return tuple(name + power for power in powers for name in columns)
    k = balance(records.covariates[:1]).shape[1]
    return tuple(f"{balance.name}[{j}]" for j in range(k))


@dataclass(frozen=True, eq=False)
class MomentTargets:
    """Weights ``w >= 0`` (n,) with ``totals.T @ w = total_values`` and ``moments.T @ w`` near ``values``.

    ``moments`` (n, m) are in units in which one ``tolerance`` is meant for all; ``names`` say covariate and
    arm. Private.
    """

    totals: Array = field(repr=False)
    total_values: Array = field(repr=False)
    moments: Array = field(repr=False)
    values: Array = field(repr=False)
    names: tuple[str, ...]
    tolerance: float


def refuse_infeasible(targets: MomentTargets) -> None:
    """Raise InfeasibleError where no weights meet the targets within their tolerance.

    The linear program ``minimize s subject to |moments - values| <= s, w >= 0`` gives the smallest tolerance
    that weights exist for; the moments that hold it up are those with a positive multiplier.
    """
    n, m = targets.moments.shape
    upper = np.vstack(
        [
            np.column_stack([targets.moments.T, -np.ones(m)]),
            np.column_stack([-targets.moments.T, -np.ones(m)]),
        ]
    )
    totals = np.column_stack([targets.totals.T, np.zeros(len(targets.total_values))])
    solved = optimize.linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=upper,
        b_ub=np.concatenate([targets.values, -targets.values]),
        A_eq=totals,
        b_eq=targets.total_values,
        bounds=(0, None),
        method="highs",
    )
    if solved.status == 2:
        raise InfeasibleError("an arm without records cannot hold its share of the weight: both need some")
    if solved.status != 0 or solved.fun is None or solved.fun <= targets.tolerance + _SLACK:
        return
    pull = -np.asarray(solved.ineqlin.marginals)
    held = pull[:m] + pull[m:]
    order = np.argsort(-held)
    names = tuple(targets.names[k] for k in order if held[k] > 1e-9 * max(float(np.sum(held)), 1e-300))
    smallest = float(solved.fun)
    shown = _rounded_up(smallest)
    told = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    # exact balance is a program of its own, without a tolerance to raise
    allow = (
        f"Allow {shown} or more"
        if targets.tolerance
        else f"Use a program with a tolerance of {shown} or more"
    )
    raise InfeasibleError(
        f"no weights meet the targets within {targets.tolerance:g}: {told} cannot be balanced better than "
        f"{smallest:.3g}. {allow}, drop those balance functions, or use a program with a ridge",
        covariates=names,
        smallest_tolerance=smallest,
    )


class HardBalanceModel(Composite):
    """f(v) = sum_i max(0, <b_i, v>)^2 / 2 - n <t, v>, plus ``n sum_k s_k |v_k|``; weights ``max(0, B v)``.

    The dual of ``minimize ||w||^2 / 2`` subject to ``|B'w/n - t| <= s`` and ``w >= 0``, with ``B`` (n, d),
    ``t`` and ``s`` (d,). The weights are unique; v is where the rows of positive weights span R^d.
    """

    ridge = 0.0
    self_concordance = math.inf

    def __init__(self, B: Array, target: Array, tolerance: Array) -> None:
        self.B, self.target, self.tolerance = B, target, tolerance
        self.n, self.dimension = len(B), int(B.shape[1])
        self.penalty = _WeightedL1(price=self.n * tolerance)
        self.row_norms: Array = np.linalg.norm(B, axis=1)
        self.largest = float(np.linalg.norm(B, 2)) * (1 + 1e-9)
        self.smoothness = self.largest**2 * (1 + 1e-9) + 1e-300

    def value(self, v: Array) -> float:
        w = np.maximum(self.B @ v, 0.0)
        return 0.5 * float(w @ w) - self.n * float(self.target @ v)

    def gradient(self, v: Array) -> Array:
        return blocked_rmatvec(self.B, np.maximum(self.B @ v, 0.0)) - self.n * self.target

    def hessian(self, v: Array) -> Array:
        held = self.B[self.B @ v > 0]
        return held.T @ held

    def spectrum(self, v: Array) -> tuple[float, float]:
        return 0.0, self.smoothness

    def lowest_within(self, v: Array, distance: float) -> float:
        # a multiplier at 0 whose price is not reached anywhere near stays there, whatever the others do
        slack = self.n * self.tolerance - np.abs(self.gradient(v)) - self.rounding(v)
        free = ~((v == 0.0) & (slack > self.smoothness * distance))
        if not np.any(free):
            return self.smoothness
        margin = self.B @ v - self.row_norms * (distance + dot_error(self.dimension) * np.linalg.norm(v))
        held = self.B[margin > 0][:, free]
        error = (64 * self.dimension * UNIT + product_error(self.n)) * float(np.sum(self.row_norms**2))
        return max(float(np.linalg.eigvalsh(held.T @ held)[0]) - error, 0.0)

    def rounding(self, v: Array) -> float:
        size = self.row_norms * float(np.linalg.norm(v))
        error = (dot_error(self.dimension) + sum_error(self.n)) * float(size @ self.row_norms)
        return error + 4 * UNIT * self.n * float(np.linalg.norm(self.target))

    def output(self, v: Array) -> Array:
        weights: Array = np.maximum(self.B @ v, 0.0)
        total = exact_sum(weights)
        # off the minimizer the totals are met only nearly
        return weights * (self.n / total) if total > 0 else np.ones(self.n)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        products = dot_error(self.dimension) * float(np.sum(self.row_norms)) * float(np.linalg.norm(v))
        # twice, because rescaling to the right sum moves by at most the same distance again
        return 2 * (math.sqrt(self.n) * self.largest * radius + products) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)


@dataclass(frozen=True, eq=False)
class _WeightedL1(Penalty):
    """``h(v) = sum_k price_k |v_k|``."""

    price: Array = field(default_factory=lambda: np.zeros(0))

    def value(self, v: Array) -> float:
        return float(self.price @ np.abs(v))

    def jacobian(self, v: Array, step: float) -> Array:
        return np.diag((np.abs(v) > step * self.price).astype(np.float64))

    def _shrink(self, v: Array, step: float) -> Array:
        return np.sign(v) * np.maximum(np.abs(v) - step * self.price, 0.0)


def _rounded_up(number: float) -> str:
    """Three digits that are no less than the number: fewer would be refused again."""
    text = f"{number:.2e}"
    if float(text) <= number:
        digits, exponent = text.split("e")
        text = f"{float(digits) + 0.01:.2f}e{exponent}"
    return f"{float(text):.3g}"
