"""Frozen statements about privacy. No arithmetic on data happens here."""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

from dp2erm_cvx.checks import check_settings, public_number, setting
from dp2erm_cvx.errors import DeclarationError

#: Public orders alpha > 1 of Renyi curves: six to an octave of alpha - 1, from 1/128 to a million.
RENYI_ORDERS: tuple[float, ...] = tuple(
    float(f"{1.0 + 2.0 ** (step / 6):.6g}") for step in range(-42, 121)
)
_MOST_ORDERS = 10_000
_ULP = 2.0**-52


class Neighboring(enum.StrEnum):
    """Relation between neighboring datasets: same size ``n``, one record replaced.

    ``REPLACE_ONE_KEEP_TREATMENT`` is weaker: the treatment of that record is not protected.
    """

    REPLACE_ONE = "replace-one"
    REPLACE_ONE_KEEP_TREATMENT = "replace-one-keep-treatment"


class Standing(enum.StrEnum):
    """Whether the guarantee of a release holds, and on what condition.

    ``CONDITIONAL``: the theorems' exact minimizer was not established, because a solution was not
    certified or a penalty with kinks leaves only a duality gap. ``FITTED_BEFORE``: it was, and a
    step of a Pipeline had read the records. ``NOT_PRIVATE``: the noise was seeded, so anyone can
    subtract it. ``UNPROVEN``: the plan says itself that no theorem certifies its bound or its
    noise.
    """

    PRIVATE = "private"
    CONDITIONAL = "conditional on certification"
    FITTED_BEFORE = "conditional on what a Pipeline learned before"
    NOT_PRIVATE = "not private: seeded noise"
    UNPROVEN = "not private: the calibration is not proven"


@dataclass(frozen=True)
class Budget:
    """A privacy budget.

    Parameters
    ----------
    epsilon
        Privacy budget, above 0: what any probability may change by with one record, on the log
        scale.
    delta
        Additive slack of the guarantee, below 1; Gaussian noise needs one above 0.

    Raises
    ------
    DeclarationError
        For other numbers.
    """

    epsilon: float = setting(above=0.0)
    delta: float = setting(0.0, at_least=0.0, below=1.0)

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class RenyiCurve:
    """Proven bounds on the Renyi divergences of a release between neighbors, in both directions.

    All of them are public. Every operation rounds up.

    Parameters
    ----------
    orders
        Orders alpha, finite, above 1 and increasing.
    divergences
        One bound on ``D_alpha`` for each, at least 0 and infinite where nothing is proven.

    Raises
    ------
    DeclarationError
        For anything else.
    """

    orders: tuple[float, ...]
    divergences: tuple[float, ...]

    def __post_init__(self) -> None:
        orders = _numbers("orders", self.orders)
        bounds = _numbers("divergences", self.divergences)
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

        Bun and Steinke (2016), Proposition 3.3; the divergence is at most its limit ``epsilon`` as
        well.
        """
        level = public_number("epsilon", epsilon, at_least=0.0)
        bounds = [min(level, _up(order * level * (0.5 * level))) for order in orders]
        return cls(tuple(orders), tuple(bounds))

    def at(self, order: float) -> float:
        """The bound at any ``order`` above 1: that of the next stated order.

        It is infinite beyond the last one. The divergence never falls as the order rises (van Erven
        and Harremoes 2014, Theorem 3).
        """
        place = bisect_left(self.orders, public_number("order", order, above=1.0))
        if place == len(self.orders):
            return math.inf
        return self.divergences[place]

    def plus(self, *more: RenyiCurve) -> RenyiCurve:
        """The curve of all the releases together, at the orders of any of them.

        Curves are added at equal orders, whatever their grids (Mironov 2017, Proposition 1).
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
    """Numbers of a curve. Raises DeclarationError for anything else."""
    if not isinstance(values, tuple | list) or not 1 <= len(values) <= _MOST_ORDERS:
        raise DeclarationError(f"{name}: must be a list of 1 to {_MOST_ORDERS} numbers")
    return tuple(public_number(name, value, infinite=True) for value in values)


def _up(number: float) -> float:
    """Above the exact value of a few rounded operations on numbers that are not negative."""
    return math.nextafter(number * (1.0 + 8.0 * _ULP), math.inf)


#: What a bound assumes until the error of computed weights is counted.
EXACT = "the weights are those of the exact minimizer"


@dataclass(frozen=True)
class StabilityBound:
    """A proven bound on how far weights move between neighboring datasets, of public numbers alone.

    Parameters
    ----------
    V
        Bounds the coupled variation ``||w - w'||_1 + 2 min(w_j, w'_j)`` of weights of sum n, at
        most 2n.
    theorem
        The statement that proves it.
    assumptions
        What the statement assumes of program and data, in words.
    relations
        The neighbors that it covers.
    w_max
        Bounds every weight.
    private
        False where something was read off the data.
    """

    V: float
    theorem: str
    assumptions: tuple[str, ...]
    relations: frozenset[Neighboring]
    w_max: float
    private: bool = True

    def of_computed_weights(self, error: float, n_samples: int, *, certain: bool) -> Self:
        """The bound for computed weights, each within ``error`` of the exact ones in the l1 norm.

        V sums every weight's movement once, with both weights of the changed record in place of
        theirs: it grows by at most the two errors. No nonnegative weights of sum n have a V above
        2n, computed ones included: that is their bound where it is not ``certain`` that they are
        certified.

        Parameters
        ----------
        error
            Bound on ``||w_hat - w||_1`` of either dataset.
        n_samples
            Number of records n.
        certain
            Whether every dataset's weights are sure to be certified to that error.
        """
        cap = 2.0 * n_samples
        V = max(self.V, cap)
        if certain:
            V = min(self.V + 2.0 * error, V)
        assumptions = self.assumptions
        if error > 0.0:
            # The error is counted, so that exact minimizers are no longer assumed.
            assumptions = tuple(text for text in assumptions if text != EXACT)
        return replace(self, V=V, assumptions=assumptions)
