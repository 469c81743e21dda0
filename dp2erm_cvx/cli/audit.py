"""``dp2erm audit``: a search for neighbors whose weights move more than a bound allows."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    WORDS,
    Command,
    Number,
    data_options,
    field_option,
    json_option,
    program_option,
    setting_options,
)
from dp2erm_cvx.cli.programs import first_stage, known_name, known_solver
from dp2erm_cvx.cli.reading import Coded, block_options, read_cells, read_domain
from dp2erm_cvx.cli.screen import console, made_folder, print_json, progress, writable, write_text
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number, whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.audit import Finding, SearchPlan, StabilityAudit

#: Exit code where a bound was violated.
VIOLATED = 1


@click.command("audit", cls=Command, short_help="Search for neighbors that violate a stability bound.")
@click.argument("data", metavar="[DATA.csv|.parquet]", required=False)
@program_option(show_default="the sums of an effect are audited")
@setting_options
@data_options
@block_options
@field_option(
    "universe:Universe.n_samples", "--n", "n_samples", type=Number(), show_default="400 without DATA"
)
@field_option("universe:Universe.n_features", type=Number(), show_default="those of the ranges without DATA")
@field_option("audit.search:SearchPlan.seconds", type=Number(), show_default="60 without --solves")
@field_option("audit.search:SearchPlan.evaluations", "--solves", type=Number())
@field_option("audit.search:SearchPlan.seed", type=Number(), default=0)
@click.option("--solver", "checker", default="clarabel", help="Conic solver that checks what is reported.")
@field_option("audit.search:SearchPlan.workers", type=Number(), default=1)
@field_option("audit.search:SearchPlan.checkpoint", metavar="FILE")
@click.option("--save", metavar="PATH", help="Write the worst pair to PATH.npz, PATH.json.")
@click.option("--replay", metavar="PATH", help="Solve a saved pair again, and certify it.")
@click.option("--plant", type=Number(), help="Exit with 1 unless V over this is refuted.")
@click.option("--output-dir", default="output", metavar="FOLDER", help="For audit.html and audit.json.")
@click.option("--no-page", is_flag=True, help="Write audit.json only.")
@click.option("--no-tightness", is_flag=True, help="Leave out searches at other n and ridges.")
@json_option
@click.pass_context
def audit_command(context: click.Context, /, data: str | None, program: str | None, **options: Any) -> int:
    """Compare how far weights move between neighbors with every bound that is stated for them.

    Without DATA the search is over datasets of the domain as well; with DATA over neighbors of those records
    too, for the data holder only. A search refutes a bound or says nothing. The exit code is 1 where a bound
    is violated, and with --plant 2 also unless it refutes V/2 beside V. Short searches at other n and ridges
    come on top. Without --program the sums of an effect are audited, at epsilon = 1, for a domain of persons
    or of several arms: neighbors replace all records of a person.
    """
    if options["replay"] is not None:
        return _replayed(data, program, options)
    plant = None if options["plant"] is None else public_number("--plant", options["plant"], above=1)
    command = shlex.join(["dp2erm", *context.meta[WORDS]])
    saved = [f"{options['save']}.{ending}" for ending in ("npz", "json")] if options["save"] else []
    used = [data, options["domain"], options["checkpoint"]]
    *pages, facts = _paths(options, *used, *saved)
    if program is None and (data is not None or plant is not None):
        raise DeclarationError("--program is missing: name the first stage")
    writable(options["checkpoint"], data, options["domain"])
    _refuse_unused(data, options)
    for path in saved:
        writable(path, *used)
    audit: Any = _of_sums(options) if program is None else _searched(data, program, options)
    if options["save"] is not None:
        audit.save(options["save"])
    if data is not None:
        click.echo(f"NOT PRIVATE: these numbers depend on the records of {data}", err=True)
    from dp2erm_cvx.report import audit_facts, audit_page

    write_text(facts, json.dumps(audit_facts([audit], command), indent=2) + "\n")
    for page in pages:
        write_text(page, audit_page([audit], command=command))
    caught = plant is None or audit.catches(plant)
    if options["as_json"]:
        planted = {} if plant is None else {"planted": {"factor": plant, "caught": caught}}
        print_json(audit_facts([audit])["audits"][0] | planted)
        return VIOLATED if audit.violated or not caught else 0
    if program is None:
        console().print(str(audit))
    else:
        _table(audit)
    if plant is not None:
        refuted = "refuted" if caught else "NOT refuted: search for longer"
        click.echo(f"planted: V / {plant:g}: {refuted}")
    click.echo(f"Report: {', '.join(map(str, [*pages, facts]))}")
    return VIOLATED if audit.violated or not caught else 0


def _searched(data: str | None, name: str, options: dict[str, Any]) -> StabilityAudit:
    with progress("searching", total=100) as bar:
        from dp2erm_cvx.audit import audit_stability, tightness
        from dp2erm_cvx.audit.stability import LARGEST_DECLARED
        from dp2erm_cvx.blocked import BlockedDataset
        from dp2erm_cvx.sampling import refuse
        from dp2erm_cvx.universe import Universe

        domain = read_domain(options, {} if data else {"outcome_bound": 1.0})
        refuse(domain.codebook, "an audit of weights", "arms", "units")
        first = first_stage(name, options)
        search = _search(options)
        records = None
        if data is not None:
            records = Coded(read_cells(data, options, domain, None), options).by(domain)
            universe = None
        else:  # 400 records, and the covariates of the ranges or 2
            n, columns = options["n_samples"], options["n_features"]
            columns = (len(domain.ranges) if domain.ranges else 2) if columns is None else columns
            columns = whole_number("--n-features", columns, at_least=1)
            universe = Universe(domain, whole_number("--n", 400 if n is None else n, at_least=2), columns)
        blocked = isinstance(records, BlockedDataset)
        if blocked:  # the processes pass over these
            if options["save"] is not None:
                raise DeclarationError(
                    "--save writes two whole datasets: read them into memory by --blocks never"
                )
            search = dataclasses.replace(search, workers=1)
        (task,) = bar.task_ids

        def update(share: float, evaluations: int, ratio: float) -> None:
            tried = f"{evaluations:,} neighbors, up to {ratio:.0%} of a bound"
            bar.update(task, completed=100 * share, description=tried)

        def cell_done(share: float, *_: float) -> None:
            bar.update(task, completed=100 * share, description="tightness")

        long = dataclasses.replace(search, checkpoint=options["checkpoint"], progress=update)
        result = audit_stability(first, records, universe or domain, solver=options["checker"], search=long)
        n = min(result.universe.n_samples, LARGEST_DECLARED) if blocked else result.universe.n_samples
        small = Universe(domain, n, min(result.universe.n_features, 3))
        short = dataclasses.replace(search.share(1 / 20), progress=cell_done)
        cells = () if options["no_tightness"] else tightness(first, small, search=short)
    return dataclasses.replace(result, title=result.program.name, tightness=cells)


def _of_sums(options: dict[str, Any]) -> Finding:
    """The worst neighbors of the sums of an effect at its default settings, its fits taken as given."""
    with progress("searching", total=100) as bar:
        from dp2erm_cvx.audit import Declared, SearchPlan, noised_sums, search_additive
        from dp2erm_cvx.estimators import PrivateEffect
        from dp2erm_cvx.privacy import Budget

        domain = read_domain(options, {"outcome_bound": 1.0})
        if domain.units is None and len(domain.arms) == 2:
            raise DeclarationError("--program is missing: name the first stage")
        (task,) = bar.task_ids
        limited = options["solves"] is not None or options["seconds"] is not None
        search = _search(options) if limited else SearchPlan(1000, seed=options["seed"])
        search = dataclasses.replace(
            search, progress=lambda share, *_: bar.update(task, completed=100 * share)
        )
        n = domain.units or whole_number("--n", options["n_samples"] or 400, at_least=2)
        plan = PrivateEffect(domain, Budget(1.0)).plan(n, len(domain.ranges or (0,)))
        fits = {step.name: [0.0] * step.calibration.n_parameters for step in plan.steps if not step.integers}
        epsilon = sum(step.calibration.epsilon for step in plan.steps if step.integers)
        return search_additive(noised_sums(plan, fits), plan.study.universe, Declared(epsilon), search=search)


def _refuse_unused(data: str | None, options: dict[str, Any]) -> None:
    if data is None:
        for name in ("treatment", "outcome", "separator", "encoding", "decimal", "scheduler"):
            if options[name] is not None:
                raise DeclarationError(f"--{name} describes data: name the data file as well")
    elif (options["n_samples"], options["n_features"]) != (None, None):
        raise DeclarationError("--n and --n-features are for audits without data: leave them out")


def _paths(options: dict[str, Any], *files: str | None) -> list[Path]:
    """The files audit.html and audit.json in a folder, which is made before anything is searched.

    ``files`` are those that the command reads or writes besides. Raises DeclarationError where a report
    would overwrite one of them, cannot be written, or has a page that needs a package that is missing.
    """
    page = not options["no_page"]
    if page:
        from dp2erm_cvx.report import check_installed

        check_installed()
    folder = made_folder(options["output_dir"])
    paths = [folder / "audit.html"] * page + [folder / "audit.json"]
    for path in paths:
        writable(str(path), *files)
    return paths


def _search(options: dict[str, Any]) -> SearchPlan:
    """The search that the options ask for."""
    from dp2erm_cvx.audit import SearchPlan

    solves, seconds = options["solves"], options["seconds"]
    evaluations = None if solves is None else whole_number("--solves", solves, at_least=1)
    seconds = 60.0 if evaluations is None and seconds is None else seconds
    return SearchPlan(evaluations, seconds, options["seed"], options["workers"])


def _table(result: StabilityAudit) -> None:
    """A table of all bounds, and what the search did."""
    screen = console()
    size = f"{result.universe.n_samples} records, {result.universe.n_features} covariates"
    screen.print(f"Stability audit of {result.program.name}: {size}", style="bold")
    table = grid("bound", "of", "bound at", "largest movement", "share", left=2)
    for verdict in result.verdicts:
        claim = verdict.claim
        share = f"{verdict.ratio:.1%}" + (" VIOLATED" if verdict.violated else "")
        table.add_row(claim.name, str(claim.quantity), f"{claim.bound:.6g}", str(verdict.movement), share)
    screen.print(table)
    for cell in result.tightness:
        if cell.violations and cell.movement is not None:
            place = f"n = {cell.n_samples}" + ("" if cell.ridge is None else f", ridge {cell.ridge:g}")
            screen.print(f"{place}: V in {cell.movement}: VIOLATED: {', '.join(cell.violations)}")
    screen.print(result.notes())


def _replayed(data: str | None, program: str | None, options: dict[str, Any]) -> int:
    """Solve a saved pair again and show it; the exit code."""
    if options["plant"] is not None:
        raise DeclarationError("--plant goes with the search of a --program")
    if data is not None:
        raise DeclarationError("--replay takes the records from the saved pair")
    if program is not None and known_name(program, "first") == program:
        raise DeclarationError("--replay takes the program from the saved pair, or from a FILE.py")
    from dp2erm_cvx.audit import Verdict, replay

    solver = options["checker"]
    again = replay(options["replay"], solver=known_solver(solver))
    assert isinstance(again, Verdict)
    claim, saved = again.claim, again.saved
    if options["as_json"]:
        facts: dict[str, Any] = {name: getattr(again, name) for name in ("claim", "movement", "saved")}
        plain = {name: None if fact is None else dataclasses.asdict(fact) for name, fact in facts.items()}
        print_json({**plain, "violated": again.violated, "agrees": again.agrees})
        return VIOLATED if again.violated else 0
    screen, verdict = console(), "VIOLATED" if again.violated else "not violated"
    screen.print(f"{claim.name}: {claim.quantity} <= {claim.bound:.6g}: {verdict} by this pair", style="bold")
    if saved is None:
        screen.print(f"movement by {solver}: {again.movement}; another audit saved the pair")
    else:
        screen.print(f"movement by {solver}: {again.movement}; as saved: {saved}")
        meet = "both intervals meet"
        screen.print(meet if again.agrees else "THE INTERVALS DO NOT MEET: one certificate is wrong")
    return VIOLATED if again.violated else 0
