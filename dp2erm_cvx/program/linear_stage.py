"""Second stages by declaration: a problem is written once in CVXPY, all else is derived."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array, Domain, clip_norm
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import RowBox
from dp2erm_cvx.program.rows import DeclaredRecords
from dp2erm_cvx.program.second_stage import SecondStage
from dp2erm_cvx.program.stage import Function, Setting, setting
from dp2erm_cvx.public import chosen_columns
from dp2erm_cvx.universe import Universe


def _feature_list(name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list) or not value:
        raise DeclarationError(f"{name} = {value!r}: must be a list of covariates")
    return tuple(value)


@dataclass(frozen=True)
class LinearStage(SecondStage):
    """``<x, theta>`` over all covariates, or over a public choice of them.

    Parameters
    ----------
    features
        Names declared by the domain's ranges, or column numbers without the intercept; default: all.
    features_bound
        Norm that the chosen features are shrunk to, radially; default: the domain's own bound.
    """

    features: tuple[str | int, ...] | None = setting(None, _feature_list)
    features_bound: float | None = setting(None, above=0)

    defaults = MappingProxyType(
        {**SecondStage.defaults, "features": "all", "features_bound": "that of the domain"}
    )

    def declared_records(self, domain: Domain, n: int, p: int) -> DeclaredRecords:
        return DeclaredRecords(domain, n, p, self.covariates, self.row_norm(domain))

    def public_numbers(self, domain: Domain) -> dict[str, float]:
        return super().public_numbers(domain) | {"M": self.row_norm(domain)}

    def columns(self, domain: Domain, n_features: int) -> list[int]:
        """Column numbers of the chosen features. Raises DeclarationError on an unknown or repeated one."""
        if self.features is None:
            return list(range(n_features))
        return chosen_columns("features", self.features, domain.columns or (), n_features)

    def covariates(self, domain: Domain, X: Array) -> Array:
        """Rows of the design from records already in the domain (intercept column included)."""
        if self.features is None and self.features_bound is None:
            return X
        constant = 1 if domain.intercept else 0
        columns = self.columns(domain, X.shape[1] - constant)
        if self.features_bound is None and columns == list(range(X.shape[1] - constant)):
            return X
        chosen = X[:, constant:][:, columns]
        if self.features_bound is not None:
            chosen = clip_norm(chosen, self.features_bound)
        return np.hstack([X[:, :constant], chosen])

    def row_norm(self, domain: Domain) -> float:
        """Bound on the norm of the rows of the design."""
        bound = domain.features_bound if self.features_bound is None else self.features_bound
        return min(domain.covariate_bound, float(np.hypot(domain.intercept, bound)))

    def box(self, universe: Universe, slope: float) -> RowBox | None:
        domain, widths = universe.domain, universe.widths
        if widths is None:
            return None
        constant = 1 if domain.intercept else 0
        chosen = (widths[constant + index] for index in self.columns(domain, universe.n_features))
        return RowBox((*widths[:constant], *chosen), slope)

    def parameter_names(self, columns: tuple[str, ...], domain: Domain) -> tuple[str, ...]:
        chosen = tuple(columns[index] for index in self.columns(domain, len(columns)))
        return ("intercept", *chosen) if domain.intercept else chosen

    def effect(self, theta: Array, domain: Domain, X: ArrayLike) -> Array:
        # row by row: in a matrix product the rounding of a row may depend on where it stands
        rowwise: Array = np.sum(self.covariates(domain, domain.features(X)) * theta, axis=1)
        return rowwise


def second_stage(
    function: Function | None = None,
    /,
    *,
    coordinates: tuple[str, ...] | None = None,
    treats: Function | None = None,
    **settings: Setting,
) -> Callable[[Function], Any]:
    """Decorator of ``function(theta, records, **settings) -> cp.Problem``, the sum of a loss over records.

    Weights, the ridge gamma and noise are the library's. The loss is a sum of curves of one margin per
    record, with a factor, an offset and a tilt; the set of theta is a ball, an l1 ball or a box; ``records``
    are a :class:`~dp2erm_cvx.program.rows.DeclaredRecords`. Constants, noise and certificates are derived
    (Theorems 1, 2 and 15 to 19). Theta has one entry for every column of ``records.x``; where rows are cells
    instead, one for each of the named ``coordinates``. A rule treats where the effect is positive, or where
    ``treats(effect, x)`` is true of a record with raw covariates x. Raises DeclarationError, in one line.
    """
    members: dict[str, Any] = {}
    if treats is not None:
        try:
            inspect.signature(treats).bind(0.0, np.zeros(1))
        except TypeError:
            raise DeclarationError("treats: must be a function of an effect and covariates") from None
        members["treats"] = staticmethod(treats)
    stage: type[SecondStage] = LinearStage
    if coordinates is not None:
        stage, members["coordinates"] = SecondStage, tuple(coordinates)

    def decorate(function: Function) -> Any:
        return stage.of(function, {}, settings, **members)

    return decorate if function is None else decorate(function)
