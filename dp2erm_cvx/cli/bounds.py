"""``dp2erm bounds``: every stability bound of a first stage, side by side."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, domain_options, json_option, setting_options
from dp2erm_cvx.cli.screen import console, print_json, progress, writable
from dp2erm_cvx.display import grid
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import whole_number

if TYPE_CHECKING:
    from dp2erm_cvx.compare import BoundCurve, BoundRow
    from dp2erm_cvx.program import FirstStage
    from dp2erm_cvx.universe import Universe

# \b keeps click from filling the lines
_EXAMPLE = """\b
Example:
dp2erm bounds --program ipw_logistic --n 400 --ridge 0.1 --radius 1 --covariate-bound 1
"""


@click.command("bounds", short_help="Every stability bound of a first stage, side by side.", epilog=_EXAMPLE)
@click.option(
    "--program", help="First stage, or FILE.py; without one --plot compares IPW, entropy balancing and MMD."
)
@click.option("--n", "n_samples", type=Number(), default=400, help="Number of records.")
@setting_options
@domain_options
@click.option("--second-stage", help="Noise for this one, or FILE.py [one of gradient radius 1].")
@click.option("--n-features", type=Number(), help="Number of covariates [that of the ranges].")
@click.option("--epsilon", type=Number(), default=1.0, help="Privacy budget.")
@click.option(
    "--delta",
    type=Number(),
    default=0.0,
    show_default=False,
    help="Above 0: Gaussian noise, else gamma noise [0].",
)
@click.option("--plot", metavar="FILE.png", help="Draw V against n and against the ridge (.png, .svg, .pdf).")
@json_option
def bounds_command(program: str | None, as_json: bool, plot: str | None, **options: Any) -> None:
    """Print what each family of bounds says about one first stage. No data are read.

    W1 and W2 are the movements that the paper bounds, V is the coupled variation. Scale and gamma are the
    noise and the ridge that the statement's own calibration asks for: the printed formulas for the printed
    bound alone, the corrected Gaussian exponent for the paper's other rows.
    """
    writable(plot)
    if program is None:
        _growth(plot, as_json)
        return
    with progress("bounding"):
        from dp2erm_cvx.calibration.base import Noise
        from dp2erm_cvx.cli.reading import read_domain
        from dp2erm_cvx.cli.stages import count_features, first_stage, second_stage_by_name
        from dp2erm_cvx.compare import UNIT_LOSS, bound_rows
        from dp2erm_cvx.privacy import Budget
        from dp2erm_cvx.universe import Universe

        n = whole_number("--n", options["n_samples"], at_least=2)
        if options["n_features"] is not None:
            whole_number("--n-features", options["n_features"], at_least=1)
        budget = Budget(options["epsilon"], options["delta"])
        named = options["second_stage"]
        domain = read_domain(options, {} if named else {"outcome_bound": 1.0})
        first, loss = first_stage(program, options), UNIT_LOSS
        universe = Universe(domain, n, 1)  # no bound depends on the number of covariates, only a loss does
        if named:
            second = second_stage_by_name(named, domain)
            named = second.name
            universe = Universe(domain, n, count_features(domain, second, first, options["n_features"]))
            loss = second.constants(universe)
        noise = Noise.GAUSSIAN if budget.delta else Noise.GAMMA
        rows = bound_rows(first, universe, budget, loss=loss, noise=noise)
        if plot:
            _draw(first, universe, plot)
    if as_json:
        print_json([_plain(row) for row in rows])
        return
    screen = console()
    spent = f"epsilon = {budget.epsilon:g}" + (f", delta = {budget.delta:g}" if budget.delta else "")
    screen.print(f"Stability of {first.name} with {n} records", style="bold")
    screen.print(
        f"neighbors: {domain.relation.value}; noise: {noise.value}, {spent}, {named or 'a unit loss'}"
    )
    _show(rows)
    if plot:
        screen.print(f"V against n and against the ridge: {plot}")


def _show(rows: Sequence[BoundRow]) -> None:
    from dp2erm_cvx.compare import UNIVERSAL

    screen = console()
    table = grid("bound", "W1", "W2", "V", "noise scale", "gamma", "x best", wrap=False)
    theorems, refusals = [], []
    for row in rows:
        if row.bound is not None:
            table.add_row(row.family, *map(_number, _values(row).values()))
            beyond = "; for any weights that exist, no calibration of fit" if row.family == UNIVERSAL else ""
            theorems.append(f"{row.family}: {row.bound.theorem}{beyond}")
        if row.refusal is not None:
            what = "refused" if row.bound is None else "no noise"
            refusals.append(f"{row.family}: {what}: {row.refusal}")
    for part in ([table] if theorems else []) + theorems + refusals:
        screen.print(part)


def _growth(plot: str | None, as_json: bool) -> None:
    if plot is None:
        raise DeclarationError("--program is missing: name a first stage, or give --plot alone")

    with progress("bounding"):
        from dp2erm_cvx.compare import SIZES, curve_table, growth
        from dp2erm_cvx.plotting import Panel, bound_plot

        curves = growth()
        title = "How far one record moves the weights, at a fixed ridge per record"
        bound_plot([Panel(title, "number of records n", curves)], plot)
        rows = list(curve_table(curves))
    if as_json:
        click.echo(
            json.dumps([dict(zip(("curve", "first", "last", "slope"), row, strict=True)) for row in rows])
        )
        return
    low, high = SIZES
    shown = grid("bound on V", f"n = {low:,}", f"n = {high:,}", "growth")
    for label, first, last, slope in rows:
        shown.add_row(label, _number(first), _number(last), f"n^{abs(slope):.2f}")
    screen = console()
    screen.print(shown)
    screen.print(
        "M = 1, at least a quarter of the records in each arm, ridge n times a constant: IPW ridge 0.1, "
        "radius 1; entropy balancing in the paper's scaling, ridge 1, radius 1; MMD ridge 1, weights up to "
        "5. The paper's statement on MMD is drawn for neighbors that keep their treatment: else it is false."
    )
    screen.print(f"drawn in {plot}")


def _draw(first: FirstStage, universe: Universe, path: str) -> None:
    from dp2erm_cvx.compare import against_n, against_ridge
    from dp2erm_cvx.plotting import Panel, bound_plot

    panels = [Panel(f"{first.name}, settings fixed", "number of records n", against_n(first, universe))]
    ridged: list[BoundCurve] = against_ridge(first, universe)
    if ridged:
        panels.append(Panel(f"{first.name}, n = {universe.n_samples:,}", "ridge", ridged))
    bound_plot(panels, path)


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else format(value, ",.4g" if value < 1e4 else ".4g")


def _plain(row: BoundRow) -> dict[str, Any]:
    bound = row.bound
    theorem, assumptions = (None, None) if bound is None else (bound.theorem, bound.assumptions)
    facts = {"family": row.family, "theorem": theorem, "assumptions": assumptions}
    return {**facts, **_values(row), "refusal": row.refusal}


def _values(row: BoundRow) -> dict[str, float | None]:
    bounds = {name: getattr(row.bound, name, None) for name in ("W1", "W2", "V")}
    noise = {name: getattr(row.calibration, name, None) for name in ("scale", "gamma")}
    return {**bounds, **noise, "ratio": row.ratio}
