"""``dp2erm effect``: one private average effect with an interval, from a data file."""

from __future__ import annotations

from typing import Any

import click

from dp2erm_cvx.cli.blocks import block_options, read_records
from dp2erm_cvx.cli.options import DeclaredCommand, Number, data_options, declared_settings, names
from dp2erm_cvx.cli.planned import data_argument, planned
from dp2erm_cvx.cli.releasing import Ordered, budget_options, check_files, release_options
from dp2erm_cvx.cli.screen import progress

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm effect trial.csv --treatment a --outcome y --domain domain.toml \\
    --prognostic age,bmi --residual-scale 4 --epsilon 1 --output effect.json
"""


@click.command(
    "effect",
    cls=DeclaredCommand,
    declared="dp2erm_cvx.estimators:PrivateEffect",
    short_help="A private average effect with an interval.",
    epilog=_EXAMPLE,
)
@data_argument
@data_options
@block_options
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
        from dp2erm_cvx.declared_domain import in_groups
        from dp2erm_cvx.estimators import PrivateEffect

        # everything that is declared is judged before the data are read
        ordered = Ordered.from_options(options)
        domain = read_domain(options) if options["private_ranges"] is None else read_ranges(options)
        settings = declared_settings(PrivateEffect, options)
        model = PrivateEffect(domain, ordered.budget, **settings, **ordered.arguments())
        model.check(domain.columns or names(options["covariates"]))
        if planned(model, options) or data is None:
            return
        domain = in_groups(domain, model.where, model.by)
        dataset = read_records(data, options, domain, bar, ordered.counts.append)
        ordered.fit(model, dataset)
    ordered.show(model, model.release_)
