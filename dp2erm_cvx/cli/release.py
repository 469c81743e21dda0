"""``dp2erm effect``, ``rule`` and ``fit``: one private release from a data file."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    ESTIMATOR,
    Command,
    Number,
    apply,
    data_options,
    declared_settings,
    delta_option,
    epsilon_option,
    field_option,
    names,
    program_option,
    second_stage_options,
    setting_options,
)
from dp2erm_cvx.cli.programs import first_stage, known_solver, second_stage_of
from dp2erm_cvx.cli.reading import NO_RANGES, Coded, block_options, read_cells, read_domain, read_ranges
from dp2erm_cvx.cli.releasing import (
    SEEDED,
    announce,
    check_files,
    data_argument,
    planned_size,
    printing_options,
    released,
    show_plan,
)
from dp2erm_cvx.cli.screen import progress, show, unwritable
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.estimators.fitting import PrivateEstimator
    from dp2erm_cvx.private_ranges import PrivateRanges
    from dp2erm_cvx.release.record import BaseRelease


#: The data file of one release, and how it is read.
_record_options = apply(data_argument, data_options, block_options)
#: What one release spends, where it goes, its account, and what the data holder may look at.
_release_options = apply(
    epsilon_option,
    delta_option,
    click.option("--output", metavar="FILE", help="Write the release as JSON."),
    field_option(f"{ESTIMATOR}.ledger", metavar="FILE", beside=" See dp2erm ledger."),
    field_option("ledger.ledger:Account.dataset", metavar="NAME"),
    click.option("--balance", is_flag=True, help="Show covariate balance on stderr: not private."),
    click.option("--love-plot", metavar="FILE.png", help="Draw covariate balance: not private."),
    click.option("--overlap-plot", metavar="FILE.png", help="Draw propensities by arm: not private."),
    printing_options,
)


def _release(
    kind: str,
    data: str | None,
    options: dict[str, Any],
    staged: Callable[[Any, tuple[str, ...]], dict[str, Any]] = lambda *_: {},
) -> None:
    """Release what the estimator of this name makes of the data, or show its plan.

    Everything that is declared is judged before the data are read. ``staged`` are further arguments for a
    domain and the covariates that are declared.
    """
    figures = [options[name] for name in ("love_plot", "overlap_plot") if options[name]]
    check_files(data, options, *figures)
    for figure in figures:
        from dp2erm_cvx.plotting.figure import check_figure

        check_figure(figure)
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx import estimators
        from dp2erm_cvx.data import Dataset
        from dp2erm_cvx.privacy import Budget
        from dp2erm_cvx.sampling import refuse

        budget, made = Budget(options["epsilon"], options["delta"]), getattr(estimators, kind)
        counts: list[RecordCounts] = []
        domain: Domain | PrivateRanges
        domain = read_domain(options) if options.get("private_ranges") is None else read_ranges(options)
        columns, dataset = domain.columns or names(options["covariates"]), None
        featured = any(one.startswith("features=") for one in options.get("second_settings", ()))
        if columns is None and featured and data and options["planned"] is None:
            # names of the data themselves, where features are chosen from them
            dataset = Coded(read_cells(data, options, domain, bar), options).by(domain, counts.append)
            columns = dataset.columns
        model = made(domain, budget, **_arguments(made, options), **staged(domain, columns or ()))
        model.check(columns)
        if options["planned"] is not None:
            show_plan(model.plan(*planned_size(domain, options)), as_json=options["as_json"])
        if options["planned"] is not None or data is None:
            return
        if dataset is None:
            public = model.public()
            dataset = Coded(read_cells(data, options, public, bar), options).by(public, counts.append)
        seen: list[Any] = []
        if options["balance"] or figures:
            refuse(model.public().codebook, "a table or a plot of balance", "arms")
            if not isinstance(dataset, Dataset):
                raise DeclarationError("--balance and plots need all records in memory: add --blocks never")
            model.look = lambda *run: seen.extend(run)
        model.before_charge = lambda: announce(counts, [model], yes=options["yes"])
        model.output = options["output"]
        held, after = dataset, partial(_for_the_data_holder, model, seen, options)
        (release,) = released(
            {kind: model}, lambda _: held, {kind: options["output"]}, options, after=after
        ).values()
    _show_release(release, budget.delta, options, domain)


@click.command(
    "effect",
    cls=Command,
    declared="dp2erm_cvx.estimators:PrivateEffect",
    short_help="A private average effect with an interval.",
)
@_record_options
@field_option(
    "plan.settings:EffectSettings.cells", multiple=True, metavar="NAME=CUT,...|NAME:N", beside=" Repeatable."
)
@field_option(
    "private_ranges:PrivateRanges.share",
    "--private-ranges",
    type=Number(),
    metavar="SHARE",
    show_default="all are declared",
)
@_release_options
def effect_command(data: str | None, **options: Any) -> None:
    """Release the average effect of the treatment in DATA, doubly robust, with an interval.

    An outcome regression and a propensity are released first; then the mean of one estimate per record. What
    is declared is public, stated without looking at the data. Records outside the domain are clipped.
    """
    _release("PrivateEffect", data, options)


@click.command(
    "rule", cls=Command, declared="dp2erm_cvx.estimators:PrivateRule", short_help="A private treatment rule."
)
@_record_options
@_release_options
def rule_command(data: str | None, **options: Any) -> None:
    """Release a linear rule that says whom to treat, fitted to DATA.

    Where the budget leaves room, a regression of the outcome and a propensity are released first, and
    corrected for; before them the mean and the mean square of the covariates, by which records are placed.
    What is declared is public, and must be stated without looking at the data. Records outside the domain are
    clipped.
    """
    _release("PrivateRule", data, options)


@click.command(
    "fit",
    cls=Command,
    declared="dp2erm_cvx.estimators:PrivateTwoStageERM",
    short_help="One private release from a data file.",
)
@_record_options
@program_option(default="entropy_balancing")
@setting_options
@second_stage_options
@_release_options
def fit_command(data: str | None, **options: Any) -> None:
    """Release a private treatment rule or effect from DATA.

    Everything about the domain, the programs and the budget is public and must be declared without
    looking at the data. Covariates are scaled by their public ranges and clipped to the covariate bound; the
    outcome is centered and clipped to the outcome bound.
    """

    def staged(domain: Domain, columns: tuple[str, ...]) -> dict[str, Any]:
        second = second_stage_of(options["second_stage"], options, columns, domain)
        return {"first_stage": first_stage(options["program"], options), "second_stage": second}

    _release("PrivateTwoStageERM", data, options, staged)


def _for_the_data_holder(model: Any, seen: list[Any], options: dict[str, Any]) -> None:
    """Messages of a run about the records: its plan, its counts, and solutions without a certificate."""
    if (workings := getattr(model, "private_workings_", None)) is not None:
        for solution in (workings.weights, workings.theta):
            warned = solution is workings.weights and solution.substituted  # by the fit itself
            if not solution.certified and not warned:
                click.echo(f"warning: {solution.advice()}", err=True)
    if not seen:
        return
    from dp2erm_cvx.diagnostics import adjusted
    from dp2erm_cvx.plotting import love_plot, overlap_plot

    table, propensity, arms = adjusted(*seen)
    if options["balance"]:
        show(table.blocks(), stderr=True)
    if options["love_plot"]:
        love_plot(table, options["love_plot"])
        click.echo(f"NOT PRIVATE: love plot written to {options['love_plot']}", err=True)
    if options["overlap_plot"]:
        overlap_plot(propensity, arms, options["overlap_plot"])
        click.echo(f"NOT PRIVATE: overlap plot written to {options['overlap_plot']}", err=True)


def _arguments(kind: type[PrivateEstimator], options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of an estimator of this kind, by name. Raises SolverError for a solver that is none."""
    from dp2erm_cvx.ledger import Ledger

    arguments = {**declared_settings(kind, options), "solver": known_solver(options["solver"])}
    if options["ledger"] is not None and options["seed"] is None:  # what is seeded costs nothing
        arguments |= {"ledger": Ledger(options["ledger"]), "dataset": options["dataset"]}
    return {**arguments, "seed": options["seed"]}


def _show_release(release: BaseRelease, delta: float, options: dict[str, Any], domain: Any) -> None:
    """Notes on stderr, then the release as JSON or in words."""
    if options["ledger"] is not None and options["seed"] is not None:
        click.echo(SEEDED, err=True)
    if delta and not release.guarantee.delta:
        click.echo(f"note: {release.guarantee.theorem} is pure; --delta is not used", err=True)
    if getattr(domain, "outcome_bound", None) is not None and domain.ranges is None:
        click.echo(f"warning: {NO_RANGES}", err=True)
    if not release.private:
        click.echo(f"{release.guarantee.standing.upper()}: do not publish this release", err=True)
    try:
        click.echo(release.to_json()) if options["as_json"] else show(release.blocks())
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk behind stdout: what was charged has been told
        raise unwritable("stdout", error) from None
