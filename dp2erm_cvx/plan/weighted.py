"""A weighted release: what is declared before any record is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from dp2erm_cvx.calibration import Calibrator, calibrator
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.plan.plan import Pipeline
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.registry import refuse_taken_name
from dp2erm_cvx.sampling import KINDS, refuse
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True)
class Study(Pipeline):
    """A first and a second stage, the universe of datasets, and the budget of one release.

    Parameters
    ----------
    first, second
        Programs; what they leave to the domain is filled in.
    universe, budget, noise, arithmetic, numerical_share
        As in :class:`~dp2erm_cvx.plan.Pipeline`; a calibration may leave no choice of the noise.
    calibration, split, tolerance
        As in :class:`~dp2erm_cvx.estimators.PrivateTwoStageERM`; a tolerance of 0 is that of exact weights.

    Raises DeclarationError for an invalid argument.
    """

    main: ClassVar[str] = "theta"

    first: FirstStage
    second: SecondStage
    universe: Universe
    budget: Budget
    calibration: str = "sharp"
    split: float | None = None
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        refuse(self.universe.domain.codebook, "a fit with the weights of a first stage", *KINDS)
        chosen = self.calibrator
        if self.split is not None and not chosen.splits:
            raise DeclarationError(
                f"split = {brief(self.split)}: calibration = {chosen.name!r} chooses its own"
            )
        for name in ("first", "second"):
            put(self, name, getattr(self, name).resolve(self.universe.domain))
            refuse_taken_name(type(getattr(self, name)))

    @property
    def calibrator(self) -> Calibrator:
        """The calibration of theta by its name. Raises DeclarationError naming the known ones."""
        return calibrator(self.calibration)

    def steps(self) -> Iterator[Step]:
        first, how = self.first, self.calibrator
        common: Any = {"noise": self.noise, "tolerance": self.tolerance}
        if isinstance(first, PrivateFirstStage):
            yield Fit("propensity", first.share, program=first, family=how.family, **common)
        yield Fit("theta", program=self.second, first=first, calibrator=how, split=self.split, **common)
