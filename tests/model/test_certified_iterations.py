"""The stated number of iterations suffices: projected gradient by itself, on any data."""

import math
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.model.composite import Composite, Penalty
from dp2erm_cvx.program.curves import SQUARE
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.registry import first_stages
from dp2erm_cvx.solve import ProjectedGradient, newton, solve
from tests.every_program import edge_records
from tests.model.test_certified_radius import ROBUST, SQUARED, draws


def iteration_bound(L: float, m: float, distance: float, radius: float) -> int:
    """Iterations after which projected gradient is within ``radius``, as the page on solving says."""
    if distance <= radius:
        return 2
    gain = -math.log1p(-math.sqrt(m / L)) if m < L else math.inf
    return 2 * (2 + math.ceil((math.log(2 * L / m) + 2 * math.log(distance / radius)) / gain * (1 + 1e-12)))


def distance_to(model: Composite, minimizer: Any) -> float:
    return float(np.linalg.norm(model.start() - minimizer))


@pytest.mark.parametrize("names", [SQUARED, ROBUST], ids=["squared", "robust"])
@pytest.mark.parametrize("share", [1e-1, 1e-4, 1e-8])
def test_the_iterations_needed_never_exceed_the_bound(share, names):
    """Random and adversarial second stages and perturbed propensities, to a share of the first distance."""
    tried = 0
    for instance, _ in draws(seed=21, count=20, smallest=1e-3, names=names):
        model = instance.model
        assert model is not None
        found = solve(instance, solver="first_certified", tolerance=1e-10, throw=False)
        distance = distance_to(model, found.point) + found.certificate.radius
        if model.ridge <= 0 or found.certificate.radius > 1e-3 * share * distance:
            continue
        smoothness = max(model.smoothness, model.ridge)
        iterations = iteration_bound(smoothness, model.ridge, distance, share * distance)
        reached, steps = newton.minimize_by_gradient(model, model.start(), iterations)
        assert steps <= iterations
        left = float(np.linalg.norm(reached - found.point)) + found.certificate.radius
        # what rounding leaves is far below the shares tried here
        assert left <= share * distance * (1 + 2e-3)
        tried += 1
    assert tried >= 10


def steep(condition: float) -> MarginModel:
    """A quadratic in 40 dimensions whose curvatures spread over ``condition`` on a logarithmic scale."""
    curvature = np.geomspace(1.0, condition, 40) - 1.0
    X = np.diag(np.sqrt(curvature / 2))
    return MarginModel(MarginRows(X, np.ones(40)), SQUARE, 1.0, Penalty(), linear=np.ones(40))


@pytest.mark.parametrize("condition", [1e2, 1e4])
def test_constant_momentum_alone_obeys_its_half_of_the_bound(condition):
    """Without the restarts, which could hide a wrong momentum; plain gradient steps would not do."""
    model = steep(condition)
    minimizer = newton.minimize_by_newton(model, model.start())[0]
    distance = distance_to(model, minimizer)
    bound = iteration_bound(model.smoothness, model.ridge, distance, 1e-6 * distance)
    first = newton._gradient_step(model, model.start())
    root = math.sqrt(model.smoothness / model.ridge)
    momentum = (root - 1) / (root + 1)
    reached, _ = newton.accelerated(model, first, bound // 2 - 1, momentum)
    assert np.linalg.norm(reached - minimizer) <= 1e-6 * distance
    early, _ = newton.accelerated(model, first, bound // 8, momentum)
    assert np.linalg.norm(early - minimizer) > 1e-6 * distance
    plain = first
    for _ in range(bound // 2 - 1):
        plain = newton._gradient_step(model, plain)
    if condition > 1e2:
        assert np.linalg.norm(plain - minimizer) > 1e-6 * distance


@pytest.mark.parametrize(
    "name", sorted(set(first_stages()) - {"ipw_known", "entropy_balancing_hard", "stable_balancing_hard"})
)
def test_a_few_hundred_gradients_certify_every_first_stage_with_a_ridge(name):
    program = first_stages()[name]()
    for records in edge_records().values():
        instance = program.instance(records)
        assert instance.model.smoothness <= 30 * instance.model.ridge
        found = solve(instance, solver=ProjectedGradient(300), tolerance=1e-6, polish=False, throw=False)
        assert found.certified
