"""Entropy balancing: weights near 1 whose means in both arms are those of all records.

``entropy_balancing`` has a price of what imbalance is left:

minimize    sum_i w_i log(w_i / d_i) + n/(2 ridge) huber(||m||, ridge * radius)
subject to  sum_i w_i = n,  0 <= w_i <= cap of the arm

The base weights d_i are 1, or half of the inverse of the public share of the arm.

with m = (m_0, m_1), m_a = sum over arm a of w_i g(x_i) / n - gbar / 2, g = (constant, balance(x)); without a
radius the price is n/(2 ridge) ||m||^2. Without a cap it is the Fenchel dual of

minimize    n ( log mean_i exp(<b_i, lam>) - <t, lam> + ridge/2 ||lam||^2 )
subject to  ||lam||_2 <= radius

with b_i = e_{a_i} (x) g(x_i), t = (gbar, gbar)/2 and weights proportional to exp(<b_i, lam>): equation
entropy_dual of the paper but for the scaling of its rows, which is that of ``paper_entropy_balancing``.

``entropy_balancing_hard`` has exact balance, ``m = 0`` in place of the price (equation entropy_weight_primal
of the paper, n times, with a uniform base measure). It is not private: no stability bound exists for hard
constraints that depend on the data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.program import (
    Array,
    Balance,
    Declaration,
    Instance,
    Kind,
    Moments,
    Params,
    Records,
    capped_by_arm,
    caps_of_arms,
    scheme,
    setting,
)
from dp2erm_cvx.program.balance import MomentTargets
from dp2erm_cvx.program.entropy import EntropyFirstStage, ExponentialModel
from dp2erm_cvx.public import declared_choice, public_size


@scheme(
    balance=Moments(),
    constant=setting("G_x", public_size),
    ridge=setting("constant**2 + G_x**2", public_size, zero=True),
    radius=setting(math.inf, public_size, infinite=True),
    cap=setting(3.0, above=0, infinite=True),
    treated=setting(0.5, above=0, below=1),
    bases=setting("even", declared_choice, words=("even", "by_arm")),
    kinks=False,
)
def entropy_balancing(
    w: cp.Variable,
    records: Any,
    balance: Balance,
    constant: float,
    ridge: float,
    radius: float,
    cap: float,
    treated: float,
    bases: str,
) -> cp.Problem:
    """The default choice for observational data: an arm may be empty (Hainmueller 2012, relaxed).

    Parameters
    ----------
    balance
        Balance functions of the scaled covariates, intercept excluded.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2; default: the norm bound
        of ``balance``.
    ridge
        Above 0: the price of imbalance is its inverse; default: the squared norm bound of the functions and
        the constant, so that the stability bound does not depend on how covariates are scaled.
    radius
        Bound on the slope of the price, in units of its argument; ``inf`` for none.
    cap
        No weight is above so many times the mean weight of its arm, if both arms weigh half; ``inf`` for
        none.
    treated
        Public share of the treated, for caps and bases; a wrong one costs balance and no privacy.
    bases
        "even": weights are near 1. "by_arm": near ``1 / (2 share)`` of their arm, its mean weight where both
        arms weigh half; a cap below 1, which some records could not meet, is then raised to 1.

    Raises
    ------
    DeclarationError
        For a ridge of 0.
    """
    if ridge == 0.0:
        raise DeclarationError(
            "ridge = 0: must be greater than 0. Within a radius alone the price is radius times the norm of "
            "the imbalance, which a small ridge smooths: declare one, or write n * radius * "
            "cp.norm(imbalance) in a scheme of your own"
        )
    n = records.n
    half = cp.sum(records.features(balance), axis=0) / 2
    # n/2 as a sum over records: beside a number as large as n the weight of one record would lose digits
    mass = constant * (records.arms.T @ w - cp.sum(records.ones) / 2)
    of_controls = records.features(balance, "controls").T @ w - half
    of_treated = records.features(balance, "treated").T @ w - half
    imbalance = cp.hstack([mass, of_controls, of_treated]) / n
    squares = cp.sum_squares(imbalance)
    if math.isfinite(radius):
        squares = cp.huber(cp.norm(imbalance), ridge * radius)
    price = n / (2 * ridge) * squares
    if bases == "even":
        constraints = [cp.sum(w) == n, w >= 0, *capped_by_arm(w, records, cap, treated)]
        return cp.Problem(cp.Minimize(price - cp.sum(cp.entr(w))), constraints)
    of_control, of_treated = caps_of_arms(1.0, treated).tolist()
    least, most = min(of_control, of_treated), max(of_control, of_treated)
    base = records.numbers("base", lambda x, a, y: of_treated if a == 1 else of_control, least, most)
    constraints = [cp.sum(w) == n, w >= 0]
    if math.isfinite(cap):
        constraints.append(w <= records.arms @ np.maximum(caps_of_arms(cap, treated), 1.0))
    return cp.Problem(cp.Minimize(price + cp.sum(cp.kl_div(w, base))), constraints)


@dataclass(frozen=True)
class EntropyBalancingHard(EntropyFirstStage):
    """Exact balance. Raises InfeasibleError where no weights meet the targets.

    Parameters
    ----------
    arm_mass
        "equal": both arms get weight n/2, which the regression of 2Y(2A-1) needs;
        "proportional": arm a gets as much as it has records, as the paper prints it.
    """

    arm_mass: Literal["equal", "proportional"] = setting(
        "equal", declared_choice, words=("equal", "proportional")
    )

    name = "entropy_balancing_hard"
    formula = "w = argmin sum w log w,  sum w = n,  B'w/n = t"
    citation = "Hainmueller (2012); Lee & Chen (2026), eq. entropy_weight_primal"
    theorem = "none: not private"
    relations = frozenset()
    kind = Kind.DIRECT
    unbounded = (
        "hard entropy balancing has no stability bound: its constraints depend on the data. "
        "Use entropy_balancing with a positive ridge"
    )

    def of_arms(self, size: Array, domain: Domain) -> tuple[Array, Array]:
        if self.arm_mass == "equal":
            return np.ones(2), np.full(2, 0.5)
        return np.ones(2), size / np.sum(size)

    def declare(self, data: Params) -> Declaration:
        B = data("B")
        n = B.shape[0]
        weights = cp.Variable(n, name="weights")
        balance = B.T @ weights / n == data("target")
        return Declaration(
            -cp.sum(cp.entr(weights)),
            {"weights": weights},
            {"total": cp.sum(weights) == n, "balance": balance},
        )

    def model(self, records: Records) -> ExponentialModel:
        try:
            return ExponentialModel.hard(*self.moments(records))
        except InfeasibleError:
            # the targets leave the span of the records; the linear program names the moments
            self.targets(records).refuse_infeasible()
            raise

    def targets(self, records: Records) -> MomentTargets:
        B, target = self.moments(records)
        n, k = records.n_samples, B.shape[1] // 2
        names = ("constant", *self.balance.names(records))
        held = [0, k]  # the two constants fix the mass of either arm
        rest = [j for j in range(2 * k) if j not in held]
        labels = tuple(f"{names[j % k]} ({'treated' if j >= k else 'control'})" for j in rest)
        # a moment is a share of the whole mass: in units of the mean of its arm
        share = np.where(np.array(rest) >= k, target[k], target[0]) / self.bounds(records.domain)[1]
        scale = 1 / np.maximum(share, 1e-300)
        return MomentTargets(
            B[:, held], n * target[held], B[:, rest] * scale / n, target[rest] * scale, labels, 0.0
        )

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        model: Any = instance.composite
        # stationarity: log w_i + 1 + total + <b_i, balance>/n = 0, so lam = -balance/n
        point: Array = model.basis.T @ (-duals["balance"] / model.n)
        return point
