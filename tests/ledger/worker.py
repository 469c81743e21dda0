"""Releases from four processes that are killed at random points; run as a script by test_killed.py.

Arguments: ledger file, folder for what the processes show, number of kills, seed. Processes are forked here,
where everything is imported already, so that kills hit releases and not imports.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.errors import LedgerError
from dp2erm_cvx.ledger import Ledger

PROCESSES = 4
TOTAL = Budget(2.0)
DATASETS = 2000


def release_until_killed(path: str, shown: str, seed: int) -> None:
    """Release from one data set after the other, and show theta as soon as there is one."""
    choose = random.Random(seed)
    rng = np.random.default_rng(0)
    X, a, y = rng.uniform(-1, 1, (20, 1)), rng.integers(0, 2, 20), rng.uniform(-1, 1, 20)
    screen = os.open(shown, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    ledger = Ledger(path)
    place = 0
    while place < DATASETS:
        name = f"d{place}"
        ledger.declare(name, TOTAL)
        budget = Budget(choose.choice([0.1, 0.3, 0.7]))
        model = PrivateTwoStageERM(
            Domain(1.0, 1.0), budget, "uniform", "arm_means", ledger=ledger, dataset=name
        )
        try:
            model.fit(X, a, y)
        except LedgerError:
            place += 1  # used up
            continue
        os.write(screen, f"{model.receipt_.number} {name} {budget.epsilon} {model.theta_[0]}\n".encode())


def main(path: str, folder: str, kills: int, seed: int) -> None:
    choose = random.Random(seed)
    started = 0
    running: list[int] = []
    for round_number in range(kills + 1):
        while len(running) < PROCESSES:
            started += 1
            child = os.fork()
            if child == 0:
                try:
                    release_until_killed(path, f"{folder}/{started}", seed + started)
                finally:
                    os._exit(1)  # a process that ends before it is killed did not work
            running.append(child)
        if round_number < kills:
            time.sleep(choose.uniform(0.0, 0.05))
            end(running.pop(choose.randrange(PROCESSES)))
    # a slow disk must not leave the test without releases to judge
    for _ in range(10_000):
        if shown_in(folder) >= kills:
            break
        time.sleep(0.05)
    for child in running:
        end(child)


def shown_in(folder: str) -> int:
    return sum(len(file.read_text().splitlines()) for file in Path(folder).iterdir())


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit("a process ended before it was killed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
