"""Data larger than memory: the same release from blocks of a Parquet file, one block at a time.

A seeded release from blocks is that of the records in memory, up to rounding; only its memory is
smaller.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from dp2erm_cvx import BlockedDataset, Budget, Domain, PrivateEffect
from dp2erm_cvx.report.figures import BLUE, ORANGE, new_figure, plain, save

rng, n = np.random.default_rng(5), 60_000
X = rng.uniform(-1, 1, (n, 4))
a = (rng.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
table = pd.DataFrame(X, columns=["x1", "x2", "x3", "x4"]).assign(
    a=a, y=X[:, 0] + a + rng.normal(0, 0.5, n)
)
domain = Domain(2.0, 4.0, ranges=dict.fromkeys(["x1", "x2", "x3", "x4"], (-1.0, 1.0)))


def model(seed):
    """A seeded release."""
    return PrivateEffect(domain, Budget(1.0), residual_scale=0.5, seed=seed)


figure = new_figure(6.4, 2.8)
ax = figure.subplots()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "records.parquet"
    table.to_parquet(path, row_group_size=10_000)
    blocks = BlockedDataset.read(path, treatment="a", outcome="y")
    for seed in range(5):
        memory, file = model(seed).fit(table.iloc[:, :4], a, table["y"]), model(seed).fit(blocks)
        for shift, one, color, label in (
            (-0.1, memory, BLUE, "in memory"),
            (0.1, file, ORANGE, "in blocks"),
        ):
            ax.plot([seed + shift] * 2, one.interval_, color=color, linewidth=2, label=label)
            ax.plot(seed + shift, one.effect_, "o", color=color)
        print(f"seed {seed}: {memory.effect_:.6f} in memory, {file.effect_:.6f} in blocks")
handles, labels = ax.get_legend_handles_labels()
ax.legend(handles[:2], labels[:2], frameon=False)
ax.set(xlabel="seed", ylabel="effect")
plain(ax)
save(figure, sys.argv[1])
