"""Treatments of three and five arms: coverage of contrasts, one by one and together, and errors.

``python arms.py 40 default fixed`` prints the table as CSV. Covariates are uniform in their ranges.
Trials have public rates; confounded tables have log odds along two covariates and effects that vary
with one of them. Settings are the defaults, or fixed ones: half of the budget for the regression,
.15 for a multinomial propensity, M_r of four standard deviations, B_a = 2.5 / pi_a, F = 20; slopes
in common in trials, by arm with confounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from common import repeated

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment

RATES = {3: (0.5, 0.3, 0.2), 5: (0.3, 0.25, 0.2, 0.15, 0.1)}
P = 3


def drawn(
    n: int, n_arms: int, kind: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariates (n, 3), arms (n,) and outcomes (n,) with residuals of standard deviation 1."""
    X = rng.uniform(-1.0, 1.0, (n, P))
    order, logits = np.arange(n_arms), np.log(RATES[n_arms])[None, :]
    if kind != "trial":
        leaning = np.linspace(-0.5, 0.5, n_arms)
        logits = logits + np.outer(X[:, 0] + 0.5 * X[:, 1], leaning)
    chances = np.exp(logits)
    chances /= chances.sum(axis=1, keepdims=True)
    arm = np.minimum((rng.random(n)[:, None] > np.cumsum(chances, axis=1)).sum(axis=1), n_arms - 1)
    varying = 0.0 if kind == "trial" else 0.3 * X[:, 0]
    effect = 0.5 * order[arm] * (1.0 + varying)
    return X, arm, X @ [1.0, 0.5, -0.5] + effect + rng.standard_normal(n)


def settings_of(way: str, kind: str, n_arms: int) -> dict[str, object]:
    """The settings that are declared; none by default."""
    if way == "default":
        return {}
    settings = {
        "center_share": 0.5,
        "residual_bound": 4.0,
        "score_bound": 2.5 * n_arms,
        "cap": 20.0,
    }
    if kind == "trial":
        return settings | {"rows": "common"}
    return settings | {"rows": "arms", "propensity": "multinomial", "propensity_share": 0.15}


def main(runs: int, ways: Sequence[str]) -> None:
    """Print one line for every design: all pairs of arms; at n = 10,000 of half as many runs."""
    print(
        "settings,arms,kind,n,epsilon,runs,rmse,each covered,all covered,half width,joint half "
        "width"
    )
    for way, (n_arms, rates), kind in product(ways, RATES.items(), ("trial", "confounded")):
        public = {"rates": rates} if kind == "trial" else {}
        levels = tuple("abcde"[:n_arms])
        book = Codebook(treatment=Treatment(levels=levels, contrasts="pairs", **public))
        domain = Domain(np.sqrt(P), 8.0, 0.5, ranges=[(-1.0, 1.0)] * P, codebook=book)
        for n, epsilon in ((2000, 1.0), (2000, 4.0), (10_000, 1.0), (10_000, 4.0)):
            chosen = settings_of(way, kind, n_arms)
            model = PrivateEffect(domain, Budget(epsilon), residual_scale=1.0, settings=chosen)
            number = runs if n < 10_000 else max(runs // 2, 2)
            row = ",".join(f"{x:.3f}" for x in measured(model, levels, n, kind, number))
            print(f"{way},{n_arms},{kind},{n},{epsilon:g},{number},{row}", flush=True)


def measured(
    model: PrivateEffect, levels: tuple[str, ...], n: int, kind: str, runs: int
) -> list[float]:
    """Root mean squared error, coverage of each and of all, and median half widths.

    Half widths of joint intervals stand beside them.
    """
    rows, whole = [], []
    for seed in range(runs):
        X, arm, y = drawn(n, len(levels), kind, np.random.default_rng([len(levels), n, seed]))
        model.seed = seed
        own = []
        for one in model.fit(X, np.array(levels)[arm], y).release_.arms.contrasts:
            exact = 0.5 * (levels.index(one.level) - levels.index(one.against))
            inside, joint = (i.low < exact < i.high for i in (one.interval, one.joint))
            own.append(
                (one.estimate - exact, inside, joint, one.interval.half_width, one.joint.half_width)
            )
        rows += own
        whole.append(all(one[2] for one in own))
    off, inside, _, half, joint = np.array(rows, dtype=float).T
    return [
        np.sqrt(np.mean(off**2)),
        inside.mean(),
        np.mean(whole),
        np.median(half),
        np.median(joint),
    ]


if __name__ == "__main__":
    args = repeated(__doc__, 40, ("default", "fixed"))
    main(args.runs, args.ways)
