"""Solvers compared: what each returns, and what one certificate proves about it.

Every solution is checked afterwards by a bound that does not rely on the solver: no claim lies
below the true error.
"""

import sys

import numpy as np

from dp2erm_cvx import Domain
from dp2erm_cvx.program import registry
from dp2erm_cvx.report.figures import COLORS, new_figure, plain, save
from dp2erm_cvx.solve import SCS, Clarabel, Newton, ProjectedGradient, solve

rng, n = np.random.default_rng(0), 60
X, a = rng.uniform(-0.4, 0.4, (n, 5)), rng.integers(0, 2, n)
program = registry.build(registry.first_stages(), "ipw_logistic", ridge=0.01, radius=2.0)
instance = program.instance(Domain(1.0, 1.0).records(X, a, np.zeros(n)))
exact = solve(instance).value
solvers = {
    "Clarabel": [Clarabel(tol=10.0**-k) for k in (2, 4, 6, 8, 10)],
    "SCS": [SCS(eps=10.0**-k) for k in (1, 2, 3, 4, 6, 8)],
    "projected gradient": [ProjectedGradient(k) for k in (1, 3, 10, 30, 100)],
    "Newton": [Newton(k) for k in (1, 2, 3, 4)],
}
figure = new_figure(6.4, 3.8)
ax = figure.subplots()
for (name, settings), color, mark in zip(solvers.items(), COLORS[1:], "osD^", strict=False):
    points = []
    for solver in settings:
        solution = solve(instance, solver=solver, polish=False, throw=False)
        true = float(np.sum(np.abs(solution.value - exact))) / n
        points.append((max(true, 1e-15), solution.certificate.relative_radius))
    ax.loglog(*np.array(points).T, mark, color=color, label=name, markersize=5)
ax.plot([1e-15, 2.0], [1e-15, 2.0], color="0.6", linewidth=0.8)
ax.set(xlabel="true error of the weights", ylabel="proved by the certificate")
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
