"""Noise on exact integers: discrete Laplace by OpenDP, or an exact Gaussian rounded by ball arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dp2erm_cvx.calibration.constants import Noise
from dp2erm_cvx.calibration.integers import LARGEST_INTEGER, IntegerNoise
from dp2erm_cvx.errors import CalibrationError
from dp2erm_cvx.mechanism.exact import rounded_gaussians
from dp2erm_cvx.mechanism.selection import Source, random_source
from dp2erm_cvx.mechanism.uniform import require

_LAST = 2**63 - 1


def perturb_integers(
    values: Sequence[int], noise: IntegerNoise, *, exact: bool = True, seed: int | str | None = None
) -> tuple[int, ...]:
    """Add the noise to every integer; the result is integers again, nothing is rounded.

    Values are first clipped to ``[-2^62, 2^62]``, which moves no two vectors apart, and whoever calibrates
    keeps them inside. Results are clipped to 64 bits, as OpenDP does: post-processing, with probability
    ``exp(-2^62 / scale)`` at most. Laplace noise is OpenDP's (``make_laplace``). Gaussian noise is a normal
    variable, drawn until its nearest integer is certain.

    With ``exact`` False the law is that of doubles, without the extra ``secure``: the caller must state that
    exact arithmetic is assumed. With a seed it is repeatable as well: the caller must record the result as
    not private.

    Raises DeclarationError where a package of the extra is missing, CalibrationError where OpenDP's map does
    not confirm ``noise.epsilon`` at ``noise.sensitivity``.
    """
    inside = [min(max(int(value), -LARGEST_INTEGER), LARGEST_INTEGER) for value in values]
    if exact and seed is None and noise.noise is Noise.GAMMA:
        return _by_opendp(inside, noise)
    if exact and seed is None:
        drawn = rounded_gaussians(noise.scale, len(inside))
    else:
        source = random_source(seed)
        drawn = tuple(_in_doubles(noise, source) for _ in inside)
    sums = (value + number for value, number in zip(inside, drawn, strict=True))
    return tuple(min(max(value, -_LAST), _LAST) for value in sums)


def _by_opendp(values: Sequence[int], noise: IntegerNoise) -> tuple[int, ...]:
    require("opendp")
    # not opendp.prelude, which imports far more
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    space = domains.vector_domain(domains.atom_domain(T="i64")), metrics.l1_distance(T="i64")
    measurement: Any = measurements.make_laplace(*space, noise.scale)
    if not measurement.map(noise.sensitivity) <= noise.epsilon:
        raise CalibrationError(
            f"OpenDP does not confirm epsilon = {noise.epsilon:g} for noise of scale {noise.scale:g}"
        )
    return tuple(int(value) for value in measurement(list(values)))


def _in_doubles(noise: IntegerNoise, source: Source) -> int:
    """The same law to the accuracy of doubles; Laplace as the difference of two geometric variables."""
    if noise.noise is Noise.GAUSSIAN:
        return round(source.gauss(0.0, noise.scale))
    rate = 1.0 / noise.scale
    return math.floor(source.expovariate(rate)) - math.floor(source.expovariate(rate))
