"""Arrays that go to workers once: in the next passes these have them already."""

from __future__ import annotations

import abc
import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocked.engine import KEEP, Engine, Told
from dp2erm_cvx.parallel import Progress, untold

T = TypeVar("T")

#: Arrays that a worker keeps of every task: those of a model, and one for the next.
_MOST = 4


@dataclass(frozen=True)
class Parcel:
    """An array by its contents, without them where the worker should have them."""

    name: tuple[Any, ...]
    array: NDArray[Any] | None


@dataclass(frozen=True)
class Lost:
    """What a worker returns without an array that it should have: it is new, or served somebody else."""


class Shelf:
    """The arrays of one task that were asked for last, by name; an array of None stands for itself."""

    def __init__(self) -> None:
        self.arrays: OrderedDict[tuple[Any, ...], NDArray[Any] | None] = OrderedDict()

    def put(self, name: tuple[Any, ...], array: NDArray[Any] | None) -> None:
        """Keep an array, or keep it for longer."""
        self.arrays[name] = array
        self.arrays.move_to_end(name)
        while len(self.arrays) > _MOST:
            self.arrays.popitem(last=False)


class Apart(Engine):
    """Workers that are other processes. What they are given has to be picklable.

    Arrays beside the records, such as weights, are sent in the first pass that asks for them.
    """

    def __init__(
        self, keep: int = KEEP, progress: Progress = untold, *, scratch: str | Path | None = None
    ) -> None:
        super().__init__(keep, progress, scratch=scratch)
        self._owner = uuid.uuid4().hex
        self._sent: dict[int, Shelf] = {}  # what workers should have of every task

    def run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        """The results, in the order of the tasks; see :meth:`~dp2erm_cvx.blocked.Engine.run`."""
        packed = [_packed(task, self._sent.setdefault(k, Shelf())) for k, task in enumerate(tasks)]
        work = (_unpacked, self._owner, function)
        found: list[Any] = self.pass_on([(*work, k, *task) for k, task in enumerate(packed)], told)
        lost = [isinstance(one, Lost) for one in found]
        if any(lost):
            whole = [(*work, k, *_packed(task, Shelf())) for k, task in enumerate(tasks)]
            # the others get nothing to do: a task goes to its worker by its number
            again = self.pass_on(
                [task if one else (_nothing,) for task, one in zip(whole, lost, strict=True)]
            )
            found = [new if one else old for new, old, one in zip(again, found, lost, strict=True)]
        return found

    @abc.abstractmethod
    def pass_on(self, tasks: Sequence[tuple[Any, ...]], told: Told = lambda done: None) -> list[Any]:
        """``task[0](*task[1:])`` of every task on one thread, as ``run`` promises."""


def _packed(task: tuple[Any, ...], shelf: Shelf) -> tuple[Any, ...]:
    packed = []
    for one in task:
        if isinstance(one, np.ndarray):
            name = (one.dtype.str, one.shape, hashlib.sha256(np.ascontiguousarray(one).data).digest())
            one = Parcel(name, None if name in shelf.arrays else one)
            shelf.put(name, None)
        packed.append(one)
    return tuple(packed)


#: What this worker keeps of the arrays of one engine, by the number of the task.
_SHELVES: dict[str, dict[int, Shelf]] = {}


def _unpacked(owner: str, function: Callable[..., T], k: int, *task: Any) -> T | Lost:
    if owner not in _SHELVES:
        _SHELVES.clear()
    shelf = _SHELVES.setdefault(owner, {}).setdefault(k, Shelf())
    opened = []
    for one in task:
        if isinstance(one, Parcel):
            array = shelf.arrays.get(one.name) if one.array is None else one.array
            if array is None:
                return Lost()
            array.flags.writeable = False
            shelf.put(one.name, array)
            one = array
        opened.append(one)
    return function(*opened)


def _nothing() -> None:
    return None
