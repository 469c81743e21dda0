"""Search a public domain for the largest value of something that a stated constant bounds.

A search can refute a constant of a kernel or a second stage and never proves one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.public import public_number, whole_number

Array = NDArray[np.float64]

#: Step of central differences, and the relative errors allowed with and without them.
_STEP, _DIFFERENCES, _ROUNDING = 1e-5, 1e-5, 1e-9
#: A found value exceeds a declared one only beyond rounding.
_SLACK = 1e-9
#: Largest excess over 0 that rounding may cause where the constant is 0.
_ZERO = 1e-7


@dataclass(frozen=True)
class Region:
    """A public set in ``R^dimension``: every point is searched for through its ``project``.

    ``project`` maps any vector (d,) to a point of the set, e.g. by clipping; ``scale`` is the size of
    the set per coordinate; ``vertices`` are points (d,) tried first.
    """

    dimension: int
    project: Callable[[Array], Array]
    scale: float | Array = 1.0
    vertices: tuple[Array, ...] = ()

    def draw(self, rng: np.random.Generator) -> Array:
        """A vertex, or a random point that the projection often puts on the boundary."""
        if self.vertices and rng.random() < 0.4:
            return self.project(self.vertices[rng.integers(len(self.vertices))])
        return self.project(self.scale * rng.normal(size=self.dimension) * 10.0 ** rng.uniform(-1.0, 0.7))

    def near(self, point: Array, rng: np.random.Generator) -> Array:
        """A point moved on some coordinates, by steps of all sizes."""
        moved = self.scale * rng.normal(size=self.dimension) * 10.0 ** rng.uniform(-4.0, 0.3)
        return self.project(point + moved * (rng.random(self.dimension) < (0.3, 1.0)[rng.integers(2)]))


def ball(dimension: int, radius: float) -> Region:
    """The Euclidean ball of ``radius`` > 0 around 0, with the ends of its axes. Raises DeclarationError."""
    size = whole_number("dimension", dimension, at_least=1)
    R = public_number("radius", radius, above=0.0)
    return Region(size, lambda point: _clipped(point, R), R / math.sqrt(size), tuple(_axes(size, R)))


def record_domain(n_covariates: int, covariate_bound: float, outcome_bound: float | None = None) -> Region:
    """Records ``(x_1, ..., x_p, a)`` or, with an outcome bound, ``(x_1, ..., x_p, a, y)``.

    ``||x|| <= covariate_bound`` > 0, a in {0, 1}, ``|y| <= outcome_bound`` > 0. Raises DeclarationError.
    """
    p = whole_number("n_covariates", n_covariates, at_least=1)
    M = public_number("covariate_bound", covariate_bound, above=0.0)
    size = 0.0 if outcome_bound is None else public_number("outcome_bound", outcome_bound, above=0.0)

    def project(record: Array) -> Array:
        found = np.clip(record, -size, size)
        found[:p], found[p] = _clipped(record[:p], M), record[p] > 0.5
        return found

    ends: list[list[float]] = [[]] if outcome_bound is None else [[-size], [size]]
    corners = [np.concatenate([x, [a], y]) for x in _axes(p, M) for a in (0.0, 1.0) for y in ends]
    spread = [*np.full(p, M / math.sqrt(p)), 1.0] + ([] if outcome_bound is None else [size])
    return Region(len(spread), project, np.array(spread), tuple(corners))


@dataclass(frozen=True)
class Finding:
    """The largest value ``found`` of what one ``constant`` bounds, and the ``points`` where it was found."""

    constant: str
    declared: float
    found: float
    points: tuple[Array, ...]
    slack: float = _SLACK

    @property
    def ratio(self) -> float:
        """``found / declared``; a value above 1 refutes the constant."""
        if self.declared > 0.0:
            return self.found / self.declared
        return math.inf if self.found > _ZERO else 0.0

    @property
    def violated(self) -> bool:
        """Whether the declared constant is refuted, beyond rounding."""
        return self.ratio > 1.0 + self.slack


def largest(
    constant: str,
    declared: float,
    value: Callable[..., float],
    regions: Sequence[Region],
    *,
    evaluations: int = 2000,
    seed: int = 0,
    slack: float = _SLACK,
) -> Finding:
    """The largest ``value(*points)`` met, one point per region, against a declared bound on it.

    Vertices, random points, then local ascent from the best. ``slack`` is the relative error of ``value``.
    Raises DeclarationError for an invalid number, and where a value is none.
    """
    limit = public_number(constant, declared, at_least=0.0, infinite=True)
    evaluations = whole_number("evaluations", evaluations, at_least=10)
    rng = np.random.default_rng(seed)
    kept: list[tuple[float, tuple[Array, ...]]] = []
    for step in range(evaluations):
        if step < evaluations // 3 or rng.random() < 0.05:
            points = tuple(region.draw(rng) for region in regions)
        else:
            start = kept[int(rng.integers(len(kept)))][1]
            chosen = rng.random(len(regions)) < (0.5, 1.0)[rng.integers(2)]
            points = tuple(
                region.near(point, rng) if move else point
                for region, point, move in zip(regions, start, chosen, strict=True)
            )
        reached = float(value(*points))
        if math.isnan(reached):
            raise DeclarationError(f"{constant}: the function given is not a number somewhere")
        if len(kept) < 5 or reached > kept[-1][0]:
            kept = sorted([*kept, (reached, points)], key=lambda pair: -pair[0])[:5]
    return Finding(constant, limit, *kept[0], slack)


def check_kernel(
    covariates: Region,
    kernel: Callable[[Array, Array], float],
    kernel_bound: float,
    *,
    signed: bool = False,
    evaluations: int = 2000,
    seed: int = 0,
) -> list[Finding]:
    """Search for violations of the constants of Theorems 5 and 6: ``0 <= K <= C``, or ``|K| <= C`` if signed.

    Findings: ``kernel_bound``, the largest of ``|K|``; ``sign`` (declared as 0), the largest of ``-K`` unless
    signed; ``positive_definiteness`` (declared as 0), minus the smallest eigenvalue of Gram matrices of four
    points over the largest one. Raises DeclarationError for an invalid number.
    """

    def indefinite(*points: Array) -> float:
        gram = np.array([[kernel(x, z) for z in points] for x in points])
        asymmetry = float(np.max(np.abs(gram - gram.T)))
        value = np.linalg.eigvalsh((gram + gram.T) / 2.0)
        return max(asymmetry, -float(value[0])) / max(float(np.max(np.abs(value))), 1e-300)

    search = partial(largest, evaluations=evaluations, seed=seed)
    findings = [search("kernel_bound", kernel_bound, lambda x, z: abs(kernel(x, z)), (covariates,) * 2)]
    if not signed:
        findings.append(search("sign", 0.0, lambda x, z: -kernel(x, z) / kernel_bound, (covariates,) * 2))
    return [*findings, search("positive_definiteness", 0.0, indefinite, (covariates,) * 4)]


def check_second_stage(
    records: Region,
    parameters: Region,
    gradient: Callable[[Array, Array], Array],
    declared: LossConstants,
    *,
    hessian_trace: Callable[[Array, Array], float] | None = None,
    evaluations: int = 2000,
    seed: int = 0,
) -> list[Finding]:
    """Search for violations of the loss constants that Theorems 1, 2, 15 and 19 consume.

    ``gradient(theta, record)`` is (p,), over ``parameters``, which is Theta; without ``hessian_trace`` the
    divergence of the gradient by central differences stands in for it. Findings: ``gradient_radius`` (half
    the distance of two gradients at one theta), ``hessian_trace``, and, where declared, ``gradient_bound``,
    ``theta_bound`` and the slope of a ``box`` in its norm. Of a ``saturation``: the sums of slope and
    curvature that Theorem 15, and in a ball Theorem 19, bound, as parts of their bounds.
    Raises DeclarationError for an invalid number.
    """
    search = partial(largest, evaluations=evaluations, seed=seed)
    one, two = (parameters, records), (parameters, records, records)

    def divergence(theta: Array, record: Array) -> float:
        total = 0.0
        for k, step in enumerate(np.diag(np.broadcast_to(_STEP * np.asarray(parameters.scale), theta.shape))):
            total += (gradient(theta + step, record) - gradient(theta - step, record))[k] / (2.0 * step[k])
        return float(total)

    def apart(theta: Array, record: Array, other: Array) -> float:
        return _norm(gradient(theta, record) - gradient(theta, other))

    slack = _DIFFERENCES if hessian_trace is None else _ROUNDING
    trace = hessian_trace or divergence
    findings = [
        search("gradient_radius", declared.gradient_radius, lambda *at: 0.5 * apart(*at), two),
        search("hessian_trace", declared.hessian_trace, trace, one, slack=slack),
    ]
    if declared.gradient_bound is not None:
        bound = declared.gradient_bound
        findings.append(search("gradient_bound", bound, lambda theta, d: _norm(gradient(theta, d)), one))
    if declared.box is not None:
        widths = np.array(declared.box.widths)

        def slope(theta: Array, record: Array) -> float:
            return float(np.max(np.abs(gradient(theta, record)) / widths))

        findings.append(search("box", declared.box.slope, slope, one))
    saturation = declared.saturation
    if saturation is not None:
        full, steep = saturation.slope * saturation.row_norm, saturation.curvature * saturation.row_norm**2
        anywhere = dataclasses.replace(saturation, ball=math.inf)
        # a u + h of a record alone: where full slope is the worst, between, and curvature alone
        steepness = saturation.steepness
        sums = {a: anywhere.largest(a, 1.0) - a for a in (steepness, 0.5 * steepness, 0.0)}

        def beyond(theta: Array, record: Array) -> float:
            used, bent = _norm(gradient(theta, record)) / full, trace(theta, record) / steep
            return max((a * used + bent) / most for a, most in sums.items())

        findings.append(search("saturation", 1.0, beyond, one, slack=slack))
        if math.isfinite(saturation.ball):
            share = 0.1
            a = saturation.steepest(1.0, share) / full

            def together(theta: Array, record: Array, other: Array) -> float:
                return a * apart(theta, record, other) + share * trace(theta, record) / steep

            findings.append(search("ball", 1.0, together, two, slack=slack))
    if declared.theta_bound is not None:
        findings.append(search("theta_bound", declared.theta_bound, _norm, (parameters,)))
    return findings


def _norm(vector: Array) -> float:
    return float(np.linalg.norm(vector))


def _clipped(point: Array, radius: float) -> Array:
    norm = math.sqrt(point @ point)
    return point if norm <= radius else point * (radius / norm * (1.0 - 1e-15))


def _axes(dimension: int, radius: float) -> list[Array]:
    return [sign * radius * row for row in np.eye(dimension) for sign in (1.0, -1.0)]
