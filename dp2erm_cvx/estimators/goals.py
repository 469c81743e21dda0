"""Private effects and rules: nuisances first, then one score per record, or a linear rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import chosen_columns
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Curves, Universe
from dp2erm_cvx.diagnostics.look import AskedAbout
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.estimators.fitting import PrivateEstimator, checked_domain, names_or_numbers
from dp2erm_cvx.inference.interval import misses
from dp2erm_cvx.plan import EffectStudy, Plan, PlanResult, RuleStudy, make_plan
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.release import Guarantee
from dp2erm_cvx.release.effect import TARGETS, EffectRelease, make_effect
from dp2erm_cvx.release.rule import RuleRelease, effects, make_rule, recommend


@dataclass(eq=False, repr=False)
class PrivateEffect(PrivateEstimator):
    """A differentially private average treatment effect, doubly robust, with an interval.

    An outcome regression and a propensity are released first, by the perturbed programs of this
    library at weights 1. Given them every record has one score, whose mean and second moment are
    released together (Theorems 10 and 12).

    Parameters
    ----------
    domain
        The public universe of records, or that of released ranges
        (:class:`~dp2erm_cvx.estimators.PrivateRanges`).
    budget, noise, solver, seed, arithmetic, numerical_share, ledger, dataset
        As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`.
    estimand
        "ate", the average effect; "att", that among the treated; "overlap", that where either
        treatment is likely; "risks", those of an event, an outcome that is 0 or 1, under both
        treatments, with their difference, their ratio and the odds ratio.
    prognostic
        Covariates to adjust for, a public choice: all where none are named. By names, or column
        numbers; the name of a column with levels stands for all of them. Fewer mean less noise;
        leaving a confounder out means bias.
    where
        Levels of declared columns: the effect is that among their records alone. Such as
        ``{"sex": "F"}``. All others count 0, in the nuisances as well. The noise is that of one
        effect.
    by
        A declared column with levels: the effect in each of them, with contrasts to the first. From
        common regressions, which should adjust for the column itself; the noise of each is 5/4 of
        that of one effect, over the share of its records. For ``estimand="ate"``.
    residual_scale
        Public guess of the standard deviation of the outcome given the covariates, in units of the
        outcome. Without one that of the outcome itself is released first, for 3 to 10 % of epsilon
        (Theorem 31), and clips follow it; below n epsilon = 1,000 half of the outcome bound stands
        for it. Of an event of probability q it is ``sqrt(q (1 - q))``: .3 for one in ten, and
        without one the largest, .5.
    curved
        At most three of the covariates whose squares and products are adjusted for as well. By
        name, or their numbers among those adjusted for. Where a square drives treatment and outcome
        no line is enough.
    confounding
        Public guess: how many standard deviations the arms' means lie apart at most, in any
        combination of covariates. The interval allows for it; it is not used where the propensity
        is public. From 1.2 on a regression alone answers by default, but for outcomes of two
        values. Of more than two arms it is where the released distance of every arm starts from.
    collinearity
        Public guess: the least variance of a combination of standardized covariates, 1 where they
        are independent. Less makes the interval wider.
    heterogeneity
        Public guess: the standard deviation of effects given the covariates, in that of residuals;
        0 where all effects are equal. More makes the interval wider, unless half are treated.
    effect_center
        Public guess of the effect, from which estimates of single records are measured: that where
        all scaled covariates are 0, released, if there is none.
    level
        Coverage of the interval.
    interval
        "effect": for the effect, allowing for the confounding that the released regressions leave;
        "score": for the population mean of the records' estimates at these regressions, whatever
        they are. Risks have the second alone.
    settings
        What replaces the public rule of use, such as a propensity of 0.5 for a randomized trial. By
        the names of :class:`~dp2erm_cvx.plan.EffectSettings`.
    weights
        A scheme of balancing weights, or its registered name, whose weighted residuals answer in
        place of inverse propensities (Theorem 28); for ``estimand="ate"``. "entropy_balancing" by
        its name has a rule of use; a setting ``treated`` of a scheme becomes the released share of
        the treated. For whoever has a scheme to answer for: without one errors are no larger.

    Attributes
    ----------
    release_ : EffectRelease, the only thing to publish
    receipt_ : Receipt of the ledger, None without one

    Examples
    --------
    >>> import numpy as np
    >>> from dp2erm_cvx import Budget, Domain, PrivateEffect
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (2000, 2))
    >>> a = rng.binomial(1, 1 / (1 + np.exp(-X[:, 0])))
    >>> y = X[:, 0] + a + 0.5 * rng.standard_normal(2000)
    >>> domain = Domain(covariate_bound=1.5, outcome_bound=4.0)
    >>> model = PrivateEffect(domain, Budget(2.0), residual_scale=0.5).fit(X, a, y)
    >>> low, high = model.interval_
    >>> bool(low < model.effect_ < high)
    True
    """

    _: KW_ONLY
    estimand: str = EffectStudy.estimand
    prognostic: Sequence[str | int] | None = None
    where: Mapping[str, str | float] | None = None
    by: str | None = None
    residual_scale: float | None = EffectStudy.residual_scale
    curved: Sequence[str | int] | None = None
    confounding: float = EffectStudy.confounding
    collinearity: float = EffectStudy.collinearity
    heterogeneity: float = EffectStudy.heterogeneity
    effect_center: float | None = EffectStudy.effect_center
    level: float = 0.95
    interval: str = "effect"
    settings: Mapping[str, Any] | None = None
    weights: str | FirstStage | None = None

    def public(self) -> Domain:
        """The domain, with ``where`` and ``by`` in its codebook. Raises DeclarationError."""
        public = checked_domain(self.domain)
        if not self.where and self.by is None:
            return public
        book = public.codebook
        if book is None:
            raise DeclarationError(
                "where and by: need a codebook that declares the levels of their columns"
            )
        group = book.group if self.by is None else self.by
        where = self.where or book.where
        return replace(public, codebook=replace(book, where=where, group=group))

    def plan_after(
        self,
        n_samples: int,
        n_features: int | Sequence[str],
        before: Mapping[str, Mapping[str, Any]],
    ) -> Plan[EffectStudy]:
        """The plan where an earlier question of a study has released some of its steps.

        Parameters
        ----------
        n_samples
            Number of records.
        n_features
            Number of covariates, or their names.
        before
            The steps by name: ``of`` which question, at which ``epsilon`` of which ``budget``.

        Raises as :meth:`plan` does.
        """
        self.execution()
        study = self._study(n_samples, names_or_numbers(n_features), before)
        return self._with_execution(make_plan(study))

    def _study(
        self,
        n_samples: int,
        known: Sequence[str] | range,
        before: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> EffectStudy:
        """The effect that is declared, with the chosen covariates alone."""
        if self.interval not in TARGETS:
            raise DeclarationError(
                f"interval = {brief(self.interval)}: must be one of {', '.join(TARGETS)}"
            )
        misses(self.level)  # a level that is none is refused before any data are read
        if isinstance(known, range):
            known = self.public().columns or known
        columns = self._columns(known)
        domain = self.public().restricted(columns)
        n_features = len(columns)
        curves = self._curves(columns)
        if curves is not None:
            domain = curves.extended()
            n_features = len(domain.range_pairs)
        return EffectStudy(
            Universe(domain, n_samples, n_features),
            self.declared_budget(),
            declared=dict(self.settings or {}),
            before=dict(before),
            weights=self.weights,
            **self.settings_shared_with(EffectStudy),
        )

    def _columns(self, known: Sequence[str | int]) -> list[int]:
        """Numbers of the chosen covariates.

        Raises
        ------
        DeclarationError
            For an unknown or repeated one.
        """
        ranges = self.public().ranges
        if isinstance(ranges, tuple) and len(ranges) != len(known):
            raise DeclarationError(
                f"ranges: {len(ranges)} are declared for {len(known)} covariates"
            )
        if self.prognostic is None:
            return list(range(len(known)))
        names = [name for name in known if isinstance(name, str)]
        book = self.public().codebook
        chosen = self.prognostic if book is None else book.expanded(self.prognostic)
        return chosen_columns("prognostic", chosen, names, len(known))

    def _curves(self, columns: Sequence[int]) -> Curves | None:
        """The second-degree terms of covariates of these numbers. Raises DeclarationError."""
        if self.curved is None:
            return None
        return Curves.of(self.public().restricted(columns), self.curved)

    def asked_about(self, columns: Sequence[str]) -> AskedAbout:
        """What a look at the chosen covariates has to know of the propensity and of confounding."""
        public = self.public()
        propensity = dict(self.settings or {}).get("propensity")
        trial = public.codebook is not None and bool(public.codebook.treatment.rates)
        if isinstance(propensity, int | float | tuple | list):
            trial = True
        chosen = tuple(columns[place] for place in self._columns(columns))
        known = "constant" if trial else "estimated"
        return AskedAbout(public, chosen, float(self.confounding), known, self.advice)

    def advice(self, values: Sequence[float]) -> str:
        """Advice where outcomes have two values alone: a bounded regression is biased for them."""
        public = self.public()
        if len(values) != 2 or self.estimand == "risks":
            return ""
        if public.binary_outcome or public.treatment_cost:
            return ""
        lower, upper = values
        middle = 0.5 * lower + 0.5 * upper
        half = 0.5 * upper - 0.5 * lower
        return (
            f"the outcome is {lower:g} or {upper:g}, nothing else: declare binary_outcome "
            f"= true, outcome_center = {middle:g}, outcome_bound = {half:g}; else the effect is "
            "biased"
        )

    def _name_of_release(self, plan: Any) -> str:
        """The estimand with its groups, such as ``effect (ate by sex, where ward is North)``."""
        where = [f"where {name} is {level}" for name, level in (self.where or {}).items()]
        by = "" if self.by is None else f" by {self.by}"
        return f"effect ({', '.join([self.estimand + by, *where])})"

    def _select_columns(self, raw: Any) -> Any:
        """The records with the chosen covariates alone, and with their second-degree terms."""
        columns = self._columns(raw.columns)
        return raw.restricted(columns, self._curves(columns))

    def _make_release(
        self, plan: Any, data: Any, result: PlanResult, guarantee: Guarantee
    ) -> EffectRelease:
        """The estimates with their intervals, from what the steps released."""
        return make_effect(
            plan, result.released, data.columns, guarantee, self.level, self.interval
        )

    @property
    def effect_(self) -> float:
        """Estimate in units of the outcome."""
        return float(self.release_.estimate)

    @property
    def interval_(self) -> tuple[float, float]:
        """Its interval (low, high); an end that is not released is infinite."""
        interval = self.release_.interval
        low = -math.inf if interval.low is None else interval.low
        high = math.inf if interval.high is None else interval.high
        return low, high

    def _assumed_covariates(self, number: int | None) -> Sequence[str] | range:
        """The covariates that ``prognostic`` names or counts, and others up to their ``number``."""
        chosen = self.prognostic if isinstance(self.prognostic, list | tuple) else ()
        names = dict.fromkeys(name for name in chosen if isinstance(name, str))
        if number is None:
            places = [place + 1 for place in chosen if isinstance(place, int)]
            number = max([1, len(names), *places])
        if not names:
            return range(number)
        # The data may have these names, whatever the others are.
        return (*names, *map(str, range(len(names), number)))


@dataclass(eq=False, repr=False)
class PrivateRule(PrivateEstimator):
    """A differentially private linear treatment rule, which treats where that raises the outcome.

    Where a smaller outcome is better treat whom it leaves out: it is the same rule, and the two
    gains that a ``value_share`` releases change places.

    Where records, epsilon and covariates leave room, a regression of the outcome on the covariates
    is released first and subtracted, and a propensity by which records are matched. A public rule
    of use decides before the data are read. The rule is fitted by a loss of bounded slope, whose
    whole epsilon buys noise (Theorems 10, 13, 15 and 20).

    Parameters
    ----------
    domain, budget, noise, solver, seed, arithmetic, numerical_share, ledger, dataset
        As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`.
    outcome_scale
        Public guess of the standard deviation of the outcome, in its units. Without one losses
        follow the outcome bound, for more noise where that is generous.
    expected
        "main effect" where covariates move the outcome, "confounding" where they decide on the
        treatment. One of them or both, as is expected of the population in advance.
    settings
        What replaces the public rule of use: a propensity of 0.5 for a randomized trial, or a
        value_share of 0.2 to release what the rule is worth. By the names of
        :class:`~dp2erm_cvx.plan.RuleSettings`; ``{"center_share": None}`` for no center.

    Attributes
    ----------
    release_ : RuleRelease, the only thing to publish
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
    expected: Sequence[str] = ()
    settings: Mapping[str, Any] | None = None

    def _study(self, n_samples: int, known: Sequence[str] | range) -> RuleStudy:
        """The rule that is declared, in all covariates."""
        universe = Universe(checked_domain(self.domain), n_samples, len(known))
        own = {"declared": dict(self.settings or {}), **self.settings_shared_with(RuleStudy)}
        return RuleStudy(universe, self.declared_budget(), **own)

    def asked_about(self, columns: Sequence[str]) -> AskedAbout:
        """What a look has to know: whether the propensity is estimated, constant or public."""
        propensity = dict(self.settings or {}).get("propensity")
        known = "estimated"
        if isinstance(propensity, int | float):
            known = "constant"
        elif isinstance(propensity, tuple | list):
            known = "public"
        return AskedAbout(self.public(), tuple(columns), propensity=known, advice=self.advice)

    def _name_of_release(self, plan: Any) -> str:
        """The name of every rule."""
        return "treatment rule"

    def _make_release(
        self, plan: Any, data: Any, result: PlanResult, guarantee: Guarantee
    ) -> RuleRelease:
        """The coefficients of the rule, with whatever else the steps released."""
        return make_rule(plan, result.released, data.columns, guarantee)

    @property
    def theta_(self) -> Array:
        """Released coefficients (p,), of the constant and of the scaled covariates."""
        return np.array(self.release_.theta)

    def decision_function(self, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome.

        Covariates are scaled and clipped as in the fit; those of a data frame are found by name.

        Raises
        ------
        DataError
            For a missing column or a wrong shape.
        """
        self._refuse_unfitted()
        return effects(self.release_, X)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1}: 1 where the estimated net effect is positive."""
        self._refuse_unfitted()
        return recommend(self.release_, X)

    def _assumed_covariates(self, number: int | None) -> range:
        """As many covariates as public coefficients of a propensity are declared for."""
        if number:
            return range(number)
        public = (self.settings or {}).get("propensity")
        if isinstance(public, list | tuple):
            # One public coefficient is that of the constant.
            return range(len(public) - 1)
        return range(1)
