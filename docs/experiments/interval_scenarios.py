"""Worlds whose effect is known, and what is declared about them: the scenarios of coverage.toml."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, ndtr
from scipy.stats import norm

from dp2erm_cvx import Codebook, Domain, OpenDomain

EFFECT = 0.5


@dataclass(frozen=True)
class Cell:
    """A population with linear outcomes and residuals of standard deviation 1.

    ``curve`` or ``binary`` make other outcomes. ``odds`` is the standard deviation of the log odds
    of treatment, ``signal`` that of the outcome's line, ``agree`` the correlation of both lines,
    ``varying`` the standard deviation of effects. ``near`` is the correlation of neighboring
    covariates; ``lowest`` puts the line of treatment where they vary least. What is declared:
    ranges of three standard deviations, moved by ``off`` of them and widened by ``wide``, by
    ``uneven`` that of the covariate on which treatment depends most, the mean outcome ``level`` off
    its center, and ``declared`` to the estimator. ``right`` says whether all is right that an
    interval rests on, ``shown`` whether the cell is in the short table.
    """

    name: str
    n: int
    epsilon: float
    p: int = 5
    law: str = "normal"
    near: float = 0.3
    treated: float = 0.5
    odds: float = 0.9
    agree: float = 0.8
    signal: float = 1.0
    varying: float = 0.0
    curve: float = 0.0
    unlike: float = (
        0.0  # what the square of treatment's line adds to log odds: arms then vary differently
    )
    residuals: str = "normal"
    binary: bool = False
    event: bool = False  # that it is, is declared
    lowest: bool = False
    switches: float = 0.5
    off: float = 0.0
    wide: float = 1.0
    uneven: float = 1.0
    level: float = 0.0
    levels: tuple = ("1",)  # of columns that are 0 or 1; none where they are declared as numbers
    center: bool = False
    bound: float = 6.0
    scale: float = 1.0  # 0: no residual scale is declared
    delta: float = 0.0
    declared: dict = field(default_factory=dict)
    right: bool = True
    shown: bool = False
    private: float = 0.0  # of epsilon, for ranges of which nothing is known
    of: str = ""  # what is estimated, where it is no average effect

    def covariates(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Covariates of n records, (n, p)."""
        p, order = self.p, np.arange(self.p)
        white = rng.standard_normal((n, p))
        Z = white @ np.linalg.cholesky(self.near ** np.abs(order[:, None] - order)).T
        if self.law == "uniform":
            return (2 * ndtr(Z) - 1) * math.sqrt(3)
        if self.law == "clusters":  # two, as far apart as nine of their standard deviations
            side = np.where(Z[:, :1] > 0.0, 1.0, -1.0)
            return 0.95 * side + 0.21 * rng.standard_normal((n, p))
        if self.law == "lognormal":
            return np.exp(0.6 * Z)
        if self.law == "t4":
            return rng.standard_t(4, (n, p)) / math.sqrt(2)
        if self.law == "factor":
            signs = np.random.default_rng(p).choice([-1, 1], p)
            return (
                self.near * signs * rng.standard_normal((n, 1))
                + math.sqrt(1 - self.near**2) * white
            )
        if self.law == "switches":
            on = Z[:, : (p + 1) // 2]
            on[:] = on > norm.isf(self.switches)
        return Z

    def lines(self) -> tuple:
        """Means and deviations of covariates; slopes of outcome, log odds, effect; a constant."""
        rng = np.random.default_rng([11, self.p, int(100 * self.treated)])
        big = self.covariates(100_000, np.random.default_rng(5))
        S = np.cov(big.T).reshape(self.p, self.p)
        sd = np.sqrt(np.diag(S))

        def drawn(past: np.ndarray | None = None) -> np.ndarray:
            line = rng.standard_normal(self.p) / sd
            if past is not None and self.p > 1:
                line = line - (line @ S @ past) / (past @ S @ past) * past
            return line / math.sqrt(line @ S @ line)

        odds = drawn()
        if self.lowest:
            odds = np.linalg.eigh(S / np.outer(sd, sd))[1][:, 0] / sd
            odds /= math.sqrt(odds @ S @ odds)
        turn = self.agree if self.p > 1 else 1.0
        slopes = self.signal * (turn * odds + math.sqrt(1 - turn**2) * drawn(odds))
        varying = self.varying * (0.7 * odds + math.sqrt(0.51) * drawn(odds))
        line = (big - big.mean(0)) @ odds * self.odds
        low, high = -9.0, 9.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (
                (middle, high) if expit(middle + line).mean() < self.treated else (low, middle)
            )
        return big.mean(0), sd, slopes, self.odds * odds, varying, middle

    def propensity(self, X: np.ndarray, lines: tuple) -> np.ndarray:
        """Probabilities of treatment (n,)."""
        line = (X - lines[0]) @ lines[3]
        return expit(lines[5] + line + self.unlike * ((line / self.odds) ** 2 - 1))

    def means(self, X: np.ndarray, lines: tuple) -> tuple[np.ndarray, np.ndarray]:
        """Expected outcomes untreated and treated, (n,) each."""
        mean, _, slopes, odds, varying, _ = lines
        line = (X - mean) @ slopes
        if (
            self.binary and self.curve
        ):  # lines between 0 and 1: three records in ten thousand are cut
            share = self.level * (1 + np.clip(0.4 * line, -0.9, 0.9))
            return share, share + 0.4 * self.level
        if self.binary:
            return expit(line + self.level - 0.5), expit(line + self.level + (X - mean) @ varying)
        line = line + self.level + self.curve * (((X - mean) @ odds / self.odds) ** 2 - 1)
        return line + EFFECT, line + 2 * EFFECT + (X - mean) @ varying

    def truth(self, lines: tuple) -> float:
        """The average effect."""
        big = self.covariates(400_000 if self.binary else 2, np.random.default_rng(6))
        untreated, treated = self.means(big, lines)
        return float(np.mean(treated - untreated)) if self.binary else EFFECT

    def truths(self, lines: tuple, model: Any) -> dict[str, float]:
        """Truths of a fitted ``model``, by the names of its answers: at 100,000 people."""
        big = self.covariates(100_000, np.random.default_rng(6))
        untreated, treated = self.means(big, lines)
        effect, u, t = treated - untreated, untreated.mean(), treated.mean()
        if self.of == "value":
            treats = model.predict(pd.DataFrame(big, columns=[f"x{k}" for k in range(self.p)]))
            return {
                "treating nobody": np.mean(effect * treats),
                "treating everybody": np.mean(effect * (treats - 1)),
            }
        if self.of == "risks":
            return {"": t - u, "risk ratio": t / u, "odds ratio": t / (1 - t) * (1 - u) / u}
        weights = self.propensity(big, lines)
        if self.of == "overlap":  # of the released propensity
            slopes = next(
                one for one in model.release_.nuisances if one.step == "propensity"
            ).coefficient
            weights = expit(slopes[0] + self.domain(lines).features(big) @ np.array(slopes[1:]))
            weights = np.minimum(weights, 1 - weights)
        return {"": weights @ effect / weights.sum()}

    def draw(self, seed: list[int], lines: tuple) -> tuple:
        """Covariates, treatments and outcomes."""
        rng = np.random.default_rng(seed)
        X = self.covariates(self.n, rng)
        a = (rng.random(self.n) < self.propensity(X, lines)).astype(int)
        y = np.where(a == 1, *self.means(X, lines)[::-1])
        if self.binary:
            y = (rng.random(self.n) < y).astype(float)
        elif self.residuals == "costs":  # in proportion to the mean, as of money and days
            y = np.maximum(y + 5, 0.2) * rng.gamma(1.5, 1 / 1.5, self.n) - 5
        elif self.residuals == "t3":
            y = y + rng.standard_t(3, self.n) / math.sqrt(3)
        elif self.residuals == "skew":
            y = y + rng.exponential(size=self.n) - 1
        else:
            y = y + rng.standard_normal(self.n)
        return pd.DataFrame({f"x{k}": X[:, k] for k in range(self.p)}), a, y

    @property
    def unknown(self) -> OpenDomain:
        """What is declared of the records where ``private`` releases all of their ranges."""
        return OpenDomain(dict.fromkeys(f"x{k}" for k in range(self.p)))

    def domain(self, lines: tuple) -> Domain:
        """Domain that is declared of the records."""
        mean, sd = lines[:2]
        low, high = {"uniform": (-math.sqrt(3), math.sqrt(3)), "lognormal": (0, math.exp(1.8))}.get(
            self.law, (-3, 3)
        )
        middle, half = (
            (low + high) / 2 + self.off * sd,
            np.full(self.p, (high - low) / 2 * self.wide),
        )
        half[np.argmax(np.abs(lines[3]) * sd)] *= self.uneven
        ranges = {
            f"x{k}": (m - h, m + h) for k, (m, h) in enumerate(zip(middle, half, strict=True))
        }
        extra: dict = {}
        if self.law == "switches":
            names = [f"x{k}" for k in range((self.p + 1) // 2)]
            ranges |= dict.fromkeys(names, (0, 1))
            if self.levels:
                book = Codebook(levels=dict.fromkeys(names, self.levels))
                ranges = book.ranges({name: ranges[name] for name in ranges if name not in names})
                extra["codebook"] = book
        if self.center and "center" in [one.name for one in fields(Domain)]:
            extra["center"] = {f"x{k}": float(m) for k, m in enumerate(mean)}
        if self.event and "binary_outcome" in [one.name for one in fields(Domain)]:
            extra["binary_outcome"] = True
        outcome = (0.5, 0.5) if self.binary else (self.bound, 0.0)
        return Domain(math.sqrt(self.p), *outcome, ranges=ranges, **extra)


@dataclass(frozen=True)
class Registry(Cell):
    """Twelve columns as they come.

    Whether a record is silent is random, so that the effect among complete cases is 3.
    """

    p: int = 9
    scale: float = 4.0
    silent: float = 0.08
    fixed: bool = False  # one data set, for the spread over noise

    def lines(self) -> tuple:
        """None."""
        return ()

    def truth(self, lines: tuple) -> float:
        """The average effect."""
        return 3.0

    def draw(self, seed: list[int], lines: tuple) -> tuple:
        """The table, and its columns of treatments and outcomes."""
        n, rng = self.n, np.random.default_rng([7] if self.fixed else seed)
        age, severity = rng.normal(55, 9, n).clip(30, 80), rng.normal(5, 1.7, n).clip(0, 10)
        pulse, region = rng.normal(72, 10, n), rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
        smoker = rng.random(n) < 0.3
        u, v = (age - 55) / 9, (severity - 5) / 1.7
        treated = rng.random(n) < expit(0.7 * v + 0.3 * u + 0.4 * smoker - 0.1)
        score = 52 + treated * 3.0 - 2.5 * v - u - 1.5 * smoker + 0.7 * region + rng.normal(0, 4, n)
        arm = np.where(treated, "Verum", "placebo").astype(object)
        lost = rng.random(n) < self.silent
        arm[lost] = rng.choice(["", "unknown", "verum?"], int(lost.sum()))
        place = np.array(["North", "South", "East", "West"], dtype=object)[region]
        place[rng.random(n) < 0.03] = "Noth"
        smoke = np.where(smoker, "yes", "no").astype(object)
        smoke[rng.random(n) < 0.02] = ""
        frame = pd.DataFrame(
            {"id": np.arange(n), "date": "2021-03-05", "age": age, "severity": severity}
        )
        frame = frame.assign(pulse=pulse, region=place, smoker=smoke, arm=arm, score=score)
        frame = frame.assign(note="", batch=rng.integers(1, 9, n), updated="05.03.2021")
        frame.loc[rng.random(n) < 0.05, "score"] = np.nan
        frame.loc[rng.random(n) < 0.30, "pulse"] = np.nan
        return frame, frame["arm"], frame["score"]

    def domain(self, lines: tuple) -> Domain:
        """Domain that is declared of the table."""
        levels = {
            "region": ["North", "South", "East", "West", "other"],
            "smoker": ["yes", "no", ""],
        }
        treatment = {"column": "arm", "treated": "Verum", "control": "placebo"}
        book = Codebook(treatment, "score", levels, missing={"pulse": 70.0})
        ranges = book.ranges({"age": (30, 80), "severity": (0, 10), "pulse": (40, 110)})
        return Domain(book.norm(ranges), 25.0, 50.0, ranges=ranges, codebook=book)
