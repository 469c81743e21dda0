"""Populations are what they are said to be: effects, confounding and clips, from many records."""

import numpy as np
import pytest
from populations import POPULATIONS, nhefs_plasmode, paper_population

from dp2erm_cvx.datasets import SCENARIOS, simulate

SIZE = 100_000
KNOWN = {
    **POPULATIONS,
    "nhefs plasmode": nhefs_plasmode(),
    **{name: paper_population(name) for name in SCENARIOS},
}
#: How far the difference of means is off, as the authors of the first two state it.
CONFOUNDING = {"low overlap": 0.31, "regions": -0.34}


@pytest.fixture(scope="module", params=list(KNOWN))
def drawn(request):
    one = KNOWN[request.param]
    return one, one.draw(SIZE, np.random.default_rng(5))


def test_the_effect_is_the_mean_difference_of_both_outcomes(drawn):
    scenario, sample = drawn
    differences = sample.outcomes[:, 1] - sample.outcomes[:, 0]
    error = np.std(differences) / np.sqrt(SIZE)
    assert np.mean(differences) == pytest.approx(scenario.effect, abs=4 * error + 1e-5)


def test_weighting_by_the_propensity_finds_the_effect(drawn):
    scenario, sample = drawn
    data, e = sample.dataset, sample.propensity
    score = data.a * data.y / e - (1 - data.a) * data.y / (1 - e)
    assert np.mean(score) == pytest.approx(scenario.effect, abs=4 * np.std(score) / np.sqrt(SIZE))
    assert np.mean(data.a - e) == pytest.approx(0.0, abs=4 * 0.5 / np.sqrt(SIZE))


def test_a_record_shows_the_outcome_of_its_arm(drawn):
    _, sample = drawn
    data = sample.dataset
    np.testing.assert_array_equal(data.y, sample.outcomes[np.arange(SIZE), data.a])


def test_the_domain_clips_few_records(drawn):
    scenario, sample = drawn
    records = scenario.domain.records(sample.dataset.X, sample.dataset.a, sample.dataset.y)
    norm = np.linalg.norm(records.covariates, axis=1)
    assert np.mean(norm > 0.999999 * scenario.domain.features_bound) < 0.35
    assert np.mean(np.abs(records.y) > 0.999999 * scenario.domain.outcome_bound) < 0.002 or (
        scenario.name == "binary"  # whose outcomes are the ends of their interval
    )


@pytest.mark.parametrize(("name", "off"), CONFOUNDING.items())
def test_the_difference_of_means_is_off_as_published(name, off):
    scenario = KNOWN[name]
    data = scenario.draw(SIZE, np.random.default_rng(6)).dataset
    naive = data.y[data.a == 1].mean() - data.y[data.a == 0].mean()
    assert naive - scenario.effect == pytest.approx(off, abs=0.01)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_of_the_paper_is_the_one_that_rules_are_learned_from(name):
    whole, single = KNOWN[name].draw(SIZE, np.random.default_rng(7)), simulate(name, SIZE, rng=8)
    for one in (lambda d: d.X[:, 0] * d.a, lambda d: d.y, lambda d: d.a * d.y, lambda d: d.y**2):
        left, right = one(whole.dataset), one(single.dataset)
        error = np.hypot(np.std(left), np.std(right)) / np.sqrt(SIZE)
        assert np.mean(left) - np.mean(right) == pytest.approx(0.0, abs=4 * error)
    treated = whole.dataset.a == 1
    if KNOWN[name].effect_on_treated is not None:
        gain = (whole.outcomes[:, 1] - whole.outcomes[:, 0])[treated]
        error = np.std(gain) / np.sqrt(treated.sum())
        assert np.mean(gain) == pytest.approx(KNOWN[name].effect_on_treated, abs=4 * error)
    with pytest.raises(KeyError):
        paper_population("none")
