"""A uniform variable on [0, 1] as an endless string of fair bits, read as far as anyone asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from flint import arb


class BitSource(Protocol):
    """Where the bits come from: ``random.SystemRandom``, or ``random.Random`` to repeat a draw."""

    def getrandbits(self, k: int, /) -> int:
        """Return k independent fair bits as an integer in [0, 2^k)."""
        ...


class LazyUniform:
    """The number whose binary digits are the bits of ``source``, known to its first ``length`` digits.

    Digits are appended and never redrawn, so that the variable is uniform whatever decided when to stop
    reading. It lies in ``[prefix, prefix + 1] / 2^length``.
    """

    def __init__(self, source: BitSource) -> None:
        self._source = source
        self.prefix = 0
        self.length = 0

    def extend_to(self, length: int) -> None:
        """Read on until ``length`` digits are known."""
        more = length - self.length
        if more > 0:
            self.prefix = (self.prefix << more) | self._source.getrandbits(more)
            self.length = length

    def ball(self) -> arb:
        """Return the interval of what is known, without any rounding: its center and radius are dyadic."""
        from flint import arb

        exponent = -(self.length + 1)
        return arb((2 * self.prefix + 1, exponent), (1, exponent))
