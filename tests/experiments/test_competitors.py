"""Published estimators: right without noise, as noisy as they state, and functions of their seed."""

import numpy as np
import pytest
from competitors import EFFECTS, RULES, FoldNuisances, deviation, noisy
from populations import POPULATIONS

from dp2erm_cvx.audit import Split
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget

NO_NOISE = Budget(1e9)
#: Without the package of others, which few have.
WRITTEN = sorted(set(EFFECTS) - {"dpate"})


def drawn(n):
    one = POPULATIONS["binary"]
    data = one.draw(n, np.random.default_rng(0)).dataset
    return one.effect, one.domain.records(data.X, data.a, data.y)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_method_is_a_function_of_its_seed_and_finds_the_effect_without_noise(name):
    effect, records = drawn(n=600)
    found = [EFFECTS[name]()(records, Budget(1.0, 1e-5), np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert found[0].value == found[1].value != found[2].value
    effect, records = drawn(n=10_000)
    exact = EFFECTS[name]()(records, NO_NOISE, np.random.default_rng(1)).value
    assert exact == pytest.approx(effect, abs=0.03)


def test_sensitivities_of_folds_are_those_of_the_formula():
    _, records = drawn(n=1000)
    found = [FoldNuisances(estimator=name).sensitivity(records, 50) for name in ("g", "ipw", "aipw")]
    # B = 1/2, w in [1/.9, 10]; folds of equal size: own/n + others/K
    assert found == pytest.approx([2 / 1000 + 2 / 50, 10 / 1000 + (40 / 9) / 50, 20 / 1000 + (170 / 9) / 50])
    with pytest.raises(DeclarationError, match="must be g, ipw or aipw"):
        FoldNuisances(estimator="none")


@pytest.mark.parametrize("name", RULES)
def test_a_published_rule_is_right_without_noise_and_a_function_of_its_seed(name):
    # half are treated, who gain by x1 alone
    rng, rule, half = np.random.default_rng(0), RULES[name](), np.full(4000, 0.5)
    x, a = rng.uniform(-1, 1, (4000, 3)), rng.integers(2, size=4000)
    y = x[:, 1] + (2 * a - 1) * x[:, 0] + 0.1 * rng.standard_normal(4000)
    records = Domain(2.0, 3.0, intercept=1.0).records(x, a, y)
    right = records.X[:, 1] > 0
    theta = rule(records, half, None, np.random.default_rng(0))
    assert np.mean((records.X @ theta > 0) == right) > 0.95
    known = [rule(records, half, Budget(1.0, 1e-5), np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(known[0], known[1])
    assert not np.array_equal(known[0], known[2])
    near = rule(records, half, NO_NOISE, np.random.default_rng(1))
    assert np.mean((records.X @ near > 0) == right) > 0.9


def test_noise_has_the_scale_of_its_law():
    rng = np.random.default_rng(0)

    def draws(value, sensitivity, budget):
        return np.array([noisy(value, sensitivity, budget).draw(rng) for _ in range(4_000)])

    assert np.mean(np.abs(draws(0.0, 2.0, Budget(0.5)))) == pytest.approx(4.0, rel=0.06)
    # .5-GDP is (2, 1e-5)
    assert np.std(draws(0.0, 1.0, Budget(2.0, 1e-5))) == pytest.approx(2.0, rel=0.06)
    lengths = np.linalg.norm(draws(np.zeros(3), 2.0, Budget(0.5)), axis=1)
    assert np.mean(lengths) == pytest.approx(12.0, rel=0.06)
    for budget in (Budget(0.5), Budget(0.5, 1e-5)):
        spread = deviation(noisy(np.zeros(3), 2.0, budget))
        assert np.std(draws(np.zeros(3), 2.0, budget)) == pytest.approx(spread, rel=0.06)
    assert sorted(np.concatenate(Split(7, 3).draw(rng))) == list(range(7))
