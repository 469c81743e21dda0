"""Blocks of rows: what a pass sees of them, and in which order sums are added."""

import numpy as np
import pytest

from dp2erm_cvx.blocks import VIEW, ArrayBlocks, tree_sum


@pytest.mark.parametrize("n", [1, VIEW - 1, VIEW, VIEW + 1, 3 * VIEW + 5])
def test_a_pass_sees_every_row_once_beside_its_own_slices(n: int) -> None:
    blocks = ArrayBlocks((np.arange(n), -np.arange(n)))
    seen = blocks.then(lambda rows: rows[0] + rows[1]).map(lambda zero, own: (zero, own), np.arange(n))
    assert blocks.n_samples == n == sum(blocks.lengths)
    assert tuple(len(own) for _, own in seen) == blocks.lengths
    assert np.array_equal(np.concatenate([own for _, own in seen]), np.arange(n))
    assert not np.any(np.concatenate([zero for zero, _ in seen]))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13])
def test_a_tree_adds_every_part_at_most_the_logarithm_times(count: int) -> None:
    class Depth(float):
        def __add__(self, other: float) -> "Depth":
            return Depth(max(float(self), float(other)) + 1.0)

    deepest = tree_sum([Depth(0) for _ in range(count)])  # type: ignore[list-item]
    assert float(deepest) <= np.ceil(np.log2(count))
    assert tree_sum([np.full(2, k) for k in range(count)]).tolist() == [count * (count - 1) / 2] * 2
