"""One judge for every solution: a bound on its distance to the exact minimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.conic import conic_gap


@dataclass(frozen=True, repr=False)
class Certificate:
    """What was proved about one point, without asking the solver that found it.

    Its numbers depend on the records, so they are private where the data are, and the repr holds none.

    Attributes
    ----------
    primal_residual : distance of the point to the feasible set
    dual_residual : norm of the prox-gradient residual, in units of the declared gradient
    duality_gap : Fenchel gap, or None where the quadratic part is 0 (the dual point is then not unique)
    rounding : floating-point error allowed for in the residual
    strong_convexity : the declared coefficient, or the curvature proved around the point if larger
    radius : bound on the distance of the point to the exact minimizer (of lambda or theta)
    output_radius : bound on the error of the output: ``||w_hat - w||_1``, or ``||theta_hat - theta||_2``
    relative_radius : output_radius over n, or over the norm of theta (a gradient step from 0, if longer)
    basis : "prox-gradient residual" or "duality gap"
    """

    primal_residual: float
    dual_residual: float
    duality_gap: float | None
    rounding: float
    strong_convexity: float
    radius: float
    output_radius: float
    relative_radius: float
    basis: str

    def __repr__(self) -> str:
        return f"Certificate({self.basis}; private)"

    def certifies(self, tolerance: float) -> bool:
        """Whether the relative radius is at most ``tolerance``."""
        return self.relative_radius <= tolerance


def certify(instance: Instance, point: Array) -> Certificate:
    """Judge a point (d,) of the instance.

    One prox-gradient step x+ from the point of length 1/L leaves ``r = L (x - x+) + grad f(x+) - grad
    f(x)``, an element of the subdifferential at x+; strong monotonicity then bounds ``||x+ - x*||`` by
    ``||r|| / mu``. A program without a prox-friendly form is judged by a duality gap, which loses
    half of the digits.
    """
    if instance.model is None:
        return _by_gap(instance, point)
    model = instance.model
    gradient = model.gradient(point)
    if model.penalty == Penalty():
        forward, residual, prox_error, evaluated = point, gradient, 0.0, [point]
        prox_distance = 0.0
    else:
        # any step gives a subgradient at the prox point; the local curvature keeps its rounding small
        curvature = max(model.spectrum(point)[1], 1e-300)
        forward = model.penalty.prox(point - gradient / curvature, 1 / curvature)
        residual = curvature * (point - forward) + model.gradient(forward) - gradient
        # the prox and the difference point - forward round at the size of the point and of the step taken
        size = float(np.linalg.norm(point)) + float(np.linalg.norm(gradient)) / curvature
        prox_error = model.penalty.set.rounding(model.dimension) * UNIT * curvature * size
        prox_distance = prox_error / curvature
        evaluated = [point, forward]
    rounding = sum(model.rounding(v) for v in evaluated) + prox_error
    norm = _norm(residual)
    distance, strong_convexity = _distance(model, forward, norm + rounding)
    if model.self_concordance == 0.0:
        by_coordinate = sum(
            (model.rounding_by_coordinate(v) for v in evaluated), np.abs(residual) + prox_error
        )
        distance = min(distance, _scaled_distance(model, forward, by_coordinate))
    # the bounds are about the exact prox point, of which ``forward`` is the rounded value
    step = _norm(point - forward) + prox_distance
    radius = (step + distance) * (1 + 1e-12)
    local = _local_error(model, forward, residual, rounding, distance, step)
    inside = model.penalty.set.project(point)
    output_radius = model.output_radius(point, radius, local)
    return Certificate(
        primal_residual=float(np.linalg.norm(point - inside)),
        dual_residual=norm,
        duality_gap=_fenchel_gap(model, inside),
        rounding=float(rounding),
        strong_convexity=strong_convexity,
        radius=float(radius),
        output_radius=float(output_radius),
        relative_radius=float(output_radius) / model.output_scale(point),
        basis="prox-gradient residual",
    )


def _norm(v: Array) -> float:
    """Norm of ``v`` (d,), rounded up: the relative term covers some 10^4 roundings, the other underflow."""
    return float(np.linalg.norm(v)) * (1 + 1e-12) + 1e-150 * math.sqrt(len(v))


def _distance(model: Composite, point: Array, residual: float) -> tuple[float, float]:
    """Bound on the distance to the minimizer from a subgradient of norm ``residual`` at ``point``.

    Either the declared ridge m gives ``residual / m``, or self-concordance does: along a step of length t the
    Hessian falls at most by ``exp(-c t)``, hence ``h (1 - exp(-c t)) / c <= residual`` with h the
    smallest eigenvalue at the point.
    """
    declared = residual / model.ridge if model.ridge > 0 else math.inf
    if math.isinf(model.self_concordance):
        return _distance_by_pieces(model, point, residual, declared)
    lowest, _ = model.spectrum(point)
    local, c = math.inf, model.self_concordance
    if lowest > 0:
        ratio = c * residual / lowest * (1 + 1e-12)  # first, because the logarithm amplifies its rounding
        if c == 0.0:
            local = residual / lowest
        elif ratio < 1:
            local = -math.log1p(-ratio) / c
    return (declared, model.ridge) if declared <= local else (local, lowest)


def _distance_by_pieces(
    model: Composite, point: Array, residual: float, declared: float
) -> tuple[float, float]:
    """The same where the Hessian jumps, from its lower bound h on a ball of radius t around the point.

    If ``residual < h t``, the minimizer over the ball lies inside it and is therefore the minimizer:
    ``||x - x*|| <= residual / h``.
    """
    best = (declared, model.ridge)
    scale = 1.0 + float(np.linalg.norm(point))
    for t in (1e-9 * scale, 1e-6 * scale, 1e-3 * scale):
        lowest = model.lowest_within(point, t)
        if lowest > 0 and residual * (1 + 1e-12) < lowest * t and residual / lowest < best[0]:
            best = (residual / lowest * (1 + 1e-12), lowest)
    return best


def _scaled_distance(model: Composite, point: Array, error: Array) -> float:
    """Bound for a quadratic from a subgradient within ``error`` (d,) of 0, coordinate by coordinate.

    With D the square root of the diagonal of the Hessian H and k the smallest eigenvalue of
    ``D^-1 H D^-1``: ``k ||D e||^2 <= e'He <= <error, |e|> <= ||D^-1 error|| ||D e||``. A nearly flat
    coordinate then does not pay for the rounding of the others, as it does in an arm without records.
    """
    if model.dimension > 512:
        return math.inf  # the eigenvalues would cost more than the solve
    H = model.hessian(point)
    diagonal = np.sqrt(np.maximum(np.diag(H), 0.0))
    if np.min(diagonal) <= 0:
        return math.inf
    eigenvalues = np.linalg.eigvalsh(H / np.outer(diagonal, diagonal))
    error_of_H = model.hessian_rounding(point) / float(np.min(diagonal)) ** 2
    lowest = float(eigenvalues[0]) - 64 * model.dimension * UNIT * float(eigenvalues[-1]) - error_of_H
    if lowest <= 0:
        return math.inf
    length = _norm(error / diagonal) / lowest
    return length / float(np.min(diagonal)) * (1 + 1e-9)


def _local_error(
    model: Composite, point: Array, residual: Array, rounding: float, distance: float, step: float
) -> LocalError | None:
    """The same bound in the metric of the Hessian H at ``point``, within ``distance`` of the minimizer.

    On the way there the Hessian stays above ``q H``, ``q = exp(-c distance)``, so that the error e obeys
    ``q e'He <= <r, e> <= ||r||_{H^-1} (e'He)^(1/2)``.
    """
    exponent = model.self_concordance * distance
    if exponent == 0.0 or not exponent <= 10.0:
        return None
    eigenvalues, vectors = np.linalg.eigh(model.hessian(point))
    error_of_H = model.hessian_rounding(point)
    eigenvalues = eigenvalues - 64 * model.dimension * UNIT * eigenvalues[-1] - error_of_H
    if eigenvalues[0] <= 0:
        return None
    inverse_root = vectors / np.sqrt(eigenvalues)
    size = _norm(residual @ inverse_root) + rounding / math.sqrt(eigenvalues[0])
    return LocalError(inverse_root, size * math.exp(exponent) * (1 + 1e-9), step)


def _fenchel_gap(model: Composite, point: Array) -> float | None:
    """Gap between f0 + g at ``point`` and its Fenchel dual at ``-grad f0(point)``, g = h + m/2 ||.||^2."""
    m, penalty = model.ridge, model.penalty
    if m <= 0:
        return None
    slope = model.gradient(point) - m * point
    other = penalty.prox(-slope / m, 1 / m)
    gap = penalty.value(point) - penalty.value(other) + float(slope @ (point - other))
    gap += 0.5 * m * float((point - other) @ (point + other))
    return max(gap, 0.0)


def _by_gap(instance: Instance, point: Array) -> Certificate:
    assert instance.smooth is not None
    # outside Theta the objective may lie below the optimum, so the gap is measured at the projection
    inside = instance.smooth.penalty.set.project(point)
    violation = float(np.linalg.norm(point - inside))
    gap = conic_gap(instance, inside)
    m = instance.strong_convexity
    radius = math.sqrt(2 * gap / m) + violation if m > 0 else math.inf
    output_radius = instance.smooth.output_radius(point, radius)
    return Certificate(
        primal_residual=violation,
        dual_residual=math.nan,
        duality_gap=gap,
        rounding=0.0,
        strong_convexity=m,
        radius=radius,
        output_radius=output_radius,
        relative_radius=output_radius / instance.smooth.output_scale(point),
        basis="duality gap",
    )
