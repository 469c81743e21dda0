"""The default score on public data: the estimated value of a rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.estimators import PrivateTwoStageERM

#: (fitted model, X (m, k), a (m,), y (m,)) -> score, larger is better.
Score = Callable[[PrivateTwoStageERM, Array, NDArray[np.int64], Array], float]

#: Estimated probabilities of treatment are kept this far from 0 and 1.
_LEAST_PROBABILITY = 0.02


def treatment_probabilities(dataset: Dataset, domain: Domain) -> Array:
    """Estimated probability (n,) of the treatment that each record got, by logistic regression.

    Not private. It is the same for all candidates, so that none is judged by its own weights: a candidate
    that balances nothing would otherwise be scored by confounded means, and look well.

    Raises DataError where an arm is empty.
    """
    if not 0 < int(np.sum(dataset.a)) < dataset.n_samples:
        raise DataError("the public data have records of one treatment only: no rule can be scored on them")
    model = LogisticRegression(max_iter=1000)
    features = domain.features(dataset.X)
    treated = model.fit(features, dataset.a).predict_proba(features)[:, 1]
    treated = np.clip(treated, _LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY)
    given: Array = np.where(dataset.a == 1, treated, 1.0 - treated)
    return given


def value_of_rule(chosen: NDArray[np.int64], a: NDArray[np.int64], net: Array, probability: Array) -> float:
    """Self-normalized inverse-propensity estimate of ``E[Y(d(X))]``, in units of the outcome.

    ``chosen``, ``a``, ``net`` and ``probability`` are (m,): what the rule recommends, what was given, the
    outcome less the cost of treatment, and the probability of what was given.

    Raises DataError where the rule recommends for nobody what was given.
    """
    weights = (chosen == a) / probability
    total = float(np.sum(weights))
    if total == 0.0:
        raise DataError("no record left out was treated as the rule recommends: its value has no estimate")
    return float(weights @ net) / total
