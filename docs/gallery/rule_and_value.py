"""A rule and what it is worth: whom to treat, released together with intervals for its gain.

A share of the budget buys the value: the gain over treating everybody and over treating nobody.
"""

import sys

from dp2erm_cvx import Budget, Domain, PrivateRule
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.report.figures import BLUE, ORANGE, new_figure, plain, save

train, test = simulate("linear", 20_000, rng=1), simulate("linear", 50_000, rng=2)
rule = PrivateRule(
    Domain(1.8, 30.0), Budget(4.0), outcome_scale=4.0, settings={"value_share": 0.3}, seed=1
).fit(train.dataset.X, train.dataset.a, train.dataset.y)
print(rule.release_.summary())

decisions = rule.predict(test.dataset.X)
truth = {
    "the released rule": test.value(decisions),
    "the best rule": test.value(test.optimal_rule),
    "treat everybody": test.value([1] * len(decisions)),
    "treat nobody": test.value([0] * len(decisions)),
}
figure = new_figure(6.4, 2.6)
ax = figure.subplots()
colors = [BLUE if name == "the released rule" else ORANGE for name in truth]
ax.barh(list(truth), list(truth.values()), color=colors, zorder=3)
ax.set(xlabel=f"mean outcome on fresh records; right for {test.accuracy(decisions):.1%}")
ax.invert_yaxis()
plain(ax)
save(figure, sys.argv[1])
