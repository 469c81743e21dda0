"""Who makes a pass over blocks of records: threads of this process, or whoever else keeps this promise."""

from __future__ import annotations

import abc
import functools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from dp2erm_cvx.errors import WorkerError
from dp2erm_cvx.parallel import Progress, untold, whole_workers
from dp2erm_cvx.public import whole_number

T = TypeVar("T")

#: Is told how many tasks are done.
Told = Callable[[int], None]

#: Bytes of records that workers keep together, where nothing else is asked for.
KEEP = 2**31

#: How often a task is given to a new worker where the worker that had it died.
RETRIES = 3


def alone(function: Callable[..., T], *task: Any) -> T:
    """The task on one thread of the linear algebra, whose rounding would depend on their number."""
    with _libraries(len(sys.modules)).limit(limits=1):
        return function(*task)


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Those of the linear algebra, looked for again only where more modules are there: it takes long."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class Engine(abc.ABC):
    """Workers that keep blocks of records from one pass to the next.

    They change nothing in the results: sums are added in a tree over blocks, wherever these are.

    Attributes
    ----------
    number : how many workers there are
    keep : bytes of records that all of them together keep in memory
    progress : is told of blocks in every pass
    scratch : folder of a file for what is not kept; None: that is read anew in every pass
    """

    number: int

    def __init__(
        self, keep: int = KEEP, progress: Progress = untold, *, scratch: str | Path | None = None
    ) -> None:
        self.keep, self.progress = whole_number("keep", keep, at_least=0), progress
        self.scratch = None if scratch is None else str(scratch)

    def reserve(self, nbytes: int) -> None:
        """Raise WorkerError where the scratch folder has no room for what is not kept of so many bytes."""
        if self.scratch is None:
            return
        try:
            with tempfile.TemporaryFile(dir=self.scratch):
                free = shutil.disk_usage(self.scratch).free
        except (OSError, ValueError) as error:  # the latter of what is no name of a folder
            told = getattr(error, "strerror", None) or error
            raise WorkerError(f"scratch = {self.scratch!r}: {told}") from None
        if nbytes - self.keep > free:
            raise WorkerError(
                f"scratch = {self.scratch!r}: has {told_bytes(free)} left for the "
                f"{told_bytes(nbytes - self.keep)} of records that are not kept in memory"
            )

    @property
    def share(self) -> int:
        """Bytes of records that a process keeps."""
        return self.keep // self.number

    @abc.abstractmethod
    def run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        """``function(*task)`` of every task, in their order; task k goes to the same worker in every pass.

        A task whose worker died is done again. Raises WorkerError where that happens too often, and whatever
        the function raises.
        """

    def worker(self, task: int, tasks: int) -> int:
        """Neighbors in the table share a worker."""
        return task * self.number // tasks

    def close(self) -> None:
        """Let the workers go."""
        return


class Threads(Engine):
    """Threads of this process; one works without any."""

    def __init__(
        self,
        workers: int = 1,
        keep: int = KEEP,
        progress: Progress = untold,
        *,
        scratch: str | Path | None = None,
    ) -> None:
        super().__init__(keep, progress, scratch=scratch)
        self.number = counted_workers(workers)

    @property
    def share(self) -> int:
        """All of it: threads share their memory."""
        return self.keep

    def run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        """The results, in the order of the tasks; see :meth:`Engine.run`."""
        return alone(self._run, function, tasks, told)  # of the process: set once, not by every thread

    def _run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        found = []
        if self.number == 1:
            for task in tasks:
                found.append(function(*task))
                told(len(found))
            return found
        with ThreadPoolExecutor(self.number) as pool:
            for result in pool.map(lambda task: function(*task), tasks):
                found.append(result)
                told(len(found))
        return found


def counted_workers(workers: int) -> int:
    """A number of workers; -1 stands for the processors that this process may use."""
    number = whole_workers(workers)
    return number if number > 0 else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def died_too_often(times: int) -> WorkerError:
    """What is raised where new workers die as well."""
    return WorkerError(
        f"a worker died {times} times in a row at the same records: it may need more memory, or fewer workers"
    )


def told_bytes(number: float) -> str:
    """A number of bytes in words."""
    return f"{number / 1e6:.3g} MB" if number < 1e9 else f"{number / 1e9:.3g} GB"
