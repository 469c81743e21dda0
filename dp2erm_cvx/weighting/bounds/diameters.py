"""Certified suprema of imbalances over the public sets of a few records.

Rows and targets of a record are linear in its features, and features of different records are free
in their public sets. A sum of rows and targets of m records therefore has a squared norm
``sum_kl G_kl <phi_k, phi_l>`` for every feature, whose supremum is a problem of m vectors: one
number for a constant, corners for an interval, and for a ball the least sum of numbers d_k with
``diag(d) >= G``. Any d of that kind is an upper bound, so a search for the best one needs no proof
of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.stability.base import ROUNDING
from dp2erm_cvx.weighting.forms.features import (
    BallSet,
    ConstantSet,
    Features,
    IntervalSet,
    SimilaritySet,
)
from dp2erm_cvx.weighting.forms.form import FeatureRows, Imbalance

#: Most rounds of the ascent.
_ROUNDS = 400
#: Rounds after which it is checked whether it has ended.
_CHECKED = 20
#: Relative excess at which it ends.
_CLOSE = 1e-9


@dataclass(frozen=True)
class ScaledImbalance:
    """An imbalance whose rows and targets are multiplied by a public number.

    Parameters
    ----------
    imbalance
        The imbalance.
    scale
        The number, such as the root of n times the smoothness of its penalty.
    """

    imbalance: Imbalance
    scale: float


@dataclass(frozen=True)
class RecordCombinations:
    """B sums ``sum_r rows_r z(r) + targets_r t(r) + means_r u(r) + shift * target`` of m records.

    The target is the public one.

    Where the mean of the public points of a kernel is a target, it counts as one more record, with
    the factor ``public``: it is in the hull of features of records.

    Parameters
    ----------
    rows, targets
        Factors of the rows and of the targets of the records, (B, m).
    arms
        Arms of the records, (B, m).
    shift
        Factor of the public target.
    means
        Factors of what the records are in the mean of their arm, as a target, (B, m); None for 0.
    public
        Factor of n times the mean of the public points of a kernel.
    """

    rows: Array
    targets: Array
    arms: NDArray[np.int64]
    shift: float = 0.0
    means: Array | None = None
    public: float = 0.0

    def of(self, part: FeatureRows) -> Array:
        """Factors (B, m) of the features of ``part``, before its matrix.

        With public points they are (B, m + 1).
        """
        factors = self.rows * part.weighted[self.arms] + self.targets * part.target[self.arms]
        if self.means is not None:
            factors = factors + self.means * part.mean[self.arms]
        if part.features.points is None:
            return factors
        of_points = np.full((len(factors), 1), self.public * part.public)
        return np.hstack([factors, of_points])


@dataclass(frozen=True)
class _Piece:
    """``factor * <M sum_k left_k phi_k, M sum_k right_k phi_k>`` for B cases.

    Parameters
    ----------
    left, right
        Factors (B, m); the same array where a norm is meant.
    matrix
        The matrix M (r, width).
    factor
        Numbers at least 0, (B,).
    """

    left: Array
    right: Array
    matrix: Array
    factor: Array

    def products(self) -> Array:
        """The symmetric matrix G (B, m, m) of the form, before M."""
        outer = self.left[:, :, None] * self.right[:, None, :]
        return self.factor[:, None, None] * (outer + outer.swapaxes(1, 2)) / 2.0


def largest_row(imbalance: Imbalance) -> float:
    """An upper bound of the norms of the rows of an imbalance, over records of both arms."""
    arms = np.array([[0], [1]])
    alone = RecordCombinations(np.ones((2, 1)), np.zeros((2, 1)), arms)
    squares = largest_squares([ScaledImbalance(imbalance, 1.0)], alone)
    return float(np.sqrt(np.max(squares)))


def largest_squares(imbalances: Sequence[ScaledImbalance], sums: RecordCombinations) -> Array:
    """Upper bounds (B,) of the squared norms of sums of records, over all imbalances together.

    Coordinates of several features count with the sum of the norms of their parts. The public
    target is subtracted exactly from constants, and with its norm elsewhere.

    Parameters
    ----------
    imbalances
        The imbalances, whose squares are added.
    sums
        What is summed.

    Returns
    -------
    Array
        One bound for each of the B sums, rounding included.
    """
    of_constants = np.zeros(len(sums.rows))
    of_shifts = 0.0
    pieces = _Pieces()
    for scaled, group, shift in _groups(imbalances, sums):
        squared_scale = scaled.scale**2
        if len(group) == 1 and isinstance(group[0].features.within, ConstantSet):
            factors = np.sum(sums.of(group[0]), axis=1)
            vectors = factors[:, None] * group[0].matrix[:, 0] + shift
            of_constants = of_constants + squared_scale * np.sum(vectors**2, axis=1)
            continue
        of_shifts += squared_scale * float(np.sum(shift**2))
        for part, factor in _shares(group, sums):
            coefficients = sums.of(part)
            piece = _Piece(coefficients, coefficients, part.matrix, squared_scale * factor)
            pieces.add(part.features, piece)
    of_features = np.zeros(len(sums.rows))
    for features, own_pieces in pieces.by_features():
        of_features = of_features + _largest_form(features, own_pieces)
    total = of_constants + (np.sqrt(of_features) + math.sqrt(of_shifts)) ** 2
    return np.asarray(total * (1.0 + ROUNDING))


def largest_products(
    imbalances: Sequence[ScaledImbalance], first: RecordCombinations, second: RecordCombinations
) -> Array:
    """Upper bounds (B,) of the inner products of two sums of the same records.

    Parameters
    ----------
    imbalances
        The imbalances, whose inner products are added.
    first
        The one sum, without a public target.
    second
        The other.

    Returns
    -------
    Array
        One bound for each of the B pairs of sums.
    """
    total = np.zeros(len(first.rows))
    by_norms: list[ScaledImbalance] = []
    shifted: list[ScaledImbalance] = []
    pieces = _Pieces()
    for scaled, group, shift in _groups(imbalances, second):
        squared_scale = scaled.scale**2
        if len(group) > 1:
            by_norms.append(_alone(scaled, group, shift, second.shift))
            continue
        part = group[0]
        left = first.of(part)
        right = second.of(part)
        if isinstance(part.features.within, ConstantSet):
            direction = part.matrix[:, 0]
            vectors = np.sum(right, axis=1)[:, None] * direction + shift
            total = total + squared_scale * np.sum(left, axis=1) * (vectors @ direction)
            continue
        if np.any(shift):
            shifted.append(_alone(scaled, group, shift, second.shift))
        pieces.add(
            part.features, _Piece(left, right, part.matrix, np.full(len(left), squared_scale))
        )
    for features, own_pieces in pieces.by_features():
        total = total + _largest_product(features, own_pieces)
    if by_norms:
        # Cauchy and Schwarz.
        squares = largest_squares(by_norms, first) * largest_squares(by_norms, second)
        total = total + np.sqrt(squares)
    if shifted:
        squared_size = 0.0
        for scaled in shifted:
            squared_size += scaled.scale**2 * float(np.sum(scaled.imbalance.shift**2))
        lengths = np.sqrt(largest_squares(shifted, first))
        total = total + abs(second.shift) * math.sqrt(squared_size) * lengths
    return np.asarray(total + ROUNDING * np.abs(total))


class _Pieces:
    """Pieces of a form, by the features that they are of."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[Features, list[_Piece]]] = {}

    def add(self, features: Features, piece: _Piece) -> None:
        """Add a piece to those of its features."""
        self._by_name.setdefault(features.name, (features, []))[1].append(piece)

    def by_features(self) -> Iterable[tuple[Features, list[_Piece]]]:
        """All features with their pieces, in the order in which they came."""
        return self._by_name.values()


def _groups(
    imbalances: Sequence[ScaledImbalance], sums: RecordCombinations
) -> Iterable[tuple[ScaledImbalance, tuple[FeatureRows, ...], Array]]:
    """Groups of coordinates, each with its imbalance and its share of the public target.

    The share is multiplied by the factor of the group.
    """
    for scaled in imbalances:
        begin = 0
        for group in scaled.imbalance.groups:
            end = begin + len(group[0].matrix)
            yield scaled, group, sums.shift * scaled.imbalance.shift[begin:end]
            begin = end


def _alone(
    scaled: ScaledImbalance, group: tuple[FeatureRows, ...], shift: Array, factor: float
) -> ScaledImbalance:
    """The imbalance of one group; ``shift`` is its public target times ``factor``."""
    target = np.zeros_like(shift)
    if factor:
        target = shift / factor
    whole = scaled.imbalance
    return ScaledImbalance(Imbalance((group,), target, whole.penalty, whole.text), scaled.scale)


def _shares(
    group: tuple[FeatureRows, ...], sums: RecordCombinations
) -> list[tuple[FeatureRows, Array]]:
    """The parts of a group with factors f_p: its squared norm is at most ``sum_p f_p |part p|^2``.

    ``(sum_p s_p)^2 <= sum_p s_p^2 / theta_p`` for shares theta of sum 1; those in proportion to the
    largest norms leave the square of the sum of the norms.
    """
    if len(group) == 1:
        return [(group[0], np.ones(len(sums.rows)))]
    norms = []
    for part in group:
        coefficients = sums.of(part)
        piece = _Piece(coefficients, coefficients, part.matrix, np.ones(len(coefficients)))
        norms.append(np.sqrt(_largest_form(part.features, [piece])))
    total = np.asarray(sum(norms))
    factors = [np.divide(total, norm, out=np.ones_like(total), where=norm > 0.0) for norm in norms]
    return list(zip(group, factors, strict=True))


def _spectral(matrix: Array) -> float:
    """Square of the largest singular value, rounded up."""
    return float(np.linalg.norm(matrix, 2)) ** 2 * (1.0 + ROUNDING)


def _diagonals(matrices: Sequence[Array]) -> Array | None:
    """Diagonals (pieces, width) of ``M'M`` where all of them are diagonal, else None."""
    rows = []
    for matrix in matrices:
        square = matrix.T @ matrix
        diagonal = np.diagonal(square)
        if np.any(square != np.diag(diagonal)):
            return None
        rows.append(diagonal)
    return np.array(rows)


def _largest_form(features: Features, pieces: Sequence[_Piece]) -> Array:
    """Upper bound (B,) of a sum of squared norms (pieces with left = right) over the public set."""
    diagonals = _diagonals([piece.matrix for piece in pieces])
    if diagonals is None:
        # M'M <= |M|^2 I, and every form is at least 0.
        width = pieces[0].matrix.shape[1]
        diagonals = np.array([[_spectral(piece.matrix)] * width for piece in pieces])
    return _over_the_set(features, pieces, diagonals)


def _largest_product(features: Features, pieces: Sequence[_Piece]) -> Array:
    """Upper bound (B,) of a sum of inner products over the public set.

    Where M'M mixes coordinates it is by Cauchy-Schwarz.
    """
    diagonals = _diagonals([piece.matrix for piece in pieces])
    if diagonals is not None:
        return _over_the_set(features, pieces, diagonals)
    first = [_Piece(piece.left, piece.left, piece.matrix, piece.factor) for piece in pieces]
    second = [_Piece(piece.right, piece.right, piece.matrix, piece.factor) for piece in pieces]
    return np.asarray(np.sqrt(_largest_form(features, first) * _largest_form(features, second)))


def _over_the_set(features: Features, pieces: Sequence[_Piece], diagonals: Array) -> Array:
    """Upper bound (B,) of ``sum_e sum_kl G^e_kl phi_ke phi_le`` over the public set.

    ``G^e`` is the sum of the products of the pieces, each times entry e of its diagonal.
    """
    products = [piece.products() for piece in pieces]
    components = []
    for column in np.unique(diagonals, axis=1).T:
        weighted = [size * product for size, product in zip(column, products, strict=True)]
        components.append(np.asarray(sum(weighted)))
    within = features.within
    if isinstance(within, ConstantSet):
        return np.asarray(np.sum(components[0], axis=(1, 2)))
    if isinstance(within, IntervalSet):
        return _over_corners(components[0], within.low, within.high)
    if isinstance(within, BallSet):
        if features.width == 1:
            return _over_corners(components[0], -within.radius, within.radius)
        return np.asarray(within.radius**2 * _over_unit_vectors(components))
    return _over_similarities(within, components)


def _over_similarities(within: SimilaritySet, components: Sequence[Array]) -> Array:
    """Of vectors of squared norm at most C, whose inner products may be at least 0."""
    bound = _over_unit_vectors(components)
    if not within.signed and len(components) == 1:
        positive = np.sum(np.maximum(components[0], 0.0), axis=(1, 2))
        bound = np.minimum(bound, positive)
    return np.asarray(within.bound * bound)


def _over_corners(form: Array, low: float, high: float) -> Array:
    """Of numbers in an interval: a form that is convex in every number is largest at a corner.

    A negative diagonal is dropped, which only raises the form.
    """
    records = form.shape[1]
    diagonal = np.eye(records) * form
    convex = form - np.minimum(diagonal, 0.0)
    best = np.full(len(form), -math.inf)
    for corner in itertools.product((low, high), repeat=records):
        values = np.array(corner)
        best = np.maximum(best, np.einsum("bkl,k,l->b", convex, values, values))
    return best


def _over_unit_vectors(components: Sequence[Array]) -> Array:
    """Upper bound (B,) of ``sum_e x_e' G^e x_e`` over m vectors in the unit ball.

    It is the value of feasible duals.

    For every d >= 0 with ``diag(d) >= G^e`` for all e the sum of d is an upper bound. Such d come
    from an ascent for every component alone, and from the largest of them; what they lack is added.
    """
    duals = [_ascended(component) for component in components]
    if len(duals) > 1:
        duals.append(np.max(np.array(duals), axis=0))
    best = np.full(len(components[0]), math.inf)
    for dual in duals:
        missing = np.max([_missing(dual, component) for component in components], axis=0)
        total = np.sum(dual, axis=1) + dual.shape[1] * missing
        best = np.minimum(best, total)
    return np.asarray(best * (1.0 + ROUNDING))


def _missing(dual: Array, form: Array) -> Array:
    """The least t >= 0 with ``diag(d) + t I >= G``, (B,)."""
    identity = np.eye(form.shape[1])
    slack = dual[:, :, None] * identity - form
    return np.asarray(np.maximum(-np.linalg.eigvalsh(slack)[:, 0], 0.0))


def _ascended(form: Array) -> Array:
    """Nearly optimal d (B, m) of the dual, one coordinate after the other.

    They are prices of vectors in the unit ball.

    Where the ascent has not ended after its rounds the bound is only larger. The bounds of one
    program ask for most forms several times.
    """
    return _ascended_once(form.shape, form.tobytes())


@lru_cache(maxsize=512)
def _ascended_once(shape: tuple[int, ...], numbers: bytes) -> Array:
    """The same of a form by its entries, for reading only."""
    form = np.frombuffer(numbers).reshape(shape)
    dual = _ascent(form)
    dual.flags.writeable = False
    return dual


def _ascent(form: Array) -> Array:
    """The rounds of :func:`_ascended`."""
    cases, records, _ = form.shape
    # Any start that is not special would do; a fixed one keeps bounds the same wherever they are
    # computed.
    vectors = np.random.default_rng(0).standard_normal((records, records))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.repeat(vectors[None], cases, axis=0)
    off_diagonal = form * (1.0 - np.eye(records))
    for step in range(1, _ROUNDS + 1):
        for record in range(records):
            pull = np.einsum("bl,bld->bd", off_diagonal[:, record], vectors)
            diagonal = form[:, record, record]
            vectors[:, record] = _best_vector(pull, diagonal, vectors[:, record])
        if step % _CHECKED == 0:
            dual = _prices(form, vectors)
            excess = records * _missing(dual, form)
            if np.all(excess <= _CLOSE * np.sum(dual, axis=1)):
                return dual
    return _prices(form, vectors)


def _best_vector(pull: Array, diagonal: Array, present: Array) -> Array:
    """Vectors x (B, d) of the unit ball with the largest ``G_kk |x|^2 + 2 <x, pull>``.

    Parameters
    ----------
    pull
        What the other vectors pull by (B, d).
    diagonal
        The diagonal entry G_kk (B,).
    present
        Vectors (B, d) that stay where nothing pulls.
    """
    size = np.linalg.norm(pull, axis=1, keepdims=True)
    # A vector that its own diagonal holds back may end inside the ball.
    against = np.maximum(-diagonal, 0.0)[:, None]
    length = np.divide(size, against, out=np.ones_like(size), where=against > size)
    direction = np.divide(pull, size, out=np.zeros_like(pull), where=size > 0.0)
    return np.where(size > 0.0, length * direction, present)


def _prices(form: Array, vectors: Array) -> Array:
    """``d_k = <x_k, sum_l G_kl x_l>``, at least 0."""
    return np.asarray(np.maximum(np.einsum("bkl,bkd,bld->bk", form, vectors, vectors), 0.0))
