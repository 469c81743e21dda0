"""One format of pairs: every audit repeats what another one saved, and nothing else is taken for a
pair.
"""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.audit import (
    Attack,
    Claim,
    Finding,
    Quantity,
    SearchPlan,
    audit_stability,
    replay,
    search_density,
)
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program.registry import build, first_stages
from tests.audit.bugs import MEAN, HalfTheNoise, HardlyAnyGamma, release
from tests.audit.pairs import of_persons
from tests.audit.test_additive import at_a_fifth, noisy_mean_of_groups, searched
from tests.audit.test_runs import CONTINUOUS, half_the_noise, noisy_sum, search
from tests.audit.test_units import planned, sums, worst

DOMAIN = Domain(2.0, 1.0, 3.0, 0.5, ranges=[(-5.0, 1.0)], intercept=1.0)
IPW = build(first_stages(), "ipw_logistic", ridge=0.5, radius=1.0)
HONEST, PERSONS = release(second=MEAN, calibration="output"), planned(of_persons(), propensity=0.5)
WRONG, MAPPED = release(second=MEAN, calibration="output", cls=HalfTheNoise), release(domain=DOMAIN)
NO_GAMMA, ARM_MEANS = release(second="arm_means", cls=HardlyAnyGamma), release(second="arm_means")
#: A pair was once written by the middle of a range where the domain scales by a declared center.
SMALL = Universe(replace(DOMAIN, center=(-4.0,)), 6, 1), [Claim("too small", Quantity.V, 1.0)]

#: By kind: a search, what it searched, and what keeps to what is declared on the same pair.
SEARCHES = {
    "density": (lambda: search_density(WRONG, 5, 1, search=SearchPlan(2), starts=1), WRONG, HONEST),
    "gamma": (
        lambda: search_density(NO_GAMMA, 4, 1, search=SearchPlan(2), starts=1),
        NO_GAMMA,
        ARM_MEANS,
    ),
    "ranges": (lambda: search_density(MAPPED, 4, 1, search=SearchPlan(1), starts=1), MAPPED, None),
    "stability": (
        lambda: audit_stability(IPW, None, SMALL[0], bounds=SMALL[1], search=SearchPlan(60)),
        None,
        None,
    ),
    "additive": (lambda: searched(at_a_fifth, evaluations=60), at_a_fifth, noisy_mean_of_groups),
    "persons": (lambda: worst(PERSONS, 30), sums(PERSONS), None),
    "runs": (lambda: search(half_the_noise), half_the_noise, noisy_sum),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """What a search of this kind finds, and the path that it was saved to."""
    folder = tmp_path_factory.mktemp("pairs")

    @cache
    def search_and_save(kind):
        result = SEARCHES[kind][0]()
        result.save(folder / kind)
        return result, folder / kind

    return search_and_save


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("kind", SEARCHES)
def test_a_saved_pair_is_audited_again(kind, saved):
    (result, path), (_, subject, honest) = saved(kind), SEARCHES[kind]
    again = replay(path, subject)
    if kind == "stability":
        assert again.violated
    elif kind == "runs":  # at another seed
        assert (again.runs, again.exceeds) == (result.audit.runs, True)
        assert again.seed != result.audit.seed
    else:
        assert again == result.audit
    if honest is not None:  # found without a hint
        assert result.exceeds
        assert not replay(path, honest).exceeds
    assert json.loads(path.with_suffix(".json").read_text())["private"] is (kind == "stability")


@pytest.mark.slow
def test_a_pair_of_runs_is_told_in_words(saved):
    result, path = saved("runs")
    facts = json.loads(path.with_suffix(".json").read_text())["finding"]
    assert facts["mechanism"] == "half_the_noise"
    assert facts["audit"]["epsilon_low"] == result.audit.epsilon_low
    assert [kind["in"] for kind in facts["records"][:2]] == ["first only", "second only"]
    assert sum(kind["times"] for kind in facts["records"][2:]) in (0, 39)
    np.testing.assert_array_equal(Finding.load(path).raw()[1][2], result.second[2])


def test_a_solver_may_be_another_one_and_a_seed_too(saved):
    path = saved("density")[1].with_suffix(".json")
    assert replay(
        path, release(second=MEAN, calibration="output", cls=HalfTheNoise, solver="clarabel")
    ).exceeds
    attack = Attack(runs=800, takes_rng=True, seed=7, events=CONTINUOUS)
    assert replay(saved("runs")[1], half_the_noise, attack=attack).exceeds
    assert not replay(saved("runs")[1], noisy_sum, attack=attack).exceeds


def test_a_neighbor_replaces_all_records_of_one_person(saved):
    result, _ = saved("persons")
    (*one, person), (*other, person2) = result.first, result.second
    assert set(person) | set(person2) <= set(range(8))
    assert max(np.bincount(person)) > 1
    for column, changed_column in zip(one, other, strict=True):
        np.testing.assert_array_equal(column[person > 0], changed_column[person2 > 0])


def test_records_come_back_in_either_unit(saved):
    pair = Finding.load(saved("stability")[1])
    for raw, records in zip(pair.raw(), pair.records(), strict=True):
        mapped = pair.domain.records(*raw)
        np.testing.assert_allclose(mapped.X, records.X, atol=1e-12)
        np.testing.assert_allclose(mapped.y, records.y, atol=1e-12)
        assert np.array_equal(mapped.a, records.a)
    assert pair.domain.center == (-4.0,)
    first, second = pair.records()
    differ = (first.X != second.X).any(axis=1) | (first.a != second.a)
    assert np.flatnonzero(differ).tolist() == [pair.changed]


@pytest.mark.parametrize(
    ("kind", "ending", "change", "words"),
    [
        ("density", "json", {"format": "dp2erm-cvx counterexample 1"}, "another format"),
        ("ranges", "json", {"mapped": True}, "not a saved pair"),
        ("density", "json", None, "not a saved pair"),
        ("additive", "json", {"audit": "density"}, "density audit"),
        ("additive", "json", {"finding": {}}, "not a saved pair"),
        (
            "stability",
            "json",
            {"first_stage": {"name": "uniform", "settings": {"ridge": 0.5}}},
            "ridge",
        ),
        ("stability", "npz", ("X_first", lambda X: 3 * X), "not a saved pair"),
        ("stability", "npz", ("a_second", lambda a: 1 - a), "not a saved pair"),
        ("stability", "npz", ("X_first", lambda X: X[1:]), "not a saved pair"),
        ("persons", "npz", ("y_second", lambda y: y + 1.0), "not a saved pair"),
    ],
)
def test_what_holds_no_pair_of_neighbors_is_refused(kind, ending, change, words, saved, tmp_path):
    path, (_, subject, _) = saved(kind)[1], SEARCHES[kind]
    facts, arrays = (
        json.loads(path.with_suffix(".json").read_text()),
        dict(np.load(path.with_suffix(".npz"))),
    )
    if ending == "json":
        facts = {} if change is None else facts | change
    else:
        arrays[change[0]] = change[1](arrays[change[0]])
    np.savez(tmp_path / "pair.npz", **arrays)
    (tmp_path / "pair.json").write_text(json.dumps(facts))
    with pytest.raises((DataError, DeclarationError), match=words):
        replay(tmp_path / "pair", subject)


def test_treatments_differ_only_where_the_relation_protects_them(tmp_path):
    x, y, arms = np.zeros((2, 1)), np.zeros(2), (np.array([0, 1]), np.array([1, 1]))
    for relation in Neighboring:
        domain = Domain(1.0, 1.0, relation=relation)
        Finding((x, arms[0], y), (x, arms[1], y), domain, "stability", {}).save(tmp_path / relation)
    assert Finding.load(tmp_path / "replace-one").changed == 0
    with pytest.raises(DataError, match="not a saved pair"):
        Finding.load(tmp_path / "replace-one-keep-treatment")
