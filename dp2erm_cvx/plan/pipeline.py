"""What every declared sequence of steps has, before any record is read."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from dp2erm_cvx.calibration.grid import Arithmetic
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of
from dp2erm_cvx.steps import Step, StepPlan
from dp2erm_cvx.universe import Universe

if TYPE_CHECKING:
    from dp2erm_cvx.plan.plan import Plan

#: Share of epsilon that covers the arithmetic where none is declared.
NUMERICAL_SHARE = 0.005

#: Solves and certificates take dense matrices of this order.
MOST_FEATURES = 2000

P_co = TypeVar("P_co", bound="Plan", covariant=True)


class Pipeline(abc.ABC, Generic[P_co]):
    """Steps in their order, the datasets that the guarantee is about, and the budget that they share.

    A declared pipeline is a dataclass with these fields; ``arithmetic`` and ``numerical_share`` say whether
    that share of epsilon covers the numerical error of what is released.
    """

    universe: Universe
    budget: Budget
    arithmetic: Arithmetic | str
    numerical_share: float

    def __post_init__(self) -> None:
        """Raise DeclarationError for a kind of arithmetic that is none, and too many covariates."""
        object.__setattr__(self, "arithmetic", one_of("arithmetic", self.arithmetic, Arithmetic))
        if self.universe.n_features > MOST_FEATURES:
            raise DeclarationError(
                f"{self.universe.n_features} covariates: at most {MOST_FEATURES}, because Hessians are "
                "dense; choose some publicly"
            )

    @abc.abstractmethod
    def steps(self, numerical_share: float | None) -> Iterator[Step]:
        """The steps in their order; ``numerical_share`` of each covers its arithmetic, None for none."""

    @abc.abstractmethod
    def planned(self, steps: Sequence[StepPlan]) -> P_co:
        """The plan that these calibrated steps make."""
