"""``dp2erm fit``: one private release of a rule or of weighted means, from a data file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.blocks import block_options, read_records
from dp2erm_cvx.cli.options import (
    CALIBRATION,
    calibration_options,
    data_options,
    names,
    second_stage_options,
    setting_options,
)
from dp2erm_cvx.cli.planned import data_argument, planned
from dp2erm_cvx.cli.releasing import Ordered, budget_options, check_files, release_options
from dp2erm_cvx.cli.screen import progress
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.estimators import PrivateTwoStageERM, PrivateWorkings


# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm fit trial.csv --treatment a --outcome y --range age=18:90 --range bmi=15:45 \\
    --covariate-bound 1.4 --outcome-bound 10 --second-stage arm_means --epsilon 1
"""


@click.command("fit", short_help="One private release from a data file.", epilog=_EXAMPLE)
@data_argument
@data_options
@block_options
@click.option(
    "--program",
    default="entropy_balancing",
    help="First stage: a name of dp2erm programs, or FILE.py (FILE.py:CLASS if it holds several).",
)
@setting_options
@second_stage_options
@budget_options
@calibration_options
@click.option("--balance", is_flag=True, help="Show covariate balance on stderr: not private.")
@click.option("--love-plot", metavar="FILE.png", help="Draw covariate balance: not private.")
@release_options
def fit_command(data: str | None, **options: Any) -> None:
    """Release a private treatment rule or effect from DATA.

    Everything about the domain, the programs and the budget is public and must be declared without
    looking at the data. Covariates are scaled by their public ranges and clipped to the covariate bound; the
    outcome is centered and clipped to the outcome bound.
    """
    check_files(data, options, options["love_plot"])
    if options["love_plot"]:
        from dp2erm_cvx.plotting.figure import check_figure

        check_figure(options["love_plot"])
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx.cli.reading import read_domain
        from dp2erm_cvx.cli.stages import first_stage, second_stage_of
        from dp2erm_cvx.data import Dataset
        from dp2erm_cvx.estimators import PrivateTwoStageERM

        # everything that is declared is judged before the data are read
        ordered = Ordered.from_options(options)
        domain = read_domain(options)
        first = first_stage(options["program"], options)
        columns = domain.columns or names(options["covariates"]) or ()
        if data is not None and options["planned"] is None:
            dataset = read_records(data, options, domain, bar, ordered.counts.append)
            columns = dataset.columns
            if (options["balance"] or options["love_plot"]) and not isinstance(dataset, Dataset):
                raise DeclarationError(
                    "--balance and --love-plot need all records in memory: add --blocks never"
                )
        second = second_stage_of(options["second_stage"], options, columns, domain)
        model = PrivateTwoStageERM(
            domain,
            ordered.budget,
            first,
            second,
            **{name: options[name] for name in CALIBRATION},
            **ordered.arguments(),
        )
        if planned(model, options):
            return
        ordered.fit(model, dataset, lambda: _draw(model, options["love_plot"]))
    _for_the_data_holder(model.private_workings_, options)
    ordered.show(model, model.release_)


def _draw(model: PrivateTwoStageERM, path: str | None) -> None:
    if path is not None:
        from dp2erm_cvx.plotting import love_plot

        love_plot(model.private_workings_.balance(), path)


def _for_the_data_holder(workings: PrivateWorkings, options: dict[str, Any]) -> None:
    for solution in (workings.weights, workings.theta):
        told = solution is workings.weights and solution.substituted  # by the fit itself
        if not solution.certified and not told:
            click.echo(f"warning: {solution.advice()}", err=True)
    if options["balance"]:
        from dp2erm_cvx.cli.balance import show_balance

        show_balance(workings.balance(), stderr=True)
    if options["love_plot"]:
        click.echo(f"NOT PRIVATE: love plot written to {options['love_plot']}", err=True)
