"""Modules that take long to import, which are imported where something of them is first asked for.

CVXPY takes longer to import than a release takes to be read and verified. A file that declares
problems writes ``from dp2erm_cvx.on_demand import cvxpy as cp`` and goes on as if CVXPY were
imported.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any


class ModuleOnDemand(ModuleType):
    """A module that is imported when an attribute of it is first read.

    Imports of Python are safe in several threads, and so is this.
    """

    def __getattr__(self, name: str) -> Any:
        # what is asked for once is kept, so that it costs no more than in the module itself
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import asyncio as asyncio

    import clarabel as clarabel
    import cvxpy as cvxpy
    from scipy import sparse as sparse
else:
    asyncio = ModuleOnDemand("asyncio")
    clarabel = ModuleOnDemand("clarabel")
    cvxpy = ModuleOnDemand("cvxpy")
    sparse = ModuleOnDemand("scipy.sparse")
