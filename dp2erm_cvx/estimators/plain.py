"""The two-stage estimator without privacy."""

from __future__ import annotations

from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.estimators.base import TOLERANCE, PrivateWorkings, TwoStageBase
from dp2erm_cvx.program import FirstStage, SecondStage
from dp2erm_cvx.public import public_number
from dp2erm_cvx.solve import Solver
from dp2erm_cvx.steps import solve_theta, solve_weights


class TwoStageERM(TwoStageBase):
    """The same two stages without noise and gamma. NOT private: for public data and comparisons only.

    Parameters
    ----------
    domain
        The universe of records, which scales and clips them as it does for a private fit.
    first_stage, second_stage
        Programs, or their registered names for their default settings.
    gamma
        Above 0: coefficient of ``||theta||^2 / 2``, which keeps theta unique.
    solver
        Solver of both stages, or its name.
    tolerance
        Relative radius that both solutions are certified to; a fit that is not raises.
    """

    private = False

    def __init__(
        self,
        domain: Domain,
        first_stage: str | FirstStage = "entropy_balancing",
        second_stage: str | SecondStage = "itr",
        *,
        gamma: float = 1e-6,
        solver: str | Solver = "first_certified",
        tolerance: float = TOLERANCE,
    ) -> None:
        self.domain = domain
        self.first_stage = first_stage
        self.second_stage = second_stage
        self.gamma = gamma
        self.solver = solver
        self.tolerance = tolerance

    def fit(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> TwoStageERM:
        """Fit without privacy; ``gamma`` > 0 keeps theta unique.

        Raises DeclarationError and DataError as the private fit does. Nothing here hides what the records
        are like, so a solution that is not certified to ``tolerance`` is refused: InfeasibleError where no
        weights meet the constraints, with the covariates in the way and the smallest tolerance of the program
        that they can be met within, SolverError where no point was found, else CertificateError.
        """
        dataset = self.dataset_from(X, a, y)
        records = self.domain.records(dataset.X, dataset.a, dataset.y)
        tolerance = public_number("tolerance", self.tolerance, above=0)
        weights = solve_weights(self.resolved_first_stage().instance(records), self.solver, tolerance)
        instance = self.resolved_second_stage().instance(records, weights.value, gamma=self.gamma)
        theta = solve_theta(instance, self.solver, tolerance)
        self.workings_ = PrivateWorkings(dataset, records, weights, theta)
        self._remember(dataset, theta.value)
        return self
