"""``--plan N``: what a release of N records would spend and how far off it would be, before data are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, names
from dp2erm_cvx.cli.screen import console, print_json
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.plan import Plan

plan_option = click.option(
    "--plan",
    "planned",
    type=Number(),
    metavar="N",
    help="Print what a release of N records would spend and how far off it would be; DATA is not read.",
)


def planned(model: Any, options: dict[str, Any]) -> bool:
    """Show the plan of ``model`` where ``--plan`` asks for it; whether it does.

    Raises DeclarationError where the number of covariates is not declared, CalibrationError where no theorem
    covers what is.
    """
    from dp2erm_cvx.public import whole_number

    if options["planned"] is None:
        return False
    n_samples, domain = whole_number("--plan", options["planned"], at_least=2), model.domain
    columns = getattr(domain, "columns", None) or names(options["covariates"]) or ()
    if not columns:
        raise DeclarationError("--plan: the covariates are not declared: give ranges, or --covariates A,B")
    show_plan(model.plan(n_samples, len(columns)), n_samples, as_json=options["as_json"])
    return True


def show_plan(plan: Plan, n_samples: int, *, as_json: bool, name: str | None = None) -> None:
    """What a plan spends, step by step, and what is predicted of its release."""
    rows, predicted = _steps(plan), _predicted(plan)
    if as_json:
        spent = {"epsilon": plan.guarantee.epsilon, "delta": plan.guarantee.delta}
        steps = [dict(zip(_FIELDS, row, strict=True)) for row in rows]
        facts = {fact: value for fact, (value, _) in predicted.items()}
        title = {} if name is None else {"name": name}
        print_json({**title, "n_samples": n_samples, "guarantee": spent, "steps": steps, "predicted": facts})
        return
    screen = console()
    head = "Planned" if name is None else f"{name}: planned"
    screen.print(f"{head} for {n_samples:,} records. No data were read; nothing is spent.", style="bold")
    table = grid("step", "epsilon", "delta", "noise scale", "theorem", left=0)
    for step, theorem, epsilon, delta, scale in rows:
        table.add_row(step, f"{epsilon:.4g}", f"{delta:.3g}", f"{scale:.4g}", theorem)
    screen.print(table)
    screen.print(f"Together: epsilon = {plan.guarantee.epsilon:g}, delta = {plan.guarantee.delta:g}.")
    for value, sentence in predicted.values():
        screen.print(sentence.format(value))


_FIELDS = ("step", "theorem", "epsilon", "delta", "scale")


def _steps(plan: Plan) -> list[tuple[str, str, float, float, float]]:
    """Name, theorem, epsilon, delta and noise scale of every step, in its own units."""
    return [
        (step.name, step.theorem, step.guarantee.epsilon, step.guarantee.delta, _scale(step.calibration))
        for step in plan.steps
    ]


def _scale(calibration: Any) -> float:
    """The noise scale: of integers in what they count, and the largest where sums have several."""
    from dp2erm_cvx.calibration import IntegerNoise

    if isinstance(calibration, IntegerNoise):
        return calibration.unit * calibration.scale
    scales: tuple[float, ...] = getattr(calibration, "scales", None) or (calibration.scale,)
    return max(scales)


def _predicted(plan: Plan) -> dict[str, tuple[float, str]]:
    """What is predicted of the release from public numbers, each with its sentence."""
    from dp2erm_cvx.plan import EffectPlan, TwoStagePlan
    from dp2erm_cvx.plan.predict import kept_imbalance, planned_range
    from dp2erm_cvx.program import LossStage
    from dp2erm_cvx.release.caveats import remains

    if isinstance(plan, EffectPlan):
        half = 1.96 * math.sqrt(plan.study.predicted_error)
        return {"half_width": (half, "Predicted 95 % half width: {:.3g}, in units of the outcome.")}
    if not isinstance(plan, TwoStagePlan):
        return {}
    if cost := plan.study.first.cost(plan.study.universe):
        click.echo(f"note: {cost}", err=True)
    facts = {"V": (plan.bound.V, "The weights move by at most V = {:.4g} when one record is replaced.")}
    share = kept_imbalance(plan)
    if share is not None:
        facts["residual_imbalance"] = (share, remains(share, "difference between the arms"))
    if isinstance(plan.study.second, LossStage) and plan.study.second.squared:
        moved = planned_range(plan)
        whose = "the effect" if moved.effect is not None else "a middle coefficient"
        half = float(sorted(moved.half_width)[len(moved.half_width) // 2])
        half = half if moved.effect is None else moved.effect
        facts["noise_half_width"] = (half, f"95 % of the noise in {whose} is within {{:.3g}}.")
        facts["shrinkage"] = (moved.shrinkage, "Its ridge draws it toward 0 by {:.0%}.")
    return facts


def data_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """The data file of a command that can be planned without it."""
    return click.argument("data", metavar="DATA.csv|.parquet", required=False)(plan_option(command))
