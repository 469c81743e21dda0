"""Noise as if arithmetic were exact, and within a proven distance of an exact draw by ball arithmetic."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.calibration import Calibration, Noise
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

if TYPE_CHECKING:
    from flint import arb

Known = TypeVar("Known")

#: Bits beyond the accuracy asked for: spares nearly every draw a second round.
_SPARE_BITS = 64
#: The working precision of FLINT belongs to the process and not to a thread.
_PRECISION = threading.Lock()
#: Import name to distribution name: ball arithmetic, and the discrete mechanism on a grid.
_PACKAGES = {"flint": "python-flint", "opendp": "opendp"}


def secure_available() -> bool:
    """True if both packages of the extra ``secure`` are installed. Neither is imported."""
    return all(find_spec(name) is not None for name in _PACKAGES)


def require(name: str) -> None:
    """Raise DeclarationError unless the package of import name ``name`` is installed."""
    if find_spec(name) is None:
        raise DeclarationError(
            f"noise with a proven error needs {_PACKAGES[name]}: install dp2erm-cvx[secure]"
        )


@dataclass(frozen=True, repr=False, eq=False)
class Draw:
    """A noise vector ``value`` (p,) and a proven bound ``distance`` to one of exactly the law.

    Both are in the units of the calibration's scale, and secret: the repr holds neither.
    """

    value: NDArray[np.float64]
    distance: float

    def __repr__(self) -> str:
        return f"Draw({self.value.size} coordinates; secret)"


def draw_within(calibration: Calibration, error: float, *, seed: int | str | None = None) -> Draw:
    """Draw the noise of one release within a public ``error`` > 0 of an exact draw, before rounding.

    Uniform variables are endless bit strings, of which a prefix is read; the vector that they make, Gaussian
    pairs by Box and Muller (1958), is enclosed by ball arithmetic, and bits are appended until ``error``
    bounds the l2 distance from the center of the enclosure. The bound holds for every draw: no tail is
    dropped. ``distance`` adds the rounding to doubles. Without ``seed`` the bits are the operating system's;
    with one the caller must record the result as not private. The time taken depends on the bits. Raises
    DeclarationError for an invalid ``error`` or where python-flint is not installed.
    """
    bound = public_number("error", error, above=0.0)
    require("flint")
    source = random_source(seed)
    uniforms = [LazyUniform(source) for _ in range(_uniforms_needed(calibration))]
    return _evaluate(calibration, bound, uniforms)


def rounded_gaussians(scale: float, size: int) -> tuple[int, ...]:
    """Independent normal variables of this standard deviation, each rounded to the nearest integer.

    The law is exact: bits are read until no other integer is possible. Raises DeclarationError where
    python-flint is not installed.
    """
    require("flint")
    source = random_source()
    return _rounded(scale, [LazyUniform(source) for _ in range(2 * ((size + 1) // 2))])[:size]


class LazyUniform:
    """The number whose binary digits are the bits of ``source``, in ``[prefix, prefix + 1] / 2^length``.

    Digits are never redrawn, so that the variable is uniform whatever decided when to stop reading.
    """

    def __init__(self, source: Source) -> None:
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


def _rounded(scale: float, uniforms: Sequence[LazyUniform]) -> tuple[int, ...]:
    """Read bits until the nearest integers are known; only the bits decide what they are."""
    from flint import arb

    def nearest(balls: list[arb]) -> tuple[int, ...] | None:
        # the floor of a ball is exact where all of the ball has the same
        floors = [(arb(scale) * number + arb(0.5)).floor() for number in _gaussians(balls)]
        whole = [number.unique_fmpz() for number in floors]
        return tuple(int(str(number)) for number in whole) if None not in whole else None

    return _read_on(uniforms, max(0, math.frexp(scale)[1]) + _SPARE_BITS, nearest)


def _read_on(
    uniforms: Sequence[LazyUniform], bits: int, result: Callable[[list[arb]], Known | None]
) -> Known:
    """The ``result`` of balls of the uniforms: ``bits`` and then more are read until there is one."""
    from flint import ctx

    while True:
        for uniform in uniforms:
            uniform.extend_to(bits)
        with _PRECISION, ctx.workprec(bits + 32):
            if (known := result([uniform.ball() for uniform in uniforms])) is not None:
                return known
        bits += bits // 2


def _uniforms_needed(calibration: Calibration) -> int:
    """A pair for every two Gaussian coordinates, and p for a gamma radius; p and p + 1 for box noise."""
    if calibration.blocks > 1:
        return calibration.blocks * _uniforms_needed(calibration.of_block)
    p = calibration.n_parameters
    if calibration.noise is Noise.BOX:
        return 2 * p + 1
    return 2 * ((p + 1) // 2) + (p if calibration.noise is Noise.GAMMA else 0)


def _evaluate(calibration: Calibration, error: float, uniforms: Sequence[LazyUniform]) -> Draw:
    """Read bits until the vector is known to ``error``; only the bits decide what it is."""
    from flint import arb

    def enclosed(balls: list[arb]) -> Draw | None:
        enclosure = _enclose(calibration, balls)
        narrow = _largest_norm([ball - ball.mid() for ball in enclosure]) <= arb(error)
        # a ball that is not a number may have any radius
        if not (narrow and all(ball.is_finite() for ball in enclosure)):
            return None
        value = [_nearest(ball.mid()) for ball in enclosure]
        gaps = [ball - arb(number) for ball, number in zip(enclosure, value, strict=True)]
        return Draw(np.array(value), math.nextafter(_nearest(_largest_norm(gaps)), math.inf))

    # exponents, because scale / error may overflow
    ratio = math.frexp(calibration.unit)[1] - math.frexp(error)[1]
    bits = max(0, ratio) + 2 * calibration.n_parameters.bit_length() + _SPARE_BITS
    return _read_on(uniforms, bits, enclosed)


def _enclose(calibration: Calibration, uniforms: Sequence[arb]) -> list[arb]:
    """The noise vector as a function of the uniforms, one ball per coordinate."""
    from flint import arb

    if calibration.blocks > 1:
        own = len(uniforms) // calibration.blocks
        parts = (uniforms[begin : begin + own] for begin in range(0, len(uniforms), own))
        return [ball for part in parts for ball in _enclose(calibration.of_block, part)]
    p, scale = calibration.n_parameters, arb(calibration.scale)
    if calibration.box is not None:
        length = -scale * math.prod(uniforms[p:], start=arb(1)).log()
        widths = zip(calibration.box, uniforms[:p], strict=True)
        return [length * (arb(width) * (2 * uniform - 1)) for width, uniform in widths]
    pairs = 2 * ((p + 1) // 2)
    gaussian = _gaussians(uniforms[:pairs])[:p]
    if calibration.noise is Noise.GAUSSIAN:
        return [scale * coordinate for coordinate in gaussian]
    factor = -scale * math.prod(uniforms[pairs:], start=arb(1)).log() / _norm(gaussian)
    return [factor * coordinate for coordinate in gaussian]


def _gaussians(uniforms: Sequence[arb]) -> list[arb]:
    """Independent standard normal variables, as many as there are uniforms, an even number."""
    gaussian: list[arb] = []
    for first, second in zip(uniforms[0::2], uniforms[1::2], strict=True):
        length = (-2 * first.log()).sqrt()
        sine, cosine = (2 * second).sin_cos_pi()
        gaussian += [length * cosine, length * sine]
    return gaussian


def _norm(vector: Sequence[arb]) -> arb:
    """l2 norm of a vector of balls; not a number where they cannot tell it from 0."""
    from flint import arb

    return sum((x * x for x in vector), start=arb(0)).sqrt()


def _largest_norm(vector: Sequence[arb]) -> arb:
    """Upper end of the l2 norms of all points in a vector of balls."""
    return _norm([x.abs_upper() for x in vector]).upper()


def _nearest(number: arb) -> float:
    """An exact ball as a double; beyond the range of doubles the largest one."""
    mantissa, exponent = (int(part) for part in number.man_exp())
    try:
        return float(mantissa << exponent) if exponent >= 0 else mantissa / (1 << -exponent)
    except OverflowError:
        return sys.float_info.max if mantissa > 0 else -sys.float_info.max


#: Where random numbers come from.
Source = random.Random


def random_source(seed: int | str | None = None) -> Source:
    """The operating system's entropy, or with a seed a repeatable generator, for tests only."""
    return random.SystemRandom() if seed is None else random.Random(seed)


def draw(calibration: Calibration, *, seed: int | str | None = None) -> NDArray[np.float64]:
    """Draw the noise vector ``b`` (p,) for one release, in floating point, as if it were exact.

    Gamma noise: radius Gamma(shape p, scale), direction uniform on the sphere. Box noise of half widths m:
    ``rho m_j U_j``, rho Gamma(shape p + 1, scale), U_j uniform on [-1, 1]. Without ``seed`` the operating
    system's entropy is used; with one anyone can repeat the draw, and the caller must record the result as
    not private. :func:`~dp2erm_cvx.mechanism.draw_within` proves a distance to an exact draw.
    """
    source = random_source(seed)
    return np.concatenate([_drawn(calibration.of_block, source) for _ in range(calibration.blocks)])


def _drawn(calibration: Calibration, source: Source) -> NDArray[np.float64]:
    """The noise of one block."""
    p = calibration.n_parameters
    if calibration.noise is Noise.GAUSSIAN:
        return np.array([source.gauss(0.0, calibration.scale) for _ in range(p)])
    if calibration.box is not None:
        length = source.gammavariate(p + 1, calibration.scale)
        return np.array([length * width * (2.0 * source.random() - 1.0) for width in calibration.box])
    norm = 0.0
    while norm == 0.0:
        direction = [source.gauss(0.0, 1.0) for _ in range(p)]
        norm = math.hypot(*direction)
    radius = source.gammavariate(p, calibration.scale)
    return np.array([radius * (coordinate / norm) for coordinate in direction])


def simulate_noise(calibration: Calibration, size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw ``size`` noise vectors (size, p) for figures and predictions, never for a release."""
    if calibration.blocks > 1:
        parts = [simulate_noise(calibration.of_block, size, rng) for _ in range(calibration.blocks)]
        return np.concatenate(parts, axis=1)
    shape = (size, calibration.n_parameters)
    if calibration.noise is Noise.GAUSSIAN:
        return rng.normal(scale=calibration.scale, size=shape)
    if calibration.box is not None:
        inside = np.array(calibration.box) * rng.uniform(-1.0, 1.0, shape)
        return inside * rng.gamma(calibration.n_parameters + 1, calibration.scale, size=(size, 1))
    direction = rng.standard_normal(shape)
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * rng.gamma(calibration.n_parameters, calibration.scale, size=(size, 1))
