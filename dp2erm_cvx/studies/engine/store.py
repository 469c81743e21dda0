"""Finished cells on disk: a kill loses at most the cells that were running."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx import __version__
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.parallel import replacing
from dp2erm_cvx.studies.engine.experiment import Design, Row, StudyCell

if TYPE_CHECKING:
    import pandas as pd

#: What a folder is marked with, and what it is where that differs.
_MARKS = {
    "experiment": "another experiment",
    "digest": "another design",
    "version": "another version of the code",
    "code": "another version of the code",
}


class Store:
    """A folder with the rows of every finished cell, for one design and one state of the code.

    Raises DeclarationError where pandas or pyarrow is missing or the folder cannot be made, DataError where
    it holds the cells of another design or of other code: their rows would be mixed with new ones.
    """

    def __init__(self, folder: str | Path, name: str, design: Design) -> None:
        try:
            import pandas
            from pyarrow import parquet
        except ImportError:
            raise DeclarationError("results need pandas and pyarrow: install dp2erm-cvx[data]") from None
        self._pandas, self._parquet = pandas, parquet
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeclarationError(f"{folder}: cannot be made: {error.strerror or error}") from None
        label = {"experiment": name, "version": __version__, "digest": design.digest(), "code": code_digest()}
        marker = self.folder / "design.json"
        known = _kept(marker)
        if known is not None or any(self.cells.iterdir()):
            for key, what in _MARKS.items():
                if known is None or known.get(key) != label[key]:
                    what = "nobody knows what, for want of design.json" if known is None else what
                    advice = "choose another folder (--output-dir) or delete this one"
                    raise DataError(f"{folder}: holds cells of {what}: {advice}")
        else:
            _keep(marker, {**label, "design": design.model_dump(mode="json")})

    def shared(self) -> dict[str, Any]:
        """The finished parts of what cells share, by label. A file that was damaged is as none."""
        return _kept(self.folder / "shared.json") or {}

    def keep_shared(self, shared: dict[str, Any]) -> None:
        """Keep the parts that are finished, in plain JSON types, beside those of any other run."""
        _keep(self.folder / "shared.json", {**self.shared(), **shared})

    def done(self, cell: StudyCell) -> bool:
        """Whether the rows of a cell are here. A file that a power failure damaged is as none."""
        try:
            self._parquet.read_metadata(self._path(cell))
        except (OSError, ValueError):
            return False
        return True

    def keep(self, cell: StudyCell, rows: list[Row]) -> None:
        """Keep the rows of a cell, whole or not at all."""
        with replacing(self._path(cell)) as part:
            self._pandas.DataFrame([{**cell.key, **row} for row in rows]).to_parquet(part, index=False)

    def collect(self, cells: Iterable[StudyCell]) -> pd.DataFrame:
        """One table of all rows in the order of the cells, written to ``results.parquet``."""
        frames = [self._pandas.read_parquet(self._path(cell)) for cell in cells]
        table = self._pandas.concat(frames, ignore_index=True)
        with replacing(self.folder / "results.parquet") as part:
            table.to_parquet(part, index=False)
        return table

    def _path(self, cell: StudyCell) -> Path:
        return self.cells / f"{hashlib.sha256(cell.label.encode()).hexdigest()[:24]}.parquet"


def _kept(path: Path) -> dict[str, Any] | None:
    """What a file holds; None if nothing that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _keep(path: Path, facts: dict[str, Any]) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


#: What counts as code: modules and embedded data. A design, in TOML, has a digest of its own.
_COUNTED = {".py", ".csv"}


@functools.cache
def code_digest() -> str:
    """That of the code and data of the package and of its programs, wherever they are installed."""
    roots = []
    # in a checkout the programs are a folder beside the package, else one inside it
    for name in ("dp2erm_cvx", "dp2erm_cvx.problems"):
        spec = find_spec(name)
        places = spec.submodule_search_locations if spec is not None else None
        roots += [(name.replace(".", "/"), Path(place)) for place in places or ()]
    return digest_of(roots)


def digest_of(roots: Iterable[tuple[str, Path]]) -> str:
    """One digest of the names and contents of code and data below folders that are known by a name."""
    found = {}
    for name, root in roots:
        for path in root.rglob("*"):
            if path.suffix in _COUNTED:
                found[f"{name}/{path.relative_to(root).as_posix()}"] = hashlib.sha256(path.read_bytes())
    lines = [f"{name} {content.hexdigest()}\n" for name, content in sorted(found.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
