"""A private average effect with an interval: nuisances first, then one score per record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.blocked import BlockedDataset
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.estimators.fitting import TOLERANCE, PrivateEstimator, named_dataset
from dp2erm_cvx.estimators.in_blocks import in_blocks
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.mechanism import private_choice
from dp2erm_cvx.plan import NUMERICAL_SHARE, EffectPlan, EffectStudy, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.private_ranges import PrivateRanges
from dp2erm_cvx.public import chosen_columns
from dp2erm_cvx.release.effect import EffectRelease, make_effect
from dp2erm_cvx.release.interval import misses
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.steps import Term
from dp2erm_cvx.universe import Universe


class PrivateEffect(PrivateEstimator):
    """A differentially private average treatment effect, doubly robust, with an interval.

    An outcome regression and a propensity are released first, by the perturbed programs of this library at
    weights 1. Given them every record has one score, whose mean and second moment are released together
    (Theorems 10 and 12).

    Parameters
    ----------
    domain
        The public universe of records; or :class:`~dp2erm_cvx.private_ranges.PrivateRanges`, to release
        ranges that nobody declares from a share of epsilon. Guesses and settings are then in units of half
        the released range of the outcome.
    budget
        (epsilon, delta) of this release.
    estimand
        "ate", "att", "overlap" or "risks", see :class:`~dp2erm_cvx.plan.EffectStudy`.
    prognostic
        Names, or column numbers, of the covariates to adjust for: a public choice; None for all. The name of
        a column with levels stands for all of them. Fewer columns mean less noise; leaving a confounder out
        means bias.
    residual_scale
        Public guess of the standard deviation of the outcome given the covariates, which clips and losses
        follow. Without one they follow the outcome bound, for about twice the noise.
    effect_center
        Public guess of the effect, which the score is measured from; None: taken from the regression.
    level
        Of the interval.
    settings
        What replaces the public rule of use, by the names of :class:`~dp2erm_cvx.plan.EffectSettings`: such
        as ``{"propensity": 0.5}`` for a randomized trial.
    public_center
        A public regression of the outcome, or an earlier release in the same domain, see
        :class:`~dp2erm_cvx.plan.EffectStudy`.
    noise
        "gamma" (pure), "gaussian" (needs delta > 0), "box": pure, and less than gamma noise where records are
        at the corners of their ranges, which it needs; or "auto": gamma or box noise, the shorter.
    solver, seed, arithmetic, numerical_share, ledger, dataset
        As in :class:`~dp2erm_cvx.estimators.PrivateTwoStageERM`.

    Attributes
    ----------
    release_ : EffectRelease, the only thing to publish
    effect_ : float, the estimate
    interval_ : (low, high), infinite where the effect among the treated has no finite end
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

    def __init__(
        self,
        domain: Domain | PrivateRanges,
        budget: Budget,
        *,
        estimand: str = "ate",
        prognostic: Sequence[str | int] | None = None,
        residual_scale: float | None = None,
        effect_center: float | None = None,
        level: float = 0.95,
        settings: Mapping[str, Any] | None = None,
        public_center: Term | EffectRelease | None = None,
        noise: str = "gamma",
        solver: str | Solver = "first_certified",
        seed: int | None = None,
        arithmetic: str = "auto",
        numerical_share: float = NUMERICAL_SHARE,
        ledger: Ledger | None = None,
        dataset: str | None = None,
    ) -> None:
        self.domain = domain
        self.budget = budget
        self.estimand = estimand
        self.prognostic = prognostic
        self.residual_scale = residual_scale
        self.effect_center = effect_center
        self.level = level
        self.settings = settings
        self.public_center = public_center
        self.noise = noise
        self.solver = solver
        self.seed = seed
        self.arithmetic = arithmetic
        self.numerical_share = numerical_share
        self.ledger = ledger
        self.dataset = dataset

    #: Nothing here has weights whose tolerance a bound counts.
    tolerance = TOLERANCE

    def plan(self, n_samples: int, n_features: int) -> EffectPlan:
        """The calibrated steps for ``n_features`` covariates of the data, from public quantities alone.

        Raises DeclarationError or CalibrationError where something declared is invalid or not covered.
        """
        known = self._public().columns or range(n_features)
        return make_plan(self._study(n_samples, self._columns(known)))

    def check(self, columns: Sequence[str] | None = None) -> None:
        """Judge what is declared, before any data are read, and with any number of records.

        ``columns`` name the covariates of the data where that is known. Raises DeclarationError or
        SolverError as a fit does.
        """
        public = self._public()
        known = columns or public.columns
        if known is None:
            ranges, chosen = public.ranges, self.prognostic or (self.settings or {}).get("cells")
            number = len(chosen) if chosen else 1 if ranges is None else len(ranges)
            self._study(2, range(number if ranges is None else min(number, len(ranges))))
        else:
            self._study(2, self._columns(known))

    def _study(self, n_samples: int, columns: Sequence[int]) -> EffectStudy:
        """What is declared, for the covariates of these numbers."""
        misses(self.level)  # a level that is none is refused before any data are read
        self.execution()
        chosen = self._public().restricted(columns)
        ranges = chosen if isinstance(chosen, PrivateRanges) else None
        domain = chosen.domain(len(columns)) if isinstance(chosen, PrivateRanges) else chosen
        return EffectStudy(
            Universe(domain, n_samples, len(columns)),
            self.declared_budget(),
            estimand=self.estimand,
            residual_scale=self.residual_scale,
            effect_center=self.effect_center,
            public_center=self._public_center(domain, len(columns)),
            declared=dict(self.settings or {}),
            noise=self.noise,
            arithmetic=self.arithmetic,
            numerical_share=self.numerical_share,
            ranges=ranges,
        )

    def _public(self) -> Domain | PrivateRanges:
        """What is declared about the records. Raises DeclarationError where noise of it is not installed."""
        if type(self.domain) is not PrivateRanges:
            return self.declared()[0]
        if self.seed is None:
            private_choice(1, 1.0)  # needs OpenDP: told before any data are read
        return self.domain

    def dataset_from(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Dataset:
        """Checked raw data (n, k), (n,), (n,), with names. Raises DataError or DeclarationError."""
        public = self._public()
        if isinstance(public, PrivateRanges):
            return named_dataset(public, X, a, y)
        return super().dataset_from(X, a, y)

    def fit(
        self, X: ArrayLike | BlockedDataset, a: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> PrivateEffect:
        """Release the effect from X (n, k), a (n,) in {0, 1} and y (n,), or from a blocked dataset alone.

        Raises as :meth:`PrivateTwoStageERM.fit <dp2erm_cvx.estimators.PrivateTwoStageERM.fit>` does.
        """
        raw = self._data(X, a, y)
        columns = self._columns(raw.columns)
        plan, data = make_plan(self._study(raw.n_samples, columns)), raw.restricted(columns)
        execution = in_blocks(plan, data, self.execution())
        self.receipt_ = self._charge(plan, "average effect")
        found = plan.run(data, execution)
        self.release_ = self._stated(make_effect(plan, found, data.columns, execution, self.level))
        self.effect_ = self.release_.estimate
        low, high = self.release_.interval.low, self.release_.interval.high
        self.interval_ = (-math.inf if low is None else low, math.inf if high is None else high)
        self.n_features_in_, self.feature_names_in_ = len(raw.columns), np.array(raw.columns, dtype=object)
        return self

    def prepared(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> tuple[EffectPlan, Dataset]:
        """The plan of a fit to raw data, and the records of the chosen covariates that it is run on."""
        raw = self.dataset_from(X, a, y)
        columns = self._columns(raw.columns)
        return make_plan(self._study(raw.n_samples, columns)), raw.restricted(columns)

    def _public_center(self, domain: Domain, n_features: int) -> Term | None:
        earlier = self.public_center
        if not isinstance(earlier, EffectRelease):
            return earlier
        if earlier.ranges or earlier.domain != domain.to_dict() or len(earlier.columns) != n_features:
            raise DeclarationError("public_center: the earlier release is of another domain")
        if not earlier.private and self.seed is None:
            raise DeclarationError(
                f"public_center: the earlier release is {earlier.standing}, hence not public"
            )
        return earlier.center

    def _columns(self, known: Sequence[str | int]) -> list[int]:
        """Numbers of the chosen covariates. Raises DeclarationError on an unknown or repeated one."""
        ranges = self._public().ranges
        if isinstance(ranges, tuple) and len(ranges) != len(known):
            raise DeclarationError(f"ranges: {len(ranges)} are declared for {len(known)} covariates")
        if self.prognostic is None:
            return list(range(len(known)))
        names, book = [name for name in known if isinstance(name, str)], self._public().codebook
        chosen = self.prognostic if book is None else book.expanded(self.prognostic)
        return chosen_columns("prognostic", chosen, names, len(known))
