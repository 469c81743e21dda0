"""Published methods as this library implements them, for ``dp2erm audit --mechanism``.

``epsilon`` is the budget that a method is asked for, so that ``--set epsilon=2`` with ``--epsilon 1`` plants
half the noise. Covariates are in the unit ball and outcomes in [-1, 1].
"""

from dp2erm_cvx import Budget, Domain
from dp2erm_cvx.studies.published import (
    FoldNuisances,
    NoisyLeastSquares,
    PrivatePropensity,
    SubsampleAggregate,
)

DOMAIN = Domain(1.0, 1.0)


def private_propensity(dataset, rng, epsilon=1.0):
    """Lee, Gresele, Park and Muandet (2019)."""
    return _estimate(PrivatePropensity(), dataset, rng, epsilon)


def subsample_aggregate(dataset, rng, epsilon=1.0):
    """Guha and Reiter (2024)."""
    return _estimate(SubsampleAggregate(), dataset, rng, epsilon)


def folds_g(dataset, rng, epsilon=1.0):
    """Lebeda, Even, Bellet and Josse (2025), regressions alone."""
    return _estimate(FoldNuisances(estimator="g"), dataset, rng, epsilon)


def folds_ipw(dataset, rng, epsilon=1.0):
    """The same, inverse probabilities alone."""
    return _estimate(FoldNuisances(estimator="ipw"), dataset, rng, epsilon)


def folds_aipw(dataset, rng, epsilon=1.0):
    """The same, both."""
    return _estimate(FoldNuisances(estimator="aipw"), dataset, rng, epsilon)


def noisy_least_squares(dataset, rng, epsilon=1.0):
    """Noisy second moments."""
    return _estimate(NoisyLeastSquares(), dataset, rng, epsilon)


def _estimate(method, dataset, rng, epsilon):
    return method(DOMAIN.records(*dataset), Budget(epsilon), rng).value
