"""The space that record maps lead into: public bounds on mapped records."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import ROUND_DOWN, Array
from dp2erm_cvx.checks import check_settings, one_of, public_size, setting, whole_number
from dp2erm_cvx.data.blocks import VIEW
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Neighboring

#: Bounds of a space lie between this and its inverse, so that products of several stay finite.
LARGEST = 1e30
#: Share of a bound from which on norms are clipped: half of what ``ROUND_DOWN`` leaves.
_CLIPPED_FROM = 1.0 - 5e-13
#: Share of a squared bound up to which the sum of squares of a row is surely below the squared norm
#: that is clipped: sums of a million squares round by less than the difference.
_SURELY_SHORTER = 1.0 - 1e-9
#: In place of the ends of covariates that have none: no scaled covariate is as large.
_NO_END = 1e300


@dataclass(frozen=True)
class Scale:
    """How raw covariates x become scaled ones: ``(x/2 - half_middles)/half_widths``.

    All are halved, since an end of a range less another one may overflow.

    Parameters
    ----------
    half_middles
        Half the raw values that scale to 0 (k,).
    half_widths
        Half the half widths of the ranges (k,), which scale to 1.
    """

    half_middles: tuple[float, ...]
    half_widths: tuple[float, ...]

    def scaled(self, rows: Array) -> Array:
        """Scaled covariates (n, k) of raw ones."""
        half_middles = np.array(self.half_middles)
        half_widths = np.array(self.half_widths)
        with np.errstate(over="ignore"):  # an infinity is cut off by the space
            return np.asarray((rows / 2 - half_middles) / half_widths)

    def raw(self, rows: Array) -> Array:
        """Raw covariates (n, k) of scaled ones."""
        middles = 2.0 * np.array(self.half_middles)
        widths = 2.0 * np.array(self.half_widths)
        return np.asarray(middles + rows * widths)


@dataclass(frozen=True)
class Space:
    """Public bounds that hold for every record once it is mapped, whatever a table held before.

    :attr:`~dp2erm_cvx.data.domain.Domain.space` is that of what a user declares; record maps
    between steps lead into others. Who has arrays that are mapped already declares one alone.

    Parameters
    ----------
    covariate_bound
        ``M``: bound on the Euclidean norm of a row of covariates, the intercept included; from
        1e-30 to 1e30.
    outcome_bound
        ``M'``: bound on the size of the net outcome, in its units; from 1e-30 to 1e30.
    intercept
        Value of the constant column in front of the covariates; 0 means that there is none. It
        counts in M.
    arm_floor
        Lower bound on both arm sizes, in records; None where datasets may have smaller arms.
    relation
        Which datasets are neighbors.
    lower, upper
        The least and the largest value of every covariate, the intercept excluded: one number for
        all, or one each (k,). None where their norm is all that bounds them.
    scale
        How raw covariates came here, by which public samples follow them. None: as they are.
    columns
        Names of the covariates (k,), the intercept excluded; None where they have none.
    units
        Number N of persons, where a neighbor replaces all records of one; None where it replaces
        one record.
    weighted
        Whether a record may count less than 1.
    n_arms
        Number of arms of the treatment, which a record names by a number from 0 on.
    n_groups
        Number of groups that records are counted in; 0 where there are none.
    mean_count
        What records are guessed to count on average. It predicts errors, and no guarantee depends
        on it.

    Raises
    ------
    DeclarationError
        For an invalid field, which it names.
    """

    covariate_bound: float = setting(check=public_size, most=LARGEST)
    outcome_bound: float = setting(check=public_size, most=LARGEST)
    intercept: float = setting(0.0, at_least=0.0)
    arm_floor: int | None = setting(None, whole_number, at_least=1)
    relation: Neighboring = setting(Neighboring.REPLACE_ONE, one_of, kind=Neighboring)
    lower: float | tuple[float, ...] | None = None
    upper: float | tuple[float, ...] | None = None
    scale: Scale | None = None
    columns: tuple[str, ...] | None = None
    units: int | None = None
    weighted: bool = False
    n_arms: int = 2
    n_groups: int = 0
    mean_count: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self)
        refuse_intercept(self.intercept, self.covariate_bound)
        if self.upper is not None or self.lower is not None:
            self._refuse_ends()

    def _refuse_ends(self) -> None:
        """Raise DeclarationError unless 0 is between the ends of every covariate."""
        low = np.atleast_1d(np.asarray(self.lower, dtype=np.float64))
        high = np.atleast_1d(np.asarray(self.upper, dtype=np.float64))
        if low.shape != high.shape or not np.all((low <= 0.0) & (high >= 0.0)):
            raise DeclarationError("lower, upper: must be as many, with 0 between them")

    @property
    def features_bound(self) -> float:
        """Bound on the norm of covariates without the intercept: ``sqrt(M^2 - intercept^2)``."""
        difference = self.covariate_bound - self.intercept
        total = self.covariate_bound + self.intercept
        return math.sqrt(difference * total)

    @property
    def of_records(self) -> Space:
        """The space of public records that are made up, one of every person."""
        return self if self.units is None else replace(self, units=None)

    def shrunk(self, norm: float) -> Space:
        """The space of covariates that are shrunk radially to this norm."""
        if norm >= self.features_bound * ROUND_DOWN:
            return self
        return replace(self, covariate_bound=math.hypot(self.intercept, norm))

    def ends(self, n_features: int) -> tuple[Array, Array] | None:
        """The least and the largest value of every covariate (k,); None where there is no bound.

        Raises
        ------
        DeclarationError
            Where another number of them is declared.
        """
        if self.lower is None or self.upper is None:
            return None
        lower = self._of_each(self.lower, n_features)
        upper = self._of_each(self.upper, n_features)
        return lower, upper

    def _of_each(self, ends: float | tuple[float, ...], n_features: int) -> Array:
        if not isinstance(ends, tuple):
            return np.full(n_features, ends)
        if len(ends) != n_features:
            what = "coordinate_bound" if self.scale is None else "ranges"
            raise DeclarationError(f"{what}: {len(ends)} are declared for {n_features} covariates")
        return np.array(ends)

    def widths(self, n_features: int) -> tuple[float, ...] | None:
        """The bound on the size of every covariate (k,), without the intercept; None without any.

        Raises
        ------
        DeclarationError
            Where another number of them is declared.
        """
        ends = self.ends(n_features)
        if ends is None:
            return None
        lower, upper = ends
        return tuple(np.maximum(-lower, upper).tolist())

    def inside(self, points: Array) -> Array:
        """Scaled covariates (..., k) clipped to their box, if there is one, and into their ball."""
        lower, upper = self.ends(points.shape[-1]) or (-_NO_END, _NO_END)
        # shrinking a row leaves it in its box, which holds 0
        return clip_norm(np.clip(points, lower, upper), self.features_bound)

    def raw(self, points: Array) -> Array:
        """Raw covariates (n, k) of scaled ones, without the intercept."""
        return points if self.scale is None else self.scale.raw(points)

    def _surely_inside(self, rows: Array) -> NDArray[np.bool_]:
        """Mask (n,) of rows that the clipping rule surely leaves as they are.

        Of other rows the rule itself has to tell.
        """
        inside = _surely_shorter(rows, self.features_bound)
        ends = self.ends(rows.shape[1])
        if ends is not None:
            lower, upper = ends
            inside &= np.all((lower <= rows) & (rows <= upper), axis=1)
        return inside

    def features(self, X: ArrayLike) -> Array:
        """Rows (n, k + intercept) of raw covariates (n, k): scaled, and clipped into the space.

        Returns
        -------
        Array
            A read-only view of X where the rule changes nothing, else a new array.

        Raises
        ------
        DeclarationError
            Where another number of covariates is declared.
        """
        raw = np.atleast_2d(np.asarray(X))
        n, k = raw.shape
        self.ends(k)  # as many as there are covariates
        n_constant = 1 if self.intercept else 0
        is_plain = raw.dtype == np.float64 and raw.flags.c_contiguous and raw.flags.aligned
        is_view = is_plain and self.scale is None and n_constant == 0
        # sums along a row round by the layout, which may not depend on other records
        features = raw.view() if is_view else np.empty((n, k + n_constant))
        for begin in range(0, n, VIEW):
            part = np.ascontiguousarray(raw[begin : begin + VIEW], dtype=np.float64)
            rows = self._scaled_inside(part)
            if is_view and rows is not part and rows.tobytes() != part.tobytes():
                # the rule changes this part and none before it
                is_view = False
                features = np.array(raw)
            if not is_view:
                features[begin : begin + VIEW, :n_constant] = self.intercept
                features[begin : begin + VIEW, n_constant:] = rows
        features.flags.writeable = not is_view
        return features

    def _scaled_inside(self, part: Array) -> Array:
        """Raw covariates (m, k), scaled and clipped; the array itself where nothing is to do."""
        rows = part if self.scale is None else self.scale.scaled(part)
        is_outside = ~self._surely_inside(rows)
        if not np.any(is_outside):
            return rows
        clipped = np.array(rows)
        clipped[is_outside] = self.inside(clipped[is_outside])
        return clipped


def refuse_intercept(intercept: float, covariate_bound: float) -> None:
    """Raise DeclarationError unless the intercept leaves room for covariates in their bound."""
    if intercept >= covariate_bound:
        raise DeclarationError(
            f"intercept = {brief(intercept)}: must be below covariate_bound = "
            f"{covariate_bound:g}, which counts it"
        )


def clip_norm(X: Array, bound: float) -> Array:
    """Shrink each row (..., k) radially so that its Euclidean norm is at most ``bound``."""
    if X.ndim != 2:
        return _shrunk(X, bound)
    # the rule takes ten times as long as to tell for which rows it is needed
    may_be_longer = ~_surely_shorter(X, bound)
    clipped = np.array(X)
    if np.any(may_be_longer):
        clipped[may_be_longer] = _shrunk(X[may_be_longer], bound)
    return clipped


def _surely_shorter(rows: Array, bound: float) -> NDArray[np.bool_]:
    """Mask (n,) of rows whose norm is surely below ``bound``; of others the rule has to tell."""
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", rows, rows)
        shorter: NDArray[np.bool_] = squares <= bound**2 * _SURELY_SHORTER
    return shorter


def _shrunk(X: Array, bound: float) -> Array:
    """Rows (..., k), those that are longer than ``bound`` shrunk to just below it."""
    largest = np.max(np.abs(X), axis=-1, keepdims=True, initial=0.0)
    size = np.where(largest > 0, largest, 1.0)
    unit = X / size
    length = np.linalg.norm(unit, axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        norm = size * length
    # a norm that rounds to the bound may exceed it: clip from just below
    is_longer = norm > bound * _CLIPPED_FROM
    divisor = np.where(is_longer, length, 1.0)
    return np.where(is_longer, unit * (bound * ROUND_DOWN / divisor), X)
