"""Neighbors of many records, whose weights are read and not held, beside one solve of the dataset."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.work import Work, load
from dp2erm_cvx.audit.stability.resolve import Movement
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.batch import Neighborhood

#: Neighbors of a batch.
_BATCH = 128


def readings(quick: bool) -> list[dict[str, Any]]:
    """CPU seconds of every program and size: one solve, what neighbors share, and a neighbor's movements.

    ``error`` is the largest certified l1 error of the neighbors' weights over n.
    """
    found = []
    for name in ("ipw_logistic", "entropy_balancing"):
        for n in (2000,) if quick else (10_000, 100_000, 1_000_000):
            loaded = load(Work(name, name, {"ridge": 0.01}, n, 0, _BATCH))
            assert isinstance(loaded.program, FirstStage)
            assert loaded.replacements is not None
            began = time.process_time()
            alone = solve(loaded.program.instance(loaded.records))
            solved = time.process_time()
            neighborhood = Neighborhood(loaded.program, loaded.records)
            list(neighborhood.read(loaded.replacements.take(0, 1), Movement.within(alone.value, 0.0, 0.0)))
            shared = time.process_time()
            reading = Movement.within(alone.value, alone.certificate.output_radius, 1e-9 * n)
            (read,) = neighborhood.read(loaded.replacements, reading)
            each = (time.process_time() - shared) / len(read)
            found.append(
                {
                    "program": name,
                    "n": n,
                    "solve": solved - began,
                    "shared": shared - solved,
                    "neighbor": each,
                    "error": float(np.max(read.radius)) / n,
                    "by_single": int(np.sum(read.by_single)),
                }
            )
    return found
