"""What the author of a declaration that is not read is told: the expression and the remedy, in one
line.
"""

import copy

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import Ball, scheme, second_stage

DOMAIN = Domain(1.0, 1.0)


def squares(w):
    return cp.sum_squares(w - 1)


def of_weights(make):
    """What declares ``make(w, records)``."""
    return lambda: scheme()(make)


def of_theta(make):
    """What declares ``make(theta, records)`` as a second stage on a ball."""
    return lambda: second_stage()(make)


def minimized(objective):
    """A declaration that minimizes ``objective(variable, records)``."""
    return lambda variable, records: cp.Problem(cp.Minimize(objective(variable, records)))


ALONE = cp.Problem(cp.Minimize(cp.sum_squares(cp.Variable(3, name="own"))))
#: Declarations, and what their message says.
REFUSED = {
    "an expression": (
        of_weights(lambda w, records: squares(w)),
        r"returns the expression sum_squares\(w - 1\): return cp.Problem\(cp.Minimize\(sum_squares",
    ),
    "an objective": (
        of_weights(lambda w, records: cp.Minimize(squares(w))),
        r"returns the objective sum_squares\(w - 1\)",
    ),
    "nothing": (of_weights(lambda w, records: None), r"returns nothing: return cp.Problem"),
    "a pair": (
        of_weights(lambda w, records: (squares(w), [])),
        r"returns an object of the class tuple",
    ),
    "a loss alone": (
        lambda: scheme.separable(ridge=1.0)(lambda s: cp.logistic(-s)),
        r"returns the expression logistic\(-s\) alone: return \(loss, log weight\)",
    ),
    "an expression of theta": (
        of_theta(lambda theta, records: cp.sum(cp.logistic(records.x @ theta))),
        r"returns the expression sum\(logistic\(x @ theta\)\): return cp.Problem",
    ),
    "a problem": (
        lambda: scheme(ALONE),
        r"sum_squares\(own\): a single problem .* function of \(w, records",
    ),
    "a problem of theta": (
        lambda: second_stage(ALONE),
        r"or of \(theta, records\) for a second stage",
    ),
    "probit": (
        lambda: scheme.separable(ridge=1.0)(lambda s: (-cp.log_normcdf(s), -cp.log_normcdf(s))),
        r"cp.log_normcdf of s: .* write probit\(-s\)",
    ),
    "a maximum": (
        of_theta(
            lambda theta, records: cp.Problem(cp.Maximize(-cp.sum(cp.logistic(records.x @ theta))))
        ),
        r"maximizes -sum\(logistic\(x @ theta\)\): write cp.Minimize of its negative",
    ),
    "the square of a maximum above 0": (
        of_theta(
            minimized(
                lambda theta, records: cp.sum(
                    cp.square(cp.maximum(records.signed @ theta, 0.0, 0.5))
                )
            )
        ),
        r"square\(maximum\(.*, 0, 0.5\)\): has a kink, .* write square\(pos\(.\)\) of one margin",
    ),
    "a copy of data": (
        of_theta(
            minimized(
                lambda theta, records: cp.sum(
                    cp.logistic(records.x @ theta + copy.deepcopy(records.x) @ theta)
                )
            )
        ),
        r"parameter x has no public set: take it from records",
    ),
    "two margins": (
        of_theta(
            minimized(
                lambda theta, records: (
                    cp.sum(cp.logistic(records.x @ theta))
                    + cp.sum_squares(records.signed @ theta - records.y)
                )
            )
        ),
        r"2 are written, of the rows x and signed",
    ),
    "no margin": (
        of_theta(minimized(lambda theta, records: cp.sum_squares(theta))),
        r"none is written: add a sum over records",
    ),
    "another variable": (
        of_theta(
            minimized(
                lambda theta, records: (
                    cp.sum(cp.logistic(records.x @ theta)) + cp.Variable(name="slack")
                )
            )
        ),
        r"variable slack: is not theta: write the problem in theta alone",
    ),
    "a sum without records": (
        of_theta(minimized(lambda theta, records: cp.max(records.x @ theta))),
        r"no sum over records, .* write cp.sum of a curve of rows @ theta",
    ),
    "a kink": (
        of_theta(minimized(lambda theta, records: cp.sum(cp.abs(records.y - records.x @ theta)))),
        r"An absolute value has a kink: write huber",
    ),
    "a product of data": (
        of_weights(
            minimized(
                lambda w, records: (
                    squares(w) + cp.sum_squares(records.x.T @ cp.multiply(records.treatment, w))
                )
            )
        ),
        r"transpose\(x\) @ \(treatment \* w\): a product of data, which is not DPP: .* "
        r"records.by_arm",
    ),
    "a Gram matrix": (
        of_weights(
            minimized(lambda w, records: cp.quad_form(w, records.x @ records.x.T) + squares(w))
        ),
        r"write sum_squares\(Z.T @ w\)",
    ),
    "too few arguments": (of_weights(lambda w: None), r"its arguments are \(w, records\)"),
    "a division": (of_weights(lambda w, records: 1 / 0), r"ZeroDivisionError: division by zero$"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_message_has_the_expression_and_the_remedy_in_one_line(name):
    declared, told = REFUSED[name]
    with pytest.raises(DeclarationError, match=told) as caught:
        declared()
    assert "\n" not in str(caught.value)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("curve", [cp.logistic, cp.exp, lambda r: cp.huber(r, 0.1)])
def test_a_loss_that_falls_without_end_is_planned_on_a_ball(curve):
    """Its least value is that of the margins that the ball admits: an infinite one set no starting
    point.
    """

    @second_stage(radius="1 / M")
    def falling(theta, records, radius):
        residual = records.y - records.x @ theta
        loss = cp.sum(curve(residual) + 0.3 * residual)
        return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= radius])

    plan = PrivateTwoStageERM(DOMAIN, Budget(2.0), "uniform", falling()).plan(1000, 5)
    assert 0.0 < plan.main.calibration.scale < 10.0


def test_a_map_of_another_length_is_told_to_declare_its_width():
    @scheme()
    def outer(w, records):
        rows = records.rows("outer", lambda x, a, y: np.outer(x, x).ravel(), Ball(1.0))
        return cp.Problem(cp.Minimize(squares(w) + cp.sum_squares(rows.T @ w)))

    with pytest.raises(
        DeclarationError, match=r"'outer' returns 25 numbers .*: return 5, or declare width=25"
    ):
        outer().stability(Universe(DOMAIN, 60, 5))
