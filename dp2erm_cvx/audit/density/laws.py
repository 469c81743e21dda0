"""From a model and two datasets to the two laws of its release."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dp2erm_cvx.audit.density.composed import JointLaw
from dp2erm_cvx.audit.density.law import Law
from dp2erm_cvx.audit.density.objective import Coordinates, ObjectiveLaw, SquaredLaw
from dp2erm_cvx.audit.density.output import MeanLaw
from dp2erm_cvx.audit.search import remembered
from dp2erm_cvx.calibration import OutputCalibration
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CertificateError, DeclarationError, InfeasibleError, SolverError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.plan import TwoStagePlan
from dp2erm_cvx.program import Instance, PrivateFirstStage, WeightedLeastSquares
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.public import public_number
from dp2erm_cvx.steps import solve_weights


def laws(model: PrivateTwoStageERM, plan: TwoStagePlan, datasets: list[Dataset]) -> tuple[Law, Law]:
    """The laws of what ``model`` releases from two datasets, under ``plan``.

    Raises CertificateError where the weights are not certified, DeclarationError where a stage has no density
    that is known here.
    """
    records = [model.domain.records(data.X, data.a, data.y) for data in datasets]
    first = model.resolved_first_stage()
    if plan.propensity is None:
        weights = [_certified_weights(model, found) for found in records]
        make = _second_stage(plan, records, [value for value, _ in weights])
        one, other = (make(found, *weight) for found, weight in zip(records, weights, strict=True))
        return one, other
    if not isinstance(first, PrivateFirstStage):
        raise DeclarationError(f"{first.name}: the plan has noise for a first stage that takes none")
    released = plan.propensity.calibration
    fits = [_margin(first, found, released.gamma) for found in records]
    unperturbed = [fit.output(np.zeros(fit.dimension)) for fit in fits]
    make = _second_stage(plan, records, unperturbed)
    coordinates = Coordinates(fits[0].penalty, _step(*fits))

    def joint(fit: MarginModel, found: Records) -> Law:
        def given(coefficient: Array) -> Law:
            return make(found, fit.output(coefficient), fit.output_radius(coefficient, 0.0))

        return JointLaw(ObjectiveLaw(fit, released, coordinates), remembered(given))

    one, other = map(joint, fits, records)
    return one, other


#: Records, weights (n,) and a bound on their l1 error to the law of theta.
_Make = Callable[[Records, Array, float], Law]


def _second_stage(plan: TwoStagePlan, records: list[Records], weights: list[Array]) -> _Make:
    program, calibration = plan.theta.program, plan.theta.calibration
    gamma = 0.0 if isinstance(calibration, OutputCalibration) else calibration.gamma

    def squared(found: Records, weight: Array) -> LeastSquaresModel:
        return _squared(program.instance(found, weight, gamma=gamma))

    if isinstance(calibration, OutputCalibration):
        return lambda found, weight, error: MeanLaw(squared(found, weight), calibration, error)
    models = list(map(squared, records, weights))
    coordinates = Coordinates(models[0].penalty, _step(*models))
    return lambda found, weight, error: SquaredLaw(squared(found, weight), calibration, coordinates, error)


def _step(one: LeastSquaresModel | MarginModel, other: LeastSquaresModel | MarginModel) -> float:
    # one step for both datasets, of the size at which theta and its multiplier weigh the same
    return 1.0 / math.sqrt(one.smoothness * other.smoothness)


def _certified_weights(model: PrivateTwoStageERM, records: Records) -> tuple[Array, float]:
    tolerance = public_number("tolerance", model.tolerance, above=0)
    try:
        solution = solve_weights(model.resolved_first_stage().instance(records), model.solver, tolerance)
    except (InfeasibleError, SolverError) as error:  # a search over pairs goes on without this one
        raise CertificateError(str(error)) from None
    return solution.value, solution.certificate.output_radius


def _margin(first: PrivateFirstStage, records: Records, gamma: float) -> MarginModel:
    plain = first.instance(records).model
    if not isinstance(plain, MarginModel):
        raise DeclarationError(f"{first.name}: audit_density knows the density of a sum of margin losses")
    model = first.perturbed(records, gamma, np.zeros(plain.dimension)).model
    assert isinstance(model, MarginModel)
    return model


def _squared(instance: Instance) -> LeastSquaresModel:
    if not isinstance(instance.program, WeightedLeastSquares) or not isinstance(
        instance.model, LeastSquaresModel
    ):
        raise DeclarationError(
            f"{instance.program.name}: audit_density needs weighted least squares with an elastic net"
        )
    return instance.model
