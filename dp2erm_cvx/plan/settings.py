"""Public settings of effects and rules, beside the universe and the budget."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.calibration.base import mean_norm
from dp2erm_cvx.checks import (
    check_settings,
    one_of,
    public_fraction,
    public_number,
    public_size,
    setting,
)
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.errors import DeclarationError, brief, known_names
from dp2erm_cvx.steps.record_map import Arms, Balance, Rows, WithConstant
from dp2erm_cvx.steps.step import Step


@dataclass(frozen=True, kw_only=True)
class CausalSettings(abc.ABC):
    """Settings that an effect and a rule have in common.

    Attributes
    ----------
    slope
        c of a saturating loss, in units of the outcome: that of an effect's outcome regression
        (center), that of a rule.
    norm_bound
        The scaled covariates are shrunk radially to this norm, once their released mean square has
        brought them to the size that their law guesses.
    mean_share
        Share of the budget for the mean of the covariates, which is then subtracted; None where it
        is not released.
    spread_share
        Share of the budget for the mean square of the covariates, from which shrinkage is
        predicted; None where it is not released.
    center_share
        Share of the budget for the outcome regression.
    propensity
        "logistic", the public probability of treatment, or what a concrete kind adds.
    propensity_share
        Share of the budget for a logistic propensity.
    radius
        Largest linear predictor of the logistic propensity: it is fitted in the ball
        ``M ||lam|| <= radius``.
    split
        Share of the propensity's epsilon that pays for its noise.
    cap
        F of :class:`~dp2erm_cvx.steps.score.EffectScore`, at a rate of treatment of one half:
        propensities are clipped to [1/F, 1 - 1/F].
    residual_bound
        M_r there, at that rate: residuals are clipped to this size, in units of the outcome.
    score_bound
        B there, at that rate: the score of a record, less its center, is clipped to this size, in
        units of the outcome.

    Raises
    ------
    DeclarationError
        For an invalid value.
    """

    slope: float = setting(check=public_size)
    norm_bound: float | None = setting(check=public_size)
    mean_share: float | None = setting(check=public_fraction, optional=True)
    spread_share: float | None = setting(check=public_fraction, optional=True)
    center_share: float | None = setting(check=public_fraction)
    propensity: Any
    propensity_share: float = setting(check=public_fraction)
    radius: float = setting(check=public_size)
    split: float = setting(check=public_fraction)
    cap: float = setting(at_least=2.0)
    residual_bound: float = setting(check=public_size)
    score_bound: float = setting(check=public_size)

    #: What the last step releases.
    rest: ClassVar[str]

    def __post_init__(self) -> None:
        check_settings(self)
        self._check_propensity()
        if not self.spent < 1.0:
            raise DeclarationError(f"{', '.join(self._takes)}: leave nothing to the {self.rest}")

    @abc.abstractmethod
    def _check_propensity(self) -> None:
        """Raise DeclarationError where the propensity is none."""

    @property
    def spent(self) -> float:
        """Share of the other steps together."""
        return float(sum(self._takes.values()))

    @property
    def _takes(self) -> dict[str, float]:
        """Shares of the budget that the other steps take."""
        names = ["mean_share", "spread_share", "center_share"]
        if self.propensity in ("logistic", "multinomial"):
            names.append("propensity_share")
        shares = {name: getattr(self, name) for name in names}
        return {name: share for name, share in shares.items() if share is not None}


@dataclass(frozen=True, kw_only=True)
class EffectSettings(CausalSettings):
    """Everything that a private effect is calibrated from, beside the universe and the budget.

    Those of ``CausalSettings``; the propensity may be "constant", too. Of more than two arms it is
    "constant", "multinomial", or their public probabilities, and ``score_bound`` is at equal shares
    of them.

    Attributes
    ----------
    rows
        Of the outcome regression (center), see :class:`~dp2erm_cvx.steps.record_map.Rows`.
    arms, noise_ratio
        What records count in it, see :class:`~dp2erm_cvx.steps.record_map.Arms`; the ratio is that
        of the rule's shares.
    rate_share
        Share of the budget for the rate of treatment, where it is not public.
    scale_share
        Share of the whole budget for the scale of the outcome, where no ``residual_scale`` is
        declared; the other shares are of the rest. None where it is not released: half of the
        outcome bound then stands for it.
    """

    norm_bound: float = setting(check=public_size)
    center_share: float = setting(check=public_fraction)
    propensity: str | float | tuple[float, ...]
    rows: Rows = setting(check=one_of, kind=Rows)
    arms: Arms = setting(check=one_of, kind=Arms)
    rate_share: float = setting(check=public_fraction)
    noise_ratio: float = setting(0.0, at_least=0.0)
    scale_share: float | None = setting(None, public_fraction)

    rest: ClassVar[str] = "score"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.arms is Arms.CONTROLS and self.rows is not Rows.COMMON:
            raise DeclarationError("arms = 'controls': one arm alone has rows = 'common'")

    @property
    def _takes(self) -> dict[str, float]:
        others = super()._takes
        if self.known is None:
            return {"rate_share": self.rate_share} | others
        return others

    def _check_propensity(self) -> None:
        if isinstance(self.propensity, list | tuple):
            object.__setattr__(self, "propensity", tuple(self.propensity))
            return
        if self.propensity in ("logistic", "constant", "multinomial"):
            return
        if isinstance(self.propensity, str):
            raise DeclarationError(
                f"propensity = {self.propensity!r}: must be logistic, constant, or a public "
                "probability"
            )
        least = 1.0 / self.cap
        if not least <= public_number("propensity", self.propensity) <= 1.0 - least:
            raise DeclarationError(
                f"propensity = {brief(self.propensity)}: must be from {least:g} to "
                f"{1.0 - least:g}; declare a larger cap"
            )

    @property
    def known(self) -> float | None:
        """The public probability of treatment, as in a randomized trial; the least of several."""
        if isinstance(self.propensity, tuple):
            return min(self.propensity)
        if isinstance(self.propensity, str):
            return None
        return self.propensity


@dataclass(frozen=True, kw_only=True)
class RuleSettings(CausalSettings):
    """Everything that a private rule is calibrated from, beside the universe and the budget.

    Those of ``CausalSettings``. The propensity may also be None, for factors 1, or public
    coefficients of its log odds on (1, x), x as the domain scales it and nothing moves it;
    ``center_share`` None, for no center; ``norm_bound`` None, for the norm of the domain. The cap
    is that of inverse propensities, and of those that a value is estimated by.

    Attributes
    ----------
    balance
        What its records count by the propensity: "matching", "overlap" or "inverse".
    center_slope
        c of the center. Twice it for the rule keeps the sign of the effect at any noise of the
        outcome (Theorem 20).
    center_norm
        Norm bound that the outcome regression scales covariates to, beside its constant of 1.
    norm
        Norm bound that the rule scales covariates to, beside its constant of 1: noise and shrinkage
        weigh on slopes and intercept in this proportion. A large one leaves a rule no intercept.
    value_share
        Share of the whole budget for what the rule is worth, None for no value; the other shares
        are of the rest.
    response_bound
        B of a rule by squared loss with inverse propensities on the response (Theorem 14): of any
        law of the outcome it has the sign of the mean effect, for more noise. None: factors on a
        loss of bounded slope.
    """

    propensity: str | float | tuple[float, ...] | None
    center_share: float | None = setting(check=public_fraction, optional=True)
    balance: Balance | str = setting(check=one_of, kind=Balance)
    center_slope: float = setting(check=public_size)
    center_norm: float = setting(check=public_size)
    norm: float = setting(check=public_size)
    value_share: float | None = setting(None, public_fraction)
    response_bound: float | None = setting(None, public_size)
    norm_bound: float | None = setting(None, public_size)
    mean_share: float | None = setting(None, public_fraction)
    spread_share: float | None = setting(None, public_fraction)

    rest: ClassVar[str] = "rule"

    @property
    def propensity_is_public(self) -> bool:
        """True if the propensity is declared, as in a randomized trial."""
        return self.propensity not in (None, "logistic")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.response_bound is not None and self.propensity is None:
            raise DeclarationError(
                "response_bound: needs a propensity, which a rule from few records has only where "
                "it is declared: set propensity to logistic, or to what is public"
            )

    def _check_propensity(self) -> None:
        public = self.propensity
        if isinstance(public, list | tuple):
            known = tuple(public_number("propensity", value) for value in public)
            object.__setattr__(self, "propensity", known)
        elif isinstance(public, str) and public != "logistic":
            raise DeclarationError(
                f"propensity = {public!r}: must be logistic, a public probability, public "
                "coefficients of its log odds, or none"
            )
        elif public is not None and public != "logistic":
            object.__setattr__(self, "propensity", public_fraction("propensity", public))


def known_settings(kind: type, what: str, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Declared settings by name; ``what`` says in words what they are settings of.

    Raises
    ------
    DeclarationError
        For what is no setting of this ``kind``.
    """
    names = [field.name for field in fields(kind)]
    for name in declared:
        if name not in names:
            raise DeclarationError(f"{name}: is no setting of {what}; {known_names(name, names)}")
    return dict(declared)


def chosen_noise(declared: object, universe: MappedUniverse) -> Noise:
    """The law of noise by its name.

    "auto" is gamma or box noise, whichever is shorter for regressions on (1, x), in mean Euclidean
    length and from what is public.

    Raises
    ------
    DeclarationError
        For another name.
    """
    if declared != "auto":
        known = [*(law.value for law in Noise), "auto"]
        if declared not in known:
            raise DeclarationError(f"noise = {brief(declared)}: must be one of {', '.join(known)}")
        return Noise(declared)
    rows = WithConstant().universe(universe)
    if rows.widths is None:
        return Noise.GAMMA
    in_ball = rows.space.covariate_bound * mean_norm(Noise.GAMMA, rows.n_columns)
    in_box = mean_norm(Noise.BOX, rows.n_columns, rows.widths)
    return Noise.BOX if in_box < in_ball else Noise.GAMMA


def shares_in_turn(steps: Sequence[Step], rest: float = 1.0) -> list[Step]:
    """Steps with shares of the whole as shares of what later ones leave, which take theirs first.

    ``rest`` is what all of them together have of the budget.
    """
    scaled: list[Step] = []
    left = 1.0
    for step in reversed(steps):
        share = (step.share or 0.0) * rest
        scaled.append(replace(step, share=share / left))
        left -= share
    return scaled[::-1]
