"""A private step, declared and then calibrated: from public quantities alone."""

from __future__ import annotations

import abc
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from dp2erm_cvx.arrays import ROUND_DOWN, ROUND_UP_SUMS, Array
from dp2erm_cvx.calibration import Calibration, IntegerNoise, Noise, Perturbed
from dp2erm_cvx.calibration.numbers import GridNoise, RangeNoise, calibrate_grid
from dp2erm_cvx.calibration.profiles import LossLaw
from dp2erm_cvx.calibration.sums import GridSums
from dp2erm_cvx.checks import public_fraction
from dp2erm_cvx.curves.loss_constants import LossConstants
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.noise import Draw, draw, draw_within, perturb_on_grid
from dp2erm_cvx.privacy import Budget, RenyiCurve, StabilityBound
from dp2erm_cvx.program.stage import Instance, Program
from dp2erm_cvx.solve import Solution
from dp2erm_cvx.stability import uniform_weights
from dp2erm_cvx.steps.execution import Execution, Inputs, StepResult
from dp2erm_cvx.steps.record_map import OutcomeRows
from dp2erm_cvx.steps.weights import WeightsPlan

#: Error of the sampled noise, relative to its scale, before it is rounded to doubles.
SAMPLING_ERROR = 2.0**-60


@dataclass(frozen=True)
class Precision:
    """Public bound on the numerical error of one perturbed solve, and the noise that hides it.

    Parameters
    ----------
    sampling_error
        What is asked of the noise sampler.
    tolerance
        Bound on ``||theta_hat - theta||_2``, the error of the noise included.
    grid
        Noise that covers the tolerance, at its own epsilon on either side.
    """

    sampling_error: float
    tolerance: float
    grid: GridNoise

    @classmethod
    def covering(
        cls,
        calibration: Calibration,
        loss: LossConstants,
        n_samples: int,
        radius: float,
        hidden: float,
    ) -> Precision:
        """Precision that covers the arithmetic of a release.

        The minimizer of a perturbed objective of curvature ``n (gamma + mu)`` moves by at most
        ``||b - b'||`` over that.

        Parameters
        ----------
        calibration
            The noise of the release.
        loss
            Constants of the loss.
        n_samples
            Number of records.
        radius
            What the minimizer is certified to.
        hidden
            Part of epsilon that pays for it.

        Raises
        ------
        CalibrationError
            Where the error is out of floating-point range.
        """
        error = 0.0
        sampled = 0.0
        output = calibration.perturbed is Perturbed.OUTPUT
        if not output:
            error = SAMPLING_ERROR * calibration.unit
            curvature = n_samples * (calibration.gamma + loss.strong_convexity)
            sampled = (error + 2.0**-52 * noise_bound(calibration)) / curvature
        tolerance = (radius + sampled) * ROUND_UP_SUMS
        if not math.isfinite(tolerance):
            raise CalibrationError(
                "the numerical error is out of floating-point range: rescale the outcome"
            )
        if output:  # one discrete draw covers the statistic and its error
            grid = calibrate_grid(calibration.sensitivity + 2.0 * tolerance, 1, calibration.epsilon)
        else:
            p = calibration.n_parameters
            grid = calibrate_grid(math.sqrt(p) * tolerance * ROUND_UP_SUMS, p, hidden)
        return cls(error, tolerance, grid)

    def covers(self, solution: Solution, drawn: Draw, instance: Instance) -> bool:
        """True if the computed minimizer is within the tolerance of that for the ideal noise."""
        distance = solution.certificate.radius + drawn.distance / instance.strong_convexity
        return solution.certified and distance <= self.tolerance

    def on_grid(self, values: Array, seed: int | str | None) -> Array:
        """``values`` (p,) on the grid with discrete Laplace noise.

        What is no finite number counts as 0. A solver that failed may leave anything; its release
        is conditional, and still has to be made.
        """
        finite = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        return perturb_on_grid(finite, self.grid, seed=seed)


def noise_bound(calibration: Calibration) -> float:
    """A norm that the noise exceeds with probability less than ``exp(-1500)``.

    ``P(Gamma(p) >= p + x) <= exp(-x + p log(1 + x/p))`` and
    ``P(chi_p >= sqrt(p) + x) <= exp(-x^2 / 2)``. The norm of box noise in its box is Gamma(p) as
    well.
    """
    p = calibration.n_parameters
    lengths = 2.0 * p + 2000.0 if calibration.noise.pure else math.sqrt(p) + 60.0
    return calibration.unit * lengths


def sample(calibration: Calibration, precision: Precision | None, seed: int | str | None) -> Draw:
    """Draw the linear term, within the sampling error of the ``precision``.

    Without one it is drawn as if arithmetic were exact.
    """
    if precision is None:
        return Draw(draw(calibration, seed=seed), 0.0)
    return draw_within(calibration, precision.sampling_error, seed=seed)


#: What each step releases, by its name.
RELEASED = {
    "ranges": "ranges of the columns",
    "scale": "scale of the outcome",
    "rate": "treated share",
    "average": "mean of the covariates that the regressions see",
    "mean": "mean of the scaled covariates",
    "spread": "mean square of the scaled covariates",
    "along": "mean square along the difference of the arms",
    "center": "outcome regression",
    "propensity": "propensity of treatment",
    "rule": "treatment rule",
    "sides": "records by side of the rule and arm",
    "arms": "outcome regressions of both arms",
    "value": "what the rule gains",
    "squares": "sum of squared residuals",
    "weighted_sum": "sum of weighted residuals",
    "score": "sums of the records' estimates and of their squares",
    "theta": "coefficients of the second stage",
}

_ULP = 2.0**-52


#: What a step has in the place of what planning it works out.
_UNPLANNED: Any = None


@dataclass(frozen=True, kw_only=True)
class Step(abc.ABC):
    """A release and what it may spend, declared before any record is read; then, calibrated.

    Parameters
    ----------
    name
        What the release calls it.
    share
        Of the budget that later steps leave; None for all that the other steps leave.
    noise
        The law of its noise.
    numerical_share
        Of its budget, covers the arithmetic of a minimizer; noise on numbers is then drawn without
        floating point. None where exact arithmetic is assumed.
    universe
        Of the records that it computes on. This and all that follows is public, and filled in by
        :meth:`plan`.
    calibration
        Its noise.
    bound
        How far the weights of records move between neighbors.
    precision
        What covers the arithmetic; None where it is exact.
    loss
        The constants that the calibration used; None where the step minimizes nothing.
    radius
        What a minimizer is certified to on every dataset; None where that is not known.
    weights
        Those that it computes at.
    reason
        Why this calibration was taken, where there was a choice.
    """

    name: str
    share: float | None = None
    noise: Noise | str = Noise.GAMMA
    numerical_share: float | None = None
    universe: MappedUniverse = _UNPLANNED
    calibration: Any = _UNPLANNED
    bound: StabilityBound = _UNPLANNED
    precision: Precision | None = None
    loss: LossConstants = _UNPLANNED
    radius: float | None = None
    weights: WeightsPlan = _UNPLANNED
    reason: str | None = None

    @abc.abstractmethod
    def plan(self, universe: MappedUniverse, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """The step, calibrated to its ``budget``, given the ``earlier`` planned steps, by name.

        Raises CalibrationError where no theorem covers what is declared.
        """

    def planned(self, universe: MappedUniverse, noise: Any) -> Self:
        """The step with this noise on numbers, to which a record adds as much as it counts itself.

        Its bound is that of weights 1, or of public factors of at most 1.
        """
        bound = uniform_weights(universe.n_samples, factored=universe.space.weighted)
        return replace(self, universe=universe, calibration=noise, bound=bound)

    @abc.abstractmethod
    def run(
        self, inputs: Inputs, released: Mapping[str, Array], execution: Execution
    ) -> StepResult:
        """Release the step, given what the earlier steps ``released``, by name.

        Nothing about the records raises: a solution that is not certified comes back as it is, and
        says so.
        """

    def knowing(self, earlier: Mapping[str, Step]) -> Self:
        """The step, once all steps that its predictions rest on are planned: mostly the same."""
        return self

    def hand_on(self, inputs: Inputs, released: Mapping[str, Array]) -> Inputs:
        """Inputs of the steps after it, at all that is ``released`` by then: mostly the same."""
        return inputs

    @property
    @abc.abstractmethod
    def theorem(self) -> str:
        """The privacy theorem in force."""

    @property
    @abc.abstractmethod
    def predicted_error(self) -> float:
        """Predicted excess of its objective, or the mean square of the noise of a number."""

    @property
    def weighted(self) -> bool:
        """True if it computes on the weights of the first stage."""
        return False

    def hands(self, universe: MappedUniverse) -> MappedUniverse:
        """The public universe of the records that it hands on, whatever it releases.

        Theorem 10 is about such steps.
        """
        return universe

    def uncountable(self, universe: MappedUniverse) -> str | None:
        """Why no theorem covers the arithmetic of the step, None where one does."""
        return None

    @property
    def guarantee(self) -> Budget:
        """Budget that the step spends, its arithmetic included."""
        epsilon = self.calibration.epsilon
        delta = self.calibration.delta
        if self.precision is None or self.perturbed is Perturbed.OUTPUT:
            return Budget(epsilon, delta)
        # twice the epsilon of the grid that covers its arithmetic
        hidden = self.precision.grid.epsilon
        if delta > 0.0:
            delta = delta * math.exp(hidden)
        return Budget(epsilon + 2 * hidden, delta)

    @property
    def perturbed(self) -> Perturbed:
        """Target of the noise: an objective, one over all of R^p (Theorem 7), or the statistic."""
        return getattr(self.calibration, "perturbed", Perturbed.OUTPUT)

    @property
    def curve(self) -> RenyiCurve | None:
        """Renyi divergences of the step where a theorem states more than its epsilon and delta.

        Of a release that differs from the computed one only where noise is longer than its counted
        error covers, of probability below ``exp(-1800)``: a conversion pays for that event out of
        delta.
        """
        curve = self.calibration.curve() if isinstance(self.calibration, Calibration) else None
        if curve is None or self.precision is None:
            return curve
        return curve.shifted(self.precision.grid.epsilon)

    @property
    def integers(self) -> IntegerNoise | None:
        """The noise on each of the exact integers that it releases, None where it releases none."""
        return self.calibration if isinstance(self.calibration, IntegerNoise) else None

    @property
    def noise_law(self) -> dict[str, Any]:
        """The law of its noise as releases state it.

        It is in units of what the noise is added to, of an objective n times a gradient.
        """
        noise = self.calibration
        if not isinstance(noise, IntegerNoise | RangeNoise):
            names = ("noise", "scale", "gamma", "split", "sensitivity", "box")
            return {name: getattr(noise, name) for name in names}
        unit = 1.0
        if isinstance(noise, GridSums):
            unit = noise.units[0]
        elif isinstance(noise, IntegerNoise):
            unit = noise.unit
        return {
            "noise": noise.noise,
            "gamma": 0.0,
            "scale": unit * noise.scale,
            "sensitivity": unit * noise.sensitivity,
        }

    @property
    def regression(self) -> OutcomeRows | None:
        """The map of the records that it regresses an outcome on; None for other steps."""
        return None

    @property
    def loss_law(self) -> LossLaw | None:
        """Law of its privacy loss, where it may share one delta with others.

        None where no theorem says what it is.
        """
        return None

    def relieved(self, relief: float) -> Self:
        """A step with noise that is smaller by this, where its :attr:`loss_law` allows it."""
        return self

    @property
    def proven(self) -> bool:
        """True if a theorem certifies both the bound and the noise.

        The paper's literal baselines are not certified.
        """
        return self.bound.private and getattr(self.calibration, "private", True)

    @property
    def counted(self) -> bool:
        """True if the guarantee covers the floating-point arithmetic of the step, if any."""
        return self.numerical_share is not None

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the guarantee of the step beyond its theorem."""
        return ()

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that it solves, whose constants it relies on."""
        return ()

    def bounded(self, program: Program) -> Program:
        """One of its :attr:`programs` as its bound is for it, at all of its public settings."""
        return program

    def stated_programs(self) -> tuple[Program, ...]:
        """Those of its :attr:`programs` of which a bound that their author states is used."""
        stated = []
        for program in self.programs:
            if self.bounded(program).uses_stated_bound(self.universe):
                stated.append(program)
        return tuple(stated)

    @property
    def certified_by_design(self) -> bool:
        """True if public bounds say what it is certified to on every dataset of the universe."""
        return True


def reserve(budget: Budget, share: float | None) -> tuple[Budget, float | None]:
    """Budget that is left for the exact mechanism, and the epsilon_2 of the grid noise.

    Without a ``share`` all of it is left. An (epsilon_1, delta_1) mechanism released within the
    tolerance is ``(epsilon_1 + 2 epsilon_2, exp(epsilon_2) delta_1)``-differentially private.
    Raises DeclarationError unless ``share`` is between 0 and 1.
    """
    if share is None:
        return budget, None
    epsilon = 0.5 * public_fraction("numerical_share", share) * budget.epsilon * ROUND_DOWN
    left = (budget.epsilon - 2.0 * epsilon) * ROUND_DOWN
    # the last factor also pays for Gaussian noise beyond its bound, of probability below exp(-1800)
    # where exp(-epsilon) is 0 no delta is left, and Gaussian noise is refused by name
    delta = budget.delta * math.exp(-epsilon) * ROUND_DOWN
    # a subnormal number has no digits left to round down, and no noise is calibrated to one
    return Budget(left, delta if delta >= sys.float_info.min / _ULP else 0.0), epsilon
