"""What effects are estimated from: populations that are drawn anew, and real records that stay the same."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.compare.effect_references import augmented
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import (
    EFFECT_SCENARIOS,
    SCENARIOS,
    Benchmark,
    EffectScenario,
    load_benchmark,
    load_nhefs,
    nhefs_plasmode,
    paper_population,
    twins_population,
)
from dp2erm_cvx.demo.settings import effect_domain
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.studies.confounded import CONFOUNDED

#: The pairs of twins, whose file this package does not hold.
TWINS = "twins"
#: The real records that this package holds.
NHEFS = "nhefs"
#: Public guess of the standard deviation of a change of weight in ten years, in kg.
_WEIGHT_SCALE = 7.0


@dataclass(frozen=True, eq=False)
class EffectData:
    """Records, what is declared of them, and the ``effect`` that estimates are compared with.

    ``scenario`` is the population that they are drawn from, None for real records. ``propensity`` (n,) is
    known where there is one.
    """

    dataset: Dataset
    domain: Domain
    residual_scale: float
    effect: float
    treated_only: bool = False
    scenario: EffectScenario | None = None
    propensity: Array | None = None


@functools.cache
def real_data(name: str) -> EffectData:
    """NHEFS or a benchmark. Where nobody knows its effect, the estimate without privacy stands for it.

    Raises as :func:`~dp2erm_cvx.datasets.load_benchmark` does.
    """
    own = Benchmark(load_nhefs(), effect_domain(), _WEIGHT_SCALE)
    known = own if name == NHEFS else load_benchmark(name)
    effect = augmented(in_domain(known.dataset, known.domain)).value if known.effect is None else known.effect
    return EffectData(known.dataset, known.domain, known.residual_scale, effect, known.treated_only)


def drawn_data(
    one: EffectScenario, n_samples: int, rng: np.random.Generator, *, treated_only: bool = False
) -> EffectData:
    """``n_samples`` records of a population.

    Raises DeclarationError where nobody knows its effect among the treated, which is asked for.
    """
    drawn = one.draw(n_samples, rng)
    if treated_only:
        if one.effect_on_treated is None:
            raise DeclarationError(f"{one.name}: its effect among the treated is not known")
        return EffectData(
            drawn.dataset, one.domain, one.residual_scale, one.effect_on_treated, treated_only=True
        )
    return EffectData(
        drawn.dataset,
        one.domain,
        one.residual_scale,
        one.effect,
        scenario=one,
        propensity=drawn.propensity,
    )


def in_domain(data: Dataset, domain: Domain) -> Dataset:
    """The records inside the universe, without its constant column."""
    records = domain.records(data.X, data.a, data.y)
    y = records.y + domain.outcome_center
    return Dataset(records.covariates, data.a, y, data.columns, data.treatment, data.outcome)


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
