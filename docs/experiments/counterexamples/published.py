"""Published methods as this library implements them, for ``search_additive``.

Each yields the values that it adds noise to, so that its losses are exact; ``run_stages`` runs it.
Outcomes are in [-1, 1]; covariates are in the unit ball where a method needs a bound on them, and
of norm at most 100 where it does not. Wrong on purpose: ``noise=0.5`` draws half the noise,
``sensitivity=0.5`` takes the sensitivity for half of what it is, and ``clip=0`` leaves records
where they are, which a wider outcome bound shows. ``predictions=0`` does not clip regressions.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from dp2erm_cvx import Budget, Domain
from dp2erm_cvx.audit import Noised, Split
from dp2erm_cvx.data.records import Records

sys.path.append(str(Path(__file__).parents[1]))

from competitors import (
    FoldNuisances,
    NoisyInteractions,
    NoisyLeastSquares,
    PrivatePropensity,
    SubsampleAggregate,
    WeightedLearning,
)

DOMAIN = Domain(1.0, 1.0)
WIDE = Domain(100.0, 1.0)


class UnclippedFolds(FoldNuisances):
    """Regressions of other folds as they come, with the sensitivity of clipped ones."""

    def _of_fold(self, records, rows):
        wide = replace(records.space, outcome_bound=1e6)
        return super()._of_fold(replace(records, space=wide), rows)


def private_propensity(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, clip=1):
    """Lee, Gresele, Park and Muandet (2019)."""
    stages = PrivatePropensity().stages(_records(dataset, DOMAIN, clip), Budget(epsilon, delta))
    return (yield from _altered(stages, noise, sensitivity))


def subsample_aggregate(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, clip=1):
    """Guha and Reiter (2024)."""
    # of outcomes and hence of estimates, while the sensitivity is that for 1
    bound = 1.0 if clip else 3.0
    records = replace(WIDE, outcome_bound=bound).records(*dataset)
    stages = SubsampleAggregate().stages(records, Budget(epsilon, delta))
    return (yield from _altered(stages, noise, sensitivity / bound))


def noisy_least_squares(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, clip=1):
    """Noisy second moments."""
    stages = NoisyLeastSquares().stages(_records(dataset, DOMAIN, clip), Budget(epsilon, delta))
    return (yield from _altered(stages, noise, sensitivity))


def folds_g(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, predictions=1):
    """Lebeda, Even, Bellet and Josse (2025), regressions alone."""
    return (
        yield from _folds("g", dataset, Budget(epsilon, delta), noise, sensitivity, predictions)
    )


def folds_ipw(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, clip=1):
    """Lebeda et al., inverse probabilities alone."""
    method = FoldNuisances(estimator="ipw")
    stages = method.stages(_records(dataset, WIDE, clip), Budget(epsilon, delta))
    return (yield from _altered(stages, noise, sensitivity))


def folds_aipw(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, predictions=1):
    """Lebeda et al., regressions and inverse probabilities."""
    return (
        yield from _folds("aipw", dataset, Budget(epsilon, delta), noise, sensitivity, predictions)
    )


def noisy_interactions(dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, clip=1):
    """Noisy second moments for a rule; its coefficients."""
    records = _records(dataset, DOMAIN, clip)
    stages = NoisyInteractions().stages(records, None, Budget(epsilon, delta))
    return (yield from _altered(stages, noise, sensitivity))


def weighted_learning(
    dataset, epsilon=1.0, delta=0.0, noise=1.0, sensitivity=1.0, clip=1, ridge=0.01
):
    """Giddens et al. (2023), in a trial of equal arms; the coefficients of a rule."""
    records = _records(dataset, DOMAIN, clip)
    half = np.full(records.n_samples, 0.5)
    stages = WeightedLearning(clip=0.5, ridge=ridge).stages(records, half, Budget(epsilon, delta))
    return (yield from _altered(stages, noise, sensitivity))


def _folds(estimator, dataset, budget, noise, sensitivity, predictions):
    method = (FoldNuisances if predictions else UnclippedFolds)(estimator=estimator)
    return (yield from _altered(method.stages(WIDE.records(*dataset), budget), noise, sensitivity))


def _records(dataset, domain, clip):
    X, a, y = dataset
    return (
        domain.records(X, a, y)
        if clip
        else Records(np.array(X), np.array(a), np.array(y), domain.space)
    )


def _altered(stages, noise, sensitivity):
    """The stages with another noise, and the value of the estimate."""
    sent = None
    while True:
        try:
            stage = stages.send(sent)
        except StopIteration as end:
            return getattr(end.value, "value", end.value)  # of an estimate, or of a rule
        if isinstance(stage, Noised):
            stage = replace(
                stage,
                scale=stage.scale * noise * sensitivity,
                sensitivity=stage.sensitivity * sensitivity,
            )
        assert isinstance(stage, Noised | Split)
        sent = yield stage
