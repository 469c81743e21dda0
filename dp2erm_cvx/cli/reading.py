"""From the texts of options to data, domains, settings and programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx.cli.options import DOMAIN_FIELDS, REQUIRED, SETTING_FLAGS, names
from dp2erm_cvx.cli.own_program import known_name
from dp2erm_cvx.csv_layout import PLAIN
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.text import number_or_text

if TYPE_CHECKING:
    from dp2erm_cvx.csv_layout import CsvLayout
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.program import FirstStage, PublicSample, SecondStage
    from dp2erm_cvx.tables import Table


#: What is told where a domain declares none.
NO_RANGES = (
    "no ranges are declared: raw columns are shrunk together to the covariate bound, so that the one with "
    "the largest numbers crowds out all others; declare [ranges], or scale by public constants"
)

#: Covariates or simulated records that a command may be asked for: more would only fill the memory.
MOST = 1_000_000


def read_data(path: str, options: dict[str, Any], domain: Domain | PrivateRanges) -> Dataset:
    """The data file, with the columns that the domain or the flags name, by the codebook of the domain."""
    from dp2erm_cvx.tables import read_table

    data_columns(domain)
    return coded_data(read_table(path, read_layout(options), ragged=True), domain, options)


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


def count_features(domain: Domain, second: SecondStage, first: FirstStage, given: object) -> int:
    """Number of covariates: ``--n-features``, else that of the ranges, else 1 where it does not matter.

    Raises DeclarationError where it matters and nobody said.
    """
    from dp2erm_cvx.program import PrivateFirstStage
    from dp2erm_cvx.public import whole_number
    from dp2erm_cvx.universe import Universe

    if given is not None:
        number = whole_number("--n-features", given, at_least=1)
        if number > MOST:
            raise DeclarationError(f"--n-features = {shown(given)}: must be at most {MOST:,}")
        return number
    if domain.ranges is not None:
        return len(domain.ranges)
    one, two = (second.loss_constants(Universe(domain, 2, columns)) for columns in (1, 2))
    if one != two or isinstance(first, PrivateFirstStage):
        raise DeclarationError("the number of covariates is not declared: give --n-features, or ranges")
    return 1


def read_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Settings of the first stage from ``--set`` and its short forms."""
    found: dict[str, Any] = {}
    given = [read_setting(text) for text in options["settings"]]
    given += [(name, options[name]) for name in SETTING_FLAGS if options[name] is not None]
    for name, value in given:
        if name in found:
            raise DeclarationError(f"setting {name!r} is given twice: give it once")
        found[name] = value
    if "degree" in found:
        if "balance" in found:
            raise DeclarationError("setting 'balance' is given twice: give --degree only")
        found["balance"] = found.pop("degree")
    if "balance" in found or "kernel" in found:
        from dp2erm_cvx.program import Kernel, Moments

        if "balance" in found:
            found["balance"] = Moments.from_text(str(found["balance"]))
        if "kernel" in found:
            found["kernel"] = Kernel.from_text(str(found["kernel"]), "kernel")
    if "target" in found:
        found["target"] = public_sample(str(found["target"]), options)
    return found


def public_sample(path: str, options: dict[str, Any]) -> PublicSample:
    """Rows of a file that are public, with the covariates that the domain or ``--covariates`` name."""
    from dp2erm_cvx.data import coded_covariates
    from dp2erm_cvx.program import PublicSample
    from dp2erm_cvx.tables import read_table

    declared = options.get("domain") is not None or options.get("ranges")
    domain = read_domain(options) if declared else None
    chosen = (domain.columns if domain else None) or names(options.get("covariates"))
    if chosen is None:
        raise DeclarationError(f"target={path}: name its covariates by --covariates, or by named ranges")
    table = read_table(path, read_layout(options))
    if domain is not None and domain.codebook is not None:
        return PublicSample(coded_covariates(domain, table, chosen))
    return PublicSample(np.column_stack([table.numbers(name) for name in chosen]))


def range_of(text: str) -> tuple[str, tuple[float | str, float | str]]:
    """``COLUMN=LOW:HIGH``. Raises DeclarationError."""
    column, separator, ends = text.rpartition("=")
    low, colon, high = ends.partition(":")
    pair = number_or_text(low.strip()), number_or_text(high.strip())
    numeric = all(isinstance(end, int | float) and not math.isnan(end) for end in pair)
    if not (separator and colon and column.strip() and numeric):
        raise DeclarationError(f"--range {text!r}: must look like COLUMN=LOW:HIGH, for instance age=25:74")
    return column.strip(), pair


def read_setting(text: str) -> tuple[str, Any]:
    """``NAME=VALUE``, a value with commas as a list. Raises DeclarationError."""
    name, separator, value = text.partition("=")
    if not separator or not name.strip() or not value.strip():
        raise DeclarationError(f"{text!r}: must look like NAME=VALUE, for instance ridge=1")
    name = name.strip().replace("-", "_")
    if name == "coefficient" or "," in value:
        return name, tuple(number_or_text(part.strip()) for part in value.split(",") if part.strip())
    return name, number_or_text(value.strip())


def effect_settings(texts: Sequence[str], cells: Sequence[str] = ()) -> dict[str, Any]:
    """Settings of an effect from ``--set``; ``none`` stands for nothing. Cuts are from ``--cells``."""
    found: dict[str, Any] = {}
    for name, value in map(read_setting, texts):
        if name in found:
            raise DeclarationError(f"setting {name!r} is given twice: give it once")
        found[name] = None if value == "none" else value
    cuts: dict[str, Any] = {}
    for name, value in map(_cells, cells):
        if name in cuts or "cells" in found:
            raise DeclarationError(f"cells of {name!r} are given twice: give them once")
        cuts[name] = value
    return found | ({"cells": cuts} if cuts else {})


def _cells(text: str) -> tuple[str, Any]:
    """``NAME=CUT,...`` or ``NAME:NUMBER`` of cells."""
    name, separator, value = text.rpartition("=" if "=" in text else ":")
    numbers = [number_or_text(part.strip()) for part in value.split(",")]
    if not name.strip() or not all(isinstance(number, (int, float)) for number in numbers):
        raise DeclarationError(f"{text!r}: must look like age=30,50 (cuts) or age:20 (cells of equal width)")
    return name.strip(), numbers if separator == "=" else numbers[0]


def first_stage(text: str, options: dict[str, Any]) -> FirstStage:
    """The first stage of that name, or in that file, with the settings given as flags."""
    from dp2erm_cvx import registry

    name = known_name(text, "first")
    return registry.build(registry.first_stages(), name, **read_settings(options))


def second_stage(text: str, options: dict[str, Any], columns: tuple[str, ...], domain: Domain) -> SecondStage:
    """The second stage of that name, or in that file, with Theta, R and features given as flags."""
    from dp2erm_cvx import registry
    from dp2erm_cvx.model.regularizer import ElasticNet
    from dp2erm_cvx.program import ConvexSet

    name = known_name(text, "second")
    settings: dict[str, Any] = {}
    if options["theta_set"] is not None:
        settings["theta_set"] = ConvexSet.from_text(options["theta_set"], "--theta-set")
    penalty = {kind: options[kind] for kind in ("l1", "l2") if options[kind] is not None}
    if penalty:
        settings["regularizer"] = ElasticNet(**penalty)
    features = names(options["features"])
    if features is not None:
        features = domain.codebook.expanded(features) if domain.codebook else features
        settings["features"] = tuple(_feature(feature, columns, domain) for feature in features)
    if options["features_bound"] is not None:
        settings["features_bound"] = options["features_bound"]
    for text in options["second_settings"]:
        setting, value = read_setting(text)
        if setting in settings or setting in ("theta_set", "regularizer", "features"):
            raise DeclarationError(f"--second-set {setting}: it has an option of its own, or is given twice")
        settings[setting] = value
    return registry.build(registry.second_stages(), name, **settings)


def second_stage_by_name(text: str, domain: Domain) -> SecondStage:
    """The second stage of that name, or in that file, with its default settings for the domain."""
    from dp2erm_cvx import registry

    name = known_name(text, "second")
    return registry.build(registry.second_stages(), name).resolve(domain)


def _feature(text: str, columns: tuple[str, ...], domain: Domain) -> str | int:
    # without named ranges the domain knows columns by number only
    if domain.columns is None and text in columns:
        return columns.index(text)
    number = number_or_text(text)
    known = text in columns or not isinstance(number, int)
    return text if known else int(number)
