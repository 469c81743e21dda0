"""Tuning on data that the user declares public and disjoint from the private data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.data import Dataset, NamedColumns
from dp2erm_cvx.design.private import Models, common_domain, fitted, named_models
from dp2erm_cvx.diagnostics import effective_sample_size
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, Dp2ermError, shown
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.public import one_line, public_number, whole_number

#: (fitted model, X (m, k), a (m,), y (m,)) -> score, larger is better.
Score = Callable[[PrivateTwoStageERM, Array, NDArray[np.int64], Array], float]

#: Estimated probabilities of treatment are kept this far from 0 and 1.
_LEAST_PROBABILITY = 0.02


def treatment_probabilities(dataset: Dataset, domain: Domain) -> Array:
    """Estimated probability (n,) of the treatment that each record got, by logistic regression.

    Not private. It is the same for all candidates, so that none is judged by its own weights: a candidate
    that balances nothing would otherwise be scored by confounded means, and look well.

    Raises DataError where an arm is empty.
    """
    if not 0 < int(np.sum(dataset.a)) < dataset.n_samples:
        raise DataError("the public data have records of one treatment only: no rule can be scored on them")
    model = LogisticRegression(max_iter=1000)
    features = domain.features(dataset.X)
    treated = model.fit(features, dataset.a).predict_proba(features)[:, 1]
    treated = np.clip(treated, _LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY)
    given: Array = np.where(dataset.a == 1, treated, 1.0 - treated)
    return given


def value_of_rule(chosen: NDArray[np.int64], a: NDArray[np.int64], net: Array, probability: Array) -> float:
    """Self-normalized inverse-propensity estimate of ``E[Y(d(X))]``, in units of the outcome.

    ``chosen``, ``a``, ``net`` and ``probability`` are (m,): what the rule recommends, what was given, the
    outcome less the cost of treatment, and the probability of what was given.

    Raises DataError where the rule recommends for nobody what was given.
    """
    weights = (chosen == a) / probability
    total = float(np.sum(weights))
    if total == 0.0:
        raise DataError("no record left out was treated as the rule recommends: its value has no estimate")
    return float(weights @ net) / total


@dataclass(frozen=True, eq=False, repr=False)
class PublicData:
    """The user's declaration that these records are public and disjoint from the private data.

    Parameters
    ----------
    X, a, y
        (N, k) covariates, (N,) treatments in {0, 1} and (N,) outcomes, in the units of the private data.
    source
        One line of text that says where the records come from; the result repeats it.

    Nobody can check the declaration. A person who is in both data sets is not protected by the release.
    Raises DeclarationError for a missing source, DataError for invalid data.
    """

    X: ArrayLike
    a: ArrayLike
    y: ArrayLike
    source: str = field(kw_only=True)
    columns: tuple[str, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "source", one_line("source", self.source))
        dataset = Dataset.from_arrays(self.X, self.a, self.y)
        put(self, "columns", None if getattr(self.X, "columns", None) is None else dataset.columns)
        for name in ("X", "a", "y"):
            put(self, name, getattr(dataset, name).copy())  # kept for long, whatever becomes of the caller's

    def __repr__(self) -> str:
        return f"PublicData(source={self.source!r}, n_samples={np.shape(self.a)[0]})"

    def within(self, domain: Domain) -> Dataset:
        """The records with the columns of the domain. Raises DeclarationError where they differ."""
        dataset = Dataset.from_arrays(self.X, self.a, self.y, self.columns or domain.columns)
        if domain.columns not in (None, dataset.columns):
            raise DeclarationError(
                f"the domain declares the columns {', '.join(domain.columns or ())}; "
                f"the public data have {', '.join(dataset.columns)}"
            )
        return dataset


@dataclass(frozen=True)
class TuningRow:
    """One candidate.

    ``scores`` has one score per replicate, None where the replicate failed; ``mean`` is over the others and
    ``standard_error`` that of the mean. ``effective_share`` is the mean effective sample size of the first
    stage's weights over n: at 1 the weights are uniform and nothing is balanced. ``V`` is the stability
    bound, None where the plan was refused. ``failures`` counts replicates that raised a typed error,
    ``uncertified`` fits with a solution that was not certified. ``reason`` is the refusal, or the first
    failure.
    """

    name: str
    epsilon: float
    delta: float
    V: float | None
    mean: float | None
    standard_error: float | None
    effective_share: float | None
    failures: int
    uncertified: int
    reason: str
    scores: tuple[float | None, ...]


@dataclass(frozen=True)
class TuningResult:
    """The candidates in the order given, and the best.

    ``best`` has the highest mean among the candidates with the fewest failed replicates; equal means go to
    the name that sorts first. Everything here follows from data declared public and costs no privacy.
    ``source`` is where the user said they come from.
    """

    best: str
    rows: tuple[TuningRow, ...]
    source: str
    scored_by: str
    n_samples: int
    n_public: int
    replicates: int
    holdout: float | None
    seed: int

    def row(self, name: str) -> TuningRow:
        """The row of one candidate. Raises DeclarationError where there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise DeclarationError(f"{name!r} is no candidate; there are {', '.join(r.name for r in self.rows)}")

    def behind(self, name: str) -> tuple[float, float]:
        """Mean score of the best less that of ``name``, and the standard error of this paired difference.

        The candidates saw the same samples, so this is far more precise than comparing two means; nan
        where fewer than two replicates succeeded for both.
        """
        both = zip(self.row(self.best).scores, self.row(name).scores, strict=False)
        gaps = [best - other for best, other in both if best is not None and other is not None]
        if len(gaps) < 2:
            return math.nan, math.nan
        return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / math.sqrt(len(gaps)))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        head = f"{'candidate':<24} {'score':>10} {'std.err.':>9} {'behind':>16} {'ESS/n':>6} {'V':>9} failed"
        lines = [f"tuned on public data: {self.source}; n = {self.n_samples}; {self.scored_by}", head]
        for row in self.rows:
            if row.mean is None:
                lines.append(f"{row.name:<24} {row.reason}")
                continue
            gap, error = self.behind(row.name)
            behind = "best" if row.name == self.best else f"{gap:.3g} +- {error:.2g}"
            spread = math.nan if row.standard_error is None else row.standard_error
            lines.append(
                f"{row.name:<24} {row.mean:>10.4g} {spread:>9.2g} {behind:>16} "
                f"{row.effective_share:>6.2f} {row.V:>9.4g} {row.failures}"
            )
        return "\n".join(lines)


#: Score, effective sample size and whether the fit is certified, or why there is none.
_Trial = tuple[float, float, bool] | str

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
                trials[name].append(_tried(model, dataset, sample, score, probability))
    rows = [_row(name, named[name], plans[name], trials[name], n_samples) for name in named]
    scored = [(row.failures, -row.mean, row.name) for row in rows if row.mean is not None]
    if not scored:
        reasons = "; ".join(f"{row.name}: {row.reason}" for row in rows)
        raise CalibrationError(f"no candidate could be scored: {reasons}")
    scored_by = "value of the rule by inverse propensity"
    if score is not None:
        scored_by = str(getattr(score, "__name__", type(score).__name__))
    return TuningResult(
        min(scored)[2],
        tuple(rows),
        public.source,
        scored_by,
        n_samples,
        dataset.n_samples,
        replicates,
        holdout,
        seed,
    )


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
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], int]]:
    """For every replicate: rows drawn (n_samples,), rows left out, and a seed for the noise."""
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
        yield drawn, left_out, int(rng.integers(2**62))


def _tried(
    model: PrivateTwoStageERM,
    dataset: Dataset,
    sample: tuple[NDArray[np.int64], NDArray[np.int64], int],
    score: Score | None,
    probability: Array | None,
) -> _Trial:
    """Score, effective sample size and whether all was certified, or why there is no score."""
    drawn, left_out, seed = sample
    X, a, y = dataset.X[left_out], dataset.a[left_out], dataset.y[left_out]
    try:
        model = fitted(model, dataset, drawn, seed)
        if score is None:
            assert probability is not None
            chosen = model.predict(NamedColumns(X, dataset.columns))
            net = y - model.domain.treatment_cost * a
            value = value_of_rule(chosen, a, net, probability[left_out])
        else:
            value = score(model, X, a, y)
    except Dp2ermError as error:
        return f"{type(error).__name__}: {error}"
    value = public_number("what score returned", value)
    workings = model.private_workings_
    return value, effective_sample_size(workings.weights.value), workings.certified()


def _row(
    name: str, model: PrivateTwoStageERM, planned: float | str, trials: list[_Trial], n_samples: int
) -> TuningRow:
    done = [trial for trial in trials if not isinstance(trial, str)]
    failed = [trial for trial in trials if isinstance(trial, str)]
    scores = np.array([value for value, _, _ in done], dtype=np.float64)
    return TuningRow(
        name=name,
        epsilon=model.budget.epsilon,
        delta=model.budget.delta,
        V=planned if isinstance(planned, float) else None,
        mean=float(np.mean(scores)) if done else None,
        standard_error=float(np.std(scores, ddof=1) / math.sqrt(len(done))) if len(done) > 1 else None,
        effective_share=math.fsum(size for _, size, _ in done) / (len(done) * n_samples) if done else None,
        failures=len(failed),
        uncertified=sum(not certified for _, _, certified in done),
        reason=planned if isinstance(planned, str) else failed[0] if failed else "",
        scores=tuple(None if isinstance(trial, str) else trial[0] for trial in trials),
    )
