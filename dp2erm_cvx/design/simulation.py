"""The pipelines that a design compares, on simulated datasets: results and ranks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from dp2erm_cvx.checks import one_line
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.design.request import DesignRequest, Population, rounded
from dp2erm_cvx.design.samples import DesignSample, SimulatedRun
from dp2erm_cvx.diagnostics import effective_sample_size
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, Dp2ermError
from dp2erm_cvx.estimators import PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.parallel import Progress, run_tasks
from dp2erm_cvx.plan import Plan, Study
from dp2erm_cvx.plan.predict import planned_range
from dp2erm_cvx.plan.weighted import RULED
from dp2erm_cvx.steps.nuisances import Confounding
from dp2erm_cvx.study import QUESTIONS

#: Unfitted estimators, by name or as a list.
Models = Mapping[str, Any] | Sequence[Any]

#: What is tried in the place of the public rule of use of an effect.
_EFFECT: Mapping[str, Mapping[str, Any]] = {
    "one propensity": {"propensity": "constant", "center_share": 0.6},
    "more regression": {"propensity": "constant", "center_share": 0.75},
    "logistic propensity": {
        "propensity": "logistic",
        "center_share": 0.45,
        "propensity_share": 0.2,
    },
    "larger cap": {
        "propensity": "logistic",
        "cap": 20.0,
        "center_share": 0.45,
        "propensity_share": 0.2,
    },
}
#: What is tried in the place of the public rule of use of a treatment rule.
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

#: Share of the intervals that have to cover the effect, whose level is .95.
COVERS = 0.9
#: Standard errors of a half width.
_Z = 1.96
#: Datasets that every candidate is run on.
_FIRST = 8
#: Half widths that a candidate is behind the best if it is run on no more datasets. At these, and
#: four looks, one that is as good as the best goes once in 100 times.
_CLEAR = 2.0


@dataclass(frozen=True)
class DesignRow:
    """One pipeline; nan where something does not apply, as before it was simulated.

    Numbers called ``..._half`` are half widths of simulation error.

    Attributes
    ----------
    name
        The pipeline, for readers.
    kind, settings
        How a study file declares it: a key of :data:`~dp2erm_cvx.study.QUESTIONS`, empty for a
        model of one's own, and the arguments of the estimator beside domain and budget.
    model
        The unfitted estimator; None for what is no candidate.
    plan
        Its plan for the records of the request, which every dataset is fitted by; None where it has
        none yet.
    bias, deviation, error
        Mean, standard deviation and root mean square of estimate less truth, in units of the
        outcome.
    noise
        Half width that noise alone leaves an effect (95 %); of a rule, how far noise moves the
        effect of one record (root mean square).
    width, covers
        Median width of the interval, and how often it covers the effect.
    right, lost
        Share of right decisions, and the mean effect that the wrong ones forgo.
    value
        Mean outcome under a rule on public records that samples leave out.
    effective
        Effective sample size of weights over n: at 1 they balance nothing.
    tied
        Whether it is within simulation error of the best.
    reason
        Why there is nothing, empty otherwise.
    scores
        What is ranked, by replicate: squared errors, shares of wrong decisions, values times -1.
        Where it is clearly behind the best, only those of the first replicates.
    """

    name: str
    kind: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: Any = field(default=None, repr=False, compare=False)
    plan: Plan[Any] | None = field(default=None, repr=False, compare=False)
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

    def of_effect(self, runs: Sequence[SimulatedRun], noise: float = math.nan) -> DesignRow:
        """The row of an effect by these runs.

        Parameters
        ----------
        runs
            One for every dataset.
        noise
            Half width of the noise of weights, whose runs state none.
        """
        errors, lows, highs, noises, _, _, effective = np.array(runs).T
        squares = errors**2
        error = math.sqrt(float(np.mean(squares)))
        if not np.isnan(noises).all():
            noise = float(np.nanmedian(noises))
        row = replace(
            self,
            bias=float(np.mean(errors)),
            bias_half=half_width(errors),
            deviation=float(np.std(errors, ddof=1)),
            error=error,
            # of a root the half width is that of the square over twice the root, to first order
            error_half=half_width(squares) / max(2.0 * error, 1e-300),
            noise=noise,
            effective=float(np.mean(effective)),
            scores=tuple(squares.tolist()),
        )
        if np.isnan(lows).any():
            return row
        covered = (lows <= 0.0) & (highs >= 0.0)
        return replace(
            row,
            width=float(np.median(highs - lows)),
            covers=float(np.mean(covered)),
            covers_half=_half_width_of_share(covered),
        )

    def of_rule(self, runs: Sequence[SimulatedRun]) -> DesignRow:
        """The row of a rule, or of a constant, by these runs: one for every dataset."""
        scores, _, _, noises, lost, values, effective = np.array(runs).T
        noise = math.nan
        if not np.isnan(noises).any():
            noise = float(np.mean(noises))
        row = replace(
            self,
            noise=noise,
            effective=float(np.mean(effective)),
            scores=tuple(scores.tolist()),
        )
        score_half = half_width(scores)
        if np.isnan(lost).any():
            return replace(row, value=float(np.mean(values)), value_half=score_half)
        right = 1.0 - float(np.mean(scores))
        return replace(row, right=right, right_half=score_half, lost=float(np.mean(lost)))

    @property
    def holds(self) -> bool:
        """True if there is an interval, and it covers the effect often enough."""
        return self.covers >= COVERS

    def to_dict(self) -> dict[str, Any]:
        """Everything but scores, model and plan, as plain values."""
        plain = dict(vars(self))
        for name in ("scores", "model", "plan"):
            del plain[name]
        return plain


def design_candidates(
    request: DesignRequest, most: int | None = None, names: Collection[str] | None = None
) -> list[DesignRow]:
    """The candidates that have a plan, the public rule of use first; no settings twice.

    Parameters
    ----------
    request
        What is asked.
    most
        Number of them at most; None for all.
    names
        Those beside the public rule of use that are planned; None for all.

    Raises
    ------
    DeclarationError, CalibrationError
        Where not even the public rule has a plan.
    """
    seen: list[Any] = []
    candidates: list[DesignRow] = []
    for one in _pipelines(request):
        if candidates and names is not None and one.name not in names:
            continue
        try:
            plan = one.model.plan(request.n_samples, request.columns)
        except (CalibrationError, DeclarationError):
            if not candidates:
                raise
            continue
        compared = _compared(plan.study)
        if compared not in seen:
            seen.append(compared)
            candidates.append(replace(one, plan=plan))
        if len(candidates) == most:
            break
    return candidates


def _compared(study: Any) -> list[Any]:
    """What two candidates have in common where their settings are the same."""
    # a study of two stages is compared as a whole
    if isinstance(study, Study):
        return [study]
    parts = [getattr(study, name, None) for name in ("settings", "noise", "weights")]
    return [type(study), study.universe, *parts]


def named_models(models: Models, kinds: tuple[type, ...]) -> tuple[dict[str, Any], Domain]:
    """The estimators by name, and their one domain; those of a list are numbered.

    Parameters
    ----------
    models
        Unfitted estimators, by name or as a list, at least one.
    kinds
        The classes that they may have.

    Raises
    ------
    DeclarationError
        Where there is none, where one is of another class, and where two declare different domains.
    """
    if isinstance(models, Sequence) and not isinstance(models, str):
        models = {f"candidate {place}": model for place, model in enumerate(models, start=1)}
    if not isinstance(models, Mapping) or not models:
        wanted = "must be a dict of names and estimators, or a list, with at least one candidate"
        raise DeclarationError(f"models = {models!r}: {wanted}")
    named = dict[str, Any](models)
    for name, model in named.items():
        one_line("the name of a candidate", name)
        if not isinstance(model, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise DeclarationError(f"models[{name!r}] = {model!r}: must be a {wanted}")
    first, *others = named.items()
    domain = first[1].domain
    if not isinstance(domain, Domain):
        raise DeclarationError(f"domain = {domain!r}: must be a Domain")
    for name, model in others:
        if model.domain != domain:
            raise DeclarationError(f"models[{name!r}] and the first declare different domains")
    return named, domain


def own_candidates(request: DesignRequest, models: Models) -> list[DesignRow]:
    """Estimators of one's own over the domain of the request, by name or as a list.

    Raises
    ------
    DeclarationError
        For another domain, or an estimator of something else.
    """
    kinds = (PrivateEffect if request.goal == "effect" else PrivateRule, PrivateTwoStageERM)
    named, domain = named_models(models, kinds)
    if domain != request.domain:
        raise DeclarationError("models: they declare another domain than the request")
    for name, model in named.items():
        weighted = request.goal == "effect" and isinstance(model, PrivateTwoStageERM)
        if weighted and model.resolved_second_stage().name != "arm_means":
            raise DeclarationError(f"models[{name!r}] releases a rule: ask for goal = 'rule'")
    return [DesignRow(name, model=model) for name, model in named.items()]


def _pipelines(request: DesignRequest) -> Iterator[DesignRow]:
    """The public rule of use, what is tried in its place, and weights."""
    if request.goal == "rule":
        yield from _rules(request)
    else:
        yield from _effects(request)
    if request.goal == "rule" or request.estimand == "ate":
        second = "itr" if request.goal == "rule" else "arm_means"
        for first in _WEIGHTS:
            stages: dict[str, Any] = {"first_stage": first, "second_stage": second}
            model = QUESTIONS["two_stage"](request.domain, request.budget, **stages)
            yield DesignRow(f"weights: {first}", "two_stage", stages, model)


def _rules(request: DesignRequest) -> Iterator[DesignRow]:
    """What is tried for a rule."""
    guessed = {"outcome_scale": request.outcome_scale}
    tried: dict[str, Mapping[str, Any]] = {"default": {}, **_RULE}
    tried["factors on the response"] = {
        "propensity": "logistic",
        "response_bound": rounded(4.0 * request.outcome_scale),
    }
    yield from _with_noises(request, guessed, tried)


def _effects(request: DesignRequest) -> Iterator[DesignRow]:
    """What is tried for an effect."""
    drivers = request.scenario.drivers
    guessed: dict[str, Any] = {
        "estimand": request.estimand,
        "prognostic": None,
        "confounding": max(1.0, rounded(request.filled.distance)),
        "heterogeneity": request.heterogeneity,
        "residual_scale": request.residual_scale,
    }
    yield _candidate(request, "default", guessed, {}, "gamma")
    ending = ""
    if drivers is not None:
        ending = ", drivers alone"
        guessed["prognostic"] = drivers
    tried: dict[str, Mapping[str, Any]] = {f"default{ending}": {}}
    for name, settings in _EFFECT.items():
        tried[f"{name}{ending}"] = settings
    yield from _with_noises(request, guessed, tried)
    weighted = {**guessed, "weights": RULED}
    yield _candidate(request, f"weighted residuals{ending}", weighted, {}, "gamma")


def _with_noises(
    request: DesignRequest, guessed: Mapping[str, Any], tried: Mapping[str, Mapping[str, Any]]
) -> Iterator[DesignRow]:
    """Settings with the shorter of gamma and box noise, and with Gaussian noise at a delta."""
    noises = ("auto", "gaussian") if request.budget.delta else ("auto",)
    for name, settings in tried.items():
        for noise in noises:
            yield _candidate(request, name, guessed, settings, noise)


def _candidate(
    request: DesignRequest,
    name: str,
    guessed: Mapping[str, Any],
    settings: Mapping[str, Any],
    noise: str,
) -> DesignRow:
    """A pipeline by these settings; what the request declares itself is put over them."""
    stated = dict(request.declared)
    settings = {**settings, **stated.pop("settings", {})}
    full = {**guessed, "noise": noise, **stated, "settings": settings}
    model = QUESTIONS[request.goal](request.domain, request.budget, **full)
    needless = {**_LEFT_OUT, "noise": "gamma", "settings": {}}
    declared = {}
    for key, value in full.items():
        if key not in needless or value != needless[key]:
            declared[key] = value
    if full["noise"] != "gamma":
        name = f"{name}, {full['noise']} noise"
    return DesignRow(name, request.goal, declared, model)


#: What a candidate did on a dataset; why it could not; None where it was not asked.
Trial = SimulatedRun | str | None


def replicate(
    request: DesignRequest,
    compared: Sequence[DesignRow],
    number: int,
    asked: Collection[int] | None = None,
) -> tuple[list[Trial], SimulatedRun, float]:
    """Candidates on the dataset of this number: what each did, or why it could not.

    With them the best constant decision, and how far the plain difference of means is off. All
    candidates see the same records, and each has noise of its own, whoever else is asked.

    Parameters
    ----------
    request, compared
        What is asked, and the candidates.
    number
        The number of the dataset.
    asked
        Places of the candidates that are run; None for all.
    """
    rng = np.random.default_rng([request.seed, number, 1])
    seed = request.seed, number
    source = request.public or Population(request.domain, request.n_features, request.filled, seed)
    sample = source.sample(request, rng)
    trials: list[Trial] = []
    for place, candidate in enumerate(compared):
        # the others draw the same, whoever is asked
        own_seed = int(rng.integers(2**62))
        if asked is None or place in asked:
            trials.append(_trial(candidate, sample, request.goal, own_seed))
        else:
            trials.append(None)
    best = SimulatedRun(math.nan)
    if request.goal == "rule":
        best = _best_constant(sample)
    return trials, best, sample.confounded_by


def _trial(candidate: DesignRow, sample: DesignSample, goal: str, seed: int) -> Trial:
    """What a candidate did on a sample with noise of this seed, or why it could not."""
    model = clone(candidate.model).set_params(ledger=None, dataset=None, seed=seed)
    try:
        # nobody holds simulated records
        model.fit_announced(sample.data, candidate.plan)
        run = _outcome(model, sample, goal)
        if isinstance(model, PrivateTwoStageERM):
            weights = model.private_workings_.weights.value
            run = run._replace(effective=effective_sample_size(weights) / len(weights))
    except DeclarationError:
        # a wrong setting, which says nothing of the data
        raise
    except Dp2ermError as error:
        return str(error)
    return run


def _outcome(model: Any, sample: DesignSample, goal: str) -> SimulatedRun:
    """How right a fitted rule is, or how far a fitted effect is off."""
    if goal == "rule":
        return _judged(model, sample)
    return _estimated(model, sample.truth)


def _judged(model: Any, sample: DesignSample) -> SimulatedRun:
    """How right a fitted rule is, and its noise where it states that."""
    run = sample.judge(model.predict(sample.judged_at) == 1)
    if not isinstance(model, PrivateRule):
        return run._replace(noise=math.nan)
    return run._replace(noise=model.release_.noise_effect)


def _best_constant(sample: DesignSample) -> SimulatedRun:
    """The better one of treating nobody and everybody; nan where neither can be judged."""
    constants = []
    for arm in (False, True):
        # few records left out may all be of one arm
        with suppress(DataError):
            constants.append(sample.judge(np.full(len(sample.judged_at.X), arm)))
    return min(constants, key=lambda one: one.off, default=SimulatedRun(math.nan))


def _estimated(model: PrivateEstimator, truth: float) -> SimulatedRun:
    """How far a fitted effect is off, with its interval and its noise where it states them."""
    if isinstance(model, PrivateEffect):
        low, high = (end - truth for end in model.interval_)
        noise = model.release_.interval.noise_half_width
        if noise is None:
            noise = math.nan
        return SimulatedRun(model.effect_ - truth, low, high, noise)
    assert isinstance(model, PrivateTwoStageERM)
    control, treated = model.theta_
    return SimulatedRun(float(treated - control) - truth)


def ranked(request: DesignRequest, rows: Sequence[DesignRow]) -> tuple[DesignRow, ...]:
    """The rows in order.

    Those tied for the first place stand as they were declared, the others by what is ranked. Tied
    are those that paired differences do not tell from the best. Effects whose intervals cover too
    seldom, or that have none, come after all others, by their coverage.
    """
    best = best_of(request, rows)
    best_scores = np.array(() if best is None else best.scores)
    marked = []
    for row in rows:
        if _may_be_first(request, row):
            behind = behind_of(row, best_scores)
            marked.append(replace(row, tied=float(np.mean(behind)) <= half_width(behind)))
        else:
            marked.append(row)

    def place(row: DesignRow) -> tuple[float, ...]:
        """What rows are sorted by."""
        if row.reason:
            return (3.0,)
        if not _may_be_first(request, row):
            missed = 2.0 if math.isnan(row.covers) else 1.0 - row.covers
            return (2.0, missed, float(np.mean(row.scores)))
        if row.tied:
            return (0.0,)
        # of a row with fewer replicates than the best the mean is that of other datasets
        behind = behind_of(row, best_scores)
        return (1.0, float(np.mean(best_scores)) + float(np.mean(behind)))

    return tuple(sorted(marked, key=place))


def best_of(request: DesignRequest, rows: Sequence[DesignRow]) -> DesignRow | None:
    """The row of the least mean score, of those with as many replicates as any.

    None where none may be first. An effect may be first where its intervals cover often enough.
    """
    candidates = [row for row in rows if _may_be_first(request, row)]
    most = max((len(row.scores) for row in candidates), default=0)
    comparable = [row for row in candidates if len(row.scores) == most]
    return min(comparable, key=lambda row: float(np.mean(row.scores)), default=None)


def _may_be_first(request: DesignRequest, row: DesignRow) -> bool:
    """True of a row that did not fail and, of an effect, whose intervals cover often enough."""
    if row.reason:
        return False
    return request.goal == "rule" or row.holds


def behind_of(row: DesignRow, best: Sequence[float] | np.ndarray) -> np.ndarray:
    """Paired differences of the scores of a row and of the best, over the replicates of the row."""
    scores = np.array(row.scores)
    return np.asarray(scores - np.array(best)[: len(scores)])


def half_width(values: np.ndarray) -> float:
    """The half width of the simulation error of their mean."""
    return _Z * float(np.std(values, ddof=1)) / math.sqrt(len(values))


def _half_width_of_share(are_true: np.ndarray) -> float:
    """The half width of the simulation error of a share.

    Two more are counted on either side, so that the error of a share of 1 is not 0.
    """
    n = len(are_true) + 4.0
    share = (float(np.sum(are_true)) + 2.0) / n
    return _Z * math.sqrt(share * (1.0 - share) / n)


def simulated_table(
    request: DesignRequest,
    compared: Sequence[DesignRow],
    workers: int,
    progress: Progress,
    what: str = "replicates",
) -> tuple[tuple[DesignRow, ...], DesignRow, float]:
    """Ranked rows, that of the best constant rule, and by how much the plain means are confounded.

    Every candidate is run on the first datasets, and on twice as many again and again as long as it
    is not clearly behind the best. Whoever is left out is compared again with every later best: it
    is clearly behind the last one, or was run on all datasets.

    Parameters
    ----------
    request, compared
        What is asked, and the candidates.
    workers
        Processes.
    progress
        Counts the replicates, by the name ``what``.
    what
        The name of what is counted.
    """
    compared = [_planned(request, one) for one in compared]
    trials = _Trials([[] for _ in compared], [], [])
    rows = list(compared)
    places = set(range(len(compared)))
    while places:
        # all that have been run on the fewest datasets are run on as many again
        begin = min(trials.n_of(place) for place in places)
        asked = {place for place in places if trials.n_of(place) == begin}
        numbers = range(begin, min(max(_FIRST, 2 * begin), request.replicates))
        tasks = ((request, compared, number, asked) for number in numbers)
        progress(what, begin, request.replicates)
        runs = run_tasks(replicate, tasks, workers=workers)
        for number, run in zip(numbers, runs, strict=True):
            trials.add(number, asked, *run)
            progress(what, number + 1, request.replicates)
        rows = trials.rows(request, compared)
        close = close_ones(request, rows)
        places = {place for place in close if trials.n_of(place) < request.replicates}
    constant = DesignRow("best constant rule").of_rule(trials.constants)
    return ranked(request, rows), constant, float(np.mean(trials.confounded))


@dataclass
class _Trials:
    """What was simulated so far.

    Parameters
    ----------
    of_candidates
        Of every candidate its trials on the first datasets, in the order of the datasets.
    constants
        The best constant decision on every dataset.
    confounded
        How far the plain difference of means is off on every dataset.
    """

    of_candidates: list[list[Trial]]
    constants: list[SimulatedRun]
    confounded: list[float]

    def n_of(self, place: int) -> int:
        """Number of datasets that the candidate at this place was run on."""
        return len(self.of_candidates[place])

    def add(
        self,
        number: int,
        asked: Collection[int],
        trials: Sequence[Trial],
        constant: SimulatedRun,
        confounded_by: float,
    ) -> None:
        """Add what :func:`replicate` returned for the dataset of this number.

        Parameters
        ----------
        number
            The number of the dataset.
        asked
            Places of the candidates that were run on it.
        trials, constant, confounded_by
            What came of it.
        """
        for place in asked:
            self.of_candidates[place].append(trials[place])
        is_new = number == len(self.constants)
        if is_new:
            self.constants.append(constant)
            self.confounded.append(confounded_by)

    def rows(self, request: DesignRequest, compared: Sequence[DesignRow]) -> list[DesignRow]:
        """The rows of the candidates by all their trials."""
        rows = []
        for candidate, trials in zip(compared, self.of_candidates, strict=True):
            rows.append(_row(request, candidate, trials))
        return rows


def close_ones(request: DesignRequest, rows: Sequence[DesignRow]) -> set[int]:
    """Places of the rows that more replicates may put first.

    That is not so of a row that failed, of an effect that has no interval or whose intervals have
    missed too often already for all the replicates, and of one that paired differences place
    clearly behind the best.
    """
    best = best_of(request, rows)
    close = set[int]()
    for place, row in enumerate(rows):
        if row.reason or (request.goal == "effect" and _is_lost(row, request.replicates)):
            continue
        if best is not None:
            behind = behind_of(row, best.scores)
            if float(np.mean(behind)) > _CLEAR * half_width(behind):
                continue
        close.add(place)
    return close


def _is_lost(row: DesignRow, replicates: int) -> bool:
    """True of an effect that does not hold after all replicates, whatever those to come are."""
    if math.isnan(row.covers):
        return True
    missed = (1.0 - row.covers) * len(row.scores)
    return missed > (1.0 - COVERS) * replicates + 0.5


def _planned(request: DesignRequest, row: DesignRow) -> DesignRow:
    """The row with its plan, which no dataset changes; where there is none, every fit says why."""
    if row.plan is not None:
        return row
    with suppress(CalibrationError):
        return replace(row, plan=row.model.plan(request.n_samples, request.columns))
    return row


def _row(request: DesignRequest, row: DesignRow, trials: Sequence[Trial]) -> DesignRow:
    """The row of a candidate by all its trials."""
    failures = [trial for trial in trials if isinstance(trial, str)]
    if failures:
        reason = f"{len(failures)} of {len(trials)} runs failed: {failures[0]}"
        return replace(row, reason=reason)
    runs = [trial for trial in trials if isinstance(trial, SimulatedRun)]
    if request.goal == "rule":
        return row.of_rule(runs)
    # effects state their noise
    if not isinstance(row.model, PrivateTwoStageERM):
        return row.of_effect(runs)
    plan = row.plan or row.model.plan(request.n_samples, request.columns)
    noise = planned_range(plan).effect
    if noise is None:
        return row.of_effect(runs)
    return row.of_effect(runs, noise)
