"""The two-stage estimator, private and not: public calibration, two certified solves."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.counts import KINDS, refuse
from dp2erm_cvx.data.dataset import Dataset, rows_to_predict
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.diagnostics import BalanceTable, balance_table
from dp2erm_cvx.errors import DeclarationError, ProgramError, brief
from dp2erm_cvx.estimators.fitting import (
    LEAST_TOLERANCE,
    TOLERANCE,
    ConfiguredEstimator,
    PlanRun,
    PrivateEstimator,
    build_program,
    checked_domain,
)
from dp2erm_cvx.plan import Plan, PlanResult, Study
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.program.trust import refuse_patched
from dp2erm_cvx.release import Guarantee
from dp2erm_cvx.release.two_stage import Release, make_release
from dp2erm_cvx.solve import Solution, Solver, solve
from dp2erm_cvx.steps.execution import StepResult
from dp2erm_cvx.steps.weights import attainable, refuse_unsolvable, solve_weights

Stage = TypeVar("Stage", FirstStage, SecondStage)


@dataclass(frozen=True, repr=False)
class PrivateWorkings:
    """Private quantities of a fit: for the data holder only, never to be shared or stored with it.

    Parameters
    ----------
    dataset
        The raw records.
    records
        The records as the domain maps them.
    weights
        The weights of the first stage, with their certificate.
    theta
        The solution of the second stage, with its certificate.
    noise
        The noise (p,) of its objective; None without one.
    propensity
        What the step of a private coefficient found; None without one.
    """

    dataset: Dataset | BlockedDataset
    records: Records
    weights: Solution
    theta: Solution
    noise: Array | None = None
    propensity: StepResult | None = None

    def __repr__(self) -> str:
        return "PrivateWorkings(private: not to be shared)"

    def certified(self) -> bool:
        """True if the weights and theta are, and the private coefficient, if there is one."""
        first = None if self.propensity is None else self.propensity.solution
        solutions = (first, self.weights, self.theta)
        return all(solution is None or solution.certified for solution in solutions)

    def balance(self) -> BalanceTable:
        """Covariate balance before and after weighting, on the scaled covariates. Not private."""
        records = self.records
        return balance_table(
            records.covariates, records.a, self.weights.value, self.dataset.columns
        )


class TwoStageBase(ConfiguredEstimator):
    """Common to the private and the non-private estimator."""

    first_stage: str | FirstStage
    second_stage: str | SecondStage
    domain: Domain
    solver: str | Solver
    tolerance: float

    def predict_effect(self, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome.

        Covariates are scaled and clipped as in the fit; those of a data frame are found by name.

        Raises
        ------
        DataError
            For a missing column, a wrong shape, nan, inf or text.
        """
        table = self._table(X)
        return self.resolved_second_stage().effect(self._theta(), self.domain.space, table)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1}: 1 where the estimated net effect is positive."""
        second = self.resolved_second_stage()
        return second.choices(self._theta(), self.domain.space, self._table(X))

    def _theta(self) -> Array:
        """The fitted parameter."""
        fitted: Any = self
        return np.asarray(fitted.theta_)

    def _table(self, X: ArrayLike) -> Array:
        """Covariates (m, k) to predict for, in the order of the fit."""
        self._refuse_unfitted()
        return rows_to_predict(self.domain, X, list(self.feature_names_in_))

    def resolved_first_stage(self) -> FirstStage:
        """The first stage with every default filled in from the domain."""
        return self._stage("first_stage", FirstStage)  # type: ignore[type-abstract]

    def resolved_second_stage(self) -> SecondStage:
        """The second stage with every default filled in from the domain."""
        return self._stage("second_stage", SecondStage)

    def _stage(self, outer: str, kind: type[Stage]) -> Stage:
        """The program of a stage. Raises ProgramError for what is none of this ``kind``."""
        program = build_program(outer, getattr(self, outer))
        if not isinstance(program, kind):
            raise ProgramError(
                f"{outer} = {brief(program)}: must be a program of this stage, or its name"
            )
        refuse_patched(program)
        return program.resolve(self.domain.space)


@dataclass(eq=False, repr=False)
class TwoStageERM(TwoStageBase):
    """Two stages without noise and gamma. NOT private: for public data and comparisons only.

    Parameters
    ----------
    domain
        The universe of records, which scales and clips them as it does for a private fit.
    first_stage, second_stage
        As in :class:`PrivateTwoStageERM`.
    gamma
        Above 0: coefficient of ``||theta||^2 / 2``, which keeps theta unique.
    solver
        Solver of both stages, or its name.
    tolerance
        Relative radius that both solutions are certified to; a fit that is not raises.
    """

    domain: Domain
    first_stage: str | FirstStage = "entropy_balancing"
    second_stage: str | SecondStage = "itr"
    _: KW_ONLY
    gamma: float = 1e-6
    solver: str | Solver = "first_certified"
    tolerance: float = TOLERANCE

    private = False

    def fit(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> TwoStageERM:
        """Fit without privacy; ``gamma`` > 0 keeps theta unique.

        Nothing here hides what the records are like, so a solution that is not certified to
        ``tolerance`` is refused.

        Raises
        ------
        DeclarationError, DataError
            As the private fit does.
        InfeasibleError
            Where no weights meet the constraints, with the covariates in the way and the smallest
            tolerance of the program that they can be met within.
        SolverError
            Where no point was found.
        CertificateError
            Where a solution is not certified to the tolerance.
        """
        refuse(self.domain.codebook, "a fit with the weights of a first stage", *KINDS)
        dataset = Dataset.declared(checked_domain(self.domain), X, a, y)
        records = self.domain.records(dataset.X, dataset.a, dataset.y)
        tolerance = public_number("tolerance", self.tolerance, above=0)
        first = self.resolved_first_stage().instance(records)
        weights = solve_weights(first, self.solver, tolerance)
        instance = self.resolved_second_stage().instance(records, weights.value, gamma=self.gamma)
        theta = solve(instance, solver=self.solver, tolerance=attainable(instance, tolerance))
        self.workings_ = PrivateWorkings(dataset, records, weights, theta)
        self._remember_columns(dataset.columns)
        self.theta_ = theta.value
        return self


@dataclass(eq=False, repr=False)
class PrivateTwoStageERM(PrivateEstimator, TwoStageBase):
    """Differentially private two-stage empirical risk minimization (Algorithm 1, DP-2ERM).

    Parameters
    ----------
    domain, budget, noise, solver, seed, arithmetic, numerical_share, ledger, dataset
        As in :class:`~dp2erm_cvx.estimators.fitting.PrivateEstimator`.
    first_stage
        Program of the weights, or its registered name for its default settings.
    second_stage
        Program of theta, or its registered name for its default settings.
    calibration
        How noise is calibrated: "sharp", "paper", "paper-corrected", "renyi", "output" or "auto".
    split
        Share of the epsilon of theta that pays for its noise; without one it is chosen in public.
    tolerance
        Relative radius that the weights must be certified to, from 1e-8 to 1e-6; counted in the
        bound on V, public, and looser than what the solvers reach, so that whether it is met does
        not depend on the data. That of theta too where exact arithmetic is assumed.

    Attributes
    ----------
    release_ : Release, the only thing to publish
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

    first_stage: str | FirstStage = "entropy_balancing"
    second_stage: str | SecondStage = "itr"
    _: KW_ONLY
    calibration: str = Study.calibration
    split: float | None = Study.split
    tolerance: float = TOLERANCE

    def plan(self, n_samples: int, n_features: int | Sequence[str]) -> Plan[Study]:
        """The calibrated steps, as :class:`~dp2erm_cvx.estimators.PrivateEffect` has them.

        Raises
        ------
        CalibrationError
            Where a release would not have the weights that are declared.
        """
        plan = super().plan(n_samples, n_features)
        refuse_unsolvable(plan.study.first, plan.study.universe, self.solver)
        return plan

    def _study(self, n_samples: int, known: Sequence[str] | range) -> Study:
        """Both stages with every default filled in, and the tolerance of their weights."""
        domain = checked_domain(self.domain)
        budget = self.declared_budget()
        tolerance = public_number("tolerance", self.tolerance, above=0)
        if not LEAST_TOLERANCE <= tolerance <= TOLERANCE:
            wanted = f"from {LEAST_TOLERANCE:g} to {TOLERANCE:g} in a private fit"
            raise DeclarationError(f"tolerance = {brief(self.tolerance)}: must be {wanted}")
        return Study(
            first=self.resolved_first_stage(),
            second=self.resolved_second_stage(),
            universe=Universe(domain, n_samples, len(known)),
            budget=budget,
            tolerance=tolerance,
            **self.settings_shared_with(Study, "tolerance"),
        )

    def before_run(self, plan: Plan[Study], raw: Dataset | BlockedDataset) -> None:
        """Refuse a plan that cannot be run on such records, and warn of weights that take long.

        Raises ProgramError.
        """
        super().before_run(plan, raw)
        cost = plan.study.first.cost(plan.study.universe)
        if cost is not None:
            warnings.warn(cost, stacklevel=4)

    def _name_of_release(self, plan: Any) -> str:
        """The names of both programs."""
        return f"{plan.study.first.name}, then {plan.study.second.name}"

    def _warn_of_result(self, plan: Plan[Any], result: PlanResult) -> None:
        """Warn of weights 1 in place of those that were not found."""
        if result.weights.substituted:  # for the data holder: the release does not say it
            warnings.warn(f"{plan.study.first.name}: {result.weights.advice()}", stacklevel=4)

    def _make_release(
        self, plan: Any, data: Any, result: PlanResult, guarantee: Guarantee
    ) -> Release:
        """The released parameter with its guarantee."""
        return make_release(plan, result.released, data.columns, guarantee)

    def _keep_workings(self, run: PlanRun) -> None:
        """Keep weights, solutions and noise in ``private_workings_``."""
        result = run.result
        theta = result.steps["theta"]
        assert theta.solution is not None
        self.private_workings_ = PrivateWorkings(
            result.inputs.dataset,
            result.inputs.records,
            result.weights,
            theta.solution,
            theta.noise,
            result.steps.get("propensity"),
        )

    @property
    def theta_(self) -> Array:
        """The released parameter (p,)."""
        return np.array(self.release_.theta)
