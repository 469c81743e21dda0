"""What the kernel programs hand to their theorems."""

import math

import numpy as np
import pytest

from dp2erm_cvx import Domain, Neighboring, stability
from dp2erm_cvx.errors import CalibrationError, InfeasibleError
from dp2erm_cvx.privacy import BoundFamily
from dp2erm_cvx.problems.mmd import MMD
from dp2erm_cvx.problems.mmd_pooled import PooledMMD
from dp2erm_cvx.program import Gaussian
from dp2erm_cvx.program.kernels import Laplace, Linear
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=1.0, arm_floor=20)


def test_a_signed_kernel_gets_the_signed_constants() -> None:
    C, lam = 1.5**2, 100.0
    expected = stability.pooled_kernel_balancing(100, stability.KernelConstants(C, lam, signed=True)).V
    assert PooledMMD(kernel=Linear()).stability(Universe(DOMAIN, 100, 2)).V == expected
    assert expected > stability.pooled_kernel_balancing(100, stability.KernelConstants(C, lam)).V
    per_arm = MMD(kernel=Linear(), ridge=5.0).stability(Universe(DOMAIN, 100, 2)).V
    assert per_arm == stability.kernel_balancing(100, stability.KernelConstants(C, 500.0, signed=True), 20).V


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Laplace(0.7), Linear(0.5)])
def test_kernels_are_positive_semidefinite_and_within_their_bound(kernel) -> None:
    X = DOMAIN.features(np.random.default_rng(0).normal(size=(60, 4)) * 3)
    gram = kernel.matrix(X)
    assert np.linalg.eigvalsh(gram)[0] > -1e-12 * 60
    assert np.max(np.abs(gram)) <= kernel.bound(DOMAIN.features_bound) * (1 + 1e-12)
    assert kernel.signed or np.min(gram) >= 0


def test_the_ridge_is_per_record() -> None:
    values = [PooledMMD(ridge=1.0).stability(Universe(DOMAIN, n, 2)).V for n in (400, 4_000, 40_000)]
    assert max(values) < 1.3 * min(values)


def test_what_no_theorem_covers_is_refused() -> None:
    with pytest.raises(CalibrationError, match="arm_floor"):
        MMD().stability(Universe(Domain(covariate_bound=1.0, outcome_bound=1.0), 100, 2))
    with pytest.raises(CalibrationError, match="cap"):
        MMD(cap=1.5).stability(Universe(DOMAIN, 100, 2))
    with pytest.raises(CalibrationError, match="replace-one"):
        MMD(cap=50.0).stability(Universe(DOMAIN, 100, 2), BoundFamily.PAPER)
    keep = Domain(1.5, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    assert MMD(cap=50.0).stability(Universe(keep, 100, 2), BoundFamily.PAPER).relations == {keep.relation}
    assert MMD().stability(Universe(keep, 100, 2)).V <= MMD().stability(Universe(DOMAIN, 100, 2)).V


def test_a_cap_without_room_is_infeasible_and_an_empty_arm_is_not() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(10, 2)), rng.normal(size=10)
    lonely = np.array([1] + [0] * 9)
    with pytest.raises(InfeasibleError, match="cap"):
        MMD(cap=2.0).instance(DOMAIN.records(X, lonely, y))
    weights = solve(MMD().instance(DOMAIN.records(X, np.zeros(10, dtype=int), y))).value
    assert math.fsum(weights) == pytest.approx(10)
