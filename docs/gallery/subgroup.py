"""Effects in subgroups: one release, an interval for every level of a declared column.

Regressions are common to all groups. Thin lines hold for all groups together, thick ones each by
itself.
"""

import sys

import numpy as np
import pandas as pd

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, forest_plot

rng, n = np.random.default_rng(4), 40_000
region = rng.choice(["North", "South", "East"], n, p=[0.5, 0.3, 0.2])
age = rng.uniform(30, 80, n)
treated = (rng.random(n) < 1 / (1 + np.exp((55 - age) / 20))).astype(int)
effect = pd.Series(region).map({"North": 1.0, "South": 3.0, "East": 5.0}).to_numpy()
table = pd.DataFrame({"age": age, "region": region})
outcome = 50 + 0.1 * (age - 55) + effect * treated + rng.normal(0, 4, n)

book = Codebook(levels={"region": ["North", "South", "East"]})
ranges = book.ranges({"age": (30, 80)})
domain = Domain(book.norm(ranges), 25.0, 50.0, ranges=ranges, codebook=book)
model = PrivateEffect(domain, Budget(4.0), by="region", residual_scale=4.0, seed=1)
forest_plot(model.fit(table, treated, outcome).release_, sys.argv[1])
