"""Exact densities where theta minimizes a sum of margin losses: closed forms, worst cases, planted errors."""

import math
from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest
from scipy import special

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.laws import Place
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.itr import itr, itr_huber, itr_logistic
from dp2erm_cvx.problems.regression import saturating_regression
from dp2erm_cvx.program import second_stage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.suprema import Saturation
from tests.audit.bugs import weaker
from tests.audit.pairs import aligned, heavy, lone, neighbors
from tests.helpers import BOUNDED_INFLUENCE
from tests.plan.changed import changed

N = 6
DOMAIN = Domain(1.0, 1.0)
RADIUS, T, S = 0.8, 0.5, 0.3
KINDS = (neighbors, aligned, lone, heavy)


#: The program, and z, o, c, phi' and phi'' of ``c phi(<z, theta> - o)``, written down once more.
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


def release(second, budget=Budget(1.0), first="uniform", **settings):  # noqa: B008
    return PrivateTwoStageERM(DOMAIN, budget, first, second, arithmetic="assumed", **settings)


def solved(data):
    return solve(EntropyBalancing().instance(DOMAIN.records(*data)), tolerance=1e-6).value


@pytest.mark.parametrize("first", ["uniform", "entropy_balancing"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_density_is_that_of_the_noise_times_the_curvature(loss, first):
    second, rows, slope, curvature = LOSSES[loss]
    for seed, kind in enumerate(KINDS):
        rng = np.random.default_rng(seed)
        pair = kind(rng, N, 1)
        plan, laws = audited_laws(release(second, first=first), pair)
        one, other = (law.conditional["theta"]({}) for law in laws)
        scale, ridge = plan.main.calibration.scale, N * plan.main.calibration.gamma

        def expected(weights, data, theta, v):
            z, o, c = rows(data[0][:, 0], *data[1:])
            margins = z * theta - o
            pull = np.sum(weights * c * slope(margins) * z) + ridge * theta  # noqa: B023
            bend = np.sum(weights * c * curvature(margins) * z**2) + ridge  # noqa: B023
            # on the boundary theta stays, and its multiplier alone moves
            return (0.0 if v else math.log(bend)) - abs(pull + v) / scale  # noqa: B023

        weights = [np.ones(N) if first == "uniform" else solved(data) for data in pair]
        for theta, v in [(t, 0.0) for t in rng.uniform(-RADIUS, RADIUS, 5)] + [
            (RADIUS, 0.3),
            (-RADIUS, -7.0),
        ]:
            place = Place(np.array([theta]), np.array([v]), np.eye(1) * (v == 0.0))
            result = one.log_density(place) - other.log_density(place)
            right = expected(weights[0], pair[0], theta, v) - expected(weights[1], pair[1], theta, v)
            assert result == pytest.approx(right, abs=2e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_pair_loses_more_than_epsilon(loss):
    for seed, kind in enumerate((neighbors, lone)):
        model = release(LOSSES[loss][0], first=("uniform", "entropy_balancing")[seed])
        result = audit_density(model, *kind(np.random.default_rng(1 + seed), N, 1 + seed), starts=1)
        assert result.loss <= result.epsilon <= 1.0
        assert result.numerical_error < 1e-6
        assert not result.exceeds


def lone_record(y, other_y):
    """Every other record is 0, so that the gradients and curvatures of the first are all there are."""
    X, a = np.zeros((N, 1)), np.zeros(N, dtype=int)
    X[0] = 1.0
    return tuple((X, a, np.append(value, np.zeros(N - 1))) for value in (y, other_y))


def test_a_saturating_loss_spends_all_of_epsilon():
    """Theorem 15 is attained: by two full slopes, and by a full slope against a full curvature."""
    model = release(saturating_regression(slope=0.1))
    for other in (-1.0, 1.0):
        pair = lone_record(-other if other < 0 else 0.0, other)
        result = audit_density(model, *pair, starts=4)
        assert 0.9 < result.theta_loss <= result.epsilon <= 1.0
    assert audit_density(model, *lone_record(1.0, -1.0), starts=4).loss > 0.99


def test_a_third_of_gamma_is_caught():
    model = release(saturating_regression(slope=0.1))
    weak = weaker(model.plan(N, 1), gamma=1 / 3)
    assert audit_density(weak, *lone_record(0.0, 1.0), starts=1).theta_exceeds


@second_stage(slope="outcome_bound / 2")
def huber_regression(theta, records, slope):
    """A Huber loss, whose curvature is as large where its slope is full."""
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(records.x @ theta - records.y, slope))))


@dataclass(frozen=True)
class TakenForSaturating(huber_regression):
    """It states what a loss of bounded influence has."""

    name, _made = "taken_for_saturating", True

    def loss_constants(self, universe):
        curve = BOUNDED_INFLUENCE["1 - u"][0](2 * self.slope, 2.0)
        wrong = Saturation(curve, self.row_norm(universe.domain))
        return replace(super().loss_constants(universe), saturation=wrong)


def test_a_loss_that_keeps_its_curvature_is_caught():
    result = audit_density(release(TakenForSaturating(slope=0.4)), *lone_record(0.9, -1.0), starts=4)
    assert result.theta_exceeds
    assert result.theta_loss > 1.2


def test_gaussian_noise_of_a_margin_loss_is_sampled():
    model = release(saturating_regression(slope=0.1), Budget(1.0, 0.05), noise="gaussian")
    pair = lone_record(1.0, -1.0)
    assert not audit_density(model, *pair, draws=100).exceeds
    assert audit_density(weaker(model.plan(N, 1), scale=0.2), *pair, draws=150).exceeds


BOXED = Domain(1.3, 1.0, intercept=0.5, coordinate_bound=1.0)


@pytest.mark.parametrize("second", [saturating_regression(slope=0.1), itr(L2Ball(0.5))], ids=str)
def test_box_noise_keeps_epsilon_and_a_saturating_loss_spends_it(second):
    model = PrivateTwoStageERM(BOXED, Budget(1.0), "uniform", second, noise="box", arithmetic="assumed")
    result = audit_density(model, *lone_record(1.0, -1.0), starts=2)
    assert result.noise is Noise.BOX
    assert result.loss <= result.epsilon <= 1.0
    assert result.numerical_error < 1e-6
    if second.name == "itr":
        return
    assert result.loss > 0.99
    plan = model.plan(N, 1)
    calibration = plan.main.calibration
    weak = weaker(plan, gamma=1 / 3)
    assert audit_density(weak, *lone_record(0.0, 1.0), starts=1).theta_exceeds
    # a box of half the width of the covariate, at the scale that would do for it
    narrow = replace(calibration, box=(calibration.box[0] / 2, calibration.box[1] / 2))
    assert audit_density(changed(plan, calibration=narrow), *lone_record(1.0, -1.0), starts=1).exceeds
