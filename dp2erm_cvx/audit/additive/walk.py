"""Both neighbors through the same stages, each given the same released values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.audit.additive.stages import Noised, Split, Staged, Stages
from dp2erm_cvx.audit.blackbox.observation import of_exception, of_output
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.domain import Array


@dataclass(frozen=True)
class StageLoss:
    """How far one noised value ``moved`` between two neighbors, given what was released before.

    ``moved``, ``scale`` and ``sensitivity`` are in the units of the value; the last is what the mechanism
    states, if anything.
    """

    noise: Noise
    moved: float
    scale: float
    sensitivity: float | None

    @property
    def loss(self) -> float:
        """The largest log density ratio of pure noise, or mu of Gaussian noise: both are moved / scale."""
        return self.moved / self.scale

    @property
    def stated(self) -> float:
        """What it would be where the value moves by all of the stated sensitivity; 0 where none is."""
        return (self.sensitivity or 0.0) / self.scale

    @property
    def reached(self) -> float:
        """Movement over the stated sensitivity; 0 where none is."""
        return self.moved / self.sensitivity if self.sensitivity else 0.0


@dataclass(frozen=True, eq=False)
class Walk:
    """Every stage of one walk, the groups that were drawn, and what has no noise at all, in words."""

    losses: tuple[StageLoss, ...]
    groups: tuple[list[np.ndarray], ...]
    leak: str | None


def walk(mechanism: Staged, first: Any, second: Any, seed: int) -> Walk:
    """Run both datasets through all stages.

    ``seed`` draws the splits, the same for both, and what a stage releases: a point on the line through both
    values, beyond the first, where pure noise loses most, and any point where they are the same.
    """
    one, other = mechanism(first), mechanism(second)
    rng = np.random.default_rng(seed)
    losses: list[StageLoss] = []
    groups: list[list[np.ndarray]] = []
    sent: Any = None
    while True:
        (asked, ended), (asked_other, ended_other) = _next(one, sent), _next(other, sent)
        if isinstance(asked, Split) and asked == asked_other:
            sent = asked.draw(rng)
            groups.append(sent)
        elif isinstance(asked, Noised) and isinstance(asked_other, Noised):
            leak = _different(asked, asked_other)
            if leak:
                return Walk(tuple(losses), tuple(groups), leak)
            at, moved = _placed(asked, asked_other, rng)
            losses.append(StageLoss(asked.noise, moved, asked.scale, asked.sensitivity))
            sent = float(at[0]) if np.ndim(asked.value) == 0 else at
        else:
            same = asked is None and asked_other is None and ended == ended_other
            return Walk(tuple(losses), tuple(groups), None if same else "outputs differ without noise")


def _next(stages: Stages[Any], sent: Any) -> tuple[Split | Noised | None, str | bytes]:
    """What a mechanism asks for next, or None and what it ended with: an output, or an exception."""
    try:
        return stages.send(sent), b""
    except StopIteration as end:
        return None, of_output(_plain(end.value)).key
    except Exception as raised:
        return None, of_exception(raised).key


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _different(one: Noised, other: Noised) -> str | None:
    """Why no loss is finite, whatever the values are; None where it is."""
    if one.noise != other.noise or one.center.shape != other.center.shape:
        return "noise of another kind or size"
    if one.scale != other.scale:
        return "the scale of the noise depends on the records"
    finite = np.isfinite(one.center) & np.isfinite(other.center)
    if not np.array_equal(one.center[~finite], other.center[~finite], equal_nan=True):
        return "a value is not finite on one side alone, or another one there"
    return None


def _placed(one: Noised, other: Noised, rng: np.random.Generator) -> tuple[Array, float]:
    """A released vector, and the distance of both values."""
    center, apart = one.center, np.nan_to_num(one.center - other.center)
    moved = float(np.linalg.norm(apart))
    if one.noise is Noise.GAUSSIAN:  # as likely as it is: a loss given a rare release is none
        return center + one.scale * rng.standard_normal(center.size), moved
    away = rng.standard_normal(center.size)
    length = one.scale * 10.0 ** rng.uniform(-1.0, 1.0)
    direction = apart / moved if moved > 0.0 else away / math.sqrt(float(np.sum(away**2)))
    return center + length * direction, moved
