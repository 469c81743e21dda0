"""At a ridge that keeps balance from drifting with n, the sharp bounds stay put and the printed ones grow."""

import math

import pytest

from dp2erm_cvx import stability
from tests.helpers import logistic_propensity

HALF = math.sqrt(0.5)
SCHEMES = {
    "logistic": (
        lambda n: logistic_propensity(n, 1.0, 1.0, 1.0).V,
        lambda n: stability.paper_ipw_logistic(n, 1.0, 1.0, 1.0).W1,
        (3.39, 3.43, 131, 3965),
    ),
    "entropy balancing, scaled by arm sizes": (
        lambda n: stability.entropy_balancing_paper_scaling(n, 1.0, n // 4, 1.0).V,
        lambda n: stability.paper_entropy_balancing(n, 1.0, 1.0, n // 4).W1,
        (9.05, 9.17, 1446, 41285),
    ),
    "MMD per arm, no flips printed": (
        lambda n: stability.kernel_balancing(n, stability.KernelConstants(1.0, float(n)), n // 4).V,
        lambda n: stability.paper_kernel_balancing(n, 1.0, float(n), 4.0).W1,
        (13.9, 14.2, 149, 4480),
    ),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_growth(name):
    (sharp, printed, stated), few, many = SCHEMES[name], 100, 100_000
    assert (sharp(few), sharp(many), printed(few), printed(many)) == pytest.approx(stated, rel=5e-3)
    assert printed(many) / printed(few) == pytest.approx(math.sqrt(many / few), rel=0.15)


def test_those_the_paper_does_not_have_stay_put_too():
    for bound in (
        lambda n: stability.entropy_balancing(n, stability.EntropyConstants(HALF, HALF, 1.0, 1.0)).V,
        lambda n: stability.pooled_kernel_balancing(n, stability.KernelConstants(1.0, float(n))).V,
    ):
        assert bound(100) == pytest.approx(bound(100_000), rel=0.06)
