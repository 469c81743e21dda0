"""The value of the released rule against treating all and treating none: Laplace noise on a statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.calibration import Calibration, GridNoise, Noise, calibrate_value
from dp2erm_cvx.calibration.numbers import ValueStatistic
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError
from dp2erm_cvx.model.sums import compensated_sum, rounded_sum
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import SecondStage
from dp2erm_cvx.program.second_stage import recommendations
from dp2erm_cvx.public import one_of
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepResult, on_grid, sample, set_aside
from dp2erm_cvx.steps.weights import WeightsPlan
from dp2erm_cvx.universe import Universe


def value_contrasts(records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
    """``(1/n) sum w_i t_i``, shape (2,): against all, against none. Not private.

    ``weights`` (n,) are nonnegative of sum n, ``chosen`` (n,) in {0, 1} is what the rule chooses at each
    record, a function of that record and of public numbers alone.
    ``t_i = 2 (1{a_i = d_i} - 1{a_i = 1}, 1{a_i = d_i} - 1{a_i = 0}) y_i`` with y the centered net outcome.
    The l1 error of the result is at most ``calibration.numbers.SUM_ERROR`` times 2 M'.

    Raises DataError on a wrong shape, a weight that is no finite number, an outcome beyond the domain's
    bound, and a choice other than 0 and 1. Solved weights and records of a domain raise none of these.
    """
    found = records.blocks.map(_contrast_sums, *_checked(records, weights, chosen))
    return 2.0 * rounded_sum(found) / records.n_samples


def value_cells(records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
    """``(1/n) sum w_i t_i``, shape (8,), ``t_i = e_cell (x) (y_i, M'/2)``. Not private.

    Four sums of outcomes, then four masses times M'/2, of the cells (choice, treatment) = (0, 0), (0, 1),
    (1, 0), (1, 1). The l1 error is at most ``calibration.numbers.SUM_ERROR`` times 1.5 M'. Arguments and
    errors are those of :func:`value_contrasts`.
    """
    found = records.blocks.map(_cell_sums, *_checked(records, weights, chosen))
    units = np.repeat([1.0, 0.5 * records.domain.outcome_bound], 4)
    return units * (rounded_sum(found) / records.n_samples)


def _contrast_sums(records: Records, w: Array, d: Array) -> tuple[Array, Array]:
    _refuse_beyond(records)
    # a rule that treats gains on treating none where it treats, and on treating all where it does not
    follows = np.where(records.a == d, 1.0, -1.0)
    terms = w * (follows * records.y)
    return compensated_sum(np.where(d[:, None] == [0, 1], terms[:, None], 0.0))


def _cell_sums(records: Records, w: Array, d: Array) -> tuple[Array, Array]:
    _refuse_beyond(records)
    inside = (2 * d + records.a)[:, None] == [0, 1, 2, 3]
    terms = (np.where(inside, one[:, None], 0.0) for one in (w * records.y, w))
    return compensated_sum(np.hstack(list(terms)))


def _refuse_beyond(records: Records) -> None:
    if not np.all(np.abs(records.y) <= records.domain.outcome_bound):
        raise DataError("records: an outcome lies beyond the outcome_bound of the domain")


def _checked(records: Records, weights: ArrayLike, chosen: ArrayLike) -> tuple[Array, Array]:
    n = records.n_samples
    try:
        w, d = np.asarray(weights, dtype=np.float64), np.asarray(chosen, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("weights and chosen: must be arrays of numbers") from None
    if w.shape != (n,) or d.shape != (n,):
        raise DataError(f"weights {w.shape} and chosen {d.shape} must have shape ({n},)")
    if not np.all(np.isfinite(w)):
        raise DataError("weights: must be finite numbers")
    if not np.all((d == 0) | (d == 1)):
        raise DataError("chosen: must be 0 or 1")
    return w, d


@dataclass(frozen=True, kw_only=True)
class Value(Step):
    """The value of the rule that ``second`` makes of theta, by pure noise.

    Raises CalibrationError for a rule that is the same for everyone.
    """

    name: str = "value"
    second: SecondStage
    statistic: ValueStatistic | str = ValueStatistic.CELLS

    def __post_init__(self) -> None:
        object.__setattr__(self, "statistic", self.kind)
        if self.second.constant_rule:
            raise CalibrationError(
                f"value_share: {self.second.name} treats everyone or no one, so its value is what it "
                "releases anyway"
            )

    @property
    def kind(self) -> ValueStatistic:
        """The released statistic. Raises DeclarationError where it is unknown."""
        return one_of("value statistic", self.statistic, ValueStatistic)

    @property
    def weighted(self) -> bool:
        return True

    def divide(self, budget: Budget) -> tuple[Budget, Budget]:
        """A share of epsilon alone: Laplace noise spends no delta."""
        assert self.share is not None
        return set_aside("value_share", budget, self.share)

    def plan(self, universe: Universe, budget: Budget, earlier: Mapping[str, Step]) -> Self:
        """Calibrate the noise of the statistic to the bound of the weights of theta."""
        theta, domain = earlier["theta"], universe.domain
        assert theta.weights is not None
        noise = calibrate_value(
            theta.bound,
            domain.outcome_bound,
            universe.n_samples,
            budget.epsilon,
            statistic=self.kind,
            relation=domain.relation,
        )
        return replace(self, exact=theta.counted).planned(universe, noise, theta.weights)

    def planned(self, universe: Universe, noise: GridNoise, weights: WeightsPlan) -> Self:
        """The step with this noise: discrete Laplace noise on a grid where it is ``exact``.

        Raises DeclarationError where the noise is for another statistic.
        """
        if noise.n_parameters != self.kind.n_numbers:
            raise DeclarationError(
                f"noise for {noise.n_parameters} numbers: {self.kind.value} are {self.kind.n_numbers}"
            )
        return replace(self, universe=universe, calibration=noise, bound=weights.bound, weights=weights)

    @property
    def theorem(self) -> str:
        return "Laplace noise for the value"

    @property
    def predicted_error(self) -> float:
        """Mean square of the noise of one number."""
        return 2.0 * float(self.calibration.scale**2)

    def run(self, inputs: Inputs, released: Mapping[str, Array], execution: Execution) -> StepResult:
        """Release the 8 or 2 numbers of the statistic, of the rule that the released theta makes."""
        assert inputs.weights is not None
        choose = partial(_chosen, second=self.second, theta=released["theta"], domain=self.universe.domain)
        chosen = np.concatenate(inputs.dataset.blocks.map(choose))
        numbers = self.statistic_of(inputs.records, inputs.weights.value, chosen)
        return StepResult(self.noised(numbers, execution))

    def statistic_of(self, records: Records, weights: ArrayLike, chosen: ArrayLike) -> Array:
        """The numbers without noise, from weights (n,) and choices (n,) in {0, 1}. Not private.

        Raises DataError like :func:`~dp2erm_cvx.steps.value.value_contrasts`.
        """
        compute = value_cells if self.kind is ValueStatistic.CELLS else value_contrasts
        return compute(records, weights, chosen)

    def noised(self, numbers: Array, execution: Execution) -> Array:
        """The numbers with their noise."""
        if self.exact:
            return on_grid(numbers, self.calibration, execution.label(self.name))
        seeds = [execution.label(f"{self.name} {k}") for k in range(len(numbers))]
        law = _law(self.calibration)
        noise: Array = np.array([sample(law, None, seed).value[0] for seed in seeds])
        return numbers + noise


def _chosen(data: Dataset, *, second: SecondStage, theta: Array, domain: Domain) -> NDArray[np.int64]:
    return recommendations(second, theta, domain, data.X)


def _law(noise: GridNoise) -> Calibration:
    """The Laplace law as one coordinate of gamma noise, of which only the scale is read."""
    return Calibration(
        noise=Noise.GAMMA,
        scale=noise.scale,
        gamma=0.0,
        split=1.0,
        n_parameters=1,
        V=0.0,
        sensitivity=noise.l1_sensitivity,
        epsilon=noise.epsilon,
        delta=0.0,
        theorem="Laplace",
    )
