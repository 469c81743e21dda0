"""All effects that were released for a study, side by side, with intervals that hold for all of
them.

A weighted mean by two stages is an effect without an interval: it has a row that says so.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import grid, heading
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.privacy import Standing
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.interval import EffectInterval
from dp2erm_cvx.release.two_stage import Release
from dp2erm_cvx.release.verify import at_level
from dp2erm_cvx.report.caveats import NO_SAMPLING, withdrawn
from dp2erm_cvx.report.words import ESTIMANDS, compared, interval_text, signed, unit_of

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: Formats of a table of answers as text, by the ending of a file: those that tabulate calls so.
FORMATS = {".csv": "", ".md": "github", ".tex": "latex_booktabs"}


@dataclass(frozen=True)
class Answer:
    """One effect of a ``question``, of one group of records where the question is by groups.

    Of more than two arms it is one contrast, which stands in the place of the group.

    ``interval`` is for this effect by itself, ``joint`` for all answers at once (Bonferroni).
    ``records`` is how many count, with the noise of their release; None where that was not
    released. ``cost`` is what its release spent, and its standing. ``withdrawn`` is why its
    intervals are no confidence intervals; empty where they are.
    """

    question: str
    treatment: str
    outcome: str
    unit: str
    estimand: str
    group: str | None
    records: float | None
    estimate: float
    interval: EffectInterval
    joint: EffectInterval
    cost: Mapping[str, Any]
    withdrawn: str = ""

    @property
    def name(self) -> str:
        """The question, and the group if there is one."""
        return (
            self.question if self.group is None else f"{self.question}: {self.group or 'missing'}"
        )

    def row(self) -> dict[str, Any]:
        """The answer as one row of a table, numbers unrounded."""
        names = (
            "question",
            "group",
            "treatment",
            "outcome",
            "unit",
            "estimand",
            "records",
            "estimate",
        )
        ends: dict[str, Any] = {
            "level": self.interval.level,
            "low": self.interval.low,
            "high": self.interval.high,
        }
        ends |= {"joint_low": self.joint.low, "joint_high": self.joint.high}
        ends["no_confidence_interval"] = self.withdrawn
        return {name: getattr(self, name) for name in names} | ends | dict(self.cost)


def answers(
    releases: Mapping[str, Any], plans: Mapping[str, Plan[Any]] = MappingProxyType({})
) -> list[Answer]:
    """The effects among some releases, by the name of their question, in their order; rules have
    none.

    A two-stage release has an answer where one number is the effect of everybody; it has no
    interval. Every interval keeps its level 1 - a; jointly, each of K has the level 1 - a/K. That
    costs no epsilon: all follows from the released numbers.

    Parameters
    ----------
    releases
        By the names of their questions.
    plans
        The plans of releases, where they are at hand; others are planned again from what they
        declare.

    Raises DeclarationError where nothing follows from a file.
    """
    number = sum(len(_parts(one)) for one in releases.values() if isinstance(one, EffectRelease))
    rows: list[Answer] = []
    for name, release in releases.items():
        if isinstance(release, Release) and (value := release.effect) is not None:
            rows.append(_without_interval(name, release, value))
        if not isinstance(release, EffectRelease):
            continue
        again = release
        if number > 1:
            again = at_level(
                release, 1.0 - (1.0 - release.interval.level) / number, plans.get(name)
            )
        shared = name, *compared(release), unit_of(release), release.estimand
        for (group, own), (_, other) in zip(_parts(release), _parts(again), strict=True):
            records = getattr(own, "counted", release.counted)
            row = group, records, own.estimate, own.interval, other.interval
            rows.append(Answer(*shared, *row, release.cost(), withdrawn(release)))
    return rows


def _without_interval(name: str, release: Release, value: float) -> Answer:
    """The answer of a two-stage release, whose effect has this value."""
    none = EffectInterval(None, None, 0.95)
    about = (*compared(release), unit_of(release), "weighted")
    return Answer(name, *about, None, None, value, none, none, release.cost(), NO_SAMPLING)


def _parts(release: EffectRelease) -> list[tuple[str | None, Any]]:
    """The effects of one release, by group: all records and every group, or every contrast of
    arms.
    """
    if release.arms is not None:
        return [(f"{one.level} less {one.against}", one) for one in release.arms.contrasts]
    return [(None, release), *((one.group, one) for one in release.groups)]


def answer_blocks(listed: Sequence[Answer]) -> Iterator[Block]:
    """The answers as a table for a screen, what each is about, and what their intervals hold
    for.
    """
    yield heading("All answers")
    (name, _, *headers), rows = _cells(listed)
    yield grid(name, *headers, rows=[[row[0], *row[2:]] for row in rows])
    about: dict[str, dict[str, None]] = {}  # in 80 columns there is no room for it in every row
    for one, row in zip(listed, rows, strict=True):
        about.setdefault(row[1], {})[one.question] = None
    yield from (f"{', '.join(names)}: effect of {effect}" for effect, names in about.items())
    reasons = {(one.question, one.withdrawn): None for one in listed if one.withdrawn}
    yield from (f"{name} has no confidence interval: {reason}." for name, reason in reasons)
    yield (
        f"CI: for this answer by itself. All together: for all {len(listed)} answers at once "
        "(Bonferroni)."
    )


def answers_as(listed: Sequence[Answer], ending: str) -> str:
    """The answers as CSV with unrounded numbers (``.csv``), as Markdown (``.md``) or LaTeX
    (``.tex``).

    Raises DeclarationError for another ending, and where tabulate is not installed.
    """
    if ending not in FORMATS:
        raise DeclarationError(
            f"{ending or 'no ending'}: tables of answers are {', '.join(FORMATS)}"
        )
    if ending == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, list(listed[0].row()), lineterminator="\n")
        writer.writeheader()
        writer.writerows(one.row() for one in listed)
        return text.getvalue()
    try:
        from tabulate import tabulate
    except ImportError:
        raise DeclarationError("tables need tabulate: pip install 'dp2erm-cvx[reports]'") from None
    headers, rows = _cells(listed)
    return f"{tabulate(rows, headers, tablefmt=FORMATS[ending], disable_numparse=True)}\n"


def _cells(listed: Sequence[Answer]) -> tuple[list[str], list[list[str]]]:
    levels = {f"{100 * one.interval.level:g} %" for one in listed}
    level = levels.pop() if len(levels) == 1 else "own level"
    rows = []
    for one in listed:
        records = "" if one.records is None else f"{max(one.records, 0.0):,.0f}"
        text = f"{one.treatment} on {one.outcome}"
        if one.estimand in ESTIMANDS:
            text += ESTIMANDS[one.estimand][2]
        half = one.interval.half_width
        estimate = f"{signed(one.estimate, half)} {one.unit if half else ''}".strip()
        if one.estimand not in ESTIMANDS:
            estimate = f"{one.estimate:+.3g} {one.unit}"
        if (standing := one.cost["standing"]) != Standing.PRIVATE.value:
            text += f" ({standing.upper()})"
        ends = [interval_text(one.interval), interval_text(one.joint)]
        if one.withdrawn:
            ends = ["none", "none"]
        rows.append([one.name, text, records, estimate, *ends])
    return [
        "question",
        "effect of",
        "counted, about",
        "estimate",
        f"{level} CI",
        "all together",
    ], rows
