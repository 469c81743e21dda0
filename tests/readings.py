"""Programs of the library are read once for all tests: reading takes longer than what is tested.

A reading keeps what follows from it, such as constants and public radii. Where a test puts another
thing in the place of one of the package, nothing is shared until the test has ended.
"""

import sys
from collections import OrderedDict
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import pytest

from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.program import direct_stage
from dp2erm_cvx.program.direct_stage import WeightsProgram, WeightsReading

_MOST = 256
#: Rooms that a reading and what follows from it are made by.
_ROOMS = (
    *("arrays", "checks", "curves", "display", "errors", "model", "on_demand", "privacy"),
    *("problems", "program", "stability", "weighting"),
)
#: Modules of other rooms that it is made by.
_MODULES = ("dp2erm_cvx.data.mapped_universe", "dp2erm_cvx.data.space")
_set_attribute = pytest.MonkeyPatch.setattr
_set_item = pytest.MonkeyPatch.setitem


class SharedReadings:
    """Readings of programs of the library by scheme, settings and universe."""

    def __init__(self) -> None:
        self.known: OrderedDict[Hashable, WeightsReading] = OrderedDict()
        self.is_open = True

    def start(self) -> None:
        """Share from here on: the package is what it is."""
        self.is_open = True

    def stop(self) -> None:
        """Forget all, since what follows may be computed by something planted."""
        self.known.clear()
        self.is_open = False

    def read(self, program: WeightsProgram, universe: MappedUniverse) -> WeightsReading:
        if not (self.is_open and program.scheme.of_library):
            return WeightsReading(program, universe)
        values = {name: program.value(name) for name in program.setting_fields()}
        settings = tuple((name, type(value), value) for name, value in values.items())
        key = (program.scheme, settings, universe)
        try:
            found = self.known.pop(key, None)
        except TypeError:  # a setting without a hash
            return WeightsReading(program, universe)
        self.known[key] = WeightsReading(program, universe) if found is None else found
        if len(self.known) > _MOST:
            self.known.popitem(last=False)
        return self.known[key]


SHARED = SharedReadings()


def _is_read_by(target: Any) -> bool:
    """Whether a module, class, function, object or name is of what readings are made by."""
    name = target
    if isinstance(target, ModuleType):
        name = target.__name__
    elif not isinstance(target, str):
        name = getattr(target, "__module__", None) or type(target).__module__
    package, _, rest = str(name).partition(".")
    if package == "problems":
        return True
    room = rest.partition(".")[0]
    return package == "dp2erm_cvx" and (room in _ROOMS or str(name).startswith(_MODULES))


def _attribute_is_set(patch: pytest.MonkeyPatch, target: Any, *given: Any, **options: Any) -> None:
    if _is_read_by(target):
        SHARED.stop()
    _set_attribute(patch, target, *given, **options)


def _item_is_set(patch: pytest.MonkeyPatch, mapping: Any, name: Any, value: Any) -> None:
    if mapping is sys.modules and _is_read_by(str(name)):
        SHARED.stop()
    _set_item(patch, mapping, name, value)


def share() -> None:
    """Share readings in this process from here on."""
    direct_stage.WeightsReading = SHARED.read  # type: ignore[misc, assignment]
    pytest.MonkeyPatch.setattr = _attribute_is_set  # type: ignore[method-assign, assignment]
    pytest.MonkeyPatch.setitem = _item_is_set  # type: ignore[method-assign, assignment]
