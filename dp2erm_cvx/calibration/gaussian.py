"""The privacy profile of Theorem 2 and its inverse, both rounded to the private side."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]

#: Cells of the grid in a guarantee; 64 are plenty where only a prediction is needed.
CELLS = 512
_SPAN = 14.0

#: Range of double precision here: beyond the first epsilon - s^2/2 loses its digits, below the second the
#: survival function of chi_p underflows.
LARGEST_EPSILON = 1e6
SMALLEST_DELTA = 1e-300

# scipy's survival function and density are accurate to about 1e-12 relative; rounding the hazard down,
# and the survival function and the sum up, by far more than that leaves every term an upper bound.
_ROUNDING = 1e-9
# Below this the survival function may underflow; it is then replaced by this upper bound.
_TINY = 1e-306


def gaussian_delta(ratio: ArrayLike, epsilon: ArrayLike, n_parameters: int, cells: int = CELLS) -> Array:
    """Upper bound on ``E[(1 - exp(epsilon - s chi_p - s^2/2))_+]`` (Theorem 2), elementwise.

    ``ratio`` is ``s = zeta_c V / sigma`` > 0, ``epsilon`` what the Jacobian leaves of the budget (any
    sign). With ``c = epsilon/s - s/2`` and S the survival function of chi_p the expectation is
    ``1 - exp(-s (x_0 - c)) + int_{x_0} s exp(-s (x - c)) S(x) dx`` with ``x_0 = max(c, 0)``. S is
    log-concave because the density of chi_p is, so on a cell from x_k on the tangent
    ``S(x_k) exp(-hazard(x_k) (x - x_k))`` lies above S, and its integral has a closed form. The last cell
    is infinite: nothing is cut off. The result is an upper bound on every grid.
    """
    s = np.asarray(ratio, dtype=np.float64)[..., None]
    with np.errstate(over="ignore", under="ignore"):
        # Lowering epsilon or c only raises the expectation. The caps keep squares finite and the rounding
        # error of the difference, at most 1e-16 s where c is near 0, far below _ROUNDING.
        left = np.minimum(np.asarray(epsilon, dtype=np.float64)[..., None], LARGEST_EPSILON)
        c = np.minimum(left / s - s / 2.0, 1e150)
        nodes, widths = _grid(np.maximum(c, 0.0), n_parameters, cells)
        survival, hazard = _survival_and_hazard(nodes, n_parameters)
        rate = s + hazard
        cell = s / rate * survival * np.exp(-s * (nodes - c)) * -np.expm1(-rate * widths)
        atom = -np.expm1(-s * (nodes[..., :1] - c))
        total = (atom[..., 0] + cell.sum(axis=-1)) * (1.0 + _ROUNDING)
    result: Array = np.minimum(total, 1.0)
    return result


def private_ratio(epsilon: ArrayLike, n_parameters: int, delta: float, cells: int = CELLS) -> Array:
    """A ratio ``s`` whose :func:`gaussian_delta` at ``epsilon`` > 0 was evaluated as at most ``delta``.

    Bisection to about 1e-6 relative, elementwise (:func:`private_end`).
    """
    eps = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))

    def private(s: Array) -> NDArray[np.bool_]:
        return gaussian_delta(s, eps, n_parameters, cells) <= delta

    # Gaussian concentration, P(chi_p >= sqrt(p) + u) <= exp(-u^2/2), makes this start private up to rounding.
    u = math.sqrt(n_parameters) + math.sqrt(-2.0 * math.log(delta))
    found = private_end(2.0 * eps / (u + np.sqrt(u * u + 2.0 * eps)), private)
    return np.asarray(found.reshape(np.shape(epsilon)), dtype=np.float64)


def private_end(low: Array, private: Callable[[Array], NDArray[np.bool_]]) -> Array:
    """The private end of a bracket of 1e-6 relative around where ``private`` ends, from a start near it.

    Safe whether or not what decides is monotone: every ratio returned was itself found private.
    """
    while not (inside := private(low)).all():
        low = np.where(inside, low, low / 2.0)
    high = 2.0 * low
    while (inside := private(high)).any():
        low = np.where(inside, high, low)
        high = np.where(inside, 2.0 * high, high)
    for _ in range(21):
        middle = np.sqrt(low) * np.sqrt(high)
        inside = private(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def _grid(start: Array, n_parameters: int, cells: int) -> tuple[Array, Array]:
    """One cell up to where chi_p begins to matter, ``cells`` equal ones, and an infinite one."""
    body = np.maximum(start, math.sqrt(n_parameters) - 6.0)
    nodes = np.concatenate([start, body + np.linspace(0.0, _SPAN, cells + 1)], axis=-1)
    widths = np.append(np.diff(nodes), np.full_like(start, np.inf), axis=-1)
    return nodes, widths


def _survival_and_hazard(x: Array, p: int) -> tuple[Array, Array]:
    half_square = 0.5 * x * x
    survival = special.gammaincc(p / 2.0, half_square)
    log_constant = (p / 2.0 - 1.0) * math.log(2.0) + math.lgamma(p / 2.0)
    density = np.exp(special.xlogy(p - 1.0, x) - half_square - log_constant)
    known = survival > _TINY
    hazard = np.where(known, density / np.where(known, survival, 1.0), 0.0) * (1.0 - _ROUNDING)
    return np.minimum(survival * (1.0 + _ROUNDING), 1.0) + _TINY, hazard
