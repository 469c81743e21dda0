"""What the kernel programs hand to their theorems."""

import math

import numpy as np
import pytest
from click.testing import CliRunner

from dp2erm_cvx import Budget, Domain, Neighboring, PrivateTwoStageERM, stability
from dp2erm_cvx.cli import main
from dp2erm_cvx.errors import CalibrationError, InfeasibleError
from dp2erm_cvx.privacy import BoundFamily
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.mmd import MMD, PooledMMD
from dp2erm_cvx.program import Gaussian, kernel_stage
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


def test_a_long_solve_is_told_from_n_alone() -> None:
    few, many, most = (PooledMMD().cost(Universe(DOMAIN, n, 2)) for n in (2000, 4000, 20_000))
    assert few is None
    assert many is not None
    assert "n = 4,000" in many
    assert "takes 0.8 GB" in many
    assert "32 seconds" in many
    assert most is not None
    assert "19.2 GB" in most
    assert "67 minutes" in most
    # no Gram matrix is formed where features are few
    assert PooledMMD(kernel=Linear()).cost(Universe(DOMAIN, 20_000, 2)) is None
    assert ipw_logistic().cost(Universe(DOMAIN, 20_000, 2)) is None
    words = ["fit", "--program", "mmd_pooled", "--plan", "4000", "--covariate-bound", "1", "--epsilon", "1"]
    words += ["--outcome-bound", "1", "--second-stage", "arm_means", "--covariates", "x1,x2"]
    result = CliRunner().invoke(main, words)
    assert result.stderr.count("note: mmd_pooled at n = ") == 1
    assert result.exit_code == 0


def test_a_fit_warns_of_a_long_solve(monkeypatch) -> None:
    monkeypatch.setattr(kernel_stage, "_SECONDS", 1e-4)
    rng = np.random.default_rng(0)
    X, a = rng.uniform(-0.5, 0.5, (100, 2)), np.arange(100) % 2
    model = PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), PooledMMD(ridge=5.0), "arm_means")
    with pytest.warns(UserWarning, match="mmd_pooled at n = 100: a Gram matrix"):
        model.fit(X, a, X[:, 0])
