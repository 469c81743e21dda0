"""Whether the strong convexity that is credited against gamma is that of the regularizer alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.noise_terms import smooth_of
from dp2erm_cvx.conformance.perturbation import points_of
from dp2erm_cvx.conformance.samples import (
    N_FEATURES,
    check_universe,
    edge_records,
    one_record,
    standard_records,
)
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.program import Composite, PrivateFirstStage, SecondStage
from dp2erm_cvx.stability import record_domain

_STEP = 1e-4
#: Differences of gradients over such a step are good to about this much of the largest curvature.
_ROUNDING = 1e-6


def undeclared_curvature(program: SecondStage | PrivateFirstStage, domain: Domain, seed: int) -> str:
    """What is wrong about mu_R, or nothing.

    With gamma = 0 and all weight on one record the loss curves in few directions: what is left in the others
    is the regularizer's, and no more may be declared.
    """
    declared = program.loss_constants(check_universe(domain)).strong_convexity
    if declared == 0.0:
        return ""
    least = np.inf
    for n, model, points in _lonely_models(program, domain, seed):
        for theta in points:
            least = min(least, *(found / n for found in _curvatures(model, theta)))
            if not least >= declared * (1 - _ROUNDING) - _ROUNDING * model.smoothness / n:
                return (
                    f"strong_convexity (mu_R) is declared {declared:.4g}, and with gamma = 0 and all "
                    f"weight on one record the curvature is {max(least, 0.0):.4g}: the regularizer's "
                    "counts, not the loss's"
                )
    return ""


def _lonely_models(
    program: SecondStage | PrivateFirstStage, domain: Domain, seed: int
) -> Iterator[tuple[int, Composite, list[Array]]]:
    """Number of records, model, and points to try it at."""
    for records, weights in _lonely(domain, seed):
        if isinstance(program, SecondStage):
            model = smooth_of(program.instance(records, weights, gamma=0.0))
            yield records.n_samples, model, list(points_of(program, records, seed))
        elif records.n_samples == 1:  # a first stage weighs all records alike
            model = smooth_of(program.perturbed(records, 0.0, np.zeros(records.X.shape[1])))
            draws = np.random.default_rng([seed, 11]).normal(size=(4, model.dimension))
            scaled = zip((0.0, 0.1, 1.0, 10.0), draws, strict=True)
            yield 1, model, [model.penalty.set.project(size * draw) for size, draw in scaled]


def _lonely(domain: Domain, seed: int) -> Iterator[tuple[Records, Array]]:
    """Datasets with all weight on their first record."""
    region = record_domain(N_FEATURES, domain.features_bound, domain.outcome_bound)
    rng = np.random.default_rng([seed, 19])
    corners = [one_record(domain, region.project(corner)) for corner in region.vertices[::5]]
    drawn = [one_record(domain, region.draw(rng)) for _ in range(4)]
    for records in (*corners, *drawn, standard_records(6), edge_records()["duplicate rows"]):
        weights = np.zeros(records.n_samples)
        weights[0] = records.n_samples
        yield records, weights


def _curvatures(model: Composite, theta: Array) -> Iterator[float]:
    """Least eigenvalue of the Hessian, and the same by differences of the gradient along its directions."""
    values, directions = np.linalg.eigh(model.hessian(theta))
    yield float(values[0])
    for direction in directions.T:
        step = _STEP * direction
        change = model.gradient(theta + step) - model.gradient(theta - step)
        yield float(change @ direction) / (2 * _STEP)
