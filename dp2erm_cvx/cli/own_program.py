"""Programs of one's own: a template to edit, its checks, and ``FILE.py:CLASS`` in place of a name."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, json_option
from dp2erm_cvx.cli.screen import console, print_json, progress
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.conformance import ConformanceReport
    from dp2erm_cvx.program import Program
    from dp2erm_cvx.solve import Solver


KINDS = ("exponential", "quadratic", "direct", "loss")


@click.command("new-program", short_help="Write the file of a new program from a template.")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    required=True,
    help="Weights: exponential, of a fitted coefficient; quadratic, by a ridged QP; direct, by a program of "
    "quadratics and norms. loss: a second stage.",
)
@click.option("--output", metavar="FILE.py", help="[NAME.py]")
def new_program_command(name: str, kind: str, output: str | None) -> None:
    """Write NAME.py, a complete program to edit: its objective, its constants and its theorem."""
    from dp2erm_cvx.conformance import TEMPLATES, program_template
    from dp2erm_cvx.registry import available

    if name in available():
        raise DeclarationError(f"a program named {name!r} is installed already: choose another name")
    text = program_template(name, kind)
    place = Path(output or f"{name}.py")
    if place.suffix != ".py":
        raise DeclarationError(f"{place}: a program is a file that ends in .py: choose another --output")
    _refuse_shadow(place)
    try:
        with place.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise DeclarationError(f"{place}: exists already; choose another --output") from None
    except OSError as error:
        raise DeclarationError(f"{place}: cannot be written: {error.strerror or error}") from None
    click.echo(f"{place}: {TEMPLATES[kind]}")
    click.echo(f"Next: edit it, then dp2erm check-program {place}")


def _refuse_shadow(place: Path) -> None:
    """A file called numpy.py would be imported in place of NumPy by every program of its folder."""
    module = place.stem
    shadows = module in sys.stdlib_module_names
    if not shadows and module.isidentifier():
        spec = importlib.util.find_spec(module)
        # a file of the current folder shadows nothing but itself
        shadows = bool(spec and spec.origin and os.path.dirname(spec.origin) != os.getcwd())
    if shadows:
        raise DeclarationError(f"{place}: would hide the installed module {module!r}: choose another name")


_STYLES = {"passed": "green", "failed": "bold red", "noted": "yellow"}


@click.command("check-program", short_help="Run the conformance suite on a program's file.")
@click.argument("program", metavar="FILE.py|NAME")
@click.option("--solves", type=Number(), default=20_000, help="Neighbors of the audit, per settings.")
@click.option("--seconds", type=Number(), help="End each audit after so long at the latest.")
@click.option("--seed", type=Number(), default=0, help="Seed of the searches.")
@json_option
def check_program_command(program: str, solves: int, seconds: float | None, seed: int, as_json: bool) -> int:
    """Check the programs of a file, or a registered one: exit code 1 where a check fails.

    Statement, DPP, agreement of all solvers within their certificates, feasibility on adversarial data,
    strong convexity, fixed feasible set, declared constants and bound against searches for violations. A
    search refutes and never proves.
    """
    from dp2erm_cvx import conformance
    from dp2erm_cvx.audit.search import SearchPlan

    search = SearchPlan(whole_number("--solves", solves, at_least=1), seconds, seed)
    classes = conformance.load_program(program)
    reports: list[ConformanceReport] = []
    with progress("checking") as bar:
        task = bar.add_task("checking", total=None)
        for cls in classes:

            def show(done: str, name: str = getattr(cls, "name", cls.__name__)) -> None:
                bar.update(task, description=f"{name}: {done}")

            reports += conformance.check_program(cls, search=search, done=show)
    if as_json:
        print_json([report.to_dict() for report in reports])
    else:
        for report in reports:
            _print(report)
    return 0 if all(report.passed for report in reports) else 1


def _print(report: ConformanceReport) -> None:
    from rich.table import Table
    from rich.text import Text

    screen = console()
    settings = ", ".join(f"{name}={value}" for name, value in report.settings.items()) or "no settings"
    screen.print(f"{report.program} ({settings})", style="bold")
    screen.print(f"  {report.kind}: {report.proved}")
    table = Table.grid(padding=(0, 2))
    for outcome in report.outcomes:
        word = Text(f"  {outcome.status.value}", style=_STYLES[outcome.status.value])
        table.add_row(word, outcome.check, outcome.detail)
    screen.print(table)
    screen.print(f"  {report.conclusion}")
    screen.print()


_FILE = re.compile(r"(?P<path>.*\.py)(:(?P<chosen>\w*))?", re.DOTALL)

_OPTIONS = {"first": "--program", "second": "--second-stage"}


def known_name(text: str, stage: str | None = None) -> str:
    """The name that ``text`` stands for, which it is itself unless it is a file.

    ``stage`` is "first" or "second", None where either will do. A file is executed, and its program can be
    used by name until the command ends. Raises ProgramError where it holds none of that stage, or several
    without a choice.
    """
    match = _FILE.fullmatch(text)
    if match is None:
        return text
    from dp2erm_cvx.registry import known_meanwhile

    cls = _chosen(match["path"], match["chosen"], stage)
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not dataclasses.is_dataclass(cls):
        raise ProgramError(f"{match['path']}: {cls.__name__} has to be a frozen dataclass with a name")
    send_by_value(cls)
    click.get_current_context().with_resource(known_meanwhile(cls))
    return name


def known_solver(text: str) -> str | Solver:
    """A solver by its name, or ``FILE.py:NAME`` as a solver of its own. Raises ProgramError, SolverError."""
    from dp2erm_cvx.solve import OwnSolver, solver_by_name

    if ":" not in text:
        solver_by_name(text)
        return text
    from dp2erm_cvx.conformance.files import callable_of

    function = callable_of(text)
    if text.partition(":")[0].endswith(".py"):
        send_by_value(function)
    return OwnSolver(function, text.rpartition(":")[2])


def _chosen(path: str, chosen: str | None, stage: str | None) -> type[Program]:
    from dp2erm_cvx.conformance import programs_of_file
    from dp2erm_cvx.program import FirstStage

    by_stage: dict[str, dict[str, type[Program]]] = {"first": {}, "second": {}}
    for cls in programs_of_file(path):
        by_stage["first" if issubclass(cls, FirstStage) else "second"][cls.__name__] = cls
    fitting = by_stage["first"] | by_stage["second"] if stage is None else by_stage[stage]
    what = "programs" if stage is None else f"{stage} stages"
    if not fitting:
        (other,) = {"first", "second"} - {stage}
        raise ProgramError(
            f"{path}: holds no {stage} stage; {', '.join(by_stage[other])} goes with {_OPTIONS[other]}"
        )
    if chosen is None and len(fitting) > 1:
        listed = ", ".join(f"{path}:{name}" for name in fitting)
        raise ProgramError(f"{path}: holds {len(fitting)} {what}: choose one of {listed}")
    if chosen is None:
        return next(iter(fitting.values()))
    if chosen not in fitting:
        raise ProgramError(
            f"{path}: holds no {what.removesuffix('s')} {chosen!r}; it has {', '.join(fitting)}"
        )
    return fitting[chosen]


def send_by_value(named: Callable[..., Any]) -> None:
    """Other processes cannot import a file that is not installed: joblib sends them what it holds."""
    inside = "joblib.externals.cloudpickle"  # which newer versions of joblib import from elsewhere
    pickler = importlib.import_module(inside if importlib.util.find_spec(inside) else "cloudpickle")
    pickler.register_pickle_by_value(sys.modules[named.__module__])
