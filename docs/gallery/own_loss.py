"""A loss of your own: a conditional quantile, released with noise in its objective.

A second stage is a sum over records of one curve of one margin; gamma and noise follow from the
declaration.
"""

import sys

import cvxpy as cp
import numpy as np

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.program import second_stage
from dp2erm_cvx.report.figures import COLORS, new_figure, plain, save


@second_stage(radius="outcome_bound / M", level=0.8, width=0.5)
def pinball(theta, records, radius, level, width):
    """A conditional quantile of the outcome by a smoothed pinball loss (Koenker & Bassett 1978)."""
    residual = records.y - records.x @ theta
    loss = width * cp.logistic(residual / width) - (1 - level) * residual
    return cp.Problem(cp.Minimize(cp.sum(loss)), [cp.norm(theta) <= radius])


rng, n = np.random.default_rng(2), 4000
x = np.sort(rng.uniform(-1, 1, (n, 1)), axis=0)
y, a = 1.5 * x[:, 0] + (1 + x[:, 0]) * rng.standard_normal(n) / 2, rng.integers(0, 2, n)
domain = Domain(covariate_bound=1.5, outcome_bound=4.0, intercept=1.0)
figure = new_figure(6.4, 3.6)
ax = figure.subplots()
ax.plot(x[::10, 0], y[::10], ".", color="0.8", markersize=3)
for color, (level, epsilon) in zip(COLORS[1:], ((0.8, 1.0), (0.8, 4.0), (0.2, 4.0)), strict=False):
    model = PrivateTwoStageERM(domain, Budget(epsilon), "uniform", pinball(level=level), seed=1)
    theta = model.fit(x, a, y).theta_
    line = np.column_stack([np.ones(n), x]) @ theta
    ax.plot(x[:, 0], line, color=color, label=f"quantile {level:g}, epsilon {epsilon:g}")
ax.set(xlabel="x", ylabel="outcome", ylim=(-4, 4))
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
