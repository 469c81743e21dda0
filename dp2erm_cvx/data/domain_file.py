"""A public domain written down in a TOML file, and the domain that plain values declare."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from dp2erm_cvx.checks import declared_by_name, list_of, one_line, public_number
from dp2erm_cvx.data.codebook import Codebook, norm_within
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.files import CsvLayout
from dp2erm_cvx.data.private_ranges import Known, OpenDomain
from dp2erm_cvx.data.space import LARGEST
from dp2erm_cvx.errors import DeclarationError, brief, known_names, placed
from dp2erm_cvx.privacy import Neighboring

#: What a domain file declares of the columns of a table, and the field of the codebook that it is.
CODEBOOK = {
    "outcome_column" if field.name == "outcome" else field.name: field.name
    for field in fields(Codebook)
    # a question asks for the first two, and the last stands within [bins]
    if field.name not in ("where", "group", "crossed")
}


def domain_of(declared: Mapping[str, Any]) -> Domain:
    """The domain that the names of a file declare.

    Parameters
    ----------
    declared
        Values by name, as :func:`read_declared` reads them.

    Raises
    ------
    DeclarationError
        For an unknown name and for any invalid value.
    """
    check_names(declared)
    refuse_open(declared)
    book, rest = split_codebook(of_covariates(declared))
    ranges = rest.get("ranges")
    if isinstance(ranges, Mapping) or (book is not None and book.renames):
        if not isinstance(ranges, Mapping | None):
            raise DeclarationError("ranges: need names beside levels or missing")
        ranges = ranges or {}
        if book is not None:
            ranges = book.ranges(ranges)
        rest["ranges"] = ranges
    if book is not None and isinstance(rest.get("center"), Mapping):
        rest["center"] = _centers(book, rest["center"])
    if "covariate_bound" not in rest and ranges and isinstance(ranges, Mapping | list):
        rest["covariate_bound"] = _norm_inside(rest, book)
    if book is not None:
        rest["codebook"] = book
    return Domain.from_dict(rest)


def _norm_inside(declared: Mapping[str, Any], book: Codebook | None) -> float:
    """The largest norm of covariates inside their declared ranges, the intercept included."""
    bounds = {"covariate_bound": LARGEST, "outcome_bound": 1.0}
    domain = Domain.from_dict({**declared, **bounds, "codebook": book})
    norm = norm_within(domain.ranges or (), book)
    return math.hypot(public_number("intercept", declared.get("intercept", 0.0)), norm)


def covariates_of(declared: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The columns that ``covariates`` names, None where it is left out. Raises DeclarationError."""
    chosen = declared.get("covariates")
    if chosen is None:
        return None
    names = list_of("covariates", chosen, one_line, "['age', 'severity']")
    if not names:
        raise DeclarationError("covariates = []: name at least one column")
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"covariates: {brief(name)} stands there twice: name it once")
    return names


def of_covariates(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration of the columns that ``covariates`` names alone, in their order.

    Ranges, levels, logarithms, centers and missing values of all others are left out; missing
    values of what is no covariate, such as the outcome, stay. What has another form than it should
    stays as well: it is refused where it is read.

    Raises
    ------
    DeclarationError
        Where a chosen column has neither range nor levels, though others have.
    """
    chosen = covariates_of(declared)
    of_chosen = {name: value for name, value in declared.items() if name != "covariates"}
    ranges = declared.get("ranges") or {}
    levels = declared.get("levels") or {}
    are_tables = isinstance(ranges, Mapping) and isinstance(levels, Mapping)
    if chosen is None or not are_tables or not (ranges or levels):
        return of_chosen
    described = {*ranges, *levels}
    for name in chosen:
        if name not in described:
            raise DeclarationError(
                f"covariates: {name!r} has no public range: declare it in [ranges]"
            )
    bins = declared.get("bins")
    if isinstance(bins, Mapping):
        of_chosen["bins"] = _bins_of(bins, chosen)
    of_chosen["ranges"] = _chosen_entries(ranges, chosen)
    for title in ("levels", "center"):
        table = declared.get(title)
        if isinstance(table, Mapping):
            of_chosen[title] = _chosen_entries(table, chosen)
    missing = declared.get("missing")
    if isinstance(missing, Mapping):
        left_out = described.difference(chosen)
        kept = [name for name in missing if name not in left_out]
        of_chosen["missing"] = {name: missing[name] for name in kept}
    logs = declared.get("log")
    if isinstance(logs, list):
        of_chosen["log"] = [name for name in logs if name in chosen]
    return of_chosen


def _chosen_entries(table: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Any]:
    """The entries of the chosen columns, in their order."""
    return {name: table[name] for name in chosen if name in table}


def _bins_of(declared: Mapping[str, Any], chosen: Sequence[str]) -> dict[str, Any]:
    """The table ``[bins]`` of the chosen columns, with the crosses of two of these."""
    bins: dict[str, Any] = {name: cuts for name, cuts in declared.items() if name in chosen}
    if "cross" in declared:
        bins["cross"] = []
        for pair in _crossed(declared["cross"]):
            if all(name in chosen for name in pair):
                bins["cross"].append({"columns": pair})
    return bins


def _crossed(declared: object) -> list[Any]:
    """The columns of every table ``[[bins.cross]]``. Raises DeclarationError for another form."""
    if not isinstance(declared, list) or not all(isinstance(table, Mapping) for table in declared):
        raise DeclarationError(f"bins: cross = {brief(declared)}: must be tables [[bins.cross]]")
    for table in declared:
        if list(table) != ["columns"] or not isinstance(table["columns"], list):
            text = 'must have the two columns alone, such as columns = ["age", "stage"]'
            raise DeclarationError(f"bins: cross: {brief(dict(table))}: {text}")
    return [table["columns"] for table in declared]


def asks_ranges(declared: Mapping[str, Any]) -> bool:
    """True if a file has a table ``[[ranges]]``: it releases ranges, and declares them in there."""
    tables = declared.get("ranges")
    if not isinstance(tables, list) or not tables:
        return False
    return all(isinstance(table, Mapping) for table in tables)


def refuse_open(declared: Mapping[str, Any]) -> None:
    """Raise DeclarationError where ranges are not declared but released by a question."""
    if asks_ranges(declared):
        text = (
            "this needs declared ranges: give a file with [ranges] and outcome_bound, once they "
            "are released"
        )
        raise DeclarationError(f"[[ranges]] leaves ranges to be released: {text}")


def open_domain_of(
    declared: Mapping[str, Any], outcome: Known, others: Mapping[str, Known] | None = None
) -> OpenDomain:
    """What the names of a file declare of records whose ranges are to be released.

    Parameters
    ----------
    declared
        As of :func:`domain_of`; its ranges are what is known of every column of numbers.
    outcome, others
        What is known of the range of the outcome, and of further columns by name.

    Raises
    ------
    DeclarationError
        For any invalid value.
    """
    book, rest = split_codebook(of_covariates(declared))
    ranges: dict[str, Any] = dict(rest["ranges"])
    if book is not None:
        ranges = book.ranges(ranges)
    relation = rest.get("relation", Neighboring.REPLACE_ONE)
    return OpenDomain(ranges, outcome, others or {}, relation, book)


def _centers(book: Codebook, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Typical values by covariate.

    Of a column with levels they are the share of each, or of the only one.
    """
    centers: dict[str, Any] = {}
    for name, value in declared.items():
        levels = book.covariate_levels.get(name)
        if levels is None:
            covariate, scaled = _center_of_number(book, str(name), value)
            centers[covariate] = scaled
            continue
        shares = value
        if not isinstance(value, Mapping):
            if len(levels) > 1:
                raise DeclarationError(
                    f"center: {name} has levels: declare {name} = {{ {levels[0]} = 0.2 }}"
                )
            shares = {levels[0]: value}
        for level, share in shares.items():
            if level not in levels:
                raise DeclarationError(f"center: {name}: {known_names(level, map(str, levels))}")
            centers[f"{name}={level or 'missing'}"] = share
    return centers


def _center_of_number(book: Codebook, column: str, value: Any) -> tuple[str, float]:
    """The covariate of a column of numbers, and its typical value on its scale."""
    if column in book.level_sets:
        raise DeclarationError(f"center: {column} is crossed: declare the shares of its cross")
    return next(iter(book.covariates_of(column))), book.scaled(column, value)


def check_names(declared: Mapping[str, Any]) -> None:
    """Raise DeclarationError where a name is none that a file may declare."""
    for name in declared:
        if name not in RECORDS:
            hint = known_names(name, sorted({*RECORDS, "csv"}))
            raise DeclarationError(f"domain: unknown name {brief(name)}; {hint}")


def of_event(declared: Mapping[str, Any]) -> dict[str, Any]:
    """A declaration with the center and the bound of an event of 0 or 1 where it has neither."""
    has_interval = "outcome_center" in declared or "outcome_bound" in declared
    if declared.get("binary_outcome") is not True or has_interval:
        return dict(declared)
    return {**declared, "outcome_center": 0.5, "outcome_bound": 0.5}


def split_codebook(declared: Mapping[str, Any]) -> tuple[Codebook | None, dict[str, Any]]:
    """The codebook that a file declares, if any, and all else. Raises DeclarationError."""
    entries = {CODEBOOK[name]: value for name, value in declared.items() if name in CODEBOOK}
    rest = {name: value for name, value in declared.items() if name not in CODEBOOK}
    treatment = entries.get("treatment")
    if isinstance(treatment, str):
        entries["treatment"] = {"column": treatment}
    bins = entries.get("bins")
    if isinstance(bins, Mapping) and "cross" in bins:
        entries["crossed"] = _crossed(bins["cross"])
        entries["bins"] = {name: cuts for name, cuts in bins.items() if name != "cross"}
    book = Codebook.from_dict(entries) if entries else None
    return book, rest


#: What stands in a drafted file where something has to be declared.
EDIT = "EDIT"
#: Tables of a study beside its domain, see :mod:`dp2erm_cvx.study`.
STUDY = ("budget", "ledger", "effect", "rule", "two_stage")
#: Everything that a file may declare of the records: fields of the domain and of its codebook.
RECORDS = {field.name for field in fields(Domain)} - {"codebook", "released"}
RECORDS |= {*CODEBOOK, "covariates"}


def load_domain(path: str | Path) -> Domain:
    """Read a :class:`~dp2erm_cvx.data.domain.Domain` from a TOML file.

    The names are those of the Domain's fields, at the top level or in a table ``[domain]``;
    ``ranges`` may be a table ``[ranges]`` or ``[domain.ranges]`` of ``column = [low, high]``. The
    tables ``[treatment]``, ``[levels]``, ``[bins]``, ``[missing]``, ``[units]``, ``[cells]``,
    ``[sampling_weights]`` and ``[unit]``, ``outcome_column`` and ``eligible`` make a
    :class:`~dp2erm_cvx.data.codebook.Codebook`. Where ranges or levels are declared,
    ``covariate_bound`` may be left out: it is then the norm that no record inside them exceeds.
    Where ``binary_outcome`` is declared without center and bound, both are 0.5. A table ``[csv]``
    says how the data file is written.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    DeclarationError
        In one line, for a file that cannot be read and for any invalid value.
    """
    with placed(path):
        return domain_of(read_declared(path))


def read_declared(path: str | Path) -> dict[str, Any]:
    """Declarations of the file about records, by name; the values are not judged yet.

    Raises
    ------
    DeclarationError
        For a file that cannot be read, or whose table ``[csv]`` is wrong.
    """
    declared = read_tables(path)
    declared_layout(path)
    return {name: value for name, value in declared.items() if name not in ("csv", *STUDY)}


def declared_layout(path: str | Path) -> CsvLayout:
    """Layout that the table ``[csv]`` of a domain file declares. Raises DeclarationError."""
    with placed(path):
        return declared_by_name(CsvLayout, "csv", read_tables(path).get("csv", {}))


def read_tables(path: str | Path) -> dict[str, Any]:
    """All that the file says, by name.

    Raises
    ------
    DeclarationError
        For one that cannot be read or is a draft.
    """
    declared = tables_of_file(path)
    with placed(path):
        refuse_gaps(declared)
    return of_event(declared)


def tables_of_file(path: str | Path) -> dict[str, Any]:
    """All that the file says, by name, gaps of a draft included.

    The entries of a table ``[domain]`` stand beside all others.

    Raises
    ------
    DeclarationError
        For a file that cannot be read.
    """
    declared = _parsed_toml(path)
    if "domain" not in declared:
        return declared
    for name in declared:
        if name not in ("domain", *STUDY):
            raise DeclarationError(
                f"{path}: {name!r} stands outside the table [domain]: move it inside"
            )
    domain = declared.pop("domain")
    if not isinstance(domain, dict):
        raise DeclarationError(f"{path}: domain = {domain!r}: must be a table [domain]")
    return declared | domain


def _parsed_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file as it stands. Raises DeclarationError where it is none."""
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DeclarationError(f"{path}: is not UTF-8 text, so not a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        first_line = str(error).splitlines()[0]
        raise DeclarationError(f"{path}: is not a TOML file: {first_line}") from None
    except (ValueError, RecursionError):
        # a number of thousands of digits, brackets within brackets
        raise DeclarationError(
            f"{str(path)!r}: is not a TOML file that this reader can hold"
        ) from None


def refuse_gaps(declared: Mapping[str, Any]) -> None:
    """Raise DeclarationError where a draft is not filled in."""
    name = _placeholder(declared)
    if name is not None:
        raise DeclarationError(
            f'{name} still says "{EDIT}": type in what is known without the data, or delete the '
            "line"
        )


def _placeholder(declared: Mapping[str, Any]) -> str | None:
    """The first name that a draft left open."""
    for name, value in declared.items():
        entries = value if isinstance(value, list) else [value]
        for entry in entries:
            if isinstance(entry, Mapping):
                inside = _placeholder(entry)
                if inside is not None:
                    return f"{name}: {inside}"
        if EDIT in entries:
            return str(name)
    return None
