"""How near the minimizer or the exact weights a solve is certified to be: public bounds, no record seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp2erm_cvx.model.sums import UNIT, sum_error
from dp2erm_cvx.public import public_number

#: Newton's method runs until its residual is at most ``FLOOR * rounding + FLOOR_RELATIVE * L * ||v||``.
FLOOR = 8.0
FLOOR_RELATIVE = 1e-13

#: Covers weights whose sum is n, and rows whose norm is M, to within a few units of roundoff only.
_SLACK = 1.0 + 1e-6


@dataclass(frozen=True)
class Sizes:
    """Bounds on one solve that hold for every dataset of the universe and every noise within its bound.

    ``strong_convexity`` m > 0; ``smoothness`` L, the largest eigenvalue of any Hessian; ``slope`` the norm of
    the gradient of f at 0; the error of a computed gradient at v is at most ``rounding + rounding_growth *
    ||v||``; the norms are those of the minimizer and of every feasible point; ``set_rounding`` is the error
    of a projection, in units of roundoff times the norm of what is projected.
    """

    strong_convexity: float
    smoothness: float
    slope: float
    rounding: float
    rounding_growth: float
    minimizer_norm: float
    set_norm: float
    set_rounding: float

    def radius(self) -> float | None:
        """Bound on ``Certificate.radius`` where Newton's method stopped of its own accord.

        It stops at a residual ``q <= 8 rho + 1e-13 L a``, rho the rounding error of a gradient and ``a`` the
        norm of the point. The prox-gradient residual there does not grow with the step, and the certificate's
        is the longer one; at the prox of the point it is at most the distance of 0 to the subdifferential.
        Either is at most q and what the gradients (4 rho) and the projections (4 pi) of the two computations
        round; the certificate adds ``2 rho + pi``, divides by m and adds the step, at most that residual over
        m. Together ``(26 rho + 9 pi + 2e-13 L a) / m``, and a is at most the norm of the minimizer and that
        radius. None where the rounding is not small against m, so that nothing is known.
        """
        m, L = self.strong_convexity, self.smoothness
        if not m > 0:
            return None
        # a projection of v - grad/L, in units of the gradient; 0.95 / L is Newton's step
        projection = self.set_rounding * UNIT
        # 1e-140 is what a certificate adds for underflow, and more
        fixed = (2 * FLOOR + 10) * self.rounding + 9 * projection * self.slope + 1e-140
        growing = (
            (2 * FLOOR + 10) * self.rounding_growth
            + 2 * FLOOR_RELATIVE * L
            + 9 * projection * (1 + 1 / 0.95) * L
        )
        if not growing <= 0.5 * m:
            return None
        norm = min((self.minimizer_norm + fixed / m) / (1 - growing / m), self.set_norm * (1 + 1e-9))
        radius = (fixed + growing * norm) / m * _SLACK
        return radius if math.isfinite(radius) else None


def checked_perturbation(gamma: float, noise_bound: float) -> tuple[float, float]:
    """Check the perturbation that a certified radius is asked for. Raises DeclarationError."""
    return public_number("gamma", gamma, at_least=0), public_number("noise_bound", noise_bound, at_least=0)


#: Error of weights in closed form, and of the last exponentials of any others, relative to n.
CLOSED_FORM = 1e-12


def kernel_weights_error(
    n_samples: int, *, kernel_bound: float, ridge: float, pooled: bool, entry_error: float
) -> float | None:
    """Bound on ``||w_hat - w||_1 / n`` of kernel weights, ``ridge`` times n the coefficient of ``||v||^2``.

    ``v >= 0`` sums to n (pooled) or 2n, and entries of the kernel are at most ``kernel_bound`` in size.
    """
    n, C = n_samples, kernel_bound
    total, scale = (n, 1.0) if pooled else (2 * n, 0.5)
    error = sum_error(n) + 16 * UNIT
    sizes = Sizes(
        strong_convexity=2 * n * ridge,
        smoothness=2 * C * n * (1 + 1e-9) + 2 * n * ridge,
        slope=2 * n * C * math.sqrt(n),
        rounding=math.sqrt(n) * C * (total + n) * (2 * error + 2 * entry_error * UNIT),
        rounding_growth=8 * UNIT * n * ridge,
        minimizer_norm=total,
        set_norm=total,
        set_rounding=16.0 + 4.0 * math.log2(n + 1),
    )
    found = sizes.radius()
    if found is None:
        return None
    return scale * math.sqrt(n) * found / n + CLOSED_FORM
