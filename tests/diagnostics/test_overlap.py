from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import approx_fprime
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.diagnostics import overlap_table, precheck, propensity_precheck
from dp2erm_cvx.errors import DataError, DeclarationError, SolverError

SCORE = np.array([0.05, 0.2, 0.4, 0.6, 0.3, 0.6, 0.8, 0.95])
A = np.array([0, 0, 0, 0, 1, 1, 1, 1])


def test_the_table_by_hand() -> None:
    table = overlap_table(SCORE, A)
    assert table.limits == (0.1, 0.9)
    # linear between the order statistics 0.05, 0.2, 0.4, 0.6
    assert table.control.quantiles == pytest.approx((0.05, 0.0725, 0.1625, 0.3, 0.45, 0.57, 0.6))
    assert (table.control.outside_limits, table.treated.outside_limits) == (0.25, 0.25)
    assert table.outside_limits == 0.25
    assert table.support == (0.3, 0.6)
    assert (table.control.outside_support, table.treated.outside_support) == (0.5, 0.5)
    assert table.outside_support == 0.5
    # 16 pairs: 0.3 above two controls, 0.6 above three and tied with one, the others above all four
    assert table.auc == (2 + 3.5 + 4 + 4) / 16


def test_the_area_is_that_of_the_mann_whitney_test() -> None:
    rng = np.random.default_rng(0)
    arms = (rng.random(300) < 0.3).astype(int)
    score = np.round(np.clip(rng.normal(0.4 + 0.1 * arms, 0.2), 0, 1), 1)  # many ties
    u = stats.mannwhitneyu(score[arms == 1], score[arms == 0]).statistic
    table = overlap_table(score, arms)
    assert table.auc == pytest.approx(u / (arms.sum() * (1 - arms).sum()))
    assert overlap_table(score, 1 - arms).auc == pytest.approx(1 - table.auc)


def test_the_ends_of_the_limits_are_inside() -> None:
    assert overlap_table([0.1, 0.9], [0, 1]).outside_limits == 0.0
    assert overlap_table([0.1, 0.9], [0, 1], limits=(0.2, 0.9)).outside_limits == 0.5


@pytest.mark.parametrize(
    ("score", "arms", "sentence"),
    [
        ([0.5, 0.5], [0, 0], "one arm is empty"),
        ([0.2, 0.3, 0.7, 0.8], [0, 0, 1, 1], "do not overlap"),
        (SCORE, A, "overlap is poor (25.0% of the records"),
        ([0.2, 0.3, 0.62, 0.6, 0.7, 0.8], [0, 0, 0, 1, 1, 1], "every record is within the limits"),
        ([0.2] * 9 + [0.6, 0.59] + [0.7] * 9, [0] * 10 + [1] * 10, "nearly told apart (area 0.99)"),
        ([0.3] * 11 + [0.05] + [0.3] * 11, [0] * 12 + [1] * 11, "4.3% of the records are outside"),
    ],
)
def test_the_advice(score: list[float], arms: list[int], sentence: str) -> None:
    table = overlap_table(score, arms)
    assert sentence in table.advice
    assert f"advice: {table.advice}" in str(table)


def test_arms_that_are_apart_or_empty() -> None:
    apart = overlap_table([0.2, 0.3, 0.7, 0.8], [0, 0, 1, 1])
    assert apart.support == (0.7, 0.3)
    assert (apart.outside_support, apart.treated.outside_support, apart.auc) == (1.0, 1.0, 1.0)
    empty = overlap_table([0.2, 0.95], [1, 1])
    undefined = [empty.auc, empty.outside_support, *empty.support, empty.control.outside_limits]
    assert np.isnan([*undefined, empty.treated.outside_support, *empty.control.quantiles]).all()
    assert (empty.outside_limits, empty.control.n_samples) == (0.5, 0)


def test_the_text() -> None:
    lines = str(overlap_table(SCORE, A)).splitlines()
    assert lines[0] == "Overlap (not private: for the data holder only)"
    assert len(lines[1]) == len(lines[2]) == len(lines[3])
    assert lines[2].split()[:3] == ["control", "4", "0.050"]
    assert "area under the ROC curve: 0.844" in lines
    assert lines[-1] == "A choice made after this look is not covered by the privacy guarantee."


@pytest.mark.parametrize(
    ("score", "arms", "message"),
    [
        ([0.5, 1.1], [0, 1], r"propensity\[1\] = 1.1: must be in \[0, 1\]"),
        ([np.nan, 0.5], [0, 1], r"propensity\[0\] = nan"),
        ([0.5, 0.5], [0, 0.5], r"a\[1\] = 0.5"),
        ([[0.5, 0.5]], [0, 1], r"propensity and a have shapes \(1, 2\) and \(2,\)"),
        (0.5, 1, r"have shapes \(\) and \(\)"),
        ([], [], "hold no records"),
    ],
)
def test_bad_data(score: list[float], arms: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        overlap_table(score, arms)


@pytest.mark.parametrize("limits", [(0.9, 0.1), (0.5, 0.5), (-0.1, 0.9), (0.1, 1.1), (0.1,), 0.1, ("a", 0.9)])
def test_bad_limits(limits: object) -> None:
    with pytest.raises(DeclarationError, match="limits"):
        overlap_table(SCORE, A, limits=limits)  # type: ignore[arg-type]


def confounded(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3)) * [1.0, 30.0, 0.01] + [0.0, 100.0, 5.0]
    logit = X[:, 0] - (X[:, 1] - 100.0) / 60.0 - 0.5
    return X, (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(int)


@pytest.mark.parametrize("ridge", [1e-6, 0.01, 10.0])
def test_the_fit_is_that_of_scikit_learn(ridge: float) -> None:
    X, a = confounded()
    found = propensity_precheck(X, a, ridge=ridge)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    # another algorithm for the same objective, n times as large
    reference = LogisticRegression(C=1 / (ridge * len(a)), solver="newton-cholesky", tol=1e-12).fit(Z, a)
    np.testing.assert_allclose(found.coefficients, reference.coef_[0], atol=1e-7)
    assert found.intercept == pytest.approx(reference.intercept_[0], abs=1e-7)
    np.testing.assert_allclose(found.propensity, reference.predict_proba(Z)[:, 1], atol=1e-7)
    assert found.gradient <= 1e-8
    # the intercept is not shrunk
    assert found.propensity.mean() == pytest.approx(a.mean(), abs=1e-8)


def test_the_gradient_is_that_of_the_objective() -> None:
    X, a = confounded(50)
    Z = np.column_stack([np.ones(50), X / [1.0, 30.0, 0.01]])
    v = np.array([0.2, -0.4, 0.01, 0.003])
    numeric = approx_fprime(v, lambda at: precheck.objective(at, Z, 1.0 * a, 0.3)[0], 1e-7)
    np.testing.assert_allclose(precheck.objective(v, Z, 1.0 * a, 0.3)[1], numeric, rtol=1e-3, atol=1e-4)


def test_one_binary_covariate_in_closed_form() -> None:
    group = np.repeat([0.0, 1.0], [40, 60])
    a = np.concatenate([np.repeat([1, 0], [10, 30]), np.repeat([1, 0], [45, 15])])
    found = propensity_precheck(group[:, None], a, ridge=1e-12)
    np.testing.assert_allclose(found.propensity, np.where(group == 1, 0.75, 0.25), atol=1e-6)
    heavy = propensity_precheck(group[:, None], a, ridge=1e8)
    np.testing.assert_allclose(heavy.propensity, 0.55, atol=1e-6)


def test_units_do_not_matter_and_constants_get_nothing() -> None:
    X, a = confounded()
    found = propensity_precheck(X, a, ridge=0.1)
    other = propensity_precheck(np.column_stack([1e150 * X, np.full(len(a), 0.1)]), a, ridge=0.1)
    np.testing.assert_allclose(other.propensity, found.propensity, atol=1e-7)
    assert other.coefficients[3] == 0.0


def test_the_fit_feeds_the_table() -> None:
    X, a = confounded()
    found = propensity_precheck(X, a, ridge=0.01)
    assert found.table() == overlap_table(found.propensity, a)
    assert found.table(limits=(0.3, 0.7)).outside_limits > found.table().outside_limits
    assert repr(found) == "PropensityPrecheck(not private: for the data holder only, NOT for release)"


def test_separated_arms_are_seen() -> None:
    X = np.linspace(-1, 1, 60)[:, None]
    table = propensity_precheck(X, X[:, 0] > 0, ridge=1e-4).table()
    assert "do not overlap" in table.advice
    assert table.auc == 1.0


def test_bad_calls_of_the_precheck() -> None:
    X, a = confounded(20)
    with pytest.raises(DataError, match="a: the treated arm is empty"):
        propensity_precheck(X, np.zeros(20), ridge=0.1)
    with pytest.raises(DataError, match=r"X\[3, 1\] = inf"):
        propensity_precheck(np.where(X == X[3, 1], np.inf, X), a, ridge=0.1)
    with pytest.raises(DataError, match=r"X and a have shapes"):
        propensity_precheck(X[:, 0], a, ridge=0.1)
    for ridge in (0.0, -1.0, math.nan):
        with pytest.raises(DeclarationError, match="ridge"):
            propensity_precheck(X, a, ridge=ridge)


def test_a_fit_that_did_not_converge_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped:
        x = np.ones(4)

    monkeypatch.setattr(precheck.optimize, "minimize", lambda *_, **__: Stopped)
    with pytest.raises(SolverError, match="did not converge: its gradient is"):
        propensity_precheck(*confounded(20), ridge=0.1)
