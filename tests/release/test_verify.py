"""A release that follows from its own declarations, and what was changed in one."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRanges, PrivateRule, PrivateTwoStageERM, Within
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release.declaration import NotAtHandError
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.release.verify import verify

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=2.0, arm_floor=20)
PURE, APPROXIMATE = Budget(1.0), Budget(1.0, 1e-5)

RELEASES = {
    "effect": lambda: PrivateEffect(DOMAIN, PURE, residual_scale=0.3),
    "effect, gaussian": lambda: PrivateEffect(DOMAIN, APPROXIMATE, residual_scale=0.3, noise="gaussian"),
    "effect, box": lambda: PrivateEffect(replace(DOMAIN, coordinate_bound=1.0), PURE, noise="box"),
    "att": lambda: PrivateEffect(DOMAIN, PURE, estimand="att", settings={"propensity": "logistic"}),
    "rule": lambda: PrivateRule(DOMAIN, PURE, outcome_scale=0.6, expected=["confounding"]),
    "rule, gaussian": lambda: PrivateRule(DOMAIN, APPROXIMATE, expected=["confounding"], noise="gaussian"),
    "rule and value": lambda: PrivateRule(DOMAIN, PURE, settings={"propensity": 0.5, "value_share": 0.2}),
    "entropy balancing": lambda: PrivateTwoStageERM(DOMAIN, PURE),
    "mmd, gaussian": lambda: PrivateTwoStageERM(DOMAIN, APPROXIMATE, "mmd", "itr_huber", noise="gaussian"),
    "private propensity": lambda: PrivateTwoStageERM(DOMAIN, PURE, "ipw_private", "itr_logistic"),
    "arm means, auto": lambda: PrivateTwoStageERM(
        DOMAIN, APPROXIMATE, "uniform", "arm_means", calibration="auto", arithmetic="assumed"
    ),
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X, a = rng.uniform(-0.7, 0.7, (300, 2)), rng.integers(0, 2, 300)
    return X, a, X[:, 0] + 0.5 * a + 0.1 * rng.standard_normal(300)


FAST = ("effect", "rule and value", "entropy balancing")


@pytest.fixture(
    scope="module",
    params=[one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in RELEASES],
)
def release(request, table):
    return RELEASES[request.param]().fit(*table).release_


def changed(release, change):
    plain = json.loads(release.to_json())
    change(plain)
    return parsed(json.dumps(plain), type(release))


def times(*path, by):
    def change(plain):
        for name in path[:-1]:
            plain = plain[name]
        plain[path[-1]] = plain[path[-1]] * by

    return change


def put(*path, value):
    def change(plain):
        for name in path[:-1]:
            plain = plain[name]
        plain[path[-1]] = value

    return change


def test_what_was_released_is_verified(release):
    found = verify(type(release).from_json(release.to_json()))
    assert found.holds
    assert verify(release, Domain.from_dict(release.domain)).holds
    assert not verify(release, replace(DOMAIN, outcome_bound=3.0)).holds


def test_a_stronger_claim_is_refuted(release):
    """Of the whole release; every entry of a step is changed by the test of mutations."""
    changes = [
        put("guarantee", "theorem", value="Theorem 42"),
        times("guarantee", "epsilon", by=0.01),
        put("n_samples", value=release.n_samples // 3),
        put("guarantee", "relation", value="replace-one-keep-treatment"),
        *(times("steps", place, "scale", by=0.9999) for place in range(len(release.steps))),
    ]
    for change in changes:
        with contextlib.suppress(DeclarationError):  # the reader, or the plan, refused it
            assert not verify(changed(release, change)).holds


def test_estimates_are_what_the_integers_say(table):
    effect = RELEASES["effect"]().fit(*table).release_
    shifted = replace(effect, estimate=effect.estimate + 0.01)
    (line,) = verify(shifted).refuted
    assert line == f"estimate: {shifted.estimate} stated, {effect.estimate} follows"
    rule = RELEASES["rule and value"]().fit(*table).release_
    gain = replace(rule.gains[0], estimate=rule.gains[0].estimate + 0.01)
    (line,) = verify(replace(rule, gains=(gain, *rule.gains[1:]))).refuted
    assert line.startswith("gains.0.estimate: ")


def test_other_noise_than_is_declared_is_refuted(table):
    """More of it as well: a release states what its declaration gives, and what it was predicted to do."""
    effect = RELEASES["effect"]().fit(*table).release_
    center = effect.step("center")
    more = replace(center, scale=2.0 * center.scale, gamma=1.5 * center.gamma)
    steps = tuple(more if step is center else step for step in effect.steps)
    place = steps.index(more)
    refuted = [line.split(":")[0] for line in verify(replace(effect, steps=steps)).refuted]
    assert refuted == [f"steps.{place}.scale", f"steps.{place}.gamma"]


def test_a_release_of_another_version_follows_or_names_its_version(table):
    effect = replace(RELEASES["effect"]().fit(*table).release_, version="0.0.1")
    assert verify(effect).holds
    with pytest.raises(DeclarationError, match=r"of dp2erm-cvx '0\.0\.1'.*steps\.0\.scale"):
        verify(changed(effect, times("steps", 0, "scale", by=1.1)))


def test_a_release_is_of_the_study_that_was_registered(table):
    effect = replace(RELEASES["effect"]().fit(*table).release_, study="ab" * 32)
    assert EffectRelease.from_json(effect.to_json()) == effect
    assert verify(effect, study="ab" * 32).holds
    (line,) = verify(effect, study="cd" * 32).refuted
    assert line.startswith("study: ")


def test_what_was_public_about_released_ranges_is_in_the_file(table):
    known = PrivateRanges(ranges=[Within(-5.0, 5.0), (-1.0, 1.0)])
    ranges = PrivateEffect(known, Budget(1000.0), seed=1).fit(*table).release_
    assert verify(EffectRelease.from_json(ranges.to_json())).holds
    assert [one.within for one in ranges.ranges] == [(-5.0, 5.0), None, None]
    (line,) = verify(changed(ranges, times("steps", 0, "scale", by=1.1))).refuted
    assert line.startswith("steps.0.scale: ")


def test_what_the_file_does_not_hold_is_said(table):
    balanced = RELEASES["entropy balancing"]().fit(*table).release_
    with pytest.raises(NotAtHandError, match="somebody_elses"):
        verify(changed(balanced, put("declared", "first", "name", value="somebody_elses")))
    with pytest.raises(NotAtHandError, match="not the one known here"):
        verify(changed(balanced, put("declared", "first", "digest", value="ab" * 32)))


def test_an_assumption_is_part_of_the_claim(table):
    assumed = PrivateEffect(DOMAIN, PURE, arithmetic="assumed", seed=1).fit(*table).release_
    stated = list(assumed.guarantee.assumptions)
    assert verify(assumed).holds
    assert "Rounding errors are NOT covered" in assumed.summary()
    stated.remove("exact arithmetic assumed")
    (line,) = verify(changed(assumed, put("guarantee", "assumptions", value=stated))).refuted
    assert line.startswith("guarantee.assumptions: ")


def test_a_further_assumption_is_no_licence_for_other_neighbors(table):
    balanced = RELEASES["entropy balancing"]().fit(*table).release_
    stated = replace(balanced.guarantee, assumptions=(*balanced.guarantee.assumptions, "a further one"))
    assert verify(replace(balanced, guarantee=stated)).holds
    fewer = replace(stated, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    assert not verify(replace(balanced, guarantee=fewer)).holds


def test_what_is_true_of_every_step_has_to_be_true_of_all(table):
    """A small gamma is true at an epsilon of its own, and not under one delta for all."""
    rule = RELEASES["rule, gaussian"]().fit(*table).release_

    def bend(plain):
        for step in plain["steps"]:
            step |= {"gamma": 0.05 * step["gamma"], "epsilon": 30.0}
            step["numerical"]["scale"] *= 100.0

    assert verify(rule).holds
    found = verify(changed(rule, bend))
    assert {line.split(".")[0] for line in found.refuted} == {"steps"}


def test_delta_does_not_move_from_one_step_to_another(table):
    rule = RELEASES["rule, gaussian"]().fit(*table).release_
    less = put("steps", len(rule.steps) - 1, "delta", value=1e-15)
    assert not verify(changed(rule, less)).holds
