"""Exact densities of two private first stages: their law is the formula's, and planted bugs exceed it."""

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, stability
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.problems.arm_means import PlugInATE
from dp2erm_cvx.problems.inverse_probability_tilting import tilting_private
from dp2erm_cvx.problems.overlap import overlap_private
from dp2erm_cvx.program import WholeSpace
from tests.audit.pairs import aligned, heavy, lone, neighbors

N = 5
DOMAIN = Domain(1.0, 1.0)
KINDS = (neighbors, aligned, lone, heavy)
OVERLAP = overlap_private(share=0.5, ridge=0.05, radius=2.0)
TILTING = tilting_private(share=0.5, ridge=0.05, radius=0.8, constant=0.5)


def release(first, epsilon=1.0):
    return PrivateTwoStageERM(DOMAIN, Budget(epsilon), first, PlugInATE(WholeSpace()))


def overlap(data, lam):
    """Gradient, Hessian and unnormalized weights at lam (d,), without ridge."""
    X, a, _ = data
    z = (2 * a - 1)[:, None] * X
    s = z @ lam
    p = special.expit(-s)
    return -z.T @ p, (z.T * (p * (1 - p))) @ z, p


def tilting(data, lam):
    X, a, _ = data
    g = np.column_stack([np.full(len(X), TILTING.constant), X])
    own = np.array([np.kron([1 - arm, arm], row) for arm, row in zip(a, g, strict=True)])
    other = np.array([np.kron([arm, 1 - arm], row) for arm, row in zip(a, g, strict=True)])
    tilt = np.exp(-own @ lam)
    return other.sum(axis=0) - own.T @ tilt, (own.T * tilt) @ own, 1 + tilt


SCHEMES = {"overlap": (OVERLAP, overlap), "tilting": (TILTING, tilting)}


def log_density(scheme, data, plan, lam, theta):
    """Of (coefficient, theta) inside the ball, less a constant common to all data."""
    first, terms = SCHEMES[scheme]
    gradient, hessian, f = terms(data, lam)
    noise, theta_noise = plan.propensity.calibration, plan.theta.calibration
    m = N * (first.ridge + noise.gamma)
    b = -gradient - m * lam
    volume = np.linalg.slogdet(hessian + m * np.eye(len(lam)))[1]
    _, a, y = data
    mean = f / f.sum() @ (2 * (2 * a - 1) * y)
    pull = N * (2 * (theta - mean) + theta_noise.gamma * theta)
    return (
        volume
        - np.linalg.norm(b) / plan.propensity.calibration.scale
        - abs(pull) / plan.theta.calibration.scale
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_joint_law_is_that_of_the_formula(scheme):
    rng = np.random.default_rng(4)
    first, _ = SCHEMES[scheme]
    model = release(first)
    plan = model.plan(N, 2)
    size = plan.propensity.calibration.n_parameters
    assert size == (2 if scheme == "overlap" else 6)
    for kind in KINDS:
        pair = kind(rng, N, 2)
        _, (one, other) = audited_laws(model, pair)
        for _ in range(5):
            lam = rng.normal(size=size)
            lam *= rng.uniform(0, first.radius) / np.linalg.norm(lam)
            theta = rng.normal(scale=3.0)
            # inside the ball and over the whole line the coordinates are the outputs themselves
            place = one.place(np.append(lam, theta))
            found = one.log_density(place) - other.log_density(place)
            expected = [log_density(scheme, data, plan, lam, theta) for data in pair]
            assert found == pytest.approx(expected[0] - expected[1], abs=1e-8)


@pytest.mark.parametrize("kind", [lone, pytest.param(heavy, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_pair_loses_more_than_epsilon(scheme, kind):
    pair = kind(np.random.default_rng(6), N, 2)
    found = audit_density(release(SCHEMES[scheme][0]), *pair, starts=1)
    assert found.loss <= found.epsilon <= 1.0
    assert len(found.outputs["propensity"]) == (2 if scheme == "overlap" else 6)
    assert not found.exceeds


class ThirdOfTheDiameter(overlap_private):
    name = "third_of_the_diameter"

    def gradient_diameter(self, domain):
        return super().gradient_diameter(domain) / 3


class LinearTermForgotten(tilting_private):
    """Of exp(-<b, lam>) alone, at 0: the linear term and the ball are left out."""

    name = "linear_term_forgotten"

    def gradient_diameter(self, domain):
        return self.row_bound(domain)


class WeightsTakenForConstants(overlap_private):
    name = "weights_taken_for_constants"

    def bound(self, universe):
        return stability.given_coefficient(universe.n_samples, 1.0)


def opposite(rng, n, k):
    """All margins are 0 but those of the changed record, which turns and flips."""
    X, a, y = np.zeros((n, k)), np.zeros(n, dtype=int), np.zeros(n)
    other = X.copy(), a.copy(), y.copy()
    X[0, 0], other[0][0, 0] = 1.0, 1.0
    other[1][0] = 1
    return (X, a, y), other


BUGS = {
    "a third of the diameter": (ThirdOfTheDiameter(share=0.9, ridge=0.05, radius=2.0), opposite),
    "the linear term forgotten": (
        LinearTermForgotten(share=0.9, ridge=0.05, radius=0.8, constant=0.5),
        opposite,
    ),
    "weights taken for constants": (WeightsTakenForConstants(share=0.1, ridge=0.05, radius=2.0), heavy),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_exceed_epsilon(name):
    first, kind = BUGS[name]
    pair = kind(np.random.default_rng(8), N, 2)
    found = audit_density(release(first), *pair, starts=1)
    assert found.exceeds, found


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if kind is heavy else pytest.mark.slow) for name, (_, kind) in BUGS.items()],
)
def test_without_the_bug_the_same_pair_keeps_epsilon(name):
    first, kind = BUGS[name]
    pair = kind(np.random.default_rng(8), N, 2)
    right = next(one for one in (OVERLAP, TILTING) if isinstance(first, type(one)))
    settings = {field: getattr(first, field) for field in ("share", "ridge", "radius")}
    if right is TILTING:
        settings["constant"] = first.constant
    assert audit_density(release(type(right)(**settings)), *pair, starts=1).loss <= 1.0
