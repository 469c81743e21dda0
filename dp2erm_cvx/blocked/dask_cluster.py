"""Passes by the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dp2erm_cvx.blocked.engine import KEEP, RETRIES, Told, alone, died_too_often
from dp2erm_cvx.blocked.parcels import Apart
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import Progress, untold

#: Seconds after which it is seen whether a worker that takes long is still there.
_LOOK = 2.0


class DaskCluster(Apart):
    """The workers of a Dask cluster, which have to reach the files by the same names.

    ``client`` is a ``distributed.Client``; None: the one that is connected last. What a worker
    that dies was at is done by those that are left. Raises DeclarationError where no cluster is connected.
    """

    def __init__(
        self,
        client: Any = None,
        keep: int = KEEP,
        progress: Progress = untold,
        *,
        scratch: str | Path | None = None,
    ) -> None:
        super().__init__(keep, progress, scratch=scratch)
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

    def reserve(self, nbytes: int) -> None:
        """Nothing: the scratch folder is on other machines, which say so when they write."""

    def _workers(self) -> list[str]:
        return sorted(self.client.nthreads())

    def pass_on(self, tasks: Sequence[tuple[Any, ...]], told: Told = lambda done: None) -> list[Any]:
        """The results, in the order of the tasks; see :meth:`~dp2erm_cvx.blocked.parcels.Apart.pass_on`."""
        from distributed import KilledWorker

        known, died = self._workers(), 0
        found: list[Any] = []
        # where it was before, as blocks are kept there: no other worker may steal it
        owners = [known[k * len(known) // len(tasks)] if known else None for k in range(len(tasks))]
        futures = [self._submit(owner, task) for owner, task in zip(owners, tasks, strict=True)]
        try:
            while (k := len(found)) < len(tasks):
                try:
                    found.append(futures[k].result(timeout=_LOOK))
                except (TimeoutError, KilledWorker) as failed:
                    known, gone = self._workers(), owners[k]
                    if isinstance(failed, TimeoutError):
                        if futures[k].status == "error":
                            raise  # the task itself did
                        if gone is None or gone in known:
                            continue
                    died += 1
                    if died > RETRIES:
                        raise died_too_often(died) from None
                    for j in range(k, len(tasks)):
                        if owners[j] == gone and futures[j].status != "finished":
                            futures[j].cancel()
                            owners[j] = known[j * len(known) // len(tasks)] if known else None
                            futures[j] = self._submit(owners[j], tasks[j])
                else:
                    died = 0
                    told(len(found))
        finally:
            for future in futures[len(found) :]:
                future.cancel()
        return found

    def _submit(self, owner: str | None, task: tuple[Any, ...]) -> Any:
        import dask

        # tasks carry arrays in the first pass that asks for them, which is no mistake of the caller's
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 GB"}):
            return self.client.submit(alone, *task, workers=owner, pure=False)
