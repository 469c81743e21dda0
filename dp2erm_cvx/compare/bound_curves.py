"""V of every family as a function of n and of the ridge."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import registry
from dp2erm_cvx.compare.bounds import PRINTED, SHARP, statements
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.universe import Universe

#: Sample sizes of the figures.
SIZES = (100, 1_000_000)


@dataclass(frozen=True, eq=False)
class Curve:
    """V (m,) of one family of bounds for one program at ``x`` (m,), nan where it refuses."""

    program: str
    family: str
    x: Array
    V: Array


def against_n(program: FirstStage, universe: Universe, points: int = 25) -> list[Curve]:
    """V for n in ``SIZES`` at fixed settings.

    An arm floor stays the share of the records that it is.
    """
    sizes = np.unique(np.round(np.geomspace(*SIZES, points)).astype(int))
    domain = universe.domain
    share = None if domain.arm_floor is None else domain.arm_floor / universe.n_samples

    def sized(n: int) -> Universe:
        return Universe(dataclasses.replace(domain, arm_floor=_floor(share, n)), n, universe.n_features)

    return _collected(((float(n), program, sized(int(n))) for n in sizes), program.name)


def against_ridge(program: FirstStage, universe: Universe, points: int = 25) -> list[Curve]:
    """V for ridges up to a factor of 100 from that of the program; empty for a program without ridge."""
    program = program.resolve(universe.domain)
    ridge = getattr(program, "ridge", None)
    if not dataclasses.is_dataclass(program) or not ridge:
        return []
    grid = ridge * np.geomspace(1e-2, 1e2, points)
    return _collected(
        ((float(value), dataclasses.replace(program, ridge=float(value)), universe) for value in grid),
        program.name,
    )


def growth(points: int = 25) -> list[Curve]:
    """IPW, entropy balancing and MMD at a fixed ridge per record: the sharp V beside the printed one.

    M = 1; at least a quarter of the records in each arm. IPW has ridge 0.1 and radius 1; entropy balancing
    has the paper's scaling, ridge 1 and radius 1; MMD has ridge 1, which is lambda_MMD = n, and no weight
    above 5. The paper's statement on MMD holds only where treatments are kept; the sharp one is drawn for any
    neighbor.
    """
    first = registry.first_stages()
    domain = Domain(1.0, 1.0, arm_floor=100)
    kept = dataclasses.replace(domain, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    mmd = registry.build(first, "mmd", cap=5.0)
    entropy = registry.build(
        first, "entropy_balancing", scaling="paper", arm_mass="proportional", ridge=1.0, radius=1.0
    )
    ipw = registry.build(first, "ipw_logistic", ridge=0.1, radius=1.0)
    chosen = [
        ("IPW", ipw, domain, domain),
        ("entropy balancing", entropy, domain, domain),
        ("MMD", mmd, domain, kept),
    ]
    found = []
    for name, program, here, there in chosen:
        for family, known in ((SHARP, here), (PRINTED, there)):
            (curve,) = (
                one for one in against_n(program, Universe(known, 400, 1), points) if one.family == family
            )
            found.append(dataclasses.replace(curve, program=name))
    return found


def _floor(share: float | None, n: int) -> int | None:
    return None if share is None else max(1, math.floor(share * n))


def _collected(settings: Iterable[tuple[float, FirstStage, Universe]], name: str) -> list[Curve]:
    points: list[float] = []
    values: dict[str, dict[float, float]] = {}
    for x, program, universe in settings:
        points.append(x)
        for family, bound in statements(program, universe):
            if not isinstance(bound, str) and math.isfinite(bound.V):
                values.setdefault(family, {})[x] = bound.V
    if not values:
        raise DeclarationError("no family has a bound for these settings: there is nothing to draw")
    grid = np.array(points)
    return [
        Curve(name, family, grid, np.array([known.get(x, math.nan) for x in points]))
        for family, known in values.items()
    ]


def curve_table(curves: Iterable[Curve]) -> Iterator[tuple[str, float, float, float]]:
    """(label, V at the smallest n, V at the largest n, slope over the last decade in log-log)."""
    for curve in curves:
        ends = np.flatnonzero(np.isfinite(curve.V))
        last = curve.x[ends[-1]]
        start = ends[np.argmin(np.abs(np.log(curve.x[ends] * 10 / last)))]
        slope = math.log(curve.V[ends[-1]] / curve.V[start]) / math.log(last / curve.x[start])
        yield f"{curve.program}, {curve.family}", float(curve.V[ends[0]]), float(curve.V[ends[-1]]), slope
