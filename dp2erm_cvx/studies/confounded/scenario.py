"""A confounded scenario: who is likely to be treated would have had another outcome anyway."""

from __future__ import annotations

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from scipy.special import expit

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import Scenario, Simulation

N_COVARIATES = 5


class Strength(BaseModel):
    """``Y = mean + main X_1 + (A - 1/2)(X_3 - X_2) + noise``, ``logit P(A = 1) = share + confounding X_1``.

    X is uniform on [-1, 1]^5. Most records are treated, so in a regression of ``2 Y (2A - 1)`` with weights 1
    neither the mean outcome nor the main effect of X_1 cancels: a public center removes the mean, no constant
    removes the main effect. Weights that give each arm half of the mass at every x remove both.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    main: float
    share: float
    confounding: float
    noise: float = Field(gt=0)

    def draw(self, n_samples: int, rng: np.random.Generator) -> Simulation:
        """``n_samples`` records with what is unknown in real data."""
        X = rng.uniform(-1.0, 1.0, (n_samples, N_COVARIATES))
        propensity = expit(self.share + self.confounding * X[:, 0])
        a = (rng.random(n_samples) < propensity).astype(np.int64)
        contrast = X[:, 2] - X[:, 1]
        main = self.mean + self.main * X[:, 0]
        y = main + (a - 0.5) * contrast + self.noise * rng.standard_normal(n_samples)
        scenario = Scenario(
            "confounded",
            lambda rows: self.mean + self.main * rows[:, 0],
            lambda rows: rows[:, 2] - rows[:, 1],
            lambda rows, arm: np.full(len(rows), self.noise**2),
        )
        return Simulation(scenario, Dataset.from_arrays(X, a, y), propensity, contrast, main)
