"""A propensity to look at overlap with, before any program is chosen. Not private, and NOT for release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize
from scipy.special import expit

from dp2erm_cvx.diagnostics.checks import ARMS, NOT_PRIVATE, Array, arms, finite, numbers, same_length
from dp2erm_cvx.diagnostics.overlap import LIMITS, OverlapTable, overlap_table
from dp2erm_cvx.errors import DataError, SolverError
from dp2erm_cvx.public import public_size

#: The largest entry that the gradient of a fit may have; standardized columns make one number do for all.
_STATIONARY = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class PropensityPrecheck:
    """A ridge-logistic fit of the treatment. Not private: for the data holder only, NOT for release.

    Attributes
    ----------
    propensity, a
        (n,) fitted probabilities of treatment, and the (n,) treatments they were fitted to.
    coefficients, intercept
        (p,) log-odds per standard deviation of each covariate (0 for a constant one), and the log-odds at
        the mean of all covariates.
    ridge
        The public ridge of the fit.
    gradient
        The largest entry of the gradient of the objective where the optimizer stopped.
    """

    #: This is not differentially private: show it to the data holder only.
    private: ClassVar[bool] = False

    propensity: Array
    a: Array
    coefficients: Array
    intercept: float
    ridge: float
    gradient: float

    def table(self, *, limits: tuple[float, float] = LIMITS) -> OverlapTable:
        """The overlap of the arms under this propensity; see :func:`overlap_table`."""
        return overlap_table(self.propensity, self.a, limits=limits)

    def __repr__(self) -> str:
        return f"PropensityPrecheck({NOT_PRIVATE}, NOT for release)"


def propensity_precheck(X: ArrayLike, a: ArrayLike, *, ridge: float) -> PropensityPrecheck:
    """Fit a propensity to look at overlap with. Not private: for the data holder only, NOT for release.

    Minimizes (1/n) sum_i log(1 + exp(-(2 a_i - 1)(c + <z_i, beta>))) + ridge/2 ||beta||^2 over (c, beta) by
    scipy's L-BFGS-B, where z are the covariates less their mean in units of their standard deviation. It is
    no first stage of this package: nothing bounds how far one record moves it. A larger ridge draws the
    propensities together, so that overlap looks better than it is; the fit to its own records makes it look
    worse where p is not small against n.

    Parameters
    ----------
    X, a
        (n, p) covariates and (n,) treatments in {0, 1}, with at least one record of each.
    ridge
        Positive, per record and squared log-odds.

    Raises
    ------
    DataError
        Shapes differ, an entry is out of range (the message names it), or an arm is empty.
    DeclarationError
        ``ridge`` is not a positive number.
    SolverError
        The optimizer stopped short of a stationary point.
    """
    table, arm = numbers(X, "X"), numbers(a, "a")
    same_length("(n, p) and (n,)", X=table, a=arm)
    finite(table, "X")
    for name, members in zip(ARMS, arms(arm), strict=True):
        if not members.any():
            raise DataError(f"a: the {name} arm is empty: no propensity can be fitted")
    strength = public_size("ridge", ridge)
    Z = np.column_stack([np.ones(len(table)), _standardized(table)])
    start = np.zeros(Z.shape[1])
    # a fit of the intercept alone, which is far from 0 where an arm is small
    start[0] = np.log(np.sum(arm) / np.sum(1 - arm))

    def at(v: Array) -> Any:  # the stubs of scipy want arrays of a known dimension
        return objective(v, Z, arm, strength)

    found = optimize.minimize(
        at,
        start,
        jac=True,
        method="L-BFGS-B",
        # a small change of the value tells little near the optimum: stop by the gradient alone
        options={"maxiter": 10_000, "maxfun": 20_000, "gtol": 1e-10, "ftol": 0.0},
    )
    v: Array = np.asarray(found.x)
    gradient = float(np.max(np.abs(at(v)[1])))
    if not gradient <= _STATIONARY:
        raise SolverError(
            f"the propensity did not converge: its gradient is {gradient:.2g}; take a larger ridge"
        )
    return PropensityPrecheck(expit(Z @ v), arm, v[1:], float(v[0]), strength, gradient)


def objective(v: Array, Z: Array, a: Array, ridge: float) -> tuple[float, Array]:
    """The ridge-logistic objective at v (p + 1,) and its gradient; column 0 of Z is the intercept."""
    margin = (2 * a - 1) * (Z @ v)
    slopes = np.concatenate([[0.0], v[1:]])
    value = float(np.mean(np.logaddexp(0.0, -margin))) + 0.5 * ridge * float(slopes @ slopes)
    return value, Z.T @ (expit(Z @ v) - a) / len(Z) + ridge * slopes


def _standardized(X: Array) -> Array:
    """Columns of mean 0 and variance 1; constant ones are 0."""
    # a constant column is exactly 1, -1 or 0 in units of its largest entry, so rounding leaves it no variance
    unit: Array = X / np.maximum(np.max(np.abs(X), axis=0), np.finfo(float).tiny)
    unit = unit - np.mean(unit, axis=0)
    spread = np.std(unit, axis=0)
    return unit / np.where(spread > 0, spread, 1.0)
