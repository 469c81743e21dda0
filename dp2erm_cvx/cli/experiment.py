"""``dp2erm experiment``: run an experiment from its design, and draw its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, output_dir_option
from dp2erm_cvx.cli.screen import console, print_json, progress, stages, write_text
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    import pandas as pd

#: The modules are imported when one is run.
NAMES = ("benchmark", "confounded", "effects", "nhefs", "rates", "simulation", "twins")
#: Stands for the design as it is declared, without a variant.
_WHOLE = "full"


@click.command("experiment", short_help="Run an experiment of the documentation.")
@click.argument("name", type=click.Choice(NAMES))
@click.option("--quick", "variant", flag_value="quick", help="Seconds instead of minutes.")
@click.option("--full", "variant", flag_value=_WHOLE, help="As declared: minutes to half an hour.")
@click.option("--variant", metavar="NAME", help="Another variant of the design.")
@click.option("--design", metavar="FILE.toml", help="A design of your own [that of the package].")
@click.option("--workers", type=Number(), default=1, help="Processes; -1 for all cores.")
@click.option(
    "--data", metavar="FILE", help="twins, benchmark: Twin_Data.csv.gz, which is not part of the package."
)
@click.option("--cell", metavar="KEY", help="Run one cell alone: scenario=linear,replicate=3.")
@output_dir_option("Results go to a folder of it with the name of the experiment and the variant.")
def experiment_command(name: str, variant: str | None, cell: str | None, **options: Any) -> None:
    """Run the cells that are missing, keep each as it finishes, and write a table and figures.

    A run that was stopped goes on where it was, tuning included; a folder of another design or of other code
    is refused. Nothing but the design decides a number. Noise is seeded, and nothing is released.
    """
    from dp2erm_cvx.studies import design_path, experiment_by_name
    from dp2erm_cvx.studies.engine import Store, load_design, run, run_one

    design, data = options["design"], options["data"]
    if variant is None and design is None:
        raise DeclarationError("choose --quick or --full, or --variant NAME, or --design FILE.toml")
    variant = None if variant == _WHOLE else variant
    chosen = experiment_by_name(name)
    if data is not None and not chosen.design.places:
        raise DeclarationError(f"--data: {name} reads no file")
    given = {} if data is None else dict.fromkeys(chosen.design.places, data)
    declared = load_design(chosen.design, design or design_path(name), variant, **given)
    folder = Path(options["output_dir"]) / "-".join(filter(None, (name, variant)))
    with progress(name, total=None) as bar:
        how: dict[str, Any] = {"workers": options["workers"], "progress": stages(bar)}
        if cell is not None:
            rows = run_one(chosen, declared, cell, folder=folder, **how)
        else:
            table = run(chosen, declared, folder, **how)
    if cell is not None:
        print_json(rows)
    else:
        shared = Store(folder, name, chosen.opened(declared)).shared()
        _show(chosen, declared, table, shared, folder)


def _show(chosen: Any, declared: Any, table: pd.DataFrame, shared: dict[str, Any], folder: Path) -> None:
    from dp2erm_cvx.plotting.studies import figures_of
    from dp2erm_cvx.studies.engine import Listing

    screen = console()
    headers, lines = chosen.summary_table(declared, table)
    first = Listing("", headers, lines, chosen.text_columns)
    text = []
    for listing in (first, *chosen.listings(declared, table, shared)):
        if listing.title:
            screen.print(f"\n{listing.title}\n")
            text += ["", listing.title, ""]
        shown = grid(*listing.headers, left=listing.text_columns)
        for line in listing.lines:
            shown.add_row(*line)
        screen.print(shown)
        rule = ["---"] * len(listing.headers)
        text += ["| " + " | ".join(line) + " |" for line in (listing.headers, rule, *listing.lines)]
    write_text(folder / "summary.md", "\n".join(text) + "\n")
    screen.print(f"{len(table):,} rows: {folder / 'results.parquet'}; this table: {folder / 'summary.md'}")
    for path in figures_of(chosen.name, table, folder):
        screen.print(f"Figure: {path}")
