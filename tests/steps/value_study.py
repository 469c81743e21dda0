"""How far both statistics are from the truth in simulated scenarios: the table of docs/after_release.md."""

from __future__ import annotations

import math
import sys

import numpy as np
from scipy.special import expit

from dp2erm_cvx import Domain, registry
from dp2erm_cvx.calibration.numbers import calibrate_value
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.problems.itr import itr
from dp2erm_cvx.release.value import contrasts_from_cells
from dp2erm_cvx.solve import solve
from dp2erm_cvx.steps.value import value_cells, value_contrasts
from dp2erm_cvx.universe import Universe

#: Scenario, share of the treated, center c and bound M' of the outcome.
SETTINGS = (
    ("linear", "half", 0.0, 8.0),
    ("nonlinear", "half", 4.0, 8.0),
    ("tree", "half", 0.0, 12.0),
    ("tree", "half", 4.0, 12.0),
    ("tree", "quarter", 0.0, 12.0),
    ("tree", "quarter", 4.0, 12.0),
)
FIRST_STAGES = ("uniform", "entropy_balancing")
EPSILONS = (0.2, 1.0)
REPLICATES = {400: 60, 4000: 20}
TEST_SIZE = 20_000


def raw_data(scenario, share, n, seed):
    drawn = simulate(scenario, n, rng=seed)
    X = drawn.dataset.X
    if share == "half":
        return X, drawn.dataset.a, drawn.dataset.y
    rng = np.random.default_rng(seed + 10**6)
    a = (rng.uniform(size=n) < expit(0.3 * X[:, 0] - 0.5 * X[:, 1] - 1.05)).astype(int)
    return X, a, drawn.main_effect + (a - 0.5) * drawn.contrast + math.sqrt(2) * rng.standard_normal(n)


def rule_of(records, weights):
    """The least-squares rule of these records, without noise."""
    program = itr(theta_set=L2Ball(100.0))
    return solve(program.instance(records, weights, gamma=1e-3)).value


def study(setting, first_stage, n, replicates):
    """Row of the table: V, mass of the treated, and root mean square errors in units of the outcome."""
    scenario, share, center, largest = setting
    domain = Domain(math.sqrt(11), largest, outcome_center=center, intercept=1.0)
    first = registry.build(registry.first_stages(), first_stage).resolve(domain)
    bound = first.stability(Universe(domain, n, 2))
    scales = {
        kind: [calibrate_value(bound, largest, n, epsilon, statistic=kind).scale for epsilon in EPSILONS]
        for kind in ("contrasts", "cells")
    }
    test = simulate(scenario, TEST_SIZE, rng=99_999)
    features = domain.features(test.dataset.X)
    rng = np.random.default_rng(n)
    errors = {name: [] for name in ("own", "other", "cells", *EPSILONS)}
    masses, other = [], None
    for seed in range(replicates + 1):
        records = domain.records(*raw_data(scenario, share, n, seed))
        weights = solve(first.instance(records)).value
        own = rule_of(records, weights)
        if other is not None:
            masses.append(weights[records.a == 1].sum() / n)
            for name, theta in (("own", own), ("other", other)):
                rule = (features @ theta > 0).astype(int)
                truth = np.array([test.value(rule) - test.value(np.full(TEST_SIZE, c)) for c in (1, 0)])
                chosen = (records.X @ theta > 0).astype(int)
                errors[name].append(value_contrasts(records, weights, chosen) - truth)
            cells = value_cells(records, weights, chosen)
            for name, scale in zip(("cells", *EPSILONS), (1e-9, *scales["cells"]), strict=True):
                noisy = cells + rng.laplace(scale=scale, size=8)
                errors[name].append(contrasts_from_cells(noisy, largest, scale)[0] - truth)
        other = own
    size = {name: math.sqrt(np.mean(np.square(found))) for name, found in errors.items()}
    contrasts = [math.hypot(size["other"], math.sqrt(2) * scale) for scale in scales["contrasts"]]
    by_cells = [size[name] for name in ("cells", *EPSILONS)]
    return [bound.V, float(np.mean(masses)), size["own"], size["other"], *contrasts, *by_cells]


def line(setting, first_stage, n, replicates):
    scenario, share, center, _ = setting
    names = [scenario, share, f"{center:g}", f"`{first_stage}`", str(n)]
    numbers = study(setting, first_stage, n, replicates)
    return "| " + " | ".join(names + [f"{number:.2f}" for number in numbers]) + " |"


if __name__ == "__main__":
    for n, replicates in REPLICATES.items():
        for setting in SETTINGS:
            for first_stage in FIRST_STAGES:
                sys.stdout.write(line(setting, first_stage, n, replicates) + "\n")
                sys.stdout.flush()
