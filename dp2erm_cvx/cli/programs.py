"""``dp2erm programs``: what is registered, and which theorem covers it."""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, json_option
from dp2erm_cvx.cli.screen import console, print_json, progress

if TYPE_CHECKING:
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
    from rich.table import Table

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
            table = Table.grid(padding=(0, 2))
            settings = [f"{name}={text}" for name, text in program["settings"].items()]
            table.add_row("  formula", program["formula"])
            table.add_row("  cone", program["cone"])
            table.add_row("  settings", ", ".join(settings) or "none")
            if program["kind"]:
                table.add_row("  kind", program["kind"])
            table.add_row("  theorem", program["theorem"])
            table.add_row("  neighbors", ", ".join(program["relations"]) or "none: not private")
            table.add_row("  source", program["citation"])
            screen.print(table)
            screen.print()
    screen.print(
        "a: treatment, x: covariates with norm at most M, z = (2a-1)x, y: centered outcome within M', "
        "g: balance functions with norm at most G, b_i: g(x_i) in the block of its arm, t: its target, "
        "m_c: mean of kernel features in arm c, mu: ridge, R: radius, F: trim, b: noise"
    )
    screen.print("Settings with defaults: dp2erm fit ... --program NAME --set SETTING=VALUE")


def _describe(name: str, as_json: bool, universe: Universe) -> None:
    from rich.table import Table

    from dp2erm_cvx.conformance import load_program
    from dp2erm_cvx.program.weights import describe

    described = {cls.name: describe(cls(), universe) for cls in load_program(name)}
    if as_json:
        print_json({name: [list(row) for row in rows] for name, rows in described.items()})
        return
    screen = console()
    for title, rows in described.items():
        screen.print(title, style="bold")
        table = Table.grid(padding=(0, 2))
        for label, text in rows:
            table.add_row(f"  {label}", text)
        screen.print(table)


def program_facts(cls: type[Program]) -> dict[str, Any]:
    """What a program class declares about itself, as plain JSON types."""
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
