"""A private treatment rule: a center and a propensity where they pay, then a linear rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from dp2erm_cvx.domain import Array
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.plan import PlanResult, RuleStudy
from dp2erm_cvx.release import Guarantee
from dp2erm_cvx.release.rule import effects, make_rule, recommend
from dp2erm_cvx.universe import Universe


@dataclass(eq=False, repr=False)
class PrivateRule(PrivateEstimator):
    """A differentially private linear treatment rule.

    Where records, epsilon and covariates leave room, a regression of the outcome on the covariates is
    released first and subtracted, and a propensity by which records are matched. A public rule of use decides
    before the data are read. The rule is fitted by a loss of bounded slope, whose whole epsilon buys noise
    (Theorems 10, 13, 15 and 20).

    Parameters
    ----------
    domain, budget, solver, seed, arithmetic, numerical_share, ledger, dataset
        As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`.
    noise
        "gamma" (pure), "gaussian" (needs delta > 0; pure noise in steps where that errs less), "box"
        (pure, needs ranges), or "auto": the shorter of gamma and box noise.
    outcome_scale
        Public guess of the standard deviation of the outcome, in its units. Without one losses follow the
        outcome bound, for more noise where that is generous.
    expected
        "main effect" where covariates move the outcome, "confounding" where they decide on the treatment.
        One of them or both, as is expected of the population in advance.
    settings
        What replaces the public rule of use: a propensity of 0.5 for a randomized trial, or a value_share of
        0.2 to release what the rule is worth. By the names of :class:`~dp2erm_cvx.plan.RuleSettings`;
        ``{"center_share": None}`` for no center.

    Attributes
    ----------
    release_ : RuleRelease, the only thing to publish
    theta_ : (p,), of the constant and the scaled covariates
    receipt_ : Receipt of the ledger, None without one

    Examples
    --------
    >>> import numpy as np
    >>> from dp2erm_cvx import Budget, Domain, PrivateRule
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (4000, 2))
    >>> a = rng.binomial(1, 1 / (1 + np.exp(-X[:, 0])))
    >>> y = 2 * X[:, 0] + a * X[:, 1] + 0.5 * rng.standard_normal(4000)
    >>> domain = Domain(covariate_bound=1.5, outcome_bound=8.0)
    >>> model = PrivateRule(domain, Budget(2.0), outcome_scale=1.0).fit(X, a, y)
    >>> bool(np.mean(model.predict(X) == (X[:, 1] > 0)) > 0.9)
    True
    """

    _: KW_ONLY
    outcome_scale: float | None = RuleStudy.outcome_scale
    expected: Sequence[str] = RuleStudy.expected
    settings: Mapping[str, Any] | None = None

    def _study(self, n_samples: int, n_features: int) -> RuleStudy:
        """What is declared, for datasets of this size. Raises DeclarationError where something is invalid."""
        domain, budget = self.declared()
        universe = Universe(domain, n_samples, n_features)
        return RuleStudy(universe, budget, declared=dict(self.settings or {}), **self.shared(RuleStudy))

    def _judged(self, n_samples: int, columns: Sequence[str] | None) -> None:
        domain, stated = self.declared()[0], (self.settings or {}).get("propensity")
        known = columns or domain.columns or domain.ranges
        # of coefficients nobody knows yet how many there have to be
        number = len(stated) - 1 if isinstance(stated, list | tuple) else 1
        self._study(n_samples, number if known is None else len(known))

    def _note(self, plan: Any) -> str:
        return "treatment rule"

    def _keep(self, plan: Any, data: Any, found: PlanResult, guarantee: Guarantee) -> None:
        self.release_ = self._stated(make_rule(plan, found.released, data.columns, guarantee))
        self.theta_ = np.array(self.release_.theta)

    def decision_function(self, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome.

        Covariates are scaled and clipped as in the fit; those of a data frame are found by name. Raises
        DataError on a missing column or a wrong shape.
        """
        check_is_fitted(self)
        return effects(self.release_, X)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1}: 1 where the estimated net effect is positive."""
        check_is_fitted(self)
        return recommend(self.release_, X)
