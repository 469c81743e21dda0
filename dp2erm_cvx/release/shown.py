"""How any release reaches its readers: one list of sentences and tables, in every form."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import WIDTH, as_frame, as_html, as_text

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.release.own_units import OwnUnits


class Shown(abc.ABC):
    """What is shown follows from the release and from public constants alone."""

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """The sentences and tables of the summary, for a screen."""

    @abc.abstractmethod
    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the data frame."""

    def summary(self, width: int = WIDTH) -> str:
        """What was released and what it says, as text: what the command line prints."""
        return as_text(self.blocks(), width)

    def to_frame(self) -> Any:
        """A data frame of pandas, whose rows say what they cost and what their standing is.

        Raises DeclarationError where pandas is not installed.
        """
        return as_frame(self.rows())

    def _repr_html_(self) -> str:
        """The summary in a notebook."""
        return as_html(self.blocks())


def beside(rows: Sequence[Mapping[str, Any]], known: OwnUnits | None) -> list[Mapping[str, Any]]:
    """The rows of a data frame, those of parameters with their own units; None where they have none.

    Where theta has no constant, that of its own units comes last, unless it is 0.
    """
    if known is None:
        return [{**row, "own_units": None, "per": ""} for row in rows]
    numbers, found = known.numbers(), list(rows)
    if len(rows) < len(numbers):
        numbers = [*numbers[1:], *(numbers[:1] if known.constant else [])]
    if len(rows) < len(numbers):
        found.append({**rows[-1], "parameter": "constant", "value": None, "noise_half_width": None})
    return [{**row, "own_units": value, "per": per} for row, (value, per) in zip(found, numbers, strict=True)]
