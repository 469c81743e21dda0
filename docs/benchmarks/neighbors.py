"""Neighbors of many records, beside one solve, and whole audits.

The weights of neighbors are read and not held.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from large_data import COVARIATES, write_records
from work import Work, load

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.audit.movement import Movement
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.neighbors import Neighborhood, Replacements
from dp2erm_cvx.program import Bound, FirstStage, registry, scheme
from dp2erm_cvx.solve import solve

#: Neighbors of a batch.
_BATCH = 128


def readings(quick: bool) -> list[dict[str, Any]]:
    """CPU seconds by program and size: one solve, what neighbors share, and a neighbor's movements.

    ``error`` is the largest certified l1 error of the neighbors' weights over n.
    """
    rows = []
    for name in ("ipw_logistic",):
        for n in (2000,) if quick else (10_000, 100_000, 1_000_000):
            loaded = load(Work(name, name, {"ridge": 0.01}, n, 0, _BATCH))
            assert isinstance(loaded.program, FirstStage)
            assert loaded.replacements is not None
            began = time.process_time()
            alone = solve(loaded.program.instance(loaded.records))
            solved = time.process_time()
            neighborhood = Neighborhood(loaded.program, loaded.records)
            list(
                neighborhood.solve(loaded.replacements.take(0, 1), Movement(alone.value, 0.0, 0.0))
            )
            shared = time.process_time()
            reading = Movement(alone.value, alone.certificate.output_radius, 1e-9 * n)
            (read,) = neighborhood.solve(loaded.replacements, reading)
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
    """CPU seconds of whole audits of 1,000 neighbors.

    ``ratio`` is the largest movement over its bound, ``disagreement`` that with solves of single
    datasets.
    """
    n, neighbors = (500, 100) if quick else (1_000_000, 1000)
    names = ("random", "held-out", "extreme", "flips", "each")
    ranges = {f"x{k + 1}": (-1.0, 1.0) for k in range(COVARIATES)}
    domain, rows = Domain(COVARIATES**0.5, 4.0, ranges=ranges), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        write_records(path, n)
        data = Dataset.read(path, treatment="a", outcome="y")
    for name in ("ipw_logistic",):
        program = registry.build(registry.first_stages(), name, ridge=0.1 * COVARIATES)
        began = time.process_time()
        audit = audit_stability(
            program, data, domain, strategies=names, search=SearchPlan(evaluations=neighbors)
        )
        rows.append(
            {
                "program": name,
                "n": n,
                "neighbors": neighbors,
                "seconds": time.process_time() - began,
                "ratio": max(verdict.ratio for verdict in audit.verdicts),
                "error": audit.numerical_error / n,
                "disagreement": audit.check.disagreement,
            }
        )
    return rows


def audit_rates(quick: bool) -> list[dict[str, Any]]:
    """Neighbors per CPU second of audits of given data, beside those of the batch that solves them.

    ``second`` counts the datasets that a second solver saw, in a process of its own, whose time is
    not counted.
    """
    sizes = {100: 1000, 2000: 200} if quick else {100: 200_000, 2000: 20_000}
    covariates = 10
    domain, rows = Domain(1.0, 1.0), list[dict[str, Any]]()
    for n, neighbors in sizes.items():
        rng = np.random.default_rng(0)
        points = rng.normal(size=(n + neighbors, covariates))
        points *= rng.random((n + neighbors, 1)) ** (1 / covariates)
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        arms = rng.integers(2, size=n + neighbors)
        records = domain.records(points[:n], arms[:n], np.zeros(n))
        program = registry.build(registry.first_stages(), "ipw_logistic").resolve(records.space)
        replaced = Replacements(records, rng.integers(n, size=neighbors), points[n:], arms[n:])
        solution = solve(program.instance(records))
        reading = Movement(solution.value, solution.certificate.output_radius, 1e-9 * n)
        neighborhood = Neighborhood(program, records)
        list(neighborhood.solve(replaced.take(0, 2), reading))
        began = time.process_time()
        list(neighborhood.solve(replaced, reading))
        solved = time.process_time()
        audit = audit_stability(
            program,
            records,
            domain,
            strategies=("random", "extreme", "flips", "each"),
            search=SearchPlan(evaluations=neighbors),
        )
        audited = time.process_time()
        batch, whole = neighbors / (solved - began), neighbors / (audited - solved)
        facts = {
            "program": "ipw_logistic",
            "n": n,
            "neighbors": neighbors,
            "batch": batch,
            "audit": whole,
        }
        rows.append(facts | {"second": audit.check.datasets})
    return rows


@scheme(cap=3.0)
def squares(w: cp.Variable, records: Any, cap: float) -> cp.Problem:
    """Squares with bounds: quadratic and smooth."""
    imbalance = cp.sum_squares(records.signed.T @ w) / records.n
    return cp.Problem(cp.Minimize(cp.sum_squares(w - 1) + imbalance), [0 <= w, w <= cap])


@scheme(cap=3.0)
def entropies(w: cp.Variable, records: Any, cap: float) -> cp.Problem:
    """Entropies with bounds: smooth, not quadratic."""
    imbalance = cp.sum_squares(records.signed.T @ w) / records.n
    return cp.Problem(cp.Minimize(imbalance - cp.sum(cp.entr(w))), [0.05 <= w, w <= cap])


@scheme(cap=3.0)
def kink(w: cp.Variable, records: Any, cap: float) -> cp.Problem:
    """Squares and a norm, which has no gradient at balance."""
    return cp.Problem(
        cp.Minimize(cp.sum_squares(w - 1) + cp.norm(records.signed.T @ w)), [0 <= w, w <= cap]
    )


def declared_audits(quick: bool) -> list[dict[str, Any]]:
    """Neighbors per CPU second in audits of programs declared in CVXPY alone, with a stated bound.

    Neighbors are searched for on groups of equal records, certified; a sample is compared with full
    solves; ``single`` counts full solves with a certificate, one dataset at a time.
    """
    n, neighbors, rows = 100, 300 if quick else 6000, list[dict[str, Any]]()
    universe = Universe(Domain(1.7, 1.0), n, 3)
    for program in (squares, entropies, kink):
        program.bound(lambda n, M, cap: Bound.from_l2((4 * M * cap) ** 0.5, w_max=cap))
        built = program()
        began = time.process_time()
        audit = audit_stability(built, None, universe, search=SearchPlan(evaluations=neighbors))
        searched = time.process_time() - began
        rng = np.random.default_rng(0)
        drawn = [
            (rng.uniform(-1, 1, (n, 3)), rng.integers(0, 2, n)) for _ in range(5 if quick else 100)
        ]
        datasets = [universe.domain.records(X, a, np.zeros(n)) for X, a in drawn]
        placed = built.at(universe)  # read once: an instance of another program reads it anew
        solve(placed.instance(datasets[0]))
        began = time.process_time()
        radius = max(solve(placed.instance(data)).certificate.output_radius for data in datasets)
        rows.append(
            {
                "program": program.__name__,
                "n": n,
                "neighbors": neighbors,
                "searched": neighbors / searched,
                "single": len(datasets) / (time.process_time() - began),
                "error": radius / n,
                "largest": audit.verdicts[0].movement.low,
            }
        )
    return rows
