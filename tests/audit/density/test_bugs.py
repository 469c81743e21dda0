"""Bugs planted into the calibration of complete releases: the density audit catches them."""

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx import Budget, PrivateTwoStageERM
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.problems.arm_means import plug_in_ate
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.known_weights import RandomizedTrial
from dp2erm_cvx.program import ClosedFormWeights, WholeSpace
from tests.audit.bugs import (
    AThirdOfThePropensityNoise,
    BoundIgnored,
    HalfTheNoise,
    HardlyAnyGamma,
    HardlyAnyPropensityGamma,
)
from tests.audit.density.test_density import release
from tests.audit.pairs import aligned, heavy, lone

N = 12
MEAN = plug_in_ate(WholeSpace())


@dataclasses.dataclass(frozen=True)
class ArmNormalized(ClosedFormWeights):
    """Half of the weight to each arm, with a stability bound for replacements that keep the treatment."""

    floor: int = 5
    name, _made = "arm_normalized", True
    citation = "tests"
    theorem = "V = n / floor within an arm"

    def log_weights(self, records):
        return -np.log(np.where(records.a == 1, records.a.sum(), (1 - records.a).sum()))

    def log_range(self, domain):
        return -10.0, 0.0

    def bound(self, universe):
        V = universe.n_samples / self.floor
        return StabilityBound(V, self.theorem, (), frozenset(Neighboring), V / 2)


def alone_and_heavy(rng, n=N, k=2):
    """One treated record among controls, its effect reversed."""
    X, a, y = rng.uniform(-0.5, 0.5, (n, k)), np.zeros(n, dtype=int), np.full(n, 1.0)
    a[0] = 1
    other = X.copy(), a.copy(), y.copy()
    y[0], other[2][0] = 1.0, -1.0
    return (X, a, y), other


def balanced(rng, n=N, k=2, flip=True):
    """Arms of 6 and 6 become 5 and 7; outcomes as bad as possible."""
    X, a = rng.uniform(-0.5, 0.5, (n, k)), np.arange(n) % 2
    a[0] = 1
    a[1] = 0
    y = np.full(n, float(rng.choice([-1.0, 1.0])))
    other = X.copy(), a.copy(), y.copy()
    a = a.copy()
    if flip:
        other[1][0] = 0
    y[0], other[2][0] = -y[1], -y[1]
    return (X, a, y), other


def alone_in_margin(rng, n=N, k=1):
    """All margins are 0 but that of the changed record on one side: the Hessian is its own."""
    X, a, y = np.zeros((n, k)), rng.integers(2, size=n), np.full(n, float(rng.choice([-1.0, 1.0])))
    other = X.copy(), a.copy(), y.copy()
    X[0, 0] = 1.0
    return (X, a, y), other


def narrow(kind):
    return lambda rng, **settings: kind(rng, 4, 1, **settings)


LOGISTIC = ipw_private(share=0.3, ridge=0.05, trim=2.5)
MOSTLY_FIRST = ipw_private(share=0.8, ridge=0.05, trim=2.5)
FLAT = ipw_private(share=0.8, ridge=1e-6, trim=2.5)

BUGS = {
    "half the noise, itr": (release(cls=HalfTheNoise), aligned),
    "half the noise, plug-in": (release(second="plug_in_ate", cls=HalfTheNoise), aligned),
    "half the noise, arm means": (release(second="arm_means", cls=HalfTheNoise), lone),
    "hardly any gamma": (release(second="arm_means", cls=HardlyAnyGamma), lone),
    "bound ignored": (release(RandomizedTrial(0.1), "plug_in_ate", cls=BoundIgnored), alone_and_heavy),
    "flip forgotten": (release(ArmNormalized(), "plug_in_ate"), balanced),
    "output, half the noise": (release(second=MEAN, calibration="output", cls=HalfTheNoise), aligned),
    "output, bound ignored": (
        release(RandomizedTrial(0.1), MEAN, calibration="output", cls=BoundIgnored),
        alone_and_heavy,
    ),
    "output, flip forgotten": (release(ArmNormalized(), MEAN, calibration="output"), balanced),
}
COMPOSED = {
    "half the noise": (release(LOGISTIC, MEAN, cls=HalfTheNoise), narrow(heavy)),
    "bound ignored": (release(LOGISTIC, MEAN, cls=BoundIgnored), narrow(heavy)),
    "a third of the propensity noise": (
        release(MOSTLY_FIRST, MEAN, cls=AThirdOfThePropensityNoise),
        narrow(heavy),
    ),
    "hardly any propensity gamma": (
        release(FLAT, MEAN, cls=HardlyAnyPropensityGamma),
        narrow(alone_in_margin),
    ),
    "output, half the noise": (
        release(LOGISTIC, MEAN, calibration="output", cls=HalfTheNoise),
        narrow(heavy),
    ),
}


def audits(bug, seeds):
    model, kind = bug
    return [audit_density(model, *kind(np.random.default_rng(seed)), seed=seed, starts=1) for seed in seeds]


@pytest.mark.parametrize(("seeds", "missed"), [(3, 0), pytest.param(20, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_are_caught(bug, seeds, missed):
    result = audits(BUGS[bug], range(seeds))
    assert sum(not audit.exceeds for audit in result) <= missed
    # these bugs show in theta itself
    assert sum(not audit.theta_exceeds for audit in result) <= missed


@pytest.mark.parametrize("bug", COMPOSED)
def test_planted_bugs_are_caught_after_a_private_first_stage_and_nothing_without_them(bug):
    model, kind = COMPOSED[bug]
    assert all(audit.exceeds for audit in audits(COMPOSED[bug], range(1)))
    sound = PrivateTwoStageERM(**model.get_params(deep=False))
    result = audit_density(sound, *kind(np.random.default_rng(0)), starts=1)
    assert 0 < result.loss <= result.epsilon


def test_the_bound_without_flips_holds_without_flips():
    model, kind = BUGS["flip forgotten"]
    result = audit_density(model, *kind(np.random.default_rng(0), flip=False))
    assert not result.exceeds


def test_half_the_gaussian_noise_is_caught():
    model = release("uniform", "plug_in_ate", Budget(1.0, 0.05), cls=HalfTheNoise, noise="gaussian")
    result = audit_density(model, *aligned(np.random.default_rng(0)), seed=0, draws=600)
    assert result.exceeds
    assert "EXCEEDED" in result._repr_html_()
