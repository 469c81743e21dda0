"""One delta for Gaussian steps that follow each other: against quadrature, and within a plan."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dp2erm_cvx import Budget, Domain, PrivateRule
from dp2erm_cvx.calibration.numbers import analytic_delta
from dp2erm_cvx.calibration.profiles import LossLaw, joint_delta, joint_relief, margin_delta, relieved
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import RuleStudy, make_plan
from dp2erm_cvx.release.rule_release import RuleRelease
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=4.0)


def excess(law, t):
    """``E(X - t)_+`` for every t, X the loss of one step, by the partial moments of a normal variable."""

    def plain(t):
        s = law.ratio
        c = (t - s * s / 2) / s
        beyond = s * (stats.norm.pdf(c) - c * stats.norm.sf(c))
        if not law.folded:
            return beyond
        return np.where(c > 0, 2 * beyond, s * (math.sqrt(2 / math.pi) - c))

    level = np.maximum(t, law.curvature)
    return 0.5 * (plain(t) + level - t + plain(level)) if law.curvature else plain(t)


def by_quadrature(first, second, epsilon):
    z = np.linspace(-10, 10, 20_001)
    losses = first.ratio * (np.abs(z) if first.folded else z) + first.ratio**2 / 2
    best = 1.0
    for x in np.linspace(0.0, 1.0, 41):
        t = epsilon + x + 1 - math.exp(x)
        inner = excess(second, t - losses)
        if first.curvature:
            inner = 0.5 * (inner + excess(second, t - np.maximum(losses, first.curvature)))
        best = min(best, math.exp(-x) * np.trapezoid(stats.norm.pdf(z) * inner, z))
    return best


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LossLaw(0.2, 0.3), LossLaw(0.25, 0.4)),
        (LossLaw(0.3, folded=False), LossLaw(0.2, 0.5)),
    ],
    ids=["two objectives", "a number and an objective"],
)
def test_two_steps_against_quadrature(first, second):
    reference = by_quadrature(first, second, 1.0)
    found = joint_delta([first, second], 1.0)
    assert reference * (1 - 1e-3) <= found <= 1.03 * reference


def test_one_law_is_that_of_the_theorem():
    # the last ones have a delta of 2e-18, far below the roundoff of epsilon
    for law in (LossLaw(0.3), LossLaw(0.3, 0.9), LossLaw(1.5, 0.2), LossLaw(0.12), LossLaw(0.12, 0.5)):
        alone = float(margin_delta(law.ratio, 1.0, law.curvature))
        assert 0.999 * alone <= joint_delta([law], 1.0) <= 1.05 * alone


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_no_less_than_gaussian_noise_on_as_many_numbers(epsilon):
    for ratios in ((0.1, 0.2), (0.4, 0.4, 0.4), (0.05, 0.5)):
        laws = [LossLaw(ratio) for ratio in ratios]
        assert joint_delta(laws, epsilon) >= analytic_delta(math.hypot(*ratios), epsilon)


def test_curvature_counts():
    """Without its part the delta would be stated several times too small."""
    laws = [LossLaw(0.15, 0.45), LossLaw(0.15, 0.45)]
    assert joint_delta(laws, 0.9) > 5 * joint_delta([LossLaw(0.15), LossLaw(0.15)], 0.9)


def test_relief_is_private_and_all_that_there_is():
    laws = [LossLaw(0.1, 0.28), LossLaw(0.05, 0.14), LossLaw(0.15, 0.5)]
    relief = joint_relief(laws, Budget(1.0, 1e-5))
    assert relief > 1.2
    assert joint_delta([law.relieved(relief) for law in laws], 1.0) <= 1e-5
    assert joint_delta([law.relieved(1.001 * relief) for law in laws], 1.0) > 1e-5
    # nothing to gain: beyond the budget already, no delta, numbers alone
    assert joint_relief([LossLaw(1.0), LossLaw(1.0)], Budget(1.0, 1e-5)) == 1.0
    assert joint_relief(laws, Budget(1.0)) == 1.0
    assert joint_relief([LossLaw(0.1, folded=False)] * 2, Budget(1.0, 1e-5)) == 1.0


def study(noise="gaussian", delta=1e-5, **changes):
    return RuleStudy(Universe(DOMAIN, 2000, 30), Budget(1.0, delta), 1.0, noise=noise, **changes)


@pytest.mark.parametrize("arithmetic", ["assumed", "counted"])
def test_a_plan_of_gaussian_steps_has_less_noise(arithmetic):
    plan = make_plan(study(arithmetic=arithmetic))
    assert plan.guarantee == Budget(1.0, 1e-5)
    assert plan.joint
    assert "one delta for all" in plan.theorem
    assert plan.counted is (arithmetic == "counted")
    assert plan.certified_by_design
    laws = [step.loss_law for step in plan.steps]
    assert joint_delta(laws, 1.0) <= 1e-5
    assert joint_delta([replace(law, ratio=1.02 * law.ratio) for law in laws], 1.0) > 1e-5
    for step in plan.steps:
        # what a step states by itself is true as well
        found = step.calibration
        alone = float(margin_delta(step.loss_law.ratio, found.epsilon, found.curvature))
        assert 0.9 * found.delta <= alone <= found.delta
    assert plan.curve is not None


def test_pure_and_single_steps_stay_as_they_are():
    assert not make_plan(study("gamma", 0.0)).joint
    alone = make_plan(study(declared={"center_share": None, "propensity": None}))
    assert not alone.joint
    assert alone.steps[0].calibration.epsilon == pytest.approx(1.0)


def test_gamma_makes_up_for_the_curvature():
    plan = make_plan(study(declared={"center_share": None, "propensity": None}))
    step = plan.steps[0]
    less = relieved(step.calibration, 1.0)
    found = step.loss.saturation
    # K = kappa M^2 V / (n gamma) for this loss
    K = found.curvature * found.row_norm**2 * 2.0 / (2000 * less.gamma)
    assert less.curvature == pytest.approx(K, rel=1e-6)
    assert less.curvature >= K


def test_a_release_says_it_and_less_noise_is_not_read_as_private():
    rng = np.random.default_rng(0)
    X, a = rng.uniform(-0.6, 0.6, (300, 30)), rng.integers(0, 2, 300)
    model = PrivateRule(
        DOMAIN, Budget(1.0, 1e-3), outcome_scale=1.0, expected=["confounding"], noise="gaussian"
    )
    release = model.fit(X, a, X[:, 0] * a).release_
    assert release.private
    assert sum(step.epsilon for step in release.steps) > release.guarantee.epsilon
    text = release.to_json()
    assert RuleRelease.from_json(text) == release
    stated = json.loads(text)
    for step in stated["steps"]:
        step["scale"] *= 0.9
    with pytest.raises(DeclarationError, match=r"steps\.0\.scale: .* follows"):
        RuleRelease.from_json(json.dumps(stated))
