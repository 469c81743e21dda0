"""The exact-density audit of a complete release on a pair of neighbors."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.audit.density.ascent import ASCENTS, NOWHERE, Peak, largest_ratio
from dp2erm_cvx.audit.density.hockey_stick import HockeyStick, hockey_stick, larger, sampled_losses
from dp2erm_cvx.audit.density.law import ReleaseLaw, regular
from dp2erm_cvx.audit.density.laws import laws
from dp2erm_cvx.audit.pair_file import differing_rows
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.estimators.fitting import TOLERANCE, PrivateEstimator, dataset_of
from dp2erm_cvx.plan import Pipeline, Plan, make_plan
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.public import whole_number
from dp2erm_cvx.steps import Execution
from dp2erm_cvx.universe import Universe


class Direction(enum.StrEnum):
    """Which dataset's density is divided by which."""

    FIRST = "first over second"
    SECOND = "second over first"


@dataclass(frozen=True)
class DensityAudit:
    """The largest privacy loss met on one neighboring pair. It depends on the records: not private.

    ``loss`` is the largest log ratio of the exact output densities that was met, in the ``direction``
    given. ``outputs`` says where, by step: theta (p,), a coefficient, or the integers of a score;
    ``multipliers`` are the subgradients of n R and Theta there. It is the loss of all steps together, which
    Theorems 9 and 10 bound, and of a minimizer with its multiplier, which Theorems 1, 2 and 15 bound.
    ``theta_loss`` is the same of theta alone, where it determines all of that: -inf where no such point was
    met, and after an earlier step. ``numerical_error`` bounds the error of both from the certificates of the
    weights and from rounding.

    ``epsilon`` and ``delta`` are those of the calibrations, or what the plan guarantees where that is less:
    of the ideal output, without what a release adds for its arithmetic. Gamma and Laplace noise: the losses
    are to be compared with ``epsilon``. Gaussian noise in any stage: they are the largest of the draws only,
    and ``hockey_stick`` is to be compared with ``delta``. ``noise`` is that of the last step. ``searched``
    says how the loss was looked for. A supremum that was searched for is a lower bound: the audit can refute
    a guarantee, never establish it.
    """

    loss: float
    direction: Direction
    outputs: Mapping[str, tuple[float, ...]]
    multipliers: Mapping[str, tuple[float, ...]]
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
#: What can be audited: what plans a release, or the plan itself.
Audited = PrivateEstimator | Pipeline[Any] | Plan

#: Probability with which all confidence bounds of one audit hold.
CONFIDENCE = 0.99


def audit_density(
    model: Audited, first: Raw, second: Raw, *, seed: int = 0, starts: int = 16, draws: int = 4000
) -> DensityAudit:
    """Privacy loss of ``model`` between the raw datasets ``first`` and ``second``, each (X, a, y).

    The density of a release is known exactly: of a minimizer under objective perturbation (proof of Theorem
    1), of numbers with Laplace or Gaussian noise (Theorems 8 and 12), and of all steps together, each given
    what came before (Theorems 9 and 10). Weights that take no noise are solved for and certified on both
    datasets. Gamma, box or Laplace noise throughout: the log ratio is maximized in both directions from
    ``starts`` random starts of each kind. Any Gaussian noise: delta(epsilon) is estimated from ``draws``
    outputs in each direction. ``seed`` makes the audit repeatable and has nothing to do with a release.

    What is audited is the output as the theorems have it, against the (epsilon, delta) of the plan's
    calibrations. That is before a projection, before Gaussian noise is rounded to integers, and before noise
    that covers the arithmetic, which has a part of its own.

    Parameters
    ----------
    model
        An estimator, a declared study, or a plan: of theta or of an effect, with any first stage.
    first, second
        Neighbors, in the units of the data.

    Not private: the records must be synthetic, or the audit must stay with the data holder. Raises DataError
    unless the datasets are neighbors, and CertificateError where a solution is not certified. Raises
    DeclarationError where a step has no density that is known here: the value of a rule, private ranges, and
    a program that is neither weighted least squares nor a sum of margin losses with an elastic net.
    """
    starts = whole_number("starts", starts, at_least=1)
    draws = whole_number("draws", draws, at_least=100)
    seed = whole_number("seed", seed, at_least=0)
    plan, (one, other) = audited_laws(model, (first, second))
    epsilon, delta = _stated(plan)
    rng = np.random.default_rng(seed)
    both = ((Direction.FIRST, one, other), (Direction.SECOND, other, one))
    stick = None
    if one.pure:
        points = one.starts(other, starts, rng) + other.starts(one, starts, rng)
        peaks = [(way, largest_ratio(a, b, points, inside=False)) for way, a, b in both]
        within = [
            (way, found if _regular(found) else _inside(a, b, points, plan))
            for (way, found), (_, a, b) in zip(peaks, both, strict=True)
        ]
        searched = f"{len(points)} starts and {ASCENTS} ascents a direction"
    else:
        samples = [(way, sampled_losses(a, b, draws, rng)) for way, a, b in both]
        peaks = [(way, found.peak) for way, found in samples]
        within = [(way, found.theta_peak) for way, found in samples]
        # each direction gets half of the risk
        level = 1.0 - (1.0 - CONFIDENCE) / 2
        stick = larger(*(hockey_stick(found, epsilon, level) for _, found in samples))
        searched = f"{draws} outputs of each dataset"
    # either search may find what the other missed
    direction, peak = max([*peaks, *within], key=lambda found: found[1].certain)
    theta_peak = max((found for _, found in within), key=lambda found: found.certain)
    assert peak.outputs is not None  # without a region to keep to, every start counts
    last = plan.steps[-1].calibration
    return DensityAudit(
        loss=peak.ratio,
        direction=direction,
        outputs={name: tuple(map(float, found)) for name, found in one.released(peak.outputs).items()},
        multipliers={name: tuple(map(float, place.multiplier)) for name, place in peak.outputs.items()},
        # theta alone loses no more than theta and its multiplier, beyond the errors of both
        theta_loss=min(theta_peak.ratio, peak.ratio),
        epsilon=epsilon,
        delta=delta,
        noise=getattr(last, "noise", Noise.GAMMA),
        numerical_error=max(peak.error, theta_peak.error),
        searched=f"{searched} in {one.dimension} coordinates",
        hockey_stick=stick,
    )


def audited_laws(model: Audited, pair: tuple[Raw, Raw]) -> tuple[Plan, tuple[ReleaseLaw, ReleaseLaw]]:
    """The plan, and the laws of what it releases from either dataset. Raises as :func:`audit_density`."""
    if isinstance(model, PrivateEstimator):
        plan, one = model.prepared(*pair[0])
        datasets, execution = (one, model.prepared(*pair[1])[1]), model.execution()
    else:
        plan = model if isinstance(model, Plan) else make_plan(model)
        domain = plan.study.universe.domain
        datasets = dataset_of(domain, *pair[0]), dataset_of(domain, *pair[1])
        execution = Execution("first_certified", TOLERANCE)
    _check_neighbors(*datasets, plan.study.universe)
    return plan, laws(plan, datasets, execution)


def _stated(plan: Plan) -> tuple[float, float]:
    """What the calibrations promise together: of the ideal output, without a share for the arithmetic."""
    parts, whole = [step.calibration for step in plan.steps], plan.guarantee
    epsilon, delta = sum(part.epsilon for part in parts), sum(getattr(part, "delta", 0.0) for part in parts)
    return min(epsilon, whole.epsilon), min(delta, whole.delta)


def _inside(one: ReleaseLaw, other: ReleaseLaw, points: list[Array], plan: Plan) -> Peak:
    # after an earlier step no point is regular
    return NOWHERE if len(plan.steps) > 1 else largest_ratio(one, other, points, inside=True)


def _regular(peak: Peak) -> bool:
    return peak.outputs is not None and regular(peak.outputs)


def _covariates(data: Dataset) -> Array:
    """With the sampling weights, which a record brings along."""
    return data.X if data.sampling is None else np.column_stack([data.X, data.sampling])


def _check_neighbors(first: Dataset, second: Dataset, universe: Universe) -> None:
    for data in (first, second):
        if data.X.shape != (universe.n_samples, universe.n_features):
            raise DataError(
                f"datasets of shapes {first.X.shape} and {second.X.shape} are not neighbors in a plan for "
                f"{universe.n_samples} records of {universe.n_features} covariates"
            )
    one, other = ((_covariates(data), data.a, data.y) for data in (first, second))
    changed = int(differing_rows(one, other).sum())
    if changed > 1:
        raise DataError(f"{changed} records differ row by row: neighbors differ in one")
    relation = universe.domain.relation
    if relation is not Neighboring.REPLACE_ONE and np.any(first.a != second.a):
        raise DataError(f"a treatment differs, which {relation.value!r} does not protect")
