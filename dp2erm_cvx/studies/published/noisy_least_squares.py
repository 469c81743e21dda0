"""Least squares of the outcome on treatment and covariates, from Gaussian sufficient statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Records
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.method import PublishedEffect
from dp2erm_cvx.studies.published.noise import deviation, noisy_vector


@dataclass(frozen=True)
class NoisyLeastSquares(PublishedEffect):
    """The coefficient of treatment, from the noisy second moments of covariates, treatment and outcome.

    Rows are scaled to ``|x| <= 1``, ``a`` in {-1/2, 1/2} times ``treatment_scale`` and ``|y| <= 1``: so that
    ``|z|^2 <= R^2`` = 2 + treatment_scale^2/4 for ``z = (x, a, y)``. ``z z'`` moves by at most sqrt(2) R^2 in
    Frobenius norm, which is the Euclidean norm of its upper triangle with the sides times sqrt(2) (Dwork,
    Talwar, Thakurta and Zhang 2014). A ridge of the size of the noise keeps the equations solvable.

    Parameters
    ----------
    treatment_scale
        Of the treatment beside covariates of norm 1.
    ridge
        In units of the noise's standard deviation times the root of the number of columns.
    """

    source: ClassVar[str] = "sufficient statistics: Vu & Slavkovic (2009), Dwork et al. (2014)"
    assumes: ClassVar[str] = "norms of covariates, outcomes"
    serves_treated: ClassVar[bool] = True

    treatment_scale: float = 1.0
    ridge: float = 1.0

    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """See :class:`PublishedEffect`."""
        domain = records.domain
        arm = self.treatment_scale * (records.a - 0.5)
        z = np.column_stack([records.X / domain.covariate_bound, arm, records.y / domain.outcome_bound])
        squares, columns = z.T @ z, z.shape[1]
        sides = np.triu_indices(columns)
        weight = np.where(sides[0] == sides[1], 1.0, math.sqrt(2.0))
        moves = math.sqrt(2.0) * (2.0 + 0.25 * self.treatment_scale**2)
        squares[sides] = noisy_vector(squares[sides] * weight, moves, budget, rng) / weight
        squares.T[sides] = squares[sides]
        scale = deviation(moves, len(weight), budget)
        ridge = self.ridge * scale * math.sqrt(columns)
        left = squares[:-1, :-1] + ridge * np.diag([*np.ones(columns - 2), 0.0])
        lowest = float(np.linalg.eigvalsh(left)[0])
        left += max(0.0, 0.1 * ridge - lowest) * np.eye(columns - 1)
        w = np.linalg.solve(left, squares[:-1, -1])
        return Estimate(float(w[-1]) * self.treatment_scale * domain.outcome_bound, math.nan)
