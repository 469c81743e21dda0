"""What a stability audit keeps, and how it goes on after a stop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.audit.stability.claims import Claim, Quantity
from dp2erm_cvx.audit.stability.groups import Groups
from dp2erm_cvx.audit.stability.neighbors import Replacement
from dp2erm_cvx.audit.stability.resolve import SolverCheck
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.parallel import replacing

#: Pairs that are kept for each quantity.
KEPT = 10


@dataclass(frozen=True)
class KeptPair:
    """A pair in few numbers: groups, or a replacement in dataset ``base`` of the data or the generator."""

    values: dict[str, float]
    origin: str
    groups: dict[str, Any] | None = None
    replacement: dict[str, Any] | None = None
    base: int = 0

    @classmethod
    def of_groups(cls, pairs: Groups, index: int, values: dict[str, float], origin: str) -> KeptPair:
        """The pair ``index`` of ``pairs``."""
        held = {name: getattr(pairs, name)[index].tolist() for name in ("points", "arm", "count")}
        return cls(values, origin, groups=held)

    @classmethod
    def of_replacement(cls, change: Replacement, base: int, values: dict[str, float]) -> KeptPair:
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
class Gain:
    """What a round adds to the state; ``whole`` is False if its room or the deadline cut it short."""

    whole: bool
    check: SolverCheck
    kept: list[KeptPair] = field(default_factory=list)
    scouted: int = 0
    resolved: int = 0


@dataclass
class State:
    """Where a search stands after a whole number of rounds. Each round draws from its own generator."""

    check: SolverCheck
    rounds: int = 0
    scouted: int = 0
    resolved: int = 0
    kept: dict[str, list[KeptPair]] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """Neighbors so far."""
        return self.scouted + self.resolved

    def add(self, gain: Gain) -> None:
        """Count a round, and keep its best pairs."""
        self.scouted += gain.scouted
        self.resolved += gain.resolved
        self.check = self.check.plus(gain.check)
        for pair in gain.kept:
            self.keep(pair)

    def keep(self, pair: KeptPair) -> None:
        """Keep a pair for every quantity of which it is among the KEPT largest movements."""
        for quantity in Quantity:
            best = self.kept.setdefault(quantity, [])
            size = pair.values[quantity]
            if not np.isfinite(size) or any(abs(size - known.values[quantity]) < 1e-9 for known in best):
                continue
            best.append(pair)
            best.sort(key=lambda known: -known.values[quantity])
            del best[KEPT:]

    def save(self, path: Path, call: dict[str, Any] | None) -> None:
        """Write the state; an interrupted write leaves the former one."""
        plain = {"call": call, **asdict(self)}
        with replacing(path) as part:
            part.write_text(json.dumps(plain), encoding="utf-8")

    @classmethod
    def load(cls, path: Path, call: dict[str, Any]) -> State:
        """Read a state. Raises DataError where the file is none, or belongs to another audit."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            if plain.pop("call") != json.loads(json.dumps(call)):
                raise DataError(f"{path}: the state of another audit")
            kept = {name: [KeptPair(**pair) for pair in best] for name, best in plain["kept"].items()}
            return cls(**{**plain, "check": SolverCheck(**plain["check"]), "kept": kept})
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not the state of an audit ({type(error).__name__})") from None
