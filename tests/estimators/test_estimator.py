"""The estimator end to end: what a release holds, what it must not hold, and what it refuses."""

import doctest
import logging
import math
import pickle

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, Neighboring, PrivateTwoStageERM
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.model.sets import L2Ball, UserRegularizer
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.program import BalanceFunctions
from dp2erm_cvx.release import Standing
from dp2erm_cvx.release.declaration import guarantee_of
from dp2erm_cvx.solve import Newton

DOMAIN = Domain(
    covariate_bound=2.0,
    outcome_bound=3.0,
    outcome_center=0.5,
    ranges={"u": (0, 10), "v": (-1, 1)},
    intercept=1.0,
)


def data(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 10, n), rng.uniform(-1, 1, n)])
    a = (rng.uniform(size=n) < 1 / (1 + np.exp(-X[:, 1]))).astype(int)
    return X, a, 0.5 + (2 * a - 1) * X[:, 1] + 0.1 * rng.normal(size=n)


def fitted(**changes: object) -> PrivateTwoStageERM:
    settings: dict = {"first_stage": ipw_logistic(ridge=0.5), "second_stage": "itr", "seed": 1, **changes}
    return PrivateTwoStageERM(DOMAIN, Budget(2.0), **settings).fit(*data())


def test_an_unseeded_release_is_private_and_random() -> None:
    first, second = fitted(seed=None).release_, fitted(seed=None).release_
    assert first.private
    assert first.guarantee.standing is Standing.PRIVATE
    assert first.theta != second.theta
    assert fitted().release_.theta == fitted().release_.theta
    assert (first.guarantee.epsilon, first.guarantee.delta) == (2.0, 0.0)
    assert first.guarantee.relation is Neighboring.REPLACE_ONE
    assert any("arithmetic is counted" in text for text in first.guarantee.assumptions)
    assert not any("exact arithmetic" in text for text in first.guarantee.assumptions)
    assert first.parameters == ("intercept", "u", "v")


def test_an_uncertified_solve_makes_the_guarantee_conditional() -> None:
    release = fitted(seed=None, solver=Newton(max_iterations=1)).release_
    assert release.guarantee.standing is Standing.CONDITIONAL
    assert not release.private


def test_nothing_private_leaves_through_json_repr_pickle_or_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        model = fitted()
    workings = model.private_workings_
    published = model.release_.to_json() + repr(model) + repr(model.release_) + repr(workings) + caplog.text
    private = [
        *workings.weights.value,
        *workings.weights.point,
        *workings.noise,
        *workings.theta.certificate.__dict__.values(),
    ]
    for value in private:
        if isinstance(value, float) and value not in (0.0, 1.0):
            assert repr(float(value)) not in published
            assert f"{value:.6g}" not in published
    again = pickle.loads(pickle.dumps(model))
    assert again.release_ == model.release_
    assert not hasattr(again, "private_workings_")
    np.testing.assert_array_equal(again.predict(data()[0]), model.predict(data()[0]))


def test_predict_scales_and_clips_as_the_fit_does() -> None:
    model = fitted()
    X = np.array([[5.0, 0.3], [1e9, 0.0], [-3.0, 8.0]])
    np.testing.assert_allclose(model.predict_effect(X), DOMAIN.features(X) @ model.theta_)
    np.testing.assert_array_equal(model.predict(X), (model.predict_effect(X) > 0).astype(int))
    with pytest.raises(DataError, match="row 1, column 'v'"):
        model.predict([[1.0, math.nan]])
    with pytest.raises(DataError, match="shape"):
        model.predict([[1.0]])


def test_a_user_regularizer_is_released_on_its_duality_gap() -> None:
    import cvxpy as cp

    second = itr(theta_set=L2Ball(1.0), regularizer=UserRegularizer(lambda theta: 0.1 * cp.norm(theta, 1)))
    model = fitted(second_stage=second, solver="clarabel", seed=None)
    assert model.private_workings_.theta.certificate.basis == "duality gap"
    assert model.private_workings_.theta.certified
    assert model.release_.guarantee.standing is Standing.CONDITIONAL
    assert any("duality gap" in assumption for assumption in model.release_.guarantee.assumptions)
    plan = fitted().plan(120, 2)
    assert guarantee_of(plan, True, True, False, False).standing is Standing.PRIVATE
    assert guarantee_of(plan, True, True, True, False).standing is Standing.CONDITIONAL


def test_a_data_frame_is_predicted_by_column_name() -> None:
    import pandas as pd

    X = data()[0]
    model = fitted()
    frame = pd.DataFrame(X, columns=["u", "v"])
    mixed = frame.astype(object)
    mixed.iloc[0, 0] = "text"
    np.testing.assert_array_equal(model.predict_effect(frame[["v", "u"]]), model.predict_effect(X))
    with pytest.raises(DataError, match="'v'"):
        model.predict(frame[["u"]])
    with pytest.raises(DataError, match="column 'u'"):
        model.predict(mixed)
    with pytest.raises(DataError, match=r"by fit\(X\.drop\(columns=\['a', 'y'\]\), X\['a'\], X\['y'\]\)"):
        model.fit(frame, "a", "y")


def test_balance_functions_see_a_copy_of_one_record() -> None:
    def greedy(row: np.ndarray) -> np.ndarray:
        row *= 50.0
        return row

    seen: list[float] = []

    def curious(row: np.ndarray) -> np.ndarray:
        seen.append(row[0])
        return np.array([row[0] - np.mean(seen)])

    X, a, y = data()
    records = DOMAIN.records(X, a, y)
    before = records.X.copy()
    BalanceFunctions(greedy, 1.0)(records.covariates)
    np.testing.assert_array_equal(records.X, before)
    assert not records.X.flags.writeable
    with pytest.raises(DataError, match="that record alone"):
        BalanceFunctions(curious, 1.0)(records.covariates)
    # a record that the function fails on gets zeros, not an error
    values = BalanceFunctions(lambda row: np.array([1.0 / row[0] if row[0] else 0.5 / row[0] ** 0]), 9.0)
    assert np.all(np.isfinite(values(records.covariates)))
    halves = BalanceFunctions(lambda row: row if row[0] < 0 else row[:1] if row[0] else row, 9.0)
    assert np.all(halves(np.array([[0.5, 0.5], [-0.5, 0.5]]))[0] == 0.0)


def test_the_example_of_the_docstring_runs() -> None:
    from dp2erm_cvx.estimators import two_stage

    result = doctest.testmod(two_stage)
    assert result.attempted > 3
    assert result.failed == 0
