"""Imports that wait until they are used: a command needs little of what the library can do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

#: Third parties that are imported on the way to nearly every command, and used by few.
DEFERRED = frozenset({"cvxpy", "pandas", "scipy.optimize", "scipy.spatial", "scipy.stats"})


class _Waiting(ModuleType):
    """A module that runs when one of its attributes, or a module inside of it, is asked for.

    ``importlib.util.LazyLoader`` runs it at a second import already.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._waiting = RLock()

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__
        with self._waiting:
            path, loader = state.pop("_path", None), state.pop("_loader", None)
            if loader is not None:
                if path is not None:
                    self.__path__ = path
                try:
                    loader.exec_module(self)
                except BaseException:
                    state["_loader"] = loader  # to fail again the next time
                    raise
                self.__class__ = ModuleType  # type: ignore[assignment]
        if type(self) is _Waiting:  # asked for in the middle of its own import
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return getattr(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # for workers, to whom a function of a user's file is sent with what it refers to
        return import_module, (self.__name__,)


class _Later(Loader):
    """Makes the module, and leaves it waiting."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See ``importlib.abc.Loader``."""
        return _Waiting(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Set aside what runs it, and its path: whoever looks for a module inside of it asks for that."""
        state = module.__dict__
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self.loader
        state["_loader"], state["_path"] = self.loader, state.pop("__path__", None)


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in DEFERRED else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


@contextmanager
def deferred() -> Iterator[None]:
    """Defer the imports of ``DEFERRED`` meanwhile: for the process of a command, which owns its imports."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
