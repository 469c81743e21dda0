"""From a plan and two datasets to the two laws of what it releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dp2erm_cvx.audit.laws import (
    Coordinates,
    Law,
    Objective,
    ObjectiveLaw,
    ReleaseLaw,
    ShiftLaw,
    WeightsError,
)
from dp2erm_cvx.calibration import Calibration, Noise, OutputCalibration
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CertificateError, DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.public import public_number
from dp2erm_cvx.steps import CovariateMean, Execution, Fit, IntegerSums, MeanSquare, Planned, solve_weights

_Released = Mapping[str, Array]

#: Pairs of laws that are kept for outputs met before.
_KEPT = 64


def laws(plan: Plan, datasets: Sequence[Dataset], execution: Execution) -> tuple[ReleaseLaw, ReleaseLaw]:
    """The laws of what ``plan`` releases from two datasets.

    Raises CertificateError where weights are not certified, DeclarationError where a step has no density that
    is known here.
    """
    domain, weighting = plan.study.start.domain, None
    for step in plan.steps:
        if isinstance(step.declared, Fit) and step.weights is not None and step.weighted:
            weighting = step.weights.program
    raw = ((data.X, data.a, data.y, data.sampling) for data in datasets)
    maps = tuple(step for step in plan.steps if isinstance(step.declared, CovariateMean | MeanSquare))
    one, other = (_Side(domain.records(*columns), maps, weighting, execution) for columns in raw)
    pairs = {step.name: _Remembered(step, one, other, step is plan.steps[-1]) for step in plan.steps}
    first, second = ({name: pair.side(which) for name, pair in pairs.items()} for which in (0, 1))
    return ReleaseLaw(first), ReleaseLaw(second)


@dataclass(frozen=True, eq=False)
class _Side:
    """One dataset, with the weights of the steps that have any, and the steps that hand on other records."""

    records: Records
    maps: tuple[Planned, ...]
    weighting: FirstStage | None
    execution: Execution

    def at(self, released: _Released) -> Records:
        """The records that a step is run on after those that ``released`` names."""
        records = self.records
        for step in self.maps:
            if step.name in released:
                assert isinstance(step.declared, IntegerSums)
                records = step.declared.mapped(step, records, released)
        return records

    def weights(self, released: _Released) -> tuple[Array, float]:
        """Weights (n,), and a bound on their error in the l1 norm."""
        if self.weighting is None:
            return np.ones(self.records.n_samples), 0.0
        if isinstance(self.weighting, PrivateFirstStage):
            coefficient = released["propensity"]
            return self._fit.output(coefficient), self._fit.output_radius(coefficient, 0.0)
        return self._solved

    @cached_property
    def _fit(self) -> MarginModel:
        assert self.weighting is not None
        model = self.weighting.instance(self.records).model
        assert isinstance(model, MarginModel)  # its coefficient has a law
        return model

    @cached_property
    def _solved(self) -> tuple[Array, float]:
        assert self.weighting is not None
        instance = self.weighting.instance(self.records)
        tolerance = public_number("tolerance", self.execution.tolerance, above=0)
        try:
            found = solve_weights(instance, self.execution.solver, tolerance)
        except (InfeasibleError, SolverError) as error:  # a search over pairs goes on without this one
            raise CertificateError(str(error)) from None
        return found.value, found.certificate.output_radius


class _Watched(Mapping[str, Array]):
    """What was released; whatever is read of it is noted in ``read``."""

    def __init__(self, released: _Released, read: set[str]) -> None:
        self._released, self._read = released, read

    def __getitem__(self, name: str) -> Array:
        self._read.add(name)
        return self._released[name]

    def __contains__(self, name: object) -> bool:
        return name in self._released  # which steps came before is the same for every output

    def __iter__(self) -> Iterator[str]:
        return iter(self._released)

    def __len__(self) -> int:
        return len(self._released)


class _Remembered:
    """Both laws of a step, made once for what they read of what was released."""

    def __init__(self, step: Planned, one: _Side, other: _Side, last: bool) -> None:
        _refuse_unknown(step)
        self._step, self._sides, self._last = step, (one, other), last
        self._read = set[str]()
        self._known: dict[tuple[bytes, ...], tuple[Law, Law]] = {}

    def side(self, which: int) -> Callable[[_Released], Law]:
        """The law on one of the datasets, from what was released."""
        return lambda released: self._both(released)[which]

    def _both(self, released: _Released) -> tuple[Law, Law]:
        key = self._key(released)
        if key not in self._known:
            pair = self._made(_Watched(released, self._read))
            if len(self._known) >= _KEPT:
                self._known.clear()
            key = self._key(released)
            self._known[key] = pair
        return self._known[key]

    def _key(self, released: _Released) -> tuple[bytes, ...]:
        return tuple(released[name].tobytes() for name in sorted(self._read))

    def _made(self, released: _Released) -> tuple[Law, Law]:
        step, (one, other) = self._step, self._sides
        if step.integers is not None:
            return _sums(step, one, released, self._last), _sums(step, other, released, self._last)
        if isinstance(step.calibration, OutputCalibration):
            return _mean(step, one, released), _mean(step, other, released)
        return _minimizers(step, one, other, released)


def _refuse_unknown(step: Planned) -> None:
    if not isinstance(step.declared, IntegerSums | Fit):
        raise DeclarationError(f"audit_density knows no density of the step {step.name!r}: leave it out")


def _sums(step: Planned, side: _Side, released: _Released, last: bool) -> ShiftLaw:
    assert isinstance(step.declared, IntegerSums)
    assert step.integers is not None
    center = np.array(step.declared.exact_sums(step, side.at(released), released), dtype=np.float64)
    return ShiftLaw(center, step.integers.scale, step.integers.noise, 0.0, True, last)


def _mean(step: Planned, side: _Side, released: _Released) -> ShiftLaw:
    """Of a weighted mean: an error e of the weights in l1, whose sum is n, moves it by e max |z| / n."""
    weights, error = side.weights(released)
    assert isinstance(step.declared, Fit)
    model = _objective(step.declared.instance(step, side.records, weights))
    weights, z = model.multipliers, model.whole.offsets
    mean = math.fsum(weights * z) / math.fsum(weights)
    moved = error * float(np.max(np.abs(z))) / model.n
    assert isinstance(step.calibration, OutputCalibration)
    return ShiftLaw(np.array([mean]), step.calibration.scale, Noise.GAMMA, moved, False, True)


def _minimizers(step: Planned, one: _Side, other: _Side, released: _Released) -> tuple[Law, Law]:
    calibration = step.calibration
    assert isinstance(calibration, Calibration)
    models = [_bound(step, side, released) for side in (one, other)]
    # one step for both datasets, of the size at which theta and its multiplier weigh the same
    size = 1.0 / math.sqrt(models[0][0].smoothness * models[1][0].smoothness)
    coordinates = Coordinates(models[0][0].penalty, size)
    unscaled = np.ones(calibration.n_parameters)
    if step.regression is not None:
        unscaled = step.regression.unscaled(unscaled, one.records.covariates.shape[1])
    first, second = (
        ObjectiveLaw(model, calibration, coordinates, unscaled, error) for model, error in models
    )
    return first, second


def _bound(step: Planned, side: _Side, released: _Released) -> tuple[Objective, WeightsError | None]:
    """The objective without noise, and what the error of its weights does."""
    fit, records, error = step.declared, side.at(released), 0.0
    assert isinstance(fit, Fit)
    weights: Array | None
    if fit.weighted:
        weights, error = side.weights(released)
    else:
        records, weights = fit.mapped(records, released)
    quiet = np.zeros(step.calibration.n_parameters)
    model = _objective(fit.instance(step, records, weights, quiet))
    if error == 0.0:
        return model, None
    unit = fit.instance(step, records, np.ones(records.n_samples), quiet)
    return model, WeightsError(error, _objective(unit))


def _objective(instance: Instance) -> Objective:
    if not isinstance(instance.model, MarginModel):
        raise DeclarationError(
            f"{instance.program.name}: audit_density needs weighted least squares or a sum of margin losses, "
            "with an elastic net"
        )
    return instance.model
