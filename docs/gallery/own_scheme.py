"""A scheme of your own: stability, certificate and noise are derived from its declaration.

Weights of two datasets that differ in one record; the area between them is the movement that noise
has to cover.
"""

import sys

import cvxpy as cp
import numpy as np

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.program import scheme
from dp2erm_cvx.report.figures import BLUE, ORANGE, new_figure, plain, save
from dp2erm_cvx.solve import solve


@scheme.separable(ridge=0.1, radius=2.0)
def matching(s):
    """Matching weights (Li & Greene 2013) by loss and log weight of s = (2a - 1) <x, v>."""
    return cp.logistic(-s), cp.minimum(-s, 0)


domain, n = Domain(covariate_bound=1.0, outcome_bound=1.0), 24
rng = np.random.default_rng(8)
X = np.sort(rng.uniform(-1.0, 1.0, (n, 1)), axis=0)
a = (rng.uniform(size=n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int)
changed = X.copy()
changed[-2] = -changed[-2]
weights = [
    solve(matching().instance(domain.records(x, a, np.zeros(n)))).value for x in (X, changed)
]
bound = matching().stability(Universe(domain, n, 1))
figure = new_figure(6.4, 3.2)
ax, edges = figure.subplots(), np.arange(n + 1) + 0.5
for w, color, label in zip(weights, (BLUE, ORANGE), ("before", "after the change"), strict=True):
    ax.stairs(w, edges, color=color, label=label)
ax.set(xlabel="record", ylabel="weight")
moved = np.sum(np.abs(weights[0] - weights[1])) + 2 * min(w[-2] for w in weights)
ax.set_title(
    f"V = {moved:.1f} here; at most {bound.V:.1f}: {bound.theorem}", loc="left", fontsize="medium"
)
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
