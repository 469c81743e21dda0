"""How near the exact weights a first stage is sure to be certified: a public bound."""

from __future__ import annotations

import math

from dp2erm_cvx.model.certified_radius import Sizes, radius_at_floor
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import UNIT, dot_error, sum_error

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
    and a score is wrong by ``(dot_error + 2 u) 2 row_bound ||v||``. The minimizer obeys
    ``mu ||v||^2 <= <t - mean(b), v>``. A trim (``log_trim`` its log) breaks the common shift of all scores.
    With a base measure q, ``|log(n q_i)| <= log_base`` is added to every score, which rounds by four units of
    it, and the mean is that under q.
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
