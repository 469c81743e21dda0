"""Exact laws of complete releases: closed forms and formulas, written down once more."""

import math

import numpy as np
import pytest
from scipy import special, stats

from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.laws import ObjectiveLaw, Place
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.model.sets import ElasticNet, L2Ball
from dp2erm_cvx.problems.arm_means import arm_means, plug_in_ate
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.inverse_probability_tilting import tilting_private
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic, ipw_private
from dp2erm_cvx.problems.itr import itr, itr_huber, itr_logistic
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.overlap import overlap_private
from dp2erm_cvx.problems.regression import saturating_regression
from dp2erm_cvx.program import Box, L1Ball
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.execution import Execution
from tests.audit.bugs import DOMAIN, MEAN, release
from tests.audit.density.released import effect
from tests.audit.pairs import KINDS, aligned, drawn, heavy, neighbors
from tests.rows import one_of

N = 6
FIRST = (Uniform(), ipw_logistic(), entropy_balancing())
#: Second stages of weighted least squares.
SQUARED = (
    arm_means(),
    arm_means(L2Ball(1.0), ElasticNet(0.05, 0.1)),
    plug_in_ate(),
    itr(L2Ball(1.0)),
    itr(L1Ball(1.0), ElasticNet(0.1, 0.0)),
    itr(Box(0.7), ElasticNet(0.1, 0.1)),
)


def effects(data):
    return 2 * (2 * data[1] - 1) * data[2]


def weights_of(first, data):
    return solve(first.instance(DOMAIN.records(*data)), tolerance=1e-6).value


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize(
    "settings", [{"second": "plug_in_ate"}, {"second": MEAN, "calibration": "output"}]
)
@pytest.mark.parametrize("first", one_of(FIRST, 2), ids=lambda stage: stage.name)
def test_loss_of_a_mean_is_its_shift_over_the_scale(first, settings):
    model = release(first, **settings)
    for kind in (neighbors, aligned):
        pair = drawn(kind, N, seed=3)
        c, d = (weights_of(first, data) @ effects(data) for data in pair)
        # of the mean itself, or of its gradient: no other term of the objective differs
        shift = abs(c - d) / N if len(settings) > 1 else 2 * abs(c - d)
        result = audit_density(model, *pair, starts=1)
        assert result.loss == pytest.approx(
            shift / model.plan(N, 2).main.calibration.scale, abs=2e-6
        )
        assert result.theta_loss == pytest.approx(result.loss, abs=1e-8)
        assert result.loss <= result.epsilon <= 1.0
        assert result.numerical_error < 1e-6


@pytest.mark.parametrize("seed", range(2))
def test_loss_of_a_line_with_a_kink_is_that_at_the_breakpoints(seed):
    n, radius, l1 = 12, 0.8, 0.15
    model = release(second=itr(Box(radius), ElasticNet(l1, 0.0)))
    calibration = model.plan(n, 1).main.calibration
    pair = drawn(neighbors, n, 1, seed)
    lines = [
        (2 * X[:, 0] @ X[:, 0] + n * calibration.gamma, 2 * X[:, 0] @ effects((X, a, y)))
        for X, a, y in pair
    ]

    def loss(theta, v, curved):
        (one, other) = (
            curved * math.log(slope) - abs(slope * theta - c + v) / calibration.scale
            for slope, c in lines
        )
        return abs(one - other)

    # piecewise linear in theta inside, and in v at the kink and at the bounds
    breaks = [(c - side * n * l1) / slope for slope, c in lines for side in (-1, 1)]
    inside = [*breaks, radius, -radius, 1e-12, -1e-12]
    expected = [loss(t, math.copysign(n * l1, t), 1) for t in inside if 0 < abs(t) <= radius]
    for theta, ends in (
        (0.0, (-n * l1, n * l1)),
        (radius, (n * l1, 1e9)),
        (-radius, (-1e9, -n * l1)),
    ):
        roots = [c - slope * theta for slope, c in lines]
        expected += [loss(theta, v, 0) for v in (*ends, *roots) if ends[0] <= v <= ends[1]]
    result = audit_density(model, *pair, seed=seed)
    assert result.loss == pytest.approx(max(expected), abs=1e-6)


@pytest.mark.slow
def test_delta_of_a_normal_release_lies_in_its_interval():
    pair = drawn(aligned, seed=1)
    model = release(second=MEAN, delta=0.05, noise="gaussian")
    c, d = (2 * np.sum(effects(data)) for data in pair)
    shift = abs(c - d) / model.plan(12, 2).main.calibration.scale
    assert shift > 0
    result = audit_density(model, *pair, draws=500)
    away = result.epsilon / shift
    delta = stats.norm.cdf(shift / 2 - away) - math.exp(result.epsilon) * stats.norm.cdf(
        -shift / 2 - away
    )
    assert result.hockey_stick.low <= delta <= result.hockey_stick.high
    assert result.hockey_stick.theta_low == result.hockey_stick.low


@pytest.mark.parametrize(
    "second", one_of([itr(L2Ball(0.5)), itr(L1Ball(0.6), ElasticNet(0.2, 0.1))], 2), ids=repr
)
def test_the_density_integrates_to_one(second):
    _, (releases, _) = audited_laws(release(second=second), drawn(neighbors, seed=5))
    law = releases.conditional["theta"]({})
    scale, reach = law.calibration.scale, law.step * law.calibration.scale
    radii = (np.arange(120) + 0.5) * 16 * reach / 120
    angles = (np.arange(48) + 0.5) * 2 * math.pi / 48
    places = [
        (r, law.place(r * np.array([math.cos(t), math.sin(t)]))) for r in radii for t in angles
    ]
    total = sum(math.exp(law.log_density(place)) * r for r, place in places)
    total *= (radii[1] - radii[0]) * (angles[1] - angles[0]) / (2 * math.pi * scale**2)
    assert total == pytest.approx(1.0, abs=0.02)


RADIUS, T, S = 0.8, 0.5, 0.3
#: The program, and z, o, c, phi' and phi'' of ``c phi(<z, theta> - o)``.
LOSSES = {
    "huber": (
        itr_huber(L2Ball(RADIUS), threshold=T),
        lambda x, a, y: (x, 2 * (2 * a - 1) * y, np.ones(N)),
        lambda s: 2 * np.clip(s, -T, T),
        lambda s: 2.0 * (np.abs(s) < T),
    ),
    "logistic": (
        itr_logistic(L2Ball(RADIUS)),
        lambda x, a, y: (np.sign(y) * (2 * a - 1) * x, np.zeros(N), np.abs(y)),
        lambda s: -special.expit(-s),
        lambda s: special.expit(s) * special.expit(-s),
    ),
    "extremal": (
        saturating_regression(L2Ball(RADIUS), slope=S),
        lambda x, a, y: (x, y, np.ones(N)),
        lambda s: S * np.sign(s) * (1 - np.exp(-np.abs(s) / S)),
        lambda s: np.exp(-np.abs(s) / S),
    ),
}


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("first", [Uniform(), entropy_balancing()], ids=lambda stage: stage.name)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_density_is_that_of_the_noise_times_the_curvature(loss, first):
    second, rows, slope, curvature = LOSSES[loss]
    # every second kind of pair
    for seed, kind in enumerate(KINDS[::2]):
        pair = drawn(kind, N, 1, seed)
        plan, laws = audited_laws(release(first, second, arithmetic="assumed"), pair)
        one, other = (law.conditional["theta"]({}) for law in laws)
        calibration, weights = plan.main.calibration, [weights_of(first, data) for data in pair]

        def expected(which, theta, v):
            z, o, c = rows(pair[which][0][:, 0], *pair[which][1:])  # noqa: B023
            ridge, c = N * calibration.gamma, weights[which] * c  # noqa: B023
            margins = z * theta - o
            pull = np.sum(c * slope(margins) * z) + ridge * theta
            bend = np.sum(c * curvature(margins) * z**2) + ridge
            # on the boundary theta stays, and its multiplier alone moves
            return (0.0 if v else math.log(bend)) - abs(pull + v) / calibration.scale  # noqa: B023

        inside = np.random.default_rng(seed).uniform(-RADIUS, RADIUS, 5)
        for theta, v in (*((t, 0.0) for t in inside), (RADIUS, 0.3), (-RADIUS, -7.0)):
            place = Place(np.array([theta]), np.array([v]), np.eye(1) * (v == 0.0))
            result = one.log_density(place) - other.log_density(place)
            assert result == pytest.approx(expected(0, theta, v) - expected(1, theta, v), abs=2e-7)


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


def log_density(first, terms, data, plan, lam, theta):
    """Of (coefficient, theta) inside the ball, less a constant common to all data."""
    gradient, hessian, f = terms(data, lam)
    noise, n = plan.step("propensity").calibration, len(data[1])
    m = n * (first.ridge + noise.gamma)
    volume = np.linalg.slogdet(hessian + m * np.eye(len(lam)))[1]
    pull = n * (2 * (theta - f / f.sum() @ effects(data)) + plan.main.calibration.gamma * theta)
    loss = (
        np.linalg.norm(gradient + m * lam) / noise.scale + abs(pull) / plan.main.calibration.scale
    )
    return volume - loss


@pytest.mark.parametrize(("first", "terms", "size"), [(OVERLAP, overlap, 2), (TILTING, tilting, 6)])
def test_the_joint_law_is_that_of_the_formula(first, terms, size):
    rng, model = np.random.default_rng(4), release(first, MEAN)
    plan = model.plan(N, 2)
    assert plan.step("propensity").calibration.n_parameters == size
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
            expected = [log_density(first, terms, data, plan, lam, theta) for data in pair]
            assert result == pytest.approx(expected[0] - expected[1], abs=1e-8)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("kind", [neighbors, heavy])
def test_the_joint_loss_is_that_of_the_closed_form(kind):
    pair, model = drawn(kind, N, 1, seed=2), release(LINE, MEAN)
    plan = model.plan(N, 1)
    result = audit_density(model, *pair, starts=1)

    def loss(lam, theta):
        one, other = (
            log_density(LINE, trimmed, data, plan, np.array([lam]), theta) for data in pair
        )
        return one - other

    side = 1 if result.direction == "first over second" else -1
    met = loss(*result.outputs["propensity"], *result.outputs["theta"])
    assert result.loss == pytest.approx(side * met, abs=1e-8)
    grid = [t for k in range(-3, 3) for t in (10.0**k, -(10.0**k), 3 * 10.0**k, -3 * 10.0**k)]
    assert max(abs(loss(lam, theta)) for lam in grid for theta in grid) <= result.loss + 1e-6
    assert result.loss <= result.epsilon <= 1.0
    assert result.theta_loss == -math.inf
    assert not result.theta_exceeds


#: What is released, and the number of covariates.
FITS = {
    **{f"{one!r}": (release("entropy_balancing", one), 2) for one in SQUARED},
    **{
        name: (release("entropy_balancing", one[0], arithmetic="assumed"), 2)
        for name, one in LOSSES.items()
    },
    "a mean": (release("entropy_balancing", MEAN, calibration="output"), 2),
    **{
        f"private weights, {second}": (
            release(ipw_private(radius=1.0), second, arithmetic="assumed"),
            2,
        )
        for second in ("itr", "arm_means")
    },
    "effect": (effect(), 1),
}


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize("name", FITS)
def test_the_law_of_every_step_at_its_noise_is_what_was_released(name):
    """The audited mechanism is the one that releases."""
    model, covariates = FITS[name]
    pair = drawn(neighbors, 8 if name == "effect" else 6, covariates, seed=7)
    plan, data = model.plan_and_data(*pair[0])
    _, (law_of, _) = audited_laws(plan, pair)
    for seed in range(2):
        result, drawn_noises = plan.run(data, Execution("newton", 1e-6, seed=seed)), 0
        for step, own in result.steps.items():
            if own.noise is not None:
                law = law_of.conditional[step](result.released)
                theta = np.add(getattr(law, "center", 0.0), own.noise)
                if isinstance(law, ObjectiveLaw):
                    place = law.place(law.at_noise(own.noise))
                    np.testing.assert_allclose(law.noise(place), own.noise, rtol=1e-8, atol=1e-8)
                    theta = law.released(place)
                np.testing.assert_allclose(theta, own.released, rtol=1e-6, atol=1e-7)
                drawn_noises += 1
        assert drawn_noises == 1 + (name == "effect" or name.startswith("private"))
