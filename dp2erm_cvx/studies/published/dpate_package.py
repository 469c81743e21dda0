"""The estimators of the package dpate, as they are; it is called where somebody installed it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from dp2erm_cvx.compare.effect_references import Estimate
from dp2erm_cvx.domain import Records
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.studies.published.method import PublishedEffect


@dataclass(frozen=True)
class Dpate(PublishedEffect):
    """One function of dpate (MIT) at its defaults, with covariates in the unit ball, as it asks for.

    Nothing of it is changed but where its random numbers come from, so that a seed decides. Its guarantee is
    what it states, and of several functions it is refuted (page "Audited methods"). Raises DataError where
    the package is missing, and what its function raises.
    """

    source: ClassVar[str] = "dpate 0.0.1, github.com/dstewtes/dpate"
    assumes: ClassVar[str] = "norms of covariates, outcomes"

    function: str = "dp_ipw_split"

    def __call__(self, records: Records, budget: Budget, rng: np.random.Generator) -> Estimate:
        """See :class:`PublishedEffect`."""
        if find_spec("dpate") is None:
            raise DataError("the package dpate is not installed: pip install dpate (Python 3.12 or later)")
        domain = records.domain
        kind = "gaussian" if budget.delta else "laplacian"
        call = getattr(import_module("dpate"), self.function)
        # arrays of its own: records cannot be written
        x, a, y = records.covariates / domain.features_bound, np.array(records.a), np.array(records.y)
        with _seeded(import_module("dpate.utils"), rng):
            found = call(x, a, y, domain.outcome_bound, budget.epsilon, delta=budget.delta, distr=kind)
        return Estimate(float(np.squeeze(found)), math.nan)


@contextmanager
def _seeded(utils: Any, rng: np.random.Generator) -> Iterator[None]:
    """Its noise from this generator, and its permutations, which are those of numpy, from a seed of it."""
    own, state = utils.np, np.random.get_state()  # noqa: NPY002
    utils.np = SimpleNamespace(random=SimpleNamespace(default_rng=lambda: rng))
    np.random.seed(int(rng.integers(2**32)))  # noqa: NPY002
    try:
        yield
    finally:
        utils.np = own
        np.random.set_state(state)  # noqa: NPY002
