"""``dp2erm effect``, ``rule`` and ``fit``: private releases from a data file, and their plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli import reading, screen
from dp2erm_cvx.cli.programs import first_stage, known_solver, second_stage_of
from dp2erm_cvx.cli.run import (
    SEEDED,
    announce,
    check_files,
    holder_options,
    show_plans,
    tell_holder,
    write_releases,
)
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dp2erm_cvx.diagnostics.columns import RecordCounts
    from dp2erm_cvx.estimators.fitting import Answered
    from dp2erm_cvx.release.record import BaseRelease

#: The data file of one release, and how it is read.
_record_options = opt.apply(opt.data_argument, opt.data_options, reading.block_options)
#: What one release spends, where it goes, its account, and what the data holder may look at.
_release_options = opt.apply(
    opt.field_option("privacy:Budget.epsilon", type=opt.Number(), required=True),
    opt.delta_option,
    click.option("--output", metavar="FILE", help="Write the release as JSON."),
    opt.field_option(f"{opt.ESTIMATOR}.ledger", metavar="FILE", beside=" See dp2erm ledger."),
    opt.field_option("ledger.ledger:Account.dataset", metavar="NAME"),
    holder_options,
    opt.printing_options,
)


@click.command(
    "effect",
    cls=opt.Command,
    declared="dp2erm_cvx.estimators:PrivateEffect",
    short_help="A private average effect with an interval.",
)
@_record_options
@opt.field_option(
    "plan.settings:EffectSettings.cells", multiple=True, metavar="NAME=CUT,...|NAME:N", beside=" Repeatable."
)
@opt.field_option(
    "private_ranges:PrivateRanges.share",
    "--private-ranges",
    type=opt.Number(),
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
    "rule",
    cls=opt.Command,
    declared="dp2erm_cvx.estimators:PrivateRule",
    short_help="A private treatment rule.",
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
    cls=opt.Command,
    declared="dp2erm_cvx.estimators:PrivateTwoStageERM",
    short_help="One private release from a data file.",
)
@_record_options
@opt.program_option(default="entropy_balancing")
@opt.setting_options
@opt.second_stage_options
@_release_options
def fit_command(data: str | None, **options: Any) -> None:
    """Release a private treatment rule or effect from DATA.

    Everything about the domain, the programs and the budget is public and must be declared without
    looking at the data. Covariates are scaled by their public ranges and clipped to the covariate bound; the
    outcome is centered and clipped to the outcome bound.
    """
    _release("PrivateTwoStageERM", data, options)


def _release(kind: str, data: str | None, options: dict[str, Any]) -> None:
    """Release what the estimator of this name makes of the data, or show its plan.

    Everything that is declared is judged before the data are read.
    """
    figures = [options[name] for name in ("love_plot", "overlap_plot") if options[name]]
    check_files(data, options, *figures)
    for figure in figures:
        from dp2erm_cvx.plotting import check_figure

        check_figure(figure)
    with screen.progress("reading the data", total=2) as bar:
        from dp2erm_cvx.sampling import refuse

        budget = library.Budget(options["epsilon"], options["delta"])
        counts: list[RecordCounts] = []
        public: Any = reading.read_domain if options.get("private_ranges") is None else reading.read_ranges
        domain = public(options)

        def records(public: Any) -> Any:
            chosen = opt.names(options["covariates"])
            layout = reading.read_layout(options)
            read = reading.read_records(str(data), layout, options, public, chosen, bar)
            counts.append(read.counts(public, chosen))
            return read.by(public, chosen)

        columns, dataset = domain.columns or opt.names(options["covariates"]), None
        featured = any(one.startswith("features=") for one in options.get("second_settings", ()))
        if columns is None and featured and options["planned"] is None:
            # names of the data themselves, where features are chosen from them
            dataset = records(domain)
            columns = dataset.columns
        model = _model(getattr(library, kind), domain, budget, options, columns)
        model.check(columns)
        if options["planned"] is not None:
            show_plans({"": model.plan(*_planned_size(domain, options))}, as_json=options["as_json"])
            return
        dataset = records(model.public()) if dataset is None else dataset
        if options["balance"] or figures:
            refuse(model.public().codebook, "a table or a plot of balance", "arms")
            if not isinstance(dataset, library.Dataset):
                raise DeclarationError("--balance and plots need all records in memory: add --blocks never")
        model.output = options["output"]
        drawn = {name: options[name] for name in ("love_plot", "overlap_plot") if options[name]}
        plan = model.plan(dataset.n_samples, dataset.columns)
        model.before_run(plan, dataset)
        answered: list[Answered] = []

        def charge() -> Any:
            announce(counts, [model], yes=options["yes"])
            return model.charge(plan, dataset)

        def answers() -> Iterator[tuple[str, BaseRelease]]:
            answered.append(model.run_plan(plan, dataset))
            yield kind, answered[0].release

        (release,) = write_releases(
            answers(),
            {kind: options["output"]},
            options,
            charge=charge,
            after=lambda: tell_holder(answered[0], drawn, balance=options["balance"]),
        ).values()
    _show_release(release, budget.delta, options, domain)


def _model(kind: Any, domain: Any, budget: Any, options: dict[str, Any], columns: Any) -> Any:
    """The estimator of this kind with the settings of the options."""
    settings = opt.declared_settings(kind, options) | {"solver": known_solver(options["solver"])}
    if options["ledger"] is not None and options["seed"] is None:  # what is seeded costs nothing
        settings |= {"ledger": library.Ledger(options["ledger"]), "dataset": options["dataset"]}
    if "program" in options:
        second = second_stage_of(options["second_stage"], domain, options["second_settings"], columns)
        settings |= {"first_stage": first_stage(options["program"], options), "second_stage": second}
    return kind(domain, budget, **settings, seed=options["seed"])


def _show_release(release: BaseRelease, delta: float, options: dict[str, Any], domain: Any) -> None:
    """Notes on stderr, then the release as JSON or in words."""
    if options["ledger"] is not None and options["seed"] is not None:
        click.echo(SEEDED, err=True)
    if delta and not release.guarantee.delta:
        click.echo(f"note: {release.guarantee.theorem} is pure; --delta is not used", err=True)
    if getattr(domain, "outcome_bound", None) is not None and domain.ranges is None:
        click.echo(f"warning: {reading.NO_RANGES}", err=True)
    if not release.private:
        click.echo(f"{release.guarantee.standing.upper()}: do not publish this release", err=True)
    text, blocks = release.to_json(), list(release.blocks())
    with screen.writing("stdout"):  # behind which a disk may be full: what was charged has been told
        click.echo(text) if options["as_json"] else screen.show(blocks)


def _planned_size(public: library.Domain, options: dict[str, Any]) -> tuple[int, int]:
    """Records and covariates that ``--plan`` is for. Raises DeclarationError where these are not declared."""
    from dp2erm_cvx.public import whole_number

    n_samples = whole_number("--plan", options["planned"], at_least=2)
    columns = getattr(public, "columns", None) or opt.names(options.get("covariates"))
    if not columns:
        raise DeclarationError("--plan: the covariates are not declared: give ranges, or --covariates A,B")
    return n_samples, len(columns)
