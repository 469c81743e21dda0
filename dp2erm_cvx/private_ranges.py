"""Records whose ranges are released instead of declared, and the units that they are in afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.codebook import Codebook, checked_codebook, norm_within
from dp2erm_cvx.domain import LARGEST, Array, Domain, cleaned
from dp2erm_cvx.errors import DeclarationError, brief, placed
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.public import check_settings, one_of, per_covariate, picked, public_fraction, setting

#: 0 and 24 numbers to a decade, from 0.001 to a million, of either sign.
_SIZES = 10.0 ** (np.arange(-72, 145) / 24.0)
_GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
#: Equal steps that wide bounds add to it.
_STEPS = 128


@dataclass(frozen=True)
class Within:
    """Wide public bounds of a column whose range is released: it is looked for between them alone.

    Raises DeclarationError unless low is below high, both at most 1e30 in size.
    """

    low: float = setting(within=LARGEST)
    high: float = setting(within=LARGEST)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.low < self.high:
            raise DeclarationError(f"({self.low:g}, {self.high:g}): low must be below high")


#: What is public about a column: its range, wide bounds of it, or nothing.
Known = tuple[float, float] | Within | None


def checked_known(name: str, known: Any) -> Known:
    """Declaration of a column. Raises DeclarationError naming it."""
    if known is None or isinstance(known, Within):
        return known
    try:
        low, high = known
    except (TypeError, ValueError):
        text = "must be a pair (low, high), Within(low, high) or None"
        raise DeclarationError(f"{name} = {brief(known)}: {text}") from None
    with placed(name):
        ends = Within(low, high)
    return ends.low, ends.high


@dataclass(frozen=True)
class PrivateRanges:
    """Declaration of records whose ranges a share of epsilon releases, before anything else.

    It stands where a :class:`~dp2erm_cvx.domain.Domain` would. Every later step sees normalized records:
    covariates and outcome scaled by the released ranges to [-1, 1], and clipped there. Bounds and noise of
    later steps are those of :meth:`domain`, fixed before any record is read. An outcome whose range is public
    keeps its units.

    Parameters
    ----------
    share
        Share of epsilon that releases all ranges which are not declared.
    ranges
        For each covariate its public (low, high), which costs nothing; :class:`Within`, where wide bounds are
        public; or None. A mapping also names the columns. None: nothing is known about any of them.
    outcome
        The same for the outcome: a public range, :class:`Within`, or None.
    covariate_bound
        Bound on the norm of the k normalized covariates. None: the root of k, which none of them exceeds.
    relation
        The neighboring relation that the guarantee is stated for.
    codebook
        What the columns of a raw table mean, as in a :class:`~dp2erm_cvx.domain.Domain`. Covariates of one
        column count once in the norm.

    Raises DeclarationError naming the field.
    """

    share: float = setting(0.1, public_fraction, title="private ranges: ")
    ranges: Mapping[str, Known] | Sequence[Known] | None = setting(None, per_covariate, entry=checked_known)
    outcome: Known = setting(None, checked_known)
    covariate_bound: float | None = None
    relation: Neighboring = setting(Neighboring.REPLACE_ONE, one_of, kind=Neighboring)
    codebook: Codebook | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "codebook", checked_codebook(self.codebook, self.ranges))
        self.domain(1)  # a bound that is none is refused here

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Covariate names, where the ranges name them."""
        return tuple(self.ranges) if isinstance(self.ranges, Mapping) else None

    @property
    def public_outcome(self) -> bool:
        """True if the range of the outcome is declared, so that it keeps its units."""
        return isinstance(self.outcome, tuple)

    def known(self, n_features: int) -> tuple[Known, ...]:
        """Public knowledge of every covariate, then of the outcome."""
        if self.ranges is None:
            return (None,) * n_features + (self.outcome,)
        entries = self.ranges.values() if isinstance(self.ranges, Mapping) else self.ranges
        if len(self.ranges) != n_features:
            raise DeclarationError(f"ranges: {len(self.ranges)} are declared for {n_features} covariates")
        return (*entries, self.outcome)

    def restricted(self, columns: Sequence[int]) -> PrivateRanges:
        """The declaration with these covariates alone, by number and in this order."""
        return replace(self, ranges=picked(self.ranges, columns))

    def domain(self, n_features: int) -> Domain:
        """The public domain of the normalized records of this many covariates, whatever is released."""
        bound = self.covariate_bound
        if bound is None:
            few = self.ranges is None or len(self.ranges) != n_features
            bound = norm_within([None] * n_features if few else self.ranges or (), self.codebook)
        center, half = _middle(self.outcome) if self.public_outcome else (0.0, 1.0)
        same: Any = {"relation": self.relation, "codebook": self.codebook}
        return Domain(bound, half, center, coordinate_bound=1.0, **same)

    def middles(self, n_features: int) -> tuple[float, ...]:
        """Values of missing covariates: the middle of a public range or of wide bounds, or 0."""
        return tuple(_between(pair) for pair in self.known(n_features)[:-1])

    @property
    def outcome_middle(self) -> float:
        """Value of a missing outcome."""
        return _between(self.outcome)

    def outcome_unit(self, released: Array) -> float:
        """Factor of an effect on the normalized outcome: half of the released range."""
        return 1.0 if self.public_outcome else _middle(released[-1])[1]

    def scaled(self, X: ArrayLike, y: ArrayLike, released: Array) -> tuple[Array, Array]:
        """Covariates (n, k) and outcomes (n,) normalized by ``released`` (k + 1, 2), the outcome last.

        Each number by itself (Theorem 10). They are raw records of the :meth:`domain`.
        """
        covariates, outcome = np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
        if not self.public_outcome:
            outcome = normalized(outcome, *released[-1])
        return normalized(covariates, released[:-1, 0], released[:-1, 1]), outcome


def _middle(ends: Any) -> tuple[float, float]:
    """Middle and half length of a range; halves first, as the whole may overflow."""
    low, high = float(ends[0]), float(ends[1])
    return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0


def _between(known: Known) -> float:
    if known is None:
        return 0.0
    return _middle(known if isinstance(known, tuple) else (known.low, known.high))[0]


def normalized(values: Array, low: ArrayLike, high: ArrayLike) -> Array:
    """``values`` on the scale where low is -1 and high is 1, clipped there; what is no number counts as 0."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    # halves first: high - low may overflow where the ends do not
    with np.errstate(all="ignore"):
        scaled = (values / 2.0 - (low / 4.0 + high / 4.0)) / (high / 4.0 - low / 4.0)
    return cleaned(scaled, 1.0)


def candidates(known: Within | None) -> Array:
    """The grid of a column, in increasing order."""
    if known is None:
        return _GRID
    inside = _GRID[(_GRID > known.low) & (_GRID < known.high)]
    grid = np.sort(np.concatenate([inside, np.linspace(known.low, known.high, _STEPS + 1)]))
    # of two that differ by a rounding, one
    apart = np.diff(grid, prepend=-np.inf) > 1e-9 * (known.high / _STEPS - known.low / _STEPS)
    return grid[apart]
