"""Exact densities of a composed rule: center, propensity, rule; one covariate and a constant, with flips."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateRule
from dp2erm_cvx.audit import audit_density
from dp2erm_cvx.audit.density import log_density_ratio
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.domain import Records, Universe
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.plan import RuleStudy, make_plan
from dp2erm_cvx.sampling import SamplingWeights
from dp2erm_cvx.steps.record_map import UNIT, Balance, RuleRows
from tests.audit.bugs import weaker
from tests.plan.changed import changed

N = 8
DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0)
SAMPLED = dataclasses.replace(DOMAIN, codebook=Codebook(sampling_weights=SamplingWeights("wt", 4.0)))


def planned(center=0.4, propensity=None, balance="matching", epsilon=1.0, domain=DOMAIN, **others):
    """``propensity`` is its share, None for factors 1."""
    settings = {"center_share": center, "propensity": None, "balance": balance, "cap": 5.0, **others}
    if propensity is not None:
        settings |= {"propensity": "logistic", "propensity_share": propensity}
    declared = {"outcome_scale": 0.05, "settings": settings, "arithmetic": "assumed"}
    return PrivateRule(domain, Budget(epsilon), **declared).plan(N, 1)


def records(a=1, y=1.0, others=1):
    """All covariates and outcomes are at their ends; the first record has this arm and outcome."""
    arms = np.where(np.arange(N) == 0, a, others)
    return np.ones((N, 1)), arms, np.where(np.arange(N) == 0, y, 1.0)


#: One outcome turns from one end to the other, where everybody else pulls to the first.
OPPOSED = records(), records(y=-1.0)
FLIP = records(), records(a=0)


def loss_at_zero(plan, pair):
    """The log ratio where every step releases 0."""
    one, other = audited_laws(plan, pair)[1]
    return abs(log_density_ratio(one, other, one.place(np.zeros(len(one.units)))))


@pytest.mark.parametrize(
    ("settings", "names", "pair", "least"),
    [
        ((), ["center", "rule"], OPPOSED, (0.999, 0.99)),
        # a factor of 1, and full slopes in center and rule
        ((0.3, 0.1), ["center", "propensity", "rule"], OPPOSED, (0.89, 0.89)),
        # the rule and the propensity see a flip; the center does not, unless the outcome turns as well
        ((0.1, 0.2), ["center", "propensity", "rule"], FLIP, (0.75, 0.75)),
    ],
)
def test_the_steps_of_a_rule_spend_epsilon_and_no_more(settings, names, pair, least):
    plan = planned(*settings)
    assert [step.name for step in plan.steps] == names
    assert least[0] < loss_at_zero(plan, pair) <= 1.0
    assert least[1] < audit_density(plan, *pair, starts=1).loss <= 1.0


def test_box_noise_in_every_step_keeps_epsilon():
    settings = {"center_share": 0.2, "propensity": "logistic", "propensity_share": 0.15}
    domain = dataclasses.replace(DOMAIN, coordinate_bound=1.0)
    declared = {"outcome_scale": 0.05, "settings": settings, "arithmetic": "assumed", "noise": "box"}
    plan = PrivateRule(domain, Budget(1.0), **declared).plan(N, 1)
    assert {step.calibration.noise for step in plan.steps} == {Noise.BOX}
    # center and rule have .85 of epsilon, which an outcome that turns takes; a flip takes less of the rule
    assert loss_at_zero(plan, OPPOSED) == pytest.approx(0.85, rel=1e-6)
    assert 0.5 < loss_at_zero(plan, FLIP) <= 1.0
    assert loss_at_zero(weaker(plan, "rule", scale=0.5), OPPOSED) > 1.4
    declared["settings"] = {"center_share": 0.4, "propensity": None}
    plan = PrivateRule(domain, Budget(1.0), **declared).plan(N, 1)
    assert 0.99 < audit_density(plan, *OPPOSED, starts=1).loss <= 1.0


def test_a_value_moves_by_its_share_at_most():
    """Both gains and their second moment, whatever was released: a record may change which one it adds to."""
    value = planned(0.2, 0.2, value_share=0.5, score_bound=0.01).step("value")
    rng, worst = np.random.default_rng(5), 0.0
    for _ in range(300):
        released = {name: rng.normal(size=2) * 10 ** rng.uniform(-2, 1) for name in ("center", "rule")}
        released["arms"] = rng.normal(size=4) * 10 ** rng.uniform(-2, 1)
        released["sides"] = rng.integers(-N, N, 4) * float(UNIT)
        x, a, y = rng.choice([-1.0, 1.0], (2, 1)), rng.integers(0, 2, 2), rng.choice([-1.0, 0.0, 1.0], 2)
        others = np.zeros((N - 1, 1)), np.zeros(N - 1), np.zeros(N - 1)
        pair = [
            DOMAIN.records(
                *(np.concatenate([one[i : i + 1], rest]) for one, rest in zip((x, a, y), others, strict=True))
            )
            for i in (0, 1)
        ]
        sums = [value.exact_sums(data, released) for data in pair]
        worst = max(worst, sum(abs(s - t) for s, t in zip(*sums, strict=True)))
    share = value.calibration.epsilon
    assert 0.98 * share < worst / value.calibration.scale <= share


def test_four_counts_move_by_their_share_at_most():
    """Every replacement of a record, against the exact noise: its side, its arm and whether it counts."""
    plan = planned(0.2, 0.2, value_share=0.5)
    counts, released = plan.step("sides"), {"rule": np.array([0.0, 1.0])}
    assert counts.calibration.epsilon == pytest.approx(0.5 * 0.2)  # few records: a fifth of the value
    ends = list(itertools.product([-1.0, 1.0], [0, 1], [0.0, 1.0]))
    sums = {}
    for x, arm, counted in ends:
        rows = Records(np.full((1, 1), x), np.array([arm]), np.zeros(1), DOMAIN, np.array([counted]))
        sums[x, arm, counted] = counts.exact_sums(rows, released)
        assert sum(sums[x, arm, counted]) == UNIT * counted
    moved = [sum(abs(s - t) for s, t in zip(sums[i], sums[j], strict=True)) for i in ends for j in ends]
    assert max(moved) == 2 * UNIT
    loss = max(moved) / counts.calibration.scale
    assert 0.999 * counts.calibration.epsilon < loss <= counts.calibration.epsilon
    # planted: sides of a rule that follows the records move far more than that
    x = np.linspace(-1.0, 1.0, N)[:, None]
    a, y = np.arange(N) % 2, np.zeros(N)
    pair = []
    for first in (-1.0, 1.0):
        data = DOMAIN.records(np.concatenate([[[first]], x[1:]]), a, y)
        own = {"rule": np.array([-np.mean(data.covariates) * 3.0, 1.0])}
        pair.append(counts.exact_sums(data, own))
    assert sum(abs(s - t) for s, t in zip(*pair, strict=True)) > 2 * UNIT


MATCHED = records(a=1, others=0), records(a=0, y=-1.0, others=0)


def public_propensity():
    study = planned(0.3, balance="inverse").study
    return make_plan(dataclasses.replace(study, declared={**study.declared, "propensity": (1.0, 2.0)}))


@pytest.mark.parametrize(
    ("plan", "pair", "least"),
    [
        *((planned(0.2, 0.2, *one), MATCHED, 0.3) for one in zip(Balance, (0.1, 5.0, 5.0), strict=True)),
        (public_propensity(), OPPOSED, 0.3),
        # Theorem 14: a flip turns a response from one end to the other, against full slopes of all others
        (planned(0.1, 0.1, response_bound=2.0), FLIP, 0.4),
    ],
)
def test_every_kind_of_rule_keeps_the_budget(plan, pair, least):
    result, epsilon = audit_density(plan, *pair, starts=1), plan.study.budget.epsilon
    assert least * epsilon < result.loss <= result.epsilon <= epsilon
    if plan.main.bound.V == 2.0 and pair is FLIP:  # noise for half of the bound that records are clipped to
        narrow = planned(0.1, 0.1, response_bound=1.0)
        wrong = changed(plan, "rule", calibration=narrow.main.calibration)
        assert audit_density(wrong, *FLIP, starts=1).loss > 1.5 * result.loss


def test_gaussian_steps_share_one_delta():
    """Center and rule with less noise than basic composition allows, and with far too little."""
    study = RuleStudy(
        Universe(DOMAIN, N, 1),
        Budget(1.0, 0.05),
        outcome_scale=0.05,
        declared={"center_share": 0.5, "propensity": None},
        noise="gaussian",
    )
    plan = make_plan(study)
    assert plan.joint
    result = audit_density(plan, *OPPOSED, draws=100)
    assert result.hockey_stick.low <= result.delta <= 0.05
    assert not result.exceeds
    wrong = dataclasses.replace(plan, steps=tuple(step.relieved(4.0) for step in plan.steps))
    assert audit_density(wrong, *OPPOSED, draws=100).exceeds


def weighted(pair, own, others=4.0):
    """The pair with sampling weights: the changed record has one and the other of ``own``."""
    result = []
    for (X, a, y), weight in zip(pair, own, strict=True):
        wt = np.where(np.arange(N) == 0, weight, others)
        result.append((pd.DataFrame({"x": X[:, 0], "wt": wt}), a, y))
    return tuple(result)


def test_records_with_sampling_weights_spend_epsilon_and_no_more():
    """A neighbor has another weight as well; beyond the bound it counts as the bound."""
    plan = planned(domain=SAMPLED)
    assert {step.bound.theorem for step in plan.steps} == {"Theorem 13 (factors at most 1, not normalized)"}
    assert 0.999 < loss_at_zero(plan, weighted(OPPOSED, (4.0, 4.0))) <= 1.0
    assert 0.999 < loss_at_zero(plan, weighted(OPPOSED, (4e9, 400.0))) <= 1.0
    # no number: that record does not count
    assert 0.499 < loss_at_zero(plan, weighted(OPPOSED, (np.inf, 4.0))) <= 1.0
    others = np.random.default_rng(2).choice([0.0, 0.5, 4.0], N)
    assert 0.5 < audit_density(plan, *weighted(FLIP, (1.0, 4.0), others), starts=1).loss <= 1.0
    all_steps = planned(0.3, 0.1, domain=SAMPLED)
    assert 0.89 < loss_at_zero(all_steps, weighted(OPPOSED, (4.0, 9.0))) <= 1.0
    one, (X, a, y) = weighted(OPPOSED, (4.0, 4.0))
    with pytest.raises(DataError, match="differ row by row"):
        audit_density(plan, one, (X.assign(wt=[4.0] * (N - 1) + [1.0]), a, y))


@pytest.mark.parametrize(
    ("planted", "pair"),
    [
        (lambda own, weights: weights / own.largest, weighted(OPPOSED, (12.0, 12.0))),
        # a mean weight of 1, which every record moves: neighbors that differ in a weight alone
        (
            lambda own, weights: len(weights) * weights / weights.sum(),
            weighted([(np.ones((N, 1)), np.ones(N, int), np.resize([1.0, -1.0], N))] * 2, (0.0, 4.0), 0.01),
        ),
    ],
    ids=["not clipped", "normalized"],
)
def test_planted_errors_of_sampling_weights_are_caught(planted, pair, monkeypatch):
    plan = planned(domain=SAMPLED)
    assert loss_at_zero(plan, pair) <= 1.0
    monkeypatch.setattr(SamplingWeights, "of", lambda own, cells: np.asarray(cells, dtype=float))
    monkeypatch.setattr(SamplingWeights, "factors", planted)
    assert loss_at_zero(plan, pair) > 2.0


class Normalized(RuleRows):
    """Its factors are divided by their mean."""

    def factors(self, records, released):
        result = super().factors(records, released)
        return N * result / max(result.sum(), 1e-300)


class Uncapped(RuleRows):
    """Inverse propensities of up to F where noise and gamma are those of factors of at most 1."""

    def factors(self, records, released):
        return self.balance.cap * super().factors(records, released)


class CenteredByTheData(RuleRows):
    """The mean of all outcomes is taken off, which moves every record with one."""

    def records(self, records, released):
        y = np.clip(records.y - records.y.mean(), -1.0, 1.0)
        return super().records(dataclasses.replace(records, y=y), released)


@pytest.mark.parametrize(
    ("settings", "kind", "pair"),
    [
        ((0.05, 0.05), Normalized, FLIP),
        ((0.05, 0.05, "inverse"), Uncapped, OPPOSED),
        ((0.4,), CenteredByTheData, (records(y=1.0), records(y=-1.0))),
    ],
    ids=["normalized", "inverse without its cap", "centered by the data"],
)
def test_planted_errors_are_caught(settings, kind, pair):
    plan = planned(*settings)
    fields = {field.name: getattr(plan.main.regression, field.name) for field in dataclasses.fields(RuleRows)}
    wrong = changed(plan, "rule", map=kind(**fields))
    assert audit_density(wrong, *pair, starts=1).exceeds


def test_a_third_of_gamma_is_caught():
    """A record without a slope, whose curvature appears, for one with full slope and none."""
    plan = planned(None, 0.05)
    wrong = weaker(plan, "rule", gamma=1 / 3)
    pair = records(y=0.0), records()
    assert loss_at_zero(wrong, pair) > 1.2
    assert 0.8 < loss_at_zero(plan, pair) <= 1.0
    assert audit_density(wrong, *pair, starts=1).exceeds
