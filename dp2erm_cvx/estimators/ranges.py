"""Private ranges: the domain of other releases, where nobody declares it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dp2erm_cvx.data.dataset import Public
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.private_ranges import OpenDomain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.diagnostics.look import AskedAbout
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.noise import private_choice
from dp2erm_cvx.plan import PlanResult, RangesStudy
from dp2erm_cvx.release import Guarantee
from dp2erm_cvx.release.ranges import RangesRelease, make_ranges


@dataclass(eq=False, repr=False)
class PrivateRanges(PrivateEstimator):
    """Differentially private ranges of columns, which make a domain for other releases.

    Two private quantiles of every column that is not declared (Theorem 10). What is released from
    ``domain_`` afterwards adds its epsilon to that of the ranges.

    Parameters
    ----------
    domain
        An :class:`~dp2erm_cvx.data.private_ranges.OpenDomain`: what is known of every range.
    budget, seed, ledger, dataset
        As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`. No delta is spent.
    noise, solver, arithmetic, numerical_share
        Of other estimators: nothing is solved here, and private choices draw whole numbers alone.
        They need the extra ``secure``.

    Attributes
    ----------
    release_ : RangesRelease, the only thing to publish
    receipt_ : Receipt of the ledger, None without one

    Examples
    --------
    >>> import numpy as np
    >>> from dp2erm_cvx import Budget, OpenDomain, PrivateEffect, PrivateRanges, Within
    >>> rng = np.random.default_rng(0)
    >>> X = np.column_stack([rng.normal(50, 9, 4000), rng.normal(0, 1, 4000)])
    >>> a = rng.integers(0, 2, 4000)
    >>> y = X[:, 0] + 5 * a + rng.standard_normal(4000)
    >>> known = OpenDomain([Within(0, 120), (-4, 4)], outcome=Within(0, 200))
    >>> ranges = PrivateRanges(known, Budget(0.5), seed=1).fit(X, a, y)
    >>> ranges.domain_.range_pairs[1]
    (-4.0, 4.0)
    >>> effect = PrivateEffect(ranges.domain_, Budget(1.0), seed=2).fit(X, a, y)
    """

    domain: OpenDomain

    def public(self) -> Public:
        """Declaration about the records.

        Raises
        ------
        DeclarationError
            For what is no such declaration, and where OpenDP is not installed.
        """
        if not isinstance(self.domain, OpenDomain) or type(self.domain) is not OpenDomain:
            raise DeclarationError(f"domain = {brief(self.domain)}: must be an OpenDomain")
        if self.seed is None:
            private_choice(1, 1.0)  # told before any data are read
        return self.domain

    def _study(self, n_samples: int, known: Sequence[str] | range) -> RangesStudy:
        """The ranges that are declared, of all covariates and the outcome."""
        if self.noise != "gamma":
            raise DeclarationError(
                f"noise = {brief(self.noise)}: choices of ranges have their own: leave it out"
            )
        self.public()
        universe = Universe(self.domain.universe(), n_samples, len(known))
        return RangesStudy(
            universe, self.declared_budget(), self.domain, **self.settings_shared_with(RangesStudy)
        )

    def asked_about(self, columns: Sequence[str]) -> AskedAbout:
        """What a look has to know: nothing is adjusted for."""
        return AskedAbout(self.public(), ())

    def _name_of_release(self, plan: Any) -> str:
        """The name of all ranges."""
        return "ranges"

    def _make_release(
        self, plan: Any, data: Any, result: PlanResult, guarantee: Guarantee
    ) -> RangesRelease:
        """The ranges by the columns that they are of."""
        return make_ranges(plan, result.released, (*data.columns, data.outcome), guarantee)

    @property
    def domain_(self) -> Domain:
        """The domain of the released ranges, for other estimators."""
        domain: Domain = self.release_.as_domain()
        return domain
