"""A release that follows from its own declarations, and what was changed in one."""

import contextlib
import json
from dataclasses import replace
from functools import reduce
from operator import getitem

import numpy as np
import pytest
from sklearn.base import clone

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, PrivateRanges, Within
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release.declaration import NotAtHandError
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.reading import parsed
from dp2erm_cvx.release.record import Release
from dp2erm_cvx.release.verify import verify
from tests.release.test_mutations import DOMAIN, MODELS, PURE, drawn

FAST = ("average effect", "rule and value", "balancing")


@pytest.fixture(scope="module")
def table():
    X, a, y = drawn()
    return X[["u", "v"]], a, y


def made(name, table):
    """The release of a model of the test of mutations, without its seed."""
    return clone(MODELS[name]).set_params(seed=None).fit(*table).release_


@pytest.fixture(scope="module", params=FAST)
def release(request, table):
    return made(request.param, table)


def changed(release, *path, value=None, by=None):
    """The release with another entry at a path of its file: a value, or a number that is multiplied."""
    plain = json.loads(release.to_json())
    place = reduce(getitem, path[:-1], plain)
    place[path[-1]] = value if by is None else place[path[-1]] * by
    return parsed(json.dumps(plain), type(release))


def test_what_was_released_is_verified(release):
    result = verify(type(release).from_json(release.to_json()))
    assert result.holds
    assert verify(release, Domain.from_dict(release.domain)).holds
    assert not verify(release, replace(DOMAIN, outcome_bound=3.0)).holds


def test_a_stronger_claim_is_refuted(release):
    """Of the whole release; every entry of a step is changed by the test of mutations."""
    changes = [
        (("guarantee", "theorem"), {"value": "Theorem 42"}),
        (("guarantee", "epsilon"), {"by": 0.01}),
        (("n_samples",), {"value": release.n_samples // 3}),
        (("guarantee", "relation"), {"value": "replace-one-keep-treatment"}),
        *((("steps", place, "scale"), {"by": 0.9999}) for place in range(len(release.steps))),
    ]
    for path, change in changes:
        with contextlib.suppress(DeclarationError):  # the reader, or the plan, refused it
            assert not verify(changed(release, *path, **change)).holds


def test_other_noise_than_is_declared_is_refuted(table):
    """More of it as well: a release states what its declaration gives, and what it was predicted to do."""
    effect = made("average effect", table)
    center = effect.step("center")
    more = replace(center, scale=2.0 * center.scale, gamma=1.5 * center.gamma)
    steps = tuple(more if step is center else step for step in effect.steps)
    place = steps.index(more)
    refuted = [line.split(":")[0] for line in verify(replace(effect, steps=steps)).refuted]
    assert refuted == [f"steps.{place}.scale", f"steps.{place}.gamma"]


def test_a_release_of_another_version_follows_or_names_its_version(table):
    effect = replace(made("average effect", table), version="0.0.1")
    assert verify(effect).holds
    with pytest.raises(DeclarationError, match=r"of dp2erm-cvx '0\.0\.1'.*steps\.0\.scale"):
        verify(changed(effect, "steps", 0, "scale", by=1.1))


def test_a_release_is_of_the_study_that_was_registered(table):
    effect = replace(made("average effect", table), study="ab" * 32)
    assert EffectRelease.from_json(effect.to_json()) == effect
    assert verify(effect, study="ab" * 32).holds
    (line,) = verify(effect, study="cd" * 32).refuted
    assert line.startswith("study: ")


def test_what_was_public_about_released_ranges_is_in_the_file(table):
    known = PrivateRanges(ranges=[Within(-5.0, 5.0), (-1.0, 1.0)])
    ranges = PrivateEffect(known, Budget(1000.0), seed=1).fit(*table).release_
    assert verify(EffectRelease.from_json(ranges.to_json())).holds
    assert [one.within for one in ranges.ranges] == [(-5.0, 5.0), None, None]
    (line,) = verify(changed(ranges, "steps", 0, "scale", by=1.1)).refuted
    assert line.startswith("steps.0.scale: ")


def test_a_truth_value_is_no_number(table):
    plain = json.loads(made("balancing", table).to_json())
    assert plain["own_units"]["constant"] == 0.0
    plain["own_units"]["constant"] = False  # which is 0 to Python
    with pytest.raises(DeclarationError, match="own_units does not follow"):
        Release.from_json(json.dumps(plain))


def test_what_the_file_does_not_hold_is_said(table):
    balanced = made("balancing", table)
    with pytest.raises(NotAtHandError, match="somebody_elses"):
        verify(changed(balanced, "declared", "first", "name", value="somebody_elses"))
    with pytest.raises(NotAtHandError, match="not the one known here"):
        verify(changed(balanced, "declared", "first", "digest", value="ab" * 32))


def test_an_assumption_is_part_of_the_claim(table):
    assumed = PrivateEffect(DOMAIN, PURE, arithmetic="assumed", seed=1).fit(*table).release_
    stated = list(assumed.guarantee.assumptions)
    assert verify(assumed).holds
    assert "Rounding errors are NOT covered" in assumed.summary()
    stated.remove("exact arithmetic assumed")
    (line,) = verify(changed(assumed, "guarantee", "assumptions", value=stated)).refuted
    assert line.startswith("guarantee.assumptions: ")


def test_labels_are_compared_where_a_column_is_not_named(table):
    """With them swapped the sign of an effect is another; tables of a file have no order."""
    ranges = {"u": (-1.0, 1.0), "v": (-1.0, 1.0)}

    def domain(*labels, ranges=ranges):
        return replace(DOMAIN, ranges=ranges, codebook=Codebook(treatment=Treatment(*labels), outcome="y"))

    X, a, y = table
    effect = PrivateEffect(domain("arm", "yes", "no"), PURE).fit(X, np.where(a == 1, "yes", "no"), y).release_
    turned = dict(reversed(ranges.items()))
    for expected in (domain("arm", "yes", "no"), domain(None, "yes", "no", ranges=turned)):
        assert verify(effect, expected).holds
    for labels in (("arm", "no", "yes"), (None, "no", "yes"), ()):
        assert verify(effect, domain(*labels)).refuted == ("domain: is not the one expected",)


def test_a_further_assumption_is_no_licence_for_other_neighbors(table):
    balanced = made("balancing", table)
    stated = replace(balanced.guarantee, assumptions=(*balanced.guarantee.assumptions, "a further one"))
    assert verify(replace(balanced, guarantee=stated)).holds
    for other in ({"relation": Neighboring.REPLACE_ONE_KEEP_TREATMENT}, {"unit": "persons by patient"}):
        assert not verify(replace(balanced, guarantee=replace(stated, **other))).holds


def test_an_unknown_program_is_no_licence_for_other_neighbors(table):
    balanced = made("balancing", table)
    plain = json.loads(balanced.to_json())
    plain["declared"]["first"]["name"] = "somebody_elses"
    assert Release.from_json(json.dumps(plain)).guarantee == balanced.guarantee
    for other in ({"relation": "replace-one-keep-treatment"}, {"unit": "persons by patient"}):
        forged = json.dumps({**plain, "guarantee": plain["guarantee"] | other})
        with pytest.raises(DeclarationError, match="relation and unit are not those of the domain"):
            Release.from_json(forged)


def test_what_is_true_of_every_step_has_to_be_true_of_all(table):
    """A small gamma is true at an epsilon of its own, and not under one delta for all."""
    rule = made("rule, Gaussian noise", table)

    steps = rule.to_dict()["steps"]
    for step in steps:
        step |= {"gamma": 0.05 * step["gamma"], "epsilon": 30.0}
        step["numerical"]["scale"] *= 100.0
    assert verify(rule).holds
    result = verify(changed(rule, "steps", value=steps))
    assert {line.split(".")[0] for line in result.refuted} == {"steps"}


def test_delta_does_not_move_from_one_step_to_another(table):
    rule = made("rule, Gaussian noise", table)
    assert not verify(changed(rule, "steps", len(rule.steps) - 1, "delta", value=1e-15)).holds
