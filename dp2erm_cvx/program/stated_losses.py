"""Losses of the library's second stages as data: what is read of their functions, which takes CVXPY to read.

The file ``stated_losses.json`` holds the form of every second stage of the library, with the digest of the
file that its function is written in. A function whose file has another digest is read as any other one. A
test reads all of them with CVXPY and compares.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.model.sets import Box, ConvexSet, L2Ball, WholeSpace
from dp2erm_cvx.program.form import Form, MarginTerm
from dp2erm_cvx.program.rows import Datum, DeclaredRecords
from dp2erm_cvx.program.scheme import Scheme
from dp2erm_cvx.program.stage import evaluated

#: Sets of theta by name; what they are given is their size.
_SETS: Mapping[str, type[ConvexSet]] = {"Box": Box, "L2Ball": L2Ball, "WholeSpace": WholeSpace}


@dataclass(frozen=True)
class StatedLoss:
    """A loss of one margin, ``c_i phi(scale <z_i, theta> + o_i)``, as the file states it.

    Parameters
    ----------
    rows
        The name of the rows z.
    offset, factor
        A multiple and the name of the numbers o and c; None for 0 and for 1.
    curve
        The atom phi, its number, and the scale of the margin.
    set
        The name of the set of theta, and its size.

    A number may be a formula of the settings, of M, of ``outcome_bound`` and of ``covariate_bound``.
    """

    rows: str
    offset: tuple[float, str] | None
    factor: tuple[float, str] | None
    curve: Mapping[str, Any]
    set: tuple[Any, ...]

    def form(self, records: DeclaredRecords, settings: Mapping[str, float]) -> Form:
        """The form of the problem that the function returns.

        Parameters
        ----------
        records
            Records as the function sees them, of stated data.
        settings
            Settings of the function, by name.
        """
        known = {
            **settings,
            "M": records.M,
            "outcome_bound": records.outcome_bound,
            "covariate_bound": records.space.covariate_bound,
        }
        bend = atom(self.curve["atom"], float(evaluated("number", self.curve["number"], known)))
        curve = Curve((Part(1.0, bend, self.curve["scale"]),))
        rows = getattr(records, self.rows)
        offset = self._numbers(self.offset, records)
        factor = self._numbers(self.factor, records)
        name, *sizes = self.set
        feasible = _SETS[name](*(float(evaluated("size", size, known)) for size in sizes))
        return Form(MarginTerm(rows, curve, offset, factor), 0.0, 0.0, feasible)

    @staticmethod
    def _numbers(stated: tuple[float, str] | None, records: DeclaredRecords) -> tuple[float, Datum] | None:
        if stated is None:
            return None
        multiple, name = stated
        return multiple, getattr(records, name)


def stated_loss(scheme: Scheme) -> StatedLoss | None:
    """What the file states of a scheme; None of one that is not the library's, or whose file is another."""
    entry = _entries().get(scheme.name)
    if entry is None or not scheme.of_library:
        return None
    source, loss = entry
    return loss if source == _digest(scheme.function.__code__.co_filename) else None


@cache
def _entries() -> Mapping[str, tuple[str, StatedLoss]]:
    """The digest of its source, and the loss, of every second stage by name."""
    path = Path(__file__).with_name("stated_losses.json")
    stated = json.loads(path.read_text(encoding="utf-8"))
    return {name: (entry.pop("source"), StatedLoss(**entry)) for name, entry in stated.items()}


@cache
def _digest(path: str) -> str | None:
    """SHA-256 of a file; None where it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
