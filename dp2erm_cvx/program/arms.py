"""What balancing programs in the weights share: settings, imbalances and caps by arm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_size, setting
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.balance import Balance, Moments

#: Settings of a decorator ``@scheme(**ARM_SETTINGS)`` whose function balances both arms to all
#: records: balance functions, the value of a constant beside them, the ridge, and the two numbers
#: of caps by arm.
ARM_SETTINGS: Mapping[str, Any] = MappingProxyType(
    {
        "balance": Moments(),
        "constant": setting("G_x", public_size),
        "ridge": setting("constant**2 + G_x**2", public_size),
        "cap": setting(3.0, at_least=1, infinite=True),
        "treated": setting(0.5, above=0, below=1),
    }
)


def imbalance_of_arms(w: cp.Variable, records: Any, balance: Balance, constant: float) -> Any:
    """How far the weighted sums of both arms are from half of those of all records.

    Parameters
    ----------
    w
        Weights (n,).
    records
        What data are taken from.
    balance
        Balance functions g of the scaled covariates, intercept excluded, with k values.
    constant
        Value of a constant beside them, which compares the weight of each arm with n/2.

    Returns
    -------
    cvxpy.Expression
        (2 + 2k,), in units of g times weights: ``constant (W_a - n/2)`` for the weights W_a of
        controls and treated, then ``sum over arm a of w_i g(x_i)``, less half of the sum of all
        g(x_i), for each arm.
    """
    half = cp.sum(records.features(balance), axis=0) / 2
    masses = constant * (records.arms.T @ w - records.n / 2)
    controls = records.features(balance, "controls").T @ w - half
    treated = records.features(balance, "treated").T @ w - half
    return cp.hstack([masses, controls, treated])


def caps_of_arms(cap: float, treated: float) -> Array:
    """Largest weights of controls and treated, from multiples of a mean weight.

    The mean weight is that of an arm that weighs half.

    Parameters
    ----------
    cap
        The multiple.
    treated
        Public share of the treated, between 0 and 1. Where it is wrong a cap binds that should not,
        or none does; no bound rests on it.

    Returns
    -------
    numpy.ndarray
        ``cap / (2 (1 - treated))`` and ``cap / (2 treated)``, (2,).
    """
    return cap / 2.0 * np.array([1.0 / (1.0 - treated), 1.0 / treated])


def capped_by_arm(w: cp.Variable, records: Any, cap: float, treated: float) -> list[Any]:
    """The constraint that no weight is above the cap of its arm; none where the cap is infinite.

    Parameters
    ----------
    w
        Weights (n,).
    records
        What data are taken from.
    cap, treated
        As of :func:`caps_of_arms`.

    Returns
    -------
    list of cvxpy.Constraint
    """
    if math.isinf(cap):
        return []
    return [w <= records.arms @ caps_of_arms(cap, treated)]
