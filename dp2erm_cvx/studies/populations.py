"""Populations that records are drawn from anew, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np

from dp2erm_cvx.datasets import (
    EFFECT_SCENARIOS,
    SCENARIOS,
    EffectSample,
    EffectScenario,
    nhefs_plasmode,
    paper_population,
    twins_population,
)
from dp2erm_cvx.studies.confounded import CONFOUNDED

#: The pairs of twins, whose file this package does not hold.
TWINS = "twins"


@functools.lru_cache(maxsize=16)
def population(name: str, twins: str | None = None, sha256: str | None = None) -> EffectScenario:
    """A population by its name: the same object for the same arguments.

    ``twins`` and ``sha256`` are the path of the Twins file and its digest, which "twins" needs. Raises
    KeyError for an unknown name, and as :func:`~dp2erm_cvx.datasets.twins_population` does.
    """
    if name == TWINS and twins is not None:
        return twins_population(twins, sha256=sha256)
    if name in EFFECT_SCENARIOS:
        return EFFECT_SCENARIOS[name]
    if name in SCENARIOS:
        return paper_population(name)
    built: Mapping[str, Callable[[], EffectScenario]] = {
        "nhefs plasmode": nhefs_plasmode,
        "confounded": CONFOUNDED.population,
    }
    return built[name]()


@functools.lru_cache(maxsize=2)
def census(one: EffectScenario, n_records: int) -> EffectSample:
    """So many records that a mean over them stands for that of the population."""
    return one.draw(n_records, np.random.default_rng([n_records, len(one.name)]))
