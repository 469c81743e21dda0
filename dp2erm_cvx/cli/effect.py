"""``dp2erm effect``: one private average effect with an interval, from a data file."""

from __future__ import annotations

from typing import Any

import click

from dp2erm_cvx.cli.blocks import block_options, read_records
from dp2erm_cvx.cli.options import Number, data_options, level_of, names
from dp2erm_cvx.cli.planned import data_argument, planned
from dp2erm_cvx.cli.releasing import Ordered, budget_options, check_files, release_options
from dp2erm_cvx.cli.screen import progress

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm effect trial.csv --treatment a --outcome y --domain domain.toml \\
    --prognostic age,bmi --residual-scale 4 --epsilon 1 --output effect.json
"""


@click.command("effect", short_help="A private average effect with an interval.", epilog=_EXAMPLE)
@data_argument
@data_options
@block_options
@click.option(
    "--estimand",
    default="ate",
    help="ate: the average effect; att: among the treated; overlap: where either treatment is likely; "
    "risks: both risks of an event (0 or 1), their difference and ratios.",
)
@click.option(
    "--prognostic",
    metavar="A,B,...",
    help="Adjust for these covariates alone: a public choice; fewer mean less noise [all].",
)
@click.option(
    "--where",
    multiple=True,
    metavar="COLUMN=LEVEL",
    help="Count the records of this level alone, of a column with declared levels; repeatable.",
)
@click.option(
    "--by", metavar="COLUMN", help="The effect in every level of this column, with contrasts to the first."
)
@click.option(
    "--residual-scale",
    type=Number(),
    help="Public guess of the outcome's standard deviation given covariates [none: about twice the noise].",
)
@click.option(
    "--curved",
    metavar="A,B,...",
    help="Adjust for squares and products of these as well: at most three.",
)
@click.option(
    "--confounding",
    type=Number(),
    default=1.0,
    help="Public guess: how many standard deviations the arms lie apart at most, in any combination of "
    "covariates. The interval allows for it.",
)
@click.option(
    "--collinearity",
    type=Number(),
    default=1.0,
    help="Public guess: the least variance of a combination of standardized covariates, 1 where they are "
    "independent. Less makes the interval wider.",
)
@click.option(
    "--heterogeneity",
    type=Number(),
    default=0.25,
    help="Public guess: the standard deviation of effects given covariates, in that of residuals; 0 where "
    "all effects are equal. More makes the interval wider unless half are treated.",
)
@click.option(
    "--effect-center",
    type=Number(),
    help="Public guess of the effect [the released one where all scaled covariates are 0].",
)
@click.option("--level", type=Number(), default=0.95, help="Of the interval.")
@click.option(
    "--interval",
    default="effect",
    help="effect: for the effect, allowing for confounding that the noisy regressions leave; score: for the "
    "mean of the score at the released regressions, whatever they are.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="In place of the public rule, such as propensity=0.5 for a randomized trial; repeatable.",
)
@click.option(
    "--cells",
    multiple=True,
    metavar="NAME=CUT,...|NAME:N",
    help="Means in cells instead of lines: public cuts of a covariate, or a number of cells, from which a "
    "tree is grown on noisy counts; for each of at most a few covariates.",
)
@click.option(
    "--private-ranges",
    type=Number(),
    metavar="SHARE",
    help="Release the ranges that the domain does not declare, for this share of epsilon: 0.1 or more.",
)
@budget_options
@release_options
def effect_command(data: str | None, **options: Any) -> None:
    """Release the average effect of the treatment in DATA, doubly robust, with an interval.

    An outcome regression and a propensity are released first; then the mean of one score per record. What is
    declared is public, stated without looking at the data. Records outside the domain are clipped.
    """
    check_files(data, options)
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx.cli.private_ranges import read_ranges
        from dp2erm_cvx.cli.reading import read_domain
        from dp2erm_cvx.cli.stages import effect_settings
        from dp2erm_cvx.declared_domain import in_groups
        from dp2erm_cvx.estimators import PrivateEffect

        # everything that is declared is judged before the data are read
        ordered = Ordered.from_options(options)
        domain = read_domain(options) if options["private_ranges"] is None else read_ranges(options)
        domain = in_groups(domain, dict(map(level_of, options["where"])), options["by"])
        model = PrivateEffect(
            domain,
            ordered.budget,
            estimand=options["estimand"],
            prognostic=names(options["prognostic"]),
            residual_scale=options["residual_scale"],
            curved=names(options["curved"]),
            confounding=options["confounding"],
            collinearity=options["collinearity"],
            heterogeneity=options["heterogeneity"],
            effect_center=options["effect_center"],
            level=options["level"],
            interval=options["interval"],
            settings=effect_settings(options["settings"], options["cells"]),
            **ordered.arguments(),
        )
        model.check(domain.columns or names(options["covariates"]))
        if planned(model, options) or data is None:
            return
        dataset = read_records(data, options, domain, bar, ordered.counts.append)
        ordered.fit(model, dataset)
    ordered.show(model, model.release_)
