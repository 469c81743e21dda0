"""Private selection: permute-and-flip on whole-number scores, sampled exactly.

McKenna and Sheldon, "Permute-and-Flip: a new mechanism for differentially private selection" (2020): go
through the candidates in random order and accept one with probability ``exp(epsilon (q - q*) / (2 s))``,
``q*`` the best score and ``s`` their sensitivity. It is epsilon-differentially private and never worse than
the exponential mechanism.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from typing import Any, Protocol

from dp2erm_cvx.errors import CalibrationError

Source = random.Random


class Sampler(Protocol):
    """Draws a place among whole-number scores (k,), with the pure epsilon that it was made for."""

    @property
    def name(self) -> str:
        """What draws."""

    def draw(self, scores: Sequence[int]) -> int:
        """One place."""


def random_source(seed: int | str | None = None) -> random.Random:
    """The operating system's entropy, or with a seed a repeatable generator, for tests only."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def make_sampler(sensitivity: int, epsilon: float, source: random.Random) -> Sampler:
    """OpenDP's where it is installed and ``source`` is the operating system's entropy, or our own.

    ``sensitivity`` bounds how far replacing one record moves any score. No data are read. Raises
    CalibrationError where OpenDP does not certify epsilon.
    """
    if isinstance(source, random.SystemRandom) and find_spec("opendp") is not None:
        return OpenDPSampler(sensitivity, epsilon)
    return RationalSampler(Fraction(epsilon) / (2 * sensitivity), source)


@dataclass(frozen=True)
class RationalSampler:
    """Permute-and-flip by coins whose probabilities are exact; ``rate`` is ``epsilon / (2 s)``."""

    rate: Fraction
    source: random.Random
    name: str = "permute-and-flip in rational arithmetic"

    def draw(self, scores: Sequence[int]) -> int:
        """One place."""
        best = max(scores)
        order = list(range(len(scores)))
        self.source.shuffle(order)
        flips = (place for place in order if self._accepts(self.rate * (best - scores[place])))
        return next(flips)  # the best is always accepted

    def _accepts(self, x: Fraction) -> bool:
        """True with probability exactly ``exp(-x)``, x >= 0 (Canonne, Kamath and Steinke 2020, Alg. 1)."""
        while x > 1:
            if not self._coin(Fraction(1)):
                return False
            x -= 1
        return self._coin(x)

    def _coin(self, x: Fraction) -> bool:
        count = 1
        while self.source.randrange(x.denominator * count) < x.numerator:
            count += 1
        return count % 2 == 1


class OpenDPSampler:
    """The same law by OpenDP, which certifies epsilon itself."""

    name = "OpenDP make_noisy_max"

    def __init__(self, sensitivity: int, epsilon: float) -> None:
        from opendp.domains import atom_domain, vector_domain
        from opendp.measurements import make_noisy_max
        from opendp.measures import max_divergence
        from opendp.metrics import linf_distance
        from opendp.mod import enable_features

        enable_features("contrib")
        scale = 2 * sensitivity / epsilon * (1.0 + 1e-12)
        if not 0.0 < scale < math.inf:
            raise CalibrationError(f"epsilon = {epsilon:g}: no scale of noise for it")
        space = vector_domain(atom_domain(T="i64")), linf_distance(T="i64")
        measurement: Any = make_noisy_max(*space, max_divergence(), scale)
        self._measurement = measurement
        if not measurement.map(sensitivity) <= epsilon:
            raise CalibrationError(f"OpenDP does not certify epsilon = {epsilon:g} at scale = {scale:g}")

    def draw(self, scores: Sequence[int]) -> int:
        """One place."""
        return int(self._measurement(list(scores)))
