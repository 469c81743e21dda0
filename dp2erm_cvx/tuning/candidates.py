"""What both tuners ask of the candidates, and how they hand records to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from dp2erm_cvx.data import Dataset, NamedColumns
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.public import one_line

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
