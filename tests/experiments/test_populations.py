"""Populations are what they are said to be: effects, confounding, skewness and clips, from many records."""

import numpy as np
import pytest
from confounded import CONFOUNDED, VARIANTS
from populations import POPULATIONS, nhefs_plasmode, paper_population

from dp2erm_cvx.datasets import SCENARIOS, simulate

SIZE = 100_000
KNOWN = {
    **POPULATIONS,
    "nhefs plasmode": nhefs_plasmode(),
    "confounded": CONFOUNDED.population(),
    **{name: paper_population(name) for name in SCENARIOS},
}
#: How far the difference of means is off, as the authors of the first two state it.
CONFOUNDING = {"low overlap": 0.31, "regions": -0.34}


@pytest.mark.parametrize("name", KNOWN)
def test_effects_are_those_of_both_outcomes_and_of_weighting_by_the_propensity(name):
    one = KNOWN[name]
    sample = one.draw(SIZE, np.random.default_rng(5))
    data, e = sample.dataset, sample.propensity
    gain = sample.outcomes[:, 1] - sample.outcomes[:, 0]
    score = data.a * data.y / e - (1 - data.a) * data.y / (1 - e)
    for values in (gain, score):
        assert np.mean(values) == pytest.approx(one.effect, abs=4 * np.std(values) / SIZE**0.5 + 1e-5)
    assert np.mean(data.a - e) == pytest.approx(0.0, abs=4 * 0.5 / SIZE**0.5)
    np.testing.assert_array_equal(data.y, sample.outcomes[np.arange(SIZE), data.a])
    if one.effect_on_treated is not None:
        own = gain[data.a == 1]
        assert np.mean(own) == pytest.approx(one.effect_on_treated, abs=4 * np.std(own) / len(own) ** 0.5)
    if name in CONFOUNDING:
        naive = data.y[data.a == 1].mean() - data.y[data.a == 0].mean()
        assert naive - one.effect == pytest.approx(CONFOUNDING[name], abs=0.015)
    records = one.domain.records(data.X, data.a, data.y)
    norm = np.linalg.norm(records.covariates, axis=1)
    assert np.mean(norm > 0.999999 * one.domain.features_bound) < 0.35
    clipped = np.mean(np.abs(records.y) > 0.999999 * one.domain.outcome_bound)
    assert clipped < 0.002 or name == "binary"  # whose outcomes are the ends of their interval


@pytest.mark.parametrize("name", [*SCENARIOS, "confounded"])
def test_a_population_is_the_scenario_that_rules_are_learned_from(name):
    learned = CONFOUNDED.draw(SIZE, np.random.default_rng(8)) if name == "confounded" else None
    both = KNOWN[name].draw(SIZE, np.random.default_rng(7)), learned or simulate(name, SIZE, rng=8)
    for one in (lambda d: d.X[:, 0] * d.a, lambda d: d.y, lambda d: d.a * d.y, lambda d: d.y**2):
        left, right = (one(drawn.dataset) for drawn in both)
        error = np.hypot(np.std(left), np.std(right)) / SIZE**0.5
        assert np.mean(left) - np.mean(right) == pytest.approx(0.0, abs=4 * error)


@pytest.mark.parametrize(
    ("name", "deviation", "skewness"),
    [(None, 0.5, (0.0, 0.0)), ("skewed alike", 1.0, (2.0, 2.0)), ("skewed oppositely", 1.0, (-2.0, 2.0))],
)
def test_the_confounded_scenario_and_its_noise_are_as_stated(name, deviation, skewness):
    made = VARIANTS["robustness"]["populations"][name] if name else CONFOUNDED
    drawn = made.draw(200_000, np.random.default_rng(3))
    a, X = drawn.dataset.a, drawn.dataset.X
    assert name or (a.mean(), np.corrcoef(X[:, 0], a)[0, 1] > 0.2) == (pytest.approx(0.72, abs=0.01), True)
    assert np.array_equal(drawn.optimal_rule, (X[:, 2] > X[:, 1]).astype(int))
    noise = drawn.dataset.y - drawn.main_effect - (a - 0.5) * drawn.contrast
    for arm, expected in enumerate(skewness):
        own = noise[a == arm] / deviation
        assert [own.mean(), own.std()] == pytest.approx([0.0, 1.0], abs=0.02)
        assert np.mean(own**3) == pytest.approx(expected, abs=0.25)
