"""Blocks of records that a worker keeps from one pass to the next, in memory and in a scratch file."""

from __future__ import annotations

import pickle
import tempfile
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.errors import WorkerError


class ScratchFile:
    """Blocks in a file of ``folder`` without a name, which the system removes with the process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.places: dict[int, tuple[int, list[int]]] = {}  # where a block begins, and bytes of its parts
        self._file: Any = None
        self._end, self._lock = 0, threading.Lock()

    def write(self, k: int, block: Any) -> None:
        """Add a block. Raises WorkerError where the folder takes none."""
        arrays: list[pickle.PickleBuffer] = []
        head = pickle.dumps(block, protocol=5, buffer_callback=arrays.append)
        parts = [memoryview(head), *(array.raw() for array in arrays)]
        with self._lock:
            try:
                self._file = self._file or tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
                self._file.seek(self._end)
                for part in parts:
                    self._file.write(part)
                self._file.flush()
            except OSError as error:
                raise WorkerError(f"scratch = {self.folder!r}: {error.strerror}") from None
            self.places[k] = self._end, [part.nbytes for part in parts]
            self._end += sum(self.places[k][1])

    def read(self, k: int) -> Any:
        """A block that was written. Raises WorkerError where it cannot be read."""
        begin, sizes = self.places[k]
        parts = [np.empty(size, np.uint8) for size in sizes]
        with self._lock:
            self._file.seek(begin)
            if any(self._file.readinto(part) != len(part) for part in parts):
                raise WorkerError(f"scratch = {self.folder!r}: what was written there cannot be read")
        return pickle.loads(parts[0].data, buffers=parts[1:])

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


@dataclass
class KeptBlocks:
    """Blocks by their number: the first ones in ``most`` bytes of memory, the others in a file, if any."""

    most: int
    scratch: ScratchFile | None = None
    blocks: dict[int, Any] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def numbers(self) -> set[int]:
        """Of the blocks that are kept by now."""
        return {*self.blocks, *(() if self.scratch is None else self.scratch.places)}

    def find(self, k: int) -> Any:
        """A block that is kept."""
        return self.blocks[k] if k in self.blocks or self.scratch is None else self.scratch.read(k)

    def offer(self, k: int, block: Any) -> None:
        """Keep the block where there is room: whoever dropped the oldest would never find the next one."""
        size = sum(one.nbytes for one in vars(block).values() if isinstance(one, np.ndarray))
        if k in self.numbers:
            return
        if self.nbytes + size <= self.most:
            self.nbytes += size
            self.blocks[k] = block
        elif self.scratch is not None:
            self.scratch.write(k, block)


#: Of the table that this worker read last.
_KEPT: dict[str, KeptBlocks] = {}


def kept_blocks(token: str, most: int, folder: str | None = None) -> KeptBlocks:
    """What this worker keeps of a table; of any other one it keeps nothing any more."""
    known = _KEPT.get(token)  # once: another thread may read another table meanwhile
    if known is None:
        _KEPT.clear()
        scratch = None if folder is None else ScratchFile(folder)
        known = _KEPT.setdefault(token, KeptBlocks(most, scratch))
    return known


def forget(token: str) -> None:
    """Keep nothing of a table."""
    _KEPT.pop(token, None)
