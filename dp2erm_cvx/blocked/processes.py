"""Passes by processes of this machine, of which one that dies is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from dp2erm_cvx.blocked.engine import KEEP, RETRIES, Told, alone, counted_workers, died_too_often
from dp2erm_cvx.blocked.parcels import Apart
from dp2erm_cvx.parallel import Progress, ending_with_this_process, untold

T = TypeVar("T")


class Processes(Apart):
    """Processes of this machine, each with a queue of its own, which end with the one that made them.

    What they are given has to be picklable.
    """

    def __init__(
        self,
        workers: int = -1,
        keep: int = KEEP,
        progress: Progress = untold,
        *,
        scratch: str | Path | None = None,
    ) -> None:
        super().__init__(keep, progress, scratch=scratch)
        self.number = counted_workers(workers)
        self._pools: dict[int, Any] = {}

    def pass_on(self, tasks: Sequence[tuple[Any, ...]], told: Told = lambda done: None) -> list[Any]:
        """The results, in the order of the tasks; see :meth:`~dp2erm_cvx.blocked.parcels.Apart.pass_on`."""
        found: list[Any] = []
        owners = [self.worker(k, len(tasks)) for k in range(len(tasks))]
        futures: list[Future[Any]] = []
        try:
            futures += [self._submit(owner, task) for owner, task in zip(owners, tasks, strict=True)]
            died = 0
            while (k := len(found)) < len(tasks):
                try:
                    found.append(futures[k].result())
                except BrokenProcessPool:
                    died += 1
                    if died > RETRIES:
                        raise died_too_often(died) from None
                    self._pools.pop(owners[k]).shutdown(wait=False)
                    for j in range(k, len(tasks)):  # what it had finished stays
                        if owners[j] == owners[k] and _lost(futures[j]):
                            futures[j] = self._submit(owners[j], tasks[j])
                else:
                    died = 0
                    told(len(found))
            return found
        finally:
            for future in futures:
                future.cancel()

    def _submit(self, owner: int, task: tuple[Any, ...]) -> Future[Any]:
        from joblib.externals.loky import ProcessPoolExecutor

        for _ in range(RETRIES + 1):
            if owner not in self._pools:
                self._pools[owner] = ProcessPoolExecutor(1, **ending_with_this_process())
            try:
                future: Future[Any] = self._pools[owner].submit(alone, *task)
                return future
            except BrokenProcessPool:  # it died between two passes
                self._pools.pop(owner).shutdown(wait=False)
        raise died_too_often(RETRIES + 1)

    def close(self) -> None:
        """Let the processes go, whatever they are at."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, kill_workers=True)
        self._pools.clear()

    def __del__(self) -> None:
        self.close()


def _lost(future: Future[Any]) -> bool:
    return not future.done() or future.cancelled() or isinstance(future.exception(), BrokenProcessPool)
