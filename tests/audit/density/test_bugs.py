"""Bugs planted into complete releases: the density audit catches each, and nothing without it."""

import dataclasses
from dataclasses import dataclass, fields, replace
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Domain, stability
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.calibration import Perturbed
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.data.counts import SamplingWeights
from dp2erm_cvx.data.records import cleaned
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.problems.inverse_probability_tilting import tilting_private
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.problems.known_weights import RandomizedTrial
from dp2erm_cvx.problems.overlap import overlap_private
from dp2erm_cvx.problems.regression import saturating_regression
from dp2erm_cvx.program import ClosedFormWeights, PrivateFirstStage, SecondStage, second_stage
from dp2erm_cvx.program.separable import PrivateBalancedProgram
from dp2erm_cvx.program.stage import DeclaredProgram
from dp2erm_cvx.steps.record_map import RuleRows
from dp2erm_cvx.steps.score import AverageScore
from tests.audit.bugs import MEAN, loss_at_zero, release, weaker
from tests.audit.density.released import (
    LEAVING,
    MOVED,
    OPPOSED,
    SAMPLED,
    effect,
    rule,
    weighted,
    weights,
)
from tests.audit.pairs import aligned, changed_record, drawn, heavy, lone
from tests.helpers import BOUNDED_INFLUENCE, planted
from tests.plan.changed import changed


def bound_ignored(plan):
    """Calibrated as if the weights were constants."""
    names = ("scale", "gamma")[: 1 + (plan.main.perturbed is Perturbed.OBJECTIVE)]
    return weaker(plan, **dict.fromkeys(names, 2 / plan.bound.V))


class ThirdOfTheDiameter(PrivateFirstStage):
    def gradient_diameter(self, space):
        return super().gradient_diameter(space) / 3


class LinearTermForgotten(PrivateBalancedProgram):
    """Of exp(-<b, lam>) alone, at 0: the linear term and the ball are left out."""

    def gradient_diameter(self, space):
        return self.row_bound(space)


class WeightsTakenForConstants(PrivateFirstStage):
    def bound(self, universe):
        return stability.fixed_up_to_scale(universe.n_samples, 1.0, "planted")


@second_stage(slope="outcome_bound / 2")
def huber_regression(theta, records, slope):
    """A Huber loss, whose curvature is as large where its slope is full."""
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(records.x @ theta - records.y, slope))))


class TakenForSaturating(SecondStage):
    """It states what a loss of bounded influence has."""

    def loss_constants(self, universe):
        curve = BOUNDED_INFLUENCE["1 - u"][0](2 * self.slope, 2.0)
        wrong = Saturation(curve, self.row_norm(universe.space))
        return replace(super().loss_constants(universe), saturation=wrong)


def kept_curvature(plan):
    second = planted(TakenForSaturating, huber_regression, "taken_for_saturating")
    return release(second=second(slope=0.4)).plan(plan.study.universe.n_samples, 1)


def narrow_box(plan):
    """A box of half the width of the covariate, at the scale that would do for it."""
    box = plan.main.calibration.box
    return changed(
        plan, calibration=replace(plan.main.calibration, box=tuple(width / 2 for width in box))
    )


class Unclipped(AverageScore):
    """Its noise is that of a clipped score, and nothing clips it in the end."""

    def residuals(self, records, m):
        return cleaned(records.y - m, self.residual_bound)

    def means(self, records, released):
        parts = self.parts(records, released)
        return np.where(parts.treated, parts.m_1, parts.m_0)

    def exact_sums(self, records, released):
        noise = self.calibration
        r, e = (
            self.residuals(records, self.means(records, released)),
            self.parts(records, released).e,
        )
        k = np.rint(np.where(records.a == 1, r / e, -r / (1 - e)) / noise.step).astype(int)
        return 2 * noise.largest * int(k.sum()), int(np.sum(k**2))


class ClipBeforeSubtraction(Unclipped):
    """What nothing bounds, m, is taken off the clipped outcome."""

    def means(self, records, released):
        return self.nuisances.outcome(records.covariates, records.a, released)

    def residuals(self, records, m):
        return cleaned(records.y, self.residual_bound) - m


class StandardizedByTheData(Unclipped):
    def residuals(self, records, m):
        return 0.5 * (records.y - m) / max(float(np.std(records.y)), 1e-6)


class FactorWithoutCap(Unclipped):
    def capped(self, propensity):
        return propensity


class SecondMomentAtHalfItsScale(AverageScore):
    def exact_sums(self, records, released):
        first, second = super().exact_sums(records, released)
        return first, 2 * second


class DividedByTheArm(SecondStage):
    """Its losses are summed over the number of treated records, in place of n."""

    def instance(self, records, weights, *, gamma, noise=None):
        heavier = weights * (len(weights) / max(int(records.a.sum()), 1))
        return super().instance(records, heavier, gamma=gamma, noise=noise)


class Normalized(RuleRows):
    """Its factors are divided by their mean."""

    def factors(self, records, released):
        result = super().factors(records, released)
        return len(result) * result / max(result.sum(), 1e-300)


class Uncapped(RuleRows):
    """Inverse propensities of up to F where noise and gamma are those of factors of at most 1."""

    def factors(self, records, released):
        return self.balance.cap * super().factors(records, released)


class CenteredByTheData(RuleRows):
    """The mean of all outcomes is taken off, which moves every record with one."""

    def records(self, records, released):
        y = np.clip(records.y - records.y.mean(), -1.0, 1.0)
        return super().records(dataclasses.replace(records, y=y), released)


def as_a(kind, one):
    if isinstance(one, DeclaredProgram):
        values = {name: one.value(name) for name in one.setting_fields()}
        return planted(kind, one.scheme, f"planted_in_{one.name}")(**values)
    return kind(**{field.name: getattr(one, field.name) for field in fields(one)})


def scored_by(kind):
    return lambda plan: replace(plan, steps=(*plan.steps[:-1], as_a(kind, plan.main)))


def mapped_by(kind):
    return lambda plan: changed(plan, "rule", map=as_a(kind, plan.main.regression))


def center_of_one_arm(plan):
    return changed(plan, "center", program=as_a(DividedByTheArm, plan.step("center").program))


def first_as(kind):
    return lambda plan: release(as_a(kind, plan.study.first), MEAN).plan(
        plan.study.universe.n_samples, 2
    )


def less(name="theta", **factors):
    return partial(weaker, name=name, **factors)


half, third_of_gamma = less(scale=0.5), less(gamma=1 / 3)
TRIAL = RandomizedTrial(0.1)
LOGISTIC, FIRST, FLAT = (
    ipw_private(share=share, ridge=ridge, trim=2.5)
    for share, ridge in ((0.3, 0.05), (0.8, 0.05), (0.8, 1e-6))
)
OVERLAP, LITTLE = (overlap_private(share=share, ridge=0.05, radius=2.0) for share in (0.9, 0.1))
TILTING = tilting_private(share=0.9, ridge=0.05, radius=0.8, constant=0.5)
SATURATING, BOX = saturating_regression(slope=0.1), {"noise": "box", "arithmetic": "assumed"}
BOXED = release(
    second=SATURATING, domain=Domain(1.3, 1.0, intercept=0.5, coordinate_bound=1.0), **BOX
)
#: One treated record among controls, its effect reversed.
ALONE = changed_record((0, 1, 1), (0, 1, -1), (0, 0, 1), n=12)
#: All margins are 0 but that of the changed record, on one side.
OF_ONE, STRAIGHT = changed_record((1, 0, 1), (0, 0, 1), (0, 0, 1), n=4), drawn(heavy, 4, 1)
#: The same on both sides, with a flip.
OPPOSITE = tuple(
    (np.pad(X, ((0, 0), (0, 1))), a, y) for X, a, y in changed_record((1, 0, 0), (1, 1, 0), n=5)
)
TURNING, HALFWAY = drawn(heavy, 5, 2, seed=8), changed_record((1, 1, 1), (1, 0, 0.5))
#: A record without a slope, whose curvature appears, for one with full slope and none.
BENT, APPEARING = (
    changed_record((1, 0, 0), (1, 0, 1), n=6),
    changed_record((1, 1, 0), (1, 1, 1), (1, 1, 1)),
)
TURNED, CURVED = (changed_record((1, 0, y), (1, 0, -1), n=6) for y in (1, 0.9))

EFFECT = effect()  # on these neighbors it keeps its epsilon, see test_density
#: What is released, what is planted into its plan, and the neighbors that show it.
PLANTED = {
    "half the noise, itr": (release(), half, drawn(aligned)),
    "half the noise, plug-in": (release(second="plug_in_ate"), half, drawn(aligned)),
    "half the noise, arm means": (release(second="arm_means"), half, drawn(lone)),
    "hardly any gamma": (release(second="arm_means"), less(gamma=1e-6), drawn(lone)),
    "bound ignored": (release(TRIAL, "plug_in_ate"), bound_ignored, ALONE),
    "output, half the noise": (release(second=MEAN, calibration="output"), half, drawn(aligned)),
    "output, bound ignored": (release(TRIAL, MEAN, calibration="output"), bound_ignored, ALONE),
    "composed, half the noise": (release(LOGISTIC, MEAN), half, STRAIGHT),
    "composed, bound ignored": (release(LOGISTIC, MEAN), bound_ignored, STRAIGHT),
    "composed, output, half the noise": (
        release(LOGISTIC, MEAN, calibration="output"),
        half,
        STRAIGHT,
    ),
    "a third of the propensity noise": (
        release(FIRST, MEAN),
        less("propensity", scale=1 / 3),
        STRAIGHT,
    ),
    "hardly any propensity gamma": (release(FLAT, MEAN), less("propensity", gamma=1e-6), OF_ONE),
    "a third of the diameter": (release(OVERLAP, MEAN), first_as(ThirdOfTheDiameter), OPPOSITE),
    "the linear term forgotten": (release(TILTING, MEAN), first_as(LinearTermForgotten), OPPOSITE),
    "weights taken for constants": (
        release(LITTLE, MEAN),
        first_as(WeightsTakenForConstants),
        TURNING,
    ),
    "a third of gamma": (release(second=SATURATING), third_of_gamma, BENT),
    "a curvature that stays": (release(second=huber_regression(slope=0.4)), kept_curvature, CURVED),
    "box, a third of gamma": (BOXED, third_of_gamma, BENT),
    "a narrow box": (BOXED, narrow_box, TURNED),
    "clip before subtraction": (EFFECT, scored_by(ClipBeforeSubtraction), MOVED),
    "standardized by the data": (EFFECT, scored_by(StandardizedByTheData), MOVED),
    "second moment": (effect((0.01, 0.01)), scored_by(SecondMomentAtHalfItsScale), HALFWAY),
    "factor without cap": (EFFECT, scored_by(FactorWithoutCap), MOVED),
    "center of one arm": (EFFECT, center_of_one_arm, MOVED),
    "normalized factors": (rule(0.05, 0.05), mapped_by(Normalized), LEAVING),
    "inverse without its cap": (rule(0.05, 0.05, "inverse"), mapped_by(Uncapped), OPPOSED),
    "centered by the data": (rule(), mapped_by(CenteredByTheData), OPPOSED),
    "rule, a third of gamma": (rule(None, 0.05), less("rule", gamma=1 / 3), APPEARING),
}


@pytest.mark.one_row_in(26)
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_caught_and_nothing_without_them(name):
    model, planted, pair = PLANTED[name]
    plan = model.plan(len(pair[0][1]), pair[0][0].shape[1])
    result = audit_density(planted(plan), *pair, starts=1)
    assert result.exceeds
    # a release of theta alone shows it in theta itself
    assert len(plan.steps) > 1 or result.theta_exceeds
    if model is not EFFECT:
        kept = audit_density(plan, *pair, starts=1)
        assert 0 < kept.loss <= kept.epsilon <= 1.0


@planted
@dataclass(frozen=True)
class ArmNormalized(ClosedFormWeights):
    """Half of the weight to each arm, with a stability bound for replacements that keep the
    treatment.
    """

    floor: int = 5
    name = "arm_normalized"
    citation = "tests"
    theorem = "V = n / floor within an arm"

    def log_weights(self, records):
        return -np.log(np.where(records.a == 1, records.a.sum(), (1 - records.a).sum()))

    def log_range(self, space):
        return -10.0, 0.0

    def bound(self, universe):
        V = universe.n_samples / self.floor
        return StabilityBound(V, self.theorem, (), frozenset(Neighboring), V / 2)


@pytest.mark.parametrize(
    "settings", [{}, {"second": MEAN, "calibration": "output"}], ids=["", "output"]
)
def test_a_bound_that_forgets_flips_holds_where_none_is_made(settings):
    """Arms of 6 and 6 become 5 and 7; outcomes as bad as possible."""
    model = release(ArmNormalized(), **{"second": "plug_in_ate", **settings})
    for second, caught in (((0, 0, -1), True), ((0, 1, 1), False)):
        pair = changed_record((0, 1, -1), second, (0, np.arange(11) % 2, 1), n=12)
        result = audit_density(model, *pair, starts=1)
        assert result.exceeds == result.theta_exceeds == caught
        assert result.loss > 0.3


EQUAL = changed_record((1, 1, 1), (1, 1, 1), (1, 1, np.resize([-1, 1], 7)))
WEIGHT_ALONE = weighted(EQUAL, weights(0, 0.01), weights(5, 0.01))


@pytest.mark.parametrize(
    ("planted", "pair"),
    [
        (lambda own, weights: weights / own.largest, weighted(OPPOSED, weights(15), weights(15))),
        # a mean weight of 1, which every record moves
        (lambda own, weights: len(weights) * weights / weights.sum(), WEIGHT_ALONE),
    ],
    ids=["not clipped", "normalized"],
)
def test_planted_errors_of_sampling_weights_are_caught(planted, pair, monkeypatch):
    plan = rule(domain=SAMPLED).plan(8, 1)
    assert loss_at_zero(plan, pair) <= 1.0
    monkeypatch.setattr(SamplingWeights, "of", lambda own, cells: np.asarray(cells, dtype=float))
    monkeypatch.setattr(SamplingWeights, "factors", planted)
    assert loss_at_zero(plan, pair) > 2.0
