"""Stable balancing weights: of least variance, with balance as a penalty or within a tolerance.

``stable_balancing`` has a squared penalty, on one simplex:

minimize    alpha ( ||G_0'w - t||^2 + ||G_1'w - t||^2 ) + (1 - alpha) ||G_0'w - G_1'w||^2 + n ridge ||w||^2
subject to  sum_i w_i = n,  w >= 0

with rows g(x_i) = (constant, balance(x_i)), G_a those of arm a (the others 0) and t = G'1/2.
``stable_balancing_hard`` has constraints:

minimize    sum_i w_i^2 / 2
subject to  sum over arm a of w_i = n/2 for a = 0, 1,  w >= 0
            | sum over arm a of w_i g_k(x_i) - (n/2) mean g_k |  <=  (n/2) tolerance   for all a, k

in units of the scaled covariates. It is not private: the constraints depend on the data, no stability bound
exists for them, and whether they have a solution depends on the data as well.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.model.atoms import atom
from dp2erm_cvx.model.composite import Penalty
from dp2erm_cvx.program import (
    Array,
    BalanceFunctions,
    Curve,
    Declaration,
    FirstStage,
    Instance,
    MarginRows,
    Moments,
    Params,
    Part,
    Records,
    scheme,
    setting,
)
from dp2erm_cvx.program.balance import MomentTargets
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.public import declared_choice, public_size


@scheme(
    alpha=setting(1.0, at_least=0, at_most=1),
    balance=Moments(),
    constant=setting("G_x", public_size),
    ridge=setting("constant**2 + G_x**2", public_size),
    kinks=False,
)
def stable_balancing(
    w: cp.Variable,
    records: Any,
    alpha: float,
    balance: Moments | BalanceFunctions,
    constant: float,
    ridge: float,
) -> cp.Problem:
    """Balance of a few moments by weights that stay even (Zubizarreta 2015, penalized).

    Parameters
    ----------
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the norm bound
        of ``balance``.
    ridge
        Above 0; default: the squared norm bound of the functions and the constant, so that the
        stability bound does not depend on how covariates are scaled.
    """
    n = records.n
    mass = records.arms.T @ w
    half = cp.sum(records.features(balance), axis=0) / 2
    controls = records.features(balance, "controls").T @ w
    treated = records.features(balance, "treated").T @ w
    to_sample = cp.sum_squares(controls - half) + cp.sum_squares(treated - half)
    to_sample += constant**2 * cp.sum_squares(mass - n / 2)
    apart = cp.sum_squares(treated - controls) + constant**2 * cp.square(mass[1] - mass[0])
    imbalance = alpha * to_sample + (1 - alpha) * apart
    return cp.Problem(cp.Minimize(imbalance + n * ridge * cp.sum_squares(w)), [cp.sum(w) == n, w >= 0])


@dataclass(frozen=True)
class StableBalancingHard(FirstStage):
    """Balance within a tolerance. Raises InfeasibleError where no weights meet it.

    Parameters
    ----------
    tolerance
        Above 0, on every standardized moment.
    balance
        Balance functions of the scaled covariates, intercept excluded.
    """

    tolerance: float = setting(0.05, above=0)
    balance: Moments | BalanceFunctions = setting(
        Moments(), declared_choice, kinds=(Moments, BalanceFunctions)
    )

    name = "stable_balancing_hard"
    formula = "w = argmin sum w^2, sum_c w = n/2, w >= 0, |sum_c w g - n/2 mean g| <= n/2 tolerance"
    citation = "Zubizarreta (2015)"
    theorem = "none: not private"
    relations = frozenset()
    unbounded = (
        "hard stable balancing has no stability bound: its constraints depend on the data. Use "
        "stable_balancing, which penalizes imbalance"
    )

    def rows(self, records: Records) -> tuple[Array, Array, Array]:
        """B (n, 2 + 2k): arm indicators, then moments by arm; targets and tolerances (2 + 2k,)."""
        g, inside = self.balance(records.covariates), records.a[:, None].astype(np.float64)
        arms = np.hstack([1 - inside, inside])
        B = np.hstack([arms, (1 - inside) * g, inside * g])
        # exactly rounded: added one after another, a constant column alone would be off by far more than the
        # certificate allows for over many records
        mean = np.array([math.fsum(column) for column in g.T]) / len(g) / 2
        half = np.full(2 * g.shape[1], self.tolerance / 2)
        return B, np.concatenate([[0.5, 0.5], mean, mean]), np.concatenate([[0.0, 0.0], half])

    def data(self, records: Records) -> dict[str, Value]:
        B, target, tolerance = self.rows(records)
        return {"B": B, "target": target, "tolerance": tolerance}

    def declare(self, data: Params) -> Declaration:
        B = data("B")
        n = B.shape[0]
        w = cp.Variable(n, name="weights", nonneg=True)
        missed = B.T @ w / n - data("target")
        return Declaration(
            cp.sum_squares(w) / 2,
            {"weights": w},
            {"above": missed <= data("tolerance"), "below": -missed <= data("tolerance")},
        )

    def model(self, records: Records) -> MarginModel:
        """The dual ``sum_i max(0, <b_i, v>)^2 / 2 - n <t, v> + n sum_k s_k |v_k|``; w is ``max(0, B v)``."""
        B, target, tolerance = self.rows(records)
        n, loss = len(B), Curve((Part(0.5, atom("hinge")),))
        prices = Penalty(l1=n * tolerance)
        return MarginModel(MarginRows(B), loss, 0.0, prices, linear=-n * target, slopes=True)

    def targets(self, records: Records) -> MomentTargets:
        B, target, _ = self.rows(records)
        n = records.n_samples
        # twice the share of an arm, so that the tolerance is on its mean
        names = tuple(
            f"{name} ({arm})" for arm in ("control", "treated") for name in self.balance.names(records)
        )
        return MomentTargets(
            B[:, :2], n * target[:2], 2 * B[:, 2:] / n, 2 * target[2:], names, self.tolerance
        )

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model: Any = instance.composite
        # stationarity: w = max(0, B (below - above) / n)
        point: Array = (duals["below"] - duals["above"]) / model.n
        return np.where(np.abs(point) > 1e-6 * np.max(np.abs(point), initial=0.0), point, 0.0)
