"""Arrays that go to workers once: in the next passes these have them already."""

from __future__ import annotations

import abc
import uuid
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.blocked.contents import contents_name
from dp2erm_cvx.blocked.engine import Engine, Told

#: Arrays that a worker keeps of every task: those of a model, and one for the next.
_MOST = 4

#: The arrays of one task that were asked for last, by their contents; None where somebody else has them.
Shelf = OrderedDict[tuple[Any, ...], NDArray[Any] | None]


@dataclass(frozen=True)
class Parcel:
    """An array by its contents, without them where the worker should have them: else it returns this."""

    name: tuple[Any, ...]
    array: NDArray[Any] | None


class Apart(Engine):
    """Workers that are other processes. What they are given has to be picklable.

    Arrays beside the records, such as weights, are sent in the first pass that asks for them.
    """

    def __init__(self, *settings: Any, **named: Any) -> None:
        super().__init__(*settings, **named)
        self._owner = uuid.uuid4().hex
        self._sent: dict[int, Shelf] = {}  # what workers should have of every task

    def run(self, function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[Any]:
        """The results, in the order of the tasks; see :meth:`~dp2erm_cvx.blocked.Engine.run`."""
        packed = [_packed(task, self._sent.setdefault(k, Shelf())) for k, task in enumerate(tasks)]
        work = (_unpacked, self._owner, function)
        found: list[Any] = self.pass_on([(*work, k, *task) for k, task in enumerate(packed)], told)
        lost = {k for k, one in enumerate(found) if isinstance(one, Parcel)}
        if lost:
            whole = [(*work, k, *_packed(task, Shelf())) for k, task in enumerate(tasks)]
            # the others get nothing to do: a task goes to its worker by its number
            again = self.pass_on([task if k in lost else (bool,) for k, task in enumerate(whole)])
            found = [again[k] if k in lost else one for k, one in enumerate(found)]
        return found

    @abc.abstractmethod
    def pass_on(self, tasks: Sequence[tuple[Any, ...]], told: Told = lambda done: None) -> list[Any]:
        """``task[0](*task[1:])`` of every task on one thread, as ``run`` promises."""


def _packed(task: tuple[Any, ...], shelf: Shelf) -> tuple[Any, ...]:
    packed = []
    for one in task:
        if isinstance(one, np.ndarray) and one.dtype.kind in "biuf":  # the bytes of others may be addresses
            name = contents_name(one)
            one = Parcel(name, None if name in shelf else one)
            _put(shelf, name, None)
        packed.append(one)
    return (*packed,)


#: What this worker keeps of the arrays of one engine, by the number of the task.
_SHELVES: dict[str, dict[int, Shelf]] = {}


def _unpacked(owner: str, function: Callable[..., Any], k: int, *task: Any) -> Any:
    if owner not in _SHELVES:
        _SHELVES.clear()
    shelf = _SHELVES.setdefault(owner, {}).setdefault(k, Shelf())
    opened = []
    for one in task:
        if isinstance(one, Parcel):
            # a copy: of a worker in the process of its caller that array may change meanwhile
            array = shelf.get(one.name) if one.array is None else one.array.copy()
            if array is None:
                return one
            array.flags.writeable = False
            _put(shelf, one.name, array)
            one = array
        opened.append(one)
    return function(*opened)


def _put(shelf: Shelf, name: tuple[Any, ...], array: NDArray[Any] | None) -> None:
    shelf[name] = array
    shelf.move_to_end(name)
    while len(shelf) > _MOST:
        shelf.popitem(last=False)
