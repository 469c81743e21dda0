"""``dp2erm new-program``: the file of a program of one's own, complete and ready to be edited."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import click

from dp2erm_cvx.errors import DeclarationError

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
