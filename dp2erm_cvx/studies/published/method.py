"""What a published private estimator of an effect is to this library: one call, and a stated guarantee."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp2erm_cvx.audit.additive import Stages, run_stages
from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.privacy import Budget


@dataclass(frozen=True)
class PublishedEffect(abc.ABC):
    """An estimator of an average effect that others published, as its public description states it.

    Instances are settings, which are public. A call is a function of the records, the budget and the
    generator alone, so that it can be audited from outside. It simulates: its noise is seeded, in floating
    point, and nothing that it returns may be published.

    Attributes
    ----------
    source
        Whose it is.
    assumes
        What a bound on every record is needed for.
    treated_only
        Ask for the effect among the treated; only where ``serves_treated``.
    """

    source: ClassVar[str]
    assumes: ClassVar[str]
    serves_treated: ClassVar[bool] = False

    treated_only: bool = False

    @abc.abstractmethod
    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """The estimate from records inside their domain, neighbors being those with one record replaced.

        With ``budget.delta`` = 0 noise is pure, else Gaussian. The error is nan where no interval is public.
        """


@dataclass(frozen=True)
class StagedEffect(PublishedEffect):
    """One whose random splits and noised values are known, so that its losses are exact."""

    @abc.abstractmethod
    def stages(self, records: Records, budget: Budget) -> Stages[Estimate]:
        """Everything random in a call, in its order, and the estimate; it may read nothing else at random."""

    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """See :class:`PublishedEffect`."""
        return run_stages(self.stages(records, budget), rng)


@dataclass(frozen=True)
class PublishedRule(abc.ABC):
    """A linear treatment rule that others published, as its public description states it.

    As :class:`PublishedEffect` in all else.

    Attributes
    ----------
    source
        Whose it is.
    assumes
        What a bound on every record is needed for, or what must be known.
    """

    source: ClassVar[str]
    assumes: ClassVar[str]

    @abc.abstractmethod
    def stages(self, records: Records, propensity: Array, budget: Budget | None) -> Stages[Array]:
        """Everything random in a call, as for :class:`StagedEffect`; nothing without a budget."""

    def __call__(
        self, records: Records, propensity: Array, budget: Budget | None, rng: np.random.Generator
    ) -> Array:
        """Coefficients (p,) of a rule that treats where ``X theta`` > 0; without a budget, without noise.

        ``propensity`` (n,) is P(A = 1 | x), as of a trial, for those that need it known.
        """
        return run_stages(self.stages(records, propensity, budget), rng)


def group_count(n: int, columns: int, per_column: float) -> int:
    """As many groups as leave ``per_column`` records a column, and at least 20, to each; at least two."""
    return max(2, int(n // max(20.0, per_column * columns)))
