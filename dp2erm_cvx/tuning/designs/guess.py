"""A guess of the world in which a release will be made: stated in advance, and nothing of it private."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.public import public_fraction, public_number, public_size

#: Strengths of confounding by name: standard deviations of the log odds of treatment.
CONFOUNDING = {"none": 0.0, "weak": 0.4, "moderate": 0.8, "strong": 1.6}


@dataclass(frozen=True)
class Guess:
    """What is expected of records that nobody has looked at yet. Parts that are None are filled in.

    Attributes
    ----------
    effect
        Average effect of the treatment, in units of the outcome, before its cost. None: half of
        ``outcome_scale``; for a rule the cost, so that nobody knows in advance whom to treat.
    effect_spread
        Its standard deviation over covariates. None: a quarter of what a line leaves of the outcome; half
        of ``outcome_scale`` for a rule.
    outcome_scale
        Standard deviation of the outcome without treatment, in its units. None: a third of its bound.
    explained, curved
        Share of the variance of the outcome that covariates explain, and the share of that which no line
        sees: the square of one.
    confounding
        Standard deviation of the log odds of treatment, which follow the line that the outcome follows: a
        name of ``CONFOUNDING``, or a number of at least 0.
    treated
        Share of the records.
    binary
        Whether the outcome is one of the ends of its interval, which set ``outcome_scale``; so it is where
        the domain declares it.
    drivers
        Covariates that outcome and treatment depend on. None: all.

    Raises DeclarationError for an invalid value.
    """

    effect: float | None = None
    effect_spread: float | None = None
    outcome_scale: float | None = None
    explained: float = 0.5
    curved: float = 0.1
    confounding: str | float = "moderate"
    treated: float = 0.5
    binary: bool = False
    drivers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.effect is not None:
            public_number("effect", self.effect)
        for name, zero in (("effect_spread", True), ("outcome_scale", False)):
            if getattr(self, name) is not None:
                public_size(name, getattr(self, name), zero=zero)
        for name in ("explained", "curved"):
            if public_number(name, getattr(self, name), at_least=0.0) >= 1.0:
                raise DeclarationError(f"{name} = {getattr(self, name):g}: must be at least 0 and below 1")
        public_fraction("treated", self.treated)
        if not isinstance(self.confounding, str):
            public_number("confounding", self.confounding, at_least=0.0)
        elif self.confounding not in CONFOUNDING:
            raise DeclarationError(
                f"confounding = {shown(self.confounding)}: must be {', '.join(CONFOUNDING)}, or a number"
            )

    @property
    def log_odds(self) -> float:
        """The standard deviation of the log odds of treatment."""
        stated = self.confounding
        return CONFOUNDING[stated] if isinstance(stated, str) else float(stated)

    def filled(self, domain: Domain, goal: str) -> Guess:
        """The same with numbers in place of every None, of the size that the domain and the goal suggest."""
        rule, effect, spread, scale = goal == "rule", self.effect, self.effect_spread, self.outcome_scale
        binary = self.binary or domain.binary_outcome
        if scale is None or binary:
            scale = domain.outcome_bound if binary else rounded(domain.outcome_bound / 3.0)
        if effect is None:
            effect = domain.treatment_cost + (0.0 if rule else rounded(0.5 * scale))
        if spread is None:
            spread = rounded(0.5 * scale if rule else 0.25 * self.left(scale, binary=binary))
        return replace(self, effect=effect, effect_spread=spread, outcome_scale=scale, binary=binary)

    def left(self, scale: float, *, binary: bool) -> float:
        """What a line leaves of an outcome of this standard deviation."""
        return scale if binary else rounded(scale * math.sqrt(1.0 - self.explained * (1.0 - self.curved)))

    def stated(self, filled: Guess) -> list[tuple[str, Any, bool]]:
        """Name and value of every part of the ``filled`` guess, and whether it is stated here."""
        names = [one.name for one in fields(self)]
        return [
            (name, getattr(filled, name), getattr(self, name) != getattr(Guess(), name)) for name in names
        ]


def rounded(value: float) -> float:
    """Two significant digits, as a guess has them: what is printed is what is simulated."""
    return float(f"{value:.2g}")
