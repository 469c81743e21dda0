"""``dp2erm audit``: a search for neighbors whose weights move more than a bound allows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, data_options, setting_options
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.audit.stability import Progress, Replay, StabilityAudit

#: Exit code where a bound was violated.
VIOLATED = 1

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm audit --program ipw_logistic --ridge 0.1 --radius 1 --covariate-bound 1 --n 400 --seconds 30
"""


@click.command(short_help="Search for neighbors that violate a stability bound.", epilog=_EXAMPLE)
@click.argument("data", metavar="[DATA.csv|.parquet]", required=False)
@click.option("--program", help="First stage; see dp2erm programs.")
@setting_options
@data_options
@click.option("--n", "n_samples", type=Number(), help="Number of records, without DATA [400].")
@click.option("--n-features", type=Number(), help="Number of covariates, without DATA [that of the ranges].")
@click.option("--seconds", type=Number(), help="Search for so long [60, unless --solves is given].")
@click.option("--solves", type=Number(), help="Search so many neighbors: repeatable from --seed.")
@click.option("--seed", type=Number(), default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--solver", default="clarabel", show_default=True, help="Conic solver that checks the neighbors reported."
)
@click.option("--checkpoint", metavar="FILE", help="Save the search here, and go on from it.")
@click.option("--save", metavar="PATH", help="Write the worst pair to PATH.npz and PATH.json.")
@click.option("--replay", metavar="PATH", help="Solve a saved pair again with --solver, and certify it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit(data: str | None, program: str | None, as_json: bool, **options: Any) -> int:
    """Compare how far weights move between neighbors with every bound that is stated for them.

    Without DATA the search is over datasets of the domain as well; with DATA over neighbors of those records
    too, and the result is for the data holder only. A search refutes a bound or says nothing. The exit code
    is 1 where a bound is violated.
    """
    if options["replay"] is not None:
        if program is not None or data is not None:
            raise DeclarationError("--replay takes the program and the records from the saved pair")
        return _replayed(options["replay"], options["solver"], as_json)
    if program is None:
        raise DeclarationError("--program is missing: name the first stage")
    result = _searched(data, program, options)
    if options["save"] is not None:
        worst = max(result.verdicts, key=lambda verdict: verdict.ratio)
        result.save_counterexample(options["save"], worst)
    if data is not None:
        click.echo(f"NOT PRIVATE: these numbers depend on the records of {data}", err=True)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _show(result)
    return VIOLATED if result.violations else 0


def _searched(data: str | None, name: str, options: dict[str, Any]) -> StabilityAudit:
    from dp2erm_cvx.cli.screen import progress, writable

    writable(options["checkpoint"], data, options["domain"])
    for ending in ("npz", "json"):
        if options["save"] is not None:
            writable(f"{options['save']}.{ending}", data, options["domain"], options["checkpoint"])
    with progress("searching", total=100) as bar:
        from dp2erm_cvx.audit.stability import ResolveBudget, audit_stability
        from dp2erm_cvx.calibration.constants import whole_number
        from dp2erm_cvx.cli.reading import read_data, read_domain
        from dp2erm_cvx.cli.stages import first_stage

        domain = read_domain(options, {} if data else {"outcome_bound": 1.0})
        first = first_stage(name, options)
        seconds = 60.0 if options["seconds"] is None and options["solves"] is None else options["seconds"]
        budget = ResolveBudget(solves=options["solves"], seconds=seconds)
        (task,) = bar.task_ids

        def shown(state: Progress) -> None:
            told = f"{state.neighbors:,} neighbors, up to {state.ratio:.0%} of a bound"
            bar.update(task, completed=100 * min(state.share, 1.0), description=told)

        size: dict[str, Any] = {}
        if data is None:
            n, columns = options["n_samples"], options["n_features"]
            size["n_samples"] = whole_number("--n", 400 if n is None else n, at_least=2)
            if columns is None and domain.ranges is not None:
                columns = len(domain.ranges)
            if columns is not None:
                size["n_features"] = whole_number("--n-features", columns, at_least=1)
        return audit_stability(
            first,
            None if data is None else read_data(data, options, domain),
            domain,
            budget=budget,
            seed=options["seed"],
            solver=options["solver"],
            checkpoint=options["checkpoint"],
            progress=shown,
            **size,
        )


def _show(result: StabilityAudit) -> None:
    from dp2erm_cvx.cli.screen import console, grid

    screen = console()
    size = f"{result.universe.n_samples} records, {result.universe.n_features} covariates"
    screen.print(f"Stability audit of {result.program.name}: {size}", style="bold")
    table = grid("bound", "of", "bound at", "largest movement", "share", left=2)
    for verdict in result.verdicts:
        claim = verdict.claim
        share = f"{verdict.ratio:.1%}" + (" VIOLATED" if verdict.violated else "")
        table.add_row(claim.name, str(claim.quantity), f"{claim.bound:.6g}", str(verdict.movement), share)
    screen.print(table)
    screen.print(str(result))


def _replayed(path: str, solver: str, as_json: bool) -> int:
    from dp2erm_cvx.audit.stability import replay
    from dp2erm_cvx.cli.screen import console

    found: Replay = replay(path, solver=solver)
    if as_json:
        facts: dict[str, Any] = {"claim": found.claim.to_dict(), "movement": found.movement.to_dict()}
        facts |= {"saved": found.saved.to_dict(), "violated": found.violated, "agrees": found.agrees}
        click.echo(json.dumps(facts, indent=2))
    else:
        claim = found.claim
        verdict = "VIOLATED" if found.violated else "not violated"
        screen = console()
        screen.print(
            f"{claim.name}: {claim.quantity} <= {claim.bound:.6g}: {verdict} by this pair", style="bold"
        )
        screen.print(f"movement by {solver}: {found.movement}; as saved: {found.saved}")
        screen.print(
            "both intervals meet" if found.agrees else "THE INTERVALS DO NOT MEET: one certificate is wrong"
        )
    return VIOLATED if found.violated else 0
