"""Files of programs: what is none, what is not DPP, and what a release by one is covered by."""

from __future__ import annotations

import re

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, stability
from dp2erm_cvx.conformance import CheckStatus, load_program, program_template, programs_of_file
from dp2erm_cvx.conformance.solutions import agreement, certified_in_advance
from dp2erm_cvx.conformance.statement import kind
from dp2erm_cvx.conformance.subject import check_domain
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import CalibrationError, DeclarationError, ProgramError
from dp2erm_cvx.model.sets import L2Ball, UserRegularizer
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.registry import programs
from dp2erm_cvx.universe import Universe
from tests.conformance.class_style import direct
from tests.conformance.planted import BEFORE, changed, outcomes_of, program_of, reports_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "holds no program"),
        ("def broken(:\n", "line 1: SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "line 2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        (
            "from dp2erm_cvx.program import FirstStage\n\n\nclass Half(FirstStage):\n    pass\n",
            "does not state data, declare, model",
        ),
    ],
)
def test_files_without_a_program_say_why(text, message, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProgramError, match=re.escape(message)):
        programs_of_file(path)


def test_a_file_that_is_edited_is_read_again(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(direct("mine"), encoding="utf-8")
    (first,) = programs_of_file(path)
    path.write_text(direct("yours"), encoding="utf-8")
    (second,) = programs_of_file(path)
    assert (first.name, second.name) == ("mine", "yours")


def test_unknown_names_and_kinds_are_refused(tmp_path):
    with pytest.raises(ProgramError, match="no file"):
        programs_of_file(tmp_path / "none.py")
    with pytest.raises(ProgramError, match="neither"):
        load_program("nobody")
    for name in ("3x", "Mine", "class", "a-b", "", "cp", "scheme"):
        with pytest.raises(DeclarationError, match="name"):
            program_template(name, "direct")
    with pytest.raises(DeclarationError, match="array"):
        program_template("array", "quadratic")
    with pytest.raises(DeclarationError, match="kind"):
        program_template("mine", "linear")


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


def test_a_program_that_changes_another_needs_a_name_of_its_own():
    class Claims(programs()["overlap"]):
        def stability(self, universe, family=None):
            return stability.uniform_weights(universe.n_samples)

    with pytest.raises(DeclarationError, match="name of its own"):
        PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), Claims(), "itr").plan(100, 2)


def test_a_program_of_no_kind_cannot_state_its_own_stability(tmp_path):
    direct = program_of(tmp_path / "mine.py", changed("direct"))

    class Claims(direct):
        def stability(self, universe, family=None):
            return stability.uniform_weights(universe.n_samples)

    with pytest.raises(CalibrationError, match="declare the kind"):
        PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), Claims(), "itr").plan(100, 2)


def test_a_program_without_a_kind_is_covered_by_the_universal_corollary(tmp_path):
    cls = program_of(tmp_path / "mine.py", changed("direct"))
    assert issubclass(cls, FirstStage)
    assert cls().stability(Universe(check_domain(50), 50, 2)).V == 100
    assert {found.status for found in outcomes_of(kind, cls)} == {CheckStatus.NOTED}


def test_a_release_is_conditional_where_the_error_of_the_weights_has_no_public_bound(tmp_path):
    """A certificate that is found on one dataset says nothing about the next."""
    data = simulate("linear", 100, rng=0).dataset
    unknown = (BEFORE, "    def certified_error(self, universe):\n        return None\n\n" + BEFORE)
    for pairs, private in (((), True), ((unknown,), False)):
        cls = program_of(tmp_path / "mine.py", changed("exponential", *pairs))
        model = PrivateTwoStageERM(Domain(1.0, 2.0), Budget(epsilon=2.0), cls(), "arm_means")
        release = model.fit(data.X, data.a, data.y).release_
        assert release.private is private
        assert any("is not known to" in one for one in release.guarantee.assumptions) is not private


def test_weights_without_a_theorem_need_no_certificate_and_carry_the_noise_of_all_weights(tmp_path):
    """V = 2n covers whatever the solver returns; a second stage judged by its gap is not covered by it."""
    data = simulate("linear", 60, rng=0).dataset
    cls = program_of(tmp_path / "mine.py", changed("direct"))
    for found in outcomes_of(certified_in_advance, cls):
        assert (found.status, "covers all weights" in found.detail) == (CheckStatus.PASSED, True)
    domain, own = Domain(1.0, 2.0), UserRegularizer(lambda theta: cp.norm(theta, 1))
    for second, private in (("arm_means", True), (itr(L2Ball(1.0), own), False)):
        model = PrivateTwoStageERM(domain, Budget(epsilon=2.0), cls(), second)
        release = model.fit(data.X, data.a, data.y).release_
        assert model.private_workings_.weights.certificate.basis == "multiplier residual"
        assert release.mechanism.stability == 2 * 60
        assert release.private is private
