"""Files that are opened again and again: refused where they cannot be, or are others than they were."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from dp2erm_cvx.errors import DataError, FileError

#: Bytes at the begin and at the end of a file that are compared.
_END = 2**14
#: How a Parquet file ends, behind the length of its footer in four bytes.
_PARQUET = b"PAR1"


@contextlib.contextmanager
def opening(source: str) -> Iterator[None]:
    """Refuse a file that cannot be opened.

    Parameters
    ----------
    source
        Its name.

    Raises FileError, and DataError for what is no name of a file.
    """
    try:
        yield
    except OSError as error:
        raise FileError(f"{source}: cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise DataError(f"{source!r}: is no name of a file") from None


@dataclass(frozen=True)
class FileMark:
    """What tells a file from others that take its name: passes of one run must not read two of them.

    Parameters
    ----------
    source
        Its name.
    size
        Bytes.
    time
        Nanoseconds at which it was written.
    digest
        Of its first and its last bytes, which are the footer of a Parquet file.
    """

    source: str
    size: int
    time: int
    digest: str

    @classmethod
    def of(cls, source: str) -> FileMark:
        """The mark of a file as it is now. Raises as :func:`opening`."""
        with opening(source), open(source, "rb") as file:
            known = os.fstat(file.fileno())
            return cls(source, known.st_size, known.st_mtime_ns, _digest(file, known.st_size))

    def check(self) -> None:
        """Raise FileError where the file is another one by now, or cannot be opened."""
        if FileMark.of(self.source) != self:
            raise FileError(
                f"{self.source}: is not the file that it was: it was replaced or written to, or is a copy "
                "that does not keep its time (cp -p does)"
            )


def _digest(file: BinaryIO, size: int) -> str:
    begin = file.read(_END)
    file.seek(max(size - _END, 0))
    end = file.read(_END)
    if end.endswith(_PARQUET):
        footer = int.from_bytes(end[-8:-4], "little") + 8
        if _END < footer <= size:
            file.seek(size - footer)
            end = file.read(footer)
    return hashlib.sha256(begin + end).hexdigest()
