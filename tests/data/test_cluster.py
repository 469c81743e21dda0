"""What a worker refuses, what travels from it, and how long a cluster may be without workers."""

import pickle
import re
import sys
import types
import warnings
from functools import partial
from pathlib import Path

import click
import numpy as np
import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.cli.reading import _connect
from dp2erm_cvx.data import cluster
from dp2erm_cvx.data.cluster import (
    Cluster,
    Refusal,
    Sent,
    Task,
    Wait,
    Work,
    results_of,
    versions,
    vetted,
)
from dp2erm_cvx.errors import DataError, DeclarationError, FileError, WorkerError
from dp2erm_cvx.estimators.fitting import telling_charge
from dp2erm_cvx.ledger import Ledger

cloudpickle = pytest.importorskip("cloudpickle")
dask = pytest.importorskip("dask")

CELL = "a cell of one person"


def doubled(numbers, more=0.0):
    return 2.0 * numbers + more


def refusing(*inputs):
    raise DataError(CELL)


def other_exception(*inputs):
    class OfItsOwn(Exception):
        def __init__(self, one, two):
            super().__init__(CELL)

    raise OfItsOwn(1, 2)


def travelled(one):
    return pickle.loads(cloudpickle.dumps(one))


def test_what_a_task_raises_is_a_value_whose_print_holds_no_cell():
    refusal = Task(Work(refusing))()
    assert CELL not in repr(refusal)
    # and so is all that depends on it
    assert Task(Work(doubled))(refusal) is refusal
    with pytest.raises(DataError, match=CELL):
        results_of([1.0, travelled(refusal)])
    with pytest.raises(RuntimeError, match="OfItsOwn"):
        results_of([travelled(Task(Work(other_exception))())])


def test_a_task_that_travelled_computes_the_same():
    rows = np.arange(3.0)
    task = Task(Work(doubled), (rows,))
    assert travelled(task)(rows).tolist() == task(rows).tolist() == [0.0, 3.0, 6.0]
    # a scheduler hands on what it never unpacked
    assert travelled(travelled(task))(rows).tolist() == [0.0, 3.0, 6.0]


def test_the_print_of_a_task_holds_no_rows():
    task = Task(Work(partial(doubled, more=CELL)), ([CELL],))
    for one in (task, travelled(task)):
        assert CELL not in repr(one)


def test_a_worker_of_another_version_refuses_its_tasks(monkeypatch):
    arrived = travelled(Task(Work(doubled)))
    other = {**versions(), "numpy": "1.0"}
    monkeypatch.setattr(cluster, "versions", lambda: other)
    for refusal in (arrived(2.0), vetted(arrived.work._sent.versions)):
        with pytest.raises(
            WorkerError, match=f"has numpy 1.0, and the client has {np.__version__}"
        ):
            results_of([refusal])
    monkeypatch.undo()
    assert vetted(versions()) is None


@pytest.fixture
def author(tmp_path, monkeypatch):
    """A module of somebody's own, and its file."""
    path = tmp_path / "module_of_an_author.py"
    path.write_text("def rule(number):\n    return number\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(path.stem)
    yield module, path
    sys.modules.pop(path.stem, None)
    cluster._digest_of_module.cache_clear()


def test_modules_that_functions_come_from_are_compared_by_their_files(author, monkeypatch):
    module, path = author
    sent = Sent.of(module.rule)
    assert sent.versions.keys() == {*versions(), path.stem}
    assert sent.function()(3) == 3
    cluster._digest_of_module.cache_clear()
    path.write_text("def rule(number):\n    return number + 1\n")
    with pytest.raises(WorkerError, match=f"has {path.stem} .* install the same"):
        sent.function()
    cluster._digest_of_module.cache_clear()
    path.unlink()
    monkeypatch.delitem(sys.modules, path.stem)
    with pytest.raises(WorkerError, match=f"has no module {path.stem}"):
        sent.function()


def test_a_module_that_is_sent_itself_is_not_looked_for(author):
    module, _ = author
    cloudpickle.register_pickle_by_value(module)
    try:
        assert Sent.of(module.rule).versions.keys() == versions().keys()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_file_out_of_reach_is_told_with_its_worker():
    refusal = Refusal(FileError("records.parquet: cannot be read"), "tcp://there:1")
    with pytest.raises(
        FileError, match=r"worker tcp://there:1: records.*is its folder another one\?"
    ):
        results_of([refusal])


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass only where a test says so."""
    now = types.SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now.seconds)
    return now


def waited(clock, workers, *seconds):
    wait = Wait(Cluster(types.SimpleNamespace(scheduler=None)))
    for one in seconds:
        clock.seconds = one
        wait.go_on(workers)
    return wait


@pytest.mark.parametrize(
    ("workers", "told", "ended"),
    [
        ([], "no workers: start some", "none came within 100 seconds"),
        (None, "not answer", "is gone"),
    ],
)
def test_a_wait_for_workers_is_told_once_and_ends(clock, workers, told, ended):
    with dask.config.set({"dp2erm.wait": 100}):
        with warnings.catch_warnings(record=True) as early:
            warnings.simplefilter("always")
            waited(clock, workers, 0.0, 29.0)
        assert not [line for line in early if re.search(told, str(line.message))]
        with pytest.warns(UserWarning, match=told) as lines:
            wait = waited(clock, workers, 0.0, 31.0, 99.0)
        assert len(lines) == 1
        clock.seconds = 100.5
        with pytest.raises(WorkerError, match=ended):
            wait.go_on(workers)
        wait.go_on(["tcp://there:1"])
        clock.seconds = 150.0
        wait.go_on(workers)  # which is counted from here


def test_errors_of_a_cluster_are_told_by_their_types():
    distributed = pytest.importorskip("distributed")
    named = type("KilledWorker", (Exception,), {})  # of somebody else
    there = Cluster(types.SimpleNamespace(scheduler=None))
    for raised, message in (
        (distributed.KilledWorker("task", None, 3), "died again and again"),
        (distributed.client.FutureCancelledError("key", "lost"), "is gone"),
        (distributed.comm.CommClosedError(), "is gone"),
        (distributed.scheduler.NoWorkerError("task", 3.0), "has no workers"),
        (OSError(28, "No space left on device"), "No space left on device.: is its disk full"),
    ):
        with pytest.raises(WorkerError, match=message), there.told():
            raise raised
    with pytest.raises(named), there.told():
        raise named


def test_a_worker_error_says_what_was_charged(tmp_path):
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(3.0))
    receipt = book.charge("trial", Budget(1.0), "effect")
    for paid, told in (
        (None, r"gone\. Nothing was charged$"),
        (receipt, r"'trial' was charged epsilon = 1,"),
    ):
        with pytest.raises(WorkerError, match=told), telling_charge(paid):
            raise WorkerError("the scheduler is gone")


def test_tls_without_keys_is_refused_in_one_line():
    pytest.importorskip("distributed")
    with (
        click.Context(click.Command("run")),
        pytest.raises(DeclarationError, match=r"needs keys: set distributed\.comm\.tls"),
    ):
        _connect("tls://127.0.0.1:1", None)


def test_the_digest_of_the_package_is_that_of_its_files(tmp_path):
    assert Path(cluster.__file__).parents[1].name == "dp2erm_cvx"
    assert versions() is versions()
    assert versions()["dp2erm_cvx"].startswith("0.")
