"""The domain that plain values declare by the names of a domain file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from dp2erm_cvx.codebook import Codebook, norm_within
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, known_names, shown
from dp2erm_cvx.private_ranges import PrivateRanges
from dp2erm_cvx.public import public_number

Declared = TypeVar("Declared", bound=Domain | PrivateRanges)

#: What a domain file declares of the columns of a table, and the field of the codebook that it is.
CODEBOOK = {
    "treatment": "treatment",
    "outcome_column": "outcome",
    "levels": "levels",
    "missing": "missing",
    "units": "units",
    "sampling_weights": "sampling_weights",
    "cells": "cells",
    "eligible": "eligible",
    "eligible_share": "eligible_share",
}


def domain_of(declared: Mapping[str, Any]) -> Domain:
    """The domain that the names of a file declare. Raises DeclarationError."""
    check_names(declared)
    book, rest = split_codebook(declared)
    ranges = rest.get("ranges")
    if isinstance(ranges, Mapping) or (book and (book.levels or book.missing)):
        if not isinstance(ranges, Mapping | None):
            raise DeclarationError("ranges: need names beside levels or missing")
        named = ranges or {}
        rest["ranges"] = ranges = named if book is None else book.ranges(named)
    if book is not None and isinstance(rest.get("center"), Mapping):
        rest["center"] = _centers(book, rest["center"])
    if "covariate_bound" not in rest and ranges and isinstance(ranges, Mapping | list):
        inside = Domain.from_dict({**rest, "covariate_bound": 1e30, "outcome_bound": 1.0, "codebook": book})
        norm = norm_within(inside.ranges or (), book)
        rest["covariate_bound"] = math.hypot(public_number("intercept", rest.get("intercept", 0.0)), norm)
    return Domain.from_dict(rest if book is None else {**rest, "codebook": book})


def _centers(book: Codebook, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Typical values by covariate: of a column with levels the share of each, or of the only one."""
    found: dict[str, Any] = {}
    for name, value in declared.items():
        levels = book.levels.get(name)
        if levels is None:
            found[str(name)] = value
            continue
        if not isinstance(value, Mapping):
            if len(levels) > 1:
                raise DeclarationError(f"center: {name} has levels: declare {name} = {{ {levels[0]} = 0.2 }}")
            value = {levels[0]: value}
        for level, share in value.items():
            if level not in levels:
                raise DeclarationError(f"center: {name}: {known_names(level, map(str, levels))}")
            found[f"{name}={level or 'missing'}"] = share
    return found


def check_names(declared: Mapping[str, Any]) -> None:
    """Raise DeclarationError where a name is none that a file may declare."""
    known = {*(one.name for one in fields(Domain)), *CODEBOOK} - {"codebook"}
    for name in declared:
        if name not in known:
            told = known_names(name, sorted({*known, "csv"}))
            raise DeclarationError(f"domain: unknown name {shown(name)}; {told}")


def split_codebook(declared: Mapping[str, Any]) -> tuple[Codebook | None, dict[str, Any]]:
    """The codebook that a file declares, if any, and all else. Raises DeclarationError."""
    stated = {CODEBOOK[name]: value for name, value in declared.items() if name in CODEBOOK}
    rest = {name: value for name, value in declared.items() if name not in CODEBOOK}
    treatment = stated.get("treatment")
    if isinstance(treatment, str):
        stated["treatment"] = {"column": treatment}
    elif treatment is not None and not isinstance(treatment, Mapping):
        raise DeclarationError(f"treatment = {shown(treatment)}: must be a table [treatment]")
    return (Codebook.from_dict(stated) if stated else None), rest


def in_groups(public: Declared, where: Mapping[str, Any] | None, by: str | None) -> Declared:
    """The same, where records ``where`` count alone, and an effect is estimated in every level of ``by``.

    Raises DeclarationError where no codebook declares the levels of these columns.
    """
    if not where and by is None:
        return public
    if public.codebook is None:
        raise DeclarationError("where and by: need a codebook that declares the levels of their columns")
    book = public.codebook
    group, alone = book.group if by is None else by, where or book.where
    return replace(public, codebook=replace(book, where=alone, group=group))
