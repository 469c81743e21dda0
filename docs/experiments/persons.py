"""Persons with several records: coverage and error by person, by one record of each, and by rows.

``python persons.py`` prints the table as CSV; each way is judged by the mean that it estimates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from common import repeated

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect
from dp2erm_cvx.data.counts import Unit

RANGES = {f"x{k}": (-1.0, 1.0) for k in range(3)}


def drawn(number: int, most: int, by: str, rng: np.random.Generator) -> pd.DataFrame:
    """Records of persons with 1 to ``most`` of them, whose effects average to 1 over persons.

    The residual variance .25 is half of the person; who has more records has larger effects.
    """
    k = rng.integers(1, most + 1, number)
    person = np.repeat(np.arange(number), k)
    x = rng.uniform(-1.0, 1.0, (number if by == "person" else len(person), 3))
    chance = 1.0 / (1.0 + np.exp(-x[:, 0]))
    arm = rng.binomial(1, chance)
    if by == "person":
        x, arm = x[person], arm[person]
    effect = effects(k, most)
    residual = np.sqrt(0.125) * (
        rng.standard_normal(number)[person] + rng.standard_normal(len(person))
    )
    y = x @ [1.0, 0.5, -0.5] + effect[person] * arm + residual
    return pd.DataFrame(x, columns=list(RANGES)).assign(id=person, arm=arm, y=y)


def effects(k: np.ndarray, most: int) -> np.ndarray:
    """The effects of persons with ``k`` (n,) of at most ``most`` records."""
    return 1.0 + 0.25 * (4.0 * (k - 1.0) / (most - 1.0) - 2.0)


def estimates(
    table: pd.DataFrame, number: int, epsilon: float, most: int, seed: int
) -> Iterator[tuple[str, PrivateEffect]]:
    """Estimates by person, by the first record of each, and by rows.

    Rows are taken, wrongly, for records at a share of epsilon each.
    """
    first = table.drop_duplicates("id")
    for name, rows, unit, spent in (
        ("persons", table, Unit("id", number), epsilon),
        ("one record of each", first, None, epsilon),
        ("rows as if independent", table, None, epsilon / most),
    ):
        book = Codebook(unit=unit)
        domain = Domain(np.sqrt(3.0), 4.0, outcome_center=0.5, ranges=RANGES, codebook=book)
        model = PrivateEffect(domain, Budget(spent), residual_scale=0.6, seed=seed)
        yield name, model.fit(rows, rows["arm"], rows["y"])


def main(runs: int) -> None:
    """Print one line for every design and way."""
    print("persons,records,treatment,epsilon,way,runs,rmse,coverage,half width")
    for number, most, share in ((2000, 5, 1.0), (10_000, 5, 0.3), (2000, 200, 0.2)):
        sizes = np.arange(1, most + 1)
        of_rows = float(np.average(effects(sizes, most), weights=sizes))  # what rows average to
        for by in ("record", "person"):
            for epsilon in (1.0, 4.0):
                errors: dict[str, list[tuple[float, bool, float]]] = {}
                for seed in range(max(int(runs * share), 2)):
                    table = drawn(number, most, by, np.random.default_rng([number, most, seed]))
                    for name, model in estimates(table, number, epsilon, most, seed):
                        (low, high), truth = model.interval_, of_rows if "rows" in name else 1.0
                        one = (model.effect_ - truth, low <= truth <= high, 0.5 * (high - low))
                        errors.setdefault(name, []).append(one)
                for name, results in errors.items():
                    off, within, half = (np.array(column) for column in zip(*results, strict=True))
                    rmse = np.sqrt(np.mean(off**2))
                    design = f"{number},1-{most},{by},{epsilon:g},{name},{len(off)}"
                    print(
                        f"{design},{rmse:.3f},{within.mean():.3f},{np.median(half):.3f}", flush=True
                    )


if __name__ == "__main__":
    main(repeated(__doc__, 100).runs)
