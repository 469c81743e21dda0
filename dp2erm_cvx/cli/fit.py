"""``dp2erm fit``: one private release from a data file; ``dp2erm predict``: what it recommends."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, data_options, second_stage_options, setting_options
from dp2erm_cvx.cli.own_program import known_name
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.estimators import PrivateWorkings


# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm fit trial.csv --treatment a --outcome y --range age=18:90 --range bmi=15:45 \\
    --covariate-bound 1.4 --outcome-bound 10 --second-stage arm_means --epsilon 1
"""


@click.command("fit", short_help="One private release from a data file.", epilog=_EXAMPLE)
@click.argument("data", metavar="DATA.csv|.parquet")
@data_options
@click.option(
    "--program",
    default="entropy_balancing",
    show_default=True,
    help="First stage: a name of dp2erm programs, or FILE.py (FILE.py:CLASS if it holds several).",
)
@setting_options
@second_stage_options
@click.option("--epsilon", type=Number(), required=True, help="Privacy budget of this release.")
@click.option("--delta", type=Number(), default=0.0, show_default=False, help="Needed by Gaussian noise [0].")
@click.option(
    "--calibration",
    default="sharp",
    show_default=True,
    help="sharp, paper, paper-corrected, renyi, output or auto.",
)
@click.option("--noise", default="gamma", show_default=True, help="gamma (pure) or gaussian.")
@click.option("--split", type=Number(), help="Share of epsilon that pays for the noise [chosen publicly].")
@click.option(
    "--solver",
    default="first_certified",
    show_default=True,
    help="newton, projected_gradient, clarabel, scs, osqp, or the first of them that certifies.",
)
@click.option(
    "--value-share",
    type=Number(),
    help="Share of epsilon for the value of the rule against treating all and none [no value].",
)
@click.option(
    "--value-statistic", default="cells", show_default=True, help="cells or contrasts; see the docs on value."
)
@click.option(
    "--arithmetic",
    default="auto",
    show_default=True,
    help="counted (needs the extra secure), assumed, or auto: counted where it can be.",
)
@click.option("--numerical-share", type=Number(), help="Share of epsilon for counted arithmetic [0.005].")
@click.option("--json", "as_json", is_flag=True, help="Print the release as JSON and nothing else on stdout.")
@click.option("--output", metavar="FILE", help="Write the release as JSON.")
@click.option("--balance", is_flag=True, help="Show covariate balance on stderr: not private.")
@click.option("--love-plot", metavar="FILE.png", help="Draw covariate balance: not private.")
@click.option("--ledger", metavar="FILE", help="Charge this ledger before noise is drawn; see dp2erm ledger.")
@click.option("--dataset", metavar="NAME", help="Name of the data set in the ledger.")
@click.option("--seed", type=Number(), help="For tests only: the release is then NOT PRIVATE.")
def fit_command(data: str, **options: Any) -> None:
    """Release a private treatment rule or effect from DATA.

    Everything about the domain, the programs and the budget is public and must be declared without
    looking at the data. Covariates are scaled by their public ranges and clipped to the covariate bound; the
    outcome is centered and clipped to the outcome bound.
    """
    from dp2erm_cvx.cli.report import show_release
    from dp2erm_cvx.cli.screen import advance, progress, writable, write_text
    from dp2erm_cvx.errors import DeclarationError

    book = options["ledger"]
    if (book is None) != (options["dataset"] is None):
        raise DeclarationError("--ledger and --dataset go together: give both or neither")
    writable(options["output"], data, options["domain"], book)
    writable(options["love_plot"], data, options["domain"], options["output"], book)
    seed = options["seed"]
    if seed is not None and not isinstance(seed, int):
        raise DeclarationError(f"seed = {seed!r}: must be a whole number")
    charged = book is not None and seed is None
    with progress("reading the data", total=3) as bar:
        from dp2erm_cvx.cli.reading import first_stage, read_data, read_domain, second_stage, with_names
        from dp2erm_cvx.estimators import PrivateTwoStageERM
        from dp2erm_cvx.ledger import Ledger
        from dp2erm_cvx.privacy import Budget
        from dp2erm_cvx.solve import solver_by_name

        # everything that is declared is judged before the data are read
        budget = Budget(options["epsilon"], options["delta"])
        solver_by_name(options["solver"])
        domain = read_domain(options)
        first = first_stage(options["program"], options)
        dataset = read_data(data, options, domain)
        second = second_stage(options["second_stage"], options, dataset.columns, domain)
        advance(bar, "calibrating and solving")
        model = PrivateTwoStageERM(
            domain,
            budget,
            first,
            second,
            calibration=options["calibration"],
            noise=options["noise"],
            split=options["split"],
            solver=options["solver"],  # by name, which goes on to those that certify by design
            seed=seed,
            arithmetic=options["arithmetic"],
            value_share=options["value_share"],
            value_statistic=options["value_statistic"],
            **({} if options["numerical_share"] is None else {"numerical_share": options["numerical_share"]}),
            ledger=Ledger(book) if charged else None,
            dataset=options["dataset"] if charged else None,
        )
        model.fit(with_names(dataset), dataset.a, dataset.y)
        advance(bar, "predicting the noise")
        workings, release = model.private_workings_, model.release_
        if options["output"]:
            write_text(options["output"], release.to_json() + "\n")
        if options["love_plot"]:
            from dp2erm_cvx.plotting import love_plot

            love_plot(workings.balance(), options["love_plot"])
        plan = model.plan(dataset.n_samples, len(dataset.columns))
    _for_the_data_holder(workings, options)
    if charged:
        click.echo(f"charged to {options['dataset']!r}: {model.receipt_}", err=True)
    elif book is not None:
        click.echo("note: seeded, hence not private: nothing is charged to the ledger", err=True)
    if budget.delta and not release.guarantee.delta:
        click.echo(f"note: {release.guarantee.theorem} is pure; --delta is not used", err=True)
    if not release.private:
        click.echo(f"{release.guarantee.standing.upper()}: do not publish this release", err=True)
    if options["as_json"]:
        click.echo(release.to_json())
    else:
        show_release(release, second, domain, plan)


def _for_the_data_holder(workings: PrivateWorkings, options: dict[str, Any]) -> None:
    for solution in (workings.weights, workings.theta):
        if not solution.certified:
            click.echo(f"warning: {solution.advice()}", err=True)
    if options["balance"]:
        from dp2erm_cvx.cli.report import show_balance

        show_balance(workings.balance(), stderr=True)
    if options["love_plot"]:
        click.echo(f"NOT PRIVATE: love plot written to {options['love_plot']}", err=True)


@click.command("predict", short_help="Recommendations from a release alone.")
@click.argument("release", metavar="RELEASE.json")
@click.argument("data", metavar="DATA.csv|.parquet")
@click.option("--second-stage", metavar="FILE.py", help="The file of a second stage of your own.")
@click.option("--output", metavar="FILE", help="Write the CSV to a file instead of stdout.")
def predict_command(release: str, data: str, second_stage: str | None, output: str | None) -> None:
    """Recommended treatment and estimated effect for every row of DATA, as CSV.

    Columns are found by name, then scaled and clipped exactly as in the fit. The effect is in units of the
    outcome, net of the public treatment cost; treatment is recommended where it is positive.
    """
    from pathlib import Path

    import numpy as np

    from dp2erm_cvx.cli.screen import progress, writable, write_text
    from dp2erm_cvx.release import Release
    from dp2erm_cvx.release.rule import effects as effects_of
    from dp2erm_cvx.release.rule import rule_of
    from dp2erm_cvx.tables import read_table

    writable(output)
    try:
        text = Path(release).read_bytes()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise DeclarationError(f"{release}: cannot be read: {told}") from None
    if second_stage is not None:
        known_name(second_stage, "second")
    with progress("predicting"):
        published = Release.from_json(text)
        rule_of(published)  # a damaged release is named before the data are read
        table = read_table(data)
        X = np.column_stack([table.numbers(name) for name in published.columns])
        effects = effects_of(published, X)
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row", "treatment", "effect"))
        writer.writerows((k + 1, int(effect > 0), repr(float(effect))) for k, effect in enumerate(effects))
    if not published.private:
        click.echo(
            f"{published.guarantee.standing.upper()}: this release has no unconditional guarantee", err=True
        )
    if output:
        write_text(output, file.getvalue())
    else:
        click.echo(file.getvalue(), nl=False)
