"""The density audit: right on closed forms, silent on correct releases, and it catches planted bugs."""

import dataclasses
import math

import cvxpy as cp
import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.density import _hockey_stick, _Peak
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.problems.arm_means import arm_means, plug_in_ate
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.program import Box, L1Ball, WholeSpace
from dp2erm_cvx.solve import solve
from tests.audit.pairs import aligned, lone, neighbors

N = 12
DOMAIN = Domain(1.0, 1.0)
PURE, APPROXIMATE = Budget(1.0), Budget(1.0, 0.05)

FIRST = (Uniform(), ipw_logistic(), EntropyBalancing())
SECOND = (
    arm_means(),
    arm_means(L2Ball(1.0), ElasticNet(0.05, 0.1)),
    plug_in_ate(),
    itr(L2Ball(1.0)),
    itr(L1Ball(1.0), ElasticNet(0.1, 0.0)),
    itr(Box(0.7), ElasticNet(0.1, 0.1)),
)


def release(first="uniform", second="itr", budget=PURE, cls=PrivateTwoStageERM, **settings):
    return cls(DOMAIN, budget, first, second, **settings)


def laws(model, pair):
    return [law.conditional["theta"]({}) for law in audited_laws(model, pair)[1]]


def weighted(model, data):
    """First-stage weights of a raw dataset."""
    instance = model.resolved_first_stage().instance(model.domain.records(*data))
    return solve(instance, tolerance=1e-6).value


@pytest.mark.parametrize("first", FIRST, ids=lambda stage: stage.name)
@pytest.mark.parametrize("seed", range(3))
def test_loss_of_the_plug_in_is_the_shift_over_the_scale(first, seed):
    pair = neighbors(np.random.default_rng(seed))
    model = release(first, "plug_in_ate")
    c, d = (2 * weighted(model, data) @ (2 * (2 * data[1] - 1) * data[2]) for data in pair)
    # no other term of the objective differs between the two datasets
    expected = abs(c - d) / model.plan(N, 2).main.calibration.scale
    result = audit_density(model, *pair, seed=seed, starts=4)
    assert result.loss == pytest.approx(expected, abs=1e-8)
    assert result.theta_loss == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_loss_of_a_line_with_a_kink_is_that_at_the_breakpoints(seed):
    radius, l1 = 0.8, 0.15
    model = release(second=itr(Box(radius), ElasticNet(l1, 0.0)))
    calibration = model.plan(N, 1).main.calibration
    pair = neighbors(np.random.default_rng(seed), k=1)
    lines = []
    for X, a, y in pair:
        x, z = X[:, 0], 2 * (2 * a - 1) * y
        lines.append((2 * x @ x + N * calibration.gamma, 2 * x @ z))

    def loss(theta, v, curved):
        (one, other) = (
            curved * math.log(slope) - abs(slope * theta - c + v) / calibration.scale for slope, c in lines
        )
        return abs(one - other)

    # piecewise linear in theta inside, and in v at the kink and at the bounds
    breaks = [(c - side * N * l1) / slope for slope, c in lines for side in (-1, 1)]
    inside = [*breaks, radius, -radius, 1e-12, -1e-12]
    expected = [loss(t, math.copysign(N * l1, t), 1) for t in inside if 0 < abs(t) <= radius]
    for theta, ends in ((0.0, (-N * l1, N * l1)), (radius, (N * l1, 1e9)), (-radius, (-1e9, -N * l1))):
        roots = [c - slope * theta for slope, c in lines]
        expected += [loss(theta, v, 0) for v in (*ends, *roots) if ends[0] <= v <= ends[1]]
    result = audit_density(model, *pair, seed=seed)
    assert result.loss == pytest.approx(max(expected), abs=1e-6)


def test_delta_of_a_normal_release_lies_in_its_interval():
    pair = aligned(np.random.default_rng(1))
    model = release(second=plug_in_ate(WholeSpace()), budget=APPROXIMATE, noise="gaussian")
    c, d = (2 * np.sum(2 * (2 * a - 1) * y) for _, a, y in pair)
    shift = abs(c - d) / model.plan(N, 2).main.calibration.scale
    assert shift > 0
    result = audit_density(model, *pair, draws=500)
    away = result.epsilon / shift
    delta = stats.norm.cdf(shift / 2 - away) - math.exp(result.epsilon) * stats.norm.cdf(-shift / 2 - away)
    assert result.hockey_stick.low <= delta <= result.hockey_stick.high
    assert result.hockey_stick.theta_low == result.hockey_stick.low


@pytest.mark.parametrize("second", [itr(L2Ball(0.5)), itr(L1Ball(0.6), ElasticNet(0.2, 0.1))], ids=repr)
def test_the_density_integrates_to_one(second):
    law, _ = laws(release(second=second), neighbors(np.random.default_rng(5)))
    scale, reach = law.calibration.scale, law.step * law.calibration.scale
    radii = (np.arange(120) + 0.5) * 16 * reach / 120
    angles = (np.arange(48) + 0.5) * 2 * math.pi / 48
    total = 0.0
    for r in radii:
        for angle in angles:
            place = law.place(r * np.array([math.cos(angle), math.sin(angle)]))
            total += math.exp(law.log_density(place)) * r
    total *= (radii[1] - radii[0]) * (angles[1] - angles[0]) / (2 * math.pi * scale**2)
    assert total == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("second", SECOND, ids=repr)
@pytest.mark.parametrize("first", FIRST, ids=lambda stage: stage.name)
def test_pure_releases_keep_epsilon(first, second):
    # either kind of pair meets every first and every second stage
    seed = (FIRST.index(first) + SECOND.index(second)) % 2
    kind = (neighbors, lone)[seed]
    result = audit_density(release(first, second), *kind(np.random.default_rng(seed)), starts=2)
    assert result.theta_loss <= result.loss <= 1.0
    assert result.numerical_error < 1e-6
    assert not result.exceeds
    assert not result.theta_exceeds


def test_the_worst_pair_comes_near_epsilon():
    result = audit_density(release(second="plug_in_ate"), *aligned(np.random.default_rng(0)))
    assert 0.7 < result.theta_loss <= result.loss <= 1.0


def test_gaussian_releases_keep_delta():
    model = release(FIRST[1], SECOND[1], APPROXIMATE, noise="gaussian")
    result = audit_density(model, *aligned(np.random.default_rng(1)), draws=600)
    stick = result.hockey_stick
    assert 0.0 <= stick.low <= stick.estimate <= stick.high <= 0.05
    assert result.noise is Noise.GAUSSIAN
    assert not result.exceeds


def test_an_unknown_error_leaves_all_open():
    stick = _hockey_stick([[_Peak(2.0, math.nan, {})] * 200] * 2, 1.0)
    assert (stick.low, stick.high, stick.theta_low) == (0.0, 1.0, 0.0)
    assert not _hockey_stick([[_Peak(math.nan, 0.0, {})] * 200] * 2, 1.0).estimate


def test_theorem_seven_is_audited_before_the_projection():
    model = release(second="itr", budget=APPROXIMATE, calibration="renyi")
    result = audit_density(model, *aligned(np.random.default_rng(1)), draws=600)
    assert result.hockey_stick.high <= 0.05
    assert result.theta_loss == result.loss


def test_equal_datasets_lose_nothing():
    data, _ = neighbors(np.random.default_rng(3))
    assert audit_density(release(), data, data, starts=2).loss == 0.0


def test_what_is_no_neighbor_is_refused():
    (X, a, y), other = neighbors(np.random.default_rng(3))
    two = other[0], other[1], np.where(np.arange(N) == 1, -other[2], other[2])
    for changed, count in ((two, 2), ((other[0], other[1], other[2] + 0.5), N)):
        with pytest.raises(DataError, match=f"^{count} records differ row by row: neighbors differ in one"):
            audit_density(release(), (X, a, y), changed)
    with pytest.raises(DataError, match="are not neighbors"):
        audit_density(release(), (X, a, y), (X[1:], a[1:], y[1:]))
    kept = dataclasses.replace(DOMAIN, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    with pytest.raises(DataError, match="does not protect"):
        audit_density(PrivateTwoStageERM(kept, PURE, "uniform", "itr"), (X, a, y), other)


def test_what_has_no_known_density_is_refused():
    own = itr(L2Ball(1.0), UserRegularizer(lambda theta: 0.1 * cp.norm(theta, 2)))
    with pytest.raises(DeclarationError, match="with an elastic net"):
        audit_density(release(second=own), *neighbors(np.random.default_rng(3)))


@pytest.mark.parametrize("wrong", [{"starts": 0}, {"draws": 1}, {"seed": -1}, {"starts": 1.5}])
def test_invalid_settings_are_refused(wrong):
    with pytest.raises(DeclarationError):
        audit_density(release(), *neighbors(np.random.default_rng(3)), **wrong)
