"""``dp2erm rule``: one private treatment rule, from a data file."""

from __future__ import annotations

from typing import Any

import click

from dp2erm_cvx.cli.blocks import block_options, read_records
from dp2erm_cvx.cli.options import DeclaredCommand, data_options, declared_settings, names
from dp2erm_cvx.cli.planned import data_argument, planned
from dp2erm_cvx.cli.releasing import Ordered, budget_options, check_files, release_options
from dp2erm_cvx.cli.screen import progress

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm rule trial.csv --treatment a --outcome y --domain domain.toml \\
    --outcome-scale 8 --epsilon 1 --output rule.json
dp2erm predict rule.json patients.csv
"""


@click.command(
    "rule",
    cls=DeclaredCommand,
    declared="dp2erm_cvx.estimators:PrivateRule",
    short_help="A private treatment rule.",
    epilog=_EXAMPLE,
)
@data_argument
@data_options
@block_options
@budget_options
@release_options
def rule_command(data: str | None, **options: Any) -> None:
    """Release a linear rule that says whom to treat, fitted to DATA.

    Where the budget leaves room, a regression of the outcome and a propensity are released first, and
    corrected for; before them the mean and the mean square of the covariates, by which records are placed.
    What is declared is public, and must be stated without looking at the data. Records outside the domain are
    clipped.
    """
    check_files(data, options)
    with progress("reading the data", total=2) as bar:
        from dp2erm_cvx.cli.reading import read_domain
        from dp2erm_cvx.estimators import PrivateRule

        # everything that is declared is judged before the data are read
        ordered = Ordered.from_options(options)
        domain = read_domain(options)
        settings = declared_settings(PrivateRule, options)
        model = PrivateRule(domain, ordered.budget, **settings, **ordered.arguments())
        model.check(domain.columns or names(options["covariates"]))
        if planned(model, options) or data is None:
            return
        dataset = read_records(data, options, domain, bar, ordered.counts.append)
        ordered.fit(model, dataset)
    ordered.show(model, model.release_)
