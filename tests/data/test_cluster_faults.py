"""Faults of a cluster: the release is that of memory, to the bit, or one line says why there is
none.

Whatever happens, the budget is charged once, and that is said.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, Ledger, PrivateEffect
from dp2erm_cvx.data import blocks, cluster
from dp2erm_cvx.data.blocked import BlockedDataset
from dp2erm_cvx.data.records import VIEW
from dp2erm_cvx.errors import DataError, Dp2ermError, FileError, WorkerError

pa = pytest.importorskip("pyarrow")
dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
from pyarrow import parquet  # noqa: E402

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
#: Rows of the table: three blocks of as many records as a view has, and a part of one.
ROWS = 3 * VIEW + 1000
DOMAIN = Domain(2.0, 3.0, ranges={"x": (-3.0, 3.0)})
#: A cell that nothing but the message of the client may show.
SECRET = "the-cell-of-one-person"


def written(path: Path, shift: float = 0.0, rows: int = ROWS, x: Any = None) -> Path:
    rng = np.random.default_rng(5)
    normal = rng.normal(size=rows)
    a = (rng.random(rows) < 1.0 / (1.0 + np.exp(-normal))).astype(int)
    y = 0.3 * normal + a * (0.5 + shift) + rng.normal(0.0, 0.3, rows)
    table = pa.table({"x": normal if x is None else x, "a": a, "y": y})
    parquet.write_table(table, path, row_group_size=5000)
    return path


class Processes:
    """A scheduler and workers of this machine, all of which end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.all = folder, list[subprocess.Popen[bytes]]()
        self.file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--port", "0", "--host", "127.0.0.1")
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, kind: str, *words: str, **env: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            "-m",
            "distributed.cli.dask_" + kind,
            "--scheduler-file",
            str(self.file),
        ]
        quiet = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **env}
        with (self.folder / f"log{len(self.all)}").open("w") as log:
            made = subprocess.Popen(
                [*command, "--no-dashboard", *words],
                cwd=self.folder,
                env={**os.environ, **quiet},
                stdout=log,
                stderr=log,
            )
        self.all.append(made)
        return made

    def worker(self, *words: str, **env: str) -> None:
        words = (
            "--nthreads",
            "1",
            "--no-nanny",
            "--local-directory",
            str(self.folder / "spilled"),
            *words,
        )
        self.workers.append(self.start("worker", *words, **env))

    @property
    def logs(self) -> str:
        return "".join(log.read_text() for log in sorted(self.folder.glob("log*")))

    def kill(self, *processes: subprocess.Popen[bytes]) -> None:
        for one in processes:
            one.kill()
            one.wait()


@pytest.fixture
def processes(tmp_path, monkeypatch) -> Iterator[Processes]:
    """Two workers and a client in force; blocks of the client are short."""
    monkeypatch.setattr(blocks, "BLOCK", VIEW)
    made = Processes(tmp_path)
    try:
        for _ in range(2):
            made.worker()
        while not made.file.exists():
            time.sleep(0.1)
        with (
            dask.config.set({"dp2erm.wait": 5.0}),
            distributed.Client(scheduler_file=str(made.file), timeout="10m") as client,
        ):
            client.wait_for_workers(2)
            yield made
            made.kill(*made.all)  # before the client closes, which would wait for them
    finally:
        made.kill(*made.all)


@pytest.fixture
def path(tmp_path) -> Path:
    return written(tmp_path / "records.parquet")


def read(path: Path) -> BlockedDataset:
    return BlockedDataset.read(path, treatment="a", outcome="y")


def fitted(data: BlockedDataset) -> str:
    """The release, without its noise being drawn anew."""
    return PrivateEffect(DOMAIN, Budget(4.0), seed=3).fit(data).release_.to_json()


def in_threads(path: Path) -> str:
    with dask.config.set(scheduler="threads"):
        return fitted(read(path))


def at_pass(monkeypatch, number: int, action: Callable[[], object]) -> None:
    """Do something before a pass of a fit."""
    passes: list[int] = []
    gathered = cluster.Cluster.gathered

    def watched(self: Any, *tasks: Any) -> Any:
        passes.append(len(passes))
        if len(passes) == number:
            action()
        return gathered(self, *tasks)

    monkeypatch.setattr(cluster.Cluster, "gathered", watched)


#: A pass after the charge, with the records held by the workers.
LATER = 8


def charged(path: Path, ledger: Path) -> tuple[str, int]:
    """What a fit that is charged says when it fails, and how often it was charged."""
    book = Ledger(ledger)
    book.declare("trial", Budget(12.0))
    model = PrivateEffect(DOMAIN, Budget(4.0), ledger=book, dataset="trial")
    data = read(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Dp2ermError) as refused:
            model.fit(data)
    assert not hasattr(model, "release_")
    return str(refused.value), len(book.account("trial").receipts)


def test_one_worker_that_is_killed_changes_nothing(processes, path, monkeypatch):
    at_pass(monkeypatch, LATER, lambda: processes.kill(processes.workers[0]))
    assert fitted(read(path)) == in_threads(path)


def test_workers_that_are_replaced_within_the_wait_change_nothing(processes, path, monkeypatch):
    def replaced() -> None:
        processes.kill(*processes.workers)
        processes.worker()

    at_pass(monkeypatch, LATER, replaced)
    with dask.config.set({"dp2erm.wait": 600.0}):
        result = fitted(read(path))
    assert result == in_threads(path)


def test_without_workers_a_run_ends_and_says_what_was_charged(
    processes, path, tmp_path, monkeypatch
):
    at_pass(monkeypatch, LATER, lambda: processes.kill(*processes.workers))
    message, charges = charged(path, tmp_path / "ledger.db")
    assert "no workers, and none came within 5 seconds" in message
    assert "'trial' was charged epsilon = 4" in message
    assert charges == 1


def test_a_scheduler_that_is_killed_ends_a_run(processes, path, tmp_path, monkeypatch):
    at_pass(monkeypatch, LATER, lambda: processes.kill(processes.scheduler))
    message, charges = charged(path, tmp_path / "ledger.db")
    assert "is gone, and with it what its workers held" in message
    assert "'trial' was charged epsilon = 4" in message
    assert charges == 1


@pytest.mark.parametrize("when", [1, LATER])
def test_a_worker_of_another_version_is_refused_whenever_it_joins(
    processes, path, tmp_path, monkeypatch, when
):
    """Before the charge by its name; later, where tasks are its own."""
    altered = tmp_path / "altered"
    shutil.copytree(ROOT / "dp2erm_cvx", altered / "dp2erm_cvx")
    with (altered / "dp2erm_cvx" / "steps" / "score.py").open("a") as file:
        file.write("\n# another rule\n")

    def joined() -> None:
        processes.worker(PYTHONPATH=str(altered))
        distributed.get_client().wait_for_workers(3)
        processes.kill(*processes.workers[:2])

    at_pass(monkeypatch, when, joined)
    message, charges = charged(path, tmp_path / "ledger.db")
    assert "has dp2erm_cvx 0.1.0 (" in message
    assert "install the same on the client and on every worker" in message
    assert charges == (when == LATER)
    assert ("was charged" if charges else "Nothing was charged") in message


def test_a_worker_without_the_package_is_named(processes, path, tmp_path):
    empty = tmp_path / "empty" / "dp2erm_cvx"
    empty.mkdir(parents=True)
    (empty / "__init__.py").touch()
    processes.worker(PYTHONPATH=str(empty.parent))
    distributed.get_client().wait_for_workers(3)
    message, charges = charged(path, tmp_path / "ledger.db")
    assert "has no dp2erm_cvx of this version" in message
    assert charges == 0


RULE = "def rule(block):\n    return len(block.y){}\n"


def test_a_module_of_an_author_is_the_same_on_every_worker(processes, path, tmp_path, monkeypatch):
    name = "rules_of_an_author"
    for folder, more in (("here", ""), ("there", " + 1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(RULE.format(more))
    monkeypatch.syspath_prepend(tmp_path / "here")
    rule = __import__(name).rule
    with pytest.raises(WorkerError, match=f"has no module {name}"):
        read(path).blocks.map(rule)
    processes.worker(PYTHONPATH=f"{ROOT}:{tmp_path / 'there'}")
    distributed.get_client().wait_for_workers(3)
    processes.kill(*processes.workers[:2])
    with pytest.raises(WorkerError, match=f"has {name} .* and the client has"):
        read(path).blocks.map(rule)
    processes.kill(processes.workers[2])
    processes.worker(PYTHONPATH=f"{ROOT}:{tmp_path / 'here'}")
    with dask.config.set({"dp2erm.wait": 600.0}):
        assert sum(read(path).blocks.map(rule)) == ROWS


def gone(path: Path) -> None:
    path.unlink()


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def replaced(path: Path) -> None:
    written(path, shift=1.0)


def longer(path: Path) -> None:
    written(path, rows=ROWS + 5000)


@pytest.mark.parametrize("change", [gone, truncated, replaced, longer])
def test_files_that_change_are_refused_before_the_charge_or_are_not_read_again(
    processes, path, tmp_path, monkeypatch, change
):
    known = in_threads(path)
    data = read(path)
    shutil.copy2(path, tmp_path / "copy")
    change(path)
    with pytest.raises(FileError, match=r"worker tcp://.*every worker has to reach the same file"):
        fitted(data)
    shutil.copy2(tmp_path / "copy", path)  # which keeps its time
    at_pass(monkeypatch, LATER, lambda: change(path))
    assert fitted(data) == known


def test_a_file_that_changed_is_not_read_for_a_worker_that_died(
    processes, path, tmp_path, monkeypatch
):
    def both() -> None:
        replaced(path)
        processes.kill(processes.workers[0])

    at_pass(monkeypatch, LATER, both)
    message, charges = charged(path, tmp_path / "ledger.db")
    assert "is not the file that it was" in message
    assert charges == 1


def test_a_refused_cell_is_in_no_log(processes, tmp_path):
    path = written(tmp_path / "texts.parquet", x=[SECRET] + ["1.5"] * (ROWS - 1))
    with pytest.raises(DataError, match=SECRET):
        PrivateEffect(DOMAIN, Budget(4.0)).fit(read(path))
    assert "vetted" in processes.logs
    assert SECRET not in processes.logs


STUDY = """
outcome_bound = 3.0
outcome_column = "y"
[treatment]
column = "a"
[ranges]
x = [-3.0, 3.0]
[budget]
epsilon = 4
[ledger]
file = "ledger.db"
dataset = "trial"
[[effect]]
"""


def test_a_client_that_is_killed_is_charged_once(processes, path, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    book = Ledger(tmp_path / "ledger.db")
    book.declare("trial", Budget(12.0))
    address = distributed.get_client().scheduler.address
    words = ["run", "study.toml", path.name, "--blocks", "always", "--scheduler", address, "--yes"]
    call = "import sys; from dp2erm_cvx.cli import main; main(sys.argv[1:])"
    run = subprocess.Popen(
        [sys.executable, "-c", call, *words], cwd=tmp_path, stderr=subprocess.PIPE
    )
    while run.poll() is None and not book.account("trial").receipts:
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert run.returncode == -signal.SIGKILL
    assert len(book.account("trial").receipts) == 1
    assert not list(tmp_path.glob("releases/*.json"))
    # the cluster is as good as new
    assert fitted(read(path)) == in_threads(path)
