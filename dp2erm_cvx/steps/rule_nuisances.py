"""Nuisances for what a released rule is worth: regressions by arm, and a propensity by side of the rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.nuisances import LinearNuisances, Predicted
from dp2erm_cvx.steps.number import SideCountsPlan
from dp2erm_cvx.steps.record_map import RAREST, Rows
from dp2erm_cvx.steps.step import StepPlan


@dataclass(frozen=True)
class RuleNuisances(LinearNuisances):
    """Regressions by arm with slopes of their own, and the propensity by side of a released ``rule``.

    Where the propensity is not public, ``rate`` names the step that released the counts by side and arm; once
    they are known it is the treated share of all, and ``rates`` are those where the rule does not treat and
    where it does. Then the gain over treating nobody is off by ``P_d ((1 - pi_d) db_1 + pi_d db_0)'Delta_d``,
    db_a what is wrong with the slopes of arm a: no difference between the sides enters.
    """

    rule: str = "rule"
    counts: SideCountsPlan | None = None
    rates: tuple[float, float] | None = None

    def planned(self, earlier: Mapping[str, StepPlan]) -> RuleNuisances:
        found, counts = super().planned(earlier), earlier.get(SideCountsPlan.name)
        assert isinstance(found, RuleNuisances)
        return replace(found, counts=counts if isinstance(counts, SideCountsPlan) else None)

    def given(self, released: Mapping[str, Array], n_samples: int) -> LinearNuisances:
        if self.counts is None:
            return super().given(released, n_samples)
        shares = self.counts.shares(released)
        mass = min(max(float(shares.sum()), 1.0 / n_samples), 1.0)
        found = replace(self, regressions=tuple(replace(one, mass=mass) for one in self.regressions))
        if isinstance(self.rate, str):
            rate = _treated(shares.sum(axis=0), 0.5, 0.0)
            # counts that are hardly more than their noise say nothing of their side
            noise = 2.0 * math.sqrt(self.counts.predicted_error) / n_samples
            first, second = (_treated(side, rate, noise) for side in shares)
            found = replace(found, rate=rate, rates=(first, second))
        return super(RuleNuisances, found).given(released, n_samples)

    def effect(self, x: Array, released: Mapping[str, Array]) -> Array:
        """What the released rule estimates (n,), row by row."""
        return Rows.POOLED.predict(released[self.rule], x, 0.0)

    def at(self, x: Array, released: Mapping[str, Array]) -> Predicted:
        found, effect = super().at(x, released), self.effect(x, released)
        e = found.e if self.rates is None else np.where(effect > 0.0, self.rates[1], self.rates[0])
        return found._replace(e=e, effect=effect)


def _treated(shares: Array, otherwise: float, weight: float) -> float:
    """The treated part of two shares, drawn to ``otherwise`` as by ``weight`` more; at least 1/RAREST."""
    untreated, treated = (float(share) for share in shares)
    total = untreated + treated + weight
    rate = (treated + weight * otherwise) / total if total > 0.0 else otherwise
    return min(max(rate, 1.0 / RAREST), 1.0 - 1.0 / RAREST)
