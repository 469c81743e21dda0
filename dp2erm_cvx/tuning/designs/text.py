"""A design for readers: what was guessed, what candidates did, and whether the first is worth reading."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.display import grid, heading
from dp2erm_cvx.tuning.designs.result import MARGIN
from dp2erm_cvx.tuning.designs.row import COVERS

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block
    from dp2erm_cvx.tuning.designs.result import DesignResult
    from dp2erm_cvx.tuning.designs.row import DesignRow

#: What a part of the guess is, for readers.
_PARTS = {
    "effect": "average effect",
    "effect_spread": "spread of the effect over covariates (sd)",
    "outcome_scale": "spread of the outcome (sd)",
    "explained": "share of its variance that covariates explain",
    "curved": "share of that which no line sees",
    "confounding": "confounding (sd of the log odds of treatment)",
    "treated": "share treated",
    "binary": "outcome of two values",
    "drivers": "covariates that matter",
}


def design_blocks(result: DesignResult) -> Iterator[Block]:
    """Everything that a design says."""
    asked = result.question
    delta = f", delta = {asked.budget.delta:g}" if asked.budget.delta else ""
    goal = "a rule" if asked.goal == "rule" else f"an effect ({asked.estimand})"
    yield heading(
        f"Design of {goal}: n = {asked.n_samples:,}, epsilon = {asked.budget.epsilon:g}{delta}, "
        f"{asked.n_features} covariates"
    )
    if not result.answers:
        yield _verdict(result)
        yield ""
    yield "Simulated from the public domain and the guess below. No data were read, nothing was spent."
    yield _guessed(result)
    yield (
        "The plain difference of means would be off by "
        f"{result.confounded_by:+.3g}. Covariates fill their declared ranges, all matter alike, and how is "
        f"drawn anew in each of the {asked.replicates} datasets (seed {asked.seed})."
    )
    if (weights := asked.domain.sampling) is not None:
        yield (
            f"Sampling weights are all {weights.mean:g}, as was guessed, where noise is that of the bound "
            f"{weights.largest:g}. Unequal ones leave the same noise, and more sampling error."
        )
    yield ""
    yield _rules(result) if asked.goal == "rule" else _effects(result)
    yield _legend(result)
    yield from _refused(result)
    yield ""
    if result.answers:
        yield _verdict(result)


def _guessed(result: DesignResult) -> Any:
    table = grid("the guess", "value", "", left=1)
    guess = result.question.guess
    for name, value, stated in guess.stated(result.question.filled):
        if value is None or value is False:
            continue
        told = ", ".join(value) if isinstance(value, tuple) else _told(value)
        if name == "confounding" and isinstance(value, str):
            told = f"{value}: {guess.log_odds:g}"
        table.add_row(_PARTS[name], told, "stated" if stated else "guessed")
    return table


def _effects(result: DesignResult) -> Any:
    table = grid("", "pipeline", "bias", "sd", "error", "noise", "width", "covers", left=2)
    for row in (*result.rows, result.beside):
        if not row.reason:
            covers = "-" if math.isnan(row.covers) else f"{row.covers:.2f} ±{row.covers_half:.2f}"
            table.add_row(
                _mark(result, row),
                row.name,
                f"{row.bias:+.3g} ±{row.bias_half:.1g}",
                f"{row.deviation:.3g}",
                f"{row.error:.3g} ±{row.error_half:.1g}",
                _number(row.noise),
                _number(row.width),
                covers,
            )
    return table


def _rules(result: DesignResult) -> Any:
    table = grid("", "pipeline", "right decisions", "lost", "noise", left=2)
    for row in (*result.rows, result.beside):
        if not row.reason:
            right = f"{row.right:.3f} ±{row.right_half:.3f}"
            table.add_row(_mark(result, row), row.name, right, f"{row.lost:.3g}", _number(row.noise))
    return table


def _mark(result: DesignResult, row: DesignRow) -> str:
    return "" if not row.tied else "1" if row is result.best else "="


def _legend(result: DesignResult) -> str:
    tied = sum(row.tied for row in result.rows) - 1
    told = "±: simulation error (95 %). "
    if tied >= 0:
        told += f"=: within simulation error of the best ({tied} beside the first); of these the simplest "
        told += "stands first. "
    if result.question.goal == "rule":
        return told + (
            "lost: mean effect that wrong decisions forgo, per record; noise: what it moves the effect of "
            "one record by, as the release will say it."
        )
    return told + (
        "error: root mean square of estimate less truth; noise: half width that noise alone leaves; width: "
        f"of the median 95 % interval; covers: how often it covers the effect. Below all others: rows "
        f"without an interval, or with one that covers less than {COVERS:g}, by their coverage."
    )


def _refused(result: DesignResult) -> Iterator[str]:
    for row in result.rows:
        if row.reason:
            yield f"{row.name}: {row.reason}"


def _verdict(result: DesignResult) -> str:
    best, asked = result.best, result.question
    if result.answers:
        if asked.goal == "rule":
            return (
                f"Take: {best.name}. It is right for {best.right:.0%}, the best constant rule for "
                f"{result.beside.right:.0%}."
            )
        return (
            f"Take: {best.name}. Expect an interval {best.width:.3g} wide, which covers the effect in "
            f"{best.covers:.0%} of the simulated studies."
        )
    nothing = f"No pipeline answers this at n = {asked.n_samples:,}, epsilon = {asked.budget.epsilon:g}"
    return f"{nothing}: {_why(result)}. {_enough(result)}"


def _why(result: DesignResult) -> str:
    best = result.best
    if best.reason:
        return "none could be run"
    if result.question.goal == "rule":
        return (
            f"the best is right for {best.right:.1%}, the best constant rule for {result.beside.right:.1%}, "
            f"and less than {MARGIN:.0%} more is not worth reading"
        )
    if math.isnan(best.covers):
        return "no pipeline that could be run has an interval"
    if not best.holds:
        return (
            f"no 95 % interval covers the effect in {COVERS:.0%} of the simulated studies; the nearest, "
            f"{best.name}, does in {best.covers:.0%}"
        )
    return f"the interval is {best.width:.3g} wide, the guessed effect {abs(result.question.net_effect):.3g}"


def _enough(result: DesignResult) -> str:
    found, free = result.enough, result.beside
    lead, epsilon = "", ", or a larger epsilon"
    if result.question.goal == "effect":
        if free.covers < COVERS:
            lead, epsilon = f"Without privacy the default covers it in {free.covers:.0%}. ", ""
        elif free.width >= abs(result.question.net_effect):
            lead = "Without privacy it would be no better. "
    if found is None:
        return lead
    if found.found == "more":
        return lead + f"You need more than n = {found.n_samples:,}{epsilon}."
    how = "simulated" if found.found == "simulated" else "predicted, not simulated"
    return lead + f"You need about n = {found.n_samples:,} ({how})."


def _told(value: Any) -> str:
    return "yes" if value is True else f"{value:g}" if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    return "-" if not math.isfinite(value) else f"{value:.3g}"
