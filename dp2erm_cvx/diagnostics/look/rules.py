"""The rules of a look: what each computes, its limit and where that comes from, and its sentence.

Limits were set on 85 sound tables (trials, rare treatments, baselines of the outcome, many levels,
few records) and on 55 in which a column gives the treatment or the outcome away.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.diagnostics.columns import RecordCounts, alike, read_as_one
from dp2erm_cvx.diagnostics.look.records import AskedAbout, Seen
from dp2erm_cvx.diagnostics.look.relations import (
    SampleMoments,
    Values,
    bent,
    by_value,
    distance,
    ordered,
    pooled_within,
)
from dp2erm_cvx.diagnostics.unread import advice_on, key
from dp2erm_cvx.errors import brief

#: Fewest records of an arm that relations are looked at for.
FEWEST = 10
#: Columns of numbers whose products are looked at.
_BENT = 10
#: Records in which they are.
_BENT_RECORDS = 2**12
#: Numbers that files write where there is none.
_CODE = re.compile(r"-[1789]|-?([789])\1+")


@dataclass(frozen=True)
class Column:
    """A covariate that is adjusted for.

    Parameters
    ----------
    place
        Its number among all covariates.
    name, raw
        Its name, and that of the raw column that it is made of.
    number
        Whether it is a number, and no level or mark of a missing one.
    values
        Its values in the sample, as they stand.
    """

    place: int
    name: str
    raw: str
    number: bool
    values: Values


@dataclass(frozen=True)
class View:
    """The records that a look has seen, as one question adjusts for them.

    Parameters
    ----------
    seen, asked
        What was read of the records, and the question.
    columns
        The covariates that are adjusted for.
    matrix
        (m, p) these of the sample, clipped to their ranges where these are declared.
    spiked
        The raw column of each of the indicators of the most frequent value of a number, and of the
        value that stands for a missing one.
    moments
        Of the covariates, then of these indicators, of the arms that relations are looked at for,
        and of the outcome.
    arms
        These arms: a name, the share of records in it, and the number of records in it or out of
        it, whichever is smaller.
    """

    seen: Seen
    asked: AskedAbout
    columns: tuple[Column, ...]
    matrix: Array
    spiked: tuple[str, ...]
    moments: SampleMoments
    arms: tuple[tuple[str, float, int], ...]

    @classmethod
    def of(cls, seen: Seen, asked: AskedAbout) -> View:
        """The view of a question."""
        sample = seen.sample
        columns = _adjusted_columns(seen, asked)
        clipped = []
        for column in columns:
            values = sample.X[:, column.place]
            ends = asked.ends(column.place)
            clipped.append(values if ends is None else np.clip(values, *ends))
        matrix = np.empty((len(sample.y), 0))
        if clipped:
            matrix = np.column_stack(clipped)
        marks = []
        if len(matrix):
            marks = _spikes(columns, matrix, asked, len(seen.columns))
        arms = _arms(seen, asked)
        moments = SampleMoments(np.empty((0, 0)), np.zeros(0, dtype=np.bool_), 0)
        if len(sample.y):
            indicators = [mark for _, mark in marks]
            in_arm = [arm for _, arm in arms]
            moments = SampleMoments.of(
                np.column_stack([matrix, *indicators, *in_arm, sample.y]), sample.n
            )
        arm_sizes = []
        for name, arm in arms:
            smaller = min(arm.sum(), len(arm) - arm.sum())
            arm_sizes.append((name, float(arm.mean()), int(smaller)))
        return cls(
            seen=seen,
            asked=asked,
            columns=tuple(columns),
            matrix=matrix,
            spiked=tuple(raw for raw, _ in marks),
            moments=moments,
            arms=tuple(arm_sizes),
        )

    def numbers(self) -> list[int]:
        """Columns of the matrix that are numbers."""
        return [place for place, column in enumerate(self.columns) if column.number]

    def raw(self) -> dict[str, list[int]]:
        """Columns of the matrix by the raw column that they are made of."""
        made: dict[str, list[int]] = {}
        for place, column in enumerate(self.columns):
            made.setdefault(column.raw, []).append(place)
        return made

    def values(self, columns: Sequence[int]) -> tuple[Array, Values]:
        """The values (m,) of a raw column: its number, or the number of its level."""
        first = columns[0]
        if self.columns[first].number:
            return self.seen.sample.X[:, self.columns[first].place], self.columns[first].values
        members = self.matrix[:, list(columns)] > 0.5
        places = np.where(members.any(axis=1), members.argmax(axis=1), -1).astype(np.float64)
        return places, Values.of(places)

    def spikes_of(self, raw: str) -> list[int]:
        """Numbers of the indicators of a raw column among the moments."""
        return [len(self.columns) + place for place, name in enumerate(self.spiked) if name == raw]

    @property
    def covariates(self) -> range:
        """Numbers of the covariates among the moments."""
        return range(len(self.columns))

    @property
    def first_arm(self) -> int:
        """The number of the first arm among the moments."""
        return len(self.columns) + len(self.spiked)

    @property
    def outcome(self) -> int:
        """The number of the outcome among the moments."""
        return self.first_arm + len(self.arms)

    @cached_property
    def event(self) -> bool:
        """Whether the outcome has at most two values."""
        return _two_values(self.seen.sample.y)


def _adjusted_columns(seen: Seen, asked: AskedAbout) -> list[Column]:
    """The covariates that a question adjusts for."""
    chosen = seen.columns if asked.columns is None else asked.columns
    columns = []
    for place, name in enumerate(seen.columns):
        if name in chosen:
            raw, level = asked.book.origin(name)
            values = Values.of(seen.sample.X[:, place])
            columns.append(Column(place, name, raw, level is None, values))
    return columns


def _two_values(values: Array) -> bool:
    """Whether there are at most two different values."""
    if not len(values):
        return True
    at_an_end = (values == values.min()) | (values == values.max())
    return bool(np.all(at_an_end))


def _spikes(
    columns: Sequence[Column], matrix: Array, asked: AskedAbout, n_columns: int
) -> list[tuple[str, NDArray[np.bool_]]]:
    """Indicators (m,) of the most frequent and of the missing values of numbers, by raw column.

    A missing value is the constant that stands for it.
    """
    marks = []
    fills: Sequence[float] = ()
    if asked.public.codebook is not None:
        fills = asked.public.middles(n_columns)
    for place, column in enumerate(columns):
        if not column.number:
            continue
        values = matrix[:, place]
        frequent, share = column.values.most_frequent
        if 0.05 <= share < 1.0 and len(column.values.distinct) > 2:
            is_frequent = values == _within(frequent, asked.ends(column.place))
            marks.append((column.raw, is_frequent))
        if fills and fills[column.place] != frequent:
            is_filled = values == fills[column.place]
            if 0.01 <= np.mean(is_filled) < 1.0:
                marks.append((column.raw, is_filled))
    return marks


def _within(number: float, ends: tuple[float, float] | None) -> float:
    """A number, clipped to its declared range where there is one."""
    if ends is None:
        return number
    low, high = ends
    return min(max(number, low), high)


def _arms(seen: Seen, asked: AskedAbout) -> list[tuple[str, Array]]:
    """Arms that relations are looked at for, by name, as (m,) of 0 and 1.

    Of two arms that is the treated, of more it is each of them.
    """
    a = seen.sample.a
    n_arms = len(seen.arms)
    labels = asked.book.treatment.labels
    arms = []
    for arm in range(n_arms) if n_arms > 2 else (1,):
        in_arm = a == arm
        if FEWEST <= in_arm.sum() <= len(a) - FEWEST:
            name = f"{seen.treatment} = {labels[arm]}" if n_arms > 2 else seen.treatment
            arms.append((name, in_arm.astype(np.float64)))
    return arms


def far(apart: float) -> str:
    """A distance in words."""
    return f"{apart:.1f}" if apart < 100.0 else "more than 100"


def arms_apart(view: View) -> Iterator[tuple[str, str, float, float]]:
    """For every arm the columns that tell it from the others best.

    Yields the arm, the columns in words, the distance in standard deviations within arms, and the
    share of records in the arm.
    """
    everything = range(view.first_arm)
    for number, (name, treated, _) in enumerate(view.arms):
        best_column = ""
        largest_alone = 0.0
        for raw, columns in view.raw().items():
            with_spikes = [*columns, *view.spikes_of(raw)]
            alone = max(_apart(view, number, columns), _apart(view, number, with_spikes))
            if (alone, raw) > (largest_alone, best_column):
                largest_alone = alone
                best_column = raw
        together = max(
            _apart(view, number, view.covariates),
            _apart(view, number, everything),
        )
        if together > largest_alone / 0.9 or not best_column:
            best_column = "a combination of the covariates"
        yield name, best_column, max(largest_alone, together), treated


def _apart(view: View, number: int, columns: Sequence[int]) -> float:
    """How far columns tell the arm of this number from the others.

    It is in standard deviations within arms, and 0 where records are too few for the columns.
    """
    _, treated, smaller = view.arms[number]
    share, rank = view.moments.explained(columns, view.first_arm + number)
    if smaller < rank or math.isnan(share):
        return 0.0
    return distance(share, treated)


def decided(view: View) -> Iterator[str]:
    """The treatment is decided by the covariates that are adjusted for."""
    if view.asked.propensity != "estimated":
        return
    for name, columns, apart, treated in arms_apart(view):
        limit = max(2.0, pooled_within(view.asked.confounding, treated))
        if apart > limit:
            yield (
                f"{columns} decides {name}: the arms lie {far(apart)} standard deviations within "
                f"arms apart (limit {limit:.1f}), where no interval holds; look up whether it is "
                "the treatment by another name, or was recorded after it"
            )


def made_of_outcome(view: View) -> Iterator[str]:
    """A column is made of the outcome."""
    y = view.seen.sample.y
    if np.all(y == y[0]):
        return
    outcome = view.seen.outcome
    advice = f"look up whether it was recorded after {outcome}, or is computed from it"
    for raw, columns in view.raw().items():
        if view.event:
            values, _ = view.values(columns)
            if by_value(values, y) > 0.95:
                yield f"{raw} tells {outcome} almost without error: {advice}"
            continue
        share = _ordered_by(view, columns)
        if share > 0.99:
            yield f"{raw} orders the records as {outcome} does, in {share:.1%} of pairs: {advice}"
    if not view.event:
        share, _ = view.moments.explained(view.covariates, view.outcome)
        if share > 0.999:
            yield (
                f"a line in the covariates explains {share:.2%} of {outcome}: look up whether one "
                "of them is computed from it"
            )


def _ordered_by(view: View, columns: Sequence[int]) -> float:
    """Share of the pairs of records that a raw column orders as the outcome.

    Levels are in the order of their mean outcomes among every other record, and order the rest.
    """
    y = view.seen.sample.y
    numbers, values = view.values(columns)
    if view.columns[columns[0]].number:
        frequent, _ = values.most_frequent
        return ordered(numbers, y, frequent)
    half = np.arange(len(y)) % 2 == 0
    ranks = _ranked(numbers, y, half)[~half]
    frequent, _ = Values.of(ranks).most_frequent
    return ordered(ranks, y[~half], frequent)


def _ranked(values: Array, y: Array, half: NDArray[np.bool_]) -> Array:
    """The mean outcome of every value among a half of the records, in place of the value."""
    known, codes = np.unique(values, return_inverse=True)
    members = np.bincount(codes[half], minlength=len(known))
    sums = np.bincount(codes[half], y[half], minlength=len(known))
    means = np.where(members > 0, sums / np.maximum(members, 1), y.mean())
    return np.asarray(means[codes])


def correlated(view: View) -> Iterator[str]:
    """A column is close to the outcome, as a baseline of it may be."""
    if view.event:
        return
    for place in view.numbers():
        share, _ = view.moments.explained([place], view.outcome)
        if share > 0.95**2:
            yield (
                f"{view.columns[place].name} correlates with {view.seen.outcome} by "
                f"{math.sqrt(share):.3f}"
            )


def gap_shares(view: View) -> Iterator[tuple[str, float, float, float]]:
    """Columns with more gaps in one arm than in another, beyond what chance makes.

    Yields the raw column, the largest and the least share of gaps in an arm, and their difference.
    """
    sizes = _cells_by_arm(view.seen.counts, len(view.seen.arms))
    if sizes is None or sizes.min() < FEWEST:
        return
    for name, gaps in view.seen.counts.gaps.items():
        shares = gaps / sizes
        most = int(shares.argmax())
        least = int(shares.argmin())
        pooled = (gaps[most] + gaps[least]) / (sizes[most] + sizes[least])
        error = math.sqrt(pooled * (1.0 - pooled) * (1.0 / sizes[most] + 1.0 / sizes[least]))
        apart = float(shares[most] - shares[least])
        if apart > 4.0 * error:
            yield name, float(shares[most]), float(shares[least]), apart


def _cells_by_arm(counts: RecordCounts, n_arms: int) -> NDArray[np.int64] | None:
    """Records whose cells were read, by the number of their arm; None where none were."""
    if not counts.gaps:
        return None
    named = counts.arms
    if set(named) == {"treated", "controls"}:
        return np.array([named["controls"], named["treated"]])
    return np.array([*named.values()])


def empty_in_one_arm(view: View) -> Iterator[str]:
    """A covariate is measured in one arm, and not in another."""
    for name, most, least, apart in gap_shares(view):
        if apart > 0.20:
            yield (
                f"{name} is empty for {most:.0%} of one arm and {least:.0%} of another: look up "
                "whether it is measured in one arm alone"
            )


def emptier_in_one_arm(view: View) -> Iterator[str]:
    """A covariate is missing more often in one arm."""
    for name, most, least, apart in gap_shares(view):
        if 0.05 < apart <= 0.20:
            yield f"{name} is empty for {most:.0%} of one arm and {least:.0%} of another"


def unread(view: View) -> Iterator[str]:
    """Cells hold something that is not read, or most of a column is empty."""
    counts = view.seen.counts
    book = view.asked.book
    total = max(counts.total, 1)
    for name, count in counts.unreadable.items():
        blank = counts.blank.get(name, 0)
        lost = count - blank
        place = f"{name}: {count:,} of {total:,} cells hold nothing declared"
        if name == book.treatment.column or name not in counts.blank:
            if 2 * count > total:
                yield place
        elif 20 * lost > total:
            signs = counts.signs.get(name, Counter())
            why = advice_on(name, signs, book.cells.get(name), is_outcome=name == counts.outcome)
            told = f"{name}: {lost:,} of {total:,} cells hold nothing declared"
            yield f"{told}; {why}" if why else told
        elif 2 * count > total:
            yield place


def read_as_others(view: View) -> Iterator[str]:
    """Points that separate thousands are read as decimal signs."""
    for name, signs in view.seen.counts.signs.items():
        grouped = signs.get("thousands", 0)
        small = signs.get("small", 0)
        if 20 * grouped > view.seen.counts.total and small and not signs.get("decimals", 0):
            yield (
                f"{name}: {grouped:,} cells such as 1.234 are read as decimals, beside {small:,} "
                "whole numbers below 1,000: look up whether the point separates thousands, which "
                f'[cells] {key(name)} = {{ thousands = "." }} declares'
            )


def no_record(view: View) -> Iterator[str]:
    """An arm has no record."""
    named = {"controls": "a control"}
    counts = view.seen.counts.arms
    for (arm, read), count in zip(counts.items(), _arm_sizes(view), strict=True):
        if not read and not count:
            yield f"no record is {named.get(arm, arm)}"


def _arm_sizes(view: View) -> list[int]:
    """Records by arm, in the order of their names in the counts."""
    sizes: list[int] = view.seen.arms.tolist()
    if set(view.seen.counts.arms) == {"treated", "controls"}:
        sizes = sizes[::-1]
    return sizes


def small_arm(view: View) -> Iterator[str]:
    """An arm is too small for anything."""
    what = "records" if view.seen.persons is None else "persons"
    for arm, count in zip(view.seen.counts.arms, _arm_sizes(view), strict=True):
        if 0 < count < FEWEST:
            yield f"{count} {what} are in the arm {arm}: at least {FEWEST} are needed"


def other_event(view: View) -> Iterator[str]:
    """A declared event has other values."""
    public = view.asked.public
    if not isinstance(public, Domain) or not public.binary_outcome:
        return
    ends = view.asked.outcome_ends
    others = [value for value in view.seen.counts.values if ends is None or value not in ends]
    if others and ends is not None:
        declared = f"{ends[0]:g} and {ends[1]:g}"
        told = ", ".join(f"{value:g}" for value in others)
        yield (
            f"{view.seen.outcome} is declared an event with the values {declared}, and holds "
            f"{told}: declare its values, or synonyms of its cells"
        )


def advised(view: View) -> Iterator[str]:
    """The estimator advises another declaration."""
    advice = view.asked.advice(view.seen.counts.values)
    if advice:
        yield advice


def clipped(view: View) -> Iterator[str]:
    """Many values are beyond what is declared."""
    counts = view.seen.counts
    total = counts.total
    eligible = sum(counts.arms.values())
    if 10 * counts.clipped > eligible > 0:
        told = f"{counts.clipped:,} of {eligible:,} values of {counts.outcome} are clipped"
        yield f"{told}: declare a wider bound"
    for name, count in counts.outside.items():
        if 4 * count > total:
            yield f"{name}: {count:,} of {total:,} values are beyond the declared range"


def narrow(view: View) -> Iterator[str]:
    """All numbers lie within one hundredth of their declared range."""
    columns = []
    for place in view.numbers():
        column = view.columns[place]
        columns.append((column.name, view.matrix[:, place], view.asked.ends(column.place)))
    of_outcome = view.asked.outcome_ends
    if of_outcome is not None:
        clipped_outcome = np.clip(view.seen.sample.y, *of_outcome)
        columns.append((view.seen.outcome, clipped_outcome, of_outcome))
    for name, values, ends in columns:
        if ends is None:
            continue
        low = float(values.min())
        high = float(values.max())
        if high - low < 0.01 * (ends[1] - ends[0]) and len(np.unique(values)) > 2:
            yield (
                f"{name}: all numbers lie from {low:g} to {high:g}, within a hundredth of the "
                f"declared range {ends[0]:g} to {ends[1]:g}: look up its unit, and its decimal sign"
            )


def repeated_rows(view: View) -> Iterator[str]:
    """Records are repeated throughout, as a join makes them."""
    copies = view.seen.fingerprints.copies()
    total = int(copies.sum())
    if view.seen.persons is not None:
        return
    share = float(copies[copies > 1].sum()) / total
    if share <= 0.5:
        return
    sample = view.seen.sample
    by_chance = float(view.seen.n_records)
    for column in (*sample.X.T, sample.a, sample.y):
        by_chance *= Values.of(column).collision
    factor = int(np.gcd.reduce(copies))
    if by_chance < 0.01 or (factor > 1 and len(copies) > 20):
        often = f", each {factor} times or a multiple of it" if factor > 1 else ""
        yield (
            f"{share:.0%} of the records stand there more than once{often}: look up whether a join "
            "has repeated them; where persons have several records, declare [unit]"
        )


def spelled(view: View) -> Iterator[str]:
    """Declared labels are written otherwise."""
    counts = view.seen.counts
    yield from (note for note, count in counts.spelled.items() if 20 * count > counts.total)


def spelled_now_and_then(view: View) -> Iterator[str]:
    """Some labels differ from declared ones by case or blanks."""
    counts = view.seen.counts
    yield from (note for note, count in counts.spelled.items() if 20 * count <= counts.total)


def alike_labels(view: View) -> Iterator[str]:
    """Labels are declared that differ by case or blanks alone."""
    book = view.asked.book
    declared = {name: list(map(str, levels)) for name, levels in book.levels.items()}
    declared[view.seen.treatment] = list(book.treatment.labels)
    for name, labels in declared.items():
        for spellings in alike(labels):
            quoted = " and ".join(map(brief, spellings))
            yield (
                f"{name}: {quoted} are declared apart, and differ by case or blanks alone: look up "
                f"whether they are one, which {read_as_one(name, spellings)} says"
            )


def unseen_levels(view: View) -> Iterator[str]:
    """Declared levels never occur."""
    unseen = [level for level, count in view.seen.counts.levels.items() if not count]
    if unseen:
        more = f" and {len(unseen) - 5} more" if len(unseen) > 5 else ""
        yield f"declared levels that no record has: {', '.join(unseen[:5])}{more}"


def small_groups(view: View) -> Iterator[str]:
    """A group, or a subgroup, has few records."""
    names = view.asked.book.groups
    for name, count in zip(names, view.seen.groups.tolist(), strict=False):
        if count < 20:
            yield f"group {view.asked.book.group} = {name} has {count} records"
    if view.asked.book.where and view.seen.n_records < 20:
        yield f"{view.seen.n_records} records are in the subgroup"


def number_spikes(view: View) -> Iterator[str]:
    """Numbers stand at an end or at a code far more often than beside it."""
    for place in view.numbers():
        column = view.columns[place]
        spikes = _spikes_of(column.values)
        if spikes:
            yield (
                f"{column.name}: {', '.join(spikes[:6])} stand there far more often than other "
                "numbers: look up whether they stand for missing ones, which missing_codes under "
                "[cells] declares, or for limited ones"
            )


def _spikes_of(values: Values) -> list[str]:
    """Numbers of a column that look like codes or limits; none where it has few values."""
    numbers = values.distinct
    times = values.times
    if len(numbers) <= 20:
        return []
    usual = float(np.median(times))
    ends = (float(numbers[0]), float(numbers[-1]))
    is_frequent = times >= max(10.0, 0.02 * times.sum())
    spikes = []
    frequent = zip(numbers[is_frequent].tolist(), times[is_frequent].tolist(), strict=True)
    for number, count in frequent:
        is_code = _CODE.fullmatch(f"{number:g}") is not None
        is_end = number in ends
        if (is_code and count > 2.0 * usual) or (is_end and count > 5.0 * usual):
            spikes.append(f"{number:g}")
    # a few whole numbers below 0 are codes where all others are above
    negative = numbers[numbers < 0.0]
    if 1 < len(negative) <= 6 and np.all(negative == np.round(negative)):
        for number in negative.tolist():
            if f"{number:g}" not in spikes:
                spikes.append(f"{number:g}")
    return spikes


def number_words(view: View) -> Iterator[str]:
    """Columns of numbers hold words."""
    if view.seen.counts.words:
        yield (
            "columns of numbers hold words, which count as missing: "
            f"{', '.join(view.seen.counts.words)}"
        )


def near_constant(view: View) -> Iterator[str]:
    """Columns hardly vary."""
    for raw, columns in view.raw().items():
        _, values = view.values(columns)
        _, share = values.most_frequent
        if share > 0.995:
            yield f"{raw} is the same for {share:.1%} of the records"


def bent_relations(view: View) -> Iterator[str]:
    """Squares or products matter for both treatment and outcome."""
    if view.asked.propensity != "estimated":
        return
    numbers = [place for place in view.numbers() if view.moments.varies[place]][:_BENT]
    rows = slice(0, _BENT_RECORDS)
    if not numbers or len(view.matrix) < 10 * len(numbers) + 100:
        return
    y = view.seen.sample.y[rows]
    for name, arm in _arms(view.seen, view.asked):
        for first, second in bent(view.matrix[rows][:, numbers], arm[rows], y):
            name_of_first = view.columns[numbers[first]].name
            what = f"the square of {name_of_first}"
            if first != second:
                what = f"{name_of_first} times {view.columns[numbers[second]].name}"
            yield (
                f"{what} matters for both {name} and {view.seen.outcome}: lines alone leave a bias "
                "(curved)"
            )


def trial_apart(view: View) -> Iterator[str]:
    """Arms of a trial with a public constant propensity differ."""
    if view.asked.propensity != "constant":
        return
    for name, columns, apart, _ in arms_apart(view):
        if apart > 0.5:
            yield (
                f"{name} has a constant public propensity, and the arms lie {far(apart)} standard "
                f"deviations apart in {columns}: look up whether it was randomized"
            )


@dataclass(frozen=True)
class Rule:
    """A row of the look.

    Parameters
    ----------
    name
        What is looked at.
    stops
        Whether a finding stops what is about to be released, unless the data holder says yes.
    finds
        The sentences that it finds.
    limit
        Beyond what it says so, and where the limit comes from.
    of_counts
        Whether it reads counts alone, and no sample of records.
    """

    name: str
    stops: bool
    finds: Callable[[View], Iterator[str]]
    limit: str
    of_counts: bool = False

    def found(self, view: View) -> list[str]:
        """The sentences on these records; of too few of them counts alone say anything."""
        if not self.of_counts and len(view.matrix) < 2 * FEWEST:
            return []
        return list(self.finds(view))


RULES = (
    Rule("arms without records", True, no_record, "none", True),
    Rule("other spellings", True, spelled, "5 % of cells", True),
    Rule(
        "unread cells",
        True,
        unread,
        "5 % hold something that is not read, or half hold nothing",
        True,
    ),
    Rule("small arms", True, small_arm, "below 10: no figure of a smaller arm says anything", True),
    Rule("values of an event", True, other_event, "any value but the two that are declared", True),
    Rule(
        "an event that is not declared",
        True,
        advised,
        "two values alone: the effect is biased",
        True,
    ),
    Rule(
        "values beyond what is declared",
        True,
        clipped,
        "a tenth of outcomes, a quarter of others",
        True,
    ),
    Rule("numbers read as others", True, read_as_others, "5 % of cells", True),
    Rule("units", True, narrow, "all within 1 % of the range"),
    Rule(
        "the treatment decided by covariates",
        True,
        decided,
        "2 standard deviations within arms, or what is declared: from there on intervals at n = "
        "4,000 hold less often than they say (13 of 20 at 2, 9 of 20 at 2.5)",
    ),
    Rule(
        "columns made of the outcome",
        True,
        made_of_outcome,
        "99 % of pairs, R^2 .999, .95 of an event",
    ),
    Rule("measured in one arm", True, empty_in_one_arm, "20 points, and four standard errors"),
    Rule(
        "rows repeated throughout",
        True,
        repeated_rows,
        "half, where independence expects below 1 %",
    ),
    Rule("other spellings now and then", False, spelled_now_and_then, "any", True),
    Rule("labels that are alike", False, alike_labels, "any", True),
    Rule("levels without records", False, unseen_levels, "any", True),
    Rule(
        "missing more often in one arm",
        False,
        emptier_in_one_arm,
        "5 points, and four standard errors",
    ),
    Rule("small groups", False, small_groups, "below 20", True),
    Rule(
        "spikes",
        False,
        number_spikes,
        "2 % of records, 2 times (codes) or 5 times as many as elsewhere",
    ),
    Rule("words among numbers", False, number_words, "any", True),
    Rule("columns that hardly vary", False, near_constant, "99.5 % of records"),
    Rule(
        "close to the outcome",
        False,
        correlated,
        "correlation .95: a baseline is far more often so",
    ),
    Rule("squares and products", False, bent_relations, "partial R^2 above .02 with both"),
    Rule("a trial whose arms differ", False, trial_apart, "half a standard deviation within arms"),
)
