"""The exact-density audit of a complete release on a pair of neighbors."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.audit.hockey_stick import hockey_stick, larger, sample
from dp2erm_cvx.audit.law import Coordinates, OutputLaw
from dp2erm_cvx.audit.result import DensityAudit, Direction
from dp2erm_cvx.audit.search import ASCENTS, Peak, largest_ratio, starting_points
from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.calibration.constants import whole_number
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.errors import CertificateError, DataError, DeclarationError
from dp2erm_cvx.estimator import PrivateTwoStageERM
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import Instance, LeastSquaresModel, WeightedLeastSquares

Raw = tuple[ArrayLike, ArrayLike, ArrayLike]

#: Probability with which all confidence bounds of one audit hold.
CONFIDENCE = 0.99


def audit_density(
    model: PrivateTwoStageERM, first: Raw, second: Raw, *, seed: int = 0, starts: int = 16, draws: int = 4000
) -> DensityAudit:
    """Privacy loss of ``model`` between the raw datasets ``first`` and ``second``, each (X, a, y).

    Both first stages are solved and certified; given their weights, the density of the second stage is
    known exactly (proof of Theorem 1). Gamma noise: the log ratio is maximized in both directions from
    ``starts`` random starts of each kind. Gaussian noise: delta(epsilon) is estimated from ``draws`` outputs
    in each direction. ``seed`` makes the audit repeatable and has nothing to do with a release.

    Not private: the records must be synthetic, or the audit must stay with the data holder. Raises DataError
    unless the datasets are neighbors; DeclarationError where theta has no such density (a private first
    stage, output perturbation, a second stage other than weighted least squares with an elastic net);
    CertificateError where a solution is not certified.
    """
    starts = whole_number("starts", starts, at_least=1)
    draws = whole_number("draws", draws, at_least=100)
    seed = whole_number("seed", seed, at_least=0)
    datasets = [model._dataset(*raw) for raw in (first, second)]
    _check_neighbors(datasets[0], datasets[1], model.domain.relation)
    plan = model.plan(datasets[0].n_samples, datasets[0].X.shape[1])
    one, other = _laws(model, plan, datasets)
    rng = np.random.default_rng(seed)
    both = ((Direction.FIRST, one, other), (Direction.SECOND, other, one))
    guarantee = plan.guarantee
    p = one.model.dimension
    stick = None
    if one.calibration.noise is Noise.GAMMA:
        points = starting_points(one, other, starts, rng) + starting_points(other, one, starts, rng)
        peaks = [(way, largest_ratio(a, b, points, regular=False)) for way, a, b in both]
        inside = [
            (way, found if _regular(found) else largest_ratio(a, b, points, regular=True))
            for (way, found), (_, a, b) in zip(peaks, both, strict=True)
        ]
        searched = f"{len(points)} starts and {ASCENTS} ascents a direction in {p} coordinates"
    else:
        samples = [(way, sample(a, b, draws, rng)) for way, a, b in both]
        peaks = [(way, found.peak) for way, found in samples]
        inside = [(way, found.theta_peak) for way, found in samples]
        # each direction gets half of the risk
        level = 1.0 - (1.0 - CONFIDENCE) / 2
        sticks = [hockey_stick(found, guarantee.epsilon, level) for _, found in samples]
        stick = larger(*sticks)
        searched = f"{draws} outputs of each dataset in {p} coordinates"
    # either search may find what the other missed
    direction, peak = max([*peaks, *inside], key=lambda found: found[1].ratio)
    place = peak.place
    assert place is not None  # without a region to keep to, every start counts
    return DensityAudit(
        loss=peak.ratio,
        direction=direction,
        point=tuple(map(float, place.theta)),
        multiplier=tuple(map(float, place.multiplier)),
        theta_loss=max(found.ratio for _, found in inside),
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        noise=one.calibration.noise,
        numerical_error=max(_error(one, other, found) for _, found in (*peaks, *inside)),
        searched=searched,
        hockey_stick=stick,
    )


def _regular(peak: Peak) -> bool:
    return peak.place is not None and peak.place.regular


def _error(one: OutputLaw, other: OutputLaw, peak: Peak) -> float:
    return 0.0 if peak.place is None else one.error(peak.place) + other.error(peak.place)


def _check_neighbors(first: Dataset, second: Dataset, relation: Neighboring) -> None:
    if first.X.shape != second.X.shape:
        raise DataError(f"datasets of shapes {first.X.shape} and {second.X.shape} are not neighbors")
    moved = np.any(first.X != second.X, axis=1) | (first.a != second.a) | (first.y != second.y)
    if int(moved.sum()) > 1:
        raise DataError(f"{int(moved.sum())} records differ row by row: neighbors differ in one")
    if relation is not Neighboring.REPLACE_ONE and np.any(first.a != second.a):
        raise DataError(f"a treatment differs, which {relation.value!r} does not protect")


def _laws(model: PrivateTwoStageERM, plan: Plan, datasets: list[Dataset]) -> tuple[OutputLaw, OutputLaw]:
    calibration, second = plan.calibration, model._second()
    if plan.propensity is not None or not isinstance(calibration, Calibration):
        raise DeclarationError("audit_density covers objective perturbation of the second stage alone")
    program = second.unconstrained() if plan.unconstrained else second
    solved: list[tuple[LeastSquaresModel, float]] = []
    for dataset in datasets:
        records = model.domain.records(dataset.X, dataset.a, dataset.y)
        weights = model._weights(model._first().instance(records))
        if not weights.certified:
            raise CertificateError(weights.advice())
        instance = program.instance(records, weights.value, gamma=calibration.gamma)
        solved.append((_smooth_part(instance), weights.certificate.output_radius))
    # one step for both datasets, of the size at which theta and its multiplier weigh the same
    step = 1.0 / math.sqrt(solved[0][0].smoothness * solved[1][0].smoothness)
    coordinates = Coordinates(solved[0][0].penalty, step)
    one, other = (OutputLaw(found, calibration, coordinates, error) for found, error in solved)
    return one, other


def _smooth_part(instance: Instance) -> LeastSquaresModel:
    if not isinstance(instance.program, WeightedLeastSquares) or not isinstance(
        instance.model, LeastSquaresModel
    ):
        raise DeclarationError(
            f"{instance.program.name}: audit_density needs weighted least squares with an elastic net"
        )
    return instance.model
