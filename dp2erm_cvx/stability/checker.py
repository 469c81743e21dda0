"""Checkers of the constants that a new scheme, kernel or second stage is declared with.

They search the public domain and can refute a constant; they never prove one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.stability.search import Region, Report, Search

Array = NDArray[np.float64]

#: Step of central differences, and the relative errors allowed with and without them.
_STEP, _DIFFERENCES, _ROUNDING = 1e-5, 1e-5, 1e-9


@dataclass(frozen=True)
class SeparableScheme:
    """A separable scheme: functions of a coefficient (k,) and a record.

    Attributes
    ----------
    grad_psi : gradient of the loss, (k,)
    h : log weight, a number
    grad_h : its gradient, (k,); without one central differences of h stand in for it
    clipped : whether h is clipped, so that the zero vector counts among its gradients
    """

    grad_psi: Callable[[Array, Array], Array]
    h: Callable[[Array, Array], float]
    grad_h: Callable[[Array, Array], Array] | None = None
    clipped: bool = False


def check_separable(
    records: Region,
    coefficients: Region,
    scheme: SeparableScheme,
    declared: Mapping[str, float],
    *,
    evaluations: int = 2000,
    seed: int = 0,
) -> Report:
    """Search for violations of what :func:`~dp2erm_cvx.stability.separable` is declared with (Theorem 3).

    ``coefficients`` is the ball of radius r. ``declared`` names the constants to check: those of
    :class:`~dp2erm_cvx.stability.SeparableConstants` but the radius, ``loss_lipschitz``,
    ``log_weight_lipschitz`` and ``gradient_at_zero``. That psi is convex is checked always (``convexity``,
    declared as 0). Raises DeclarationError for an invalid number and for another name.
    """
    grad_psi, h, grad_h = scheme.grad_psi, scheme.h, scheme.grad_h
    search = Search(evaluations, seed)
    slack = _DIFFERENCES if grad_h is None else _ROUNDING
    slope = grad_h or (lambda lam, record: _differences(lambda at: h(at, record), lam, coefficients.scale))
    pairs, one = (coefficients, records, records), (coefficients, records)

    def spread(gradient: Callable[[Array, Array], Array]) -> Callable[..., float]:
        return lambda lam, first, second: _norm(gradient(lam, first) - gradient(lam, second))

    def h_spread(lam: Array, first: Array, second: Array) -> float:
        left, right = slope(lam, first), slope(lam, second)
        apart = _norm(left - right)
        return max(apart, _norm(left), _norm(right)) if scheme.clipped else apart

    def bend(lam: Array, other: Array, record: Array) -> float:
        first, second = grad_psi(lam, record), grad_psi(other, record)
        size = (_norm(first) + _norm(second)) * _norm(lam - other)
        return -float((first - second) @ (lam - other)) / size if size > 0.0 else 0.0

    def at_zero(record: Array) -> float:
        return _norm(grad_psi(np.zeros(coefficients.dimension), record))

    facts: dict[str, tuple[Callable[..., float], tuple[Region, ...], float]] = {
        "gradient_diameter": (spread(grad_psi), pairs, _ROUNDING),
        "log_weight_diameter": (h_spread, pairs, slack),
        "log_weight_range": (lambda lam, d, e: h(lam, d) - h(lam, e), pairs, _ROUNDING),
        "loss_lipschitz": (lambda lam, d: _norm(grad_psi(lam, d)), one, _ROUNDING),
        "log_weight_lipschitz": (lambda lam, d: _norm(slope(lam, d)), one, slack),
        "gradient_at_zero": (at_zero, (records,), _ROUNDING),
    }
    for name in declared:
        if name not in facts:
            raise DeclarationError(f"declared: unknown constant {name!r}; known: {', '.join(facts)}")
    search.add("convexity", 0.0, bend, (coefficients, coefficients, records))
    for name, (fact, regions, allowed) in facts.items():
        if name in declared:
            search.add(name, declared[name], fact, regions, allowed)
    return search.report()


def check_kernel(
    covariates: Region,
    kernel: Callable[[Array, Array], float],
    kernel_bound: float,
    *,
    signed: bool = False,
    evaluations: int = 2000,
    seed: int = 0,
) -> Report:
    """Search for violations of the constants of Theorems 5 and 6: ``0 <= K <= C``, or ``|K| <= C`` if signed.

    Findings: ``kernel_bound``, the largest of ``|K|``; ``sign`` (declared as 0), the largest of ``-K`` unless
    signed; ``positive_definiteness`` (declared as 0), minus the smallest eigenvalue of Gram matrices of four
    points over the largest one. Raises DeclarationError for an invalid number.
    """
    search = Search(evaluations, seed)

    def indefinite(*points: Array) -> float:
        gram = np.array([[kernel(x, z) for z in points] for x in points])
        asymmetry = float(np.max(np.abs(gram - gram.T)))
        value = np.linalg.eigvalsh((gram + gram.T) / 2.0)
        return max(asymmetry, -float(value[0])) / max(float(np.max(np.abs(value))), 1e-300)

    search.add("kernel_bound", kernel_bound, lambda x, z: abs(kernel(x, z)), (covariates, covariates))
    if not signed:
        search.add("sign", 0.0, lambda x, z: -kernel(x, z) / kernel_bound, (covariates, covariates))
    search.add("positive_definiteness", 0.0, indefinite, (covariates,) * 4)
    return search.report()


def check_second_stage(
    records: Region,
    parameters: Region,
    gradient: Callable[[Array, Array], Array],
    declared: LossConstants,
    *,
    hessian_trace: Callable[[Array, Array], float] | None = None,
    evaluations: int = 2000,
    seed: int = 0,
) -> Report:
    """Search for violations of the loss constants that Theorems 1, 2, 15 and 19 consume.

    ``gradient(theta, record)`` is (p,), over ``parameters``, which is Theta; without ``hessian_trace`` the
    divergence of the gradient by central differences stands in for it. Findings: ``gradient_radius`` (half
    the distance of two gradients at one theta), ``hessian_trace``, and, where declared, ``gradient_bound``,
    ``theta_bound`` and the slope of a ``box`` in its norm. Of a ``saturation``: the full slope, what the
    curvature has beyond its shape, above 1, and in a ball the sum that Theorem 19 bounds, as part of it.
    Raises DeclarationError for an invalid number.
    """
    search = Search(evaluations, seed)

    def divergence(theta: Array, record: Array) -> float:
        total = 0.0
        for k, step in enumerate(_steps(theta, parameters.scale)):
            total += (gradient(theta + step, record) - gradient(theta - step, record))[k] / (2.0 * step[k])
        return float(total)

    search.add(
        "gradient_radius",
        declared.gradient_radius,
        lambda theta, d, e: 0.5 * _norm(gradient(theta, d) - gradient(theta, e)),
        (parameters, records, records),
    )
    slack = _DIFFERENCES if hessian_trace is None else _ROUNDING
    trace = hessian_trace or divergence
    search.add("hessian_trace", declared.hessian_trace, trace, (parameters, records), slack)
    if declared.gradient_bound is not None:
        search.add(
            "gradient_bound",
            declared.gradient_bound,
            lambda theta, d: _norm(gradient(theta, d)),
            (parameters, records),
        )
    if declared.box is not None:
        widths = np.array(declared.box.widths)
        search.add(
            "box",
            declared.box.slope,
            lambda theta, d: float(np.max(np.abs(gradient(theta, d)) / widths)),
            (parameters, records),
        )
    found = declared.saturation
    if found is not None:
        full, steep = found.slope * found.row_norm, found.curvature * found.row_norm**2

        def beyond(theta: Array, record: Array) -> float:
            # a slope, any larger one included, whose curvature covers that of the record
            used = min(_norm(gradient(theta, record)) / full, 1.0)
            return 1.0 + trace(theta, record) / steep - found.shape.beyond(used)

        search.add("saturation", 1.0, beyond, (parameters, records), slack)
        search.add("full slope", full, lambda theta, d: _norm(gradient(theta, d)), (parameters, records))
    if found is not None and math.isfinite(found.ball):
        share = 0.1
        a = found.steepest(1.0, share) / full

        def together(theta: Array, record: Array, other: Array) -> float:
            apart = _norm(gradient(theta, record) - gradient(theta, other))
            return a * apart + share * trace(theta, record) / steep

        search.add("ball", 1.0, together, (parameters, records, records), slack)
    if declared.theta_bound is not None:
        search.add("theta_bound", declared.theta_bound, _norm, (parameters,))
    return search.report()


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))


def _steps(point: Array, scale: float | Array) -> Array:
    return np.diag(np.broadcast_to(_STEP * np.asarray(scale, dtype=np.float64), point.shape))


def _differences(function: Callable[[Array], float], point: Array, scale: float | Array) -> Array:
    steps = _steps(point, scale)
    return np.array([(function(point + e) - function(point - e)) / (2.0 * e.sum()) for e in steps])
