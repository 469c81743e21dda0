"""``dp2erm plan``: what a release would cost in accuracy, before any budget is spent."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import (
    CALIBRATION,
    Number,
    calibration_options,
    domain_options,
    json_option,
    noise_options,
    number_list,
    second_stage_options,
)
from dp2erm_cvx.cli.own_program import known_name
from dp2erm_cvx.cli.screen import advance, console, print_json, progress
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.compare.planned import GridRow

#: Settings of the first stage that may be lists.
AXES = ("ridge", "radius", "trim")

_EXAMPLE = """\b
Example:
dp2erm plan --program ipw_logistic --second-stage arm_means --covariate-bound 2 --outcome-bound 10 \\
    --n 400,1600 --ridge 0.1,1 --trim 4,10 --epsilon 0.5,1,2
"""


@click.command(
    "plan", short_help="Noise and predicted error over a grid, before budget is spent.", epilog=_EXAMPLE
)
@click.option("--program", default="entropy_balancing", help="First stage, or FILE.py.")
@click.option("--n", "n_samples", required=True, metavar="N,N,...", help="Numbers of records.")
@click.option("--ridge", metavar="X,X,...", help="Ridges of the first stage [its default].")
@click.option("--radius", metavar="X,X,...", help="Radii of the first stage [its default].")
@click.option("--trim", metavar="X,X,...", help="Trims of the first stage [its default].")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Other setting; repeatable.")
@second_stage_options
@domain_options
@click.option("--n-features", type=Number(), help="Number of covariates [that of the ranges].")
@click.option("--epsilon", default="1", metavar="X,X,...", help="Privacy budgets.")
@click.option("--delta", type=Number(), default=0.0, show_default=False, help="Part of every budget [0].")
@noise_options
@calibration_options
@json_option
def plan_command(program: str, as_json: bool, **options: Any) -> None:
    """Tabulate what releases would cost, from public quantities alone. No data are read, no budget is spent.

    V bounds how far one record moves the weights. The noise is the 2.5-97.5 % range of the effect (of a
    middle coordinate of theta where the program has no one effect), predicted with half of the weight in
    each arm.
    """
    rows: list[GridRow] = []
    costs: dict[int, str | None] = {}
    with progress("planning") as bar:
        from dp2erm_cvx.cli.reading import read_domain
        from dp2erm_cvx.cli.stages import count_features, read_settings, second_stage_of
        from dp2erm_cvx.compare.planned import plan_row
        from dp2erm_cvx.estimators import PrivateTwoStageERM
        from dp2erm_cvx.plan import NUMERICAL_SHARE
        from dp2erm_cvx.privacy import Budget
        from dp2erm_cvx.registry import build, first_stages

        domain = read_domain(options)
        program = known_name(program, "first")
        second = second_stage_of(options["second_stage"], options, domain.columns or (), domain)
        settings = read_settings({**options, **dict.fromkeys((*AXES, "arm_mass", "degree"))})
        axes = {name: number_list(f"--{name}", options[name]) for name in AXES if options[name] is not None}
        for name in axes:
            if name in settings:
                raise DeclarationError(f"setting {name!r} is given twice: give it once")
        sizes = [whole_number("--n", n, at_least=2) for n in number_list("--n", options["n_samples"])]
        levels = number_list("--epsilon", options["epsilon"])
        one = {name: values[0] for name, values in axes.items()}
        first = build(first_stages(), program, **settings, **one)
        features = count_features(domain, second, first, options["n_features"])
        (task,) = bar.task_ids
        declared = list(itertools.product(sizes, itertools.product(*axes.values()), levels))
        bar.update(task, total=len(declared))
        for n, values, epsilon in declared:
            chosen = dict(zip(axes, values, strict=True))
            model = PrivateTwoStageERM(
                domain,
                Budget(epsilon, options["delta"]),
                build(first_stages(), program, **settings, **chosen),
                second,
                noise=options["noise"],
                arithmetic=options["arithmetic"],
                numerical_share=options["numerical_share"] or NUMERICAL_SHARE,
                **{name: options[name] for name in CALIBRATION},
            )
            study = model.study(n, features)
            costs[n] = study.first.cost(study.universe)
            rows.append(plan_row(study))
            advance(bar)
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
        return
    for told in filter(None, costs.values()):
        click.echo(f"note: {told}", err=True)
    _show(rows, f"{program}, then {second.name}", options["calibration"] == "auto")


def _show(rows: Sequence[GridRow], title: str, automatic: bool) -> None:
    from dp2erm_cvx.plan.predict import DIFFERENCE

    screen = console()
    screen.print(f"{title}: planned from public quantities", style="bold")
    # settings that the program does not have, or that stay infinite, say nothing
    axes = [name for name in AXES if any(math.isfinite(getattr(one, name)) for one in rows)]
    headers = ["n", *axes, "eps", "V", "noise", "gamma", "pull", "stays", "excess", "Thm"]
    table = grid(*headers, *([] if automatic else ["auto"]), left=0, wrap=False)
    refused: dict[str, int] = {}
    for row in rows:
        if row.refusal is not None:
            mark = f"[{refused.setdefault(row.refusal, len(refused) + 1)}]"
            told = [_number(row.V), *"-----", f"refused {mark}"]
        else:
            spread = "-" if row.spread is None else f"±{row.spread:.3g}"
            told = [
                _number(row.V),
                spread,
                _number(row.gamma),
                *("-" if share is None else f"{share:.0%}" for share in (row.shrinkage, row.kept)),
                _number(row.predicted_error),
                _short(row.theorem),
            ]
        table.add_row(
            str(row.n_samples),
            *(_number(getattr(row, name)) for name in axes),
            f"{row.epsilon:g}",
            *told,
            *([] if automatic else [_short(row.automatic)]),
        )
    screen.print(table)
    for reason, number in refused.items():
        screen.print(f"[{number}] {reason}")
    screen.print(
        "noise: 2.5-97.5 % of what the second stage adds, before Theta cuts in; pull: how far gamma draws "
        f"theta toward 0; stays: of a difference of {DIFFERENCE:g} SD between the arms in one covariate, "
        "after weighting, on synthetic records; excess: predicted of the objective, for comparing rows. A "
        "private propensity adds noise of its own, which is not counted."
    )


def _short(theorem: str | None) -> str:
    return "-" if theorem is None else theorem.split(" (")[0].removeprefix("Theorem ")


def _number(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.3g}"
