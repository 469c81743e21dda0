"""The Twins file (Almond, Chay & Lee 2005), read from a path: this repository does not hold it."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import DataError

#: Digest of ``Twin_Data.csv.gz`` as the repository ITErpretability has it.
SHA256 = "0128e5dfdeb468e85fd2818330beff49d4d433b7f7d56d3eb678f87ab15b00a9"
#: Risk factors: 1 yes, 2 no, 8 or 9 not stated, which is taken as no.
RISKS = (
    *(
        "anemia",
        "cardiac",
        "lung",
        "diabetes",
        "herpes",
        "hydra",
        "hemo",
        "chyper",
        "phyper",
        "eclamp",
    ),
    *("incervix", "pre4000", "preterm", "renal", "rh", "uterine", "othermr"),
)
#: Public ranges of counts and amounts; values beyond are clipped.
AMOUNTS = {
    "dtotord": (1, 20),
    "cigar": (0, 98),
    "drink": (0, 98),
    "wtgain": (0, 98),
    "gestat": (17, 47),
    "dmage": (10, 54),
    "dmeduc": (0, 17),
    "dmar": (1, 2),
    "mpcb": (0, 9),
    "nprevist": (0, 49),
}
#: Categories, which become one column each.
LEVELS = {"adequacy": 3, "pldel": 5, "resstatb": 4}
#: Days from birth to death that stand for survival of the first year.
_ALIVE = 9999


@dataclass(frozen=True, eq=False)
class Twins:
    """``X`` (11,400, 39) in [0, 1] by public rules, and the names of its columns.

    ``deaths`` (11,400, 2) in {0, 1} says who of a pair died in the first year: the lighter, and the
    heavier.
    """

    X: Array = field(repr=False)
    columns: tuple[str, ...]
    deaths: Array = field(repr=False)


def read_twins(path: str | Path, *, sha256: str | None = SHA256) -> Twins:
    """Read ``Twin_Data.csv.gz``.

    No rule reads the data: ranges and levels are public, and a risk factor that is not stated
    counts as absent, which in this file is also its mode. Raises DataError where the file is
    missing, has another digest than ``sha256`` (None: any), lacks a column or holds what is no
    number.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and digest != sha256:
        raise DataError(
            f"{path}: sha256 is {digest[:16]}..., not {sha256[:16]}...: another version of the file"
        )
    try:
        lines = csv.reader(io.StringIO(gzip.decompress(content).decode("utf-8")))
        names = [name.strip("'’\" ") for name in next(lines)]  # noqa: RUF001
        values = np.array([[float(text) for text in line] for line in lines])
        table = {name: values[:, place] for place, name in enumerate(names)}
        parts = {name: np.where(table[name] == 1, 1.0, 0.0) for name in RISKS}
        for name, (low, high) in AMOUNTS.items():
            parts[name] = np.clip((table[name] - low) / (high - low), 0.0, 1.0)
        for name, levels in LEVELS.items():
            for level in range(1, levels + 1):
                parts[f"{name}={level}"] = (table[name] == level).astype(np.float64)
        days = np.column_stack([table["outcome(t=0)"], table["outcome(t=1)"]])
    except (OSError, ValueError, KeyError, IndexError, StopIteration) as error:
        raise DataError(f"{path}: not the Twins table ({type(error).__name__}: {error})") from None
    return Twins(
        np.column_stack(list(parts.values())), tuple(parts), (days < _ALIVE).astype(np.float64)
    )
