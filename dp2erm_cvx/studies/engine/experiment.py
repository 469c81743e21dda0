"""What an experiment has to state: its design, in one TOML file, and its cells."""

from __future__ import annotations

import abc
import hashlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    import pandas as pd


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
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DeclarationError(f"{path}: cannot be read as TOML: {str(error).splitlines()[0]}") from None
    variants = content.pop("variants", {})
    if variant is not None:
        if not isinstance(variants, dict) or not isinstance(variants.get(variant, {}), dict):
            raise DeclarationError(f"{path}: variants: must be tables [variants.NAME]")
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


#: One line of a results table.
Row = dict[str, str | int | float | bool | None]

#: Names a part of what cells share, such as ``("linear", "IPW", "sharp")``.
Part = tuple[str, ...]


@dataclass(frozen=True)
class StudyCell:
    """``key`` names it within its experiment, such as ``{"scenario": "linear", "replicate": 3}``."""

    key: Mapping[str, str | int | float]
    seed: int

    @property
    def label(self) -> str:
        """The key as text: ``scenario=linear,replicate=3``."""
        return ",".join(f"{name}={value}" for name, value in self.key.items())

    @property
    def entropy(self) -> list[int]:
        """What its generators are seeded with: the experiment's seed and the label."""
        digest = hashlib.sha256(self.label.encode()).digest()
        return [self.seed, int.from_bytes(digest[:8], "big")]

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, so that one more draw here changes nothing elsewhere."""
        own = int.from_bytes(hashlib.sha256(purpose.encode()).digest()[:8], "big")
        return np.random.default_rng([*self.entropy, own])


@dataclass(frozen=True)
class Listing:
    """A table below the summary; the first ``text_columns`` are text."""

    title: str
    headers: list[str]
    lines: list[list[str]]
    text_columns: int = 1


class Experiment(abc.ABC, Generic[D]):
    """What is computed. Instances hold nothing: they are sent to workers."""

    #: As on the command line.
    name: ClassVar[str]
    #: One line for ``--help``.
    summary: ClassVar[str]
    #: Columns of the summary that hold text.
    text_columns: ClassVar[int] = 1
    #: What the parts are, for the progress bar.
    parts_are: ClassVar[str] = "shared parts"
    #: The model that the TOML design is read into.
    design: type[D]

    @abc.abstractmethod
    def keys(self, design: D) -> Iterable[Mapping[str, str | int | float]]:
        """The cells, in the order of the table."""

    def opened(self, design: D) -> D:
        """The design with what its files say, before a folder is made. Raises DataError."""
        return design

    def parts(self, design: D) -> Iterable[Part]:
        """What cells share, such as tuned settings: each part is computed once, before the cells."""
        return ()

    def needs(self, design: D, cell: StudyCell) -> Iterable[Part]:
        """The parts that one cell reads."""
        return self.parts(design)

    def share(self, design: D, part: Part) -> Any:
        """A part in plain JSON types: a function of the arguments alone."""
        raise NotImplementedError

    @abc.abstractmethod
    def summary_table(self, design: D, table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
        """Headers and lines of a short table for the screen; the first :attr:`text_columns` are text."""

    def listings(self, design: D, table: pd.DataFrame, shared: Mapping[str, Any]) -> list[Listing]:
        """What else the reader of the summary should see, such as the constants in force."""
        return []

    @abc.abstractmethod
    def rows(self, design: D, cell: StudyCell, shared: Mapping[str, Any]) -> list[Row]:
        """The rows of one cell: a function of the arguments alone. ``shared`` has its parts by label."""


def part_label(part: Part) -> str:
    """A part as text: ``linear/IPW/sharp``."""
    return "/".join(part)


def cells_of(experiment: Experiment[D], design: D) -> list[StudyCell]:
    """All cells. Raises ValueError where two have the same label."""
    cells = [StudyCell(key, design.seed) for key in experiment.keys(design)]
    if len({cell.label for cell in cells}) != len(cells):
        raise ValueError(f"{experiment.name}: two cells have the same key")
    return cells
