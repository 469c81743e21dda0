"""Long searches on the schemes of docs/theory/schemes.md: ``python -m tests.stability.more_schemes``.

Prints the table of that page, a few minutes on one core.
"""

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
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

PAGE = (Path(__file__).parents[2] / "docs/theory/schemes.md").read_text(encoding="utf-8")
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


#: Program and domain of every scheme of the table.
SCHEMES: dict[str, tuple[str, dict[str, Any]]] = {
    "overlap": ("overlap", {}),
    "tilting": ("inverse_probability_tilting", {"covariate_bound": HALF}),
    **{f"energy, arm floor {floor}": ("energy_balancing", {"arm_floor": floor}) for floor in (100, 10, 4)},
    "stable": ("stable_balancing", {}),
    "matching, public target": ("kernel_mean_matching", {}),
    **{
        f"matching, counted target, floor {floor}": ("kernel_mean_matching", {"arm_floor": floor})
        for floor in (100, 2)
    },
    "the same, treatments kept": ("kernel_mean_matching", {"arm_floor": 100, "relation": KEEP}),
}
KERNELS: dict[str, Any] = {"Gaussian": Gaussian(0.5), "linear (signed)": Linear()}
TABLE = re.findall(
    r"^\| ([^|]+) \| (\d+) \| ([^|]+) \| ([\d.]+) \| ([\d.]+) \|$",
    PAGE[PAGE.index("## More schemes and losses") :],
    flags=re.MULTILINE,
)


def rows() -> list[Row]:
    """Every row of the table of the page."""
    found: list[Row] = []
    for label, n, setting, *_ in TABLE:
        name, domain = SCHEMES[label]
        values: dict[str, Any] = {"target": POINT} if "public" in label else {}
        for part in setting.split(", "):
            key, *number = part.split(" (")[0].split()
            values |= {"kernel": KERNELS[part]} if part in KERNELS else {key: float(number[0])}
        universe = Domain(**{"covariate_bound": 1.0, "outcome_bound": 1.0} | domain)
        program = first_stages()[name](**values).resolve(universe)
        found.append(Row(label, setting, int(n), program, universe))
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
