"""A release that follows from its own declarations, and what was changed in one."""

import contextlib
import json
from dataclasses import replace
from functools import reduce
from operator import getitem

import numpy as np
import pytest

from dp2erm_cvx import Codebook, Domain, PrivateEffect, read_release
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release.declaration import NotAtHandError
from dp2erm_cvx.release.reading import json_schema, parsed, read_release_file
from dp2erm_cvx.release.two_stage import Release
from dp2erm_cvx.release.verify import verify
from tests.every_release import DOMAIN, PURE, RELEASES, release_of, table_of


def changed(release, path, change):
    """The release with another entry at a path of its file: a value, or what is made of the one
    there.
    """
    plain = json.loads(release.to_json())
    plain.pop("own_units", None)  # a reader refuses others than follow
    *path, last = (int(name) if name.isdecimal() else name for name in path.split("."))
    place = reduce(getitem, path, plain)
    place[last] = change(place[last]) if callable(change) else change
    return parsed(json.dumps(plain), type(release))


@pytest.mark.one_row_in(10)
@pytest.mark.parametrize("name", RELEASES)
def test_a_release_is_read_again_and_follows_from_what_it_states(name, tmp_path):
    release, path = release_of(name), tmp_path / "release.json"
    path.write_text(release.to_json())
    again = read_release_file(path)
    assert (type(again), again, again.to_json()) == (type(release), release, release.to_json())
    assert set(json_schema(type(release))["required"]) <= set(json.loads(path.read_text()))
    assert verify(again, Domain.from_dict(release.domain)).holds


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", ["average effect", "rule and value", "balancing"])
def test_a_stronger_claim_is_refuted(name):
    """Of the whole release; every entry of a step is changed by the test of mutations."""
    release = release_of(name)
    assert not verify(release, replace(DOMAIN, outcome_bound=3.0)).holds
    for path, change in (
        ("guarantee.theorem", "Theorem 42"),
        ("guarantee.epsilon", lambda epsilon: 0.01 * epsilon),
        ("n_samples", lambda n: n // 3),
        ("guarantee.relation", "replace-one-keep-treatment"),
        *(
            (f"steps.{place}.scale", lambda scale: 0.9999 * scale)
            for place in range(len(release.steps))
        ),
    ):
        with contextlib.suppress(DeclarationError):  # the reader, or the plan, refused it
            assert not verify(changed(release, path, change)).holds


def small_gammas(steps):
    """True at an epsilon of each step's own, and not under one delta for all."""
    for step in steps:
        step |= {"gamma": 0.05 * step["gamma"], "epsilon": 30.0}
        step["numerical"]["scale"] *= 100.0
    return steps


def without_exact(assumptions):
    return [one for one in assumptions if one != "exact arithmetic assumed"]


@pytest.mark.one_row_in(12)
@pytest.mark.parametrize(
    ("name", "path", "change", "told"),
    [
        # more noise as well: a release states what its declaration gives, and what it was predicted
        # to do
        ("average effect", "steps.2.scale", lambda scale: 2.0 * scale, "steps.2.scale"),
        ("average effect", "steps.2.gamma", lambda gamma: 1.5 * gamma, "steps.2.gamma"),
        ("ranges", "steps.0.scale", lambda scale: 1.1 * scale, "steps.0.scale"),
        ("arithmetic assumed", "guarantee.assumptions", without_exact, "guarantee.assumptions"),
        ("rule, Gaussian noise", "steps", small_gammas, "steps.0.epsilon"),
        ("rule, Gaussian noise", "steps.1.delta", 1e-15, "steps.1.delta"),
        # no run releases what is off the grid of its noise
        (
            "average effect",
            "nuisances.1.coefficient.0",
            lambda spread: spread * (1 + 1e-9),
            "nuisances.1.coefficient",
        ),
        ("rule of all", "theta.0", lambda theta: theta * (1 + 1e-9), "theta"),
        # every number has a name
        ("trial", "nuisances.0.parameters", [], "nuisances.0"),
        ("groups", "groups.1.contrast.estimate", 0.0, "groups.1.contrast.estimate"),
        ("groups", "groups.1.contrast.joint.high", 90.0, "groups.1.contrast.joint.high"),
        ("groups", "counted", 900.0, "counted"),
        ("arms", "arms.contrasts.0.estimate", 0.0, "arms.contrasts.0.estimate"),
        ("arms", "arms.contrasts", lambda contrasts: contrasts[:1], "arms.contrasts"),
        ("among the treated", "interval.bias", lambda bias: 0.5 * bias, "interval.bias"),
        ("overlap", "interval.bias", lambda bias: 0.5 * bias, "interval.bias"),
        ("overlap", "target", "score", "interval.bias"),
        ("risks", "interval.bias", lambda bias: 0.5 * bias, "interval.bias"),
        ("risks", "ratios", [], "ratios"),
        ("risks", "ratios.0.interval.low", 1.2, "ratios.0.interval.low"),
        ("rule of all", "covariate_mean.0", 0.3, "covariate_mean.0"),
        ("rule of all", "covariate_norm", 0.7, "covariate_norm"),
        ("rule of all", "covariate_scale.1", 1.0, "covariate_scale.1"),
        ("rule of all", "nuisances.0.coefficient.1", 10.0, "covariate_mean.1"),
        ("rule of all", "nuisances.1.coefficient.0", 900.0, "covariate_scale.0"),
        ("rule of all", "nuisances.4.coefficient.2", 60.0, "gains.0.estimate"),
        ("rule of all", "gains.0.interval.bias", 0.0, "gains.0.interval.bias"),
        ("rule of all", "gains.1.interval.high", 9.0, "gains.1.interval.high"),
    ],
)
def test_what_does_not_follow_is_refuted(name, path, change, told):
    refuted = verify(changed(release_of(name), path, change)).refuted
    assert told in [line.split(":")[0] for line in refuted]


def test_a_release_of_another_version_follows_or_names_its_version():
    effect = replace(release_of("average effect"), version="0.0.1")
    assert verify(effect).holds
    with pytest.raises(DeclarationError, match=r"of dp2erm-cvx '0\.0\.1'.*steps\.0\.scale"):
        verify(changed(effect, "steps.0.scale", 9.0))


def test_a_release_is_of_the_study_that_was_registered():
    effect = replace(release_of("average effect"), study="ab" * 32)
    assert read_release(effect.to_json()) == effect
    assert verify(effect, study="ab" * 32).holds
    (line,) = verify(effect, study="cd" * 32).refuted
    assert line.startswith("study: ")


def test_a_truth_value_is_no_number():
    plain = json.loads(release_of("balancing").to_json())
    assert plain["own_units"]["constant"] == 0.0
    plain["own_units"]["constant"] = False  # which is 0 to Python
    with pytest.raises(DeclarationError, match="own_units does not follow"):
        read_release(json.dumps(plain), Release)


def test_what_the_file_does_not_hold_is_said():
    balanced = release_of("balancing")
    with pytest.raises(NotAtHandError, match="somebody_elses"):
        verify(changed(balanced, "declared.first.name", "somebody_elses"))
    with pytest.raises(NotAtHandError, match="is that of a file of SHA-256 'abab"):
        verify(changed(balanced, "declared.first.source", {"own.py": "ab" * 32}))


def test_labels_are_compared_where_a_column_is_not_named():
    """With them swapped the sign of an effect is another; tables of a file have no order."""
    ranges = {"u": (-1.0, 1.0), "v": (-1.0, 1.0)}

    def domain(*labels, ranges=ranges):
        return replace(
            DOMAIN, ranges=ranges, codebook=Codebook(treatment=Treatment(*labels), outcome="y")
        )

    X, a, y = table_of("trial")
    effect = (
        PrivateEffect(domain("arm", "yes", "no"), PURE)
        .fit(X, np.where(a == 1, "yes", "no"), y)
        .release_
    )
    turned = dict(reversed(ranges.items()))
    for expected in (domain("arm", "yes", "no"), domain(None, "yes", "no", ranges=turned)):
        assert verify(effect, expected).holds
    for labels in (("arm", "no", "yes"), (None, "no", "yes"), ()):
        assert verify(effect, domain(*labels)).refuted == ("domain: is not the one expected",)


def test_a_unit_that_the_domain_states_otherwise_is_refuted():
    """A reader takes an effect in cmHg for ten times that in mmHg."""
    X, a, y = table_of("trial")
    books = [Codebook(units=units) for units in ({"y": "mmHg"}, {"y": "cmHg"}, {})]
    stated, other, silent = (replace(DOMAIN, codebook=replace(book, outcome="y")) for book in books)
    effect = PrivateEffect(stated, PURE).fit(X, a, y).release_
    assert verify(effect, stated).holds
    assert verify(effect, silent).holds
    assert verify(effect, other).refuted == ("domain: is not the one expected",)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", ["balancing", "scheme under Renyi"])
def test_a_further_assumption_is_no_licence_for_another_guarantee(name):
    release = release_of(name)
    known = release.guarantee
    stated = replace(known, assumptions=(*known.assumptions, "a further one"))
    assert verify(replace(release, guarantee=stated)).holds
    others = [{"relation": Neighboring.REPLACE_ONE_KEEP_TREATMENT}, {"unit": "persons by patient"}]
    assert (known.delta > 0.0) is (name == "scheme under Renyi")
    others += [
        {part: 0.9 * getattr(known, part)} for part in ("epsilon", "delta") if getattr(known, part)
    ]
    for other in others:
        assert not verify(replace(release, guarantee=replace(stated, **other))).holds


def test_a_release_by_an_unknown_program_is_not_read():
    balanced = release_of("balancing")
    plain = json.loads(balanced.to_json())
    plain["declared"]["first"]["name"] = "somebody_elses"
    with pytest.raises(NotAtHandError, match="'somebody_elses' is of no file"):
        read_release(json.dumps(plain), Release)
