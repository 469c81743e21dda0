"""Every stability bound that covers a first stage, side by side. Public quantities only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dp2erm_cvx import stability
from dp2erm_cvx.calibration import Calibration, Noise, Objective, calibrate, calibrate_paper
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.privacy import BoundFamily, Budget, LossConstants, StabilityBound
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
