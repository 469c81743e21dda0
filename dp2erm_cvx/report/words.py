"""Verdicts of a stability audit in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dp2erm_cvx.blocked import RecordBlocks

if TYPE_CHECKING:
    from dp2erm_cvx.audit import StabilityAudit, TightnessCell, Verdict
    from dp2erm_cvx.audit.movement import NeighborPair
    from dp2erm_cvx.universe import Universe

#: Shares of a bound from which on it counts as tight, and below which as hardly touched.
_TIGHT, _LOOSE = 0.95, 0.3


def verdict_in_words(verdict: Verdict) -> str:
    """One sentence or two about one bound."""
    claim, low = verdict.claim, verdict.movement.low
    subject = f"{claim.quantity} of the bound “{claim.name}”"
    if verdict.violated:
        excess = f"{low / claim.bound:.3g} times the bound" if claim.bound > 0 else "where 0 is claimed"
        return (
            f"Violated: {subject} is claimed to be at most {claim.bound:.6g}, but a pair of neighbors moves "
            f"it by at least {low:.6g}, {excess}, whatever the numerical error ({verdict.worst.pair.origin})."
        )
    share = verdict.ratio
    if share >= _TIGHT:
        return (
            f"Not violated, and nearly attained: the largest movement met is {share:.1%} of the bound, so no "
            f"better bound on {claim.quantity} exists than {1 - share:.1%} below it."
        )
    told = f"Not violated: the largest movement met is {share:.3g} times the bound"
    if share < _LOOSE:
        return f"{told}; the bound may be loose, or the worst neighbors were missed."
    return f"{told}, so a factor of at most {1 / share:.3g} could be gained."


def headline(audits: Sequence[StabilityAudit], cells: Sequence[TightnessCell] = ()) -> str:
    """What all audits and the short searches beside them come to, in one line."""
    wrong = [verdict for audit in audits for verdict in audit.violations]
    tried = sum(audit.scouted + audit.resolved for audit in audits)
    bounds = sum(len(audit.verdicts) for audit in audits)
    elsewhere = [cell for cell in cells if cell.violations]
    if wrong or elsewhere:
        known = [verdict.claim.name for verdict in wrong]
        known += [name for cell in elsewhere for name in cell.violations]
        names = ", ".join(f"“{name}”" for name in dict.fromkeys(known))
        told = f"{len(wrong)} of {bounds} bounds, {tried:,} neighbors tried"
        places = [_place(cell) for cell in elsewhere]
        if places:
            told += f"; by short searches at {'; '.join(places[:3])}{' and elsewhere' if places[3:] else ''}"
        return f"Violated: {names} ({told})"
    return f"None of {bounds} bounds was violated by {tried:,} neighbors: a search, not a proof"


def _place(cell: TightnessCell) -> str:
    return f"n = {cell.n_samples:,}" + ("" if cell.ridge is None else f", ridge {cell.ridge:.3g}")


def neighbor_in_words(pair: NeighborPair, universe: Universe) -> str:
    """What one record does, among which others. Values of covariates are not told."""
    j, before, after = pair.changed, pair.first, pair.second
    old, new = (end.at(np.array([j])) for end in (before, after))
    arms = [("untreated", "treated")[int(end.a[0])] for end in (old, new)]
    flip = f"stays {arms[0]}" if arms[0] == arms[1] else f"goes from {arms[0]} to {arms[1]}"
    way = float(np.linalg.norm(old.covariates - new.covariates)) / (2 * universe.domain.features_bound)
    moved = f"{pair.origin}: a record {flip} and moves by {way:.0%} of the diameter of the covariates"
    if isinstance(before, RecordBlocks):  # the others are nowhere together
        return f"{moved}; the other {before.n_samples - 1:,} are read in blocks"
    others = np.delete(np.column_stack([before.covariates, before.a]), j, axis=0)
    distinct, treated = len(np.unique(others, axis=0)), int(others[:, -1].sum())
    told = "none" if treated == 0 else "all" if treated == len(others) else f"{treated:,}"
    values = f"{distinct:,} distinct value{'s' if distinct > 1 else ''}"
    return f"{moved}; the other {len(others):,} take {values}, {told} treated"


def check_in_words(audit: StabilityAudit) -> str:
    """What the second solver said."""
    check = audit.check
    way = "" if check.solver in ("newton", "projected_gradient") else "through the declared problem "
    told = (
        f"{check.datasets:,} datasets were solved again {way}by {check.solver}. Its "
        f"weights differ from ours by at most {check.disagreement:.3g} times the sum of both certified radii"
    )
    told += "." if check.disagreement <= 1 else ": one of the certificates is wrong."
    told += f" Its own radii reach {check.radius:.2g} in the 1-norm."
    return told + (f" It returned no point for {check.unsolved}." if check.unsolved else "")


def number(value: float) -> str:
    """A number for a table."""
    if math.isinf(value):
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
