"""Consoles, progress and files: what every command shares to reach the reader."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

import click

from dp2erm_cvx.checks import json_types
from dp2erm_cvx.display import WIDTH, plain_console
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from dp2erm_cvx.display import Block

try:
    import fcntl
except ImportError:  # no POSIX: two processes that write one file at once are then on their own
    fcntl = None  # type: ignore[assignment]

NOT_PRIVATE = "NOT PRIVATE"
#: What stands between the time that a command took and what it will take.
_LEFT = "so far; left:"
#: Seconds between lines that tell of progress where there is no terminal.
_BETWEEN_LINES = 10.0


def console(*, stderr: bool = False) -> Console:
    """The screen, or a file of a fixed width."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH
    return plain_console(stream, width)


def show(blocks: Iterable[Block], *, stderr: bool = False) -> None:
    """Print a report, block by block."""
    screen = console(stderr=stderr)
    for block in blocks:
        screen.print(block)


def print_json(facts: Any) -> None:
    """Print JSON as any parser reads it: a number that is not finite is null."""
    click.echo(json.dumps(json_types(facts), indent=2, allow_nan=False))


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Progress]:
    """A progress bar on stderr while the block runs, on terminals only; it vanishes when done."""
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    screen = console(stderr=True)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TimeRemainingColumn(),  # empty where nobody knows how long it takes
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        bar.add_task(description, total=total, left=_LEFT if total else "so far")
        yield bar


def stages(bar: Progress, *, in_lines: bool = False) -> Callable[[str, int, int], None]:
    """A bar for whatever is counted; it starts anew with the next, whose steps take another time.

    Parameters
    ----------
    bar
        The bar.
    in_lines
        True where progress is told in lines on stderr as well, if there is no terminal: one in ten
        seconds.
    """
    (task,) = bar.task_ids
    counted = ""
    last_line = monotonic()

    def update(what: str, done: int, total: int) -> None:
        nonlocal counted, last_line
        if what != counted:
            bar.reset(task)
        counted = what
        text = f"{done:,} of {total:,} {what}"
        bar.update(task, completed=done, total=total, description=text, left=_LEFT)
        if in_lines and bar.disable and monotonic() - last_line >= _BETWEEN_LINES:
            click.echo(text, err=True)
            last_line = monotonic()

    return update


def writable(path: str | None, *inputs: str | None) -> None:
    """Raise DeclarationError before any work, where a file could or should not be written.

    Parameters
    ----------
    path
        The file; None where there is none.
    inputs
        Files that the command reads or writes besides: neither they nor what is their name with
        ".part", while a file is written, may be one of its own.
    """
    if path is None:
        return
    try:
        is_taken = _is_one_of(path, [other for other in inputs if other is not None])
        folder = Path(path).parent
        has_folder = folder.is_dir() and os.access(folder, os.W_OK)
        is_fine = has_folder and not Path(path).is_dir()
    except (OSError, ValueError):
        # no name of a file: too long, or with a character that none may hold
        is_taken = False
        is_fine = False
    if is_taken:
        raise DeclarationError(f"{path}: is used by this command already: choose another file")
    if not is_fine:
        raise DeclarationError(f"{path}: cannot be written: choose a file in a folder that exists")


def _is_one_of(path: str, others: Iterable[str]) -> bool:
    """Whether a file, or its part while it is written, is one of these or of their parts."""
    file, part = _and_part(path)
    for other in others:
        other_file, other_part = _and_part(other)
        if file in (other_file, other_part) or other_file == part:
            return True
    return False


def _and_part(path: str) -> tuple[Path, Path]:
    """A file, and what it is called while :func:`reserved` writes it, links followed."""
    file = Path(path).resolve()
    return file, file.with_name(f"{file.name}.part").resolve()


def check_new(path: str | None, force: bool, *inputs: str | None) -> None:
    """Raise DeclarationError where a file is not :func:`writable`, or exists without ``force``."""
    writable(path, *inputs)
    if path is not None and not force and os.path.lexists(path):
        raise DeclarationError(f"{path}: exists: choose another file, or --force")


#: Bytes of disk that are taken before anything is spent: a release has fewer.
_ROOM = 2**16


@contextmanager
def reserved(path: str | None, *, force: bool = False) -> Iterator[TextIO | None]:
    """A file, open for what a block will have to write.

    It gets its name when it is whole, or never. Until then it is ``path.part``, locked against
    other processes, with room on the disk. What a process that was killed left there is taken over.

    Parameters
    ----------
    path
        The file; None where nothing is written.
    force
        True where a file that exists is replaced.

    Raises
    ------
    DeclarationError
        In one line, where the file cannot be opened, another process is at it, or it exists.
    """
    if path is None:
        yield None
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # a device has no part, and is not replaced
        with ExitStack() as stack:
            with writing(path):
                descriptor = os.open(target, os.O_RDWR, 0o666)
                file = stack.enter_context(os.fdopen(descriptor, "w", encoding="utf-8"))
            yield file
            file.flush()
        return
    part = target.with_name(f"{target.name}.part")
    with ExitStack() as stack:
        with writing(path):
            new = os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # not what a link at the part is of
            descriptor = os.open(part, os.O_RDWR | new, 0o666)
            file = stack.enter_context(os.fdopen(descriptor, "w", encoding="utf-8"))
            _lock(descriptor, part)
            if os.path.lexists(path) and not force:
                part.unlink()
                check_new(path, force)
        try:
            yield file
            file.flush()
            file.truncate()
            os.fsync(descriptor)
            os.replace(part, target)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _lock(descriptor: int, part: Path) -> None:
    """Lock the file and take room for it.

    Raises OSError, BlockingIOError where another process has it.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not part.exists() or part.stat().st_ino != os.fstat(descriptor).st_ino:
            raise BlockingIOError  # it got its name between our opening and locking it
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, _ROOM)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                part.unlink()
                raise


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Whatever cannot be written in this block is a DeclarationError of one line."""
    try:
        yield
    except (BrokenPipeError, DeclarationError):
        raise
    except BlockingIOError:
        raise DeclarationError(
            f"{path}: another process is writing it: choose another file"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DeclarationError(f"{path}: cannot be written: {reason}") from None


def made_folder(path: str | Path) -> Path:
    """A folder, which is there afterwards. Raises DeclarationError in one line."""
    with writing(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def write_text(path: str | Path, text: str) -> None:
    """Write a file. Raises DeclarationError in one line."""
    with writing(path):
        Path(path).write_text(text, encoding="utf-8")
