"""Answers about the points that were asked about last: a pass over all records should be made once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from dp2erm_cvx.domain import Array

T = TypeVar("T")


class Recent(Generic[T]):
    """What is known about the last ``most`` points v (d,), by their bits."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._known: OrderedDict[bytes, T] = OrderedDict()

    def find(self, v: Array, make: Callable[[], T], enough: Callable[[T], bool] = lambda _: True) -> T:
        """What is known about v; made anew if that is not enough."""
        key = v.tobytes()
        found = self._known.get(key)
        if found is None or not enough(found):
            self._known[key] = found = make()
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return found
