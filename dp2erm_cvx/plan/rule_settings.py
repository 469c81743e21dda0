"""How a rule is learned where nothing is declared: a public rule in n, epsilon and the covariates."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan.effect_rule import MEAN_SHARE, SPREAD_SHARE, covariate_rule
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import one_of, public_fraction, public_number, public_size
from dp2erm_cvx.steps import Balance
from dp2erm_cvx.universe import Universe

#: n epsilon per column from which a center pays, whatever is expected.
CENTER_FROM = 50.0
#: The same for a propensity.
PROPENSITY_FROM = 150.0
#: The largest noise of a mean of covariates that a rule subtracts, a third of their guessed deviation:
#: a noisier one costs more decisions than covariates off their middle do.
MEAN_NOISE = 1.0 / 9.0
#: Norm bounds that covariates are scaled to, so that their declared units do not matter. The mean outcome is
#: far from its public center more often than the mean effect is from 0: a center keeps more of its intercept.
CENTER_NORM, RULE_NORM = 1.6, 2.4
#: What may be expected of the population in advance.
EXPECTATIONS = ("main effect", "confounding")


@dataclass(frozen=True)
class RuleSettings:
    """Everything that a private rule is calibrated from, beside the universe and the budget.

    Attributes
    ----------
    center_share
        Share of the budget for a regression of the outcome on covariates, without arms; None for none.
    propensity
        "logistic", None for factors 1, the public probability of treatment, or public coefficients of its log
        odds on (1, x).
    propensity_share
        Share of the budget for a logistic propensity; another takes none. The rule has the rest.
    balance
        What its records count by the propensity: "matching", "overlap" or "inverse".
    cap
        F: of inverse propensities, and of those that a value is estimated by.
    center_slope, slope
        c of the saturating losses of the center and of the rule, in units of the outcome. Twice the first for
        the second keeps the sign of the effect at any noise of the outcome (Theorem 20).
    center_norm, norm
        Norm bounds that the two regressions scale covariates to, beside their constant of 1: noise and
        shrinkage weigh on slopes and intercept in this proportion. A large one leaves a rule no intercept.
    radius
        Largest margin of the logistic propensity.
    split
        Share of the propensity's epsilon that pays for its noise.
    value_share
        Share of the whole budget for what the rule is worth, None for no value; the other shares are of the
        rest.
    response_bound
        B of a rule by squared loss with inverse propensities on the response (Theorem 14): of any law of the
        outcome it has the sign of the mean effect, for more noise. None: factors on a loss of bounded slope.
    residual_bound, score_bound
        M_r and B of the value, at a rate of treatment of one half, as of
        :class:`~dp2erm_cvx.steps.EffectScore`.
    norm_bound
        The scaled covariates are shrunk radially to this norm; None: to that of the domain.
    mean_share, spread_share
        Shares of the budget for the mean of the covariates, which is then subtracted, and for their mean
        square, which says where the norm bound is too wide; None where they are not released.

    Raises DeclarationError for an invalid value.
    """

    center_share: float | None
    propensity: str | float | tuple[float, ...] | None
    propensity_share: float
    balance: Balance | str
    cap: float
    center_slope: float
    slope: float
    center_norm: float
    norm: float
    radius: float
    split: float
    residual_bound: float
    score_bound: float
    value_share: float | None = None
    response_bound: float | None = None
    norm_bound: float | None = None
    mean_share: float | None = None
    spread_share: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "balance", one_of("balance", self.balance, Balance))
        for name in ("center_slope", "slope", "center_norm", "norm", "radius"):
            put(self, name, public_size(name, getattr(self, name)))
        for name in ("residual_bound", "score_bound"):
            put(self, name, public_size(name, getattr(self, name)))
        put(self, "cap", public_number("cap", self.cap, at_least=2.0))
        self._check_propensity()
        if self.norm_bound is not None:
            put(self, "norm_bound", public_size("norm_bound", self.norm_bound))
        optional = [name for name in (*_OPTIONAL, "value_share") if getattr(self, name) is not None]
        for name in ("split", "propensity_share", *optional):
            put(self, name, public_fraction(name, getattr(self, name)))
        if not self.spent < 1.0:
            raise DeclarationError(f"{', '.join(_OPTIONAL)} and propensity_share leave nothing to the rule")
        if self.response_bound is not None:
            put(self, "response_bound", public_size("response_bound", self.response_bound))
            if self.propensity is None:
                raise DeclarationError(
                    "response_bound: needs a propensity, which a rule from few records has only where it is "
                    "declared: set propensity to logistic, or to what is public"
                )

    def _check_propensity(self) -> None:
        stated = self.propensity
        if isinstance(stated, list | tuple):
            known = tuple(public_number("propensity", value) for value in stated)
            object.__setattr__(self, "propensity", known)
        elif isinstance(stated, str) and stated != "logistic":
            raise DeclarationError(
                f"propensity = {stated!r}: must be logistic, a public probability, public coefficients of "
                "its log odds, or none"
            )
        elif stated is not None and stated != "logistic":
            object.__setattr__(self, "propensity", public_fraction("propensity", stated))

    @property
    def spent(self) -> float:
        """Of what a value leaves: the share that the rule does not have."""
        found = sum(getattr(self, name) or 0.0 for name in _OPTIONAL)
        return found + (self.propensity_share if self.propensity == "logistic" else 0.0)


#: Shares that may be None.
_OPTIONAL = ("mean_share", "spread_share", "center_share")


def rule_of_use(
    universe: Universe, budget: Budget, outcome_scale: float | None, expected: Collection[str] = ()
) -> RuleSettings:
    """The default settings, from public quantities alone.

    With k records times epsilon per column, the constant counted: below ``CENTER_FROM`` nothing but the rule,
    unless a main effect or confounding is expected; then a center; from ``PROPENSITY_FROM`` on a propensity
    as well, with matching factors. The study of rules says what this gains and what it costs.

    Parameters
    ----------
    universe, budget
        Datasets and what may be spent on them.
    outcome_scale
        Public guess of the standard deviation of the outcome, in its units; None: a third of its bound.
    expected
        Of ``EXPECTATIONS``. Raises DeclarationError for others.
    """
    for fact in expected:
        if fact not in EXPECTATIONS:
            raise DeclarationError(f"expected = {fact!r}: must be one of {', '.join(EXPECTATIONS)}")
    scale = universe.domain.outcome_bound / 3.0 if outcome_scale is None else outcome_scale
    total = universe.mass * universe.n_samples * budget.epsilon / (universe.n_features + 1)
    both = total >= PROPENSITY_FROM
    centered = both or total >= CENTER_FROM or bool(expected)
    worth = both and universe.domain.sampling is None
    total *= universe.n_features + 1
    _, norm_bound, mean = covariate_rule(universe, total, MEAN_NOISE, worth=worth)
    if universe.domain.ranges is None:  # a declared norm is that of the records, and no corner of a box
        norm_bound = universe.domain.features_bound
    return RuleSettings(
        center_share=(0.3 if both else 0.4) if centered else None,
        propensity="logistic" if both else None,
        propensity_share=0.15,
        balance=Balance.MATCHING,
        cap=10.0,
        center_slope=0.35 * scale,
        slope=0.7 * scale,
        center_norm=CENTER_NORM,
        norm=RULE_NORM,
        radius=3.3,
        split=0.85,
        residual_bound=min(2.8 * scale, 2.0 * universe.domain.outcome_bound),
        score_bound=4.2 * scale,
        norm_bound=norm_bound,
        mean_share=MEAN_SHARE if mean else None,
        spread_share=SPREAD_SHARE if both else None,
    )
