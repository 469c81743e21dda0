"""How near the minimizer or the exact weights a solve is certified to be: public bounds, no record seen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import UNIT, dot_error, sum_error
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


def radius_at_floor(sizes: Sizes) -> float | None:
    """Bound on ``Certificate.radius`` where Newton's method stopped of its own accord.

    It stops at a residual ``q <= 8 rho + 1e-13 L a``, rho the rounding error of a gradient and ``a`` the norm
    of the point. The prox-gradient residual there does not grow with the step, and the certificate's is the
    longer one; at the prox of the point it is at most the distance of 0 to the subdifferential. Either is at
    most q and what the gradients (4 rho) and the projections (4 pi) of the two computations round; the
    certificate adds ``2 rho + pi``, divides by m and adds the step, at most that residual over m. Together
    ``(26 rho + 9 pi + 2e-13 L a) / m``, and a is at most the norm of the minimizer and that radius. None
    where the rounding is not small against m, so that nothing is known.
    """
    m, L = sizes.strong_convexity, sizes.smoothness
    if not m > 0:
        return None
    # a projection of v - grad/L, in units of the gradient; 0.95 / L is Newton's step
    projection = sizes.set_rounding * UNIT
    # 1e-140 is what a certificate adds for underflow, and more
    fixed = (2 * FLOOR + 10) * sizes.rounding + 9 * projection * sizes.slope + 1e-140
    growing = (
        (2 * FLOOR + 10) * sizes.rounding_growth
        + 2 * FLOOR_RELATIVE * L
        + 9 * projection * (1 + 1 / 0.95) * L
    )
    if not growing <= 0.5 * m:
        return None
    norm = min((sizes.minimizer_norm + fixed / m) / (1 - growing / m), sizes.set_norm * (1 + 1e-9))
    radius = (fixed + growing * norm) / m * _SLACK
    return radius if math.isfinite(radius) else None


def least_squares_radius(
    n_samples: int,
    n_parameters: int,
    *,
    covariate_bound: float,
    response_bound: float,
    ridge: float,
    noise_bound: float,
    set_norm: float,
    set_rounding: float,
    is_mean: bool = False,
) -> float | None:
    """``radius_at_floor`` of ``sum w_i (z_i - <x_i, v>)^2 + ridge/2 ||v||^2 + <b, v>``, ridge n (gamma + l2).

    For all weights >= 0 of sum n, ``||x_i|| <= M``, ``|z_i| <= Z``, ``||b|| <= noise_bound``. At the
    minimizer t ``ridge ||t||^2 <= sum w_i (2 z_i s_i - 2 s_i^2) + ||b|| ||t||`` with ``s_i = <x_i, t>`` (0 is
    in Theta and minimizes the l1 norm), and ``2 z s - 2 s^2 <= Z^2/2``: ``||t|| <= Z (n / (2 ridge))^(1/2) +
    ||b|| / ridge``. A mean (``x = 1``) has the Hessian ``2n + ridge``, and its minimizer is within ``Z +
    ||b|| / (2n + ridge)``.
    """
    n, M, Z, b = n_samples, covariate_bound, response_bound, noise_bound
    strong_convexity = ridge
    minimizer_norm = math.inf
    if is_mean:
        strong_convexity = (2 * n + ridge) * (1 - 1e-9)
        minimizer_norm = Z + b / strong_convexity
    elif ridge > 0:
        minimizer_norm = Z * math.sqrt(n / (2 * ridge)) + b / ridge
    error = dot_error(n_parameters) + 8 * UNIT + sum_error(n)
    sizes = Sizes(
        strong_convexity=strong_convexity,
        smoothness=2 * n * M**2 + ridge,
        slope=2 * n * M * Z + b,
        rounding=2 * error * n * M * Z + 8 * UNIT * b,
        rounding_growth=2 * error * n * M**2 + 8 * UNIT * ridge,
        minimizer_norm=min(minimizer_norm, set_norm),
        set_norm=set_norm,
        set_rounding=set_rounding,
    )
    return radius_at_floor(sizes)


def checked_perturbation(gamma: float, noise_bound: float) -> tuple[float, float]:
    """Check the perturbation that a certified radius is asked for. Raises DeclarationError."""
    return public_number("gamma", gamma, at_least=0), public_number("noise_bound", noise_bound, at_least=0)


#: Error of weights in closed form, and of the last exponentials of any others, relative to n.
CLOSED_FORM = 1e-12


def entropy_weights_error(
    n_samples: int,
    dimension: int,
    *,
    row_bound: float,
    slope: float,
    ridge: float,
    radius: float,
    log_trim: float | None,
    log_base: float = 0.0,
) -> float | None:
    """The same for weights ``exp(<b, v>)``, rows ``||b|| <= row_bound`` and ``||t - mean(b)|| <= slope``.

    Rows are centered, so their norms are at most ``2 row_bound``, the target's at most ``row_bound + slope``,
    and a score is wrong by ``(dot_error + 2 u) 2 row_bound ||v||``. The minimizer obeys ``mu ||v||^2 <= <t -
    mean(b), v>``. A trim (``log_trim`` its log) breaks the common shift of all scores. With a base measure q,
    ``|log(n q_i)| <= log_base`` is added to every score, which rounds by four units of it, and the mean is
    that under q.
    """
    n, spread = n_samples, 2 * row_bound
    per_norm = (dot_error(dimension) + 2 * UNIT) * spread  # error of a score, per unit of ||v||
    size = spread + 2 * row_bound
    base_error = 4 * UNIT * log_base
    terms = 18 * UNIT + 2.2 * base_error + sum_error(n)
    sizes = Sizes(
        strong_convexity=n * ridge,
        smoothness=n * spread**2 + n * ridge,
        slope=n * slope,
        rounding=n * (spread * terms + 4 * UNIT * (row_bound + slope + size)),
        rounding_growth=n * (spread * 2.2 * per_norm + 4 * UNIT * ridge),
        minimizer_norm=min(slope / ridge, radius) if ridge > 0 else radius,
        set_norm=radius,
        set_rounding=L2Ball(1.0).rounding(dimension),
    )
    found = radius_at_floor(sizes)
    if found is None:
        return None
    norm = sizes.minimizer_norm + found
    if not per_norm * norm + base_error <= 0.01:  # the growth above linearizes exp
        return None
    kappa = spread * found + per_norm * norm + base_error
    if log_trim is not None:
        kappa += size * (found + dot_error(dimension) * norm) + 2 * UNIT * abs(log_trim)
    return kappa + CLOSED_FORM


def kernel_weights_error(
    n_samples: int, *, kernel_bound: float, ridge: float, pooled: bool, entry_error: float
) -> float | None:
    """The same for kernel weights, ``ridge`` times n the coefficient of ``||v||^2``.

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
    found = radius_at_floor(sizes)
    if found is None:
        return None
    return scale * math.sqrt(n) * found / n + CLOSED_FORM
