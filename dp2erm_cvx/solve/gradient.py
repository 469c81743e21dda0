"""Accelerated prox-gradient descent: with restarts, then with the momentum whose iterations are bounded."""

from __future__ import annotations

import math

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.solve.newton import NewtonResult

#: A move below this share of the point is rounding.
_STILL = 4e-16


def minimize_by_gradient(model: Composite, start: Array, max_iterations: int) -> NewtonResult:
    """Minimize f + h from ``start`` (d,) in at most ``max_iterations`` gradients.

    FISTA with restarts takes all of them, or half where the model has a ridge m. Unless it stood still, the
    rest go to constant momentum from the better of its point and the start. One prox-gradient step from a
    start at distance d of the minimizer has ``F - F* <= L/2 d^2``; from there ``m/2 ||x_k - x*||^2 <= (1 -
    sqrt(m/L))^k L d^2`` (Beck, First-Order Methods in Optimization, Theorem 10.42).
    """
    first = model.penalty.set.project(start)
    share = max_iterations // 2 if model.ridge > 0 else max_iterations
    found = accelerated(model, first, share)
    if found.iterations < share or model.ridge <= 0:
        return found
    first = _step(model, first)
    begin = found.point if _objective(model, found.point) <= _objective(model, first) else first
    root = math.sqrt(max(model.smoothness / model.ridge, 1.0))
    rest = accelerated(model, begin, max_iterations - found.iterations - 1, (root - 1) / (root + 1))
    return NewtonResult(rest.point, found.iterations + 1 + rest.iterations)


def accelerated(
    model: Composite, v: Array, max_iterations: int, momentum: float | None = None
) -> NewtonResult:
    """FISTA from ``v``, restarted whenever the momentum points uphill (O'Donoghue & Candes 2015).

    With a constant ``momentum`` instead, which is never restarted (Beck, section 10.7.7).
    """
    look, age = v, 1.0
    for iterations in range(1, max_iterations + 1):
        new = _step(model, look)
        if momentum is None and float((look - new) @ (new - v)) > 0:
            age, look = 1.0, v
            continue
        older = (1 + np.sqrt(1 + 4 * age**2)) / 2
        move = float(np.linalg.norm(new - look))
        look = new + ((age - 1) / older if momentum is None else momentum) * (new - v)
        v, age = new, older
        if move <= _STILL * float(np.linalg.norm(v)):
            return NewtonResult(v, iterations)
    return NewtonResult(v, max_iterations)


def _step(model: Composite, v: Array) -> Array:
    step = 1 / model.smoothness
    return model.penalty.prox(v - step * model.gradient(v), step)


def _objective(model: Composite, v: Array) -> float:
    return model.value(v) + model.penalty.value(v)
