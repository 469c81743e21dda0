"""The column of a treatment: the labels of its arms, which of them are compared, and public rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.errors import DeclarationError, brief, known_names
from dp2erm_cvx.public import check_settings, json_types, list_of, one_line, public_number, setting
from dp2erm_cvx.tables import by_label, label_of, repeated

#: Arms that a treatment may have.
MOST_ARMS = 20


def declared_label(name: str, value: object) -> str:
    """The label that is declared. Raises DeclarationError where it is neither a text nor a number."""
    if not isinstance(value, str | bool | int | float):
        raise DeclarationError(f"{name} = {brief(value)}: must be a text or a number")
    return one_line(name, label_of(value), empty=True)


def declared_levels(name: str, declared: Any) -> tuple[str, ...]:
    """The labels that a list declares. Raises DeclarationError where it is none, or names one twice."""
    labels = list_of(name, declared, declared_label, '["N", "S"]')
    if not labels or (twice := repeated(labels)) is not None:
        wrong = (
            f"level {brief(twice)} stands there twice" if labels else 'must list levels, such as ["N", "S"]'
        )
        raise DeclarationError(f"{name}: {wrong}")
    return labels


def _arm(name: str, value: object) -> str:
    if not (label := declared_label(name, value)):
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
        Of a treatment of K >= 3 arms their labels, in place of these two. Of two levels the one that is not
        the reference is the treated.
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
        levels = declared_levels("treatment: levels", self.levels)
        if not 2 <= len(levels) <= MOST_ARMS or "" in levels:
            raise DeclarationError(f"treatment: levels: must be 2 to {MOST_ARMS} labels, none of them empty")
        first = (
            levels[0] if self.reference is None else declared_label("treatment: reference", self.reference)
        )
        if first not in levels:
            raise DeclarationError(f"treatment: reference = {brief(first)}: {known_names(first, levels)}")
        if self.contrasts not in ("reference", "pairs"):
            raise DeclarationError(
                f"treatment: contrasts = {brief(self.contrasts)}: must be reference or pairs"
            )
        if (self.treated, self.control) != (type(self).treated, type(self).control):
            raise DeclarationError("treatment: levels take the place of treated and control: leave those out")
        rates = list_of("treatment: rates", self.rates, partial(public_number, above=0.0), "[0.3, 0.3, 0.4]")
        if rates and (len(rates) != len(levels) or abs(sum(rates) - 1.0) > 1e-9):
            raise DeclarationError(f"treatment: rates: must be {len(levels)} probabilities that add up to 1")
        if len(levels) == 2 and rates:
            raise DeclarationError("treatment: rates: of two levels declare the propensity of the effect")
        fields: dict[str, Any] = {"levels": levels, "reference": first, "rates": rates}
        if len(levels) == 2:  # which is a treatment as any other
            other = levels[1] if first == levels[0] else levels[0]
            fields = {"levels": (), "reference": None, "contrasts": "reference"}
            fields |= {"treated": other, "control": first}
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """The declaration as plain JSON types: levels, or two arms as in files of before there were any."""
        several = ("levels", "reference", "contrasts", "rates")
        names = ("column", *(several if self.levels else ("treated", "control")))
        return {name: json_types(getattr(self, name)) for name in names}

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all arms, in the order of their numbers: of two arms the control first."""
        return tuple(map(str, self.levels or (self.control, self.treated)))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Numbers of the arms whose means are subtracted from each other, the treated first."""
        numbers, first = range(len(self.labels)), 0
        if self.levels:
            first = self.labels.index(str(self.reference))
        rest = [number for number in numbers if number != first]
        pairs = [(number, first) for number in rest]
        if self.contrasts == "pairs":
            pairs += [(later, earlier) for place, earlier in enumerate(rest) for later in rest[place + 1 :]]
        return tuple(pairs)

    def arms(self, cells: Any) -> NDArray[np.int64]:
        """The number of the arm of every cell (n,), or -1 where it is no label."""
        known = {label: number for number, label in enumerate(self.labels)}
        return by_label(cells, "treatment", lambda text: known.get(text, -1), np.int64)
