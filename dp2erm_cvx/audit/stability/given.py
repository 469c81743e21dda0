"""What an audit is given: data, a generator of data, or only the size of the universe."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.universe import Universe

Raw = tuple[ArrayLike, ArrayLike, ArrayLike]
Data = Raw | Dataset | Records
Generator = Callable[[np.random.Generator], Data]


def source_of(
    given: Data | Generator | None, domain: Domain
) -> Callable[[np.random.Generator], Records] | None:
    """Draws datasets from what is given; None where nothing is. Raises DataError."""
    if given is None:
        return None
    if callable(given):
        draw = given
        return lambda rng: records_of(draw(rng), domain)
    records = records_of(given, domain)
    return lambda rng: records


def records_of(given: Data, domain: Domain) -> Records:
    """Records of the domain. Raises DataError, and DeclarationError for those of another domain."""
    if isinstance(given, Records):
        if given.domain != domain:
            raise DeclarationError("the records were mapped into another domain")
        return given
    data = given if isinstance(given, Dataset) else Dataset.from_arrays(*given)
    return domain.records(data.X, data.a, data.y)


def universe_of(
    domain: Domain, example: Records | None, n_samples: int | None, n_features: int | None
) -> Universe:
    """The universe that the data belong to or that is declared. Raises DeclarationError."""
    if example is not None:
        size = (example.n_samples, example.covariates.shape[1])
        for name, given, own in zip(("n_samples", "n_features"), (n_samples, n_features), size, strict=True):
            if given is not None and given != own:
                raise DeclarationError(f"{name} = {given!r}: the data have {own}")
        return Universe(domain, *size)
    if n_samples is None:
        raise DeclarationError("n_samples: needed where no data are given")
    declared = Universe(domain, n_samples, 2 if n_features is None else n_features)
    if 2 * (domain.arm_floor or 0) > declared.n_samples:
        raise DeclarationError(
            f"arm_floor = {domain.arm_floor:g}: {n_samples} records cannot hold two such arms"
        )
    return declared


def digest(records: Records | None) -> str | None:
    """A fingerprint of the records, by which a checkpoint knows its data."""
    if records is None:
        return None
    held: list[Any] = [records.X, records.a, records.y]
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in held)).hexdigest()
