"""Speed of this machine in the same run: matrix multiplication, memory, and starting processes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import resources
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


#: What every process of this library imports at least, and what one imports that solves declared
#: problems.
LIGHT = "python -c 'import numpy, scipy.special, pydantic'"
SOLVERS = "python -c 'import cvxpy'"


def startup(rounds: int) -> dict[str, float]:
    """Median CPU seconds of whole processes: imports, and commands on the study of NHEFS.

    The processes take turns.
    """
    command = str(Path(sys.executable).with_name("dp2erm"))
    with resources.as_file(resources.files("dp2erm_cvx.datasets")) as shipped:
        study, data = (str(shipped / name) for name in ("study.toml", "nhefs.csv"))
        with tempfile.TemporaryDirectory() as folder:
            release, page = (str(Path(folder) / name) for name in ("release.json", "page.html"))
            words = {
                LIGHT: [sys.executable, "-c", "import numpy, scipy.special, pydantic"],
                SOLVERS: [sys.executable, "-c", "import cvxpy"],
                "dp2erm --help": [command, "--help"],
                "dp2erm run, 1,566 records": [
                    command,
                    "run",
                    study,
                    data,
                    "--output",
                    release,
                    "--force",
                ],
                "dp2erm show": [command, "show", release],
                "dp2erm report": [command, "report", release, "--output", page, "--force"],
                "dp2erm verify": [command, "verify", release],
            }
            taken: dict[str, list[float]] = {name: [] for name in words}
            for _ in range(rounds):
                for name, line in words.items():
                    taken[name].append(_child_seconds(line))
    return {name: median(times) for name, times in taken.items()}


def _child_seconds(words: list[str]) -> float:
    # with bytecode, as whatever is installed has it
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    before = os.times()
    subprocess.run(
        words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    )
    after = os.times()
    return (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def described() -> str:
    """The processor, without names of hosts or paths."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if "model name" in line
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
