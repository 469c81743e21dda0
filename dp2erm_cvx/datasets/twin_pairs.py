"""Pairs of Twins of whom one is seen: a population whose effect is known by design."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dp2erm_cvx.datasets.effect_scenarios import EffectScenario, population_domain
from dp2erm_cvx.datasets.twins import AMOUNTS, TWINS_SHA256, read_twins

#: Where most twin births are, as is known without the file: what :func:`twins_population` scales to [-1, 1].
#: Of cigarettes and drinks a day, which are mostly none, 0 is the center.
_USUAL = {
    "dtotord": (1, 5),
    "cigar": (-20, 20),
    "drink": (-10, 10),
    "wtgain": (0, 60),
    "gestat": (26, 40),
    "dmage": (18, 38),
    "dmeduc": (8, 16),
    "dmar": (1, 2),
    "mpcb": (0, 6),
    "nprevist": (0, 20),
}
#: What :func:`twins_population` adjusts for beside amounts: risks and levels of more than one birth in a
#: hundred, without the first level of a category. A column of a handful of records separates the arms.
_COMMON = (
    *("anemia", "diabetes", "hydra", "phyper", "incervix", "preterm", "uterine", "othermr"),
    *("adequacy=2", "adequacy=3", "resstatb=2", "resstatb=3"),
)


def twins_population(path: str | Path, *, sha256: str | None = TWINS_SHA256) -> EffectScenario:
    """Pairs of twins drawn with replacement, of whom one is seen: the effect of being the heavier on death.

    Both outcomes of a pair are in the file, so that the effect is known: by design. Who is seen is drawn
    here, the heavier the more likely the longer the mother carried, which also saves lives: the log odds are
    5 (g - 1/2), g being weeks of gestation from 17 to 47 as 0 to 1.

    Covariates are ten amounts, eight risks and four levels. Their norm is clipped at 2.5: an amount is half a
    unit or so from the middle of its usual range, and one or two of the others are present. Raises as
    :func:`read_twins` does.
    """
    known = read_twins(path, sha256=sha256)
    columns = [*AMOUNTS, *_COMMON]
    X, place = known.X[:, [known.columns.index(name) for name in columns]], columns.index("gestat")

    def propensity(x: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = expit(5.0 * (x[:, place] - 0.5))
        return found

    def people(rng: np.random.Generator, n_samples: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        rows = rng.integers(len(X), size=n_samples)
        return X[rows], known.deaths[rows]

    ranges = {
        name: ((usual[0] - low) / (high - low), (usual[1] - low) / (high - low))
        for (name, (low, high)), usual in zip(AMOUNTS.items(), _USUAL.values(), strict=True)
    }
    domain = replace(
        population_domain(2.5, 0.5, 0.5), ranges={**ranges, **dict.fromkeys(_COMMON, (-1.0, 1.0))}
    )
    gain, e = known.deaths[:, 1] - known.deaths[:, 0], propensity(X)
    return EffectScenario(
        "twins",
        float(np.mean(gain)),
        domain,
        0.5,
        people,
        propensity,
        effect_on_treated=float(np.sum(e * gain) / np.sum(e)),
    )
