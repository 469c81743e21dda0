"""Passes by the workers of a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dp2erm_cvx.blocked.engine import KEEP, RETRIES, Engine, Told, alone, died_too_often
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import Progress, untold

T = TypeVar("T")


class DaskCluster(Engine):
    """The workers of a Dask cluster, which have to reach the files by the same names.

    ``client`` is a ``distributed.Client``; None: the one that is connected last. A worker that dies is
    replaced by another one, by Dask's own rules. Raises DeclarationError where no cluster is connected.
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
            raise died_too_often(RETRIES) from None
        finally:
            for future in futures[len(found) :]:
                future.cancel()
        return found
