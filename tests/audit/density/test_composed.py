"""Audits of complete releases: output perturbation, and private first stages with what follows them."""

import math

import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, stability
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.problems.arm_means import plug_in_ate
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.inverse_probability_tilting import tilting_private
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.overlap import overlap_private
from dp2erm_cvx.program import WholeSpace
from dp2erm_cvx.solve import solve
from tests.audit.pairs import aligned, heavy, lone, neighbors

N = 6
DOMAIN = Domain(1.0, 1.0)
MEAN = plug_in_ate(WholeSpace())
KINDS = (neighbors, aligned, lone, heavy)


def release(first, second=MEAN, epsilon=1.0, delta=0.0, **settings):
    return PrivateTwoStageERM(DOMAIN, Budget(epsilon, delta), first, second, **settings)


def effects(data):
    return 2 * (2 * data[1] - 1) * data[2]


@pytest.mark.parametrize(
    ("first", "kind"),
    zip((Uniform(), ipw_logistic(), EntropyBalancing(), ipw_logistic()), KINDS, strict=True),
    ids=lambda one: getattr(one, "name", ""),
)
def test_loss_of_a_mean_is_its_shift_over_the_scale(first, kind):
    pair = kind(np.random.default_rng(3), N)
    model = release(first, calibration="output")
    means = [
        solve(first.instance(DOMAIN.records(*data)), tolerance=1e-6).value @ effects(data) / N
        for data in pair
    ]
    result = audit_density(model, *pair, starts=1)
    expected = abs(means[0] - means[1]) / model.plan(N, 2).main.calibration.scale
    assert result.loss == pytest.approx(expected, abs=2e-6)
    assert result.theta_loss == result.loss <= result.epsilon <= 1.0
    assert result.numerical_error < 1e-6
    assert list(result.outputs) == ["theta"]


LINE = ipw_private(share=0.4, ridge=0.05, trim=2.5, radius=math.inf)
OVERLAP = overlap_private(share=0.5, ridge=0.05, radius=2.0)
TILTING = tilting_private(share=0.5, ridge=0.05, radius=0.8, constant=0.5)


def signed(data, lam):
    X, a, _ = data
    z = (2 * a - 1)[:, None] * X
    p = special.expit(-(z @ lam))
    return z, p, -z.T @ p, (z.T * (p * (1 - p))) @ z


def overlap(data, lam):
    """Gradient, Hessian and unnormalized weights at lam (d,), without ridge."""
    _, p, gradient, hessian = signed(data, lam)
    return gradient, hessian, p


def trimmed(data, lam):
    z, _, gradient, hessian = signed(data, lam)
    return gradient, hessian, np.minimum(1 + np.exp(-z @ lam), LINE.trim)


def tilting(data, lam):
    X, a, _ = data
    g = np.column_stack([np.full(len(X), TILTING.constant), X])
    own = np.array([np.kron([1 - arm, arm], row) for arm, row in zip(a, g, strict=True)])
    other = np.array([np.kron([arm, 1 - arm], row) for arm, row in zip(a, g, strict=True)])
    tilt = np.exp(-own @ lam)
    return other.sum(axis=0) - own.T @ tilt, (own.T * tilt) @ own, 1 + tilt


SCHEMES = {"line": (LINE, trimmed), "overlap": (OVERLAP, overlap), "tilting": (TILTING, tilting)}


def log_density(scheme, data, plan, lam, theta):
    """Of (coefficient, theta) inside the ball, less a constant common to all data."""
    first, terms = SCHEMES[scheme]
    gradient, hessian, f = terms(data, lam)
    noise, n = plan.step("propensity").calibration, len(data[1])
    m = n * (first.ridge + noise.gamma)
    b = -gradient - m * lam
    volume = np.linalg.slogdet(hessian + m * np.eye(len(lam)))[1]
    pull = n * (2 * (theta - f / f.sum() @ effects(data)) + plan.main.calibration.gamma * theta)
    return volume - np.linalg.norm(b) / noise.scale - abs(pull) / plan.main.calibration.scale


@pytest.mark.parametrize("scheme", ["overlap", "tilting"])
def test_the_joint_law_is_that_of_the_formula(scheme):
    rng = np.random.default_rng(4)
    first, _ = SCHEMES[scheme]
    model = release(first)
    plan = model.plan(N, 2)
    size = plan.step("propensity").calibration.n_parameters
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
            result = one.log_density(place) - other.log_density(place)
            expected = [log_density(scheme, data, plan, lam, theta) for data in pair]
            assert result == pytest.approx(expected[0] - expected[1], abs=1e-8)


@pytest.mark.parametrize("kind", [neighbors, heavy])
def test_the_joint_loss_is_that_of_the_closed_form(kind):
    pair = kind(np.random.default_rng(2), N, 1)
    model = release(LINE)
    plan = model.plan(N, 1)
    result = audit_density(model, *pair, starts=1)

    def loss(lam, theta):
        one, other = (log_density("line", data, plan, np.array([lam]), theta) for data in pair)
        return one - other

    side = 1 if result.direction == "first over second" else -1
    assert result.loss == pytest.approx(
        side * loss(*result.outputs["propensity"], *result.outputs["theta"]), abs=1e-8
    )
    grid = [t for k in range(-3, 3) for t in (10.0**k, -(10.0**k), 3 * 10.0**k, -3 * 10.0**k)]
    assert max(abs(loss(lam, theta)) for lam in grid for theta in grid) <= result.loss + 1e-6
    assert result.loss <= result.epsilon <= 1.0
    assert result.theta_loss == -math.inf
    assert not result.exceeds
    assert not result.theta_exceeds


def test_the_joint_density_integrates_to_one():
    pair = neighbors(np.random.default_rng(5), N, 1)
    model = release(LINE)
    plan, (law, _) = audited_laws(model, pair)
    axes = [np.linspace(-12 * unit, 10 * unit, 79) for unit in law.units]
    total = sum(
        math.exp(law.log_density(law.place(np.array([lam, theta])))) for lam in axes[0] for theta in axes[1]
    )
    total *= math.prod(axis[1] - axis[0] for axis in axes)
    assert total == pytest.approx(
        4 * plan.step("propensity").calibration.scale * plan.main.calibration.scale, rel=0.02
    )


def test_the_joint_law_nearly_spends_the_budget():
    result = audit_density(release(LINE), *heavy(np.random.default_rng(0), 4, 1), starts=1)
    assert 0.7 < result.loss <= result.epsilon


def test_gaussian_noise_in_either_stage_is_sampled():
    pair = heavy(np.random.default_rng(0), N, 1)
    for settings in ({"noise": "gaussian"}, {"calibration": "renyi"}):
        result = audit_density(release(LINE, delta=0.05, **settings), *pair, draws=100)
        assert result.hockey_stick.low <= result.delta <= 0.05
        assert not result.exceeds
        assert len(result.outputs["propensity"]) == 1


class ThirdOfTheDiameter(overlap_private):
    name, _made = "third_of_the_diameter", True

    def gradient_diameter(self, domain):
        return super().gradient_diameter(domain) / 3


class LinearTermForgotten(tilting_private):
    """Of exp(-<b, lam>) alone, at 0: the linear term and the ball are left out."""

    name, _made = "linear_term_forgotten", True

    def gradient_diameter(self, domain):
        return self.row_bound(domain)


class WeightsTakenForConstants(overlap_private):
    name, _made = "weights_taken_for_constants", True

    def bound(self, universe):
        return stability.fixed_up_to_scale(universe.n_samples, 1.0, "planted")


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
def test_planted_bugs_exceed_epsilon_and_the_same_pair_keeps_it_without_them(name):
    first, kind = BUGS[name]
    pair = kind(np.random.default_rng(8), 5, 2)
    result = audit_density(release(first), *pair, starts=1)
    assert result.exceeds, result
    scheme, fields = (overlap_private, ("share", "ridge", "radius"))
    if isinstance(first, tilting_private):
        scheme, fields = tilting_private, (*fields, "constant")
    right = release(scheme(**{field: getattr(first, field) for field in fields}))
    kept = audit_density(right, *pair, starts=1)
    assert kept.loss <= kept.epsilon <= 1.0
    assert len(kept.outputs["propensity"]) == (2 if scheme is overlap_private else 6)
