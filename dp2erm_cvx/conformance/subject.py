"""A program under examination, bound to records as the checks need it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.conformance.samples import N_FEATURES, unequal_weights
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.program import Compiled, FirstStage, Instance, Program, SecondStage
from dp2erm_cvx.solve import Solution, solve


@dataclass(frozen=True)
class Subject:
    """``program`` at one choice of settings; ``seconds`` for each search, seeded with ``seed``.

    ``sizes`` are those of neighbors whose weights are compared, ``evaluations`` those of each constant.
    """

    program: Program
    seconds: float
    seed: int
    sizes: tuple[int, ...] = (8, 25)
    evaluations: int = 600

    def bind(self, records: Records, *, gamma: float = 0.05, noise: float = 1.0) -> Instance:
        """The program on records; a second stage with unequal weights and random noise."""
        if isinstance(self.program, FirstStage):
            return self.program.instance(records)
        assert isinstance(self.program, SecondStage)
        b = noise * np.random.default_rng(2).normal(size=self.n_parameters(records.domain))
        weights = unequal_weights(records.n_samples)
        return self.program.instance(records, weights, gamma=gamma, noise=b)

    def n_parameters(self, domain: Domain) -> int:
        """Length of theta."""
        assert isinstance(self.program, SecondStage)
        columns = domain.columns or tuple(f"x{k + 1}" for k in range(N_FEATURES))
        return len(self.program.parameter_names(columns, domain))

    def solve(self, records: Records) -> Solution:
        """Certified, by whatever solver applies first. Raises InfeasibleError, SolverError and others."""
        return solve(self.bind(records), solver="first_certified")

    def distance(self, first: Array, second: Array) -> float:
        """In the norm that certificates are stated in: l1 for weights, l2 for theta."""
        return float(np.linalg.norm(first - second, 1 if isinstance(self.program, FirstStage) else 2))


def solvers_for(instance: Instance) -> list[str]:
    """Every solver that applies: conic ones always, OSQP for QPs, first-order and Newton with a model."""
    names = ["clarabel", "scs"]
    if Compiled(instance.program.declare, instance.data).problem.is_qp():
        names.append("osqp")
    if instance.model is not None:
        names += ["newton", "projected_gradient"]
    return names
