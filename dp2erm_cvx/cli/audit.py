"""``dp2erm audit``, ``bounds`` and ``certify``: programs beside bounds, solvers beside programs."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli import programs, reading, screen
from dp2erm_cvx.display import grid, law_text
from dp2erm_cvx.errors import CertificateError, DeclarationError

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.audit import Finding, SearchPlan, StabilityAudit
    from dp2erm_cvx.curves.loss_constants import LossConstants
    from dp2erm_cvx.data.dataset import Dataset
    from dp2erm_cvx.data.records import Records
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.program import FirstStage, SecondStage
    from dp2erm_cvx.report.tables import BoundRow, CertificateRow
    from dp2erm_cvx.study import RecordsFile

_NO_PROGRAM = (
    "--program is missing: name the first stage, or a --study that asks a [[two_stage]] question"
)
_size_option = opt.field_option(
    "data.universe:Universe.n_samples",
    "--n",
    "n_samples",
    type=opt.Number(),
    show_default="400 without DATA",
)


#: Seconds of an audit where no limit is given: two unlike searches stop growing within one.
_SECONDS = 10.0
_solver_seconds_option = opt.field_option(
    "audit.search:SearchPlan.solver_seconds", type=opt.Number(), default=30.0
)


@click.command(
    "audit",
    cls=opt.Command,
    first=("program", "study", "changes", "n_samples", "seconds", "solves", "plant", "replay"),
    short_help="Search for neighbors that violate a stability bound.",
)
@click.argument("data", metavar="[DATA.csv|.parquet]", required=False)
@opt.program_option(show_default="that of the study, else the sums of an effect")
@opt.study_option
@opt.changes_option
@_size_option
@opt.field_option(
    "data.universe:Universe.n_features",
    type=opt.Number(),
    show_default="those of the ranges without DATA",
)
@opt.field_option(
    "audit.search:SearchPlan.seconds", type=opt.Number(), show_default="10 without --solves"
)
@opt.field_option("audit.search:SearchPlan.evaluations", "--solves", type=opt.Number())
@opt.field_option("audit.search:SearchPlan.seed", type=opt.Number(), default=0)
@click.option(
    "--solver", "checker", default="clarabel", help="Conic solver that checks what is reported."
)
@_solver_seconds_option
@opt.field_option("audit.search:SearchPlan.workers", type=opt.Number(), default=1)
@opt.field_option("audit.search:SearchPlan.checkpoint", metavar="FILE")
@click.option("--save", metavar="PATH", help="Write the worst pair to PATH.npz, PATH.json.")
@click.option("--replay", metavar="PATH", help="Solve a saved pair again, and certify it.")
@click.option(
    "--plant",
    multiple=True,
    type=opt.Number(),
    help="Exit with 1 unless V over this is refuted; repeatable.",
)
@click.option(
    "--output-dir", default="output", metavar="FOLDER", help="For audit.html and audit.json."
)
@click.option("--no-page", is_flag=True, help="Write audit.json only.")
@opt.json_option
@click.pass_context
def audit_command(
    context: click.Context, /, data: str | None, program: str | None, **options: Any
) -> int:
    """Compare how far weights move between neighbors with every bound that is stated for them.

    Without DATA the search is over datasets of the domain as well; with DATA over neighbors of
    those records too, for the data holder only. A search refutes a bound or says nothing. The exit
    code is 1 where a bound is violated, and with --plant 2 also unless it refutes V/2 beside V.
    Without --program the sums of an effect are audited, at epsilon = 1, for a domain of persons or
    of several arms: neighbors replace all records of a person.
    """
    if options["replay"] is not None:
        return _replayed(data, program, options)
    planted = [public_number("--plant", factor, above=1) for factor in options["plant"]]
    paths = _paths(data, options)
    if data is not None and (options["n_samples"], options["n_features"]) != (None, None):
        raise DeclarationError("--n and --n-features are for audits without data: leave them out")
    examined = programs.read_examined(options, program, {} if data else {"outcome_bound": 1.0})
    audit: Any
    if examined.first is not None:
        audit = _searched(data, examined.first, examined.records, options)
    elif data is None and not planted:
        audit = _of_sums(examined.records.domain, options)
    else:
        raise DeclarationError(_NO_PROGRAM)
    if options["save"] is not None:
        audit.save(options["save"])
    if data is not None:
        click.echo(f"{screen.NOT_PRIVATE}: these numbers depend on the records of {data}", err=True)
    _write_audit(audit, paths, shlex.join(["dp2erm", *context.meta[opt.WORDS]]))
    caught = {factor: audit.catches(factor) for factor in planted}
    if options["as_json"]:
        screen.print_json(_audit_as_json(audit, caught))
    else:
        if examined.first is None:
            screen.console().print(str(audit))
        else:
            _show_verdicts(audit)
        for factor, is_refuted in caught.items():
            result = "refuted" if is_refuted else "NOT refuted: search for longer"
            click.echo(f"planted: V / {factor:g}: {result}")
        click.echo(f"Report: {', '.join(map(str, paths))}")
    return int(audit.violated or not all(caught.values()))


def _write_audit(audit: Any, paths: Sequence[Path], command: str) -> None:
    """Write the pages and the facts of an audit, which say the command that repeats it."""
    from dp2erm_cvx.report import audit_facts, audit_page

    *pages, facts = paths
    screen.write_text(facts, json.dumps(audit_facts([audit], command), indent=2) + "\n")
    for page in pages:
        screen.write_text(page, audit_page([audit], command=command))


def _audit_as_json(audit: Any, caught: Mapping[float, bool]) -> dict[str, Any]:
    """The facts of an audit, with the planted violations that it has caught."""
    from dp2erm_cvx.report import audit_facts

    (facts,) = audit_facts([audit])["audits"]
    if caught:
        facts["planted"] = [
            {"factor": factor, "caught": is_caught} for factor, is_caught in caught.items()
        ]
    return dict(facts)


def _paths(data: str | None, options: dict[str, Any]) -> list[Path]:
    """The files audit.html and audit.json; what could not be written is refused before a search."""
    names = ["audit.json"]
    if not options["no_page"]:
        from dp2erm_cvx.report import check_installed

        check_installed()
        names = ["audit.html", "audit.json"]
    folder = screen.made_folder(options["output_dir"])
    paths = [folder / name for name in names]
    used = [data, options["study"]]
    screen.writable(options["checkpoint"], *used)
    saved = []
    if options["save"]:
        saved = [f"{options['save']}.{ending}" for ending in ("npz", "json")]
    for path in saved:
        screen.writable(path, *used, options["checkpoint"])
    for path in map(str, paths):
        screen.writable(path, *used, options["checkpoint"], *saved)
    return paths


def _searched(
    data: str | None, first: FirstStage, about: RecordsFile, options: dict[str, Any]
) -> StabilityAudit:
    """The worst neighbors of a first stage that were found, beside every bound of it."""
    with screen.progress("searching", total=100) as bar:
        from dp2erm_cvx.audit import audit_stability
        from dp2erm_cvx.data.counts import refuse

        domain = about.domain
        refuse(domain.codebook, "an audit of weights", "arms", "units")
        search = _search(options)
        records = universe = None
        if data is not None:
            table = reading.raw_table(data, about.layout, domain)
            records = reading.coded_data(table, domain, about.covariates)
        else:
            universe = _universe(domain, about.covariates, options)
        (task,) = bar.task_ids

        def update(share: float, evaluations: int, ratio: float) -> None:
            tried = f"{evaluations:,} neighbors, up to {ratio:.0%} of a bound"
            bar.update(task, completed=100 * share, description=tried)

        long = dataclasses.replace(search, checkpoint=options["checkpoint"], progress=update)
        result = audit_stability(
            first, records, universe or domain, solver=options["checker"], search=long
        )
    return dataclasses.replace(result, title=result.program.name)


def _universe(
    domain: library.Domain, covariates: Sequence[str] | None, options: dict[str, Any]
) -> library.Universe:
    """The records that a search without data is about: 400 with two covariates by default."""
    n_records = 400
    if options["n_samples"] is not None:
        n_records = options["n_samples"]
    n_covariates = len(domain.ranges or covariates or ()) or 2
    if options["n_features"] is not None:
        n_covariates = options["n_features"]
    n_covariates = whole_number("--n-features", n_covariates, at_least=1)
    return library.Universe(domain, whole_number("--n", n_records, at_least=2), n_covariates)


def _of_sums(domain: library.Domain, options: dict[str, Any]) -> Finding:
    """The worst neighbors of the sums of an effect at its default settings, its fits as given."""
    with screen.progress("searching", total=100) as bar:
        from dp2erm_cvx.audit import Declared, SearchPlan, noised_sums, search_additive

        if domain.units is None and len(domain.arms) == 2:
            raise DeclarationError(_NO_PROGRAM)
        (task,) = bar.task_ids
        search = SearchPlan(1000, seed=options["seed"])
        if options["solves"] is not None or options["seconds"] is not None:
            search = _search(options)

        def update(share: float, *_: Any) -> None:
            bar.update(task, completed=100 * share)

        search = dataclasses.replace(search, progress=update)
        n = domain.units or whole_number("--n", options["n_samples"] or 400, at_least=2)
        model = library.PrivateEffect(domain, library.Budget(1.0))
        plan = model.plan(n, len(domain.ranges or (0,)))
        fits = {}
        epsilon_of_sums = 0.0
        for step in plan.steps:
            if step.integers:
                epsilon_of_sums += step.calibration.epsilon
            else:
                fits[step.name] = [0.0] * step.calibration.n_parameters
        sums = noised_sums(plan, fits)
        declared = Declared(epsilon_of_sums)
        return search_additive(sums, plan.study.universe, declared, search=search)


def _search(options: dict[str, Any]) -> SearchPlan:
    """The search that the options ask for."""
    from dp2erm_cvx.audit import SearchPlan

    solves = options["solves"]
    if solves is not None:
        solves = whole_number("--solves", solves, at_least=1)
    seconds = options["seconds"]
    if solves is None and seconds is None:
        seconds = _SECONDS
    return SearchPlan(
        solves,
        seconds,
        seed=options["seed"],
        workers=options["workers"],
        solver_seconds=options["solver_seconds"],
    )


def _show_verdicts(result: StabilityAudit) -> None:
    """A table of all bounds, and what the search did."""
    size = f"{result.universe.n_samples} records, {result.universe.n_features} covariates"
    console = screen.console()
    console.print(f"Stability audit of {result.program.name}: {size}", style="bold")
    table = grid("bound", "of", "bound at", "largest movement", "share", left=2)
    for verdict in result.verdicts:
        share = f"{verdict.ratio:.1%}"
        if verdict.violated:
            share += " VIOLATED"
        claim = verdict.claim
        table.add_row(
            claim.name, str(claim.quantity), f"{claim.bound:.6g}", str(verdict.movement), share
        )
    console.print(table)
    console.print(result.notes())


def _replayed(data: str | None, program: str | None, options: dict[str, Any]) -> int:
    """Solve a saved pair again and show it; the exit code."""
    if options["plant"]:
        raise DeclarationError("--plant goes with the search of a --program")
    if data is not None:
        raise DeclarationError("--replay takes the records from the saved pair")
    if program is not None and programs.known_name(program, "first") == program:
        raise DeclarationError("--replay takes the program from the saved pair, or from a FILE.py")
    from dp2erm_cvx.audit import Verdict, replay

    seconds = public_number("--solver-seconds", options["solver_seconds"], above=0)
    solver = programs.known_solver(options["checker"])
    verdict = replay(options["replay"], solver=solver, seconds=seconds)
    assert isinstance(verdict, Verdict)
    if options["as_json"]:
        names = ("claim", "movement", "saved", "violated", "agrees")
        screen.print_json({name: getattr(verdict, name) for name in names})
        return int(verdict.violated)
    console = screen.console()
    console.print(str(verdict), style="bold")
    saved = "another audit saved the pair"
    if verdict.saved is not None:
        saved = f"as saved: {verdict.saved}"
    console.print(f"movement by {options['checker']}: {verdict.movement}; {saved}")
    if verdict.saved is not None:
        meet = "THE INTERVALS DO NOT MEET: one certificate is wrong"
        if verdict.agrees:
            meet = "both intervals meet"
        console.print(meet)
    return int(verdict.violated)


@click.command("bounds", short_help="Every stability bound of a first stage, side by side.")
@opt.program_option(show_default="that of the study")
@opt.field_option(
    "data.universe:Universe.n_samples", "--n", "n_samples", type=opt.Number(), default=400
)
@opt.study_option
@opt.changes_option
@opt.field_option(
    f"{opt.WEIGHTED}.second_stage",
    show_default="a loss of gradient radius 1",
    beside=" Or FILE.py; noise is for its loss.",
)
@opt.field_option(
    "data.universe:Universe.n_features", type=opt.Number(), show_default="that of the ranges"
)
@opt.field_option("privacy:Budget.epsilon", type=opt.Number(), default=1.0)
@opt.delta_option
@click.option(
    "--plot", metavar="FILE.png", help="Draw V against n and against the ridge (.png, .svg, .pdf)."
)
@click.option(
    "--export", metavar="FILE", help="Write a bound of V that checker.py proves by itself."
)
@opt.json_option
def bounds_command(program: str | None, as_json: bool, plot: str | None, **options: Any) -> None:
    """Print what each family of bounds says about one first stage. No data are read.

    W1 and W2 are the movements that the paper bounds, V is the coupled variation. Scale and gamma
    are the noise and the ridge that the statement's own calibration asks for: the printed formulas
    for the printed bound alone, the corrected Gaussian exponent for the paper's other rows.
    """
    screen.writable(plot)
    with screen.progress("bounding"):
        from dp2erm_cvx.calibration.base import Noise
        from dp2erm_cvx.report.tables import bound_rows

        n = whole_number("--n", options["n_samples"], at_least=2)
        budget = library.Budget(options["epsilon"], options["delta"])
        if options["n_features"] is not None:
            whole_number("--n-features", options["n_features"], at_least=1, at_most=programs.MOST)
        examined, first, second = _both_stages(program, options)
        universe, loss = _universe_and_loss(examined, second, n, options["n_features"])
        noise = Noise.GAUSSIAN if budget.delta else Noise.GAMMA
        rows = bound_rows(first, universe, budget, loss=loss, noise=noise)
        if plot:
            _plot_bounds(plot, first, universe)
        _write_bound(options["export"], first, universe)
    if as_json:
        screen.print_json([_facts(row) for row in rows])
        return
    console = screen.console()
    console.print(f"Stability of {first.name} with {n} records", style="bold")
    relation = examined.records.domain.relation.value
    loss_name = "a unit loss" if second is None else second.name
    console.print(f"neighbors: {relation}; noise: {noise.value}, {law_text(budget)}, {loss_name}")
    screen.show(_bound_blocks(rows))
    if plot:
        console.print(f"V against n and against the ridge: {plot}")


def _both_stages(
    program: str | None, options: dict[str, Any]
) -> tuple[programs.Examined, FirstStage, SecondStage | None]:
    """What bounds are about: declarations, a first stage, and a second one where it is named."""
    from dp2erm_cvx.data.counts import refuse

    name_of_second = options["second_stage"]
    assumed = {} if name_of_second else {"outcome_bound": 1.0}
    examined = programs.read_examined(options, program, assumed)
    domain = examined.records.domain
    if examined.first is None:
        raise DeclarationError(_NO_PROGRAM)
    refuse(domain.codebook, "a first stage", "arms")
    second = examined.second
    if name_of_second is not None:
        second = programs.second_stage_of(name_of_second).resolve(domain.space)
    return examined, examined.first, second


def _plot_bounds(path: str, first: FirstStage, universe: library.Universe) -> None:
    """Draw V against n, and against the ridge of a first stage that has one."""
    from dp2erm_cvx.report.figures import bound_plot
    from dp2erm_cvx.report.tables import against_n, against_ridge

    of_n = against_n(first, universe)
    panels = [(f"{first.name}, settings fixed", "number of records n", of_n)]
    of_ridge = against_ridge(first, universe)
    if of_ridge:
        panels.append((f"{first.name}, n = {universe.n_samples:,}", "ridge", of_ridge))
    bound_plot(panels, path)


def _bound_blocks(rows: Sequence[BoundRow]) -> list[Block]:
    """The table of all bounds, their theorems, and what was refused."""
    from dp2erm_cvx.report.tables import UNIVERSAL

    table = grid("bound", "W1", "W2", "V", "noise scale", "gamma", "x best", wrap=False)
    theorems: list[Block] = []
    refusals: list[Block] = []
    for row in rows:
        if row.bound is not None:
            facts = _facts(row)
            numbers = [facts[name] for name in ("W1", "W2", "V", "scale", "gamma", "ratio")]
            table.add_row(row.family, *map(_number, numbers))
            theorem = f"{row.family}: {row.bound.theorem}"
            if row.family == UNIVERSAL:
                theorem += "; for any weights that exist, no calibration of fit"
            theorems.append(theorem)
        if row.refusal is not None:
            what = "refused" if row.bound is None else "no noise"
            refusals.append(f"{row.family}: {what}: {row.refusal}")
    if not theorems:
        return refusals
    return [table, *theorems, *refusals]


def _write_bound(path: str | None, first: FirstStage, universe: library.Universe) -> None:
    """Write a bound of V that the checker proves, where a file is asked for; stderr says so."""
    if path is None:
        return
    from dp2erm_cvx.solve.exported import document_of, exported_bound

    bound = exported_bound(first, universe)
    screen.write_text(path, json.dumps(document_of([bound])))
    click.echo(
        f"{path}: V is at most {bound['claim']['V']:.6g}; check it: python checker.py", err=True
    )


def _universe_and_loss(
    examined: programs.Examined, second: SecondStage | None, n: int, n_features: Any
) -> tuple[library.Universe, LossConstants]:
    """The records that bounds and the constants of a loss are about, and these constants.

    Parameters
    ----------
    examined
        What is declared.
    second
        The second stage. Without one the loss has constants 1: then no bound depends on the
        covariates.
    n
        Number of records.
    n_features
        Number of their covariates; None for as many as are declared.

    Raises
    ------
    DeclarationError
        Where nobody declares the number of covariates, and it matters.
    """
    from dp2erm_cvx.program import PrivateFirstStage
    from dp2erm_cvx.report.tables import UNIT_LOSS

    domain = examined.records.domain
    if second is None:
        return library.Universe(domain, n, 1), UNIT_LOSS
    n_covariates = len(domain.ranges or examined.records.covariates or ())
    if n_features is not None:
        n_covariates = whole_number("--n-features", n_features, at_least=1, at_most=programs.MOST)
    if not n_covariates:
        of_one = second.loss_constants(library.Universe(domain, n, 1))
        of_two = second.loss_constants(library.Universe(domain, n, 2))
        if of_one != of_two or isinstance(examined.first, PrivateFirstStage):
            raise DeclarationError(
                "covariates are not declared: give their --n-features, or ranges"
            )
    universe = library.Universe(domain, n, n_covariates or 1)
    return universe, second.constants(universe)


def _facts(row: BoundRow) -> dict[str, Any]:
    """One bound in plain types; None for what there is not."""
    facts: dict[str, Any] = {"family": row.family}
    for name in ("theorem", "assumptions", "W1", "W2", "V"):
        facts[name] = getattr(row.bound, name, None)
    for name in ("scale", "gamma"):
        facts[name] = getattr(row.calibration, name, None)
    return facts | {"ratio": row.ratio, "refusal": row.refusal}


@click.command("certify", short_help="Solvers against programs, and what is proved.")
@click.argument("data", metavar="[DATA.csv|.parquet]", required=False)
@opt.study_option
@opt.changes_option
@_size_option
@click.option(
    "--program",
    "chosen",
    multiple=True,
    help="Only this program, or FILE.py[:NAME]; repeatable [all registered].",
)
@click.option(
    "--solver",
    "solvers",
    multiple=True,
    help="Only this solver; repeatable [all]. Any of CVXPY's, or FILE.py:NAME.",
)
@click.option(
    "--weights",
    "given",
    metavar="FILE.csv",
    help=(
        "Certify these weights of the records of DATA, one number in each row, in place of a "
        "solver."
    ),
)
@click.option(
    "--export", metavar="FILE", help="Write certificates on simulated records, for checker.py."
)
@click.option(
    "--private-file",
    metavar="FILE",
    help="Write certificates on DATA, with its records: NOT PRIVATE.",
)
@_solver_seconds_option
@opt.json_option
def certify_command(
    data: str | None,
    chosen: Sequence[str],
    solvers: Sequence[str],
    given: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Solve every program with every solver and print what is proved about each solution.

    Without DATA the records are simulated (seeded). With DATA the numbers depend on private
    records: they are for the data holder only. Settings apply where exactly one --program is named.
    What could not be solved or certified is a result and no error: the lines below the table say
    why. A solver that is reached through CVXPY runs in a process of its own, which is ended after
    --solver-seconds. With --weights it says how far weights that were computed elsewhere, as by R,
    are from the exact weights of the one --program. With --export the certificates are a file,
    which checker.py proves again without this package.
    """
    file = _export_file(data, given, options)
    if given is not None:
        _certify_given(given, data, chosen, solvers, as_json, options)
        return
    seconds = public_number("--solver-seconds", options["solver_seconds"], above=0)
    with screen.progress("building the programs") as bar:
        from dp2erm_cvx.report.tables import DEFAULT_SOLVERS, certificates, instances

        tried = tuple(programs.known_solver(text) for text in solvers) or DEFAULT_SOLVERS
        dataset, domain, built = _prepare(data, chosen, options)
        exports = None
        if file is not None:
            exports = _Exports(domain.records(dataset.X, dataset.a, dataset.y))
        keep = None if exports is None else exports.add
        (task,) = bar.task_ids
        bar.update(task, total=len(built))
        rows: list[CertificateRow] = []
        for name, instance in instances(built, dataset, domain):
            bar.update(task, description=name)
            rows += certificates(name, instance, tried, seconds, keep)
            bar.advance(task)
    if exports is not None and file is not None:
        exports.write(file)
    if data is not None:
        click.echo(f"{screen.NOT_PRIVATE}: these numbers depend on the records of {data}", err=True)
    if as_json:
        screen.print_json(rows)
        return
    source = f"{dataset.n_samples} simulated records"
    if data:
        source = f"the {dataset.n_samples} records of {data} ({screen.NOT_PRIVATE})"
    screen.console().print(f"Certificates on {source}", style="bold")
    screen.show(_certificate_blocks(rows))


def _certificate_blocks(rows: Sequence[CertificateRow]) -> list[Block]:
    """The table of certificates, why some programs have none, and what the columns say."""
    # one line for every reason why a program was not certified: solvers mostly share it
    unsolved = [row for row in rows if row.note and row.status != "does not apply"]
    reasons = dict.fromkeys(f"{row.program}: {row.note}" for row in unsolved)
    legend = (
        "raw, final: bound on the relative distance of the weights (l1 over n) or of theta to the "
        "exact minimizer, before and after Newton polishing; apart: distance to the best certified "
        "solution; gap: Fenchel duality gap. The objective is that of the form that is certified "
        "(the dual, for closed-form weights and entropy balancing); n/a: the solver does not apply."
    )
    return [_certificate_table(rows), *reasons, legend]


def _export_file(data: str | None, given: str | None, options: dict[str, Any]) -> str | None:
    """The file for certificates; None where none is asked for.

    Raises DeclarationError where private records would be in a file that was not named as private.
    """
    public = options["export"]
    private = options["private_file"]
    if public is None and private is None:
        return None
    if given is not None:
        raise DeclarationError(
            "--weights: certificates of solutions are written, and not of given weights"
        )
    if data is None and private is not None:
        raise DeclarationError(
            "--private-file: without DATA the records are simulated: use --export"
        )
    if data is not None and public is not None:
        raise DeclarationError(
            "--export: the file would hold the records of DATA, which are private: name it by "
            "--private-file, and keep it where they are kept"
        )
    file: str = public or private
    return file


@dataclass
class _Exports:
    """Certificates for a file, and why others are not in it.

    Parameters
    ----------
    records
        What the certificates are of.
    certificates
        Those that are written.
    left_out
        Reasons why others are not.
    """

    records: Records
    certificates: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, None] = field(default_factory=dict)

    def add(self, instance: Any, solution: Any) -> None:
        """Add the certificate of a solution, or why there is none."""
        from dp2erm_cvx.solve.exported import exported

        try:
            self.certificates.append(exported(instance, solution, self.records))
        except CertificateError as error:
            self.left_out[str(error)] = None

    def write(self, path: str) -> None:
        """Write the file, and say on stderr what is in it.

        Raises DeclarationError where nothing is.
        """
        from dp2erm_cvx.solve.exported import document_of

        for reason in self.left_out:
            click.echo(f"not exported: {reason}", err=True)
        if not self.certificates:
            raise DeclarationError(f"{path}: there is no certificate to write")
        screen.write_text(path, json.dumps(document_of(self.certificates)))
        click.echo(
            f"{path}: {len(self.certificates)} certificates; check them: python checker.py",
            err=True,
        )


def _certify_given(
    path: str,
    data: str | None,
    chosen: Sequence[str],
    solvers: Sequence[str],
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Say how far weights of a file are from the exact weights of a program on DATA."""
    from dp2erm_cvx.data.files import PLAIN, read_table
    from dp2erm_cvx.program import FirstStage
    from dp2erm_cvx.solve import certify_weights

    if data is None or len(chosen) != 1 or solvers:
        raise DeclarationError("--weights: name DATA and one --program beside it, and no --solver")
    dataset, domain, (program,) = _prepare(data, chosen, options)
    if not isinstance(program, FirstStage):
        raise DeclarationError(f"--weights: {program.name} is a second stage, which has no weights")
    table = read_table(path, PLAIN)
    if len(table.names) != 1:
        raise DeclarationError(f"{path}: must have one column of weights, not {len(table.names)}")
    records = domain.records(dataset.X, dataset.a, dataset.y)
    certified = certify_weights(program, records, table.numbers(table.names[0]))
    click.echo(f"{screen.NOT_PRIVATE}: these numbers depend on the records of {data}", err=True)
    if as_json:
        screen.print_json(dataclasses.asdict(certified) | {"relative": certified.relative})
        return
    rows = [
        ("records, sum of the weights", f"{certified.n:,}, {certified.total:.6g}"),
        ("least and largest weight", f"{certified.least:.4g}, {certified.largest:.4g}"),
        ("to the weights found here, in all", f"{certified.distance:.3g}"),
        (f"to the exact weights of {program.name}, proved", f"at most {certified.radius:.3g}"),
        ("which is, for each record, in the mean", f"at most {certified.relative:.3g}"),
    ]
    blocks: list[Any] = [grid("weights", "", rows=rows)]
    if certified.other_total:
        blocks.append(
            f"The weights of {program.name} have the sum {certified.n:,}: multiply those of the "
            "file so that they have it too, if they are on another scale."
        )
    screen.show(blocks)


def _certificate_table(rows: Sequence[CertificateRow]) -> Table:
    """One line per solver under the name of its program; fits 80 columns."""
    headers = ("program, solver", "status", "objective", "gap", "raw", "final", "apart", "time")
    table = grid(*headers, left=2, wrap=False)
    previous = None
    for row in rows:
        if row.program != previous:
            table.add_row(row.program, style="bold")
        table.add_row(
            f"  {row.solver}",
            _status(row),
            _number(row.objective, ".5g"),
            _number(row.duality_gap, ".0e"),
            _number(row.raw_radius, ".0e"),
            _number(row.radius, ".0e"),
            _number(row.distance, ".0e"),
            _number(row.seconds, ".2f"),
        )
        previous = row.program
    return table


def _status(row: CertificateRow) -> str:
    """What a solver says, or that nothing is proved of its point."""
    if not row.certified and not math.isnan(row.radius):
        return "UNPROVED"
    if row.status == "does not apply":
        return "n/a"
    return row.status


def _prepare(
    data: str | None, chosen: Sequence[str], options: dict[str, Any]
) -> tuple[Dataset, library.Domain, list[FirstStage | SecondStage]]:
    """The records, simulated or those of DATA, what is declared of them, and the programs."""
    own, settings_of_program = programs.split_changes(options["changes"])
    records: RecordsFile | None = None
    if data is None:
        dataset, domain = _simulated_records(options, own)
    else:
        records, dataset = _records_of_file(data, options, own)
        domain = records.domain
    settings = programs.read_settings(settings_of_program, records)
    if settings and len(chosen) != 1:
        raise DeclarationError("settings belong to one program: name exactly one --program")
    n_columns = len(dataset.columns) + (1 if domain.intercept else 0)
    return dataset, domain, _chosen_programs(chosen, settings, n_columns)


def _simulated_records(
    options: dict[str, Any], changes: Sequence[str]
) -> tuple[Dataset, library.Domain]:
    """Simulated records, of which nothing may be declared but their number."""
    from dp2erm_cvx.report.tables import simulated

    if options["study"] is not None or changes:
        raise DeclarationError("without data the records are simulated: name the data file as well")
    n = 400 if options["n_samples"] is None else options["n_samples"]
    return simulated(whole_number("--n", n, at_least=2, at_most=programs.MOST))


def _records_of_file(
    data: str, options: dict[str, Any], changes: Sequence[str]
) -> tuple[RecordsFile, Dataset]:
    """What is declared of the records of DATA, and these records."""
    from dp2erm_cvx.data.counts import refuse
    from dp2erm_cvx.study import declared_records

    if options["n_samples"] is not None:
        raise DeclarationError(
            "--n is the number of simulated records: leave it out beside a data file"
        )
    records = declared_records(options["study"], changes)
    refuse(records.domain.codebook, "a certificate of a program", "arms", "units")
    table = reading.raw_table(data, records.layout, records.domain)
    return records, reading.coded_data(table, records.domain, records.covariates)


def _chosen_programs(
    chosen: Sequence[str], settings: dict[str, Any], n_columns: int
) -> list[FirstStage | SecondStage]:
    """The programs that are named, with settings where there are any; all where none is."""
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.report.tables import default_programs

    built = default_programs(n_columns)
    if not chosen:
        return built
    by_name = {program.name: program for program in built}
    named = []
    for text in chosen:
        name = programs.known_name(text)
        if settings or name not in by_name:
            named.append(registry.build(registry.available(), name, **settings))
        else:
            named.append(by_name[name])
    return named


def _number(value: float | None, form: str | None = None) -> str:
    """A number of a table; a dash for none."""
    if value is None or math.isnan(value):
        return "-"
    if form is None:
        form = ",.4g" if value < 1e4 else ".4g"
    return format(value, form)
