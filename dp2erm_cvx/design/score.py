"""Candidates that tuners compare, and how their rules are scored, on private records and on public ones.

The gain of a rule d over a coin toss on record i is ``(1{a_i = d(x_i)} - 1/2) y_i / p_{a_i}``, y the centered
net outcome and p_a the declared probability of treatment a. Under that probability its mean is the value of d
less the mean value of treat-all and treat-none. Counted in units of ``B / (2 LEVELS)``, ``B = M' /
min(p_a)``, and rounded record by record, it is a whole number between -LEVELS and LEVELS. So sums are exact,
and replacing one record moves the sum of any rule by at most 2 LEVELS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.data import Dataset, NamedColumns
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.public import one_line, public_number

Models = Mapping[str, PrivateTwoStageERM] | Sequence[PrivateTwoStageERM]


def named_models(models: Models) -> dict[str, PrivateTwoStageERM]:
    """The candidates by name; those of a list are called "candidate 1", "candidate 2" and so on."""
    if isinstance(models, Mapping):
        named = dict(models)
    elif isinstance(models, Sequence) and not isinstance(models, str):
        named = {f"candidate {place}": model for place, model in enumerate(models, start=1)}
    else:
        raise DeclarationError(f"models = {models!r}: must be a dict of names and estimators, or a list")
    if not named:
        raise DeclarationError("models: give at least one candidate")
    for name, model in named.items():
        one_line("the name of a candidate", name)
        if not isinstance(model, PrivateTwoStageERM):
            raise DeclarationError(f"models[{name!r}] = {model!r}: must be a PrivateTwoStageERM")
    return named


def common_domain(models: Mapping[str, PrivateTwoStageERM]) -> Domain:
    """The one domain of all candidates: values of rules are compared within one universe."""
    (first, *others) = models.items()
    domain = first[1].domain
    if not isinstance(domain, Domain):
        raise DeclarationError(f"domain = {domain!r}: must be a Domain")
    for name, model in others:
        if model.domain != domain:
            raise DeclarationError(f"{name!r} and {first[0]!r} declare different domains: they must agree")
    return domain


def fitted(
    model: PrivateTwoStageERM, dataset: Dataset, rows: NDArray[np.int64], seed: int | None
) -> PrivateTwoStageERM:
    """A copy of ``model`` without a ledger, fitted to ``rows`` of the dataset."""
    copy: PrivateTwoStageERM = clone(model).set_params(ledger=None, dataset=None, seed=seed)
    X = NamedColumns(dataset.X[rows], dataset.columns)
    return copy.fit(X, dataset.a[rows], dataset.y[rows])


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


#: Half the range of one record's score: rounding costs less than one part in a million of it.
LEVELS = 2**20

#: The most a sum of scores moves when one record is replaced, treatment flips included.
SENSITIVITY = 2 * LEVELS


def declared_propensity(value: object) -> float:
    """The public probability of treatment, in (0, 1). Raises DeclarationError otherwise."""
    propensity = public_number("propensity", value, above=0.0)
    if propensity >= 1.0:
        raise DeclarationError(f"propensity = {value!r}: must be below 1")
    return propensity


def total_gain(chosen: NDArray[np.int64], a: NDArray[np.int64], net: Array, domain: Domain, p: float) -> int:
    """Sum of the scores of a rule that recommends ``chosen`` (m,) to records treated by ``a`` (m,).

    ``net`` (m,) is the net outcome of the domain, within [-M', M']; ``p`` the probability of treatment.
    """
    rarest = min(p, 1.0 - p)
    relative = np.where(a == 1, rarest / p, rarest / (1.0 - p)) * (net / domain.outcome_bound)
    # the range is what privacy rests on: it must hold whatever is passed in, and nan has no place in it
    units = np.rint(LEVELS * np.clip(np.nan_to_num(relative), -1.0, 1.0)).astype(np.int64)
    return int(np.sum(np.where(chosen == a, units, -units)))


def unit(domain: Domain, p: float, n_scored: int) -> float:
    """What one unit of a sum is worth, in units of the outcome, on average over ``n_scored`` records."""
    return domain.outcome_bound / min(p, 1.0 - p) / (2.0 * LEVELS * n_scored)
