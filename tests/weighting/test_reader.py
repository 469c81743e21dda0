"""Problems in the weights are read whatever their spelling, refused in one line, and never
misread.
"""

import inspect
import math
import sys
from types import ModuleType
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.kernels import Gaussian
from dp2erm_cvx.program.rows import DeclaredRecords
from dp2erm_cvx.program.weighting import (
    data as weighting_data,
)
from dp2erm_cvx.program.weighting import (
    prices as weighting_prices,
)
from dp2erm_cvx.program.weighting import (
    reader as weighting_reader,
)
from dp2erm_cvx.program.weighting import (
    sets as weighting_sets,
)
from dp2erm_cvx.program.weighting import (
    sums as weighting_sums,
)
from dp2erm_cvx.program.weighting import (
    terms as weighting_terms,
)
from dp2erm_cvx.program.weighting.reader import (
    drawn_records,
    drawn_weights,
    read_declared_weighting,
    read_weighting,
)
from dp2erm_cvx.weighting.forms import shapes
from dp2erm_cvx.weighting.forms.features import BallSet, ConstantSet, IntervalSet
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from dp2erm_cvx.weighting.forms.objective import WeightingObjective
from tests.rows import one_of
from tests.weighting.declarations import (
    BASES,
    DISPERSIONS,
    DOMAIN,
    IMBALANCES,
    LINEAR,
    MATRIX,
    MEANS,
    PRICES,
    READ,
    SETS,
    TOLERANCES,
    Function,
    balance,
    declared,
    difference,
    minimized,
    of,
    plus,
    pooled,
    positive,
    signs,
    square,
    under,
)

WITH_INTERCEPT = Domain(1.5, 2.0, intercept=0.5)
SIZES = (7, 11)


def read(function: Function, n: int = 7, domain: Domain = DOMAIN, **settings: Any) -> WeightingForm:
    problem, w, records = declared(function, n, domain)
    return read_weighting(problem, w, records, **settings)


def refused(function: Function, n: int = 7, domain: Domain = DOMAIN, **settings: Any) -> str:
    with pytest.raises(DeclarationError) as error:
        read(function, n, domain, **settings)
    text = str(error.value)
    assert "please report" not in text
    return text


def misread(function: Function) -> str:
    """What the comparison says of a reader that is wrong."""
    problem, w, records = declared(function, 7)
    with pytest.raises(DeclarationError, match="please report it") as error:
        sys.modules["dp2erm_cvx.program.weighting.reader"].read_weighting(problem, w, records)
    return str(error.value)


def loaded(
    function: Function, n: int, domain: Domain, seed: int
) -> tuple[Any, Any, WeightingObjective]:
    """A problem at drawn records, its weights, and the objective of its form at the same
    records.
    """
    problem, w, records = declared(function, n, domain)
    form = read_weighting(problem, w, records)
    rng = np.random.default_rng(seed)
    drawn = drawn_records(records, rng)
    phi = {}
    for features in form.features:
        if features.kernel is not None:
            phi[features.name] = rng.standard_normal((n, features.width))
            phi[features.name_at_points] = rng.standard_normal((2, features.width))
        else:
            phi[features.name] = features.of(drawn)
    for datum in problem.parameters():
        if hasattr(datum, "kernel"):
            datum.value = of_kernel(datum, phi[f"kernel {datum.kernel!r}"], drawn.a)
        elif hasattr(datum, "averaged") and hasattr(datum.averaged[0], "kernel"):
            datum.value = mean_of_kernel(*datum.averaged, phi, drawn.a)
        else:
            datum.value = datum.of(drawn)
    return problem, w, WeightingObjective(form, phi, drawn.a)


def of_kernel(datum: Any, phi: Any, a: Any) -> Any:
    factors = datum.arm_factors
    return np.hstack([np.array(pair)[a][:, None] * phi for pair in factors])


def mean_of_kernel(base: Any, over: Any, phi: Any, a: Any) -> Any:
    """Mean of features over an arm, or over public points."""
    features = phi[f"kernel {base.kernel!r}"]
    chosen = (
        features[a == over]
        if isinstance(over, int)
        else phi[f"kernel {base.kernel!r} at public points"]
    )
    return np.mean(chosen, axis=0)


def slope_of(problem: Any, w: Any) -> Any:
    try:
        return np.ravel(problem.objective.args[0].grad[w].toarray())
    except NotImplementedError:  # CVXPY has no slope of the largest of sizes
        return by_differences(problem.objective.args[0], w)


def by_differences(e: Any, w: Any) -> Any:
    point = w.value.copy()
    values = []
    for step in (1e-6, -1e-6):
        for unit in np.eye(w.size):
            w.value = point + step * unit
            values.append(float(e.value))
    ahead, behind = np.reshape(values, (2, w.size))
    return (ahead - behind) / 2e-6


@pytest.mark.one_row_in(27)
@pytest.mark.parametrize("domain", one_of([WITH_INTERCEPT, DOMAIN], 2), ids=["intercept", "plain"])
@pytest.mark.parametrize("name", one_of(READ, 2))
def test_a_form_has_the_values_and_slopes_of_the_problem(name: str, domain: Domain) -> None:
    for n in SIZES:
        problem, w, at = loaded(READ[name], n, domain, seed=n)
        rng = np.random.default_rng(n)
        of_mean_one = "mean(w)" in name or "var" in name
        points = [drawn_weights(at.form, rng, of_mean_one=of_mean_one) for _ in range(2)]
        ours = [at.value(point) for point in points]
        theirs = []
        precision = 1e-6 if "norm_inf" in name or "max" in name else 1e-9
        sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
        for point in points:
            w.value = point
            theirs.append(sign * float(problem.objective.value))
            gap = sign * slope_of(problem, w) - at.slope(point)
            if of_mean_one:
                gap = gap - np.mean(gap)
            assert np.max(np.abs(gap)) <= precision * (1 + np.max(np.abs(at.slope(point))))
        np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "low", "cap"),
    [("largest weight", 0.2, 3.0), ("largest distance from 1", 0.0, 2.0), ("no cap", 0.0, 7.0)],
)
def test_bounds_of_all_weights_are_boxes(name: str, low: float, cap: float) -> None:
    form = read(SETS[name])
    np.testing.assert_allclose(form.low, low)
    np.testing.assert_allclose(np.minimum(form.cap, form.n), cap)
    assert not form.hard


SAME_SUMS = {
    "no sum": SumKind.ALL,
    "mean": SumKind.ALL,
    "arm totals": SumKind.PUBLIC,
    "one arm's total": SumKind.PUBLIC,
    "counts": SumKind.COUNTS,
    "counts of treated": SumKind.COUNTS,
    "controls": SumKind.CONTROLS,
    "treated 0": SumKind.CONTROLS,
    "treated": SumKind.TREATED,
    "sum of both": SumKind.TREATED,
}


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", SAME_SUMS)
def test_sums_of_weights_are_told_apart(name: str) -> None:
    form = read(SETS[name])
    assert form.sums.kind is SAME_SUMS[name]
    if name == "arm totals":
        np.testing.assert_allclose(form.sums.public, (2.1, 4.9))
    if form.sums.kind is SumKind.TREATED:
        assert form.low.tolist() == [0.0, 1.0]
        assert form.cap.tolist() == [math.inf, 1.0]


def test_totals_may_be_stated_by_any_two_equations() -> None:
    """0.8 S_0 + S_1 and S_1 say what both sums are; so do S_0 + S_1 and S_0 - S_1."""
    skewed = under(
        lambda w, r: 0.8 * (1 - r.treatment) @ w + r.treatment @ w == 0.8 * 0.4 * r.n + 0.6 * r.n,
        lambda w, r: r.treatment @ w == 0.6 * r.n,
    )
    form = read(skewed)
    np.testing.assert_allclose(form.sums.public, (2.8, 4.2))
    form = read(
        under(lambda w, r: (2 * r.treatment - 1) @ w == r.n / 7, lambda w, r: cp.mean(w) == 1)
    )
    np.testing.assert_allclose(form.sums.public, (3, 4))
    counts = under(
        lambda w, r: 3 * cp.sum(w) + r.treatment @ w == 3 * r.n + cp.sum(r.treatment),
        lambda w, r: cp.sum(w) == r.n,
    )
    assert read(counts).sums.kind is SumKind.COUNTS


def test_boxes_are_read_by_arm() -> None:
    form = read(SETS["cap"])
    assert form.low.tolist() == [0.2, 0.2]
    assert form.cap.tolist() == [3.0, 3.0]
    form = read(SETS["cap by arm"])
    assert form.cap.tolist() == [2.0, 4.0]
    form = read(SETS["controls"])
    assert form.cap.tolist() == [4.0, 0.0]
    # the domain of an entropy of w - 0.1 and of 4 - w
    form = read(DISPERSIONS["logit"])
    assert form.low.tolist() == [0.1, 0.1]
    assert form.cap.tolist() == [4.0, 4.0]


@pytest.mark.slow
def test_spellings_of_one_imbalance_are_one_form() -> None:
    forms = [read(function) for function in (IMBALANCES["P.T @ (w - 1)"], IMBALANCES["P.T @ ones"])]
    parts = [form.imbalances[0].groups[0][0] for form in forms]
    assert parts[0].features == parts[1].features
    np.testing.assert_allclose(parts[0].matrix, parts[1].matrix, rtol=1e-12)
    assert parts[0].weighted.tolist() == parts[1].weighted.tolist() == [1.0, 1.0]
    assert parts[0].target.tolist() == parts[1].target.tolist() == [1.0, 1.0]


def test_library_data_share_two_features() -> None:
    """Rows that move together have to be known to do so: x, signed and by_arm hold the same
    covariates.
    """

    def together(w: Any, r: Any) -> Any:
        return cp.sum_squares(
            cp.hstack([r.x.T @ w, r.signed.T @ w, r.by_arm(1.0).T @ w, r.arms.T @ w])
        )

    form = read(of(together), domain=WITH_INTERCEPT)
    assert sorted(features.name for features in form.features) == ["covariates", "one"]


def test_a_constraint_on_the_signed_intercept_is_a_sum_of_each_arm() -> None:
    form = read(SETS["m == 0"], domain=WITH_INTERCEPT)
    assert form.sums.kind is SumKind.PUBLIC
    # the difference of both arms is n / 2
    np.testing.assert_allclose(form.sums.public, (7 / 4, 3 * 7 / 4))


def test_hard_constraints_are_imbalances_without_a_price() -> None:
    form = read(SETS["two sides"])
    hard = form.imbalances[-1]
    assert hard.penalty.hard
    assert form.hard
    np.testing.assert_allclose(hard.penalty.tolerance, (0.1 + TOLERANCES) / 2)
    np.testing.assert_allclose(hard.shift, (0.1 - TOLERANCES) / 2)


def test_a_constraint_on_the_intercept_is_a_sum() -> None:
    form = read(SETS["X.T @ w == X.T @ 1"], domain=WITH_INTERCEPT)
    assert form.sums.kind is SumKind.ALL
    assert sum(len(group[0].matrix) for group in form.imbalances[-1].groups) == 2


def test_public_sums_of_rounded_shares_add_up_to_n() -> None:
    """Nothing is left over that the step to weights of sum n would put on one record."""
    rounded = np.array([0.3333333333, 0.6666666666])
    form = read(under(lambda w, r: r.arms.T @ w == rounded * r.n))
    assert form.sums.public is not None
    assert sum(form.sums.public) == form.n


#: Prices ``n Psi(m / n)`` of an imbalance m of 7 records, as functions Psi.
SMOOTHED: dict[str, tuple[Function, Any]] = {
    "norm": (PRICES["norm"], lambda x: 0.5 * cp.norm(x)),
    "norm1": (PRICES["norm1"], lambda x: 0.5 * cp.norm1(x)),
    "sum(abs)": (PRICES["sum(abs)"], cp.norm1),
    "sum(pos)": (PRICES["sum(pos)"], lambda x: 0.3 * cp.sum(cp.pos(x))),
    "norm_inf": (PRICES["norm_inf"], cp.norm_inf),
    "3-norm": (PRICES["3-norm"], lambda x: 0.4 * cp.norm(x, 3)),
    "1.5-norm": (of(lambda w, r: cp.norm(difference(w, r), 1.5)), lambda x: cp.norm(x, 1.5)),
    "squared largest entry": (
        of(lambda w, r: cp.square(cp.norm_inf(difference(w, r)))),
        lambda x: 7 * cp.square(cp.norm_inf(x)),
    ),
}


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", SMOOTHED)
def test_kinks_are_smoothed_in_units_of_the_mean(name: str) -> None:
    """A price ``n Psi(m / n)`` becomes n times the envelope of Psi at the mean, in units of the
    rows.
    """
    asked = 0.05
    eta = asked * DOMAIN.covariate_bound**2
    function, whole = SMOOTHED[name]
    plain, w_again, records = declared(function, 7)
    _, _, at = loaded(PRICES["norm"], 7, DOMAIN, seed=3)
    form = read_weighting(plain, w_again, records, smoothing=asked)
    smooth = WeightingObjective(form, at.phi, at.a)
    penalty = form.imbalances[0].penalty
    assert not form.kinked
    assert list(form.smoothed.values()) == pytest.approx([eta])
    rng = np.random.default_rng(3)
    for _ in range(5):
        point = drawn_weights(form, rng, of_mean_one=True)
        y = at.imbalances(point)[0] / 7
        x = cp.Variable(3)
        envelope = cp.Problem(cp.Minimize(whole(x) + cp.sum_squares(x - y) / (2 * eta)))
        envelope.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12)
        expected = float(np.sum((point - 1) ** 2)) + 7 * envelope.value
        assert smooth.value(point) == pytest.approx(expected, rel=1e-7)
    assert penalty.smoothness == pytest.approx(1 / (eta * 7))


def test_prices_of_entries_are_smoothed_each_by_its_own() -> None:
    form = read(PRICES["prices"], smoothing=0.1)
    knees = [imbalance.penalty.knee for imbalance in form.imbalances]
    np.testing.assert_allclose(knees, 7 * 0.1 * DOMAIN.covariate_bound**2 * TOLERANCES)


def test_a_parameter_that_is_no_datum_is_a_public_number() -> None:
    ridge = cp.Parameter(nonneg=True, value=0.25)
    form = read(minimized(lambda w, r: ridge * cp.sum_squares(w) + ridge * balance(w, r)))
    assert form.dispersion.parts[0].scale == 0.25


def test_a_problem_keeps_its_values() -> None:
    problem, w, records = declared(READ["imbalance: P.T @ w"], 7)
    w.value = np.ones(7)
    records.x.value = np.full((7, 3), 0.5)
    read_weighting(problem, w, records)
    assert w.value.tolist() == [1.0] * 7
    assert records.x.value.tolist() == [[0.5] * 3] * 7


def test_many_records_are_read_in_few_evaluations() -> None:
    n = 20_000
    w = cp.Variable(n)
    records = DeclaredRecords(DOMAIN.space, n, 20)
    objective = cp.sum_squares(w - 1) + cp.sum_squares(records.x.T @ w) / n
    form = read_weighting(cp.Problem(cp.Minimize(objective), [w <= 3]), w, records)
    np.testing.assert_allclose(form.imbalances[0].groups[0][0].matrix, np.eye(20))


REFUSED: dict[str, tuple[Function, str]] = {
    "no dispersion": (minimized(balance), "add cp.sum_squares(w - 1)"),
    "huber alone": (plus(lambda w: cp.sum(cp.huber(w - 1, 1))), "not strictly convex"),
    "size alone": (plus(lambda w: cp.norm1(w - 1)), "not strictly convex"),
    "norm of weights": (plus(lambda w: cp.norm(w - 1)), "write cp.sum_squares(w - 1)"),
    "std": (plus(lambda w: cp.std(w)), "write cp.sum_squares(w - 1)"),
    "exp": (plus(lambda w: cp.sum(cp.exp(w))), "is not read here"),
    "logistic": (plus(lambda w: cp.sum(cp.logistic(w))), "is not read here"),
    "power 4 of w - 1": (plus(lambda w: cp.sum((w - 1) ** 4)), "a power 4 of numbers below 0"),
    "entropy of 2 - w, cap below": (
        plus(lambda w: -cp.sum(cp.entr(0.9 - w))),
        "is infinite at weights 1",
    ),
    "numbers by place": (plus(lambda w: cp.sum_squares(w - np.arange(7))), "write one for all"),
    "factors by place": (plus(lambda w: np.arange(1, 8) @ cp.square(w)), "write one for all"),
    "dispersion by arm": (
        minimized(lambda w, r: cp.sum_squares(cp.multiply(1 + r.treatment, w))),
        "the same for all",
    ),
    "entropy from data": (
        minimized(lambda w, r: -cp.sum(cp.entr(w + r.outcome_size))),
        "kl_div(w, d)",
    ),
    "base that may be 0": (
        minimized(lambda w, r: cp.sum(cp.kl_div(w, r.outcome_size))),
        "no positive number",
    ),
    "base beside squares": (
        minimized(lambda w, r: cp.sum(cp.kl_div(w, positive(r))) + square(w)),
        "beside another one",
    ),
    "two kinds of linear terms": (
        of(lambda w, r: r.y @ w + r.x[:, 0] @ w),
        "one number of every record",
    ),
    "linear in a kernel": (
        of(lambda w, r: np.ones(3) @ (r.features(Gaussian(1.0)).T @ w)),
        "is linear in",
    ),
    "product of data": (
        of(lambda w, r: cp.sum(r.x, axis=0) @ (r.x.T @ w)),
        "is no sum over records of x",
    ),
    "divided by data": (
        of(lambda w, r: cp.sum_squares(r.x.T @ w / (1 + cp.sum(r.treatment)))),
        "is no sum",
    ),
    "curved data": (
        of(lambda w, r: cp.sum_squares(cp.exp(r.x).T @ w)),
        "is no sum over records of x",
    ),
    "data of a neighbor": (
        of(lambda w, r: cp.sum_squares(r.x[1:].T @ w[:-1])),
        "is no sum over records in which each weight",
    ),
    "a record counted twice": (
        of(lambda w, r: cp.sum_squares(r.x.T @ w + r.x[0] * w[0])),
        "is no sum",
    ),
    "public matrix": (
        of(lambda w, r: cp.sum_squares(np.vander(np.arange(7), 3).T @ w)),
        "is no sum",
    ),
    "differences of neighbors": (of(lambda w, r: cp.sum_squares(cp.diff(w))), "is no sum"),
    "target of one record": (
        of(lambda w, r: cp.sum_squares(r.x.T @ w - r.n * r.x[0])),
        "is no sum",
    ),
    "other direction": (
        of(lambda w, r: cp.square(r.x[:, 0] @ w - cp.sum(r.x[:, 1]))),
        "an entry of its own",
    ),
    "some of a kernel": (
        of(lambda w, r: cp.sum_squares(r.features(Gaussian(1.0))[:, :2].T @ w)),
        "takes some of kernel",
    ),
    "matrix of a kernel": (of(lambda w, r: cp.quad_form(pooled(w, r), MATRIX)), "a matrix of them"),
    "tolerance of a kernel": (
        of(lambda w, r: cp.sum_squares(cp.pos(cp.abs(pooled(w, r)) - 0.1))),
        "prices entries of kernel",
    ),
    "kernel beside numbers": (of(lambda w, r: cp.sum_squares(pooled(w, r) + r.x.T @ w)), "mixes"),
    "some cells": (of(lambda w, r: cp.square(signs(r)[:, 0] @ w)), "takes some of own sign"),
    "squared largest entry": (
        of(lambda w, r: cp.square(cp.norm_inf(difference(w, r)))),
        "give smoothing=",
    ),
    "squared 1.5-norm": (of(lambda w, r: cp.norm(difference(w, r), 1.5) ** 2), "give smoothing="),
    "squared 1-norm": (of(lambda w, r: cp.square(cp.norm1(difference(w, r)))), "sum_squares(m)"),
    "20-norm": (
        of(lambda w, r: cp.pnorm(difference(w, r), 20)),
        "order 1, infinity, or one from 1.1 to 16",
    ),
    "mixed norm": (
        of(lambda w, r: cp.mixed_norm(cp.vstack([difference(w, r), r.signed.T @ w]), 2, 1)),
        "is not read here",
    ),
    "log_sum_exp of weights": (
        minimized(lambda w, r: square(w) + cp.log_sum_exp(w)),
        "write cp.sum_squares",
    ),
    "log_sum_exp beside 0": (
        of(lambda w, r: cp.log_sum_exp(cp.hstack([difference(w, r), 0.0]))),
        "has an entry that is 0",
    ),
    "log_sum_exp of a kernel": (
        of(lambda w, r: cp.log_sum_exp(pooled(w, r))),
        "prices entries of kernel",
    ),
    "positive parts of weights": (
        plus(lambda w: cp.sum(cp.pos(w - 1))),
        "write cp.sum_squares(w - 1)",
    ),
    "entropy of an imbalance": (
        of(lambda w, r: -cp.sum(cp.entr(1 + r.x.T @ w))),
        "is not read here",
    ),
    "other total": (under(lambda w, r: cp.sum(w) == 1), "contradicts another sum"),
    "twice the total": (under(lambda w, r: cp.sum(w) == 2 * r.n), "contradicts another sum"),
    "arms of 1": (under(lambda w, r: r.arms.T @ w == 1), "sums of weights are n in all"),
    "half of the counts": (
        under(lambda w, r: r.treatment @ w == cp.sum(r.treatment) / 2),
        "write one of these",
    ),
    "group totals": (under(lambda w, r: cp.sum(w[:3]) == 3), "is no sum over records"),
    "two totals": (
        under(lambda w, r: cp.sum(w) == r.n, lambda w, r: cp.mean(w) == 2),
        "contradicts",
    ),
    "size of a sum": (under(lambda w, r: cp.abs(cp.sum(w) - r.n) <= 1), "fix it by =="),
    "infinite factor": (of(lambda w, r: math.inf * balance(w, r)), "is not finite"),
    "factor beyond doubles": (of(lambda w, r: 1e200 * (1e200 * balance(w, r))), "is not finite"),
    "tolerance that is no number": (
        of(lambda w, r: cp.sum_squares(cp.pos(cp.abs(difference(w, r)) - math.nan))),
        "is not finite",
    ),
    "base and fixed weights": (
        minimized(
            lambda w, r: cp.sum(cp.kl_div(w, positive(r))),
            lambda w, r: [cp.multiply(r.treatment, w) == 0],
        ),
        "fix no weights",
    ),
    "products of data of one record": (
        of(lambda w, r: cp.sum_squares(r.x.T @ cp.multiply(r.treatment, w))),
        "records.by_arm",
    ),
    "total 0": (under(lambda w, r: r.treatment @ w == 0), "one of these"),
    "sum of largest weights": (of(lambda w, r: cp.sum_largest(w, 2)), "is not read here"),
    "sum at most n": (under(lambda w, r: cp.sum(w) <= r.n), "fix it by =="),
    "cap below 1": (under(lambda w, r: w <= 0.5), "raise it to 1"),
    "floor above 1": (under(lambda w, r: w >= 1.5), "lower it to 1"),
    "empty box": (under(lambda w, r: w >= 3, lambda w, r: w <= 2), "no weight of arm 0 is between"),
    "caps by place": (under(lambda w, r: w <= np.arange(2, 9)), "write one for all"),
    "cap from data": (under(lambda w, r: w <= 3 + r.outcome_size), "is a box made of data"),
    "cap from a mean": (under(lambda w, r: w <= 3 * cp.mean(w)), "is a box made of a mean"),
    "contradicting sides": (
        under(lambda w, r: difference(w, r) <= -0.1, lambda w, r: difference(w, r) >= 0.1),
        "contradict each other",
    ),
    "tolerance below 0": (
        under(lambda w, r: cp.abs(difference(w, r)) <= -0.1),
        "the tolerance is below 0",
    ),
    "tolerance from data": (
        under(lambda w, r: cp.abs(difference(w, r)) <= cp.sum(r.outcome_size)),
        "a public number",
    ),
    "data alone": (under(lambda w, r: cp.sum(r.x, axis=0) == 0), "holds no weights"),
    "an entry of data alone": (
        under(lambda w, r: cp.abs(cp.hstack([r.x[:, 0] @ w, cp.sum(r.y)])) <= 1),
        "an entry without weights",
    ),
    "price of data alone": (
        of(lambda w, r: cp.sum_squares(cp.sum(r.x, axis=0))),
        "holds no weights",
    ),
    "squares constraint": (
        under(lambda w, r: cp.sum_squares(difference(w, r)) <= 1),
        "cp.norm(m) <=",
    ),
    "size of weights": (under(lambda w, r: cp.abs(w - 1) <= 0.5), "write w <= cap"),
    "cone": (under(lambda w, r: cp.SOC(cp.sum(w), r.x.T @ w)), "is not read"),
    "treated at 2": (
        under(lambda w, r: cp.multiply(r.treatment, w - 2) == 0),
        "fix them at 0 or 1",
    ),
    "no sum of controls": (
        under(lambda w, r: cp.multiply(r.treatment, w - 1) == 0),
        "no sum of the controls",
    ),
    "treated at 0, log": (
        minimized(lambda w, r: -cp.sum(cp.log(w)), lambda w, r: [w <= 4 * (1 - r.treatment)]),
        "infinite at the fixed weight 0",
    ),
    "not convex": (minimized(lambda w, r: -square(w)), "is not convex"),
    "another variable": (of(lambda w, r: cp.square(cp.Variable(name="z"))), "variable z"),
    "a parameter without a value": (
        of(lambda w, r: cp.Parameter(name="c", nonneg=True) * balance(w, r)),
        "c",
    ),
    "no problem": (lambda w, r: cp.Minimize(square(w)), "return cp.Problem("),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_theorem_covers_is_refused_in_one_line(name: str) -> None:
    function, reason = REFUSED[name]
    assert reason in refused(function)


def test_squares_of_norms_whose_gradients_jump_are_smoothed() -> None:
    eta = 0.05 * DOMAIN.covariate_bound**2
    for norm in (cp.norm_inf, lambda m: cp.norm(m, 1.5)):
        form = read(of(lambda w, r, norm=norm: cp.square(norm(difference(w, r)))), smoothing=0.05)
        penalty = form.imbalances[0].penalty
        assert penalty.smoothness == pytest.approx(1 / (7 * eta))
        assert not form.kinked
        assert list(form.smoothed.values()) == pytest.approx([eta])


def test_smoothing_does_not_depend_on_how_an_imbalance_is_written() -> None:
    """The same price of a sum, of a mean and in other units is smoothed to the same problem."""
    written = (
        lambda w, r: cp.norm(difference(w, r)),
        lambda w, r: r.n * cp.norm(difference(w, r) / r.n),
        lambda w, r: 0.01 * cp.norm(100 * difference(w, r)),
    )
    _, _, at = loaded(PRICES["norm"], 7, DOMAIN, seed=3)
    point = np.linspace(0.4, 1.6, 7)
    values = []
    for price in written:
        form = read(of(price), smoothing=0.05)
        values.append(WeightingObjective(form, at.phi, at.a).value(point))
    np.testing.assert_allclose(values, values[0], rtol=1e-9)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("smoothing", [0.0, -1.0, math.nan, math.inf, "much"])
def test_a_smoothing_is_a_public_size(smoothing: Any) -> None:
    refused(PRICES["norm"], smoothing=smoothing)


def test_data_of_other_records_are_refused() -> None:
    problem, w, _ = declared(READ["imbalance: P.T @ w"], 7)
    with pytest.raises(DeclarationError, match="x has no public set"):
        read_weighting(problem, w, DeclaredRecords(DOMAIN.space, 7, 3))


def test_features_are_of_a_kernel_and_of_known_records() -> None:
    records = DeclaredRecords(DOMAIN.space, 7, 3)
    with pytest.raises(DeclarationError, match="those of a kernel of the library"):
        records.features(lambda x: x)
    with pytest.raises(DeclarationError, match="of = 'treatd'"):
        records.features(Gaussian(1.0), "treatd")


def entries_by_place(w: Any, r: Any) -> Any:
    m = cp.hstack([r.x[:, 0] @ w, r.y @ w, r.x[:, 1] @ w])
    return cp.sum_squares(cp.pos(cp.abs(m) - np.array([0.1, 3.0, 0.3])))


def without_sum(price: Function) -> Function:
    return minimized(lambda w, r: square(w) + price(w, r), lambda w, r: [w <= 3])


def public_target(w: Any, r: Any) -> Any:
    return cp.sum_squares(r.x.T @ w - TOLERANCES)


#: Name: the module, what stands there, what is planted, and a declaration that it misreads.
PLANTED: dict[str, tuple[ModuleType, str, str, Function]] = {
    "a divisor multiplies": (
        weighting_prices,
        "term.number / float(flat(divisor.value)[0])",
        "term.number * float(flat(divisor.value)[0])",
        DISPERSIONS["quad_over_lin"],
    ),
    "a sign is lost": (
        weighting_prices,
        "yield from entries_of(e.args[0], -factor)",
        "yield from entries_of(e.args[0], factor)",
        minimized(lambda w, r: square(w) - cp.sum(cp.log(w) - cp.abs(w))),
    ),
    "a tolerance keeps its units": (
        weighting_prices,
        "_number_if_alike(limit / multiple)",
        "_number_if_alike(limit)",
        PRICES["tolerance of means"],
    ),
    "a knee is doubled": (
        weighting_prices,
        "ImbalancePenalty(factor, knee=knee))",
        "ImbalancePenalty(factor, knee=2.0 * knee))",
        PRICES["huber"],
    ),
    "the price of a norm is doubled": (
        weighting_prices,
        "norm=norm, price=term.number",
        "norm=norm, price=2.0 * term.number",
        PRICES["norm"],
    ),
    "a root is no root": (
        weighting_prices,
        "np.sqrt(np.maximum(eigenvalues, 0.0))[:, None]",
        "np.maximum(eigenvalues, 0.0)[:, None]",
        IMBALANCES["quad_form"],
    ),
    "an entropy counts twice": (
        weighting_terms,
        'DispersionPart("entropy", -term.number',
        'DispersionPart("entropy", -2.0 * term.number',
        DISPERSIONS["-entr"],
    ),
    "a divergence loses its line": (
        weighting_terms,
        "(math.log(b) + of_kl_div)",
        "math.log(b)",
        BASES["kl_div(w, d)"],
    ),
    "both divergences are one": (
        weighting_terms,
        'DispersionPart("log", scale * b',
        'DispersionPart("entropy", scale * b',
        DISPERSIONS["kl_div(1, w)"],
    ),
    "a linear term is halved": (
        weighting_terms,
        "2.0 * penalty.factor * slope",
        "penalty.factor * slope",
        LINEAR["sum_squares(w - d)"],
    ),
    "tolerances lose their order": (
        weighting_terms,
        "ordered = penalty.ordered(order)",
        "ordered = penalty",
        of(entries_by_place),
    ),
    "targets change sides": (
        weighting_sums,
        "-of_targets.T",
        "of_targets.T",
        IMBALANCES["P.T @ (w - 1)"],
    ),
    "a shift changes sides": (
        weighting_sums,
        "shift = -read.constant",
        "shift = read.constant",
        without_sum(public_target),
    ),
    "a mean changes sides": (
        weighting_sums,
        "means.get(name, 0.0) - of_mean.T",
        "means.get(name, 0.0) + of_mean.T",
        MEANS["controls to the treated"],
    ),
    "a mean is a sum": (weighting_sums, "@ tensor / self.n", "@ tensor", MEANS["both means"]),
    "a mean is of the other arm": (
        weighting_data,
        "of_arm[arm] = matrices[arm]",
        "of_arm[1 - arm] = matrices[arm]",
        MEANS["mean of own rows"],
    ),
    "the means of both arms are taken": (
        weighting_data,
        "of_arm[arm] = matrices[arm]",
        "of_arm[:2] = matrices / 2",
        MEANS["mean of a number"],
    ),
    "a part of a mean is another": (
        weighting_sums,
        "factors[2:4], factors[4:6]",
        "factors[4:6], factors[4:6]",
        MEANS["parts"],
    ),
    "public points are forgotten": (
        weighting_sums,
        "float(factors[6])",
        "0.0",
        MEANS["public points and records"],
    ),
    "a mean of public points is that of controls": (
        weighting_data,
        "of_points[2] = matrices[0]",
        "of_points[0] = matrices[0]",
        MEANS["public points"],
    ),
    "weights without data are lost": (
        weighting_sums,
        "rows[name] = rows.get(name, 0.0) + constant",
        "rows[name] = rows.get(name, 0.0 * constant)",
        without_sum(lambda w, r: cp.sum_squares(cp.hstack([r.x.T @ w, cp.sum(w) - r.n]))),
    ),
    "signs of arms are lost": (
        weighting_sums,
        "features, matrix, factors[:2]",
        "features, matrix, np.abs(factors[:2])",
        IMBALANCES["(w - 1) @ P"],
    ),
    "treated are controls": (
        weighting_data,
        "self._covariates_times((-1.0, 1.0))",
        "self._covariates_times((1.0, -1.0))",
        IMBALANCES["(w - 1) @ P"],
    ),
    "a cap is lost": (
        weighting_sets,
        "self.cap[arm] = min(self.cap[arm], end)",
        "self.cap[arm] = max(self.cap[arm], end)",
        SETS["cap"],
    ),
    "arms change caps": (
        weighting_sets,
        "self._bound(arm, slope",
        "self._bound(1 - arm, slope",
        SETS["cap by arm"],
    ),
    "sides are not halved": (
        weighting_sets,
        "half = (sums.shift + other.shift) / 2.0",
        "half = sums.shift + other.shift",
        SETS["two sides"],
    ),
    "counts are one total": (
        weighting_sets,
        "WeightSums(SumKind.COUNTS)",
        "WeightSums(SumKind.ALL)",
        SETS["counts"],
    ),
    "an end of records is another multiple": (
        weighting_sets,
        "float(tensor[0, 0, 0]) / line.slope",
        "float(tensor[0, 0, 0]) * line.slope",
        SETS["boxes of records"],
    ),
    "a cap of records is a floor": (
        weighting_sets,
        "self.cap_of = rows",
        "self.low_of = rows",
        SETS["caps of records"],
    ),
    "arms change totals": (
        weighting_sets,
        "(sum_of_controls, self.n - sum_of_controls)",
        "(self.n - sum_of_controls, sum_of_controls)",
        SETS["arm totals"],
    ),
}

#: The reader's files, each after those that it imports.
FILES = (
    weighting_data,
    weighting_sums,
    weighting_prices,
    weighting_terms,
    weighting_sets,
    weighting_reader,
)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_misreading_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted, old, new, function = PLANTED[name]
    assert old in inspect.getsource(planted)
    for module in FILES:
        copy = ModuleType(module.__name__)
        monkeypatch.setitem(sys.modules, module.__name__, copy)
        source = inspect.getsource(module)
        if module is planted:
            source = source.replace(old, new)
        exec(compile(source, module.__name__, "exec"), vars(copy))
    misread(function)


def test_a_small_term_is_compared_beside_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The total alone has the values of the problem to twelve digits, whatever is read of the
    dispersion.
    """
    read(
        minimized(
            lambda w, r: 1e-9 * cp.sum(cp.huber(w - 1, 0.1)) + square(w) + 1e6 * balance(w, r)
        )
    )
    part = weighting_terms.DispersionPart
    monkeypatch.setattr(
        weighting_terms, "DispersionPart", lambda *of: part(*of[:4], *(2 * k for k in of[4:]))
    )
    misread(
        minimized(
            lambda w, r: 1e-9 * cp.sum(cp.huber(w - 1, 0.1)) + square(w) + 1e6 * balance(w, r)
        )
    )


def test_slopes_of_a_largest_size_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVXPY has no slope of them. Values alone would not tell a price whose slope is wrong."""
    function = of(lambda w, r: cp.norm_inf(difference(w, r)))
    read(function)
    price = shapes._OfLargestEntry.price
    monkeypatch.setattr(shapes._OfLargestEntry, "price", lambda *of: 1.01 * price(*of))
    assert "other slopes" in misread(function)


def test_slopes_at_a_tie_of_sizes_are_not_compared() -> None:
    """Two sizes are the largest there, and every slope between theirs is a subgradient."""
    w = cp.Variable(3)
    w.save_value(np.array([1.0, -1.0, 2.0]))
    slope = weighting_reader._slope_by_differences(cp.norm_inf(w), w)
    np.testing.assert_allclose(slope, [0.0, 0.0, 1.0], atol=1e-9)
    w.save_value(np.array([2.0, -2.0, 1.0]))
    slope = weighting_reader._slope_by_differences(cp.norm_inf(w), w)
    np.testing.assert_allclose(slope, [np.nan, np.nan, 0.0], atol=1e-9)


def statement(objective: Function, *constraints: Function) -> Function:
    """With a balance of ``5 n |mean|^2``, as the statements that a reader is known to have
    misread.
    """

    def problem(w: Any, r: Any) -> Any:
        loss = objective(w, r) + 5 * r.n * cp.sum_squares(r.x.T @ w / r.n)
        return cp.Problem(
            cp.Minimize(loss), [cp.sum(w) == r.n, w >= 0, *(c(w, r) for c in constraints)]
        )

    return problem


def atoms(function: Function) -> list[tuple[str, float]]:
    """Curved parts of the dispersion with their scales."""
    parts = read(function).dispersion.parts
    return [(part.atom, part.scale) for part in parts if part.atom != "line"]


def test_both_arguments_of_a_divergence_are_told_apart() -> None:
    ones = np.ones(7)
    assert atoms(statement(lambda w, r: -cp.sum(cp.entr(w)), lambda w, r: w <= 4)) == [
        ("entropy", 1.0)
    ]
    assert atoms(statement(lambda w, r: cp.sum(cp.kl_div(w, ones)))) == [("entropy", 1.0)]
    assert atoms(statement(lambda w, r: cp.sum(cp.kl_div(ones, w)))) == [("log", 1.0)]
    assert atoms(statement(lambda w, r: cp.sum(cp.rel_entr(3 * ones, w)))) == [("log", 3.0)]
    assert atoms(statement(lambda w, r: -cp.sum(cp.log(w)), lambda w, r: w <= 200)) == [
        ("log", 1.0)
    ]


def test_a_norm_of_entries_is_told_from_one_of_all() -> None:
    """Each has another bound: that of the 1-norm is not that of the Euclidean one."""
    for norm, expected in ((cp.norm1, None), (cp.norm2, 2.0), (cp.norm_inf, math.inf)):
        form = read(
            statement(lambda w, r, norm=norm: square(w) + norm(r.x.T @ w), lambda w, r: w <= 3)
        )
        kink = next(one.penalty for one in form.imbalances if one.penalty.kinked)
        assert kink.norm == expected
        assert form.kinked
        assert not form.hard


def test_a_kink_beside_squares_is_two_imbalances() -> None:
    form = read(statement(lambda w, r: square(w) / 2 + 1e-4 * cp.norm(r.x.T @ w)))
    assert sorted(one.penalty.kinked for one in form.imbalances) == [False, True]


def test_public_parameters_of_statements_are_read() -> None:
    ridge = cp.Parameter(value=2.0, nonneg=True)
    matrix = cp.Parameter((3, 3), PSD=True, value=np.eye(3))
    form = read(statement(lambda w, r: square(w) / 2 + ridge * cp.sum_squares(r.x.T @ w) / r.n))
    assert form.imbalances[0].penalty.factor == pytest.approx(2 / 7)
    form = read(statement(lambda w, r: square(w) / 2 + cp.quad_form(r.x.T @ w / r.n, matrix)))
    np.testing.assert_allclose(form.imbalances[0].groups[0][0].matrix, np.eye(3) / 7, atol=1e-15)


def test_numbers_of_records_without_a_public_set_are_refused() -> None:
    """A linear term moves every weight by a number of its own record, which has to be bounded."""
    assert "has no public set" in refused(
        statement(lambda w, r: square(w) + cp.Parameter(7, name="c") @ w)
    )
    given = cp.Parameter(7, name="c", value=np.arange(7.0))
    assert "is no sum over records" in refused(statement(lambda w, r: square(w) + given @ w))
    form = read(statement(lambda w, r: square(w) + r.numbers("c", lambda x, a, y: y, -1, 1) @ w))
    assert form.linear is not None
    assert form.linear.features.within == IntervalSet(-1, 1)


def test_totals_of_arms_are_read_whatever_the_cap() -> None:
    """That they need arms of a least size is for their bound to say."""
    for cap in (4.0, 1.0):
        form = read(under(lambda w, r: r.arms.T @ w == r.n / 2, lambda w, r, cap=cap: w <= cap))
        assert form.sums.kind is SumKind.PUBLIC
        assert form.cap.tolist() == [cap, cap]


def test_as_many_columns_as_records_are_no_weights() -> None:
    w = cp.Variable(7)
    records = DeclaredRecords(DOMAIN.space, 7, 7)
    miss = records.x.T @ w - np.arange(7)
    form = read_weighting(cp.Problem(cp.Minimize(square(w) + cp.sum_squares(miss))), w, records)
    np.testing.assert_allclose(form.imbalances[0].shift, np.arange(7))
    np.testing.assert_allclose(form.imbalances[0].groups[0][0].matrix, np.eye(7))


def test_a_function_is_read_at_few_records_first() -> None:
    sizes = []

    def declare(w: Any, r: Any) -> Any:
        sizes.append(r.n)
        return READ["imbalance: P.T @ w"](w, r)

    form = read_declared_weighting(declare, Universe(DOMAIN, 300, 4))
    assert sizes == [7, 11, 300]
    assert form.n == 300
    np.testing.assert_allclose(form.imbalances[0].groups[0][0].matrix, np.eye(4))
    with pytest.raises(DeclarationError, match="'signed' is asked for"):
        read_declared_weighting(lambda w, r: (r.signed, declare(w, r))[1], Universe(DOMAIN, 300, 4))


def test_a_cap_that_is_not_set_is_none() -> None:
    form = read(under(lambda w, r: w <= math.inf, lambda w, r: -math.inf <= w))
    assert form.cap.tolist() == [math.inf, math.inf]


def test_a_constraint_may_have_any_scale() -> None:
    for scale in (1e-12, 1e12):
        form = read(under(lambda w, r, scale=scale: scale * w <= 3 * scale))
        np.testing.assert_allclose(form.cap, 3.0)


def test_an_entry_may_be_small_beside_others() -> None:
    form = read(of(lambda w, r: cp.sum_squares(cp.hstack([1e13 * (r.x.T @ w), r.y @ w]))))
    of_outcome = next(
        group[0] for group in form.imbalances[0].groups if group[0].features.name == "outcome"
    )
    assert of_outcome.matrix.tolist() == [[1.0]]


def test_solutions_of_a_form_are_those_of_the_problem() -> None:
    """A problem in CVXPY that is written from the numbers of the form, solved beside the
    author's.
    """
    problem, w, at = loaded(PRICES["tolerances"], 11, DOMAIN, seed=5)
    tight = {"solver": "CLARABEL", "tol_gap_abs": 1e-12, "tol_gap_rel": 1e-12, "tol_feas": 1e-12}
    cp.Problem(problem.objective, [*problem.constraints, w >= 0]).solve(**tight)
    v = cp.Variable(11)
    penalty = at.form.imbalances[0].penalty
    m = at.rows[0].T @ v - at.targets[0]
    loss = cp.sum_squares(v - 1) + penalty.factor * cp.sum_squares(
        cp.pos(cp.abs(m) - penalty.tolerance)
    )
    cp.Problem(cp.Minimize(loss), [cp.sum(v) == 11, v >= 0]).solve(**tight)
    np.testing.assert_allclose(v.value, w.value, atol=1e-6)


def test_features_of_records_are_in_their_public_sets() -> None:
    """What bounds rely on: whatever the records, their features are inside."""
    names = ("half of both", "outcomes", "favored", "own rows", "own numbers", "own cells")
    read_of = {f"imbalance: {name}" for name in names} | {
        "base: kl_div(w, d)",
        "kernel: two kernels",
    }
    for name in sorted(read_of):
        _, _, at = loaded(READ[name], 40, WITH_INTERCEPT, seed=9)
        for features in at.form.features:
            phi = at.phi[features.name]
            within = features.within
            assert phi.shape == (40, features.width), name
            if isinstance(within, BallSet):
                assert np.max(np.linalg.norm(phi, axis=1)) <= within.radius, name
            elif isinstance(within, IntervalSet):
                assert within.low <= np.min(phi) <= np.max(phi) <= within.high, name
            elif isinstance(within, ConstantSet):
                assert np.all(phi == 1.0), name
            elif features.kernel is None:
                assert 0.0 <= np.min(phi @ phi.T) <= np.max(phi @ phi.T) <= within.bound, name
            else:
                X = np.random.default_rng(9).uniform(-0.7, 0.7, (40, 3))
                assert np.max(np.abs(features.kernel.cross(X, X))) <= within.bound, name
