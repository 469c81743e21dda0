"""Losses of the library's programs as data, which CVXPY would take time to read.

The file ``stated_losses.json`` holds the form of every second stage of the library, and losses and
weights of its separable schemes but one, with the digest of the code that a function is written in.
A function whose code has another digest is read as any other one. A test reads all of them with
CVXPY and compares.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.curves.log_weights import LogWeight
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

    A number may be a formula of the settings, of M, of ``outcome_bound`` and of
    ``covariate_bound``.
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
    def _numbers(
        stated: tuple[float, str] | None, records: DeclaredRecords
    ) -> tuple[float, Datum] | None:
        if stated is None:
            return None
        multiple, name = stated
        return multiple, getattr(records, name)


@dataclass(frozen=True)
class StatedMargins:
    """A loss of a margin and a log weight, for all records or for an arm, as the file states them.

    Parameters
    ----------
    loss
        The atom phi and the scale of the margin in it.
    beside
        The coefficient of the other margin beside the loss.
    log_weight
        Log f as :class:`~dp2erm_cvx.curves.log_weights.LogWeight` has it, atoms by their kinds.
    cap
        The name of the setting that the weight is cut off at; None without one. It may be infinite.
    loss_text, weight_text
        Both in words; the latter without the cap.
    """

    loss: Mapping[str, Any]
    beside: float
    log_weight: Mapping[str, Any]
    cap: str | None
    loss_text: str
    weight_text: str

    @property
    def curve(self) -> Curve:
        """Phi."""
        return Curve((Part(1.0, atom(self.loss["atom"]), self.loss["scale"]),))

    def weight(self, settings: Mapping[str, float]) -> tuple[LogWeight, str]:
        """Log f at these settings, and in words."""
        weight = _log_weight(self.log_weight)
        if self.cap is None or math.isinf(settings[self.cap]):
            return weight, self.weight_text
        most = math.log(settings[self.cap])
        cut_off = LogWeight("minimum", (weight, LogWeight("constant", number=most)))
        return cut_off, f"minimum({self.weight_text}, {most:g})"


def _log_weight(stated: Mapping[str, Any]) -> LogWeight:
    kind = stated.get("atom")
    parts = tuple(_log_weight(part) for part in stated.get("parts", ()))
    number = stated.get("number", 1.0)
    return LogWeight(stated["operation"], parts, number, None if kind is None else atom(kind))


def stated_loss(scheme: Scheme) -> StatedLoss | None:
    """What the file states of a second stage.

    None of one that is not the library's, and of one whose file is another.
    """
    entry = _stated(scheme, "second_stages")
    return None if entry is None else StatedLoss(**entry)


def stated_margins(scheme: Scheme) -> tuple[StatedMargins, ...]:
    """What the file states of a separable scheme: of all records, or of controls and of treated.

    Nothing of one that is not the library's, that is not in the file, and of one whose file is
    another.
    """
    entry = _stated(scheme, "margins")
    if entry is None:
        return ()
    return tuple(StatedMargins(**arm) for arm in entry["arms"])


def _stated(scheme: Scheme, table: str) -> dict[str, Any] | None:
    """The entry of the function of a scheme, without its digest."""
    entry = _entries()[table].get(getattr(scheme.function, "__name__", ""))
    if entry is None or not scheme.of_library:
        return None
    if entry["source"] != _digest(scheme.function.__code__.co_filename):
        return None
    return {name: value for name, value in entry.items() if name != "source"}


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    """Entries by the name of a function, of second stages and of margins."""
    path = Path(__file__).with_name("stated_losses.json")
    stated: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return stated


#: What changes no function: docstrings, comments and spaces.
_NO_CODE = re.compile(r'""".*?"""|#[^\n]*|\s', re.DOTALL)


@cache
def _digest(path: str) -> str | None:
    """SHA-256 of the code of a file; None where it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        return None
    return hashlib.sha256(_NO_CODE.sub("", text).encode()).hexdigest()
