"""Covariates that decide the treatment, and covariates that do not: what a release says of either.

``python leaks.py 40`` prints the table of the page as CSV; ``--quick`` takes seconds. Two numbers
and a switch of 4,000 records at epsilon 1 and 4. The switch is the treatment always, in 98 or 90 %
of the records, or noise; a sum of both numbers decides it but for a few records; a dose is above 0
where there was treatment. Covariates that do not decide it lie .8 or 1.2 standard deviations apart,
alone or along what they have in common. The true effect is 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from common import repeated
from scipy.special import expit

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect
from dp2erm_cvx.release.effect import EffectRelease

EFFECT = 4.0
SPREAD = 5.0

#: Numbers (n, 2) between -1 and 1, the switch (n,), and arms (n,).
Drawn = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Way:
    """How covariates and treatment hang together: a ``name``, and what draws them."""

    name: str
    draw: Callable[[int, np.random.Generator], Drawn]


def told(agree: float) -> Way:
    """A switch that is the treatment in this share of the records."""

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        X = rng.uniform(-1.0, 1.0, (n, 2))
        treated = rng.random(n) < expit(1.5 * X[:, 0])
        switch = np.where(rng.random(n) < agree, treated, ~treated)
        return X, switch.astype(float), treated

    return Way(f"switch {agree:g}", draw)


def summed(n: int, rng: np.random.Generator) -> Drawn:
    """The sum of both numbers is above 0 where there was treatment, but for one record in fifty."""
    X = rng.uniform(-1.0, 1.0, (n, 2))
    treated = (X.sum(axis=1) > 0.0) ^ (rng.random(n) < 0.02)
    return X, (rng.random(n) < 0.5).astype(float), treated


def dosed(n: int, rng: np.random.Generator) -> Drawn:
    """The second number is a dose."""
    X = rng.uniform(-1.0, 1.0, (n, 2))
    treated = rng.random(n) < expit(1.5 * X[:, 0])
    X[:, 1] = np.where(treated, rng.uniform(0.2, 1.0, n), -1.0)
    return X, (rng.random(n) < 0.5).astype(float), treated


def apart(distance: float, correlation: float) -> Way:
    """Normal numbers of this ``correlation`` whose means lie ``distance`` apart along their sum."""

    def draw(n: int, rng: np.random.Generator) -> Drawn:
        treated = rng.random(n) < 0.5
        along = distance * (treated - 0.5) + np.sqrt(
            1.0 - 0.25 * distance**2
        ) * rng.standard_normal(n)
        across = rng.standard_normal(n)
        X = np.column_stack([along, along]) * np.sqrt(0.5 + 0.5 * correlation)
        X += np.column_stack([across, -across]) * np.sqrt(0.5 - 0.5 * correlation)
        return X / 3.0, (rng.random(n) < 0.5).astype(float), treated

    return Way(f"apart {distance:g}, correlation {correlation:g}", draw)


WAYS = (
    told(1.0),
    told(0.98),
    told(0.9),
    Way("sum of two", summed),
    Way("dose", dosed),
    told(0.5),
    apart(0.8, 0.0),
    apart(0.8, 0.8),
    apart(1.2, 0.0),
)
BUDGETS = ((4000, 1.0), (4000, 4.0))


def declared() -> Domain:
    """What is declared of the table."""
    book = Codebook(levels={"kit": ["A", "B"]})
    ranges = book.ranges({"u": (-1.0, 1.0), "v": (-1.0, 1.0)})
    return Domain(book.norm(ranges), 25.0, outcome_center=50.0, ranges=ranges, codebook=book)


def released(way: Way, n: int, epsilon: float, seed: int) -> EffectRelease:
    """What a fit to one sample releases."""
    rng = np.random.default_rng([7, n, seed])
    X, switch, treated = way.draw(n, rng)
    y = 50.0 - 8.0 * X[:, 0] + EFFECT * treated + SPREAD * rng.standard_normal(n)
    table = pd.DataFrame({"u": X[:, 0], "v": X[:, 1], "kit": np.where(switch == 1.0, "B", "A")})
    model = PrivateEffect(declared(), Budget(epsilon), residual_scale=SPREAD, seed=seed)
    return model.run_plan(*model.plan_and_data(table, treated.astype(int), y)).release


def measured(releases: list[EffectRelease]) -> str:
    """What is measured of a row of fits.

    It has the shares without an interval, without a wrong interval and with a widened one, the
    width, and the released distances.
    """
    stated = [one.interval for one in releases if one.overlaps]
    held = [low <= EFFECT <= high for low, high in ((one.low, one.high) for one in stated)]
    widths = [one.high - one.low for one in stated]
    widened = np.mean(["widened" in one.caveats for one in releases])
    least = [one.distance.least for one in releases if one.distance is not None]
    width = f"{np.median(widths):.2f}" if widths else ""
    none = 1.0 - len(stated) / len(releases)
    honest = none + sum(held) / len(releases)
    ends = f"{min(least):.2f} to {max(least):.2f}"
    return f"{none:.2f},{honest:.2f},{widened:.2f},{width},{ends}"


def main(runs: int) -> None:
    """Print one line for every way at every budget."""
    print("covariates,n epsilon,samples,no interval,none or holds,widened,width,apart at least")
    for way in WAYS:
        for n, epsilon in BUDGETS:
            releases = [released(way, n, epsilon, seed) for seed in range(runs)]
            name = way.name.replace(",", ";")
            print(f"{name},{n * epsilon:g},{runs},{measured(releases)}", flush=True)


if __name__ == "__main__":
    main(repeated(__doc__, 40).runs)
