"""Neighbors, equal for every contender: the linear scenario, some with a replaced record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.neighbors import Replacements
from dp2erm_cvx.program import FirstStage, Gaussian, Instance, registry
from dp2erm_cvx.program.kernels import RandomFourier

NAIVE, DECLARED = "naive CVXPY + Clarabel", "declared problem + Clarabel"
# some weights end at 0 or at the cap
_CAPPED = {"ridge": 4e-3, "cap": 1.3, "kernel": Gaussian(3.0)}
_FEATURES = {"ridge": 0.01, "kernel": RandomFourier(2.0, 100)}


@dataclass(frozen=True)
class Work:
    """A program to solve on neighbors of n records.

    Parameters
    ----------
    name
        What the table is called.
    program
        Name of the first stage in the registry.
    settings
        Its settings.
    n_samples
        Records of every neighbor.
    naive
        How often the slow contenders run.
    batch
        Neighbors of one batch.
    rounds
        How often the library solves a single neighbor; batches run three times.
    without
        Contenders that would take minutes.
    """

    name: str
    program: str
    settings: dict[str, Any]
    n_samples: int
    naive: int
    batch: int
    rounds: int = 9
    without: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """With n."""
        return f"{self.name}, n = {self.n_samples:,}"


@dataclass
class Loaded:
    """A work with its data."""

    work: Work
    records: Records
    program: FirstStage
    replacements: Replacements

    def instance(self, k: int) -> Instance:
        """Neighbor k."""
        return self.program.instance(self.replacements.neighbor(k))


def works(quick: bool) -> list[Work]:
    """Everything that is measured; ``quick`` leaves out what takes more than a second."""
    few = [
        Work("IPW", "ipw_logistic", {"ridge": 0.01}, 400, 7, 16_384),
        Work("MMD, active bounds", "mmd", _CAPPED, 400, 5, 4096),
        Work("MMD, inactive bounds", "mmd", {"ridge": 1.0}, 400, 5, 4096),
    ]
    if quick:
        return [Work(w.name, w.program, w.settings, 150, 1, 64) for w in few]
    more = [
        Work("IPW", "ipw_logistic", {"ridge": 0.01}, 4000, 5, 4096),
        Work("IPW", "ipw_logistic", {"ridge": 0.01}, 40_000, 3, 3072, 3),
        Work("MMD, active bounds", "mmd", _CAPPED, 4000, 1, 512, 3, without=(DECLARED,)),
        Work("MMD, inactive bounds", "mmd", {"ridge": 1.0}, 4000, 1, 2048, 3, without=(DECLARED,)),
        Work("MMD, random features", "mmd", _FEATURES, 4000, 1, 24, without=(DECLARED,)),
        Work("MMD, random features", "mmd", _FEATURES, 40_000, 0, 8, 3, without=(DECLARED, NAIVE)),
    ]
    names = list(dict.fromkeys(work.name for work in few + more))
    return sorted(few + more, key=lambda work: names.index(work.name))


def load(work: Work, seed: int = 9) -> Loaded:
    """Records of the linear scenario in the unit ball, and random replacements anywhere in it."""
    rng = np.random.default_rng(seed)
    data = simulate("linear", work.n_samples, rng=rng).dataset
    p = data.X.shape[1]
    records = Domain(math.sqrt(p), 8.0).records(data.X, data.a, data.y)
    program = registry.build(registry.first_stages(), work.program, **work.settings).resolve(
        records.space
    )
    X = rng.normal(size=(work.batch, p))
    X *= (
        math.sqrt(p)
        * (1 - 1e-12)
        * rng.random((work.batch, 1))
        / np.linalg.norm(X, axis=1, keepdims=True)
    )
    index = rng.integers(work.n_samples, size=work.batch)
    return Loaded(
        work, records, program, Replacements(records, index, X, rng.integers(2, size=work.batch))
    )
