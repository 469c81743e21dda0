"""Sums of a margin loss over records: coefficients of weighting schemes, and second stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, UNIT, Array, dot_error
from dp2erm_cvx.curves.curves import SQUARE, CurvesByArm, Loss
from dp2erm_cvx.curves.log_weights import LogOfWeight
from dp2erm_cvx.data.blocks import Beside, Blocks, tree_sum, whole
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.model.sums import (
    blocked_rmatvec,
    exact_sum,
    product_error,
    sum_error,
    weighted_gram,
)
from dp2erm_cvx.program.declaration import Value
from dp2erm_cvx.program.margin_rows import MarginRows

R = TypeVar("R")

#: Points that sums are kept for.
_KEPT = 4


class _Moments(NamedTuple):
    """Sums over records of ``m phi(s - top)`` and its derivatives, with their rounding.

    ``top`` is 0, or the largest margin of an exponential; then ``size`` is the sum of
    ``m phi ||z||``.
    """

    value: float
    gradient: Array
    rounding: float
    hessian: Array | None = None
    hessian_rounding: float = 0.0
    value_rounding: float = 0.0
    size: float = 0.0
    margin_error: float = 0.0
    top: float = 0.0

    def raised(self, top: float) -> _Moments:
        """Moments less another top, which moves every margin by a rounding of the difference."""
        share, moved = math.exp(self.top - top), UNIT * (top - self.top) + 2 * UNIT
        value, gradient, rounding, second, bent, off, size, error, _ = self
        trace = 0.0 if second is None else float(np.trace(second))
        return _Moments(
            share * value,
            share * gradient,
            share * (rounding + moved * size),
            None if second is None else share * second,
            share * (bent + moved * trace),
            share * (off + moved * value),
            share * size,
            error + UNIT * (top - self.top),
            top,
        )


class MarginModel(Composite):
    """f(v) = sum_i m_i phi(<z_i, v> - o_i) + ridge/2 ||v||^2 + <linear, v>, plus a penalty.

    ``multipliers`` w >= 0 (n,), of ``m = w c``, and factors c are 1 by default; ``ridge`` counts n;
    ``linear`` (d,) is exact or rounded once. With ``weight`` the output is ``w = n f / sum(f)``, f
    its value at ``<u_i, v>``; otherwise it is v. One pass over the records yields whatever is asked
    about a point. The Hessian of a squared loss is that of any point, and its rounding is known by
    coordinate.
    """

    #: Whether sums are taken less the largest margin; the loss is then an exponential.
    shifted: ClassVar[bool] = False

    def __init__(
        self,
        rows: MarginRows | Blocks[MarginRows],
        loss: Loss,
        ridge: float,
        penalty: Penalty,
        *,
        multipliers: Beside | None = None,
        linear: Array | None = None,
        weight: LogOfWeight | None = None,
        arm_total: float | None = None,
    ) -> None:
        blocks = whole(rows, len(rows)) if isinstance(rows, MarginRows) else rows
        self.blocks = (
            blocks if multipliers is None else blocks.then(MarginRows.weighed, multipliers)
        )
        self.loss, self.penalty, self.weight, self.ridge = loss, penalty, weight, ridge
        self.arm_total = arm_total
        self.n, self._is_square = blocks.n_samples, loss == SQUARE
        norms = () if self._is_square else (self.row_norms,)
        extent = partial(_extent, squared=self._is_square, bent=not self.shifted)
        known = self.blocks.total(extent, _extent_of_all, *norms)
        self.dimension = len(known.gram)
        self._sizes, self._pull = known.sizes, known.pull
        self.spread = known.row * ROUND_UP
        self._weight_spread = known.weight_row * ROUND_UP
        self._far = known.offset
        # roundoffs of a term beside its slope's and that of the sum, and of a margin beside its
        # product's
        steps = (4 if known.factored else 2) * UNIT
        shift = UNIT if self._far else 0.0
        self._errors = _Errors(
            dot_error(self.dimension) + shift,
            shift + 2 * UNIT if self.shifted else shift,
            sum_error(self.n) + steps,
            product_error(self.n),
        )
        self.linear: Array = np.zeros(self.dimension) if linear is None else linear
        self._moments: dict[bytes, _Moments] = {}
        self._bend(known.gram, self._far)

    def _bend(self, gram: Array, far: float) -> None:
        """Curvature constants from ``sum m z z'`` and the largest offset."""
        loss, penalty, ridge = self.loss, self.penalty, self.ridge
        self.self_concordance = loss.concordance * self.spread if self.spread else 0.0
        feasible = penalty.set
        longest = (
            feasible.norm_bound(self.dimension) if isinstance(feasible, ConvexSet) else math.inf
        )
        # 0 * inf: where all rows are 0 every margin is
        reach = far + (self.spread * longest if self.spread else 0.0)
        steepest = float(np.linalg.eigvalsh(gram)[-1]) * loss.largest_curvature(reach)
        self.smoothness = steepest * (1 + 1e-9) + 1e-300 + ridge
        if self._is_square:
            self._hessian = 2 * gram + ridge * np.eye(self.dimension)
            self._moment = 2 * float(np.trace(gram)) * (1 + product_error(self.n))
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0
        self.prepare(np.zeros(self.dimension))
        first_step = -self.gradient(np.zeros(self.dimension)) / self.smoothness
        self.least_scale = float(np.linalg.norm(penalty.set.project(first_step)))

    @cached_property
    def row_norms(self) -> Beside:
        """||z_i|| (n,), which only a squared loss is solved without, kept where the rows are."""
        return self.blocks.column(_norms)

    @cached_property
    def whole(self) -> MarginRows:
        """All rows in memory, for those who work on many neighbors at once."""
        return MarginRows.whole(self.blocks)

    @property
    def Z(self) -> Array:
        """The rows z (n, d), in memory."""
        return self.whole.Z

    def declared(self) -> dict[str, Value]:
        """Parameters of :func:`~dp2erm_cvx.program.margin_rows.MarginRows.declare`."""
        rows, l1 = self.whole, self.penalty.l1
        data: dict[str, Value] = {"curvature": self.ridge, "linear": self.linear}
        if isinstance(self.penalty.set, ConvexSet):
            data |= self.penalty.set.bounds()
        if np.any(l1):
            data["l1"] = l1
        if isinstance(self.loss, CurvesByArm):
            return data | rows.of_arm(0).parameters("0") | rows.of_arm(1).parameters("1")
        if not self._is_square:
            return data | rows.parameters("")
        Z, m, o = rows.Z, rows.multipliers, rows.offsets
        eigenvalues, vectors = np.linalg.eigh((Z.T * m) @ Z)
        factor = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
        return data | {"factor": factor, "linear": self.linear - 2 * (Z.T @ (m * o))}

    def declared_in(self, unit: float, objective: float) -> dict[str, Value]:
        """The same squared loss for the variable ``v / unit``, the objective over ``objective``."""
        data = self.declared()
        scaled: dict[str, Value] = {
            "curvature": self.ridge * unit * unit / objective,
            "linear": data["linear"] * (unit / objective),
        }
        if isinstance(self.penalty.set, ConvexSet):
            scaled |= {name: size / unit for name, size in self.penalty.set.bounds().items()}
        if "l1" in data:
            scaled["l1"] = data["l1"] * (unit / objective)
        scaled["factor"] = data["factor"] * (unit / math.sqrt(objective))
        return data | scaled

    def margins(self, v: Array) -> Array:
        """<z_i, v> - o_i, (n,)."""
        return np.concatenate(self.blocks.map(partial(MarginRows.margins, v=v)))

    def prepare(self, v: Array) -> None:
        self._at(v, curved=True)

    def value(self, v: Array) -> float:
        return self._at(v).value + 0.5 * self.ridge * float(v @ v) + float(self.linear @ v)

    def gradient(self, v: Array) -> Array:
        return self._at(v).gradient + self.ridge * v + self.linear

    def hessian(self, v: Array) -> Array:
        if self._is_square:
            return self._hessian
        hessian = self._at(v, curved=True).hessian
        assert hessian is not None
        return hessian + self.ridge * np.eye(self.dimension)

    def spectrum(self, v: Array) -> tuple[float, float]:
        if math.isinf(self.self_concordance):
            # the Hessian at one point says nothing about the next
            return self.ridge, self.smoothness
        return super().spectrum(v)

    def lowest_within(self, v: Array, distance: float) -> float:
        ask = partial(
            _least, loss=self.loss, v=v, distance=distance * ROUND_UP, errors=self._errors
        )
        parts = self.blocks.map(ask, self.row_norms)
        gram, trace = tree_sum([part[0] for part in parts]), sum(part[1] for part in parts)
        if self.penalty.priced:
            # a multiplier at 0 whose price is not reached anywhere near stays there, whatever the
            # others do
            slack = self.penalty.l1 - np.abs(self.gradient(v)) - self.rounding(v)
            free = ~((v == 0.0) & (slack > self.smoothness * distance))
            if not np.any(free):
                return self.smoothness
            gram = gram[np.ix_(free, free)]
        lowest = float(np.linalg.eigvalsh(gram)[0])
        lowest -= (64 * self.dimension * UNIT + product_error(self.n)) * trace
        return self.ridge + max(lowest, 0.0)

    def hessian_rounding(self, v: Array) -> float:
        if self._is_square:
            # entry (j, k) is wrong by a share of sum m |z_j| |z_k|, a matrix of norm sum m ||z||^2
            # at most
            return (product_error(self.n) + 8 * UNIT) * self._moment + 4 * UNIT * self.ridge
        return self._at(v, curved=True).hessian_rounding + 4 * UNIT * self.ridge

    def rounding_by_coordinate(self, v: Array) -> Array:
        if not self._is_square:
            return super().rounding_by_coordinate(v)
        # sums of sum m |z_j| (<|z|, |v|> + |o|), of nonnegative terms
        error = (dot_error(self.dimension) + 8 * UNIT + sum_error(self.n)) * (
            1 + 2 * product_error(self.n)
        )
        assert self._sizes is not None
        assert self._pull is not None
        data: Array = 2 * error * (self._sizes @ np.abs(v) + self._pull)
        return data + 8 * UNIT * (self.ridge * np.abs(v) + np.abs(self.linear))

    def rounding(self, v: Array) -> float:
        if self._is_square:
            return float(np.linalg.norm(self.rounding_by_coordinate(v)))
        linear = self.ridge * float(np.linalg.norm(v)) + float(np.linalg.norm(self.linear))
        return self._at(v).rounding + 4 * UNIT * linear

    def output(self, v: Array) -> Array:
        if self.weight is None:
            return v
        logs = np.concatenate(self.blocks.map(partial(_logs, weight=self.weight, v=v)))
        tilt: Array = np.exp(logs - np.max(logs))
        base = self._base
        if base is not None:
            tilt *= base
        if self.arm_total is not None:
            tilt /= self._divisors(tilt, float(np.max(logs)))
        tilt *= self.n / exact_sum(tilt)
        return tilt

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        if self.weight is None:
            return radius
        # tilt lemma without a changed record: no log weight moves by more than kappa
        kappa = self._weight_spread * radius
        if local is not None:
            kappa = min(kappa, self.largest_move(local))
        length = float(np.linalg.norm(v))
        product = dot_error(self.dimension) * self._weight_spread * length
        if self._far:
            product += UNIT * (self._weight_spread * length + self._far)  # the offset is added once
        ask = partial(_steepness, weight=self.weight, v=v, reach=kappa + product)
        steep, size = np.max(np.array(self.blocks.map(ask)), axis=0)
        kappa = float(steep) * (kappa + product) + 16 * UNIT * float(size)
        if self._base is not None:
            kappa += 2 * UNIT  # of the product
        if self.arm_total is not None:
            # the log of what a weight is divided by moves by as much as those of the weights
            kappa = 2 * kappa + 16 * UNIT * float(size)
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def _divisors(self, tilt: Array, top: float) -> Array:
        """What weights are divided by, (n,).

        It is the sum over the own arm, or the least total where that is more.

        Parameters
        ----------
        tilt
            Weights before normalization, over exp(top).
        top
            The largest of their logs.
        """
        assert self.arm_total is not None
        treated = np.concatenate(self.blocks.map(_arm_of)) == 1
        # a total beyond floating point is beyond both sums, which are at most n
        least = self.n * self.arm_total * math.exp(min(-top, 600.0))
        sums = [exact_sum(tilt[~treated]), exact_sum(tilt[treated])]
        of_controls, of_treated = (max(total, least) for total in sums)
        return np.where(treated, of_treated, of_controls)

    @property
    def _base(self) -> Array | None:
        """Factors (n,) of the weights; None for 1."""
        parts = [part for part in self.blocks.map(_base_of) if part is not None]
        return np.concatenate(parts) if parts else None

    def largest_move(self, local: LocalError) -> float:
        """Bound on the move of a margin that weights are read at."""
        return max(self.blocks.map(partial(_largest, local=local)))

    def output_scale(self, v: Array) -> float:
        if self.weight is not None:
            return float(self.n)
        return max(float(np.linalg.norm(v)), self.least_scale) or 1.0

    def _at(self, v: Array, *, curved: bool = False) -> _Moments:
        """The sums at v, kept for the last few points."""
        moments, curved = self._moments.get(key := v.tobytes()), curved and not self._is_square
        if moments is None or (curved and moments.hessian is None):
            if self._is_square:
                moments = self.blocks.total(partial(_square_moments, v=v), _added)
            else:
                known: dict[str, Any] = {
                    "loss": self.loss,
                    "errors": self._errors,
                    "shifted": self.shifted,
                }
                ask = partial(_moments, v=v, curved=curved, **known)
                moments = self.blocks.total(ask, _added, self.row_norms)
            self._moments[key] = moments
            if len(self._moments) > _KEPT:
                del self._moments[next(iter(self._moments))]
        return moments


@dataclass(frozen=True)
class _Errors:
    """Relative errors of margins, offsets, terms of gradients and of Hessians."""

    product: float
    offset: float
    term: float
    hessian_term: float

    def margin(self, rows: MarginRows, norms: Array, v: Array) -> Array:
        """Bound on the error of every margin (n,)."""
        length = float(np.linalg.norm(v))
        error: Array = norms * (self.product * length)
        return error if rows.offset is None else error + self.offset * np.abs(rows.offset)


def _norms(rows: MarginRows) -> Array:
    return np.asarray(np.linalg.norm(rows.Z, axis=1))


class _Extent(NamedTuple):
    """How large rows are.

    Parameters
    ----------
    row, offset, weight_row
        The largest norm of a row, size of an offset, and norm of a row that weights are read at.
    gram
        ``sum m z z'`` (d, d).
    factored
        True if there are factors.
    sizes, pull
        ``sum m |z| |z|'`` (d, d) and ``sum m |o| |z|`` (d,) of a squared loss; None of others.
    """

    row: float
    offset: float
    weight_row: float
    gram: Array
    factored: bool
    sizes: Array | None
    pull: Array | None


def _extent_of_all(parts: Sequence[_Extent]) -> _Extent:
    """How large the rows of several parts are, which are added up in a fixed tree."""
    sizes = [part.sizes for part in parts if part.sizes is not None]
    pulls = [part.pull for part in parts if part.pull is not None]
    return _Extent(
        row=max(part.row for part in parts),
        offset=max(part.offset for part in parts),
        weight_row=max(part.weight_row for part in parts),
        gram=tree_sum([part.gram for part in parts]),
        factored=any(part.factored for part in parts),
        sizes=tree_sum(sizes) if sizes else None,
        pull=tree_sum(pulls) if pulls else None,
    )


def _extent(rows: MarginRows, norms: Array | None = None, *, squared: bool, bent: bool) -> _Extent:
    """How large rows are, whose norms (n,) a squared loss does not need."""
    norms = np.zeros(0) if norms is None else norms
    grams = []
    sizes = []
    pulls = []
    for _, own in rows.pieces():
        m = own.multipliers
        grams.append(weighted_gram(own.Z, m) if bent else np.zeros((own.Z.shape[1],) * 2))
        if squared:
            size = np.abs(own.Z)
            sizes.append(weighted_gram(size, m))
            pulls.append((m * np.abs(own.offsets)) @ size)
    u = norms if rows.weight_rows is None else np.linalg.norm(rows.weight_rows, axis=1)
    row, offset, weight_row = (
        float(np.max(np.abs(column), initial=0.0)) for column in (norms, rows.offsets, u)
    )
    return _Extent(
        row,
        offset,
        weight_row,
        tree_sum(grams),
        rows.factor is not None,
        tree_sum(sizes) if squared else None,
        tree_sum(pulls) if squared else None,
    )


def _moments(
    rows: MarginRows,
    norms: Array,
    *,
    loss: Loss,
    v: Array,
    errors: _Errors,
    curved: bool,
    shifted: bool,
) -> _Moments:
    parts = []
    for part, own in rows.pieces():
        m, size, s = own.multipliers, norms[part], own.margins(v)
        error = errors.margin(own, size, v)
        top = float(np.max(s)) if shifted else 0.0
        if shifted:
            # capped, because a dual that diverges for lack of a ridge would overflow here
            s, error = s - top, np.minimum(error + UNIT * (top - s), 150.0)
        of, m_size = loss.along(own.arm).at(s, error), m * size
        rounded = of.slope_error + errors.term * np.abs(of.slope)
        more: dict[str, Any] = {}
        if curved:
            wrong = of.curvature_error + (errors.hessian_term + 8 * UNIT) * of.curvature
            more["hessian"] = weighted_gram(own.Z, m * of.curvature)
            more["hessian_rounding"] = float(m_size @ (wrong * size))
        value = float(m @ of.value)
        if shifted:  # the slope is the value, whose sum is exact
            value, wrong = exact_sum(m * of.value), of.slope_error + 4 * UNIT * of.value
            more |= {
                "top": top,
                "value_rounding": float(m @ wrong),
                "size": float(m_size @ of.value),
            }
            more["margin_error"] = float(np.max(error))
        parts.append(
            _Moments(value, blocked_rmatvec(own.Z, m * of.slope), float(m_size @ rounded), **more)
        )
    return _added(parts)


def _square_moments(rows: MarginRows, *, v: Array) -> _Moments:
    """``sum m s^2`` and its gradient, s the margins."""
    value, slopes = 0.0, []
    for _, own in rows.pieces():
        s = own.margins(v)
        pull = own.multipliers * s
        value += float(pull @ s)
        slopes.append(blocked_rmatvec(own.Z, pull))
    return _Moments(value, 2 * tree_sum(slopes), 0.0)


def _added(parts: Sequence[_Moments]) -> _Moments:
    """The sum of moments, gradients in a fixed tree."""
    if len(parts) == 1:
        return parts[0]
    top = max(part.top for part in parts)
    parts = [part if part.top == top else part.raised(top) for part in parts]
    values, gradients, rounded, hessians, bents, offs, sizes, errors, _ = zip(*parts, strict=True)
    # shifted values are at most n, and their sum is a divisor: it is rounded once
    # fsum would raise on overflow
    value = math.fsum(values) if any(sizes) else float(np.sum(values))
    bent, off, size = (float(np.sum(column)) for column in (bents, offs, sizes))
    hessian = None if hessians[0] is None else tree_sum(hessians)
    gradient, rounding = tree_sum(gradients), float(np.sum(rounded))
    return _Moments(value, gradient, rounding, hessian, bent, off, size, max(errors), top)


def _least(
    rows: MarginRows, norms: Array, *, loss: Loss, v: Array, distance: float, errors: _Errors
) -> tuple[Array, float]:
    """The least ``sum m phi'' z z'`` within a distance of v, and its trace."""
    reach = norms * distance + errors.margin(rows, norms, v)
    steep = rows.multipliers * loss.along(rows.arm).least_curvature(rows.margins(v), reach)
    return weighted_gram(rows.Z, steep), float(steep @ norms**2)


def _logs(rows: MarginRows, *, weight: LogOfWeight, v: Array) -> Array:
    """Log weights (n,)."""
    return weight.along(rows.arm).log(rows.read_margins(v))


def _arm_of(rows: MarginRows) -> NDArray[np.int64]:
    assert rows.arm is not None
    return rows.arm


def _base_of(rows: MarginRows) -> Array | None:
    return rows.base


def _steepness(
    rows: MarginRows, *, weight: LogOfWeight, v: Array, reach: float
) -> tuple[float, float]:
    """Largest ``|h'|`` near the margins of weights, and the largest sum of sizes in h."""
    s, own = rows.read_margins(v), weight.along(rows.arm)
    steep = own.lipschitz
    if not steep <= 1.0:
        steep = min(steep, float(np.max(own.enclose(s - reach, s + reach).steepest, initial=0.0)))
    return steep, float(np.max(own.evaluated(s)[1], initial=1.0))


def _largest(rows: MarginRows, *, local: LocalError) -> float:
    return local.largest(rows.read)
