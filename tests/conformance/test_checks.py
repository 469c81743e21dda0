"""Checks of programs: registered ones and templates pass, stated bounds that are wrong do not."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dp2erm_cvx.audit import Quantity, SearchPlan, audit_stability, weighing
from dp2erm_cvx.conformance import (
    TEMPLATES,
    CheckStatus,
    check_program,
    checks,
    checks_of,
    parametrize,
    program_template,
    run,
)
from dp2erm_cvx.conformance.checks import Subject, balance, other_settings, short_audit
from dp2erm_cvx.conformance.run import CheckOutcome, ConformanceReport, outcome_of
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.paper_entropy_balancing import PaperEntropyBalancing
from dp2erm_cvx.program.files import programs_of_file
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import solve

FEW, LEAST = SearchPlan(150), SearchPlan(60)


def program_of(path: Path, text: str) -> Any:
    path.write_text(text, encoding="utf-8")
    (cls,) = programs_of_file(path)
    return cls


def reports_of(path: Path, text: str) -> list[ConformanceReport]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Subject", partial(Subject, larger=(101,)))
        return list(check_program(program_of(path, text), search=LEAST))


@pytest.mark.parametrize("name", programs())
def test_every_registered_program_passes_the_checks_of_its_kind(name):
    cls = programs()[name]
    assert all(str(getattr(cls, fact)).strip() for fact in ("name", "formula", "citation", "theorem"))
    program = cls(**cls.examples[-1])
    for what, check in checks_of(cls).items():
        outcome = outcome_of(what, check, Subject(program, LEAST, larger=(101,)))
        assert outcome.status is not CheckStatus.FAILED, outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", programs())
def test_every_registered_program_conforms(name):
    for report in check_program(programs()[name]):
        assert report.passed, str(report)


@parametrize(programs()["uniform"], search=LEAST)
def test_checks_are_items_of_pytest(program, check):
    assert check(program) is None  # it raises where the check fails


@pytest.mark.parametrize("name", ["overlap", "overlap_private", "itr", *TEMPLATES])
def test_nothing_is_searched_for_where_all_is_derived(name, tmp_path, monkeypatch):
    """No audit, no neighbors, and no solve but the one that balance is told from."""
    monkeypatch.setattr(run, "Subject", partial(Subject, larger=(101,)))
    cls, solves = programs().get(name), []
    if cls is None:
        cls = program_of(tmp_path / "mine.py", program_template("mine", name))
    for searched in ("audit_stability", "next_pair"):
        monkeypatch.setattr(checks, searched, None)  # a call fails its check
    monkeypatch.setattr(checks, "solve", lambda *told, **more: solves.append(told) or solve(*told, **more))
    report = next(check_program(cls))
    assert report.passed, str(report)
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
    others = {"itr": "second stage", "loss": "second stage", "overlap_private": "private"}
    others |= {"direct": "weights as the variable", "quadratic": "weights as the variable"}
    assert report.kind == others.get(name, "exponential" if name == "overlap" else name)
    assert len(solves) <= 1
    said = {one.check: one.detail for one in report.outcomes}
    for check in said.keys() & {"declaration", "movement", "audit", "feasibility", "other settings"}:
        assert said[check].startswith("derived: nothing to check")
    item = next(one for one in parametrize(cls).args[1] if one.id.endswith("declaration"))
    with pytest.raises(pytest.skip.Exception, match="derived: nothing to check"):
        item.values[1](item.values[0])


#: A bound behind the template of weights, which are pulled to its cap.
STATED = '''

@mine.bound
def _(n, M, ridge, cap):
    """The gradient moves by 2 M^2 / ridge at one record, by 2 M^2 cap / (ridge sqrt(n)) at the others."""
    moved = 2 / ridge * M * M * (1 + cap / n**0.5)
    return Bound.from_gradient(moved, w_max=cap)
'''


def stated(*changes: tuple[str, str]) -> str:
    text = program_template("mine", "direct") + STATED
    changed = (
        ("import scheme", "import Bound, scheme"),
        ("ridge=0.5, cap=10.0", "ridge=0.3, cap=1.5"),
        # a dispersion that the form does not know, so that nothing is derived
        ("cp.sum_squares(w - 1) / 2", "cp.sum_squares(w - 1) / 2 + 1e-6 * cp.norm(w - 1)"),
    )
    for old, new in (*changed, *changes):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("largest", "refuted"),
    [
        pytest.param("cap", None, id="right", marks=pytest.mark.slow),
        pytest.param("1.01", "movement", id="exceeded"),
        pytest.param("1.5", "other settings", id="that of the default only", marks=pytest.mark.slow),
    ],
)
def test_a_wrong_bound_is_refuted(largest, refuted, tmp_path):
    (report,) = reports_of(tmp_path / "mine.py", stated(("w_max=cap", f"w_max={largest}")))
    assert report.passed is (refuted is None), str(report)
    assert refuted in [None, *(failure.check for failure in report.of(CheckStatus.FAILED))]


def test_an_item_fails_where_its_check_does(tmp_path):
    wrong = program_of(tmp_path / "mine.py", stated(("w_max=cap", "w_max=1.01")))
    items = {item.id: item for item in parametrize(wrong, search=LEAST).args[1]}
    program, check = items["mine-movement"].values
    with pytest.raises(AssertionError, match="movement: n = "):
        check(program)


def test_weights_of_the_wrong_sign_are_noted(tmp_path):
    for new, status in (("cp.maximum(-s, 0)", "passed"), ("cp.maximum(s, 0)", "noted")):
        text = program_template("mine", "exponential").replace("cp.maximum(-s, 0)", new)
        cls = program_of(tmp_path / "mine.py", text)
        assert outcome_of("", balance, Subject(cls(), FEW)).status == status


@pytest.mark.parametrize(
    ("judged", "conclusion"),
    [
        (["passed"], "all checks passed"),
        (["passed", "noted"], "no check failed; 1 note to read: b"),
        (["noted", "noted"], "no check failed; 2 notes to read: a, b"),
        (["noted", "failed"], "1 failed"),
    ],
)
def test_a_note_is_no_pass(judged, conclusion):
    outcomes = tuple(
        CheckOutcome(name, CheckStatus(status), "") for name, status in zip("ab", judged, strict=False)
    )
    report = ConformanceReport("mine", {"trim": 2.0, "cap": None}, "direct", "", outcomes)
    assert report.conclusion == report.to_dict()["conclusion"] == conclusion
    assert str(report).startswith("mine (trim=2.0): ")


def test_numbers_are_halved_and_doubled_and_an_infinite_one_replaced():
    result = outcome_of("", other_settings, Subject(PaperEntropyBalancing(ridge=2.0, constant=1.0), LEAST))
    expected = "constant = 0.5, 2; ridge = 1, 4; radius = 1.5: nothing found"
    assert result.detail.startswith(expected), result
    result = outcome_of("", other_settings, Subject(Uniform(), LEAST))
    assert (result.status, result.detail) == (CheckStatus.PASSED, "no other values were tried")


def test_an_audit_reports_v_and_not_the_largest_weight(monkeypatch):
    worst = []
    monkeypatch.setattr(
        checks, "audit_stability", lambda *a, **k: worst.append(audit_stability(*a, **k)) or worst[0]
    )
    result = outcome_of("", short_audit, Subject(PaperEntropyBalancing(ridge=0.5), FEW)).detail
    shares = {one.claim.quantity: one.ratio for one in worst[0].verdicts}
    assert shares[Quantity.LARGEST] > 1.1 * shares[Quantity.V]
    assert f": V at most {shares[Quantity.V]:.0%} of its bound " in result


@pytest.mark.parametrize("off", [0.5, float("nan")])
def test_solvers_that_disagree_beyond_their_certificates_are_a_failure(off, monkeypatch):
    right = weighing.solve

    def wrong(instance, *, solver, **settings):
        solution = right(instance, solver=solver, **settings)
        shift = off if solver == "clarabel" else 0.0
        moved = solution.value + shift
        return SimpleNamespace(value=moved, certificate=solution.certificate, substituted=False)

    monkeypatch.setattr(weighing, "solve", wrong)
    result = outcome_of("", short_audit, Subject(PaperEntropyBalancing(ridge=0.5), LEAST))
    assert result.status is CheckStatus.FAILED
    assert "a certificate of two solvers is wrong" in result.detail
