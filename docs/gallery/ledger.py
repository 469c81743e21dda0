"""A ledger: releases from the same records add up, and what exceeds the declared total is refused.

Under "renyi" composition many small releases cost less than their sum.
"""

import sys
import tempfile
from pathlib import Path

from dp2erm_cvx import Budget, PrivateEffect
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.errors import LedgerError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.report.figures import BLUE, ORANGE, new_figure, plain, save

data, spent = load_nhefs(), []
with tempfile.TemporaryDirectory() as folder:
    ledger = Ledger(Path(folder) / "budget.db")
    ledger.declare("nhefs", Budget(3.0))
    for adjusted in (["age"], ["wt71"], ["age", "wt71"], ["sex"]):
        model = PrivateEffect(
            nhefs_domain(),
            Budget(1.0),
            prognostic=adjusted,
            residual_scale=7.5,
            ledger=ledger,
            dataset="nhefs",
        )
        try:
            model.fit(data.X, data.a, data.y)
            refused = False
        except LedgerError as error:
            print(error)
            refused = True
        spent.append((", ".join(adjusted), ledger.account("nhefs").spent.epsilon, refused))
figure = new_figure(6.4, 2.6)
ax = figure.subplots()
for name, total, refused in spent:
    label = f"{name}: refused" if refused else name
    ax.barh(label, total, color=ORANGE if refused else BLUE, zorder=3)
ax.axvline(3.0, color="0.3", linestyle="--", label="declared total")
ax.set(xlabel="epsilon spent after this release")
ax.invert_yaxis()
ax.legend(frameon=False)
plain(ax)
save(figure, sys.argv[1])
