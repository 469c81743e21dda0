"""Independent tasks on the workers of joblib, in processes or on a Dask cluster."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar

from dp2erm_cvx.checks import public_number
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_T = TypeVar("_T")

#: Is told what is counted, how many of it are done, and their number.
Progress = Callable[[str, int, int], None]

_MOST = 4096


def whole_workers(workers: float) -> int:
    """A number of workers, or -1 for all of them. Raises DeclarationError."""
    number = public_number("workers", workers)
    if number != int(number) or (number < 1 and number != -1):
        raise DeclarationError(
            f"workers = {workers!r}: must be a whole number of at least 1, or -1 for all"
        )
    if number > _MOST:
        raise DeclarationError(f"workers = {workers!r}: must be at most {_MOST:,}")
    return int(number)


def run_tasks(
    function: Callable[..., _T], tasks: Iterable[tuple[Any, ...]], *, workers: int
) -> Iterator[_T]:
    """Yield ``function(*task)`` for every task, in their order, each as soon as it is there.

    One worker runs in this process. More go through joblib, so that its backend can be chosen
    outside::

        with joblib.parallel_config(backend="dask"):
            audit_stability(..., workers=-1)

    Processes of this machine end with this one, however it ends. A result must be a function of its
    task alone: it has a seed of its own, and never more than one thread of the linear algebra,
    whose rounding would depend on their number.

    Parameters
    ----------
    function
        What is computed.
    tasks
        Its arguments, task by task.
    workers
        Number of processes; -1 for one on every core.

    Raises
    ------
    DeclarationError
        For an invalid number of workers.
    Exception
        Whatever ``function`` raises.
    """
    workers = whole_workers(workers)
    if workers == 1:
        return (_alone(function, task) for task in tasks)
    from joblib import Parallel, delayed

    parallel = Parallel(
        n_jobs=workers,
        return_as="generator",
        pre_dispatch="2 * n_jobs",
        **ending_with_this_process(),
    )
    results: Iterator[_T] = parallel(delayed(_alone)(function, task) for task in tasks)
    return results


def _alone(function: Callable[..., _T], task: tuple[Any, ...]) -> _T:
    """One task on one thread of the linear algebra."""
    with one_thread():
        return function(*task)


#: How many tasks of this process compute on one thread, and what ends that.
_ALONE: dict[str, Any] = {"tasks": 0}
_LOCK = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of the linear algebra in this process; rounding would depend on their number."""
    with _LOCK:
        if not _ALONE["tasks"]:
            _ALONE["limit"] = _libraries(len(sys.modules)).limit(limits=1)
        _ALONE["tasks"] += 1
    try:
        yield
    finally:
        with _LOCK:
            _ALONE["tasks"] -= 1
            if not _ALONE["tasks"]:
                _ALONE.pop("limit").restore_original_limits()


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Libraries of the linear algebra, by the number of imported ``modules``.

    To look for them takes long: it is done again only where there are more modules.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def ending_with_this_process() -> dict[str, Any]:
    """Arguments of an executor of joblib or loky whose workers never outlive this process.

    Workers that wait for tasks, or are in the middle of one, would else keep what they hold in
    memory.
    """
    return {"initializer": _end_with, "initargs": _pipe(os.getpid())[:1]}


@functools.cache
def _pipe(process: int) -> tuple[Connection, Connection]:
    """Its second end is held by this process alone: a child that is forked needs one of its own."""
    from multiprocessing import Pipe

    return Pipe(duplex=False)


def _end_with(parent: Connection) -> None:
    """End this process as soon as its ``parent`` has ended."""
    from multiprocessing.connection import wait

    def watch() -> None:
        try:
            wait([parent])  # nothing is ever sent
        finally:
            os._exit(1)

    Thread(target=watch, daemon=True).start()
