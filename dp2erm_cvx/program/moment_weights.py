"""Weights that balance an author's own functions of one record, as ``stable_balancing`` does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dp2erm_cvx.checks import public_size, setting
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.balance import BalanceFunctions
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.scheme import Function, Scheme, refuse_no_function, scheme_settings


@dataclass(frozen=True, repr=False)
class MomentWeights(WeightsProgram):
    """Weights that minimize the squared imbalance of an author's functions, and a ridge.

    The author's function is not called with weights and records: its values, shrunk to their norm
    bound, are the features of a problem that the library states.
    """

    first: ClassVar[int] = 1

    def called(self, *arguments: Any) -> cp.Problem:
        """The problem in weights w (n,) and records."""
        w, records = arguments
        return moment_problem(
            w,
            records,
            self.value("balance"),
            alpha=self.number("alpha"),
            constant=self.number("constant"),
            ridge=self.number("ridge"),
        )


def moment_problem(
    w: cp.Variable,
    records: Any,
    balance: BalanceFunctions,
    *,
    alpha: float,
    constant: float,
    ridge: float,
) -> cp.Problem:
    """Balance of both arms to the sample and to each other, of functions beside a constant.

    Parameters
    ----------
    w
        Weights (n,).
    records
        What data are taken from.
    balance
        The functions.
    alpha
        In [0, 1]: weighs balance to the sample against balance between the arms.
    constant
        Value of a constant among the functions, which holds the arm masses near n/2.
    ridge
        Factor of ``n ||w||^2``, above 0.

    Returns
    -------
    cp.Problem
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
    return cp.Problem(
        cp.Minimize(imbalance + n * ridge * cp.sum_squares(w)), [cp.sum(w) == n, w >= 0]
    )


def moment_scheme(
    function: Function, norm_bound: float, ridge: float | None, alpha: float
) -> Scheme:
    """The scheme of an author's balance functions.

    Parameters
    ----------
    function
        From one record's scaled covariates (p,) to values (k,).
    norm_bound
        Norm that values are shrunk to.
    ridge
        Default of the ridge; None for the squared norm bound of the functions and the constant.
    alpha
        Default of the weight of balance to the sample.

    Raises
    ------
    DeclarationError
        For what is no function with a name, and for numbers that are none of these.
    """
    refuse_no_function(function)
    declared: Mapping[str, Any] = {
        "alpha": setting(alpha, at_least=0, at_most=1),
        "balance": BalanceFunctions(function, norm_bound, function.__name__),
        "constant": setting("G_x", public_size),
        "ridge": setting("constant**2 + G_x**2" if ridge is None else ridge, public_size),
    }
    settings, formulas = scheme_settings(MomentWeights, declared, hidden=("smoothing",))
    return Scheme(function, MomentWeights, settings, formulas, {})
