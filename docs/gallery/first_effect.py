"""A first effect: the weight that smokers gain who quit.

Intervals shrink as epsilon grows, down to what sampling alone leaves. Seeded releases show the
spread of the noise; a seeded release carries no privacy guarantee.
"""

import sys

from dp2erm_cvx import Budget, PrivateEffect, augmented
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.report.figures import BLUE, new_figure, plain, save

data, epsilons = load_nhefs(), (1.0, 2.0, 4.0, 8.0)
figure = new_figure(6.4, 3.4)
ax = figure.subplots()
for place, epsilon in enumerate(epsilons):
    for seed in range(3):
        model = PrivateEffect(
            nhefs_domain(),  # what a record may look like: public, declared without the data
            Budget(epsilon),
            prognostic=["age", "wt71"],  # adjust for age and weight at the start: a public choice
            residual_scale=7.5,  # kg; a public guess of how far changes of weight lie apart
            seed=seed,
        ).fit(data.X, data.a, data.y)
        low, high = model.interval_
        ax.plot([place + 0.2 * (seed - 1)] * 2, [low, high], color=BLUE, linewidth=2)
        ax.plot(place + 0.2 * (seed - 1), model.effect_, "o", color=BLUE)
ax.axhline(
    augmented(data).value, color="0.4", linestyle="--", label="doubly robust, without privacy"
)
ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
ax.set(xlabel="epsilon", ylabel="effect on weight, kg")
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
