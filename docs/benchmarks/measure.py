"""Time every contender on the same neighbors, in turns, and judge what it returned."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from contenders import EVERYWHERE, FURTHER, Contender
from machine import memory_rate, multiply_rate
from work import NAIVE, Loaded, Work, load

from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.neighbors import Neighborhood
from dp2erm_cvx.solve import certify


@dataclass(frozen=True)
class Row:
    """One contender on one work: seconds per solve, and the largest certified error of its points.

    ``ratio`` is how often it fits into the naive contender's time. ``error`` is relative: the l1
    radius of the weights over n, or the radius of theta over its norm. ``limit`` is the time over
    that which the machine takes for the products and the memory traffic of the same work.
    """

    work: str
    n_samples: int
    contender: str
    seconds: float
    ratio: float
    error: float | None
    limit: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def measure(work: Work) -> list[Row]:
    """All contenders on one work."""
    loaded = load(work)
    every = EVERYWHERE | FURTHER.get(work.program, {})
    contenders = {name: contender for name, contender in every.items() if name not in work.without}
    _warm_up(work, contenders)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    errors: dict[str, float] = {}
    batches: list[float] = []
    for turn in range(work.rounds):
        which = turn % work.batch
        instance = loaded.instance(which)
        records = loaded.replacements.neighbor(which)
        for name, contender in contenders.items():
            slow = name != "library, one at a time"
            if slow and turn >= work.naive:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of inaccurate solutions: the certificate tells
                began = time.perf_counter()
                point = contender(instance, records)
                times[name].append(time.perf_counter() - began)
            errors[name] = max(errors.get(name, 0.0), _error(certify(instance, point), work))
        if turn % (work.rounds // 3) == 0:
            seconds, error, sweeps = _batch(loaded)
            batches.append(seconds)
            errors["library, batch"] = max(errors.get("library, batch", 0.0), error)
    naive = median(times[NAIVE]) if NAIVE in times else math.nan
    rows = [
        Row(
            work.name,
            work.n_samples,
            name,
            median(taken),
            naive / median(taken),
            errors.get(name),
        )
        for name, taken in times.items()
        if taken
    ]
    least = _least_time(loaded, sweeps)
    best = median(batches)
    rows.append(
        Row(
            work.name,
            work.n_samples,
            "library, batch",
            best,
            naive / best,
            errors["library, batch"],
            best / least,
        )
    )
    return rows


def _warm_up(work: Work, contenders: Mapping[str, Contender]) -> None:
    """Import what the contenders need, and let each of them run once on few records."""
    small = load(replace(work, n_samples=200, batch=8))
    assert len(small.replacements)
    records = small.replacements.neighbor(0)
    for contender in contenders.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            contender(small.instance(0), records)


def _error(certificate: Any, work: Work) -> float:
    return float(certificate.output_radius) / work.n_samples


def _batch(loaded: Loaded) -> tuple[float, float, float]:
    """Seconds per neighbor of a whole batch with its set-up, the largest error, and mean sweeps."""
    began = time.perf_counter()
    count, worst, sweeps = 0, 0.0, 0.0
    for part in Neighborhood(loaded.program, loaded.records).solve(loaded.replacements):
        count += len(part.radius)
        worst = max(worst, float(np.max(part.radius)))
        sweeps += float(np.sum(part.iterations))
    seconds = (time.perf_counter() - began) / count
    return seconds, worst / loaded.work.n_samples, sweeps / count


def _least_time(loaded: Loaded, sweeps: float) -> float:
    """Seconds that this machine needs for the least work of one solve of a batch.

    A sweep over n records in d dimensions is two products (margins, gradient) and three vectors of
    length n read or written; a kernel program takes at least one product with its factor.
    """
    n, work = loaded.work.n_samples, loaded.work
    model = loaded.instance(0).model
    if isinstance(model, WeightsModel) and model.dual is not None and model.dual.pairs is None:
        k = model.dual.data.rows.shape[1]
        # one product for the system of the features, four for gradients
        return (2.0 * n * k * k + 16.0 * n * k) / multiply_rate(
            k, n, k
        ) + 8.0 * n * k / memory_rate()
    if work.program == "mmd":
        return 2.0 * n * n / multiply_rate(n, n, 64) + 3 * 8.0 * n / memory_rate()
    assert model is not None
    d = model.dimension
    return sweeps * (4.0 * n * d / multiply_rate(n, d, 256) + 3 * 8.0 * n / memory_rate())
