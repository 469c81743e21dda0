"""Arms of several that hardly overlap with the others have no intervals; others keep theirs."""

from functools import cache

import numpy as np
import pytest

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment, read_release
from dp2erm_cvx.inference.distance import distances_from_the_rest
from dp2erm_cvx.plan.effect import effect_facts
from dp2erm_cvx.release.verify import plan_of, released_numbers
from dp2erm_cvx.report.answers import answers
from dp2erm_cvx.report.caveats import sentences
from dp2erm_cvx.report.plans import plan_blocks
from dp2erm_cvx.report.story import story_of

LEVELS = ("none", "low", "high")
N = 4000


def model(reference="none"):
    treatment = Treatment(levels=LEVELS, reference=reference, contrasts="pairs")
    domain = Domain(2.0, 8.0, ranges=[(-1.0, 1.0)] * 2, codebook=Codebook(treatment=treatment))
    return PrivateEffect(domain, Budget(6.0), residual_scale=1.0, seed=1)


@cache
def fitted(agree, reference="none"):
    """The second covariate tells the records of the arm "high" apart, but for some of them."""
    rng = np.random.default_rng(2)
    arm = rng.choice(3, N, p=[0.5, 0.3, 0.2])
    x = np.clip(rng.standard_normal((N, 2)) / 3.0 + 0.1 * arm[:, None], -1.0, 1.0)
    sign = np.where(rng.random(N) < agree, 2.0 * (arm == 2) - 1.0, rng.choice([-1.0, 1.0], N))
    x[:, 1] = 0.9 * sign
    y = 0.5 * arm + x[:, 0] + rng.standard_normal(N)
    labels = np.array(LEVELS, dtype=object)[arm]
    return model(reference).fit(x, labels, y, accept=True).release_


def stated(release):
    arms = release.arms
    means = {one.level: one.interval.half_width is not None for one in arms.means}
    pairs = {
        (one.level, one.against): (
            one.interval.half_width is not None,
            one.joint.half_width is not None,
        )
        for one in arms.contrasts
    }
    return means, pairs


def test_an_arm_that_a_covariate_tells_apart_has_no_intervals_and_the_others_keep_theirs():
    release = fitted(0.98)
    means, pairs = stated(release)
    assert means == {"none": True, "low": True, "high": False}
    assert pairs == {
        ("low", "none"): (True, True),
        ("high", "none"): (False, False),
        ("high", "low"): (False, False),
    }
    (one,) = release.apart
    assert one.level == "high"
    assert release.overlaps
    assert "some-arms-apart" in release.caveats
    warned = " ".join(sentences(release, "warns"))
    assert "so far from all others that they hardly overlap: high (about 2" in warned
    assert "95 % CI" in story_of(release).headline
    assert read_release(release.to_json()) == release
    assert str(release)
    named = {one.group: one.interval.half_width is None for one in answers({"q": release})}
    assert named["high less none"]
    assert not named["low less none"]


def test_without_an_interval_of_the_first_contrast_the_headline_says_that_there_is_none():
    release = fitted(0.98, "high")
    assert not release.overlaps
    assert release.interval.half_width is None
    assert release.caveats[0] == "arms-apart"
    headline = story_of(release).headline
    assert "no confidence interval: the arms hardly overlap with the others: high" in headline


def test_arms_that_overlap_keep_all_intervals():
    release = fitted(0.3)
    assert release.apart == ()
    assert "apart" not in release.to_dict()
    means, pairs = stated(release)
    assert all(means.values())
    assert all(all(both) for both in pairs.values())


def test_distances_from_the_rest_are_those_of_the_covariate_that_says_most():
    release = fitted(0.98)
    plan = plan_of(release)
    released = released_numbers(release, plan)
    shares = np.array([one.share for one in release.arms.means])
    distances = distances_from_the_rest(effect_facts(plan), released, shares)
    # means lie 2 (.9) (.98) apart; one of nearly two values is taken to lie at both ends
    mean = -0.9 * 0.6 * 0.98
    apart = 2.0 * 0.9 * 0.98 / np.sqrt((1.0 + mean) * (1.0 - mean))
    assert distances[2].estimate == pytest.approx(apart, rel=0.05)
    assert distances[0].least <= distances[0].estimate < 1.5


def test_a_plan_of_several_arms_says_at_which_distance_widths_are_predicted():
    text = " ".join(str(block) for block in plan_blocks(model().plan(N, 2)))
    flat = " ".join(text.split())
    assert "for arms 1 standard deviations apart, as is declared (confounding)" in flat
