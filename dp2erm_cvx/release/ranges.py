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
        """SHA-256 of all that the release states, by which other releases say that they rest on
        it.
        """
        plain = json.dumps(self.to_dict(derived=False), sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()

    @property
    def stamp(self) -> ReleasedRanges:
        """What a domain says that rests on these ranges.

        Raises DeclarationError where nothing establishes that they are private, though no seed was
        given.
        """
        if self.standing not in (Standing.PRIVATE, Standing.NOT_PRIVATE):
            raise DeclarationError(f"ranges: are {self.standing.value}: no domain may rest on them")
        outcome = self.ranges[-1].chosen is not None
        return ReleasedRanges(self.digest, self.guarantee.epsilon, self.private, outcome)

    def as_domain(self) -> Domain:
        """The domain of the released ranges, which every estimator takes; it says that they were
        released.

        Raises DeclarationError as ``stamp`` does.
        """
        return replace(self.public, released=self.stamp)

    def rows(self) -> list[Mapping[str, Any]]:
        """One per column."""
        facts = ((one, "public" if one.chosen is None else "released") for one in self.ranges)
        named = (
            {"column": one.column, "low": one.low, "high": one.high, "range": how}
            for one, how in facts
        )
        return [{**row, **self.cost()} for row in named]


def make_ranges(
    plan: Plan[RangesStudy],
    released: Mapping[str, Array],
    names: Sequence[str],
    guarantee: Guarantee,
) -> RangesRelease:
    """State what a run of a plan ``released``; ``names`` are those of all columns, the outcome
    last.
    """
    step, public = plan.main, plan.study.public
    assert isinstance(step, ColumnRanges)
    chosen, ranges = released[step.name], list[ColumnRange]()
    ends = step.ranges(chosen)
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
    """Faults of a release that says it rests on these ranges: digest, epsilon, ends, records,
    study.
    """
    stamp, domain = release.public.released, release.public
    if stamp is None:
        yield "domain.released: nothing is stated, and a release of ranges is given"
        return
    for name in ("digest", "epsilon", "private"):
        stated, follows = getattr(stamp, name), getattr(ranges.stamp, name)
        if stated != follows:
            yield f"domain.released.{name}: {stated} stated, {follows} follows from the ranges"
    same = {"n_samples": ranges.n_samples, "study": ranges.study}
    for name, known in same.items():
        if getattr(release, name) != known:
            yield f"{name}: {getattr(release, name)} stated, {known} in the release of the ranges"
    for name in ("relation", "unit"):
        if getattr(release.guarantee, name) != getattr(ranges.guarantee, name):
            yield f"guarantee.{name}: is not that of the ranges"
    book = domain.codebook
    outcome = "" if book is None or book.outcome is None else book.outcome
    low, high = (domain.outcome_center + side * domain.outcome_bound for side in (-1.0, 1.0))
    own = dict(zip(release.columns, domain.range_pairs, strict=False))
    outcome = outcome or ranges.ranges[-1].column
    own[outcome] = low, high
    if stamp.outcome and all(one.chosen is None for one in ranges.ranges if one.column == outcome):
        yield f"domain.released.outcome: the range of {outcome} was not released"
    for one in ranges.ranges:
        if one.chosen is not None and one.column in own and not _near(own[one.column], one.pair):
            yield (
                f"domain: {one.column} ranges from {digits_of(own[one.column][0])} to "
                f"{digits_of(own[one.column][1])}, and was not released so"
            )


def _near(stated: Pair, released: Pair) -> bool:
    """Whether two ranges are the same, but for a rounding of middle and half length."""
    size = 1e-12 * max(map(abs, released))
    return all(abs(one - other) <= size for one, other in zip(stated, released, strict=True))
