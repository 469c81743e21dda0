"""The question ``[[ranges]]``: what it leaves open, and the domains before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dp2erm_cvx.checks import public_number
from dp2erm_cvx.data.dataset import Public
from dp2erm_cvx.data.domain import Domain, ReleasedRanges
from dp2erm_cvx.data.domain_file import check_names, covariates_of, domain_of, open_domain_of
from dp2erm_cvx.data.private_ranges import (
    Known,
    OpenDomain,
    Pair,
    assumed_range,
    known_of,
    middle_and_half,
)
from dp2erm_cvx.errors import DeclarationError, brief, known_names
from dp2erm_cvx.release.ranges import RangesRelease

#: The kind of the question, and its name.
RANGES = "ranges"
#: What it may declare.
NAMES = ("share", "columns", "outcomes")
#: What other questions declare in units of an outcome, of which something has to be known then.
_IN_UNITS = ("residual_scale", "effect_center", "outcome_scale", "treatment_cost")
#: The same among their settings.
_SETTINGS_IN_UNITS = ("slope", "residual_bound", "score_bound", "center_slope", "response_bound")


class DeclaredRanges:
    """Where a study declares all of its ranges: the domain of a question is known in advance."""

    def known(self, own: Mapping[str, Any]) -> Public:
        """What is known in advance of the records of a question, by what is declared of them."""
        return self.domain(own)

    def domain(self, own: Mapping[str, Any]) -> Domain:
        """The domain that a question is planned in. Raises DeclarationError."""
        return domain_of(own)

    def check(self, table: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Raise DeclarationError where a question asks for what cannot be known in advance."""
        if "outcome_column" in table and "outcome_bound" not in own:
            raise DeclarationError("outcome_column: declare its outcome_bound beside it")


@dataclass(frozen=True)
class OpenRanges(DeclaredRanges):
    """Ranges of a study of which some are to be released.

    Until then they are planned with what is known of them.

    Parameters
    ----------
    columns
        What is known of the ranges of covariates, columns of numbers in the order of the file: one
        that is declared costs nothing, wide bounds say where to look for it. Of columns that
        ``covariates`` name and nobody else, nothing is known.
    outcomes
        The same of outcomes that questions ask about, in place of an outcome_bound.
    ends
        Released ranges by column; empty before the release.
    released
        Where they come from.
    """

    columns: Mapping[str, Known]
    outcomes: Mapping[str, Known]
    ends: Mapping[str, Pair] = field(default_factory=dict)
    released: ReleasedRanges | None = None

    def at(self, release: RangesRelease) -> OpenRanges:
        """The same with the ranges of a release. Raises DeclarationError where it has others."""
        ends = {one.column: one.pair for one in release.ranges}
        for name, known in (*self.columns.items(), *self.outcomes.items()):
            if not isinstance(known, tuple) and name not in ends:
                raise DeclarationError(
                    f"the ranges of {brief(name)} were not released: these are of another study"
                )
        return replace(self, ends=ends, released=release.stamp)

    def known(self, own: Mapping[str, Any]) -> OpenDomain:
        """What is known in advance of the records of a question."""
        return open_domain_of({**own, "ranges": self.columns}, self._outcome(own))

    def domain(self, own: Mapping[str, Any]) -> Domain:
        """The domain that a question is planned in: of released ranges, or of what is known."""
        ranges = {name: self._pair(name, known) for name, known in self.columns.items()}
        filled = {**own, "ranges": ranges}
        known = self._outcome(own)
        if "outcome_bound" not in own:
            pair = self._pair(str(own["outcome_column"]), known)
            filled["outcome_center"], filled["outcome_bound"] = middle_and_half(pair)
        return replace(domain_of(filled), released=self.released)

    def question(self, own: Mapping[str, Any]) -> OpenDomain:
        """What is known of all columns that the question is about, further outcomes among them."""
        others = {}
        for name, known in self.outcomes.items():
            if name != own["outcome_column"] and not isinstance(known, tuple):
                others[name] = known
        return open_domain_of({**own, "ranges": self.columns}, self._outcome(own), others)

    def check(self, table: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        """Raise DeclarationError where a question asks for what a released range may not allow."""
        if "outcome_bound" in own:
            return
        outcome = self._outcome(own)
        if isinstance(outcome, tuple):
            return
        column = own["outcome_column"]
        if "outcome_center" in own or own.get("binary_outcome"):
            raise DeclarationError(
                f"{column}: its range is released: declare its outcome_bound, or no center and "
                "event"
            )
        if table.get("estimand") == "risks":
            raise DeclarationError(
                f"estimand = 'risks': the range of {column} is released: declare outcome_bound"
            )
        if outcome is not None:
            return
        for name in _declared_in_units(table, own):
            wanted = f"outcomes = {{ {column} = {{ within = [low, high] }} }}"
            raise DeclarationError(
                f"{name}: is in units of {column}, of which nothing is known: give {wanted}"
            )

    def _outcome(self, own: Mapping[str, Any]) -> Known:
        """What is known of the outcome of a question."""
        if "outcome_bound" in own:
            return declared_outcome(own)
        return self.outcomes[str(own["outcome_column"])]

    def _pair(self, name: str, known: Known) -> Pair:
        """The range of a column: as it is declared or was released, else as it is planned with."""
        if isinstance(known, tuple):
            return known
        return self.ends.get(name, assumed_range(known))


def _declared_in_units(table: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    """Names of what a question declares in units of its outcome."""
    declared = {**table, "treatment_cost": own.get("treatment_cost")}
    for name in _IN_UNITS:
        if declared.get(name):
            yield name
    settings = table.get("settings")
    if isinstance(settings, Mapping):
        for name in _SETTINGS_IN_UNITS:
            if settings.get(name) not in (None, "none"):
                yield f"settings.{name}"


def declared_outcome(own: Mapping[str, Any]) -> Pair:
    """The range of an outcome that has a bound. Raises DeclarationError."""
    bound = public_number("outcome_bound", own["outcome_bound"], above=0.0)
    center = public_number("outcome_center", own.get("outcome_center", 0.0))
    return center - bound, center + bound


def read_open_ranges(
    table: Mapping[str, Any], declared: Mapping[str, Any], owns: Sequence[Mapping[str, Any]]
) -> tuple[OpenRanges, dict[str, Any]]:
    """The ranges that a study leaves open, and what it declares of the records for that question.

    Parameters
    ----------
    table
        The question ``[[ranges]]``.
    declared
        What the study declares of its records.
    owns
        The same, as every other question declares it.

    Raises
    ------
    DeclarationError
        Where the question declares what it cannot, or not what it has to.
    """
    for name in table:
        if name not in ("name", "kind", *NAMES):
            raise DeclarationError(f"unknown name {brief(name)}; {known_names(name, NAMES)}")
    check_names(declared)
    asked = list(owns) or [declared]
    columns = _columns(table, declared, asked)
    outcomes = _outcomes(table, asked)
    own = dict(declared)
    own.pop("outcome_center", None)
    own.pop("outcome_bound", None)
    named, all_are_named = _named_covariates(asked)
    if all_are_named:
        own["covariates"] = named
    own["outcome_column"], pair = next(iter(outcomes.items()))
    if isinstance(pair, tuple):
        own["outcome_center"], own["outcome_bound"] = middle_and_half(pair)
    _refuse_center(declared.get("center"), columns)
    return OpenRanges(columns, outcomes), own


def _named_covariates(asked: Sequence[Mapping[str, Any]]) -> tuple[list[str], bool]:
    """The covariates that questions name, each once, and whether every question names its own."""
    chosen = [covariates_of(one) for one in asked]
    named: dict[str, None] = {}
    for names in chosen:
        named |= dict.fromkeys(names or ())
    return list(named), None not in chosen


def _columns(
    table: Mapping[str, Any], declared: Mapping[str, Any], asked: Sequence[Mapping[str, Any]]
) -> dict[str, Known]:
    """What is known of the columns of numbers that are covariates; None where nothing is."""
    listed = _entries(table, "columns")
    named, all_are_named = _named_covariates(asked)
    if all_are_named:
        listed = {name: known for name, known in listed.items() if name in named}
    levels = declared.get("levels")
    if not isinstance(levels, Mapping):
        levels = {}
    if not (listed or named or levels):
        raise DeclarationError(
            'no column is named: give columns = { age = [18, 90], income = "release" }'
        )
    return listed | {name: None for name in named if name not in listed and name not in levels}


def _outcomes(table: Mapping[str, Any], asked: Sequence[Mapping[str, Any]]) -> dict[str, Known]:
    """What is known of every outcome that is asked about, by its column."""
    listed = _entries(table, "outcomes")
    outcomes: dict[str, Known] = {}
    for own in asked:
        name = own.get("outcome_column")
        if not isinstance(name, str):
            wanted = 'give outcome_column = "COLUMN" in the file, or by --set'
            raise DeclarationError(f"the column of the outcome is not declared: {wanted}")
        if "outcome_bound" not in own:
            # An outcome that one question bounds, and another one leaves open, is open.
            outcomes[name] = listed.get(name)
        elif name not in outcomes:
            outcomes[name] = declared_outcome(own)
    for name in listed:
        if name not in outcomes:
            raise DeclarationError(
                f"outcomes: {brief(name)} is asked about nowhere; {known_names(name, outcomes)}"
            )
        if all("outcome_bound" in own for own in asked if own["outcome_column"] == name):
            raise DeclarationError(
                f"outcomes: {brief(name)} has an outcome_bound: declare one of both"
            )
    return outcomes


def _refuse_center(center: object, columns: Mapping[str, Known]) -> None:
    """Raise DeclarationError where a typical value is declared in a range that is released."""
    if not isinstance(center, Mapping):
        return
    for name in center:
        if name in columns and not isinstance(columns[name], tuple):
            raise DeclarationError(
                f"center: {brief(name)}: its range is released, and may not hold it: leave it out"
            )


def _entries(table: Mapping[str, Any], title: str) -> dict[str, Known]:
    """What is known of columns by name. Raises DeclarationError."""
    entries = table.get(title, {})
    if not isinstance(entries, Mapping):
        raise DeclarationError(f"{title} = {brief(entries)}: must be a table of columns")
    return {str(name): known_of(str(name), entry) for name, entry in entries.items()}
