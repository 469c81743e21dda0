"""Time the library beside what a researcher would write, and fill the tables of the page."""

from __future__ import annotations

import json
import os

# one thread, before anything that starts some
for _name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "RAYON"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

from collections.abc import Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import Any

import click
import pandas as pd
from machine import LIGHT, SOLVERS, described, startup
from measure import Row, measure
from neighbors import audit_rates, audits, declared_audits, readings
from whole_fits import LIMITS, PEAK_LIMIT, SLOPE_LIMIT, ScaleRow, draw_growth, measure_scale, slopes
from work import works

BEGIN, END = "<!-- benchmark tables: begin -->", "<!-- benchmark tables: end -->"
SCALE = "Whole fits"


@click.command()
@click.option(
    "--quick", is_flag=True, help="Small sizes, seconds in all: shows that everything runs."
)
@click.option("--only", default="", metavar="TEXT", help="Only works whose label holds this text.")
@click.option("--output-dir", default="output", show_default=True, metavar="FOLDER")
@click.option(
    "--page", metavar="PAGE.md", help="Replace the tables between the marks of this page."
)
@click.option("--figure", metavar="FILE.svg", help="Draw seconds against the number of records.")
@click.option(
    "--most", default=10**6, show_default=True, metavar="N", help="Records of the largest fits."
)
def main(
    quick: bool, only: str, output_dir: str, page: str | None, figure: str | None, most: int
) -> None:
    """Time the library beside what a researcher would write, one thread, on the same neighbors."""
    rows: list[Row] = []
    for work in works(quick):
        if only in work.label:
            click.echo(work.label, err=True)
            rows += measure(work)
    read = readings(quick) if only in "readings" else []
    audited = audits(quick) if only in "audits" else []
    rates = audit_rates(quick) if only in "audits" else []
    declared = declared_audits(quick) if only in "declared" else []
    fits: list[ScaleRow] = []
    if only in SCALE:
        click.echo(SCALE, err=True)
        fits = (
            measure_scale([500, 1000], 1, apart=False) if quick else measure_scale(_sizes(most), 3)
        )
    starts = startup(3 if quick else 11)
    text = tables(rows, fits, [*neighbor_tables(read, audited, rates, declared)], starts)
    click.echo(text)
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if figure is not None and fits:
        draw_growth(fits, figure)
    facts = {"machine": described(), "rows": [row.to_dict() for row in rows]}
    facts |= {
        "scale": [row.to_dict() for row in fits],
        "readings": read,
        "audits": audited,
        "audit rates": rates,
        "declared": declared,
        "startup": starts,
    }
    (folder / "benchmarks.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if page is not None:
        before, rest = Path(page).read_text(encoding="utf-8").split(BEGIN)
        _, after = rest.split(END)
        Path(page).write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def _sizes(most: int) -> list[int]:
    """Powers of ten from 10,000 on."""
    return [10**k for k in range(4, len(str(most)))]


def scale_table(rows: list[ScaleRow]) -> str:
    """Whole fits beside one of scikit-learn; at the largest n their memory and growth as well."""
    grown = slopes(rows)
    largest = max(row.n_samples for row in rows)
    lines = []
    for row in rows:
        has_limit = row.contender in LIMITS
        is_largest = row.n_samples == largest
        lines.append(
            {
                "n": f"{row.n_samples:,}",
                "contender": row.contender,
                "CPU seconds": f"{row.seconds:.3g}",
                "over scikit-learn": f"{row.ratio:.2f}",
                "limit": f"{LIMITS[row.contender]:g}" if has_limit else "",
                "peak over the data": "" if row.peak is None else f"{row.peak:.2f}",
                "limit of the peak": f"{PEAK_LIMIT:g}" if has_limit and is_largest else "",
                "mean gradient": "" if row.gradient is None else f"{row.gradient:.0e}",
                f"slope (limit {SLOPE_LIMIT})": f"{grown[row.contender]:.2f}" if is_largest else "",
            }
        )
    return pd.DataFrame(lines).to_markdown(index=False, disable_numparse=True)


def neighbor_tables(
    read: list[dict[str, Any]],
    audited: list[dict[str, Any]],
    rates: list[dict[str, Any]],
    declared: list[dict[str, Any]],
) -> Iterator[str]:
    """Tables of neighbors: batches, audits, audits beside the batch, and programs of one's own."""
    movements = [
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
    whole = [
        {
            "program": row["program"],
            "n": f"{row['n']:,}",
            "neighbors": f"{row['neighbors']:,}",
            "whole audit": _time(row["seconds"]),
            "largest movement over its bound": f"{row['ratio']:.2g}",
            "certified error": f"{row['error']:.0e}",
            "disagreement over the radii": f"{row['disagreement']:.2g}",
        }
        for row in audited
    ]
    beside = [
        {
            "program": row["program"],
            "n": f"{row['n']:,}",
            "neighbors": f"{row['neighbors']:,}",
            "batch, per CPU second": f"{row['batch']:,.0f}",
            "audit, per CPU second": f"{row['audit']:,.0f}",
            "audit over batch": f"{row['audit'] / row['batch']:.2f}",
            "datasets of the second solver": row["second"],
        }
        for row in rates
    ]
    own = [
        {
            "program": row["program"],
            "n": row["n"],
            "neighbors": f"{row['neighbors']:,}",
            "neighbors per CPU second": f"{row['searched']:,.0f}",
            "full solves per CPU second": f"{row['single']:,.0f}",
            "certified error": f"{row['error']:.0e}",
        }
        for row in declared
    ]
    titled = {
        "Movements of neighbors, 128 at a time": movements,
        "Audits of neighbors": whole,
        "Audits of given data beside the batch": beside,
        "Audits of programs of one's own": own,
    }
    for title, table in titled.items():
        if table:
            yield f"## {title}"
            yield pd.DataFrame(table).to_markdown(index=False, disable_numparse=True)


def tables(
    rows: list[Row], fits: list[ScaleRow], neighbors: Sequence[str], starts: dict[str, float]
) -> str:
    """Markdown tables: one per work, whole fits, neighbors of many records, and starting times."""
    parts = [f"Measured on: {described()}."]
    for name in dict.fromkeys(row.work for row in rows):
        table = [
            {
                "n": f"{row.n_samples:,}",
                "contender": row.contender,
                "per solve": "" if isnan(row.seconds) else _time(row.seconds),
                "times the naive speed": ""
                if isnan(row.ratio)
                else f"{float(f'{row.ratio:.3g}'):,.7g}",
                "certified error": "" if row.error is None else f"{row.error:.0e}",
                "over the machine's limit": "" if row.limit is None else f"{row.limit:.1f}",
            }
            for row in rows
            if row.work == name
        ]
        parts += [f"## {name}", pd.DataFrame(table).to_markdown(index=False, disable_numparse=True)]
    if fits:
        parts += [f"## {SCALE}", scale_table(fits)]
    parts += neighbors
    table = [
        {
            "process": f"`{name}`",
            "CPU time": _time(taken),
            "over importing numpy, scipy.special, pydantic": f"{taken / starts[LIGHT]:.2f}",
            "over importing cvxpy": f"{taken / starts[SOLVERS]:.2f}",
        }
        for name, taken in starts.items()
    ]
    parts += ["## Start", pd.DataFrame(table).to_markdown(index=False, disable_numparse=True)]
    return "\n\n".join(parts)


def _time(seconds: float) -> str:
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


if __name__ == "__main__":
    main()
