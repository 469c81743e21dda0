"""How any release reaches its readers: one list of sentences and tables, in every form."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import WIDTH, as_frame, as_html, as_text

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block


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
