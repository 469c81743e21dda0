"""Margins of records: rows, offsets and factors, and their public bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_DOWN_SUMS, UNIT, Array, dot_error
from dp2erm_cvx.curves.curves import SQUARE, Curve, CurvesByArm, Loss
from dp2erm_cvx.curves.log_weights import LogOfWeight
from dp2erm_cvx.curves.suprema import gradient_diameter, largest_multiple, multiple_diameter
from dp2erm_cvx.data.blocks import Blocks
from dp2erm_cvx.model.composite import Sizes
from dp2erm_cvx.model.quadratics import Quadratic
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.model.sums import CACHED, sum_error
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import Declaration, Params

#: The most that rounding moves a margin, at whose curvature the error of a slope is taken.
_NEAR = 0.01


@dataclass(frozen=True)
class MarginRows:
    """Rows of a sum over records ``sum w_i c_i phi(<z_i, theta> - o_i)``.

    Parameters
    ----------
    Z
        The rows z_i (n, p).
    offset
        The offsets o_i (n,); None for 0.
    factor
        The factors c_i >= 0 (n,); None for 1.
    weight_rows
        The rows u_i (n, p) that weights are read at; None for z_i.
    arm
        0 or 1 (n,), where phi depends on the arm of a record; None where it does not.
    base
        Factors b_i > 0 (n,) of the weights that are read; None for 1.
    """

    Z: Array
    offset: Array | None = None
    factor: Array | None = None
    weight_rows: Array | None = None
    arm: NDArray[np.int64] | None = None
    base: Array | None = None

    def __len__(self) -> int:
        return len(self.Z)

    def pieces(self) -> Iterator[tuple[slice, MarginRows]]:
        """Rows that stay in a cache from one sum to the next, and their places."""
        for begin in range(0, len(self), CACHED):
            part = slice(begin, begin + CACHED)
            yield part, self._at(part)

    def _at(self, places: Any) -> MarginRows:
        """The rows at places, a slice or a mask (n,)."""
        columns: dict[str, Any] = {
            name: None if column is None else column[places] for name, column in vars(self).items()
        }
        return MarginRows(**columns)

    @staticmethod
    def whole(blocks: Blocks[MarginRows]) -> MarginRows:
        """All rows of the blocks in memory."""
        parts = list(blocks.each())
        columns: dict[str, Any] = {}
        for name in vars(parts[0]):
            of_parts = [vars(part)[name] for part in parts]
            columns[name] = None if of_parts[0] is None else np.concatenate(of_parts)
        return MarginRows(**columns)

    def of_arm(self, which: int) -> MarginRows:
        """The rows of records of an arm, in order."""
        assert self.arm is not None
        return self._at(self.arm == which)

    def parameters(self, arm: str) -> dict[str, Array]:
        """Parameters of :meth:`declare`, with ``arm`` behind their names; none of no records."""
        data: dict[str, Array] = {}
        if len(self):
            data[f"Z{arm}"] = self.Z
            if self.offset is not None:
                data[f"offset{arm}"] = self.offset
            if self.factor is not None:
                data[f"multipliers{arm}"] = self.factor
        return data

    def weighed(self, weights: Array) -> MarginRows:
        """Rows whose factors are multiplied by weights (n,)."""
        return replace(self, factor=weights if self.factor is None else weights * self.factor)

    @staticmethod
    def declare(data: Params, name: str, loss: Loss, feasible: ConvexSet) -> Declaration:
        """Declaration of a margin model in the variable v of this name, over a feasible set.

        minimize    sum_i m_i phi(s_i) + <linear, v> + curvature/2 ||v||^2 + l1 ||v||_1
        subject to  s_i = <z_i, v> - o_i

        With multipliers margins are variables: a product of two Parameters is not DPP. A squared
        loss is in Gram form, up to a constant: ``||F v||^2`` with ``F'F = sum m_i z_i z_i'``. Where
        the loss depends on the arm, the sums over both arms have parameters of their own.
        """
        v = cp.Variable(*data.shape("linear"), name=name)
        variables: dict[str, Any] = {name: v}
        constraints: dict[str, Any] = {}
        if data.has("factor"):
            objective = cp.sum_squares(data("factor") @ v)
        else:
            objective = _declared_sums(data, loss, variables, constraints)
        objective += data("linear") @ v + data("curvature", nonneg=True) / 2 * cp.sum_squares(v)
        if data.has("l1"):
            objective += data("l1", nonneg=True) * cp.norm(v, 1)
        sizes = [data(size, nonneg=True) for size in feasible.parameters]
        return Declaration(objective, variables, constraints | feasible.constraints(v, *sizes))

    @property
    def offsets(self) -> Array:
        """The offsets (n,)."""
        return np.zeros(len(self)) if self.offset is None else self.offset

    def margins(self, v: Array) -> Array:
        """<z_i, v> - o_i, (n,)."""
        products: Array = self.Z @ v
        return products if self.offset is None else products - self.offset

    @property
    def multipliers(self) -> Array:
        """The factors (n,)."""
        return np.ones(len(self)) if self.factor is None else self.factor

    @property
    def read(self) -> Array:
        """The rows that weights are read at."""
        return self.Z if self.weight_rows is None else self.weight_rows

    def read_margins(self, v: Array) -> Array:
        """Margins (n,) that weights are read at."""
        return self.margins(v) if self.weight_rows is None else self.weight_rows @ v


def _declared_sums(
    data: Params, loss: Loss, variables: dict[str, Any], constraints: dict[str, Any]
) -> Any:
    """The sum of a loss over all records, arm by arm where it depends on the arm.

    Variables and constraints are added to.
    """
    if isinstance(loss, CurvesByArm):
        controls, treated = loss.each
        curves = {"0": controls, "1": treated}
    else:
        curves = {"": loss}
    sums = [
        _declared_sum(data, arm, curve, variables, constraints)
        for arm, curve in curves.items()
        if data.has(f"Z{arm}")
    ]
    return sum(sums[1:], start=sums[0])


def _declared_sum(
    data: Params, arm: str, loss: Curve, variables: dict[str, Any], constraints: dict[str, Any]
) -> Any:
    """The sum of a loss over the records of an arm, or over all.

    Variables and constraints are added to.

    Parameters
    ----------
    data
        Parameters, those of these records with ``arm`` behind their names.
    arm
        ``0`` or ``1``; empty for all records.
    loss
        Their loss.
    variables, constraints
        Those of the declaration by name, the coefficient first.
    """
    v = next(iter(variables.values()))
    margins = data(f"Z{arm}") @ v
    if data.has(f"offset{arm}"):
        margins -= data(f"offset{arm}")
    if not data.has(f"multipliers{arm}"):
        return cp.sum(loss.declared(margins))
    s = cp.Variable(margins.shape, name=f"margins{arm}")
    variables[f"margins{arm}"] = s
    constraints[f"margins{arm}"] = s == margins
    return data(f"multipliers{arm}", nonneg=True) @ loss.declared(s)


@dataclass(frozen=True)
class RowBounds:
    """Public bounds on the rows z of records, and on their numbers o, c and t.

    Parameters
    ----------
    norm
        Bound on the norm of z.
    offset, factor, tilt
        Intervals of o, c and t over the domain.
    vertices
        Number of unit vectors that every z is one of, as arms are; 0 for any z of the ball.
    """

    norm: float
    offset: tuple[float, float] = (0.0, 0.0)
    factor: tuple[float, float] = (1.0, 1.0)
    tilt: tuple[float, float] = (0.0, 0.0)
    vertices: int = 0

    @property
    def plain(self) -> bool:
        """True if all factors are 1 and all tilts 0."""
        return self.factor == (1.0, 1.0) and not any(self.tilt)

    @property
    def largest_offset(self) -> float:
        """Bound on ``|o|``."""
        return max(map(abs, self.offset))

    def size(self, theta_set: ConvexSet, n_parameters: int) -> float:
        """Bound on the part of theta along a row: its norm, or the size of one coordinate."""
        return theta_set.norm_bound(1 if self.vertices else n_parameters)

    def reach(self, size: float) -> float:
        """Bound on ``|<z, theta> - o|`` over ``||theta|| <= size``."""
        return self.largest_offset + self._product(size)

    def _product(self, size: float) -> float:
        """Bound on ``|<z, theta>|`` over ``||theta|| <= size``, which may be infinite."""
        # 0 * inf: where all rows are 0 every margin is
        return self.norm * size if self.norm else 0.0

    def constants(self, curve: Curve, size: float) -> tuple[float, float]:
        """Half the diameter of a record's gradients over ``||theta|| <= size``, and their bound.

        Gradients are ``(c phi'(<z, theta> - o) + t) z`` (Lemma 1).
        """
        product = self._product(size)
        low, high = self.offset
        numbers = (-high, -low), self.factor, self.tilt
        if self.vertices:
            # records of one coordinate, or of two, whose gradients are at right angles
            diameter, largest = multiple_diameter(curve, product, *numbers)
            if self.vertices > 1:
                diameter = max(diameter, math.sqrt(2.0) * largest)
            return 0.5 * diameter, largest
        largest = largest_multiple(curve, product, *numbers)
        radius = min(0.5 * gradient_diameter(curve, product, *numbers), largest)
        return self.norm * radius, self.norm * largest

    def loss_at_zero(self, curve: Curve, size: float) -> float:
        """Root of a bound on ``c (phi(-o) - inf phi)``: where the choice of a split starts from.

        Where there is a full slope, that of the largest offset there: a loss that saturates says
        little of theta by its value. A loss that falls without end has its least value where
        margins reach: theta has the norm ``size`` at most.
        """
        margins_at_zero = -np.array(self.offset)
        least = curve.least_value(self.reach(math.inf))
        if not math.isfinite(least):
            least = curve.least_value(self.reach(size))
        fall = 0.0
        if math.isfinite(least):
            fall = float(np.max(curve.value(margins_at_zero))) - least
        steepest = max(map(abs, curve.ends))
        if math.isfinite(steepest):
            fall = max(fall, steepest * float(np.max(np.abs(margins_at_zero))))
        return math.sqrt(max(self.factor[1] * fall, 1e-300))


@dataclass(frozen=True)
class MarginSum:
    """``sum m_i phi(<z_i, v> - o_i) + ridge/2 ||v||^2 + <linear, v> + q(v)`` over a set.

    It is known by its bounds.

    Parameters
    ----------
    n_samples
        n, the largest sum of the multipliers but for the factors of records.
    n_parameters
        Length of v.
    loss
        phi.
    rows
        Bounds on z and o, and intervals of the factors and tilts of records.
    feasible
        The set, which holds 0.
    ridge
        The ridge, which counts n.
    linear
        Bound on the norm of the linear term.
    weighted
        True if there are multipliers other than 1.
    n_rows
        Number of rows that are added up; None for n.
    quadratic
        q, public linear and quadratic terms that count n; None for 0.
    """

    n_samples: int
    n_parameters: int
    loss: Loss
    rows: RowBounds
    feasible: ConvexSet
    ridge: float
    linear: float = 0.0
    weighted: bool = False
    n_rows: int | None = None
    quadratic: Quadratic | None = None

    def sizes(self) -> Sizes | None:
        """Its :class:`~dp2erm_cvx.model.composite.Sizes`; None where one is infinite."""
        plain_squares = self.loss == SQUARE and self.rows.plain
        sizes = self._least_squares() if plain_squares else self._margins()
        if sizes is None or self.quadratic is None:
            return sizes
        return self.quadratic.added_to(sizes)

    @property
    def _declared_curvature(self) -> float:
        """Strong convexity of the ridge and of q together."""
        return self.ridge if self.quadratic is None else self.quadratic.with_ridge(self.ridge)

    @property
    def _declared_slope(self) -> float:
        """Bound on the norm of the linear term and of that of q together."""
        return self.linear if self.quadratic is None else self.linear + self.quadratic.slope

    def _margins(self) -> Sizes | None:
        """Sizes of any loss, of q the strong convexity and the norm of the minimizer alone.

        None where slopes or curvatures are infinite over the set.
        """
        Z = self.rows.norm
        n = self.n_samples * self.rows.factor[1]  # bound on the sum of all multipliers
        set_norm = self.feasible.norm_bound(self.n_parameters)
        margin = self.rows.reach(set_norm)  # bound on |s| over the set
        slope = self.loss.largest_slope(margin)
        if not math.isfinite(slope):
            return None
        if not math.isfinite(self.loss.largest_curvature(margin + _NEAR)):
            return None
        rounding, rounding_growth = self._rounding_of_margins(margin, slope)
        linear = self.linear + self._tilt
        return Sizes(
            strong_convexity=self._declared_curvature,
            smoothness=n * self.loss.largest_curvature(margin) * Z**2 + self.ridge,
            slope=n * Z * slope + linear,
            rounding=n * Z * rounding + 4 * UNIT * linear,
            rounding_growth=rounding_growth * n * Z**2 + 4 * UNIT * self.ridge,
            minimizer_norm=self._minimizer_norm(margin, slope, set_norm),
            set_norm=set_norm,
            set_rounding=self.feasible.rounding(self.n_parameters),
        )

    @property
    def _tilt(self) -> float:
        """Bound on the norm of the sum of all tilts, ``sum w_i t_i z_i``."""
        return self.n_samples * self.rows.norm * max(map(abs, self.rows.tilt))

    def _minimizer_norm(self, margin: float, slope: float, set_norm: float) -> float:
        """Bound on ``||t||`` at the minimizer t over a set of norm ``set_norm``.

        With the curvature m and the linear term l of the ridge and q together, ``m t`` is minus the
        gradient of the rest, hence ``||t|| <= (n Z slope + ||l||) / m``. Without offsets
        ``m ||t||^2 <= sum -s_i phi'(s_i) + ||l|| ||t||`` as well, hence
        ``||t|| <= (n pull / m)^(1/2) + ||l|| / m``.

        Parameters
        ----------
        margin, slope
            Bounds on ``|s|`` and ``|phi'(s)|`` over the set.
        set_norm
            Bound on the norm over the set.
        """
        m = self._declared_curvature
        if not m > 0:
            return set_norm
        Z = self.rows.norm
        n = self.n_samples * self.rows.factor[1]
        linear = self._declared_slope + self._tilt
        by_gradient = (n * Z * slope + linear) / m
        by_pull = math.inf
        if self.rows.largest_offset == 0.0:
            by_pull = math.sqrt(self.loss.pull(margin) * n / m) + linear / m
        return min(by_gradient, by_pull, set_norm)

    def _rounding_of_margins(self, margin: float, slope: float) -> tuple[float, float]:
        """Bounds on the rounding of one record's gradient, in units of its row.

        The first is that at 0; the second, times the norm of v and of the row, is what is added
        elsewhere.

        Parameters
        ----------
        margin, slope
            Bounds on ``|s|`` and ``|phi'(s)|`` over the set.
        """
        offset = self.rows.largest_offset
        curvature = self.loss.largest_curvature(margin)
        near_curvature = self.loss.largest_curvature(margin + _NEAR)
        # of the slope and its products, and of the sum over records
        slope_units = self.loss.rounding_units(margin) + (4 if self.weighted else 2) * slope
        rounding = slope_units * UNIT + sum_error(self.n_rows or self.n_samples) * slope
        # of the margin: its product, its offset, and steps of the loss before its slope
        margin_error = self.loss.margin_units * UNIT
        rounding += 2 * UNIT * curvature * offset + margin_error * near_curvature * offset
        product_error = dot_error(self.n_parameters) + (UNIT if offset else 0.0) + margin_error
        return rounding, near_curvature * product_error

    def _least_squares(self) -> Sizes:
        """Sizes of ``sum w_i (z_i - <x_i, v>)^2 + ridge/2 ||v||^2 + <b, v>``, for all w of sum n.

        Of q the strong convexity and the norm of the minimizer alone. With ``|z_i| <= Z`` and
        ``s_i = <x_i, t>`` at the minimizer t, and the curvature m and the linear term l of the
        ridge, b and q together, ``m ||t||^2 <= sum w_i (2 z_i s_i - 2 s_i^2) + ||l|| ||t||`` (0 is
        in the set and minimizes the l1 norm), and ``2 z s - 2 s^2 <= Z^2/2``:
        ``||t|| <= Z (n / (2 m))^(1/2) + ||l|| / m``. A mean (``x = 1``) has the Hessian ``2n + m``,
        and its minimizer is within ``Z + ||l|| / (2n + m)``.
        """
        n = self.n_samples
        M = self.rows.norm
        Z = self.rows.largest_offset
        b = self.linear
        linear = self._declared_slope
        m = self._declared_curvature
        minimizer_norm = math.inf
        if self.rows.vertices == 1:
            # the curvature of a mean is found in its computed Hessian, which errs as q does
            hessian_error = 0.0 if self.quadratic is None else self.quadratic.matrix_error
            m = (2 * n + m - hessian_error) * ROUND_DOWN_SUMS
            minimizer_norm = Z + linear / m
        elif m > 0:
            minimizer_norm = Z * math.sqrt(n / (2 * m)) + linear / m
        error = dot_error(self.n_parameters) + 8 * UNIT + sum_error(self.n_rows or n)
        set_norm = self.feasible.norm_bound(self.n_parameters)
        return Sizes(
            strong_convexity=m,
            smoothness=2 * n * M**2 + self.ridge,
            slope=2 * n * M * Z + b,
            rounding=2 * error * n * M * Z + 8 * UNIT * b,
            rounding_growth=2 * error * n * M**2 + 8 * UNIT * self.ridge,
            minimizer_norm=min(minimizer_norm, set_norm),
            set_norm=set_norm,
            set_rounding=self.feasible.rounding(self.n_parameters),
        )

    def weights(self, weight: LogOfWeight, *, by_arm: bool = False) -> float:
        """Bound on ``||w_hat - w||_1 / n`` of weights at margins of such rows, or ``inf``.

        Parameters
        ----------
        weight
            The log weight of a margin.
        by_arm
            Whether weights are normalized by arm: they are divided by sums that err as much as they
            do.
        """
        sizes = self.sizes()
        radius = None if sizes is None else sizes.radius()
        if sizes is None or radius is None:
            return math.inf
        Z = self.rows.norm
        norm = sizes.minimizer_norm + radius
        offset = self.rows.largest_offset
        at_point = weight.error_at(self.n_parameters, Z, norm, offset)
        error = weight.steepest(Z * norm + offset) * Z * radius + at_point
        return 2 * error if by_arm else error
