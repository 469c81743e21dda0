"""What one release costs: the excess of the objective, the error of theta, and the bound on the excess."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.calibration import Calibration, PaperUtility, noise_tail, utility_bound
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.mechanism import simulate_noise
from dp2erm_cvx.program.losses.least_squares import LeastSquaresModel
from dp2erm_cvx.solve import solve
from dp2erm_cvx.studies.engine import Listing, Row
from dp2erm_cvx.studies.plans import PlannedRule, Refused, plan_rule
from dp2erm_cvx.studies.scheme import Rule
from dp2erm_cvx.studies.trial import budget_of

if TYPE_CHECKING:
    import pandas as pd

#: Level at which the observed tail of the excess is compared with the bound.
LEVEL = 0.95


def costs(
    rule: PlannedRule, records: Records, w: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, dict[str, float]]:
    """Thetas (draws, p), and in units of the objective per record: mean excess, its quantile, its bound.

    ``error`` is the mean distance to the minimizer on the same sample: the price of privacy alone.
    ``exceeded`` is the share of draws whose excess is above the bound at the quantile of ``||b||``, which
    should be at most ``1 - LEVEL`` up to chance.
    """
    calibration, n = rule.plan.theta.calibration, records.n_samples
    assert isinstance(calibration, Calibration)
    plain = rule.second.instance(records, w, gamma=0.0)
    model = plain.model
    assert isinstance(model, LeastSquaresModel)
    best = solve(plain, solver="newton", throw=False).value
    perturbed = (
        rule.second.instance(records, w, gamma=calibration.gamma, noise=b)
        for b in simulate_noise(calibration, draws, rng)
    )
    thetas = np.array([solve(one, solver="newton", throw=False).value for one in perturbed])
    least = model.value(best)
    excess = np.array([model.value(theta) - least for theta in thetas]) / n
    curvature = max(float(np.linalg.eigvalsh(model.hessian(best))[0]) / n, 0.0)
    # a radius that the noise exceeds with probability at most 1 - LEVEL
    level = _quantile(partial(noise_tail, calibration), calibration.unit)
    size = float(np.linalg.norm(best))
    bound = utility_bound(level, n, calibration, size, curvature)
    paper = PaperUtility.of(calibration.gamma, size, curvature)
    return thetas, {
        "excess": float(np.mean(excess)),
        "excess_quantile": float(np.quantile(excess, LEVEL)),
        "excess_bound": bound,
        "paper_excess_bound": _quantile(lambda at: paper.tail(at, n, calibration), max(paper.C, 1e-12)),
        "exceeded": float(np.mean(excess > bound)),
        "error": float(np.mean(np.linalg.norm(thetas - best, axis=1))),
    }


def _quantile(tail: Callable[[float], float], start: float) -> float:
    """Where a tail that falls from 1 comes down to ``1 - LEVEL``, by bisection from below ``start``."""
    low, high = 0.0, start
    while tail(high) > 1 - LEVEL:
        high *= 2
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if tail(middle) > 1 - LEVEL else (low, middle)
    return high


#: The paper's bounds against the sharp ones, then composition against direct calibration: all as the paper
#: prints them, which is what its "117 times larger" compares, and all sharp.
PAIRS = (("paper", "sharp"), ("composition-printed", "paper"), ("composition-sharp", "sharp"))
#: Status of these rows, which hold no fit.
COMPARED = "compared"

_TITLE = (
    "Ratio of the noise scales of the second stage for the same budget, against n. A composed scheme has "
    "what its first stage leaves of the budget: half as the paper prints it."
)


def scale_rows(rule: Rule, noises: list[str], epsilon: float, n: int, p: int) -> list[Row]:
    """One row for every noise and pair: both scales and their ratio, or why there is none."""
    rows: list[Row] = []
    for noise in noises:
        budget = budget_of(epsilon, noise, n)
        for pair in PAIRS:
            head: Row = {"family": " / ".join(pair), "noise": noise}
            one, other = (plan_rule(rule, family, noise, budget, n, p) for family in pair)
            if isinstance(one, Refused) or isinstance(other, Refused):
                reason = one.reason if isinstance(one, Refused) else getattr(other, "reason", "")
                rows.append({**head, "status": "refused", "reason": reason})
                continue
            scale, beside = one.plan.theta.calibration.scale, other.plan.theta.calibration.scale
            ratio = {"scale": scale, "scale_beside": beside, "scale_ratio": scale / beside}
            rows.append({**head, "status": COMPARED, **ratio})
    return rows


def scales_listing(table: pd.DataFrame) -> Listing:
    """A line for every scheme, pair and noise, with n across."""
    found = table[table["status"] == COMPARED]
    numbers = sorted(int(n) for n in found["n"].unique())
    by = ["curvature", "scheme", "family", "noise"]
    lines = []
    for place, group in found.groupby(by, sort=False):
        known = dict(zip(group["n"].tolist(), group["scale_ratio"].tolist(), strict=True))
        lines.append([*map(str, place), *(f"{known[n]:.3g}" if n in known else "" for n in numbers)])
    return Listing(_TITLE, [*by[:2], "scales", "noise", *(f"n = {n:,}" for n in numbers)], lines, 4)
