"""How far both arms lie apart is released with the means by arm: alarm, widening, and no interval
at all.
"""

import json
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, read_release
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.inference.distance import (
    Distance,
    at_released_distance,
    hardly_overlap,
    released_distance,
)
from dp2erm_cvx.inference.effect_error import nuisance_error
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.release.verify import plan_of, released_numbers
from dp2erm_cvx.report.answers import answers
from dp2erm_cvx.report.caveats import sentences
from dp2erm_cvx.report.story import story_of
from dp2erm_cvx.steps.covariates import ArmMeans, CovariateMean
from dp2erm_cvx.steps.record_map import UNIT

DOMAIN = Domain(2.0, 10.0, ranges=[(-1.0, 1.0)] * 2)


def table(agree, n=2000, seed=0):
    """The second covariate is the treatment, turned around in some records: in half of them it is
    noise.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, n)
    a = (rng.random(n) < 1.0 / (1.0 + np.exp(-x))).astype(int)
    sign = np.where(rng.random(n) < agree, 2.0 * a - 1.0, 1.0 - 2.0 * a)
    return np.column_stack([x, 0.9 * sign]), a, 2.0 * a - 3.0 * x + rng.normal(0.0, 2.0, n)


@cache
def fitted(agree, epsilon=9.0, domain=DOMAIN, **asked):
    X, a, y = table(agree)
    model = PrivateEffect(domain, Budget(epsilon), residual_scale=2.0, seed=1, **asked)
    return model.fit(X, a, y, accept=True).release_


def test_arms_that_a_covariate_decides_have_no_interval():
    release = fitted(0.98)
    assert (release.interval.low, release.interval.high, release.interval.bias) == (
        None,
        None,
        None,
    )
    assert release.caveats[0] == "arms-apart"
    story = story_of(release)
    assert "no confidence interval: the arms hardly overlap" in story.headline
    assert "No interval is stated" in release.summary()
    assert "weights" in sentences(release, "warns")[0]
    assert "dp2erm design" in sentences(release, "warns")[0]
    assert answers({"one": release})[0].withdrawn.startswith("the arms hardly overlap")


def test_a_release_without_an_interval_is_read_back_and_follows():
    tree = json.loads(fitted(0.98).to_json())
    assert tree["overlaps"] is False
    read_release(json.dumps(tree))
    for forged in ({"distance": {"least": 0.5, "estimate": 0.6}}, {"overlaps": True}):
        with pytest.raises(DeclarationError, match="follows"):
            read_release(json.dumps(tree | forged))


def test_risks_of_arms_that_hardly_overlap_have_no_ratios():
    X, a, y = table(0.98)
    events = replace(DOMAIN, outcome_bound=0.5, outcome_center=0.5)
    model = PrivateEffect(events, Budget(9.0), estimand="risks", settings={"rows": "arms"}, seed=1)
    release = model.fit(X, a, (y > 0.0).astype(float), accept=True).release_
    assert release.interval.low is None
    assert not release.ratios


def test_groups_of_arms_that_hardly_overlap_have_no_intervals_either():
    X, a, y = table(0.98)
    frame = pd.DataFrame({"x": X[:, 0], "kit": X[:, 1], "site": np.where(X[:, 0] > 0.0, "N", "S")})
    book = Codebook(levels={"site": ["N", "S"]})
    ranges = book.ranges({"x": (-1.0, 1.0), "kit": (-1.0, 1.0)})
    domain = Domain(book.norm(ranges), 10.0, ranges=ranges, codebook=book)
    model = PrivateEffect(domain, Budget(9.0), by="site", residual_scale=2.0, seed=1)
    release = model.fit(frame, a, y, accept=True).release_
    assert release.groups
    for group in release.groups:
        assert group.interval.low is None
        assert group.joint.high is None
    assert release.groups[1].contrast.interval.low is None
    assert "unbounded" not in release.summary()


def test_arms_that_overlap_keep_their_interval():
    release = fitted(0.5)
    assert release.interval.low < 2.0 < release.interval.high
    assert not {"arms-apart", "widened"} & set(release.caveats)
    assert 0.0 <= release.distance.least <= release.distance.estimate < 1.0
    assert "overlaps" not in json.loads(release.to_json())
    assert "By the released means they lie at least" in release.summary().replace("\n", " ")


def test_a_distance_beyond_the_declared_one_widens_and_a_smaller_one_changes_nothing():
    release = fitted(0.75, confounding=0.3)
    assert release.distance.least > 0.3
    assert "widened" in release.caveats
    plan = plan_of(release)
    facts = effect_facts(plan)
    wider = at_released_distance(facts, release.distance)
    assert wider.assumed == replace(facts.assumed, distance=release.distance.estimate)
    assert at_released_distance(facts, Distance(0.3, 0.9)) is facts
    assert at_released_distance(facts, None) is facts
    found, deviation = released_numbers(release, plan), release.standard_deviation
    assert nuisance_error(facts, found, deviation).bias < release.interval.bias
    assert nuisance_error(wider, found, deviation).bias == pytest.approx(release.interval.bias)


def test_the_distance_is_that_of_the_records_where_noise_is_small():
    X, a, _ = table(0.8)
    release = fitted(0.8, epsilon=4000.0)
    apart = X[a == 1].mean(axis=0) - X[a == 0].mean(axis=0)
    exact = math.sqrt(apart @ np.linalg.solve(np.cov(X.T), apart))
    assert release.distance.estimate == pytest.approx(exact, rel=0.06)
    assert release.distance.least == pytest.approx(release.distance.estimate, rel=0.02)


def test_covariates_that_vary_together_lie_no_farther_apart_for_it():
    """Two covariates that are nearly one: independent ones as far apart each would lie 1.4 times as
    far.
    """
    rng = np.random.default_rng(3)
    common, a = rng.standard_normal(4000), rng.integers(0, 2, 4000)
    X = 0.2 * (common[:, None] + 0.7 * a[:, None] + 0.2 * rng.standard_normal((4000, 2)))
    model = PrivateEffect(DOMAIN, Budget(40.0), residual_scale=2.0, seed=1)
    release = model.fit(X, a, rng.standard_normal(4000), accept=True).release_
    apart = X[a == 1].mean(axis=0) - X[a == 0].mean(axis=0)
    exact = math.sqrt(apart @ np.linalg.solve(np.cov(X.T), apart))
    assert release.distance.estimate == pytest.approx(exact, rel=0.1)
    assert np.linalg.norm(apart / X.std(axis=0)) > 1.3 * exact


@pytest.mark.parametrize(
    ("length", "rate", "expected"),
    [(1.40, 0.5, False), (1.42, 0.5, True), (1.7, 0.1, False), (2.0, 0.5, True)],
)
def test_arms_overlap_up_to_two_deviations_within_them(length, rate, expected):
    within = 1.0 - rate * (1.0 - rate) * length**2
    assert (within <= 0.0 or length / math.sqrt(within) > 2.0) is expected
    # the estimate counts where the lower end is more than is declared, else the lower end
    assert hardly_overlap(1.0, Distance(1.1, length), rate) is expected
    assert hardly_overlap(2.0, Distance(length, 2.5), rate) is expected
    assert not hardly_overlap(1.0, Distance(0.9, length), rate)
    assert not hardly_overlap(1.0, None, rate)


def noisy_distances(n=2000, draws=200):
    """Squared lengths of one difference with fresh noise, less what is expected of it."""
    release = fitted(0.5)
    plan = plan_of(release)
    facts, mean, found = effect_facts(plan), plan.step("mean"), released_numbers(release, plan)
    exact = np.tile([0.5 * n, 0.1 * n, -0.1 * n], 2) * UNIT
    rng = np.random.default_rng(2)
    unit, scale = mean.calibration.block, mean.calibration.scale
    for _ in range(draws):
        lengths = rng.gamma(unit + 1, scale, size=(2, 1))
        noise = (lengths * rng.uniform(-1.0, 1.0, (2, unit))).ravel()
        yield facts, found | {"mean": exact + noise}


def test_equal_means_lie_apart_by_more_than_the_lower_end_one_time_in_ten_at_most():
    """Of means that are alike noise alone leaves a length, and a tenth of them a lower end above
    0.
    """
    least = [released_distance(*one).least for one in noisy_distances()]
    assert 0.0 < np.mean(np.array(least) > 0.0) < 0.1


def test_too_few_records_release_a_mean_of_all_and_no_distance():
    """A mean by arm whose noise is too large for a mean that pays is not released."""
    wide = Domain(4.0, 10.0, ranges=[(-1.0, 1.0)])
    kinds = []
    for epsilon in (0.4, 4.0):
        plan = PrivateEffect(wide, Budget(epsilon), residual_scale=2.0).plan(1000, 1)
        kinds.append(type(plan.step("mean")))
    assert kinds == [CovariateMean, ArmMeans]


def test_a_release_that_shows_no_distance_says_who_sees_it():
    release = fitted(0.5, epsilon=0.2)
    assert release.distance is None
    text = " ".join(release.summary().split())
    assert "This release does not show how far apart they lie: only a look at the data" in text
