"""Released nuisances at a record: outcome regressions and the propensity, by public formulas."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.number import TreatmentRatePlan
from dp2erm_cvx.steps.record_map import Rows, Term
from dp2erm_cvx.steps.step import StepPlan


class Nuisances(abc.ABC):
    """m_0, m_1 and e at covariates x (n, k), given what was released: each a function of its own record."""

    def planned(self, earlier: Mapping[str, StepPlan]) -> Nuisances:
        """The same, once the steps that they rest on are planned, by name."""
        return self

    @abc.abstractmethod
    def outcome(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        """The regression m_a(x), (n,), of the centered outcome; it may be infinite or not a number."""

    @abc.abstractmethod
    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        """P(A = 1 | x), (n,), before it is clipped."""


@dataclass(frozen=True)
class LinearNuisances(Nuisances):
    """Sums of linear regressions, and a logistic, constant or known propensity.

    ``terms`` add up to the outcome regression, none for none. ``treated`` is the step that released the
    coefficient of the propensity on (1, x), the public probability of treatment where it is known, or the
    step that released the number of treated records where it is constant, with ``constant``.
    """

    terms: tuple[Term, ...]
    treated: str | float
    constant: bool = False

    def outcome(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        total = np.zeros(len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            for term in self.terms:
                total = total + term.predict(x, a, released)
        return total

    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        if not isinstance(self.treated, str):
            return np.full(len(x), self.treated)
        if self.constant:
            return np.full(len(x), TreatmentRatePlan.rate(released[self.treated], len(x)))
        return np.asarray(expit(Rows.POOLED.predict(released[self.treated], x, np.zeros(len(x)))))


@dataclass(frozen=True)
class RuleNuisances(LinearNuisances):
    """Both regressions by a pooled center and the effect that a ``rule`` estimates, with a propensity e.

    ``m_a(x) = m(x) + (a - e(x)) <(1, x), theta>``, of which m is the mean over arms and theta the difference.
    """

    log_odds: Term = Term(Rows.POOLED, "propensity")
    rule: str = "rule"

    def effect(self, x: Array, released: Mapping[str, Array]) -> Array:
        """What the released rule estimates (n,), row by row."""
        return Rows.POOLED.predict(released[self.rule], x, 0.0)

    def outcome(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        center = super().outcome(x, a, released)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Array = center + (a - self.propensity(x, released)) * self.effect(x, released)
        return found

    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        return np.asarray(expit(self.log_odds.predict(x, np.zeros(len(x)), released)))
