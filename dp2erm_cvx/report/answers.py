"""All effects that were released for a study, with intervals that hold for all of them.

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
    """One effect of a question.

    Parameters
    ----------
    question
        Its name.
    treatment, outcome
        Their names.
    unit
        Of the outcome.
    estimand
        What is estimated; "weighted" of a two-stage release.
    group
        The group of records that it is about, or the contrast of more than two arms; None of all
        records.
    records
        How many count, with the noise of their release; None where that was not released.
    estimate
        In units of the outcome.
    interval
        For this effect by itself.
    joint
        For all answers at once (Bonferroni).
    cost
        What its release spent, and its standing.
    withdrawn
        Why its intervals are no confidence intervals; empty where they are.
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
        if self.group is None:
            return self.question
        return f"{self.question}: {self.group or 'missing'}"

    def row(self) -> dict[str, Any]:
        """The answer as one row of a table, numbers unrounded."""
        return {
            "question": self.question,
            "group": self.group,
            "treatment": self.treatment,
            "outcome": self.outcome,
            "unit": self.unit,
            "estimand": self.estimand,
            "records": self.records,
            "estimate": self.estimate,
            "level": self.interval.level,
            "low": self.interval.low,
            "high": self.interval.high,
            "joint_low": self.joint.low,
            "joint_high": self.joint.high,
            "no_confidence_interval": self.withdrawn,
            **self.cost,
        }


def answers(
    releases: Mapping[str, Any], plans: Mapping[str, Plan[Any]] = MappingProxyType({})
) -> list[Answer]:
    """The effects among some releases, in their order; rules have none.

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

    Raises
    ------
    DeclarationError
        Where nothing follows from a file.
    """
    number = sum(len(_parts(one)) for one in releases.values() if isinstance(one, EffectRelease))
    rows: list[Answer] = []
    for name, release in releases.items():
        if isinstance(release, Release) and release.effect is not None:
            rows.append(_without_interval(name, release, release.effect))
        if isinstance(release, EffectRelease):
            rows += _with_intervals(name, release, number, plans.get(name))
    return rows


def _without_interval(name: str, release: Release, value: float) -> Answer:
    """The answer of a two-stage release, whose effect has this value."""
    treatment, outcome = compared(release)
    none = EffectInterval(None, None, 0.95)
    return Answer(
        question=name,
        treatment=treatment,
        outcome=outcome,
        unit=unit_of(release),
        estimand="weighted",
        group=None,
        records=None,
        estimate=value,
        interval=none,
        joint=none,
        cost=release.cost(),
        withdrawn=NO_SAMPLING,
    )


def _with_intervals(
    name: str, release: EffectRelease, number: int, plan: Plan[Any] | None
) -> Iterator[Answer]:
    """The answers of one release, whose joint intervals hold for so many effects at once."""
    treatment, outcome = compared(release)
    joint = release
    if number > 1:
        level = 1.0 - (1.0 - release.interval.level) / number
        joint = at_level(release, level, plan)
    for (group, part), (_, part_of_joint) in zip(_parts(release), _parts(joint), strict=True):
        yield Answer(
            question=name,
            treatment=treatment,
            outcome=outcome,
            unit=unit_of(release),
            estimand=release.estimand,
            group=group,
            records=getattr(part, "counted", release.counted),
            estimate=part.estimate,
            interval=part.interval,
            joint=part_of_joint.interval,
            cost=release.cost(),
            withdrawn=withdrawn(release),
        )


def _parts(release: EffectRelease) -> list[tuple[str | None, Any]]:
    """The effects of one release by group: of all records and every group, or every contrast."""
    if release.arms is not None:
        return [(f"{one.level} less {one.against}", one) for one in release.arms.contrasts]
    return [(None, release), *((one.group, one) for one in release.groups)]


def answer_blocks(listed: Sequence[Answer]) -> Iterator[Block]:
    """The answers as a table, what each is about, and what their intervals hold for."""
    yield heading("All answers")
    (question, _, *headers), rows = _cells(listed)
    yield grid(question, *headers, rows=[[name, *cells] for name, _, *cells in rows])
    # what an answer is about has no room within 80 columns of a table
    questions: dict[str, dict[str, None]] = {}
    for one in listed:
        questions.setdefault(_about(one), {})[one.question] = None
    for effect, names in questions.items():
        yield f"{', '.join(names)}: effect of {effect}"
    reasons = {(one.question, one.withdrawn): None for one in listed if one.withdrawn}
    for name, reason in reasons:
        yield f"{name} has no confidence interval: {reason}."
    yield (
        f"CI: for this answer by itself. All together: for all {len(listed)} answers at once "
        "(Bonferroni)."
    )


def answers_as(listed: Sequence[Answer], ending: str) -> str:
    """The answers as text for a file.

    Parameters
    ----------
    listed
        The answers.
    ending
        ``.csv`` for unrounded numbers, ``.md`` for Markdown, ``.tex`` for LaTeX.

    Raises
    ------
    DeclarationError
        For another ending, and where tabulate is not installed.
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
    """Headers and rows of the table of answers, as text."""
    levels = {f"{100 * one.interval.level:g} %" for one in listed}
    level = levels.pop() if len(levels) == 1 else "own level"
    headers = [
        "question",
        "effect of",
        "counted, about",
        "estimate",
        f"{level} CI",
        "all together",
    ]
    return headers, [_cells_of(one) for one in listed]


def _cells_of(one: Answer) -> list[str]:
    """The row of one answer, as text."""
    records = ""
    if one.records is not None:
        records = f"{max(one.records, 0.0):,.0f}"
    alone = "none"
    together = "none"
    if not one.withdrawn:
        alone = interval_text(one.interval)
        together = interval_text(one.joint)
    return [one.name, _about(one), records, _estimate_text(one), alone, together]


def _about(one: Answer) -> str:
    """What an answer is the effect of, for whom, and its standing where it is not private."""
    text = f"{one.treatment} on {one.outcome}"
    if one.estimand in ESTIMANDS:
        text += ESTIMANDS[one.estimand][2]
    standing = one.cost["standing"]
    if standing != Standing.PRIVATE.value:
        text += f" ({standing.upper()})"
    return text


def _estimate_text(one: Answer) -> str:
    """The estimate, rounded as its interval is, with its unit; unknown where that is unbounded."""
    if one.estimand not in ESTIMANDS:
        return f"{one.estimate:+.3g} {one.unit}"
    half = one.interval.half_width
    if not half:
        return signed(one.estimate, half)
    return f"{signed(one.estimate, half)} {one.unit}".strip()
