"""Domains with ranges that nobody declares: what is known of each, and the domain once released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import (
    Named,
    by_name,
    check_settings,
    declared_by_name,
    json_types,
    one_of,
    per_covariate,
    setting,
)
from dp2erm_cvx.data.codebook import Codebook, checked_codebook, norm_within
from dp2erm_cvx.data.domain import Domain, ReleasedRanges
from dp2erm_cvx.data.space import LARGEST
from dp2erm_cvx.errors import DeclarationError, brief, placed
from dp2erm_cvx.privacy import Neighboring

#: 24 numbers to a decade, from 0.001 to a million.
_SIZES = 10.0 ** (np.arange(-72, 145) / 24.0)
#: Candidates of ends of ranges: 0 and ``_SIZES`` of either sign.
_GRID = np.concatenate([-_SIZES[::-1], [0.0], _SIZES])
#: Equal steps that wide bounds add to it.
_STEPS = 128
#: Share of such a step below which two candidates are one: roundings are far smaller.
_ROUNDING = 1e-9
#: Wide bounds are farther apart than this: every range between two of their candidates makes a
#: domain.
_NARROWEST = 1e-15
#: How a file says that nothing is known of a range.
RELEASE = "release"


@dataclass(frozen=True)
class Within:
    """Wide public bounds of a column whose range is released: it is looked for between them alone.

    Raises
    ------
    DeclarationError
        Unless low is below high by more than 1e-15, both at most 1e30 in size.
    """

    low: float = setting(within=LARGEST)
    high: float = setting(within=LARGEST)

    def __post_init__(self) -> None:
        check_settings(self)
        if not self.low + _NARROWEST < self.high:
            raise DeclarationError(f"({self.low:g}, {self.high:g}): low must be below high")


#: A range.
Pair = tuple[float, float]
#: What is public about a column: its range, wide bounds of it, or nothing.
Known = Pair | Within | None


def checked_known(name: str, known: Any) -> Known:
    """What is declared to be known of the range of a column.

    Raises DeclarationError that names the column.
    """
    if known is None or isinstance(known, Within):
        return known
    return _checked_pair(name, known)


def _checked_pair(name: str, ends: Any) -> Pair:
    try:
        low, high = ends
    except (TypeError, ValueError):
        text = "must be a pair (low, high), Within(low, high) or None"
        raise DeclarationError(f"{name} = {brief(ends)}: {text}") from None
    with placed(name):
        bounds = Within(low, high)
    return bounds.low, bounds.high


def known_of(name: str, entry: Any) -> Known:
    """What a file says of a range: ``[low, high]``, ``{ within = [low, high] }`` or ``"release"``.

    Raises
    ------
    DeclarationError
        For anything else, which names the column.
    """
    if entry == RELEASE:
        return None
    if isinstance(entry, Mapping) and list(entry) == ["within"]:
        with placed(name):
            low, high = _checked_pair("within", _two_numbers("within", entry["within"]))
            return Within(low, high)
    return checked_known(name, _two_numbers(name, entry))


def _two_numbers(name: str, entry: Any) -> Any:
    """A list of two. Raises DeclarationError for anything else."""
    if isinstance(entry, list | tuple) and len(entry) == 2:
        return entry
    wanted = f'must be [low, high], {{ within = [low, high] }} or "{RELEASE}"'
    raise DeclarationError(f"{name} = {brief(entry)}: {wanted}")


def written_known(known: Known) -> Any:
    """What is known of a range, as a file says it."""
    if known is None:
        return RELEASE
    if isinstance(known, Within):
        return {"within": [known.low, known.high]}
    return list(known)


def assumed_range(known: Known) -> Pair:
    """The range that is planned with: public or wide bounds, of length 1 where nothing is known."""
    if known is None:
        return -0.5, 0.5
    if isinstance(known, Within):
        return known.low, known.high
    return known


@dataclass(frozen=True)
class OpenDomain:
    """A domain some of whose ranges nobody declares: a release of them makes an ordinary one.

    :class:`~dp2erm_cvx.estimators.PrivateRanges` takes it in place of a
    :class:`~dp2erm_cvx.data.domain.Domain`.

    Parameters
    ----------
    ranges
        For each covariate its public (low, high), which costs nothing; :class:`Within`, where wide
        bounds are public; or None, where nothing is known. A mapping also names the columns.
    outcome
        The same for the outcome.
    others
        The same for further columns of numbers, by name: outcomes of other questions about the same
        records.
    relation
        The neighboring relation that the guarantee is stated for.
    codebook
        What the columns of a raw table mean, as in a :class:`~dp2erm_cvx.data.domain.Domain`; the
        ranges then name the covariates that its columns become
        (:meth:`~dp2erm_cvx.data.codebook.Codebook.ranges`).

    Raises
    ------
    DeclarationError
        For an invalid field, which it names.
    """

    ranges: Mapping[str, Known] | Sequence[Known] = setting(
        check=per_covariate, entry=checked_known
    )
    outcome: Known = setting(None, checked_known)
    others: Mapping[str, Known] = setting(Named({}), by_name, entry=checked_known)
    relation: Neighboring = setting(Neighboring.REPLACE_ONE, one_of, kind=Neighboring)
    codebook: Codebook | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "codebook", checked_codebook(self.codebook, self.ranges))
        if self.others and not isinstance(self.ranges, Mapping):
            raise DeclarationError("others: have names, and the ranges have none")
        for name in self.others:
            if name in self.ranges:
                raise DeclarationError(
                    f"others: {brief(name)} is a covariate as well: leave it out of one"
                )
        # what makes no domain is refused here
        self.closed([assumed_range(known) for known in self.known])

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the columns that stand beside the outcome, where the ranges name them."""
        if not isinstance(self.ranges, Mapping):
            return None
        return (*self.ranges, *self.others)

    @property
    def known(self) -> tuple[Known, ...]:
        """What is public about every covariate, the other columns, then the outcome."""
        covariates = self.ranges.values() if isinstance(self.ranges, Mapping) else self.ranges
        return (*covariates, *self.others.values(), self.outcome)

    @property
    def declared_ends(self) -> tuple[Pair | None, ...]:
        """Range or wide bounds of all that is ``known``; None where nothing is declared."""
        return tuple(None if known is None else assumed_range(known) for known in self.known)

    def middles(self, n_features: int) -> tuple[float, ...]:
        """Values (k,) that stand for missing numbers.

        They are the middle of a public range or of wide bounds, or 0. Raises DeclarationError where
        another number of columns is declared than ``n_features``.
        """
        *columns, _ = self.known
        if len(columns) != n_features:
            raise DeclarationError(
                f"ranges: {len(columns)} are declared for {n_features} covariates"
            )
        middles = []
        for known in columns:
            middle, _ = middle_and_half(assumed_range(known))
            middles.append(middle)
        return tuple(middles)

    @property
    def outcome_middle(self) -> float:
        """Value of a missing outcome."""
        middle, _ = middle_and_half(assumed_range(self.outcome))
        return middle

    def universe(self) -> Domain:
        """A public domain of all columns, which says who is protected; no range of it is used."""
        *ranges, outcome = [assumed_range(known) for known in self.known]
        if self.columns is None:
            return self._domain(ranges, outcome)
        return self._domain(dict(zip(self.columns, ranges, strict=True)), outcome)

    def closed(self, ends: Sequence[Pair], released: ReleasedRanges | None = None) -> Domain:
        """The domain of the covariates and of the outcome at these ranges.

        Parameters
        ----------
        ends
            (low, high) in the order of ``known``.
        released
            Where they come from.
        """
        ranges: Any = list(ends[: len(self.ranges)])
        if isinstance(self.ranges, Mapping):
            ranges = dict(zip(self.ranges, ranges, strict=True))
        return self._domain(ranges, ends[-1], released)

    def _domain(self, ranges: Any, outcome: Pair, released: ReleasedRanges | None = None) -> Domain:
        middle, half_width = middle_and_half(outcome)
        return Domain(
            covariate_bound=norm_within(ranges, self.codebook),
            outcome_bound=half_width,
            outcome_center=middle,
            ranges=ranges,
            relation=self.relation,
            codebook=self.codebook,
            released=released,
        )

    def to_dict(self) -> dict[str, Any]:
        """The declarations as plain JSON types, ranges as a file says them."""
        plain = {field.name: json_types(getattr(self, field.name)) for field in fields(self)}
        covariates = [written_known(known) for known in self.known[: len(self.ranges)]]
        plain["ranges"] = covariates
        if isinstance(self.ranges, Mapping):
            plain["ranges"] = dict(zip(self.ranges, covariates, strict=True))
        plain["outcome"] = written_known(self.outcome)
        plain["others"] = {name: written_known(known) for name, known in self.others.items()}
        return plain

    @classmethod
    def from_dict(cls, declared: Mapping[str, Any]) -> OpenDomain:
        """Build it from plain values. Raises DeclarationError on an unknown or missing name."""
        plain = dict(declared)
        for name in ("ranges", "others"):
            entries = plain.get(name)
            if isinstance(entries, Mapping):
                plain[name] = _known_by_name(entries)
            elif isinstance(entries, list):
                plain[name] = [known_of(name, entry) for entry in entries]
        plain["outcome"] = known_of("outcome", plain.get("outcome", RELEASE))
        return declared_by_name(cls, "ranges", plain)


def _known_by_name(entries: Mapping[Any, Any]) -> dict[str, Known]:
    return {str(column): known_of(str(column), entry) for column, entry in entries.items()}


def middle_and_half(ends: Pair) -> tuple[float, float]:
    """Middle and half length of a range; halves first, as the whole may overflow."""
    low, high = ends
    return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0


def candidates(known: Within | None) -> Array:
    """The grid of candidates for both ends of the range of a column, in increasing order.

    Parameters
    ----------
    known
        Wide public bounds, which the grid lies in and has further steps between; None where nothing
        is known.
    """
    if known is None:
        return _GRID
    inside = _GRID[(_GRID > known.low) & (_GRID < known.high)]
    steps = np.linspace(known.low, known.high, _STEPS + 1)
    grid = np.sort(np.concatenate([inside, steps]))
    # of two that differ by a rounding, one
    step = known.high / _STEPS - known.low / _STEPS
    is_apart = np.diff(grid, prepend=-np.inf) > _ROUNDING * step
    return grid[is_apart]
