"""Exact sums of a bounded score on its grid: a record map, then integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.calibration.score import ScoreNoise
from dp2erm_cvx.errors import DeclarationError


def score_sums(score: ArrayLike, noise: ScoreNoise) -> tuple[int, int]:
    """``(2K sum k_i, w sum k_i^2)``, what :func:`perturb_integers` takes. Not private.

    ``score`` (n,) holds the score less its public center, in units of the outcome. ``k_i`` is its nearest
    step on the grid, clipped to [-K, K]; what is not a number counts as 0. All sums are exact.

    Raises DeclarationError where the length is not n.
    """
    values = np.asarray(score, dtype=np.float64)
    if values.shape != (noise.n_samples,):
        raise DeclarationError(f"score of shape {values.shape}: the noise is for ({noise.n_samples},)")
    bound = float(noise.largest)
    with np.errstate(all="ignore"):
        steps = np.rint(np.ldexp(values, -noise.step_exponent))
    whole = np.clip(np.where(np.isnan(steps), 0.0, steps), -bound, bound).astype(np.int64)
    first, second = noise.multipliers
    return first * int(whole.sum()), second * int(np.sum(whole * whole))
