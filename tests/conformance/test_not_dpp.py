"""A program that is not DPP is told why, in words that do not depend on the records."""

from __future__ import annotations

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.conformance import CheckStatus
from dp2erm_cvx.conformance.solutions import agreement
from dp2erm_cvx.errors import ProgramError
from tests.conformance.own_file import changed, outcomes_of, program_of, reports_of


def test_why_a_program_is_not_dpp_is_the_same_for_all_records(tmp_path):
    """A private fit shows the message, after its budget was charged."""
    product = ("return cp.sum_squares(", 'return leaf("y") @ cp.square(weights) + cp.sum_squares(')
    cls = program_of(
        tmp_path / "mine.py",
        changed(
            "direct", product, ('{"Z": self.penalty * signed', '{"y": records.y, "Z": self.penalty * signed')
        ),
    )
    X, a, told = np.zeros((8, 2)), np.arange(8) % 2, set()
    for y in (np.ones(8), -np.ones(8)):
        with pytest.raises(ProgramError, match=r"leaf\('y', nonneg=True\)") as caught:
            PrivateTwoStageERM(Domain(1.0, 2.0), Budget(1.0), cls(), "arm_means").fit(X, a, y)
        told.add(str(caught.value))
    assert len(told) == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            [('leaf("Z").T @ weights', 'leaf("Z").T @ cp.multiply(leaf("ones"), weights)')],
            "multiplies the leaves 'Z', 'ones': multiply them in data()",
        ),
        (
            [
                ("return cp.sum_squares(", 'return leaf("price") * cp.sum_squares('),
                ('{"Z": self.penalty * signed', '{"price": 2.0, "Z": self.penalty * signed'),
            ],
            "ask for leaf('price', nonneg=True)",
        ),
        (
            [
                ("return cp.sum_squares(", 'return -leaf("price") * cp.sum_squares('),
                ('{"Z": self.penalty * signed', '{"price": 2.0, "Z": self.penalty * signed'),
            ],
            "is not convex for every value of the leaf 'price'",
        ),
        ([("return cp.sum_squares(weights - 1)", "return -cp.sum_squares(weights - 1)")], "is not convex"),
    ],
)
def test_a_program_that_is_not_dpp_is_told_why(changes, message, tmp_path):
    for report in reports_of(tmp_path / "mine.py", changed("direct", *changes)):
        (failure,) = report.failures
        assert "not DPP" in failure.detail
        assert message in failure.detail


def test_an_atom_that_is_not_read_is_told_what_is_possible(tmp_path):
    text = changed("direct", ("cp.sum_squares(weights - 1)", "cp.log_sum_exp(weights)"))
    for found in outcomes_of(agreement, program_of(tmp_path / "mine.py", text)):
        assert found.status is CheckStatus.FAILED
        assert "weights by entropy: a program of kind exponential" in found.detail
