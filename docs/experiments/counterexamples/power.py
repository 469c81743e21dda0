"""What the search for pairs finds of mechanisms whose epsilon is known: python power.py [seeds]."""

import sys
from functools import partial

import public

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Attack, SearchPlan, search_blackbox
from dp2erm_cvx.universe import Universe

UNIVERSE = Universe(Domain(1.0, 1.0, arm_floor=40), 200, 2)
EVENTS = ("values", "tails", "learned")

for name, given in (
    ("noisy_sum", 1),
    ("noisy_sum", 2),
    ("noisy_difference", 1),
    ("noisy_difference", 2),
    ("jump", 1),
):
    mechanism = partial(getattr(public, name), epsilon=given)
    bounds = []
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5):
        found = search_blackbox(
            mechanism,
            UNIVERSE,
            epsilon=1.0,
            attack=Attack(2000, takes_rng=True, events=EVENTS, seed=seed),
            search=SearchPlan(evaluations=60, seed=seed),
        )
        bounds.append(found.audit.epsilon_low)
    print(name, given, *(f"{bound:.2f}" for bound in sorted(bounds)), flush=True)
