"""Semismooth Newton on the forward-backward envelope, and accelerated prox-gradient descent."""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import lstsq

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import FLOOR, FLOOR_RELATIVE, Composite

_DECREASE = 1e-4
#: A residual of this part of its rounding is left alone.
_NOISE = 0.1


def minimize_by_newton(model: Composite, start: Array, max_iterations: int = 100) -> tuple[Array, int]:
    """Minimize f + h from ``start`` (d,) until rounding stops the progress: the best point, and Hessians.

    Newton's method on the fixed-point residual ``v - prox(v - step grad f(v))``. A step is taken where it
    halves the least residual met so far (the last one would not do: it and the envelope may undo each other
    for ever); otherwise the forward-backward envelope decides (Themelis, Stella & Patrinos 2018), whose
    search ends in a plain prox-gradient step, so the iteration converges from any start. Whether the point is
    good enough is for the certificate to say.
    """
    step = 0.95 / model.smoothness
    state = _State(model, model.penalty.prox(start, step), step)
    best, stalled, iterations = state, 0, 0
    while iterations < max_iterations and state.residual > 0.0 and stalled < 3:
        iterations += 1
        state = _search(model, state, _direction(model, state, step), step, 0.5 * best.residual)
        stalled = 0 if state.residual < 0.5 * best.residual else stalled + int(_at_floor(model, best))
        if state.residual < best.residual:
            best = state
        if best.residual <= _NOISE * model.rounding(best.v):
            break  # what is left is noise, which can be halved for long
    # a prox has the zeros of the minimizer; inside a set the gradient at v is what a certificate needs
    sparse = model.penalty.priced or model.penalty.l1
    return (best.forward if sparse else best.v), iterations


class _State:
    """A point v, its prox-gradient image ``forward`` and the envelope, computed once each."""

    def __init__(self, model: Composite, v: Array, step: float) -> None:
        self.v = v
        model.look(v)
        self.gradient = model.gradient(v)
        self.trial = v - step * self.gradient
        self.forward = model.penalty.prox(self.trial, step)
        move = self.forward - v
        self.residual = float(np.linalg.norm(move)) / step
        smooth = model.value(v) + float(self.gradient @ move) + float(move @ move) / (2 * step)
        self.envelope = smooth + model.penalty.value(self.forward)


def _direction(model: Composite, state: _State, step: float) -> Array:
    move = state.forward - state.v
    known = model.newton_direction(state.trial, move, step)
    if known is not None:
        return known
    P = model.penalty.jacobian(state.trial, step)
    identity = np.eye(model.dimension)
    jacobian = identity - P @ (identity - step * model.hessian(state.v))
    if model.ridge > 0:
        try:
            return np.asarray(np.linalg.solve(jacobian, move), dtype=np.float64)
        except np.linalg.LinAlgError:
            pass  # singular to working precision
    # least squares, because without a ridge the Hessian may be singular
    solution: Array = lstsq(jacobian, move, lapack_driver="gelsy", cond=1e-15)[0]
    return solution


def _search(model: Composite, state: _State, direction: Array, step: float, enough: float) -> _State:
    move = state.forward - state.v
    share = 1.0
    for _ in range(12):
        # projecting brings a step no farther from the minimizer, and a step that leaves the set far behind,
        # as along a flat direction toward a bound, then lands on the bound
        reached = model.penalty.set.project(state.v + share * direction + (1 - share) * move)
        candidate = _State(model, reached, step)
        if candidate.residual <= enough:
            return candidate
        if candidate.envelope <= state.envelope - _DECREASE * step * state.residual**2:
            return candidate
        share *= 0.5
    return _State(model, state.forward, step)


def _at_floor(model: Composite, state: _State) -> bool:
    """True if the residual is within reach of the rounding error of the gradient."""
    size = model.smoothness * float(np.linalg.norm(state.v))
    return state.residual <= FLOOR * model.rounding(state.v) + FLOOR_RELATIVE * size


#: A move below this share of the point is rounding.
_STILL = 4e-16


def minimize_by_gradient(model: Composite, start: Array, max_iterations: int) -> tuple[Array, int]:
    """Minimize f + h from ``start`` (d,) in at most ``max_iterations`` gradients: a point, and how many.

    FISTA with restarts takes all of them, or half where the model has a ridge m. Unless it stood still, the
    rest go to constant momentum from the better of its point and the start. One prox-gradient step from a
    start at distance d of the minimizer has ``F - F* <= L/2 d^2``; from there ``m/2 ||x_k - x*||^2 <= (1 -
    sqrt(m/L))^k L d^2`` (Beck, First-Order Methods in Optimization, Theorem 10.42).
    """
    first = model.penalty.set.project(start)
    share = max_iterations // 2 if model.ridge > 0 else max_iterations
    point, iterations = accelerated(model, first, share)
    if iterations < share or model.ridge <= 0:
        return point, iterations
    first = _gradient_step(model, first)
    begin = point if _objective(model, point) <= _objective(model, first) else first
    root = math.sqrt(max(model.smoothness / model.ridge, 1.0))
    left = max_iterations - iterations - 1
    point, more = accelerated(model, begin, left, (root - 1) / (root + 1))
    return point, iterations + 1 + more


def accelerated(
    model: Composite, v: Array, max_iterations: int, momentum: float | None = None
) -> tuple[Array, int]:
    """FISTA from ``v``, restarted whenever the momentum points uphill (O'Donoghue & Candes 2015).

    With a constant ``momentum`` instead, which is never restarted (Beck, section 10.7.7).
    """
    look, age = v, 1.0
    for iterations in range(1, max_iterations + 1):
        new = _gradient_step(model, look)
        if momentum is None and float((look - new) @ (new - v)) > 0:
            age, look = 1.0, v
            continue
        older = (1 + np.sqrt(1 + 4 * age**2)) / 2
        move = float(np.linalg.norm(new - look))
        look = new + ((age - 1) / older if momentum is None else momentum) * (new - v)
        v, age = new, older
        if move <= _STILL * float(np.linalg.norm(v)):
            return v, iterations
    return v, max_iterations


def _gradient_step(model: Composite, v: Array) -> Array:
    step = 1 / model.smoothness
    return model.penalty.prox(v - step * model.gradient(v), step)


def _objective(model: Composite, v: Array) -> float:
    return model.value(v) + model.penalty.value(v)
