"""The design itself: candidates in order, whether the first is useful, and all of it in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

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
    from dp2erm_cvx.display import Block


#: By how much a rule has to be right more often than the best constant.
MARGIN = 0.1


@dataclass(frozen=True)
class DesignResult(Shown):
    """The ranked candidates.

    ``beside`` is the default pipeline at a budget that hides nothing, or the best constant rule.
    ``confounded_by`` says how far the plain difference of means is off, in units of the outcome.
    ``required_n`` is there where no candidate is useful.
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
        return float(np.mean(gains)) > max(
            MARGIN if self.request.public is None else 0.0, half_width(gains)
        )

    @property
    def ranking(self) -> str:
        """Kind of ranking: "effect", "rule" or "rule on public records"."""
        public = self.request.public is not None and self.request.goal == "rule"
        return "rule on public records" if public else self.request.goal

    def row(self, name: str) -> DesignRow:
        """The row of one candidate. Raises DeclarationError where there is none."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise DeclarationError(f"no candidate {known_names(name, list(rows))}")
        return rows[name]

    def blocks(self) -> Iterator[Block]:
        """Report: the scenario, the table, and the advice."""
        wanted, public = self.request, self.request.public
        goal = "a rule" if wanted.goal == "rule" else f"an effect ({wanted.estimand})"
        yield heading(
            f"Design of {goal}: n = {wanted.n_samples:,}, {law_text(wanted.budget)}, "
            f"{wanted.n_features} covariates"
        )
        if not self.answers:
            yield _verdict(self)
            yield ""
        off = f"The plain difference of means would be off by {self.confounded_by:+.3g}."
        if public is None:
            read = "No data were read, nothing was spent."
            yield f"Simulated from the public domain and the guess below. {read}"
            yield _guessed(self)
            yield (
                f"{off} Covariates fill their declared ranges, all matter alike, and how is drawn "
                f"anew in each of up to {wanted.replicates} datasets (seed {wanted.seed})."
            )
        else:
            yield (
                f"Up to {wanted.replicates} samples (seed {wanted.seed}) of "
                f"{public.dataset.n_samples:,} records that were declared public: {public.source}. "
                "No private data were read, nothing was spent."
            )
            truth = (
                "a doubly robust estimate from all of them, without privacy, counts as the effect"
            )
            yield f"{off} Without knowing more, {truth}." if wanted.goal == "effect" else off
        if (weights := wanted.domain.sampling) is not None:
            yield (
                f"Sampling weights are all {weights.mean:g}, as was guessed, where noise is that "
                f"of the bound {weights.largest:g}. Unequal ones leave the same noise, and more "
                "sampling error."
            )
        yield ""
        headers, cells, legend = _SHOWN[self.ranking]
        table = grid("", "pipeline", *headers, left=2)
        for row in (*self.rows, self.beside):
            if not row.reason and row.scores and (public is None or math.isfinite(row.scores[0])):
                table.add_row(
                    "" if not row.tied else "1" if row is self.best else "=", row.name, *cells(row)
                )
        yield table
        text = "±: simulation error (95 %). "
        if (tied := sum(row.tied for row in self.rows) - 1) >= 0:
            text += (
                f"=: within simulation error of the best ({tied} beside the first); of these the "
            )
            text += "simplest stands first. "
        runs = [len(row.scores) for row in self.rows if not row.reason]
        if runs and min(runs) < max(runs):
            text += (
                f"Rows that are clearly behind rest on fewer datasets, on {min(runs)} at least. "
            )
        yield text + legend
        yield from (f"{row.name}: {row.reason}" for row in self.rows if row.reason)
        yield ""
        if self.answers:
            yield _verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values: the request, the scenario, the rows and the verdict."""
        request, scenario = self.request, self.request.filled
        named = ("goal", "estimand", "n_samples", "n_features", "replicates", "seed")
        return {
            **{name: getattr(request, name) for name in named},
            **asdict(request.budget),
            "domain": request.domain.to_dict(),
            "scenario": asdict(scenario),
            "guessed": [
                name for name, _, declared in request.scenario.stated(scenario) if not declared
            ],
            "confounded_by": self.confounded_by,
            "public": None if request.public is None else request.public.source,
            "answers": self.answers,
            "required_n": self.required_n
            and dict(zip(("n_samples", "found"), self.required_n, strict=True)),
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

    Raises DeclarationError for invalid models, and DeclarationError or CalibrationError where the
    default pipeline has no plan.
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


#: Replicates, the most records that are simulated, and pipelines that are tried beside the default.
_FEW, _SIMULATED, _TRIED = 20, 25_000, 2


def required_records(result: DesignResult, workers: int, progress: Progress) -> tuple[int, str]:
    """Double records from where public predictions say, until a simulation answers.

    By the default pipeline and those that came first, with fewer replicates than the design itself.
    Also how the number is known: "simulated", "predicted" from public plans, or "more" where so
    many do not do.
    """
    request, n = result.request, result.request.n_samples * math.sqrt(2.0)
    predictable = (
        request.goal == "rule" or result.best.holds
    )  # coverage is known from simulations alone
    while n <= MOST_RECORDS and not _expected(result, int(n)):
        n *= math.sqrt(2.0)
    names = {row.name for row in result.rows[:_TRIED] if row.kind != "two_stage"}
    failed = 0

    def upward(n: float) -> int:  # two significant digits: no more is known
        unit = int(10 ** max(math.floor(math.log10(n)) - 1, 0))
        return math.ceil(n / unit) * unit

    while (records := upward(n)) <= _SIMULATED:
        larger = replace(request, n_samples=records, replicates=_FEW)
        compared = design_candidates(larger, names=names)
        rows, constant, off = simulated_table(
            larger, compared, workers, progress, f"runs at n = {records:,}"
        )
        beside = constant if request.goal == "rule" else result.beside
        if DesignResult(larger, rows, beside, off).answers:
            return records, "simulated"
        failed, n = records, 2.0 * n
    if failed or not predictable:
        return failed or request.n_samples, "more"
    return (records, "predicted") if records <= MOST_RECORDS else (MOST_RECORDS, "more")


def _expected(result: DesignResult, n: int) -> bool:
    """True if public predictions expect an answer from so many records."""
    request = result.request
    plan = design_candidates(replace(request, n_samples=n), 1)[0].plan
    assert plan is not None
    if isinstance(plan.study, RuleStudy):
        spread, noise = (
            request.filled.effect_spread,
            rule_noise(plan, np.zeros(request.n_features + 1)).effect,
        )
        # of two normals, the effect and the same with noise, so often the signs differ
        flipped = math.atan2(noise, spread or 0.0) / math.pi
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


def _guessed(result: DesignResult) -> Any:
    table = grid("the guess", "value", "", left=1)
    filled = result.request.filled
    for name, value, declared in result.request.scenario.stated(filled):
        if value is None or value is False:
            continue
        text = (
            ", ".join(value) if isinstance(value, tuple) else "yes" if value is True else str(value)
        )
        if name == "confounding" and isinstance(value, str):
            text = f"{value}: {filled.log_odds:g}"
        elif isinstance(value, float):
            text = f"{value:g}"
        table.add_row(_PARTS[name], text, "stated" if declared else "guessed")
    return table


def _number(value: float, form: str = ".3g") -> str:
    return "-" if not math.isfinite(value) else format(value, form)


#: By what is ranked: columns of the table, the cells of a row, and what they are.
_SHOWN: dict[str, tuple[tuple[str, ...], Callable[[DesignRow], tuple[str, ...]], str]] = {
    "effect": (
        ("bias", "sd", "error", "noise", "width", "covers"),
        lambda row: (
            f"{row.bias:+.3g} ±{row.bias_half:.1g}",
            f"{row.deviation:.3g}",
            f"{row.error:.3g} ±{row.error_half:.1g}",
            _number(row.noise),
            _number(row.width),
            "-" if math.isnan(row.covers) else f"{row.covers:.2f} ±{row.covers_half:.2f}",
        ),
        "error: root mean square of estimate less truth; noise: half width that noise alone "
        "leaves; width: of the median 95 % interval; covers: how often it covers the effect. "
        "Below all others: rows without an interval, or with one that covers less than "
        f"{COVERS:g}, by their coverage.",
    ),
    "rule": (
        ("right decisions", "lost", "noise"),
        lambda row: (
            f"{row.right:.3f} ±{row.right_half:.3f}",
            f"{row.lost:.3g}",
            _number(row.noise),
        ),
        "lost: mean effect that wrong decisions forgo, per record; noise: what it moves the "
        "effect of one record by, as the release will say it.",
    ),
    "rule on public records": (
        ("value", "noise", "effective sample"),
        lambda row: (
            f"{row.value:.4g} ±{row.value_half:.1g}",
            _number(row.noise),
            _number(row.effective, ".0%"),
        ),
        "value: mean outcome under the rule, by inverse propensities, on records that the sample "
        "left out; noise: what it moves the effect of one record by; effective sample: of "
        "weights, 100% where they balance nothing.",
    ),
}


def _verdict(result: DesignResult) -> str:
    best, request, beside = result.best, result.request, result.beside
    constant = (
        "" if math.isnan(beside.value) else f", that of the best constant rule {beside.value:.4g}"
    )
    right = f"right for {best.right:.1%}, the best constant rule for {beside.right:.1%}"
    # what is taken, and why nothing is
    taken, why = {
        "effect": (
            f"Expect an interval {best.width:.3g} wide, which covers the effect in "
            f"{best.covers:.0%} of the simulated studies",
            f"the interval is {best.width:.3g} wide, the guessed effect "
            f"{abs(request.net_effect):.3g}",
        ),
        "rule": (
            f"It is {right}",
            f"the best is {right}, and a gain below {MARGIN:.0%} is not considered useful",
        ),
        "rule on public records": (
            f"Its value is {best.value:.4g}{constant}",
            f"the best has the value {best.value:.4g}{constant}",
        ),
    }[result.ranking]
    if result.answers:
        return f"Take: {best.name}. {taken}."
    if best.reason:
        why = "none could be run"
    elif request.goal == "effect" and math.isnan(best.covers):
        why = "no pipeline that could be run has an interval"
    elif request.goal == "effect" and not best.holds:
        why = (
            f"no 95 % interval covers the effect in {COVERS:.0%} of the simulated studies; the "
            f"nearest, {best.name}, does in {best.covers:.0%}"
        )
    nothing = (
        f"No pipeline answers this at n = {request.n_samples:,}, epsilon = "
        f"{request.budget.epsilon:g}"
    )
    return f"{nothing}: {why}. {_enough(result)}"


def _enough(result: DesignResult) -> str:
    """How many records would do, and whether privacy is what is in the way."""
    lead, epsilon, effect = "", ", or a larger epsilon", result.request.goal == "effect"
    if effect and result.beside.covers < COVERS:
        lead, epsilon = f"Without privacy the default covers it in {result.beside.covers:.0%}. ", ""
    elif effect and result.beside.width >= abs(result.request.net_effect):
        lead = "Without privacy it would be no better. "
    if result.required_n is None:
        return lead
    records, how = result.required_n
    if how == "more":
        return lead + f"You need more than n = {records:,}{epsilon}."
    return (
        lead + f"You need about n = {records:,} ({how}{', not simulated' * (how == 'predicted')})."
    )
