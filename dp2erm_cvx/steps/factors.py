"""What a record counts given a released or public propensity: bounded factors that are never normalized."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dp2erm_cvx.domain import Array, Records, cleaned
from dp2erm_cvx.public import one_of, public_number
from dp2erm_cvx.steps.record_map import OutcomeRows, Term
from dp2erm_cvx.universe import Universe


class Balance(enum.StrEnum):
    """How much a record of arm a counts, by ``P = P(A = a | x)``, so that both arms have the same mass.

    ``MATCHING``: min(P, 1 - P)/P, of all such factors in [0, 1] those of the largest mass.
    ``OVERLAP``: 1 - P. ``INVERSE``: min(1/P, F)/F with a cap F, less than both and noisier.
    """

    MATCHING = "matching"
    OVERLAP = "overlap"
    INVERSE = "inverse"


@dataclass(frozen=True)
class Factors:
    """A factor in [0, 1] of every record, a function of it and of what was released (Theorem 13).

    They multiply the losses as they are. A public multiple of a perturbed objective has the same minimizer,
    so that factors of at most F, at F times the noise and gamma, are these. Dividing by their sum instead
    would move every factor with one record.

    Parameters
    ----------
    balance
        A :class:`~dp2erm_cvx.steps.Balance`, or its name.
    log_odds
        log(e/(1 - e)) on (1, x): the step that released its coefficient, or a public one.
    cap
        F of at least 2, for inverse propensities.

    Raises DeclarationError for an invalid argument.
    """

    balance: Balance | str
    log_odds: Term
    cap: float = 10.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "balance", one_of("balance", self.balance, Balance))
        object.__setattr__(self, "cap", public_number("cap", self.cap, at_least=2.0))

    def of(self, x: Array, a: ArrayLike, released: Mapping[str, Array]) -> Array:
        """The factors (n,) of covariates x (n, k) and treatments a (n,), row by row. Private."""
        margin = (2.0 * np.asarray(a) - 1.0) * self.log_odds.predict(x, a, released)
        # one scalar function for all of them: that of a vector may round a row by where it stands
        own, other = expit(margin), expit(-margin)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.balance is Balance.MATCHING:
                found = np.where(margin > 0.0, other / own, 1.0)
            elif self.balance is Balance.OVERLAP:
                found = other
            else:
                found = np.minimum(1.0 / own, self.cap) / self.cap
        return cleaned(np.where(np.isnan(margin), 0.0, found), 1.0)


@dataclass(frozen=True)
class RuleRows(OutcomeRows):
    """What a rule is fitted to: the outcome less a center, and ``balance`` for what each record counts."""

    balance: Factors | None = None

    @property
    def factored(self) -> bool:
        return self.balance is not None

    def factors(self, records: Records, released: Mapping[str, Array]) -> Array:
        if self.balance is None:
            return super().factors(records, released)
        return self.balance.of(records.covariates, records.a, released) * records.counts


@dataclass(frozen=True)
class ResponseRows(RuleRows):
    """Inverse propensities on the response in place of the loss: ``clip_B((2a - 1) f (y - m))`` (Theorem 14).

    Its mean given x is the effect, for squared loss whatever the law of the outcome. ``bound`` is B.
    """

    bound: float = 1.0

    @property
    def factored(self) -> bool:
        return False

    def factors(self, records: Records, released: Mapping[str, Array]) -> Array:
        return records.counts

    def universe(self, universe: Universe) -> Universe:
        found = super().universe(universe)
        return replace(found, domain=replace(found.domain, outcome_bound=self.bound))

    def outcomes(self, records: Records, released: Mapping[str, Array]) -> Array:
        assert self.balance is not None
        inverse = self.balance.cap * self.balance.of(records.covariates, records.a, released)
        return cleaned((2.0 * records.a - 1.0) * inverse * super().outcomes(records, released), self.bound)
