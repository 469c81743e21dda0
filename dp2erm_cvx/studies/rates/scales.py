"""Scales of the noise of the second stage beside each other, for the same budget in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp2erm_cvx.studies.engine import Listing, Row
from dp2erm_cvx.studies.rules import Constants, Refused, Scheme, plan_rule
from dp2erm_cvx.studies.simulation.grid import budget_of

if TYPE_CHECKING:
    import pandas as pd

#: The paper's bounds against the sharp ones, then composition against direct calibration: all as the paper
#: prints them, which is what its "117 times larger" compares, and all sharp.
PAIRS = (("paper", "sharp"), ("composition-printed", "paper"), ("composition-sharp", "sharp"))
#: Status of these rows, which hold no fit.
COMPARED = "compared"

_TITLE = (
    "Ratio of the noise scales of the second stage for the same budget, against n. A composed scheme has "
    "what its first stage leaves of the budget: half as the paper prints it."
)


def scale_rows(
    name: str, scheme: Scheme, constants: Constants, noises: list[str], epsilon: float, n: int, p: int
) -> list[Row]:
    """One row for every noise and pair: both scales and their ratio, or why there is none."""
    rows: list[Row] = []
    for noise in noises:
        budget = budget_of(epsilon, noise, n)
        for pair in PAIRS:
            head: Row = {"scheme": name, "family": " / ".join(pair), "noise": noise}
            one, other = (plan_rule(scheme, constants, family, noise, budget, n, p) for family in pair)
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
