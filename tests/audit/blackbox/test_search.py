"""The search for a pair whose runs refute a guarantee: what is planted is found, who is honest left alone."""

from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Attack, Declared, SearchPlan, search_runs
from dp2erm_cvx.audit.events import CountBound
from dp2erm_cvx.audit.finding import Finding, differing_rows
from dp2erm_cvx.domain import Universe

CONTINUOUS = ("values", "tails", "learned")
SMALL = Universe(Domain(1.0, 1.0, arm_floor=5), 40, 2)


def noisy_sum(dataset, rng, scale=2.0):
    """The sum of the treated outcomes moves by at most 2, so that this is epsilon = 2 / scale."""
    _, a, y = dataset
    return float(np.sum(y[a == 1]) + rng.laplace(scale=scale))


def half_the_noise(dataset, rng):
    return noisy_sum(dataset, rng, scale=1.0)


def intercept_without_noise(dataset, rng):
    _, a, y = dataset
    return [y.sum() + rng.laplace(scale=2.0), a.mean()]


def one_scalar_for_a_vector(dataset, rng):
    """Each sum alone has all the noise that it needs, but it is the same noise."""
    _, a, y = dataset
    return np.array([y[a == 1].sum(), y[a == 0].sum()]) + rng.laplace(scale=4.0)


def centered_by_the_data(dataset, rng):
    """Clipping after a standardization by the data bounds no record's share."""
    _, _, y = dataset
    spread = y.std()
    z = np.clip((y - y.mean()) / (spread if spread > 0 else 1.0), -1, 1)
    return float(z.sum() + rng.laplace(scale=2.0))


def jumps_at_a_share(dataset, rng):
    """Only neighbors on both sides of one share of treated records are far apart."""
    _, a, _ = dataset
    return 5.0 * (a.mean() > 0.62) + rng.laplace(scale=1.0)


def search(mechanism, seed=0, universe=SMALL, **settings):
    attack = Attack(runs=1200, takes_rng=True, seed=seed, events=CONTINUOUS)
    plan = SearchPlan(evaluations=settings.pop("evaluations", 40), seed=seed)
    return search_runs(mechanism, universe, Declared(1.0), attack=attack, search=plan, **settings)


@pytest.mark.parametrize(
    "wrong",
    [
        half_the_noise,
        intercept_without_noise,
        one_scalar_for_a_vector,
        centered_by_the_data,
        jumps_at_a_share,
    ],
)
def test_what_is_planted_is_found(wrong):
    result = search(wrong)
    assert result.exceeds
    assert "VIOLATED" in str(result)
    assert not result.private
    assert differing_rows(result.first, result.second).sum() == 1


@pytest.mark.parametrize("seeds", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_who_keeps_the_word_is_not_flagged(seeds):
    result = [search(noisy_sum, seed=seed) for seed in range(seeds)]
    assert sum(one.exceeds for one in result) <= seeds // 10
    # though four searches of five find a pair on which much is lost of what may be
    assert sum(one.audit.epsilon_low <= 0.4 for one in result) <= seeds // 5


def test_pairs_stay_in_the_domain_and_its_relation():
    domain = Domain(2.0, 3.0, arm_floor=8, relation="replace-one-keep-treatment", outcome_center=5.0)
    seen = []

    def watched(dataset, rng):
        seen.append(dataset)
        return rng.normal()

    result = search(watched, universe=Universe(domain, 20, 3), evaluations=12)
    for X, a, y in seen[::97]:
        assert X.shape == (20, 3)
        assert np.all(np.linalg.norm(X, axis=1) <= 2.0 * (1 + 1e-12))
        assert np.all(np.abs(y - 5.0) <= 3.0 * (1 + 1e-12))
        assert 8 <= a.sum() <= 12
    assert (result.first[1] == result.second[1]).all()
    assert result.counts["screened"] >= 12


COUNTEREXAMPLES = Path(__file__).parents[3] / "docs/experiments/counterexamples"


@pytest.mark.parametrize("path", sorted(COUNTEREXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_counterexamples_of_the_docs_say_what_they_count(path):
    pair = Finding.load(path)
    assert differing_rows(pair.first, pair.second).sum() == 1
    audit = pair.facts["audit"]
    assert audit["epsilon_low"] > audit["epsilon"]
    runs = audit["counted"][0]["runs"]
    bound = CountBound(runs, (1 - audit["confidence"]) / 4, audit["delta"])
    result = [bound.one(way["hits"], way["other_hits"]) for way in audit["counted"]]
    assert max(result) == pytest.approx(audit["epsilon_low"], rel=1e-12)
    file, name = pair.facts["mechanism"].split(":")
    assert f"def {name}(" in (COUNTEREXAMPLES / file).read_text()
    page = (COUNTEREXAMPLES.parent / "audited_methods.md").read_text()
    assert f"**{audit['epsilon_low']:.2f}**" in page
    assert f"`{path.stem}`" in page
