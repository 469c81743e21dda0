"""Pages of HTML that need no other file and no network: of releases, and of what audits found."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx import __version__
from dp2erm_cvx.checks import json_types
from dp2erm_cvx.data.blocked import RecordBlocks
from dp2erm_cvx.display import as_html, pairs, plural
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.report.answers import Answer, answer_blocks, answers
from dp2erm_cvx.report.caveats import NO_SAMPLING
from dp2erm_cvx.report.figures import shares_figure
from dp2erm_cvx.report.story import Span, story_of
from dp2erm_cvx.report.words import declared_tables, promised, units_of

if TYPE_CHECKING:
    from dp2erm_cvx.audit import StabilityAudit
    from dp2erm_cvx.audit.movement import NeighborPair
    from dp2erm_cvx.data.universe import Universe
    from dp2erm_cvx.display import Block


#: What pages of audits need; other pages draw by themselves.
PACKAGES = ("jinja2", "matplotlib")


def missing(packages: tuple[str, ...] = PACKAGES) -> list[str]:
    """Names of the ``packages`` of a page that are not installed."""
    return [name for name in packages if find_spec(name) is None]


def check_installed(packages: tuple[str, ...] = PACKAGES) -> None:
    """Raise DeclarationError unless the ``packages`` of a page are installed."""
    gone = missing(packages)
    if not gone:
        return
    instead = ""
    if packages == PACKAGES:
        instead = ", or write JSON only (dp2erm audit --no-page)"
    raise DeclarationError(
        f"this needs {' and '.join(gone)}: pip install 'dp2erm-cvx[reports]'{instead}"
    )


def number(value: float) -> str:
    """A number for a table."""
    if math.isinf(value):
        return "∞"
    if abs(value) >= 1e4:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def rendered(template: str, **facts: Any) -> str:
    """The page of a template: every text in ``facts`` is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("dp2erm_cvx.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def block(one: Block) -> Markup:
        return Markup(as_html([one]))  # which escapes every cell

    environment.filters.update(number=number, block=block)
    return environment.get_template(template).render(**facts)


#: What an axis of a picture is longer than its numbers, on either side.
_MARGIN = 0.06


@dataclass(frozen=True)
class _Axis:
    """An axis of a picture, from ``low`` to ``high``."""

    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a number stands, in percent of the axis."""
        return round(100.0 * (value - self.low) / (self.high - self.low), 3)

    def drawn(self, span: Span, known: bool) -> tuple[Span, float, float | None, float]:
        """A span with its left end, its dot, which only a ``known`` one has, and its right end."""
        left = 0.0
        if span.low is not None:
            left = self.place(span.low)
        dot = None
        if known:
            dot = self.place(span.at)
        right = 100.0
        if span.high is not None:
            right = self.place(span.high)
        return span, left, dot, right

    def ticks(self) -> list[tuple[float, str]]:
        """Places of round numbers that are not at an end, and their labels."""
        ticks = []
        for number in _round_numbers(self.low, self.high):
            place = self.place(number)
            if 4.0 < place < 96.0:
                ticks.append((place, f"{number:.4g}"))
        return ticks


def picture(spans: Sequence[Span], caption: str) -> dict[str, Any] | None:
    """Spans over an axis that holds 0 and every finite end, as a page draws them.

    Parameters
    ----------
    spans
        What is drawn, one below the other.
    caption
        What stands below.

    Returns
    -------
    ``drawn`` has each span with its left end, dot and right end in percent, ``ticks`` places and
    labels, ``zero`` the place of 0. None where numbers are beyond doubles, or there are no spans.
    """
    bounded = [span for span in spans if span.low is not None or span.high is not None]
    # nothing is known of a span without ends: it counts only where there is no other
    known = bounded or list(spans)
    axis = _axis_of(known)
    if axis is None:
        return None
    return {
        "drawn": tuple(axis.drawn(span, span in known) for span in spans),
        "ticks": axis.ticks(),
        "zero": axis.place(0.0),
        "caption": caption,
    }


def _axis_of(spans: Sequence[Span]) -> _Axis | None:
    """An axis with a margin for 0 and all ends of spans; None where there is none in doubles."""
    ends = [0.0]
    for span in spans:
        ends += [end for end in (span.at, span.low, span.high) if end is not None]
    low = min(ends)
    high = max(ends)
    if not spans or not math.isfinite(4.0 * high - 4.0 * low) or high - low < 1e-300:
        return None
    margin = _MARGIN * (high - low)
    return _Axis(low - margin, high + margin)


def bars(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float, float]]:
    """Bars of values on an axis centered at 0.

    Parameters
    ----------
    rows
        Rows with a ``value`` and its ``noise_half_width``; either may be missing.

    Returns
    -------
    For each row where its bar and its noise start and end, in percent.
    """
    values = [row["value"] or 0.0 for row in rows]
    noises = [row.get("noise_half_width") or 0.0 for row in rows]
    reach = [abs(value) + noise for value, noise in zip(values, noises, strict=True)]
    largest = max(reach, default=0.0)
    if not 0.0 < largest < 1e300:
        return [(50.0, 50.0, 50.0, 50.0)] * len(rows)

    def place(value: float) -> float:
        return round(50.0 + 48.0 * value / largest, 3)

    drawn = []
    for value, noise in zip(values, noises, strict=True):
        start = place(min(value, 0.0))
        end = place(max(value, 0.0))
        drawn.append((start, end, place(value - noise), place(value + noise)))
    return drawn


def _round_numbers(low: float, high: float) -> list[float]:
    """Four to eight multiples of 1, 2 or 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 4.0))
    step = next(unit * size for size in (1, 2, 5, 10) if (high - low) / (unit * size) <= 5.0)
    first = math.ceil(low / step)
    last = math.floor(high / step)
    return [step * number + 0.0 for number in range(first, last + 1)]


#: Rows of a table from which on it is folded.
_LONG = 16
#: Covariates from which on they are folded.
_MANY = 6


def release_page(
    release: BaseRelease | Mapping[str, BaseRelease], *, source: str = "release.json"
) -> str:
    """One page of HTML about a release, from what it states alone.

    It needs no other file, no script and no network. It tells the estimate, what its interval
    counts, the guarantee in words, what was declared, for whom the result holds and what it rests
    on.

    Parameters
    ----------
    release
        A release, or several from the same data, by name. Of several the page has all effects in
        one table, with intervals that hold for all of them, a picture for every outcome, and what
        they promise together: their epsilons and deltas add up. The screen of each is folded.
    source
        The name of the file, for who wants to check it.

    Raises
    ------
    DeclarationError
        Where jinja2 is missing, or nothing follows from one of several releases.
    """
    check_installed(("jinja2",))
    if isinstance(release, Mapping):
        return _answers_page(release)
    story = story_of(release)
    parameters = []
    for row, bar in zip(story.rows, bars(story.rows), strict=True):
        parameters.append({"noise_half_width": None, **row, "bar": bar})
    return rendered(
        "release.html.j2",
        title=story.title,
        story=story,
        release=release,
        picture=picture(story.spans, story.caption),
        private=release.private,
        standing=release.guarantee.standing.value.upper(),
        promised=promised(release),
        parameters=parameters,
        declared=[*story.declared, *declared_tables(release)],
        spent=[*story.spent, pairs(list(story.guarantee))],
        long=_LONG,
        many=_MANY,
        source=source,
    )


def _answers_page(releases: Mapping[str, BaseRelease]) -> str:
    """One page about several releases from the same data, by name."""
    listed = answers(releases)
    table = list(answer_blocks(listed)) if listed else []
    return rendered(
        "answers.html.j2",
        title=f"{len(releases)} questions",
        asked=[(name, release, story_of(release)) for name, release in releases.items()],
        pictures=list(_pictures(listed)),
        table=table,
        promised=_promised_together(list(releases.values())),
    )


def _pictures(listed: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """A picture of the effects on every outcome; effects without any interval are left out."""
    spans: dict[tuple[str, str], list[Span]] = {}
    for answer in listed:
        if answer.withdrawn == NO_SAMPLING:
            continue
        name = answer.name
        if answer.withdrawn:
            name = f"{name}: no confidence interval"
        low = answer.interval.low
        high = answer.interval.high
        span = Span(name, answer.estimate, low, high, wide=not answer.withdrawn)
        spans.setdefault((answer.outcome, answer.unit), []).append(span)
    for (outcome, unit), own in spans.items():
        of = f", in {unit}" if unit else ""
        drawn = picture(own, f"Effects on {outcome}{of}.")
        if drawn is not None:
            yield drawn


def _promised_together(releases: Sequence[BaseRelease]) -> tuple[list[str], list[str]]:
    """Sentences on what several releases promise together, or that each has its own promise."""
    whole = _together(releases)
    if whole is None:
        alone = (
            "Each of these releases has a promise of its own: number or kind of their records "
            "differ. Of people in several of them the epsilons add up."
        )
        return [alone], []
    return promised(whole)


#: What a promise may rest on, the weakest last.
_WEAKER = (Standing.PRIVATE, Standing.FITTED_BEFORE, Standing.CONDITIONAL, *list(Standing)[3:])


def _together(releases: Sequence[BaseRelease]) -> BaseRelease | None:
    """Joint promise of several releases of the same data, by basic composition.

    Returns
    -------
    One of the releases, with the guarantee of all of them; None where the number or the kind of
    their records differ.
    """
    first = releases[0]
    if len({(one.guarantee.relation, units_of(one), one.n_samples) for one in releases}) > 1:
        return None
    epsilon = math.fsum(one.guarantee.epsilon for one in releases)
    epsilon -= _spent_twice(releases)
    epsilon += _spent_on_ranges(releases)
    assumptions: dict[str, None] = {}
    for release in releases:
        assumptions |= dict.fromkeys(release.guarantee.assumptions)
    guarantee = replace(
        first.guarantee,
        epsilon=epsilon,
        delta=math.fsum(one.guarantee.delta for one in releases),
        standing=max((one.guarantee.standing for one in releases), key=_WEAKER.index),
        assumptions=tuple(assumptions),
    )
    floor = max(one.domain.get("arm_floor") or 0 for one in releases)
    domain = {**first.domain, "arm_floor": floor or None}
    domain.pop("released", None)  # which is counted
    return replace(first, guarantee=guarantee, domain=domain)


def _spent_twice(releases: Sequence[BaseRelease]) -> float:
    """Epsilon of steps that a question took over from another one of these: it is spent once."""
    owned = []
    taken = []
    for release in releases:
        for part in getattr(release, "nuisances", ()):
            named = (release.study, part.step, part.coefficient)
            if part.step in release.before:
                taken.append((release.step(part.step), named))
            else:
                owned.append(named)
    return math.fsum(step.epsilon for step, named in taken if step is not None and named in owned)


def _spent_on_ranges(releases: Sequence[BaseRelease]) -> float:
    """Epsilon of the released ranges that releases rest on, once, less those that are listed."""
    listed = {one.digest for one in releases if isinstance(one, RangesRelease)}
    rests: dict[str, float] = {}
    for release in releases:
        ranges = release.public.released
        if ranges is not None and ranges.digest not in listed:
            rests[ranges.digest] = ranges.epsilon
    return math.fsum(rests.values())


#: Any audit of this package, or the pair that a search found with its audit. Stability audits hold
#: many verdicts; of the others a page has the sentence, the numbers, and the records of the pair.
Audit = Any


def _violated(audit: Audit) -> bool:
    """Whether an audit found that what it tests does not hold."""
    for name in ("violated", "exceeds", "alarm"):
        if hasattr(audit, name):
            return bool(getattr(audit, name))
    raise DeclarationError(f"audits: {type(audit).__name__} is no audit")


def _title(audit: Audit) -> str:
    """The title of an audit, or its kind."""
    kind = type(getattr(audit, "audit", audit)).__name__.removesuffix("Audit").lower()
    return str(getattr(audit, "title", "")) or f"{kind} audit"


def _headline(audits: Sequence[Audit]) -> str:
    """One line on what all audits come to."""
    stability: list[StabilityAudit] = [audit for audit in audits if hasattr(audit, "verdicts")]
    guarantees = [audit for audit in audits if not hasattr(audit, "verdicts")]
    wrong: list[str] = []
    tried = 0
    bounds = 0
    for audit in stability:
        wrong += [verdict.claim.name for verdict in audit.violations]
        tried += audit.scouted + audit.resolved
        bounds += len(audit.verdicts)
    failed = [_title(audit) for audit in guarantees if _violated(audit)]
    if not guarantees and not wrong:
        return f"None of {bounds} bounds was violated by {tried:,} neighbors: a search, not a proof"
    counts = []
    if stability:
        counts.append(f"{len(wrong)} of {bounds} bounds, {tried:,} neighbors tried")
    if guarantees:
        counts.append(f"{len(failed)} of {len(guarantees)} guarantees")
    counted = "; ".join(counts)
    if not wrong and not failed:
        return f"Nothing was violated ({counted}): a search, not a proof"
    names = ", ".join(f"“{name}”" for name in dict.fromkeys(wrong + failed))
    return f"Violated: {names} ({counted})"


def neighbor_in_words(pair: NeighborPair, universe: Universe) -> str:
    """Text on what one record does, among which others. Values of covariates are not told."""
    first = pair.first
    moved = f"{pair.origin}: {_change_in_words(pair, universe)}"
    if isinstance(first, RecordBlocks):  # the others are nowhere together
        return f"{moved}; the other {first.n_samples - 1:,} are read in blocks"
    others = np.delete(np.column_stack([first.covariates, first.a]), pair.changed, axis=0)
    distinct = len(np.unique(others, axis=0))
    treated = _count_in_words(int(others[:, -1].sum()), len(others))
    values = f"{distinct:,} distinct {plural('value', distinct)}"
    return f"{moved}; the other {len(others):,} take {values}, {treated} treated"


def _change_in_words(pair: NeighborPair, universe: Universe) -> str:
    """Clause on the treatments of the record that is replaced, and on how far it moves."""
    place = np.array([pair.changed])
    old = pair.first.at(place)
    new = pair.second.at(place)
    arms = ("untreated", "treated")
    before = arms[int(old.a[0])]
    after = arms[int(new.a[0])]
    change = f"goes from {before} to {after}"
    if before == after:
        change = f"stays {before}"
    diameter = 2 * universe.space.features_bound
    way = float(np.linalg.norm(old.covariates - new.covariates)) / diameter
    return f"a record {change} and moves by {way:.0%} of the diameter of the covariates"


def _count_in_words(count: int, total: int) -> str:
    """A count of so many in all; ``none`` and ``all`` are words."""
    if count == 0:
        return "none"
    if count == total:
        return "all"
    return f"{count:,}"


def _flat(facts: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every number or text of nested facts, with where it stands."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            yield from _flat(value, f"{name}, {key}" if name else str(key))
    elif isinstance(facts, list | tuple):
        if any(isinstance(fact, dict | list | tuple) for fact in facts):
            for index, value in enumerate(facts):
                yield from _flat(value, f"{name} {index + 1}")
        else:
            yield name, ", ".join(map(str, facts))
    elif facts is not None:
        yield name, facts


#: Packages that the numbers of an audit depend on, beside this one and Python.
_DEPENDED_ON = ("numpy", "scipy", "cvxpy", "clarabel", "scs", "osqp")


def audit_facts(audits: Sequence[Audit], command: str | None = None) -> dict[str, Any]:
    """The report in plain JSON types.

    Parameters
    ----------
    audits
        Of any kind.
    command
        What repeats them.

    Returns
    -------
    ``headline``, ``command``, ``versions``, ``private``, ``proof`` and ``audits``.
    """
    versions = {"Python": platform.python_version(), "dp2erm-cvx": __version__}
    versions |= {name: version(name) for name in _DEPENDED_ON}
    return {
        "headline": _headline(audits),
        "command": command,
        "versions": versions,
        "private": all(audit.private for audit in audits),
        "proof": False,
        "audits": [_facts_of(audit) for audit in audits],
    }


def _facts_of(audit: Audit) -> dict[str, Any]:
    """One audit in plain JSON types: its title, whether it found a violation, and its numbers."""
    facts = audit.facts if hasattr(audit, "facts") else audit
    return {"title": _title(audit), "violated": _violated(audit), **json_types(facts)}


def audit_page(audits: Sequence[Audit], *, command: str | None = None, title: str = "Audit") -> str:
    """A page of HTML that needs no other file and no network.

    Parameters
    ----------
    audits
        Of any kind: of stability, of densities, runs, known noise, drawn noise or repeated
        releases, and pairs that a search found.
    command
        What repeats it.
    title
        Of the page.

    Raises
    ------
    DeclarationError
        Where jinja2 or matplotlib is missing, or there is no audit.
    """
    if not audits:
        raise DeclarationError("audits: nothing to report")
    whole = audit_facts(audits, command)
    check_installed()
    from markupsafe import Markup

    drawn = []
    for audit, facts in zip(audits, whole["audits"], strict=True):
        name = facts.pop("title")
        shares = None
        listed = None
        if hasattr(audit, "verdicts"):
            shares = Markup(shares_figure(audit.verdicts))
        else:
            listed = list(_flat(facts))
        drawn.append((audit, name, facts["violated"], shares, listed))
    page = {
        "title": title,
        "fine": not any(facts["violated"] for facts in whole["audits"]),
        "neighbor_in_words": neighbor_in_words,
        "audits": drawn,
    }
    return rendered("audit.html.j2", **(whole | page))
