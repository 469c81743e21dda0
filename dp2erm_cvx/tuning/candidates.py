"""What both tuners ask of the candidates, and how they hand records to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.public import one_line

Models = Mapping[str, PrivateTwoStageERM] | Sequence[PrivateTwoStageERM]


@dataclass(frozen=True)
class NamedColumns:
    """Some rows (m, k) of the covariates with their names, as a data frame would carry them."""

    values: Array
    columns: tuple[str, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)


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


@dataclass(frozen=True, eq=False, repr=False)
class PublicData:
    """The user's declaration that these records are public and disjoint from the private data.

    Parameters
    ----------
    X, a, y
        (N, k) covariates, (N,) treatments in {0, 1} and (N,) outcomes, in the units of the private data.
    source
        One line of text that says where the records come from; the result repeats it.

    Nobody can check the declaration. A person who is in both data sets is not protected by the release.
    Raises DeclarationError for a missing source, DataError for invalid data.
    """

    X: ArrayLike
    a: ArrayLike
    y: ArrayLike
    source: str = field(kw_only=True)
    columns: tuple[str, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "source", one_line("source", self.source))
        dataset = Dataset.from_arrays(self.X, self.a, self.y)
        put(self, "columns", None if getattr(self.X, "columns", None) is None else dataset.columns)
        for name in ("X", "a", "y"):
            put(self, name, getattr(dataset, name))

    def __repr__(self) -> str:
        return f"PublicData(source={self.source!r}, n_samples={np.shape(self.a)[0]})"

    def within(self, domain: Domain) -> Dataset:
        """The records with the columns of the domain. Raises DeclarationError where they differ."""
        dataset = Dataset.from_arrays(self.X, self.a, self.y, self.columns or domain.columns)
        if domain.columns not in (None, dataset.columns):
            raise DeclarationError(
                f"the domain declares the columns {', '.join(domain.columns or ())}; "
                f"the public data have {', '.join(dataset.columns)}"
            )
        return dataset
