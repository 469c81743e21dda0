"""Gradient of V in the replaced record, through the optimality conditions of the first stage."""

from __future__ import annotations

import dataclasses

import numpy as np

from dp2erm_cvx.audit.stability.groups import clipped, records_at
from dp2erm_cvx.audit.stability.neighbors import Base, Replacement
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program.composite import Composite
from dp2erm_cvx.solve import solve

_STEP = 1e-5


def variation_gradient(base: Base, change: Replacement) -> tuple[float, Array] | None:
    """V of the neighbor and its gradient (d,) in the covariates of the changed record, from one solve.

    With F(v, x) = v - prox(v - s grad f(v; x)), the exact minimizer moves by ``dv = -(dF/dv)^-1 dF/dx``; how
    grad f and the weights depend on x itself is taken by central differences, which need no solve. None where
    the neighbor lies outside of the universe or the program has no prox-friendly form.
    """
    pair = base.pair(change)
    if pair is None:
        return None
    try:
        instance = base.program.instance(pair.second)
    except InfeasibleError:
        return None
    model = instance.model
    if model is None:
        return None
    solution = solve(instance, throw=False)
    j, w = change.index, solution.value
    gap = w - base.weights
    signs = np.sign(gap)
    signs[j] = 1.0
    value = float(np.sum(np.abs(np.delete(gap, j))) + w[j] + base.weights[j])
    size = _STEP * base.universe.domain.features_bound
    gradient = np.zeros(len(change.covariates))
    for k in range(len(gradient)):
        ends = [_model(base, change, k, sign * size) for sign in (1.0, -1.0)]
        cross = (ends[0].gradient(solution.point) - ends[1].gradient(solution.point)) / (2 * size)
        moved = size * _moved(model, solution.point, cross)
        output = ends[0].output(solution.point + moved) - ends[1].output(solution.point - moved)
        gradient[k] = float(signs @ output) / (2 * size)
    return value, gradient


def _moved(model: Composite, v: Array, cross: Array) -> Array:
    """``dv`` per unit of x, given the derivative ``cross`` (d,) of grad f in x."""
    step = 0.95 / model.smoothness
    P = model.penalty.jacobian(v - step * model.gradient(v), step)
    identity = np.eye(model.dimension)
    jacobian = identity - P @ (identity - step * model.hessian(v))
    return np.asarray(np.linalg.lstsq(jacobian, -step * (P @ cross), rcond=None)[0], dtype=np.float64)


def _model(base: Base, change: Replacement, axis: int, by: float) -> Composite:
    X, a = base.records.covariates.copy(), base.records.a.copy()
    X[change.index], a[change.index] = change.covariates, change.arm
    X[change.index, axis] += by
    model = base.program.instance(records_at(base.universe, X, a)).model
    assert model is not None
    return model


def ascend(base: Base, start: Replacement, solves: int) -> tuple[Replacement, int]:
    """Projected gradient ascent on V over the ball: the end, and the solves it took, at most ``solves``."""
    change = dataclasses.replace(start, covariates=clipped(base.universe, start.covariates), origin="ascent")
    found = variation_gradient(base, change)
    spent, length = 1, 0.5 * base.universe.domain.features_bound
    while found is not None and spent < solves and length > 1e-4 * base.universe.domain.features_bound:
        norm = float(np.linalg.norm(found[1]))
        if norm == 0.0:
            break
        point = clipped(base.universe, change.covariates + length * found[1] / norm)
        trial = dataclasses.replace(change, covariates=point)
        reached = variation_gradient(base, trial)
        spent += 1
        if reached is not None and reached[0] > found[0]:
            change, found, length = trial, reached, 1.5 * length
        else:
            length *= 0.4
    return change, spent
