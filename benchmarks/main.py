"""The command: measure, print, keep, and put the tables into the page of the documentation."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import Any

import click
import pandas as pd

from benchmarks.machine import described, startup
from benchmarks.measure import Row, measure
from benchmarks.scale import readings
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
    read = readings(quick) if only in "readings" else []
    starts = startup(3 if quick else 11)
    text = tables(rows, read, starts)
    click.echo(text)
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {"machine": described(), "rows": [row.to_dict() for row in rows]}
    facts |= {"readings": read, "startup": starts}
    (folder / "benchmarks.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if docs is not None:
        page = Path(docs)
        before, rest = page.read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def tables(rows: list[Row], read: list[dict[str, Any]], starts: dict[str, float]) -> str:
    """Markdown: one table per work, neighbors of many records, and the start of the command line."""
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
    shown = [
        {
            "program": row["program"],
            "n": f"{row['n']:,}",
            "one solve": _time(row["solve"]),
            "shared by all neighbors": _time(row["shared"]),
            "one neighbor": _time(row["neighbor"]),
            "over one solve": f"{row['neighbor'] / row['solve']:.3f}",
            "certified error": f"{row['error']:.0e}",
        }
        for row in read
    ]
    if shown:
        table = pd.DataFrame(shown).to_markdown(index=False, disable_numparse=True)
        parts += ["## Movements of neighbors, 128 at a time", table]
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
