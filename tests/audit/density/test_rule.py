"""The exact loss of a composed rule: center, propensity, rule; one covariate and a constant, with flips."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateRule
from dp2erm_cvx.plan import make_plan
from dp2erm_cvx.steps import Balance, PropensityPlan
from tests.plan.changed import changed

N = 8
DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0)


def planned(center=0.4, propensity=None, balance="matching", epsilon=1.0, **others):
    """``propensity`` is its share, None for factors 1, or a public probability."""
    settings = {"center_share": center, "propensity": None, "balance": balance, "cap": 5.0, **others}
    if propensity is not None:
        settings |= {"propensity": "logistic", "propensity_share": propensity}
    declared = {"outcome_scale": 0.05, "settings": settings, "arithmetic": "assumed"}
    return PrivateRule(DOMAIN, Budget(epsilon), **declared).plan(N, 1)


def right_factors(step, records, released):
    return step.map.factors(records, released)


def normalized(step, records, released):
    found = step.map.factors(records, released)
    return N * found / max(found.sum(), 1e-300)


def uncapped(step, records, released):
    """Inverse propensities of up to F where noise and gamma are those of factors of at most 1."""
    return step.map.factors(records, released) * (step.map.balance.cap if step.map.factored else 1.0)


def log_density(step, records, released, factors):
    """Of what the step released, less a constant: log det of the Hessian, less the norm of its noise."""
    mapped, theta = step.map.records(records, released), released[step.name]
    if isinstance(step, PropensityPlan):
        model = step.first.perturbed(mapped, step.calibration.gamma, np.zeros(2)).model
    else:
        weights = factors(step, records, released)
        model = step.program.instance(mapped, weights, gamma=step.calibration.gamma).model
    determinant = np.linalg.slogdet(model.hessian(theta))[1]
    return determinant - np.linalg.norm(model.gradient(theta)) / step.calibration.scale


def total_loss(plan, pair, released, factors=right_factors, before=lambda records: records):
    """Log ratio of the densities at these outputs, in the worst output of a value.

    ``before`` is what a wrong map does to all records.
    """
    one, other = (
        sum(log_density(step, before(data), released, factors) for step in plan.steps if step != plan.value)
        for data in pair
    )
    if plan.value is None:
        return abs(one - other)
    sums = [plan.value.exact_sums(data, released) for data in pair]
    apart = sum(abs(a - b) for a, b in zip(*sums, strict=True))
    return abs(one - other) + apart / plan.value.calibration.integers.scale


def draw_pair(rng):
    """Neighbors whose one differing record may flip, often at the ends of the domain."""

    def one(size):
        ends = rng.choice([-1.0, 0.0, 1.0], (2, size)), rng.uniform(-1, 1, (2, size))
        x, y = ends[int(rng.integers(2))]
        return x, rng.integers(0, 2, size), y

    kind = rng.integers(3)
    x, a, y = one(N) if kind else (np.full(N, one(1)[0][0]), np.full(N, rng.integers(0, 2)), np.ones(N))
    if kind == 1:
        x = np.full(N, x[0])
    other = x.copy(), a.copy(), y.copy()
    for data in ((x, a, y), other):
        for column, value in zip(data, one(1), strict=True):
            column[0] = value[0]
    if rng.integers(2):
        other[0][0], other[1][0], other[2][0] = x[0], a[0], -y[0]
    return [DOMAIN.records(X[:, None], arm, outcome) for X, arm, outcome in ((x, a, y), other)]


def draw_output(rng, plan):
    found = {}
    for step in plan.steps:
        if step == plan.value:
            continue
        size = 10.0 ** rng.uniform(-2, 1)
        found[step.name] = np.clip(size * rng.standard_normal(2), -11.0, 11.0)
        if step.name == "propensity":
            lam = rng.standard_normal(2)
            radius = 0.99 * step.first.radius / np.linalg.norm(lam)
            found[step.name] = lam * radius * rng.choice([0.01, 0.3, 1.0])
    return found


def searched(plan, count, seed=0, enough=np.inf, **changes):
    rng = np.random.default_rng(seed)
    best = (-np.inf, None, None)
    for _ in range(count):
        if best[0] > enough:
            break
        pair = draw_pair(rng)
        for _ in range(4):
            released = draw_output(rng, plan)
            loss = total_loss(plan, pair, released, **changes)
            if loss > best[0]:
                best = loss, pair, released
    return best


def opposed(a=1):
    """One outcome turns from one end to the other, where everybody else pulls to the first."""
    x, arm, y = np.ones((N, 1)), np.full(N, a), np.ones(N)
    return [DOMAIN.records(x, arm, np.where(np.arange(N) == 0, end, y)) for end in (1.0, -1.0)]


def test_center_and_rule_spend_all_of_epsilon():
    plan = planned()
    assert [step.name for step in plan.steps] == ["center", "rule"]
    at = {"center": np.zeros(2), "rule": np.zeros(2)}
    assert 0.999 < total_loss(plan, opposed(), at) <= 1.0
    assert searched(plan, 40)[0] <= 1.0


def test_center_propensity_and_rule_spend_nearly_all():
    plan = planned(0.3, 0.1)
    assert [step.name for step in plan.steps] == ["center", "propensity", "rule"]
    # a factor of 1, and full slopes in center and rule
    at = {"center": np.zeros(2), "propensity": np.zeros(2), "rule": np.zeros(2)}
    assert 0.89 < total_loss(plan, opposed(), at) <= 1.0
    assert searched(plan, 50)[0] <= 1.0


def test_a_record_that_flips_spends_what_it_may():
    """The rule and the propensity see a flip; the center does not, unless the outcome turns as well."""
    plan = planned(0.1, 0.2)
    x, y = np.ones((N, 1)), np.ones(N)
    pair = [DOMAIN.records(x, np.where(np.arange(N) == 0, arm, 1), y) for arm in (1, 0)]
    for size in (0.0, 0.5, -0.5):
        at = {"center": np.zeros(2), "propensity": np.full(2, size), "rule": np.zeros(2)}
        assert (0.75 if size == 0.0 else 0.3) < total_loss(plan, pair, at) <= 1.0


def test_a_value_spends_its_share_and_no_more():
    plan = planned(0.2, 0.2, value_share=0.5, score_bound=0.5)
    assert [step.name for step in plan.steps] == ["center", "propensity", "rule", "value"]
    value = plan.value.calibration
    assert value.epsilon == pytest.approx(0.5)
    loss, pair, released = searched(plan, 80, seed=4)
    assert 0.5 < loss <= 1.0
    # both gains from the noise that covers one of them
    half = dataclasses.replace(value.integers, scale=value.integers.scale / 3)
    wrong = changed(plan, "value", calibration=dataclasses.replace(value, integers=half))
    assert total_loss(wrong, pair, released) > 1.0


@pytest.mark.parametrize("balance", Balance)
@pytest.mark.parametrize("epsilon", [0.1, 5.0])
def test_every_balance_keeps_the_budget(balance, epsilon):
    plan = planned(0.2, 0.2, balance, epsilon)
    assert searched(plan, 15, seed=2)[0] <= epsilon


def test_a_public_propensity_keeps_the_budget():
    study = planned(0.3, balance="inverse").study
    plan = make_plan(dataclasses.replace(study, declared={**study.declared, "propensity": (1.0, 2.0)}))
    assert [step.name for step in plan.steps] == ["center", "rule"]
    assert plan.rule.map.factored
    assert searched(plan, 30, seed=3)[0] <= 1.0


def centered_by_the_data(records):
    """The mean of all outcomes taken off, which moves every record with one."""
    y = np.clip(records.y - records.y.mean(), -1.0, 1.0)
    return dataclasses.replace(records, y=y)


@pytest.mark.parametrize(
    ("plan", "changes"),
    [
        (planned(0.05, 0.05), {"factors": normalized}),
        (planned(0.05, 0.05, "inverse"), {"factors": uncapped}),
        (planned(0.4), {"before": centered_by_the_data}),
    ],
    ids=["normalized", "inverse without its cap", "centered by the data"],
)
def test_planted_errors_are_caught(plan, changes):
    loss, pair, released = searched(plan, 400, seed=1, enough=1.0, **changes)
    assert loss > 1.0
    # on the same pair, at the same output, the release as it is keeps its budget
    assert total_loss(plan, pair, released) <= 1.0


def test_a_third_of_gamma_is_caught():
    """A record without a slope, whose curvature appears, for one with full slope and none."""
    plan = planned(None, 0.05)
    gamma = plan.rule.calibration.gamma / 3
    wrong = changed(plan, "rule", calibration=dataclasses.replace(plan.rule.calibration, gamma=gamma))
    x, arm = np.ones((N, 1)), np.ones(N, dtype=int)
    pair = [DOMAIN.records(x, arm, np.where(np.arange(N) == 0, end, 1.0)) for end in (0.0, 1.0)]
    at = {"propensity": np.zeros(2), "rule": np.zeros(2)}
    assert total_loss(wrong, pair, at) > 1.2
    assert 0.8 < total_loss(plan, pair, at) <= 1.0
