"""Workers hold records in memory: they end with the process that made them, however it ends."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

#: Prints the workers, then a line from the middle of what it does, and never ends by itself.
START = """
import os, time
from dp2erm_cvx.parallel import run_tasks

print(*run_tasks(os.getpid, [()] * 2, workers=2), flush=True)
print(flush=True)
"""
DOING = {
    "nothing": "time.sleep(1e6)",
    "long tasks": 'list(run_tasks(exec, [("while True: pass",)] * 2, workers=2))',
}


@pytest.mark.parametrize("doing", DOING)
def test_workers_end_with_a_process_that_is_killed(doing: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", START + DOING[doing]]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, **pipes) as parent:
        workers = [int(word) for word in parent.stdout.readline().split()]
        try:
            assert workers
            assert parent.stdout.readline()
            parent.kill()
            # all of them write to this pipe: it ends with the last
            parent.communicate(timeout=3600)  # what hangs, and not what is slow
        except subprocess.TimeoutExpired:
            for worker in set(workers):
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGTERM)
            pytest.fail(f"{workers} outlived their parent")
