"""Frozen statements about privacy. No arithmetic on data happens here."""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.public import check_settings, public_number, setting, whole_number
from dp2erm_cvx.suprema import Saturation

#: Public orders alpha > 1 of Renyi curves: six to an octave of alpha - 1, from 1/128 to a million.
RENYI_ORDERS: tuple[float, ...] = tuple(float(f"{1.0 + 2.0 ** (step / 6):.6g}") for step in range(-42, 121))
_MOST_ORDERS = 10_000
_ULP = 2.0**-52


class Neighboring(enum.StrEnum):
    """Relation between neighboring datasets: same size ``n``, one record replaced.

    ``REPLACE_ONE_KEEP_TREATMENT`` is weaker: the treatment of that record is not protected.
    """

    REPLACE_ONE = "replace-one"
    REPLACE_ONE_KEEP_TREATMENT = "replace-one-keep-treatment"


@dataclass(frozen=True)
class Budget:
    """A privacy budget.

    Parameters
    ----------
    epsilon
        Privacy budget, above 0: what any probability may change by with one record, on the log scale.
    delta
        Additive slack of the guarantee, below 1; Gaussian noise needs one above 0.

    Raises :class:`~dp2erm_cvx.errors.DeclarationError` otherwise.
    """

    epsilon: float = setting(above=0.0)
    delta: float = setting(0.0, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class RenyiCurve:
    """Proven bounds on the Renyi divergence ``D_alpha`` of a release between neighbors, in both directions.

    ``orders`` are finite, above 1 and increasing; ``divergences`` has one bound for each, at least 0 and
    infinite where nothing is proven. All of them are public. Every operation rounds up.

    Raises DeclarationError for anything else.
    """

    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        orders, bounds = _numbers("orders", self.orders), _numbers("divergences", self.divergences)
        if len(orders) != len(bounds):
            raise DeclarationError(
                f"a curve has one divergence per order: {len(orders)}, {len(bounds)} given"
            )
        for order in orders:
            public_number("order", order, above=1.0)
        if any(left >= right for left, right in pairwise(orders)):
            raise DeclarationError("the orders of a curve must increase")
        for bound in bounds:
            public_number("divergence", bound, at_least=0.0, infinite=True)
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "divergences", bounds)

    @classmethod
    def pure(cls, epsilon: float, orders: Sequence[float] = RENYI_ORDERS) -> RenyiCurve:
        """The curve of a pure ``epsilon`` release: ``min(epsilon, alpha epsilon^2 / 2)``.

        Bun and Steinke (2016), Proposition 3.3; the divergence is at most its limit ``epsilon`` as well.
        """
        level = public_number("epsilon", epsilon, at_least=0.0)
        return cls(tuple(orders), tuple(min(level, _up(order * level * (0.5 * level))) for order in orders))

    def at(self, order: float) -> float:
        """The bound at any ``order`` above 1: that of the next stated order, infinite beyond the last.

        The divergence never falls as the order rises (van Erven and Harremoes 2014, Theorem 3).
        """
        place = bisect_left(self.orders, public_number("order", order, above=1.0))
        return self.divergences[place] if place < len(self.orders) else math.inf

    def plus(self, *more: RenyiCurve) -> RenyiCurve:
        """The curve of all the releases together, at the orders of any of them (Mironov 2017, Proposition 1).

        Curves are added at equal orders, whatever their grids.
        """
        curves = (self, *more)
        orders = sorted(set().union(*(curve.orders for curve in curves)))
        growth = 1.0 + len(curves) * _ULP
        sums = (sum(curve.at(order) for curve in curves) for order in orders)
        return RenyiCurve(tuple(orders), tuple(_up(total * growth) for total in sums))

    def shifted(self, epsilon_2: float) -> RenyiCurve:
        """The curve of a release within pure ``epsilon_2`` of this one, on every dataset.

        It adds ``(2 alpha - 1)/(alpha - 1) epsilon_2``, as ``P <= exp(epsilon_2) P_0`` and
        ``Q_0 <= exp(epsilon_2) Q``.
        """
        level = public_number("epsilon_2", epsilon_2, at_least=0.0)
        if not level:
            return self
        pairs = zip(self.orders, self.divergences, strict=True)
        raised = (_up(bound + (2.0 + 1.0 / (order - 1.0)) * level) for order, bound in pairs)
        return RenyiCurve(self.orders, tuple(raised))


def _numbers(name: str, values: Iterable[object]) -> tuple[float, ...]:
    if not isinstance(values, tuple | list) or not 1 <= len(values) <= _MOST_ORDERS:
        raise DeclarationError(f"{name}: must be a list of 1 to {_MOST_ORDERS} numbers")
    return tuple(public_number(name, value, infinite=True) for value in values)


def _up(number: float) -> float:
    """Above the exact value of a few rounded operations on numbers that are not negative."""
    return math.nextafter(number * (1.0 + 8.0 * _ULP), math.inf)


class BoundFamily(enum.StrEnum):
    """Whose stability bound is in force: the sharp theorems, or the paper's statements as printed."""

    SHARP = "sharp"
    PAPER = "paper"


@dataclass(frozen=True)
class StabilityBound:
    """A proven bound on how far the weights move between neighboring datasets, of public numbers alone.

    ``V`` bounds the coupled variation ``||w - w'||_1 + 2 min(w_j, w'_j)``; ``W1`` and ``W2`` the paper's
    quantities and ``L2`` the norm ``||w - w'||_2`` where a theorem states them; ``private`` is False where
    something was read off the data.
    """

    V: float
    theorem: str
    assumptions: tuple[str, ...]
    relations: frozenset[Neighboring]
    w_max: float
    W1: float | None = None
    W2: float | None = None
    L2: float | None = None
    private: bool = True


@dataclass(frozen=True)
class RowBox:
    """A public box that holds the rows of all records, in whose norm gradients are measured (Theorem 17).

    ``widths`` m (p,): rows have ``|x_j| <= m_j``. Gradients are multiples of rows, which ``slope`` bounds
    over Theta: their size in that norm, and half their diameter. Raises DeclarationError where one is not
    positive.
    """

    widths: tuple[float, ...]
    slope: float

    def __post_init__(self) -> None:
        for number in (*self.widths, self.slope):
            public_number("box", number, above=0.0, infinite=True)


@dataclass(frozen=True)
class LossConstants:
    """Constants of a second stage for calibration, derived from the Domain.

    ``gradient_radius`` is the centered gradient radius zeta_c of Theorem 1, ``hessian_trace`` bounds the
    trace of the loss Hessian, ``strong_convexity`` is mu_R of the public regularizer, ``theta_bound`` bounds
    ||theta||_2 over the feasible set (None if unbounded), ``outcome_bound`` is M', ``gradient_bound`` the
    paper's uncentered zeta. A squared loss ``(z - <x, theta>)^2`` bounds ||x|| by ``covariate_bound`` and z
    by ``response_bound``; ``is_mean``: x is 1. ``saturation`` is that of a loss of a margin, with weights as
    its only factors (Theorem 15), and ``is_margin`` says that the gradients of a record are multiples of one
    vector of its own (Theorem 16). ``box`` is that of the rows, None where coordinates have no bound of their
    own. Raises DeclarationError naming what is not positive.
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
        """Constants of ``f l`` with a factor f in [0, 1] of every record, never normalized (Theorem 13).

        Gradients are farthest apart at the ends of f. Bounds that weights of sum n have a part in are left
        out. Raises CalibrationError where no bound on the gradient is stated.
        """
        if self.gradient_bound is None:
            raise CalibrationError("no bound on the gradient is stated, which factors below 1 need")
        radius = max(self.gradient_radius, 0.5 * self.gradient_bound)
        return replace(self, gradient_radius=radius, covariate_bound=None, response_bound=None, is_mean=False)

    def refuse_unbounded(self, name: str, theta_set: str) -> None:
        """Raise CalibrationError where zeta_c is infinite, as Theorems 1 and 2 need it finite.

        ``name`` is that of the program and ``theta_set`` the kind of its set.
        """
        if not math.isfinite(self.gradient_radius):
            raise CalibrationError(
                f"{name}: the gradient of its loss is unbounded over {theta_set}; choose an l1 ball, an l2 "
                "ball or a box for theta, or for a squared loss calibration = 'renyi'"
            )
