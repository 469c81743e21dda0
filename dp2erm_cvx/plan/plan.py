"""Everything that is fixed before the data are touched."""

from __future__ import annotations

from dataclasses import dataclass

from dp2erm_cvx.calibration import Calibration, GridNoise, OutputCalibration, RenyiCalibration
from dp2erm_cvx.plan.precision import Precision
from dp2erm_cvx.privacy import Budget, LossConstants, RenyiCurve, StabilityBound

_ROUND_UP = 1.0 + 1e-12


@dataclass(frozen=True)
class Plan:
    """A calibrated release. ``reason`` says in one line why this calibration was taken.

    ``propensity`` calibrates a private first stage (Theorem 9), whose part of the budget is then no longer in
    ``calibration``; ``budget`` is the whole. ``precision`` and ``propensity_precision`` cover the arithmetic
    of either; None where it is assumed to be exact. ``value`` is the noise of the value of the rule, where
    one is released. ``radius`` is what theta is certified to on every dataset, counted or not; None where
    that is not known. ``weights_known`` says that a public bound covers the numerical error of the weights
    on every dataset, or that V covers all weights. ``theorem`` names what the guarantee follows from.
    """

    n_samples: int
    bound: StabilityBound
    loss: LossConstants
    budget: Budget
    calibration: Calibration | OutputCalibration
    propensity: Calibration | None
    reason: str
    precision: Precision | None = None
    propensity_precision: Precision | None = None
    value: GridNoise | None = None
    radius: float | None = None
    weights_known: bool = True

    @property
    def proven(self) -> bool:
        """Whether a theorem certifies both the bound and the noise; the paper's literal baselines are not."""
        return self.bound.private and getattr(self.calibration, "private", True)

    @property
    def counted(self) -> bool:
        """Whether the guarantee covers floating-point arithmetic, in every part that adds noise."""
        covered = self.propensity is None or self.propensity_precision is not None
        return covered and self.precision is not None

    @property
    def certified_by_design(self) -> bool:
        """Whether public bounds say what both stages are certified to on every dataset of the universe."""
        return self.weights_known and self.radius is not None

    @property
    def covers_all_weights(self) -> bool:
        """Whether V is at its cap 2n, which no two nonnegative vectors of sum n exceed: minimizers or not."""
        return self.bound.V >= 2 * self.n_samples

    @property
    def grid(self) -> GridNoise | None:
        """The noise that covers the arithmetic of theta."""
        return None if self.precision is None else self.precision.grid

    @property
    def unconstrained(self) -> bool:
        """Whether theta is solved for in all of R^p and projected afterwards."""
        return isinstance(self.calibration, RenyiCalibration | OutputCalibration)

    @property
    def guarantee(self) -> Budget:
        """What is guaranteed, which may be less than the budget: gamma and Laplace noise spend no delta."""
        if self.propensity is None and self.precision is None and self.value is None:
            return Budget(self.calibration.epsilon, self.calibration.delta)
        parts = (self.calibration, self.propensity)
        spends = any(part is not None and part.delta > 0.0 for part in parts)
        return Budget(self.budget.epsilon, self.budget.delta if spends else 0.0)

    @property
    def curve(self) -> RenyiCurve | None:
        """Renyi divergences of the whole release, for a ledger that adds them up; None if none is proven."""
        if not isinstance(self.calibration, RenyiCalibration):
            return None
        curve = self.calibration.curve()
        if self.precision is not None:
            curve = curve.shifted(self.precision.grid.epsilon)
        if self.propensity is not None:
            if self.propensity.delta > 0.0:
                return None
            covered = self.propensity_precision
            error = 0.0 if covered is None else 2.0 * covered.grid.epsilon
            curve = curve.plus(RenyiCurve.pure((self.propensity.epsilon + error) * _ROUND_UP, curve.orders))
        if self.value is not None:
            curve = curve.plus(RenyiCurve.pure(self.value.epsilon * _ROUND_UP, curve.orders))
        return curve

    @property
    def theorem(self) -> str:
        """The privacy theorem in force."""
        found = self.calibration.theorem
        if self.propensity is not None:
            found = f"Theorem 9 (composition) of {self.propensity.theorem} and {found}"
        return found if self.value is None else f"{found}, then Laplace noise for the value"
