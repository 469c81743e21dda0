"""Sums of a margin loss over records: coefficients of weighting schemes, and second stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, ROUND_UP_SUMS, UNIT, Array, dot_error
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

    Parameters
    ----------
    value, gradient, hessian
        The sums (scalar, (d,) and (d, d)); the Hessian is None where nobody asked for it.
    rounding, hessian_rounding, value_rounding
        Bounds on the norms of their errors.
    size
        The sum of ``m phi ||z||`` of an exponential; else 0.
    margin_error
        The largest error of a margin.
    top
        0, or the largest margin of an exponential.
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
        share = math.exp(self.top - top)
        moved = UNIT * (top - self.top) + 2 * UNIT
        hessian = None
        trace = 0.0
        if self.hessian is not None:
            hessian = share * self.hessian
            trace = float(np.trace(self.hessian))
        return _Moments(
            value=share * self.value,
            gradient=share * self.gradient,
            rounding=share * (self.rounding + moved * self.size),
            hessian=hessian,
            hessian_rounding=share * (self.hessian_rounding + moved * trace),
            value_rounding=share * (self.value_rounding + moved * self.value),
            size=share * self.size,
            margin_error=self.margin_error + UNIT * (top - self.top),
            top=top,
        )


class MarginModel(Composite):
    """f(v) = sum_i m_i phi(<z_i, v> - o_i) + ridge/2 ||v||^2 + <linear, v>, plus a penalty.

    One pass over the records yields whatever is asked about a point. The Hessian of a squared loss
    is that of any point, and its rounding is known by coordinate.

    Parameters
    ----------
    rows
        Rows z, offsets o and factors c of the records, or blocks of them.
    loss
        phi.
    ridge
        The ridge, which counts n.
    penalty
        The feasible set and the price of ``||v||_1``.
    multipliers
        w >= 0 (n,), of ``m = w c``; None for 1.
    linear
        The linear term (d,), exact or rounded once; None for 0.
    weight
        With it the output is ``w = n f / sum(f)``, f its value at ``<u_i, v>``; otherwise it is v.
    arm_total
        Of weights that are normalized by arm, the least sum of f that they are divided by, over n.
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
        if multipliers is not None:
            blocks = blocks.then(MarginRows.weighed, multipliers)
        self.blocks = blocks
        self.n = blocks.n_samples
        self.loss = loss
        self.ridge = ridge
        self.penalty = penalty
        self.weight = weight
        self.arm_total = arm_total
        self._is_square = loss == SQUARE
        extent = self._extent_of_rows()
        self.dimension = len(extent.gram)
        self.linear: Array = np.zeros(self.dimension) if linear is None else linear
        self.spread = extent.row * ROUND_UP
        self._weight_spread = extent.weight_row * ROUND_UP
        self._far = extent.offset
        self._sizes = extent.sizes
        self._pull = extent.pull
        self._errors = self._errors_of(extent)
        self._moments: dict[bytes, _Moments] = {}
        self._bend(extent.gram)

    def _extent_of_rows(self) -> _Extent:
        """How large the rows are, in one pass over the records."""
        extent = partial(_extent, squared=self._is_square, bent=not self.shifted)
        if self._is_square:
            return self.blocks.total(extent, _extent_of_all)
        return self.blocks.total(extent, _extent_of_all, self.row_norms)

    def _errors_of(self, extent: _Extent) -> _Errors:
        """Relative errors of what is computed of a record, and of sums over them."""
        # a margin is rounded where its offset is subtracted, and where the top is
        of_offset = UNIT if extent.offset else 0.0
        of_shift = of_offset + 2 * UNIT if self.shifted else of_offset
        # roundoffs of a term beside its slope's
        of_term = (4 if extent.factored else 2) * UNIT
        return _Errors(
            product=dot_error(self.dimension) + of_offset,
            offset=of_shift,
            term=sum_error(self.n) + of_term,
            hessian_term=product_error(self.n),
        )

    def _bend(self, gram: Array) -> None:
        """Curvature constants from ``sum m z z'``.

        The Hessian is ``sum m phi''(s) z z' + ridge I``, of at most the largest curvature times the
        largest eigenvalue of the sum.
        """
        self.self_concordance = self.loss.concordance * self.spread if self.spread else 0.0
        largest_eigenvalue = float(np.linalg.eigvalsh(gram)[-1])
        steepest = largest_eigenvalue * self.loss.largest_curvature(self._largest_margin())
        self.smoothness = steepest * ROUND_UP_SUMS + 1e-300 + self.ridge
        if self._is_square:
            self._hessian = 2 * gram + self.ridge * np.eye(self.dimension)
            self._moment = 2 * float(np.trace(gram)) * (1 + product_error(self.n))
        # theta itself may be 0: a relative radius is then stated in a gradient step from 0
        self.prepare(np.zeros(self.dimension))
        first_step = -self.gradient(np.zeros(self.dimension)) / self.smoothness
        self.least_scale = float(np.linalg.norm(self.penalty.set.project(first_step)))

    def _largest_margin(self) -> float:
        """Bound on ``|<z_i, v> - o_i|`` over the feasible set, which may be infinite."""
        feasible = self.penalty.set
        length = math.inf
        if isinstance(feasible, ConvexSet):
            length = feasible.norm_bound(self.dimension)
        # 0 * inf: where all rows are 0 every margin is
        return self._far + (self.spread * length if self.spread else 0.0)

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
        rows = self.whole
        data: dict[str, Value] = {"curvature": self.ridge, "linear": self.linear}
        if isinstance(self.penalty.set, ConvexSet):
            data |= self.penalty.set.bounds()
        if np.any(self.penalty.l1):
            data["l1"] = self.penalty.l1
        if isinstance(self.loss, CurvesByArm):
            return data | rows.of_arm(0).parameters("0") | rows.of_arm(1).parameters("1")
        if not self._is_square:
            return data | rows.parameters("")
        # sum m (<z, v> - o)^2 = ||F v||^2 - 2 <sum m o z, v> + a constant, with F'F = sum m z z'
        Z = rows.Z
        m = rows.multipliers
        eigenvalues, vectors = np.linalg.eigh((Z.T * m) @ Z)
        data["factor"] = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
        data["linear"] = self.linear - 2 * (Z.T @ (m * rows.offsets))
        return data

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
        gram = tree_sum([gram_of_part for gram_of_part, _ in parts])
        trace = sum(trace_of_part for _, trace_of_part in parts)
        if self.penalty.priced:
            # a multiplier at 0 whose price is not reached anywhere near stays there, whatever the
            # others do
            slack = self.penalty.l1 - np.abs(self.gradient(v)) - self.rounding(v)
            moves = ~((v == 0.0) & (slack > self.smoothness * distance))
            if not np.any(moves):
                return self.smoothness
            gram = gram[np.ix_(moves, moves)]
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
        assert self._sizes is not None
        assert self._pull is not None
        # sums of sum m |z_j| (<|z|, |v|> + |o|), of nonnegative terms, which are rounded themselves
        error = dot_error(self.dimension) + 8 * UNIT + sum_error(self.n)
        error = error * (1 + 2 * product_error(self.n))
        of_records: Array = 2 * error * (self._sizes @ np.abs(v) + self._pull)
        return of_records + 8 * UNIT * (self.ridge * np.abs(v) + np.abs(self.linear))

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
        reach = kappa + self._margin_error(v)
        ask = partial(_steepness, weight=self.weight, v=v, reach=reach)
        steepest, size = np.max(np.array(self.blocks.map(ask)), axis=0)
        kappa = float(steepest) * reach + 16 * UNIT * float(size)
        if self._base is not None:
            kappa += 2 * UNIT  # of the product
        if self.arm_total is not None:
            # the log of what a weight is divided by moves by as much as those of the weights
            kappa = 2 * kappa + 16 * UNIT * float(size)
        return 2 * self.n * math.tanh(kappa / 2) + 16 * UNIT * self.n

    def _margin_error(self, v: Array) -> float:
        """Bound on the rounding of a margin that weights are read at."""
        length = float(np.linalg.norm(v))
        error = dot_error(self.dimension) * self._weight_spread * length
        if self._far:
            error += UNIT * (self._weight_spread * length + self._far)  # the offset is added once
        return error

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
        of_controls = max(exact_sum(tilt[~treated]), least)
        of_treated = max(exact_sum(tilt[treated]), least)
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
        key = v.tobytes()
        moments = self._moments.get(key)
        needs_hessian = curved and not self._is_square
        if moments is None or (needs_hessian and moments.hessian is None):
            moments = self._moments_at(v, curved=needs_hessian)
            self._moments[key] = moments
            if len(self._moments) > _KEPT:
                del self._moments[next(iter(self._moments))]
        return moments

    def _moments_at(self, v: Array, *, curved: bool) -> _Moments:
        """The sums at v, in one pass over the records."""
        if self._is_square:
            return self.blocks.total(partial(_square_moments, v=v), _added)
        ask = partial(
            _moments,
            v=v,
            curved=curved,
            loss=self.loss,
            errors=self._errors,
            shifted=self.shifted,
        )
        return self.blocks.total(ask, _added, self.row_norms)


@dataclass(frozen=True)
class _Errors:
    """Relative errors of what is computed of a record.

    Parameters
    ----------
    product
        Of a margin, relative to the norms of its row and of v.
    offset
        Of a margin, relative to its offset.
    term
        Of a term of the gradient, the sum over records included.
    hessian_term
        The same of the Hessian.
    """

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
    """``||z_i||`` (n,)."""
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
    """How large rows are, whose norms (n,) a squared loss does not need.

    Parameters
    ----------
    rows
        The rows.
    norms
        Their norms (n,); None of a squared loss.
    squared
        Whether the loss is squared.
    bent
        Whether ``sum m z z'`` is asked for; else it is 0.
    """
    grams = []
    sizes = []
    pulls = []
    for _, piece in rows.pieces():
        m = piece.multipliers
        columns = piece.Z.shape[1]
        grams.append(weighted_gram(piece.Z, m) if bent else np.zeros((columns, columns)))
        if squared:
            size = np.abs(piece.Z)
            sizes.append(weighted_gram(size, m))
            pulls.append((m * np.abs(piece.offsets)) @ size)
    row_norms = np.zeros(0) if norms is None else norms
    weight_norms = row_norms
    if rows.weight_rows is not None:
        weight_norms = np.linalg.norm(rows.weight_rows, axis=1)
    return _Extent(
        row=_largest_size(row_norms),
        offset=_largest_size(rows.offsets),
        weight_row=_largest_size(weight_norms),
        gram=tree_sum(grams),
        factored=rows.factor is not None,
        sizes=tree_sum(sizes) if squared else None,
        pull=tree_sum(pulls) if squared else None,
    )


def _largest_size(values: Array) -> float:
    """The largest size of numbers; 0 of none."""
    return float(np.max(np.abs(values), initial=0.0))


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
    """Sums of ``m phi(s - top)`` and its derivatives over records, with their rounding.

    Parameters
    ----------
    rows, norms
        The rows and their norms (n,).
    loss
        phi.
    v
        The point (d,).
    errors
        Relative errors of what is computed of a record.
    curved
        Whether the Hessian is asked for.
    shifted
        Whether margins are taken less the largest one, of an exponential.
    """
    moments = []
    for part, piece in rows.pieces():
        norms_of_piece = norms[part]
        margins = piece.margins(v)
        margin_error = errors.margin(piece, norms_of_piece, v)
        top = 0.0
        if shifted:
            top = float(np.max(margins))
            # capped, because a dual that diverges for lack of a ridge would overflow here
            margin_error = np.minimum(margin_error + UNIT * (top - margins), 150.0)
            margins = margins - top
        phi = loss.along(piece.arm).at(margins, margin_error)
        m = piece.multipliers
        m_size = m * norms_of_piece
        slope_error = phi.slope_error + errors.term * np.abs(phi.slope)
        value = float(m @ phi.value)
        gradient = blocked_rmatvec(piece.Z, m * phi.slope)
        of_piece = _Moments(value, gradient, float(m_size @ slope_error))
        if curved:
            curvature_units = errors.hessian_term + 8 * UNIT
            curvature_error = phi.curvature_error + curvature_units * phi.curvature
            of_piece = of_piece._replace(
                hessian=weighted_gram(piece.Z, m * phi.curvature),
                hessian_rounding=float(m_size @ (curvature_error * norms_of_piece)),
            )
        if shifted:  # the slope is the value, whose sum is exact
            value_error = phi.slope_error + 4 * UNIT * phi.value
            of_piece = of_piece._replace(
                value=exact_sum(m * phi.value),
                value_rounding=float(m @ value_error),
                size=float(m_size @ phi.value),
                margin_error=float(np.max(margin_error)),
                top=top,
            )
        moments.append(of_piece)
    return _added(moments)


def _square_moments(rows: MarginRows, *, v: Array) -> _Moments:
    """``sum m s^2`` and its gradient, s the margins."""
    value = 0.0
    half_gradients = []
    for _, piece in rows.pieces():
        s = piece.margins(v)
        weighted = piece.multipliers * s
        value += float(weighted @ s)
        half_gradients.append(blocked_rmatvec(piece.Z, weighted))
    return _Moments(value, 2 * tree_sum(half_gradients), 0.0)


def _added(parts: Sequence[_Moments]) -> _Moments:
    """The sum of moments, gradients in a fixed tree."""
    if len(parts) == 1:
        return parts[0]
    top = max(part.top for part in parts)
    parts = [part if part.top == top else part.raised(top) for part in parts]
    values = [part.value for part in parts]
    is_shifted = any(part.size for part in parts)
    hessians = [part.hessian for part in parts if part.hessian is not None]
    return _Moments(
        # shifted values are at most n, and their sum is a divisor: it is rounded once
        # fsum would raise on overflow
        value=math.fsum(values) if is_shifted else float(np.sum(values)),
        gradient=tree_sum([part.gradient for part in parts]),
        rounding=float(np.sum([part.rounding for part in parts])),
        hessian=tree_sum(hessians) if hessians else None,
        hessian_rounding=float(np.sum([part.hessian_rounding for part in parts])),
        value_rounding=float(np.sum([part.value_rounding for part in parts])),
        size=float(np.sum([part.size for part in parts])),
        margin_error=max(part.margin_error for part in parts),
        top=top,
    )


def _least(
    rows: MarginRows, norms: Array, *, loss: Loss, v: Array, distance: float, errors: _Errors
) -> tuple[Array, float]:
    """The least ``sum m phi'' z z'`` within a distance of v, and its trace."""
    reach = norms * distance + errors.margin(rows, norms, v)
    least_curvature = loss.along(rows.arm).least_curvature(rows.margins(v), reach)
    multiples = rows.multipliers * least_curvature
    return weighted_gram(rows.Z, multiples), float(multiples @ norms**2)


def _logs(rows: MarginRows, *, weight: LogOfWeight, v: Array) -> Array:
    """Log weights (n,)."""
    return weight.along(rows.arm).log(rows.read_margins(v))


def _arm_of(rows: MarginRows) -> NDArray[np.int64]:
    """The arms (n,)."""
    assert rows.arm is not None
    return rows.arm


def _base_of(rows: MarginRows) -> Array | None:
    """Factors (n,) of the weights that are read; None for 1."""
    return rows.base


def _steepness(
    rows: MarginRows, *, weight: LogOfWeight, v: Array, reach: float
) -> tuple[float, float]:
    """Largest ``|h'|`` near the margins of weights, and the largest sum of sizes in h."""
    s = rows.read_margins(v)
    h = weight.along(rows.arm)
    steepest = h.lipschitz
    if not steepest <= 1.0:
        near = h.enclose(s - reach, s + reach)
        steepest = min(steepest, float(np.max(near.steepest, initial=0.0)))
    _, sizes = h.evaluated(s)
    return steepest, float(np.max(sizes, initial=1.0))


def _largest(rows: MarginRows, *, local: LocalError) -> float:
    """Bound on the move of a margin that weights are read at."""
    return local.largest(rows.read)
