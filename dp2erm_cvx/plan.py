"""Everything that is fixed before the data are touched: bound, calibration, and why this one."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from dp2erm_cvx.calibration import (
    Calibration,
    Family,
    Noise,
    Option,
    OutputCalibration,
    RenyiCalibration,
    SquaredLoss,
    calibrate,
    calibrate_output,
    calibrate_paper,
    calibrate_renyi,
    compare,
)
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, StabilityBound, public_number
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, SecondStage
from dp2erm_cvx.stability import uniform_weights

#: Keeps the two parts of a divided budget from adding up to more than the whole by a rounding.
_ROUND_DOWN = 1.0 - 1e-12


class Method(enum.StrEnum):
    """How noise is calibrated.

    ``SHARP``: Theorems 1 and 2. ``PAPER`` and ``PAPER_CORRECTED``: the paper's formulas and bounds, its
    Gaussian statement as printed or corrected. ``RENYI``: Theorem 7, theta projected afterwards.
    ``OUTPUT``: Theorem 8.
    ``AUTO``: the smallest predicted error among the sharp ones that apply.
    """

    SHARP = "sharp"
    PAPER = "paper"
    PAPER_CORRECTED = "paper-corrected"
    RENYI = "renyi"
    OUTPUT = "output"
    AUTO = "auto"


@dataclass(frozen=True)
class Plan:
    """A calibrated release. ``reason`` says in one line why this calibration was taken.

    ``propensity`` calibrates a private first stage (Theorem 9), whose part of the budget is then no longer in
    ``calibration``; ``budget`` is the whole. ``theorem`` names what the guarantee follows from.
    """

    bound: StabilityBound
    loss: LossConstants
    budget: Budget
    calibration: Calibration | OutputCalibration
    propensity: Calibration | None
    reason: str

    @property
    def proven(self) -> bool:
        """Whether a theorem certifies both the bound and the noise; the paper's literal baselines are not."""
        return self.bound.private and getattr(self.calibration, "private", True)

    @property
    def unconstrained(self) -> bool:
        """Whether theta is solved for in all of R^p and projected afterwards."""
        return isinstance(self.calibration, RenyiCalibration | OutputCalibration)

    @property
    def guarantee(self) -> Budget:
        """What is guaranteed, which may be less than the budget: gamma and Laplace noise spend no delta."""
        parts = [self.calibration] if self.propensity is None else [self.propensity, self.calibration]
        if len(parts) == 1:
            return Budget(parts[0].epsilon, parts[0].delta)
        return Budget(self.budget.epsilon, sum(part.delta for part in parts))

    @property
    def theorem(self) -> str:
        """The privacy theorem in force."""
        if self.propensity is None:
            return self.calibration.theorem
        return f"Theorem 9 (composition) of {self.propensity.theorem} and {self.calibration.theorem}"


def make_plan(
    first: FirstStage,
    second: SecondStage,
    domain: Domain,
    n_samples: int,
    n_features: int,
    budget: Budget,
    *,
    method: Method | str = Method.SHARP,
    noise: Noise | str = Noise.GAMMA,
    split: float | None = None,
    weight_error: float = 0.0,
) -> Plan:
    """Calibrate a release from public quantities alone.

    ``weight_error`` is a public bound on ``||w_hat - w||_1``, the error of computed weights on every
    dataset: it adds twice itself to V.

    Raises DeclarationError for an invalid argument, CalibrationError where the method does not cover what
    is declared.
    """
    try:
        chosen = Method(method)
    except ValueError:
        known = ", ".join(kind.value for kind in Method)
        raise DeclarationError(f"calibration = {method!r}: must be one of {known}") from None
    if split is not None and chosen is not Method.SHARP:
        raise DeclarationError(f"split = {split!r}: calibration = {chosen.value!r} chooses its own")
    propensity, left = None, budget
    if isinstance(first, PrivateFirstStage):
        spent, left = _divide(budget, first.share, noise)
        constants = first.loss_constants(domain, n_features)
        propensity = calibrate(
            uniform_weights(n_samples), constants, n_samples, spent, noise=noise, relation=domain.relation
        )
    printed = chosen in (Method.PAPER, Method.PAPER_CORRECTED)
    bound = first.stability(n_samples, domain, BoundFamily.PAPER if printed else BoundFamily.SHARP)
    if bound.V < 2.0:
        raise CalibrationError(
            f"{bound.theorem} claims V = {bound.V!r}: some weight is at least 1, so V is at least 2"
        )
    error = public_number("weight_error", weight_error, at_least=0.0)
    bound = _with_error(bound, error, n_samples)
    loss = second.loss_constants(domain, n_features)
    if chosen is Method.AUTO:
        calibration, reason = _automatic(first.name, bound, second, loss, n_samples, left, domain)
    else:
        calibration = _calibrated(chosen, bound, second, loss, n_samples, left, domain, noise, split)
        reason = f"calibration = {chosen.value!r} was declared"
    return Plan(bound, loss, budget, calibration, propensity, reason)


def _with_error(bound: StabilityBound, error: float, n_samples: int) -> StabilityBound:
    """The bound for computed weights, each within ``error`` of the exact ones in the l1 norm.

    V sums every weight's movement once, with both weights of the changed record in place of theirs: it
    grows by at most the two errors. W1 counts the largest common weight twice on top. W2 as printed counts
    how many weights differ, which the least error makes n: it is raised only as far as keeps
    ``V <= sqrt(2) W2``, which is what certifies a calibration by it.
    """
    return replace(
        bound,
        V=bound.V + 2.0 * error,
        W1=None if bound.W1 is None else bound.W1 + 4.0 * error,
        W2=None if bound.W2 is None else bound.W2 + 3.0 * error * math.sqrt(1.0 + n_samples),
    )


def _calibrated(
    method: Method,
    bound: StabilityBound,
    second: SecondStage,
    loss: LossConstants,
    n: int,
    budget: Budget,
    domain: Domain,
    noise: Noise | str,
    split: float | None,
) -> Calibration | OutputCalibration:
    relation = domain.relation
    if method is Method.RENYI:
        second.unconstrained()  # refuses a regularizer, which Theorem 7 does not cover
        squared = squared_loss(loss)
        return calibrate_renyi(bound, squared, n, budget, relation=relation, theta_bound=loss.theta_bound)
    if method is Method.OUTPUT:
        second.unconstrained()
        if not loss.is_mean:
            raise CalibrationError(
                f"Theorem 8 releases a weighted mean, and {second.name} is none: use plug_in_ate"
            )
        return calibrate_output(bound, domain.outcome_bound, n, budget, relation=relation)
    second.refuse_unbounded(loss, domain)
    if method is Method.SHARP:
        return calibrate(bound, loss, n, budget, noise=noise, relation=relation, split=split)
    if loss.gradient_bound is None:
        raise CalibrationError(f"{second.name} states no gradient_bound, which the paper's calibration needs")
    return calibrate_paper(
        bound,
        loss,
        n,
        budget,
        gradient_bound=loss.gradient_bound,
        noise=noise,
        relation=relation,
        corrected=method is Method.PAPER_CORRECTED,
    )


def _automatic(
    name: str,
    bound: StabilityBound,
    second: SecondStage,
    loss: LossConstants,
    n: int,
    budget: Budget,
    domain: Domain,
) -> tuple[Calibration | OutputCalibration, str]:
    try:
        second.unconstrained()
        plain = True
    except CalibrationError:
        plain = False
    comparison = compare(
        [Option(name, bound, budget)],
        loss,
        n,
        relation=domain.relation,
        squared_loss=squared_loss(loss) if plain else None,
        mean_outcome_bound=domain.outcome_bound if plain and loss.is_mean else None,
        families=(Family.SHARP_GAMMA, Family.SHARP_GAUSSIAN, Family.RENYI, Family.OUTPUT),
    )
    return comparison.best.calibration, comparison.best.reason


def squared_loss(loss: LossConstants) -> SquaredLoss:
    """The constants of Theorem 7. Raises CalibrationError where the loss is not squared."""
    if loss.covariate_bound is None or loss.response_bound is None:
        raise CalibrationError("Theorem 7 needs a squared loss")
    return SquaredLoss(loss.n_parameters, loss.covariate_bound, loss.response_bound)


def _divide(budget: Budget, share: float, noise: Noise | str) -> tuple[Budget, Budget]:
    """The parts of a private first stage and of the second; pure noise leaves delta to the second."""
    epsilon = budget.epsilon * _ROUND_DOWN
    spends_delta = budget.delta if noise == Noise.GAUSSIAN else 0.0
    first = Budget(share * epsilon, share * spends_delta * _ROUND_DOWN)
    rest = budget.delta - first.delta
    return first, Budget((1.0 - share) * epsilon, rest * _ROUND_DOWN)
