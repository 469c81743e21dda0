"""Checks of programs: registered ones and templates pass, stated bounds that are wrong do not."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dp2erm_cvx.audit import Quantity, SearchPlan, audit_stability
from dp2erm_cvx.conformance import (
    TEMPLATES,
    CheckStatus,
    check_program,
    checks_of,
    parametrize,
    program_template,
    programs_of_file,
    run,
)
from dp2erm_cvx.conformance.checks import balance, other_settings, short_audit
from dp2erm_cvx.conformance.run import CheckOutcome, ConformanceReport, outcome_of
from dp2erm_cvx.conformance.subject import Subject, failed, noted, passed
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.problems.uniform import Uniform
from dp2erm_cvx.registry import programs

FEW, LEAST = SearchPlan(150), SearchPlan(60)


def program_of(path: Path, text: str) -> Any:
    path.write_text(text, encoding="utf-8")
    (cls,) = programs_of_file(path)
    return cls


def reports_of(path: Path, text: str) -> list[ConformanceReport]:
    """A whole run, without datasets of thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Subject", partial(Subject, larger=(101,)))
        return list(check_program(program_of(path, text), search=LEAST))


@pytest.mark.parametrize("name", programs())
def test_every_registered_program_passes_the_checks_of_its_kind(name):
    cls = programs()[name]
    assert all(str(getattr(cls, fact)).strip() for fact in ("name", "formula", "citation", "theorem"))
    program = cls(**cls.examples[-1])
    assert json.loads(json.dumps(program.settings())) == program.settings()
    for what, check in checks_of(cls).items():
        outcome = outcome_of(what, check, Subject(program, LEAST, larger=(101,)))
        assert outcome.status is not CheckStatus.FAILED, outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", programs())
def test_every_registered_program_conforms(name):
    for report in check_program(programs()[name]):
        assert report.passed, str(report)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates_conform_as_they_are(kind, tmp_path):
    for report in reports_of(tmp_path / "mine.py", program_template("mine", kind)):
        assert report.passed, str(report)
        assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
        assert report.program == "mine"
        assert report.kind == ("second stage" if kind == "loss" else kind)


@parametrize(programs()["uniform"], search=LEAST)
def test_checks_are_items_of_pytest(program, check):
    check(program)


#: A bound behind the template of weights, which are pulled to its cap.
STATED = '''

@mine.bound
def _(n, M, penalty, cap):
    """The gradient moves by 4 penalty M^2 at one record, by 4 penalty M^2 cap / sqrt(n) at the others."""
    moved = 4 * penalty * M * M * (1 + cap / n**0.5)
    return Bound.from_gradient(moved, w_max=cap)
'''


def stated(*changes: tuple[str, str]) -> str:
    text = program_template("mine", "direct").replace("import scheme", "import Bound, scheme")
    text = text.replace("penalty=1.0, cap=10.0", "penalty=3.0, cap=1.5") + STATED
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


#: By what is wrong: the words that are changed, and a check that says so.
WRONG = {
    "a largest weight that is exceeded": ((("w_max=cap", "w_max=1.01"),), "movement"),
    "a cap that holds at the default only": ((("w_max=cap", "w_max=1.5"),), "other settings"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_bound_is_refuted(case, tmp_path):
    changes, expected = WRONG[case]
    (report,) = reports_of(tmp_path / "mine.py", stated(*changes))
    assert expected in [failure.check for failure in report.failures], report


def test_a_right_bound_passes(tmp_path):
    (report,) = reports_of(tmp_path / "mine.py", stated())
    assert report.passed, str(report)


def test_an_item_fails_where_its_check_does(tmp_path):
    wrong = program_of(tmp_path / "mine.py", stated(("w_max=cap", "w_max=1.01")))
    items = {item.id: item for item in parametrize(wrong, search=LEAST).args[1]}
    program, check = items["mine-movement"].values
    with pytest.raises(AssertionError, match="movement: n = "):
        check(program)
    program, check = items["mine-kind"].values
    check(program)


def test_weights_of_the_wrong_sign_are_noted(tmp_path):
    for new, status in (
        ("cp.maximum(-s, 0)", CheckStatus.PASSED),
        ("cp.maximum(s, 0)", CheckStatus.NOTED),
    ):
        text = program_template("mine", "exponential").replace("cp.maximum(-s, 0)", new)
        cls = program_of(tmp_path / "mine.py", text)
        assert outcome_of("", balance, Subject(cls(), FEW)).status is status


def outcome(name, judge):
    return CheckOutcome(name, *judge(""))


@pytest.mark.parametrize(
    ("outcomes", "conclusion"),
    [
        ((outcome("a", passed),), "all checks passed"),
        ((outcome("a", passed), outcome("b", noted)), "no check failed; 1 note to read: b"),
        ((outcome("a", noted), outcome("b", noted)), "no check failed; 2 notes to read: a, b"),
        ((outcome("a", noted), outcome("b", failed)), "1 failed"),
    ],
)
def test_a_note_is_no_pass(outcomes, conclusion):
    report = ConformanceReport("mine", {}, "direct", "", outcomes)
    assert report.conclusion == report.to_dict()["conclusion"] == conclusion


def test_numbers_are_halved_and_doubled_and_an_infinite_one_replaced():
    found = outcome_of("", other_settings, Subject(overlap(ridge=2.0), LEAST))
    assert (found.status, found.detail) == (
        CheckStatus.PASSED,
        "ridge = 1, 4; radius = 1.5: nothing found",
    )
    found = outcome_of("", other_settings, Subject(Uniform(), LEAST))
    assert (found.status, found.detail) == (CheckStatus.PASSED, "no other values were tried")


def test_an_audit_reports_v_and_not_the_largest_weight(monkeypatch):
    worst = []

    def audited(*arguments, **settings):
        worst.append(audit_stability(*arguments, **settings))
        return worst[-1]

    monkeypatch.setattr("dp2erm_cvx.conformance.checks.audit_stability", audited)
    found = outcome_of("", short_audit, Subject(ipw_logistic(), FEW)).detail
    shares = {one.claim.quantity: one.ratio for one in worst[0].verdicts}
    assert shares[Quantity.LARGEST] > 1.1 * shares[Quantity.V]
    assert f": V at most {shares[Quantity.V]:.0%} of its bound " in found
