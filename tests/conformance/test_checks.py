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
from dp2erm_cvx.conformance.checks import (
    Subject,
    balance,
    other_settings,
    short_audit,
    stated_gradient,
)
from dp2erm_cvx.conformance.gradients import largest_gradient_movement
from dp2erm_cvx.conformance.run import CheckOutcome, ConformanceReport, outcome_of
from dp2erm_cvx.problems.known_weights import Uniform
from dp2erm_cvx.problems.paper_entropy_balancing import PaperEntropyBalancing
from dp2erm_cvx.program.files import programs_of_file
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import solve

FEW, LEAST = SearchPlan(150), SearchPlan(40)


def program_of(path: Path, text: str) -> Any:
    path.write_text(text, encoding="utf-8")
    (cls,) = programs_of_file(path)
    return cls


def reports_of(path: Path, text: str) -> list[ConformanceReport]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "Subject", partial(Subject, larger=(101,)))
        return list(check_program(program_of(path, text), search=LEAST))


@pytest.mark.one_row_in(20)
@pytest.mark.parametrize("name", programs())
def test_every_registered_program_passes_the_checks_of_its_kind(name):
    cls = programs()[name]
    assert all(
        str(getattr(cls, fact)).strip() for fact in ("name", "formula", "citation", "theorem")
    )
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


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", ["overlap", "overlap_private", "itr", *TEMPLATES])
def test_nothing_is_searched_for_where_all_is_derived(name, tmp_path, monkeypatch):
    """No audit, no neighbors, and no solve but the one that balance is told from."""
    monkeypatch.setattr(run, "Subject", partial(Subject, larger=(101,)))
    cls, solves = programs().get(name), []
    if cls is None:
        cls = program_of(tmp_path / "mine.py", program_template("mine", name))
    for searched in ("audit_stability", "next_pair"):
        monkeypatch.setattr(checks, searched, None)  # a call fails its check
    monkeypatch.setattr(
        checks, "solve", lambda *told, **more: solves.append(told) or solve(*told, **more)
    )
    report = next(check_program(cls))
    assert report.passed, str(report)
    assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
    others = {"itr": "second stage", "loss": "second stage", "overlap_private": "private"}
    others |= {"direct": "weights as the variable", "quadratic": "weights as the variable"}
    assert report.kind == others.get(name, "exponential" if name == "overlap" else name)
    assert len(solves) <= 1
    said = {one.check: one.detail for one in report.outcomes}
    searched = {"declaration", "gradient", "movement", "audit", "feasibility", "other settings"}
    for check in said.keys() & searched:
        assert said[check].startswith("derived: nothing to check")
    item = next(one for one in parametrize(cls).args[1] if one.id.endswith("declaration"))
    with pytest.raises(pytest.skip.Exception, match="derived: nothing to check"):
        item.values[1](item.values[0])


#: A bound behind the template of weights, which are pulled to its cap.
STATED = '''

@mine.bound
def _(n, M, ridge, cap):
    """The gradient moves by 2 M^2 / ridge at one record, 2 M^2 cap / (ridge sqrt(n)) at others."""
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


def test_a_stated_largest_weight_that_some_pair_exceeds_is_refuted(tmp_path):
    cls = program_of(tmp_path / "mine.py", stated(("w_max=cap", "w_max=1.01")))
    subject = Subject(cls(), LEAST, larger=(101,))
    outcome = outcome_of("movement", checks_of(cls)["movement"], subject)
    assert outcome.status is CheckStatus.FAILED, outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    ("largest", "refuted"),
    [
        pytest.param("cap", None, id="right"),
        pytest.param("1.01", "movement", id="exceeded"),
        pytest.param("1.5", "other settings", id="that of the default only"),
    ],
)
def test_a_wrong_bound_is_refuted(largest, refuted, tmp_path):
    (report,) = reports_of(tmp_path / "mine.py", stated(("w_max=cap", f"w_max={largest}")))
    assert report.passed is (refuted is None), str(report)
    assert refuted in [None, *(failure.check for failure in report.of(CheckStatus.FAILED))]


#: A bound from the gradient, of rows as long as covariates; less than that is stated of it.
SOFT = '''"""Weights near 1, and the squared imbalance of rows."""

import math

import cvxpy as cp
import numpy as np

from dp2erm_cvx.program import Ball, Bound, scheme


@scheme(cap=4.0, rho=1.0)
def soft(w, records, cap, rho):
    """Weights near 1, and the squared imbalance of rows."""
    rows = records.rows("rows", lambda x, a, y: (2 * a - 1) * np.asarray(x) * LENGTH, Ball(10.0))
    imbalance = cp.sum_squares(rows.T @ w)
    objective = cp.sum_squares(w - 1) + rho / (2 * records.n) * imbalance
    return cp.Problem(cp.Minimize(objective), [w <= cap])


@soft.bound
def _(n, M, cap, rho):
    moved = rho / n * M**2 * math.hypot(2 * cap * math.sqrt(n - 1), 2 * n)
    return Bound.from_gradient(moved / PART, w_max=cap)
'''


def soft(path: Path, length: str = "1.0", part: str = "1.0") -> Subject:
    program = program_of(path, SOFT.replace("LENGTH", length).replace("PART", part))()
    return Subject(program, SearchPlan(10), larger=(), n=40)


@pytest.mark.parametrize(
    ("length", "part", "place"),
    [
        pytest.param(
            "1.0", "max(rho, 1.0)", "n = 40, rho = 2: ", id="default", marks=pytest.mark.slow
        ),
        pytest.param("(10.0 if x[0] > 0.4 else 1.0)", "1.0", "n = 40: ", id="half space"),
        pytest.param(
            "(10.0 if a and x[0] < -0.7 else 1.0)", "1.0", "n = 40, no intercept: ", id="arm"
        ),
    ],
)
def test_a_wrong_movement_of_the_gradient_is_refuted_without_a_solve(
    length, part, place, tmp_path, monkeypatch
):
    monkeypatch.setattr(checks, "solve", None)  # a call fails its check
    result = outcome_of("", stated_gradient, soft(tmp_path / "soft.py", length, part))
    assert result.status is CheckStatus.FAILED
    assert result.detail.startswith(f"{place}the gradient moves by ")


def test_a_gradient_that_cvxpy_does_not_know_is_noted_and_not_compared(tmp_path):
    """Of a largest size it has none: nothing was seen to move, which is no proof."""
    text = SOFT.replace("LENGTH", "1.0").replace("PART", "1.0")
    text = text.replace("* imbalance", "* imbalance + 1e-6 * cp.norm_inf(w - 1)")
    program = program_of(tmp_path / "soft.py", text)()
    result = outcome_of("", stated_gradient, Subject(program, SearchPlan(10), larger=(), n=40))
    assert result.status is CheckStatus.NOTED
    assert result.detail.startswith("CVXPY has no gradient of the objective")


@pytest.mark.slow
def test_a_right_movement_of_the_gradient_is_nearly_reached(tmp_path):
    subject = soft(tmp_path / "soft.py")
    universe = checks.check_universe(40)
    stated = subject.program.at(universe).stated_bound(universe).gradient
    reached, pairs = largest_gradient_movement(subject.program, universe, stated, 30, seed=0)
    assert 0.6 * stated < reached <= stated
    assert pairs == 30


def test_nothing_is_solved_for_where_a_smaller_bound_is_derived(tmp_path, monkeypatch):
    monkeypatch.setattr(checks, "solve", None)
    text = SOFT.replace("LENGTH", "1.0").replace("PART", "1.0").replace("Ball(10.0)", "Ball(2.2)")
    program = program_of(tmp_path / "soft.py", text)()
    for check in (checks.movement, short_audit):
        result = outcome_of("", check, Subject(program, sizes=(40,), larger=()))
        assert result.status is CheckStatus.SKIPPED
        assert "is not used: V = " in result.detail
    assert "as its author states" not in checks.assumed(Subject(program))[1]


def test_the_first_violation_ends_the_checks(tmp_path):
    text = SOFT.replace("LENGTH", "1.0").replace("PART", "2.0")
    ended = []
    half = program_of(tmp_path / "soft.py", text)
    (report,) = check_program(half, search=LEAST, done=ended.append)
    assert [one.check for one in report.outcomes] == ["declaration", "assumed", "gradient"]
    assert tuple(ended) == report.outcomes
    assert report.headline == str(report).splitlines()[0]


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
def test_notes_and_skipped_checks_do_not_make_a_pass(judged, conclusion):
    outcomes = tuple(
        CheckOutcome(name, CheckStatus(status), "")
        for name, status in zip("ab", judged, strict=False)
    )
    report = ConformanceReport("mine", {"trim": 2.0, "cap": None}, "direct", "", outcomes)
    assert report.conclusion == report.to_dict()["conclusion"] == conclusion
    assert str(report).startswith("mine (trim=2.0): ")


def test_numbers_are_multiplied_one_at_a_time_and_an_infinite_one_replaced():
    result = outcome_of(
        "", other_settings, Subject(PaperEntropyBalancing(ridge=2.0, constant=1.0), LEAST)
    )
    expected = (
        "constant = 0.5, 2, 0.1, 10, 0.01, 100; ridge = 1, 4, 0.2, 20, 0.02, 200; radius = 1.5: "
        "nothing found"
    )
    assert result.detail.startswith(expected), result
    result = outcome_of("", other_settings, Subject(Uniform(), LEAST))
    assert (result.status, result.detail) == (CheckStatus.PASSED, "no other values were tried")


def test_an_audit_reports_v_and_not_the_largest_weight(monkeypatch):
    worst = []
    monkeypatch.setattr(
        checks,
        "audit_stability",
        lambda *a, **k: worst.append(audit_stability(*a, **k)) or worst[0],
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
