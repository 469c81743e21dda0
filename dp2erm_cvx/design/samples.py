"""Where the records of a design come from, and what judges a pipeline on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import one_line, public_number
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.diagnostics import augmented, difference_of_means
from dp2erm_cvx.errors import DataError, DeclarationError, brief

#: Estimated probabilities of treatment are at least this far from 0 and 1.
_LEAST_PROBABILITY = 0.02
#: A sample that leaves out fewer records than this on average cannot be scored.
_FEWEST_LEFT_OUT = 10


class SimulatedRun(NamedTuple):
    """One candidate on one dataset; nan where something does not apply.

    Attributes
    ----------
    off
        The estimate less the truth. Of a rule the share of wrong decisions; on public records,
        whose best decisions nobody knows, its ``value`` with the other sign.
    low, high
        The ends of the interval less the truth.
    noise
        The half width that noise alone would leave; of a rule, how far noise moves the effect of
        one record.
    lost
        The mean effect that the wrong decisions of a rule forgo.
    value
        The mean outcome under a rule.
    effective
        The effective sample size of the weights over n.
    """

    off: float
    low: float = math.nan
    high: float = math.nan
    noise: float = math.nan
    lost: float = math.nan
    value: float = math.nan
    effective: float = math.nan


class DesignSample(NamedTuple):
    """Records to fit to, and what pipelines are judged by.

    Attributes
    ----------
    data
        The records that are fitted to.
    truth
        The effect, net of the cost of treatment.
    judged_at
        The m records at which a rule decides.
    judge
        Judges the decisions (m,) of a rule.
    confounded_by
        How far the plain difference of means is off.
    """

    data: Dataset
    truth: float
    judged_at: Dataset
    judge: Callable[[NDArray[np.bool_]], SimulatedRun]
    confounded_by: float


class Asked(Protocol):
    """What a sample of public records depends on, of a request for a design."""

    @property
    def goal(self) -> str:
        """What is released, such as "effect"."""

    @property
    def estimand(self) -> str:
        """What is estimated, such as "ate"."""

    @property
    def domain(self) -> Domain:
        """What is declared of the private records."""

    @property
    def n_samples(self) -> int:
        """Number of records of a sample."""


@dataclass(frozen=True, eq=False, repr=False)
class PublicData:
    """The user's declaration that these records are public and disjoint from the private data.

    Parameters
    ----------
    dataset
        The N records, in the units of the private data:
        :meth:`~dp2erm_cvx.data.dataset.Dataset.from_arrays`, or
        :meth:`~dp2erm_cvx.data.dataset.Dataset.coded` for a raw table.
    source
        One line that says where the public records come from; a design repeats it.
    holdout
        Share of the public records that is set aside to judge rules on, by their value. None: those
        that a bootstrap sample of all of them leaves out. Effects need none.

    Raises
    ------
    DeclarationError
        For an invalid argument.

    Notes
    -----
    Nobody can check the declaration. A person who is in both data sets is not protected by the
    release.
    """

    dataset: Dataset
    source: str
    holdout: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.dataset, Dataset):
            wanted = "must be a Dataset of public records, such as Dataset.from_arrays(X, a, y)"
            raise DeclarationError(f"dataset = {brief(self.dataset)}: {wanted}")
        object.__setattr__(self, "source", one_line("source", self.source))
        if self.holdout is not None:
            n_samples = self.dataset.n_samples
            share = public_number("holdout", self.holdout, above=0.0)
            if not 1 <= math.floor(share * n_samples) <= n_samples - 2:
                wanted = f"at least 1 of the {n_samples} public records and leave 2"
                raise DeclarationError(f"holdout = {brief(self.holdout)}: must set aside {wanted}")

    def __repr__(self) -> str:
        return f"PublicData(source={self.source!r}, n_samples={self.dataset.n_samples})"

    def check(self, domain: Domain, n_samples: int, *, left_out: bool) -> None:
        """Refuse a request that these records cannot serve.

        Parameters
        ----------
        domain
            What is declared of the private records.
        n_samples
            Records of every sample.
        left_out
            Whether rules are judged on records that a sample leaves out.

        Raises
        ------
        DeclarationError
            For other columns than those of the domain, and for too few records.
        DataError
            Where an arm is empty.
        """
        N = self.dataset.n_samples
        if domain.columns is not None and domain.columns != self.dataset.columns:
            raise DeclarationError(
                f"the domain declares the columns {', '.join(domain.columns)}; the public data "
                f"have {', '.join(self.dataset.columns or ())}"
            )
        if not 0 < int(np.sum(self.dataset.a)) < N:
            raise DataError(
                "the public data have records of one treatment only: nothing can be compared"
            )
        expected = N * (1.0 - 1.0 / N) ** n_samples
        if left_out and self.holdout is None and expected < _FEWEST_LEFT_OUT:
            raise DeclarationError(
                f"n_samples = {n_samples}: a bootstrap sample of so many leaves out about "
                f"{expected:.1g} of the {N} public records to judge on: set some aside with "
                "holdout=0.3, or give more"
            )

    def sample(self, request: Asked, rng: np.random.Generator) -> DesignSample:
        """A bootstrap sample of the records; rules are judged on those that it leaves out."""
        data = self.dataset
        domain = request.domain
        n_public = data.n_samples
        if request.goal == "effect" or self.holdout is None:
            drawn = rng.integers(n_public, size=request.n_samples)
            left_out = np.setdiff1d(np.arange(n_public), drawn)
        else:
            n_set_aside = math.floor(self.holdout * n_public)
            left_out, pool = np.split(rng.permutation(n_public), [n_set_aside])
            drawn = pool[rng.integers(len(pool), size=request.n_samples)]
        counts = np.ones(len(data.a))
        if data.sampling is not None:
            counts = data.sampling
        weights = (counts / treatment_probabilities(data, domain))[left_out]
        judged_at = data.at(left_out)

        def judge(treated: NDArray[np.bool_]) -> SimulatedRun:
            """The value of the decisions (m,) of a rule."""
            net = judged_at.y - domain.treatment_cost * judged_at.a
            value = value_of_rule(treated.astype(np.int64), judged_at.a, net, weights)
            return SimulatedRun(-value, value=value)

        effect, confounded_by = _without_privacy(data, request.estimand)
        truth = effect - domain.treatment_cost
        return DesignSample(data.at(drawn), truth, judged_at, judge, confounded_by)


@lru_cache(maxsize=1)
def _without_privacy(data: Dataset, estimand: str) -> tuple[float, float]:
    """The effect by augmented inverse propensity weighting, and the bias of plain means.

    It is that of all public records, hence the same for every sample of them.
    """
    counted = np.ones(len(data.a), dtype=bool)
    if data.sampling is not None:
        counted = data.sampling > 0
    inside = Dataset(data.X[counted], data.a[counted], data.y[counted], data.columns)
    effect = augmented(inside, estimand=estimand).value
    return effect, difference_of_means(inside).value - effect


@lru_cache(maxsize=1)
def treatment_probabilities(dataset: Dataset, domain: Domain) -> Array:
    """Probability (n,) of the treatment that each record got, by logistic regression.

    It is not private. It is the same for all candidates: one that balances nothing would look well
    by its own weights.
    """
    features = domain.features(dataset.X)
    model = LogisticRegression(max_iter=1000).fit(features, dataset.a, dataset.sampling)
    treated = model.predict_proba(features)[:, 1]
    treated = np.clip(treated, _LEAST_PROBABILITY, 1.0 - _LEAST_PROBABILITY)
    return np.asarray(np.where(dataset.a == 1, treated, 1.0 - treated))


def value_of_rule(
    chosen: NDArray[np.int64], a: NDArray[np.int64], net: Array, weights: Array
) -> float:
    """Self-normalized inverse-propensity estimate of ``E[Y(d(X))]``, in units of the outcome.

    Parameters
    ----------
    chosen
        What the rule recommends, (m,).
    a
        Treatments (m,).
    net
        Outcomes (m,), less the cost of treatment.
    weights
        Inverse probabilities (m,) of the treatments times what records count.

    Raises
    ------
    DataError
        Where nobody was treated as the rule recommends.
    """
    following = (chosen == a) * weights
    total = float(np.sum(following))
    if total == 0.0:
        raise DataError(
            "no record left out was treated as the rule recommends: its value has no estimate"
        )
    return float(following @ net) / total
