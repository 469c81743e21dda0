"""What an audit and a replayed pair look like, and the files of a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.cli.own_program import known_solver
from dp2erm_cvx.cli.screen import console, print_json, writable, write_text
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.audit.search import SearchPlan
    from dp2erm_cvx.audit.stability import Replay
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.report import AuditSection
    from dp2erm_cvx.universe import Universe


#: Exit code where a bound was violated.
VIOLATED = 1


class Output:
    """The files ``NAME.html`` and ``NAME.json`` in a folder, which is made before anything is searched.

    ``others`` are files that the command reads or writes besides. Raises DeclarationError where a report
    would overwrite one of them, cannot be written, or has a page that needs a package that is missing.
    """

    def __init__(self, folder: str, name: str, *others: str | None, page: bool) -> None:
        if page:
            from dp2erm_cvx.report import check_installed

            check_installed()
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            told = getattr(error, "strerror", None) or error
            raise DeclarationError(f"{folder}: cannot be made: {told}") from None
        endings = ("html", "json") if page else ("json",)
        self.paths = [Path(folder) / f"{name}.{ending}" for ending in endings]
        for path in self.paths:
            writable(str(path), *others)

    def write(self, sections: Sequence[AuditSection], command: str, title: str = "Stability audit") -> str:
        """Write the files; says where they are."""
        from dp2erm_cvx.report import audit_facts, audit_page

        *pages, facts = self.paths
        write_text(facts, json.dumps(audit_facts(sections, command), indent=2) + "\n")
        for path in pages:
            write_text(path, audit_page(sections, command=command, title=title))
        return "Report: " + ", ".join(map(str, self.paths))


def search_of(options: dict[str, Any], **default: float) -> SearchPlan:
    """The search that the options ask for; ``default`` is its limit where they name none."""
    from dp2erm_cvx.audit.search import SearchPlan

    limits: dict[str, Any] = default
    if options["solves"] is not None or options["seconds"] is not None:
        solves = options["solves"]
        limits = {"seconds": options["seconds"]}
        limits["evaluations"] = None if solves is None else whole_number("--solves", solves, at_least=1)
    return SearchPlan(**limits, seed=options["seed"], workers=options["workers"])


def saved_files(options: dict[str, Any]) -> list[str]:
    """The files of ``--save``."""
    return [] if options["save"] is None else [f"{options['save']}.{ending}" for ending in ("npz", "json")]


def audited_universe(domain: Domain, options: dict[str, Any]) -> Universe:
    """The universe of an audit without data: 400 records, and the covariates of the ranges or 2."""
    from dp2erm_cvx.universe import Universe

    n, columns = options["n_samples"], options["n_features"]
    if columns is None:
        columns = 2 if domain.ranges is None else len(domain.ranges)
    return Universe(
        domain,
        whole_number("--n", 400 if n is None else n, at_least=2),
        whole_number("--n-features", columns, at_least=1),
    )


def show(section: AuditSection) -> None:
    """A table of all bounds, and what the search did."""
    screen, result = console(), section.audit
    size = f"{result.universe.n_samples} records, {result.universe.n_features} covariates"
    screen.print(f"Stability audit of {result.program.name}: {size}", style="bold")
    table = grid("bound", "of", "bound at", "largest movement", "share", left=2)
    for verdict in result.verdicts:
        claim = verdict.claim
        share = f"{verdict.ratio:.1%}" + (" VIOLATED" if verdict.violated else "")
        table.add_row(claim.name, str(claim.quantity), f"{claim.bound:.6g}", str(verdict.movement), share)
    screen.print(table)
    for cell in section.tightness:
        if cell.violations and cell.movement is not None:
            place = f"n = {cell.n_samples}" + ("" if cell.ridge is None else f", ridge {cell.ridge:g}")
            screen.print(f"{place}: V in {cell.movement}: VIOLATED: {', '.join(cell.violations)}")
    screen.print(result.notes())


def replayed(path: str, solver: str, as_json: bool) -> int:
    """Solve a saved pair again and show it; the exit code."""
    from dp2erm_cvx.audit.stability import replay

    again: Replay = replay(path, solver=known_solver(solver))
    claim, saved = again.claim, again.saved
    if as_json:
        facts: dict[str, Any] = {"claim": claim.to_dict(), "movement": again.movement.to_dict()}
        facts["saved"] = None if saved is None else saved.to_dict()
        print_json({**facts, "violated": again.violated, "agrees": again.agrees})
        return VIOLATED if again.violated else 0
    verdict = "VIOLATED" if again.violated else "not violated"
    screen = console()
    screen.print(f"{claim.name}: {claim.quantity} <= {claim.bound:.6g}: {verdict} by this pair", style="bold")
    if saved is None:
        screen.print(f"movement by {solver}: {again.movement}; another audit saved the pair")
    else:
        screen.print(f"movement by {solver}: {again.movement}; as saved: {saved}")
        meet = "both intervals meet"
        screen.print(meet if again.agrees else "THE INTERVALS DO NOT MEET: one certificate is wrong")
    return VIOLATED if again.violated else 0
