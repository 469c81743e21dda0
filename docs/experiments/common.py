"""Tools of the experiments: seeded cells, a command line, cached rows, means and tables."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Memory, Parallel, delayed, parallel_config
from threadpoolctl import threadpool_limits

from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.diagnostics.balance import Estimate, fitted_propensity
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.report.figures import save

#: Normal quantile of a two-sided 95 % interval.
Z = 1.959964
Design = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A unit of computation, such as a replicate of a scenario.

    Its ``key`` and the seed decide every number.
    """

    key: tuple[tuple[str, Any], ...]
    seed: int

    def __getitem__(self, name: str) -> Any:
        return dict(self.key)[name]

    @property
    def label(self) -> str:
        """As text: ``scenario=linear,replicate=3``."""
        return ",".join(f"{name}={value}" for name, value in self.key)

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator for each purpose, so that one more draw here changes nothing elsewhere."""
        numbers = (
            int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
            for text in (self.label, purpose)
        )
        return np.random.default_rng([self.seed, *numbers])


def cells(design: Design, keys: Iterable[Row]) -> list[Cell]:
    """A cell for every key, in the order of the table."""
    return [Cell(tuple(key.items()), design["seed"]) for key in keys]


def grid(**values: Iterable[Any]) -> list[Row]:
    """Every combination of the values as a key, the last name changing fastest."""
    return [dict(zip(values, place, strict=True)) for place in product(*values.values())]


def options(doc: str, variants: Iterable[str] = (), data: bool = False) -> argparse.Namespace:
    """Options of the command line. Without --quick or --variant an experiment runs as declared."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument(
        "--quick", action="store_const", dest="variant", const="quick", help="seconds"
    )
    parser.add_argument(
        "--variant", choices=list(variants) or None, help="another variant of the design"
    )
    parser.add_argument("--workers", type=int, default=1, help="processes; -1 for all cores")
    parser.add_argument("--output", type=Path, default=Path("output"), help="folder of results")
    if data:
        parser.add_argument(
            "--data", type=Path, help="Twin_Data.csv.gz, which this repository does not hold"
        )
    return parser.parse_args()


def repeated(doc: str | None, runs: int, ways: Iterable[str] = ()) -> argparse.Namespace:
    """Options of a script that prints: ``runs``, 2 with --quick, and ``ways``."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=int, nargs="?", default=runs, help=f"of a design [{runs}]")
    if ways := tuple(ways):
        parser.add_argument("ways", nargs="*", help=f"some of {', '.join(ways)}")
    parser.add_argument("--quick", action="store_true", help="seconds")
    args = parser.parse_args()
    args.runs = 2 if args.quick else args.runs
    args.ways = tuple(getattr(args, "ways", ())) or ways
    if unknown := set(args.ways) - set(ways):
        parser.error(f"{', '.join(unknown)}: choose from {', '.join(ways)}")
    return args


def folder_of(name: str, args: argparse.Namespace) -> Path:
    """Where results go: ``output/NAME`` or ``output/NAME-VARIANT``."""
    folder: Path = args.output / "-".join(filter(None, (name, args.variant)))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def start(
    doc: str | None, name: str, full: Design, variants: Mapping[str, Design], data: bool = False
) -> tuple[argparse.Namespace, Design, Path]:
    """The command line of an experiment, the variant that it names, and its folder."""
    args = options(doc or "", variants, data)
    return args, full | variants.get(args.variant, {}), folder_of(name, args)


def each(function: Callable[..., Any], tasks: list[tuple], folder: Path, workers: int) -> list[Any]:
    """Results of ``function(*task)`` for every task.

    Finished results are kept in the folder, so that a stopped run goes on. Kept results know the
    arguments and the source of ``function``, not the code that it calls: delete ``folder/kept``
    when that has changed.
    """
    cached = Memory(folder / "kept", verbose=0).cache(function)
    with threadpool_limits(1), parallel_config("loky", inner_max_num_threads=1):
        return Parallel(n_jobs=workers, verbose=1)(delayed(cached)(*task) for task in tasks)


def run(
    rows: Callable[[Design, Cell], list[Row]],
    design: Design,
    places: list[Cell],
    folder: Path,
    workers: int,
) -> pd.DataFrame:
    """The table of all rows, in the order of the cells, also as ``results.csv``."""
    parts = each(rows, [(design, cell) for cell in places], folder, workers)
    table = pd.DataFrame(
        [dict(cell.key) | row for cell, part in zip(places, parts, strict=True) for row in part]
    )
    table.to_csv(folder / "results.csv", index=False)
    return table


def report(
    folder: Path, tables: Iterable[pd.DataFrame], figures: Iterable[tuple[str, Any]] = ()
) -> None:
    """Print the tables, keep them as ``summary.md``, and draw the figures as SVG."""
    text = "\n\n".join(table.to_markdown(index=False, disable_numparse=True) for table in tables)
    print(text)
    (folder / "summary.md").write_text(text + "\n", encoding="utf-8")
    for name, figure in figures:
        save(figure, folder / f"{name}.svg")


def budget_of(epsilon: float, noise: str, n: int) -> Budget:
    """Pure for gamma noise, delta = 1/n for Gaussian noise, as in the paper."""
    return Budget(epsilon, 1.0 / n if noise == "gaussian" else 0.0)


def means(
    table: pd.DataFrame, by: list[str], values: list[str], unit: str = "replicate"
) -> pd.DataFrame:
    """Mean of ``values`` for every group, with ``NAME_half`` the half width of its 95 % interval.

    The unit of which groups have many is averaged within itself first. A group of one has no
    interval.
    """
    done = table[table["status"] == "done"]
    within = done.groupby([*by, unit], sort=False, dropna=False)[values].mean().reset_index()
    grouped = within.groupby(by, sort=False, dropna=False)[values]
    half = Z * grouped.std() / np.sqrt(grouped.count())
    return grouped.mean().join(half.add_suffix("_half")).reset_index()


def with_interval(line: Any, name: str = "accuracy", digits: int = 3) -> str:
    """``0.836 ±.004``."""
    half = line[f"{name}_half"]
    text = f"{line[name]:.{digits}f}"
    return text if np.isnan(half) else f"{text} ±{f'{half:.{digits}f}'.removeprefix('0')}"


def across(table: pd.DataFrame, by: list[str], column: str, name: str = "accuracy") -> pd.DataFrame:
    """Means with intervals: a line for every place, the values of ``column`` side by side."""
    texts = table.assign(shown=table.apply(with_interval, axis=1, name=name))
    order = list(dict.fromkeys(texts[column]))
    wide = texts.pivot_table("shown", by, column, "first", sort=False)[order]
    return wide.fillna("").reset_index()


def nearest(design: Design, epsilon: float) -> float:
    """The budget of the design that is nearest to this one."""
    return min(design["epsilons"], key=lambda known: abs(known - epsilon))


def by_budget(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """A ``table`` of texts: a line for every place, budgets side by side."""
    wide = table.pivot_table("shown", by, "epsilon", "first", sort=False).reset_index()
    return wide.rename(columns=lambda name: name if isinstance(name, str) else f"{name:g}").fillna(
        ""
    )


def as_text(settings: Row) -> str:
    """Settings on one line."""
    return json.dumps(settings).translate(str.maketrans("", "", '{}"')) or "none"


def legend_below(figure: Any, axes: Iterable[Any]) -> None:
    """One legend for all axes below them, with as many columns as the width holds."""
    known = {
        name: handle
        for ax in axes
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    if not known:
        return
    # inches of a letter, and of what stands beside the words of a column
    columns = max(1, int(figure.get_figwidth() / (0.066 * max(map(len, known)) + 0.6)))
    columns = -(-len(known) // -(-len(known) // min(len(known), columns)))  # as even as they can be
    look = {"loc": "outside lower center", "frameon": False, "fontsize": "small"}
    figure.legend(list(known.values()), list(known), ncols=columns, **look)


def hajek(data: Dataset, propensity: np.ndarray | None = None) -> Estimate:
    """The difference of means weighted by inverse propensities (n,).

    By default the propensities are those of a logistic fit.
    """
    e = fitted_propensity(data) if propensity is None else propensity
    total, score = 0.0, np.zeros(len(data.a))
    for arm, sign, share in ((1, 1.0, e), (0, -1.0, 1.0 - e)):
        weight = (data.a == arm) / share
        mean = float(np.sum(weight * data.y) / np.sum(weight))
        total += sign * mean
        score += sign * weight * (data.y - mean) / np.mean(weight)
    return Estimate(total, float(np.std(score)) / len(score) ** 0.5)
