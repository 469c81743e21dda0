"""The conformance suite: right programs pass, and every kind of wrong one is caught."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, registry, stability
from dp2erm_cvx.conformance import (
    TEMPLATES,
    CheckStatus,
    ConformanceReport,
    check_program,
    checks_of,
    load_program,
    program_template,
    programs_of_file,
    standard_records,
)
from dp2erm_cvx.conformance.run import outcome_of
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import CalibrationError, DeclarationError, ProgramError
from dp2erm_cvx.model.regularizer import UserRegularizer
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.itr import TreatmentRule
from dp2erm_cvx.program import FirstStage, Kind
from dp2erm_cvx.registry import collect, first_stages, programs
from dp2erm_cvx.solve import solve
from dp2erm_cvx.universe import Universe
from tests.command_line import run as command
from tests.conformance.planted import FEW, judged

ROOT = Path(__file__).parents[2]


BUILT_IN = first_stages()

_SHORT = ("--no-page", "--no-tightness", "--json")


def reports_of(path: Path, text: str) -> list[ConformanceReport]:
    path.write_text(text, encoding="utf-8")
    return [report for cls in programs_of_file(path) for report in check_program(cls, search=FEW)]


def changed(kind: str, *pairs: tuple[str, str]) -> str:
    text = program_template("mine", kind)
    for old, new in pairs:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", programs())
def test_every_registered_program_passes_the_checks_of_its_kind(name):
    cls = programs()[name]
    for settings in cls.examples:
        for check in checks_of(cls):
            outcome = judged(check, cls(**settings), FEW)
            assert outcome.status is not CheckStatus.FAILED, (settings, outcome)


@pytest.mark.slow
@pytest.mark.parametrize("name", programs())
def test_every_registered_program_conforms(name):
    for report in check_program(programs()[name]):
        assert report.passed, str(report)
        assert json.loads(json.dumps(report.to_dict())) == report.to_dict()


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates_conform_as_they_are(kind, tmp_path):
    for report in reports_of(tmp_path / "mine.py", program_template("mine", kind)):
        assert report.passed, str(report)
        assert json.loads(json.dumps(report.to_dict())) == report.to_dict()
        assert report.program == "mine"
        assert report.kind == ("second stage" if kind == "loss" else kind)


def test_the_kind_of_every_first_stage_is_one_with_a_theorem_where_it_is_private():
    for name, cls in first_stages().items():
        assert (cls.kind is Kind.DIRECT) == (not cls.relations), name


_BEFORE = "    def constants(self"
_KERNEL = "    @property\n    def kernel(self"


def _own_theorem(ridge: str, kernel_bound: str = "found.kernel_bound", signed: str = "found.signed"):
    """Theorem 6 stated by the program, from constants other than its own."""
    return [
        (
            "from dp2erm_cvx.program import (",
            "from dp2erm_cvx import stability\nfrom dp2erm_cvx.program import (",
        ),
        (
            _KERNEL,
            "    def bound(self, universe):\n"
            "        n, found = universe.n_samples, self.constants(universe)\n"
            f"        wrong = type(found)({kernel_bound}, {ridge}, found.alpha, {signed})\n"
            f"        return stability.pooled_kernel_balancing(n, wrong)\n\n{_KERNEL}",
        ),
    ]


#: By template: what is changed in it, and the checks of which one has to notice.
WRONG = {
    "half a diameter": (
        "exponential",
        [("gradient_diameter=M *", "gradient_diameter=0.5 * M *")],
        {"constants"},
    ),
    "half the diameter of log weights": (
        "exponential",
        [("log_weight_diameter=2 * M", "log_weight_diameter=M / 2")],
        {"constants"},
    ),
    "a radius that is too small": ("exponential", [("radius=r,", "radius=r / 20,")], {"constants"}),
    "a log weight that is steeper than declared": (
        "exponential",
        [("np.maximum(0.0, -s)", "np.maximum(0.0, -2 * s)")],
        {"constants"},
    ),
    "rows that see other records": (
        "exponential",
        [
            (
                _BEFORE,
                "    def rows(self, records):\n        Z = super().rows(records)\n"
                "        return Z / max(1.0, 9 * np.max(np.abs(Z.mean(axis=0))))\n\n" + _BEFORE,
            )
        ],
        {"own record"},
    ),
    "rows that are longer than declared": (
        "exponential",
        [
            (
                _BEFORE,
                "    def rows(self, records):\n        return 2 * super().rows(records)\n\n" + _BEFORE,
            )
        ],
        {"constants"},
    ),
    "a loss with another slope": (
        "exponential",
        [
            ("loss = LogisticLoss()", "loss = _Loss()"),
            (
                "@dataclass(frozen=True)",
                "class _Loss(LogisticLoss):\n    def slope(self, s):\n"
                "        return 1.01 * super().slope(s)\n\n\n@dataclass(frozen=True)",
            ),
        ],
        {"constants", "solver agreement"},
    ),
    "the bound of uniform weights": (
        "exponential",
        [
            (
                _BEFORE,
                "    def bound(self, universe):\n"
                "        return stability.uniform_weights(universe.n_samples)\n\n" + _BEFORE,
            )
        ],
        {"movement"},
    ),
    "a bound off by the square root of n": (
        "quadratic",
        _own_theorem("n**0.5 * found.ridge"),
        {"audit", "movement"},
    ),
    "half a kernel bound": (
        "quadratic",
        _own_theorem("found.ridge", kernel_bound="found.kernel_bound / 2"),
        {"stated bound"},
    ),
    "a kernel of both signs taken for an unsigned one": (
        "quadratic",
        [("constant=self.norm_bound)", "constant=0.1)"), *_own_theorem("found.ridge", signed="False")],
        {"stated bound"},
    ),
    "twice the ridge in the bound": (
        "exponential",
        [
            (
                _BEFORE,
                "    def bound(self, universe):\n        constants = self.constants(universe.domain)\n"
                "        return stability.separable(universe.n_samples, 2 * self.mu, constants)\n\n"
                + _BEFORE,
            )
        ],
        {"stated bound"},
    ),
    "half the Lipschitz constant of the log weight": (
        "exponential",
        [("lipschitz = 1.0", "lipschitz = 0.5")],
        {"constants"},
    ),
    "rows longer than their bound": (
        "exponential",
        [(_BEFORE, "    def row_bound(self, domain):\n        return 1.0\n\n" + _BEFORE)],
        {"constants"},
    ),
    "covariates centered by the sample": (
        "exponential",
        [
            (
                _BEFORE,
                "    def rows(self, records):\n        X = records.X - records.X.mean(axis=0)\n"
                "        return (2 * records.a - 1)[:, None] * X\n\n" + _BEFORE,
            )
        ],
        {"own record"},
    ),
    "covariates scaled by the sample": (
        "exponential",
        [
            (
                _BEFORE,
                "    def rows(self, records):\n        X = records.X / (1 + records.X.std(axis=0))\n"
                "        return (2 * records.a - 1)[:, None] * X\n\n" + _BEFORE,
            )
        ],
        {"own record"},
    ),
    "weights that rank the sample": (
        "exponential",
        [("np.maximum(0.0, -s)", "np.maximum(0.0, -s) - (s > np.median(s))")],
        {"own record"},
    ),
    "records in the problem past its leaves": (
        "direct",
        [
            ('cp.norm1(leaf("Z").T @ weights)', 'cp.norm1(held[0].T @ weights) + 0 * cp.sum(leaf("Z"))'),
            ("        # a product", "        held[0] = signed\n        # a product"),
            ("@dataclass", "held = [None]\n\n\n@dataclass"),
        ],
        {"declaration"},
    ),
    "twice the strong convexity": ("direct", [("return 2.0", "return 4.0")], {"strong convexity"}),
    "no docstring": ("direct", [("minimize ", "find ")], {"statement"}),
    "no citation": ("direct", [('citation = "your paper"', 'citation = ""')], {"statement"}),
    "not DPP": (
        "direct",
        [('leaf("Z").T @ weights', 'leaf("Z").T @ cp.multiply(leaf("ones"), weights)')],
        {"declaration"},
    ),
    "a datum that enters nowhere": (
        "direct",
        [
            ("        return cp.sum_squares", '        leaf("ones2")\n        return cp.sum_squares'),
            ('{"Z":', '{"ones2": 1.0, "Z":'),
        ],
        {"declaration"},
    ),
    "constraints on data declared as fixed": (
        "direct",
        [
            (
                "    def strong_convexity",
                "    kind = Kind.QUADRATIC\n\n    def constraints(self, leaf, weights):\n"
                '        return {"balance": leaf("Z").T @ weights <= 30.0}\n\n'
                "    def bound(self, universe):\n"
                "        n = universe.n_samples\n"
                "        return stability.pooled_kernel_balancing(n, stability.KernelConstants(4.0, n))\n\n"
                "    def strong_convexity",
            ),
            (
                "from dp2erm_cvx.program import Array,",
                "from dp2erm_cvx import stability\nfrom dp2erm_cvx.program import Kind, Array,",
            ),
        ],
        {"fixed feasible set"},
    ),
    "a bound without a theorem": (
        "direct",
        [
            (
                "    def strong_convexity",
                "    def bound(self, universe):\n"
                "        return stability.uniform_weights(universe.n_samples)\n\n    def strong_convexity",
            ),
            (
                "from dp2erm_cvx.program import",
                "from dp2erm_cvx import stability\nfrom dp2erm_cvx.program import",
            ),
        ],
        {"movement"},
    ),
    "another function than declared": (
        "quadratic",
        [
            (
                _KERNEL,
                "    def data(self, records):\n        found = super().data(records)\n"
                '        return found | {"curvature": 40 * found["curvature"]}\n\n' + _KERNEL,
            )
        ],
        {"solver agreement", "declaration and model"},
    ),
    "an error of its own": (
        "direct",
        [("return 2.0", "return records.nothing")],
        {"declaration"},
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_found(case, tmp_path):
    kind, pairs, expected = WRONG[case]
    path = tmp_path / "mine.py"
    path.write_text(changed(kind, *pairs), encoding="utf-8")
    (cls,) = programs_of_file(path)
    concerned = [check for check in checks_of(cls) if check.name in expected]
    assert len(concerned) == len(expected)
    outcomes = [
        outcome_of(check, Subject(cls(**settings), FEW)) for settings in cls.examples for check in concerned
    ]
    assert any(outcome.status is CheckStatus.FAILED for outcome in outcomes), outcomes


def test_a_set_that_moves_by_its_authors_word_is_noted_and_not_passed(tmp_path):
    kind, pairs, _ = WRONG["constraints on data declared as fixed"]
    text = changed(
        kind, *pairs, ("    kind = Kind.QUADRATIC", '    kind = Kind.QUADRATIC\n    moving = {"Z"}')
    )
    for report in reports_of(tmp_path / "mine.py", text):
        (found,) = [one for one in report.outcomes if one.check == "fixed feasible set"]
        assert found.status is CheckStatus.NOTED
        assert "author" in found.detail


def test_weights_of_the_wrong_sign_are_noted(tmp_path):
    for new, status in (
        ("np.maximum(0.0, -s)", CheckStatus.PASSED),
        ("np.maximum(0.0, s)", CheckStatus.NOTED),
    ):
        for report in reports_of(tmp_path / "mine.py", changed("exponential", ("np.maximum(0.0, -s)", new))):
            (found,) = [one for one in report.outcomes if one.check == "balance"]
            assert found.status is status


@pytest.mark.parametrize("examples", ["()", '{"penalty": 0.1}', "3"])
def test_examples_that_are_none_are_refused(examples, tmp_path):
    text = changed("direct", ('({}, {"penalty": 0.1})', examples))
    with pytest.raises(ProgramError, match="examples must be"):
        reports_of(tmp_path / "mine.py", text)


def test_a_class_that_is_no_dataclass_is_reported(tmp_path):
    for report in reports_of(tmp_path / "mine.py", changed("direct", ("@dataclass(frozen=True)\n", ""))):
        assert [failure.check for failure in report.failures] == ["settings"]


def test_settings_that_the_program_refuses_are_reported(tmp_path):
    text = changed("exponential", ('{"ridge": 0.05, "radius": 0.5}', '{"ridge": -1.0}'))
    assert "ridge" in reports_of(tmp_path / "mine.py", text)[1].failures[0].detail


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "holds no program"),
        ("def broken(:\n", "line 1: SyntaxError"),
        ("x = 1\ny = 1 / 0\n", "line 2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3"),
        (
            "from dp2erm_cvx.program import FirstStage\n\n\nclass Half(FirstStage):\n    pass\n",
            "does not state data, declare, model, read",
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
    path.write_text(program_template("mine", "direct"), encoding="utf-8")
    (first,) = programs_of_file(path)
    path.write_text(program_template("yours", "direct"), encoding="utf-8")
    (second,) = programs_of_file(path)
    assert (first.name, second.name) == ("mine", "yours")


_ODDS = """

    def weight_rows(self, records):
        return (1 - records.a)[:, None] * records.X

    def constants("""


def test_weights_that_depend_on_the_arm_are_expressible(tmp_path):
    """Odds weights for the effect on the treated: 1 for them, the odds exp(x'lam) for the controls."""
    text = changed(
        "exponential",
        ("np.maximum(0.0, -s)", "s"),
        ("log_weight_range=M * r", "log_weight_range=2 * M * r"),
        ("\n    def constants(", _ODDS[1:]),
    )
    for report in reports_of(tmp_path / "mine.py", text):
        assert report.passed, str(report)
    (cls,) = programs_of_file(tmp_path / "mine.py")
    assert issubclass(cls, FirstStage)
    records = standard_records(200)
    solution = solve(cls(ridge=0.05).instance(records))
    w, score = solution.value, records.X @ solution.point
    odds = np.where(records.a == 1, 1.0, np.exp(score))
    np.testing.assert_allclose(w, 200 * odds / odds.sum(), rtol=1e-9)
    # half the range of the weights, whose rows are another set than those of the loss
    halved = text.replace("log_weight_range=2 * M * r", "log_weight_range=M * r")
    assert any(not report.passed for report in reports_of(tmp_path / "mine.py", halved))


def test_a_program_that_changes_another_needs_a_name_of_its_own():
    class Claims(programs()["overlap"]):
        def stability(self, universe, family=None):
            return stability.uniform_weights(universe.n_samples)

    with pytest.raises(DeclarationError, match="name of its own"):
        PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), Claims(), "itr").plan(100, 2)


def test_a_program_of_no_kind_cannot_state_its_own_stability(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(program_template("mine", "direct"), encoding="utf-8")
    (direct,) = programs_of_file(path)

    class Claims(direct):
        def stability(self, universe, family=None):
            return stability.uniform_weights(universe.n_samples)

    with pytest.raises(CalibrationError, match="declare the kind"):
        PrivateTwoStageERM(Domain(1.0, 1.0), Budget(1.0), Claims(), "itr").plan(100, 2)


def test_unknown_names_and_kinds_are_refused(tmp_path):
    with pytest.raises(ProgramError, match="no file"):
        programs_of_file(tmp_path / "none.py")
    with pytest.raises(ProgramError, match="neither"):
        load_program("nobody")
    for name in ("3x", "Mine", "class", "a-b", "", "records"):
        with pytest.raises(DeclarationError, match="name"):
            program_template(name, "direct")
    with pytest.raises(DeclarationError, match="kind"):
        program_template("mine", "linear")
    refused = command("check-program", "uniform", "--solves", "0")
    assert (refused.exit_code, "solves" in refused.stderr) == (2, True)


def test_a_program_without_a_kind_is_covered_by_the_universal_corollary(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(program_template("mine", "direct"), encoding="utf-8")
    (cls,) = programs_of_file(path)
    assert issubclass(cls, FirstStage)
    from dp2erm_cvx.conformance.samples import check_domain

    assert cls().stability(Universe(check_domain(50), 50, 2)).V == 100
    (report,) = list(check_program(cls, search=FEW))[:1]
    assert next(o for o in report.outcomes if o.check == "kind").status is CheckStatus.NOTED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import absent_module\n", "entry point other = other_weights.*ModuleNotFoundError.*absent_module"),
        (
            program_template("overlap", "direct"),
            "two programs are named 'overlap': in .* and in other_weights",
        ),
        (
            program_template("mine", "direct").replace('name = "mine"', "pass"),
            "Mine is registered and has no",
        ),
    ],
)
def test_a_distribution_that_breaks_the_registry_is_named(text, message, tmp_path, monkeypatch):
    (tmp_path / "other_weights.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "other_weights", raising=False)
    entries = [
        *entry_points(group=registry.GROUP),
        EntryPoint("other", "other_weights", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: entries)
    with pytest.raises(ProgramError, match=message):
        programs.__wrapped__()
    registry._sound.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match=message):
            assert registry.first_stages() == BUILT_IN
        assert registry.build(registry.first_stages(), "overlap").name == "overlap"
        with pytest.raises(ProgramError, match=f"unknown program 'mine'.*{message}"):
            registry.build(registry.first_stages(), "mine")
    finally:
        registry._sound.cache_clear()


def test_of_two_distributions_with_one_name_neither_is_taken():
    """And nothing depends on the order in which they are found."""
    entries = [EntryPoint(name, f"{name}_weights", registry.GROUP) for name in ("one", "two")]
    own = entry_points(group=registry.GROUP, name="dp2erm")
    for name in ("one", "two"):
        module = ModuleType(f"{name}_weights")
        sys.modules[module.__name__] = module
        exec(program_template("mine", "direct"), module.__dict__)
        exec(program_template(f"also_{name}", "direct"), module.__dict__)
    for order in (entries, entries[::-1]):
        found, complaints = collect([*order, *own])
        assert "mine" not in found
        assert list(found) == list(programs())
        assert len(complaints) == 1


def test_a_release_is_conditional_where_the_error_of_the_weights_has_no_public_bound(tmp_path):
    """A certificate that is found on one dataset says nothing about the next."""
    path, data = tmp_path / "mine.py", simulate("linear", 100, rng=0).dataset
    unknown = (_BEFORE, "    def n_rows(self, universe):\n        return None\n\n" + _BEFORE)
    for pairs, private in (((), True), ((unknown,), False)):
        path.write_text(changed("exponential", *pairs), encoding="utf-8")
        (cls,) = programs_of_file(path)
        model = PrivateTwoStageERM(Domain(1.0, 2.0), Budget(epsilon=2.0), cls(), "arm_means")
        release = model.fit(data.X, data.a, data.y).release_
        assert release.private is private
        assert any("is not known to" in one for one in release.guarantee.assumptions) is not private


def test_weights_without_a_theorem_need_no_certificate_and_carry_the_noise_of_all_weights(tmp_path):
    """V = 2n covers whatever the solver returns; a second stage judged by its gap is not covered by it."""
    path, data = tmp_path / "mine.py", simulate("linear", 60, rng=0).dataset
    path.write_text(program_template("mine", "direct"), encoding="utf-8")
    (cls,) = programs_of_file(path)
    for report in check_program(cls, search=FEW):
        (found,) = [o for o in report.outcomes if o.check == "certified by design"]
        assert (found.status, "covers all weights" in found.detail) == (CheckStatus.PASSED, True)
    domain, own = Domain(1.0, 2.0), UserRegularizer(lambda theta: cp.norm(theta, 1))
    for second, private in (("arm_means", True), (TreatmentRule(L2Ball(1.0), own), False)):
        model = PrivateTwoStageERM(domain, Budget(epsilon=2.0), cls(), second)
        release = model.fit(data.X, data.a, data.y).release_
        assert model.private_workings_.weights.certificate.basis == "duality gap"
        assert release.mechanism.stability == 2 * 60
        assert release.private is private


def test_why_a_program_is_not_dpp_is_the_same_for_all_records(tmp_path):
    """A private fit shows the message, after its budget was charged."""
    product = ("return cp.sum_squares(", 'return leaf("y") @ cp.square(weights) + cp.sum_squares(')
    path = tmp_path / "mine.py"
    path.write_text(changed("direct", product, ('{"Z":', '{"y": records.y, "Z":')), encoding="utf-8")
    (cls,) = programs_of_file(path)
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
                ('{"Z":', '{"price": 2.0, "Z":'),
            ],
            "ask for leaf('price', nonneg=True)",
        ),
        (
            [
                ("return cp.sum_squares(", 'return -leaf("price") * cp.sum_squares('),
                ('{"Z":', '{"price": 2.0, "Z":'),
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


def test_an_entropy_of_weights_is_told_what_is_possible(tmp_path):
    text = changed("direct", ("cp.sum_squares(weights - 1)", "-cp.sum(cp.entr(weights))"))
    report = reports_of(tmp_path / "mine.py", text)[0]
    assert any("weights by entropy: a program of kind exponential" in one.detail for one in report.failures)


def test_the_commands_write_check_and_refuse(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("new-program", "mine", "--kind", "exponential").exit_code == 0
    taken = command("new-program", "overlap", "--kind", "direct")
    assert (taken.exit_code, "installed already" in taken.stderr) == (2, True)
    again = command("new-program", "mine", "--kind", "direct")
    assert again.exit_code == 2
    assert "exists already" in again.stderr
    for words, message in (
        (("numpy",), "would hide the installed module 'numpy'"),
        (("string",), "would hide the installed module 'string'"),
        (("yours", "--output", "cvxpy.py"), "would hide the installed module 'cvxpy'"),
        (("yours", "--output", "yours.txt"), "ends in .py"),
    ):
        refused = command("new-program", *words, "--kind", "direct")
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr
    assert [path.name for path in Path.cwd().iterdir()] == ["mine.py"]
    fine = command("check-program", "mine.py", "--solves", "150")
    assert fine.exit_code == 0
    assert fine.stdout.count("all checks passed") == 2
    wrong = (
        Path("mine.py")
        .read_text(encoding="utf-8")
        .replace("gradient_diameter=M", "gradient_diameter=0.5 * M")
    )
    Path("mine.py").write_text(wrong, encoding="utf-8")
    found = command("check-program", "mine.py", "--solves", "150", "--json")
    assert found.exit_code == 1
    (first, _) = json.loads(found.stdout)
    assert [o["check"] for o in first["outcomes"] if o["status"] == "failed"] == ["constants"]
    assert command("check-program", "absent.py").exit_code == 2


def test_a_program_of_another_distribution_is_found_listed_checked_fitted_and_audited(tmp_path):
    """In an interpreter of its own, from a package installed beside the library."""
    site = tmp_path / "site"
    metadata = site / "matching_weights-1.0.dist-info"
    metadata.mkdir(parents=True)
    text = program_template("matching_plugin", "exponential")
    (site / "matching_weights.py").write_text(text, encoding="utf-8")
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: matching-weights\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        "[dp2erm_cvx.problems]\nmatching = matching_weights\n", encoding="utf-8"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}

    def dp2erm(*arguments: str) -> str:
        code = f"from dp2erm_cvx.cli import main; main({list(arguments)!r})"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    listed = {row["name"]: row for row in json.loads(dp2erm("programs", "--json"))}
    assert listed["matching_plugin"]["stage"] == "first"
    assert "all checks passed" in dp2erm("check-program", "matching_plugin", "--solves", "150")
    options = ["--program", "matching_plugin", "--ridge", "0.1", "--covariate-bound", "1"]
    audited = json.loads(dp2erm("audit", *options, "--n", "60", "--solves", "200", *_SHORT))
    assert audited["resolved"] > 0
    assert not any(verdict["violated"] for verdict in audited["verdicts"])
    assert "Theorem 3" in dp2erm("bounds", *options, "--n", "100")


def test_a_kind_that_is_none_is_reported(tmp_path):
    text = changed("direct", ('    name = "mine"', '    kind = "fixed"\n    name = "mine"'))
    for report in reports_of(tmp_path / "mine.py", text):
        assert "must be one of Kind.CLOSED_FORM" in report.failures[0].detail


def test_a_class_without_a_file_of_its_own_is_examined_to_the_end(tmp_path):
    """In a notebook there is no docstring of a module; what else is wrong has to show all the same."""
    text = changed("direct", ("minimize ", "find "), ("return 2.0", "return 4.0"))
    for report in reports_of(tmp_path / "mine.py", text):
        assert [failure.check for failure in report.failures] == ["statement", "strong convexity"]
