"""Accelerated prox-gradient descent with function-free restarts."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.program.composite import Composite
from dp2erm_cvx.solve.newton import NewtonResult


def minimize(model: Composite, start: Array, max_iterations: int) -> NewtonResult:
    """FISTA from ``start`` (d,), restarted whenever the momentum points uphill (O'Donoghue & Candes 2015)."""
    step = 1 / model.smoothness
    v = look = model.penalty.prox(start, step)
    momentum = 1.0
    iterations = 0
    while iterations < max_iterations:
        iterations += 1
        gradient = model.gradient(look)
        new = model.penalty.prox(look - step * gradient, step)
        if float((look - new) @ (new - v)) > 0:
            momentum, look = 1.0, v
            continue
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        move = float(np.linalg.norm(new - look))
        look = new + (momentum - 1) / following * (new - v)
        v, momentum = new, following
        if move <= 4e-16 * float(np.linalg.norm(v)):
            break
    return NewtonResult(v, iterations)
