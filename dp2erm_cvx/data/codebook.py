"""Codebook of a raw table: the public rule that makes numbers of the cells of one record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.checks import (
    Named,
    by_name,
    check_settings,
    declared_by_name,
    json_types,
    list_of,
    one_line,
    public_number,
    setting,
    table_of,
)
from dp2erm_cvx.data.bins import (
    MOST_CROSSED,
    bin_levels,
    bin_places,
    crossed_levels,
    crossed_name,
    crossed_places,
    declared_cuts,
    declared_pair,
    middle_bin,
    number_in_words,
    refuse_cuts_outside,
)
from dp2erm_cvx.data.cells import (
    CellRule,
    Column,
    Eligible,
    Treatment,
    declared_label,
    declared_levels,
)
from dp2erm_cvx.data.counts import SamplingWeights, Unit
from dp2erm_cvx.data.tables import Table, by_label, numbers_or_nan
from dp2erm_cvx.errors import DeclarationError, brief, known_names

Value = TypeVar("Value")

#: The level that every undeclared one counts as, where it is declared.
OTHER = "other"
#: Of columns that are 0 or 1, so that 0 stays 0: of all levels of a column one is 1, and counts in
#: the norm.
SWITCH = (-1.0, 1.0)


@dataclass(frozen=True)
class Codebook:
    """Public meaning of the columns of a raw table, beside the ranges of a domain.

    Parameters
    ----------
    treatment
        Column and labels of the treatment.
    outcome
        Column of the outcome.
    levels
        For each categorical column its levels: covariate ``region=N`` is 1 where the cell is N,
        else 0. An undeclared level, and a missing cell, count as the level "other" if that is
        declared, else as none of them; the empty text "" declares a level of missing cells. Effects
        are predicted at the mean of the levels where a record has none of them
        (:meth:`with_mean_levels`).
    missing
        For columns of numbers the public constant, in their own units, that stands for a missing
        cell; covariate ``severity=missing`` is then 1. Other columns take the middle of their
        range, unmarked. For the outcome it may be declared too; a record without one does not count
        otherwise.
    bins
        For columns of numbers the public points at which their ranges are cut: the bins are levels
        in place of the number, such as ``age=30 to below 50``. A cut belongs to the bin above it;
        numbers beyond the range are in the first or the last bin. A missing cell is the level
        ``missing`` where ``missing`` names the column, whatever the constant; else it is in the bin
        of the middle between the outer cuts.
    crossed
        Pairs of columns with levels or bins: every level of one within every level of the other is
        a covariate, such as ``age x stage=below 30, II``, in place of the levels of both. At most
        200 a pair. A record that has no level in one of the two has none of the pair.
    log
        Columns of positive numbers that vary by factors, such as doses: covariate ``log(dose)`` is
        the natural logarithm. Range, typical value and what stands for a missing cell are those of
        the dose.
    units
        Of columns, for readers.
    sampling_weights
        Column and bound of the sampling weights of a survey.
    unit
        Column and number of the persons that are protected, where one may have several records.
    cells
        How cells are read before all else: spellings, units, dates.
        :class:`~dp2erm_cvx.data.cells.CellRule`.
    eligible
        What a record has to fulfil to count, all of it. Read by
        :class:`~dp2erm_cvx.data.cells.Eligible`.
    eligible_share
        In (0, 1]: a public guess of the share of records that do. No guarantee rests on it.
    where
        For columns with levels the level whose records alone count: others count 0, like those
        without a treatment.
    group
        A column of at least two levels, in each of which an effect is estimated. A record of none
        of them does not count.

    A cell that is no finite number counts as missing. A record without treatment or outcome does
    not count in effects and rules: its weight is 0. What takes no weights has the center of the
    outcome for one that is missing, and where the treatment is, one fixed record: a control with
    the outcome of a missing one, and covariates in the middle of their ranges. All this depends on
    the cells of one record alone (Theorem 10), and n stays what it is. Raises DeclarationError
    naming the entry.
    """

    treatment: Treatment = setting(Treatment(), table_of, kind=Treatment)
    outcome: str | None = setting(None, one_line, title="the column of the ")
    levels: Mapping[str, Sequence[str | float]] = setting(Named({}), by_name, entry=declared_levels)
    missing: Mapping[str, float] = setting(Named({}), by_name, entry=public_number)
    units: Mapping[str, str] = setting(Named({}), by_name, entry=one_line)
    sampling_weights: SamplingWeights | None = setting(None, table_of, kind=SamplingWeights)
    where: Mapping[str, str | float] = setting(Named({}), by_name, entry=declared_label)
    group: str | None = None
    cells: Mapping[str, CellRule] = setting(
        Named({}), by_name, entry=partial(table_of, kind=CellRule)
    )
    eligible: Sequence[str] = setting(
        (), list_of, entry=lambda _, text: Eligible(text).text, example='["age >= 18"]'
    )
    eligible_share: float = setting(0.8, above=0.0, at_most=1.0)
    unit: Unit | None = setting(None, table_of, kind=Unit)
    log: Sequence[str] = setting((), list_of, entry=one_line, example='["dose"]')
    bins: Mapping[str, Sequence[float]] = setting(Named({}), by_name, entry=declared_cuts)
    crossed: Sequence[tuple[str, str]] = setting(
        (), list_of, entry=declared_pair, example='[["age", "stage"]]'
    )

    def __post_init__(self) -> None:
        check_settings(self)
        self._refuse_confused()
        self._refuse_crossed()
        for title, column in (*(("where", name) for name in self.where), ("by", self.group)):
            if title == "by" and column is None:
                continue
            sets = self.level_sets
            if not isinstance(column, str) or column not in sets:
                hint = known_names(column, sets) if sets else "no levels are declared"
                raise DeclarationError(f"{title}: {brief(column)} has no declared levels; {hint}")
            level, known = self.where.get(column), sets[column]
            if title == "by" and level is not None:
                raise DeclarationError(
                    f"by: {brief(column)} is fixed by where: leave one of them out"
                )
            if title == "by" and len(known) < 2:
                raise DeclarationError(
                    f"by: {brief(column)} has one level: at least two make groups"
                )
            if level is not None and level not in known:
                text = ", ".join(map(brief, known))
                raise DeclarationError(f"where: {column} = {brief(level)}: must be one of {text}")

    @property
    def groups(self) -> tuple[str, ...]:
        """The levels in each of which an effect is estimated.

        They are empty where no column of groups is declared.
        """
        return () if self.group is None else self.level_sets[self.group]

    @property
    def level_sets(self) -> dict[str, tuple[str, ...]]:
        """Levels of every raw column that has any: the declared ones, then those of bins."""
        sets = {name: tuple(map(str, levels)) for name, levels in self.levels.items()}
        for name, cuts in self.bins.items():
            sets[name] = (*bin_levels(cuts), *([""] if name in self.missing else []))
        return sets

    @property
    def crosses(self) -> dict[str, tuple[str, str]]:
        """The two raw columns of every cross, by its name."""
        return {crossed_name(pair): pair for pair in self.crossed}

    @property
    def crossed_columns(self) -> frozenset[str]:
        """Raw columns that stand in a cross, which takes the place of their own covariates."""
        return frozenset(column for pair in self.crossed for column in pair)

    @property
    def covariate_levels(self) -> dict[str, tuple[str, ...]]:
        """Levels that are covariates, by their column or cross.

        Crossed columns have none of their own.
        """
        sets = self.level_sets
        own = {name: levels for name, levels in sets.items() if name not in self.crossed_columns}
        for name, (first, second) in self.crosses.items():
            own[name] = crossed_levels(sets[first], sets[second])
        return own

    def is_complete(self, column: str) -> bool:
        """True if every record has one of the levels of a column, or of a cross.

        That is so whatever its cells hold.
        """
        if column in self.crosses:
            return all(map(self.is_complete, self.crosses[column]))
        return column in self.bins or OTHER in self.level_sets[column]

    def places(self, column: Column, name: str) -> NDArray[np.int64]:
        """The place (n,) of the level of every record among those of a column or cross.

        Parameters
        ----------
        column
            Cells of raw columns by name, as they are declared to be read.
        name
            A raw column with levels or bins, or a cross. A record of none of its levels is behind
            the last.
        """
        if name in self.crosses:
            first, second = self.crosses[name]
            sizes = len(self.level_sets[first]), len(self.level_sets[second])
            return crossed_places(self.places(column, first), self.places(column, second), sizes)
        levels = self.level_sets[name]
        if name in self.bins:
            cuts = self.bins[name]
            missing = levels.index("") if "" in levels else middle_bin(cuts)
            return bin_places(cuts, numbers_or_nan(column(name), name), missing)
        known = {level: place for place, level in enumerate(levels)}
        other = known.get(OTHER, len(known))
        return by_label(column(name), name, lambda text: known.get(text, other), np.int64)

    def members(self, column: Column, name: str) -> NDArray[np.bool_]:
        """Indicator (n, K) of the level of every record in a raw column: at most one of them."""
        places = self.places(column, name)
        return np.asarray(places[:, None] == np.arange(len(self.level_sets[name])))

    def read(self, table: Table) -> Column:
        """Cells of raw columns as they are declared to be read.

        This is the one place where ``cells`` are applied.
        """
        return lambda name: self.read_as(name, self.raw_cells(table, name), table)

    def read_as(self, name: str | None, values: Any, table: Table) -> Any:
        """The cells ``values`` (n,) as those of the raw column ``name``.

        The units that numbers are in are cells of ``table``.
        """
        rule = self.cells.get(name or "")
        return values if rule is None or name is None else rule.read(values, name, table.cells)

    def raw_cells(self, table: Table, name: str) -> Any:
        """The cells of a column that its rule reads: as they are written, where it reads texts."""
        return table.cells(name, written=self.reads_texts(name))

    def reads_texts(self, name: str | None) -> bool:
        """Whether the cells of a raw column are read as they are written in a file."""
        rule = self.cells.get(name or "")
        return rule is not None and rule.reads_texts

    @property
    def beside(self) -> tuple[str, ...]:
        """Columns that decide what a record counts, or in which units its numbers are."""
        compared = [name for text in self.eligible for name in Eligible(text).columns]
        return *filter(None, (*self.no_covariates[2:], self.group)), *self.where, *compared

    @property
    def protected(self) -> str:
        """Who is: records, or persons by their column."""
        return "records" if self.unit is None else f"persons by {self.unit.column}"

    @property
    def renames(self) -> bool:
        """True if a raw column may become covariates of other names."""
        return bool(self.levels or self.missing or self.log or self.bins)

    @property
    def may_exclude(self) -> bool:
        """True if a record with treatment and outcome may count 0."""
        return bool(self.eligible or self.where or self.group)

    @property
    def may_move_arms(self) -> bool:
        """True if the arm of a record depends on more than the cell of its treatment."""
        rule = self.cells.get(self.treatment.column or "")
        return self.may_exclude or (rule is not None and rule.unit_column is not None)

    def counts(self, column: Column, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of records (n,), by group (n, K).

        They are 0 of records that are not eligible, or outside of ``where``.
        """
        for text in self.eligible:
            counts = np.where(Eligible(text).of(column), counts, 0.0)
        for name, level in self.where.items():
            inside = self.members(column, name)[:, self.level_sets[name].index(str(level))]
            counts = np.where(inside, counts, 0.0)
        if (group := self.group) is None:
            return counts
        return counts[:, None] * self.members(column, group)

    def _refuse_confused(self) -> None:
        treatment, outcome, weights, unit, *_ = self.no_covariates
        columns = treatment, outcome, weights, *self.levels, *self.bins, *self.missing, *self.cells
        coded = *self.levels, *self.bins
        twice = {
            "sampling_weights": weights if weights in (treatment, outcome, *coded) else None,
            "bins": next(
                (name for name in self.bins if name in (*self.levels, treatment, outcome)), None
            ),
            "unit": unit if unit in columns or self.beside.count(str(unit)) > 1 else None,
        }
        apart = *self.no_covariates, *coded
        twice["log"] = next(
            (name for name in self.log if name in apart or self.log.count(name) > 1), None
        )
        for title, column in twice.items():
            if column is not None:
                raise DeclarationError(f"{title}: {brief(column)} is declared otherwise as well")
        for name, known in self.levels.items():
            if {"", "missing"} <= {*known}:
                raise DeclarationError(
                    f"two covariates are called '{name}=missing': leave one level out"
                )
        if weights in self.missing:
            raise DeclarationError(
                f"missing: {brief(weights)}: declare it as missing of [sampling_weights]"
            )
        for name in self.missing:
            if name == treatment:
                text = "leave it out: a record without treatment counts as a fixed one"
                raise DeclarationError(f"missing: {brief(name)}: {text}")
            if name in self.levels:
                raise DeclarationError(
                    f'missing: {brief(name)} has levels: declare "" among them instead'
                )
            self.scaled(name, self.missing[name])

    def _refuse_crossed(self) -> None:
        """Raise DeclarationError for a cross that cannot be.

        A column has no levels, there are too many levels, or the cross stands there twice.
        """
        sets = self.level_sets
        for place, (first, second) in enumerate(self.crossed):
            title = f"bins: cross of {brief(first)} and {brief(second)}"
            for column in (first, second):
                if column not in sets:
                    hint = known_names(column, sets) if sets else "no columns have any"
                    raise DeclarationError(
                        f"{title}: {brief(column)} has neither bins nor levels; {hint}"
                    )
            number = len(sets[first]) * len(sets[second])
            if number > MOST_CROSSED:
                raise DeclarationError(f"{title}: {number} levels: at most {MOST_CROSSED}")
            if {first, second} in [{*pair} for pair in self.crossed[:place]]:
                raise DeclarationError(f"{title}: stands there twice")

    @property
    def no_covariates(self) -> tuple[str | None, ...]:
        """The columns that are no covariates, where they are named.

        They hold treatment, outcome, sampling weights, persons and units.
        """
        weights, unit = (
            None if own is None else own.column for own in (self.sampling_weights, self.unit)
        )
        units = (rule.unit_column for rule in self.cells.values())
        return self.treatment.column, self.outcome, weights, unit, *units

    def covariates_of(self, column: str) -> dict[str, str | None]:
        """The covariates that a raw column or a cross becomes.

        Of one that is 0 or 1 with the level that it is of, or "missing"; of a number with None. A
        column that is crossed becomes the covariates of its crosses.
        """
        levels = self.covariate_levels
        within = [name for name, pair in self.crosses.items() if column in pair]
        coded = within or [column] * (column in levels)
        if coded:
            return {
                f"{name}={level or 'missing'}": level for name in coded for level in levels[name]
            }
        number: dict[str, str | None] = {f"log({column})" if column in self.log else column: None}
        return number | ({f"{column}=missing": "missing"} if column in self.missing else {})

    def scaled(self, column: str, number: float) -> float:
        """A declared number of a column as one of its covariate. Raises DeclarationError."""
        if column not in self.log:
            return number
        if not public_number(column, number) > 0:
            raise DeclarationError(
                f"log: {column} = {number:g}: a range and all else must be above 0"
            )
        return math.log(number)

    def expanded(self, chosen: Any) -> Any:
        """A list of covariates in which raw columns are replaced by what they become."""
        if isinstance(chosen, str) or not isinstance(chosen, Sequence):
            return chosen
        covariates: list[Any] = []
        for name in chosen:
            own = list(self.covariates_of(name)) if type(name) is str else [name]
            if len(own) > 1:  # two columns that are crossed become the same
                own = [one for one in own if one not in covariates]
            covariates += own
        return covariates

    def numbers(self, column: str, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """The numbers (n,) of a column as those of its covariate.

        What is not positive is below any range.
        """
        return np.log(np.maximum(cells, 1e-300)) if column in self.log else cells

    def ranges(self, declared: Mapping[str, Value]) -> dict[str, Value | tuple[float, float]]:
        """Ranges of all covariates.

        They are those ``declared`` of columns of numbers, and (-1, 1) of what is 0 or 1.

        Raises DeclarationError where a column has no range, or two meanings.
        """
        ranges: dict[str, Value | tuple[float, float]] = {}
        for name in [*declared, *self.levels, *self.crosses]:
            if name in self.no_covariates:
                kind = "the column of sampling weights, of persons or of units"
                if name in (self.treatment.column, self.outcome):
                    kind = "the treatment or the outcome"
                raise DeclarationError(f"{brief(name)} is {kind}, and no covariate")
            if name in declared and name in self.levels:
                raise DeclarationError(f"{brief(name)} has a range and levels: declare one of them")
            own: Any = declared.get(name)
            if name in self.log and not isinstance(own, tuple | list):
                raise DeclarationError(f"log: {brief(name)}: declare its range (low, high)")
            own = tuple(self.scaled(name, end) for end in own) if name in self.log else own
            if name in self.bins:
                refuse_cuts_outside(name, self.bins[name], own)
            if name in self.crossed_columns:
                continue
            for one, part in self.covariates_of(name).items():
                if one in ranges:
                    raise DeclarationError(
                        f"two covariates are called {brief(one)}: rename a column"
                    )
                ranges[one] = own if part is None else SWITCH
        for name in (*self.missing, *self.log, *self.bins):
            if name not in declared and name != self.outcome:
                title = "log" if name in self.log else "bins" if name in self.bins else "missing"
                raise DeclarationError(
                    f"{title}: {brief(name)} has no range: declare one, or leave it out"
                )
        return ranges

    def norm(self, ranges: Mapping[str, Any]) -> float:
        """Bound on the norm of scaled covariates with these ``ranges``.

        Of the levels of one column one is 1. The indicator of a missing number is 1 where the
        number is the scaled constant, which counts as 1 where the range is not declared.
        """
        total = 0.0
        for column in dict.fromkeys(self.origin(name)[0] for name in ranges):
            total += 1.0
            number = next(iter(self.covariates_of(column)))
            if number in ranges and column in self.marked and f"{column}=missing" in ranges:
                size = 1.0
                if isinstance(ranges[number], tuple | list):
                    constant, (low, high) = (
                        self.scaled(column, self.missing[column]),
                        ranges[number],
                    )
                    size = abs(float((constant / 2 - (low / 4 + high / 4)) / (high / 4 - low / 4)))
                total += min(size, 1.0) ** 2
        return math.sqrt(total)

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """The raw columns that these covariates are made of."""
        made_of = [self.origin(name)[0] for name in names]
        raw = [column for name in made_of for column in self.crosses.get(name, (name,))]
        return tuple(dict.fromkeys(raw))

    @property
    def marked(self) -> tuple[str, ...]:
        """Columns of numbers, not of bins, whose missing cells have a covariate of their own."""
        return tuple(name for name in self.missing if name not in self.bins)

    def origin(self, name: str) -> tuple[str, str | None]:
        """The raw column or cross of a covariate, and what it stands for.

        That is a level, or "missing".
        """
        for column in (*self.covariate_levels, *self.marked, *self.log):
            if name in (known := self.covariates_of(column)):
                return column, known[name]
        return name, None

    def covariates(
        self, column: Column, names: Sequence[str], middles: Sequence[float]
    ) -> NDArray[np.float64]:
        """Covariates (n, k) of these ``names`` from the cells of raw columns, each cell by itself.

        ``middles`` stand for missing numbers for which nothing is declared.
        """
        columns: list[NDArray[Any]] = []
        read: dict[str, Any] = {}
        for name, middle in zip(names, middles, strict=True):
            raw, part = self.origin(name)
            coded = raw in self.covariate_levels
            if raw not in read:  # covariates of one column stand beside each other
                read = {
                    raw: self.places(column, raw) if coded else numbers_or_nan(column(raw), raw)
                }
            cells = read[raw]
            if coded:
                columns.append(cells == self.covariate_levels[raw].index(str(part)))
                continue
            absent = np.isnan(cells)
            if part:
                columns.append(absent)
                continue
            cells = self.numbers(raw, cells)
            constant = self.scaled(raw, self.missing[raw]) if raw in self.missing else middle
            columns.append(np.where(absent, constant, cells) if absent.any() else cells)
        if not columns:
            return np.empty((0, 0))
        return np.column_stack(columns).astype(np.float64, copy=False)

    def with_mean_levels(self, X: NDArray[np.float64], names: Sequence[str]) -> NDArray[np.float64]:
        """Covariates to predict at, in which a column of none of its levels counts as their mean.

        The coefficients of a rule say what every level adds to a constant. At a record of no level
        the constant alone would be left, which noise decides unless many records have none either,
        whereas its sum with the mean of the levels is told by all records. A fit codes none of the
        levels as 0 in all of them, which adjusts for what sets such records apart, and predictions
        are made from a release alone: no sum over private records changes. Bounds would hold all
        the same, because each record is mapped by public constants (Theorem 10), and L >= 2 numbers
        1/L have the norm 1/sqrt(L), below the 1 that the levels of a column count in :meth:`norm`.

        Parameters
        ----------
        X
            (n, k) covariates in their own units, as :meth:`covariates` makes them.
        names
            Their names. A column counts where all of its levels are among them, and there are two
            or more.

        Returns
        -------
        Array
            (n, k): X itself where every record has its levels.
        """
        places = {name: place for place, name in enumerate(names)}
        filled = X
        for column, levels in self.covariate_levels.items():
            own = [places[name] for name in self.covariates_of(column) if name in places]
            if self.is_complete(column) or not 2 <= len(own) == len(levels):
                continue
            none = np.flatnonzero(~np.any(X[:, own] != 0.0, axis=1))
            if len(none):
                filled = filled.copy() if filled is X else filled
                for place in own:
                    filled[none, place] = 1.0 / len(own)
        return filled

    def in_words(self, *, fixed: bool = False) -> str:
        """The public rule in words.

        With ``fixed``, records without treatment count as one fixed record.
        """
        arms, column = self.treatment, self.treatment.column or "treatment"
        two = f"{column} {arms.treated} is treated, {arms.control} a control"
        constant = self.outcome in self.missing
        lost = (
            "counts as an untreated one with the middle of every range"
            if fixed
            else "does not count"
        )
        parts = [
            f"{column} has the arms {', '.join(arms.labels)}" if arms.levels else two,
            *(
                f"{name} has levels {', '.join(str(level) or 'missing' for level in known)}"
                for name, known in self.levels.items()
            ),
            *(self._bins_in_words(name) for name in self.bins),
            *(f"{first} and {second} are crossed" for first, second in self.crossed),
            *(rule.describe(name) for name, rule in self.cells.items()),
            *(f"{name} is {self.missing[name]:g} where missing" for name in self.marked),
            *(f"{name} counts by its natural logarithm" for name in self.log),
            "a number that is missing counts as the middle of its range",
            *(
                ["an outcome that is missing counts as the middle of its range"]
                * (fixed and not constant)
            ),
            *(part.in_words() for part in (self.sampling_weights, self.unit) if part is not None),
            *(f"a record that does not fulfil {text} {lost}" for text in self.eligible),
            *(
                f"a record with another {name} than {level} {lost}"
                for name, level in self.where.items()
            ),
            *([f"a record whose {self.group} is none of its levels {lost}"] if self.group else []),
            f"a record without treatment {'' if fixed or constant else 'or outcome '}{lost}",
        ]
        return "; ".join(parts)

    def cut_columns(self) -> list[str]:
        """What cuts and crosses make of columns, with the number of levels of each, for readers."""
        sets = self.level_sets
        lines = [f"{name}: {len(sets[name])} levels by its bins" for name in self.bins]
        for name, (first, second) in self.crosses.items():
            number = len(sets[first]) * len(sets[second])
            lines.append(f"{name}: {number} levels, {len(sets[first])} by {len(sets[second])}")
        return lines

    def _bins_in_words(self, name: str) -> str:
        cuts = ", ".join(map(number_in_words, self.bins[name]))
        missing = (
            "is a level" if name in self.missing else "counts as the middle between the outer cuts"
        )
        return f"{name} is cut at {cuts} into levels, and a missing one {missing}"

    def to_dict(self) -> dict[str, Any]:
        """The declarations as plain JSON types."""
        # files of before there were any of the others stay as they are
        optional = (
            "sampling_weights",
            "unit",
            "where",
            "group",
            "cells",
            "eligible",
            "log",
            "bins",
            "crossed",
        )
        names = ["treatment", "outcome", "levels", "missing", "units"]
        names += [name for name in optional if getattr(self, name)]
        names += ["eligible_share"] if self.eligible else []
        return {name: json_types(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Codebook:
        """Build a codebook from plain values; raises DeclarationError on an unknown name."""
        return declared_by_name(cls, "codebook", declared)


def checked_codebook(codebook: object, ranges: object) -> Codebook | None:
    """The codebook, made of plain values if need be.

    Raises DeclarationError where it is none of these ranges.
    """
    if codebook is None:
        return None
    codebook = table_of("codebook", codebook, Codebook)
    if not isinstance(ranges, Mapping):
        return codebook
    for column in (*codebook.level_sets, *codebook.missing, *codebook.log):
        own = codebook.covariates_of(column)
        if column in ranges and column not in own:
            kind = "levels" if column in codebook.level_sets else "a logarithm"
            raise DeclarationError(
                f"ranges[{column}]: has {kind}: take the ranges of Codebook.ranges"
            )
        for name, part in own.items():
            if part is not None and name in ranges and ranges[name] != SWITCH:
                raise DeclarationError(f"ranges[{name}] = {brief(ranges[name])}: must be {SWITCH}")
    return codebook


def norm_within(ranges: Mapping[str, Any] | Sequence[Any], codebook: Codebook | None) -> float:
    """Bound on the norm of scaled covariates inside their ranges: the root of their number.

    Covariates that a codebook makes of one column count once, see :meth:`Codebook.norm`.
    """
    if codebook is None or not isinstance(ranges, Mapping):
        return math.sqrt(len(ranges))
    return codebook.norm(ranges)
