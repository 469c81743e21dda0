"""Files that one name stands for: a file, those in a folder, or those that a pattern matches."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dp2erm_cvx.data.opening import PARQUET_MAGIC, file_system, is_remote, opened, opening
from dp2erm_cvx.errors import DataError

#: Endings of files in blocks.
PARQUET = (".parquet", ".pq")
CSV = (".csv", ".tsv", ".txt")
#: What Hive calls the folder of rows whose cell is missing.
_NONE = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class PartFile:
    """One of the files of a table.

    Parameters
    ----------
    name
        By which it is opened.
    cells
        Of columns that the names of its folders state, such as ``year=2020``: the same in all of
        its rows.
    """

    name: str
    cells: dict[str, str] = field(default_factory=dict)

    def is_text(self) -> bool:
        """True if it is CSV: by its ending, or else by how it begins. Raises FileError."""
        name = self.name.lower().removesuffix(".gz")
        if name.endswith((*PARQUET, *CSV)):
            return name.endswith(CSV)
        with opening(self.name), opened(self.name) as file:
            return file.read(len(PARQUET_MAGIC)) != PARQUET_MAGIC


def has_pattern(path: str) -> bool:
    """True if a name is a pattern that files match."""
    if is_remote(path):  # where a question mark begins a query
        return "*" in path
    return glob.has_magic(path) and not os.path.exists(path)


def stands_for_many(path: str) -> bool:
    """True if a name is that of a folder or a pattern, or of whatever is elsewhere."""
    return is_remote(path) or os.path.isdir(path) or has_pattern(path)


def part_files(path: str) -> list[PartFile]:
    """The files that a name stands for, sorted by their names.

    In a folder and below it these are the files of Parquet, or else of CSV, but for those whose
    name begins with a point or an underscore.

    Parameters
    ----------
    path
        A file, a folder or a pattern.

    Raises
    ------
    DataError
        Where there are no files, or files of both kinds.
    FileError
        Where a folder cannot be read.
    DeclarationError
        Where no package reads a file system.
    """
    root: str | None
    if is_remote(path):
        names, root = _remote_files(path)
    elif os.path.isdir(path):
        names = _parts([str(file) for file in Path(path).rglob("*") if file.is_file()])
        root = path
    elif has_pattern(path):
        names = glob.glob(path, recursive=True)
        root = _without_pattern(path)
    else:
        return [PartFile(path)]
    if root is None:
        return [PartFile(name) for name in names]
    if not names:
        raise DataError(f"{path}: holds no Parquet files and no CSV files")
    refuse_both_kinds(path, [name.lower().endswith(PARQUET) for name in names])
    return [PartFile(name, _cells_of(name, root)) for name in sorted(names)]


def refuse_both_kinds(path: str, are_parquet: Collection[bool]) -> None:
    """Raise DataError where some files that a name stands for are of Parquet and others are not."""
    if len(set(are_parquet)) > 1:
        raise DataError(
            f"{path}: holds Parquet files and others: name one kind by a pattern such as *.parquet"
        )


def _remote_files(path: str) -> tuple[list[str], str | None]:
    """Names of files on another file system, and their folder: None for a single file."""
    system: Any
    system, inside = file_system(path)
    with opening(path):
        if "*" in inside:
            names = system.glob(inside)
            root = _without_pattern(inside)
        elif not inside.lower().endswith((*PARQUET, *CSV)) and system.isdir(inside):
            names = _parts(system.find(inside))
            root = inside
        else:
            return [path], None
    return [system.unstrip_protocol(name) for name in names], system.unstrip_protocol(root)


def _parts(names: Sequence[str]) -> list[str]:
    """Those that hold records, of all files in a folder."""
    visible = [name for name in names if not os.path.basename(name).startswith((".", "_"))]
    parquet = [name for name in visible if name.lower().endswith(PARQUET)]
    return parquet or [name for name in visible if name.lower().endswith(CSV)]


def _without_pattern(path: str) -> str:
    """The folder that all files are in which a pattern matches."""
    folders = path.split("/")
    first = next(place for place, folder in enumerate(folders) if glob.has_magic(folder))
    return "/".join(folders[:first])


def _cells_of(name: str, root: str) -> dict[str, str]:
    """Cells that the folders between a root and a file name; an empty one where it is missing."""
    cells = {}
    for folder in name[len(root) :].split("/")[:-1]:
        column, sign, text = folder.partition("=")
        if sign and column:
            cells[unquote(column)] = "" if text == _NONE else unquote(text)
    return cells
