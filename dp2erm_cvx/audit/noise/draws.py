"""A black-box test of drawn noise: its radius, its direction, and that it never repeats."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dp2erm_cvx.audit.noise.closeness import chance_of_pair, closest, log_peak_density
from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number, whole_number

#: Directions are tested along the diagonals of coordinate pairs, too, up to this many coordinates.
_PAIRED = 12


@dataclass(frozen=True)
class NoiseAudit:
    """What ``size`` draws of noise say about its law. It depends on secret noise: not private.

    ``repeats``, ``radius`` and ``direction`` are p-values, each valid whatever the others are: for how close
    two draws came (``closest``, a distance in units of b, up to a sign), for the law of ``||b||``
    (``median_radius`` is relative to the median it should have), and for a uniform direction. For noise of
    the stated law an ``alarm`` has a probability of at most ``level``. No alarm is no proof: another law may
    be close to the stated one, and a generator may be predictable without ever repeating.
    """

    repeats: float
    radius: float
    direction: float
    closest: float
    median_radius: float
    size: int
    level: float
    private: bool = field(default=False, init=False)

    @property
    def alarm(self) -> bool:
        """Whether a p-value is below its third of ``level``."""
        return min(self.repeats, self.radius, self.direction) < self.level / 3

    def __str__(self) -> str:
        verdict = "NOT the stated law" if self.alarm else "no alarm, which is no proof"
        values = f"repeats {self.repeats:.2g}, radius {self.radius:.2g}, direction {self.direction:.2g}"
        return f"{self.size} draws: p-values: {values}; {verdict} at level {self.level:g}; not private"


def audit_noise(
    draw: Callable[[], ArrayLike], calibration: Calibration, *, size: int = 1000, level: float = 1e-3
) -> NoiseAudit:
    """Test that ``draw()`` returns independent noise vectors b (p,) of the law of ``calibration``.

    - repeats: the closest pair of draws, or of a draw and a negated one, against a union bound for the stated
      density. Noise that is used twice, or a generator of few states, gives 0.
    - radius: Kolmogorov-Smirnov test of ``||b||`` against Gamma(p, scale), or scale times chi_p.
    - direction: Kolmogorov-Smirnov tests of ``b / ||b||`` along every coordinate and, up to 12 coordinates,
      along the diagonals of every pair; one sign test for p = 1. All exact, joined by Bonferroni.

    Raises DeclarationError for an invalid argument, or where a draw is not a finite vector (p,).
    """
    size = whole_number("size", size, at_least=20)
    level = public_number("level", level, above=0.0)
    if level >= 1.0:
        raise DeclarationError(f"level = {level!r}: must be between 0 and 1")
    p = calibration.n_parameters
    draws = np.array([_vector(draw(), p) for _ in range(size)])
    radii = np.linalg.norm(draws, axis=1)
    # distributions of the length at unit scale
    law = stats.gamma(p) if calibration.noise is Noise.GAMMA else stats.chi(p)
    near = closest(draws, mirrored=True)
    return NoiseAudit(
        repeats=chance_of_pair(near, log_peak_density(calibration), size, p, ways=2),
        radius=float(stats.kstest(radii / calibration.scale, law.cdf).pvalue),
        direction=_direction(draws, radii),
        closest=near,
        median_radius=float(np.median(radii) / (calibration.scale * law.median())),
        size=size,
        level=level,
    )


def _vector(value: ArrayLike, p: int) -> Array:
    vector = np.asarray(value, dtype=np.float64)
    if vector.shape != (p,) or not np.all(np.isfinite(vector)):
        raise DeclarationError(f"draw: every draw must be a finite vector of shape ({p},)")
    return vector


def _direction(draws: Array, radii: Array) -> float:
    size, p = draws.shape
    if p == 1:
        return float(stats.binomtest(int(np.sum(draws > 0)), size).pvalue)
    # a vector of length 0 has no direction, and no law here draws one
    unit = draws / np.maximum(radii, math.ulp(0.0))[:, None]
    # one coordinate of a uniform direction, along whatever axis
    law = stats.beta((p - 1) / 2, (p - 1) / 2)
    values = [float(stats.kstest(np.clip((unit @ axis + 1) / 2, 0, 1), law.cdf).pvalue) for axis in _axes(p)]
    return min(1.0, min(values) * len(values))


def _axes(p: int) -> Iterator[Array]:
    identity = np.eye(p)
    yield from identity
    if p <= _PAIRED:
        for one, other in itertools.combinations(identity, 2):
            yield (one + other) / math.sqrt(2)
            yield (one - other) / math.sqrt(2)
