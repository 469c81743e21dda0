"""Least squares of the outcome on treatment and covariates, from Gaussian sufficient statistics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.audit.additive import Stages
from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.fits import deviation, noisy
from dp2erm_cvx.studies.published.method import PublishedRule, StagedEffect


@dataclass(frozen=True)
class NoisyLeastSquares(StagedEffect):
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

    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """See :class:`StagedEffect`."""
        domain = records.domain
        arm = self.treatment_scale * (records.a - 0.5)
        z = np.column_stack([records.X / domain.covariate_bound, arm, records.y / domain.outcome_bound])
        w = yield from _solved(z, 2.0 + 0.25 * self.treatment_scale**2, self.ridge, z.shape[1] - 2, budget)
        return Estimate(float(w[-1]) * self.treatment_scale * domain.outcome_bound, math.nan)


@dataclass(frozen=True)
class NoisyInteractions(PublishedRule):
    """The sign of the effect by the noisy least squares of y on x and (a - 1/2) x.

    Rows ``(x, (a - 1/2) treatment_scale x, y)`` are in the same ball as above, because ``|x| <= 1``.
    """

    source: ClassVar[str] = "sufficient statistics: Vu & Slavkovic (2009), Dwork et al. (2014)"
    assumes: ClassVar[str] = "norms of covariates, outcomes"

    treatment_scale: float = 2.0
    ridge: float = 1.0

    def stages(self, records: Records, propensity: Array, budget: Budget | None) -> Stages[Array]:
        """See :class:`PublishedRule`."""
        x, p = records.X / records.domain.covariate_bound, records.X.shape[1]
        arm = self.treatment_scale * (records.a - 0.5)[:, None] * x
        z = np.column_stack([x, arm, records.y / records.domain.outcome_bound])
        if budget is None:
            return np.asarray(np.linalg.lstsq(z[:, :-1], z[:, -1])[0][p:], dtype=np.float64)
        # the constant of the effect has no ridge, as the treatment above has none
        w = yield from _solved(z, 2.0 + 0.25 * self.treatment_scale**2, self.ridge, p, budget)
        return w[p:]


def _solved(z: Array, largest: float, ridge: float, free: int, budget: Budget) -> Stages[Array]:
    """Coefficients of the last column of z (n, m) on the others, of which number ``free`` has no ridge.

    ``largest`` bounds the squared norm of a row.
    """
    squares, columns = z.T @ z, z.shape[1]
    sides = np.triu_indices(columns)
    weight = np.where(sides[0] == sides[1], 1.0, math.sqrt(2.0))
    moves = math.sqrt(2.0) * largest
    noised = noisy(squares[sides] * weight, moves, budget)
    released = yield noised
    squares[sides] = released / weight
    squares.T[sides] = squares[sides]
    size = ridge * deviation(noised) * math.sqrt(columns)
    penalized = np.ones(columns - 1)
    penalized[free] = 0.0
    left = squares[:-1, :-1] + size * np.diag(penalized)
    lowest = float(np.linalg.eigvalsh(left)[0])
    left += max(0.0, 0.1 * size - lowest) * np.eye(columns - 1)
    return np.asarray(np.linalg.solve(left, squares[:-1, -1]), dtype=np.float64)
