"""How an effect is estimated where nothing is declared: a public rule in n, epsilon and the covariates."""

from __future__ import annotations

from dataclasses import dataclass

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_number, public_size
from dp2erm_cvx.steps import Rows
from dp2erm_cvx.universe import Universe

#: n epsilon per column of the center from which effects that vary, and a propensity, are worth estimating.
ENOUGH = 300.0


@dataclass(frozen=True)
class EffectSettings:
    """Everything that a private effect is calibrated from, beside the universe and the budget.

    Attributes
    ----------
    rows
        Of the outcome regression (center), see :class:`~dp2erm_cvx.steps.Rows`.
    slope
        c of the saturating loss of the center, in units of the outcome.
    first_fit
        Share of the center's budget for a first fit, whose residuals are fitted again; None for one fit.
    propensity
        "logistic", "constant", or the public probability of treatment.
    radius
        Largest margin of the logistic propensity: it is fitted in the ball ``M ||lam|| <= radius``.
    split
        Share of the propensity's epsilon that pays for its noise.
    center_share, propensity_share
        Shares of the budget; the score has the rest. A public propensity takes none.
    cap, residual_bound, score_bound
        F, M_r and B of :class:`~dp2erm_cvx.steps.EffectScore`.

    Raises DeclarationError for an invalid value.
    """

    rows: Rows
    slope: float
    first_fit: float | None
    propensity: str | float
    radius: float
    split: float
    center_share: float
    propensity_share: float
    cap: float
    residual_bound: float
    score_bound: float

    def __post_init__(self) -> None:
        for name in ("slope", "radius", "residual_bound", "score_bound"):
            public_size(name, getattr(self, name))
        public_number("cap", self.cap, at_least=2.0)
        shares = ["split", "center_share", "propensity_share"]
        if self.propensity not in ("logistic", "constant"):
            shares.append("propensity")
        if self.first_fit is not None:
            shares.append("first_fit")
        for name in shares:
            if public_number(name, getattr(self, name), above=0.0) >= 1.0:
                raise DeclarationError(f"{name} = {getattr(self, name):g}: must be between 0 and 1")
        if not self.center_share + self.propensity_share < 1.0:
            raise DeclarationError("center_share and propensity_share leave nothing to the score")

    @property
    def known(self) -> float | None:
        """The probability of treatment where it is public, as in a randomized trial."""
        return None if isinstance(self.propensity, str) else self.propensity


def effect_rule(universe: Universe, budget: Budget, residual_scale: float) -> EffectSettings:
    """The default settings, from public quantities alone.

    ``residual_scale`` is a public guess of the standard deviation of the outcome given covariates.
    """
    # no residual of a prediction within the bounds of the outcome is larger than twice these
    residual_bound = min(3.5 * residual_scale, 2.0 * universe.domain.outcome_bound)
    rich = universe.n_samples * budget.epsilon >= ENOUGH * (universe.n_features + 2)
    return EffectSettings(
        rows=Rows.MIX if rich else Rows.COMMON,
        slope=1.25 * residual_scale,
        first_fit=0.3 if rich else None,
        propensity="logistic" if rich else "constant",
        radius=4.0,
        split=0.75,
        center_share=0.6,
        propensity_share=0.1 if rich else 0.05,
        cap=5.0,
        residual_bound=residual_bound,
        score_bound=2.25 * residual_bound,
    )
