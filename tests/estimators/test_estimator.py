"""The estimator end to end: what a release holds, what it must not hold, and what it refuses."""

import doctest
import logging
import math
import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, Neighboring, PrivateTwoStageERM, TwoStageERM
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.errors import CertificateError, DataError, DeclarationError, InfeasibleError
from dp2erm_cvx.estimators import two_stage
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.stable_balancing import stable_balancing_hard
from dp2erm_cvx.program import BalanceFunctions, Moments
from dp2erm_cvx.program.balance import one_by_one
from dp2erm_cvx.release.declaration import guarantee_of
from dp2erm_cvx.solve import SCS, Newton
from tests.helpers import penalized_rule

DOMAIN = Domain(2.0, 3.0, 0.5, ranges={"u": (0, 10), "v": (-1, 1)}, intercept=1.0)


def data(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 10, n), rng.uniform(-1, 1, n)])
    a = (rng.uniform(size=n) < 1 / (1 + np.exp(-X[:, 1]))).astype(int)
    return X, a, 0.5 + (2 * a - 1) * X[:, 1] + 0.1 * rng.normal(size=n)


def fitted(**changes: object) -> PrivateTwoStageERM:
    settings: dict = {
        "first_stage": ipw_logistic(ridge=0.5),
        "second_stage": "itr",
        "seed": 1,
        **changes,
    }
    return PrivateTwoStageERM(DOMAIN, Budget(2.0), **settings).fit(*data(), conditional=True)


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


def test_nothing_private_leaves_through_json_repr_pickle_or_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG):
        model = fitted()
    workings = model.private_workings_
    published = (
        model.release_.to_json() + repr(model) + repr(model.release_) + repr(workings) + caplog.text
    )
    certificate = workings.theta.certificate.__dict__.values()
    private = [*workings.weights.value, *workings.weights.point, *workings.noise, *certificate]
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


def test_a_penalty_with_kinks_is_released_on_its_duality_gap() -> None:
    second = penalized_rule(lambda theta: 0.1 * cp.norm(theta))(theta_set=L2Ball(1.0))
    model = fitted(second_stage=second, solver="clarabel", seed=None)
    assert model.private_workings_.theta.certificate.basis == "duality gap"
    assert model.private_workings_.theta.certified
    assert model.release_.guarantee.standing is Standing.CONDITIONAL
    assert any("duality gap" in assumption for assumption in model.release_.guarantee.assumptions)
    plan = fitted(seed=None).plan(120, 2)
    assert guarantee_of(plan, True, False).standing is Standing.PRIVATE
    assert guarantee_of(plan, True, True).standing is Standing.CONDITIONAL


def test_a_data_frame_is_predicted_by_column_name() -> None:
    X = data()[0]
    model = fitted()
    frame = pd.DataFrame(X, columns=["u", "v"])
    mixed = frame.astype(object)
    mixed.iloc[0, 0] = "text"
    np.testing.assert_array_equal(model.predict_effect(frame[["v", "u"]]), model.predict_effect(X))
    for wrong, message in (
        (frame[["u"]], "'v'"),
        (mixed, "column 'u'"),
        ([[1.0, math.nan]], "row 1, column 'v'"),
        ([[1.0]], "shape"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict(wrong)
    with pytest.raises(
        DataError, match=r"by fit\(X\.drop\(columns=\['a', 'y'\]\), X\['a'\], X\['y'\]\)"
    ):
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
    with pytest.raises(
        DeclarationError, match="'custom' reaches seen, an object of the class list"
    ):
        BalanceFunctions(curious, 1.0)
    with pytest.raises(DataError, match="that record alone"):
        one_by_one("curious", curious, [(row,) for row in records.covariates], 1)
    # a record that the function fails on gets zeros, not an error
    values = BalanceFunctions(
        lambda row: np.array([1.0 / row[0] if row[0] else 0.5 / row[0] ** 0]), 9.0
    )
    assert np.all(np.isfinite(values(records.covariates)))
    halves = BalanceFunctions(lambda row: row if row[0] < 0 else row[:1] if row[0] else row, 9.0)
    assert np.all(halves(np.array([[0.5, 0.5], [-0.5, 0.5]]))[0] == 0.0)


def test_the_example_of_the_docstring_runs() -> None:
    result = doctest.testmod(two_stage)
    assert result.attempted > 3
    assert result.failed == 0


# Without privacy nothing is hidden: a fit that cannot be certified is refused.


def in_arms(arms):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.normal(size=60)
    a = {
        "both": np.arange(60) % 2,
        "separated": (X[:, 0] > 0).astype(int),
        "one": np.zeros(60, dtype=int),
    }
    return X, a[arms], y


def in_the_clear(first, second="arm_means", arms="both", **settings):
    return TwoStageERM(Domain(2.0, 3.0), first, second, **settings).fit(*in_arms(arms))


def test_weights_exist_from_the_smallest_tolerance_on_and_certify_with_room_to_spare():
    with pytest.raises(InfeasibleError) as caught:
        in_the_clear(stable_balancing_hard(), arms="separated")
    least = caught.value.smallest_tolerance
    near = stable_balancing_hard(tolerance=1.001 * least)
    told = (
        r"off by \d\.\de-\d\d, more than 1e-30: .* too close to infeasible "
        r"\(tried: newton, .*clarabel"
    )
    with pytest.raises(CertificateError, match=told):
        in_the_clear(near, arms="separated", tolerance=1e-30, solver="first_certified")
    with pytest.raises(InfeasibleError):
        in_the_clear(stable_balancing_hard(tolerance=0.999 * least), arms="separated")
    for first in (near, stable_balancing_hard(tolerance=1.5 * least)):
        assert in_the_clear(first, arms="separated").workings_.certified()


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["newton", "clarabel"])
def test_weights_under_moments_that_depend_on_each_other_are_certified_or_refused(solver):
    first = stable_balancing_hard(tolerance=1e-4, balance=Moments(3))
    sample = load_nhefs()
    model = TwoStageERM(nhefs_domain(), first, "arm_means", solver=solver)
    assert model.fit(sample.X, sample.a, sample.y).workings_.certified()
    refused = TwoStageERM(nhefs_domain(), first, "arm_means", solver=solver, tolerance=1e-30)
    with pytest.raises(CertificateError, match=f"stable_balancing_hard: {solver} ended"):
        refused.fit(sample.X, sample.a, sample.y)


def test_the_error_names_the_stage_that_is_not_certified():
    with pytest.raises(CertificateError, match=r"ipw_logistic: newton .* 1e-06"):
        in_the_clear("ipw_logistic", solver=Newton(max_iterations=1))
    with pytest.raises(CertificateError, match="itr_logistic: newton"):
        in_the_clear("uniform", "itr_logistic", solver=Newton(max_iterations=1))


def test_a_penalty_of_ones_own_is_judged_by_its_gap_and_by_a_looser_tolerance():
    second = penalized_rule(lambda theta: 0.1 * cp.sum(cp.huber(theta, 0.5)))()
    settings = {"first": "uniform", "second": second, "gamma": 0.1}
    assert in_the_clear(**settings).workings_.theta.tolerance == 1e-3
    rough = {**settings, "solver": SCS(eps=1e-9, max_iterations=5)}
    with pytest.raises(CertificateError, match=r"to 0\.001 relative"):
        in_the_clear(**rough)
    assert in_the_clear(**rough, tolerance=0.5).workings_.certified()
