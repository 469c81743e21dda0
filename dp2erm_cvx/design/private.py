"""Tuning on the private data themselves, charged to a ledger before anything is drawn.

The gain of a rule d over a coin toss on record i is ``(1{a_i = d(x_i)} - 1/2) y_i / p_{a_i}``, y the centered
net outcome and p_a the declared probability of treatment a. Under that probability its mean is the value of d
less the mean value of treat-all and treat-none. Counted in units of ``B / (2 LEVELS)``, ``B = M' /
min(p_a)``, and rounded record by record, it is a whole number between -LEVELS and LEVELS. So sums are exact,
and replacing one record moves the sum of any rule by at most 2 LEVELS.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Array, Domain
from dp2erm_cvx.errors import CalibrationError, DeclarationError, brief
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.ledger import Ledger, Receipt
from dp2erm_cvx.ledger.ledger import sums, up
from dp2erm_cvx.mechanism import Source, private_choice, random_source
from dp2erm_cvx.plan import Plan, Study
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.public import json_types, one_line, public_fraction, public_number, whole_number
from dp2erm_cvx.release import Guarantee, Release, Standing
from dp2erm_cvx.release.record import CHOICE
from dp2erm_cvx.sampling import refuse

Models = Mapping[str, Any] | Sequence[Any]


def named_models(
    models: Models, kinds: tuple[type, ...] = (PrivateTwoStageERM,)
) -> tuple[dict[str, Any], Domain]:
    """The candidates by name, of these ``kinds``, and their one domain; those of a list are numbered."""
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
    domains = [model.domain for model in named.values()]
    if not isinstance(domains[0], Domain):
        raise DeclarationError(f"domain = {domains[0]!r}: must be a Domain")
    for name, domain in zip(named, domains, strict=True):
        if domain != domains[0]:
            raise DeclarationError(f"models[{name!r}] and the first declare different domains")
    return named, domains[0]


def fitted(
    model: PrivateTwoStageERM, dataset: Dataset, rows: NDArray[np.int64], seed: int | None
) -> PrivateTwoStageERM:
    """A copy of ``model`` without a ledger, fitted to ``rows`` of the dataset."""
    copy: PrivateTwoStageERM = clone(model).set_params(ledger=None, dataset=None, seed=seed)
    return copy.fit(dataset.at(rows))


#: Half the range of one record's score: rounding costs less than one part in a million of it.
LEVELS = 2**20

#: The most a sum of scores moves when one record is replaced, treatment flips included.
SENSITIVITY = 2 * LEVELS


def total_gain(
    chosen: NDArray[np.int64],
    a: NDArray[np.int64],
    net: Array,
    domain: Domain,
    p: float,
    counts: Array | float = 1.0,
) -> int:
    """Sum of the scores of a rule that recommends ``chosen`` (m,) to records treated by ``a`` (m,).

    ``net`` (m,) is the net outcome of the domain, within [-M', M']; ``p`` the probability of treatment;
    ``counts`` in [0, 1] what the records (m,) count. Raises DeclarationError for another shape of them.
    """
    if np.shape(counts) not in ((), np.shape(a)):
        raise DeclarationError(f"counts have shape {np.shape(counts)}: must be ({len(a)},)")
    rarest = min(p, 1.0 - p)
    relative = np.where(a == 1, rarest / p, rarest / (1.0 - p)) * (net / domain.outcome_bound) * counts
    # the range is what privacy rests on: it must hold whatever is passed in, and nan has no place in it
    units = np.rint(LEVELS * np.clip(np.nan_to_num(relative), -1.0, 1.0)).astype(np.int64)
    return int(np.sum(np.where(chosen == a, units, -units)))


def unit(domain: Domain, p: float, n_scored: int) -> float:
    """Worth of one unit of a sum, in units of the outcome, on average over ``n_scored`` records."""
    return domain.outcome_bound / min(p, 1.0 - p) / (2.0 * LEVELS * n_scored)


@dataclass(frozen=True)
class PrivateTuning:
    """The winner of a private comparison and what everything together guarantees.

    ``guarantee`` covers the choice and the releases of all candidates. ``release`` is the winner's, fitted to
    ``n_fitted`` records, and states this guarantee in place of its own. No score is kept: scores are private.
    ``candidates`` are what each spends, and its bound V on the part that it is fitted to. ``model`` is the
    winner, whose ``private_workings_`` are for the data holder only.

    ``selection`` says how the winner was chosen, from public quantities alone: its ``epsilon``, the declared
    ``propensity``, the ``scale`` of the exponential noise in units of the outcome (mean gain per record), and
    the ``sampler`` that drew it. With probability 0.95 the winner's gain on the records scored is within its
    ``resolution`` of the best.
    """

    best: str
    release: Release
    guarantee: Guarantee
    candidates: tuple[Mapping[str, Any], ...]
    selection: Mapping[str, Any]
    n_fitted: int
    n_scored: int
    receipt: Receipt | None
    model: PrivateTwoStageERM = field(repr=False, compare=False)

    @property
    def private(self) -> bool:
        """True only where the guarantee holds without a condition."""
        return self.guarantee.private

    def to_dict(self) -> dict[str, Any]:
        """Published fields, as plain JSON values."""
        named = {name: value for name, value in vars(self).items() if name not in ("release", "model")}
        release = json.loads(self.release.to_json())
        return {"private": self.private, **json_types(named), "release": release}


#: What the total rests on, beyond what the candidates assume.
_ASSUMPTION = "records are divided at random, independently of the data, before anything is fitted"


def tune_privately(
    models: Models,
    X: ArrayLike,
    a: ArrayLike,
    y: ArrayLike,
    *,
    ledger: Ledger | None,
    dataset: str | None,
    score_budget: Budget,
    split: float = 0.5,
    propensity: float = 0.5,
    seed: int | None = None,
) -> PrivateTuning:
    """Fit every candidate to one random part of the records, and choose by the other part.

    Each candidate is a private release of its own with its own budget. Their rules are then scored by the
    mean gain over a coin toss (``dp2erm_cvx.design.private``), and one is chosen by permute-and-flip. One
    record is in one part: the whole is ``(max(sum epsilon_i, epsilon_score), sum delta_i)``-private, which is
    charged, and on disk, before anything is drawn.

    Parameters
    ----------
    models
        Unfitted candidates over one domain, by name or as a list, without seed and ledger of their own.
    X, a, y
        (n, k) covariates, (n,) treatments in {0, 1} and (n,) outcomes.
    ledger, dataset
        The ledger to charge and the name of the data set in it.
    score_budget
        Budget of the choice; pure.
    split
        Share of the records that the candidates are fitted to.
    propensity
        Declared probability of treatment, the same for every record. Privacy holds whatever it is; the
        comparison is unbiased where treatment was randomized with this probability, up to clipping.
    seed
        For tests and experiments only: the result is marked as not private, and nothing is charged.

    Raises DeclarationError or CalibrationError for what was declared, and before any data are read
    DeclarationError where OpenDP (the extra ``secure``) is not installed; DataError for invalid data (for the
    data holder: outside the guarantee), LedgerError where the ledger refuses; then nothing was drawn.
    """
    named, domain = named_models(models)
    refuse(domain.codebook, "a private choice", "units")  # whose records would be in both parts
    if seed is not None:
        whole_number("seed", seed, at_least=0)
    elif not isinstance(ledger, Ledger):
        raise DeclarationError(f"ledger = {ledger!r}: must be a Ledger to charge; or tune on PublicData")
    else:
        one_line("dataset", dataset)
    if domain.arm_floor is not None:
        text = "says nothing about the part that candidates are fitted to: tune those without one"
        raise DeclarationError(f"arm_floor: {text}")
    for name, model in named.items():
        if (model.seed, model.ledger, model.dataset) != (None, None, None):
            raise DeclarationError(f"models[{name!r}] has a seed or a ledger of its own: leave them out")
    if not isinstance(score_budget, Budget) or score_budget.delta:
        raise DeclarationError(f"score_budget = {score_budget!r}: must be a Budget with delta = 0")
    source = random_source(seed)
    choose = private_choice(SENSITIVITY, score_budget.epsilon, None if seed is None else source)
    share = public_number("split", split, above=0.0)
    probability = public_fraction("propensity", propensity)
    records = Dataset.declared(domain, X, a, y)
    n_fitted = math.floor(share * records.n_samples)
    n_scored = records.n_samples - n_fitted
    if n_fitted < 2 or n_scored < 1:
        raise DeclarationError(f"split = {brief(split)}: leaves {n_fitted} to fit and {n_scored} to score")
    plans = {name: _plan(name, model, n_fitted, records.X.shape[1]) for name, model in named.items()}
    # the candidates add up, as the decimals that the ledger adds up; the choice reads other records
    epsilon, delta = sums([plan.guarantee for plan in plans.values()])
    total = Budget(max(up(epsilon), score_budget.epsilon), up(delta))

    receipt = None
    if seed is not None:
        warnings.warn("seeded, hence not private: nothing is charged to the ledger", stacklevel=2)
    else:
        assert ledger is not None
        assert dataset is not None
        note = f"tuning: {len(named)} candidates"
        receipt = ledger.charge(dataset, total, note, relation=domain.relation)

    fit_rows, score_rows = _divided(records.n_samples, n_fitted, source)
    winners = {
        name: fitted(model, records, fit_rows, None if seed is None else source.getrandbits(62))
        for name, model in named.items()
    }
    gains = [_gain(model, records, score_rows, probability) for model in winners.values()]
    best = list(winners)[choose(gains)]
    scale = 2 * SENSITIVITY / score_budget.epsilon * unit(domain, probability, n_scored)
    parts = [model.release_.guarantee for model in winners.values()]
    guarantee, winner = _together(total, parts, domain, seeded=seed is not None), winners[best]
    # what is published must not promise more than was spent on finding it
    winner.release_ = replace(winner.release_, guarantee=guarantee)
    spent = ({"name": name, **asdict(plan.guarantee), "V": plan.bound.V} for name, plan in plans.items())
    chosen = {
        "epsilon": score_budget.epsilon,
        "scale": scale,
        "resolution": scale * math.log(len(named) / 0.05),
        "propensity": probability,
        "sampler": "permute-and-flip in floating point" if seed is not None else "OpenDP make_noisy_max",
    }
    counts = n_fitted, n_scored
    return PrivateTuning(best, winner.release_, guarantee, (*spent,), chosen, *counts, receipt, winner)


def _plan(name: str, model: PrivateTwoStageERM, n_samples: int, n_features: int) -> Plan[Study]:
    try:
        plan = model.plan(n_samples, n_features)
    except CalibrationError as error:
        raise CalibrationError(f"{name}: {error}") from None
    if not plan.proven:
        raise CalibrationError(f"{name}: {plan.main.reason}, which is not proven: no charge covers it")
    return plan


def _divided(n_samples: int, n_fitted: int, source: Source) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # at random, so that the guarantee holds for files whose order depends on their records
    order = list(range(n_samples))
    source.shuffle(order)
    return np.array(order[:n_fitted], dtype=np.int64), np.array(order[n_fitted:], dtype=np.int64)


def _gain(model: PrivateTwoStageERM, records: Dataset, rows: NDArray[np.int64], probability: float) -> int:
    held_out: Any = records.at(rows)
    chosen = model.predict(held_out)
    net = model.domain.net_outcome(records.a[rows], records.y[rows])
    counts: Array | float = 1.0
    if records.sampling is not None:
        weights = model.domain.sampling
        counts = records.sampling[rows] / (1.0 if weights is None else weights.largest)
    return total_gain(chosen, records.a[rows], net, model.domain, probability, counts)


def _together(total: Budget, parts: Sequence[Guarantee], domain: Domain, *, seeded: bool) -> Guarantee:
    """The guarantee of the choice and of all releases together."""
    standing = Standing.PRIVATE if all(part.private for part in parts) else Standing.CONDITIONAL
    assumed = dict.fromkeys(text for part in parts for text in part.assumptions)
    return Guarantee(
        epsilon=total.epsilon,
        delta=total.delta,
        relation=domain.relation,
        theorem="; ".join(dict.fromkeys([CHOICE, *(part.theorem for part in parts)])),
        stability_theorem="; ".join(dict.fromkeys(part.stability_theorem for part in parts)),
        assumptions=(*assumed, _ASSUMPTION),
        standing=Standing.NOT_PRIVATE if seeded else standing,
    )
