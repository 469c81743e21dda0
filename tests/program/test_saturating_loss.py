"""The saturating loss against 40-digit arithmetic, and its declaration."""

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.atoms import atom
from dp2erm_cvx.program.curves import Curve, Part

SLOPES = (1e-3, 0.7, 1.0, 40.0)


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
