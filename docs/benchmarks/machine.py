"""Speed of this machine in the same run: matrix multiplication, memory, and starting processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np


def multiply_rate(n: int, p: int, batch: int) -> float:
    """Flops per second of products (n, p) by (p, batch), the shape of a batch of margins."""
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(n, p)), rng.normal(size=(p, batch))
    out = np.empty((n, batch))
    return 2.0 * n * p * batch / _least(lambda: np.matmul(A, B, out=out))


def memory_rate() -> float:
    """Bytes per second of copying an array far beyond the caches, read and written."""
    source = np.ones(2**24)
    target = np.empty_like(source)
    return 2.0 * source.nbytes / _least(lambda: np.copyto(target, source))


#: Two stages at their defaults.
_STUDY = """treatment = "a"
outcome_column = "y"
covariate_bound = 1.5
outcome_bound = 2
ranges = { x1 = [-1, 1], x2 = [-1, 1] }
budget = { epsilon = 1 }
[[two_stage]]
"""


def startup(rounds: int) -> dict[str, float]:
    """CPU seconds of whole processes, medians, in turns: two imports, and commands on 200 records."""
    command = str(Path(sys.executable).with_name("dp2erm"))
    with tempfile.TemporaryDirectory() as folder:
        data, release, page = (str(Path(folder) / name) for name in ("data.csv", "release.json", "page.html"))
        rng = np.random.default_rng(0)
        rows = [f"{int(x > 0)},{x + z:.3f},{x:.3f},{z:.3f}" for x, z in rng.uniform(-1, 1, (200, 2))]
        Path(data).write_text("\n".join(["a,y,x1,x2", *rows]) + "\n", encoding="utf-8")
        study = Path(folder) / "study.toml"
        study.write_text(_STUDY, encoding="utf-8")
        run = [command, "run", str(study), data, "--output", release, "--force"]
        words = {
            "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
            "python -c 'import cvxpy'": [sys.executable, "-c", "import cvxpy"],
            "dp2erm --help": [command, "--help"],
            "dp2erm run, 200 records": run,
            "dp2erm show": [command, "show", release],
            "dp2erm report": [command, "report", release, "--output", page, "--force"],
        }
        taken: dict[str, list[float]] = {name: [] for name in words}
        for _ in range(rounds):
            for name, line in words.items():
                taken[name].append(_child_seconds(line))
    return {name: median(times) for name, times in taken.items()}


def _child_seconds(words: list[str]) -> float:
    # with bytecode, as whatever is installed has it
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = os.times()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def described() -> str:
    """The processor, without names of hosts or paths."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = names[0] if names else model
    return f"{model}, one thread; Python {platform.python_version()}, numpy {np.__version__}"


def _least(call: object, repeats: int = 7) -> float:
    assert callable(call)
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times)
