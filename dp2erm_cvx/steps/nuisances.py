"""Released nuisances at a record: outcome regressions and the propensity, by public formulas."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.number import TreatmentRatePlan
from dp2erm_cvx.steps.record_map import Rows, Term
from dp2erm_cvx.steps.step import StepPlan


class Predicted(NamedTuple):
    """m_0, m_1 and e (n,) before they are clipped; ``effect`` (n,) is that of a released rule, if any."""

    m_0: Array
    m_1: Array
    e: Array
    effect: Array | None = None


class Nuisances(abc.ABC):
    """m_0, m_1 and e at covariates x (n, k), given what was released: each a function of its own record."""

    def planned(self, earlier: Mapping[str, StepPlan]) -> Nuisances:
        """The same, once the steps that they rest on are planned, by name."""
        return self

    def given(self, released: Mapping[str, Array], n_samples: int) -> Nuisances:
        """The same, with what follows from n and from ``released`` alone worked out.

        Blocks of records need it, which do not know how many there are of all.
        """
        return self

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        """All of them, each evaluated once."""
        m_0, m_1 = (self.outcome(x, arm * np.ones(len(x)), released) for arm in (0.0, 1.0))
        return Predicted(m_0, m_1, self.propensity(x, released))

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

    def given(self, released: Mapping[str, Array], n_samples: int) -> LinearNuisances:
        if not self.constant or not isinstance(self.treated, str):
            return self
        rate = TreatmentRatePlan.rate(released[self.treated], n_samples)
        return replace(self, treated=rate, constant=False)

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
            raise ValueError("the rate of treatment is among all records: ask what is given first")
        return np.asarray(expit(Rows.POOLED.predict(released[self.treated], x, np.zeros(len(x)))))
