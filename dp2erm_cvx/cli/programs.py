"""Programs by name or from a file, with their settings; templates and checks of own files."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli.screen import console, print_json, progress, writing
from dp2erm_cvx.display import pairs
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.conformance import CheckOutcome, ConformanceReport
    from dp2erm_cvx.program import FirstStage, SecondStage
    from dp2erm_cvx.program.stage import Registered
    from dp2erm_cvx.solve import Solver
    from dp2erm_cvx.study import Question, RecordsFile, StudyFile


#: Covariates or simulated records that a command may be asked for: more would only fill the memory.
MOST = 1_000_000


@dataclass(frozen=True)
class Examined:
    """What a command examines.

    Parameters
    ----------
    records
        What is public about records.
    first
        The first stage that is named, or that of the study's question; None where neither is.
    second
        The second stage of that question, if it is asked about.
    """

    records: RecordsFile
    first: FirstStage | None
    second: SecondStage | None = None


def read_examined(
    options: Mapping[str, Any], program: str | None, assumed: Mapping[str, float] | None = None
) -> Examined:
    """The records and the first stage that ``--study``, ``--set`` and ``--program`` declare.

    Parameters
    ----------
    options
        Of the command: ``study`` and ``changes``.
    program
        The first stage by its name or file; None for that of the only two-stage question of the
        study.
    assumed
        What is taken of records where nothing declares it.

    Raises
    ------
    DeclarationError
        In one line.
    """
    from dp2erm_cvx.study import RecordsFile, declared_records

    path = options["study"]
    changes = options["changes"]
    if program is not None:
        changes_of_records, changes_of_settings = split_changes(changes)
        records = declared_records(path, changes_of_records, assumed)
        return Examined(records, first_stage(program, changes_of_settings, records))
    if path is not None:
        study, question = _two_stage_question(path, changes)
        if study is not None and question is not None:
            model = study.models()[question.name]
            assert isinstance(model, library.PrivateTwoStageERM)
            assert isinstance(question.domain, library.Domain)  # only an effect releases ranges
            records = RecordsFile(question.domain, study.layout, question.covariates)
            return Examined(records, model.resolved_first_stage(), model.resolved_second_stage())
    return Examined(declared_records(path, changes, assumed), None)


def split_changes(changes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Changes of what is declared of records, and the settings of a program."""
    from dp2erm_cvx.study import is_about_records

    of_records = [text for text in changes if is_about_records(text)]
    of_settings = [text for text in changes if text not in of_records]
    return of_records, of_settings


def _two_stage_question(
    path: str, changes: Sequence[str]
) -> tuple[StudyFile | None, Question | None]:
    """The study of a file and its only two-stage question; None where it asks none.

    Raises DeclarationError where it asks several.
    """
    from dp2erm_cvx.data.domain_file import tables_of_file
    from dp2erm_cvx.program.registry import known_meanwhile
    from dp2erm_cvx.study import read_study

    if "two_stage" not in tables_of_file(path):
        return None, None
    study = read_study(path, changes)
    for program in study.programs:
        click.get_current_context().with_resource(known_meanwhile(program))
    asked = [question for question in study.questions if question.kind == "two_stage"]
    if len(asked) > 1:
        names = ", ".join(question.name for question in asked)
        raise DeclarationError(
            f"{path}: asks {len(asked)} two-stage questions ({names}): give --program"
        )
    return study, asked[0]


def read_settings(changes: Sequence[str], records: RecordsFile | None) -> dict[str, Any]:
    """Settings of a program from the texts of ``--set``.

    Parameters
    ----------
    changes
        Texts NAME=VALUE or program.NAME=VALUE.
    records
        What is public about records, whose covariates the file of a ``target`` has.

    Raises
    ------
    DeclarationError
        For a text of another form, and for any invalid value.
    """
    from dp2erm_cvx.study import parsed_change

    settings: dict[str, Any] = {}
    for text in changes:
        keys, value = parsed_change(text)
        *table, name = keys
        if table not in ([], ["program"]):
            raise DeclarationError(f"{text!r}: must be NAME=VALUE or program.NAME=VALUE")
        settings[name.replace("-", "_")] = value
    return made_settings(settings, records)


def made_settings(written: Mapping[str, Any], records: RecordsFile | None) -> dict[str, Any]:
    """Settings of a program from what is written of them.

    Parameters
    ----------
    written
        Values by the name of the setting. That of a ``target`` is the path of a CSV file.
    records
        What is public about records, whose covariates this file has.

    Raises
    ------
    DeclarationError
        For any invalid value.
    """
    from dp2erm_cvx.study import public_sample, stage_settings

    settings = dict(written)
    path = settings.get("target")
    if isinstance(path, str):
        if records is None:
            raise DeclarationError(
                "target: needs a --study or named ranges, whose covariates it has"
            )
        columns = records.domain.columns or records.covariates
        settings["target"] = public_sample(path, records.layout, records.domain, columns)
    return stage_settings(settings)


def first_stage(text: str, changes: Sequence[str], records: RecordsFile | None) -> FirstStage:
    """The first stage of that name, or in that file, with these settings."""
    from dp2erm_cvx.program import registry

    name = known_name(text, "first")  # a file is read, and known until the command ends
    settings = read_settings(changes, records)
    program: FirstStage = registry.build(registry.first_stages(), name, **settings)
    return program


def second_stage_of(text: str) -> SecondStage:
    """The second stage of that name, or in that file, with its default settings."""
    from dp2erm_cvx.program import registry

    name = known_name(text, "second")  # a file is read, and known until the command ends
    program: SecondStage = registry.build(registry.second_stages(), name)
    return program


def known_name(text: str, stage: str | None = None) -> str:
    """The name of a program, which can be used by it until the command ends.

    Parameters
    ----------
    text
        The name itself, or a file, which is executed.
    stage
        "first" or "second"; None where either will do.

    Raises
    ------
    ProgramError
        Where a file holds no program of that stage, or several without a choice.
    """
    from dp2erm_cvx.program.files import file_of, program_of_file
    from dp2erm_cvx.program.registry import known_meanwhile

    place = file_of(text)
    if place is None:
        return text
    path, name = place
    program = program_of_file(path, name, stage)
    click.get_current_context().with_resource(known_meanwhile(program))
    return program.name


def read_programs(files: Sequence[str]) -> None:
    """Execute files of programs, which are known by their names until the command ends.

    Parameters
    ----------
    files
        Paths of FILE.py, each with any number of programs of either stage.

    Raises
    ------
    DeclarationError
        For another path, and for two programs of one name.
    ProgramError
        Where a file cannot be executed or holds no program.
    """
    from dp2erm_cvx.program.files import programs_of_file
    from dp2erm_cvx.program.registry import known_meanwhile

    context = click.get_current_context()
    for path in files:
        if not path.endswith(".py"):
            raise DeclarationError(
                f"--program {path!r}: must be a FILE.py; registered programs are known"
            )
        for program in programs_of_file(path):
            context.with_resource(known_meanwhile(program))


def known_solver(text: str) -> str | Solver:
    """A solver by its name, or ``FILE.py:NAME`` as a solver of its own.

    Raises ProgramError, SolverError.
    """
    from dp2erm_cvx.solve import OwnSolver, solver_by_name

    if ":" not in text:
        solver_by_name(text)
        return text
    from dp2erm_cvx.program.files import callable_of, send_by_value

    function = callable_of(text)
    if text.partition(":")[0].endswith(".py"):
        send_by_value(function)
    return OwnSolver(function, text.rpartition(":")[2])


@click.command("programs", short_help="Registered programs, or what is derived from one.")
@click.argument("chosen", metavar="[FILE.py|NAME]", required=False)
@opt.field_option(
    "data.universe:Universe.n_samples", "--n", "n_samples", type=opt.Number(), default=400
)
@opt.field_option("data.universe:Universe.n_features", "--covariates", type=opt.Number(), default=5)
@opt.field_option("data.domain:Domain.covariate_bound", type=opt.Number(), default=1.0)
@opt.field_option("data.domain:Domain.outcome_bound", type=opt.Number(), default=1.0)
@opt.json_option
def programs_command(
    chosen: str | None, as_json: bool, n_samples: int, covariates: int, **public: float
) -> None:
    """List every registered program, or describe those of a file: form, constants, theorem, V at n.

    Of a FILE.py or a NAME: what it minimizes, what is derived from the declaration, the theorem in
    force, V at n, and what remains assumed. Everything follows from public numbers.
    """
    from dp2erm_cvx.program import registry

    # refused before anything is read
    domain = library.Domain(public["covariate_bound"], public["outcome_bound"])
    universe = library.Universe(domain, n_samples, covariates)
    if chosen is not None:
        _describe(chosen, universe, as_json)
        return
    with progress("collecting programs"):
        listed = [_program_facts(program) for program in registry.programs().values()]
    if as_json:
        print_json(listed)
        return
    screen = console()
    for facts in sorted(listed, key=lambda facts: str(facts["stage"])):
        screen.print(f"{facts['name']}, {facts['stage']} stage", style="bold")
        screen.print(pairs(_program_rows(facts)))
    screen.print(
        "a: treatment, x: covariates with norm at most M, z = (2a-1)x, y: centered outcome within "
        "M', g: balance functions with norm at most G, b_i: g(x_i) in the block of its arm, t: its "
        "target, m_c: mean of kernel features in arm c, mu: ridge, R: radius, F: trim, b: noise"
    )
    screen.print("What each setting is, and what it accepts: dp2erm settings NAME")


def _describe(chosen: str, universe: library.Universe, as_json: bool) -> None:
    """Print what is derived from a program by name, or from those of a file."""
    from dp2erm_cvx.conformance import load_program
    from dp2erm_cvx.program.weights import describe

    described = {program.name: describe(program(), universe) for program in load_program(chosen)}
    if as_json:
        print_json(described)
        return
    screen = console()
    for name, facts in described.items():
        screen.print(name, style="bold")
        screen.print(pairs([(f"  {label}", text) for label, text in facts]))


def _program_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a listing says of a program, line by line."""
    settings = [f"{name}={text}" for name, text in facts["settings"].items()]
    rows = {
        "formula": facts["formula"],
        "kind": facts["kind"],
        "theorem": facts["theorem"],
        "settings": ", ".join(settings) or "none",
        "neighbors": ", ".join(facts["relations"]) or "none: not private",
        "source": facts["citation"],
    }
    return [(f"  {name}", text) for name, text in rows.items() if text]


def _program_facts(program: Registered) -> dict[str, Any]:
    """Declaration of a scheme or a class of programs, as plain JSON types."""
    from dp2erm_cvx.program.files import stage_of
    from dp2erm_cvx.program.stage import fields_of

    defaults_in_words: Any = program.defaults
    kind = getattr(program, "kind", None)
    settings = {}
    for name, field in fields_of(program).items():
        settings[name] = _plain(field.default)
        if field.default is None:
            settings[name] = defaults_in_words.get(name, "none")
    return {
        "name": program.name,
        "stage": stage_of(program),
        "kind": None if kind is None else kind.value,
        "formula": program.formula,
        "settings": settings,
        "theorem": program.theorem,
        "relations": sorted(relation.value for relation in program.relations),
        "citation": program.citation,
    }


def _plain(value: object) -> object:
    """The default of a setting as a plain JSON type."""
    if value is dataclasses.MISSING or value == ():
        return "required"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, str | int | None) else str(value)


@click.command("new-program", short_help="Write the file of a new program from a template.")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["exponential", "quadratic", "direct", "loss"]),
    required=True,
    help="Weights: exponential, of a fitted coefficient; quadratic, a ridged balance of your own "
    "functions; direct, the variable of a convex problem. loss: a second stage.",
)
@click.option("--output", metavar="FILE.py", help="[NAME.py]")
def new_program_command(name: str, kind: str, output: str | None) -> None:
    """Write NAME.py, a complete program to edit: a decorated function."""
    from dp2erm_cvx.conformance import TEMPLATES, program_template
    from dp2erm_cvx.program.registry import available

    if name in available():
        raise DeclarationError(
            f"a program named {name!r} is installed already: choose another name"
        )
    text = program_template(name, kind)
    place = Path(output or f"{name}.py")
    if place.suffix != ".py":
        raise DeclarationError(
            f"{place}: a program is a file that ends in .py: choose another --output"
        )
    if _hides_a_module(place.stem):
        raise DeclarationError(
            f"{place}: hides the installed module {place.stem!r}: choose another name"
        )
    with writing(place), place.open("x", encoding="utf-8") as file:
        file.write(text)
    click.echo(f"{place}: {TEMPLATES[kind]}")
    click.echo(f"Next: edit it, then dp2erm check-program {place}")
    click.echo(f"and dp2erm check DATA --draft study.toml --program {place}")


def _hides_a_module(name: str) -> bool:
    """Whether a file of this name would be imported in place of a module that is installed.

    A file called numpy.py would take the place of NumPy in every program of its folder. A file of
    the current folder hides nothing but itself.
    """
    if name in sys.stdlib_module_names:
        return True
    if not name.isidentifier():
        return False
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        return False
    return os.path.dirname(str(spec.origin)) != os.getcwd()


@click.command("check-program", short_help="Run the conformance suite on a program's file.")
@click.argument("program", metavar="FILE.py|NAME")
@opt.field_option(
    "audit.search:SearchPlan.evaluations", "--solves", type=opt.Number(), default=20_000
)
@opt.field_option("audit.search:SearchPlan.seconds", type=opt.Number())
@opt.field_option("audit.search:SearchPlan.seed", type=opt.Number(), default=0)
@opt.field_option(
    "data.universe:Universe.n_samples", "--n", "n_samples", type=opt.Number(), default=60
)
@opt.json_option
def check_program_command(
    program: str, solves: int, seconds: float | None, seed: int, n_samples: int, as_json: bool
) -> int:
    """Check the programs of a file, or a registered one: exit code 1 where a check fails.

    What its author states by hand is searched for violations: a bound, weights on datasets that no
    public error covers. The rest is derived: nothing to check. It looks at 40 and 500 records and
    at those asked for, at every number times and over 2, 10 and 100, and ends at the first
    violation. A search never proves.
    """
    from dp2erm_cvx import conformance
    from dp2erm_cvx.audit.search import SearchPlan

    search = SearchPlan(whole_number("--solves", solves, at_least=1), seconds, seed)
    n = whole_number("--n", n_samples, at_least=4)
    loaded = conformance.load_program(program)
    reports: list[ConformanceReport] = []
    with progress("checking") as bar:
        (task,) = bar.task_ids

        def show(name: str, outcome: CheckOutcome) -> None:
            bar.update(task, description=f"{name}: {outcome.check}")
            if not as_json:  # at once: the next one may take long
                console().print(str(outcome))

        for checked in loaded:
            show_outcome = partial(show, getattr(checked, "name", checked.__name__))
            for report in conformance.check_program(checked, search=search, done=show_outcome, n=n):
                reports.append(report)
                if not as_json:
                    console().print(f"{report.headline}\n")
    if as_json:
        print_json([report.to_dict() for report in reports])
    return 0 if all(report.passed for report in reports) else 1
