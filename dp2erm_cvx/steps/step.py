"""A private step as it is declared, and as it is planned: from public quantities alone."""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from numpy.typing import NDArray

from dp2erm_cvx.blocked import BlockedDataset
from dp2erm_cvx.calibration import (
    Calibration,
    GridNoise,
    IntegerNoise,
    MarginCalibration,
    Noise,
    Perturbed,
    RangeNoise,
)
from dp2erm_cvx.calibration.profiles import LossLaw, relieved
from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget, LossConstants, RenyiCurve, StabilityBound
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.public import public_fraction
from dp2erm_cvx.solve import Solution, Solver
from dp2erm_cvx.steps.precision import Precision, curve_of, spent_by
from dp2erm_cvx.universe import Universe

if TYPE_CHECKING:
    from dp2erm_cvx.steps.record_map import OutcomeRows
    from dp2erm_cvx.steps.weights import WeightsPlan

# keeps parts of a budget from adding up to more than the whole by a rounding
_ROUND_DOWN = 1.0 - 1e-12
_ULP = 2.0**-52


@dataclass(frozen=True)
class Execution:
    """How a plan is run: public, and none of it chosen after seeing the records.

    ``tolerance`` is the relative radius that weights are certified to, which V counts. ``seed`` is for tests
    and experiments only: what was run with one is not private.
    """

    solver: str | Solver
    tolerance: float
    seed: int | str | None = None

    def label(self, name: str) -> str | None:
        """The seed of one draw of the run: no two draws may share their bits. None for fresh entropy."""
        return None if self.seed is None else f"{name} {self.seed}"


@dataclass(frozen=True, repr=False)
class Inputs:
    """What the data holder gives a step: nothing of it is released.

    ``weights`` of a first stage with a stability theorem are private, and enter the steps that use them
    through V; those at a released coefficient are a function of each record and one normalization. None
    before the first step that uses them.
    """

    dataset: Dataset | BlockedDataset
    records: Records
    weights: Solution | None = None


@dataclass(frozen=True, repr=False)
class StepResult:
    """What a step released, (p,), and what must stay with the data holder.

    ``certified`` says that what the theorem speaks of is within its public tolerance, ``by_gap`` that this
    rests on a duality gap alone. ``noise`` (p,) and ``solution``, the minimizer before it is released, are
    private.
    """

    released: NDArray[Any]
    certified: bool = True
    by_gap: bool = False
    solution: Solution | None = None
    noise: Array | None = None


@dataclass(frozen=True)
class Planned:
    """A calibrated step of any kind. Everything here is public and known before any record is read.

    ``universe`` is that of the records that it computes on, ``bound`` how far their weights move between
    neighbors. ``precision`` covers the arithmetic, None where exact arithmetic is assumed; ``loss`` holds the
    constants that the calibration used, None where the step minimizes nothing; ``radius`` is what a minimizer
    is certified to on every dataset, None where that is not known.
    """

    declared: Step
    universe: Universe
    calibration: Any
    bound: StabilityBound
    precision: Precision | None = None
    loss: LossConstants | None = None
    radius: float | None = None
    weights: WeightsPlan | None = None
    reason: str | None = None

    @property
    def name(self) -> str:
        """That of the step."""
        return self.declared.name

    @property
    def weighted(self) -> bool:
        """Whether it computes on the weights of the first stage."""
        return self.declared.weighted

    @property
    def theorem(self) -> str:
        """The privacy theorem in force."""
        return self.declared.theorem(self)

    @property
    def guarantee(self) -> Budget:
        """What the step spends, its arithmetic included."""
        if isinstance(self.calibration, Calibration):
            return spent_by(self.calibration, self.precision)
        # discrete noise covers its own rounding, and Laplace noise spends no delta
        pure = isinstance(self.calibration, GridNoise)
        return Budget(self.calibration.epsilon, 0.0 if pure else self.calibration.delta)

    @property
    def perturbed(self) -> Perturbed:
        """What the noise is added to: an objective, one over all of R^p (Theorem 7), or the statistic."""
        return getattr(self.calibration, "perturbed", Perturbed.OUTPUT)

    @property
    def predicted_error(self) -> float:
        """Predicted excess of its objective by noise and gamma, or the mean square of a number's noise."""
        return self.declared.error(self)

    @property
    def curve(self) -> RenyiCurve | None:
        """Renyi divergences of the step where a theorem states more than its epsilon and delta."""
        return curve_of(self.calibration, self.precision)

    @property
    def integers(self) -> IntegerNoise | None:
        """The noise on each of the exact integers that it releases, None where it releases none."""
        if isinstance(self.calibration, GridSums):
            return self.calibration.integers
        return self.calibration if isinstance(self.calibration, IntegerNoise) else None

    @property
    def numbers(self) -> bool:
        """Whether it releases noisy numbers of records instead of a minimizer."""
        return isinstance(self.calibration, IntegerNoise | GridSums | RangeNoise)

    @property
    def regression(self) -> OutcomeRows | None:
        """The map of the records that it regresses an outcome on, None where it is no such regression."""
        return self.declared.regression

    @property
    def loss_law(self) -> LossLaw | None:
        """Law of its privacy loss, where it may share one delta with others; None where no theorem says."""
        return self.declared.loss_law(self)

    def relieved(self, relief: float) -> Self:
        """The same step with noise that is smaller by this, where its :attr:`loss_law` allows it."""
        if self.loss is None or not isinstance(self.calibration, MarginCalibration):
            return self
        less = relieved(self.calibration, relief, self.loss.strong_convexity)
        return self.perturbed_by(less, None if self.precision is None else self.precision.grid.epsilon)

    def perturbed_by(self, calibration: Calibration, hidden: float | None) -> Self:
        """The same program with other noise, certified and covered anew by ``hidden`` of epsilon."""
        radius, precision = self.declared.certified(self, calibration, hidden)
        return replace(self, calibration=calibration, radius=radius, precision=precision)

    @property
    def proven(self) -> bool:
        """Whether a theorem certifies both the bound and the noise; the paper's literal baselines are not."""
        return self.bound.private and getattr(self.calibration, "private", True)

    @property
    def counted(self) -> bool:
        """Whether the guarantee covers floating-point arithmetic, where the step has any to count."""
        return self.precision is not None or self.declared.exact

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the step, given what the earlier steps ``released``, by name.

        Nothing about the records raises: a solution that is not certified comes back as it is, and says so.
        """
        return self.declared.run(self, inputs, released, execution)

    def hand_on(self, inputs: Inputs, found: StepResult, released: Mapping[str, Array]) -> Inputs:
        """What the steps after it are given, at all that is ``released`` by then."""
        return self.declared.hand_on(self, inputs, found, released)


@dataclass(frozen=True)
class Step(abc.ABC):
    """What a step releases and what it may spend, declared before any record is read.

    Parameters
    ----------
    name
        What the release calls it.
    share
        Of the budget that later steps leave; None for all that the other steps leave.
    noise
        The law of its noise.
    exact
        Whether noise on numbers is drawn without floating point.

    Methods that take a :class:`Planned` step are those of a plan of this very step.
    """

    name: str
    share: float | None = None
    noise: Noise | str = Noise.GAMMA
    exact: bool = False

    @property
    def takes_rest(self) -> bool:
        """Whether it takes what the other steps leave, instead of a share of its own."""
        return self.share is None

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """What the step spends of ``budget``, and what it leaves: pure noise leaves all of delta.

        Raises DeclarationError unless its share is between 0 and 1.
        """
        return (budget, budget) if self.share is None else divide(budget, self.share, self.noise)

    def hands(self, universe: Universe) -> Universe:
        """The public universe of the records that it hands on, whatever it releases (Theorem 10)."""
        return universe

    def uncountable(self, universe: Universe) -> str | None:
        """Why no theorem covers the arithmetic of the step, None where one does."""
        return None

    @abc.abstractmethod
    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, Planned]) -> Planned:
        """Calibrate the step to its ``budget``, given the ``earlier`` planned steps, by name.

        Raises CalibrationError where no theorem covers what is declared.
        """

    @abc.abstractmethod
    def run(
        self, own: Planned, inputs: Inputs, released: Mapping[str, Array], execution: Execution
    ) -> StepResult:
        """See :meth:`Planned.run`."""

    def hand_on(
        self, own: Planned, inputs: Inputs, found: StepResult, released: Mapping[str, Array]
    ) -> Inputs:
        """See :meth:`Planned.hand_on`; mostly the same inputs."""
        return inputs

    @abc.abstractmethod
    def theorem(self, own: Planned) -> str:
        """See :attr:`Planned.theorem`."""

    @abc.abstractmethod
    def error(self, own: Planned) -> float:
        """See :attr:`Planned.predicted_error`."""

    def loss_law(self, own: Planned) -> LossLaw | None:
        """See :attr:`Planned.loss_law`."""
        return None

    def assumptions(self, own: Planned) -> tuple[str, ...]:
        """What the guarantee of the step rests on beyond its theorem."""
        return ()

    def programs(self, own: Planned) -> tuple[Program, ...]:
        """The programs that it solves, whose constants it relies on."""
        return ()

    def certified_by_design(self, own: Planned) -> bool:
        """Whether public bounds say what it is certified to on every dataset of the universe."""
        return True

    def certified(
        self, own: Planned, calibration: Calibration, hidden: float | None
    ) -> tuple[float | None, Precision | None]:
        """What a minimizer is certified to, and what covers its arithmetic by ``hidden`` of epsilon."""
        raise NotImplementedError  # of a step that solves none

    @property
    def weighted(self) -> bool:
        """See :attr:`Planned.weighted`."""
        return False

    @property
    def regression(self) -> OutcomeRows | None:
        """See :attr:`Planned.regression`."""
        return None


def reserve(budget: Budget, share: float) -> tuple[Budget, float]:
    """What is left for the exact mechanism, and the epsilon_2 of the grid noise on either side.

    An (epsilon_1, delta_1) mechanism released within the tolerance is
    ``(epsilon_1 + 2 epsilon_2, exp(epsilon_2) delta_1)``-differentially private. Raises DeclarationError
    unless ``share`` is between 0 and 1.
    """
    epsilon = 0.5 * public_fraction("numerical_share", share) * budget.epsilon * _ROUND_DOWN
    left = (budget.epsilon - 2.0 * epsilon) * _ROUND_DOWN
    # the last factor also pays for Gaussian noise beyond its bound, of probability below exp(-1800)
    # where exp(-epsilon) is 0 no delta is left, and Gaussian noise is refused by name
    delta = budget.delta * math.exp(-epsilon) * _ROUND_DOWN
    # a subnormal number has no digits left to round down, and no noise is calibrated to one
    return Budget(left, delta if delta >= sys.float_info.min / _ULP else 0.0), epsilon


def exact_budget(budget: Budget, steps: Sequence[Planned]) -> Budget:
    """What a ``budget`` has for the exact mechanisms of ``steps`` together: each pays for its grid once."""
    hidden = math.fsum(step.precision.grid.epsilon for step in steps if step.precision is not None)
    left = (budget.epsilon - 2.0 * hidden) * _ROUND_DOWN
    return Budget(left, budget.delta * math.exp(-hidden) * _ROUND_DOWN)


def divide(budget: Budget, share: float, noise: Noise | str) -> tuple[Budget, Budget]:
    """A ``share`` of epsilon and delta, and the rest; pure noise leaves delta to the rest."""
    epsilon = budget.epsilon * _ROUND_DOWN
    spends_delta = budget.delta if noise == Noise.GAUSSIAN else 0.0
    first = Budget(share * epsilon, share * spends_delta * _ROUND_DOWN)
    rest = budget.delta - first.delta
    return first, Budget((1.0 - share) * epsilon, rest * _ROUND_DOWN)


def set_aside(name: str, budget: Budget, share: float) -> tuple[Budget, Budget]:
    """A pure ``share`` of epsilon, called ``name``, and what is left: all of delta.

    Raises DeclarationError unless the share is between 0 and 1.
    """
    epsilon = public_fraction(name, share) * budget.epsilon * _ROUND_DOWN
    return Budget(epsilon), Budget((budget.epsilon - epsilon) * _ROUND_DOWN, budget.delta)
