"""How an effect is estimated where nothing is declared: a public rule in n, epsilon and the covariates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import public_fraction, public_number, public_size
from dp2erm_cvx.steps import Rows
from dp2erm_cvx.universe import Universe

#: n epsilon per covariate from which a logistic propensity is worth estimating.
FEW = 400.0
#: The same for a refit, and a propensity in a wider ball.
MANY = 800.0
#: The same for slopes of the effect.
PLENTY = 3000.0
#: F where none is declared; a larger one says that overlap is poor.
CAP = 10.0


@dataclass(frozen=True)
class EffectSettings:
    """Everything that a private effect is calibrated from, beside the universe and the budget.

    Attributes
    ----------
    rows
        Of the outcome regression (center), see :class:`~dp2erm_cvx.steps.Rows`; None in cells, which have no
        use for ``slope``, ``first_fit``, ``radius`` and ``split`` either.
    slope
        c of the saturating loss of the center, in units of the outcome.
    squared_radius
        Squared loss of the center in place of the saturating one, with its coefficient within this many
        outcome bounds: for outcomes of two values and few records. None for the saturating loss. No
        first fit goes before it, whose residuals would have no useful bound.
    first_fit
        Share of the center's budget for a first fit, whose residuals are fitted again; None for one fit.
    propensity
        "logistic", "constant", with ``cells`` "cells", or the public probability of treatment.
    radius
        Largest margin of the logistic propensity: it is fitted in the ball ``M ||lam|| <= radius``.
    split
        Share of the propensity's epsilon that pays for its noise.
    center_share, propensity_share
        Shares of the budget; the score has the rest. A public propensity takes none.
    cap, residual_bound, score_bound
        F, M_r and B of :class:`~dp2erm_cvx.steps.EffectScore`.
    cells
        Cuts by covariate, or numbers of cells, see :func:`~dp2erm_cvx.steps.declared_partition`: outcome and
        propensity are then means in cells, from both shares, and no line has to be right. None for lines.

    Raises DeclarationError for an invalid value.
    """

    rows: Rows | None
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
    cells: Mapping[str, Any] | None = None
    squared_radius: float | None = None

    def __post_init__(self) -> None:
        for name in ("slope", "radius", "residual_bound", "score_bound"):
            public_size(name, getattr(self, name))
        public_number("cap", self.cap, at_least=2.0)
        if self.squared_radius is not None:
            public_size("squared_radius", self.squared_radius)
            if self.first_fit is not None:
                raise DeclarationError("squared_radius: has no first_fit; declare none")
        self._check_propensity()
        shares = ["split", "center_share", "propensity_share"]
        if self.first_fit is not None:
            shares.append("first_fit")
        for name in shares:
            public_fraction(name, getattr(self, name))
        if not self.center_share + self.propensity_share < 1.0:
            raise DeclarationError("center_share and propensity_share leave nothing to the score")

    def _check_propensity(self) -> None:
        lines = self.cells is None
        if lines is (self.rows is None):
            raise DeclarationError("rows and cells: one of the two is declared")
        if self.propensity in (("logistic", "constant") if lines else ("cells",)):
            return
        if isinstance(self.propensity, str):
            names = "logistic, constant," if lines else "cells"
            raise DeclarationError(
                f"propensity = {self.propensity!r}: must be {names} or a public probability"
            )
        least = 1.0 / self.cap
        if not least <= public_number("propensity", self.propensity) <= 1.0 - least:
            raise DeclarationError(
                f"propensity = {shown(self.propensity)}: must be from {least:g} to {1.0 - least:g}; declare "
                "a larger cap"
            )

    @property
    def known(self) -> float | None:
        """The probability of treatment where it is public, as in a randomized trial."""
        return None if isinstance(self.propensity, str) else self.propensity


def effect_rule(
    universe: Universe, budget: Budget, residual_scale: float | None, cap: float = CAP
) -> EffectSettings:
    """The default settings, from public quantities alone.

    Below ``FEW`` records times epsilon per covariate: common slopes and one propensity for all. From there on
    a logistic propensity, of odds within 1 to 7; from ``MANY`` on, or where poor overlap is declared by a
    ``cap`` above its default, of odds within 1 to 55, and a refit of the residuals. From ``PLENTY`` on slopes
    of the effect. The study of effects says how it was found.

    Parameters
    ----------
    universe, budget
        Datasets and what may be spent on them.
    residual_scale
        Public guess of the standard deviation of the outcome given covariates, in units of the outcome; None:
        clips that no residual reaches, and a loss and a score of the order of the outcome bound.
    cap
        F, at most what the inverse of a propensity may be.
    """
    bound = universe.domain.outcome_bound
    total = universe.mass * universe.n_samples * budget.epsilon
    few, some, common = (total < limit * universe.n_features for limit in (FEW, MANY, PLENTY))
    poor = cap > CAP
    # residuals within two outcome bounds reach four times that at most, however large the guess
    spread = bound / 2.0 if residual_scale is None else min(residual_scale, bound / 2.0)
    width = min(max(0.1 * math.sqrt(total), 8.0), 20.0)
    return EffectSettings(
        rows=Rows.COMMON if common else Rows.MIX,
        slope=bound / 3.0 if residual_scale is None else residual_scale,
        first_fit=0.3 if poor or not some else None,
        propensity="constant" if few else "logistic",
        radius=4.0 if poor or not some else 2.0,
        split=0.85,
        center_share=0.65 if few else 0.45 if some else 0.5,
        propensity_share=0.05 if few else 0.15,
        cap=cap,
        residual_bound=2.0 * bound if residual_scale is None else min(4.0 * residual_scale, 2.0 * bound),
        score_bound=spread * (max(width, cap) if poor else width),
    )
