"""What a stability audit is allowed to spend, what it keeps, and how it goes on after a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.stability.claims import Claim, Quantity
from dp2erm_cvx.audit.stability.groups import Groups
from dp2erm_cvx.audit.stability.neighbors import Replacement
from dp2erm_cvx.audit.stability.resolve import SolverCheck
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.public import public_number

#: Pairs that are kept for each claim.
KEPT = 10


@dataclass(frozen=True)
class ResolveBudget:
    """At most ``solves`` neighbors or at most ``seconds``, whichever comes first; at least one is needed.

    Only a budget in solves makes an audit repeatable. Raises DeclarationError.
    """

    solves: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.solves is None and self.seconds is None:
            raise DeclarationError("budget: declare solves or seconds")
        if self.solves is not None:
            number = public_number("solves", self.solves, at_least=1)
            if number != int(number):
                raise DeclarationError(f"solves = {self.solves!r}: must be a whole number")
            object.__setattr__(self, "solves", int(number))
        if self.seconds is not None:
            object.__setattr__(self, "seconds", public_number("seconds", self.seconds, above=0))

    def share(self, part: float) -> ResolveBudget:
        """A part of it."""
        solves = None if self.solves is None else max(1, round(part * self.solves))
        return ResolveBudget(solves, None if self.seconds is None else part * self.seconds)


@dataclass(frozen=True)
class Progress:
    """How far an audit is: ``share`` of its budget, neighbors so far, largest movement over bound."""

    share: float
    neighbors: int
    ratio: float


@dataclass(frozen=True)
class Candidate:
    """A pair in few numbers: groups, or a replacement in dataset ``base`` of the data or the generator."""

    values: dict[str, float]
    origin: str
    groups: dict[str, Any] | None = None
    replacement: dict[str, Any] | None = None
    base: int = 0

    @classmethod
    def of_groups(cls, pairs: Groups, index: int, values: dict[str, float], origin: str) -> Candidate:
        """The pair ``index`` of ``pairs``."""
        held = {
            "points": pairs.points[index].tolist(),
            "arm": pairs.arm[index].tolist(),
            "count": pairs.count[index].tolist(),
        }
        return cls(values, origin, groups=held)

    @classmethod
    def of_replacement(cls, change: Replacement, base: int, values: dict[str, float]) -> Candidate:
        """A neighbor of given data."""
        held = {"index": change.index, "covariates": change.covariates.tolist(), "arm": change.arm}
        return cls(values, change.origin, replacement=held, base=base)

    def as_groups(self) -> Groups:
        """The one pair it stands for."""
        assert self.groups is not None
        points, arm, count = (np.array([self.groups[name]]) for name in ("points", "arm", "count"))
        return Groups(points.astype(np.float64), arm.astype(np.int64), count.astype(np.float64))

    def as_replacement(self) -> Replacement:
        """The one change it stands for."""
        held = self.replacement
        assert held is not None
        return Replacement(held["index"], np.array(held["covariates"]), held["arm"], self.origin)

    def ratio(self, claims: Sequence[Claim]) -> float:
        """The largest movement over its bound; that of one weight counts where nothing else is claimed."""
        moving = [claim for claim in claims if claim.quantity is not Quantity.LARGEST] or claims
        return max(self.values[claim.quantity] / max(claim.bound, 1e-300) for claim in moving)


@dataclass
class State:
    """Where a search stands after a whole number of rounds. Each round draws from its own generator."""

    check: SolverCheck
    rounds: int = 0
    scouted: int = 0
    resolved: int = 0
    kept: dict[str, list[Candidate]] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """Neighbors so far."""
        return self.scouted + self.resolved

    def add(self, kept: list[Candidate], scouted: int, resolved: int, check: SolverCheck) -> None:
        """What a round found."""
        self.scouted += scouted
        self.resolved += resolved
        self.check = self.check.plus(check)
        for candidate in kept:
            self.keep(candidate)

    def keep(self, candidate: Candidate) -> None:
        """Keep a pair for every quantity of which it is among the KEPT largest movements."""
        for quantity in Quantity:
            best = self.kept.setdefault(quantity, [])
            size = candidate.values[quantity]
            if not np.isfinite(size) or any(abs(size - known.values[quantity]) < 1e-9 for known in best):
                continue
            best.append(candidate)
            best.sort(key=lambda known: -known.values[quantity])
            del best[KEPT:]

    def save(self, path: Path, call: dict[str, Any]) -> None:
        """Write the state; an interrupted write leaves the former one."""
        plain = {
            "call": call,
            "check": asdict(self.check),
            "rounds": self.rounds,
            "scouted": self.scouted,
            "resolved": self.resolved,
            "kept": {name: [asdict(candidate) for candidate in best] for name, best in self.kept.items()},
        }
        temporary = path.with_name(path.name + ".part")
        temporary.write_text(json.dumps(plain), encoding="utf-8")
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: Path, call: dict[str, Any]) -> State:
        """Read a state. Raises DataError where the file is none, or belongs to another audit."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if plain["call"] != json.loads(json.dumps(call)):
                raise DataError(f"{path}: the state of another audit")
            kept = {
                name: [Candidate(**candidate) for candidate in best] for name, best in plain["kept"].items()
            }
            return cls(
                SolverCheck(**plain["check"]), plain["rounds"], plain["scouted"], plain["resolved"], kept
            )
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not the state of an audit ({type(error).__name__})") from None
