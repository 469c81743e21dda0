"""Checks of declared values: each returns the value, and names what it refuses."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dp2erm_cvx.errors import DeclarationError, brief, known_names, placed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Member = TypeVar("Member", bound=enum.Enum)
Declared = TypeVar("Declared", bound="DataclassInstance")

Value = TypeVar("Value")

#: Characters of a declared line of text.
_LONGEST_LINE = 200


class Stated:
    """A part of a release: only its fields are read, and only finite numbers."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid", "allow_inf_nan": False}


class Named(Mapping[str, Value]):
    """Public values by name, which cannot be changed once they are declared."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        # Columns have an order, and so have the values that are kept by what is declared.
        return isinstance(other, Mapping) and list(self.items()) == list(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return repr(self._values)


def public_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    within: float | None = None,
    infinite: bool = False,
) -> float:
    """Check a declared public number and return it as a float.

    Parameters
    ----------
    name
        Name of the quantity, for messages.
    value
        What is declared.
    above, at_least, at_most, below
        Bounds of the number.
    within
        Bound on its size.
    infinite
        Whether ``+inf`` is admitted.

    Raises
    ------
    DeclarationError
        With the name, the value and the range that it must lie in.
    """
    # float() would make a number of a text and of an array with one entry, and NaN of a masked one.
    no_number = isinstance(value, bool | str | bytes | bytearray)
    if no_number or getattr(value, "shape", None) or hasattr(value, "mask"):
        raise DeclarationError(f"{name} = {brief(value)}: must be a number")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise DeclarationError(f"{name} = {brief(value)}: must be a number") from None
    if math.isnan(number) or (math.isinf(number) and not (infinite and number > 0)):
        raise DeclarationError(f"{name} = {brief(value)}: must be a finite number")
    if above is not None and number <= above:
        raise DeclarationError(f"{name} = {brief(value)}: must be greater than {above:g}")
    if at_least is not None and number < at_least:
        raise DeclarationError(f"{name} = {brief(value)}: must be at least {at_least:g}")
    if at_most is not None and number > at_most:
        raise DeclarationError(f"{name} = {brief(value)}: must be at most {at_most:g}")
    if below is not None and number >= below:
        raise DeclarationError(f"{name} = {brief(value)}: must be below {below:g}")
    if within is not None and abs(number) > within:
        raise DeclarationError(f"{name} = {brief(value)}: must be at most {within:g} in size")
    return number


def public_fraction(name: str, value: object) -> float:
    """Check a declared share, level or probability: above 0 and below 1.

    Raises
    ------
    DeclarationError
        For anything else.
    """
    number = public_number(name, value, above=0.0)
    if number >= 1.0:
        raise DeclarationError(f"{name} = {brief(value)}: must be between 0 and 1")
    return number


#: Sizes that are declared lie between this and its inverse, so that products and squares of them
#: stay finite.
LARGEST_SIZE = 1e100


def public_size(
    name: str,
    value: object,
    *,
    zero: bool = False,
    infinite: bool = False,
    most: float = LARGEST_SIZE,
) -> float:
    """Check a declared ridge, radius or bound: from 1e-100 to 1e100, or so far from 1 as ``most``.

    Parameters
    ----------
    name
        Name of the quantity, for messages.
    value
        What is declared.
    zero
        Whether 0 is admitted as well.
    infinite
        Whether ``+inf`` is admitted as well.
    most
        Largest size; the smallest is its inverse.

    Raises
    ------
    DeclarationError
        For any other size.
    """
    least = {"at_least": 0.0} if zero else {"above": 0.0}
    number = public_number(name, value, infinite=infinite, **least)
    if number == 0.0 or math.isinf(number) or 1.0 / most <= number <= most:
        return number
    raise DeclarationError(f"{name} = {brief(value)}: must be from {1.0 / most:g} to {most:g}")


#: Seeds and counts beyond it are no integers to NumPy.
_LARGEST_WHOLE = 2**63


def whole_number(name: str, value: object, *, at_least: int, at_most: int | None = None) -> int:
    """Check a declared public count or seed and return it as an int; raises DeclarationError."""
    number = public_number(name, value, at_least=at_least, at_most=at_most)
    if number != int(number):
        raise DeclarationError(f"{name} = {value!r}: must be a whole number")
    if number > _LARGEST_WHOLE:
        raise DeclarationError(f"{name} = {value!r}: must be at most 2^63")
    return int(number)


def one_of(name: str, value: object, kind: type[Member]) -> Member:
    """The member of ``kind`` that is declared or named.

    Raises
    ------
    DeclarationError
        For another name, with the known ones.
    """
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(member.value) for member in kind)
        raise DeclarationError(f"{name} = {value!r}: must be one of {known}") from None


def declared_choice(
    name: str, value: object, *, kinds: tuple[type, ...] = (), words: tuple[str, ...] = ()
) -> object:
    """The value, one of these words or exactly of one of these types.

    Bounds and constants are proved for these: one of another type would be taken on trust.

    Raises
    ------
    DeclarationError
        For anything else.
    """
    if type(value) in kinds or value in words:
        return value
    *most, last = [kind.__name__ for kind in kinds] + [repr(word) for word in words]
    raise DeclarationError(f"{name} = {value!r}: must be {', '.join(most)} or {last}")


def setting(
    default: Any = dataclasses.MISSING,
    check: Callable[..., Any] = public_number,
    *,
    optional: bool = False,
    title: str = "",
    **bounds: Any,
) -> Any:
    """Field of a frozen dataclass whose value is ``check(name, value, **bounds)``.

    Parameters
    ----------
    default
        Default of the field.
    check
        Returns the value of the field, or raises DeclarationError.
    optional
        Whether None stays as it is; it does where it is the default.
    title
        What stands before the name in what is refused.
    bounds
        Further arguments of the check.
    """
    declared = {"check": (check, bounds), "title": title, "optional": optional or default is None}
    return dataclasses.field(default=default, metadata=declared)


#: Words for the bounds of a number, by the names that checks give them.
_LIMITS = {
    "above": "above {:g}",
    "at_least": "at least {:g}",
    "at_most": "at most {:g}",
    "below": "below {:g}",
    "within": "at most {:g} in size",
}


def wanted(check: Callable[..., Any], bounds: Mapping[str, Any]) -> str:
    """What the check of a :func:`setting` accepts, such as "must be a number, above 0, at most 1".

    Parameters
    ----------
    check
        The check of the setting. It is asked what it refuses a value for that no check accepts.
    bounds
        The arguments that it has beside name and value.

    Returns
    -------
    str
        Empty where the check refuses nothing.
    """
    try:
        check("setting", object(), **bounds)
    except DeclarationError as error:
        _, _, reason = str(error).partition(": ")
    else:
        return ""
    limits = [text.format(bounds[name]) for name, text in _LIMITS.items() if name in bounds]
    if check is public_fraction:
        limits = ["between 0 and 1"]
    if check is public_size:
        limits = ["0 or above" if bounds.get("zero") else "above 0"]
    if bounds.get("infinite"):
        limits.append("or inf")
    if check is whole_number:
        reason = "must be a whole number"
    return ", ".join([reason, *limits])


def check_settings(declared: Any) -> None:
    """Put what its check returns in every :func:`setting` of a dataclass.

    Raises
    ------
    DeclarationError
        For the first value that is refused.
    """
    for field in dataclasses.fields(declared):
        known = field.metadata
        if "check" not in known:
            continue
        value = getattr(declared, field.name)
        if value is None and known["optional"]:
            continue
        check, bounds = known["check"]
        checked = check(known["title"] + field.name, value, **bounds)
        object.__setattr__(declared, field.name, checked)


def chosen_columns(name: str, chosen: object, known: Sequence[str], n_features: int) -> list[int]:
    """Numbers of the covariates that are declared by name, of those ``known``, or by number.

    Raises
    ------
    DeclarationError
        For none, an unknown and a repeated one.
    """
    if isinstance(chosen, str) or not isinstance(chosen, Collection) or not len(chosen):
        raise DeclarationError(f"{name} = {brief(chosen)}: must be a list of covariates")
    numbers = [known.index(column) if column in known else column for column in chosen]
    for index in numbers:
        is_whole = isinstance(index, int) and not isinstance(index, bool)
        if not is_whole or not 0 <= index < n_features:
            hint = known_names(index, known) if known else f"known: {n_features}"
            raise DeclarationError(f"{name}: unknown covariate {index!r}; {hint}")
    if len(set(numbers)) < len(numbers):
        # A column counted twice would leave the ball that bounds are derived for.
        raise DeclarationError(f"{name}: a covariate is named twice")
    return [int(index) for index in numbers]


def one_line(name: str, value: object, *, empty: bool = False) -> str:
    """``value`` if it is a printable line, not empty unless that is allowed.

    Raises
    ------
    DeclarationError
        For anything else.
    """
    fine = isinstance(value, str) and value.isprintable() and value == value.strip()
    if not fine or len(str(value)) > _LONGEST_LINE or not (value or empty):
        raise DeclarationError(
            f"{name} = {value!r}: must be one printable line of at most {_LONGEST_LINE} characters"
        )
    return str(value)


def numbers(name: str, declared: object, *, each: str, **bounds: Any) -> tuple[float, ...]:
    """One public number for ``each`` record or covariate, within these bounds.

    Raises
    ------
    DeclarationError
        For anything else.
    """
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise DeclarationError(f"{name} = {brief(declared)}: must have one entry per {each}")
    checked = tuple(public_number(name, value, **bounds) for value in declared)
    if not checked:
        raise DeclarationError(f"{name}: must have one entry per {each}")
    return checked


def true_or_false(name: str, value: object) -> bool:
    """``value`` if it is a boolean. Raises DeclarationError."""
    if type(value) is not bool:
        raise DeclarationError(f"{name} = {brief(value)}: must be true or false")
    return value


def by_name(
    name: str, declared: object, entry: Callable[[str, Any], Value], key: Callable[[Any], str] = str
) -> Named[Value]:
    """Entries by name, each of them checked. Raises DeclarationError for what has no names."""
    if not isinstance(declared, Mapping):
        raise DeclarationError(f"{name} = {brief(declared)}: must have one entry per name")
    return Named({key(own): entry(f"{name}[{own}]", value) for own, value in declared.items()})


def per_covariate(
    name: str, declared: Any, entry: Callable[[str, Any], Value]
) -> Named[Value] | tuple[Value, ...]:
    """Entries of covariates, by name or in their order, each of them checked.

    Raises
    ------
    DeclarationError
        For what has no entries.
    """
    if isinstance(declared, str) or not isinstance(declared, Iterable):
        raise DeclarationError(
            f"{name} = {brief(declared)}: must have one entry per covariate, or none at all"
        )
    entries: Any = dict(declared) if isinstance(declared, Mapping) else tuple(declared)
    if not entries:
        raise DeclarationError(f"{name}: declare at least one covariate, or none at all")
    if isinstance(entries, dict):
        return by_name(name, entries, entry)
    return tuple(entry(f"{name}[{place}]", value) for place, value in enumerate(entries))


def picked(entries: Any, columns: Sequence[int]) -> Any:
    """The entries of covariates of these numbers, by name or in order.

    What has no entries stays as it is.
    """
    if isinstance(entries, Mapping):
        named = list(entries.items())
        return dict(named[index] for index in columns)
    if isinstance(entries, Sequence):
        return tuple(entries[index] for index in columns)
    return entries


def list_of(
    name: str, declared: Any, entry: Callable[[str, Any], Value], example: str
) -> tuple[Value, ...]:
    """Entries of a list, each of them checked. Raises DeclarationError for what is none."""
    if isinstance(declared, str) or not isinstance(declared, Sequence):
        raise DeclarationError(f"{name} = {brief(declared)}: must be a list, such as {example}")
    return tuple(entry(name, value) for value in declared)


def table_of(name: str, declared: object, kind: type[Declared]) -> Declared:
    """A declaration, of plain values if need be. Raises DeclarationError."""
    if isinstance(declared, Mapping):
        with placed(name):
            return declared_by_name(kind, name, declared)
    if not isinstance(declared, kind):
        raise DeclarationError(f"{name} = {brief(declared)}: must be a table of names and values")
    return declared


def declared_by_name(kind: type[Declared], title: str, declared: object) -> Declared:
    """The dataclass ``kind`` of plain values by the names of its fields.

    Raises
    ------
    DeclarationError
        Where a name is unknown or missing, and for what the class refuses.
    """
    known = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(declared, Mapping):
        raise DeclarationError(f"{title} = {brief(declared)}: must have names")
    for name in declared:
        if name not in known:
            raise DeclarationError(
                f"{title}: unknown name {brief(name)}; {known_names(name, known)}"
            )
    for name, field in known.items():
        if name not in declared and field.default is field.default_factory is dataclasses.MISSING:
            raise DeclarationError(f"{title}: {name} is missing")
    return kind(**declared)


def json_types(value: Any) -> Any:
    """A value as plain JSON types: a number that is not finite is None.

    What has a ``to_dict`` of its own says how it is written.
    """
    if hasattr(value, "to_dict"):
        return json_types(value.to_dict())
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: json_types(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {name: json_types(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [json_types(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, enum.Enum):
        return value.value
    return value
