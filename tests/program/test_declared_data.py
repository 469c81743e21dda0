"""Data of a declaration: a name stands for one map into one set."""

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import Ball, scheme, second_stage
from dp2erm_cvx.program.rows import DeclaredRecords

DOMAIN = Domain(1.0, 1.0)


def first(x, a, y):
    """The first covariate."""
    return x[0]


def outcome(x, a, y):
    """The outcome with its sign turned."""
    return -y


def records():
    return DeclaredRecords(DOMAIN.space, 6, 3)


#: Two data of one name, that differ in what the second is.
DIFFERENT = {
    "another function": lambda own: (
        own.numbers("u", first, -1, 1),
        own.numbers("u", outcome, -1, 1),
    ),
    "a lambda of the same text": lambda own: [
        own.numbers("u", lambda x, a, y: x[0], -1, 1) for _ in (1, 2)
    ],
    "another interval": lambda own: (
        own.numbers("u", first, -1, 1),
        own.numbers("u", first, -1, 2),
    ),
    "another ball": lambda own: (own.rows("u", first, Ball(1.0)), own.rows("u", first, Ball(2.0))),
    "another width": lambda own: (
        own.rows("u", first, Ball(1.0), 1),
        own.rows("u", first, Ball(1.0), 2),
    ),
    "rows and numbers": lambda own: (
        own.rows("u", first, Ball(1.0), 1),
        own.numbers("u", first, -1, 1),
    ),
    "cells and numbers": lambda own: (own.cells("u", first, 2), own.numbers("u", first, 0, 1)),
    "more cells": lambda own: (own.cells("u", first, 2), own.cells("u", first, 3)),
    "another constant of arms": lambda own: (own.by_arm(1e-20), own.by_arm(2e-20)),
    "the library's rows": lambda own: (own.by_arm(), own.rows("by_arm", first, Ball(1.0))),
    "rows called as the library's": lambda own: (
        own.rows("by_arm", first, Ball(1.0)),
        own.by_arm(),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_two_maps_of_one_name_are_refused(name):
    with pytest.raises(
        DeclarationError, match=r"two data are called '(u|by_arm)'; choose another name"
    ):
        DIFFERENT[name](records())


def test_the_same_function_asked_for_twice_is_one_datum():
    own = records()
    assert own.numbers("u", first, -1, 1) is own.numbers("u", first, -1, 1)
    assert own.rows("z", outcome, Ball(1.0)) is own.rows("z", outcome, Ball(1.0))
    assert own.by_arm(0.5) is own.by_arm(0.5)
    assert own.own == ("u", "z")


def test_a_second_stage_with_two_maps_of_one_name_is_refused_where_it_stands():
    with pytest.raises(DeclarationError, match="two data are called 'u'"):

        @second_stage()
        def shifted(theta, records):
            """Two offsets of one name."""
            scores = records.x @ theta
            u = records.numbers("u", lambda x, a, y: x[0], -1, 1)
            v = records.numbers("u", lambda x, a, y: -y, -1, 1)
            loss = cp.sum(cp.logistic(scores - u)) + v @ scores
            return cp.Problem(cp.Minimize(loss), [cp.norm(theta) <= 2])


def test_weights_with_two_maps_of_one_name_are_refused_where_they_stand():
    with pytest.raises(DeclarationError, match="two data are called 'u'"):

        @scheme()
        def balanced(w, records):
            """Two imbalances of one name."""
            u = records.numbers("u", first, -1, 1)
            v = records.numbers("u", outcome, -1, 1)
            return cp.Problem(
                cp.Minimize(cp.sum_squares(w - 1) + cp.square(u @ w) + cp.square(v @ w))
            )


def test_one_function_under_two_names_is_two_data():
    own = records()
    u, v = own.numbers("u", first, -1, 1), own.numbers("v", first, -1, 1)
    assert u is not v
    public = DOMAIN.records(np.array([[0.5, 0.1, 0.2]]), np.array([1]), np.array([0.3]))
    np.testing.assert_array_equal(u.of(public), v.of(public))
