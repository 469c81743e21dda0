"""What a loss says at once of margins: its derivatives, and bounds on their errors, at 40 digits."""

from __future__ import annotations

import contextlib

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.atoms import atom
from dp2erm_cvx.program.curves import LOGISTIC, Curve, Part
from dp2erm_cvx.program.form import _refuse_misread
from dp2erm_cvx.program.log_weights import LogWeight

SLOPE = 0.7


def logistic(s):
    return -1 / (1 + mpmath.exp(s)), 1 / ((1 + mpmath.exp(s)) * (1 + mpmath.exp(-s)))


def extremal(s):
    return -mpmath.sign(s) * SLOPE * mpmath.expm1(-abs(s) / SLOPE), mpmath.exp(-abs(s) / SLOPE)


@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-3])
@pytest.mark.parametrize(
    ("loss", "exact"),
    [(LOGISTIC, logistic), (Curve((Part(1.0, atom("saturating", SLOPE)),)), extremal)],
)
def test_errors_are_covered(loss, exact, error):
    rng = np.random.default_rng(0)
    s = rng.normal(size=60) * 10 ** rng.uniform(-9, 2.5, 60)
    s = np.concatenate([s, [0.0, 1e-300, 36.0, -36.0, 700.0, -700.0]])
    found = loss.at(s, np.full(len(s), error))
    assert np.allclose(found.value, loss.value(s), rtol=1e-13, atol=1e-13)
    with mpmath.workdps(40):
        for k, margin in enumerate(s):
            for moved in (-0.999, 0.0, 0.999):
                slope, curvature = exact(mpmath.mpf(margin) + moved * mpmath.mpf(error))
                assert abs(slope - found.slope[k]) <= found.slope_error[k] + 1e-310
                assert abs(curvature - found.curvature[k]) <= found.curvature_error[k]


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
    refusal = pytest.raises(DeclarationError, match="other values") if refused else contextlib.nullcontext()
    with refusal:
        _refuse_misread(cp.logistic(s), s, lambda x: (read(x), None), shifted=shifted)


SLOPES = (1e-3, 40.0)


def saturating(S):
    return Curve((Part(1.0, atom("saturating", S)),))


def margins(S):
    sizes = np.concatenate([[0.0], np.geomspace(1e-12, 1e6, 50), np.linspace(0.1, 40, 40)])
    return S * np.concatenate([sizes, -sizes])


def exact(S, s):
    """(value, slope, curvature) in mpmath."""
    S, s = mpmath.mpf(S), mpmath.mpf(s)
    t = abs(s) / S
    return S**2 * (t + mpmath.expm1(-t)), -S * mpmath.sign(s) * mpmath.expm1(-t), mpmath.exp(-t)


@pytest.mark.parametrize("S", SLOPES)
def test_values_and_errors(S):
    loss = saturating(S)
    s = margins(S)
    with mpmath.workdps(40):
        value, slope, curvature = (np.array([exact(S, one)[k] for one in s]) for k in range(3))
        np.testing.assert_allclose(loss.value(s), value.astype(float), rtol=1e-12, atol=1e-15 * S**2)
        for relative in (0.0, 1e-15, 1e-9, 1e-3, 1.0, 50.0):
            error = relative * S * np.ones(len(s))
            for sign in (1.0, -1.0) if relative else (1.0,):
                # where the loss is, and where it is taken to be
                off = [mpmath.mpf(one) + sign * mpmath.mpf(error[0]) for one in s]
                moved = np.array([exact(S, one) for one in off])
                assert np.all(np.abs(moved[:, 1] - loss.slope(s)) <= loss.at(s, error).slope_error)
                assert np.all(np.abs(moved[:, 2] - loss.curvature(s)) <= loss.at(s, error).curvature_error)
                assert np.all(loss.least_curvature(s, error) <= moved[:, 2])
        rounded = np.abs(slope - loss.slope(s)).astype(float)
        assert np.all(rounded <= loss.rounding_units(np.inf) * 2.0**-53)
        assert np.all(np.abs(curvature - loss.curvature(s)) <= 1e-12 * curvature + 1e-300)


def test_bounds_over_a_reach():
    loss = saturating(2.0)
    assert loss.largest_slope(np.inf) == 2.0
    assert float(loss.slope(np.array([0.5]))[0]) <= loss.largest_slope(0.5) <= 0.5
    assert loss.largest_curvature(np.inf) == 1.0


def test_the_declaration_has_the_value_of_the_loss_at_its_minimum():
    loss = saturating(0.6)
    s = np.array([-30.0, -1.0, 0.0, 1e-3, 0.5, 7.0])
    np.testing.assert_allclose(loss.declared(cp.Constant(s)).value, loss.value(s), rtol=1e-9, atol=1e-12)
    u = cp.Variable(len(s))
    problem = cp.Problem(cp.Minimize(cp.sum(loss.declared(u))), [u == s])
    assert problem.is_dcp(dpp=True)
    problem.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(float(np.sum(loss.value(s))), rel=1e-6)
    (slopes,) = loss.declared(u).grad.values()
    np.testing.assert_allclose(slopes.diagonal(), loss.slope(s), atol=1e-6)


def test_a_slope_has_to_be_a_size():
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(DeclarationError, match="full_slope"):
            saturating(wrong)


@pytest.mark.parametrize("wrong", [lambda: LogWeight("cap"), lambda: LogWeight("atom"), lambda: atom("cube")])
def test_an_unknown_operation_or_atom_is_refused(wrong):
    with pytest.raises(DeclarationError, match="must be one of"):
        wrong()
