"""Files that are opened again and again, and refused where they are others than they were."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from dp2erm_cvx.errors import DataError, DeclarationError, FileError

#: Bytes at the begin and at the end of a file that are compared.
_END = 2**14
#: How a Parquet file begins and ends, there behind the length of its footer in four bytes.
PARQUET_MAGIC = b"PAR1"
#: What file systems tell of when a file was written.
_TIMES = ("ETag", "LastModified", "mtime", "created")


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
        if is_remote(source):
            raise FileError(
                f"{source}: cannot be read: nobody sends parts of it by their bytes"
            ) from None
        raise DataError(f"{source!r}: is no name of a file") from None


def is_remote(source: str) -> bool:
    """True if a name is that of a file on another file system, such as ``s3://bucket/data.csv``."""
    return "://" in source


def file_system(source: str) -> tuple[Any, str]:
    """The file system of fsspec that a file is on, and its name there.

    Raises
    ------
    DeclarationError
        Where no package reads it.
    """
    protocol = source.partition("://")[0]
    try:
        core: Any = importlib.import_module("fsspec.core")
        system, inside = core.url_to_fs(source)
    except ImportError as error:
        why = next(iter(str(error).splitlines()), "")
        raise DeclarationError(f"{protocol}:// needs a package of fsspec: {why}") from None
    except ValueError:
        raise DeclarationError(f"{protocol}:// is no file system that fsspec knows") from None
    return system, inside


def opened(source: str) -> BinaryIO:
    """A file, here or elsewhere, to be read. Raises OSError, DeclarationError."""
    if not is_remote(source):
        return open(source, "rb")
    system, inside = file_system(source)
    try:
        file: BinaryIO = system.open(inside, "rb")
    except OSError:
        raise
    except Exception as error:  # of the package that reaches it, whose text may hold keys
        raise OSError(type(error).__name__) from None
    return file


@dataclass(frozen=True)
class FileMark:
    """What tells a file from others that take its name.

    Passes of one run must not read two of them.

    Parameters
    ----------
    source
        Its name.
    size
        Bytes.
    time
        Nanoseconds at which it was written; what another file system tells of it.
    digest
        Of its first and its last bytes, which are the footer of a Parquet file.
    """

    source: str
    size: int
    time: int | str
    digest: str

    @classmethod
    def of(cls, source: str) -> FileMark:
        """The mark of a file as it is now. Raises as :func:`opening`."""
        with opening(source), opened(source) as file:
            time: int | str
            if is_remote(source):
                system, inside = file_system(source)
                facts = system.info(inside)
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                time = " ".join(str(facts.get(name, "")) for name in _TIMES)
            else:
                status = os.fstat(file.fileno())
                size = status.st_size
                time = status.st_mtime_ns
            return cls(source, size, time, _digest(file, size))

    def check(self) -> None:
        """Raise FileError where the file is another one by now, or cannot be opened."""
        if FileMark.of(self.source) != self:
            raise FileError(
                f"{self.source}: is not the file that it was: it was replaced or written to, or is "
                "a copy that does not keep its time (cp -p does)"
            )


def _digest(file: BinaryIO, size: int) -> str:
    """Digest of the first and the last bytes of a file, of a Parquet file of its whole footer."""
    begin = file.read(_END)
    file.seek(max(size - _END, 0))
    end = file.read(_END)
    if end.endswith(PARQUET_MAGIC):
        footer = int.from_bytes(end[-8:-4], "little") + 8
        if _END < footer <= size:
            file.seek(size - footer)
            end = file.read(footer)
    return hashlib.sha256(begin + end).hexdigest()
