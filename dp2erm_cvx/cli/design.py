"""``dp2erm design``: which pipeline and which settings to take, before any data are read."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    DOMAIN_FIELDS,
    Number,
    apply,
    column_options,
    domain_options,
    json_option,
    names,
)
from dp2erm_cvx.cli.screen import console, print_json, progress, stages
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.design import DesignRow
    from dp2erm_cvx.domain import Domain

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm design --domain domain.toml --n 3000 --epsilon 1 --confounding weak --effect 2
"""

_guess_options = apply(
    click.option(
        "--effect",
        type=Number(),
        help="Average effect, in units of the outcome [.5 of the scale; rule: the cost].",
    ),
    click.option(
        "--effect-spread",
        type=Number(),
        help="Its standard deviation over covariates [.25 of what lines leave; rule: .5 of all].",
    ),
    click.option(
        "--outcome-scale", type=Number(), help="Standard deviation of the outcome [a third of its bound]."
    ),
    click.option(
        "--explained", type=Number(), default=0.5, help="Share of its variance that covariates explain."
    ),
    click.option("--curved", type=Number(), default=0.1, help="Share of that which no line sees."),
    click.option(
        "--confounding",
        type=Number(),
        default="moderate",
        help="none, weak (.4), moderate (.8), strong (1.6): standard deviation of the log odds of treatment.",
    ),
    click.option("--treated", type=Number(), default=0.5, help="Share of the records that are treated."),
    click.option(
        "--binary", is_flag=True, help="The outcome is one of two values: center plus or minus bound."
    ),
    click.option(
        "--drivers", metavar="A,B,...", help="Covariates that outcome and treatment depend on [all]."
    ),
)


@click.command("design", short_help="Which pipeline to take, by simulation from a guess.", epilog=_EXAMPLE)
@click.option("--n", "n_samples", type=Number(), required=True, help="Number of records.")
@click.option("--epsilon", type=Number(), required=True, help="Privacy budget of the release.")
@click.option("--delta", type=Number(), default=0.0, show_default=False, help="For Gaussian noise [0: none].")
@click.option("--goal", default="effect", help="effect (with an interval) or rule (whom to treat).")
@click.option("--estimand", default="ate", help="Of an effect: ate, att or overlap.")
@_guess_options
@domain_options
@column_options
@click.option("--n-features", type=Number(), help="Number of covariates [that of the ranges].")
@click.option("--replicates", type=Number(), default=50, help="Simulated datasets.")
@click.option("--seed", type=Number(), default=0, help="Makes the simulation repeatable.")
@click.option("--workers", type=Number(), default=1, help="Processes; -1 for all cores.")
@click.option(
    "--data", metavar="FILE", help="Name to put into the command: the file is not opened [DATA.csv]."
)
@json_option
def design_command(as_json: bool, **options: Any) -> None:
    """Rank pipelines by what they do on data simulated from the domain and a stated guess of the world.

    It reads no data and spends nothing. Whatever is not stated is guessed, and told as such. The last line is
    the command to run.
    """
    from dp2erm_cvx.cli.reading import read_public
    from dp2erm_cvx.design import DesignQuestion, Guess, design
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.parallel import whole_workers
    from dp2erm_cvx.privacy import Budget

    domain = read_public(options)
    if not isinstance(domain, Domain):
        raise DeclarationError(
            "ranges that are to be released cannot be simulated: guess them in a copy of the domain file"
        )
    features = options["n_features"] if domain.ranges is None else len(domain.ranges)
    if features is None:
        raise DeclarationError("the number of covariates is not declared: give --n-features, or ranges")
    parts = (
        "effect",
        "effect_spread",
        "outcome_scale",
        "explained",
        "curved",
        "confounding",
        "treated",
        "binary",
    )
    question = DesignQuestion(
        domain,
        options["n_samples"],
        features,
        Budget(options["epsilon"], options["delta"]),
        options["goal"],
        Guess(**{name: options[name] for name in parts}, drivers=names(options["drivers"])),
        options["estimand"],
        options["replicates"],
        options["seed"],
    )
    workers = whole_workers(options["workers"])
    with progress("simulating") as bar:
        result = design(question, workers=workers, told=stages(bar))
    commands = [command_of(row, domain, options) for row in result.rows]
    if as_json:
        plain = result.to_dict()
        rows = [row | {"run": run} for row, run in zip(plain["rows"], commands, strict=True)]
        print_json(plain | {"rows": rows, "run": commands[0] if result.answers else None})
        return
    screen = console()
    for block in result.blocks():
        screen.print(block)
    screen.print("Run:" if result.answers else "If you run it all the same:")
    click.echo(commands[0])


def command_of(row: DesignRow, domain: Domain, options: dict[str, Any]) -> str:
    """The command that runs a candidate on a data file, with everything public that was stated here."""
    book = domain.codebook
    if book is None or not book.treatment.column:
        options = {**options, "treatment": "TREATMENT"}
    if book is None or not book.outcome:
        options = {**options, "outcome": "OUTCOME"}
    words = ["dp2erm", row.command, options["data"] or "DATA.csv"]
    words += ["--domain", options["domain"]] if options["domain"] is not None else []
    for name in ("treatment", "outcome", "covariates", *DOMAIN_FIELDS):
        if options[name] is not None:
            words += ["--" + name.replace("_", "-"), str(options[name])]
    for one in options["ranges"]:
        words += ["--range", one]
    words += [*row.words, "--epsilon", str(options["epsilon"])]
    words += ["--delta", str(options["delta"])] if options["delta"] else []
    return shlex.join([*words, "--output", "release.json"])
