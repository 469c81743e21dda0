"""Hard moment targets: their model, why they cannot be met, and how far they would have to be relaxed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sums import UNIT, blocked_rmatvec, dot_error, product_error, sum_error


@dataclass(frozen=True, eq=False)
class MomentTargets:
    """Weights ``w >= 0`` (n,) with ``totals.T @ w = total_values`` and ``moments.T @ w`` near ``values``.

    ``moments`` (n, m) are in units in which one ``tolerance`` is meant for all of them; ``names`` say which
    covariate and arm each belongs to. The data are private, and so is what is computed from them.
    """

    totals: Array = field(repr=False)
    total_values: Array = field(repr=False)
    moments: Array = field(repr=False)
    values: Array = field(repr=False)
    names: tuple[str, ...]
    tolerance: float


#: A tolerance is called too small only beyond what the linear program may be wrong by.
_SLACK = 1e-7


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
    solved = linprog(
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


def _rounded_up(number: float) -> str:
    """Three digits that are no less than the number: fewer would be refused again."""
    text = f"{number:.2e}"
    if float(text) <= number:
        digits, exponent = text.split("e")
        text = f"{float(digits) + 0.01:.2f}e{exponent}"
    return f"{float(text):.3g}"


@dataclass(frozen=True, eq=False)
class WeightedL1(Penalty):
    """``h(v) = sum_k price_k |v_k|``."""

    price: Array = field(default_factory=lambda: np.zeros(0))

    def value(self, v: Array) -> float:
        return float(self.price @ np.abs(v))

    def jacobian(self, v: Array, step: float) -> Array:
        return np.diag((np.abs(v) > step * self.price).astype(np.float64))

    def _shrink(self, v: Array, step: float) -> Array:
        return np.sign(v) * np.maximum(np.abs(v) - step * self.price, 0.0)


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
        self.penalty = WeightedL1(price=self.n * tolerance)
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
        gram = held.T @ held
        error = (64 * self.dimension * UNIT + product_error(self.n)) * float(np.sum(self.row_norms**2))
        return max(float(np.linalg.eigvalsh(gram)[0]) - error, 0.0)

    def rounding(self, v: Array) -> float:
        size = self.row_norms * float(np.linalg.norm(v))
        error = (dot_error(self.dimension) + sum_error(self.n)) * float(size @ self.row_norms)
        return error + 4 * UNIT * self.n * float(np.linalg.norm(self.target))

    def output(self, v: Array) -> Array:
        weights: Array = np.maximum(self.B @ v, 0.0)
        total = math.fsum(weights)
        # off the minimizer the totals are met only nearly
        return weights * (self.n / total) if total > 0 else np.ones(self.n)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        products = dot_error(self.dimension) * float(np.sum(self.row_norms)) * float(np.linalg.norm(v))
        # twice, because rescaling to the right sum moves by at most the same distance again
        return 2 * (math.sqrt(self.n) * self.largest * radius + products) + 16 * UNIT * self.n

    def output_scale(self, v: Array) -> float:
        return float(self.n)
