"""The exact-density audit of a complete release on a pair of neighbors."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.audit.density.composed import JointPlace
from dp2erm_cvx.audit.density.hockey_stick import HockeyStick, hockey_stick, larger, sampled_losses
from dp2erm_cvx.audit.density.law import ASCENTS, NOWHERE, Law, Peak, largest_ratio
from dp2erm_cvx.audit.density.laws import laws
from dp2erm_cvx.audit.pair_file import differing_rows
from dp2erm_cvx.calibration import Noise, OutputCalibration
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.plan import TwoStagePlan
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.public import whole_number


class Direction(enum.StrEnum):
    """Which dataset's density is divided by which."""

    FIRST = "first over second"
    SECOND = "second over first"


@dataclass(frozen=True)
class DensityAudit:
    """The largest privacy loss met on one neighboring pair. It depends on the records: not private.

    ``loss`` is the largest log ratio of the exact output densities that was met, at theta = ``point`` (p,)
    with the subgradient ``multiplier`` (p,) of n R and Theta, in the ``direction`` given. It is the loss of
    theta together with its multiplier, which is what Theorems 1 and 2 bound and at least that of theta alone.
    After a private first stage it is that of its ``coefficient`` (d,) as well, which Theorem 9 bounds;
    otherwise ``coefficient`` is empty. ``theta_loss`` is the same where theta determines all of it, hence a
    loss of theta itself: -inf where no such point was met, and after a private first stage.
    ``numerical_error`` bounds the error of both from the certificates of the weights and from rounding.

    ``epsilon`` and ``delta`` are those of the calibrations: of the ideal output, without what a release adds
    for its arithmetic. Gamma and Laplace noise: the losses are to be compared with ``epsilon``. Gaussian
    noise in any stage: they are the largest of the draws only, and ``hockey_stick`` is to be compared with
    ``delta``. ``noise`` is that of theta. ``searched`` says how the loss was looked for. A supremum that was
    searched for is a lower bound: the audit can refute a guarantee, never establish it.
    """

    loss: float
    direction: Direction
    point: tuple[float, ...]
    multiplier: tuple[float, ...]
    coefficient: tuple[float, ...]
    theta_loss: float
    epsilon: float
    delta: float
    noise: Noise
    numerical_error: float
    searched: str
    hockey_stick: HockeyStick | None
    private: bool = field(default=False, init=False)

    @property
    def exceeds(self) -> bool:
        """Whether the bound of the theorem in force is violated, beyond the numerical or sampling error."""
        if self.hockey_stick is not None:
            return self.hockey_stick.low > self.delta
        return self.loss - self.numerical_error > self.epsilon

    @property
    def theta_exceeds(self) -> bool:
        """Whether the released theta alone violates (epsilon, delta), beyond those errors."""
        if self.hockey_stick is not None:
            return self.hockey_stick.theta_low > self.delta
        return self.theta_loss - self.numerical_error > self.epsilon

    def __str__(self) -> str:
        if self.hockey_stick is None:
            found = f"loss {self.loss:.4g} found, epsilon = {self.epsilon:g}"
        else:
            stick = self.hockey_stick
            found = (
                f"delta({self.epsilon:g}) in [{stick.low:.3g}, {stick.high:.3g}] with confidence "
                f"{stick.confidence:g}, delta = {self.delta:g}"
            )
        verdict = "EXCEEDED" if self.exceeds else "not exceeded"
        if self.hockey_stick is not None and self.hockey_stick.high > self.delta and not self.exceeds:
            verdict = "undecided (more draws would narrow it)"
        return f"{found}: {verdict} on this pair; {self.searched}; not private"


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
        samples = [(way, sampled_losses(a, b, draws, rng)) for way, a, b in both]
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


def _stated(plan: TwoStagePlan) -> tuple[float, float]:
    """What the calibrations promise together: of the ideal output, without a share for the arithmetic."""
    parts = [step.calibration for step in (plan.propensity, plan.theta) if step is not None]
    return sum(part.epsilon for part in parts), sum(part.delta for part in parts)


def _noise(plan: TwoStagePlan) -> Noise:
    calibration = plan.theta.calibration
    return (calibration.law if isinstance(calibration, OutputCalibration) else calibration).noise


def _inside(one: Law, other: Law, points: list[Array], plan: TwoStagePlan) -> Peak:
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
