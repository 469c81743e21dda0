"""Planes below functions with kinks, against the functions themselves at 50 digits."""

import cvxpy as cp
import mpmath as mp
import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model import supports
from dp2erm_cvx.model.supports import SupportedFunction, refuse_other_values
from tests import exact

A = np.array([[1.0, -0.3, 0.1], [0.2, 0.7, -1.1], [-0.4, 0.3, 0.9], [1e3, -1e3, 1.0]])


def at(theta):
    return A @ theta + np.array([0.1, -0.2, 0.0, 1e3])


def two(x):
    return mp.sqrt(mp.fsum(one * one for one in x))


def huber(x, bound):
    return x * x if mp.fabs(x) <= bound else bound * (2 * mp.fabs(x) - bound)


def rows(x):
    shift = exact.to_mp([0.1, -0.2, 0.0, 1e3])
    return [
        mp.fdot(zip(row, x, strict=True)) + b for row, b in zip(exact.to_mp(A), shift, strict=True)
    ]


#: A CVXPY expression, and the same function in exact arithmetic.
FUNCTIONS = {
    "norm 1": (lambda t: cp.norm(at(t), 1), lambda x: mp.fsum(map(mp.fabs, rows(x)))),
    "norm 2": (lambda t: 3 * cp.norm(at(t), 2), lambda x: 3 * two(rows(x))),
    "norm inf": (lambda t: cp.norm(at(t), "inf"), lambda x: max(map(mp.fabs, rows(x)))),
    "max": (lambda t: cp.max(at(t)), lambda x: max(rows(x))),
    "maximum": (
        lambda t: cp.sum(cp.maximum(at(t), 2 * at(t), -0.5)),
        lambda x: mp.fsum(max(r, 2 * r, mp.mpf(-0.5)) for r in rows(x)),
    ),
    "squares": (lambda t: cp.sum_squares(at(t)) / 4, lambda x: mp.fsum(r * r for r in rows(x)) / 4),
    "huber": (
        lambda t: cp.sum(cp.huber(at(t), 0.5)),
        lambda x: mp.fsum(huber(r, mp.mpf(0.5)) for r in rows(x)),
    ),
    "norm of pos": (
        lambda t: cp.norm(cp.pos(at(t))),
        lambda x: two([max(r, mp.mpf(0)) for r in rows(x)]),
    ),
    "square of norm": (lambda t: cp.square(cp.norm(at(t))), lambda x: two(rows(x)) ** 2),
    "norms along rows": (
        lambda t: cp.mixed_norm(cp.reshape(at(t), (2, 2), order="F"), 2, 1),
        lambda x: two(rows(x)[::2]) + two(rows(x)[1::2]),
    ),
    "norm of decreasing": (
        lambda t: cp.norm(-cp.abs(at(t)) - 1.0),
        lambda x: two([mp.fabs(r) + 1 for r in rows(x)]),
    ),
}


def excesses(name, seed=0, count=30):
    """How far planes exceed their function somewhere, and how far they miss what they say at their
    point.
    """
    expression, function = FUNCTIONS[name]
    theta = cp.Variable(3)
    loaded = SupportedFunction(expression(theta), theta, {}).at({}, 2.0)
    rng = np.random.default_rng(seed)
    for _ in range(count):
        size = 10.0 ** rng.uniform(-6, 4)
        x = size * rng.normal(size=3)
        if rng.random() < 0.3:
            x = np.linalg.lstsq(A, -np.array([0.1, -0.2, 0.0, 1e3]), rcond=None)[
                0
            ]  # where kinks are
        slopes = [
            None if not term.kink else term.unit_slope(rng.normal(size=len(term.group)))
            for term in loaded.terms
        ]
        if rng.random() < 0.5:
            slopes = loaded.slopes_at(x)
        plane = loaded.plane(x, np.zeros(3), slopes, np.ones(1))
        value = 2 * function(exact.to_mp(x))
        for _ in range(5):
            other = x + size * 10.0 ** rng.uniform(-8, 2) * rng.normal(size=3)
            move = [a - b for a, b in zip(exact.to_mp(other), exact.to_mp(x), strict=True)]
            slack = mp.fdot(zip(exact.to_mp(plane.error), map(mp.fabs, move), strict=True))
            below = (
                value
                - mp.mpf(plane.left_out)
                + mp.fdot(zip(exact.to_mp(plane.slope), move, strict=True))
            )
            yield below - slack - 2 * function(exact.to_mp(other))
        computed, error = loaded.values(x, np.zeros(3))
        yield mp.fabs(mp.mpf(float(computed[0])) - value) - mp.mpf(float(error[0]))


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_plane_is_above_its_function_anywhere(name):
    assert max(excesses(name)) <= 0


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rounding_that_is_not_counted_is_found_out(name, monkeypatch):
    monkeypatch.setattr(supports, "gamma", lambda k: 0.0)
    monkeypatch.setattr(supports, "UNIT", 0.0)
    assert max(excesses(name)) > 0


@pytest.mark.parametrize("name", ["norm 2", "norm inf", "maximum", "norm of pos"])
def test_slopes_out_of_their_set_are_found_out(name, monkeypatch):
    monkeypatch.setattr(supports.LoadedTerm, "unit_slope", lambda self, v: 2.0 * v)
    assert max(excesses(name)) > 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_leave_out_no_more_than_rounding(name):
    expression, _ = FUNCTIONS[name]
    theta = cp.Variable(3)
    loaded = SupportedFunction(expression(theta), theta, {}).at({})
    x = np.array([0.3, -0.8, 0.5])
    plane = loaded.plane(x, np.zeros(3), loaded.slopes_at(x), np.ones(1))
    value = loaded.values(x, np.zeros(3))[0][0]
    assert plane.left_out <= 1e-9 * max(1.0, abs(value))
    step = 1e-6 * np.array([1.0, -2.0, 0.5])
    moved = loaded.values(x + step, np.zeros(3))[0][0] - value
    assert moved == pytest.approx(plane.slope @ step, rel=1e-3)


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        (cp.log_sum_exp, "log_sum_exp"),
        (lambda t: cp.sum(cp.power(t, 4)), "power"),
        (lambda t: cp.sum_largest(t, 2), "sum_largest"),
        (lambda t: cp.quad_form(t, np.eye(3)), "QuadForm"),
        (lambda t: cp.pnorm(t, 3), "Pnorm"),
    ],
)
def test_what_is_not_read_is_named(expression, named):
    theta = cp.Variable(3)
    with pytest.raises(ProgramError, match=f"does not read the atom {named}: state it by"):
        SupportedFunction(expression(theta), theta, {})


def test_a_function_that_was_read_as_another_is_refused():
    theta = cp.Variable(3)
    loaded = SupportedFunction(cp.norm(theta), theta, {}).at({})
    refuse_other_values(loaded, cp.norm(theta), theta, [np.ones(3)])
    with pytest.raises(DeclarationError, match="please report it"):
        refuse_other_values(loaded, cp.norm(theta, 1), theta, [np.ones(3)])


def test_data_are_loaded_by_name():
    theta, rows, factor = cp.Variable(2), cp.Parameter((3, 2)), cp.Parameter(nonneg=True)
    expression = factor * cp.norm(rows @ theta)
    function = SupportedFunction(expression, theta, {"rows": rows, "factor": factor})
    rng = np.random.default_rng(0)
    for _ in range(3):
        matrix, x = rng.normal(size=(3, 2)), rng.normal(size=2)
        value = function.at({"rows": matrix, "factor": 2.5}).values(x, np.zeros(2))[0][0]
        assert value == pytest.approx(2.5 * np.linalg.norm(matrix @ x), rel=1e-14)
