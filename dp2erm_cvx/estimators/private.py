"""The private two-stage estimator: public calibration, two certified solves, one release."""

from __future__ import annotations

import warnings

from numpy.typing import ArrayLike

from dp2erm_cvx.blocked import BlockedDataset
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.estimators.base import PrivateWorkings, TwoStageBase
from dp2erm_cvx.estimators.fitting import LEAST_TOLERANCE, TOLERANCE, PrivateEstimator
from dp2erm_cvx.estimators.in_blocks import in_blocks
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.plan import NUMERICAL_SHARE, Study, TwoStagePlan, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.public import public_number
from dp2erm_cvx.release.statement import make_release, state_guarantee
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.steps import refuse_unsolvable
from dp2erm_cvx.universe import Universe


class PrivateTwoStageERM(PrivateEstimator, TwoStageBase):
    """Differentially private two-stage empirical risk minimization (Algorithm 1, DP-2ERM).

    Parameters
    ----------
    domain
        The public universe of records.
    budget
        (epsilon, delta) of this release.
    first_stage, second_stage
        Programs, or their registered names for their default settings.
    calibration
        How noise is calibrated, one of :data:`~dp2erm_cvx.calibration.NAMES`: "sharp", "paper",
        "paper-corrected", "renyi", "output" or "auto".
    noise
        "gamma" (pure), "gaussian" (needs delta > 0) or "box" (pure, needs ranges), where the calibration
        leaves the choice.
    split
        Share of epsilon that pays for the noise; None: chosen from public quantities.
    solver
        Solver of both stages. A name is followed by Newton and projected gradient where it does not certify,
        with the same noise. Settings of your own are used alone: unless they reach as far, whether they
        certify depends on the data, and the release says that it is conditional.
    tolerance
        Relative radius that the weights must be certified to, from 1e-8 to 1e-6; counted in the bound on V,
        public, and looser than what the solvers reach, so that whether it is met does not depend on the data.
        That of theta too where exact arithmetic is assumed.
    seed
        For tests and experiments only: a seeded fit is marked as not private, and charges nothing.
    arithmetic
        "counted": the numerical error of theta is covered by noise of its own (extra ``secure``);
        "assumed": exact arithmetic is assumed, and the release says so; "auto": counted where it can be.
    numerical_share
        Share of epsilon that pays for counted arithmetic.
    value_share, value_statistic
        Share of epsilon that pays for the value of the rule against treating all and treating none, None to
        release no value; "cells" or "contrasts", see :class:`~dp2erm_cvx.calibration.numbers.ValueStatistic`.
    ledger, dataset
        The ledger to charge and the name of the data set in it, or neither. What the plan guarantees is
        charged, and on disk, before the first noise is drawn.

    Attributes
    ----------
    release_ : Release, the only thing to publish
    theta_ : (p,) the released parameter
    receipt_ : Receipt of the ledger, None without one
    private_workings_ : weights, certificates and noise, for the data holder only; dropped by pickle

    Examples
    --------
    >>> import numpy as np
    >>> from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
    >>> rng = np.random.default_rng(0)
    >>> X, a, y = rng.uniform(-1, 1, (200, 2)), rng.integers(0, 2, 200), rng.uniform(-1, 1, 200)
    >>> domain = Domain(covariate_bound=1.0, outcome_bound=1.0)
    >>> model = PrivateTwoStageERM(domain, Budget(1.0), second_stage="arm_means").fit(X, a, y)
    >>> model.release_.private
    True
    """

    def __init__(
        self,
        domain: Domain,
        budget: Budget,
        first_stage: str | FirstStage = "entropy_balancing",
        second_stage: str | SecondStage = "itr",
        *,
        calibration: str = "sharp",
        noise: str = "gamma",
        split: float | None = None,
        solver: str | Solver = "first_certified",
        tolerance: float = TOLERANCE,
        seed: int | None = None,
        arithmetic: str = "auto",
        numerical_share: float = NUMERICAL_SHARE,
        value_share: float | None = None,
        value_statistic: str = "cells",
        ledger: Ledger | None = None,
        dataset: str | None = None,
    ) -> None:
        self.domain = domain
        self.budget = budget
        self.first_stage = first_stage
        self.second_stage = second_stage
        self.calibration = calibration
        self.noise = noise
        self.split = split
        self.solver = solver
        self.tolerance = tolerance
        self.seed = seed
        self.arithmetic = arithmetic
        self.numerical_share = numerical_share
        self.value_share = value_share
        self.value_statistic = value_statistic
        self.ledger = ledger
        self.dataset = dataset

    def study(self, n_samples: int, n_features: int) -> Study:
        """What is declared, for datasets of this size. Raises DeclarationError where something is invalid."""
        domain, budget = self.declared()
        tolerance = public_number("tolerance", self.tolerance, above=0)
        if not LEAST_TOLERANCE <= tolerance <= TOLERANCE:
            raise DeclarationError(
                f"tolerance = {shown(self.tolerance)}: must be from {LEAST_TOLERANCE:g} to {TOLERANCE:g} in "
                "a private fit"
            )
        return Study(
            self.resolved_first_stage(),
            self.resolved_second_stage(),
            Universe(domain, n_samples, n_features),
            budget,
            calibration=self.calibration,
            noise=self.noise,
            split=self.split,
            tolerance=tolerance,
            arithmetic=self.arithmetic,
            numerical_share=self.numerical_share,
            value_share=self.value_share,
            value_statistic=self.value_statistic,
        )

    def plan(self, n_samples: int, n_features: int) -> TwoStagePlan:
        """Stability bound, loss constants and calibration, from public quantities alone.

        Raises DeclarationError or CalibrationError where something declared is invalid or not covered.
        """
        study, execution = self.study(n_samples, n_features), self.execution()
        plan = make_plan(study)
        refuse_unsolvable(study.first, study.universe, execution.solver)
        return plan

    def fit(
        self, X: ArrayLike | BlockedDataset, a: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> PrivateTwoStageERM:
        """Release theta from X (n, k), a (n,) in {0, 1} and y (n,), or from a blocked dataset alone.

        Raises DeclarationError or CalibrationError for what was declared, DataError for invalid data
        (for the data holder: outside the guarantee), LedgerError where the ledger refuses the charge, which
        depends on public numbers alone. A solution that could not be certified does not
        raise; the release then says that its guarantee is conditional, unless that covers any weights. Warns
        of a long solve, by public numbers, before anything is spent, and of weights 1 in place of those that
        were not found: this is for the data holder only.
        """
        dataset = self._data(X, a, y)
        plan = self.plan(dataset.n_samples, len(dataset.columns))
        execution = in_blocks(plan, dataset, self.execution())
        if (cost := plan.study.first.cost(plan.study.universe)) is not None:
            warnings.warn(cost, stacklevel=2)  # public, and before anything is spent
        self.receipt_ = self._charge(plan, f"{plan.study.first.name}, then {plan.study.second.name}", dataset)
        found = plan.run(dataset, execution)
        if found.weights.substituted:  # for the data holder: the release does not say it
            warnings.warn(f"{plan.study.first.name}: {found.weights.advice()}", stacklevel=2)
        guarantee = state_guarantee(plan, found, execution)
        self.release_ = self._stated(make_release(plan, found.released, dataset.columns, guarantee))
        theta, propensity = found.steps["theta"], found.steps.get("propensity")
        assert theta.solution is not None
        self.private_workings_ = PrivateWorkings(
            dataset, found.inputs.records, found.weights, theta.solution, theta.noise, propensity
        )
        self._remember(dataset, theta.released)
        return self
