"""What a loss says at once of margins: its derivatives, and bounds on their errors, at 40 digits."""

import contextlib

import cvxpy as cp
import mpmath
import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.program.curves import LOGISTIC, Curve, LogWeight, Part
from dp2erm_cvx.program.declaration import refuse_misread


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
        refuse_misread(cp.logistic(s), s, lambda x: (read(x), None), (-1.0, 0.5), shifted=shifted)


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
def test_values_and_errors(loss, exact, S):
    sizes = np.concatenate([[0.0, 1e-300], np.geomspace(1e-12, 1e5, 50), np.linspace(0.1, 40, 40)])
    s = S * np.concatenate([sizes, -sizes])
    with mpmath.workdps(40):
        value, slope, curvature = np.array([exact(mpmath.mpf(one)) for one in s]).T
        np.testing.assert_allclose(loss.value(s), value.astype(float), rtol=1e-12, atol=1e-15 * S**2)
        for relative in (0.0, 1e-15, 1e-9, 1e-3, 1.0, 50.0):
            result = loss.at(s, relative * S * np.ones(len(s)))
            np.testing.assert_allclose(result.value, loss.value(s), rtol=1e-13, atol=1e-13)
            for sign in (1.0, -1.0) if relative else (1.0,):
                # where the loss is, and where it is taken to be
                moved = np.array([exact(mpmath.mpf(one) + sign * mpmath.mpf(relative * S)) for one in s])
                for slopes, curvatures in (
                    (loss.slope(s), loss.curvature(s)),
                    (result.slope, result.curvature),
                ):
                    assert np.all(np.abs(moved[:, 1] - slopes) <= result.slope_error + 1e-310)
                    assert np.all(np.abs(moved[:, 2] - curvatures) <= result.curvature_error + 1e-310)
                assert np.all(loss.least_curvature(s, relative * S * np.ones(len(s))) <= moved[:, 2])
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
    np.testing.assert_allclose(loss.declared(cp.Constant(s)).value, loss.value(s), rtol=1e-9, atol=1e-12)
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
