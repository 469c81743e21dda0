"""A release in a file, of whatever kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.record import BaseRelease, Release
from dp2erm_cvx.release.rule_release import RuleRelease


def read_release_file(path: str | Path) -> BaseRelease:
    """The release of a file: a :class:`~dp2erm_cvx.release.Release`, an effect or a rule.

    Raises DeclarationError in one line.
    """
    try:
        text = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise DeclarationError(f"{path}: cannot be read: {told}") from None
    kind: Any = Release
    for other, own in ((EffectRelease, "estimand"), (RuleRelease, "flipped_share")):
        if _states(text, own):
            kind = other
    try:
        release: BaseRelease = kind.from_json(text)
    except DeclarationError as error:
        raise DeclarationError(f"{path}: is not as a command writes a release: {error}") from None
    return release


def _states(text: bytes, name: str) -> bool:
    """Whether the text is JSON with this name; what else may be wrong with it, its reader says."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(plain, dict) and name in plain
