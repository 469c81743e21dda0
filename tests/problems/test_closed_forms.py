"""Weights and second stages against closed forms, moments, CVXPY and other people's regressions;
kernels.
"""

import json
import math
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Lasso, LinearRegression

from dp2erm_cvx import Budget, Domain, Neighboring, PrivateTwoStageERM
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import ElasticNet
from dp2erm_cvx.paper import (
    PRINTED,
    BoundFamily,
    bound_of_family,
    in_paper,
    paper_entropy_balancing,
    printed_bound,
    usable_bound,
)
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.mmd import mmd, mmd_pooled
from dp2erm_cvx.problems.paper_entropy_balancing import PaperEntropyBalancing
from dp2erm_cvx.program import Gaussian, Moments, WholeSpace, memory
from dp2erm_cvx.program.kernels import Linear, PublicSample, RandomFourier
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.solve import solve
from tests.audit.stability.reference import reference_program
from tests.command_line import run as command
from tests.helpers import declared_solution, make_records, make_weights, planted

PROGRAMS: dict[str, Any] = dict(programs())
RECORDS = make_records(200, 3)
WEIGHTS = make_weights(RECORDS)
COEFFICIENT = (0.1, 1.0, -0.5, 0.0)
TREATED = RECORDS.a == 1
#: 2 (2 A - 1) Y
TRANSFORMED = 2 * (2 * RECORDS.a - 1) * RECORDS.y


PROPENSITY = 1 / (1 + np.exp(-RECORDS.X @ np.array(COEFFICIENT)))
KNOWN = np.minimum(1 / np.where(TREATED, PROPENSITY, 1 - PROPENSITY), 3.0)


@pytest.mark.parametrize(
    ("name", "settings", "factors"),
    [
        ("uniform", {}, np.ones(200)),
        ("ipw_randomized", {"propensity": 0.2, "trim": 4.0}, np.where(TREATED, 4.0, 1 / 0.8)),
        ("ipw_known", {"coefficient": COEFFICIENT, "trim": 3.0}, KNOWN),
    ],
)
def test_closed_form_weights(name, settings, factors):
    instance = PROGRAMS[name](**settings).instance(RECORDS)
    expected = factors * 200 / math.fsum(factors)
    np.testing.assert_allclose(solve(instance).value, expected, rtol=1e-13)
    np.testing.assert_allclose(declared_solution(instance, "weights"), expected, rtol=1e-7)


def test_the_interval_of_log_weights_is_enforced():
    @planted
    class Narrow(PROGRAMS["ipw_known"]):
        log_range = lambda self, space: (0.3, 0.4)  # noqa: E731

    weights = solve(Narrow(coefficient=COEFFICIENT).instance(RECORDS)).value
    assert np.ptp(np.log(weights)) == pytest.approx(0.1)


def test_the_trace_of_a_private_coefficient_grows_with_the_squared_norm_of_rows():
    for M, name in ((0.5, "ipw_private"), (3.0, "overlap_private")):
        constants = (
            PROGRAMS[name]()
            .resolve(domain := Domain(M, 1.0))
            .loss_constants(Universe(domain, 50, 3))
        )
        assert constants.hessian_trace == pytest.approx(0.25 * M**2, rel=1e-9)


# scikit-learn minimizes |z - X theta|^2 / (2n) + alpha |theta|_1
LASSO = Lasso(alpha=0.25, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(
    RECORDS.X, TRANSFORMED
)
SQUARES = LinearRegression(fit_intercept=False).fit(RECORDS.X, RECORDS.y, sample_weight=WEIGHTS)
MEANS = [np.average(RECORDS.y[arm], weights=WEIGHTS[arm]) for arm in (~TREATED, TREATED)]
EFFECT = np.mean(WEIGHTS * TRANSFORMED)


@pytest.mark.parametrize(
    ("name", "settings", "weights", "expected"),
    [
        (
            "itr",
            {"theta_set": WholeSpace(), "regularizer": ElasticNet(l1=0.5)},
            np.ones(200),
            LASSO.coef_,
        ),
        ("regression", {"theta_set": WholeSpace()}, WEIGHTS, SQUARES.coef_),
        ("arm_means", {}, WEIGHTS, MEANS),
        ("plug_in_ate", {}, WEIGHTS, [EFFECT]),
    ],
)
def test_second_stages_are_what_statistics_calls_them(name, settings, weights, expected):
    theta = solve(PROGRAMS[name](**settings).instance(RECORDS, weights, gamma=1e-10)).value
    np.testing.assert_allclose(theta, expected, atol=1e-8)


def test_an_effect_is_the_difference_of_arms_and_noise_shrinks_a_mean():
    effect = PROGRAMS["arm_means"]().effect(
        np.array([1.0, 3.0]), RECORDS.space, RECORDS.covariates[:4]
    )
    assert effect == pytest.approx([2.0] * 4)
    noisy = PROGRAMS["plug_in_ate"]().instance(RECORDS, WEIGHTS, gamma=0.1, noise=np.array([3.0]))
    assert solve(noisy).value == pytest.approx([(400 * EFFECT - 3.0) / (200 * 2.1)], rel=1e-12)


def test_hard_primal_and_flat_dual_have_the_same_weights():
    """Those of arms in proportion to their sizes are the hard ones times the weight of the arm over
    n/2.
    """
    instance = PROGRAMS["entropy_balancing_hard"]().instance(RECORDS)
    hard = solve(instance).value
    np.testing.assert_allclose(declared_solution(instance, "weights"), hard, atol=1e-6)
    share = np.mean(TREATED)
    hard = hard * np.where(TREATED, 2 * share, 2 * (1 - share))
    flat, soft = (PaperEntropyBalancing(ridge=one).instance(RECORDS) for one in (0.0, 1e-7))
    dual = solve(flat, throw=False)
    # the multipliers are not unique, and no strong convexity can be claimed along the flat
    # direction
    assert not dual.certified
    np.testing.assert_allclose(dual.value, hard, atol=1e-7)
    # and the limit of small ridges
    np.testing.assert_allclose(solve(soft, tolerance=1e-4).value, hard, atol=1e-3)


@pytest.mark.parametrize("balance", [Moments(1), Moments(2)], ids=str)
def test_hard_weights_balance_every_mean_exactly(balance):
    program = PROGRAMS["entropy_balancing_hard"](balance=balance)
    solution, g = solve(program.instance(RECORDS)), balance(RECORDS.covariates)
    weights = solution.value
    assert solution.certificate.backward_error <= 1e-11
    assert np.sum(weights[TREATED]) == pytest.approx(100, rel=1e-11)
    for arm in (TREATED, ~TREATED):
        means = np.average(g[arm], axis=0, weights=weights[arm])
        np.testing.assert_allclose(means, g.mean(axis=0), atol=1e-11)


def test_a_base_measure_gives_the_weights_of_the_relative_entropy_to_it() -> None:
    q, p = np.random.default_rng(1).uniform(0.2, 3.0, 200), cp.Variable(200)
    program = PaperEntropyBalancing(ridge=0.3, base_measure=tuple(q)).resolve(RECORDS.space)
    B, target = program.moments(RECORDS)
    penalty = cp.sum_squares(B.T @ p - target) / (2 * 0.3)
    cp.Problem(cp.Minimize(cp.sum(cp.rel_entr(p, q / q.sum())) + penalty), [cp.sum(p) == 1]).solve(
        solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12
    )
    newton = solve(program.instance(RECORDS), solver="newton").value
    for solver in ("newton", "clarabel", "scs"):
        weights = solve(program.instance(RECORDS), solver=solver).value
        np.testing.assert_allclose(weights, newton, atol=1e-8)
        np.testing.assert_allclose(weights / 200, p.value, atol=1e-6)
    even, plain = (
        PaperEntropyBalancing(ridge=0.3, base_measure=(2.0,) * 200),
        PaperEntropyBalancing(ridge=0.3),
    )
    weights = [solve(one.instance(RECORDS)).value for one in (even, plain)]
    np.testing.assert_allclose(*weights, atol=1e-9)


PAPER = {"ridge": 1.0, "radius": 1.0}
UNEVEN = (1.0,) * 39 + (2.0,)
UNIVERSE = Universe(Domain(1.0, 1.0, arm_floor=5), 40, 2)


def test_what_no_theorem_covers_is_refused() -> None:
    for settings, family, told in (
        (PAPER | {"base_measure": UNEVEN}, BoundFamily.SHARP, "base_measure"),
        (PAPER | {"ridge": 0.0}, BoundFamily.SHARP, "ridge = 0"),
        (PAPER | {"ridge": 0.0}, BoundFamily.PAPER, "ridge = 0"),
    ):
        with pytest.raises(CalibrationError, match=told):
            bound_of_family(PaperEntropyBalancing(**settings), UNIVERSE, family)
    without_floor = Universe(Domain(1.0, 1.0), 40, 2)
    for family in BoundFamily:
        with pytest.raises(CalibrationError, match="arm_floor is not declared"):
            bound_of_family(PaperEntropyBalancing(**PAPER), without_floor, family)
    with pytest.raises(DeclarationError, match="3 entries for 200"):
        PaperEntropyBalancing(base_measure=(1.0, 2.0, 1.0)).instance(RECORDS)


def test_a_base_measure_widens_the_printed_bound() -> None:
    even, uneven = (
        PaperEntropyBalancing(**PAPER),
        PaperEntropyBalancing(**PAPER, base_measure=UNEVEN),
    )
    printed = paper_entropy_balancing(40, 1.0, 1.0, 5, base_measure_ratio=2.0)
    assert printed.W1 > paper_entropy_balancing(40, 1.0, 1.0, 5).W1
    bounds = [usable_bound(one, UNIVERSE).V for one in (uneven, even)]
    assert bounds[0] >= bounds[1]
    assert printed_bound(uneven, UNIVERSE).W1 == pytest.approx(printed.W1, rel=1e-9)


FLOORED = Domain(covariate_bound=1.5, outcome_bound=1.0, arm_floor=20)
Matching = programs()["kernel_mean_matching"]


def test_kernels_that_no_theorem_covers_are_refused() -> None:
    keep = Domain(1.5, 1.0, arm_floor=20, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    here, without_floor = Universe(FLOORED, 100, 2), Universe(Domain(1.0, 1.0), 100, 2)
    for program, universe, family, told in (
        (mmd(), without_floor, BoundFamily.SHARP, "arm_floor"),
        (Matching(), without_floor, BoundFamily.SHARP, "arm_floor"),
        (mmd(cap=1.5), here, BoundFamily.SHARP, "cap"),
        (mmd(cap=50.0), here, BoundFamily.PAPER, "replace-one"),
    ):
        with pytest.raises(CalibrationError, match=told):
            bound_of_family(program, universe, family)
    kept = Universe(keep, 100, 2)
    assert usable_bound(mmd(cap=50.0), kept).relations == {keep.relation}
    assert mmd().stability(kept).V <= mmd().stability(here).V


def test_a_long_solve_is_told_from_n_alone(tmp_path: Path) -> None:
    assert mmd_pooled().cost(Universe(FLOORED, 2000, 2)) is None
    many = {
        4000: ("n = 4,000", "takes 0.8 GB", "13 seconds"),
        20_000: ("n = 20,000", "6.9 GB", "346 seconds"),
    }
    for n, told in many.items():
        assert all(word in (mmd_pooled().cost(Universe(FLOORED, n, 2)) or "") for word in told)
    # no Gram matrix is formed where features are few
    assert mmd_pooled(kernel=Linear()).cost(Universe(FLOORED, 20_000, 2)) is None
    assert ipw_logistic().cost(Universe(FLOORED, 20_000, 2)) is None
    (tmp_path / "study.toml").write_text(
        'covariate_bound = 1\noutcome_bound = 1\ncovariates = ["x1", "x2"]\n[budget]\nepsilon = 1\n'
        '[[two_stage]]\nfirst_stage = "mmd_pooled"\nsecond_stage = "arm_means"\n'
    )
    result = command("run", tmp_path / "study.toml", "--plan", "4000")
    assert result.stderr.count("note: mmd_pooled at n = ") == 1
    assert result.exit_code == 0


WITH_CONSTANT = Domain(1.5, 2.0, intercept=1.0)
LINE = np.linspace(-1, 1, 120)


def test_a_counted_target_has_no_weight_and_needs_a_floor():
    a = np.repeat([0, 1], 60)
    w = solve(Matching().instance(WITH_CONSTANT.records(LINE[:, None], a, LINE))).value
    assert np.all(w[a == 1] == 0)
    assert w[a == 0].sum() == pytest.approx(120)
    floor = Domain(1.5, 2.0, intercept=1.0, arm_floor=50)
    counted = Matching().stability(Universe(floor, 120, 1)).V
    public = Matching(target=PublicSample([[0.0]])).stability(Universe(WITH_CONSTANT, 120, 1)).V
    assert public < counted < 240


def test_the_command_takes_the_target_from_a_file(tmp_path):
    pd.DataFrame({"x": LINE, "a": 0, "y": LINE}).to_csv(tmp_path / "data.csv", index=False)
    pd.DataFrame({"other": 1.0, "x": LINE / 2}).to_csv(tmp_path / "target.csv", index=False)
    (tmp_path / "study.toml").write_text(
        'covariate_bound = 1.5\noutcome_bound = 2\ntreatment = "a"\noutcome_column = "y"\n'
        'covariates = ["x"]\n'
        "[budget]\nepsilon = 5\n[[two_stage]]\n"
        'first_stage = { name = "kernel_mean_matching", target = "target.csv" }\n'
        'second_stage = { name = "itr_huber", threshold = 0.5 }\n'
    )
    words = ("--json", "--yes", "--output", tmp_path / "release.json")
    ran = command("run", tmp_path / "study.toml", tmp_path / "data.csv", *words)
    assert ran.exit_code == 0, ran.stderr
    declared = json.loads(ran.stdout)["declared"]
    assert declared["first"]["settings"]["target"]["rows"] == 120
    assert declared["second"]["settings"]["threshold"] == 0.5


SIMULATED = Domain(math.sqrt(10), 8.0, arm_floor=20)


def simulated(n):
    data = simulate("linear", n, rng=1).dataset
    return SIMULATED.records(data.X, data.a, data.y)


def test_random_features_are_a_kernel_that_approximates_the_gaussian_one():
    X = simulated(50).covariates
    kernel, again, other = (RandomFourier(1.5, 4000, seed) for seed in (7, 7, 8))
    K = kernel.cross(X, X)
    assert np.max(np.abs(K - Gaussian(1.5).cross(X, X))) < 0.08
    np.testing.assert_allclose(np.diag(K), 1.0, atol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-10
    assert np.array_equal(K, again.cross(X, X))
    assert not np.allclose(K, other.cross(X, X))
    assert kernel.signed
    np.testing.assert_allclose(kernel.features(X) @ kernel.features(X).T, K)


def test_a_gram_matrix_that_does_not_fit_is_refused_before_it_is_formed(monkeypatch):
    monkeypatch.setattr(memory, "memory", lambda: 1e9)
    assert memory.COPIES * 8 * 4000**2 < 1e9
    given, many, too_many = simulated(5000), RandomFourier(1.0, 2000), RandomFourier(1.0, 100)
    for kernel in (Gaussian(), many):
        with pytest.raises(DeclarationError, match=r"5,000: a Gram matrix .* 1\.2 GB"):
            reference_program("mmd", kernel=kernel).instance(given)
    # before any record is read
    told = {Gaussian(): "RandomFourier", many: "a Gram matrix", too_many: "of 200 features"}
    for kernel, words in told.items():
        program = reference_program("mmd", kernel=kernel, ridge=10.0)
        with pytest.raises(DeclarationError, match=words):
            PrivateTwoStageERM(SIMULATED, Budget(1.0), program).plan(
                10**6 if kernel is too_many else 5000, 10
            )
    assert solve(reference_program("mmd", kernel=RandomFourier(1.0, 20)).instance(given)).certified


def test_wrong_parameters_of_random_features_are_refused():
    for wrong in ({"bandwidth": 0.0}, {"frequencies": 0}, {"frequencies": 1.5}, {"seed": -1}):
        with pytest.raises(DeclarationError):
            RandomFourier(**wrong)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("n", [4000, 40_000])
def test_kernels_of_few_features_have_a_public_radius_at_every_n(n: int) -> None:
    universe = Universe(SIMULATED, n, 10)
    program = reference_program("mmd_pooled", kernel=RandomFourier(1.0, 50)).at(universe)
    assert program.takes_blocks(universe)
    assert program.certified_error(universe) < 1e-7
    steep = reference_program("mmd_pooled", kernel=RandomFourier(1e-9, 50)).at(universe)
    assert not steep.takes_blocks(universe)


def test_the_paper_says_nothing_of_programs_that_authors_wrote() -> None:
    own = Scheme(mmd.function, mmd.family, mmd.settings, mmd.formulas, mmd.options, mmd.name)
    kept = Universe(FLOORED, 100, 2)
    assert in_paper(mmd())
    assert own().name in PRINTED
    assert not in_paper(own())
    with pytest.raises(CalibrationError, match="the paper states no stability bound for mmd"):
        printed_bound(own(), kept)
