"""Exact sums of bounded scores on their grid: a record map, then integers. None of them is private.

Those of all n records are added up from those of any parts of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.calibration import ArmNoise, ContrastNoise, OverlapNoise, ScoreNoise, TreatedNoise
from dp2erm_cvx.calibration.grid_sums import GridSums
from dp2erm_cvx.calibration.overlap import SHARE_BITS
from dp2erm_cvx.errors import DeclarationError

Whole = NDArray[np.int64]


def score_sums(score: ArrayLike, noise: ScoreNoise) -> tuple[int, ...]:
    """``(2K sum k_i, w sum k_i^2)``, what :func:`perturb_integers` takes. Not private.

    ``score`` (n,) holds the score less its public center, in units of the outcome. ``k_i`` is its nearest
    step on the grid, clipped to [-K, K]; what is not a number counts as 0. All sums are exact.

    Raises DeclarationError for more than n records.
    """
    k = _steps(score, noise, noise.largest)
    return _totals(noise, k, k * k)


def contrast_sums(score: ArrayLike, first: ArrayLike, noise: ContrastNoise) -> tuple[int, ...]:
    """The three integers of :class:`~dp2erm_cvx.calibration.ContrastNoise`. Not private.

    ``score`` (n,) is in units of the outcome; ``first`` (n,) says which records add to the first mean.

    Raises DeclarationError for more than n records, and where lengths differ.
    """
    k, flags = _steps(score, noise, noise.largest), _flags(first, score)
    return _totals(noise, np.where(flags, k, 0), np.where(flags, 0, k), k * k)


def arm_sums(score_1: ArrayLike, score_0: ArrayLike, treated: ArrayLike, noise: ArmNoise) -> tuple[int, ...]:
    """The five integers of :class:`~dp2erm_cvx.calibration.ArmNoise`. Not private.

    ``score_1`` and ``score_0`` (n,) are the scores of the arm means less their public centers, ``treated``
    (n,) says in which arm a record is. The score of the other arm is clipped to ``noise.other_bound``.

    Raises DeclarationError for more than n records, and where lengths differ.
    """
    own = _flags(treated, score_1)
    other = noise.largest_other
    k_1 = _steps(score_1, noise, np.where(own, noise.largest, other))
    k_0 = _steps(score_0, noise, np.where(own, other, noise.largest))
    apart, both = k_1 - k_0, k_1 + k_0
    return _totals(noise, k_1, k_0, apart**2, both**2, apart * both)


def treated_sums(score: ArrayLike, treated: ArrayLike, noise: TreatedNoise) -> tuple[int, ...]:
    """The four integers of :class:`~dp2erm_cvx.calibration.TreatedNoise`. Not private.

    ``score`` (n,) has mean zero at the effect among the treated, once the public center is taken off:
    ``(a - (1 - a) o) (y - m_0) - c_0 a`` less the effect times a. ``treated`` (n,) holds a.

    Raises DeclarationError for more than n records, and where lengths differ.
    """
    k, a = _steps(score, noise, noise.largest), _flags(treated, score)
    return _totals(noise, k, a.astype(np.int64), k * k, np.where(a, k, -k))


def overlap_sums(score: ArrayLike, share: ArrayLike, noise: OverlapNoise) -> tuple[int, ...]:
    """The three integers of :class:`~dp2erm_cvx.calibration.OverlapNoise`. Not private.

    ``score`` (n,) has mean zero at the effect among records that count by their ``share`` (n,), once the
    public center is taken off. Shares are clipped to [0, 1/2] and rounded to their grid; where records are
    whole, to 0 or 1/2, and a record of share 0 has no score. Of a group they are those of its records, and no
    score exceeds 2 h B.

    Raises DeclarationError for more than n records, and where lengths differ.
    """
    k = _steps(score, noise, noise.largest)
    shares = np.asarray(share, dtype=np.float64)
    if shares.shape != k.shape:
        raise DeclarationError(f"share of shape {shares.shape}: the score is {k.shape}")
    inside = np.clip(np.where(np.isnan(shares), 0.0, shares), 0.0, 0.5)
    if noise.whole:
        inside = np.where(inside >= 0.25, 0.5, 0.0)
        k = np.where(inside > 0.0, k, 0)
    first, size, last = noise.multipliers
    parts = np.rint(np.ldexp(inside, SHARE_BITS)).astype(np.int64)
    if noise.groups:
        most = parts * (2 * noise.largest) >> SHARE_BITS
        k = np.clip(k, -most, most)
    return first * int(k.sum()), (size >> SHARE_BITS) * int(parts.sum()), last * int(np.sum(k * k))


def _steps(values: ArrayLike, noise: GridSums, largest: ArrayLike) -> Whole:
    score = np.asarray(values, dtype=np.float64)
    if score.ndim != 1 or len(score) > noise.n_samples:
        raise DeclarationError(f"score of shape {score.shape}: the noise is for ({noise.n_samples},)")
    bound = np.asarray(largest, dtype=np.float64)
    with np.errstate(all="ignore"):
        steps = np.rint(np.ldexp(score, -noise.step_exponent))
    found: Whole = np.clip(np.where(np.isnan(steps), 0.0, steps), -bound, bound).astype(np.int64)
    return found


def _flags(treated: ArrayLike, score: ArrayLike) -> NDArray[np.bool_]:
    flags: NDArray[np.bool_] = np.asarray(treated) == 1
    if flags.shape != np.shape(score):
        raise DeclarationError(f"treated of shape {flags.shape}: the score is {np.shape(score)}")
    return flags


def _totals(noise: GridSums, *columns: Whole) -> tuple[int, ...]:
    return tuple(
        factor * int(column.sum()) for factor, column in zip(noise.multipliers, columns, strict=True)
    )
