"""Private selection: permute-and-flip on whole-number scores, drawn by OpenDP.

McKenna and Sheldon, "Permute-and-Flip: a new mechanism for differentially private selection" (2020): go
through the candidates in random order and accept one with probability ``exp(epsilon (q - q*) / (2 s))``,
``q*`` the best score and ``s`` their sensitivity. It is epsilon-differentially private and never worse than
the exponential mechanism. OpenDP draws it in exact arithmetic, from scores that are exact.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from dp2erm_cvx.errors import CalibrationError, DeclarationError

Source = random.Random

#: Draws one place among whole-number scores (k,).
Choice = Callable[[Sequence[int]], int]


def random_source(seed: int | str | None = None) -> Source:
    """The operating system's entropy, or with a seed a repeatable generator, for tests only."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def selection_scale(sensitivity: int, epsilon: float) -> float:
    """``2 s / epsilon``, rounded up: scores that differ by it are told apart by odds of e.

    ``sensitivity`` bounds how far replacing one record moves any score. Raises CalibrationError where the
    scale is out of floating-point range.
    """
    scale = 2 * sensitivity / epsilon * (1.0 + 1e-12)
    if not 0.0 < scale < math.inf:
        raise CalibrationError(f"epsilon = {epsilon:g}: no scale of noise for it")
    return scale


def private_choice(sensitivity: int, epsilon: float) -> Choice:
    """The mechanism by OpenDP, whose privacy map certifies ``epsilon``. No data are read.

    Raises DeclarationError where OpenDP is not installed, CalibrationError where it does not certify epsilon.
    """
    if find_spec("opendp") is None:
        raise DeclarationError("a private choice needs the extra: pip install 'dp2erm-cvx[secure]'")
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_max
    from opendp.measures import max_divergence
    from opendp.metrics import linf_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    scale = selection_scale(sensitivity, epsilon)
    space = vector_domain(atom_domain(T="i64")), linf_distance(T="i64")
    measurement: Any = make_noisy_max(*space, max_divergence(), scale)
    if not measurement.map(sensitivity) <= epsilon:
        raise CalibrationError(f"OpenDP does not certify epsilon = {epsilon:g} at scale = {scale:g}")
    return lambda scores: int(measurement(list(scores)))


def repeatable_choice(sensitivity: int, epsilon: float, source: Source) -> Choice:
    """The same law to the accuracy of doubles, from a seeded ``source``, without OpenDP: not private."""
    return partial(_flip, selection_scale(sensitivity, epsilon), source)


def _flip(scale: float, source: Source, scores: Sequence[int]) -> int:
    best = max(scores)
    order = list(range(len(scores)))
    source.shuffle(order)
    # random() is below 1, so that the best is always accepted
    return next(place for place in order if source.random() < math.exp((scores[place] - best) / scale))
