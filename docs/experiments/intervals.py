"""How often default intervals hold the true effect.

``python intervals.py`` measures it, in seconds with ``--quick``. The scenarios of coverage.toml are
drawn, fitted and compared with the truth that they were drawn from. Rows of coverage.csv that are
there stay; from all of them the tables and the figure of coverage.md are written.
"""

from __future__ import annotations

import argparse
import inspect
import math
import tomllib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from interval_scenarios import Cell, Registry
from joblib import Parallel, delayed

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRanges, PrivateRule

HERE = Path(__file__).parent
#: What tells rows of one version apart.
KEY = ["scenario", "n", "epsilon"]


def estimator(cell: Cell, domain: Domain, seed: int | None = None) -> PrivateEffect | PrivateRule:
    """Estimator; a version of the library that does not know a declaration goes without it."""
    budget = Budget(cell.epsilon * (1.0 - cell.private), cell.delta)
    if cell.of == "value":
        return PrivateRule(
            domain, budget, settings={"value_share": 0.3, **cell.declared}, seed=seed
        )
    known = inspect.signature(PrivateEffect).parameters
    declared = {name: value for name, value in cell.declared.items() if name in known}
    if cell.of:
        declared["estimand"] = cell.of
    return PrivateEffect(domain, budget, residual_scale=cell.scale or None, seed=seed, **declared)


def drawn(cell: Cell, lines: tuple, replicate: int) -> tuple:
    """Covariates, treatments and outcomes of one sample."""
    return cell.draw([1, replicate, zlib.crc32(f"{cell.name}{cell.n}".encode())], lines)


def fitted(cell: Cell, lines: tuple, replicate: int) -> dict[str, tuple[float, ...]]:
    """By answer: estimate, ends, half width that noise leaves, bias allowed for, and truth."""
    data = drawn(cell, lines, replicate)
    if cell.private:
        ranges = PrivateRanges(cell.unknown, Budget(cell.epsilon * cell.private), seed=replicate)
        domain = ranges.fit(*data).domain_
    else:
        domain = cell.domain(lines)
    # a column of one declared level is one whose other cells hold nothing that is declared
    model = estimator(cell, domain, seed=replicate).fit(*data, accept=True)
    release = model.release_
    answers = {"": release} | {one.name: one for one in getattr(release, "ratios", ())}
    answers = {one.over: one for one in release.gains} if cell.of == "value" else answers
    truths = cell.truths(lines, model) if cell.of else {"": math.nan}
    rows = {}
    for name, truth in truths.items():
        if name not in answers:  # a ratio whose denominator is within its error
            rows[name] = (math.nan,) * 6
            continue
        answer = answers[name]
        ends = answer.interval
        ends_or_none = [math.nan if end is None else end for end in (ends.low, ends.high)]
        noise, allowed = (getattr(ends, part, 0) or 0 for part in ("noise_half_width", "bias"))
        rows[name] = (answer.estimate, *ends_or_none, noise, allowed, truth)
    return rows


def predicted(cell: Cell, lines: tuple) -> float:
    """The root of the predicted squared error at the settings in force; nan where there is none."""
    if cell.private:
        return math.nan
    study = estimator(cell, cell.domain(lines)).plan(cell.n, cell.p).study
    known = getattr(study, "estimand", "") == "ate" and hasattr(study, "predicted_error")
    return math.sqrt(study.predicted_error) if known else math.nan


def measured(cell: Cell, replicates: int, workers: int) -> Iterator[dict[str, Any]]:
    """Measures of the replicates of a cell, in units of the outcome.

    ``reach`` is the .95 quantile of errors.
    """
    lines = cell.lines()
    rows = Parallel(n_jobs=workers)(delayed(fitted)(cell, lines, one) for one in range(replicates))
    for name in rows[0]:
        values_of = np.array([row[name] for row in rows], dtype=float)
        stated = values_of[~np.isnan(values_of[:, 0])]
        estimate, low, high, noise, allowed, truth = stated.T
        if not cell.of:
            truth = cell.truth(lines)
        if getattr(cell, "fixed", False):  # the spread over noise alone, against the part of noise
            truth = float(estimate.mean())
            low, high = estimate - noise, estimate + noise
        error = np.abs(estimate - truth)
        values = {
            "covers": np.mean(~((truth < low) | (truth > high))),
            "bias": np.mean(estimate - truth),
        }
        values |= {"rmse": np.sqrt(np.mean(error**2)), "half": np.nanmedian((high - low) / 2)}
        values |= {"reach": np.quantile(error, 0.95), "allowed": np.median(allowed)}
        values |= {"predicted": predicted(cell, lines), "replicates": len(stated)}
        answer = f"{cell.name}: {name}" if name else cell.name
        yield {"scenario": answer} | {
            name: round(float(value), 5) for name, value in values.items()
        }


def run(version: str, word: str, quick: bool, workers: int) -> pd.DataFrame:
    """The table of all rows, once missing cells are measured.

    Cells whose name holds a given word are measured as well.
    """
    place = Path("output/coverage-quick.csv") if quick else HERE / "coverage.csv"
    place.parent.mkdir(exist_ok=True)
    rows = pd.read_csv(place) if place.exists() else pd.DataFrame(columns=["version", *KEY])
    declared = tomllib.loads((HERE / "coverage.toml").read_text(encoding="utf-8"))
    for kind, cells in declared.items():
        for settings in cells[: 1 if quick else None]:
            cell = (Registry if kind in ("registries", "noise") else Cell)(**settings)
            key = {"version": version, "n": cell.n, "epsilon": float(cell.epsilon)}
            same = np.logical_and.reduce([rows[name] == value for name, value in key.items()])
            same &= rows.scenario.str.split(": ").str[0] == cell.name
            if same.any() and not (word and word in cell.name):
                continue
            rows, known = (
                rows[~same],
                {"kind": kind, "p": cell.p, "right": cell.right, "shown": cell.shown},
            )
            for measures in measured(
                cell, 3 if quick else 40 if cell.n >= 10_000 else 100, workers
            ):
                row = key | known | measures
                print(" ".join(map(str, row.values())), flush=True)
                rows = pd.concat([rows, pd.DataFrame([row])]) if len(rows) else pd.DataFrame([row])
            rows.to_csv(place, index=False)
    order = [
        (one["name"], one["n"], one["epsilon"]) for cells in declared.values() for one in cells
    ]
    names = [
        (name.split(": ")[0], n, epsilon)
        for name, n, epsilon in zip(*(rows[k] for k in KEY), strict=True)
    ]
    return rows.assign(place=[order.index(one) if one in order else -1 for one in names])


def tables(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The tables of the page, by name.

    The numbers of the version before stand on the left of every pair.
    """
    now, before = (rows[rows.version == one].set_index(KEY) for one in ("now", "before"))
    before = before[["covers", "rmse", "half"]].add_suffix("_before")
    now = now[now.place >= 0].sort_values("place").join(before)
    heads = {
        "covers before": now.covers_before.map("{:.2f}".format),
        "now": now.covers.map("{:.2f}".format),
        "RMSE before": now.rmse_before.map("{:.3f}".format),
        "RMSE now": now.rmse.map("{:.3f}".format),
        "half width": now.half.map("{:.3f}".format),
        "over reach": (now.half / now.reach).map("{:.2f}".format),
        "predicted / RMSE": (now.predicted / now.rmse).map("{:.2f}".format),
        "samples": now.replicates.map("{:.0f}".format),
    }
    texts = pd.DataFrame(heads).reset_index().replace("nan", "")
    texts["n"] = texts["n"].map("{:,}".format)
    alone = [*KEY, "now", "RMSE now", "half width", "over reach", "samples"]
    kind, short = now.kind.to_numpy(), now.shown.to_numpy(bool)
    return {
        "counterexamples": texts[short].iloc[:, :-3],
        "all": texts[np.isin(kind, ("cells", "registries"))],
        "curved": texts[kind == "curved"].iloc[:, :-2],
        "estimands": texts[kind == "estimands"][alone],
        "undeclared": texts[kind == "undeclared"][alone],
        "noise": texts[kind == "noise"][["scenario", "now", "half width", "over reach"]],
    }


def summary(rows: pd.DataFrame) -> str:
    """One paragraph on the cells of n epsilon of at least 2,000 whose assumptions hold."""
    now, before = (rows[rows.version == one].set_index(KEY) for one in ("now", "before"))
    now = now[(now.kind.isin(["cells", "registries"])) & now.right & (now.place >= 0)]
    now = now[[n * epsilon >= 2000 for _, n, epsilon in now.index]]
    gain, reach = now.rmse / before.rmse.reindex(now.index), now.half / now.reach
    past = before.covers.reindex(now.index)
    return (
        f"{len(now)} cells: coverage at least .93 in {(now.covers >= 0.925).sum()} "
        f"({(past >= 0.925).sum()} before), least {now.covers.min():.2f} ({past.min():.2f} "
        f"before); half width at most 1.6 times the reach of errors in {(reach <= 1.6).sum()}, "
        f"median {reach.median():.2f}; RMSE over that before {gain.median():.2f} in the median, "
        f"{gain.max():.2f} at most"
    )


def figure(rows: pd.DataFrame) -> None:
    """Predicted against measured errors."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "coverage"
    now = rows[(rows.version == "now") & rows.predicted.notna() & (rows.place >= 0)]
    ax = (drawn := Figure(figsize=(5, 4.2), layout="constrained")).subplots()
    ends = [0.5 * now.rmse.min(), 2 * now.rmse.max()]
    ax.plot(ends, ends, color="0.6", linewidth=1)
    for right, label, mark in (
        (True, "declarations right", "o"),
        (False, "something undeclared", "^"),
    ):
        part = now[now.right == right]
        ax.plot(part.rmse, part.predicted, mark, markersize=4, alpha=0.8, label=label)
    ax.set(xscale="log", yscale="log", xlabel="measured RMSE", ylabel="predicted RMSE")
    ax.legend(frameon=False)
    drawn.savefig(HERE / "figures/coverage.svg", metadata={"Date": None})


def main() -> None:
    """Run what is missing, then write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="now", help="name of the rows")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="measure cells with this word anew"
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    chosen = parser.parse_args()
    rows = run(chosen.version, chosen.only, chosen.quick, chosen.workers)
    if not chosen.quick and chosen.version == "now":
        for name, table in tables(rows).items():
            table.to_csv(HERE / f"tables/coverage-{name}.csv", index=False)
        print(summary(rows))
        figure(rows)


if __name__ == "__main__":
    main()
