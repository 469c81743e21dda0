"""V of the weighting schemes of the literature where a fifth of the imbalance is left.

``python weights_literature.py`` prints a table as CSV and draws V against the imbalance that is left. For
every scheme of ``tests/plugins/weighting.py`` and every table the strength of its price is sought at which
the distance of means that it aims at is a fifth of what it was. V is stated there at 400 and at 10,000
records, beside the largest movement that a short audit finds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from weight_caps import DECLARED, Design

from dp2erm_cvx import Universe
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.domain import Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.plotting import WIDTH, new_figure, save
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.program_files import programs_of_file
from dp2erm_cvx.solve import solve

SCHEMES = Path(__file__).resolve().parents[2] / "tests" / "plugins" / "weighting.py"
#: Shares of the treated and distances of the arms: three confounded tables, and two of rare treatments.
TABLES = ((0.4, 0.3), (0.4, 0.6), (0.4, 1.2), (0.14, 0.6), (0.04, 0.6))
COLUMNS = 3
#: Records at which V is stated.
SIZES = (400, 10_000)
#: Records at which imbalance is measured, of all schemes and of those of kernels.
SOLVED, SOLVED_BY_PAIRS = 2000, 500
#: Part of the imbalance that is left.
LEFT = 0.2
#: Range of the logarithm of a ridge to base 10, and how finely it is searched.
RANGE, STEPS = (-4.0, 1.0), 12
#: Imbalance over n that costs nothing, where a scheme has a tolerance.
TOLERANCE = 0.001
#: Moreau parameter of kinks.
SMOOTHING = 0.005
#: Neighbors of an audit.
NEIGHBORS = 400


@dataclass(frozen=True)
class Strength:
    """A scheme with a strength of its price.

    Parameters
    ----------
    scheme
        The scheme.
    share
        Declared share of the treated.
    """

    scheme: Any
    share: float

    @property
    def by_pairs(self) -> bool:
        """Whether its features are those of a kernel."""
        return self.scheme.name in ("energy_weights", "kernel_balancing")

    def program(self, exponent: float) -> FirstStage:
        """The program with ridge ``10**exponent``, or with a kink of price ``10**(-exponent / 2)``."""
        settings = {"treated": self.share} if "treated" in self.scheme.settings else {}
        if "tolerance" in self.scheme.settings:
            settings["tolerance"] = TOLERANCE
        if "ridge" in self.scheme.settings:
            return self.scheme(ridge=10.0**exponent, **settings)
        return self.scheme(rho=10.0 ** (-exponent / 2.0), smoothing=SMOOTHING, **settings)

    def left(self, exponent: float, records: Records) -> float:
        """Part of the imbalance that the weights leave."""
        program = self.program(exponent)
        w = np.asarray(solve(program.instance(records), tolerance=1e-5).value)
        return distance(self.scheme.name, records, w) / distance(self.scheme.name, records, np.ones(len(w)))

    def found(self, records: Records) -> float | None:
        """The exponent at which the imbalance that is left is ``LEFT``; None where more is always left."""
        low, high = RANGE
        if self.left(low, records) > LEFT:
            return None
        for _ in range(STEPS):
            middle = (low + high) / 2.0
            if self.left(middle, records) > LEFT:
                high = middle
            else:
                low = middle
        return low


def distance(name: str, records: Records, w: np.ndarray) -> float:
    """Distance of the means that a scheme makes alike."""
    x = records.covariates
    if name == "raking":
        return float(np.linalg.norm(np.average(x, axis=0, weights=w) - 0.1))
    if name == "landmark_balancing":
        points = np.array([-0.75, -0.25, 0.25, 0.75])
        x = np.exp(-2.0 * (x[:, :1] - points) ** 2)
    treated = np.average(x[records.a == 1], axis=0, weights=w[records.a == 1])
    controls = np.average(x[records.a == 0], axis=0, weights=w[records.a == 0])
    return float(np.linalg.norm(treated - controls))


def bound(program: FirstStage, universe: Universe) -> float | None:
    """V, or None where some dataset of the universe has no weights."""
    try:
        return program.stability(universe).V
    except CalibrationError:
        return None


def largest_found(program: FirstStage, design: Design) -> float | None:
    """Largest movement that a short audit finds among neighbors of a table, relative to V."""
    records = design.drawn(1)
    data = (records.covariates, records.a, np.zeros(design.n))
    try:
        audit = audit_stability(program, data, design.domain, search=SearchPlan(evaluations=NEIGHBORS))
    except CalibrationError:
        return None
    return None if audit.unseen is None else 1.0 / audit.unseen


def shown(value: float | None, digits: int = 1) -> str:
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def rows(
    schemes: list[Any], tables: tuple[tuple[float, float], ...], solved: int, audited: bool
) -> Iterator[str]:
    """Lines of the table."""
    for share, shift in tables:
        for scheme in schemes:
            strength = Strength(scheme, share)
            n = min(solved, SOLVED_BY_PAIRS) if strength.by_pairs else solved
            exponent = strength.found(Design(n, COLUMNS, share, shift).drawn())
            if exponent is None:
                yield f"{scheme.name},{share:g},{shift:g},-,-,-,-"
                continue
            program = strength.program(exponent)
            bounds = [bound(program, Design(size, COLUMNS, share, shift).universe) for size in SIZES]
            found = largest_found(program, Design(SIZES[0], COLUMNS, share, shift)) if audited else None
            line = ",".join(shown(V) for V in bounds)
            yield f"{scheme.name},{share:g},{shift:g},{10**exponent:.3g},{line},{shown(found, 2)}"


def draw(schemes: list[Any], path: Path, solved: int, points: int) -> None:
    """V against the imbalance that is left, of every scheme, at 40 % treated and .6 standard deviations."""
    share, shift = 0.4, 0.6
    figure = new_figure(WIDTH, 4.0)
    axes = figure.subplots()
    for scheme in schemes:
        strength = Strength(scheme, share)
        n = min(solved, SOLVED_BY_PAIRS) if strength.by_pairs else solved
        records = Design(n, COLUMNS, share, shift).drawn()
        exponents = np.linspace(-3.0, 0.0, points)
        left = [strength.left(one, records) for one in exponents]
        universe = Design(SIZES[1], COLUMNS, share, shift).universe
        V = [bound(strength.program(one), universe) or math.nan for one in exponents]
        axes.plot(left, V, marker=".", label=scheme.name.replace("_", " "))
    axes.set_yscale("log")
    axes.set_xlabel("part of the imbalance that is left")
    axes.set_ylabel(f"V at n = {SIZES[1]:,}")
    axes.legend(fontsize=7, ncols=2)
    save(figure, path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two schemes, one table, few records")
    parser.add_argument("--only", nargs="*", help="names of schemes; all without it")
    parser.add_argument("--figure", type=Path, help="file of the figure; none is drawn without it")
    options = parser.parse_args()
    schemes = programs_of_file(SCHEMES)
    tables = TABLES
    solved = SOLVED
    if options.only:
        schemes = [scheme for scheme in schemes if scheme.name in options.only]
    if options.quick:
        schemes, tables, solved = schemes[:2], TABLES[1:2], 200
    print(f"# arms have at least {DECLARED:.0%} of the records that they are expected to have")
    print("scheme,treated,shift,ridge,V at 400,V at 10000,found / V")
    for line in rows(schemes, tables, solved, not options.quick):
        print(line, flush=True)
    if options.figure:
        draw(schemes, options.figure, solved, 3 if options.quick else 7)
