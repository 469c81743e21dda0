"""What this machine does in the same run: matrix multiplication, memory, and starting Python."""

from __future__ import annotations

import platform
import subprocess
import sys
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


def startup(rounds: int) -> dict[str, float]:
    """Seconds of whole processes, in turns: ``import numpy`` and ``dp2erm --help``."""
    words = {
        "python -c 'import numpy'": [sys.executable, "-c", "import numpy"],
        "dp2erm --help": [str(Path(sys.executable).with_name("dp2erm")), "--help"],
    }
    taken: dict[str, list[float]] = {name: [] for name in words}
    for _ in range(rounds):
        for name, command in words.items():
            began = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - began)
    return {name: median(times) for name, times in taken.items()}


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
