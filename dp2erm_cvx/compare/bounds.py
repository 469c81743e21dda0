"""Every stability bound that covers a first stage, side by side. Public quantities only."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx import registry, stability
from dp2erm_cvx.calibration import Calibration, Noise, Objective, calibrate, calibrate_paper
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, Neighboring, StabilityBound
from dp2erm_cvx.program import FirstStage, PrivateFirstStage
from dp2erm_cvx.universe import Universe

#: Stands for the second stage where none is named: one parameter, gradient radius 1, Hessian trace 1.
UNIT_LOSS = LossConstants(1, 1.0, 1.0, 0.0, None, 1.0, gradient_bound=1.0)

SHARP, STATED = "sharp", "sharp, unrefined"
PRINTED, USABLE, UNIVERSAL = "paper, printed alone", "paper, usable", "universal"


@dataclass(frozen=True)
class BoundRow:
    """One statement about one first stage. ``refusal`` says why there is no bound, or no noise for it.

    ``ratio`` is V over the smallest V of the table. ``calibration`` follows the statement's own formulas:
    Theorem 1 or 2 for the sharp ones, the paper's as printed for the printed bound alone (private only where
    Theorem 1 or 2 certifies it), the paper's with the Gaussian exponent corrected for the other two.
    """

    family: str
    bound: StabilityBound | None = None
    calibration: Calibration | None = None
    ratio: float = math.nan
    refusal: str | None = None


def statements(program: FirstStage, universe: Universe) -> Iterator[tuple[str, StabilityBound | str]]:
    """(family, bound) for every family, or (family, reason) where it refuses.

    Raises DeclarationError for a setting that is not valid in itself.
    """
    resolved = program.resolve(universe.domain)
    sharp = _tried(lambda: resolved.stability(universe))
    yield SHARP, sharp
    unrefined = None if isinstance(sharp, str) else resolved.unrefined_bound(universe)
    if unrefined is not None:
        yield STATED, unrefined
    usable = _tried(lambda: resolved.stability(universe, BoundFamily.PAPER))
    printed = usable
    if not isinstance(usable, str):
        printed = resolved.paper_bound(universe, usable=False)
        yield PRINTED, printed
    yield USABLE, usable
    if not resolved.relations:
        yield UNIVERSAL, str(sharp)
        return
    known = [bound.w_max for bound in (printed, sharp) if not isinstance(bound, str)]
    largest = (known or [resolved.weight_cap])[0]
    yield UNIVERSAL, stability.universal_corollary(universe.n_samples, largest)


def bound_rows(
    program: FirstStage,
    universe: Universe,
    budget: Budget,
    *,
    loss: LossConstants = UNIT_LOSS,
    noise: Noise = Noise.GAMMA,
) -> list[BoundRow]:
    """All statements with the noise scale and gamma that each asks for.

    A private first stage leaves the second only a part of the budget, which is what is calibrated here.
    """
    if isinstance(program, PrivateFirstStage):
        budget = Budget((1 - program.share) * budget.epsilon, (1 - program.share) * budget.delta)
    found = list(statements(program, universe))
    best = min((bound.V for _, bound in found if not isinstance(bound, str)), default=math.nan)
    rows = []
    for family, bound in found:
        if isinstance(bound, str):
            rows.append(BoundRow(family, refusal=bound))
            continue
        ratio, calibration, refusal = bound.V / best, None, None
        try:
            calibration = _calibrated(
                family, Objective(bound, loss, universe.n_samples, universe.domain.relation), budget, noise
            )
        except CalibrationError as error:
            refusal = str(error)
        rows.append(BoundRow(family, bound, calibration, ratio, refusal))
    return rows


def _calibrated(family: str, objective: Objective, budget: Budget, noise: Noise) -> Calibration:
    if family in (SHARP, STATED):
        return calibrate(objective, budget, noise=noise)
    printed = family == PRINTED
    return calibrate_paper(objective, budget, noise=noise, corrected=not printed, unsound_ok=printed)


def _tried(compute: Callable[[], StabilityBound]) -> StabilityBound | str:
    try:
        return compute()
    except CalibrationError as error:
        return str(error)


#: Sample sizes of the figures.
SIZES = (100, 1_000_000)


@dataclass(frozen=True, eq=False)
class BoundCurve:
    """V (m,) of one family of bounds for one program at ``x`` (m,), nan where it refuses."""

    program: str
    family: str
    x: Array
    V: Array


def against_n(program: FirstStage, universe: Universe, points: int = 25) -> list[BoundCurve]:
    """V for n in ``SIZES`` at fixed settings.

    An arm floor stays the share of the records that it is.
    """
    sizes = np.unique(np.round(np.geomspace(*SIZES, points)).astype(int))
    domain = universe.domain
    share = None if domain.arm_floor is None else domain.arm_floor / universe.n_samples

    def sized(n: int) -> Universe:
        return Universe(dataclasses.replace(domain, arm_floor=_floor(share, n)), n, universe.n_features)

    return _collected(((float(n), program, sized(int(n))) for n in sizes), program.name)


def against_ridge(program: FirstStage, universe: Universe, points: int = 25) -> list[BoundCurve]:
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


def growth(points: int = 25) -> list[BoundCurve]:
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


def _collected(settings: Iterable[tuple[float, FirstStage, Universe]], name: str) -> list[BoundCurve]:
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
        BoundCurve(name, family, grid, np.array([known.get(x, math.nan) for x in points]))
        for family, known in values.items()
    ]


def curve_table(curves: Iterable[BoundCurve]) -> Iterator[tuple[str, float, float, float]]:
    """(label, V at the smallest n, V at the largest n, slope over the last decade in log-log)."""
    for curve in curves:
        ends = np.flatnonzero(np.isfinite(curve.V))
        last = curve.x[ends[-1]]
        start = ends[np.argmin(np.abs(np.log(curve.x[ends] * 10 / last)))]
        slope = math.log(curve.V[ends[-1]] / curve.V[start]) / math.log(last / curve.x[start])
        yield f"{curve.program}, {curve.family}", float(curve.V[ends[0]]), float(curve.V[ends[-1]]), slope
