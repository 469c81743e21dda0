"""Who makes a pass over blocks of records: this process, threads, processes, or a Dask cluster."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from dp2erm_cvx.errors import DeclarationError, WorkerError
from dp2erm_cvx.parallel import whole_workers

T = TypeVar("T")

#: Is told how many tasks are done.
Told = Callable[[int], None]

#: How often a task is given to a new worker where the worker that had it died.
RETRIES = 3


def alone(function: Callable[..., T], *task: Any) -> T:
    """The task on one thread of the linear algebra, whose rounding would depend on their number."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return function(*task)


class Engine(abc.ABC):
    """Workers that keep blocks of records from one pass to the next.

    ``number`` of them share the memory for what is kept. They change nothing in the results: sums are added
    in a tree over blocks, wherever these are.
    """

    number: int

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

    def __init__(self, workers: int = 1) -> None:
        self.number = _counted(workers)

    def run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        """The results, in the order of the tasks; see :meth:`Engine.run`."""
        from threadpoolctl import threadpool_limits

        found = []
        with threadpool_limits(1):  # of the process: set once, not by every thread
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


class Processes(Engine):
    """Processes of this machine, each with a queue of its own. What they are given has to be picklable."""

    def __init__(self, workers: int = -1) -> None:
        self.number = _counted(workers)
        self._pools: dict[int, Any] = {}

    def run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        """The results, in the order of the tasks; see :meth:`Engine.run`."""
        found: list[T] = []
        owners = [self.worker(k, len(tasks)) for k in range(len(tasks))]
        futures: list[Future[T]] = []
        try:
            futures += [
                self._submit(owner, function, task) for owner, task in zip(owners, tasks, strict=True)
            ]
            died = 0
            while (k := len(found)) < len(tasks):
                try:
                    found.append(futures[k].result())
                except BrokenProcessPool:
                    died += 1
                    if died > RETRIES:
                        raise _too_often(died) from None
                    self._pools.pop(owners[k]).shutdown(wait=False)
                    for j in range(k, len(tasks)):  # what it had finished stays
                        if owners[j] == owners[k] and _lost(futures[j]):
                            futures[j] = self._submit(owners[j], function, tasks[j])
                else:
                    died = 0
                    told(len(found))
            return found
        finally:
            for future in futures:
                future.cancel()

    def _submit(self, owner: int, function: Callable[..., T], task: tuple[Any, ...]) -> Future[T]:
        from joblib.externals.loky import ProcessPoolExecutor

        for _ in range(RETRIES + 1):
            if owner not in self._pools:
                self._pools[owner] = ProcessPoolExecutor(1)
            try:
                future: Future[T] = self._pools[owner].submit(alone, function, *task)
                return future
            except BrokenProcessPool:  # it died between two passes
                self._pools.pop(owner).shutdown(wait=False)
        raise _too_often(RETRIES + 1)

    def close(self) -> None:
        """Let the processes go, whatever they are at."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, kill_workers=True)
        self._pools.clear()

    def __del__(self) -> None:
        self.close()


class DaskCluster(Engine):
    """The workers of a Dask cluster, which have to reach the files by the same names.

    ``client`` is a ``distributed.Client``; None: the one that is connected last. A worker that dies is
    replaced by another one, by Dask's own rules. Raises DeclarationError where no cluster is connected.
    """

    def __init__(self, client: Any = None) -> None:
        try:
            from distributed import default_client
        except ImportError:
            raise DeclarationError(
                "a Dask cluster needs distributed: pip install 'dp2erm-cvx[distributed]'"
            ) from None
        if client is None:
            try:
                client = default_client()  # type: ignore[no-untyped-call]
            except ValueError:
                raise DeclarationError(
                    "no Dask cluster is connected: make a distributed.Client first"
                ) from None
        self.client = client
        self.number = max(len(self._workers()), 1)

    def _workers(self) -> list[str]:
        return sorted(self.client.nthreads())

    def run(self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], told: Told) -> list[T]:
        """The results, in the order of the tasks; see :meth:`Engine.run`."""
        from distributed import KilledWorker

        known = self._workers()
        futures: list[Any] = []
        for k, task in enumerate(tasks):
            # where it was before, as blocks are kept there; elsewhere if that worker is gone
            where = known[k * len(known) // len(tasks)] if known else None
            futures.append(
                self.client.submit(
                    alone, function, *task, workers=where, allow_other_workers=True, pure=False
                )
            )
        found: list[T] = []
        try:
            for future in futures:
                found.append(future.result())
                told(len(found))
        except KilledWorker:
            raise _too_often(RETRIES) from None
        finally:
            for future in futures[len(found) :]:
                future.cancel()
        return found


def _counted(workers: int) -> int:
    import os

    number = whole_workers(workers)
    return number if number > 0 else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _lost(future: Future[Any]) -> bool:
    return not future.done() or future.cancelled() or isinstance(future.exception(), BrokenProcessPool)


def _too_often(times: int) -> WorkerError:
    return WorkerError(
        f"a worker died {times} times in a row at the same records: it may need more memory, or fewer workers"
    )
