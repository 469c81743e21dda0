"""Accelerated prox-gradient descent: with restarts, then with the momentum whose iterations are bounded."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve.newton import NewtonResult

#: A move below this share of the point is rounding.
_STILL = 4e-16


def iteration_bound(smoothness: float, strong_convexity: float, distance: float, radius: float) -> int:
    """Iterations after which projected gradient is within ``radius`` of the minimizer, whatever the data.

    ``smoothness`` L and ``strong_convexity`` 0 < m <= L of f; ``distance`` bounds that of the start to the
    minimizer. One prox-gradient step from the start has ``F - F* <= L/2 distance^2``. From there the constant
    momentum gives ``m/2 ||x_k - x*||^2 <= F(x_k) - F* <= (1 - sqrt(m/L))^k (F(x_0) - F* + m/2 ||x_0 - x*||^2)
    <= (1 - sqrt(m/L))^k L distance^2`` (Beck, First-Order Methods in Optimization, Theorem 10.42). So ``2 L
    distance^2 / m (1 - sqrt(m/L))^k <= radius^2`` suffices. The method with restarts has as many, without
    such a bound. The bound is for exact arithmetic: rounding keeps any method from a radius below what
    :meth:`~dp2erm_cvx.program.SecondStage.certified_radius` allows for.

    Raises DeclarationError for an invalid argument.
    """
    m = public_number("strong_convexity", strong_convexity, above=0)
    L = public_number("smoothness", smoothness, above=0)
    if L < m:
        raise DeclarationError(f"smoothness = {L:g}: must be at least strong_convexity = {m:g}")
    start = public_number("distance", distance, at_least=0)
    wanted = public_number("radius", radius, above=0)
    if start <= wanted:
        return 2
    gain = -math.log1p(-math.sqrt(m / L)) if m < L else math.inf
    needed = math.log(2 * L / m) + 2 * math.log(start / wanted)
    return 2 * (2 + math.ceil(needed / gain * (1 + 1e-12)))


def minimize_by_gradient(model: Composite, start: Array, max_iterations: int) -> NewtonResult:
    """Minimize f + h from ``start`` (d,) in at most ``max_iterations`` gradients.

    FISTA with restarts takes all of them, or half where the model has a ridge. Unless it stood still, the
    rest go to constant momentum from the better of its point and the start: see :func:`iteration_bound`.
    """
    first = model.penalty.set.project(start)
    share = max_iterations // 2 if model.ridge > 0 else max_iterations
    found = _with_restarts(model, first, share)
    if found.iterations < share or model.ridge <= 0:
        return found
    first = _step(model, first)
    begin = found.point if _objective(model, found.point) <= _objective(model, first) else first
    rest = _with_constant_momentum(model, begin, max_iterations - found.iterations - 1)
    return NewtonResult(rest.point, found.iterations + 1 + rest.iterations)


def _with_restarts(model: Composite, v: Array, max_iterations: int) -> NewtonResult:
    """FISTA from ``v``, restarted whenever the momentum points uphill (O'Donoghue & Candes 2015)."""
    look, momentum = v, 1.0
    for iterations in range(1, max_iterations + 1):
        new = _step(model, look)
        if float((look - new) @ (new - v)) > 0:
            momentum, look = 1.0, v
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        move = float(np.linalg.norm(new - look))
        look = new + (momentum - 1) / following * (new - v)
        v, momentum = new, following
        if move <= _STILL * float(np.linalg.norm(v)):
            return NewtonResult(v, iterations)
    return NewtonResult(v, max_iterations)


def _with_constant_momentum(model: Composite, v: Array, max_iterations: int) -> NewtonResult:
    """V-FISTA from ``v`` (Beck, First-Order Methods in Optimization, 10.7.7)."""
    root = math.sqrt(max(model.smoothness / model.ridge, 1.0))
    share = (root - 1) / (root + 1)
    look = v
    for iterations in range(1, max_iterations + 1):
        new = _step(model, look)
        move = float(np.linalg.norm(new - look))
        look, v = new + share * (new - v), new
        if move <= _STILL * float(np.linalg.norm(v)):
            return NewtonResult(v, iterations)
    return NewtonResult(v, max_iterations)


def _step(model: Composite, v: Array) -> Array:
    step = 1 / model.smoothness
    return model.penalty.prox(v - step * model.gradient(v), step)


def _objective(model: Composite, v: Array) -> float:
    return model.value(v) + model.penalty.value(v)
