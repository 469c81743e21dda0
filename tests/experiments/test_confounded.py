"""The confounded scenario: weights of 1 are wrong there, and a private propensity gains from records."""

import numpy as np
import pytest
from confounded import CONFOUNDED, VARIANTS


def test_the_scenario_is_what_it_says():
    drawn = CONFOUNDED.draw(40_000, np.random.default_rng(0))
    data = drawn.dataset
    assert data.a.mean() == pytest.approx(0.72, abs=0.01)
    assert np.corrcoef(data.X[:, 0], data.a)[0, 1] > 0.2
    both = data.y - drawn.main_effect - (data.a - 0.5) * drawn.contrast
    assert both.std() == pytest.approx(0.5, rel=0.02)
    assert data.y.mean() == pytest.approx(3.0, abs=0.3)
    assert np.array_equal(drawn.optimal_rule, (data.X[:, 2] > data.X[:, 1]).astype(int))


def test_the_population_of_effects_is_that_of_rules():
    one = CONFOUNDED.population()
    drawn = one.draw(200_000, np.random.default_rng(1))
    again = CONFOUNDED.draw(200_000, np.random.default_rng(2))
    data, e = drawn.dataset, drawn.propensity
    gain = drawn.outcomes[:, 1] - drawn.outcomes[:, 0]
    assert np.mean(gain) == pytest.approx(one.effect, abs=0.01)
    assert np.mean(gain[data.a == 1]) == pytest.approx(one.effect_on_treated, abs=0.01)
    assert np.mean(data.a - e) == pytest.approx(0.0, abs=0.005)
    for mine, other in ((data.y, again.dataset.y), (data.a * data.y, again.dataset.a * again.dataset.y)):
        assert [np.mean(mine), np.std(mine)] == pytest.approx([np.mean(other), np.std(other)], abs=0.02)
    assert np.mean(np.abs(data.y - one.domain.outcome_center) > one.domain.outcome_bound) == 0.0


@pytest.mark.parametrize(
    ("name", "skewness"), [("skewed alike", (2.0, 2.0)), ("skewed oppositely", (-2.0, 2.0))]
)
def test_noise_is_skewed_as_stated(name, skewness):
    drawn = VARIANTS["robustness"]["populations"][name].draw(200_000, np.random.default_rng(3))
    a = drawn.dataset.a
    noise = drawn.dataset.y - drawn.main_effect - (a - 0.5) * drawn.contrast
    for arm, expected in enumerate(skewness):
        own = noise[a == arm]
        assert abs(own.mean()) < 0.02
        assert own.std() == pytest.approx(1.0, abs=0.02)
        assert np.mean(own**3) == pytest.approx(expected, abs=0.25)
