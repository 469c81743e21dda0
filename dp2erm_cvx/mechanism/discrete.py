"""Noise on whole numbers and on a grid, private choices, and the exact counts that they take.

Discrete Laplace noise and choices are OpenDP's, in exact arithmetic, and its privacy maps confirm epsilon.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.calibration.base import Noise
from dp2erm_cvx.calibration.numbers import LARGEST_INTEGER, GridNoise, IntegerNoise
from dp2erm_cvx.errors import CalibrationError, CertificateError, DeclarationError
from dp2erm_cvx.mechanism.exact import Source, random_source, require, rounded_gaussians

#: Draws one place among whole-number scores (k,).
Choice = Callable[[Sequence[int]], int]
_LAST, _LARGEST = 2**63 - 1, sys.float_info.max


def perturb_integers(
    values: Sequence[int], noise: IntegerNoise, *, exact: bool = True, seed: int | str | None = None
) -> tuple[int, ...]:
    """Add the noise to every integer; the result is integers again, nothing is rounded.

    Values are first clipped to ``[-2^62, 2^62]``, results to 64 bits, as OpenDP does. Laplace noise is
    OpenDP's (``make_laplace``), Gaussian noise a normal variable, drawn until its nearest integer is certain.
    With ``exact`` False the law is that of doubles: the caller must state that exact arithmetic is assumed.
    With a seed it is repeatable as well: the caller must record the result as not private. Raises
    DeclarationError where a package of the extra ``secure`` is missing, CalibrationError where OpenDP's map
    does not confirm ``noise.epsilon``.
    """
    inside = [min(max(int(value), -LARGEST_INTEGER), LARGEST_INTEGER) for value in values]
    if exact and seed is None and noise.noise is Noise.GAMMA:
        added = _laplace({"T": "i64"}, inside, noise, noise.sensitivity)
        return tuple(int(value) for value in added)
    if exact and seed is None:
        drawn = rounded_gaussians(noise.scale, len(inside))
    else:
        source = random_source(seed)
        gaussian = noise.noise is Noise.GAUSSIAN
        drawn = tuple(
            round(source.gauss(0.0, noise.scale)) if gaussian else _two_sided(1.0 / noise.scale, source)
            for _ in inside
        )
    sums = (value + number for value, number in zip(inside, drawn, strict=True))
    return tuple(min(max(value, -_LAST), _LAST) for value in sums)


def perturb_on_grid(
    values: ArrayLike, noise: GridNoise, *, seed: int | str | None = None
) -> NDArray[np.float64]:
    """Round ``values``, shape (p,), to the grid ``2^exponent Z^p`` and add discrete Laplace noise.

    The sampler and its privacy map are OpenDP's (``make_laplace``, after Canonne, Kamath and Steinke 2020),
    in exact integers; the sum is rounded to finite doubles. With a seed the noise is repeatable, in floating
    point and without OpenDP: the caller must record the result as not private. Raises DeclarationError where
    the length is not p or OpenDP is missing, CalibrationError where its map does not confirm
    ``noise.epsilon``, and CertificateError where a value is not finite, which no certified solution is.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (noise.n_parameters,):
        raise DeclarationError(f"values of shape {vector.shape}: the noise is for ({noise.n_parameters},)")
    # OpenDP would take "not a number" for 0 and infinity for the largest double
    if not np.all(np.isfinite(vector)):
        raise CertificateError("a value to be perturbed is not finite")
    point = [float(value) for value in vector]
    if seed is None:
        grid = {"size": noise.n_parameters, "k": noise.exponent}
        result = _laplace({"T": float, "nan": False}, point, noise, noise.l1_sensitivity, **grid)
    else:
        result = _repeatable(point, noise, random.Random(seed))
    return np.array([min(max(value, -_LARGEST), _LARGEST) for value in result])


def selection_scale(sensitivity: int, epsilon: float) -> float:
    """``2 s / epsilon``, rounded up: scores that differ by it are told apart by odds of e.

    ``sensitivity`` bounds how far replacing one record moves any score. Raises CalibrationError where the
    scale is out of floating-point range.
    """
    scale = 2 * sensitivity / epsilon * (1.0 + 1e-12)
    if not 0.0 < scale < math.inf:
        raise CalibrationError(f"epsilon = {epsilon:g}: no scale of noise for it")
    return scale


def private_choice(sensitivity: int, epsilon: float, source: Source | None = None) -> Choice:
    """Permute-and-flip on whole-number scores by OpenDP, whose privacy map certifies ``epsilon``.

    Candidates in random order are accepted with probability ``exp(epsilon (q - q*) / 2s)``, ``q*`` the best
    score and ``s`` their sensitivity (McKenna and Sheldon 2020). From a seeded ``source`` it has that law to
    the accuracy of doubles, without OpenDP: not private. Raises DeclarationError where OpenDP is not
    installed, CalibrationError where it does not certify epsilon.
    """
    scale = selection_scale(sensitivity, epsilon)
    if source is not None:
        return partial(_flip, scale, source)
    if find_spec("opendp") is None:
        raise DeclarationError("a private choice needs the extra: pip install 'dp2erm-cvx[secure]'")
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_max
    from opendp.measures import max_divergence
    from opendp.metrics import linf_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    space = vector_domain(atom_domain(T="i64")), linf_distance(T="i64")
    measurement: Any = make_noisy_max(*space, max_divergence(), scale)
    if not measurement.map(sensitivity) <= epsilon:
        raise CalibrationError(f"OpenDP does not certify epsilon = {epsilon:g} at scale = {scale:g}")
    return lambda scores: int(measurement(list(scores)))


def quantile_places(
    values: NDArray[np.float64], candidates: NDArray[np.float64], *, above: bool
) -> NDArray[np.int64]:
    """Place among the increasing ``candidates`` (m,) that every value (n,) stands for. Not private.

    It is the next one above or below it, the outermost one where there is none.
    """
    if above:
        place = np.searchsorted(candidates, values, side="left")
    else:
        place = np.searchsorted(candidates, values, side="right") - 1
    return np.clip(place, 0, len(candidates) - 1)


def quantile_scores(counts: NDArray[np.int64], rank: int) -> list[int]:
    """Minus the distance, in records, of ``rank`` to the ranks of each candidate. Not private.

    ``counts`` (m,) are those of :func:`quantile_places`; candidate c has the ranks from the number of values
    below it to that of values up to it. Replacing one record moves both by at most 1, and so every score; of
    a person who adds K whole parts to several candidates, all by at most K.
    """
    up_to = np.cumsum(counts)
    missed = np.maximum(up_to - counts - rank, 0) + np.maximum(rank - up_to, 0)
    return [-int(number) for number in missed]


def _laplace(
    atom: dict[str, Any],
    values: Sequence[Any],
    noise: IntegerNoise | GridNoise,
    sensitivity: float,
    size: int | None = None,
    k: int | None = None,
) -> list[Any]:
    """Values plus discrete Laplace noise by OpenDP, whose map confirms epsilon at the l1 sensitivity.

    ``atom`` describes a value, ``k`` is the exponent of the grid, ``size`` the number of values, if public.
    """
    require("opendp")
    # not opendp.prelude, which imports far more
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(**atom), size), metrics.l1_distance(T=atom["T"])
    measurement: Any = measurements.make_laplace(*space, noise.scale, k=k)
    if not measurement.map(sensitivity) <= noise.epsilon:
        raise CalibrationError(
            f"OpenDP does not confirm epsilon = {noise.epsilon:g} for noise of scale {noise.scale:g}"
        )
    return list(measurement(list(values)))


def _repeatable(point: Sequence[float], noise: GridNoise, source: Source) -> list[float]:
    """Values rounded to the grid, plus noise to the accuracy of doubles."""
    step = Fraction(2) ** noise.exponent
    rate = math.ldexp(1.0, noise.exponent) / noise.scale
    most = Fraction(_LARGEST)
    sums = ((round(Fraction(value) / step) + _two_sided(rate, source)) * step for value in point)
    return [float(min(max(number, -most), most)) for number in sums]


def _two_sided(rate: float, source: Source) -> int:
    """Discrete Laplace noise, as the difference of two geometric variables."""
    return math.floor(source.expovariate(rate)) - math.floor(source.expovariate(rate))


def _flip(scale: float, source: Source, scores: Sequence[int]) -> int:
    best = max(scores)
    order = list(range(len(scores)))
    source.shuffle(order)
    # random() is below 1, so that the best is always accepted
    return next(place for place in order if source.random() < math.exp((scores[place] - best) / scale))
