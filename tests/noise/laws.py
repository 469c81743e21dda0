"""Calibrations without a program behind them, and bit streams that no generator would give."""

import itertools
import math
import random

from scipy import stats

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.noise import LazyUniform


def box_of(noise, p):
    """Half widths for box noise."""
    return tuple(1.0 / (1 + k % 3) for k in range(p)) if noise is Noise.BOX else None


def calibration_of(noise, p, scale=2.5):
    law = {
        "noise": noise,
        "scale": scale,
        "n_parameters": p,
        "box": box_of(noise, p),
        "theorem": "a test",
    }
    return Calibration(**law, gamma=0.1, split=0.5, V=2.0, sensitivity=2.0, epsilon=1.0, delta=0.0)


def p_value(values, law):
    return stats.kstest(values, law.cdf).pvalue


class Forced:
    """A stream whose first 500 bits are those of ``pattern`` over and over; random ones follow."""

    def __init__(self, pattern, seed):
        self._head = list(itertools.islice(itertools.cycle(pattern), 500 if pattern else 0))
        self._tail = random.Random(seed)

    def getrandbits(self, k):
        taken, self._head = self._head[:k], self._head[k:]
        missing = k - len(taken)
        prefix = int("".join(map(str, taken)) or "0", 2)
        return (prefix << missing) | (self._tail.getrandbits(missing) if missing else 0)


ZEROS, ONES, ALTERNATING, RANDOM = [0], [1], [1, 0], []
#: One pattern per uniform, cycled: (length, angle) pairs of the Gaussians first, then those of the
#: radius.
STREAMS = {
    "zeros": [ZEROS],
    "ones": [ONES],
    "alternating": [ALTERNATING],
    "random": [RANDOM],
    "short Gaussians": [ONES, RANDOM],
    "long Gaussians": [ZEROS, RANDOM],
    "on an axis": [RANDOM, ZEROS],
    "mixed": [ZEROS, ALTERNATING, ONES, RANDOM, ONES],
}


def forced_uniforms(stream, count):
    patterns = itertools.islice(itertools.cycle(STREAMS[stream]), count)
    return [LazyUniform(Forced(pattern, f"{stream}/{k}")) for k, pattern in enumerate(patterns)]


def permute_and_flip(scores: list[int], rate: float) -> list[float]:
    """Probability of each place under permute-and-flip, by inclusion and exclusion over who comes
    first.
    """
    accepted = [math.exp(rate * (score - max(scores))) for score in scores]
    chances = []
    for place, own in enumerate(accepted):
        others = accepted[:place] + accepted[place + 1 :]
        chances.append(
            own
            * math.fsum(
                (-1) ** size / (size + 1) * math.prod(chosen)
                for size in range(len(others) + 1)
                for chosen in itertools.combinations(others, size)
            )
        )
    return chances
