"""Treatments of three and five arms: coverage of every contrast, of all together, errors and widths.

``python arms.py 40`` prints the table as CSV. Trials have public rates; confounded tables have log odds along
two covariates and effects that vary with one of them.
"""

from __future__ import annotations

import sys

import numpy as np

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, Treatment

RATES = {3: (0.5, 0.3, 0.2), 5: (0.3, 0.25, 0.2, 0.15, 0.1)}
P, RANGE = 3, 3.0


def drawn(
    n: int, n_arms: int, kind: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariates (n, 3), arms (n,) and outcomes (n,) with residuals of standard deviation 1."""
    X = np.clip(rng.standard_normal((n, P)), -RANGE, RANGE)
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


def main(runs: int) -> None:
    """Print one line for every design: all pairs of arms."""
    print("arms,kind,n,epsilon,runs,rmse,each covered,all covered,half width,joint half width")
    for n_arms, rates in RATES.items():
        levels = tuple("abcde"[:n_arms])
        for kind in ("trial", "confounded"):
            public = {"rates": rates} if kind == "trial" else {}
            book = Codebook(treatment=Treatment(levels=levels, contrasts="pairs", **public))
            domain = Domain(np.sqrt(P), 8.0, 0.5, ranges=[(-RANGE, RANGE)] * P, codebook=book)
            truth = {level: 0.5 * place for place, level in enumerate(levels)}
            for n, epsilon in ((2000, 1.0), (2000, 4.0), (10_000, 1.0), (10_000, 4.0)):
                rows, whole = [], []
                for seed in range(runs if n < 10_000 else max(runs // 2, 2)):
                    X, arm, y = drawn(n, n_arms, kind, np.random.default_rng([n_arms, n, seed]))
                    model = PrivateEffect(domain, Budget(epsilon), residual_scale=1.0, seed=seed)
                    contrasts = model.fit(X, np.array(levels)[arm], y).release_.arms.contrasts
                    own = []
                    for one in contrasts:
                        exact = truth[one.level] - truth[one.against]
                        inside, joint = (i.low < exact < i.high for i in (one.interval, one.joint))
                        widths = one.interval.half_width, one.joint.half_width
                        own.append((one.estimate - exact, inside, joint, *widths))
                    rows += own
                    whole.append(all(one[2] for one in own))
                off, inside, _, half, joint = np.array(rows, dtype=float).T
                numbers = (
                    np.sqrt(np.mean(off**2)),
                    inside.mean(),
                    np.mean(whole),
                    *map(np.median, (half, joint)),
                )
                print(
                    f"{n_arms},{kind},{n},{epsilon:g},{len(whole)}," + ",".join(f"{x:.3f}" for x in numbers)
                )
                sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
