"""Constants of a loss, from which noise is calibrated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dp2erm_cvx.checks import check_settings, public_number, setting, whole_number
from dp2erm_cvx.curves.suprema import Saturation
from dp2erm_cvx.errors import CalibrationError


@dataclass(frozen=True)
class RowBox:
    """A public box that holds the rows of all records, in whose norm gradients are measured.

    Theorem 17 has its noise from it.

    Parameters
    ----------
    widths
        M (p,): rows have ``|x_j| <= m_j``.
    slope
        Bound over Theta on the multiples of rows that gradients are: their size in that norm, and
        half their diameter.

    Raises
    ------
    DeclarationError
        Where a number is not positive.
    """

    widths: tuple[float, ...]
    slope: float

    def __post_init__(self) -> None:
        for number in (*self.widths, self.slope):
            public_number("box", number, above=0.0, infinite=True)


@dataclass(frozen=True)
class LossConstants:
    """Constants of a second stage for calibration, derived from the Space.

    Parameters
    ----------
    n_parameters
        Number of entries of theta.
    gradient_radius
        Zeta_c of Theorem 1: half the diameter of the gradients of one record, in units of the loss
        per theta.
    hessian_trace
        Bound on the trace of the Hessian of one record's loss (Theorem 1).
    strong_convexity
        Mu_R of the public regularizer.
    theta_bound
        Bound on ``||theta||_2`` over the feasible set; None if it is unbounded.
    outcome_bound
        M', the bound on the outcome.
    gradient_bound
        The paper's uncentered zeta; None where no bound is stated.
    covariate_bound, response_bound
        Bounds on ``||x||`` and z of a squared loss ``(z - <x, theta>)^2``.
    is_mean
        Whether x is 1.
    saturation
        That of a loss of a margin, with weights as its only factors (Theorem 15).
    is_margin
        Whether the gradients of a record are multiples of one vector of its own (Theorem 16).
    box
        That of the rows; None where coordinates have no bound of their own.

    Raises
    ------
    DeclarationError
        Naming what is not positive.
    """

    n_parameters: int = setting(check=whole_number, at_least=1)
    gradient_radius: float = setting(above=0.0, infinite=True)
    hessian_trace: float = setting(above=0.0, infinite=True)
    strong_convexity: float = setting(at_least=0.0)
    theta_bound: float | None = setting(above=0.0, optional=True)
    outcome_bound: float = setting(above=0.0)
    gradient_bound: float | None = None
    covariate_bound: float | None = setting(None, above=0.0)
    response_bound: float | None = setting(None, above=0.0)
    is_mean: bool = False
    saturation: Saturation | None = None
    is_margin: bool = False
    box: RowBox | None = None

    def __post_init__(self) -> None:
        check_settings(self)

    def factored(self) -> LossConstants:
        """Constants of ``f l`` with a factor f in [0, 1] of every record (Theorem 13).

        Factors are never normalized. Gradients are farthest apart at the ends of f. Bounds that
        weights of sum n have a part in are left out.

        Raises
        ------
        CalibrationError
            Where no bound on the gradient is stated.
        """
        if self.gradient_bound is None:
            raise CalibrationError("no bound on the gradient is stated, which factors below 1 need")
        radius = max(self.gradient_radius, 0.5 * self.gradient_bound)
        return replace(
            self, gradient_radius=radius, covariate_bound=None, response_bound=None, is_mean=False
        )

    def refuse_unbounded(self, name: str, theta_set: str) -> None:
        """Raise CalibrationError where zeta_c is infinite, as Theorems 1 and 2 need it finite.

        ``name`` is that of the program and ``theta_set`` the kind of its set.
        """
        if not math.isfinite(self.gradient_radius):
            raise CalibrationError(
                f"{name}: the gradient of its loss is unbounded over {theta_set}; choose an l1 "
                "ball, an l2 ball or a box for theta, or for a squared loss calibration = 'renyi'"
            )
