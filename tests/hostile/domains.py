"""Hostile domain files in TOML."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx import Domain
from dp2erm_cvx.domain_file import load_domain
from tests.hostile.outcome import Failure, Outcome
from tests.hostile.values import Generator, happens, pick

VALUES = (
    "1", "2.5", "-1", "0", "1e300", "1e-300", "5e-324", "1e999", "-1e999", "nan", "inf", "-inf", "+nan",
    "true",
    '"1"', '"x"', '""', "[]", "[1]", "[1, 2]", "[[0, 1]]", "[[1, 0]]", "[[0, 0]]", "[[0, 1], [0, 2]]", "{}",
    "{ x = [0, 1] }", "{ x = 1 }", "[nan, 1]", "[[-inf, inf]]", "[[-1e308, 1e308]]", "[['0', '1']]",
    "[[true, 1]]",
    "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "0x10", "0o7", "0b1", "1_000", "01", "1.", ".5",
    "1e", "",
    "'''a\nb'''", '"\\u0000"', '"\\uD800"', "9" * 5000, "0x" + "f" * 5000, "[" * 3000,
    "[" * 3000 + "]" * 3000,
    "{a=" * 400 + "1" + "}" * 400, '"' + "x" * 20_000 + '"', "[" + "1," * 20_000 + "]", "[[0, 1, 2]]",
    "[{}]",
)  # fmt: skip
FIELDS = ("covariate_bound", "outcome_bound", "outcome_center", "treatment_cost", "ranges", "intercept",
          "arm_floor", "relation", "coordinate_bound", "treatment", "outcome_column",
          "levels", "missing", "units", "csv")  # fmt: skip
TAME = {
    "covariate_bound": ("1", "2.0", "1e3"),
    "outcome_bound": ("1", "0.5"),
    "outcome_center": ("0", "-3"),
    "treatment_cost": ("0", "2"),
    "ranges": ("[[0, 1]]", "{ x = [0, 1], y = [-1, 1] }", '{ "" = [0, 1] }'),
    "intercept": ("0", "0.5"),
    "arm_floor": ("1", "10", "10.0", "1e30"),
    "coordinate_bound": ("1", "0.5", "[1, 1]", "[0.1, 2]"),
    "relation": ('"replace-one"', '"replace-one-keep-treatment"', '"nope"'),
    "treatment": ('"a"', '{ column = "a", treated = "yes", control = "no" }', "{ treated = 2, control = 1 }"),
    "outcome_column": ('"y"', '"a"'),
    "levels": ('{ region = ["N", "S", "other"] }', '{ region = [1, 2.5, ""] }', "{ g = [1, false] }"),
    "missing": ("{ x = 0.5 }", "{ }", "{ y = 1e300 }"),
    "units": ('{ x = "m" }',),
    "csv": ('{ separator = ";" }', '{ encoding = "latin-1" }'),
}


def text(rng: Generator) -> bytes:
    given = [name for name in FIELDS if name.startswith(("cov", "out")) or happens(rng, 0.3)]
    lines = [f"{name} = {pick(rng, TAME[name])}" for name in given]
    for _ in range(int(pick(rng, (0, 1, 1, 2)))):
        where = int(rng.integers(len(lines) + 1))
        name = pick(rng, (*FIELDS, "nope", "", "a.b", "ranges.x", '"covariate_bound"', "domain", "é", "\x00"))
        lines[where : where + int(rng.integers(2))] = [f"{name} = {pick(rng, VALUES)}"]
    if happens(rng, 0.3):
        header = pick(
            rng, ("[domain]", "[ranges]", "[domain.ranges]", "[[domain]]", "[x]", "[", "[domain", "[]")
        )
        lines.insert(int(rng.integers(len(lines) + 1)), header)
    if happens(rng, 0.02):
        lines += ["[ranges]", *(f"c{k} = [0, 1]" for k in range(20_000))]
    data = (
        pick(rng, ("\n",) * 9 + ("\r\n", "\r", " "))
        .join(lines)
        .encode(pick(rng, ("utf-8",) * 12 + ("utf-16", "utf-8-sig", "latin-1")), errors="ignore")
    )
    if happens(rng, 0.1) and data:
        spoiled = bytearray(data)
        spoiled[int(rng.integers(len(spoiled)))] = int(rng.integers(256))
        data = bytes(spoiled)
    return data


def case(rng: Generator) -> Outcome:
    path = Path("hostile.toml")
    path.write_bytes(text(rng))
    if happens(rng, 0.02):
        path = Path(pick(rng, ("nope.toml", ".", "a\x00b", "x" * 5000, "nope/nope.toml")))
    return checked(load_domain(path))


def checked(domain: Domain) -> Outcome:
    """An accepted universe is finite, and maps any finite record into itself."""
    plain: dict[str, Any] = domain.to_dict()
    json.dumps(plain, allow_nan=False)
    if Domain.from_dict(plain) != domain:
        raise Failure(f"does not survive its own plain form: {plain}")
    width = 3 if domain.ranges is None else len(domain.ranges)
    if isinstance(domain.coordinate_bound, tuple):
        width = len(domain.coordinate_bound)
    ends = np.array([1e300, -1e300, 0.0, 1e-300, 1.0])
    X = np.resize(ends, (5, min(width, 50))) if width <= 50 else np.resize(ends, (2, width))
    a = np.arange(len(X)) % 2
    records = domain.records(X, a, np.resize(ends, len(X)))
    norms = [math.hypot(*row) for row in records.X.tolist()]
    inside = max(norms) <= domain.covariate_bound and np.max(np.abs(records.y)) <= domain.outcome_bound
    widths = domain.widths(width)
    inside &= widths is None or bool(np.all(np.abs(records.covariates) <= widths[: X.shape[1]]))
    if not (np.all(np.isfinite(records.X)) and inside):
        raise Failure(f"records outside the universe: {str(plain)[:500]}: {norms}")
    return Outcome("domain, finite")
