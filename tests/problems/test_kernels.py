"""Quadratic programs: what their theorems are handed, what they refuse, and transfer by matching."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dp2erm_cvx import Domain, Neighboring, stability
from dp2erm_cvx.cli import main
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.mmd import MMD, PooledMMD
from dp2erm_cvx.program.kernels import Linear, PublicSample
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import solve
from tests.command_line import run as command

DOMAIN = Domain(covariate_bound=1.5, outcome_bound=1.0, arm_floor=20)


def test_a_signed_kernel_gets_the_signed_constants() -> None:
    C, lam = 1.5**2, 100.0
    expected = stability.pooled_kernel_balancing(100, stability.KernelConstants(C, lam, signed=True)).V
    assert PooledMMD(kernel=Linear()).stability(Universe(DOMAIN, 100, 2)).V == expected
    assert expected > stability.pooled_kernel_balancing(100, stability.KernelConstants(C, lam)).V
    per_arm = MMD(kernel=Linear(), ridge=5.0).stability(Universe(DOMAIN, 100, 2)).V
    assert per_arm == stability.kernel_balancing(100, stability.KernelConstants(C, 500.0, signed=True), 20).V


def test_kernels_that_no_theorem_covers_are_refused() -> None:
    with pytest.raises(CalibrationError, match="arm_floor"):
        MMD().stability(Universe(Domain(covariate_bound=1.0, outcome_bound=1.0), 100, 2))
    with pytest.raises(CalibrationError, match="cap"):
        MMD(cap=1.5).stability(Universe(DOMAIN, 100, 2))
    with pytest.raises(CalibrationError, match="replace-one"):
        MMD(cap=50.0).stability(Universe(DOMAIN, 100, 2), BoundFamily.PAPER)
    keep = Domain(1.5, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    assert MMD(cap=50.0).stability(Universe(keep, 100, 2), BoundFamily.PAPER).relations == {keep.relation}
    assert MMD().stability(Universe(keep, 100, 2)).V <= MMD().stability(Universe(DOMAIN, 100, 2)).V


def test_a_long_solve_is_told_from_n_alone() -> None:
    few, many, most = (PooledMMD().cost(Universe(DOMAIN, n, 2)) for n in (2000, 4000, 20_000))
    assert few is None
    assert many is not None
    assert "n = 4,000" in many
    assert "takes 0.8 GB" in many
    assert "32 seconds" in many
    assert most is not None
    assert "19.2 GB" in most
    assert "4,000 seconds" in most
    # no Gram matrix is formed where features are few
    assert PooledMMD(kernel=Linear()).cost(Universe(DOMAIN, 20_000, 2)) is None
    assert ipw_logistic().cost(Universe(DOMAIN, 20_000, 2)) is None
    words = ["fit", "--program", "mmd_pooled", "--plan", "4000", "--covariate-bound", "1", "--epsilon", "1"]
    words += ["--outcome-bound", "1", "--second-stage", "arm_means", "--covariates", "x1,x2"]
    result = CliRunner().invoke(main, words)
    assert result.stderr.count("note: mmd_pooled at n = ") == 1
    assert result.exit_code == 0


Matching, regression = programs()["kernel_mean_matching"], programs()["regression"]
WITH_CONSTANT = Domain(1.5, 2.0, intercept=1.0)


def shifted(n, seed=0):
    """A curved outcome; sources around -0.4, targets around 0.4."""
    rng = np.random.default_rng(seed)
    x = np.clip(np.concatenate([rng.normal(-0.4, 0.35, n), rng.normal(0.4, 0.25, n)]), -1, 1)
    y = np.where(x > 0, 2.0 * x, -0.5 * x) + 0.1 * rng.normal(size=2 * n)
    return x[:, None], y


def test_a_counted_target_has_no_weight_and_needs_a_floor():
    X, y = shifted(60)
    a = np.repeat([0, 1], 60)
    w = solve(Matching().instance(WITH_CONSTANT.records(X, a, y))).value
    assert np.all(w[a == 1] == 0)
    assert w[a == 0].sum() == pytest.approx(120)
    with pytest.raises(CalibrationError, match="arm_floor"):
        Matching().stability(Universe(WITH_CONSTANT, 120, 2))
    floor = Domain(1.5, 2.0, intercept=1.0, arm_floor=50)
    counted = Matching().stability(Universe(floor, 120, 2)).V
    public = Matching(target=PublicSample([[0.0]])).stability(Universe(WITH_CONSTANT, 120, 2)).V
    assert public < counted < 240


def test_the_command_takes_the_target_from_a_file(tmp_path):
    X, y = shifted(200)
    np.savetxt(
        tmp_path / "data.csv",
        np.column_stack([X[:200], np.zeros(200), y[:200]]),
        delimiter=",",
        header="x,a,y",
        comments="",
    )
    np.savetxt(
        tmp_path / "target.csv",
        np.column_stack([np.ones(200), X[200:]]),
        delimiter=",",
        header="other,x",
        comments="",
    )
    ran = command(
        "fit", str(tmp_path / "data.csv"), "--treatment", "a", "--outcome", "y", "--covariates", "x",
        "--covariate-bound", "1.5", "--outcome-bound", "2", "--epsilon", "5", "--json", "--yes",
        "--program", "kernel_mean_matching", "--set", f"target={tmp_path / 'target.csv'}",
        "--second-stage", "itr_huber", "--second-set", "threshold=0.5", "--yes",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    release = json.loads(ran.stdout)
    assert release["declared"]["first"]["settings"]["target"]["rows"] == 200
    assert release["declared"]["second"]["settings"]["threshold"] == 0.5
