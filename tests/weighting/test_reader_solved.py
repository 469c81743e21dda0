"""Weights of a form are those of the author's problem, which CVXPY solves as it is written."""

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.data.records import Records
from dp2erm_cvx.program.weighting.reader import drawn_records, read_weighting
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting.declarations import READ, declared

#: CVXPY warns of quadratic forms of data, which it compiles anew, and of norms at tight tolerances.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

N = 24
#: Features of a kernel are of a placeholder's width in CVXPY, also those of public points.
SOLVED = [name for name in READ if "kernel" not in name and "public points" not in name]
#: One of each kind, which is enough where nothing has changed.
FEW = (
    "dispersion: var",
    "dispersion: -entr",
    "dispersion: power 3",
    "dispersion: kl_div(1, w)",
    "dispersion: logit",
    "dispersion: huber and squares",
    "imbalance: (w - 1) @ P",
    "imbalance: centered rows",
    "imbalance: half of both",
    "imbalance: mixed features",
    "imbalance: quad_form",
    "mean: controls to the treated",
    "mean: both means",
    "mean: means alone are of own rows",
    "price: tolerances",
    "price: huber of a norm",
    "price: norm",
    "price: prices",
    "price: norm_inf",
    "price: 3-norm",
    "price: squared 3-norm",
    "price: one side",
    "price: sum(pos), prices",
    "price: log_sum_exp of both sides",
    "set: norm1(m) <= d",
    "set: norm(m, 3) <= d",
    "set: one side",
    "set: cap by arm",
    "set: arm totals",
    "set: counts",
    "set: controls",
    "set: treated",
    "set: two sides",
    "set: boxes of records",
    "linear: sum_squares(w - d)",
    "base: kl_div(2 w, 3 d)",
    "base: design weights",
    "base: rel_entr(d, w)",
)
TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}


def records_of(form: WeightingForm, drawn: Records) -> Records:
    """Drawn records; few of them treated where the controls stand for all."""
    if form.sums.kind not in (SumKind.CONTROLS, SumKind.TREATED):
        return drawn
    few = (np.arange(N) % 3 == 0).astype(np.int64)
    return Records(drawn.X, few, drawn.y, drawn.space)


def written_out(problem: Any, w: Any, form: WeightingForm) -> Any:
    """The problem with what need not be written: weights of at least 0, and of sum n."""
    whole = [] if form.sums.kind is SumKind.TREATED else [cp.sum(w) == N]
    return cp.Problem(problem.objective, [*problem.constraints, w >= 0, *whole])


def assert_same_weights(name: str) -> None:
    problem, w, records = declared(READ[name], N)
    form = read_weighting(problem, w, records)
    data = records_of(form, drawn_records(records, np.random.default_rng(5)))
    for datum in problem.parameters():
        datum.value = datum.of(data)
    written_out(problem, w, form).solve(**TIGHT)
    solution = DualProblem(form, data).newton()
    assert not solution.fallback
    # CVXPY is the less exact of both where it has logarithms, which it solves by cones of
    # exponentials
    assert np.sum(np.abs(solution.weights - w.value)) <= 1e-5 * N


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("name", FEW)
def test_weights_are_those_of_the_problem(name: str) -> None:
    assert_same_weights(name)


#: Kernel problems by name: the factors of features of controls and treated, and of all in the
#: target.
KERNEL_PROBLEMS = {
    "kernel: pooled": [(np.array([-1.0, 1.0]), 0.0, 1.0)],
    "kernel: three ways": [(np.array([0.0, 1.0]), 0.5, 1.0), (np.array([-1.0, 1.0]), 0.0, 1.0)],
    "kernel: by arm": [(np.array([0.0, 1.0]), 0.0, 1 / N), (np.array([1.0, 0.0]), 0.0, 1 / N)],
}


@pytest.mark.parametrize("name", KERNEL_PROBLEMS)
def test_weights_of_kernels_are_those_of_their_features(name: str) -> None:
    """CVXPY has vectors whose inner products are the kernel; the form was read with any three."""
    problem, w, records = declared(READ[name], N)
    form = read_weighting(problem, w, records)
    data = drawn_records(records, np.random.default_rng(5))
    kernel = form.features[0].kernel
    phi = np.linalg.cholesky(kernel.cross(data.covariates, data.covariates) + 1e-14 * np.eye(N))
    loss = cp.sum_squares(w - 1)
    for factors, target, scale in KERNEL_PROBLEMS[name]:
        rows = factors[data.a][:, None] * phi
        loss += cp.sum_squares(scale * (rows.T @ w - target * np.sum(phi, axis=0)))
    cp.Problem(cp.Minimize(loss), [cp.sum(w) == N, w >= 0]).solve(**TIGHT)
    solution = DualProblem(form, data).newton()
    assert np.ptp(solution.weights) > 1e-3
    assert np.sum(np.abs(solution.weights - w.value)) <= 1e-6 * N


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SOLVED if name not in FEW])
def test_weights_of_all_spellings_are_those_of_the_problem(name: str) -> None:
    assert_same_weights(name)
