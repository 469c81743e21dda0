"""Numbers of the page on Twins on the choice of the seed, small ridges, and rules that are noise alone.

``python twins_choice.py Twin_Data.csv.gz`` takes ten seconds.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
from rules import Trial, Weights, draw_thetas, judged, plan_rule, taken
from twins import FULL
from twins_data import read_twins

from dp2erm_cvx.privacy import Budget


def trials(pool, subsets: int, epsilons: list[float], draws: int = 1) -> list[Trial]:
    """Training subsets of the pool with the rest of it as test sets."""
    orders = [np.random.default_rng(k).permutation(pool.dataset.n_samples) for k in range(subsets)]
    n = FULL["n_samples"]
    return [Trial(taken(pool, order[:n]), taken(pool, order[n:]), epsilons, draws) for order in orders]


def main(path: str) -> None:
    """Print what the page quotes."""
    constants, X = FULL["constants"], read_twins(path).X
    for seed in (1, 2, 3):
        pool = replace(FULL["forms"]["linear"], seed=seed).draw(X, np.random.default_rng(0))
        for ridge in (1.0, 1e-3):
            scheme = {"program": "ipw_logistic", "settings": {"ridge": ridge}}
            rows = [trial.plain_row(scheme, constants) for trial in trials(pool, 20, [])]
            accuracy, share = (
                np.mean([row[name] for row in rows]) for name in ("accuracy", "effective_share")
            )
            print(
                f"seed {seed}, ridge {ridge:g}: accuracy {accuracy:.2f}, effective sample size {share:.2f} n"
            )

    # the pool is that of seed 3: rules that are noise alone
    trial = trials(pool, 20, [])[-1]
    rows, best = constants.domain(1).features(pool.dataset.X), pool.optimal_rule.astype(bool)
    p = rows.shape[1]
    vertices = np.vstack([np.eye(p), -np.eye(p)])
    ties = (rows @ vertices.T >= 0) == best[:, None]
    at_vertex, anywhere = (
        judged(pool, (rows @ thetas.T > 0).T)["accuracy"]
        for thetas in (vertices, np.random.default_rng(0).standard_normal((2000, p)))
    )
    print(f"zeros among the covariates: {np.mean(rows == 0):.2f}")
    print(f"a vertex: {at_vertex:.3f}, with ties treated: {ties.mean():.3f}")
    print(f"a random direction: {anywhere:.3f}")

    data, uniform = trial.train.dataset, {"program": "uniform"}
    weights = Weights(constants.domain(FULL["n_samples"]).records(data.X, data.a, data.y))
    for family in ("paper", "sharp"):
        rule = plan_rule(uniform, constants, family, "gamma", Budget(0.01), data.X.shape)
        thetas, _, _ = draw_thetas(rule, weights, 200, np.random.default_rng(0))
        count = (np.abs(thetas) > 1e-6).sum(axis=1)
        print(f"{family}: {np.mean(count == 1):.2f} at a vertex, median of coordinates {np.median(count):g}")

    small = {"program": "ipw_logistic", "settings": {"ridge": 1e-3}, "composition": {"share": 0.3}}
    for family in ("sharp", "composition-sharp"):
        rows = []
        for subset, trial in enumerate(trials(pool, 10, [10.0], draws=5)):
            rng = np.random.default_rng(subset)
            rows += trial.private_rows(small, constants, family, "gamma", rng)
        accuracy, V = (np.mean([row[name] for row in rows]) for name in ("accuracy", "V"))
        print(f"ridge 0.001, {family}, epsilon 10: accuracy {accuracy:.2f}, V {V:,.0f}")


if __name__ == "__main__":
    main(sys.argv[1])
