"""V of the weighting schemes of the literature where a fifth of the imbalance is left.

``python weights_literature.py`` prints a table as CSV and draws V against the imbalance that is
left. The schemes are the registered ones of the literature and those of
``tests/plugins/weighting.py``. For every scheme and every table the strength of its price is sought
at which the distance of means that it aims at is a fifth of what it was. V is stated there at 400
and at 10,000 records, beside the largest movement that a short audit finds. The figure has the
paper's entropy balancing and MMD with the paper's own bounds as well.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from weight_caps import DECLARED, Design

from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.paper import usable_bound
from dp2erm_cvx.program import FirstStage, Landmarks, registry
from dp2erm_cvx.program.files import programs_of_file
from dp2erm_cvx.report.figures import WIDTH, new_figure, save
from dp2erm_cvx.solve import solve

SCHEMES = Path(__file__).resolve().parents[2] / "tests" / "plugins" / "weighting.py"
#: Registered schemes of the literature.
REGISTERED = (
    "raking",
    "landmark_balancing",
    "logit_calibration",
    "empirical_likelihood",
    "minimal_dispersion",
    "residual_balancing",
)
#: Schemes of that file, but for one whose landmarks a registered scheme has.
IN_A_FILE = (
    "kernel_balancing",
    "energy_weights",
    "entropy_balancing_capped",
    "stable_weights",
    "robust_weights",
    "sparse_imbalance",
    "treated_balancing",
)
#: Shares of the treated and distances of the arms: three confounded tables, and two of rare
#: treatments.
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
#: Difference of means that costs nothing, where a scheme has a tolerance.
TOLERANCE = 0.002
#: Landmarks, of covariates whose norm is about .4.
LANDMARKS = Landmarks(count=20, bandwidth=0.5, reach=0.5)
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
        """The program with ridge ``10**exponent``; kinks are smoothed as if they had that ridge.

        A ridge of squares is a Moreau parameter, in units of the largest squared norm of a row,
        which is 2.
        """
        own = self.scheme.settings
        strength = 10.0**exponent
        settings: dict[str, Any] = {"treated": self.share} if "treated" in own else {}
        if "tolerance" in own:
            settings["tolerance"] = TOLERANCE
        if self.scheme.name == "landmark_balancing":
            settings["balance"] = LANDMARKS
        if "ridge" in own:
            settings["ridge"] = strength
        if "smoothing" in own and self.scheme().smoothing is not None:
            settings["smoothing"] = strength / 2.0
        return self.scheme(**settings)

    def left(self, exponent: float, records: Records) -> float:
        """Part of the imbalance that the weights leave."""
        program = self.program(exponent)
        # small ridges of large kinks are hard to certify, and a share of an imbalance needs few
        # digits
        w = np.asarray(solve(program.instance(records), tolerance=1e-5, throw=False).value)
        return distance(self.scheme.name, records, w) / distance(
            self.scheme.name, records, np.ones(len(w))
        )

    def found(self, records: Records) -> float | None:
        """The exponent at which the imbalance that is left is ``LEFT``.

        None where more is always left, or where some dataset of the universe has no weights.
        """
        low, high = RANGE
        universe = MappedUniverse(records.space, records.n_samples, COLUMNS)
        if bound(self.program(low), universe) is None:
            return None
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
    if name == "landmark_balancing":
        x = LANDMARKS(x)
    treated = np.average(x[records.a == 1], axis=0, weights=w[records.a == 1])
    controls = np.average(x[records.a == 0], axis=0, weights=w[records.a == 0])
    if name == "raking":
        return float(np.hypot(np.linalg.norm(treated), np.linalg.norm(controls)))
    return float(np.linalg.norm(treated - controls))


def bound(program: FirstStage, universe: MappedUniverse) -> float | None:
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
        audit = audit_stability(
            program, data, design.domain, search=SearchPlan(evaluations=NEIGHBORS)
        )
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
            bounds = [
                bound(program, Design(size, COLUMNS, share, shift).universe) for size in SIZES
            ]
            found = (
                largest_found(program, Design(SIZES[0], COLUMNS, share, shift)) if audited else None
            )
            line = ",".join(shown(V) for V in bounds)
            yield f"{scheme.name},{share:g},{shift:g},{10**exponent:.3g},{line},{shown(found, 2)}"


@dataclass(frozen=True)
class OfPaper:
    """A program of the paper, with the bound that the paper prints.

    Parameters
    ----------
    label
        What the figure calls it.
    name
        Its registered name.
    settings
        Its settings beside the ridge.
    keeps_treatment
        Whether neighbors keep their treatment: the paper's statement about MMD is false of others.
    """

    label: str
    name: str
    settings: dict[str, Any]
    keeps_treatment: bool

    def program(self, exponent: float) -> FirstStage:
        """The program with ridge ``10**exponent``."""
        made: FirstStage = registry.build(
            registry.first_stages(), self.name, ridge=10.0**exponent, **self.settings
        )
        return made

    def left(self, exponent: float, records: Records) -> float:
        """Part of the distance of means that its weights leave."""
        w = np.asarray(solve(self.program(exponent).instance(records), tolerance=1e-5).value)
        return distance(self.name, records, w) / distance(self.name, records, np.ones(len(w)))

    def bound(self, exponent: float, universe: MappedUniverse) -> float:
        """V as the paper prints it, at most what its corollary gives for any weights."""
        space = universe.space
        if self.keeps_treatment:
            space = replace(space, relation="replace-one-keep-treatment")
        where = MappedUniverse(space, universe.n_samples, universe.n_columns)
        return usable_bound(self.program(exponent), where).V


OF_PAPER = (
    OfPaper(
        "entropy, the paper's bound",
        "paper_entropy_balancing",
        {"radius": 1.0},
        False,
    ),
    OfPaper("MMD, the paper's bound", "mmd", {}, True),
)


def draw(schemes: list[Any], path: Path, solved: int, points: int) -> None:
    """Draw V against the imbalance that every scheme leaves.

    40 % are treated, and arms lie .6 standard deviations apart.
    """
    share, shift = 0.4, 0.6
    figure = new_figure(WIDTH, 4.5)
    axes = figure.subplots()
    universe = Design(SIZES[1], COLUMNS, share, shift).universe
    exponents = np.linspace(-3.0, 0.5, points)
    few = Design(min(solved, SOLVED_BY_PAIRS), COLUMNS, share, shift).drawn()
    many = Design(solved, COLUMNS, share, shift).drawn()
    for place, scheme in enumerate(schemes):
        strength = Strength(scheme, share)
        records = few if strength.by_pairs else many
        left = [strength.left(one, records) for one in exponents]
        V = [bound(strength.program(one), universe) or math.nan for one in exponents]
        line = ("-", "--", ":")[place % 3]
        axes.plot(left, V, line, marker=".", label=scheme.name.replace("_", " "))
    for one in OF_PAPER:
        left = [one.left(exponent, few) for exponent in exponents]
        V = [one.bound(exponent, universe) for exponent in exponents]
        axes.plot(left, V, "k-", marker="x" if one.keeps_treatment else "+", label=one.label)
    axes.axhline(2.0 * SIZES[1], color="gray", linewidth=0.8)
    axes.annotate("2n: any weights", (0.02, 2.0 * SIZES[1]), va="bottom", fontsize=7)
    axes.set_xlim(0.0, 1.0)
    axes.set_yscale("log")
    axes.set_xlabel("part of the imbalance that is left")
    axes.set_ylabel(f"V at n = {SIZES[1]:,}")
    axes.legend(fontsize=6, ncols=2, loc="center right")
    save(figure, path)


def every_scheme() -> list[Any]:
    """Registered schemes of the literature, then those of the file."""
    known = registry.first_stages()
    of_file = {scheme.name: scheme for scheme in programs_of_file(SCHEMES)}
    return [*(known[name] for name in REGISTERED), *(of_file[name] for name in IN_A_FILE)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two schemes, one table, few records")
    parser.add_argument("--only", nargs="*", help="names of schemes; all without it")
    parser.add_argument("--unaudited", action="store_true", help="no movements are searched for")
    parser.add_argument(
        "--share", type=float, help="tables of this share of the treated; all without it"
    )
    parser.add_argument("--figure", type=Path, help="file of the figure; none is drawn without it")
    options = parser.parse_args()
    schemes = every_scheme()
    tables = TABLES
    solved = SOLVED
    if options.only:
        schemes = [scheme for scheme in schemes if scheme.name in options.only]
    if options.share:
        tables = tuple(one for one in TABLES if one[0] == options.share)
    if options.quick:
        schemes, tables, solved = schemes[:2], TABLES[1:2], 200
    print(f"# arms have at least {DECLARED:.0%} of the records that they are expected to have")
    print("scheme,treated,shift,ridge,V at 400,V at 10000,found / V")
    for line in rows(schemes, tables, solved, not (options.quick or options.unaudited)):
        print(line, flush=True)
    if options.figure:
        draw(schemes, options.figure, min(solved, SOLVED_BY_PAIRS), 3 if options.quick else 5)
