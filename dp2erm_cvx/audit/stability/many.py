"""Certified movements of many neighbors of one dataset, solved side by side."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.audit.stability.movement import movements
from dp2erm_cvx.audit.stability.neighbors import Base, Replacement
from dp2erm_cvx.audit.stability.resolve import Pair, Resolved, Solved
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.solve.batch import Replacements, solve_neighbors


def measured(
    program: FirstStage, base: Base, pairs: list[tuple[Replacement, Pair]]
) -> list[tuple[Replacement, Resolved]]:
    """Every change of ``base`` with its movements, without those that have no certified weights."""
    if not pairs:
        return []
    index = [pair.changed for _, pair in pairs]
    X = np.array([pair.second.X[pair.changed] for _, pair in pairs])
    a = np.array([pair.second.a[pair.changed] for _, pair in pairs])
    replacements = Replacements(base.records, index, X, a)
    found = []
    for part in solve_neighbors(program, base.records, replacements):
        for k in range(len(part)):
            if np.isfinite(part.radius[k]):
                change, pair = pairs[part.first + k]
                end = Solved(part.weights[k], float(part.radius[k]))
                moved = movements(base.weights, end.weights, pair.changed, base.solved.radius, end.radius)
                found.append((change, Resolved(pair, moved, (base.solved, end))))
    return found
