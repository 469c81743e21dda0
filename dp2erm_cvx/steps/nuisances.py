"""Released nuisances at a record: outcome regressions and the propensity, by public formulas."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dp2erm_cvx.domain import Array
from dp2erm_cvx.steps.center import CenterPlan
from dp2erm_cvx.steps.covariates import MeanSquarePlan
from dp2erm_cvx.steps.number import TreatmentRatePlan
from dp2erm_cvx.steps.record_map import Term, treated_share
from dp2erm_cvx.steps.shrinkage import Confounding, RidgeFit, TwoValues, shrinkage
from dp2erm_cvx.steps.step import StepPlan

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
    square: MeanSquarePlan | None = None
    two_values: TwoValues | None = None

    def planned(self, earlier: Mapping[str, StepPlan]) -> LinearNuisances:
        sources = {term.source for term in self.terms}
        centers = [one for one in earlier.values() if isinstance(one, CenterPlan) and one.name in sources]
        square = earlier.get(MeanSquarePlan.name)
        return replace(
            self,
            regressions=tuple(RidgeFit.of(step) for step in centers),
            square=square if isinstance(square, MeanSquarePlan) else None,
        )

    def given(self, released: Mapping[str, Array], n_samples: int) -> LinearNuisances:
        rate = self.rate if not isinstance(self.rate, str) else treated_share(released[self.rate], n_samples)
        found = replace(self, rate=rate)
        if isinstance(self.rate, str) and len(released[self.rate]) > 1:
            mass = max(TreatmentRatePlan.mass(released[self.rate]), 1.0) / n_samples
            found = replace(found, regressions=tuple(replace(one, mass=mass) for one in self.regressions))
        if self.square is not None:
            found = replace(found, spreads=tuple(self.square.spreads(released).tolist()), square=None)
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
