"""Nuisances at a released rule, which is their effect: for what that rule is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.nuisances import LinearNuisances, Predicted
from dp2erm_cvx.steps.record_map import Rows, Term


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
        return _moved(center, a, self.propensity(x, released), self.effect(x, released))

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        e, effect = self.propensity(x, released), self.effect(x, released)
        m_0, m_1 = (
            _moved(super(RuleNuisances, self).outcome(x, arm, released), arm, e, effect)
            for arm in (np.zeros(len(x)), np.ones(len(x)))
        )
        return Predicted(m_0, m_1, e, effect)

    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        return np.asarray(expit(self.log_odds.predict(x, np.zeros(len(x)), released)))


def _moved(center: Array, a: Array, e: Array, effect: Array) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        found: Array = center + (a - e) * effect
    return found
