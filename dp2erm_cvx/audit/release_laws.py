"""The law of all that a plan or an estimator releases from a dataset: one step after the other."""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.finding import Columns, differing_units
from dp2erm_cvx.audit.laws import (
    Law,
    ObjectiveLaw,
    Released,
    ReleaseLaw,
    ShiftLaw,
    WeightsRadius,
)
from dp2erm_cvx.calibration import Calibration, Noise, Perturbed
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.data.blocks import Beside
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import (
    CertificateError,
    DataError,
    DeclarationError,
    InfeasibleError,
    SolverError,
)
from dp2erm_cvx.estimators.fitting import TOLERANCE, PrivateEstimator, checked_domain
from dp2erm_cvx.plan import Pipeline, Plan, make_plan
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.steps.covariates import CovariateMean, MeanSquare
from dp2erm_cvx.steps.execution import Execution
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.outcome_scale import SCALE
from dp2erm_cvx.steps.step import Step
from dp2erm_cvx.steps.sums import IntegerSums
from dp2erm_cvx.steps.weights import solve_weights

#: (X, a, y) as an estimator takes it, or, as searches draw persons, numbers with the person of
#: every row.
Raw = tuple[ArrayLike, ArrayLike, ArrayLike] | tuple[Array, ArrayLike, ArrayLike, ArrayLike]
#: What can be audited: what plans a release, or the plan itself.
Audited = PrivateEstimator | Pipeline | Plan[Any]


def audited_laws(
    model: Audited, pair: tuple[Raw, Raw]
) -> tuple[Plan[Any], tuple[ReleaseLaw, ReleaseLaw]]:
    """The plan, and the laws of what it releases from either dataset.

    Raises what :func:`audit_density` raises.
    """
    plan, datasets, execution = _planned(model, pair)
    _check_neighbors(*datasets, plan.study.universe)
    _check_steps(plan)
    maps = tuple(step for step in plan.steps if isinstance(step, CovariateMean | MeanSquare))
    weighting = _weighting_of(plan)
    domain = plan.study.start.domain
    sides = []
    for data in datasets:
        records = domain.records(data.X, data.a, data.y, data.sampling, data.person)
        sides.append(_Side(records, maps, weighting, execution))
    first: dict[str, Callable[[Released], Law]] = {}
    second: dict[str, Callable[[Released], Law]] = {}
    for step in plan.steps:
        laws = _Laws(step, sides, last=step is plan.steps[-1])
        first[step.name] = partial(laws.of_side, 0)
        second[step.name] = partial(laws.of_side, 1)
    return plan, (ReleaseLaw(first), ReleaseLaw(second))


def _planned(
    model: Audited, pair: tuple[Raw, Raw]
) -> tuple[Plan[Any], tuple[Dataset, Dataset], Execution]:
    """The plan of what is audited, both datasets as it declares them, and how it solves."""
    execution = Execution("first_certified", TOLERANCE)
    first, second = pair
    if isinstance(model, PrivateEstimator):
        domain = checked_domain(model.public())
        execution = model.execution()
        one = _dataset(domain, first)
        other = _dataset(domain, second)
        return model.plan(one.n_samples, len(one.columns)), (one, other), execution
    plan = model if isinstance(model, Plan) else make_plan(model)
    domain = plan.study.universe.domain
    return plan, (_dataset(domain, first), _dataset(domain, second)), execution


def _dataset(domain: Domain, raw: Raw) -> Dataset:
    """The raw columns as a dataset of the domain."""
    if len(raw) == 4:
        return _persons(domain, *raw)
    return Dataset.declared(domain, *raw)


def _persons(domain: Domain, X: Array, a: ArrayLike, y: ArrayLike, person: ArrayLike) -> Dataset:
    """Records of persons, as numbers.

    Two rows of nobody stand behind them, as where there are no others.
    """
    n, k = X.shape
    return Dataset(
        np.pad(X, ((0, 2), (0, 0))),
        np.append(a, [0, 0]),
        np.append(y, [0, 0]),
        domain.columns or tuple(f"x{j + 1}" for j in range(k)),
        "a",
        "y",
        np.repeat([1.0, 0.0], [n, 2]),
        np.append(person, [-1, -1]),
        domain.units,
        len(domain.arms),
    )


def _check_neighbors(first: Dataset, second: Dataset, universe: Universe) -> None:
    """Raise DataError unless the datasets are neighbors in the universe."""
    size = (universe.n_samples, universe.n_features)
    has_persons = universe.domain.units is not None
    if not has_persons and {first.X.shape, second.X.shape} != {size}:
        raise DataError(
            f"datasets of shapes {first.X.shape} and {second.X.shape} are not neighbors in a plan "
            f"for {universe.n_samples} records of {universe.n_features} covariates"
        )
    n_differing = differing_units(_columns(first), _columns(second))
    if n_differing > 1 and has_persons:
        raise DataError("the records of several persons differ: neighbors differ in those of one")
    if n_differing > 1:
        raise DataError(f"{n_differing} records differ row by row: neighbors differ in one")
    if has_persons:
        return
    relation = universe.domain.relation
    if relation is not Neighboring.REPLACE_ONE and np.any(first.a != second.a):
        raise DataError(f"a treatment differs, which {relation.value!r} does not protect")


def _columns(data: Dataset) -> Columns:
    """The columns of a dataset; its sampling weights stand as a last covariate, as in records."""
    weights = np.zeros(len(data.a)) if data.sampling is None else data.sampling
    columns = (np.column_stack([data.X, weights]), data.a, data.y)
    if data.person is None:
        return columns
    return *columns, data.person


def _check_steps(plan: Plan[Any]) -> None:
    """Raise DeclarationError where a step has no density that is known here."""
    if plan.step(SCALE) is not None:
        raise DeclarationError(
            "audit_density: later steps follow from the scale of the outcome, whose pairs are "
            "drawn in secret: declare residual_scale"
        )
    for step in plan.steps:
        if not isinstance(step, IntegerSums | Fit):
            raise DeclarationError(
                f"audit_density knows no density of the step {step.name!r}: leave it out"
            )


def _weighting_of(plan: Plan[Any]) -> FirstStage | None:
    """The program of the weights of a two-stage release, if the plan has one."""
    weighting = None
    for step in plan.steps:
        if isinstance(step, Fit) and step.weights is not None and step.weighted:
            weighting = step.weights.program
    return weighting


@dataclass(frozen=True, eq=False)
class _Side:
    """One dataset with what its steps share.

    Parameters
    ----------
    records
        The records of the dataset.
    maps
        The steps that hand on other records than they were given.
    weighting
        The program of the weights; None where all are 1.
    execution
        How the weights are solved for.
    """

    records: Records
    maps: tuple[Step, ...]
    weighting: FirstStage | None
    execution: Execution

    def at(self, released: Released) -> Records:
        """The records that a step is run on after those that ``released`` names."""
        records = self.records
        for step in self.maps:
            if step.name in released:
                assert isinstance(step, IntegerSums)
                records = step.mapped(records, released)
        return records

    def objective(self, fit: Fit, released: Released) -> tuple[MarginModel, WeightsRadius | None]:
        """The objective of a fit without noise, and what the error of its weights can change.

        The latter is None where the weights are exact.
        """
        records = self.at(released)
        ones = np.ones(self.records.n_samples)
        weights: Beside | None = ones
        radius = 0.0
        if not fit.weighted:
            records, weights = fit.mapped(records, released)
        elif isinstance(self.weighting, PrivateFirstStage):
            coefficient = released["propensity"]
            first_stage = _model(self._weights_program)
            weights = first_stage.output(coefficient)
            radius = first_stage.output_radius(coefficient, 0.0)
        elif self.weighting is not None:
            weights, radius = self._solved_weights
        no_noise = np.zeros(fit.calibration.n_parameters)
        model = _model(fit.instance(records, weights, no_noise))
        if not radius:
            return model, None
        return model, WeightsRadius(radius, _model(fit.instance(records, ones, no_noise)))

    @cached_property
    def _weights_program(self) -> Instance:
        """The program of the weights on these records."""
        assert self.weighting is not None
        return self.weighting.instance(self.records)

    @cached_property
    def _solved_weights(self) -> tuple[Array, float]:
        """The certified weights (n,) and their radius; raises CertificateError."""
        tolerance = public_number("tolerance", self.execution.tolerance, above=0)
        try:
            solved = solve_weights(self._weights_program, self.execution.solver, tolerance)
        except (InfeasibleError, SolverError) as error:
            # a search over pairs goes on without this one
            raise CertificateError(str(error)) from None
        return solved.value, solved.certificate.output_radius


#: Pairs of laws that are kept for outputs seen before.
_KEPT = 64


@dataclass(frozen=True, eq=False)
class _Laws:
    """The laws of one step on both datasets, made once for what they read of earlier outputs.

    Parameters
    ----------
    step
        The step.
    sides
        Both datasets.
    last
        Whether no later step depends on its output.
    """

    step: Step
    sides: Sequence[_Side]
    last: bool
    _names_read: set[str] = field(default_factory=set)
    _made: dict[tuple[bytes, ...], tuple[Law, ...]] = field(default_factory=dict)

    def of_side(self, which: int, released: Released) -> Law:
        """The law on one dataset, after the outputs ``released``."""
        laws = self._made.get(self._key(released))
        if laws is None:
            laws = _laws_of(self.step, self.sides, self._watched(released), self.last)
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[self._key(released)] = laws
        return laws[which]

    def _watched(self, released: Released) -> Released:
        return _Watched(released, self._names_read)

    def _key(self, released: Released) -> tuple[bytes, ...]:
        """The bytes of the outputs that the laws have read so far."""
        return tuple(released[name].tobytes() for name in sorted(self._names_read))


class _Watched(UserDict[str, Array]):
    """Released values by name, which note what is read of them.

    Which steps came before is no secret.
    """

    def __init__(self, released: Released, names_read: set[str]) -> None:
        super().__init__(released)
        self._names_read = names_read

    def __getitem__(self, name: str) -> Array:
        self._names_read.add(name)
        return self.data[name]


def _laws_of(step: Step, sides: Sequence[_Side], released: Released, last: bool) -> tuple[Law, ...]:
    """The laws of a step on both datasets."""
    if isinstance(step, IntegerSums):
        return tuple(_of_sums(step, side, released, last) for side in sides)
    assert isinstance(step, Fit)
    if step.perturbed is Perturbed.OUTPUT:
        return tuple(_of_mean(step, side, released) for side in sides)
    return _of_minimizer(step, sides, released)


def _of_sums(step: IntegerSums, side: _Side, released: Released, last: bool) -> ShiftLaw:
    """The law of integers with noise (Theorems 10 and 12)."""
    noise = step.integers
    assert noise is not None
    sums = np.array(step.exact_sums(side.at(released), released), dtype=np.float64)
    return ShiftLaw(
        sums, noise.scale, noise.noise, moved=0.0, whole=True, last=last, block=noise.block
    )


def _of_mean(fit: Fit, side: _Side, released: Released) -> ShiftLaw:
    """The law of a weighted mean with noise (Theorem 8).

    An error e of the weights in l1, of sum n, moves it by e max |z| / n.
    """
    model, weights = side.objective(fit, released)
    w = model.whole.multipliers
    z = model.whole.offsets
    mean = np.array([math.fsum(w * z) / math.fsum(w)])
    moved = 0.0
    if weights is not None:
        moved = weights.radius * float(np.max(np.abs(z))) / model.n
    scale = fit.calibration.scale
    return ShiftLaw(mean, scale, Noise.GAMMA, moved=moved, whole=False, last=True)


def _of_minimizer(fit: Fit, sides: Sequence[_Side], released: Released) -> tuple[Law, ...]:
    """The laws of a minimizer with noise in its objective (Theorem 1)."""
    calibration = fit.calibration
    assert isinstance(calibration, Calibration)
    objectives = [side.objective(fit, released) for side in sides]
    # one step for both datasets, of the size at which theta and its multiplier weigh the same
    size = 1.0 / math.sqrt(math.prod(model.smoothness for model, _ in objectives))
    unscaled = np.ones(calibration.n_parameters)
    if fit.regression is not None:
        unscaled = fit.regression.unscaled(unscaled, sides[0].records.covariates.shape[1])
    return tuple(
        ObjectiveLaw(model, calibration, size, unscaled, weights) for model, weights in objectives
    )


def _model(instance: Instance) -> MarginModel:
    """The model of a program, whose density is known; raises DeclarationError for another one."""
    if not isinstance(instance.model, MarginModel):
        raise DeclarationError(
            f"{instance.program.name}: audit_density needs weighted least squares or a sum of "
            "margin losses, with an elastic net: it counts no other public penalty in the density "
            "of theta"
        )
    return instance.model
