"""Put the private rows of a run into the tables of its page.

The command is ``python page_tables.py output/benchmark``. A folder's name says whose results.csv it
holds. Rows of methods that were not run stay as they are.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pandas as pd
from effects import effect_errors

TABLES = Path(__file__).parent / "tables"
#: The data set of every table, by its number.
EFFECTS = (
    "low overlap",
    "regions",
    "binary",
    "varying",
    "nhefs plasmode",
    "nhefs",
    "401k",
    "nsw-psid",
)
BENCHMARK = dict(enumerate(EFFECTS[:5], 5)) | {
    10: "linear",
    11: "linear, treated",
    12: "nonlinear",
    13: "confounded",
    14: "twins",
    15: "twins, treated",
    16: "nhefs",
    17: "401k",
}


def number(value: float) -> str:
    """Three digits, at most four decimals, and none before the point where that is 0."""
    places = 4 if value == 0 else max(0, min(4, 2 - math.floor(math.log10(abs(value)))))
    return f"{value:.{places}f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.{places}f}"


def share(value: float) -> str:
    """Two decimals."""
    return f"{value:.2f}".replace("0.", ".", 1) if value < 1 else f"{value:.2f}"


def read(name: str) -> pd.DataFrame:
    """A table as text."""
    return pd.read_csv(TABLES / f"{name}.csv", dtype=str, keep_default_na=False)


def fill_effects(lines: pd.DataFrame) -> None:
    """A row for every n, budget and method."""
    for place, data in enumerate(EFFECTS, 1):
        table, own = read(f"effects-{place}"), lines[lines["data"] == data]
        for line in own.itertuples():
            here = (table["method"] == line.method) & (
                table[r"$\varepsilon$"] == f"{line.epsilon:g}"
            )
            if "n" in table:
                here &= table["n"] == f"{line.n:,}"
            texts = {
                "bias": line.bias,
                "RMSE": line.rmse,
                "noise sd": line.deviation,
                "width": line.width,
            }
            for head, value in texts.items():
                if head in table and line.method.startswith("private"):
                    table.loc[here, head] = number(value)
            if "covers" in table and line.method.startswith("private"):
                table.loc[here, "covers"] = share(line.covers_effect)
        table.to_csv(TABLES / f"effects-{place}.csv", index=False)


def cell(line: pd.Series) -> str:
    """The error with the half width of its interval, and the bias."""
    return f"{number(line['rmse'])} ± {number(line['rmse_half'])} ({number(line['bias'])})"


def fill_benchmark(lines: pd.DataFrame) -> None:
    """A row for every method; then coverage and widths of all."""
    known = lines.set_index(["data", "method", "n", "epsilon"]).sort_index()
    for place, data in BENCHMARK.items():
        table = read(f"benchmark-{place}")
        for head in table.columns[1:]:
            n, _, epsilon = head.replace("$", "").rpartition(r"\varepsilon=")
            size = int(n.strip(", ").replace(",", "") or 0)
            for row, method in enumerate(table["method"]):
                key = (data, method, size, float(epsilon))
                if method.startswith("private") and key in known.index:
                    table.loc[row, head] = cell(known.loc[key])
        table.to_csv(TABLES / f"benchmark-{place}.csv", index=False)
    table = read("benchmark-18")
    for data, head in zip(("acic", "acic-hinges"), table.columns[1:], strict=True):
        for row, method in enumerate(table["method"]):
            if (data, method, 0, 2.0) in known.index and method.startswith("private"):
                table.loc[row, head] = cell(known.loc[data, method, 0, 2.0])
    table.to_csv(TABLES / "benchmark-18.csv", index=False)
    table = read("benchmark-25")
    for row, one in table.iterrows():
        place = int(one["$n$"].replace(",", "")), float(one[r"$\varepsilon$"])
        for method, column in (("private", 3), ("private, Gaussian", 5)):
            if (key := (one["data"], method, *place)) in known.index:
                table.iloc[row, column] = share(known.loc[key, "covers_effect"])
                table.iloc[row, column + 1] = number(known.loc[key, "width"])
    heads = pd.read_csv(TABLES / "benchmark-25.csv", header=None, nrows=1).iloc[0].tolist()
    table.to_csv(TABLES / "benchmark-25.csv", index=False, header=heads)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        errors = effect_errors(pd.read_csv(Path(name) / "results.csv", low_memory=False))
        (fill_benchmark if Path(name).name == "benchmark" else fill_effects)(errors)
