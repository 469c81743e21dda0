"""The command: measure, print, keep, and put the tables into the page of the documentation."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path

import click
import pandas as pd

from benchmarks.machine import described, startup
from benchmarks.measure import Row, measure
from benchmarks.work import works

BEGIN, END = "<!-- benchmark tables: begin -->", "<!-- benchmark tables: end -->"


@click.command()
@click.option("--quick", is_flag=True, help="Small sizes, seconds in all: shows that everything runs.")
@click.option("--only", default="", metavar="TEXT", help="Only works whose label holds this text.")
@click.option("--output-dir", default="output", show_default=True, metavar="FOLDER")
@click.option("--docs", metavar="PAGE.md", help="Replace the tables between the marks of this page.")
def main(quick: bool, only: str, output_dir: str, docs: str | None) -> None:
    """Time the library beside what a researcher would write, one thread, on the same neighbors."""
    rows: list[Row] = []
    for work in works(quick):
        if only in work.label:
            click.echo(work.label, err=True)
            rows += measure(work)
    starts = startup(3 if quick else 11)
    text = tables(rows, starts)
    click.echo(text)
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"machine": described(), "rows": [row.to_dict() for row in rows], "startup": starts}
    (folder / "benchmarks.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if docs is not None:
        page = Path(docs)
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def tables(rows: list[Row], starts: dict[str, float]) -> str:
    """Markdown: one table per work, and the start of the command line."""
    parts = [f"Measured on: {described()}."]
    for name in dict.fromkeys(row.work for row in rows):
        shown = [
            {
                "n": f"{row.n_samples:,}",
                "contender": row.contender,
                "per solve": "" if isnan(row.seconds) else _time(row.seconds),
                "times the naive speed": "" if isnan(row.ratio) else f"{float(f'{row.ratio:.3g}'):,.7g}",
                "certified error": row.note if row.error is None else f"{row.error:.0e}",
                "over the machine's limit": "" if row.limit is None else f"{row.limit:.1f}",
            }
            for row in rows
            if row.work == name
        ]
        parts += [f"## {name}", pd.DataFrame(shown).to_markdown(index=False, disable_numparse=True)]
    unit = starts["python -c 'import cvxpy'"]
    shown = [
        {"process": f"`{name}`", "CPU time": _time(taken), "over importing cvxpy": f"{taken / unit:.2f}"}
        for name, taken in starts.items()
    ]
    parts += ["## Start", pd.DataFrame(shown).to_markdown(index=False, disable_numparse=True)]
    return "\n\n".join(parts)


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
