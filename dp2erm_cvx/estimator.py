"""The two-stage estimator: public calibration first, then the two certified solves, then the release."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dp2erm_cvx import registry
from dp2erm_cvx.calibration import Calibration, calibrate
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.diagnostics import BalanceTable, balance_table
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.mechanism import draw
from dp2erm_cvx.privacy import Budget, LossConstants, StabilityBound, public_number
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.release import Guarantee, Mechanism, Release, Standing
from dp2erm_cvx.solve import Solution, Solver, solve

#: Arithmetic is floating point, and the noise is sampled in it.
EXACT_ARITHMETIC = "exact arithmetic assumed"
#: Relative radius that the solutions behind a release are certified to.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class Plan:
    """Everything that is fixed before the data are touched."""

    bound: StabilityBound
    loss: LossConstants
    calibration: Calibration


@dataclass(frozen=True, repr=False)
class PrivateWorkings:
    """What the release must not hold: for the data holder only, never to be shared or stored with it."""

    dataset: Dataset
    records: Records
    weights: Solution
    theta: Solution
    noise: Array | None = field(default=None)

    def __repr__(self) -> str:
        return "PrivateWorkings(private: not to be shared)"

    def balance(self) -> BalanceTable:
        """Covariate balance before and after weighting, on the scaled covariates. Not private."""
        return balance_table(
            self.records.covariates, self.records.a, self.weights.value, self.dataset.columns
        )


class _TwoStage(BaseEstimator):  # type: ignore[misc]
    """Common to the private and the non-private estimator."""

    first_stage: str | FirstStage
    second_stage: str | SecondStage
    domain: Domain
    solver: str | Solver
    tolerance: float

    def predict_effect(self, X: ArrayLike) -> Array:
        """Estimated net treatment effect (m,) at raw covariates X (m, k), in units of the outcome.

        Covariates are scaled and clipped as in the fit. Raises DataError on a wrong shape, nan or inf.
        """
        check_is_fitted(self)
        table = np.asarray(X, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != self.n_features_in_:
            raise DataError(f"X has shape {table.shape}: must be (m, {self.n_features_in_})")
        wrong = np.argwhere(~np.isfinite(table))
        if len(wrong):
            raise DataError(f"row {wrong[0][0] + 1}, column {wrong[0][1] + 1} of X: not a finite number")
        return self._second().effect(self.theta_, self.domain, table)

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Recommended treatment (m,) in {0, 1}: 1 where the estimated net effect is positive."""
        return (self.predict_effect(X) > 0).astype(np.int64)

    def _first(self) -> FirstStage:
        if isinstance(self.first_stage, FirstStage):
            return self.first_stage.resolve(self.domain)
        return registry.build(registry.first_stages(), self.first_stage).resolve(self.domain)

    def _second(self) -> SecondStage:
        if isinstance(self.second_stage, SecondStage):
            return self.second_stage.resolve(self.domain)
        return registry.build(registry.second_stages(), self.second_stage).resolve(self.domain)

    def _dataset(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Dataset:
        if not isinstance(self.domain, Domain):
            raise DeclarationError(f"domain = {self.domain!r}: must be a Domain")
        named = getattr(X, "columns", None)
        columns = self.domain.columns
        dataset = Dataset.from_arrays(X, a, y, columns if named is None else tuple(named))
        if columns is not None and dataset.columns != columns:
            raise DeclarationError(
                f"the domain declares the columns {', '.join(columns)}; "
                f"the data have {', '.join(dataset.columns)}"
            )
        return dataset

    def _solve(self, dataset: Dataset, *, gamma: float, noise: Array | None) -> PrivateWorkings:
        records = self.domain.records(dataset.X, dataset.a, dataset.y)
        tolerance = public_number("tolerance", self.tolerance, above=0)
        first = self._first().instance(records)
        weights = solve(first, solver=self.solver, tolerance=tolerance, throw=False)
        second = self._second().instance(records, weights.value, gamma=gamma, noise=noise)
        # a duality gap alone cannot reach such a tolerance: the default of its own is then in force
        within = None if second.model is None else tolerance
        theta = solve(second, solver=self.solver, tolerance=within, throw=False)
        self.n_features_in_ = dataset.X.shape[1]
        self.theta_ = theta.value
        return PrivateWorkings(dataset, records, weights, theta, noise)


class PrivateTwoStageERM(_TwoStage):
    """Differentially private two-stage empirical risk minimization (Algorithm 1, DP-2ERM).

    Parameters
    ----------
    domain
        The public universe of records.
    budget
        (epsilon, delta) of this release.
    first_stage, second_stage
        Programs, or their registered names for their default settings.
    noise
        "gamma" (pure) or "gaussian" (needs delta > 0).
    split
        Share of epsilon that pays for the noise; None: chosen from public quantities.
    solver
        Name or settings of the solver of both stages.
    tolerance
        Relative radius that both solutions must be certified to; public, and looser than what the solvers
        reach, so that whether it is met does not depend on the data.
    seed
        For tests and experiments only: a seeded fit is marked as not private.

    Attributes
    ----------
    release_ : Release, the only thing to publish
    theta_ : (p,) the released parameter
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
        noise: str = "gamma",
        split: float | None = None,
        solver: str | Solver = "newton",
        tolerance: float = TOLERANCE,
        seed: int | None = None,
    ) -> None:
        self.domain = domain
        self.budget = budget
        self.first_stage = first_stage
        self.second_stage = second_stage
        self.noise = noise
        self.split = split
        self.solver = solver
        self.tolerance = tolerance
        self.seed = seed

    def plan(self, n_samples: int, n_features: int) -> Plan:
        """Stability bound, loss constants and calibration, from public quantities alone.

        Raises DeclarationError or CalibrationError where something declared is invalid or not covered.
        """
        if not isinstance(self.domain, Domain):
            raise DeclarationError(f"domain = {self.domain!r}: must be a Domain")
        if not isinstance(self.budget, Budget):
            raise DeclarationError(f"budget = {self.budget!r}: must be a Budget")
        bound = self._first().stability(n_samples, self.domain)
        loss = self._second().constants(self.domain, n_features)
        calibration = calibrate(
            bound,
            loss,
            n_samples,
            self.budget,
            noise=self.noise,
            relation=self.domain.relation,
            split=self.split,
        )
        return Plan(bound, loss, calibration)

    def fit(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> PrivateTwoStageERM:
        """Release theta from X (n, k), a (n,) in {0, 1} and y (n,).

        Raises DeclarationError or CalibrationError for what was declared, DataError for invalid data
        (for the data holder: outside the guarantee). A solution that could not be certified does not
        raise; the release then says that its guarantee is conditional.
        """
        dataset = self._dataset(X, a, y)
        plan = self.plan(dataset.n_samples, dataset.X.shape[1])
        noise = draw(plan.calibration, seed=self.seed)
        workings = self._solve(dataset, gamma=plan.calibration.gamma, noise=noise)
        self.private_workings_ = workings
        self.release_ = self._release(plan, workings)
        return self

    def _release(self, plan: Plan, workings: PrivateWorkings) -> Release:
        by_gap = workings.theta.certificate.basis == "duality gap"
        if self.seed is not None:
            standing = Standing.NOT_PRIVATE
        elif workings.weights.certified and workings.theta.certified and not by_gap:
            standing = Standing.PRIVATE
        else:
            standing = Standing.CONDITIONAL
        certified = f"solutions are certified to {self.tolerance:g} relative, which the noise does not count"
        assumptions = [*plan.bound.assumptions, certified, EXACT_ARITHMETIC]
        if by_gap:
            assumptions.append("the second stage is certified by its duality gap alone")
        calibration, columns = plan.calibration, workings.dataset.columns
        first, second = self._first(), self._second()
        guarantee = Guarantee(
            epsilon=calibration.epsilon,
            delta=calibration.delta,
            relation=self.domain.relation,
            theorem=calibration.theorem,
            stability_theorem=plan.bound.theorem,
            assumptions=tuple(assumptions),
            standing=standing,
        )
        mechanism = Mechanism(
            noise=calibration.noise,
            scale=calibration.scale,
            gamma=calibration.gamma,
            split=calibration.split,
            stability=plan.bound.V,
            weight_bound=plan.bound.w_max,
            sensitivity=calibration.sensitivity,
            gradient_radius=plan.loss.gradient_radius,
            hessian_trace=plan.loss.hessian_trace,
            strong_convexity=plan.loss.strong_convexity,
        )
        return Release(
            theta=tuple(float(value) for value in workings.theta.value),
            parameters=second.parameter_names(columns, self.domain),
            columns=columns,
            n_samples=workings.dataset.n_samples,
            guarantee=guarantee,
            mechanism=mechanism,
            domain=self.domain.to_dict(),
            first_stage={"name": first.name, "settings": first.settings()},
            second_stage={"name": second.name, "settings": second.settings()},
        )

    def __getstate__(self) -> dict[str, Any]:
        # a pickle travels: it carries the release, not the private workings
        return {name: value for name, value in super().__getstate__().items() if name != "private_workings_"}


class TwoStageERM(_TwoStage):
    """The same two stages without noise and gamma. NOT private: for public data and comparisons only."""

    private = False

    def __init__(
        self,
        domain: Domain,
        first_stage: str | FirstStage = "entropy_balancing",
        second_stage: str | SecondStage = "itr",
        *,
        gamma: float = 1e-6,
        solver: str | Solver = "newton",
        tolerance: float = TOLERANCE,
    ) -> None:
        self.domain = domain
        self.first_stage = first_stage
        self.second_stage = second_stage
        self.gamma = gamma
        self.solver = solver
        self.tolerance = tolerance

    def fit(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> TwoStageERM:
        """Fit without privacy; ``gamma`` > 0 keeps theta unique."""
        self.workings_ = self._solve(self._dataset(X, a, y), gamma=self.gamma, noise=None)
        return self
