"""Long searches on the schemes of docs/theory/schemes.md: ``python -m tests.stability.more_schemes``.

Prints the table of that page, a few minutes on one core.
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Quantity, SearchPlan, StabilityAudit, audit_stability
from dp2erm_cvx.audit.movement import Claim
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import FirstStage, Gaussian
from dp2erm_cvx.program.kernels import Linear, PublicSample
from dp2erm_cvx.registry import first_stages
from dp2erm_cvx.universe import Universe

HALF = math.sqrt(0.5)
KEEP = Neighboring.REPLACE_ONE_KEEP_TREATMENT
#: All of the target at one point, at 0.9 of the norm bound.
POINT = PublicSample(np.array([[0.9, 0.0]]))


@dataclass(frozen=True)
class Row:
    """One audit: the first two columns of the table, the program and its universe."""

    scheme: str
    setting: str
    n: int
    program: FirstStage
    domain: Domain

    @property
    def bound(self) -> float:
        """V-bar."""
        return self.program.stability(Universe(self.domain, self.n, 2)).V

    def search(self, solves: int, seed: int = 0) -> StabilityAudit:
        """An audit of the bound and of half of it."""
        claims = [
            Claim(name, Quantity.V, share * self.bound) for name, share in (("sharp", 1.0), ("half", 0.5))
        ]
        universe = Universe(self.domain, self.n, 2)
        return audit_stability(
            self.program, None, universe, bounds=claims, search=SearchPlan(solves, seed=seed)
        )


def rows() -> list[Row]:
    """Every row of the table."""
    found: list[Row] = []

    def add(
        label: str, name: str, settings: list[tuple[str, dict[str, Any]]], n: int = 400, **domain: Any
    ) -> None:
        universe = Domain(**{"covariate_bound": 1.0, "outcome_bound": 1.0} | domain)
        for shown, values in settings:
            program = first_stages()[name](**values).resolve(universe)
            found.append(Row(label, shown, n, program, universe))

    logistic = [
        ("ridge 1", {"ridge": 1.0}),
        ("ridge 0.1", {"ridge": 0.1}),
        ("ridge 0.1, radius 1", {"ridge": 0.1, "radius": 1.0}),
        ("ridge 0.003, radius 4", {"ridge": 0.003, "radius": 4.0}),
    ]
    add("overlap", "overlap", logistic)
    add("overlap", "overlap", logistic[:1], n=4)
    tilting = [
        ("ridge 3", {"ridge": 3.0}),
        ("ridge 1", {"ridge": 1.0}),
        ("ridge 0.3, radius 2", {"ridge": 0.3, "radius": 2.0}),
        ("ridge 0.1, radius 1", {"ridge": 0.1, "radius": 1.0}),
    ]
    add("tilting", "inverse_probability_tilting", tilting, covariate_bound=HALF)
    add("tilting", "inverse_probability_tilting", tilting[1:2], n=4, covariate_bound=HALF)
    energy = [(f"ridge {mu:g}", {"ridge": mu}) for mu in (0.25, 2.0, 20.0)]
    add("energy, arm floor 100", "energy_balancing", energy, arm_floor=100)
    add("energy, arm floor 10", "energy_balancing", energy[1:2], arm_floor=10)
    add("energy, arm floor 4", "energy_balancing", [("ridge 0.5", {"ridge": 0.5})], n=40, arm_floor=4)
    stable = [(f"ridge {mu:g}", {"ridge": mu}) for mu in (0.1, 1.0, 10.0)]
    stable += [
        ("ridge 1, alpha 0.5", {"ridge": 1.0, "alpha": 0.5}),
        ("ridge 1, constant 0.3 (signed)", {"ridge": 1.0, "constant": 0.3}),
    ]
    add("stable", "stable_balancing", stable)
    gaussian = [
        (f"Gaussian, ridge {mu:g}", {"ridge": mu, "kernel": Gaussian(0.5)}) for mu in (0.25, 1.0, 10.0)
    ]
    gaussian += [("linear (signed), ridge 1", {"ridge": 1.0, "kernel": Linear()})]
    public = [(shown, values | {"target": POINT}) for shown, values in gaussian]
    name = "kernel_mean_matching"
    add("matching, public target", name, public)
    add("matching, counted target, floor 100", name, gaussian, arm_floor=100)
    add("the same, treatments kept", name, gaussian[1:2], arm_floor=100, relation=KEEP)
    add("matching, counted target, floor 2", name, gaussian[1:2], n=4, arm_floor=2)
    return found


def main(solves: int) -> None:
    """Print the table."""
    print("| scheme | $n$ | setting | largest $V$ found | bound |\n|---|---|---|---|---|")
    for row in rows():
        verdict = row.search(solves).verdict("sharp")
        numbers = f"{verdict.movement.low:.4g} | {row.bound:.4g}"
        mark = " VIOLATED" if verdict.violated else ""
        print(f"| {row.scheme} | {row.n} | {row.setting} | {numbers} |{mark}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60_000)
