"""The pipelines that a design compares, on simulated datasets: what each does, and how they rank."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from dp2erm_cvx.design.private import Models, common_domain, named_models
from dp2erm_cvx.design.scenario import PublicData, SimulatedRun
from dp2erm_cvx.design.world import DesignQuestion, World, rounded
from dp2erm_cvx.diagnostics import effective_sample_size
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, Dp2ermError
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.parallel import Progress, run_tasks
from dp2erm_cvx.plan.predict import planned_range
from dp2erm_cvx.steps.nuisances import Confounding
from dp2erm_cvx.study_file import QUESTIONS

#: Raw covariates of which cells can be made, and the number of cells of each.
_CELLS, _CUTS = 2, 8
#: What is tried in the place of the public rule of an effect.
_EFFECT: Mapping[str, Mapping[str, Any]] = {
    "one propensity": {"propensity": "constant", "center_share": 0.6},
    "more regression": {"propensity": "constant", "center_share": 0.75},
    "logistic propensity": {"propensity": "logistic", "center_share": 0.45, "propensity_share": 0.2},
    "slopes of the effect": {"rows": "mix", "first_fit": 0.3, "propensity": "logistic", "center_share": 0.5},
    "larger cap": {"propensity": "logistic", "cap": 20.0, "center_share": 0.45, "propensity_share": 0.2},
}
#: What is tried in the place of the public rule of a rule.
_RULE: Mapping[str, Mapping[str, Any]] = {
    "rule alone": {"center_share": None, "propensity": None},
    "center and rule": {"center_share": 0.4, "propensity": None},
    "center, propensity and rule": {"center_share": 0.3, "propensity": "logistic"},
}
#: Settings that a study need not state.
_LEFT_OUT: Mapping[str, Any] = {
    "estimand": "ate",
    "prognostic": None,
    "confounding": 1.0,
    "heterogeneity": Confounding.heterogeneity,
}
#: First stages of weights, by their names.
_WEIGHTS = ("entropy_balancing", "ipw_private")


@dataclass(frozen=True, eq=False)
class Candidate:
    """One pipeline: its ``name``, the unfitted ``model``, and how a study declares it.

    ``kind`` is a key of :data:`~dp2erm_cvx.study_file.QUESTIONS`, empty for a model of one's own;
    ``settings`` are the arguments of the estimator beside domain and budget.
    """

    name: str
    kind: str
    settings: Mapping[str, Any]
    model: PrivateEstimator


def design_candidates(question: DesignQuestion, most: int | None = None) -> list[Candidate]:
    """At most ``most`` (None: all) that have a plan, the public rule of use first; no settings twice.

    Raises DeclarationError or CalibrationError where not even the public rule has a plan.
    """
    made = _rules(question) if question.goal == "rule" else _effects(question)
    candidates: list[tuple[Any, Candidate]] = []
    for one in made:
        try:
            study = one.model.plan(question.n_samples, question.n_features).study
        except (CalibrationError, DeclarationError):
            if not candidates:
                raise
            continue
        same = (type(study), getattr(study, "settings", study), getattr(study, "noise", None), study.universe)
        if same not in [other for other, _ in candidates]:
            candidates.append((same, one))
        if len(candidates) == most:
            break
    return [one for _, one in candidates]


def own_candidates(question: DesignQuestion, models: Models) -> list[Candidate]:
    """Estimators of one's own over the domain of the question, by name or as a list.

    Raises DeclarationError for another domain, or an estimator of something else.
    """
    kinds = (PrivateEffect if question.goal == "effect" else PrivateRule, PrivateTwoStageERM)
    named = named_models(models, kinds)
    if common_domain(named) != question.domain:
        raise DeclarationError("models: they declare another domain than the question")
    for name, model in named.items():
        weighted = question.goal == "effect" and isinstance(model, PrivateTwoStageERM)
        if weighted and model.resolved_second_stage().name != "arm_means":
            raise DeclarationError(f"models[{name!r}] releases a rule: ask for goal = 'rule'")
    return [Candidate(name, "", {}, model) for name, model in named.items()]


def _laws(question: DesignQuestion) -> list[str]:
    """Laws beside gamma noise: the shorter of it and box noise, and Gaussian noise with a delta."""
    return ["auto", "gaussian"] if question.budget.delta else ["auto"]


def _effects(question: DesignQuestion) -> Iterator[Candidate]:
    drivers = question.guess.drivers
    declared = {
        "estimand": question.estimand,
        "prognostic": None,
        "confounding": max(1.0, question.guess.log_odds),
        "heterogeneity": question.heterogeneity,
        "residual_scale": question.residual_scale,
    }
    yield _candidate(question, "effect", "default", declared)
    tried: dict[str, Mapping[str, Any]] = {"default": {}, **_EFFECT}
    columns = _raw(question) if drivers is None else drivers
    if 0 < len(columns) <= _CELLS:
        tried["cells"] = {"cells": dict.fromkeys(columns, _CUTS)}
    for name, settings in tried.items():
        for noise in _laws(question):
            named = name if drivers is None else f"{name}, drivers alone"
            yield _candidate(question, "effect", named, declared | {"prognostic": drivers}, settings, noise)
    if question.estimand == "ate":
        yield from _weights(question, "arm_means")


def _rules(question: DesignQuestion) -> Iterator[Candidate]:
    declared = {"outcome_scale": question.outcome_scale}
    bound = rounded(4.0 * question.outcome_scale)
    tried = {"default": {}, **_RULE}
    tried["factors on the response"] = {"propensity": "logistic", "response_bound": bound}
    for name, settings in tried.items():
        for noise in _laws(question):
            yield _candidate(question, "rule", name, declared, settings, noise)
    yield from _weights(question, "itr")


def _weights(question: DesignQuestion, second: str) -> Iterator[Candidate]:
    for first in _WEIGHTS:
        stages: dict[str, Any] = {"first_stage": first, "second_stage": second}
        model = QUESTIONS["weights"](question.domain, question.budget, **stages)
        yield Candidate(f"weights: {first}", "weights", stages, model)


def _candidate(
    question: DesignQuestion,
    kind: str,
    name: str,
    guessed: Mapping[str, Any],
    settings: Mapping[str, Any] | None = None,
    noise: str = "gamma",
) -> Candidate:
    """A pipeline by these settings; what the question declares itself is put over them."""
    own = dict(question.declared)
    settings = {**(settings or {}), **own.pop("settings", {})}
    full = {**guessed, "noise": noise, **own, "settings": settings}
    model = QUESTIONS[kind](question.domain, question.budget, **full)
    needless = {**_LEFT_OUT, "noise": "gamma", "settings": {}}
    declared = {key: value for key, value in full.items() if key not in needless or value != needless[key]}
    named = name if full["noise"] == "gamma" else f"{name}, {full['noise']} noise"
    return Candidate(named, kind, declared, model)


def _raw(question: DesignQuestion) -> tuple[str, ...]:
    """Columns of the table that covariates are made of, where they have names and no levels."""
    book = question.domain.codebook
    return () if book is not None and book.renames else question.domain.columns or ()


def replicate(
    question: DesignQuestion, compared: Sequence[Candidate], number: int
) -> tuple[list[SimulatedRun | str], SimulatedRun, float]:
    """Every candidate on the dataset of this number: what it did, or why it could not.

    With them the best constant decision, and how far the plain difference of means is off. All candidates
    see the same records.
    """
    rng = np.random.default_rng([question.seed, number, 1])
    source: World | PublicData
    if question.public is None:
        source = World(question.domain, question.n_features, question.filled, (question.seed, number))
    else:
        source = question.public
    world = source.scenario(question.domain, question.n_samples, question.goal, question.estimand, rng)
    trials, rule = list[SimulatedRun | str](), question.goal == "rule"
    for one in compared:
        model = clone(one.model).set_params(ledger=None, dataset=None, seed=int(rng.integers(2**62)))
        try:
            model.fit_announced(world.data)  # nobody holds simulated records
            if rule:
                run = world.judge(model, model.predict(world.judged_at) == 1)
                noise = model.release_.noise_effect if isinstance(model, PrivateRule) else math.nan
                run = replace(run, noise=noise)
            else:
                run = _estimated(model, world.truth)
            if isinstance(model, PrivateTwoStageERM):  # at 1 they balance nothing
                weights = model.private_workings_.weights.value
                run = replace(run, effective=effective_sample_size(weights) / len(weights))
            trials.append(run)
        except DeclarationError:
            raise  # a wrong setting, or a score that is no number: nothing of the data
        except Dp2ermError as error:
            trials.append(str(error))
    constants = []
    for arm in (False, True) if rule else ():
        with suppress(DataError):  # few records left out may all be of one arm
            constants.append(world.judge(None, np.full(len(world.judged_at.X), arm)))
    best = min(constants, key=lambda one: one.off, default=SimulatedRun(math.nan))
    return trials, best, world.confounded_by


def _estimated(model: PrivateEstimator, truth: float) -> SimulatedRun:
    if isinstance(model, PrivateEffect):
        low, high = (end - truth for end in model.interval_)
        noise = model.release_.interval.noise_half_width
        return SimulatedRun(model.effect_ - truth, low, high, math.nan if noise is None else noise)
    assert isinstance(model, PrivateTwoStageERM)
    control, treated = model.theta_
    return SimulatedRun(float(treated - control) - truth)


#: Share of the intervals that have to cover the effect, whose level is .95.
COVERS = 0.9
#: Standard errors of a half width.
_Z = 1.96


@dataclass(frozen=True)
class DesignRow:
    """One candidate; nan where something does not apply. ``..._half`` is the half width of simulation error.

    Attributes
    ----------
    name, kind, settings
        The candidate, and how a study file declares it, see :class:`~dp2erm_cvx.design.simulation.Candidate`.
    bias, deviation, error
        Mean, standard deviation and root mean square of estimate less truth, in units of the outcome.
    noise
        Half width that noise alone leaves an effect (95 %); of a rule, how far noise moves the effect of one
        record (root mean square).
    width, covers
        Median width of the interval, and how often it covers the effect.
    right, lost
        Share of right decisions, and the mean effect that the wrong ones forgo.
    value
        Mean outcome under a rule, or the score of one's own, on public records that samples leave out.
    effective
        Effective sample size of weights over n: at 1 they balance nothing.
    tied
        Whether it is within simulation error of the best.
    reason
        Why there is nothing, empty otherwise.
    scores
        What is ranked, by replicate: squared errors, shares of wrong decisions, values times -1.
    model
        The unfitted estimator; None for what is no candidate.
    """

    name: str
    kind: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    bias: float = math.nan
    bias_half: float = math.nan
    deviation: float = math.nan
    error: float = math.nan
    error_half: float = math.nan
    noise: float = math.nan
    width: float = math.nan
    covers: float = math.nan
    covers_half: float = math.nan
    right: float = math.nan
    right_half: float = math.nan
    lost: float = math.nan
    value: float = math.nan
    value_half: float = math.nan
    effective: float = math.nan
    tied: bool = False
    reason: str = ""
    scores: tuple[float, ...] = field(default=(), repr=False)
    model: PrivateEstimator | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_effect(cls, name: str, trials: Sequence[SimulatedRun], noise: float) -> DesignRow:
        """The row of an effect; ``noise`` is that of weights, which state none."""
        off, low, high, own = np.array([(run.off, run.low, run.high, run.noise) for run in trials]).T
        many, squares = len(off), off**2
        error = math.sqrt(float(np.mean(squares)))
        held = (low <= 0.0) & (high >= 0.0)
        # two more on either side, so that the error of a share of 1 is not 0
        share = (float(np.sum(held)) + 2.0) / (many + 4.0)
        row = cls(
            name,
            bias=float(np.mean(off)),
            bias_half=half_width(off),
            deviation=float(np.std(off, ddof=1)),
            error=error,
            error_half=half_width(squares) / max(2.0 * error, 1e-300),
            noise=noise if np.isnan(own).all() else float(np.nanmedian(own)),
            effective=float(np.mean([run.effective for run in trials])),
            scores=tuple(squares.tolist()),
        )
        if np.isnan(low).any():
            return row
        half = _Z * math.sqrt(share * (1.0 - share) / (many + 4.0))
        width = float(np.median(high - low))
        return replace(row, width=width, covers=float(np.mean(held)), covers_half=half)

    @classmethod
    def of_rule(cls, name: str, trials: Sequence[SimulatedRun]) -> DesignRow:
        """The row of a rule, or of a constant."""
        wrong, noise, lost, value, effective = np.array(
            [(run.off, run.noise, run.lost, run.value, run.effective) for run in trials]
        ).T
        row = cls(
            name,
            noise=math.nan if np.isnan(noise).any() else float(np.mean(noise)),
            effective=float(np.mean(effective)),
            scores=tuple(wrong.tolist()),
        )
        half = half_width(wrong)
        if np.isnan(lost).any():
            return replace(row, value=float(np.mean(value)), value_half=half)
        return replace(row, right=1.0 - float(np.mean(wrong)), right_half=half, lost=float(np.mean(lost)))

    @property
    def holds(self) -> bool:
        """True if there is an interval, and it covers the effect often enough."""
        return self.covers >= COVERS

    def to_dict(self) -> dict[str, Any]:
        """Everything but scores and model, as plain values."""
        left_out = ("scores", "model")
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name not in left_out}


def ranked(question: DesignQuestion, rows: Sequence[DesignRow]) -> tuple[DesignRow, ...]:
    """The rows in order: those tied for the first place as they were declared, then by what is ranked.

    Effects whose intervals cover too seldom, or that have none, come after all others, by their coverage.
    """
    done = [row for row in rows if not row.reason]
    pool = [row for row in done if question.goal == "rule" or row.holds]
    best = min(pool, key=_mean, default=None)
    first = [replace(row, tied=True) for row in pool if best is not None and _within(row, best)]
    names = [row.name for row in first]
    rest = sorted((row for row in pool if row.name not in names), key=_mean)
    later = sorted(
        (row for row in done if row not in pool),
        key=lambda row: (2.0 if math.isnan(row.covers) else 1.0 - row.covers, _mean(row)),
    )
    return (*first, *rest, *later, *(row for row in rows if row.reason))


def _mean(row: DesignRow) -> float:
    return float(np.mean(row.scores))


def _within(row: DesignRow, best: DesignRow) -> bool:
    """True if paired differences do not tell a row from the best."""
    behind = np.array(row.scores) - np.array(best.scores)
    return float(np.mean(behind)) <= half_width(behind)


def half_width(values: np.ndarray) -> float:
    """The half width of the simulation error of their mean."""
    return _Z * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def simulated_table(
    question: DesignQuestion,
    compared: Sequence[Candidate],
    workers: int,
    progress: Progress,
    what: str = "replicates",
) -> tuple[tuple[DesignRow, ...], DesignRow, float]:
    """Ranked rows, that of the best constant rule, and by how much the plain means are confounded.

    ``progress`` counts the replicates, by the name ``what``.
    """
    progress(what, 0, question.replicates)
    tasks = ((question, compared, number) for number in range(question.replicates))
    runs = []
    for one in run_tasks(replicate, tasks, workers=workers):
        runs.append(one)
        progress(what, len(runs), question.replicates)
    trials, constant, off = zip(*runs, strict=True)
    rows = [_row(question, one, of) for one, of in zip(compared, zip(*trials, strict=True), strict=True)]
    return ranked(question, rows), DesignRow.of_rule("best constant rule", constant), float(np.mean(off))


def _row(question: DesignQuestion, candidate: Candidate, trials: Sequence[SimulatedRun | str]) -> DesignRow:
    failed = [trial for trial in trials if isinstance(trial, str)]
    done = [trial for trial in trials if isinstance(trial, SimulatedRun)]
    if failed:
        row = DesignRow(candidate.name, reason=f"{len(failed)} of {len(trials)} runs failed: {failed[0]}")
    elif question.goal == "rule":
        row = DesignRow.of_rule(candidate.name, done)
    else:
        noise = None  # effects state theirs; of weighted means it is planned
        if isinstance(candidate.model, PrivateTwoStageERM):
            noise = planned_range(candidate.model.plan(question.n_samples, question.n_features)).effect
        row = DesignRow.of_effect(candidate.name, done, math.nan if noise is None else noise)
    return replace(row, kind=candidate.kind, settings=candidate.settings, model=candidate.model)
