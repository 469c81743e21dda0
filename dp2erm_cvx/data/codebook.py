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
#: What a number that is not positive counts as before its logarithm is taken: it is below any
#: range.
_LEAST_POSITIVE = 1e-300
#: Entries that a file names only where they are declared.
_OPTIONAL = (
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
        for column, level in self.where.items():
            levels = self._levels_named("where", column)
            if level not in levels:
                text = ", ".join(map(brief, levels))
                raise DeclarationError(f"where: {column} = {brief(level)}: must be one of {text}")
        if self.group is not None:
            self._refuse_group(self.group)

    @property
    def groups(self) -> tuple[str, ...]:
        """The levels in each of which an effect is estimated; none without a column of groups."""
        return () if self.group is None else self.level_sets[self.group]

    @property
    def level_sets(self) -> dict[str, tuple[str, ...]]:
        """Levels of every raw column that has any: the declared ones, then those of bins."""
        sets = {name: tuple(map(str, levels)) for name, levels in self.levels.items()}
        for name, cuts in self.bins.items():
            sets[name] = bin_levels(cuts)
            if name in self.missing:
                sets[name] += ("",)
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
        crossed = self.crossed_columns
        covariates = {name: levels for name, levels in sets.items() if name not in crossed}
        for name, (first, second) in self.crosses.items():
            covariates[name] = crossed_levels(sets[first], sets[second])
        return covariates

    def is_complete(self, column: str) -> bool:
        """True if every record has a level of the column or cross, whatever its cells hold."""
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
            sizes = (len(self.level_sets[first]), len(self.level_sets[second]))
            return crossed_places(self.places(column, first), self.places(column, second), sizes)
        levels = self.level_sets[name]
        if name in self.bins:
            cuts = self.bins[name]
            missing = levels.index("") if "" in levels else middle_bin(cuts)
            return bin_places(cuts, numbers_or_nan(column(name), name), missing)
        place_of = {level: place for place, level in enumerate(levels)}
        other = place_of.get(OTHER, len(place_of))
        return by_label(column(name), name, lambda text: place_of.get(text, other), np.int64)

    def members(self, column: Column, name: str) -> NDArray[np.bool_]:
        """Indicators (n, K) of the levels of a raw column: at most one of a record is True."""
        places = self.places(column, name)
        return np.asarray(places[:, None] == np.arange(len(self.level_sets[name])))

    def read(self, table: Table) -> Column:
        """Cells of raw columns by name, as they are declared to be read.

        This is the one place where ``cells`` are applied.
        """
        return lambda name: self.read_as(name, self.raw_cells(table, name), table)

    def read_as(self, name: str | None, values: Any, table: Table) -> Any:
        """Cells (n,) as the rule of a raw column reads them.

        Parameters
        ----------
        name
            The raw column, if it has a name.
        values
            Its cells (n,).
        table
            Holds the cells of the units that numbers are in.
        """
        rule = self.cells.get(name or "")
        if rule is None or name is None:
            return values
        return rule.read(values, name, table.cells)

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
        _, _, *columns = self.no_covariates
        names = [name for name in (*columns, self.group) if name]
        names += self.where
        for text in self.eligible:
            names += Eligible(text).columns
        return tuple(names)

    @property
    def protected(self) -> str:
        """What a guarantee protects: records, or persons by their column."""
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
        """What records count, given what they count where they are eligible.

        Parameters
        ----------
        column
            Cells of raw columns by name, as they are declared to be read.
        counts
            (n,): sampling weights, or 1.

        Returns
        -------
        Array
            (n,), or (n, K) in K groups: 0 for records that are not eligible or outside of
            ``where``.
        """
        for text in self.eligible:
            counts = np.where(Eligible(text).of(column), counts, 0.0)
        for name, level in self.where.items():
            place = self.level_sets[name].index(str(level))
            counts = np.where(self.members(column, name)[:, place], counts, 0.0)
        if self.group is None:
            return counts
        return counts[:, None] * self.members(column, self.group)

    def _refuse_confused(self) -> None:
        """Raise DeclarationError where a column is declared in two ways."""
        treatment, outcome, weights, unit, *_ = self.no_covariates
        with_levels = (*self.levels, *self.bins)
        if weights is not None and weights in (treatment, outcome, *with_levels):
            raise _declared_twice("sampling_weights", weights)
        for name in self.bins:
            if name in (*self.levels, treatment, outcome):
                raise _declared_twice("bins", name)
        columns = (treatment, outcome, weights, *with_levels, *self.missing, *self.cells)
        if unit is not None and (unit in columns or self.beside.count(unit) > 1):
            raise _declared_twice("unit", unit)
        for name in self.log:
            if name in (*self.no_covariates, *with_levels) or self.log.count(name) > 1:
                raise _declared_twice("log", name)
        for name, levels in self.levels.items():
            if "" in levels and "missing" in levels:
                raise DeclarationError(
                    f"two covariates are called '{name}=missing': leave one level out"
                )
        self._refuse_missing(treatment, weights)

    def _refuse_missing(self, treatment: str | None, weights: str | None) -> None:
        """Raise DeclarationError where a constant for missing cells makes no sense."""
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
        earlier: list[set[str]] = []
        for first, second in self.crossed:
            title = f"bins: cross of {brief(first)} and {brief(second)}"
            for column in (first, second):
                if column not in sets:
                    hint = known_names(column, sets) if sets else "no columns have any"
                    raise DeclarationError(
                        f"{title}: {brief(column)} has neither bins nor levels; {hint}"
                    )
            n_levels = len(sets[first]) * len(sets[second])
            if n_levels > MOST_CROSSED:
                raise DeclarationError(f"{title}: {n_levels} levels: at most {MOST_CROSSED}")
            if {first, second} in earlier:
                raise DeclarationError(f"{title}: stands there twice")
            earlier.append({first, second})

    def _levels_named(self, title: str, column: Any) -> tuple[str, ...]:
        """The levels of a column. Raises DeclarationError where it has none."""
        sets = self.level_sets
        if not isinstance(column, str) or column not in sets:
            hint = known_names(column, sets) if sets else "no levels are declared"
            raise DeclarationError(f"{title}: {brief(column)} has no declared levels; {hint}")
        return sets[column]

    def _refuse_group(self, column: str) -> None:
        """Raise DeclarationError where a column makes no groups."""
        levels = self._levels_named("by", column)
        if column in self.where:
            raise DeclarationError(f"by: {brief(column)} is fixed by where: leave one of them out")
        if len(levels) < 2:
            raise DeclarationError(f"by: {brief(column)} has one level: at least two make groups")

    @property
    def no_covariates(self) -> tuple[str | None, ...]:
        """The columns that are no covariates, None where one is not named.

        They hold the treatment, the outcome, sampling weights, persons, and units of numbers.
        """
        weights = None if self.sampling_weights is None else self.sampling_weights.column
        persons = None if self.unit is None else self.unit.column
        units = [rule.unit_column for rule in self.cells.values()]
        return (self.treatment.column, self.outcome, weights, persons, *units)

    def covariates_of(self, column: str) -> dict[str, str | None]:
        """The covariates that a raw column or a cross becomes.

        Parameters
        ----------
        column
            Its name. A column that is crossed becomes the covariates of its crosses.

        Returns
        -------
        dict
            For each covariate that is 0 or 1 the level that it is of, or "missing"; for a number
            None.
        """
        levels_by_column = self.covariate_levels
        with_levels = [name for name, pair in self.crosses.items() if column in pair]
        if not with_levels and column in levels_by_column:
            with_levels = [column]
        covariates: dict[str, str | None] = {}
        for name in with_levels:
            for level in levels_by_column[name]:
                covariates[f"{name}={level or 'missing'}"] = level
        if with_levels:
            return covariates
        number = f"log({column})" if column in self.log else column
        covariates[number] = None
        if column in self.missing:
            covariates[f"{column}=missing"] = "missing"
        return covariates

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
            made = list(self.covariates_of(name)) if type(name) is str else [name]
            if len(made) > 1:  # two columns that are crossed become the same
                made = [covariate for covariate in made if covariate not in covariates]
            covariates += made
        return covariates

    def numbers(self, column: str, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """The numbers (n,) of a column as those of its covariate.

        What is not positive is below any range.
        """
        if column not in self.log:
            return cells
        return np.log(np.maximum(cells, _LEAST_POSITIVE))

    def ranges(self, declared: Mapping[str, Value]) -> dict[str, Value | tuple[float, float]]:
        """Ranges of all covariates, by their names.

        Parameters
        ----------
        declared
            Ranges of columns of numbers, by the names of the raw columns.

        Returns
        -------
        dict
            Those, on the logarithmic scale for columns that are declared so, and (-1, 1) for every
            covariate that is 0 or 1.

        Raises
        ------
        DeclarationError
            Where a column has no range, or two meanings.
        """
        ranges: dict[str, Value | tuple[float, float]] = {}
        for name in [*declared, *self.levels, *self.crosses]:
            self._refuse_no_covariate(name)
            if name in declared and name in self.levels:
                raise DeclarationError(f"{brief(name)} has a range and levels: declare one of them")
            column_range: Any = self._scaled_range(name, declared.get(name))
            if name in self.bins:
                refuse_cuts_outside(name, self.bins[name], column_range)
            if name in self.crossed_columns:
                continue
            for covariate, level in self.covariates_of(name).items():
                if covariate in ranges:
                    raise DeclarationError(
                        f"two covariates are called {brief(covariate)}: rename a column"
                    )
                ranges[covariate] = column_range if level is None else SWITCH
        for name in (*self.missing, *self.log, *self.bins):
            if name not in declared and name != self.outcome:
                raise DeclarationError(
                    f"{self._title_of(name)}: {brief(name)} has no range: declare one, or leave it "
                    "out"
                )
        return ranges

    def _refuse_no_covariate(self, name: str) -> None:
        """Raise DeclarationError where a raw column is declared for something else."""
        if name not in self.no_covariates:
            return
        kind = "the column of sampling weights, of persons or of units"
        if name in (self.treatment.column, self.outcome):
            kind = "the treatment or the outcome"
        raise DeclarationError(f"{brief(name)} is {kind}, and no covariate")

    def _scaled_range(self, column: str, declared: Any) -> Any:
        """The declared range of a raw column as that of its covariate."""
        if column not in self.log:
            return declared
        if not isinstance(declared, tuple | list):
            raise DeclarationError(f"log: {brief(column)}: declare its range (low, high)")
        return tuple(self.scaled(column, end) for end in declared)

    def _title_of(self, column: str) -> str:
        """The entry of the codebook that makes a column of numbers something else."""
        if column in self.log:
            return "log"
        return "bins" if column in self.bins else "missing"

    def norm(self, ranges: Mapping[str, Any]) -> float:
        """Bound on the Euclidean norm of scaled covariates.

        Every raw column adds 1 to its square: the largest square of a scaled number, or the one
        level that is 1. A column whose missing cells have an indicator adds, where that is 1, the
        square of its scaled constant besides.

        Parameters
        ----------
        ranges
            Range of every covariate by name. Where that of a number is no pair its constant counts
            as 1.
        """
        square = 0.0
        for column in dict.fromkeys(self.origin(name)[0] for name in ranges):
            square += 1.0
            number = next(iter(self.covariates_of(column)))
            if number in ranges and column in self.marked and f"{column}=missing" in ranges:
                square += self._scaled_constant(column, ranges[number]) ** 2
        return math.sqrt(square)

    def _scaled_constant(self, column: str, declared: Any) -> float:
        """Size of what stands for a missing number once it is scaled, clipped to 1."""
        if not isinstance(declared, tuple | list):
            return 1.0
        low, high = declared
        constant = self.scaled(column, self.missing[column])
        # halves first: the length of a range may overflow
        scaled = (constant / 2 - (low / 4 + high / 4)) / (high / 4 - low / 4)
        return min(abs(float(scaled)), 1.0)

    def columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """The raw columns that these covariates are made of."""
        columns: list[str] = []
        for name in names:
            column, _ = self.origin(name)
            columns += self.crosses.get(column, (column,))
        return tuple(dict.fromkeys(columns))

    @property
    def marked(self) -> tuple[str, ...]:
        """Columns of numbers, not of bins, whose missing cells have a covariate of their own."""
        return tuple(name for name in self.missing if name not in self.bins)

    def origin(self, name: str) -> tuple[str, str | None]:
        """The raw column or cross of a covariate, and the level that it stands for.

        That is "missing" for the indicator of missing numbers, None for a number.
        """
        for column in (*self.covariate_levels, *self.marked, *self.log):
            levels = self.covariates_of(column)
            if name in levels:
                return column, levels[name]
        return name, None

    def covariates(
        self, column: Column, names: Sequence[str], middles: Sequence[float]
    ) -> NDArray[np.float64]:
        """Covariates (n, k) from the cells of raw columns, each cell by itself.

        Parameters
        ----------
        column
            Cells of raw columns by name, as they are declared to be read.
        names
            Names of the k covariates.
        middles
            What stands for missing numbers for which nothing is declared, one for each covariate.
        """
        columns: list[NDArray[Any]] = []
        raw_read: str | None = None
        cells: Any = None
        for name, middle in zip(names, middles, strict=True):
            raw, level = self.origin(name)
            has_levels = raw in self.covariate_levels
            # covariates of one column stand beside each other: it is read once
            if raw != raw_read:
                raw_read = raw
                cells = self.places(column, raw) if has_levels else numbers_or_nan(column(raw), raw)
            if has_levels:
                columns.append(cells == self.covariate_levels[raw].index(str(level)))
            elif level is not None:
                # the mark of the gaps of a number
                columns.append(np.isnan(cells))
            else:
                columns.append(self._filled_numbers(raw, cells, middle))
        if not columns:
            return np.empty((0, 0))
        return np.column_stack(columns).astype(np.float64, copy=False)

    def _filled_numbers(
        self, column: str, cells: NDArray[np.float64], middle: float
    ) -> NDArray[np.float64]:
        """Numbers (n,) of a covariate; a missing one is the declared constant, or the middle."""
        is_missing = np.isnan(cells)
        numbers = self.numbers(column, cells)
        if not is_missing.any():
            return numbers
        constant = middle
        if column in self.missing:
            constant = self.scaled(column, self.missing[column])
        return np.where(is_missing, constant, numbers)

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
        place_of = {name: place for place, name in enumerate(names)}
        filled = X
        for column, levels in self.covariate_levels.items():
            places = [place_of[name] for name in self.covariates_of(column) if name in place_of]
            if self.is_complete(column) or not 2 <= len(places) == len(levels):
                continue
            without_level = np.flatnonzero(~np.any(X[:, places] != 0.0, axis=1))
            if not len(without_level):
                continue
            if filled is X:
                filled = X.copy()
            for place in places:
                filled[without_level, place] = 1.0 / len(places)
        return filled

    def in_words(self, *, fixed: bool = False) -> str:
        """The public rule in words.

        Parameters
        ----------
        fixed
            True where records without treatment count as one fixed record.
        """
        parts = [self._arms_in_words()]
        for name, levels in self.levels.items():
            names = ", ".join(str(level) or "missing" for level in levels)
            parts.append(f"{name} has levels {names}")
        parts += [self._bins_in_words(name) for name in self.bins]
        parts += [f"{first} and {second} are crossed" for first, second in self.crossed]
        parts += [rule.describe(name) for name, rule in self.cells.items()]
        parts += [f"{name} is {self.missing[name]:g} where missing" for name in self.marked]
        parts += [f"{name} counts by its natural logarithm" for name in self.log]
        parts.append("a number that is missing counts as the middle of its range")
        has_constant = self.outcome in self.missing
        if fixed and not has_constant:
            parts.append("an outcome that is missing counts as the middle of its range")
        if self.sampling_weights is not None:
            parts.append(self.sampling_weights.in_words())
        if self.unit is not None:
            parts.append(self.unit.in_words())
        parts += self._losses_in_words(fixed, has_constant)
        return "; ".join(parts)

    def _arms_in_words(self) -> str:
        """Which cells are which arm."""
        treatment = self.treatment
        column = treatment.column or "treatment"
        if treatment.levels:
            return f"{column} has the arms {', '.join(treatment.labels)}"
        return f"{column} {treatment.treated} is treated, {treatment.control} a control"

    def _losses_in_words(self, fixed: bool, has_constant: bool) -> list[str]:
        """Which records do not count, or count as one fixed record."""
        lost = "does not count"
        if fixed:
            lost = "counts as an untreated one with the middle of every range"
        parts = [f"a record that does not fulfil {text} {lost}" for text in self.eligible]
        for name, level in self.where.items():
            parts.append(f"a record with another {name} than {level} {lost}")
        if self.group:
            parts.append(f"a record whose {self.group} is none of its levels {lost}")
        lacking = "treatment" if fixed or has_constant else "treatment or outcome"
        parts.append(f"a record without {lacking} {lost}")
        return parts

    def _bins_in_words(self, name: str) -> str:
        cuts = ", ".join(map(number_in_words, self.bins[name]))
        missing = "counts as the middle between the outer cuts"
        if name in self.missing:
            missing = "is a level"
        return f"{name} is cut at {cuts} into levels, and a missing one {missing}"

    def cut_columns(self) -> list[str]:
        """What cuts and crosses make of columns, with the number of levels of each, for readers."""
        sets = self.level_sets
        lines = [f"{name}: {len(sets[name])} levels by its bins" for name in self.bins]
        for name, (first, second) in self.crosses.items():
            n_first = len(sets[first])
            n_second = len(sets[second])
            lines.append(f"{name}: {n_first * n_second} levels, {n_first} by {n_second}")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The declarations as plain JSON types."""
        names = ["treatment", "outcome", "levels", "missing", "units"]
        names += [name for name in _OPTIONAL if getattr(self, name)]
        if self.eligible:
            names.append("eligible_share")
        return {name: json_types(getattr(self, name)) for name in names}

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> Codebook:
        """Build a codebook from plain values; raises DeclarationError on an unknown name."""
        return declared_by_name(cls, "codebook", declared)


def _declared_twice(title: str, column: str) -> DeclarationError:
    """The error for a column that is declared in two ways."""
    return DeclarationError(f"{title}: {brief(column)} is declared otherwise as well")


def checked_codebook(codebook: object, ranges: object) -> Codebook | None:
    """The codebook that goes with some ranges, if one is declared.

    Parameters
    ----------
    codebook
        A :class:`Codebook`, plain values of one, or None.
    ranges
        Declared ranges; only a mapping by name is compared.

    Raises
    ------
    DeclarationError
        Where the codebook is invalid, or makes other covariates than the ranges are of.
    """
    if codebook is None:
        return None
    codebook = table_of("codebook", codebook, Codebook)
    if not isinstance(ranges, Mapping):
        return codebook
    for column in (*codebook.level_sets, *codebook.missing, *codebook.log):
        levels = codebook.covariates_of(column)
        if column in ranges and column not in levels:
            kind = "levels" if column in codebook.level_sets else "a logarithm"
            raise DeclarationError(
                f"ranges[{column}]: has {kind}: take the ranges of Codebook.ranges"
            )
        for name, level in levels.items():
            if level is not None and name in ranges and ranges[name] != SWITCH:
                raise DeclarationError(f"ranges[{name}] = {brief(ranges[name])}: must be {SWITCH}")
    return codebook


def norm_within(ranges: Mapping[str, Any] | Sequence[Any], codebook: Codebook | None) -> float:
    """Bound on the Euclidean norm of scaled covariates inside their ranges.

    It is the root of the number of covariates; those that a codebook makes of one column count
    once, see :meth:`Codebook.norm`.
    """
    if codebook is None or not isinstance(ranges, Mapping):
        return math.sqrt(len(ranges))
    return codebook.norm(ranges)
