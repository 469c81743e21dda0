"""A program under examination, what a check says of it, and all checks of one program together."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.conformance.samples import LARGER, N_FEATURES, unequal_weights
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.program import FirstStage, Instance, Kind, Program, SecondStage


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


#: Of the audit, and the seed of all searches, unless others are asked for.
SEARCH = SearchPlan(20_000)
#: Records of the largest matrix of pairs.
_PAIRED = 2500


@dataclass(frozen=True)
class Subject:
    """``program`` at one choice of settings; every search of it has the seed of ``search``.

    ``search`` limits the audit and, with it, all other searches; ``sizes`` are those of neighbors whose
    weights are compared, ``larger`` those at which a few of them are, and what is a record's own.
    """

    program: Program
    search: SearchPlan = SEARCH
    sizes: tuple[int, ...] = (8, 25)
    larger: tuple[int, ...] = LARGER

    @property
    def seed(self) -> int:
        """Of every search."""
        return self.search.seed

    @property
    def evaluations(self) -> int:
        """Points that each declared constant is searched at."""
        return min(self.search.evaluations or 600, 600)

    @property
    def pairs(self) -> int:
        """Neighbors of each size whose weights are compared."""
        return min(max(self.evaluations // 10, 3), 40)

    @property
    def paired(self) -> bool:
        """Whether pairs of records may make a matrix: thousands of records then take long."""
        return isinstance(self.program, FirstStage) and self.program.kind is Kind.QUADRATIC

    @property
    def many(self) -> tuple[int, ...]:
        """Sizes at which what is a record's own is looked at once."""
        return tuple(min(n, _PAIRED) for n in self.larger) if self.paired else self.larger

    def bind(self, records: Records) -> Instance:
        """The program on records; a second stage with unequal weights, gamma = 0.05 and random noise."""
        if isinstance(self.program, FirstStage):
            return self.program.instance(records)
        assert isinstance(self.program, SecondStage)
        noise = np.random.default_rng(2).normal(size=self.n_parameters(records.domain))
        weights = unequal_weights(records.n_samples)
        return self.program.instance(records, weights, gamma=0.05, noise=noise)

    def n_parameters(self, domain: Domain) -> int:
        """Length of theta."""
        assert isinstance(self.program, SecondStage)
        columns = domain.columns or tuple(f"x{k + 1}" for k in range(N_FEATURES))
        return len(self.program.parameter_names(columns, domain))

    def distance(self, first: Array, second: Array) -> float:
        """In the norm that certificates are stated in: l1 for weights, l2 for theta."""
        return float(np.linalg.norm(first - second, 1 if isinstance(self.program, FirstStage) else 2))


#: What the theorems assume of a program, searched for violations. May raise: a program may do anything.
Check = Callable[[Subject], Judgment]
