"""Rare levels of which an arm has few records widen the intervals of risks, and are told."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, read_release
from dp2erm_cvx.inference.effect_error import risk_errors
from dp2erm_cvx.inference.levels import (
    LOG_ODDS,
    few_records,
    rare_levels_by_arm,
    with_rare_levels,
)
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.release.verify import plan_of, released_numbers
from dp2erm_cvx.report.caveats import sentences

N = 6000


@cache
def fitted(untreated_with=0.1, level="rare", share=0.02):
    """Risks of an event where a level of 2 % of the records is nearly always treated."""
    rng = np.random.default_rng(3)
    group = np.where(rng.random(N) < share, level, "usual")
    x = rng.uniform(-1.0, 1.0, N)
    treated = np.where(group == level, 1.0 - untreated_with, 0.5)
    a = (rng.random(N) < treated).astype(int)
    y = (rng.random(N) < 0.04 + 0.2 * (group == level) + 0.02 * a).astype(float)
    book = Codebook(levels={"group": (level,)}, missing={})
    ranges = book.ranges({"x": (-1.0, 1.0)})
    domain = Domain(book.norm(ranges), 0.5, 0.5, ranges=ranges, codebook=book, binary_outcome=True)
    model = PrivateEffect(domain, Budget(6.0), estimand="risks", seed=1)
    return model.fit(pd.DataFrame({"x": x, "group": group}), a, y, accept=True).release_


def facts_of(release):
    plan = plan_of(release)
    released = released_numbers(release, plan)
    return effect_facts(plan), released


def added(release):
    """What levels add to the squared noise of both risks, the treated first."""
    facts, released = facts_of(release)
    plain = risk_errors(facts, released, release.risks)
    wider = with_rare_levels(facts, released, plain)
    assert [one.bias for one in wider] == [one.bias for one in plain]
    return [after.noise**2 - before.noise**2 for after, before in zip(wider, plain, strict=True)]


def test_the_arm_that_hardly_has_a_level_errs_more():
    treated, untreated = added(fitted())
    assert untreated > 100.0 * treated > 0.0
    # at most the share of the level, its noise included, times a half
    assert untreated < (0.5 * 0.03) ** 2


def test_a_level_that_many_of_both_arms_have_adds_little():
    even, uneven = added(fitted(0.5, "often", 0.15))[1], added(fitted())[1]
    assert 4.0 * even < uneven


def test_a_level_is_rare_below_a_fifth_and_its_counts_are_near_the_true_ones():
    facts, released = facts_of(fitted())
    untreated, treated = rare_levels_by_arm(facts.mean, released)
    assert (untreated.arm, treated.arm) == (0, 1)
    assert untreated.counted == treated.counted
    assert abs(untreated.counted - 0.02 * N) < 4.0 * untreated.noise
    assert abs(untreated.counted_in_arm - 0.002 * N) < 4.0 * untreated.noise


@pytest.mark.slow
def test_levels_of_many_records_do_not_count_and_where_most_have_one_the_others_are_meant():
    facts, released = facts_of(fitted(0.5, "often", 0.4))
    assert rare_levels_by_arm(facts.mean, released) == []
    facts, released = facts_of(fitted(0.5, "often", 0.97))
    without = rare_levels_by_arm(facts.mean, released)[0]
    assert without.sign == -1.0
    assert abs(without.counted - 0.03 * N) < 4.0 * without.noise


def test_few_records_of_a_level_are_told_in_the_first_lines():
    release = fitted()
    assert "few-records" in release.caveats
    (one,) = release.few
    assert (one.level, one.having, one.treated) == ("group=rare", True, False)
    warned = " ".join(sentences(release, "warns"))
    assert "There may be fewer than 30 untreated with group rare (counted: " in warned
    assert read_release(release.to_json()).few == release.few


def test_of_many_records_nothing_is_told():
    release = fitted(0.5, "often", 0.15)
    assert release.few == ()
    assert "few" not in release.to_dict()
    assert "few-records" not in release.caveats
    facts, released = facts_of(release)
    assert few_records(facts.mean, released) == []
    assert few_records(None, released) == []


def test_a_risk_is_off_by_what_levels_are_apart_times_the_error_of_their_predictions():
    """The formula of the page in a law of one level, at public weights, to rounding."""
    share, in_arm, weight = 0.03, 0.002, 4.0
    risks, predicted = np.array([0.04, 0.36]), np.array([0.04, 0.9])
    shares = np.array([1.0 - share, share])
    weighted = np.array([1.0 - share, in_arm * weight])
    mean = shares @ predicted + weighted @ (risks - predicted)
    off = (share - weight * in_arm) * (predicted[1] - risks[1])
    assert mean - shares @ risks == pytest.approx(off, rel=1e-12)


def test_log_odds_cover_what_shares_of_an_arm_may_be():
    assert LOG_ODDS[0] == pytest.approx(-LOG_ODDS[-1])
    assert LOG_ODDS[-1] >= 6.0
