"""Released nuisances at a record, of an effect and of a rule: regressions and a propensity."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.covariates import MeanSquare
from dp2erm_cvx.steps.record_map import RAREST, Rows, Term, treated_share
from dp2erm_cvx.steps.shrinkage import Confounding, RidgeFit, TwoValues, shrinkage
from dp2erm_cvx.steps.step import Planned
from dp2erm_cvx.steps.sums import released_mass, side_shares

#: No slope is stretched more: what ridge leaves less of is noise.
STRETCH = 3.0


class Predicted(NamedTuple):
    """m_0, m_1 and e (n,) before they are clipped; ``effect`` (n,) is that of a released rule, if any."""

    m_0: Array
    m_1: Array
    e: Array
    effect: Array | None = None


class Nuisances(abc.ABC):
    """m_0, m_1 and e at covariates x (n, k), given what was released: each a function of its own record."""

    def planned(self, earlier: Mapping[str, Planned]) -> Nuisances:
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

    ``terms`` add up to the outcome regression, none for none. ``rate`` is the public probability of
    treatment, or the step that released the number of treated records; ``log_odds`` is the regression of a
    propensity on (1, x), None where the rate is that of everybody. The slopes of a
    regression are divided by what its ridge is predicted to leave of them, at most ``STRETCH`` times, for
    covariates of the public ``spreads`` (k,), or those of a released mean square, and residuals of the public
    ``deviation``. Regressions of an outcome of ``two_values`` are unbent, record by record.
    """

    terms: tuple[Term, ...]
    rate: str | float
    log_odds: Term | None = None
    spreads: tuple[float, ...] = ()
    deviation: float = 1.0
    declared: Confounding = Confounding()
    regressions: tuple[RidgeFit, ...] = ()
    square: Planned | None = None
    two_values: TwoValues | None = None

    def planned(self, earlier: Mapping[str, Planned]) -> LinearNuisances:
        sources = {term.source for term in self.terms}
        centers = [one for one in earlier.values() if one.regression is not None and one.name in sources]
        regressions = tuple(RidgeFit.of(step) for step in centers)
        return replace(self, regressions=regressions, square=earlier.get("spread"))

    def given(self, released: Mapping[str, Array], n_samples: int) -> LinearNuisances:
        rate = self.rate if not isinstance(self.rate, str) else treated_share(released[self.rate], n_samples)
        found = replace(self, rate=rate)
        if isinstance(self.rate, str) and len(released[self.rate]) > 1:
            mass = max(released_mass(released[self.rate]), 1.0) / n_samples
            found = replace(found, regressions=tuple(replace(one, mass=mass) for one in self.regressions))
        if self.square is not None:
            assert isinstance(self.square.declared, MeanSquare)
            spreads = self.square.declared.spreads(self.square, released)
            found = replace(found, spreads=tuple(spreads.tolist()), square=None)
        if not self.regressions:
            return found
        if self.two_values is not None:
            levels = (float(one[0]) for one in found.levels(released))
            bends = tuple(self.two_values.curvature(level) for level in levels)
            known = tuple(replace(one, curvatures=(bends[0], bends[1])) for one in found.regressions)
            found = replace(found, regressions=known)
        stretch = tuple(found.stretch.ravel().tolist())
        # a public regression is what it is
        terms = tuple(
            replace(term, stretch=stretch) if isinstance(term.source, str) else term for term in self.terms
        )
        return replace(found, terms=terms)

    def levels(self, released: Mapping[str, Array]) -> tuple[Array, Array]:
        """The regressions m_0 and m_1 (1,) where all covariates are 0, before they are unbent."""
        nowhere = np.zeros((1, len(self.spreads)))
        m_0, m_1 = (self._lines(nowhere, arm * np.ones(1), released) for arm in (0.0, 1.0))
        return m_0, m_1

    def shrinkage(self, deviation: float, least_share: float = 1.0) -> tuple[Array, Array]:
        """What ridge and noise do to slopes (g, k), once the rate is a number, see :func:`shrinkage`."""
        assert not isinstance(self.rate, str)
        spreads = np.array(self.spreads)
        return shrinkage(self.regressions, spreads, deviation, self.rate, self.declared, least_share)

    @property
    def stretch(self) -> Array:
        """What released slopes (g, k) are multiplied by."""
        kept = self.shrinkage(self.deviation)[0]
        return np.minimum(1.0 / np.maximum(1.0 - kept, 1e-9), STRETCH)

    def outcome(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        found = self._lines(x, a, released)
        return found if self.two_values is None else self.two_values.unbent(found)

    def _lines(self, x: Array, a: Array, released: Mapping[str, Array]) -> Array:
        total = np.zeros(len(x))
        with np.errstate(over="ignore", invalid="ignore"):
            for term in self.terms:
                total = total + term.predict(x, a, released)
        return total

    def propensity(self, x: Array, released: Mapping[str, Array]) -> Array:
        if self.log_odds is not None:
            return np.asarray(expit(self.log_odds.predict(x, np.zeros(len(x)), released)))
        if isinstance(self.rate, str):
            raise ValueError("the rate of treatment is among all records: ask what is given first")
        return np.full(len(x), self.rate)


@dataclass(frozen=True)
class RuleNuisances(LinearNuisances):
    """Regressions by arm with slopes of their own, and the propensity by side of a released ``rule``.

    Where the propensity is not public, ``rate`` names the step that released the counts by side and arm; once
    they are known it is the treated share of all, and ``rates`` are those where the rule does not treat and
    where it does. Then the gain over treating nobody is off by ``P_d ((1 - pi_d) db_1 + pi_d db_0)'Delta_d``,
    db_a what is wrong with the slopes of arm a: no difference between the sides enters.
    """

    rule: str = "rule"
    counts: Planned | None = None
    rates: tuple[float, float] | None = None

    def planned(self, earlier: Mapping[str, Planned]) -> RuleNuisances:
        found = super().planned(earlier)
        assert isinstance(found, RuleNuisances)
        return replace(found, counts=earlier.get("sides"))

    def given(self, released: Mapping[str, Array], n_samples: int) -> LinearNuisances:
        if self.counts is None:
            return super().given(released, n_samples)
        shares = side_shares(self.counts, released)
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
