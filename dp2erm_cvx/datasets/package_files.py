"""Tables inside installed packages, which are found without importing them."""

from __future__ import annotations

import csv
import io
from bz2 import decompress
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError


def package_file(package: str, path: str) -> Path:
    """A file inside an installed package. Raises DataError where the package is missing."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise DataError(f"the package {package} is not installed: pip install 'dp2erm-cvx[benchmarks]'")
    return Path(found.submodule_search_locations[0]) / path


def read_numbers(path: Path) -> dict[str, Array]:
    """The columns of a CSV, compressed or not. Each category but the first becomes a column of 0 and 1."""
    content = path.read_bytes()
    text = (decompress(content) if path.suffix == ".bz2" else content).decode("utf-8")
    names, *lines = csv.reader(io.StringIO(text))
    table: dict[str, Array] = {}
    for name, values in zip(names, zip(*lines, strict=True), strict=True):
        try:
            table[name] = np.array(values, dtype=np.float64)
        except ValueError:
            for level in sorted(set(values))[1:]:
                table[f"{name}={level}"] = np.array([value == level for value in values], dtype=np.float64)
    return table


def read_stata(path: Path) -> dict[str, Array]:
    """The columns of a Stata file that are numbers. Raises DataError without pandas."""
    try:
        import pandas
    except ImportError:
        raise DataError("Stata files need pandas: pip install 'dp2erm-cvx[data]'") from None
    frame = pandas.read_stata(path).select_dtypes("number")
    return {str(name): frame[name].to_numpy(dtype=np.float64) for name in frame}
