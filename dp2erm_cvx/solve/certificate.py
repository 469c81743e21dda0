"""One judge for every solution: a bound on its distance to the exact minimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP, ROUND_UP_SUMS, UNIT, Array
from dp2erm_cvx.model.composite import Composite, LocalError, PointClaim
from dp2erm_cvx.model.sets import ConvexSet, WholeSpace
from dp2erm_cvx.program.stage import Instance
from dp2erm_cvx.solve.gap import anchored, rounded_norm


@dataclass(frozen=True, repr=False)
class Certificate:
    """Proven bounds on the error of one point, whatever solver computed it. It is private.

    Parameters
    ----------
    radius
        Bound on the distance to the exact minimizer, in the model's own variable: lambda or theta.
    output_radius
        Bound on ``||w_hat - w||_1`` or ``||theta_hat - theta||_2``.
    relative_radius
        The output radius over n, or over the norm of theta (a gradient step from 0, if longer).
    basis
        "prox-gradient residual", "multiplier residual" (the dual of weights that are the variable),
        "duality gap" (Theorem 40), "backward error" (constraints of the imbalance), or "none" or
        "not computed", where nothing is proved.
    strong_convexity
        The declared coefficient m, or the curvature proved around the point; for a duality gap c/2
        of Theorem 40, the mean of both sides of the proof, which can be below m.
    dual_residual
        Norm of the prox-gradient residual; for a duality gap, of r of Theorem 40, which
        stationarity leaves at the judge's own point; for weights in their dual, the distance of
        the point to the judge's own weights in the 1-norm.
    backward_error
        Under constraints of the imbalance, where the radii are infinite: weights within this part
        of n solve exactly a problem whose targets and sums are off by as much. It says nothing of
        the distance to the minimizer. None elsewhere.
    """

    radius: float
    output_radius: float
    relative_radius: float
    basis: str
    strong_convexity: float
    dual_residual: float = math.nan
    backward_error: float | None = None

    def __repr__(self) -> str:
        return f"Certificate({self.basis}; private)"

    def certifies(self, tolerance: float) -> bool:
        """True if the relative radius, or the backward error for it, is within ``tolerance``."""
        return self.proved <= tolerance

    @property
    def proved(self) -> float:
        """What is compared with a relative tolerance: the radius, or the backward error."""
        return self.relative_radius if self.backward_error is None else self.backward_error


def certify(instance: Instance, point: Array, tolerance: float = 1e-9) -> Certificate:
    """Judge a point (d,) of the instance.

    By a subgradient of the objective near it; a program without a prox-friendly form by the duality
    gap of the judge's own solve.

    Parameters
    ----------
    instance
        A program on its data.
    point
        The point (d,). The radius of what is no number is infinite.
    tolerance
        An output radius well below it, relative to the scale of the output, is not sharpened any
        further.

    Returns
    -------
    Certificate

    Raises
    ------
    CertificateError
        Where nothing can be proved about the declared problem, whatever the data are.
    """
    if not np.all(np.isfinite(point)):
        return Certificate(math.inf, math.inf, math.inf, "not computed", instance.strong_convexity)
    if instance.model is None:
        return _by_gap(instance, point)
    claim = instance.model.claimed(point)
    if claim is not None:
        return _by_model(instance.model, claim)
    return _by_subgradient(instance.model, point, tolerance)


def _by_subgradient(model: Composite, point: Array, tolerance: float) -> Certificate:
    """What a residual near a subgradient proves, which stands for a point near the given one."""
    model.prepare(point)
    near = _subgradient(model, point)
    norm = rounded_norm(near.residual)
    distance, strong_convexity = _distance(model, near.point, norm + near.rounding)
    if model.self_concordance == 0.0:
        error = np.abs(near.residual) + near.prox_error
        for evaluated in near.evaluated:
            error = error + model.rounding_by_coordinate(evaluated)
        distance = min(distance, _scaled_distance(model, near.point, error))
    step = 0.0
    if len(near.evaluated) > 1:
        # the bounds are about the exact point, of which a prox is the rounded value
        step = rounded_norm(point - near.point) + near.misplaced
    radius = (step + distance) * ROUND_UP
    output_radius = model.output_radius(point, radius)
    scale = model.output_scale(point)
    if not output_radius <= _SHARP * tolerance * scale:
        local = _local_error(model, near.point, near.residual, near.rounding, distance, step)
        output_radius = model.output_radius(point, radius, local)
    return Certificate(
        float(radius),
        float(output_radius),
        float(output_radius) / scale,
        "prox-gradient residual",
        strong_convexity,
        norm,
    )


#: What is this part of a tolerance is not worth a pass over the records.
_SHARP = 1e-2
#: Curvatures that steps are divided by are at least this, so that a flat model has a step.
_LEAST_CURVATURE = 1e-300
#: Largest dimension of a diagonal scaling: beyond, eigenvalues would cost more than the solve.
_MOST_SCALED = 512


class _Subgradient(NamedTuple):
    """A residual that is near a subgradient at a point near the given one.

    Parameters
    ----------
    point
        The point (d,).
    residual
        The residual (d,).
    rounding
        Bound on the distance of the residual to a subgradient.
    evaluated
        The points of the gradients that it is made of.
    prox_error
        What the prox adds to the rounding.
    misplaced
        Bound on the distance of the point to that of the subgradient.
    """

    point: Array
    residual: Array
    rounding: float
    evaluated: tuple[Array, ...]
    prox_error: float = 0.0
    misplaced: float = 0.0


def _subgradient(model: Composite, point: Array) -> _Subgradient:
    """The gradient at a point that feels no penalty, else what a prox-gradient step leaves.

    A step from x of any length 1/L to x+ leaves ``r = L (x - x+) + grad f(x+) - grad f(x)`` in the
    subdifferential at x+. L is the local curvature, which keeps its rounding small.
    """
    gradient = model.gradient(point)
    if _interior(model, point, gradient):
        return _Subgradient(point, gradient, model.rounding(point), (point,))
    L = max(model.spectrum(point)[1], _LEAST_CURVATURE)
    forward = model.penalty.prox(point - gradient / L, 1 / L)
    model.prepare(forward)
    residual = L * (point - forward) + model.gradient(forward) - gradient
    # the prox and the difference point - forward round at the size of the point and of the step
    # taken
    size = float(np.linalg.norm(point)) + float(np.linalg.norm(gradient)) / L
    prox_error = model.penalty.set.rounding(model.dimension) * UNIT * L * size
    rounding = model.rounding(point) + model.rounding(forward) + prox_error
    return _Subgradient(forward, residual, rounding, (point, forward), prox_error, prox_error / L)


def _interior(model: Composite, point: Array, gradient: Array) -> bool:
    """True if no penalty is felt at the point nor by a step from it.

    The gradient is then a subgradient.
    """
    penalty = model.penalty
    if penalty.priced or penalty.l1 or not isinstance(penalty.set, ConvexSet):
        return False
    if penalty.set == WholeSpace():
        return True
    if not penalty.set.is_inside(point):
        return False
    return penalty.set.holds(point - gradient / model.smoothness)


def _distance(model: Composite, point: Array, residual: float) -> tuple[float, float]:
    """Bound on the distance to the minimizer, and the curvature that it rests on.

    By the declared ridge ``residual / m``, or by self-concordance:
    ``h (1 - exp(-c t)) / c <= residual`` for a step of length t, h the smallest eigenvalue at the
    point.
    """
    declared = residual / model.ridge if model.ridge > 0 else math.inf
    if math.isinf(model.self_concordance):
        return _distance_by_pieces(model, point, residual, declared)
    lowest, _ = model.spectrum(point)
    local = math.inf
    c = model.self_concordance
    if lowest > 0:
        # first, because the logarithm amplifies its rounding
        ratio = c * residual / lowest * ROUND_UP
        if c == 0.0:
            local = residual / lowest
        elif ratio < 1:
            local = -math.log1p(-ratio) / c
    return (declared, model.ridge) if declared <= local else (local, lowest)


def _distance_by_pieces(
    model: Composite, point: Array, residual: float, declared: float
) -> tuple[float, float]:
    """Bound on the distance to the minimizer where the Hessian jumps, by balls of trial radii.

    For a trial radius t let h be a lower bound of the eigenvalues on the ball of radius t around
    the point. If ``residual / h < t``, then ``residual / h`` bounds the distance.

    Returns
    -------
    tuple
        The bound, or the ``declared`` one where that is smaller, and the curvature that it rests
        on.
    """
    best = (declared, model.ridge)
    scale = 1.0 + float(np.linalg.norm(point))
    for t in (1e-9 * scale, 1e-6 * scale, 1e-3 * scale):
        lowest = model.lowest_within(point, t)
        if lowest > 0 and residual * ROUND_UP < lowest * t and residual / lowest < best[0]:
            best = (residual / lowest * ROUND_UP, lowest)
    return best


def _scaled_distance(model: Composite, point: Array, error: Array) -> float:
    """Bound for a quadratic from a subgradient within ``error`` (d,) of 0, by diagonal scaling.

    A nearly flat coordinate, as of an arm without records, does not pay for the rounding of the
    others.
    """
    if model.dimension > _MOST_SCALED:
        return math.inf
    H = model.hessian(point)
    diagonal = np.sqrt(np.maximum(np.diag(H), 0.0))
    least = float(np.min(diagonal))
    if not least > 0:
        return math.inf
    eigenvalues = np.linalg.eigvalsh(H / np.outer(diagonal, diagonal))
    rounding = 64 * model.dimension * UNIT * float(eigenvalues[-1])
    error_of_H = model.hessian_rounding(point) / least**2
    lowest = float(eigenvalues[0]) - rounding - error_of_H
    if not lowest > 0:
        return math.inf
    length = rounded_norm(error / diagonal) / lowest
    return length / least * ROUND_UP_SUMS


def _local_error(
    model: Composite, point: Array, residual: Array, rounding: float, distance: float, step: float
) -> LocalError | None:
    """Radius in the metric of the Hessian H at ``point``.

    On the way a Hessian is at least ``exp(-c distance) H``.
    """
    exponent = model.self_concordance * distance
    if exponent == 0.0 or not exponent <= 10.0:
        return None
    eigenvalues, vectors = np.linalg.eigh(model.hessian(point))
    error_of_H = model.hessian_rounding(point)
    eigenvalues = eigenvalues - 64 * model.dimension * UNIT * eigenvalues[-1] - error_of_H
    if not eigenvalues[0] > 0:
        return None
    inverse_root = vectors / np.sqrt(eigenvalues)
    size = rounded_norm(residual @ inverse_root) + rounding / math.sqrt(eigenvalues[0])
    return LocalError(inverse_root, size * math.exp(exponent) * ROUND_UP_SUMS, step)


def _by_model(model: Composite, claim: PointClaim) -> Certificate:
    """What a model proves by itself, over its dimension."""
    basis = "multiplier residual" if claim.found else "none"
    if claim.backward is not None:
        basis = "backward error"
    relative = claim.one / model.dimension
    return Certificate(
        claim.two, claim.one, relative, basis, model.ridge, claim.residual, claim.backward
    )


def _by_gap(instance: Instance, point: Array) -> Certificate:
    """Theorem 40: the distance of the point to the judge's own, and what is proved about that."""
    assert instance.kinked is not None
    smooth = instance.composite
    anchor = anchored(instance.kinked())
    if anchor is None:
        return Certificate(math.inf, math.inf, math.inf, "duality gap", instance.strong_convexity)
    with np.errstate(over="ignore"):
        radius = (rounded_norm(point - anchor.point) + anchor.radius) * ROUND_UP
        output_radius = smooth.output_radius(point, radius)
        relative = output_radius / smooth.output_scale(point)
    if not math.isfinite(relative):
        relative = math.inf
    return Certificate(
        radius, output_radius, relative, "duality gap", anchor.strong_convexity, anchor.residual
    )
