"""The closed forms of a curvature's shape against a grid."""

import numpy as np
import pytest

from dp2erm_cvx.saturation import CurvatureShape

U = np.linspace(0.0, 1.0, 20_001)
SHAPES = {
    CurvatureShape.LINEAR: 1 - U,
    CurvatureShape.LOGISTIC: 4 * U * (1 - U),
}


def test_every_shape_is_compared():
    assert set(SHAPES) == set(CurvatureShape)


@pytest.mark.parametrize("shape", CurvatureShape)
def test_the_largest_sum_of_slope_and_curvature(shape):
    rng = np.random.default_rng(0)
    for a, k in [*10 ** rng.uniform(-3, 3, (300, 2)), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]:
        found, on_grid = shape.largest(a, k), float(np.max(a * U + k * SHAPES[shape]))
        assert on_grid * (1 - 1e-12) <= found <= on_grid + 1e-8 * (a + k)


@pytest.mark.parametrize("shape", CurvatureShape)
def test_the_steepness_is_where_full_slope_becomes_the_worst(shape):
    a = shape.steepness
    assert shape.largest(a, 1.0) == a
    assert shape.largest(a * 0.99, 1.0) > a * 0.99
    assert np.all(SHAPES[shape] <= a * (1 - U) * (1 + 1e-12))


@pytest.mark.parametrize("shape", CurvatureShape)
def test_the_largest_curvature_beyond_a_slope(shape):
    beyond = np.maximum.accumulate(SHAPES[shape][::-1])[::-1]
    found = [shape.beyond(u) for u in U]
    np.testing.assert_allclose(found, beyond, atol=1e-12)
