"""What a check finds, and all checks of one program together."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any


class CheckStatus(enum.StrEnum):
    """``NOTED``: nothing to pass or fail, but the reader should know."""

    PASSED = "passed"
    FAILED = "failed"
    NOTED = "noted"


@dataclass(frozen=True)
class CheckOutcome:
    """One check: its name, what came out and the numbers or the reason in words."""

    check: str
    status: CheckStatus
    detail: str


@dataclass(frozen=True)
class ConformanceReport:
    """All checks of one program at one choice of settings.

    A search refutes and never proves: ``passed`` says that nothing was found, not that a bound holds.
    """

    program: str
    settings: dict[str, Any]
    kind: str
    proved: str
    outcomes: tuple[CheckOutcome, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[CheckOutcome, ...]:
        """The checks that failed."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is CheckStatus.FAILED)

    @property
    def notes(self) -> tuple[CheckOutcome, ...]:
        """The checks that neither passed nor failed, for a reader to judge."""
        return tuple(outcome for outcome in self.outcomes if outcome.status is CheckStatus.NOTED)

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
            "outcomes": [asdict(o) | {"status": o.status.value} for o in self.outcomes],
        }

    def __str__(self) -> str:
        verdict = "FAILED" if self.failures else self.conclusion
        checks = [f"  {o.status.value:<6} {o.check}: {o.detail}" for o in self.outcomes]
        return "\n".join([f"{self.program}: {verdict} ({self.kind}: {self.proved})", *checks])


#: What a check says of a program: whether it passed, and the numbers or the reason in words.
Judgment = tuple[CheckStatus, str]


def passed(detail: str) -> Judgment:
    """No violation."""
    return CheckStatus.PASSED, detail


def failed(detail: str) -> Judgment:
    """A violation."""
    return CheckStatus.FAILED, detail


def noted(detail: str) -> Judgment:
    """Nothing to judge."""
    return CheckStatus.NOTED, detail
