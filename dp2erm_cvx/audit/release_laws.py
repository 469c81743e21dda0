"""The law of all that a plan or an estimator releases from a dataset: one step after the other."""

from __future__ import annotations

import math
from collections import UserDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.finding import Columns, differing_units
from dp2erm_cvx.audit.laws import Law, ObjectiveLaw, Released, ReleaseLaw, ShiftLaw
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

#: Pairs of laws that are kept for outputs seen before.
_KEPT = 64


def _law(laws: Callable[[Released], tuple[Law, ...]], which: int, released: Released) -> Law:
    return laws(released)[which]


@dataclass(frozen=True, eq=False)
class _Side:
    """One dataset, with the weights of its steps.

    It knows the steps that have weights, and those that hand on other records.
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

    def bound(
        self, fit: Fit, released: Released
    ) -> tuple[MarginModel, tuple[float, MarginModel] | None]:
        """The objective without noise, and the error of its weights with that at weights 1.

        The latter two are None without an error.
        """
        records, ones, error = self.at(released), np.ones(self.records.n_samples), 0.0
        weights: Beside | None = ones
        if not fit.weighted:
            records, weights = fit.mapped(records, released)
        elif isinstance(self.weighting, PrivateFirstStage):
            first, coefficient = _model(self._weights), released["propensity"]
            weights, error = first.output(coefficient), first.output_radius(coefficient, 0.0)
        elif self.weighting is not None:
            weights, error = self._solved
        quiet = np.zeros(fit.calibration.n_parameters)
        model = _model(fit.instance(records, weights, quiet))
        return model, (error, _model(fit.instance(records, ones, quiet))) if error else None

    @cached_property
    def _weights(self) -> Instance:
        assert self.weighting is not None
        return self.weighting.instance(self.records)

    @cached_property
    def _solved(self) -> tuple[Array, float]:
        tolerance = public_number("tolerance", self.execution.tolerance, above=0)
        try:
            solved = solve_weights(self._weights, self.execution.solver, tolerance)
        except (
            InfeasibleError,
            SolverError,
        ) as error:  # a search over pairs goes on without this one
            raise CertificateError(str(error)) from None
        return solved.value, solved.certificate.output_radius


class _Watched(UserDict[str, Array]):
    """Released values by name, which note what is read of them.

    Which steps came before is no secret.
    """

    def __init__(self, released: Released, read: set[str]) -> None:
        super().__init__(released)
        self._read = read

    def __getitem__(self, name: str) -> Array:
        self._read.add(name)
        return self.data[name]


def _remembered(
    step: Step, sides: Sequence[_Side], last: bool
) -> Callable[[Released], tuple[Law, ...]]:
    """Both laws of a step, made once for what they read of what was released."""
    read, known = set[str](), dict[tuple[bytes, ...], tuple[Law, ...]]()

    def key(released: Released) -> tuple[bytes, ...]:
        return tuple(released[name].tobytes() for name in sorted(read))

    def both(released: Released) -> tuple[Law, ...]:
        if (laws := known.get(key(released))) is None:
            laws = _laws_of(step, sides, _Watched(released, read), last)
            if len(known) >= _KEPT:
                known.clear()
            known[key(released)] = laws
        return laws

    return both


def _laws_of(step: Step, sides: Sequence[_Side], released: Released, last: bool) -> tuple[Law, ...]:
    if isinstance(step, IntegerSums):
        assert step.integers is not None
        sums = [
            np.array(step.exact_sums(side.at(released), released), dtype=np.float64)
            for side in sides
        ]
        noise = step.integers
        law = partial(ShiftLaw, moved=0.0, whole=True, last=last, block=noise.block)
        return tuple(law(one, noise.scale, noise.noise) for one in sums)
    calibration = step.calibration
    assert isinstance(step, Fit)
    assert isinstance(calibration, Calibration)
    bound = [side.bound(step, released) for side in sides]
    if step.perturbed is Perturbed.OUTPUT:
        return tuple(_mean(model, weights, calibration.scale) for model, weights in bound)
    # one step for both datasets, of the size at which theta and its multiplier weigh the same
    size = 1.0 / math.sqrt(math.prod(model.smoothness for model, _ in bound))
    unscaled = np.ones(calibration.n_parameters)
    if step.regression is not None:
        unscaled = step.regression.unscaled(unscaled, sides[0].records.covariates.shape[1])
    return tuple(
        ObjectiveLaw(model, calibration, size, unscaled, weights) for model, weights in bound
    )


def _mean(model: MarginModel, weights: tuple[float, MarginModel] | None, scale: float) -> ShiftLaw:
    """The law of a weighted mean.

    An error e of the weights in l1, of sum n, moves it by e max |z| / n.
    """
    w, z = model.whole.multipliers, model.whole.offsets
    mean = np.array([math.fsum(w * z) / math.fsum(w)])
    moved = 0.0 if weights is None else weights[0] * float(np.max(np.abs(z))) / model.n
    return ShiftLaw(mean, scale, Noise.GAMMA, moved=moved, whole=False, last=True)


def _model(instance: Instance) -> MarginModel:
    if not isinstance(instance.model, MarginModel):
        raise DeclarationError(
            f"{instance.program.name}: audit_density needs weighted least squares or a sum of "
            "margin losses, with an elastic net: it counts no other public penalty in the density "
            "of theta"
        )
    return instance.model


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
    execution = Execution("first_certified", TOLERANCE)
    if isinstance(model, PrivateEstimator):
        domain, execution = checked_domain(model.public()), model.execution()
    else:
        plan = model if isinstance(model, Plan) else make_plan(model)
        domain = plan.study.universe.domain
    one, other = (
        _persons(domain, *raw) if len(raw) == 4 else Dataset.declared(domain, *raw) for raw in pair
    )
    if isinstance(model, PrivateEstimator):
        plan = model.plan(one.n_samples, len(one.columns))
    _check_neighbors(one, other, plan.study.universe)
    domain, weighting = plan.study.start.domain, None
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
        if isinstance(step, Fit) and step.weights is not None and step.weighted:
            weighting = step.weights.program
    raw = ((data.X, data.a, data.y, data.sampling, data.person) for data in (one, other))
    maps = tuple(step for step in plan.steps if isinstance(step, CovariateMean | MeanSquare))
    sides = [_Side(domain.records(*columns), maps, weighting, execution) for columns in raw]
    both = {step.name: _remembered(step, sides, step is plan.steps[-1]) for step in plan.steps}
    first, second = (
        {name: partial(_law, laws, which) for name, laws in both.items()} for which in (0, 1)
    )
    return plan, (ReleaseLaw(first), ReleaseLaw(second))


def _persons(domain: Domain, X: Array, a: ArrayLike, y: ArrayLike, person: ArrayLike) -> Dataset:
    """Records of persons, as numbers.

    Two rows of nobody stand behind them, as where there are no others.
    """
    n, k = X.shape
    rows, counts, whose = (
        np.pad(X, ((0, 2), (0, 0))),
        np.repeat([1.0, 0.0], [n, 2]),
        np.append(person, [-1, -1]),
    )
    arms, outcomes = (np.append(column, [0, 0]) for column in (a, y))
    names = domain.columns or tuple(f"x{j + 1}" for j in range(k))
    return Dataset(
        rows, arms, outcomes, names, "a", "y", counts, whose, domain.units, len(domain.arms)
    )


def _check_neighbors(first: Dataset, second: Dataset, universe: Universe) -> None:
    size, persons = (universe.n_samples, universe.n_features), universe.domain.units is not None
    if not persons and {first.X.shape, second.X.shape} != {size}:
        raise DataError(
            f"datasets of shapes {first.X.shape} and {second.X.shape} are not neighbors in a plan "
            f"for {universe.n_samples} records of {universe.n_features} covariates"
        )
    if (changed := differing_units(_columns(first), _columns(second))) > 1:
        if persons:
            raise DataError(
                "the records of several persons differ: neighbors differ in those of one"
            )
        raise DataError(f"{changed} records differ row by row: neighbors differ in one")
    if persons:
        return
    relation = universe.domain.relation
    if relation is not Neighboring.REPLACE_ONE and np.any(first.a != second.a):
        raise DataError(f"a treatment differs, which {relation.value!r} does not protect")


def _columns(data: Dataset) -> Columns:
    """The columns of a pair, and its sampling weights.

    Records bring these along as a last covariate.
    """
    weights = np.zeros(len(data.a)) if data.sampling is None else data.sampling
    whose = () if data.person is None else (data.person,)
    return np.column_stack([data.X, weights]), data.a, data.y, *whose
