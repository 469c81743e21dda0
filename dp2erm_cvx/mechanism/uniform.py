"""What exact noise is made of: fair bits, read as far as anyone asked, and the packages that it needs."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol

from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from flint import arb


#: Import name to distribution name: ball arithmetic, and the discrete mechanism on a grid.
_PACKAGES = {"flint": "python-flint", "opendp": "opendp"}


def secure_available() -> bool:
    """Whether both packages of the extra ``secure`` are installed. Neither is imported."""
    return all(find_spec(name) is not None for name in _PACKAGES)


def require(name: str) -> None:
    """Raise DeclarationError unless the package of import name ``name`` is installed."""
    if find_spec(name) is None:
        raise DeclarationError(
            f"noise with a proven error needs {_PACKAGES[name]}: install dp2erm-cvx[secure]"
        )


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
