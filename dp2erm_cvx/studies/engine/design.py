"""Designs of experiments: everything that is chosen, in one TOML file."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dp2erm_cvx.errors import DeclarationError


class Design(BaseModel):
    """Base of all designs; unknown fields are refused. ``seed`` is that of the whole experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True)

    #: Fields that say where something is rather than what it is.
    places: ClassVar[frozenset[str]] = frozenset()

    seed: int = Field(ge=0, lt=2**63)

    def digest(self) -> str:
        """A fingerprint of every field but the :attr:`places`, by which a folder knows its design."""
        return hashlib.sha256(self.model_dump_json(exclude=set(self.places)).encode()).hexdigest()


D = TypeVar("D", bound=Design)


def load_design(kind: type[D], path: str | Path, variant: str | None = None, **fields: Any) -> D:
    """Read a TOML file, with the fields that one of its ``variants`` and then ``fields`` replace.

    Raises DeclarationError naming the field that is wrong.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DeclarationError(f"{path}: cannot be read as TOML: {error}") from None
    variants = content.pop("variants", {})
    if variant is not None:
        if variant not in variants:
            known = ", ".join(variants) or "none"
            raise DeclarationError(f"{path}: no variant {variant!r}; it has {known}")
        content = {**content, **variants[variant]}
    try:
        return kind.model_validate({**content, **fields})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "design"
        raise DeclarationError(f"{path}: {place}: {first['msg']}") from None
