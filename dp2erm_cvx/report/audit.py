"""The report of stability audits: one HTML page and the same facts as JSON."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dp2erm_cvx import __version__
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plotting.bounds import shares_figure, tightness_figure
from dp2erm_cvx.report import words
from dp2erm_cvx.report.page import check_installed, rendered

if TYPE_CHECKING:
    from dp2erm_cvx.audit import StabilityAudit, TightnessCell

_PACKAGES = ("numpy", "scipy", "cvxpy", "clarabel", "scs", "osqp")


@dataclass(frozen=True)
class AuditSection:
    """One audit of a report, with its title and the shorter ones at other numbers of records and ridges."""

    title: str
    audit: StabilityAudit
    tightness: tuple[TightnessCell, ...] = ()

    @property
    def violated(self) -> bool:
        """Whether a bound was violated, by the audit itself or in a cell of its tightness."""
        return bool(self.audit.violations) or any(cell.violations for cell in self.tightness)


def audit_facts(sections: Sequence[AuditSection], command: str | None = None) -> dict[str, Any]:
    """The report in plain JSON types: ``headline``, ``command``, ``versions``, ``private`` and ``audits``."""
    return {
        "headline": _headline(sections),
        "command": command,
        "versions": versions(),
        "private": all(section.audit.private for section in sections),
        "proof": False,
        "audits": [
            {
                "title": section.title,
                **section.audit.to_dict(),
                "tightness": [cell.to_dict() for cell in section.tightness],
            }
            for section in sections
        ],
    }


def audit_page(
    sections: Sequence[AuditSection], *, command: str | None = None, title: str = "Stability audit"
) -> str:
    """A page of HTML that needs no other file and no network.

    ``command`` is what repeats it. Raises DeclarationError where jinja2 or matplotlib is missing, or there is
    no section.
    """
    if not sections:
        raise DeclarationError("sections: nothing to report")
    check_installed()
    from markupsafe import Markup

    from dp2erm_cvx.audit.movement import is_authored

    drawn = [
        (
            section,
            Markup(shares_figure(section.audit.verdicts)),
            Markup(_tightness(section)) if section.tightness else None,
        )
        for section in sections
    ]
    return rendered(
        "audit.html.j2",
        verdict_in_words=words.verdict_in_words,
        check_in_words=words.check_in_words,
        neighbor_in_words=words.neighbor_in_words,
        is_authored=is_authored,
        title=title,
        headline=_headline(sections),
        fine=not any(section.violated for section in sections),
        private=all(section.audit.private for section in sections),
        sections=drawn,
        command=command,
        versions=versions(),
    )


def _headline(sections: Sequence[AuditSection]) -> str:
    cells = [cell for section in sections for cell in section.tightness]
    return words.headline([section.audit for section in sections], cells)


def versions() -> dict[str, str]:
    """Of Python and of the packages that the numbers depend on."""
    return {
        "Python": platform.python_version(),
        "dp2erm-cvx": __version__,
        **{name: version(name) for name in _PACKAGES},
    }


def _tightness(section: AuditSection) -> str:
    ridge = getattr(section.audit.program, "ridge", None) or None
    return tightness_figure(section.tightness, section.audit.universe.n_samples, ridge)
