"""Neighbors of many records, whose weights are read and not held: beside one solve, and whole audits."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from large_data import COVARIATES, write_records
from work import Work, load

from dp2erm_cvx import Domain, registry
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.audit.movement import Movement
from dp2erm_cvx.blocked import BlockedDataset
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve import solve
from dp2erm_cvx.solve.batch import Neighborhood

#: Neighbors of a batch.
_BATCH = 128


def readings(quick: bool) -> list[dict[str, Any]]:
    """CPU seconds of every program and size: one solve, what neighbors share, and a neighbor's movements.

    ``error`` is the largest certified l1 error of the neighbors' weights over n.
    """
    rows = []
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
            each = (time.process_time() - shared) / len(read.radius)
            rows.append(
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
    return rows


def audits(quick: bool) -> list[dict[str, Any]]:
    """CPU seconds of whole audits of 1,000 neighbors, of records in memory and in blocks of a file.

    ``ratio`` is the largest movement over its bound, ``disagreement`` that with solves of single datasets.
    """
    n, neighbors = (500, 100) if quick else (1_000_000, 1000)
    names = ("random", "held-out", "extreme", "flips", "each")
    ranges = {f"x{k + 1}": (-1.0, 1.0) for k in range(COVARIATES)}
    domain, rows = Domain(COVARIATES**0.5, 4.0, ranges=ranges), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write_records(path, n)
        sources = {
            "in memory": Dataset.read(path, treatment="a", outcome="y"),
            "in blocks": BlockedDataset.read(path, treatment="a", outcome="y"),
        }
        for name in ("ipw_logistic", "entropy_balancing"):
            program = registry.build(registry.first_stages(), name, ridge=0.1 * COVARIATES)
            for read, data in sources.items():
                began = time.process_time()
                audit = audit_stability(
                    program, data, domain, strategies=names, search=SearchPlan(evaluations=neighbors)
                )
                rows.append(
                    {
                        "program": name,
                        "n": n,
                        "read": read,
                        "neighbors": neighbors,
                        "seconds": time.process_time() - began,
                        "ratio": max(verdict.ratio for verdict in audit.verdicts),
                        "error": audit.numerical_error / n,
                        "disagreement": audit.check.disagreement,
                    }
                )
    return rows
