"""Workers hold records in memory: they end with the process that made them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

#: Prints the workers, then a line from the middle of what it does, and never ends by itself.
START = """
import os, sys, time
from dp2erm_cvx import Budget, Domain, PrivateEffect
from dp2erm_cvx.blocked import BlockedDataset, Processes
from dp2erm_cvx.parallel import run_tasks

engine = Processes(2, progress=lambda *told: print(told, flush=True))
print(*engine.pass_on([(os.getpid,)] * 2), *run_tasks(os.getpid, [()] * 2, workers=2), flush=True)
"""
DOING = {
    "nothing": "print(flush=True); time.sleep(1e6)",
    "a fit": """
data = BlockedDataset.from_parquet("records.parquet", treatment="a", outcome="y", engine=engine)
while True:
    PrivateEffect(Domain(2.0, 4.0), Budget(1.0), seed=1).fit(data)
""",
    "long tasks": 'print(flush=True); engine.pass_on([(exec, "while True: pass")] * 2)',
    "long tasks of joblib": """
print(flush=True)
list(run_tasks(exec, [("while True: pass",)] * 2, workers=2))
""",
}


@pytest.mark.parametrize("doing", DOING)
def test_workers_end_with_a_process_that_is_killed(doing: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = {"x": rng.uniform(-1, 1, 200), "a": rng.integers(0, 2, 200), "y": rng.uniform(-1, 1, 200)}
    parquet.write_table(pa.table(table), tmp_path / "records.parquet")
    words = [sys.executable, "-c", START + DOING[doing]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as parent:
        workers = [int(word) for word in parent.stdout.readline().split()]
        try:
            assert len(set(workers)) >= 3
            assert parent.stdout.readline()
            parent.kill()
            # all of them write to this pipe: it ends with the last
            parent.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            for worker in set(workers):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGTERM)
            pytest.fail(f"{workers} outlived their parent")
