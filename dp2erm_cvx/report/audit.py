"""The report of stability audits: verdicts in sentences, one HTML page, and the same facts as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx import __version__
from dp2erm_cvx.blocked import RecordBlocks
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plotting.bounds import shares_figure, tightness_figure
from dp2erm_cvx.report.page import check_installed, rendered

if TYPE_CHECKING:
    from dp2erm_cvx.audit import StabilityAudit, TightnessCell
    from dp2erm_cvx.audit.movement import NeighborPair
    from dp2erm_cvx.universe import Universe


def _headline(audits: Sequence[StabilityAudit]) -> str:
    """What all audits and the short searches beside them come to, in one line."""
    wrong = [verdict for audit in audits for verdict in audit.violations]
    tried = sum(audit.scouted + audit.resolved for audit in audits)
    bounds = sum(len(audit.verdicts) for audit in audits)
    elsewhere = [cell for audit in audits for cell in audit.tightness if cell.violations]
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


_PACKAGES = ("numpy", "scipy", "cvxpy", "clarabel", "scs", "osqp")


def audit_facts(audits: Sequence[StabilityAudit], command: str | None = None) -> dict[str, Any]:
    """The report in plain JSON types: ``headline``, ``command``, ``versions``, ``private`` and ``audits``."""
    return {
        "headline": _headline(audits),
        "command": command,
        "versions": _versions(),
        "private": all(audit.private for audit in audits),
        "proof": False,
        "audits": [
            {
                "title": audit.title,
                **audit.to_dict(),
                "tightness": [cell.to_dict() for cell in audit.tightness],
            }
            for audit in audits
        ],
    }


def audit_page(
    audits: Sequence[StabilityAudit], *, command: str | None = None, title: str = "Stability audit"
) -> str:
    """A page of HTML that needs no other file and no network.

    ``command`` is what repeats it. Raises DeclarationError where jinja2 or matplotlib is missing, or there is
    no audit.
    """
    if not audits:
        raise DeclarationError("audits: nothing to report")
    check_installed()
    from markupsafe import Markup

    drawn = []
    for audit in audits:
        n, ridge = audit.universe.n_samples, getattr(audit.program, "ridge", None) or None
        tight = Markup(tightness_figure(audit.tightness, n, ridge)) if audit.tightness else None
        drawn.append((audit, Markup(shares_figure(audit.verdicts)), tight))
    return rendered(
        "audit.html.j2",
        neighbor_in_words=neighbor_in_words,
        title=title,
        headline=_headline(audits),
        fine=not any(audit.violated for audit in audits),
        private=all(audit.private for audit in audits),
        audits=drawn,
        command=command,
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    """Of Python and of the packages that the numbers depend on."""
    return {
        "Python": platform.python_version(),
        "dp2erm-cvx": __version__,
        **{name: version(name) for name in _PACKAGES},
    }
