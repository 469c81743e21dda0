"""The release of ranges that nobody declared: the domain of the releases that rest on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import Stated
from dp2erm_cvx.data.domain import Domain, ReleasedRanges
from dp2erm_cvx.data.private_ranges import Pair, Within
from dp2erm_cvx.display import digits_of
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import Plan, RangesStudy
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.declaration import declaration_of, state_steps
from dp2erm_cvx.release.record import BaseRelease, Guarantee
from dp2erm_cvx.steps.sums import ColumnRanges


@dataclass(frozen=True)
class ColumnRange(Stated):
    """The range of one column.

    Parameters
    ----------
    column
        Name of the column.
    low
        Lower end, in units of the column, or in logarithms where it is declared to count so.
    high
        Upper end, in the same units.
    chosen
        The two candidates of a public grid that were released, from which the range follows by a
        public rule; None where the range was declared.
    within
        The wide public bounds that it was looked for in; None where there are none.
    """

    column: str
    low: float
    high: float
    chosen: tuple[float, float] | None = None
    within: tuple[float, float] | None = None

    @property
    def pair(self) -> Pair:
        """Both ends."""
        return self.low, self.high


@dataclass(frozen=True, kw_only=True)
class RangesRelease(BaseRelease):
    """Release of the ranges of columns that nobody declared; ``domain`` is what they make.

    Parameters
    ----------
    ranges
        Those of the covariates in the order of ``columns``, then those of other columns, and that
        of the outcome at the end.
    """

    goal: ClassVar[str] = "ranges"
    derived: ClassVar[tuple[str, ...]] = ("digest", "caveats")

    ranges: tuple[ColumnRange, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of all that the release states, which releases that rest on it name."""
        plain = json.dumps(self.to_dict(derived=False), sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()

    @property
    def stamp(self) -> ReleasedRanges:
        """What a domain says that rests on these ranges.

        Raises
        ------
        DeclarationError
            Where nothing establishes that they are private, though no seed was given.
        """
        if self.standing not in (Standing.PRIVATE, Standing.NOT_PRIVATE):
            raise DeclarationError(f"ranges: are {self.standing.value}: no domain may rest on them")
        return ReleasedRanges(self.digest, self.guarantee.epsilon, self.private)

    def as_domain(self) -> Domain:
        """The domain of the released ranges, which every estimator takes.

        It says that they were released. Raises DeclarationError as ``stamp`` does.
        """
        return replace(self.public, released=self.stamp)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per column."""
        rows: list[Mapping[str, Any]] = []
        for one in self.ranges:
            source = "public" if one.chosen is None else "released"
            row = {"column": one.column, "low": one.low, "high": one.high, "range": source}
            rows.append({**row, **self.cost()})
        return rows


def make_ranges(
    plan: Plan[RangesStudy],
    released: Mapping[str, Array],
    names: Sequence[str],
    guarantee: Guarantee,
) -> RangesRelease:
    """State what a run of a plan ``released``.

    Parameters
    ----------
    plan
        What was run.
    released
        The chosen candidates, by step.
    names
        Names of all columns, the outcome last.
    guarantee
        What the run guarantees.
    """
    step = plan.main
    public = plan.study.public
    assert isinstance(step, ColumnRanges)
    chosen = released[step.name]
    ends = step.ranges(chosen)
    ranges = []
    for name, known, (low, high), pair in zip(names, public.known, ends, chosen, strict=True):
        within = (known.low, known.high) if isinstance(known, Within) else None
        own = None if isinstance(known, tuple) else (float(pair[0]), float(pair[1]))
        ranges.append(ColumnRange(name, low, high, own, within))
    n_covariates = len(public.ranges)
    return RangesRelease(
        ranges=tuple(ranges),
        columns=tuple(names[:n_covariates]),
        n_samples=plan.study.universe.n_samples,
        guarantee=guarantee,
        steps=state_steps(plan),
        domain=public.closed(ends).to_dict(),
        declared=declaration_of(plan),
    )


def resting_on(release: BaseRelease, ranges: RangesRelease) -> Iterator[str]:
    """Faults of a release that says it rests on these ranges."""
    stamp = release.public.released
    if stamp is None:
        yield "domain.released: nothing is stated, and a release of ranges is given"
        return
    for name in ("digest", "epsilon", "private"):
        stated = getattr(stamp, name)
        follows = getattr(ranges.stamp, name)
        if stated != follows:
            yield f"domain.released.{name}: {stated} stated, {follows} follows from the ranges"
    same = {"n_samples": ranges.n_samples, "study": ranges.study}
    for name, known in same.items():
        if getattr(release, name) != known:
            yield f"{name}: {getattr(release, name)} stated, {known} in the release of the ranges"
    for name in ("relation", "unit"):
        if getattr(release.guarantee, name) != getattr(ranges.guarantee, name):
            yield f"guarantee.{name}: is not that of the ranges"
    outcome = _outcome_of(release) or ranges.ranges[-1].column
    stated_ranges = _stated_ranges(release, outcome)
    for one in ranges.ranges:
        if one.chosen is None or one.column not in stated_ranges:
            continue
        low, high = stated_ranges[one.column]
        if not _near((low, high), one.pair):
            yield (
                f"domain: {one.column} ranges from {digits_of(low)} to {digits_of(high)}, and was "
                "not released so"
            )


def _outcome_of(release: BaseRelease) -> str:
    """Column of the outcome of a release; "" where it is not named."""
    book = release.public.codebook
    if book is None or book.outcome is None:
        return ""
    return book.outcome


def _stated_ranges(release: BaseRelease, outcome: str) -> dict[str, Pair]:
    """Ranges of the covariates and of the ``outcome`` that the domain of a release declares."""
    domain = release.public
    ranges: dict[str, Pair] = dict(zip(release.columns, domain.range_pairs, strict=False))
    center = domain.outcome_center
    ranges[outcome] = (center - domain.outcome_bound, center + domain.outcome_bound)
    return ranges


def _near(stated: Pair, released: Pair) -> bool:
    """True if two ranges are the same, but for a rounding of middle and half length."""
    size = 1e-12 * max(map(abs, released))
    return all(abs(one - other) <= size for one, other in zip(stated, released, strict=True))
