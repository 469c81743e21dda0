"""Which arm sizes a universe admits, and what a weighting form asks of them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm

#: Up to so many sizes each is looked at; beyond, about so many cells of neighboring sizes, and near
#: both ends, where a block may be a few records, so many sizes one by one.
_CELLS, _NEAR = 1024, 64


@dataclass(frozen=True)
class ArmSizes:
    """The numbers of controls and treated that datasets of a universe may have.

    Parameters
    ----------
    n
        Number of records.
    floors
        Least number of controls and of treated.

    Raises :class:`~dp2erm_cvx.errors.DeclarationError` for floors that are no whole numbers or too
    many.
    """

    n: int
    floors: tuple[int, int]

    def __post_init__(self) -> None:
        for floor in self.floors:
            whole_number("arm floor", floor, at_least=0)
        if sum(self.floors) > self.n:
            raise DeclarationError(
                f"arm floors {self.floors}: their sum must be at most n = {self.n}"
            )

    def least(self, arm: int) -> int:
        """Least number of records of an arm."""
        return self.floors[arm]

    def most(self, arm: int) -> int:
        """Largest number of records of an arm."""
        return self.n - self.floors[1 - arm]

    @property
    def arms(self) -> tuple[int, ...]:
        """The arms that may have a record."""
        return tuple(arm for arm in (0, 1) if self.most(arm) >= 1)

    @property
    def may_change(self) -> bool:
        """Whether a record may change its arm: both sizes before and after must be admitted."""
        return sum(self.floors) <= self.n - 1

    def cells(self) -> tuple[Array, Array]:
        """First and last number of treated records of cells that cover all sizes, (m,) each.

        Every cell is one size where they are at most 1,024.
        """
        first = self.floors[1]
        last = self.n - self.floors[0]
        if last - first < _CELLS:
            sizes = np.arange(first, last + 1, dtype=np.float64)
            return sizes, sizes
        near = np.arange(_NEAR)
        between = np.rint(np.linspace(first, last, _CELLS))
        begins = np.unique(np.concatenate([first + near, between, last - near]))
        ends = np.append(begins[1:] - 1.0, float(last))
        return begins, ends


def block_total(form: WeightingForm, arm: int, treated: Array) -> Array:
    """Sum of the weights of the block of an arm, by the number of treated records (m,)."""
    kind = form.sums.kind
    if kind is SumKind.PUBLIC:
        return np.full_like(treated, public_totals(form)[arm])
    if kind is SumKind.COUNTS:
        return block_size(form, arm, treated)
    if kind is SumKind.TREATED:
        return treated
    return np.full_like(treated, form.n)


def block_size(form: WeightingForm, arm: int, treated: Array) -> Array:
    """Number of records of the block of an arm, by the number of treated records (m,)."""
    if form.sums.kind is SumKind.ALL:
        return np.full_like(treated, form.n)
    return arm_size(form.n, arm, treated)


def arm_size(n: int, arm: int, treated: Array) -> Array:
    """Number of records of an arm, by the number of treated records (m,)."""
    if arm == 1:
        return treated
    return n - treated


def public_totals(form: WeightingForm) -> tuple[float, float]:
    """The public sums of both arms.

    Raises DeclarationError if they are missing or do not add up to n.
    """
    totals = form.sums.public
    if totals is None or min(totals) < 0.0 or abs(sum(totals) - form.n) > 1e-9 * form.n:
        raise DeclarationError(
            f"sums {totals} of the arms: they must be at least 0 and add up to n = {form.n}"
        )
    return totals


def check_feasible(form: WeightingForm, sizes: ArmSizes) -> None:
    """Refuse forms that have no weights on some dataset of the universe (condition C5).

    Sums are compared without rounding, as those of a dataset are: a margin here would leave
    datasets at the floor whose boxes miss their sum by a rounding error.

    Parameters
    ----------
    form
        The form.
    sizes
        Arm sizes of the universe.

    Raises
    ------
    CalibrationError
        With the floor or the box that would do.
    """
    if np.any(form.low < 0.0) or np.any(form.highest_low > form.least_cap):
        raise CalibrationError(
            "weights have lower bounds of at least 0, and at most their upper bounds"
        )
    kind = form.sums.kind
    if kind is SumKind.ALL:
        _check_all(form, sizes)
    elif kind is SumKind.COUNTS:
        for arm in sizes.arms:
            if not form.highest_low[arm] <= 1.0 <= form.least_cap[arm]:
                raise CalibrationError(
                    f"weights of the {_NAMES[arm]} have the mean 1: let their box, from "
                    f"{form.highest_low[arm]:g} to {form.least_cap[arm]:g}, hold 1"
                )
    elif kind is SumKind.PUBLIC:
        totals = public_totals(form)
        for arm in (0, 1):
            _check_total(form, sizes, arm, (totals[arm], totals[arm]))
    elif kind is SumKind.CONTROLS:
        _check_total(form, sizes, 0, (float(form.n), float(form.n)))
    else:
        _check_total(form, sizes, 0, (float(sizes.most(1)), float(sizes.least(1))))
        if sizes.least(1) < 1:
            raise CalibrationError(
                "the controls weigh as many as the treated: declare an arm floor of at least 1"
            )


def check_means(form: WeightingForm, sizes: ArmSizes) -> None:
    """Refuse the mean of an arm as a target where the arm may be empty: it moves at once there.

    Parameters
    ----------
    form
        The form.
    sizes
        Arm sizes of the universe.

    Raises
    ------
    CalibrationError
        With the floor that would do.
    """
    for arm in form.arms_of_means:
        if sizes.least(arm) < 1:
            raise CalibrationError(
                f"the mean of the {_NAMES[arm]} is a target, and there may be none of them: "
                "declare an arm floor, of which the larger it is the less one record moves the "
                "mean"
            )


_NAMES = ("controls", "treated")


def _exact_sum(counts: list[int], ends: list[float]) -> Fraction:
    """Sum of as many ends of boxes, without rounding.

    A dataset whose boxes miss a sum has no weights.
    """
    terms = [count * Fraction(end) for count, end in zip(counts, ends, strict=True) if count > 0]
    return sum(terms, Fraction(0))


def _check_all(form: WeightingForm, sizes: ArmSizes) -> None:
    """Sum n of all weights: both extreme sizes admit it, hence all between."""
    caps = [min(float(cap), float(form.n)) for cap in form.least_cap]
    for treated in (sizes.least(1), sizes.most(1)):
        counts = [form.n - treated, treated]
        least = _exact_sum(counts, form.highest_low.tolist())
        most = _exact_sum(counts, caps)
        if not least <= form.n <= most:
            raise CalibrationError(
                f"boxes of the weights: with {treated} treated of {form.n} records none have the "
                "sum n; let lower bounds be at most 1 and upper bounds at least 1, or declare arm "
                "floors"
            )


def _check_total(
    form: WeightingForm, sizes: ArmSizes, arm: int, totals: tuple[float, float]
) -> None:
    """A total of one arm; it is given at the least and at the largest number of its records."""
    name = _NAMES[arm]
    least = sizes.least(arm)
    most = sizes.most(arm)
    cap = min(float(form.least_cap[arm]), totals[0])
    if _exact_sum([least], [cap]) < totals[0]:
        if least == 0:
            raise CalibrationError(
                f"arm_floor is not declared: weights of the {name} have the sum {totals[0]:g}, and "
                "there may be none of them; declare a public floor on both arm sizes"
            )
        raise CalibrationError(
            f"weights of the {name} have the sum {totals[0]:g}, which {least} of them of at most "
            f"{form.least_cap[arm]:g} cannot reach: declare a larger arm_floor, or a larger cap"
        )
    if _exact_sum([most], [float(form.highest_low[arm])]) > totals[1]:
        raise CalibrationError(
            f"weights of the {name} have the sum {totals[1]:g}, and {most} of them are at least "
            f"{form.highest_low[arm]:g} each: declare a larger floor of the other arm, or a "
            "smaller lower bound"
        )
