"""Pages of HTML that need no other file and no network: of releases, and of what audits found."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx import __version__
from dp2erm_cvx.checks import json_types
from dp2erm_cvx.data.blocked import RecordBlocks
from dp2erm_cvx.display import as_html, pairs
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.ranges import RangesRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.report.answers import answer_blocks, answers
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
    if gone := missing(packages):
        instead = ", or write JSON only (dp2erm audit --no-page)" if packages == PACKAGES else ""
        raise DeclarationError(
            f"this needs {' and '.join(gone)}: pip install 'dp2erm-cvx[reports]'{instead}"
        )


def number(value: float) -> str:
    """A number for a table."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


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


def picture(spans: Sequence[Span], caption: str) -> dict[str, Any] | None:
    """Spans over an axis that holds 0 and every finite end, and what a page draws: None beyond
    doubles.

    ``drawn`` has each span with its left end, dot and right end in percent, ``ticks`` places and
    labels, ``zero`` the place of 0.
    """
    spread = [span for span in spans if (span.low, span.high) != (None, None)] or spans
    ends = [
        0.0,
        *(end for span in spread for end in (span.at, span.low, span.high) if end is not None),
    ]
    low, high = min(ends), max(ends)
    if not spans or not math.isfinite(4.0 * high - 4.0 * low) or high - low < 1e-300:
        return None
    margin = 0.06 * (high - low)
    low, high = low - margin, high + margin

    def place(value: float) -> float:
        return round(100.0 * (value - low) / (high - low), 3)

    drawn = tuple(
        (
            span,
            0.0 if span.low is None else place(span.low),
            place(span.at) if span in spread else None,  # nothing is known of it
            100.0 if span.high is None else place(span.high),
        )
        for span in spans
    )
    ticks = [
        (place(tick), f"{tick:.4g}")
        for tick in _round_numbers(low, high)
        if 4.0 < place(tick) < 96.0
    ]
    return {"drawn": drawn, "ticks": ticks, "zero": place(0.0), "caption": caption}


def bars(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, float, float]]:
    """For each value on an axis centered at 0: where its bar and its noise start and end, in
    percent.
    """
    drawn = [(row["value"] or 0.0, row.get("noise_half_width") or 0.0) for row in rows]
    largest = max((abs(value) + noise for value, noise in drawn), default=0.0)
    if not 0.0 < largest < 1e300:
        return [(50.0, 50.0, 50.0, 50.0)] * len(rows)

    def place(value: float) -> float:
        return round(50.0 + 48.0 * value / largest, 3)

    return [
        (place(min(value, 0.0)), place(max(value, 0.0)), place(value - noise), place(value + noise))
        for value, noise in drawn
    ]


def _round_numbers(low: float, high: float) -> list[float]:
    """Four to eight multiples of 1, 2 or 5 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 4.0))
    step = next(unit * size for size in (1, 2, 5, 10) if (high - low) / (unit * size) <= 5.0)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [step * number + 0.0 for number in range(first, last + 1)]


#: Rows of a table, and covariates, from which on they are folded.
_LONG, _MANY = 16, 6


def release_page(
    release: BaseRelease | Mapping[str, BaseRelease], *, source: str = "release.json"
) -> str:
    """One page of HTML about a release, from what it states alone: no other file, no script, no
    network.

    It tells the estimate, what its interval counts, the guarantee in words, what was declared, for
    whom the result holds and what it rests on. ``source`` is the name of the file, for who wants to
    check it.

    Of several releases from the same data, by name, the page has all effects in one table, with
    intervals that hold for all of them, a picture for every outcome, and what they promise
    together: their epsilons and deltas add up. The screen of each is folded. Raises
    DeclarationError where jinja2 is missing, or nothing follows from one of several releases.
    """
    check_installed(("jinja2",))
    if isinstance(release, Mapping):
        return _answers_page(release)
    story = story_of(release)
    return rendered(
        "release.html.j2",
        title=story.title,
        story=story,
        release=release,
        picture=picture(story.spans, story.caption),
        private=release.private,
        standing=release.guarantee.standing.value.upper(),
        promised=promised(release),
        parameters=[
            {"noise_half_width": None, **row, "bar": bar}
            for row, bar in zip(story.rows, bars(story.rows), strict=True)
        ],
        declared=[*story.declared, *declared_tables(release)],
        spent=[*story.spent, pairs(list(story.guarantee))],
        long=_LONG,
        many=_MANY,
        source=source,
    )


def _answers_page(releases: Mapping[str, BaseRelease]) -> str:
    whole = _together(list(releases.values()))
    alone = (
        "Each of these releases has a promise of its own: number or kind of their records differ. "
        "Of people in several of them the epsilons add up."
    )
    listed, spans = answers(releases), dict[tuple[str, str], list[Span]]()
    for one in listed:
        if one.withdrawn == NO_SAMPLING:  # of which there is nothing to draw
            continue
        name = f"{one.name}: no confidence interval" if one.withdrawn else one.name
        own = spans.setdefault((one.outcome, one.unit), [])
        own.append(
            Span(name, one.estimate, one.interval.low, one.interval.high, wide=not one.withdrawn)
        )
    drawn = [
        picture(some, f"Effects on {outcome}{f', in {unit}' if unit else ''}.")
        for (outcome, unit), some in spans.items()
    ]
    return rendered(
        "answers.html.j2",
        title=f"{len(releases)} questions",
        asked=[(name, release, story_of(release)) for name, release in releases.items()],
        pictures=[one for one in drawn if one is not None],
        table=list(answer_blocks(listed)) if listed else [],
        promised=([alone], []) if whole is None else promised(whole),
    )


#: What a promise may rest on, the weakest last.
_WEAKER = (Standing.PRIVATE, Standing.FITTED_BEFORE, Standing.CONDITIONAL, *list(Standing)[3:])


def _together(releases: Sequence[BaseRelease]) -> BaseRelease | None:
    """Joint promise of several releases of the same data, by basic composition, as one of them
    makes it.
    """
    first = releases[0]
    if len({(r.guarantee.relation, units_of(r), r.n_samples) for r in releases}) > 1:
        return None
    spent = [(r.guarantee.epsilon, r.guarantee.delta) for r in releases]
    epsilon, delta = (math.fsum(part) for part in zip(*spent, strict=True))
    numbers = [
        (r, part.step, (r.study, part.step, part.coefficient))
        for r in releases
        for part in getattr(r, "nuisances", ())
    ]
    owned = [of for r, step, of in numbers if step not in r.before]
    # what a question took over from another one here is spent once
    twice = [r.step(step) for r, step, of in numbers if step in r.before and of in owned]
    epsilon -= math.fsum(step.epsilon for step in twice if step is not None)
    # what they rest on counts once, and is among them or is not
    listed = {r.digest for r in releases if isinstance(r, RangesRelease)}
    rests = {
        r.public.released.digest: r.public.released.epsilon for r in releases if r.public.released
    }
    epsilon += math.fsum(own for digest, own in rests.items() if digest not in listed)
    weakest = max((r.guarantee.standing for r in releases), key=_WEAKER.index)
    assumed = tuple(dict.fromkeys(text for r in releases for text in r.guarantee.assumptions))
    whole = replace(
        first.guarantee, epsilon=epsilon, delta=delta, standing=weakest, assumptions=assumed
    )
    floor = max(r.domain.get("arm_floor") or 0 for r in releases) or None
    domain = {**first.domain, "arm_floor": floor}
    domain.pop("released", None)  # which is counted
    return replace(first, guarantee=whole, domain=domain)


#: Any audit of this package, or the pair that a search found with its audit. Stability audits hold
#: many verdicts; of the others a page has the sentence, the numbers, and the records of the pair.
Audit = Any


def _violated(audit: Audit) -> bool:
    known = [
        getattr(audit, name) for name in ("violated", "exceeds", "alarm") if hasattr(audit, name)
    ]
    if not known:
        raise DeclarationError(f"audits: {type(audit).__name__} is no audit")
    return bool(known[0])


def _title(audit: Audit) -> str:
    kind = type(getattr(audit, "audit", audit)).__name__.removesuffix("Audit").lower()
    return str(getattr(audit, "title", "")) or f"{kind} audit"


def _headline(audits: Sequence[Audit]) -> str:
    """One line on what all audits come to."""
    stability: list[StabilityAudit] = [audit for audit in audits if hasattr(audit, "verdicts")]
    guarantees = [audit for audit in audits if not hasattr(audit, "verdicts")]
    wrong = [verdict.claim.name for audit in stability for verdict in audit.violations]
    failed = [_title(audit) for audit in guarantees if _violated(audit)]
    tried = sum(audit.scouted + audit.resolved for audit in stability)
    bounds = sum(len(audit.verdicts) for audit in stability)
    if not guarantees and not wrong:
        return f"None of {bounds} bounds was violated by {tried:,} neighbors: a search, not a proof"
    counted = [f"{len(wrong)} of {bounds} bounds, {tried:,} neighbors tried"] if stability else []
    counted += [f"{len(failed)} of {len(guarantees)} guarantees"] if guarantees else []
    if not wrong and not failed:
        return f"Nothing was violated ({'; '.join(counted)}): a search, not a proof"
    names = ", ".join(f"“{name}”" for name in dict.fromkeys(wrong + failed))
    return f"Violated: {names} ({'; '.join(counted)})"


def neighbor_in_words(pair: NeighborPair, universe: Universe) -> str:
    """Text on what one record does, among which others. Values of covariates are not told."""
    j, before, after = pair.changed, pair.first, pair.second
    old, new = (end.at(np.array([j])) for end in (before, after))
    arms = [("untreated", "treated")[int(end.a[0])] for end in (old, new)]
    flip = f"stays {arms[0]}" if arms[0] == arms[1] else f"goes from {arms[0]} to {arms[1]}"
    way = float(np.linalg.norm(old.covariates - new.covariates)) / (
        2 * universe.space.features_bound
    )
    moved = (
        f"{pair.origin}: a record {flip} and moves by {way:.0%} of the diameter of the covariates"
    )
    if isinstance(before, RecordBlocks):  # the others are nowhere together
        return f"{moved}; the other {before.n_samples - 1:,} are read in blocks"
    rest = np.delete(np.column_stack([before.covariates, before.a]), j, axis=0)
    distinct, treated = len(np.unique(rest, axis=0)), int(rest[:, -1].sum())
    number = "none" if treated == 0 else "all" if treated == len(rest) else f"{treated:,}"
    values = f"{distinct:,} distinct value{'s' if distinct > 1 else ''}"
    return f"{moved}; the other {len(rest):,} take {values}, {number} treated"


def _flat(facts: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every number or text of nested facts, with where it stands."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            yield from _flat(value, f"{name}, {key}" if name else str(key))
    elif isinstance(facts, list | tuple) and any(
        isinstance(fact, dict | list | tuple) for fact in facts
    ):
        for index, value in enumerate(facts):
            yield from _flat(value, f"{name} {index + 1}")
    elif facts is not None:
        yield name, ", ".join(map(str, facts)) if isinstance(facts, list | tuple) else facts


def audit_facts(audits: Sequence[Audit], command: str | None = None) -> dict[str, Any]:
    """The report in plain JSON types: ``headline``, ``command``, ``versions``, ``private`` and
    ``audits``.
    """
    return {
        "headline": _headline(audits),
        "command": command,
        # of Python and of the packages that the numbers depend on
        "versions": {
            "Python": platform.python_version(),
            "dp2erm-cvx": __version__,
            **{
                name: version(name)
                for name in ("numpy", "scipy", "cvxpy", "clarabel", "scs", "osqp")
            },
        },
        "private": all(audit.private for audit in audits),
        "proof": False,
        "audits": [
            {
                "title": _title(audit),
                "violated": _violated(audit),
                **json_types(audit.facts if hasattr(audit, "facts") else audit),
            }
            for audit in audits
        ],
    }


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

    Raises DeclarationError where jinja2 or matplotlib is missing, or there is no audit.
    """
    if not audits:
        raise DeclarationError("audits: nothing to report")
    whole = audit_facts(audits, command)
    check_installed()
    from markupsafe import Markup

    drawn = []
    for audit, facts in zip(audits, whole["audits"], strict=True):
        name, violated, verdicts = (
            facts.pop("title"),
            facts["violated"],
            getattr(audit, "verdicts", None),
        )
        shares = None if verdicts is None else Markup(shares_figure(verdicts))
        drawn.append(
            (audit, name, violated, shares, None if verdicts is not None else list(_flat(facts)))
        )
    fine = not any(violated for _, _, violated, _, _ in drawn)
    more = {"title": title, "fine": fine, "neighbor_in_words": neighbor_in_words, "audits": drawn}
    return rendered("audit.html.j2", **(whole | more))
