"""Newton's search from any start, on losses whose tails are flat."""

import numpy as np
import pytest
from scipy.optimize import brentq

from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program.curves import Curve, Part
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.solve.solving import minimize_by_newton


def saturating(rows, offset, multipliers, ridge, slope):
    """One coefficient, of a sum of extremal losses, in a ball that is not felt."""
    rows, offset, multipliers = (np.array(values, dtype=float) for values in (rows, offset, multipliers))
    return MarginModel(
        MarginRows(rows[:, None], offset),
        Curve((Part(1.0, atom("saturating", slope)),)),
        ridge,
        Penalty(L2Ball(1000.0)),
        multipliers=multipliers,
        linear=np.zeros(1),
    )


def root(model):
    return brentq(lambda v: float(model.gradient(np.array([v]))[0]), -900.0, 900.0, xtol=1e-13)


@pytest.mark.parametrize(
    ("rows", "offset", "multipliers", "ridge", "slope"),
    [
        # a search that takes any halved residual, and any descent, in turn walks in circles on these
        ([0.5, 0.1], [10.0, 1.0], [50, 1], 1.0, 1.0),
        ([0.5, 1.0], [-5.0, -10.0], [1, 10], 0.1, 0.1),
        ([0.1, 0.5, -0.1], [-10.0, -1.0, 5.0], [10, 1, 50], 0.01, 0.1),
    ],
)
def test_no_circles_on_flat_tails(rows, offset, multipliers, ridge, slope):
    model = saturating(rows, offset, multipliers, ridge, slope)
    point, iterations = minimize_by_newton(model, model.start())
    assert iterations < 40
    assert point[0] == pytest.approx(root(model), rel=1e-9)


def test_hostile_records_from_a_far_start():
    rng = np.random.default_rng(0)
    for _ in range(100):
        rows = rng.choice([-1.0, -0.5, -0.1, 0.1, 0.5, 1.0], size=4)
        offset, multipliers = (
            rng.choice([-10.0, -1.0, 0.0, 1.0, 10.0], size=4),
            rng.choice([1, 10, 50], size=4),
        )
        model = saturating(rows, offset, multipliers, float(rng.choice([0.01, 1.0])), 0.1)
        point, iterations = minimize_by_newton(model, np.array([rng.choice([-500.0, 0.0, 500.0])]))
        assert iterations < 60
        assert point[0] == pytest.approx(root(model), rel=1e-8, abs=1e-8)
