"""The pages: their code runs, their tables hold, and no program is missing."""

import ast
import contextlib
import io
import json
import math
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import ModuleType

import click
import numpy as np
import pytest
from sklearn.base import clone

from dp2erm_cvx import (
    Budget,
    Domain,
    EffectRelease,
    Ledger,
    Release,
    RuleRelease,
    paper,
    read_release,
    release,
)
from dp2erm_cvx.cli import main
from dp2erm_cvx.conformance import checks_of, program_template
from dp2erm_cvx.data.domain_file import load_domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.paper import entropy_balancing_paper_scaling
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.solve import SOLVERS, Certificate, solve
from dp2erm_cvx.steps.calibrators import NAMES
from dp2erm_cvx.study import read_study
from tests.command_line import done, refused
from tests.helpers import logistic_propensity
from tests.rows import slow_rows

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted(path.stem for path in (DOCS / "tutorials").glob("*.md"))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), flags=re.MULTILINE | re.DOTALL)


def run(sources: list[str], monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Execute code blocks one after the other in one module, as a reader would paste them."""
    module = ModuleType("pasted_from_docs")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    for number, source in enumerate(sources):
        exec(compile(source, f"block {number}", "exec"), module.__dict__)
    return module


def steps(name: str) -> list[tuple[str, str, str]]:
    """Language, code and quoted output of every block of a page that runs.

    A ``text`` block is the output of the block right before it; a block without one prints nothing.
    """
    text = page(name)
    out: list[tuple[str, str, str]] = []
    end = 0
    for fence in re.finditer(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        language, body = fence.groups()
        if language == "text":
            assert out, f"the output of nothing: {body}"
            assert not text[end : fence.start()].strip(), f"away from its block: {body}"
            out[-1] = (*out[-1][:2], body)
        else:
            out.append((language, body, ""))
        end = fence.end()
    return out


def perform(steps: list[tuple[str, str, str]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Output of every step, all in one fresh module: Python code, or lines of ``dp2erm``."""
    module = run([], monkeypatch)
    printed = []
    for number, (language, source, _) in enumerate(steps):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            if language == "python":
                exec(compile(source, f"block {number}", "exec"), module.__dict__)
            else:
                assert language == "sh", language
                for words in lines(source, only=True):
                    output.write(done(*words).stdout)
        printed.append(output.getvalue())
    return printed


def lines(source: str, *, only: bool = False) -> list[list[str]]:
    """Words of every line of ``dp2erm``, without that; where no others may stand, all lines."""
    parts = [shlex.split(line, comments=True) for line in source.replace("\\\n", " ").splitlines()]
    assert not only or {part[0] for part in parts} == {"dp2erm"}, source
    return [words for program, *words in filter(None, parts) if program == "dp2erm"]


def commands(name: str) -> list[list[str]]:
    return lines("\n".join(blocks(f"{name}.md", "sh")))


_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def agree(printed: str, quoted: str) -> bool:
    """Equal up to white space, rules of tables, and one unit in the last digit of a quoted decimal.

    Processors and libraries round differently; a whole number has to be the same.
    """
    words = [re.sub(r"[\s─]+", " ", _NUMBER.sub("#", text)).strip() for text in (printed, quoted)]
    numbers = [[Decimal(number) for number in _NUMBER.findall(text)] for text in (printed, quoted)]
    if words[0] != words[1]:
        return False
    return all(
        abs(mine - other) <= (Decimal(10) ** exponent if exponent < 0 else 0)
        for mine, other in zip(*numbers, strict=True)
        if isinstance(exponent := other.as_tuple().exponent, int)
    )


def test_outputs_agree_up_to_the_last_digit():
    assert agree("V =  1.24, 3 rows", "V = 1.23, 3 rows\n")
    assert agree("n   V\n────\n2  0.5", "n  V\n2 0.5")
    assert not agree("1.25", "1.23")
    assert not agree("4 rows", "3 rows")
    assert not agree("3 rows", "3 columns")
    assert not agree("-1.23", "1.23")
    assert not agree("1.23 1.23", "1.23")


#: Parts of a page that are not run as they stand: a search with a test of its own.
APART = {"tutorials/add_a_scheme": "dp2erm check-program"}


#: Pages that search or simulate for seconds.
SEARCHING = (
    "tutorials/audit_a_bound",
    "tutorials/cost_of_privacy",
    "tutorials/first_rule",
    "tutorials/choose_a_solver",
    "tutorials/first_effect",
)


@pytest.mark.one_row_in(1)
@pytest.mark.parametrize(
    "name", slow_rows(["../README", *(f"tutorials/{name}" for name in TUTORIALS)], *SEARCHING)
)
def test_pages_print_what_they_quote(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    run_here = ("python",) if name == "../README" else ("python", "sh")
    if name == "tutorials/add_a_scheme":
        Path("matching.py").write_text(blocks(f"{name}.md", "python")[0], encoding="utf-8")
    parts = [
        one
        for one in steps(f"{name}.md")
        if one[0] in run_here and APART.get(name, "---") not in one[1]
    ]
    assert len(parts) >= (1 if name == "../README" else 3)
    for (_, source, quoted), printed in zip(parts, perform(parts, monkeypatch), strict=True):
        assert agree(printed, quoted), f"{source}\nprints\n{printed}\nand not\n{quoted}"


@pytest.mark.slow
def test_the_figures_of_the_doors_show_what_their_texts_say(tmp_path):
    pytest.importorskip("matplotlib")
    doors = runpy.run_path(str(DOCS / "experiments" / "doors.py"))
    assert doors["chain_figure"](tmp_path)["radius"] < 1e-12
    assert doors["scheme_figure"](tmp_path) < 1
    assert 0.5 < doors["audit_figure"](tmp_path, 300) < 1
    assert all(claimed >= true for _, true, claimed in doors["solver_figure"](tmp_path))
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in (DOCS / "_static").glob("door_*.svg")}
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    texts = "".join(one.read_text(encoding="utf-8") for one in pages)
    assert all(texts.count(f"_static/{name})") == 1 for name in drawn)


def seeds_a_release(source: str) -> bool:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return any(
        isinstance(call.func, ast.Name)
        and call.func.id in ("PrivateTwoStageERM", "PrivateEffect", "PrivateRule")
        and any(word.arg == "seed" for word in call.keywords)
        for call in calls
    )


def test_tutorials_say_what_a_seed_does():
    seeded = []
    for name in TUTORIALS:
        sources = [
            code for language, code, _ in steps(f"tutorials/{name}.md") if language == "python"
        ]
        if any(seeds_a_release(source) for source in sources):
            seeded.append(name)
            assert "seeded release carries no privacy guarantee" in " ".join(
                page(f"tutorials/{name}.md").split()
            )
    assert {"first_effect", "first_rule"} <= set(seeded)


RUNNING = [
    "quickstart",
    "domain",
    "tables",
    "guarantee",
    "ledger",
    "theory/calibrations",
    "solving",
]
RUNNING += ["after_release", "which_pipeline"]


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", slow_rows(RUNNING, "which_pipeline"))  # half a minute
def test_python_blocks_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = blocks(f"{name}.md", "python")
    assert sources
    # the same, of smaller simulated datasets
    run(
        [source.replace("=1500", "=500").replace(", 1500,", ", 600,") for source in sources],
        monkeypatch,
    )


@pytest.mark.slow
def test_a_release_composes_inside_opendp(monkeypatch, capsys):
    module = run(blocks("coming_from.md", "python"), monkeypatch)
    assert capsys.readouterr().out == "3.0\n"
    assert (len(module.theta_of_means), len(module.theta_of_rule)) == (2, 2)
    made = module.measurement(module.means, 300, 2)
    assert 1.0 <= made.map(1) <= 1.0 + 1e-15
    assert 3.0 <= made.map(3) <= 3.0 + 1e-15
    # a call fits a copy
    assert not hasattr(module.means, "theta_")
    for changes in ({"budget": Budget(1.0, 1e-6), "noise": "gaussian"}, {"arithmetic": "assumed"}):
        with pytest.raises(AssertionError):
            module.measurement(clone(module.means).set_params(**changes), 300, 2)


def test_the_commands_of_the_quickstart_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in commands("quickstart"):
        done(*words)
    for name in ("releases/average", "treated", "rule"):
        assert json.loads(Path(f"{name}.json").read_text(encoding="utf-8"))["private"]
    assert "study.toml: exists" in refused("demo", "--export", ".")


def test_the_commands_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done("demo", "--export", ".")
    study = blocks("../README.md", "toml")[0]
    Path("study.toml").write_text(study, encoding="utf-8")
    declared = [line for line in study.splitlines() if not line.startswith("#")]
    assert len(declared) == 8
    for words in commands("../README"):
        done(*words)
    assert "Effect of qsmk on wt82_71" in done("show", "releases/effect.json").stdout
    source = blocks("../README.md", "python")[0].partition("\n\ndomain =")[0]
    Path("matching.py").write_text(source, encoding="utf-8")
    assert "V" in done("programs", "matching.py").stdout


def added(file: str) -> str:
    """The file of this name on the page of programs of one's own."""
    (source,) = [
        block for block in blocks("own_programs.md", "python") if block.startswith(f"# {file}\n")
    ]
    return source


def test_the_table_of_checks_names_all_of_them():
    _, table = page("own_programs.md").split("| check |")
    rows = re.findall(r"^\| `([^`]*)` \|", table, re.MULTILINE)
    bases = (FirstStage, WeightsProgram, SecondStage)
    names = {name for base in bases for name in checks_of(base, first=True)}
    assert sorted(rows) == sorted(names)


def test_added_programs_are_solved_and_certified(monkeypatch):
    module = run(
        [added(f"{name}.py") for name in ("stratified_trial", "subgroup_means", "robust")],
        monkeypatch,
    )
    universe = Universe(Domain(1.0, 1.0), 400, 5)
    assert module.robust().stability(universe).V == pytest.approx(44.0, abs=0.05)
    assert module.robust(smoothing=0.02).stability(universe).V == pytest.approx(14.0, abs=0.05)
    rng = np.random.default_rng(0)
    X, a, y = rng.uniform(-1, 1, (50, 2)), rng.integers(0, 2, 50), rng.uniform(-1, 1, 50)
    records = Domain(1.5, 1.0).records(X, a, y)
    first = module.stratified_trial(low=0.3, high=0.6).instance(records)
    weights = solve(first).value
    second = module.subgroup_means().instance(
        records, weights, gamma=0.01, noise=rng.normal(size=4)
    )
    for instance in (first, second):
        values = [
            solve(instance, solver=name).value for name in ("newton", "clarabel", "scs", "osqp")
        ]
        for value in values[1:]:
            np.testing.assert_allclose(value, values[0], rtol=1e-8, atol=1e-8)


def test_added_first_stage_moves_as_stated(monkeypatch):
    module = run([added("stratified_trial.py")], monkeypatch)
    program, domain = (
        module.stratified_trial(low=0.3, high=0.8, least=1.25, most=5.0),
        Domain(1.0, 1.0),
    )
    n = 20
    X = np.full((n, 1), 0.5)
    X[0] = -0.5
    # probabilities 0.8 for everyone but record 0, whose treatment has probability 0.3 or 0.2
    most = np.ones(n, dtype=int)
    heavy = solve(program.instance(domain.records(X, most, np.zeros(n)))).value
    flipped = most.copy()
    flipped[0] = 0
    X[0] = 0.5
    heavier = solve(program.instance(domain.records(X, flipped, np.zeros(n)))).value
    moved = float(np.sum(np.abs(heavy - heavier)) + 2 * min(heavy[0], heavier[0]))
    bound = program.stability(Universe(domain, n, 2)).V
    assert moved <= bound
    assert moved == pytest.approx(bound, rel=1e-6)


def test_the_study_of_its_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source, chosen, files, other = blocks("study.md", "toml")
    cells = blocks("tables.md", "toml")[1]
    Path("cells.toml").write_text(
        cells.replace("[cells]", source[: source.index("[budget]")] + "[cells]")
    )
    assert len(load_domain("cells.toml").codebook.eligible) == 3
    Path("other.toml").write_text(source + other, encoding="utf-8")
    assert read_study("other.toml").questions[1].domain.outcome_bound == 10.0
    columns = chosen.replace("age", "dose")
    Path("matching.py").write_text(program_template("matching", "exponential"), encoding="utf-8")
    Path("loss.py").write_text(program_template("own_loss", "loss"), encoding="utf-8")
    Path("target.csv").write_text("severity,dose\n0.5,1\n0.2,2\n", encoding="utf-8")
    before = source.partition("[[two_stage]]")[0]
    Path("files.toml").write_text(columns + before + files, encoding="utf-8")
    stages = [
        question.settings["first_stage"] for question in read_study("files.toml").questions[2:]
    ]
    assert [stage.name for stage in stages] == ["matching", "kernel_mean_matching"]
    np.testing.assert_array_equal(stages[1].target.X, [[1, 0.5], [2, 0.2]])
    Path("study.toml").write_text(source, encoding="utf-8")
    rng = np.random.default_rng(0)
    rows = np.column_stack(
        [rng.normal(size=(300, 2)), rng.integers(0, 2, 300), rng.normal(size=300)]
    )
    np.savetxt("data.csv", rows, delimiter=",", header="dose,severity,a,y", comments="")
    for line in commands("study"):
        done(*(file for word in line for file in sorted(map(str, Path().glob(word))) or [word]))
    assert sorted(path.name for path in Path("releases").iterdir()) == [
        "average.json",
        "rule.json",
        "two_stage.json",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="needs R")
def test_the_study_of_its_page_runs_from_r(tmp_path):
    frame = (
        "frame <- data.frame(dose = c(NA, 1:299) %% 4L, severity = 1, a = 0:1, y = rnorm(300))\n"
    )
    call = partial(subprocess.run, cwd=tmp_path, capture_output=True, text=True)
    if call(["Rscript", "-e", "library(reticulate)"]).returncode:
        pytest.skip("needs reticulate")
    (tmp_path / "study.toml").write_text(blocks("study.md", "toml")[0], encoding="utf-8")
    (tmp_path / "page.R").write_text(frame + blocks("study.md", "r")[0], encoding="utf-8")
    Ledger(tmp_path / "book.db").declare("trial", Budget(5.0))
    told = call(["Rscript", "page.R"], env=os.environ | {"RETICULATE_PYTHON": sys.executable})
    assert "Effect of a on y" in told.stdout, told.stderr
    assert (tmp_path / "data.csv").read_text().splitlines()[1].startswith(",1,0,")
    assert read_release((tmp_path / "average.json").read_text(), EffectRelease).private
    assert Ledger(tmp_path / "book.db").account("trial").spent.epsilon == pytest.approx(3.0)


@pytest.mark.parametrize("name", ["theory/calibrations", "findings"])
def test_commands_without_data_run(name):
    shown = commands(name)
    assert shown
    for words in shown:
        done(*words)


def test_commands_of_a_design_are_commands():
    """They take minutes: here their options are read."""
    for command, *words in commands("which_pipeline"):
        given = [{"N": "9", "E": "1"}.get(word, word) for word in words]
        assert command == "design"
        read = main.commands[command].make_context(command, given).params
        assert read["study"] in ("study.toml", "domain.toml")
        assert isinstance(read["n_samples"], int)
    options = {option for parameter in main.commands["design"].params for option in parameter.opts}
    assert (
        set(re.findall(r"^\| `(--[\w-]+)`", page("which_pipeline.md"), flags=re.MULTILINE))
        <= options
    )


@pytest.mark.slow
def test_the_scheme_of_its_page_is_tried(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    declared, python, _ = blocks("from_scheme_to_effect.md", "python")
    Path("mine.py").write_text(declared, encoding="utf-8")
    words = commands("from_scheme_to_effect")[0]
    text = done(*words, "--n", "60", "--n-features", "2").stdout
    shown = blocks("from_scheme_to_effect.md", "text")[0]
    rows = [re.findall(r"ridge \S+, cap \S+", one) for one in (text, shown)]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 12
    run([declared, python], monkeypatch)
    assert re.fullmatch(r"\w+ \{.*\} V = [\d.]+, 0\.\d\d left\n", capsys.readouterr().out)


def test_the_effect_of_its_page_is_released_and_verified(tmp_path, monkeypatch):
    """Numbers aside, as noise is drawn anew, the release says what the page quotes of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "99")
    (study,) = blocks("from_scheme_to_effect.md", "toml")
    Path("study.toml").write_text(study, encoding="utf-8")
    run(blocks("from_scheme_to_effect.md", "python")[-1:], monkeypatch)
    _, release, show, verify, audit = commands("from_scheme_to_effect")
    table, begins, rests, audited = blocks("from_scheme_to_effect.md", "text")
    assert "\n".join(study.splitlines()[-2:]).split("weights = ")[1] in table
    done(*release, "--seed", "1")
    plain = [
        re.sub(r"\s+", " ", _NUMBER.sub("#", text)).strip()
        for text in (done(*show).stdout, begins, rests)
    ]
    said = plain[0].replace(": NOT PRIVATE: SEEDED NOISE", "", 1)
    assert plain[1] in said
    assert plain[2] in said
    assert "Verified" in done(*verify).stdout
    place = audit.index("--solves") + 1
    few = done(*audit[:place], "5", *audit[place + 1 :]).stdout
    assert audited.splitlines()[0] in few
    assert "13.8771" in few


@pytest.mark.slow
def test_the_table_of_its_page_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "99")
    declared = blocks("from_scheme_to_effect.md", "python")[0]
    Path("mine.py").write_text(declared, encoding="utf-8")
    first, *_, audit = commands("from_scheme_to_effect")
    table, *_, audited = blocks("from_scheme_to_effect.md", "text")
    assert agree(done(*first).stdout, table)
    shown = done(*audit).stdout.splitlines()[: len(audited.splitlines())]
    assert agree("\n".join(shown), audited)


def test_every_calibration_is_explained():
    listed = re.findall(r'^\| `"([\w-]+)"`', page("theory/calibrations.md"), flags=re.MULTILINE)
    assert set(listed) == set(NAMES)


def test_findings_name_tests_that_exist():
    named = set(re.findall(r"`(tests/[\w/]+(?:\.py)?)`", page("findings.md")))
    assert len(named) >= 6
    assert [path for path in named if not (DOCS.parent / path).exists()] == []
    files = {
        f"tests/findings/{path.name}" for path in (DOCS.parent / "tests/findings").glob("test_*.py")
    }
    assert files <= named


def test_statements_of_the_paper_name_functions_that_exist():
    for name in re.findall(r"`(paper_\w+)`", page("findings.md")):
        assert callable(getattr(paper, name, None)), name


def test_every_program_is_shown_from_its_class_or_scheme():
    sections = re.findall(
        r"^### `(\w+)`$(.*?)(?=^##)", page("programs.md"), flags=re.MULTILINE | re.DOTALL
    )
    directive = re.compile(r"^\.\. auto(?:class|function):: (\S+)$", flags=re.MULTILINE)
    shown = {name: directive.findall(text) for name, text in sections}
    assert shown == {
        name: [f"{kind.__module__}.{kind.__qualname__}"] for name, kind in programs().items()
    }


def test_every_field_is_explained():
    made = runpy.run_path(str(DOCS / "reference.py"))["releases"]
    text = "\n".join(made())
    for kind in (Release, EffectRelease, RuleRelease, release.Guarantee, release.StepStatement):
        for field in fields(kind):
            assert f"| `{field.name}` |" in text, field.name
    solving = page("solving.md")
    for field in [field.name for field in fields(Certificate)]:
        assert f"| `{field}` |" in solving, field
    for solver in SOLVERS:
        assert f"| `{solver}` |" in solving
    for standing in Standing:
        assert f"`{standing.value}`" in page("guarantee.md")


def test_every_command_is_in_the_reference():
    made = runpy.run_path(str(DOCS / "reference.py"))["commands"]
    text = "\n".join(made())
    for name, command in main.commands.items():
        assert f"## `dp2erm {name}`" in text
        for option in command.params:
            shown = isinstance(option, click.Option) and not option.hidden
            assert not shown or "--help-all" in option.opts or option.opts[0] in text


#: By the word that a row begins with: the bound at its numbers.
BOUNDS = {
    "logistic": lambda n, ridge, radius, trim: logistic_propensity(n, 1.0, ridge, radius, trim),
    "paper scaling": partial(entropy_balancing_paper_scaling, refined=False),
}
ROWS = re.findall(
    rf"^\| ((?:{'|'.join(BOUNDS)}) .*) \|$",
    page("theory.md") + page("theory/schemes.md"),
    flags=re.MULTILINE,
)


def test_every_bound_has_its_rows():
    assert len(ROWS) >= 8
    assert {row.split(" |")[0] for row in ROWS} == set(BOUNDS)


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("row", ROWS)
def test_reference_values(row):
    kind, n, *numbers, value = (cell.strip() for cell in row.split("|"))
    numbers = [int(one) if one.isdigit() else float(one or math.nan) for one in numbers]
    assert pytest.approx(float(value), rel=0.01) == BOUNDS[kind](int(n), *numbers).V


@pytest.mark.slow
def test_the_tutorial_on_schemes_shows_what_the_command_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = blocks("tutorials/add_a_scheme.md", "python")[0]
    assert len(source.splitlines()) < 60
    Path("matching.py").write_text(source, encoding="utf-8")
    shown = blocks("tutorials/add_a_scheme.md", "text")[2]
    for outcome in json.loads(done("check-program", "matching.py", "--json").stdout)[0]["outcomes"]:
        assert re.search(
            rf"^  {outcome['status']} +{outcome['check']}: ", shown, flags=re.MULTILINE
        ), outcome
