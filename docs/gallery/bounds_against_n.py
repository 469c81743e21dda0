"""Bounds against n: how far the weights can move when one of n records changes.

The paper's bound on inverse propensity weights grows like the root of n, the proven one does not
grow.
"""

import sys

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.paper import paper_ipw_logistic
from dp2erm_cvx.problems.ipw_logistic import ipw_logistic
from dp2erm_cvx.report.figures import BLUE, COLORS, ORANGE, new_figure, plain, save

numbers = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
ridge, radius = 0.1, 1.0
figure = new_figure(6.4, 3.6)
ax = figure.subplots()
scheme, domain = ipw_logistic(ridge=ridge, radius=radius), Domain(1.0, 1.0)
sharp = [scheme.stability(Universe(domain, n, 1)).V for n in numbers]
printed = [paper_ipw_logistic(n, 1.0, ridge, radius).V for n in numbers]
ax.loglog(numbers, printed, "o--", color=ORANGE, label="the paper's bound")
ax.loglog(numbers, sharp, "o-", color=BLUE, label="proven here")
ax.loglog(numbers, [2 * n for n in numbers], ":", color=COLORS[0], label="2n: all weight moves")
ax.set(xlabel="number of records n", ylabel="movement of the weights, V")
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
