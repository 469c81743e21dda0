"""Declarations about a release of ranges, made before any record is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from dp2erm_cvx.data.private_ranges import OpenDomain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.plan.plan import Pipeline
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import ColumnRanges


@dataclass(frozen=True)
class RangesStudy(Pipeline):
    """Ranges of the columns of which none is declared, by private quantiles.

    Parameters
    ----------
    universe, budget, noise, arithmetic, numerical_share, before
        As in :class:`~dp2erm_cvx.plan.Pipeline`. Of the domain of the universe no range is used.
    public
        What is declared of the records.
    """

    main: ClassVar[str] = "ranges"
    several_arms: ClassVar[bool] = True

    universe: Universe
    budget: Budget
    public: OpenDomain

    def steps(self) -> Iterator[Step]:
        """The private choices, which take all of the budget."""
        yield ColumnRanges(public=self.public)
