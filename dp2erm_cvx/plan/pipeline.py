"""What every declared sequence of steps has, before any record is read."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.base import mean_norm
from dp2erm_cvx.calibration.numbers import Arithmetic
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import PrivateFirstStage, SecondStage
from dp2erm_cvx.public import one_of
from dp2erm_cvx.sampling import refuse_arms
from dp2erm_cvx.steps import (
    ColumnRanges,
    CovariateLaw,
    CovariateMean,
    Fit,
    MeanSquare,
    OutcomeRows,
    Step,
    WithConstant,
)
from dp2erm_cvx.universe import Universe

if TYPE_CHECKING:
    from dp2erm_cvx.plan.plan import Plan
    from dp2erm_cvx.plan.settings import CausalSettings

#: Share of epsilon that covers the arithmetic where none is declared.
NUMERICAL_SHARE = 0.005

#: Bound on the norm of a regression coefficient, in outcome bounds: too wide to be felt.
LONGEST = 20.0

#: n epsilon of the rate of treatment from which on it is more than noise.
STEADY = 20.0

#: Solves and certificates take dense matrices of this order.
MOST_FEATURES = 2000

P_co = TypeVar("P_co", bound="Plan", covariant=True)


class Pipeline(abc.ABC, Generic[P_co]):
    """Steps in their order, the datasets that the guarantee is about, and the budget that they share.

    A declared pipeline is a dataclass with these fields; ``arithmetic`` and ``numerical_share`` say whether
    that share of epsilon covers the numerical error of what is released.
    """

    #: Whether treatments may have more than two arms.
    several_arms: ClassVar[bool] = False

    universe: Universe
    budget: Budget
    noise: Noise | str
    arithmetic: Arithmetic | str
    numerical_share: float
    #: Steps that an earlier question of the same study released, by name: ``of`` which one, and at which
    #: ``epsilon`` of which ``budget``. They are not released again, and spend none of the own budget.
    before: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def __post_init__(self) -> None:
        """Raise DeclarationError for what is no arithmetic, too many covariates, and arms if it knows two."""
        if not self.several_arms:
            refuse_arms(self.universe.domain.codebook, "a rule, or a fit with weights,")
        object.__setattr__(self, "arithmetic", one_of("arithmetic", self.arithmetic, Arithmetic))
        if self.universe.n_features > MOST_FEATURES:
            raise DeclarationError(
                f"{self.universe.n_features} covariates: at most {MOST_FEATURES}, because Hessians are "
                "dense; choose some publicly"
            )

    @property
    def start(self) -> Universe:
        """The public universe that the first step finds its records in."""
        return self.universe

    @abc.abstractmethod
    def steps(self, numerical_share: float | None) -> Iterator[Step]:
        """The steps in their order; ``numerical_share`` of each covers its arithmetic, None for none."""

    @abc.abstractmethod
    def planned(self, steps: Sequence[Step]) -> P_co:
        """The plan that these calibrated steps make."""

    def handed(self, steps: Iterable[Step]) -> Universe:
        """That of the records that these first ``steps`` hand on."""
        where = self.start
        for step in steps:
            where = step.hands(where)
        return where

    @cached_property
    def law(self) -> CovariateLaw:
        """What is guessed of the covariates."""
        return CovariateLaw.of(self.universe.domain, self.universe.n_features)

    def placing(
        self, mean: float | None, spread: float | None, norm: float, reach: float, *, exact: bool
    ) -> Iterator[Step]:
        """The steps by which covariates are centered, in a ball of this ``reach``, and scaled to a ``norm``.

        From these shares of the budget, None for no step.
        """
        if mean is not None:
            yield CovariateMean(share=mean, noise=self.noise, exact=exact, law=self.law, norm=reach)
        if spread is not None:
            yield MeanSquare(share=spread, exact=exact, law=self.law, norm=norm)

    def saturating(self, name: str, slope: float) -> SecondStage:
        """A second stage whose loss saturates."""
        # no theorem needs this ball; within it every solve is certified to a public radius
        ball = L2Ball(LONGEST * self.universe.domain.outcome_bound)
        return registry.build(registry.second_stages(), name, slope=slope, theta_set=ball)

    def regression(
        self,
        name: str,
        program: SecondStage,
        rows: OutcomeRows,
        numerical_share: float | None,
        share: float | None = None,
    ) -> Fit:
        """A regression on mapped ``rows``."""
        return Fit(
            name, share, self.noise, program=program, map=rows, numerical_share=numerical_share, either=True
        )

    def logistic(self, universe: Universe, settings: CausalSettings, numerical_share: float | None) -> Fit:
        """The logistic regression of the treatment on (1, x) in a ball, at weights 1, in a ``universe``."""
        bound = WithConstant().universe(universe).domain.covariate_bound
        radius = settings.radius / bound
        stages, trim = registry.first_stages(), settings.cap
        program = registry.build(stages, "ipw_private", ridge=0.0, radius=radius, trim=trim)
        assert isinstance(program, PrivateFirstStage)
        return Fit(
            "propensity",
            settings.propensity_share,
            self.noise,
            program=program,
            map=WithConstant(),
            split=settings.split,
            numerical_share=numerical_share,
            either=True,
        )


def chosen_noise(declared: object, universe: Universe) -> Noise:
    """The law by its name; "auto" is gamma or box noise, whichever is shorter for regressions on (1, x).

    In mean Euclidean length, from what is public. Raises DeclarationError for another name.
    """
    if declared != "auto":
        known = [*(law.value for law in Noise), "auto"]
        if declared not in known:
            raise DeclarationError(f"noise = {shown(declared)}: must be one of {', '.join(known)}")
        return Noise(declared)
    rows = WithConstant().universe(universe)
    p, widths = rows.n_columns, rows.widths
    if widths is None:
        return Noise.GAMMA
    ball = rows.domain.covariate_bound * mean_norm(Noise.GAMMA, p)
    return Noise.BOX if mean_norm(Noise.BOX, p, widths) < ball else Noise.GAMMA


def shares_in_turn(steps: Sequence[Step], kept: float = 1.0) -> list[Step]:
    """The same shares of the whole, as shares of what later steps leave, because those take theirs first.

    All but that of ranges are shares of what is ``kept`` beside them.
    """
    found: list[Step] = []
    left = 1.0
    for step in reversed(steps):
        share = (step.share or 0.0) * (1.0 if isinstance(step, ColumnRanges) else kept)
        found.append(replace(step, share=share / left))
        left -= share
    return found[::-1]
