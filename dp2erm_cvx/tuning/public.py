"""Tuning on data that the user declares public and disjoint from the private data."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.data import Dataset, NamedColumns
from dp2erm_cvx.diagnostics import effective_sample_size
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CalibrationError, DeclarationError, Dp2ermError, shown
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.public import public_number, whole_number
from dp2erm_cvx.tuning.candidates import Models, common_domain, fitted, named_models
from dp2erm_cvx.tuning.public_data import PublicData
from dp2erm_cvx.tuning.result import TuningResult, TuningRow, best_of
from dp2erm_cvx.tuning.score import Score, treatment_probabilities, value_of_rule

#: A sample that leaves out fewer records than this on average cannot be scored.
_FEWEST_LEFT_OUT = 10


def tune(
    models: Models,
    public: PublicData,
    *,
    n_samples: int,
    replicates: int = 20,
    seed: int = 0,
    score: Score | None = None,
    holdout: float | None = None,
) -> TuningResult:
    """Compare candidates by what they would do on ``n_samples`` records like the public ones.

    Each replicate draws a bootstrap sample of ``n_samples`` public records, fits every candidate to it with
    its own noise and scores it on the records left out. All candidates see the same samples and the same
    seeds. Nothing is charged: no private record is read.

    Parameters
    ----------
    models
        Unfitted candidates over one domain, by name or as a list.
    public
        A :class:`PublicData`; anything else is refused.
    n_samples
        Size of the private data, which is public.
    replicates, seed
        Number of samples, and what makes them repeatable.
    score
        ``score(model, X, a, y) -> float`` on records left out, larger is better. By default the value of
        the rule, by self-normalized inverse propensities that a logistic regression on all public records
        estimates, in units of the outcome.
    holdout
        Share of the public records set aside for scoring before each sample is drawn from the rest. By
        default those that a bootstrap sample of all of them happens to leave out, which are too few where
        ``n_samples`` is several times their number.

    Raises DeclarationError for an invalid argument, DataError where the public data cannot be scored,
    CalibrationError where no candidate has a plan or none has a score.
    """
    if not isinstance(public, PublicData):
        raise DeclarationError(
            "public: tuning on private data publishes them through the choice it makes; give "
            "PublicData(X, a, y, source=...) of other people's records, or use tune_privately, which charges "
            "a ledger"
        )
    named = named_models(models)
    domain = common_domain(named)
    n_samples = whole_number("n_samples", n_samples, at_least=2)
    replicates = whole_number("replicates", replicates, at_least=1)
    seed = whole_number("seed", seed, at_least=0)
    if score is not None and not callable(score):
        raise DeclarationError(f"score = {score!r}: must be a function of (model, X, a, y)")
    dataset = public.within(domain)
    _refuse_few(dataset.n_samples, n_samples, holdout)
    plans = {name: _plan(model, n_samples, dataset.X.shape[1]) for name, model in named.items()}
    if not any(isinstance(planned, float) for planned in plans.values()):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in plans.items())
        raise CalibrationError(f"no candidate has a plan: {reasons}")

    probability = None if score is not None else treatment_probabilities(dataset, domain)
    trials: dict[str, list[_Trial]] = {name: [] for name in named}
    for sample in _samples(dataset.n_samples, n_samples, replicates, seed, holdout):
        for name, model in named.items():
            if isinstance(plans[name], float):
                trials[name].append(_try(model, dataset, sample, score, probability))
    rows = [_row(name, named[name], plans[name], trials[name], n_samples) for name in named]
    best = best_of(rows)
    if best is None:
        reasons = "; ".join(f"{row.name}: {row.reason}" for row in rows)
        raise CalibrationError(f"no candidate could be scored: {reasons}")
    scored_by = "value of the rule by inverse propensity" if score is None else _name_of(score)
    return TuningResult(
        best, tuple(rows), public.source, scored_by, n_samples, dataset.n_samples, replicates, holdout, seed
    )


@dataclass(frozen=True)
class _Sample:
    """Rows drawn (n_samples,), rows left out, and a seed for the noise."""

    drawn: NDArray[np.int64]
    left_out: NDArray[np.int64]
    noise_seed: int


@dataclass(frozen=True)
class _Trial:
    score: float | None
    effective: float = 0.0
    certified: bool = True
    reason: str = ""


def _refuse_few(n_public: int, n_samples: int, holdout: float | None) -> None:
    if holdout is not None:
        share = public_number("holdout", holdout, above=0.0)
        aside = math.floor(share * n_public)
        if not 1 <= aside <= n_public - 2:
            raise DeclarationError(
                f"holdout = {shown(holdout)}: must set aside at least 1 of the {n_public} public records and "
                "leave 2"
            )
        return
    left_out = n_public * (1.0 - 1.0 / n_public) ** n_samples
    if left_out < _FEWEST_LEFT_OUT:
        raise DeclarationError(
            f"n_samples = {n_samples}: a bootstrap sample of so many leaves out about {left_out:.1g} of the "
            f"{n_public} public records to score on: set some aside with holdout=0.3, or give more"
        )


def _plan(model: PrivateTwoStageERM, n_samples: int, n_features: int) -> float | str:
    """V of the plan, or why there is none."""
    try:
        return float(model.plan(n_samples, n_features).bound.V)
    except CalibrationError as error:
        return str(error)


def _samples(
    n_public: int, n_samples: int, replicates: int, seed: int, holdout: float | None
) -> Iterator[_Sample]:
    for replicate in range(replicates):
        rng = np.random.default_rng([seed, replicate])
        if holdout is None:
            drawn = rng.integers(n_public, size=n_samples)
            left_out = np.setdiff1d(np.arange(n_public), drawn)
        else:
            order = rng.permutation(n_public)
            aside = math.floor(holdout * n_public)
            left_out, rest = order[:aside], order[aside:]
            drawn = rest[rng.integers(len(rest), size=n_samples)]
        yield _Sample(drawn, left_out, int(rng.integers(2**62)))


def _try(
    model: PrivateTwoStageERM,
    dataset: Dataset,
    sample: _Sample,
    score: Score | None,
    probability: Array | None,
) -> _Trial:
    left_out = sample.left_out
    X, a, y = dataset.X[left_out], dataset.a[left_out], dataset.y[left_out]
    try:
        model = fitted(model, dataset, sample.drawn, sample.noise_seed)
        if score is None:
            assert probability is not None
            chosen = model.predict(NamedColumns(X, dataset.columns))
            net = y - model.domain.treatment_cost * a
            value = value_of_rule(chosen, a, net, probability[left_out])
        else:
            value = score(model, X, a, y)
    except Dp2ermError as error:
        return _Trial(None, reason=f"{type(error).__name__}: {error}")
    value = public_number("what score returned", value)
    weights, theta = model.private_workings_.weights, model.private_workings_.theta
    return _Trial(value, effective_sample_size(weights.value), weights.certified and theta.certified)


def _row(
    name: str, model: PrivateTwoStageERM, planned: float | str, trials: list[_Trial], n_samples: int
) -> TuningRow:
    done = [trial for trial in trials if trial.score is not None]
    scores = np.array([trial.score for trial in done], dtype=np.float64)
    failed = [trial.reason for trial in trials if trial.score is None]
    effective = math.fsum(trial.effective for trial in done)
    return TuningRow(
        name=name,
        epsilon=model.budget.epsilon,
        delta=model.budget.delta,
        V=planned if isinstance(planned, float) else None,
        mean=float(np.mean(scores)) if done else None,
        standard_error=float(np.std(scores, ddof=1) / math.sqrt(len(done))) if len(done) > 1 else None,
        effective_share=effective / (len(done) * n_samples) if done else None,
        failures=len(failed),
        uncertified=sum(not trial.certified for trial in done),
        reason=planned if isinstance(planned, str) else failed[0] if failed else "",
        scores=tuple(trial.score for trial in trials),
    )


def _name_of(score: Score) -> str:
    return str(getattr(score, "__name__", type(score).__name__))
