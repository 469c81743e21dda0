"""Readings of neighbors, block by block, against the weights that the other path holds."""

from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.domain import Array
from dp2erm_cvx.solve.batch import Neighborhood, Reading
from tests.helpers import make_records
from tests.solve.test_batch_neighbors import FAST, joined, named, program, replacements


class Moved(Reading):
    """How far the weights are from given ones (n,), and the largest; keeps all weights of the last chunk."""

    def __init__(self, base: Array) -> None:
        self.beside, self.parts = (base, np.arange(float(len(base)))), {}

    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        base, numbers = beside
        self.parts[numbers[0], len(weights)] = weights.copy()
        gap = np.abs(weights - base)
        return np.sum(gap, axis=1, keepdims=True), np.max(weights, axis=1, keepdims=True, initial=0.0)

    def kept(self, m: int) -> Array:
        return np.hstack([self.parts[key] for key in sorted(self.parts) if key[1] == m])


@pytest.mark.parametrize("heights", [(1, 7), (16, 16)])
@pytest.mark.parametrize("case", [*FAST[:9], FAST[14], FAST[16]], ids=named)
def test_readings_are_those_of_the_held_weights(
    case: tuple[str, dict[str, Any]], heights: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dp2erm_cvx.solve.batch.rows._SHORTEST", heights[0])
    monkeypatch.setattr("dp2erm_cvx.solve.batch.rows._TALLEST", heights[1])
    records = make_records(90, 3)
    chosen, made, reading = replacements(records, 30), program(*case), Moved(np.ones(90))
    (found,) = Neighborhood(made, records).solve(chosen, reading)
    held = joined(Neighborhood(made, records).solve(chosen))
    weights, both = reading.kept(30), found.radius + held.radius
    assert np.all(found.certified)
    assert not np.any(found.by_single)
    assert np.all(np.sum(np.abs(weights - held.values[0]), axis=1) <= both)
    assert np.allclose(weights.sum(axis=1), 90, rtol=1e-12)
    sums, largest, own = found.values
    assert np.allclose(sums[:, 0], np.sum(np.abs(weights - 1), axis=1), rtol=1e-12)
    assert np.array_equal(largest[:, 0], weights.max(axis=1))
    assert np.array_equal(own, weights[np.arange(30), chosen.index])


def test_what_is_not_certified_is_solved_alone_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    records = make_records(60, 3)
    chosen, made = replacements(records, 12), program("entropy_balancing", {"ridge": 0.02})
    (right,) = Neighborhood(made, records).solve(chosen, Moved(np.ones(60)))
    monkeypatch.setattr("dp2erm_cvx.solve.batch.row_batch._MAX_SWEEPS", 1)
    (found,) = Neighborhood(made, records).solve(chosen, Moved(np.ones(60)))
    assert np.any(found.by_single)
    assert np.all(found.certified)
    assert np.all(np.abs(found.values[0] - right.values[0])[:, 0] <= found.radius + right.radius)
    assert np.all(np.abs(found.values[2] - right.values[2]) <= found.radius + right.radius)
