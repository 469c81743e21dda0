"""Quadratic programs: what their theorems are handed, what they refuse, and transfer by matching."""

import json

import numpy as np
import pandas as pd
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
Matching = programs()["kernel_mean_matching"]


def test_a_signed_kernel_gets_the_signed_constants() -> None:
    C, lam = 1.5**2, 100.0
    expected = stability.pooled_kernel_balancing(100, stability.KernelConstants(C, lam, signed=True)).V
    assert PooledMMD(kernel=Linear()).stability(Universe(DOMAIN, 100, 2)).V == expected
    assert expected > stability.pooled_kernel_balancing(100, stability.KernelConstants(C, lam)).V
    per_arm = MMD(kernel=Linear(), ridge=5.0).stability(Universe(DOMAIN, 100, 2)).V
    assert per_arm == stability.kernel_balancing(100, stability.KernelConstants(C, 500.0, signed=True), 20).V


def test_kernels_that_no_theorem_covers_are_refused() -> None:
    keep = Domain(1.5, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    here, without_floor = Universe(DOMAIN, 100, 2), Universe(Domain(1.0, 1.0), 100, 2)
    for program, universe, family, told in (
        (MMD(), without_floor, BoundFamily.SHARP, "arm_floor"),
        (Matching(), without_floor, BoundFamily.SHARP, "arm_floor"),
        (MMD(cap=1.5), here, BoundFamily.SHARP, "cap"),
        (MMD(cap=50.0), here, BoundFamily.PAPER, "replace-one"),
    ):
        with pytest.raises(CalibrationError, match=told):
            program.stability(universe, family)
    kept = Universe(keep, 100, 2)
    assert MMD(cap=50.0).stability(kept, BoundFamily.PAPER).relations == {keep.relation}
    assert MMD().stability(kept).V <= MMD().stability(here).V


def test_a_long_solve_is_told_from_n_alone() -> None:
    assert PooledMMD().cost(Universe(DOMAIN, 2000, 2)) is None
    many = {4000: ("n = 4,000", "takes 0.8 GB", "32 seconds"), 20_000: ("19.2 GB", "4,000 seconds")}
    for n, told in many.items():
        assert all(word in (PooledMMD().cost(Universe(DOMAIN, n, 2)) or "") for word in told)
    # no Gram matrix is formed where features are few
    assert PooledMMD(kernel=Linear()).cost(Universe(DOMAIN, 20_000, 2)) is None
    assert ipw_logistic().cost(Universe(DOMAIN, 20_000, 2)) is None
    words = ["fit", "--program", "mmd_pooled", "--plan", "4000", "--covariate-bound", "1", "--epsilon", "1"]
    words += ["--outcome-bound", "1", "--second-stage", "arm_means", "--covariates", "x1,x2"]
    result = CliRunner().invoke(main, words)
    assert result.stderr.count("note: mmd_pooled at n = ") == 1
    assert result.exit_code == 0


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
    floor = Domain(1.5, 2.0, intercept=1.0, arm_floor=50)
    counted = Matching().stability(Universe(floor, 120, 2)).V
    public = Matching(target=PublicSample([[0.0]])).stability(Universe(WITH_CONSTANT, 120, 2)).V
    assert public < counted < 240


def test_the_command_takes_the_target_from_a_file(tmp_path):
    X, y = shifted(200)
    pd.DataFrame({"x": X[:200, 0], "a": 0, "y": y[:200]}).to_csv(tmp_path / "data.csv", index=False)
    pd.DataFrame({"other": 1.0, "x": X[200:, 0]}).to_csv(tmp_path / "target.csv", index=False)
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
