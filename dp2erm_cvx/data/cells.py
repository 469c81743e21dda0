"""Public rules of cells: how they are read, which records count, and the arms of a treatment."""

from __future__ import annotations

import ast
import datetime
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial, reduce
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.checks import (
    Named,
    by_name,
    check_settings,
    json_types,
    list_of,
    one_line,
    public_number,
    public_size,
    setting,
    true_or_false,
)
from dp2erm_cvx.data.tables import (
    as_column,
    boxed,
    by_label,
    distinct_labels,
    label_of,
    numbers_of_texts,
    numbers_or_nan,
    repeated,
)
from dp2erm_cvx.errors import DeclarationError, brief, known_names

#: The cells (n,) of a raw column, by its name.
Column = Callable[[str], Any]

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
#: The same comparison where the number stands on the left.
_TURNED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_SIGNS = ("<=", ">=", "<", ">")
#: What may separate groups of thousands, in the words of a message.
_SEPARATORS = {
    ".": "a point",
    ",": "a comma",
    "'": "an apostrophe",
    " ": "a blank",
    "_": "an underscore",
}
#: What stands for an apostrophe or for a minus sign in some files.
_PLAIN_SIGNS = str.maketrans({"\u2019": "'", "\u2212": "-", "\u2013": "-", "\u2010": "-"})
#: Fields of a rule that say how numbers are written.
_NUMBER_FORMATS = ("censored", "thousands", "decimal", "percent")
#: Numbers that cells are compared with are no larger: far beyond any range, and no overflow.
_LARGEST_NUMBER = 1e100
#: Declared probabilities add up to 1 but for the roundings of their decimals.
_SUM_TOLERANCE = 1e-9


def _separator(name: str, value: object) -> str:
    """A declared separator of thousands."""
    if value not in _SEPARATORS:
        known = ", ".join(f'"{sign}"' for sign in _SEPARATORS)
        raise DeclarationError(f"{name} = {brief(value)}: must be one of {known}")
    return str(value)


def _decimal_sign(name: str, value: object) -> str:
    """A declared decimal sign."""
    if value not in (".", ","):
        raise DeclarationError(f'{name} = {brief(value)}: must be "." or ","')
    return str(value)


def _factor_of_percent(name: str, value: object) -> float:
    """What a number with a percent sign is multiplied by."""
    if value not in (1, 0.01) or isinstance(value, bool):
        raise DeclarationError(
            f"{name} = {brief(value)}: must be 1, where 12% counts as 12, or 0.01, where it counts "
            "as 0.12"
        )
    return public_number(name, value)


def _codes(name: str, declared: object) -> tuple[str, ...]:
    """Declared codes of a missing cell, as labels."""
    codes = list_of(name, declared, declared_label, '[-9, 999, "unknown"]')
    if "" in codes:
        raise DeclarationError(f"{name}: an empty cell is missing by itself: leave it out")
    return codes


def _spellings(name: str, declared: object) -> tuple[str, ...]:
    """Declared spellings of a label."""
    return list_of(name, declared, lambda _, text: label_of(text), '["f", "Frau"]')


def _date(name: str, value: object) -> str:
    """A declared date, as TOML reads one or as ISO text."""
    if isinstance(value, datetime.datetime):
        value = value.date()
    try:
        return datetime.date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise DeclarationError(
            f"{name} = {brief(value)}: must be a date, such as 2020-01-31"
        ) from None


@dataclass(frozen=True)
class CellRule:
    """How the cells of one raw column are read, each record by itself. All of it is public.

    Parameters
    ----------
    synonyms
        For each label how else it may be written; case and blanks do not count. Other cells stay as
        they are.
    units
        What a number is multiplied by, for each label of ``unit_column``. With another label, or
        none that is declared, it is missing.
    unit_column
        The column that holds the unit of every record.
    since
        A date: cells are dates, in ISO format or in ``date_format``, and count as days since this
        one.
    date_format
        In the directives of ``strptime``, such as ``"%d.%m.%Y"``.
    censored
        Whether ``>89``, ``<0.1`` and ``90+`` count as the number that they name.
    thousands
        What separates groups of three digits: ``"."`` where 1.234 is above a thousand, ``","``,
        ``"'"``, ``" "`` or ``"_"``. A cell whose groups are of another length is missing. Texts
        alone are read so.
    decimal
        The decimal sign of texts, ``"."`` or ``","``. Default: a comma where points separate
        thousands.
    percent
        What a number with a percent sign is multiplied by: 1, so that ``12%`` counts as 12, or
        0.01. Numbers without the sign stay what they are.
    missing_codes
        Numbers and labels that stand for a missing cell, such as -9 and 999; they are compared
        before units.

    Each of them maps a cell, with that of the unit of the same record, by public constants alone,
    so that a record depends on its own cells (Theorem 10) and every bound is that of the declared
    range.

    Raises
    ------
    DeclarationError
        For an invalid entry, which it names.
    """

    synonyms: Mapping[str, Sequence[str]] = setting(
        Named({}), by_name, entry=_spellings, key=label_of
    )
    units: Mapping[str, float] = setting(Named({}), by_name, entry=public_size, key=label_of)
    unit_column: str | None = setting(None, one_line)
    since: str | None = setting(None, _date)
    date_format: str | None = setting(None, one_line)
    censored: bool = setting(False, true_or_false)
    thousands: str | None = setting(None, _separator)
    decimal: str | None = setting(None, _decimal_sign)
    percent: float | None = setting(None, _factor_of_percent)
    missing_codes: Sequence[str | float] = setting((), _codes)

    def __post_init__(self) -> None:
        check_settings(self)
        if (self.unit_column is None) == bool(self.units):
            raise DeclarationError("units and unit_column: declare both, or neither")
        if self.date_format is not None and (self.since is None or "%" not in self.date_format):
            raise DeclarationError(
                'date_format: needs since beside it, and directives such as "%d.%m.%Y"'
            )
        if self.thousands is not None and self.thousands == self.decimal_sign:
            raise DeclarationError(
                f"thousands = {brief(self.thousands)}: is the decimal sign as well"
            )
        self._refuse_mixed()
        self._label_of_spelling()

    def _refuse_mixed(self) -> None:
        """Raise DeclarationError unless cells are read as labels, as dates or as numbers."""
        of_numbers = [name for name in ("units", *_NUMBER_FORMATS) if getattr(self, name)]
        of_others = [name for name in ("synonyms", "since") if getattr(self, name)]
        if not (of_numbers or of_others or self.missing_codes):
            known = ", ".join(field.name for field in fields(self))
            raise DeclarationError(f"nothing declared: say how cells are read, by one of {known}")
        if len(of_others) + bool(of_numbers) > 1:
            declared = " and ".join([*of_others, *of_numbers])
            raise DeclarationError(
                f"{declared} declared: a column holds labels (synonyms), dates (since), or numbers "
                f"(units, {', '.join(_NUMBER_FORMATS)})"
            )

    @property
    def decimal_sign(self) -> str:
        """The decimal sign of texts."""
        if self.decimal is not None:
            return self.decimal
        return "," if self.thousands == "." else "."

    @property
    def reads_texts(self) -> bool:
        """True if cells are read as they are written: a file would take 1.234 for a decimal."""
        return self.thousands is not None or self.decimal is not None or self.percent is not None

    def _label_of_spelling(self) -> dict[str, str]:
        """The label of every spelling. Raises DeclarationError where one stands for two labels."""
        label_of_spelling: dict[str, str] = {}
        for level, texts in self.synonyms.items():
            for text in (level, *texts):
                if label_of_spelling.setdefault(folded(text), level) != level:
                    raise DeclarationError(f"synonyms: {brief(text)} stands for two labels")
        return label_of_spelling

    def read(self, values: Any, name: str, column: Column) -> Any:
        """What the cells of a column count as.

        Parameters
        ----------
        values
            The cells (n,).
        name
            The name of the column.
        column
            Cells of other columns by name, such as those of units.

        Returns
        -------
        Array
            Days (n,) where dates are declared, numbers (n,) where a form of numbers is, and cells
            (n,) with their labels otherwise.
        """
        if self.since is not None:
            return by_label(values, name, self._days, np.float64)
        if not (self.units or self.censored or self.reads_texts):
            return self._relabeled(values, name)
        numbers = numbers_of_texts(values, name, self._number)
        for code in self._code_numbers():
            numbers[numbers == code] = math.nan
        if self.unit_column is not None:
            numbers *= self._factors_of_units(column(self.unit_column), self.unit_column)
        return numbers

    def _factors_of_units(self, units: Any, name: str) -> NDArray[np.float64]:
        """What numbers (n,) are multiplied by; nan where a unit is not declared."""
        return by_label(units, name, lambda unit: self.units.get(unit, math.nan), np.float64)

    def _relabeled(self, values: Any, name: str) -> NDArray[Any]:
        """Cells (n,) in which other spellings are replaced by their labels, and codes by ""."""
        label_of_spelling = self._label_of_spelling()
        array = as_column(values, name)
        texts, place = distinct_labels(values, name)
        new_texts = []
        for text in texts:
            label = label_of_spelling.get(folded(text), text)
            new_texts.append("" if self.is_code(text) else label)
        changed = np.array(
            [new != old for new, old in zip(new_texts, texts, strict=True)], dtype=np.bool_
        )
        rows = np.flatnonzero(changed[place])
        if not len(rows):
            return array
        cells = boxed(array).copy()
        cells[rows] = [new_texts[number] for number in place[rows].tolist()]
        return cells

    def is_code(self, text: str) -> bool:
        """Whether a label stands for a missing cell."""
        return folded(text) in {folded(str(code)) for code in self.missing_codes}

    def _code_numbers(self) -> list[float]:
        """The codes of missing cells that are numbers."""
        if not self.missing_codes:
            return []
        numbers = numbers_or_nan(list(self.missing_codes), "missing_codes")
        return [number for number in numbers.tolist() if not math.isnan(number)]

    def _days(self, label: str) -> float:
        """The days since the declared date of a cell that is one; nan for any other."""
        assert self.since is not None
        if self.is_code(label):
            return math.nan
        time = datetime.datetime
        try:
            if self.date_format is None:
                date = time.fromisoformat(label)
            else:
                date = time.strptime(label, self.date_format)
        except ValueError:
            return math.nan
        elapsed = date.replace(tzinfo=None) - time.fromisoformat(self.since)
        return elapsed / datetime.timedelta(days=1)

    def _number(self, text: str) -> float:
        """The number that a text is declared to be; nan for any other."""
        bare = " ".join(text.split())
        if self.reads_texts:
            bare = bare.translate(_PLAIN_SIGNS)
        if self.censored:
            bare = _without_limit(bare)
        factor = 1.0
        if self.percent is not None and bare.endswith("%"):
            factor = self.percent
            bare = bare.removesuffix("%").strip()
        if self.reads_texts:
            bare = self._regrouped(bare)
        return factor * float(numbers_or_nan([bare], "")[0])

    def _regrouped(self, text: str) -> str:
        """A text with a decimal point, and without separators of thousands; "" where it is none."""
        whole, sign, decimals = text.partition(self.decimal_sign)
        if self.thousands is not None and self.thousands in whole:
            first, *groups = whole.split(self.thousands)
            digits = first.removeprefix("-").removeprefix("+")
            if not 1 <= len(digits) <= 3 or any(len(group) != 3 for group in groups):
                return ""
            whole = "".join([first, *groups])
        other = "," if self.decimal_sign == "." else "."
        if other in whole + decimals:
            return ""
        return whole + ("." if sign else "") + decimals

    def describe(self, name: str) -> str:
        """The public rule in words."""
        return f"{name}: {'; '.join(self._words())}"

    def _words(self) -> list[str]:
        """The parts of the rule."""
        if self.synonyms:
            return [self._spellings_in_words(), *self._codes_in_words()]
        parts = []
        if self.since is not None:
            parts.append(f"days since {self.since}")
        if self.censored:
            parts.append("above or below a limit counts as the limit")
        if self.thousands is not None:
            parts.append(f"{_SEPARATORS[self.thousands]} separates thousands")
        if self.reads_texts and self.decimal_sign == ",":
            parts.append("the decimal sign is a comma")
        if self.percent is not None:
            parts.append(f"12% counts as {12 * self.percent:g}")
        if self.units:
            units = [f"{unit or 'missing'} times {size:g}" for unit, size in self.units.items()]
            parts.append(f"by {self.unit_column}: {', '.join(units)}")
        return [*parts, *self._codes_in_words()]

    def _spellings_in_words(self) -> str:
        text = "case and blanks do not count"
        for level, spellings in self.synonyms.items():
            if spellings:
                text += f", {level or 'missing'} is also {', '.join(spellings)}"
        return text

    def _codes_in_words(self) -> list[str]:
        if not self.missing_codes:
            return []
        verb = "is" if len(self.missing_codes) == 1 else "are"
        return [f"{', '.join(map(str, self.missing_codes))} {verb} missing"]

    def to_dict(self) -> dict[str, Any]:
        """The declaration as plain JSON types."""
        declared = {field.name: json_types(getattr(self, field.name)) for field in fields(self)}
        return {name: value for name, value in declared.items() if value}


@dataclass(frozen=True)
class Eligible:
    """Conditions that a record has to fulfil to count.

    An example is ``18 <= age < 65 and ward != Hospice``.

    Parameters
    ----------
    text
        Comparisons, joined by ``and`` and ``or``. A column stands on the left, or after a number; a
        name with blanks stands in quotation marks. A number is compared with a number, a label by
        ``==``, ``!=``, or ``in [ICU, Surgery]``. A missing cell fulfils none of them, but
        ``== ""``.

    Raises
    ------
    DeclarationError
        Where the text is anything else.
    """

    text: str

    def __post_init__(self) -> None:
        one_line("eligible", self.text)
        self.of(lambda name: ())  # every part of it is read, of no records

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns that are compared."""
        names: list[str] = []

        def no_cells(name: str) -> tuple[()]:
            names.append(name)
            return ()

        self.of(no_cells)
        return tuple(names)

    def of(self, column: Column) -> NDArray[np.bool_]:
        """Mask (n,) of the records that fulfil it, each by its own cells.

        Parameters
        ----------
        column
            Cells of raw columns by name, as they are declared to be read.
        """
        try:
            tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise self._refused("no comparison") from None
        return self._fulfilled(tree, column)

    def _fulfilled(self, node: ast.expr, column: Column) -> NDArray[np.bool_]:
        """Mask (n,) of the records that fulfil one node of the text."""
        if isinstance(node, ast.BoolOp):
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, [self._fulfilled(part, column) for part in node.values])
        if isinstance(node, ast.Compare):
            return self._fulfilled_comparison(node, column)
        raise self._refused("no comparison")

    def _fulfilled_comparison(self, node: ast.Compare, column: Column) -> NDArray[np.bool_]:
        """Mask (n,) of the records that fulfil a comparison, such as ``18 <= age < 65``."""
        values = [self._value(side) for side in (node.left, *node.comparators)]
        signs = [type(sign) for sign in node.ops]
        number_before = None
        if isinstance(values[0], float):
            number_before = values.pop(0)
        name, *values_behind = values
        if not isinstance(name, str) or len(values_behind) > 1:
            raise self._refused("one column, and what it is compared with")
        cells = column(name)
        masks = []
        if values_behind:
            masks.append(self._compared(cells, name, signs[-1], values_behind[0]))
        if number_before is not None:
            turned = _TURNED.get(signs[0], signs[0])
            masks.append(self._compared(cells, name, turned, number_before))
        return reduce(operator.and_, masks)

    def _compared(
        self, cells: Any, name: str, sign: type[ast.cmpop], value: Any
    ) -> NDArray[np.bool_]:
        """Mask (n,) of the cells that are compared with one value, or are in a list of labels."""
        if isinstance(value, list) != (sign is ast.In) or value == []:
            raise self._refused(f"{brief(value)} cannot be compared so")
        if sign is ast.In:
            masks = [self._compared(cells, name, ast.Eq, entry) for entry in value]
            return reduce(operator.or_, masks)
        compare = _COMPARISONS.get(sign)
        if compare is not None and isinstance(value, float):
            numbers = numbers_or_nan(cells, name)
            return np.asarray(compare(numbers, value) & ~np.isnan(numbers), dtype=np.bool_)
        if sign is ast.Eq:
            return by_label(cells, name, lambda label: label == value, np.bool_)
        if sign is ast.NotEq:
            return by_label(cells, name, lambda label: label not in ("", value), np.bool_)
        raise self._refused(f"{brief(value)} cannot be compared so")

    def _value(self, node: ast.expr) -> float | str | list[Any]:
        """What one side of a comparison says: a name, a number, a label or a list of them."""
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.List):
            return [self._value(part) for part in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            number = self._value(node.operand)
            if isinstance(number, float):
                return -number
        value: Any = node.value if isinstance(node, ast.Constant) else None
        if isinstance(value, str):
            return label_of(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and abs(value) <= _LARGEST_NUMBER:
            return float(value)
        raise self._refused("neither a name nor a number")

    def _refused(self, what: str) -> DeclarationError:
        """The error for a text that cannot be read."""
        return DeclarationError(
            f'eligible = {brief(self.text)}: {what}; must look like "age >= 18", "ward != '
            'Hospice", '
            '"18 <= age < 65" or "ward in [ICU, Surgery]", joined by and, or'
        )


def folded(text: str) -> str:
    """A label without what does not count in it: case and blanks."""
    return "".join(text.split()).casefold()


def _without_limit(text: str) -> str:
    """The number of a censored value, such as 89 of ``>89`` and 90 of ``90+``."""
    bare = text.removesuffix("+")
    for sign in _SIGNS:
        if bare.startswith(sign):
            bare = bare.removeprefix(sign)
            break
    return bare.strip()


#: Arms that a treatment may have.
MOST_ARMS = 20


def declared_label(name: str, value: object) -> str:
    """A declared label. Raises DeclarationError for what is neither a text nor a number."""
    if not isinstance(value, str | bool | int | float):
        raise DeclarationError(f"{name} = {brief(value)}: must be a text or a number")
    return one_line(name, label_of(value), empty=True)


def declared_levels(name: str, declared: Any) -> tuple[str, ...]:
    """A declared list of labels. Raises DeclarationError for no list, or one label twice."""
    labels = list_of(name, declared, declared_label, '["N", "S"]')
    if not labels:
        raise DeclarationError(f'{name}: must list levels, such as ["N", "S"]')
    twice = repeated(labels)
    if twice is not None:
        raise DeclarationError(f"{name}: level {brief(twice)} stands there twice")
    return labels


def _arm(name: str, value: object) -> str:
    """A declared label of an arm."""
    label = declared_label(name, value)
    if not label:
        raise DeclarationError(f"{name} is empty: an empty cell counts as missing")
    return label


@dataclass(frozen=True)
class Treatment:
    """The column of the treatment and the labels of its arms; any other cell counts as missing.

    Labels are texts or numbers; 1, 1.0, "1" and "true" are the same. Raises DeclarationError.

    Parameters
    ----------
    column
        Column of the treatment.
    treated, control
        Labels of the two arms; any other cell counts as missing.
    levels
        Labels of K >= 3 arms, in place of these two. Of two levels the one that is not the
        reference is the treated.
    reference
        The level that effects are measured from; default: the first.
    contrasts
        "reference": the effect of every level against it; "pairs": those of all pairs of levels.
    rates
        The public probabilities of K arms, in the order of the levels, as in a randomized trial.
    """

    column: str | None = setting(None, one_line, title="treatment: ")
    treated: str | float = setting("1", _arm, title="treatment: ")
    control: str | float = setting("0", _arm, title="treatment: ")
    levels: Sequence[str | float] = ()
    reference: str | float | None = None
    contrasts: str = "reference"
    rates: Sequence[float] = ()

    def __post_init__(self) -> None:
        check_settings(self)
        if self.levels or self.reference is not None or self.rates or self.contrasts != "reference":
            self._check_levels()
        if self.treated == self.control:
            raise DeclarationError(f"treatment: treated and control are both {brief(self.control)}")

    def _check_levels(self) -> None:
        """Raise DeclarationError for arms that cannot be, and store them as labels."""
        levels = declared_levels("treatment: levels", self.levels)
        if not 2 <= len(levels) <= MOST_ARMS or "" in levels:
            raise DeclarationError(
                f"treatment: levels: must be 2 to {MOST_ARMS} labels, none of them empty"
            )
        reference = levels[0]
        if self.reference is not None:
            reference = declared_label("treatment: reference", self.reference)
        if reference not in levels:
            raise DeclarationError(
                f"treatment: reference = {brief(reference)}: {known_names(reference, levels)}"
            )
        if self.contrasts not in ("reference", "pairs"):
            text = f"contrasts = {brief(self.contrasts)}: must be reference or pairs"
            raise DeclarationError(f"treatment: {text}")
        if (self.treated, self.control) != (type(self).treated, type(self).control):
            raise DeclarationError(
                "treatment: levels take the place of treated and control: leave those out"
            )
        rates = self._checked_rates(levels)
        if len(levels) > 2:
            self._store(levels=levels, reference=reference, rates=rates)
            return
        # two levels are a treatment as any other
        treated = levels[1] if reference == levels[0] else levels[0]
        self._store(
            levels=(), reference=None, contrasts="reference", treated=treated, control=reference
        )

    def _checked_rates(self, levels: Sequence[str]) -> tuple[float, ...]:
        """The declared probabilities of arms, or none."""
        positive = partial(public_number, above=0.0)
        rates = list_of("treatment: rates", self.rates, positive, "[0.3, 0.3, 0.4]")
        if rates and (len(rates) != len(levels) or abs(sum(rates) - 1.0) > _SUM_TOLERANCE):
            raise DeclarationError(
                f"treatment: rates: must be {len(levels)} probabilities that add up to 1"
            )
        if len(levels) == 2 and rates:
            raise DeclarationError(
                "treatment: rates: of two levels declare the propensity of the effect"
            )
        return rates

    def _store(self, **values: Any) -> None:
        """Set fields of this frozen object, while it is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """The declaration as plain JSON types, by its levels or by its two arms."""
        names = ["column", "treated", "control"]
        if self.levels:
            names = ["column", "levels", "reference", "contrasts", "rates"]
        return {name: json_types(getattr(self, name)) for name in names}

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all arms, in the order of their numbers: of two arms the control first."""
        return tuple(map(str, self.levels or (self.control, self.treated)))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the arms whose means are subtracted from each other, the treated first."""
        reference = self.labels.index(str(self.reference)) if self.levels else 0
        others = [number for number in range(len(self.labels)) if number != reference]
        pairs = [(number, reference) for number in others]
        if self.contrasts == "pairs":
            for earlier, later in combinations(others, 2):
                pairs.append((later, earlier))
        return tuple(pairs)

    def arms(self, cells: Any) -> NDArray[np.int64]:
        """The number of the arm of every cell (n,), or -1 where it is no label."""
        number_of = {label: number for number, label in enumerate(self.labels)}
        return by_label(cells, "treatment", lambda text: number_of.get(text, -1), np.int64)
