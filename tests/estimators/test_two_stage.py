"""Without privacy nothing is hidden: a fit that cannot be certified is refused."""

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Domain, TwoStageERM
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.errors import CertificateError, InfeasibleError
from dp2erm_cvx.model.sets import UserRegularizer
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.problems.stable_balancing import StableBalancingHard
from dp2erm_cvx.program import Moments
from dp2erm_cvx.solve import SCS, Newton

DOMAIN = Domain(2.0, 3.0)


def data(arms="both"):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.normal(size=60)
    a = {"both": np.arange(60) % 2, "separated": (X[:, 0] > 0).astype(int), "one": np.zeros(60, dtype=int)}
    return X, a[arms], y


def fitted(first, second="arm_means", arms="both", **settings):
    return TwoStageERM(DOMAIN, first, second, **settings).fit(*data(arms))


def test_weights_exist_from_the_smallest_tolerance_on_and_certify_with_room_to_spare():
    with pytest.raises(InfeasibleError) as caught:
        fitted(StableBalancingHard(), arms="separated")
    least = caught.value.smallest_tolerance
    near = StableBalancingHard(tolerance=1.001 * least)
    with pytest.raises(CertificateError, match="too close to infeasible"):
        fitted(near, arms="separated", tolerance=1e-9)
    for first in (near, StableBalancingHard(tolerance=1.5 * least)):
        assert fitted(first, arms="separated").workings_.certified()


@pytest.mark.parametrize("solver", ["newton", "clarabel"])
def test_weights_that_exist_but_are_not_certified_are_refused(solver):
    first = StableBalancingHard(tolerance=1e-4, balance=Moments(3))
    sample = load_nhefs()
    model = TwoStageERM(nhefs_domain(), first, "arm_means", solver=solver)
    with pytest.raises(CertificateError, match=f"stable_balancing_hard: {solver} ended"):
        model.fit(sample.X, sample.a, sample.y)


def test_the_error_names_the_stage_that_is_not_certified():
    with pytest.raises(CertificateError, match=r"ipw_logistic: newton .* 1e-06"):
        fitted("ipw_logistic", solver=Newton(max_iterations=1))
    with pytest.raises(CertificateError, match="itr_logistic: newton"):
        fitted("uniform", "itr_logistic", solver=Newton(max_iterations=1))


def test_a_regularizer_of_ones_own_is_judged_by_its_gap_and_by_a_looser_tolerance():
    second = itr(regularizer=UserRegularizer(lambda theta: 0.1 * cp.sum(cp.huber(theta, 0.5))))
    settings = {"first": "uniform", "second": second, "gamma": 0.1}
    assert fitted(**settings).workings_.theta.tolerance == 1e-3
    rough = {**settings, "solver": SCS(eps=0.1)}
    with pytest.raises(CertificateError, match=r"to 0\.001 relative"):
        fitted(**rough)
    assert fitted(**rough, tolerance=0.5).workings_.certified()
