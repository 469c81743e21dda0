"""Runs on a Dask cluster, whose workers have one version and return errors as values.

A wait for workers ends here as well.

Messages of a :class:`~dp2erm_cvx.errors.WorkerError` depend on the cluster alone, and on no record.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import io
import pickle
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dp2erm_cvx import __version__
from dp2erm_cvx.errors import Dp2ermError, FileError, WorkerError
from dp2erm_cvx.on_demand import asyncio
from dp2erm_cvx.parallel import one_thread

T = TypeVar("T")

#: Seconds without any worker after which a line says that a run waits.
TOLD_AFTER = 30.0
#: Seconds without any worker after which a run ends, where Dask's setting ``dp2erm.wait`` says
#: nothing else.
WAIT = 600.0
#: Seconds that a scheduler has to answer a question about its workers.
_ANSWER = 10.0
#: How a message goes on where a worker has something else than this process.
_ADVICE = "install the same on the client and on every worker, and start the workers anew"
#: Workers that have the versions of a client, by its name.
_VETTED: dict[str, set[str]] = {}
#: Packages whose files are not compared one by one: compared as a whole, by a version, or not a
#: rule of ours.
_COMPARED_OTHERWISE = ("dp2erm_cvx", "numpy", "cloudpickle")


@dataclass(frozen=True, eq=False)
class Refusal:
    """What a task raised, as a value that the client raises.

    Dask writes what a task raises to the log of its worker and shows it on a dashboard, and the
    text of an error about data may quote a cell.

    Parameters
    ----------
    error
        What was raised.
    worker
        The address of the worker of a cluster; empty elsewhere.
    told
        The traceback as text, where the error travels.
    """

    error: Exception
    worker: str = ""
    told: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        error = self.error
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:  # an exception of others may need more than its text to be made again
            error = RuntimeError(type(error).__name__)
        told = "".join(traceback.format_exception(self.error))
        return Refusal, (error.with_traceback(None), self.worker, told)

    def __repr__(self) -> str:
        # which a dashboard may show
        return f"Refusal({type(self.error).__name__})"

    def raised(self) -> Exception:
        """The error, with the worker where that is to blame."""
        if not self.worker:
            return self.error
        if isinstance(self.error, WorkerError):
            return WorkerError(f"worker {self.worker} {self.error}")
        if isinstance(self.error, FileError):
            return FileError(
                f"worker {self.worker}: {self.error}; every worker has to reach the same file by "
                "this name: is its folder another one?"
            )
        if not isinstance(self.error, Dp2ermError):
            self.error.add_note(self.told)
        return self.error


@dataclass(frozen=True)
class Sent:
    """A function on its way to a worker, and what a worker has to have for the same results.

    Parameters
    ----------
    code
        The pickled function.
    versions
        By what is compared: see :func:`versions`; the digests of files by the names of their
        modules.
    """

    code: bytes
    versions: Mapping[str, str]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Sent:
        """A function of this process, with the versions of all that it is made of."""
        cloudpickle: Any = importlib.import_module("cloudpickle")
        file = io.BytesIO()
        pickler = cloudpickle.Pickler(file)
        reducer = pickler.reducer_override
        modules: set[str] = set()

        def noting_reducer(part: Any) -> Any:
            reduced = reducer(part)
            if reduced is NotImplemented:  # what it is made of is sent by its name
                modules.add(str(getattr(part, "__module__", "")))
            return reduced

        pickler.reducer_override = noting_reducer
        pickler.dump(function)
        wanted = dict(versions())
        modules -= cloudpickle.list_registry_pickle_by_value()
        for name in sorted(modules & sys.modules.keys()):  # compilers make up others
            digest = _digest_of_module(name)
            if digest:
                wanted[name] = digest
        return cls(file.getvalue(), wanted)

    def function(self) -> Callable[..., Any]:
        """The function, in the process of a worker.

        Raises
        ------
        WorkerError
            Where that has another version.
        """
        refuse_other_versions(self.versions)
        try:
            function: Callable[..., Any] = pickle.loads(self.code)
        except ImportError as error:
            raise WorkerError(f"has no module {error.name}: {_ADVICE}") from None
        except AttributeError as error:  # of a module that is another one
            raise WorkerError(f"has another version of a module: {error}: {_ADVICE}") from None
        return function


class Work:
    """A function that tasks share: pickled once, and compared with what a worker has.

    Parameters
    ----------
    function
        Any that cloudpickle takes; None where it arrived from elsewhere.
    sent
        How it arrived.
    """

    def __init__(self, function: Callable[..., Any] | None, sent: Sent | None = None) -> None:
        self._function = function
        self._sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        if self._sent is None:
            assert self._function is not None
            self._sent = Sent.of(self._function)
        return Work, (None, self._sent)

    def __call__(self, *inputs: Any) -> Any:
        """The result of the function.

        Raises what it raises, and WorkerError on a worker that differs.
        """
        if self._function is None:
            assert self._sent is not None
            self._function = self._sent.function()
        return self._function(*inputs)


@dataclass(frozen=True, eq=False)
class Task:
    """A call that raises nothing.

    What would be raised is a :class:`Refusal`, and so is the result of all tasks that depend on it.

    Parameters
    ----------
    work
        Called on what other tasks make, then on what stands beside it.
    beside
        Rows of arrays.
    """

    work: Work
    beside: Sequence[Any] = ()

    def __repr__(self) -> str:
        # which logs of workers may quote: no rows are in it
        return "Task()"

    def __call__(self, *inputs: Any) -> Any:
        """The result of the work on these inputs, or a refusal."""
        for result in inputs:
            if isinstance(result, Refusal):
                return result
        try:
            with one_thread():
                return self.work(*inputs, *self.beside)
        except Exception as error:
            return Refusal(error, _worker())


def results_of(results: Sequence[T | Refusal]) -> list[T]:
    """The results of a pass. Raises what the first refusal among them says."""
    made: list[T] = []
    for result in results:
        if isinstance(result, Refusal):
            raise result.raised()
        made.append(result)
    return made


def _worker() -> str:
    """The address of the worker whose task this is; empty where it is none of a cluster."""
    if "distributed" not in sys.modules:
        return ""
    try:
        return str(importlib.import_module("distributed").get_worker().address)
    except ValueError:  # no worker runs this
        return ""


@functools.cache
def versions() -> Mapping[str, str]:
    """What client and workers have to have in common, as this process has it.

    The package comes with a digest of its files, since a version does not tell an altered rule.
    What a process has is what it had at its first task, whatever is installed meanwhile.
    """
    folders = [Path(__file__).parents[1]]
    problems = importlib.util.find_spec("dp2erm_cvx.problems")
    if problems is not None:
        folders += [Path(folder) for folder in problems.submodule_search_locations or ()]
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(folder).as_posix().encode()
            digest.update(name + b"\0" + path.read_bytes())
    return {
        "dp2erm_cvx": f"{__version__} ({digest.hexdigest()[:12]})",
        "numpy": np.__version__,
        "Python": f"{sys.version_info.major}.{sys.version_info.minor}",
    }


@functools.cache
def _digest_of_module(name: str) -> str:
    """Digest of the file of a module that somebody wrote; empty where nothing is to be compared.

    A worker keeps the first one, since its process keeps the module that it imported first. Raises
    ImportError where there is no such module.
    """
    top = name.partition(".")[0]
    if top in _COMPARED_OTHERWISE or top in sys.stdlib_module_names or top in ("", "__main__"):
        return ""
    file = getattr(importlib.import_module(name), "__file__", None) or ""
    if not file.endswith(".py"):
        return ""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]


def refuse_other_versions(wanted: Mapping[str, str]) -> None:
    """Raise WorkerError where this process has another version of anything than the client.

    Parameters
    ----------
    wanted
        What the client has.
    """
    versions_here = versions()
    for name, version in wanted.items():
        try:
            version_here = versions_here.get(name) or _digest_of_module(name)
        except ImportError:
            raise WorkerError(f"has no module {name}: {_ADVICE}") from None
        if version_here != version:
            raise WorkerError(f"has {name} {version_here}, and the client has {version}: {_ADVICE}")


def vetted(wanted: Mapping[str, str], reads: Work | None = None) -> Refusal | None:
    """What a worker finds wrong with itself before it gets records.

    Parameters
    ----------
    wanted
        Versions of the client.
    reads
        Opens files that it will have to read.
    """

    def check() -> None:
        refuse_other_versions(wanted)
        if reads is not None:
            reads()

    result = Task(Work(check))()
    return result if isinstance(result, Refusal) else None


class Cluster:
    """The cluster that a ``distributed.Client`` in force reaches.

    Parameters
    ----------
    client
        The client.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    def check(self, reads: Callable[[], Any] | None = None) -> None:
        """Compare versions with every worker that is new, and let each open the files.

        It waits for the first worker.

        Parameters
        ----------
        reads
            Opens the files, and raises where one is not there; None where they were opened before.

        Raises
        ------
        WorkerError
            Where a worker differs from this process, or none comes.
        DataError
            For what a worker cannot open.
        """
        with self.told():
            workers = self._first_workers()
            checked = _VETTED.setdefault(self.client.id, set())
            new = [worker for worker in workers if reads is not None or worker not in checked]
            if not new:
                return
            work = None if reads is None else Work(reads)
            refusals = self.client.run(
                vetted, dict(versions()), work, workers=new, on_error="return"
            )
        for worker, refusal in refusals.items():
            if isinstance(refusal, Refusal):
                raise replace(refusal, worker=worker).raised()
            if refusal is None:
                checked.add(worker)
            elif not isinstance(refusal, OSError | TimeoutError):  # it has not died meanwhile
                raise WorkerError(f"worker {worker} has no dp2erm_cvx of this version: {_ADVICE}")

    def _first_workers(self) -> list[str]:
        """Addresses of the workers, as soon as there are any."""
        wait = Wait(self)
        workers = self.workers()
        while not workers:
            wait.go_on(workers)
            time.sleep(1.0)
            workers = self.workers()
        return workers

    def workers(self) -> list[str] | None:
        """Addresses of the workers; None where the scheduler does not answer."""
        try:
            return list(self.client.sync(self.client.scheduler.ncores, callback_timeout=_ANSWER))
        except (OSError, TimeoutError):
            return None

    @property
    def gone(self) -> str:
        """What is said of a scheduler that does not answer."""
        where = "" if self.client.scheduler is None else f" at {self.client.scheduler.address}"
        return (
            f"the scheduler{where} is gone, and with it what its workers held: start the cluster "
            "anew, and run this again"
        )

    def gathered(
        self, tasks: Sequence[Any], counted: Sequence[Any], done: Callable[[int], None]
    ) -> Sequence[Any]:
        """Results of Dask tasks, for which workers may come and go.

        Parameters
        ----------
        tasks
            Whose results are wanted.
        counted
            These or tasks before them, by which progress is told.
        done
            Is told from time to time how many of these are done.

        Raises
        ------
        WorkerError
            Where the cluster fails.
        """
        with self.told():
            futures = self.client.compute([*tasks, *counted])
            wanted = futures[: len(tasks)]
            counted_futures = futures[len(tasks) :]
            coroutine = self.client.gather(wanted, asynchronous=True)
            pending = asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)
            wait = Wait(self)
            try:
                while True:
                    try:
                        return list(pending.result(timeout=1.0))
                    except TimeoutError:
                        if pending.done():  # it is an error of the pass
                            raise
                    done(sum(future.done() for future in counted_futures))
                    wait.go_on(self.workers())
            finally:
                pending.cancel()

    def persisted(self, tasks: Sequence[Any]) -> Sequence[Any]:
        """Tasks whose results the cluster keeps. Raises WorkerError."""
        with self.told():
            return list(self.client.persist(list(tasks)))

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say in one line what became of the cluster."""
        client: Any = importlib.import_module("distributed.client")
        comm: Any = importlib.import_module("distributed.comm")
        scheduler: Any = importlib.import_module("distributed.scheduler")
        try:
            yield
        except scheduler.KilledWorker:
            raise WorkerError(
                "workers died again and again at the same records: they may need more memory"
            ) from None
        except (scheduler.NoValidWorkerError, scheduler.NoWorkerError):
            raise WorkerError(_no_workers("gave up, as its settings say")) from None
        except (client.CancelledError, client.ClosedClientError, comm.CommClosedError):
            raise WorkerError(self.gone) from None
        except OSError as error:
            # those of our own tasks are values; this one is of Dask, which spills
            reason = error.strerror or type(error).__name__
            raise WorkerError(
                f"a worker could not write what it keeps ({reason}): is its disk full?"
            ) from None


class Wait:
    """A wait for workers of a cluster, which ends.

    Parameters
    ----------
    cluster
        Whose workers are waited for.
    """

    def __init__(self, cluster: Cluster) -> None:
        config: Any = importlib.import_module("dask").config
        self.cluster = cluster
        self.limit = float(config.get("dp2erm.wait", WAIT))
        self.began: float | None = None
        self.is_told = False

    def go_on(self, workers: Sequence[str] | None) -> None:
        """Take note of whether workers are there.

        Warns after some time, and raises WorkerError after all.

        Parameters
        ----------
        workers
            As :meth:`Cluster.workers` tells them.
        """
        if workers:
            self.began = None
            self.is_told = False
            return
        now = time.monotonic()
        if self.began is None:
            self.began = now
        if now - self.began >= self.limit:
            if workers is None:
                raise WorkerError(self.cluster.gone)
            raise WorkerError(
                _no_workers(f"none came within {self.limit:g} seconds (dp2erm run --wait)")
            )
        if now - self.began >= TOLD_AFTER and not self.is_told:
            self.is_told = True
            what = "the cluster has no workers: start some"
            if workers is None:
                what = "the scheduler of the cluster does not answer"
            warnings.warn(
                f"{what}; this run has waited for {TOLD_AFTER:g} seconds, goes on as soon as "
                f"workers are there, and ends after {self.limit:g} seconds without (dp2erm run "
                "--wait)",
                stacklevel=2,
            )


def _no_workers(why: str) -> str:
    return f"the cluster has no workers, and {why}: start some, and run this again"
