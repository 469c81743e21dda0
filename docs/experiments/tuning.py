"""Costs of a choice that is made on public or on private data: ``python tuning.py``, two minutes."""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict

import numpy as np
from common import repeated

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, tune_privately
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.design import DesignRequest, PublicData, design
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing

DOMAIN = Domain(covariate_bound=math.sqrt(11), outcome_bound=10.0, intercept=1.0)
RIDGE = EntropyBalancing().resolve(DOMAIN).ridge
N = 4000


def candidates(epsilon: float) -> dict[str, PrivateTwoStageERM]:
    """Weights of 1, and entropy balancing at its default ridge and at a tenth of it."""
    stages = {
        "uniform weights": "uniform",
        "default ridge": "entropy_balancing",
        "a tenth of it": EntropyBalancing(ridge=RIDGE / 10.0),
    }
    return {name: PrivateTwoStageERM(DOMAIN, Budget(epsilon), first) for name, first in stages.items()}


def main(repeats: int) -> None:
    """Print the mean value of the rules, with its standard error, and what was chosen."""
    test = simulate("linear", 100_000, rng=999)
    X = test.dataset
    for epsilon in (1.0, 4.0):
        values, chosen = defaultdict(list), defaultdict(Counter)
        for seed in range(repeats):
            data, models = simulate("linear", N, rng=seed).dataset, candidates(epsilon)
            public = PublicData(
                simulate("linear", 500, rng=1000 + seed).dataset, "a pilot study", holdout=0.3
            )
            request = DesignRequest(
                DOMAIN, N, 10, Budget(epsilon), "rule", public=public, replicates=10, seed=seed
            )
            best = design(request, models).best.name
            for name, model in models.items():
                values[name].append(test.value(model.set_params(seed=seed).fit(data).predict(X)))
            values["on public data"].append(values[best][-1])
            chosen["on public data"][best] += 1
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # seeded: nothing is charged
                tuned = tune_privately(
                    candidates(epsilon / 3.0),
                    *(data.X, data.a, data.y),
                    ledger=None,
                    dataset=None,
                    score_budget=Budget(epsilon),
                    seed=seed,
                )
            values["on private data"].append(test.value(tuned.model.predict(X)))
            chosen["on private data"][tuned.best] += 1
        print(f"epsilon = {epsilon:g}")
        for name, errors in values.items():
            error = np.std(errors, ddof=1) / math.sqrt(repeats)
            print(f"  {name:16} {np.mean(errors):.2f} ± {error:.2f}", dict(chosen[name]) or "")


if __name__ == "__main__":
    main(repeated(__doc__, 20).runs)
