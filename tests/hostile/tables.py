"""Hostile CSV and Parquet files through the readers and through ``dp2erm fit``."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dp2erm_cvx.data import Dataset
from tests.hostile.command import fit_case
from tests.hostile.outcome import Failure, Generator, Outcome, happens, pick

CELLS = (
    "nan", "NaN", "inf", "-inf", "1e999", "-1e999", "1e308", "5e-324", "", " ", "\t", "abc", "1,5", '"1,5"',
    "1 000", "1_000", "1'000", "0x10", "--1", "1e", ".", "-", "+1", "true", "FALSE", "TRUE ", "NA", "NULL",
    "None", "#DIV/0!", "=1+1", "\x00", "\x001", "1\x00", "\ufeff1", "\u0661\u0662", "\uff11", "½", "²", "∞",
    "\u22121", "1\u00a0000", '"', '""', '"a"b', '"a\nb"', "'1'", "\r", "1\r", "a\rb", '"a\rb"', "\ufeff", ";",
    "1;2", "1.0.0", "1e5e5",
    "9" * 400, "0." + "1" * 5000, "x" * 140_000, '"' + "x" * 140_000 + '"',
    "\ud7ff", "😀", "nan(1)", "infinity", "1d5", "1j",
    "2020-01-01",
)  # fmt: skip
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7", "shift_jis")


def rows(rng: Generator) -> list[list[str]]:
    n, p = int(pick(rng, (0, 1, 2, 3, 10, 24))), int(rng.integers(1, 4))
    header = [f"x{k + 1}" for k in range(p)] + ["a", "y"]
    body = [
        [*(repr(float(v)) for v in rng.uniform(-1, 1, p)), str(rng.integers(2)), repr(float(rng.normal()))]
        for _ in range(n)
    ]
    return [header, *body]


def mutated(rng: Generator, table: list[list[str]]) -> list[list[str]]:
    how = int(rng.integers(9))
    row = int(rng.integers(len(table)))
    if how <= 2:
        column = int(rng.integers(max(len(table[row]), 1)))
        table[row][column : column + 1] = [pick(rng, CELLS)]
    elif how == 3:
        table[row] = table[row][:-1]
    elif how == 4:
        table[row] = [*table[row], pick(rng, CELLS)]
    elif how == 5:
        where = int(rng.integers(len(table[0]) + 1))
        table[0][where : where + 1] = [pick(rng, ("a", "y", "x1", "", " a ", "A", '"a"'))]
    elif how == 6:
        table.insert(row, pick(rng, ([], [""], [" "], ["#"], table[0])))
    elif how == 7:
        column = int(rng.integers(5))
        same = pick(rng, (*CELLS[:12], "1", "0"))
        table[1:] = [[*cells[:column], same, *cells[column + 1 :]] for cells in table[1:]]
    elif how == 8:
        table[1:] = [list(table[-1]) for _ in table[1:]]
    return table


def text(rng: Generator) -> bytes:
    table = rows(rng)
    for _ in range(int(pick(rng, (0, 0, 1, 1, 2, 3)))):
        table = mutated(rng, table)
    separator = pick(rng, (",",) * 12 + (";", "\t", "|", ", "))
    line_end = pick(rng, ("\n",) * 6 + ("\r\n", "\r", "\n\n", "\x0b", "\u2028", ""))
    joined = line_end.join(separator.join(cells) for cells in table) + pick(rng, (line_end, "", "\x1a", '"'))
    encoding = pick(rng, ENCODINGS) if happens(rng, 0.2) else "utf-8"
    data = joined.encode(encoding, errors="ignore")
    if happens(rng, 0.1):
        spoiled = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            if spoiled:
                spoiled[int(rng.integers(len(spoiled)))] = int(rng.integers(256))
        data = bytes(spoiled)
    if happens(rng, 0.05):
        data = pick(
            rng, (b"", b"\n", b"\xff\xfe", b"\x00" * 100, rng.bytes(200), data[: len(data) // 2], b"a")
        )
    return data


def parquet(rng: Generator, path: Path) -> None:
    if happens(rng, 0.3):
        path.write_bytes(
            pick(rng, (b"", b"PAR1", b"PAR1" + rng.bytes(50) + b"PAR1", rng.bytes(300), text(rng)))
        )
        return
    n = int(pick(rng, (0, 1, 2, 10, 24)))
    things: dict[str, Any] = {
        "x1": rng.uniform(-1, 1, n),
        "x2": rng.uniform(-1, 1, n),
        "a": rng.integers(0, 2, n),
        "y": rng.normal(size=n),
    }
    if happens(rng, 0.7):
        odd: tuple[Any, ...] = (
            np.full(n, np.nan),
            np.full(n, np.inf),
            ["x"] * n,
            [None] * n,
            [b"\xff"] * n,
            [[1.0]] * n,
            [{"a": 1}] * n,
            [[None] if k == 1 else [k] for k in range(n)],
            [{"a": None if k == 1 else k} for k in range(n)],
            pd.Series([b"\xff", *[b"1"] * n][:n], dtype=object),
            pd.cut(np.arange(n), [0, 2, 5]).astype(str),
            pd.date_range("2020-01-01", periods=n),
            np.full(n, True),
            np.full(n, 2**62),
            np.full(n, 5e-324),
            pd.array([1] * n, dtype="Int64"),
            pd.Categorical(["u"] * n),
        )
        things[pick(rng, things)] = pick(rng, odd)
    if happens(rng, 0.1):
        things.pop(pick(rng, things))
    pd.DataFrame(things).to_parquet(path)
    if happens(rng, 0.2):
        whole = path.read_bytes()
        path.write_bytes(whole[: int(rng.integers(len(whole)))])


def case(rng: Generator) -> Outcome:
    is_parquet = happens(rng, 0.15)
    path = Path("hostile.parquet" if is_parquet else "hostile.csv")
    if is_parquet:
        parquet(rng, path)
    else:
        path.write_bytes(text(rng))
    if happens(rng, 0.3):
        return fit_case(rng, path)
    read = Dataset.read
    chosen = pick(rng, (None, None, ["x1"], ["x1", "x2"], ["x1", "x1"], [], "x1", ["a"], ["\ud800"]))
    dataset = read(path, treatment=pick(rng, ("a",) * 9 + ("nope",)), outcome="y", covariates=chosen)
    if not (np.all(np.isfinite(dataset.X)) and np.all(np.isfinite(dataset.y)) and dataset.n_samples >= 2):
        raise Failure(f"accepted what is not finite: {path.read_bytes()[:500]!r}")
    return Outcome("records, all finite")
