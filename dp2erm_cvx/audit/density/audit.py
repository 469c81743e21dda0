"""The exact-density audit of a complete release on a pair of neighbors."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.audit.density.composed import JointPlace
from dp2erm_cvx.audit.density.hockey_stick import hockey_stick, larger, sample
from dp2erm_cvx.audit.density.law import Law
from dp2erm_cvx.audit.density.laws import laws
from dp2erm_cvx.audit.density.result import DensityAudit, Direction
from dp2erm_cvx.audit.density.search import ASCENTS, NOWHERE, Peak, largest_ratio
from dp2erm_cvx.audit.pair_file import differing_rows
from dp2erm_cvx.calibration import Noise, OutputCalibration
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.public import whole_number

Raw = tuple[ArrayLike, ArrayLike, ArrayLike]

#: Probability with which all confidence bounds of one audit hold.
CONFIDENCE = 0.99


def audit_density(
    model: PrivateTwoStageERM, first: Raw, second: Raw, *, seed: int = 0, starts: int = 16, draws: int = 4000
) -> DensityAudit:
    """Privacy loss of ``model`` between the raw datasets ``first`` and ``second``, each (X, a, y).

    The density of the release is known exactly: of a minimizer under objective perturbation (proof of Theorem
    1), of a mean with Laplace noise (Theorem 8), and of a private coefficient together with what is fitted
    given it (Theorem 9). Weights that take no noise are solved for and certified on both datasets. Noise
    that is gamma or Laplace throughout: the log ratio is maximized in both directions from ``starts`` random
    starts of each kind. Any Gaussian noise: delta(epsilon) is estimated from ``draws`` outputs in each
    direction. ``seed`` makes the audit repeatable and has nothing to do with a release.

    What is audited is theta as the theorems have it, against the (epsilon, delta) of the plan's calibrations:
    before a projection, and before noise that covers the arithmetic, both of which have a part of their own.

    Not private: the records must be synthetic, or the audit must stay with the data holder. Raises DataError
    unless the datasets are neighbors; DeclarationError where a value is released as well, and where the
    density is not known (a second stage other than weighted least squares with an elastic net, a private
    first stage that is not logistic);
    CertificateError where a solution is not certified.
    """
    starts = whole_number("starts", starts, at_least=1)
    draws = whole_number("draws", draws, at_least=100)
    seed = whole_number("seed", seed, at_least=0)
    datasets = [model.dataset_from(*raw) for raw in (first, second)]
    _check_neighbors(datasets[0], datasets[1], model.domain.relation)
    plan = model.plan(datasets[0].n_samples, datasets[0].X.shape[1])
    if plan.value is not None:
        raise DeclarationError("audit_density audits theta: leave value_share out")
    epsilon, delta = _stated(plan)
    one, other = laws(model, plan, datasets)
    rng = np.random.default_rng(seed)
    both = ((Direction.FIRST, one, other), (Direction.SECOND, other, one))
    stick = None
    if one.pure:
        points = one.starts(other, starts, rng) + other.starts(one, starts, rng)
        peaks = [(way, largest_ratio(a, b, points, regular=False)) for way, a, b in both]
        inside = [
            (way, found if _regular(found) else _inside(a, b, points, plan))
            for (way, found), (_, a, b) in zip(peaks, both, strict=True)
        ]
        searched = f"{len(points)} starts and {ASCENTS} ascents a direction"
    else:
        samples = [(way, sample(a, b, draws, rng)) for way, a, b in both]
        peaks = [(way, found.peak) for way, found in samples]
        inside = [(way, found.theta_peak) for way, found in samples]
        # each direction gets half of the risk
        level = 1.0 - (1.0 - CONFIDENCE) / 2
        stick = larger(*(hockey_stick(found, epsilon, level) for _, found in samples))
        searched = f"{draws} outputs of each dataset"
    # either search may find what the other missed
    direction, peak = max([*peaks, *inside], key=lambda found: found[1].certain)
    theta_peak = max((found for _, found in inside), key=lambda found: found.certain)
    place = peak.place
    assert place is not None  # without a region to keep to, every start counts
    coefficient = place.coefficient.theta if isinstance(place, JointPlace) else ()
    return DensityAudit(
        loss=peak.ratio,
        direction=direction,
        point=tuple(map(float, place.theta)),
        multiplier=tuple(map(float, place.multiplier)),
        coefficient=tuple(map(float, coefficient)),
        # theta alone loses no more than theta and its multiplier, beyond the errors of both
        theta_loss=min(theta_peak.ratio, peak.ratio),
        epsilon=epsilon,
        delta=delta,
        noise=_noise(plan),
        numerical_error=max(peak.error, theta_peak.error),
        searched=f"{searched} in {one.dimension} coordinates",
        hockey_stick=stick,
    )


def _stated(plan: Plan) -> tuple[float, float]:
    """What the calibrations promise together: of the ideal output, without a share for the arithmetic."""
    parts = [step.calibration for step in (plan.propensity, plan.theta) if step is not None]
    return sum(part.epsilon for part in parts), sum(part.delta for part in parts)


def _noise(plan: Plan) -> Noise:
    calibration = plan.theta.calibration
    return (calibration.law if isinstance(calibration, OutputCalibration) else calibration).noise


def _inside(one: Law, other: Law, points: list[Array], plan: Plan) -> Peak:
    # given a private coefficient no point is regular
    return NOWHERE if plan.propensity else largest_ratio(one, other, points, regular=True)


def _regular(peak: Peak) -> bool:
    return peak.place is not None and peak.place.regular


def _check_neighbors(first: Dataset, second: Dataset, relation: Neighboring) -> None:
    if first.X.shape != second.X.shape:
        raise DataError(f"datasets of shapes {first.X.shape} and {second.X.shape} are not neighbors")
    changed = int(differing_rows((first.X, first.a, first.y), (second.X, second.a, second.y)).sum())
    if changed > 1:
        raise DataError(f"{changed} records differ row by row: neighbors differ in one")
    if relation is not Neighboring.REPLACE_ONE and np.any(first.a != second.a):
        raise DataError(f"a treatment differs, which {relation.value!r} does not protect")
