"""The report of audits: what each found in sentences, one HTML page, and the same facts as JSON."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from dp2erm_cvx import __version__
from dp2erm_cvx.blocked import RecordBlocks
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plotting import shares_figure
from dp2erm_cvx.public import json_types
from dp2erm_cvx.report.page import check_installed, rendered

if TYPE_CHECKING:
    from dp2erm_cvx.audit import StabilityAudit
    from dp2erm_cvx.audit.movement import NeighborPair
    from dp2erm_cvx.domain import Universe

#: Any audit of this package, or the pair that a search found with its audit. Stability audits hold many
#: verdicts; of the others a page has the sentence, the numbers, and the records of the pair.
Audit = Any


def _violated(audit: Audit) -> bool:
    known = [getattr(audit, name) for name in ("violated", "exceeds", "alarm") if hasattr(audit, name)]
    if not known:
        raise DeclarationError(f"audits: {type(audit).__name__} is no audit")
    return bool(known[0])


def _title(audit: Audit) -> str:
    kind = type(getattr(audit, "audit", audit)).__name__.removesuffix("Audit").lower()
    return str(getattr(audit, "title", "")) or f"{kind} audit"


def _headline(audits: Sequence[Audit]) -> str:
    """One line on what all audits come to."""
    stability: list[StabilityAudit] = [audit for audit in audits if hasattr(audit, "verdicts")]
    guarantees = [audit for audit in audits if not hasattr(audit, "verdicts")]
    wrong = [verdict.claim.name for audit in stability for verdict in audit.violations]
    failed = [_title(audit) for audit in guarantees if _violated(audit)]
    tried = sum(audit.scouted + audit.resolved for audit in stability)
    bounds = sum(len(audit.verdicts) for audit in stability)
    if not guarantees and not wrong:
        return f"None of {bounds} bounds was violated by {tried:,} neighbors: a search, not a proof"
    counted = [f"{len(wrong)} of {bounds} bounds, {tried:,} neighbors tried"] if stability else []
    counted += [f"{len(failed)} of {len(guarantees)} guarantees"] if guarantees else []
    if not wrong and not failed:
        return f"Nothing was violated ({'; '.join(counted)}): a search, not a proof"
    names = ", ".join(f"“{name}”" for name in dict.fromkeys(wrong + failed))
    return f"Violated: {names} ({'; '.join(counted)})"


def neighbor_in_words(pair: NeighborPair, universe: Universe) -> str:
    """Text on what one record does, among which others. Values of covariates are not told."""
    j, before, after = pair.changed, pair.first, pair.second
    old, new = (end.at(np.array([j])) for end in (before, after))
    arms = [("untreated", "treated")[int(end.a[0])] for end in (old, new)]
    flip = f"stays {arms[0]}" if arms[0] == arms[1] else f"goes from {arms[0]} to {arms[1]}"
    way = float(np.linalg.norm(old.covariates - new.covariates)) / (2 * universe.domain.features_bound)
    moved = f"{pair.origin}: a record {flip} and moves by {way:.0%} of the diameter of the covariates"
    if isinstance(before, RecordBlocks):  # the others are nowhere together
        return f"{moved}; the other {before.n_samples - 1:,} are read in blocks"
    rest = np.delete(np.column_stack([before.covariates, before.a]), j, axis=0)
    distinct, treated = len(np.unique(rest, axis=0)), int(rest[:, -1].sum())
    number = "none" if treated == 0 else "all" if treated == len(rest) else f"{treated:,}"
    values = f"{distinct:,} distinct value{'s' if distinct > 1 else ''}"
    return f"{moved}; the other {len(rest):,} take {values}, {number} treated"


def _flat(facts: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every number or text of nested facts, with where it stands."""
    if isinstance(facts, dict):
        for key, value in facts.items():
            yield from _flat(value, f"{name}, {key}" if name else str(key))
    elif isinstance(facts, list | tuple) and any(isinstance(fact, dict | list | tuple) for fact in facts):
        for index, value in enumerate(facts):
            yield from _flat(value, f"{name} {index + 1}")
    elif facts is not None:
        yield name, ", ".join(map(str, facts)) if isinstance(facts, list | tuple) else facts


def audit_facts(audits: Sequence[Audit], command: str | None = None) -> dict[str, Any]:
    """The report in plain JSON types: ``headline``, ``command``, ``versions``, ``private`` and ``audits``."""
    return {
        "headline": _headline(audits),
        "command": command,
        # of Python and of the packages that the numbers depend on
        "versions": {
            "Python": platform.python_version(),
            "dp2erm-cvx": __version__,
            **{name: version(name) for name in ("numpy", "scipy", "cvxpy", "clarabel", "scs", "osqp")},
        },
        "private": all(audit.private for audit in audits),
        "proof": False,
        "audits": [
            {
                "title": _title(audit),
                "violated": _violated(audit),
                **json_types(audit.facts if hasattr(audit, "facts") else audit),
            }
            for audit in audits
        ],
    }


def audit_page(audits: Sequence[Audit], *, command: str | None = None, title: str = "Audit") -> str:
    """A page of HTML that needs no other file and no network.

    Parameters
    ----------
    audits
        Of any kind: of stability, of densities, runs, known noise, drawn noise or repeated releases, and
        pairs that a search found.
    command
        What repeats it.
    title
        Of the page.

    Raises DeclarationError where jinja2 or matplotlib is missing, or there is no audit.
    """
    if not audits:
        raise DeclarationError("audits: nothing to report")
    whole = audit_facts(audits, command)
    check_installed()
    from markupsafe import Markup

    drawn = []
    for audit, facts in zip(audits, whole["audits"], strict=True):
        name, violated, verdicts = facts.pop("title"), facts["violated"], getattr(audit, "verdicts", None)
        shares = None if verdicts is None else Markup(shares_figure(verdicts))
        drawn.append((audit, name, violated, shares, None if verdicts is not None else list(_flat(facts))))
    fine = not any(violated for _, _, violated, _, _ in drawn)
    more = {"title": title, "fine": fine, "neighbor_in_words": neighbor_in_words, "audits": drawn}
    return rendered("audit.html.j2", **(whole | more))
