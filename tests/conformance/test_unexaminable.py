"""Classes that no check can begin with, and what else is wrong with a class is told all the same."""

from __future__ import annotations

import pytest

from dp2erm_cvx.errors import ProgramError
from tests.conformance.own_file import changed, reports_of


@pytest.mark.parametrize("examples", ["()", '{"penalty": 0.1}', "3"])
def test_examples_that_are_none_are_refused(examples, tmp_path):
    text = changed("direct", ('({}, {"penalty": 0.1})', examples))
    with pytest.raises(ProgramError, match="examples must be"):
        reports_of(tmp_path / "mine.py", text)


def test_a_class_that_is_no_dataclass_is_reported(tmp_path):
    for report in reports_of(tmp_path / "mine.py", changed("direct", ("@dataclass(frozen=True)\n", ""))):
        assert [failure.check for failure in report.failures] == ["settings"]


def test_settings_that_the_program_refuses_are_reported(tmp_path):
    text = changed("exponential", ('({}, {"ridge": 0.05, "radius": 0.5})', '({"ridge": -1.0},)'))
    (report,) = reports_of(tmp_path / "mine.py", text)
    assert "ridge" in report.failures[0].detail


def test_a_kind_that_is_none_is_reported(tmp_path):
    text = changed("direct", ('    name = "mine"', '    kind = "fixed"\n    name = "mine"'))
    for report in reports_of(tmp_path / "mine.py", text):
        assert "must be one of Kind.CLOSED_FORM" in report.failures[0].detail


def test_a_class_without_a_file_of_its_own_is_examined_to_the_end(tmp_path):
    """In a notebook there is no docstring of a module; what else is wrong has to show all the same."""
    declared = 'cp.norm1(leaf("Z").T @ weights)'
    unread = 'cp.norm(cp.abs(leaf("Z").T @ weights))'
    text = changed("direct", ("minimize ", "find "), (declared, unread), ("return 2.0", "return 4.0"))
    for report in reports_of(tmp_path / "mine.py", text):
        assert [failure.check for failure in report.failures] == ["statement", "strong convexity"]
