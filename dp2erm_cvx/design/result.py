"""The design itself: candidates in order, whether the first is useful, and all of it in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dp2erm_cvx.design.request import MOST_RECORDS, DesignRequest
from dp2erm_cvx.design.simulation import (
    COVERS,
    DesignRow,
    Models,
    design_candidates,
    half_width,
    own_candidates,
    simulated_table,
)
from dp2erm_cvx.display import Shown, grid, heading, law_text
from dp2erm_cvx.errors import DeclarationError, known_names
from dp2erm_cvx.parallel import Progress
from dp2erm_cvx.plan import EffectStudy, RuleStudy
from dp2erm_cvx.plan.predict import rule_noise
from dp2erm_cvx.privacy import Budget

if TYPE_CHECKING:
    from rich.table import Table

    from dp2erm_cvx.display import Block


#: By how much a rule has to be right more often than the best constant.
MARGIN = 0.1


@dataclass(frozen=True)
class DesignResult(Shown):
    """The ranked candidates.

    Parameters
    ----------
    request
        What was asked.
    rows
        The candidates, the first one first.
    beside
        The default pipeline at a budget that hides nothing, or the best constant rule.
    confounded_by
        How far the plain difference of means is off, in units of the outcome.
    required_n
        How many records would do, and how that is known; None where a candidate is useful.
    """

    request: DesignRequest
    rows: tuple[DesignRow, ...]
    beside: DesignRow
    confounded_by: float
    required_n: tuple[int, str] | None = None

    @property
    def best(self) -> DesignRow:
        """The first candidate: recommended where the design ``answers``."""
        return self.rows[0]

    @property
    def answers(self) -> bool:
        """True if the first is useful.

        Its interval is shorter than the guessed effect and covers it at least ``COVERS`` of the
        time; or its rule is right more often than the best constant, by more than ``MARGIN`` and
        than simulation error. On public records a rule has to be worth more than the best constant,
        by more than simulation error.
        """
        best = self.best
        if best.reason:
            return False
        if self.request.goal == "effect":
            return best.holds and best.width < (abs(self.request.net_effect) or math.inf)
        gains = np.array(self.beside.scores)[: len(best.scores)] - np.array(best.scores)
        least = MARGIN if self.request.public is None else 0.0
        return float(np.mean(gains)) > max(least, half_width(gains))

    @property
    def ranking(self) -> str:
        """Kind of ranking: "effect", "rule" or "rule on public records"."""
        public = self.request.public is not None and self.request.goal == "rule"
        return "rule on public records" if public else self.request.goal

    def row(self, name: str) -> DesignRow:
        """The row of one candidate; raises DeclarationError where there is none."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise DeclarationError(f"no candidate {known_names(name, list(rows))}")
        return rows[name]

    def blocks(self) -> Iterator[Block]:
        """Report: the scenario, the table, and the advice."""
        wanted = self.request
        goal = "a rule" if wanted.goal == "rule" else f"an effect ({wanted.estimand})"
        yield heading(
            f"Design of {goal}: n = {wanted.n_samples:,}, {law_text(wanted.budget)}, "
            f"{wanted.n_features} covariates"
        )
        if not self.answers:
            yield _verdict(self)
            yield ""
        yield from self._records()
        weights = wanted.domain.sampling
        if weights is not None:
            yield (
                f"Sampling weights are all {weights.mean:g}, as was guessed, where noise is that "
                f"of the bound {weights.largest:g}. Unequal ones leave the same noise, and more "
                "sampling error."
            )
        yield ""
        shown = _SHOWN[self.ranking]
        yield self._table(shown)
        yield f"{self._notes()}{shown.legend}"
        for row in self.rows:
            if row.reason:
                yield f"{row.name}: {row.reason}"
        yield ""
        if self.answers:
            yield _verdict(self)

    def _records(self) -> Iterator[Block]:
        """Where the records come from, and how far plain means are off."""
        wanted = self.request
        public = wanted.public
        off = f"The plain difference of means would be off by {self.confounded_by:+.3g}."
        if public is None:
            read = "No data were read, nothing was spent."
            yield f"Simulated from the public domain and the guess below. {read}"
            yield _guessed(self)
            yield (
                f"{off} Covariates fill their declared ranges, all matter alike, and how is drawn "
                f"anew in each of up to {wanted.replicates} datasets (seed {wanted.seed})."
            )
            return
        yield (
            f"Up to {wanted.replicates} samples (seed {wanted.seed}) of "
            f"{public.dataset.n_samples:,} records that were declared public: {public.source}. "
            "No private data were read, nothing was spent."
        )
        if wanted.goal == "effect":
            truth = (
                "a doubly robust estimate from all of them, without privacy, counts as the effect"
            )
            off = f"{off} Without knowing more, {truth}."
        yield off

    def _table(self, shown: _Shown) -> Table:
        """The pipelines that could be run, the best first, and what stands beside them."""
        table = grid("", "pipeline", *shown.headers, left=2)
        for row in (*self.rows, self.beside):
            has_numbers = not row.reason and bool(row.scores)
            if self.request.public is not None:
                has_numbers = has_numbers and math.isfinite(row.scores[0])
            if not has_numbers:
                continue
            place = ""
            if row.tied:
                place = "1" if row is self.best else "="
            table.add_row(place, row.name, *shown.cells(row))
        return table

    def _notes(self) -> str:
        """Sentences on simulation error, and on rows that rest on fewer datasets."""
        text = "±: simulation error (95 %). "
        tied = sum(row.tied for row in self.rows)
        if tied:
            text += (
                f"=: within simulation error of the best ({tied - 1} beside the first); of these "
                "the simplest stands first. "
            )
        runs = [len(row.scores) for row in self.rows if not row.reason]
        if runs and min(runs) < max(runs):
            text += (
                f"Rows that are clearly behind rest on fewer datasets, on {min(runs)} at least. "
            )
        return text

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: the request, the scenario, the rows and the verdict."""
        request = self.request
        scenario = request.filled
        guessed = [name for name, _, stated in request.scenario.stated(scenario) if not stated]
        required = None
        if self.required_n is not None:
            records, basis = self.required_n
            required = {"n_samples": records, "found": basis}
        return {
            "goal": request.goal,
            "estimand": request.estimand,
            "n_samples": request.n_samples,
            "n_features": request.n_features,
            "replicates": request.replicates,
            "seed": request.seed,
            **asdict(request.budget),
            "domain": request.domain.to_dict(),
            "scenario": asdict(scenario),
            "guessed": guessed,
            "confounded_by": self.confounded_by,
            "public": None if request.public is None else request.public.source,
            "answers": self.answers,
            "required_n": required,
            "beside": self.beside.to_dict(),
            "rows": [row.to_dict() for row in self.rows],
        }


#: A budget at which noise no longer matters.
_NO_PRIVACY = 1e5


def design(
    request: DesignRequest,
    models: Models | None = None,
    *,
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> DesignResult:
    """Try every candidate pipeline, rank them, and say whether the first is useful.

    No private record is read and nothing is spent: data are drawn from the scenario, or from the
    public records of the request. Every candidate sees the same datasets. An effect is ranked by
    its root mean square error among those whose intervals cover it often enough, a rule by its
    share of right decisions, on public records by its value. Candidates that paired differences do
    not tell from the best are tied with it; the first declared comes first, of the design's own the
    public rule of use.

    Where no candidate of its own is useful, larger numbers of records are simulated by the default
    pipeline. The result depends on the arguments alone, and not on the number of ``workers``.

    Parameters
    ----------
    request
        What is asked, for which records and which budget.
    models
        Unfitted estimators to compare, by name or as a list, each with a budget of its own. None:
        those that the design knows.
    workers
        Processes, -1 for all cores.
    progress
        Is told what is counted, how many of it are done, and their number.

    Returns
    -------
    result
        The candidates in their order, and the verdict.

    Raises
    ------
    DeclarationError
        For invalid models.
    DeclarationError, CalibrationError
        Where the default pipeline has no plan.
    """
    compared = design_candidates(request) if models is None else own_candidates(request, models)
    rows, beside, confounded_by = simulated_table(request, compared, workers, progress)
    if request.goal == "effect":
        free = replace(request, budget=Budget(_NO_PRIVACY))
        default = design_candidates(free, 1)
        ((row,), _, _) = simulated_table(free, default, workers, progress, "runs without privacy")
        beside = replace(row, name="default, without privacy", tied=False, model=None)
    result = DesignResult(request, rows, beside, confounded_by)
    if result.answers or result.best.reason or models is not None or request.public is not None:
        return result
    return replace(result, required_n=required_records(result, workers, progress))


#: Replicates at larger numbers of records.
_FEW = 20
#: The most records that are simulated there.
_SIMULATED = 25_000
#: Pipelines that are tried there beside the default.
_TRIED = 2


def required_records(result: DesignResult, workers: int, progress: Progress) -> tuple[int, str]:
    """Double records from where public predictions say, until a simulation answers.

    By the default pipeline and those that came first, with fewer replicates than the design itself.

    Returns
    -------
    The number of records, and how it is known: "simulated", "predicted" from public plans, or
    "more" where so many do not do.
    """
    request = result.request
    n = request.n_samples * math.sqrt(2.0)
    while n <= MOST_RECORDS and not _expected(result, int(n)):
        n *= math.sqrt(2.0)
    names = {row.name for row in result.rows[:_TRIED] if row.kind != "two_stage"}
    failed = 0
    records = _two_digits_upward(n)
    while records <= _SIMULATED:
        larger = replace(request, n_samples=records, replicates=_FEW)
        compared = design_candidates(larger, names=names)
        what = f"runs at n = {records:,}"
        rows, constant, off = simulated_table(larger, compared, workers, progress, what)
        beside = constant if request.goal == "rule" else result.beside
        if DesignResult(larger, rows, beside, off).answers:
            return records, "simulated"
        failed = records
        n *= 2.0
        records = _two_digits_upward(n)
    # coverage is known from simulations alone
    predictable = request.goal == "rule" or result.best.holds
    if failed or not predictable:
        return failed or request.n_samples, "more"
    if records > MOST_RECORDS:
        return MOST_RECORDS, "more"
    return records, "predicted"


def _two_digits_upward(n: float) -> int:
    """A number of records, rounded up to two digits: no more is known."""
    unit = int(10 ** max(math.floor(math.log10(n)) - 1, 0))
    return math.ceil(n / unit) * unit


def _expected(result: DesignResult, n: int) -> bool:
    """Whether public predictions expect an answer from so many records."""
    request = result.request
    plan = design_candidates(replace(request, n_samples=n), 1)[0].plan
    assert plan is not None
    if isinstance(plan.study, RuleStudy):
        spread = request.filled.effect_spread or 0.0
        noise = rule_noise(plan, np.zeros(request.n_features + 1)).effect
        # of two normals, the effect and the same with noise, so often the signs differ
        flipped = math.atan2(noise, spread) / math.pi
        return 1.0 - flipped > (result.beside.right or 0.5) + 1.5 * MARGIN
    assert isinstance(plan.study, EffectStudy)
    error = plan.study.error_at(request.filled.treated)
    return 4.0 * math.sqrt(error) < abs(request.net_effect)


#: What a part of the scenario is, for readers.
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


def _guessed(result: DesignResult) -> Table:
    """Table of the scenario, and of what of it was stated."""
    table = grid("the guess", "value", "", left=1)
    filled = result.request.filled
    for name, value, stated in result.request.scenario.stated(filled):
        if value is None or value is False:
            continue
        text = _value_text(value)
        if name == "confounding" and isinstance(value, str):
            text = f"{value}: {filled.log_odds:g}"
        table.add_row(_PARTS[name], text, "stated" if stated else "guessed")
    return table


def _value_text(value: Any) -> str:
    """A value of a scenario."""
    if value is True:
        return "yes"
    if isinstance(value, tuple):
        return ", ".join(value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _number(value: float, form: str = ".3g") -> str:
    """A number of a table; a dash where there is none."""
    if not math.isfinite(value):
        return "-"
    return format(value, form)


def _cells_of_effect(row: DesignRow) -> tuple[str, ...]:
    """The cells of a pipeline for an effect."""
    covers = "-"
    if not math.isnan(row.covers):
        covers = f"{row.covers:.2f} ±{row.covers_half:.2f}"
    return (
        f"{row.bias:+.3g} ±{row.bias_half:.1g}",
        f"{row.deviation:.3g}",
        f"{row.error:.3g} ±{row.error_half:.1g}",
        _number(row.noise),
        _number(row.width),
        covers,
    )


def _cells_of_rule(row: DesignRow) -> tuple[str, ...]:
    """The cells of a pipeline for a rule."""
    right = f"{row.right:.3f} ±{row.right_half:.3f}"
    return right, f"{row.lost:.3g}", _number(row.noise)


def _cells_of_value(row: DesignRow) -> tuple[str, ...]:
    """The cells of a pipeline for a rule that is judged on public records."""
    value = f"{row.value:.4g} ±{row.value_half:.1g}"
    return value, _number(row.noise), _number(row.effective, ".0%")


class _Shown(NamedTuple):
    """A table of a design.

    Parameters
    ----------
    headers
        Of its columns.
    cells
        The cells of a row.
    legend
        Sentences on what the columns are.
    """

    headers: tuple[str, ...]
    cells: Callable[[DesignRow], tuple[str, ...]]
    legend: str


#: The table by what is ranked.
_SHOWN = {
    "effect": _Shown(
        ("bias", "sd", "error", "noise", "width", "covers"),
        _cells_of_effect,
        "error: root mean square of estimate less truth; noise: half width that noise alone "
        "leaves; width: of the median 95 % interval; covers: how often it covers the effect. "
        "Below all others: rows without an interval, or with one that covers less than "
        f"{COVERS:g}, by their coverage.",
    ),
    "rule": _Shown(
        ("right decisions", "lost", "noise"),
        _cells_of_rule,
        "lost: mean effect that wrong decisions forgo, per record; noise: what it moves the "
        "effect of one record by, as the release will say it.",
    ),
    "rule on public records": _Shown(
        ("value", "noise", "effective sample"),
        _cells_of_value,
        "value: mean outcome under the rule, by inverse propensities, on records that the sample "
        "left out; noise: what it moves the effect of one record by; effective sample: of "
        "weights, 100% where they balance nothing.",
    ),
}


def _verdict(result: DesignResult) -> str:
    """What to take, or that no pipeline answers, why, and how many records would do."""
    best = result.best
    if result.answers:
        return f"Take: {best.name}. {_expectation(result)}."
    request = result.request
    return (
        f"No pipeline answers this at n = {request.n_samples:,}, epsilon = "
        f"{request.budget.epsilon:g}: {_reason(result)}. {_enough(result)}"
    )


def _expectation(result: DesignResult) -> str:
    """Clause on what the first pipeline is expected to do."""
    best = result.best
    if result.ranking == "effect":
        return (
            f"Expect an interval {best.width:.3g} wide, which covers the effect in "
            f"{best.covers:.0%} of the simulated studies"
        )
    if result.ranking == "rule":
        return f"It is {_right(result)}"
    return f"Its value is {_value(result)}"


def _reason(result: DesignResult) -> str:
    """Clause on why no pipeline answers."""
    best = result.best
    if best.reason:
        return "none could be run"
    if result.ranking == "effect":
        return _reason_of_effect(result)
    if result.ranking == "rule":
        return (
            f"the best is {_right(result)}, and a gain below {MARGIN:.0%} is not considered useful"
        )
    return f"the best has the value {_value(result)}"


def _reason_of_effect(result: DesignResult) -> str:
    """Clause on why no pipeline answers a question of an effect."""
    best = result.best
    if math.isnan(best.covers):
        return "no pipeline that could be run has an interval"
    if not best.holds:
        return (
            f"no 95 % interval covers the effect in {COVERS:.0%} of the simulated studies; the "
            f"nearest, {best.name}, does in {best.covers:.0%}"
        )
    effect = abs(result.request.net_effect)
    return f"the interval is {best.width:.3g} wide, the guessed effect {effect:.3g}"


def _right(result: DesignResult) -> str:
    """Clause on how often a rule is right, beside the best constant one."""
    return (
        f"right for {result.best.right:.1%}, the best constant rule for {result.beside.right:.1%}"
    )


def _value(result: DesignResult) -> str:
    """The value of a rule, beside that of the best constant one where it is known."""
    text = f"{result.best.value:.4g}"
    if not math.isnan(result.beside.value):
        text += f", that of the best constant rule {result.beside.value:.4g}"
    return text


def _enough(result: DesignResult) -> str:
    """How many records would do, and whether privacy is what is in the way."""
    lead = ""
    more_epsilon = ", or a larger epsilon"
    if result.request.goal == "effect":
        if result.beside.covers < COVERS:
            covers = f"{result.beside.covers:.0%}"
            lead = f"Without privacy the default covers it in {covers}. "
            more_epsilon = ""
        elif result.beside.width >= abs(result.request.net_effect):
            lead = "Without privacy it would be no better. "
    if result.required_n is None:
        return lead
    records, how = result.required_n
    if how == "more":
        return f"{lead}You need more than n = {records:,}{more_epsilon}."
    if how == "predicted":
        how = "predicted, not simulated"
    return f"{lead}You need about n = {records:,} ({how})."
