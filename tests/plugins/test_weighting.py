"""Balancing weights of the literature in the weights: read, bounded, fitted, audited, certified."""

import inspect
import math

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.errors import CalibrationError, InfeasibleError
from dp2erm_cvx.program.rows import DeclaredRecords
from dp2erm_cvx.program.stage import Kind
from dp2erm_cvx.solve import solve
from tests.helpers import at_defaults
from tests.plugins import packages, weighting

N, P = 60, 3
DOMAIN = Domain(1.0, 1.0, arm_floor=20)
UNIVERSE = Universe(DOMAIN, N, P)
#: Solvers by the dual, by public steps, and of the declared problem.
SOLVERS = ("newton", "projected_gradient", "clarabel")
SMOOTHED = (weighting.robust_weights, weighting.sparse_imbalance)
#: Schemes of kernels, whose features no other solver is given.
KERNELS = (weighting.energy_weights, weighting.kernel_balancing)
EVERY = weighting.SCHEMES + packages.SCHEMES
#: Rows and numbers of single records that schemes make themselves.
OWN = {
    "bump_balancing": ("bumps",),
    "base_weights": ("base",),
    "public_targets": ("row",),
    "poststratified": ("cell",),
    "within_strata": ("apart",),
}
#: V at 60 records, as the form gives it.
BOUNDS = {
    "entropy_balancing_capped": 15.49,
    "stable_weights": 15.49,
    "energy_weights": 17.62,
    "kernel_balancing": 14.22,
    "bump_balancing": 15.49,
    "treated_balancing": 29.88,
    "robust_weights": 19.35,
    "sparse_imbalance": 21.00,
    "base_weights": 20.65,
    "tolerances": 19.42,
    "least_weight": 19.42,
    "public_targets": 33.30,
    "one_at_a_time": 56.20,
    "poststratified": 33.30,
    "within_strata": 24.97,
}


def every(programs=EVERY):
    return pytest.mark.parametrize("made", programs, ids=lambda one: one.name)


def drawn(seed=0, n=N):
    """Confounded records of the domain."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, P)) / math.sqrt(P)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    return X, a, np.clip(X[:, 0] + 0.5 * a, -1.0, 1.0)


def records(seed=0):
    return DOMAIN.records(*drawn(seed))


@pytest.mark.one_row_in(12)
@every()
def test_a_scheme_is_a_few_lines_and_has_a_bound(made):
    program = at_defaults(made, UNIVERSE)
    assert inspect.getsource(made.function).count("\n") <= 13
    assert made.kind is Kind.WEIGHTING
    assert program.own_data() == OWN.get(made.name, ())
    assert program.stability(UNIVERSE).V == pytest.approx(BOUNDS[made.name], abs=0.01)


@pytest.mark.one_row_in(8)
@every()
def test_weights_are_those_of_the_problem_as_it_is_declared(made):
    """CVXPY and Clarabel minimize the function's own problem, from data that the records hold."""
    if made in KERNELS:
        pytest.skip("features of a kernel are no numbers that CVXPY could be given")
    data = records()
    # little smoothing, beside which the weights are those of the kink
    settings = {"smoothing": 1e-5} if made in SMOOTHED else {}
    program = made(**settings).at(UNIVERSE) if settings else at_defaults(made, UNIVERSE)
    w = cp.Variable(N, name="w", nonneg=True)
    declared = DeclaredRecords(DOMAIN.space, N, P)
    problem = program.called(w, declared)
    for datum in problem.parameters():
        datum.value = datum.of(data)
    sums = [] if made is weighting.treated_balancing else [cp.sum(w) == N]
    cp.Problem(problem.objective, [*problem.constraints, *sums]).solve(solver="CLARABEL")
    exact = np.asarray(w.value)
    if made is weighting.treated_balancing:
        exact = exact * N / np.sum(exact)
    close = 0.02 if made in SMOOTHED else 2e-4
    np.testing.assert_allclose(solve(program.instance(data)).value, exact, atol=close)


@pytest.mark.one_row_in(20)
@every()
def test_every_solver_is_certified(made):
    instance = at_defaults(made, UNIVERSE).instance(records(1))
    values = []
    for solver in SOLVERS:
        if solver == "clarabel" and made in KERNELS:
            continue
        result = solve(instance, solver=solver)
        assert result.certified
        assert np.sum(result.value) == pytest.approx(N)
        values.append(result.value)
    for value in values[1:]:
        np.testing.assert_allclose(value, values[0], atol=1e-5)


@pytest.mark.one_row_in(10)
@every([one for one in EVERY if one not in KERNELS])
def test_an_audit_finds_nothing_above_the_bound(made):
    program = made()
    search = SearchPlan(evaluations=60, seed=3)
    audit = audit_stability(
        program, drawn(2), DOMAIN, search=search, strategies=("extreme", "flips")
    )
    assert not audit.violated
    assert audit.unseen is not None
    assert 1.0 <= audit.unseen < 12.0


@pytest.mark.one_row_in(3)
@every((weighting.stable_weights, weighting.treated_balancing, weighting.robust_weights))
def test_a_release_stands_private_on_it(made):
    model = PrivateTwoStageERM(DOMAIN, Budget(4.0), made(), "arm_means").fit(*drawn(3))
    assert model.release_.private


@pytest.mark.slow
def test_a_hard_scheme_of_an_author_is_fitted_without_privacy_alone():
    """What it states is met, its certificate is a backward error, and it is never released with
    noise.
    """
    made = weighting.approximate_balance()
    assert made.relations == frozenset()
    instance = made.instance(records())
    for solver in SOLVERS:
        solution = solve(instance, solver=solver)
        assert solution.certified
        assert solution.certificate.basis == "backward error"
        assert solution.certificate.backward_error <= 1e-11
        assert math.isinf(solution.certificate.relative_radius)
        assert np.max(_apart(solution.value)) <= N / 2 * 0.02 + 1e-9
    declared = made.problem(records())
    declared.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    (w,) = declared.variables()
    assert np.sum(np.abs(solution.value - w.value)) <= 1e-5 * N
    with pytest.raises(CalibrationError, match="approximate_balance has no stability bound"):
        made.stability(UNIVERSE)
    with pytest.raises(CalibrationError, match="hard constraint"):
        PrivateTwoStageERM(DOMAIN, Budget(1.0), made, "arm_means").plan(N, P)
    X, a, y = drawn()
    a = (X[:, 0] > 0).astype(int)
    with pytest.raises(
        InfeasibleError, match=r"no weights meet the targets within 0\.02: .*x1.* Allow"
    ):
        solve(made.instance(DOMAIN.records(X, a, y)))


def _apart(weights):
    """Sums of covariates over the treated less those over the controls."""
    X, a, _ = drawn()
    return np.abs((2 * a - 1) * weights @ X)
