"""What a check found, and all checks of one program together."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any


class Status(enum.StrEnum):
    """``NOTED``: nothing to pass or fail, but the reader should know."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"


@dataclass(frozen=True)
class Outcome:
    """One check: its name, what came out and the numbers or the reason in words."""

    check: str
    status: Status
    detail: str


@dataclass(frozen=True)
class Report:
    """All checks of one program at one choice of settings.

    A search refutes and never proves: ``passed`` says that nothing was found, not that a bound holds.
    """

    program: str
    settings: dict[str, Any]
    kind: str
    proved: str
    outcomes: tuple[Outcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(outcome.status is not Status.FAILED for outcome in self.outcomes)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """The checks that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is Status.FAILED)

    @property
    def notes(self) -> tuple[Outcome, ...]:
        """The checks that neither passed nor failed, for a reader to judge."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is Status.NOTED)

    @property
    def conclusion(self) -> str:
        """In one line; what a reader has to judge is no pass."""
        if self.failures:
            return f"{len(self.failures)} failed"
        if not self.notes:
            return "all checks passed"
        count = f"{len(self.notes)} note{'s' if len(self.notes) > 1 else ''}"
        return f"no check failed; {count} to read: {', '.join(note.check for note in self.notes)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "program": self.program,
            "settings": self.settings,
            "kind": self.kind,
            "proved": self.proved,
            "passed": self.passed,
            "conclusion": self.conclusion,
            "outcomes": [
                {"check": o.check, "status": o.status.value, "detail": o.detail} for o in self.outcomes
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.program}: {'FAILED' if self.failures else self.conclusion} ({self.kind}: {self.proved})"
        ]
        lines += [f"  {o.status.value:<6} {o.check}: {o.detail}" for o in self.outcomes]
        return "\n".join(lines)


def passed(check: str, detail: str) -> Outcome:
    """Nothing was found."""
    return Outcome(check, Status.PASSED, detail)


def failed(check: str, detail: str) -> Outcome:
    """Something was found."""
    return Outcome(check, Status.FAILED, detail)


def noted(check: str, detail: str) -> Outcome:
    """Nothing to judge."""
    return Outcome(check, Status.NOTED, detail)
