"""What stands in cells where a number is declared, and which declaration reads it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping

from dp2erm_cvx.data.cells import CellRule

#: Numbers with a decimal comma, or a point where a comma is declared.
_OTHER_DECIMAL = re.compile(r"[-+]?\d+[.,]\d+")
#: Points that may separate thousands, in a text that is read as a decimal number.
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
_SMALL = re.compile(r"[-+]?\d{1,3}")
_MINUS = re.compile(r"[\u2212\u2013\u2010]\s?\d+([.,]\d+)?")
_PERCENT = re.compile(r"[-+]?\d+([.,]\d+)?\s?%")
#: Groups of thousands, of which no number is read.
_GROUPS = re.compile(r"[-+]?\d{1,3}([.,' _\u2019]\d{3})+([.,]\d+)?")
_LIMIT = re.compile(r"([<>]=?\s?[-+]?\d+([.,]\d+)?)|([-+]?\d+([.,]\d+)?\s?\+)")
#: A number with its unit or with a currency in the same cell.
_WITH_UNIT = re.compile(
    r"([$\u20ac\u00a3\u00a5]|[A-Z]{3})\s?[-+]?\d[\d.,' ]*"
    r"|[-+]?\d[\d.,]*\s?([$\u20ac\u00a3\u00a5]|[^\W\d_]\S{0,7})"
)
_DATE = re.compile(r"(\d{4}[-/]\d\d?[-/]\d\d?|\d\d?[./-]\d\d?[./-]\d{2,4})([ T].*)?")
#: What files write in an empty cell.
_EMPTY = frozenset({"", "na", "n/a", "nan", "null", "none", "-", ".", "#n/a", "<na>"})
#: Different words of a column for which numbers can be declared one by one.
_MOST_WORDS = 20


def says_missing(text: str) -> bool:
    """Whether a cell is empty, or holds what files write for an empty one."""
    return text.casefold() in _EMPTY


def is_date(text: str) -> bool:
    """Whether a cell looks like a date."""
    return _DATE.fullmatch(text) is not None


def is_other_decimal(text: str) -> bool:
    """Whether a cell looks like a number with another decimal sign."""
    return _OTHER_DECIMAL.fullmatch(text) is not None


def sign_of(text: str) -> str:
    """What kind of text stands where a number is declared, in one word.

    "minus" is a number with another sign than a hyphen, "percent" one with a percent sign, "groups"
    one with separators of thousands, "comma" and "point" one with another decimal sign, "limit" one
    such as <5, "unit" one with a unit or a currency, "date" a date, "empty" a word for nothing, and
    "words" all else.
    """
    if says_missing(text):
        return "empty"
    for kind, pattern in _KINDS.items():
        if pattern.fullmatch(text):
            return kind
    return "words"


#: The first that matches is the kind of a text.
_KINDS = {
    "minus": _MINUS,
    "percent": _PERCENT,
    "groups": _GROUPS,
    "comma": re.compile(r"[-+]?\d+,\d+"),
    "point": re.compile(r"[-+]?\d+\.\d+"),
    "limit": _LIMIT,
    "date": _DATE,
    "unit": _WITH_UNIT,
}


def signs_of(odd: Mapping[str, int]) -> Counter[str]:
    """How many of these texts are of which kind.

    Words are "texts" where too many of them differ.
    """
    sign_of_text = {text: sign_of(text) for text in odd}
    n_words = list(sign_of_text.values()).count("words")
    signs: Counter[str] = Counter()
    for text, count in odd.items():
        sign = sign_of_text[text]
        if sign == "words" and n_words > _MOST_WORDS:
            sign = "texts"
        signs[sign] += count
    return signs


def signs_of_read(texts: Mapping[str, int]) -> Counter[str]:
    """Kinds of texts that are read as numbers.

    "thousands" look like groups of thousands, "small" are whole numbers below 1,000, and "decimals"
    have other decimals.
    """
    signs: Counter[str] = Counter()
    for text, count in texts.items():
        if "." in text:
            signs["thousands" if _THOUSANDS.fullmatch(text) else "decimals"] += count
        elif _SMALL.fullmatch(text):
            signs["small"] += count
    return signs


def key(name: str) -> str:
    """A name as TOML spells it."""
    return name if re.fullmatch(r"[\w-]+", name, re.ASCII) else json.dumps(name, ensure_ascii=False)


def read_as_numbers(name: str) -> str:
    """Advice on a column of a few words where numbers are declared."""
    return (
        f"[cells] {key(name)} = {{ synonyms = {{ 1 = [...], 0 = [...] }} }} reads texts as numbers"
    )


#: What cells of each kind hold, and the declaration that reads them.
_READ_BY = {
    "minus": ("a minus sign that is none (such as U+2212)", '{ decimal = "." }'),
    "percent": ("a percent sign", "{ percent = 0.01 }, or 1 where 12% counts as 12,"),
    "groups": ("a separator of thousands", '{ thousands = "," }, or another separator,'),
    "comma": ("a decimal comma", '{ decimal = "," }'),
    "point": ("a decimal point", '{ decimal = "." }'),
    "limit": ("a limit such as <5", "{ censored = true }"),
}


def advice_on(
    name: str, signs: Mapping[str, int], rule: CellRule | None = None, *, is_outcome: bool = False
) -> str:
    """What most cells of a column of numbers hold that are not read, and what to declare.

    Parameters
    ----------
    name
        The column.
    signs
        Cells that are not read, by kind: :func:`signs_of`.
    rule
        How they are declared to be read.
    is_outcome
        Whether it is the outcome, which may be an event in words.

    Returns
    -------
    str
        Empty where nothing is known of them.
    """
    counted = {kind: signs.get(kind, 0) for kind in (*_KINDS, "words", "texts")}
    kind = max(counted, key=lambda one: counted[one])
    if not counted[kind]:
        return ""
    most = "most of them hold"
    if kind in _READ_BY:
        held, declared = _READ_BY[kind]
        if rule is not None and rule.reads_texts:
            return f"{most} {held} that the declaration under [cells] does not read"
        return f"{most} {held}: [cells] {key(name)} = {declared} reads them"
    if kind == "date":
        if rule is not None and rule.since is not None:
            return f"{most} a date in another form than is declared: see date_format under [cells]"
        return f"{most} a date: [cells] {key(name)} = {{ since = 2020-01-31 }} reads it as days"
    if kind == "unit":
        return (
            f"{most} a unit or a currency beside the number: write numbers alone, and units in a "
            "column"
        )
    if kind == "words":
        if is_outcome:
            return read_as_numbers(name)
        return (
            f"{most} words: missing_codes under [cells] says which of them stand for a missing "
            "number"
        )
    return f"{most} other texts"
