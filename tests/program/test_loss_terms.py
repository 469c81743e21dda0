"""What a loss says at once of margins: its derivatives, and bounds on their errors, at 40
digits.
"""

import contextlib
import math
from fractions import Fraction
from itertools import product
from typing import Any

import cvxpy as cp
import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit

from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import LOGISTIC, Curve, Part
from dp2erm_cvx.curves.log_weights import LogWeight
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.model.sums import weights_on_grid
from dp2erm_cvx.program import Box, L1Ball, WholeSpace
from dp2erm_cvx.program.declaration import refuse_misread
from dp2erm_cvx.program.form import read_curve


@pytest.mark.parametrize(
    ("read", "shifted", "refused"),
    [
        (lambda x: np.logaddexp(0.0, x), False, False),
        (lambda x: np.logaddexp(0.0, x) + 1.0, True, False),  # a loss may be off by a constant
        (lambda x: np.logaddexp(0.0, x) + 1.0, False, True),  # a log weight may not
        (lambda x: np.logaddexp(0.0, -x), False, True),
    ],
)
def test_a_reading_has_the_values_of_cvxpy(read, shifted, refused):
    """A log weight has no slopes to compare: its values alone decide."""
    s = cp.Variable()
    refusal = (
        pytest.raises(DeclarationError, match="other values")
        if refused
        else contextlib.nullcontext()
    )
    with refusal:
        refuse_misread(cp.logistic(s), s, lambda x: (read(x), None), (-1.0, 0.5), shifted=shifted)


def test_the_largest_number_of_a_maximum_tells_whether_its_square_is_a_hinge():
    """That of ``maximum(s, 0, -1)`` is ``square(pos(s))``; one above 0 leaves a kink."""
    s = cp.Variable()
    hinge = read_curve(cp.square(cp.pos(s)), s)
    for parts in ((0.0, s), (s, -1.0, 0.0), (-2.0, 0.0, s)):
        assert read_curve(cp.square(cp.maximum(*parts)), s) == hinge
    for parts in ((s, 0.0, 1.0), (s, 1.0), (s, 0.0, 2.0 * s)):
        with pytest.raises(DeclarationError, match="has a kink, where no theorem holds"):
            read_curve(cp.square(cp.maximum(*parts)), s)


def test_a_curve_that_has_no_value_anywhere_is_refused():
    """Nothing of it could be compared."""
    s = cp.Variable(name="s")
    for e in (cp.square(s - math.nan), cp.logistic(s + math.inf), cp.exp(s) + math.nan):
        with pytest.raises(DeclarationError, match="its public numbers must be finite"):
            read_curve(e, s)


@pytest.mark.parametrize("wrong", ["value", "slope"])
def test_a_reading_that_is_no_number_is_refused(wrong):
    """Every comparison with it is false, that of an error with its limit as well."""
    s = cp.Variable()

    def read(x):
        value = math.nan if wrong == "value" else np.logaddexp(0.0, x)
        slope = math.nan if wrong == "slope" and x > 0.0 else expit(x)
        return value, slope

    with pytest.raises(DeclarationError, match="other values"):
        refuse_misread(cp.logistic(s), s, read, (-1.0, 0.5))


def saturating(S):
    return Curve((Part(1.0, atom("saturating", S)),))


def of_saturating(S):
    def exact(s):
        t = abs(s) / mpmath.mpf(S)
        return S**2 * (t + mpmath.expm1(-t)), -S * mpmath.sign(s) * mpmath.expm1(-t), mpmath.exp(-t)

    return exact


def of_logistic(s):
    rare = 1 / (1 + mpmath.exp(s))
    return mpmath.log1p(mpmath.exp(-s)), -rare, rare / (1 + mpmath.exp(-s))


@pytest.mark.parametrize(
    ("loss", "exact", "S"),
    [(LOGISTIC, of_logistic, 1.0), *((saturating(S), of_saturating(S), S) for S in (1e-3, 40.0))],
)
def test_values_are_exact_and_errors_cover_every_shift(loss, exact, S):
    sizes = np.concatenate([[0.0, 1e-300], np.geomspace(1e-12, 1e5, 25), np.linspace(0.1, 40, 20)])
    s = S * np.concatenate([sizes, -sizes])
    with mpmath.workdps(40):
        value, slope, curvature = np.array([exact(mpmath.mpf(one)) for one in s]).T
        np.testing.assert_allclose(
            loss.value(s), value.astype(float), rtol=1e-12, atol=1e-15 * S**2
        )
        for relative in (0.0, 1e-15, 1e-9, 1e-3, 1.0, 50.0):
            result = loss.at(s, relative * S * np.ones(len(s)))
            np.testing.assert_allclose(result.value, loss.value(s), rtol=1e-13, atol=1e-13)
            for sign in (1.0, -1.0) if relative else (1.0,):
                # where the loss is, and where it is taken to be
                moved = np.array(
                    [exact(mpmath.mpf(one) + sign * mpmath.mpf(relative * S)) for one in s]
                )
                for slopes, curvatures in (
                    (loss.slope(s), loss.curvature(s)),
                    (result.slope, result.curvature),
                ):
                    assert np.all(np.abs(moved[:, 1] - slopes) <= result.slope_error + 1e-310)
                    assert np.all(
                        np.abs(moved[:, 2] - curvatures) <= result.curvature_error + 1e-310
                    )
                assert np.all(
                    loss.least_curvature(s, relative * S * np.ones(len(s))) <= moved[:, 2]
                )
        rounded = np.abs(slope - loss.slope(s)).astype(float)
        assert np.all(rounded <= loss.rounding_units(np.inf) * 2.0**-53)
        assert np.all(np.abs(curvature - loss.curvature(s)) <= 1e-12 * curvature + 1e-300)


def test_a_least_curvature_covers_a_large_shift():
    loss = Curve((Part(1.0, atom("saturating", 1e-3), 0.3, -1e6),))
    s = 1e6 / 0.3 + 7e-4 * np.arange(-40, 40)
    with mpmath.workdps(40):
        inner = [abs(mpmath.mpf(0.3) * mpmath.mpf(one) - 10**6) for one in s]
        exact = [mpmath.mpf(0.3) ** 2 * mpmath.exp(-one / mpmath.mpf(1e-3)) for one in inner]
        assert np.all(loss.least_curvature(s, np.zeros(len(s))) <= np.array(exact))


def test_the_declaration_has_the_value_of_the_loss_at_its_minimum():
    loss = saturating(0.6)
    assert float(loss.slope(np.array([0.5]))[0]) <= loss.largest_slope(0.5) <= 0.5
    assert (loss.largest_slope(np.inf), loss.largest_curvature(np.inf)) == (0.6, 1.0)
    s = np.array([-30.0, -1.0, 0.0, 1e-3, 0.5, 7.0])
    np.testing.assert_allclose(
        loss.declared(cp.Constant(s)).value, loss.value(s), rtol=1e-9, atol=1e-12
    )
    u = cp.Variable(len(s))
    problem = cp.Problem(cp.Minimize(cp.sum(loss.declared(u))), [u == s])
    assert problem.is_dcp(dpp=True)
    problem.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(float(np.sum(loss.value(s))), rel=1e-6)
    (slopes,) = loss.declared(u).grad.values()
    np.testing.assert_allclose(slopes.diagonal(), loss.slope(s), atol=1e-6)


def test_a_slope_has_to_be_a_size_and_an_operation_or_atom_is_a_known_one():
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(DeclarationError, match="full_slope"):
            saturating(wrong)
    for kind, name in ((LogWeight, "cap"), (LogWeight, "atom"), (atom, "cube")):
        with pytest.raises(DeclarationError, match="must be one of"):
            kind(name)


SETS: list[Any] = [WholeSpace(), L2Ball(1.3), L1Ball(0.8), Box(0.6)]
every_set = pytest.mark.parametrize("chosen", SETS, ids=lambda s: type(s).__name__)
vectors = st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=1, max_size=6).map(np.array)


@pytest.mark.one_row_in(2)
@every_set
@pytest.mark.parametrize("l1", [0.0, 0.7])
def test_prox_is_the_declared_minimizer_and_has_its_derivative(chosen, l1):
    rng, penalty, h = np.random.default_rng(0), Penalty(chosen, l1), 1e-7
    for scale in (0.1, 1.0, 3.0, 10.0):
        v, direction, x = scale * rng.normal(size=5), rng.normal(size=5), cp.Variable(5)
        objective = l1 * cp.norm(x, 1) + cp.sum_squares(x - v) / 0.8
        constraints = chosen.constraints(x, *chosen.bounds().values()).values()
        problem = cp.Problem(cp.Minimize(objective), list(constraints))
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
        np.testing.assert_allclose(penalty.prox(v, 0.4), x.value, atol=3e-5)
        slope = (penalty.prox(v + h * direction, 0.4) - penalty.prox(v - h * direction, 0.4)) / (
            2 * h
        )
        jacobian = penalty.jacobian(v, 0.4)
        np.testing.assert_allclose(jacobian @ direction, slope, atol=1e-6)
        np.testing.assert_allclose(jacobian, jacobian.T, atol=1e-15)
        eigenvalues = np.linalg.eigvalsh(jacobian)
        assert -1e-12 <= eigenvalues[0] <= eigenvalues[-1] <= 1 + 1e-12


@pytest.mark.one_row_in(2)
@every_set
@settings(max_examples=20)
@given(v=vectors, other=vectors)
def test_projection_is_feasible_idempotent_and_nearest(chosen, v, other):
    inside = chosen.project(v)
    again = chosen.project(inside)
    np.testing.assert_allclose(again, inside, atol=1e-15)
    assert np.linalg.norm(inside) <= chosen.norm_bound(len(v)) * (1 + 1e-15)
    # the variational inequality of a projection
    feasible = chosen.project(np.resize(other, len(v)))
    assert (v - inside) @ (feasible - inside) <= 1e-12


@every_set
def test_norm_bound_is_attained(chosen):
    far = 1e100 * (np.ones(4) if isinstance(chosen, Box) else np.eye(4)[2])
    assert np.linalg.norm(chosen.project(far)) == pytest.approx(
        min(chosen.norm_bound(4), 1e100), rel=1e-14
    )


def test_a_set_needs_a_positive_finite_size():
    for kind, size in product(
        (L1Ball, L2Ball, Box), (0.0, -1.0, math.nan, math.inf, "abc", None, True)
    ):
        with pytest.raises(DeclarationError, match="must be"):
            kind(size)


ANYTHING = hnp.arrays(
    np.float64, st.integers(2, 40), elements=st.floats(allow_nan=True, allow_infinity=True)
)


@settings(max_examples=80)
@given(ANYTHING)
def test_the_sum_is_exactly_n_for_any_vector(values) -> None:
    result, distance = weights_on_grid(values)
    assert np.all(result >= 0)
    assert sum(map(Fraction, result)) == len(values)
    assert np.all(result * 2.0**30 == np.rint(result * 2.0**30))
    if np.all(np.isfinite(values)):
        moved = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(result, values, strict=True))
        assert not distance < moved


@pytest.mark.parametrize("n", [2, 3, 400, 40_000])
def test_weights_that_sum_to_n_hardly_move_and_none_become_uniform(n) -> None:
    rng = np.random.default_rng(n)
    for concentration in (0.01, 1.0, 100.0):
        w = rng.dirichlet(np.full(n, concentration)) * n
        result, distance = weights_on_grid(w)
        assert np.sum(np.abs(result - w)) <= distance <= 2e-9 * n
        assert np.sum(result) == n
    for empty in (np.zeros(n), np.full(n, np.nan), np.full(n, -1.0)):
        result, distance = weights_on_grid(empty)
        assert np.array_equal(result, np.ones(n))
        assert not distance < n
