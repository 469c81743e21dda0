"""Programs: those that are registered, one of one's own from a template, and its checks."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, json_option
from dp2erm_cvx.cli.screen import console, print_json, progress
from dp2erm_cvx.display import pairs
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.conformance import ConformanceReport
    from dp2erm_cvx.program import Program
    from dp2erm_cvx.universe import Universe


@click.command("programs", short_help="Registered programs, or what is derived from one.")
@click.argument("chosen", metavar="[FILE.py|NAME]", required=False)
@click.option("--n", "n_samples", type=Number(), default=400, help="Number of records.")
@click.option("--covariates", type=Number(), default=5, help="Number of covariates.")
@click.option("--covariate-bound", type=Number(), default=1.0, help="Norm bound M of the covariates.")
@click.option("--outcome-bound", type=Number(), default=1.0, help="Bound M' on the outcome.")
@json_option
def programs_command(
    chosen: str | None, as_json: bool, n_samples: int, covariates: int, **public: float
) -> None:
    """List every registered program, or describe those of a file: form, constants, theorem, V at n.

    Of a FILE.py or a NAME: what it minimizes, what is derived from the declaration, the theorem in force,
    V at n, and what remains assumed. Everything follows from public numbers.
    """
    from dp2erm_cvx import registry
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.universe import Universe

    # refused before anything is read
    universe = Universe(Domain(public["covariate_bound"], public["outcome_bound"]), n_samples, covariates)
    if chosen is not None:
        _describe(chosen, as_json, universe)
        return
    with progress("collecting programs"):
        listed = [program_facts(cls) for cls in registry.programs().values()]
    if as_json:
        print_json(listed)
        return
    screen = console()
    for stage in ("first", "second"):
        screen.print(f"{stage.capitalize()} stage\n", style="bold")
        for program in (program for program in listed if program["stage"] == stage):
            screen.print(program["name"], style="bold")
            settings = [f"{name}={text}" for name, text in program["settings"].items()]
            facts = program | {
                "settings": ", ".join(settings) or "none",
                "neighbors": ", ".join(program["relations"]) or "none: not private",
                "source": program["citation"],
            }
            shown = ("formula", "cone", "settings", "kind", "theorem", "neighbors", "source")
            screen.print(pairs([(f"  {name}", facts[name]) for name in shown if facts[name]]))
            screen.print()
    screen.print(
        "a: treatment, x: covariates with norm at most M, z = (2a-1)x, y: centered outcome within M', "
        "g: balance functions with norm at most G, b_i: g(x_i) in the block of its arm, t: its target, "
        "m_c: mean of kernel features in arm c, mu: ridge, R: radius, F: trim, b: noise"
    )
    screen.print("Settings with defaults: dp2erm fit ... --program NAME --set SETTING=VALUE")


def _describe(name: str, as_json: bool, universe: Universe) -> None:
    from dp2erm_cvx.conformance import load_program
    from dp2erm_cvx.program.weights import describe

    described = {cls.name: describe(cls(), universe) for cls in load_program(name)}
    if as_json:
        print_json({name: [list(row) for row in rows] for name, rows in described.items()})
        return
    screen = console()
    for title, rows in described.items():
        screen.print(title, style="bold")
        screen.print(pairs([(f"  {label}", text) for label, text in rows]))


def program_facts(cls: type[Program]) -> dict[str, Any]:
    """Declaration of a program class, as plain JSON types."""
    from dp2erm_cvx.program import FirstStage

    defaults = {name: known.default for name, known in inspect.signature(cls).parameters.items()}
    return {
        "name": cls.name,
        "stage": "first" if issubclass(cls, FirstStage) else "second",
        "kind": cls.kind.value if issubclass(cls, FirstStage) else None,
        "formula": cls.formula,
        "cone": cls.cone,
        "settings": {
            name: cls.defaults.get(name, "none") if value is None else _plain(value)
            for name, value in defaults.items()
        },
        "theorem": cls.theorem,
        "relations": sorted(relation.value for relation in cls.relations),
        "citation": cls.citation,
    }


def _plain(value: object) -> object:
    if value is inspect.Parameter.empty or value == ():
        return "required"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else repr(value)


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
    """Write NAME.py, a complete program to edit: a decorated function."""
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

    DPP, agreement of all solvers within their certificates, feasibility on adversarial data, strong
    convexity, and the bound against searches for neighbors beyond it. A search refutes and never proves.
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
