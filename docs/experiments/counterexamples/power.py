"""Search for pairs of mechanisms whose epsilon is known: python power.py [seeds]."""

import sys
from functools import partial

import public

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Attack, Declared, SearchPlan, search_runs
from dp2erm_cvx.data.universe import Universe

UNIVERSE = Universe(Domain(1.0, 1.0, arm_floor=40), 200, 2)
EVENTS = ("values", "tails", "learned")

for name, declared, value in (
    ("noisy_sum", "epsilon", 1),
    ("noisy_sum", "epsilon", 2),
    ("noisy_difference", "epsilon", 1),
    ("noisy_difference", "epsilon", 2),
    ("jump", "epsilon", 1),
    ("gaussian_sum", "mu", 1),
    ("gaussian_sum", "mu", 2),
):
    mechanism = partial(getattr(public, name), **{declared: value})
    bounds = []
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        search = search_runs(
            mechanism,
            UNIVERSE,
            Declared(**{declared: 1.0}),
            attack=Attack(2000, takes_rng=True, events=EVENTS, seed=seed),
            search=SearchPlan(evaluations=60, seed=seed),
        )
        bounds.append(search.audit.low)
    print(name, value, *(f"{bound:.2f}" for bound in sorted(bounds)), flush=True)
