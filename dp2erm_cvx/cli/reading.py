"""From the texts of options to data and domains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.cli.options import DOMAIN_FIELDS, REQUIRED, names
from dp2erm_cvx.csv_layout import PLAIN
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import number_or_text

if TYPE_CHECKING:
    from dp2erm_cvx.csv_layout import CsvLayout
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.tables import Table


#: What is told where a domain declares none.
NO_RANGES = (
    "no ranges are declared: raw columns are shrunk together to the covariate bound, so that the one with "
    "the largest numbers crowds out all others; declare [ranges], or scale by public constants"
)


def raw_table(path: str, options: Mapping[str, Any], domain: Domain | PrivateRanges) -> Table:
    """The cells of the data file; what names no treatment or outcome is refused before it is read."""
    from dp2erm_cvx.tables import read_table

    data_columns(domain)
    return read_table(path, read_layout(options), ragged=True)


def coded_data(table: Table, public: Domain | PrivateRanges, options: Mapping[str, Any]) -> Dataset:
    """The records of a table, by the codebook that is declared."""
    from dp2erm_cvx.data import Dataset

    a, y = (table.cells(column) for column in data_columns(public))
    return Dataset.coded(public, table, a, y, public.columns or names(options["covariates"]))


def data_columns(public: Domain | PrivateRanges) -> tuple[str, str]:
    """The columns of the treatment and of the outcome. Raises DeclarationError where one is not named."""
    book = public.codebook
    treatment, outcome = (book.treatment.column, book.outcome) if book is not None else (None, None)
    if not treatment:
        raise DeclarationError("--treatment is missing: name the column of the treatment")
    if not outcome:
        raise DeclarationError("--outcome is missing: name the column of the outcome")
    return treatment, outcome


def read_public(options: dict[str, Any]) -> Domain | PrivateRanges:
    """The domain, or the ranges where the file leaves some of them to be released."""
    from dp2erm_cvx.domain_file import read_declared

    declared = {} if options["domain"] is None else read_declared(options["domain"])
    ranges = declared.get("ranges")
    released = isinstance(ranges, dict) and any(not isinstance(one, list) for one in ranges.values())
    if "outcome" in declared or released:
        from dp2erm_cvx.cli.private_ranges import read_ranges

        return read_ranges(options | {"private_ranges": 0.1})
    return read_domain(options)


def read_layout(options: Mapping[str, Any], layout: CsvLayout = PLAIN) -> CsvLayout:
    """How CSV files are written: the flags, put over the table ``[csv]`` of the domain file."""
    from dp2erm_cvx.domain_file import declared_layout

    path = options.get("domain")
    layout = layout if path is None else declared_layout(path)
    given = {name: options.get(name) for name in ("separator", "encoding", "decimal")}
    return replace(layout, **{name: value for name, value in given.items() if value is not None})


def read_domain(options: dict[str, Any], assumed: Mapping[str, float] | None = None) -> Domain:
    """The domain of ``--domain`` with every flag put over it; ``--covariates`` picks among its columns.

    ``assumed`` fills in what nothing declares.
    """
    from dp2erm_cvx.declared_domain import domain_of

    flags = {name: options[name] for name in DOMAIN_FIELDS if options[name] is not None}
    declared: dict[str, Any] = dict(assumed or {})
    if options["domain"] is not None:
        declared |= _domain_file(options["domain"], declared | flags)
    declared |= flags
    for name in REQUIRED:
        within = name == "covariate_bound" and any(declared.get(one) for one in ("ranges", "levels"))
        if name not in declared and not (within or (name == "covariate_bound" and options["ranges"])):
            flag = "--" + name.replace("_", "-")
            raise DeclarationError(f"{name} is not declared: give {flag}, or --domain FILE.toml")
    if options["ranges"]:
        known = declared.get("ranges") or {}
        if not isinstance(known, dict):
            raise DeclarationError("--range names a column, but the ranges of the domain file have no names")
        declared["ranges"] = {**known, **dict(map(range_of, options["ranges"]))}
    return domain_of(_chosen(with_columns(declared, options), names(options.get("covariates"))))


def with_columns(declared: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """What is declared, with the columns of ``--treatment`` and ``--outcome`` put over it."""
    found = dict(declared)
    if options.get("treatment"):
        known = found.get("treatment")
        found["treatment"] = (known if isinstance(known, dict) else {}) | {"column": options["treatment"]}
    if options.get("outcome"):
        found["outcome_column"] = options["outcome"]
    return found


def _chosen(declared: dict[str, Any], chosen: Sequence[str] | None) -> dict[str, Any]:
    """What is declared of the columns of ``--covariates`` alone, in their order."""
    ranges, levels = declared.get("ranges"), declared.get("levels") or {}
    if chosen is None or not (isinstance(ranges, dict) or levels):
        return declared
    ranges = ranges or {}
    for name in chosen:
        if name not in ranges and name not in levels:
            raise DeclarationError(f"covariate {name!r} has no public range: add --range {name}=LOW:HIGH")
    return coded_columns(declared, chosen) | {
        "ranges": {name: ranges[name] for name in chosen if name in ranges}
    }


def coded_columns(declared: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Any]:
    """What is declared, with the levels and missing values of these columns alone."""
    tables = {title: declared[title] for title in ("levels", "missing") if title in declared}
    picked = {
        title: {name: table[name] for name in chosen if name in table} if isinstance(table, dict) else table
        for title, table in tables.items()
    }
    return {**declared, **picked}


def _domain_file(path: str, beside: Mapping[str, Any]) -> dict[str, Any]:
    """What the file declares, judged with the bounds that it leaves to ``beside``."""
    from dp2erm_cvx.declared_domain import check_names, domain_of
    from dp2erm_cvx.domain_file import read_declared

    declared = read_declared(path)
    whole = {name: beside[name] for name in REQUIRED if name in beside} | declared
    bounded = "covariate_bound" in whole or whole.get("ranges") or whole.get("levels")
    try:
        if bounded and "outcome_bound" in whole:
            domain_of(whole)
        else:
            check_names(declared)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: {error}") from None
    return declared


def range_of(text: str) -> tuple[str, tuple[float | str, float | str]]:
    """``COLUMN=LOW:HIGH``. Raises DeclarationError."""
    column, separator, ends = text.rpartition("=")
    low, colon, high = ends.partition(":")
    pair = number_or_text(low.strip()), number_or_text(high.strip())
    numeric = all(isinstance(end, int | float) and not math.isnan(end) for end in pair)
    if not (separator and colon and column.strip() and numeric):
        raise DeclarationError(f"--range {text!r}: must look like COLUMN=LOW:HIGH, for instance age=25:74")
    return column.strip(), pair
