"""The settings of programs, from what a release states of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dp2erm_cvx.errors import DeclarationError, shown
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet
from dp2erm_cvx.program import Moments
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.text import written_members

#: What they may hold, by the name that a release gives it.
_KINDS: tuple[type[Any], ...] = (ElasticNet, *written_members(ConvexSet), *written_members(Kernel))
_PARTS = {kind.__name__: kind for kind in _KINDS}


def rebuilt_settings(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Those that :meth:`~dp2erm_cvx.program.Program.settings` states. Raises as ``rebuilt``."""
    return {name: rebuilt(value) for name, value in stated.items()}


def rebuilt(stated: Any) -> Any:
    """One of them. Raises DeclarationError for a part of the user's own, or one of other sizes."""
    if stated == "inf":
        return math.inf
    if isinstance(stated, list):
        return tuple(stated)
    if isinstance(stated, dict) and list(stated) == ["moments"]:
        return Moments(stated["moments"])
    if not isinstance(stated, dict) and not (isinstance(stated, str) and stated[:1].isupper()):
        return stated
    try:
        ((name, inner),) = stated.items() if isinstance(stated, dict) else ((stated, {}),)
        return _PARTS[name](**rebuilt_settings(inner))
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DeclarationError(f"{shown(stated)}: is not rebuilt from a file") from None
