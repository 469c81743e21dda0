"""A messy table: text treatments, categories, gaps and spelling, declared once in a codebook.

The codebook is public and looks at one record at a time, so that it costs no privacy. Cells that it
does not know become the declared level "other", gaps the declared number.
"""

import sys

import numpy as np
import pandas as pd

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect
from dp2erm_cvx.report.figures import BLUE, new_figure, plain, save

rng, n = np.random.default_rng(3), 20_000
age, severity = rng.normal(55, 9, n).clip(30, 80), rng.normal(5, 1.7, n).clip(0, 10)
treated = rng.random(n) < 1 / (1 + np.exp(5 - severity))
region = rng.choice(["North", "South", "East", "Noth"], n)
table = pd.DataFrame({"age": age, "severity": severity, "region": region})
table["pulse"] = np.where(rng.random(n) < 0.3, np.nan, rng.normal(72, 10, n))
table["arm"] = np.where(treated, "Verum", "placebo")
table["score"] = 52 + 3.0 * treated - 2.5 * (severity - 5) + rng.normal(0, 4, n)

book = Codebook(
    treatment={"column": "arm", "treated": "Verum", "control": "placebo"},
    outcome="score",
    levels={"region": ["North", "South", "East", "other"]},
    missing={"pulse": 70.0},
)
ranges = book.ranges({"age": (30, 80), "severity": (0, 10), "pulse": (40, 110)})
domain = Domain(book.norm(ranges), 25.0, 50.0, ranges=ranges, codebook=book)

figure = new_figure(6.4, 2.6)
ax = figure.subplots()
for place, epsilon in enumerate((1.0, 2.0, 4.0)):
    model = PrivateEffect(domain, Budget(epsilon), residual_scale=4.0, seed=1)
    release = model.fit(table, table["arm"], table["score"]).release_
    ax.hlines(place, release.interval.low, release.interval.high, color=BLUE, linewidth=3)
    ax.plot(release.estimate, place, "o", color=BLUE)
naive = table["score"][treated].mean() - table["score"][~treated].mean()
ax.axvline(3.0, color="0.4", linestyle=":", label="true effect")
ax.axvline(naive, color="0.4", linestyle="--", label="difference of means")
ax.set_yticks(range(3), ["epsilon 1", "2", "4"])
ax.set_ylim(-0.5, 2.5)
ax.set(xlabel="effect on the score")
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
