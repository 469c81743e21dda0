"""Semi-synthetic treatments and outcomes for given covariates (Crabbe et al. 2022, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import expit

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import Scenario, Simulation
from dp2erm_cvx.errors import DeclarationError

Array = NDArray[np.float64]

#: Nonlinearities, one of which the seed draws for each score.
_CURVES: tuple[Callable[[Array], Array], ...] = (
    np.abs,
    lambda u: np.exp(-(u**2) / 2),
    lambda u: 1 / (1 + u**2),
    np.cos,
    np.arctan,
    np.tanh,
    np.sin,
    lambda u: np.log1p(u**2),
    lambda u: np.sqrt(1 + u**2),
    np.cosh,
)


class Outcomes(BaseModel):
    """The generator; everything that the paper leaves open is declared.

    ``n_important`` columns are prognostic, as many predictive for either arm, drawn without overlap from
    ``seed``, with coefficients uniform on [-1, 1]. ``nonlinearity`` = omega mixes the linear score u with a
    curve of it: ``(1 - omega) u + omega chi(u)``. ``treat_share`` is the share of records whose effect is
    positive: a constant is subtracted from the outcome under treatment until it holds. ``outcome_scale``
    multiplies outcomes. ``propensity`` is expit of ``propensity_strength`` times the z-score of the effect
    ("pred"), of the prognostic score ("prog") or of a column that matters to nothing ("irrelevant").
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n_important: int = Field(ge=1)
    nonlinearity: float = Field(ge=0, le=1)
    treat_share: float = Field(gt=0, lt=1)
    outcome_scale: float = Field(gt=0)
    propensity: Literal["pred", "prog", "irrelevant"]
    propensity_strength: float = Field(ge=0)
    noise: float = Field(ge=0)
    seed: int = Field(ge=0)

    def draw(self, X: Array, rng: np.random.Generator) -> Simulation:
        """Treatments and outcomes for the rows of X (n, d), with the truth behind them.

        The truth depends on X and on ``seed`` alone; ``rng`` draws treatments and noise. Raises
        DeclarationError where X has fewer than ``3 n_important + 1`` columns.
        """
        k, d = self.n_important, X.shape[1]
        if 3 * k + 1 > d:
            raise DeclarationError(f"n_important = {k}: needs {3 * k + 1} columns, there are {d}")
        truth = np.random.default_rng([self.seed, k, d])
        order = truth.permutation(d)
        scores = []
        for part in range(3):
            u = X[:, order[part * k : (part + 1) * k]] @ truth.uniform(-1.0, 1.0, k)
            curve = _CURVES[int(truth.integers(len(_CURVES)))]
            scores.append((1 - self.nonlinearity) * u + self.nonlinearity * curve(u))
        prognostic, control, treated = scores
        effect = treated - control
        effect = effect - np.quantile(effect, 1 - self.treat_share)
        score = {"pred": effect, "prog": prognostic, "irrelevant": X[:, order[3 * k]]}[self.propensity]
        propensity = expit(self.propensity_strength * _standardized(score))
        a = (rng.random(len(X)) < propensity).astype(np.int64)
        contrast = self.outcome_scale * effect
        main = self.outcome_scale * (prognostic + control) + contrast / 2
        y = main + (a - 0.5) * contrast + self.noise * rng.standard_normal(len(X))
        unknown = Scenario("twins", _unknown, _unknown, lambda rows, arm: np.full(len(rows), self.noise**2))
        return Simulation(unknown, Dataset.from_arrays(X, a, y), propensity, contrast, main)


def _standardized(score: Array) -> Array:
    spread = float(np.std(score))
    centered: Array = score - np.mean(score)
    return centered / spread if spread > 0 else centered


def _unknown(rows: Array) -> Array:
    raise NotImplementedError("the truth of these records is that of the rows they were drawn for")
