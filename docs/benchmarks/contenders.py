"""Ways to solve one instance: each returns the point that the certificate then judges.

The naive ones are written as a researcher would write them, from the arrays of the problem.
"""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from work import DECLARED, NAIVE

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.curves import SQUARE
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.model.weights import WeightsModel
from dp2erm_cvx.program import Instance
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.solve import solve

Contender = Callable[[Instance, Records], Array]


def naive_cvxpy(instance: Instance, records: Records) -> Array:
    """A new CVXPY problem, solved by Clarabel with its defaults."""
    model = instance.model
    constraints = []
    if isinstance(model, MarginModel) and model.loss == SQUARE:
        v = cp.Variable(model.dimension)
        residual = cp.multiply(np.sqrt(model.whole.multipliers), model.whole.offsets - model.Z @ v)
        loss = cp.sum_squares(residual) + 0.5 * model.ridge * cp.sum_squares(v) + model.linear @ v
        constraints = [cp.norm(v, 1) <= model.penalty.set.radius]
    elif isinstance(model, MarginModel):
        v = cp.Variable(model.dimension)
        loss = cp.sum(cp.logistic(-model.Z @ v)) + 0.5 * model.ridge * cp.sum_squares(v)
    elif isinstance(model, WeightsModel) and model.dual is not None:
        data, pairs = model.dual.data, model.dual.pairs
        v = cp.Variable(model.dimension, nonneg=True)
        loss = 0.5 * model.ridge * cp.sum_squares(v)
        if pairs is None:
            loss += 0.5 * cp.sum_squares(data.rows.T @ v - data.targets)
        else:
            loss += 0.5 * cp.quad_form(v, cp.psd_wrap(pairs.Q)) - pairs.b @ v
        constraints = [cp.sum(v[block.members]) == block.total for block in data.blocks]
        constraints.append(v <= data.curve.cap)
    else:
        raise TypeError(type(model).__name__)
    cp.Problem(cp.Minimize(loss), constraints).solve(solver=cp.CLARABEL)
    return np.asarray(v.value, dtype=np.float64)


def declared_cvxpy(instance: Instance, records: Records) -> Array:
    """The library's declaration by Clarabel, its data as parameters where they are few enough."""
    return solve(instance, solver="clarabel", polish=False, throw=False).point


def newton(instance: Instance, records: Records) -> Array:
    """The library's default: one Newton solve."""
    return solve(instance, solver="newton", throw=False).point


def scipy_lbfgs(instance: Instance, records: Records) -> Array:
    """L-BFGS-B on the smooth problem, with its gradient."""
    model = instance.model
    if isinstance(model, MarginModel):
        Z, ridge = model.Z, model.ridge

        def loss(v: Array) -> tuple[float, Array]:
            s = Z @ v
            value = np.sum(np.logaddexp(0.0, -s)) + 0.5 * ridge * (v @ v)
            return float(value), ridge * v - Z.T @ expit(-s)

    else:
        raise TypeError(type(model).__name__)
    minimum = minimize(
        loss, np.zeros(model.dimension), jac=True, method="L-BFGS-B", options={"gtol": 1e-9}
    )
    return np.asarray(minimum.x, dtype=np.float64)


def sklearn_logistic(instance: Instance, records: Records) -> Array:
    """Logistic regression by scikit-learn's Newton solver."""
    from sklearn.linear_model import LogisticRegression

    model = instance.model
    assert isinstance(model, MarginModel)
    # rows (2a - 1) x with outcome 1: half of them are turned, so that there are two classes
    turned = np.arange(model.n) % 2 == 1
    X = np.where(turned[:, None], -model.Z, model.Z)
    fit = LogisticRegression(
        C=1.0 / model.ridge, fit_intercept=False, solver="newton-cholesky", tol=1e-10
    )
    return np.asarray(fit.fit(X, ~turned).coef_[0], dtype=np.float64)


#: Who takes part where, in the order of the tables.
EVERYWHERE: dict[str, Contender] = {
    NAIVE: naive_cvxpy,
    DECLARED: declared_cvxpy,
    "library, one at a time": newton,
}
FURTHER: dict[str, dict[str, Contender]] = {
    "ipw_logistic": {
        "scipy L-BFGS-B": scipy_lbfgs,
        "scikit-learn newton-cholesky": sklearn_logistic,
    },
}
