"""Published estimators: right without noise, as noisy as they state, and functions of their seed."""

import numpy as np
import pytest
from competitors import (
    EFFECTS,
    RULES,
    FoldNuisances,
    NoisyInteractions,
    NoisyLeastSquares,
    PrivatePropensity,
    SubsampleAggregate,
    WeightedLearning,
    deviation,
    group_count,
    noisy,
    ridge_line,
    ridge_logistic,
)
from populations import POPULATIONS
from scipy.optimize import minimize

from dp2erm_cvx.audit import Split
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget

NO_NOISE = Budget(1e9)
#: Without the package of others, which few have.
WRITTEN = sorted(set(EFFECTS) - {"dpate"})


def drawn(name="binary", n=6000, seed=0):
    one = POPULATIONS[name]
    data = one.draw(n, np.random.default_rng(seed)).dataset
    return one, one.domain.records(data.X, data.a, data.y)


def replaced(records, row, x, a, y):
    X, arms, outcomes = np.array(records.X), np.array(records.a), np.array(records.y)
    X[row], arms[row], outcomes[row] = x, a, y
    return Records(X, arms, outcomes, records.domain)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_method_is_a_function_of_its_seed(name):
    _, records = drawn(n=600)
    found = [EFFECTS[name]()(records, Budget(1.0, 1e-5), np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert found[0].value == found[1].value != found[2].value


@pytest.mark.parametrize("name", WRITTEN)
def test_without_noise_a_method_finds_the_effect(name):
    one, records = drawn(n=10_000)
    found = EFFECTS[name]()(records, NO_NOISE, np.random.default_rng(1)).value
    assert found == pytest.approx(one.effect, abs=0.03)


def without_noise(method, records):
    """What the noise of a generator is added to."""
    return method(records, NO_NOISE, np.random.default_rng(3)).value


def test_the_average_of_groups_moves_by_at_most_what_is_stated():
    domain = Domain(1.0, 1.0, intercept=0.5)
    X, a, y = np.column_stack([np.full(40, 0.5), np.zeros(40)]), np.ones(40, dtype=int), np.full(40, 1.0)
    a[7], y[7] = 0, -1.0  # the only control
    records, method = Records(X, a, y, domain), SubsampleAggregate(per_column=10.0)
    at = without_noise(method, records)
    assert at == pytest.approx(1.0)  # 2 in one of two groups, nothing in the other
    moved = [without_noise(method, replaced(records, 7, X[7], arm, 1.0)) - at for arm in (0, 1)]
    assert moved == pytest.approx([-1.0, -1.0])
    assert max(abs(np.array(moved))) <= 4.0 / 2


def test_weighted_means_move_by_at_most_what_is_stated():
    # the propensity from one half is noise alone at this budget, the same on both sides
    domain = Domain(1.0, 1.0, intercept=0.5)
    X = np.column_stack([np.full(40, 0.5), np.zeros(40)])
    a, y = np.tile([0, 1], 20), np.full(40, 1.0)
    records, method = Records(X, a, y, domain), PrivatePropensity(clip=0.1, ridge=10.0)
    at = without_noise(method, records)
    moved = [without_noise(method, replaced(records, row, X[row], 1, -1.0)) - at for row in range(40)]
    # e = 1/2: from -y/(1 - e) to -1/e or from 1/e to -1/e
    assert max(abs(np.array(moved))) <= 2.0 / (0.1 * 20)
    assert max(abs(np.array(moved))) == pytest.approx(4.0 / 20, rel=0.1)


@pytest.mark.parametrize("estimator", ["g", "ipw", "aipw"])
def test_means_of_folds_move_by_at_most_what_is_stated(estimator):
    method = FoldNuisances(estimator=estimator, per_column=10.0, ridge=1e-6)
    rng, most = np.random.default_rng(0), 0.0
    for trial in range(40):
        # few records of either arm in a fold, so that one of them turns its models around
        X = np.column_stack([np.full(60, 0.5), rng.choice([-0.5, 0.5], 60)])
        a, y = (rng.random(60) < 0.15).astype(int), rng.choice([-1.0, 1.0], 60)
        if trial % 2:
            a = 1 - a
        records, row = Records(X, a, y, Domain(1.0, 1.0, intercept=0.5)), int(rng.integers(60))
        other = replaced(records, row, [0.5, -0.5 * np.sign(X[row, 1])], 1 - a[row], -y[row])
        most = max(most, abs(without_noise(method, other) - without_noise(method, records)))
    folds = group_count(60, 2, 10.0)
    assert folds == 3
    assert 0.02 < most / method.sensitivity(records, folds) <= 1.0


def test_sensitivities_of_folds_are_those_of_the_formula():
    _, records = drawn(n=1000)
    found = [FoldNuisances(estimator=name).sensitivity(records, 50) for name in ("g", "ipw", "aipw")]
    # B = 1/2, w in [1/.9, 10]; folds of equal size: own/n + others/K
    assert found == pytest.approx([2 / 1000 + 2 / 50, 10 / 1000 + (40 / 9) / 50, 20 / 1000 + (170 / 9) / 50])
    with pytest.raises(DeclarationError, match="must be g, ipw or aipw"):
        FoldNuisances(estimator="none")


def test_second_moments_move_by_at_most_what_is_stated(monkeypatch):
    known = []
    path = "competitors.noisy"
    monkeypatch.setattr(path, lambda *asked: known.append(asked[:2]) or noisy(*asked))
    _, records = drawn(n=300)
    method = NoisyLeastSquares()
    far = np.concatenate([[1.0], 4.0 * np.eye(10)[0]])
    for row in range(10):
        for a, y, x in ((0, -0.5, far), (1, 0.5, np.flip(far))):
            without_noise(method, replaced(records, row, x, a, y))
    values, moves = np.array([value for value, _ in known]), known[0][1]
    apart = max(np.linalg.norm(left - right) for left in values for right in values)
    assert 0.5 * moves < apart <= 2 * moves  # two of these differ in two records
    # no noise: the coefficient of treatment by least squares
    rows = np.column_stack([records.X, records.a])
    exact = np.linalg.lstsq(rows, records.y)[0][-1]
    found = NoisyLeastSquares(ridge=1e-9)(records, NO_NOISE, np.random.default_rng(0)).value
    assert found == pytest.approx(exact, abs=1e-4)


def randomized(n=4000, seed=0):
    """Half are treated, who gain by x1 alone."""
    rng = np.random.default_rng(seed)
    x, a = rng.uniform(-1, 1, (n, 3)), rng.integers(2, size=n)
    domain = Domain(2.0, 3.0, intercept=1.0)
    return domain.records(x, a, x[:, 1] + (2 * a - 1) * x[:, 0] + 0.1 * rng.standard_normal(n))


@pytest.mark.parametrize("name", RULES)
def test_a_published_rule_is_right_without_noise_and_a_function_of_its_seed(name):
    records, half = randomized(), np.full(4000, 0.5)
    rule = RULES[name]()
    right = records.X[:, 1] > 0
    theta = rule(records, half, None, np.random.default_rng(0))
    assert np.mean((records.X @ theta > 0) == right) > 0.95
    known = [rule(records, half, Budget(1.0, 1e-5), np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(known[0], known[1])
    assert not np.array_equal(known[0], known[2])
    near = rule(records, half, NO_NOISE, np.random.default_rng(1))
    assert np.mean((records.X @ near > 0) == right) > 0.9


@pytest.mark.parametrize(
    ("rule", "least"), [(WeightedLearning(ridge=0.05, clip=0.5), 0.3), (NoisyInteractions(), 0.5)]
)
def test_what_noise_is_added_to_moves_by_at_most_what_is_stated(rule, least, monkeypatch):
    known = []
    monkeypatch.setattr("competitors.noisy", lambda *asked: known.append(asked[:2]) or noisy(*asked))
    records, half = randomized(n=60), np.full(60, 0.5)
    far = np.array([1.0, *(np.sqrt(3.0) * np.eye(3)[0])])  # of the norm bound
    for a, y, x in ((0, 3.0, far), (1, 3.0, far), (1, -3.0, far), (0, 3.0, far * [1, -1, 1, 1])):
        rule(replaced(records, 0, x, a, y), half, Budget(1.0), np.random.default_rng(0))
    values, moves = np.array([value for value, _ in known]), known[0][1]
    assert moves == 2.0 / (60 * 0.05) or least == 0.5
    apart = max(np.linalg.norm(left - right) for left in values for right in values)
    assert least * moves < apart <= moves * (1.0 + 1e-12)


def test_logistic_minimizers_agree_with_a_second_solver_and_move_as_little_as_proven():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    a = (rng.random(60) < 0.7).astype(float)

    def objective(w, a=a):
        return np.mean(np.logaddexp(0.0, -(2 * a - 1) * (X @ w))) + 0.005 * w @ w

    w = ridge_logistic(X, a, 0.01)
    assert w == pytest.approx(minimize(objective, np.zeros(3), tol=1e-12).x, abs=1e-4)
    flipped = a.copy()
    flipped[np.argmax(np.linalg.norm(X, axis=1))] = 1 - a[np.argmax(np.linalg.norm(X, axis=1))]
    assert np.linalg.norm(ridge_logistic(X, flipped, 0.01) - w) <= 2 / (60 * 0.01)
    # separated arms: the ridge holds the minimizer
    assert np.all(np.isfinite(ridge_logistic(X, (X[:, 0] > 0).astype(float), 1e-3)))


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


def test_models_of_folds_are_those_of_other_folds():
    # every record is its own surprise: with its own fold's model the terms would be known to it
    _, records = drawn(n=900)
    method, rng = FoldNuisances(estimator="g", per_column=15.0), np.random.default_rng(5)
    members = Split(900, group_count(900, 11, 15.0)).draw(np.random.default_rng(5))
    terms = np.zeros(900)
    ridge = np.concatenate([[1e-6], np.full(10, 0.01)])
    for rows in members:
        for others in members:
            if others is not rows:
                for arm in (0, 1):
                    own = others[records.a[others] == arm]
                    line = ridge_line(records.X[own], records.y[own], ridge)
                    terms[rows] += (2 * arm - 1) * np.clip(records.X[rows] @ line, -0.5, 0.5)
    exact = np.mean(terms) / (len(members) - 1)
    assert method(records, NO_NOISE, rng).value == pytest.approx(exact, abs=1e-6)
