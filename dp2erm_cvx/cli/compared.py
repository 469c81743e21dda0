"""``dp2erm bounds`` and ``dp2erm certify``: bounds of a first stage, and solvers against programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    REQUIRED,
    WEIGHTED,
    Command,
    Number,
    data_options,
    delta_option,
    domain_options,
    field_option,
    json_option,
    program_option,
    setting_options,
)
from dp2erm_cvx.cli.programs import (
    MOST,
    first_stage,
    known_name,
    known_solver,
    read_settings,
    second_stage_of,
)
from dp2erm_cvx.cli.reading import coded_data, raw_table, read_domain
from dp2erm_cvx.cli.screen import NOT_PRIVATE, advance, console, print_json, progress, writable
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.compare import BoundCurve, BoundRow, CertificateRow
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.program import FirstStage, SecondStage
    from dp2erm_cvx.universe import Universe


@click.command("bounds", cls=Command, short_help="Every stability bound of a first stage, side by side.")
@program_option(required=True)
@field_option("universe:Universe.n_samples", "--n", "n_samples", type=Number(), default=400)
@setting_options
@domain_options
@field_option(
    f"{WEIGHTED}.second_stage",
    show_default="a loss of gradient radius 1",
    beside=" Or FILE.py; noise is for its loss.",
)
@field_option("universe:Universe.n_features", type=Number(), show_default="that of the ranges")
@field_option("privacy:Budget.epsilon", type=Number(), default=1.0)
@delta_option
@click.option("--plot", metavar="FILE.png", help="Draw V against n and against the ridge (.png, .svg, .pdf).")
@json_option
def bounds_command(program: str, as_json: bool, plot: str | None, **options: Any) -> None:
    """Print what each family of bounds says about one first stage. No data are read.

    W1 and W2 are the movements that the paper bounds, V is the coupled variation. Scale and gamma are the
    noise and the ridge that the statement's own calibration asks for: the printed formulas for the printed
    bound alone, the corrected Gaussian exponent for the paper's other rows.
    """
    writable(plot)
    with progress("bounding"):
        from dp2erm_cvx.calibration.base import Noise
        from dp2erm_cvx.compare import UNIT_LOSS, bound_rows
        from dp2erm_cvx.privacy import Budget
        from dp2erm_cvx.sampling import refuse
        from dp2erm_cvx.universe import Universe

        n = whole_number("--n", options["n_samples"], at_least=2)
        if options["n_features"] is not None:
            whole_number("--n-features", options["n_features"], at_least=1)
        budget = Budget(options["epsilon"], options["delta"])
        named = options["second_stage"]
        domain = read_domain(options, {} if named else {"outcome_bound": 1.0})
        refuse(domain.codebook, "a first stage", "arms")
        first, loss = first_stage(program, options), UNIT_LOSS
        universe = Universe(domain, n, 1)  # no bound depends on the number of covariates, only a loss does
        if named:
            second = second_stage_of(named, {"second_settings": ()}, (), domain).resolve(domain)
            named = second.name
            universe = Universe(domain, n, _count_features(domain, second, first, options["n_features"]))
            loss = second.constants(universe)
        noise = Noise.GAUSSIAN if budget.delta else Noise.GAMMA
        rows = bound_rows(first, universe, budget, loss=loss, noise=noise)
        if plot:
            _draw(first, universe, plot)
    if as_json:
        print_json([_plain(row) for row in rows])
        return
    screen = console()
    spent = f"epsilon = {budget.epsilon:g}" + (f", delta = {budget.delta:g}" if budget.delta else "")
    screen.print(f"Stability of {first.name} with {n} records", style="bold")
    screen.print(
        f"neighbors: {domain.relation.value}; noise: {noise.value}, {spent}, {named or 'a unit loss'}"
    )
    _show(rows)
    if plot:
        screen.print(f"V against n and against the ridge: {plot}")


def _show(rows: Sequence[BoundRow]) -> None:
    from dp2erm_cvx.compare import UNIVERSAL

    screen = console()
    table = grid("bound", "W1", "W2", "V", "noise scale", "gamma", "x best", wrap=False)
    theorems, refusals = [], []
    for row in rows:
        if row.bound is not None:
            table.add_row(row.family, *map(_number, _values(row).values()))
            beyond = "; for any weights that exist, no calibration of fit" if row.family == UNIVERSAL else ""
            theorems.append(f"{row.family}: {row.bound.theorem}{beyond}")
        if row.refusal is not None:
            what = "refused" if row.bound is None else "no noise"
            refusals.append(f"{row.family}: {what}: {row.refusal}")
    for part in ([table] if theorems else []) + theorems + refusals:
        screen.print(part)


def _draw(first: FirstStage, universe: Universe, path: str) -> None:
    from dp2erm_cvx.compare import against_n, against_ridge
    from dp2erm_cvx.plotting import bound_plot

    panels = [(f"{first.name}, settings fixed", "number of records n", against_n(first, universe))]
    ridged: list[BoundCurve] = against_ridge(first, universe)
    if ridged:
        panels.append((f"{first.name}, n = {universe.n_samples:,}", "ridge", ridged))
    bound_plot(panels, path)


def _plain(row: BoundRow) -> dict[str, Any]:
    bound = row.bound
    theorem, assumptions = (None, None) if bound is None else (bound.theorem, bound.assumptions)
    facts = {"family": row.family, "theorem": theorem, "assumptions": assumptions}
    return {**facts, **_values(row), "refusal": row.refusal}


def _values(row: BoundRow) -> dict[str, float | None]:
    bounds = {name: getattr(row.bound, name, None) for name in ("W1", "W2", "V")}
    noise = {name: getattr(row.calibration, name, None) for name in ("scale", "gamma")}
    return {**bounds, **noise, "ratio": row.ratio}


@click.command("certify", cls=Command, short_help="Solvers against programs, and what is proved.")
@click.argument("data", metavar="[DATA.csv|.parquet]", required=False)
@data_options
@field_option(
    "universe:Universe.n_samples", "--n", "n_samples", type=Number(), show_default="400 without DATA"
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    help="Only this program, or FILE.py[:NAME]; repeatable [all registered].",
)
@setting_options
@click.option(
    "--solver",
    "solvers",
    multiple=True,
    help="Only this solver; repeatable [all]. Any of CVXPY's, or FILE.py:NAME.",
)
@json_option
def certify_command(
    data: str | None, programs: Sequence[str], solvers: Sequence[str], as_json: bool, **options: Any
) -> None:
    """Solve every program with every solver and print what is proved about each solution.

    Without DATA the records are simulated (seeded). With DATA the numbers depend on private records: they
    are for the data holder only. Settings apply where exactly one --program is named. What could not be
    solved is a result and no error: the lines below the table say why.
    """
    with progress("building the programs") as bar:
        from dp2erm_cvx.compare import DEFAULT_SOLVERS, certificates, instances

        chosen = tuple(known_solver(text) for text in solvers) or DEFAULT_SOLVERS
        dataset, domain, built = _prepare(data, programs, options)
        (task,) = bar.task_ids
        bar.update(task, total=len(built))
        rows: list[CertificateRow] = []
        for name, instance in instances(built, dataset, domain):
            bar.update(task, description=name)
            rows += certificates(name, instance, chosen)
            advance(bar)
    if data is not None:
        click.echo(f"{NOT_PRIVATE}: these numbers depend on the records of {data}", err=True)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    screen = console()
    n = dataset.n_samples
    source = f"the {n} records of {data} ({NOT_PRIVATE})" if data else f"{n} simulated records"
    screen.print(f"Certificates on {source}", style="bold")
    screen.print(certificate_table(rows))
    # one line for every reason why a program was not solved: solvers mostly share it
    unsolved = [row for row in rows if row.note and row.status != "does not apply"]
    for line in dict.fromkeys(f"{row.program}: {row.note}" for row in unsolved):
        screen.print(line)
    screen.print(
        "raw, final: bound on the relative distance of the weights (l1 over n) or of theta to the exact "
        "minimizer, before and after Newton polishing; apart: distance to the best certified solution; "
        "gap: Fenchel duality gap. The objective is that of the form that is certified (the dual, for "
        "closed-form weights and entropy balancing); n/a: the solver does not apply."
    )


def certificate_table(rows: Sequence[CertificateRow]) -> Table:
    """One line per solver under the name of its program; fits 80 columns."""
    headers = ("program, solver", "status", "objective", "gap", "raw", "final", "apart", "time")
    table = grid(*headers, left=2, wrap=False)
    previous = None
    for row in rows:
        if row.program != previous:
            table.add_row(row.program, style="bold")
        status = "n/a" if row.status == "does not apply" else row.status
        table.add_row(
            f"  {row.solver}",
            status if row.certified or math.isnan(row.radius) else "UNPROVED",
            _number(row.objective, ".5g"),
            *(_number(value, ".0e") for value in (row.duality_gap, row.raw_radius, row.radius, row.distance)),
            _number(row.seconds, ".2f"),
        )
        previous = row.program
    return table


def _prepare(data: str | None, programs: Sequence[str], options: dict[str, Any]) -> Any:
    from dp2erm_cvx import registry
    from dp2erm_cvx.compare import default_programs, simulated
    from dp2erm_cvx.sampling import refuse

    if data is None:
        for name in ("treatment", "outcome", "covariates", "domain", *REQUIRED, "ranges"):
            if options[name]:
                flag = "--" + name.replace("_", "-")
                raise DeclarationError(f"{flag} describes data: name the data file as well")
        n = options["n_samples"]
        n = 400 if n is None else whole_number("n_samples", n, at_least=2)
        if n > MOST:
            raise DeclarationError(f"n_samples = {brief(options['n_samples'])}: must be at most {MOST:,}")
        dataset, domain = simulated(n)
    elif options["n_samples"] is not None:
        raise DeclarationError("--n is the number of simulated records: leave it out beside a data file")
    else:
        domain = read_domain(options)
        refuse(domain.codebook, "a certificate of a program", "arms", "units")
        dataset = coded_data(raw_table(data, options, domain), domain, options)
    settings = read_settings(options)
    if settings and len(programs) != 1:
        raise DeclarationError("settings belong to one program: name exactly one --program")
    built = default_programs(len(dataset.columns) + (1 if domain.intercept else 0))
    if programs:
        programs = [known_name(text) for text in programs]
        by_name = {} if settings else {program.name: program for program in built}
        known = registry.available()
        built = [by_name.get(name) or registry.build(known, name, **settings) for name in programs]  # type: ignore[misc]
    return dataset, domain, built


def _number(value: float | None, form: str | None = None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return format(value, form or (",.4g" if value < 1e4 else ".4g"))


def _count_features(domain: Domain, second: SecondStage, first: FirstStage, text: object) -> int:
    """Number of covariates: ``--n-features``, else that of the ranges, else 1 where it does not matter.

    Raises DeclarationError where it matters and nobody said.
    """
    from dp2erm_cvx.program import PrivateFirstStage
    from dp2erm_cvx.public import whole_number
    from dp2erm_cvx.universe import Universe

    if text is not None:
        number = whole_number("--n-features", text, at_least=1)
        if number > MOST:
            raise DeclarationError(f"--n-features = {brief(text)}: must be at most {MOST:,}")
        return number
    if domain.ranges is not None:
        return len(domain.ranges)
    one, two = (second.loss_constants(Universe(domain, 2, columns)) for columns in (1, 2))
    if one != two or isinstance(first, PrivateFirstStage):
        raise DeclarationError("the number of covariates is not declared: give --n-features, or ranges")
    return 1
