"""How wide intervals of several arms are beside what their errors need.

``python several_arms_width.py 30`` prints the table as CSV: for every contrast of four populations
its coverage and its half width over the .95 quantile of the errors. Populations have three or four
arms. Neighboring columns are correlated, and the first ones may be rare switches. Log odds of the
arms and effects vary along lines in the columns, and everything is declared by its range alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from common import repeated
from scipy.stats import norm

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment

LEVELS = "abcd"
#: What the mean outcome of an arm exceeds that of the arm before it by.
STEP = 0.4
#: Records from which means, covariances and intercepts of a population are computed.
LARGE = 100_000
#: Spreads of the log odds of an arm, of the outcome and of the effects of an arm along their lines.
SPREADS = {"odds": 0.6, "outcome": 1.0, "effect": 0.25}
#: Parts of the outcome's line: along the confounding of the last arm with the first, and elsewhere.
CONFOUNDED = 0.8
ELSEWHERE = 0.6


@dataclass(frozen=True)
class Shape:
    """What a population is made of.

    Parameters
    ----------
    seed
        Seed of the lines of the population.
    n_samples
        Records of a sample, which are answered at epsilon 1.
    n_columns
        Columns, switches included.
    shares
        Shares of the arms.
    correlation
        Correlation of neighboring columns before switches are made of them.
    switches
        Shares of ones of the first columns, which are 0 or 1.
    """

    seed: int
    n_samples: int
    n_columns: int
    shares: tuple[float, ...]
    correlation: float
    switches: tuple[float, ...] = ()


SHAPES = (
    Shape(68, 16_000, 6, (0.4, 0.3, 0.2, 0.1), 0.6, (0.05,)),
    Shape(69, 6_000, 4, (0.6, 0.25, 0.15), 0.3, (0.04,)),
    Shape(66, 10_000, 5, (0.5, 0.3, 0.2), 0.6),
    Shape(65, 8_000, 8, (0.45, 0.3, 0.15, 0.1), 0.5, (0.3, 0.08, 0.03)),
)


@dataclass(frozen=True)
class Lines:
    """Coefficients of a population.

    Parameters
    ----------
    center
        Means (p,) of the columns, from which all lines are measured.
    intercepts
        Intercepts (K,) of the log odds of the arms.
    odds
        Slopes (K, p) of the log odds.
    outcome
        Slopes (p,) of the outcome in every arm.
    effects
        Slopes (K, p) of the effects of the arms.
    """

    center: np.ndarray
    intercepts: np.ndarray
    odds: np.ndarray
    outcome: np.ndarray
    effects: np.ndarray

    def chances(self, X: np.ndarray) -> np.ndarray:
        """Probabilities (n, K) of the arms at columns (n, p)."""
        return softmax(self.intercepts + (X - self.center) @ self.odds.T)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities (n, K) of these log odds."""
    chances = np.exp(logits)
    return chances / chances.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class Population:
    """A population of several arms, from which samples are drawn.

    Parameters
    ----------
    shape
        What it is made of.
    """

    shape: Shape

    @property
    def levels(self) -> list[str]:
        """The labels of its arms."""
        return list(LEVELS[: len(self.shape.shares)])

    @property
    def columns(self) -> list[str]:
        """The names of its columns."""
        return [f"x{number}" for number in range(self.shape.n_columns)]

    def covariates(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Columns (n, p): normal numbers, of which the first ones become switches."""
        order = np.arange(self.shape.n_columns)
        distances = abs(order[:, None] - order)
        root = np.linalg.cholesky(self.shape.correlation**distances)
        X = rng.standard_normal((n, self.shape.n_columns)) @ root.T
        for column, share in enumerate(self.shape.switches):
            X[:, column] = X[:, column] > norm.isf(share)
        return X

    @cached_property
    def lines(self) -> Lines:
        """Its coefficients, drawn by the seed of its shape."""
        rng = np.random.default_rng([3, self.shape.seed])
        large = self.covariates(LARGE, np.random.default_rng(5))
        center = large.mean(axis=0)
        covariance = np.cov(large.T)
        deviations = np.sqrt(np.diag(covariance))

        def spread_of(line: np.ndarray) -> float:
            return float(np.sqrt(line @ covariance @ line))

        def drawn_line(size: float) -> np.ndarray:
            line = rng.standard_normal(self.shape.n_columns) / deviations
            return size * line / spread_of(line)

        odds = np.array([drawn_line(SPREADS["odds"]) for _ in self.levels])
        elsewhere = drawn_line(SPREADS["outcome"])
        effects = np.array([drawn_line(SPREADS["effect"]) for _ in self.levels])
        confounding = odds[-1] - odds[0]
        outcome = CONFOUNDED * confounding / spread_of(confounding) + ELSEWHERE * elsewhere
        intercepts = intercepts_of(np.array(self.shape.shares), (large - center) @ odds.T)
        return Lines(center, intercepts, odds, outcome, effects)

    def sample(self, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
        """A table of columns, labels of arms (n,), and outcomes (n,).

        Residuals are standard normal.
        """
        n = self.shape.n_samples
        rng = np.random.default_rng([9, seed])
        X = self.covariates(n, rng)
        below = np.cumsum(self.lines.chances(X), axis=1)
        arm = (rng.random(n)[:, None] > below).sum(axis=1)
        arm = np.minimum(arm, len(self.levels) - 1)
        away = X - self.lines.center
        varying = (away * self.lines.effects[arm]).sum(axis=1)
        y = away @ self.lines.outcome + STEP * arm + varying + rng.standard_normal(n)
        table = pd.DataFrame(X, columns=self.columns)
        for column in self.switches:
            table[column] = np.where(table[column] > 0.0, "1", "0")
        return table, np.array(self.levels)[arm], y

    @property
    def switches(self) -> list[str]:
        """The names of the columns that are 0 or 1."""
        return self.columns[: len(self.shape.switches)]

    @property
    def domain(self) -> Domain:
        """What is declared: ranges of three standard deviations, and levels of the switches."""
        book = Codebook(
            Treatment("arm", levels=self.levels, contrasts="pairs"),
            "y",
            levels=dict.fromkeys(self.switches, ("1",)),
        )
        numbers = self.columns[len(self.switches) :]
        ranges = book.ranges(dict.fromkeys(numbers, (-3.0, 3.0)))
        return Domain(book.norm(ranges), 8.0, ranges=ranges, codebook=book)


def intercepts_of(shares: np.ndarray, logits: np.ndarray) -> np.ndarray:
    """Intercepts (K,) at which the arms have these shares, for log odds (n, K) without any."""
    intercepts = np.log(shares)
    for _ in range(200):
        found = softmax(intercepts + logits).mean(axis=0)
        intercepts = intercepts + 0.7 * (np.log(shares) - np.log(found))
    return intercepts


def measured(population: Population, runs: int) -> Iterator[tuple[str, float, float]]:
    """Every contrast, its coverage, and its half width over the .95 quantile of the errors.

    A contrast without an interval counts for its error alone.
    """
    rows: dict[str, list[tuple[float, bool, float]]] = {}
    for seed in range(runs):
        model = PrivateEffect(population.domain, Budget(1.0), seed=seed)
        release = model.run_plan(*model.plan_and_data(*population.sample(seed))).release
        for one in release.arms.contrasts:
            truth = STEP * (LEVELS.index(one.level) - LEVELS.index(one.against))
            holds = one.interval.low <= truth <= one.interval.high
            row = (abs(one.estimate - truth), holds, one.interval.half_width)
            rows.setdefault(f"{one.level} - {one.against}", []).append(row)
    for contrast, of_contrast in rows.items():
        errors, holds, half_widths = np.array(of_contrast, dtype=float).T
        stated = np.isfinite(half_widths)
        needed = np.quantile(errors, 0.95)
        yield contrast, holds[stated].mean(), np.median(half_widths[stated]) / needed


def main(runs: int) -> None:
    """Print one line for every contrast of every population."""
    print("arms,columns,correlation,n epsilon,runs,contrast,coverage,half width over needed")
    for shape in SHAPES:
        head = f"{len(shape.shares)},{shape.n_columns},{shape.correlation:g},{shape.n_samples}"
        for contrast, coverage, ratio in measured(Population(shape), runs):
            print(f"{head},{runs},{contrast},{coverage:.2f},{ratio:.2f}", flush=True)


if __name__ == "__main__":
    main(repeated(__doc__, 30).runs)
