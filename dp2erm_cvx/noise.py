"""The privacy noise. No other module draws it.

:func:`draw` is in doubles, as if they were real numbers; :func:`draw_within` is within a proven
distance of the ideal law, by ball arithmetic; noise on whole numbers and on a grid, and private
choices, are exact. Discrete Laplace noise and choices are OpenDP's, whose privacy maps confirm
epsilon. Exact arithmetic needs the extra ``secure``.
"""

from __future__ import annotations

import functools
import math
import random
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp2erm_cvx.arrays import ROUND_UP
from dp2erm_cvx.calibration import Calibration, IntegerNoise, Noise
from dp2erm_cvx.calibration.numbers import LARGEST_INTEGER, GridNoise
from dp2erm_cvx.checks import public_number
from dp2erm_cvx.errors import CalibrationError, CertificateError, DeclarationError

if TYPE_CHECKING:
    from flint import arb

Known = TypeVar("Known")
#: Where random numbers come from.
Source = random.Random

#: Bits beyond the accuracy asked for: spares nearly every draw a second round.
_SPARE_BITS = 64
#: Of more numbers than this a few are drawn one by one, without keys for all of them.
_MOST_SORTED = 2**20
#: The working precision of FLINT belongs to the process and not to a thread.
_PRECISION = threading.Lock()
#: Import name to distribution name: ball arithmetic, and the discrete mechanism on a grid.
_PACKAGES = {"flint": "python-flint", "opendp": "opendp"}


def secure_available() -> bool:
    """True if both packages of the extra ``secure`` are installed. Neither is imported."""
    return all(find_spec(name) is not None for name in _PACKAGES)


def _require(name: str) -> None:
    """Raise DeclarationError unless the package of import name ``name`` is installed."""
    if find_spec(name) is None:
        raise DeclarationError(
            f"exact noise and choices need {_PACKAGES[name]}: install dp2erm-cvx[secure]"
        )


def random_source(seed: int | str | None = None) -> Source:
    """The operating system's entropy, or with a seed a repeatable generator, for tests only."""
    if seed is None:
        return random.SystemRandom()
    return random.Random(seed)


def drawn_in_order(n: int, k: int, *, seed: int | str | None = None) -> NDArray[np.int64]:
    """Draw k different ones of the numbers 0, ..., n - 1: every order of them is as likely.

    Every number gets an independent key of 64 bits, and they are sorted by their keys. Keys that
    all differ are in every order with the same probability; all are drawn anew where two are equal.
    The operating system is asked once in place of once for every number, which takes a thirtieth of
    the time.

    Parameters
    ----------
    n
        How many numbers there are.
    k
        How many of them are drawn, at most n.
    seed
        Without one the keys are the operating system's; with one anyone can repeat the draw, and
        the caller must record the result as not private.

    Returns
    -------
    NDArray
        Different numbers (k,), in the order of their draw.
    """
    source = random_source(seed)
    if seed is not None or n > _MOST_SORTED:
        return np.array(source.sample(range(n), k), dtype=np.int64)
    while True:
        keys = np.frombuffer(source.randbytes(8 * n), dtype=np.uint64)
        order = np.argsort(keys)
        in_order = keys[order]
        if np.all(in_order[:-1] < in_order[1:]):
            return order[:k]


@dataclass(frozen=True, repr=False, eq=False)
class Draw:
    """A noise vector, within a proven distance of one of exactly the law.

    Both fields are in the units of the calibration's scale, and secret: the repr holds neither.

    Parameters
    ----------
    value
        The vector (p,).
    distance
        Bound on its l2 distance to a vector of exactly the law.
    """

    value: NDArray[np.float64]
    distance: float

    def __repr__(self) -> str:
        return f"Draw({self.value.size} coordinates; secret)"


def draw_within(calibration: Calibration, error: float, *, seed: int | str | None = None) -> Draw:
    """Draw the noise of one release within a proven distance of an exact draw.

    Uniform variables are endless bit strings, of which a prefix is read; the vector that they make,
    Gaussian pairs by Box and Muller (1958), is enclosed by ball arithmetic, and bits are appended
    until ``error`` bounds the l2 distance from the center of the enclosure. The bound holds for
    every draw: no tail is dropped. The time taken depends on the bits.

    Parameters
    ----------
    calibration
        The law.
    error
        Public bound on the distance before rounding, above 0. The ``distance`` of the draw adds the
        rounding to doubles.
    seed
        Without one the bits are the operating system's; with one the caller must record the result
        as not private.

    Raises
    ------
    DeclarationError
        For an invalid ``error``, and where python-flint is not installed.
    """
    bound = public_number("error", error, above=0.0)
    _require("flint")
    source = random_source(seed)
    uniforms = [LazyUniform(source) for _ in range(_uniforms_needed(calibration))]
    return _evaluate(calibration, bound, uniforms)


class LazyUniform:
    """The number in [0, 1] whose binary digits are the bits of ``source``.

    It is known to lie in ``[prefix, prefix + 1] / 2^length``. Digits are never redrawn, so that the
    variable is uniform whatever decided when to stop reading.
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
        """The interval of what is known, without any rounding: center and radius are dyadic."""
        from flint import arb

        exponent = -(self.length + 1)
        return arb((2 * self.prefix + 1, exponent), (1, exponent))


def _rounded(scale: float, uniforms: Sequence[LazyUniform]) -> tuple[int, ...]:
    """Normal variables of this ``scale``, each rounded to the nearest integer.

    Bits are read until no other integer is possible.
    """
    from flint import arb

    def nearest(balls: list[arb]) -> tuple[int, ...] | None:
        # The floor of a ball is exact where all of the ball has the same.
        floors = [(arb(scale) * number + arb(0.5)).floor() for number in _gaussians(balls)]
        whole = [number.unique_fmpz() for number in floors]
        if None in whole:
            return None
        return tuple(int(str(number)) for number in whole)

    return _read_on(uniforms, max(0, math.frexp(scale)[1]) + _SPARE_BITS, nearest)


def _read_on(
    uniforms: Sequence[LazyUniform], bits: int, result: Callable[[list[arb]], Known | None]
) -> Known:
    """The ``result`` of balls of the uniforms: ``bits`` and more are read until there is one."""
    from flint import ctx

    while True:
        for uniform in uniforms:
            uniform.extend_to(bits)
        with _PRECISION, ctx.workprec(bits + 32):
            known = result([uniform.ball() for uniform in uniforms])
            if known is not None:
                return known
        bits += bits // 2


def _uniforms_needed(calibration: Calibration) -> int:
    """How many uniform variables a noise vector is made of.

    A pair makes two Gaussian coordinates, and p of them a gamma radius; box noise takes p and then
    p + 1.
    """
    if calibration.blocks > 1:
        return calibration.blocks * _uniforms_needed(calibration.of_block)
    p = calibration.n_parameters
    if calibration.noise is Noise.BOX:
        return 2 * p + 1
    gaussian = 2 * ((p + 1) // 2)
    if calibration.noise is Noise.GAMMA:
        return gaussian + p
    return gaussian


def _evaluate(calibration: Calibration, error: float, uniforms: Sequence[LazyUniform]) -> Draw:
    """Read bits until the vector is known to ``error``; only the bits decide what it is."""
    from flint import arb

    def enclosed(balls: list[arb]) -> Draw | None:
        enclosure = _enclose(calibration, balls)
        narrow = _largest_norm([ball - ball.mid() for ball in enclosure]) <= arb(error)
        # A ball that is not a number may have any radius.
        if not (narrow and all(ball.is_finite() for ball in enclosure)):
            return None
        value = [_nearest(ball.mid()) for ball in enclosure]
        gaps = [ball - arb(number) for ball, number in zip(enclosure, value, strict=True)]
        return Draw(np.array(value), math.nextafter(_nearest(_largest_norm(gaps)), math.inf))

    # By exponents, because scale / error may overflow.
    ratio = math.frexp(calibration.unit)[1] - math.frexp(error)[1]
    bits = max(0, ratio) + 2 * calibration.n_parameters.bit_length() + _SPARE_BITS
    return _read_on(uniforms, bits, enclosed)


def _enclose(calibration: Calibration, uniforms: Sequence[arb]) -> list[arb]:
    """The noise vector as a function of the uniforms, one ball per coordinate."""
    from flint import arb

    if calibration.blocks > 1:
        own = len(uniforms) // calibration.blocks
        balls: list[arb] = []
        for begin in range(0, len(uniforms), own):
            balls += _enclose(calibration.of_block, uniforms[begin : begin + own])
        return balls
    p = calibration.n_parameters
    scale = arb(calibration.scale)
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
        if exponent >= 0:
            return float(mantissa << exponent)
        return mantissa / (1 << -exponent)
    except OverflowError:
        return sys.float_info.max if mantissa > 0 else -sys.float_info.max


def draw(calibration: Calibration, *, seed: int | str | None = None) -> NDArray[np.float64]:
    """Draw the noise vector ``b`` (p,) for one release, in floating point, as if it were exact.

    Gamma noise has a radius of law Gamma(shape p, scale) and a direction uniform on the sphere. Box
    noise of half widths m is ``rho m_j U_j``, rho of law Gamma(shape p + 1, scale), U_j uniform on
    [-1, 1]. :func:`~dp2erm_cvx.noise.draw_within` proves a distance to an exact draw.

    Parameters
    ----------
    calibration
        The law.
    seed
        Without one the operating system's entropy is used; with one anyone can repeat the draw, and
        the caller must record the result as not private.
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
        return np.array(
            [length * width * (2.0 * source.random() - 1.0) for width in calibration.box]
        )
    norm = 0.0
    while norm == 0.0:
        direction = [source.gauss(0.0, 1.0) for _ in range(p)]
        norm = math.hypot(*direction)
    radius = source.gammavariate(p, calibration.scale)
    return np.array([radius * (coordinate / norm) for coordinate in direction])


def simulate_noise(
    calibration: Calibration, size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
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


def simulate_cubes(
    scale: float, block: int, size: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Draw noise (size,) of cubes for figures and predictions, never for a release.

    Its density is ``exp(-max_j |u_j| / scale)`` on every block. A block of q numbers is ``R U``: U
    uniform in the cube, R Gamma of shape q + 1. ``size`` is a whole number of blocks.
    """
    half_widths = rng.gamma(block + 1, scale, size=(size // block, 1))
    cubes: NDArray[np.float64] = half_widths * rng.uniform(-1.0, 1.0, (len(half_widths), block))
    return cubes.ravel()


#: Draws one place among whole-number scores (k,).
Choice = Callable[[Sequence[int]], int]
#: Largest integer of 64 bits.
_LAST = 2**63 - 1
#: Largest double.
_LARGEST = sys.float_info.max


def perturb_integers(
    values: Sequence[int], noise: IntegerNoise, *, exact: bool = True, seed: int | str | None = None
) -> tuple[int, ...]:
    """Add the noise to every integer; the result is integers again, nothing is rounded.

    Values are first clipped to ``[-2^62, 2^62]``, results to 64 bits, as OpenDP does. Laplace noise
    is OpenDP's (``make_laplace``), Gaussian noise a normal variable, drawn until its nearest
    integer is certain, noise on blocks is drawn in whole numbers (:func:`cube_noise`), whatever
    ``exact`` is.

    Parameters
    ----------
    values
        The integers.
    noise
        The law.
    exact
        Whether the law of single integers is exact. If not, it is that of doubles, and the caller
        must state that exact arithmetic is assumed.
    seed
        With one the noise is repeatable as well: the caller must record the result as not private.

    Raises
    ------
    DeclarationError
        Where a package of the extra ``secure`` is missing.
    CalibrationError
        Where the scale does not pay for ``noise.epsilon``.
    """
    inside = [min(max(int(value), -LARGEST_INTEGER), LARGEST_INTEGER) for value in values]
    if noise.block > 1:
        return _within_64_bits(inside, _on_blocks(len(inside), noise, random_source(seed)))
    if exact and seed is None and noise.noise is Noise.GAMMA:
        added = _laplace({"T": "i64"}, inside, noise, noise.sensitivity)
        return tuple(int(value) for value in added)
    if exact and seed is None:
        _require("flint")
        uniforms = [LazyUniform(random_source()) for _ in range(2 * ((len(inside) + 1) // 2))]
        drawn = _rounded(noise.scale, uniforms)[: len(inside)]
    else:
        drawn = _in_doubles(len(inside), noise, random_source(seed))
    return _within_64_bits(inside, drawn)


def _in_doubles(count: int, noise: IntegerNoise, source: Source) -> tuple[int, ...]:
    """Noise of single integers to the accuracy of doubles."""
    if noise.noise is Noise.GAUSSIAN:
        return tuple(round(source.gauss(0.0, noise.scale)) for _ in range(count))
    return tuple(_two_sided(1.0 / noise.scale, source) for _ in range(count))


def _within_64_bits(values: Sequence[int], noise: Sequence[int]) -> tuple[int, ...]:
    """Values with their noise, clipped to 64 bits."""
    sums = (value + number for value, number in zip(values, noise, strict=True))
    return tuple(min(max(total, -_LAST), _LAST) for total in sums)


def _on_blocks(count: int, noise: IntegerNoise, source: Source) -> list[int]:
    """Noise of ``count`` integers, block by block; its scale pays for epsilon, in fractions."""
    scale = Fraction(noise.scale)
    if not noise.sensitivity <= Fraction(noise.epsilon) * scale:
        raise CalibrationError(
            f"epsilon = {noise.epsilon:g}: noise of scale {noise.scale:g} does not pay for it"
        )
    drawn: list[int] = []
    while len(drawn) < count:
        drawn += cube_noise(noise.block, 1 / scale, source)
    return drawn


def cube_noise(size: int, rate: Fraction, source: Source) -> list[int]:
    """Draw whole numbers u of probability proportional to ``exp(-rate max_j |u_j|)``.

    Nothing is rounded. As ``exp(-c r)`` is ``1 - exp(-c)`` times the sum of ``exp(-c k)`` over
    ``k >= r``, u is uniform in a cube ``{-k, ..., k}^q`` of random k, of probability proportional
    to ``(2k + 1)^q exp(-c k)``. The generating function of ``(2k + 1)^q`` is
    ``B_q(x) / (1 - x)^(q + 1)``, B_q the Eulerian polynomial of type B, whose coefficients are
    positive: so k is a sum of q + 1 geometric variables and of one with weights ``B_qj exp(-c j)``.

    Parameters
    ----------
    size
        How many of them: q, at least 1.
    rate
        c > 0, a fraction.
    source
        Of random integers.
    """
    weights = _eulerian(size)
    while True:
        first = _place(source.randrange(sum(weights)), weights)
        if _happens(rate * first, source):
            break
    half_width = first + sum(_geometric(rate, source) for _ in range(size + 1))
    return [source.randrange(2 * half_width + 1) - half_width for _ in range(size)]


@functools.cache
def _eulerian(size: int) -> tuple[int, ...]:
    """Coefficients of the Eulerian polynomial of type B: ``2^q q!`` in all."""
    row = [1]
    for n in range(1, size + 1):
        longer = [*row, 0]
        shifted = [0, *row]
        row = [
            (2 * j + 1) * own + (2 * n - 2 * j + 1) * before
            for j, (own, before) in enumerate(zip(longer, shifted, strict=True))
        ]
    return tuple(row)


def _place(number: int, weights: Sequence[int]) -> int:
    """The place of a ``number`` below the sum of whole ``weights``, which follow each other."""
    for place, weight in enumerate(weights):
        if number < weight:
            return place
        number -= weight
    raise ValueError("number: must be below the sum of the weights")


def _happens(rate: Fraction, source: Source) -> bool:
    """True with probability ``exp(-rate)``, for a rate of at least 0.

    See Canonne, Kamath and Steinke (2020).
    """
    while rate > 1:
        if not _happens(Fraction(1), source):
            return False
        rate -= 1
    count = 1
    while source.randrange(rate.denominator * count) < rate.numerator:
        count += 1
    return count % 2 == 1


def _geometric(rate: Fraction, source: Source) -> int:
    """Draw g >= 0 with ``P(g)`` proportional to ``exp(-rate g)``.

    See Canonne, Kamath and Steinke (2020).
    """
    while True:
        remainder = source.randrange(rate.denominator)
        if _happens(Fraction(remainder, rate.denominator), source):
            break
    whole = 0
    while _happens(Fraction(1), source):
        whole += 1
    return (remainder + rate.denominator * whole) // rate.numerator


def perturb_on_grid(
    values: ArrayLike, noise: GridNoise, *, seed: int | str | None = None
) -> NDArray[np.float64]:
    """Round ``values``, shape (p,), to the grid ``2^exponent Z^p`` and add discrete Laplace noise.

    The sampler and its privacy map are OpenDP's (``make_laplace``, after Canonne, Kamath and
    Steinke 2020), in exact integers; the sum is rounded to finite doubles.

    Parameters
    ----------
    values
        The vector (p,).
    noise
        The grid and the law.
    seed
        With one the noise is repeatable, in floating point and without OpenDP: the caller must
        record the result as not private.

    Raises
    ------
    DeclarationError
        Where the length is not p, and where OpenDP is missing.
    CalibrationError
        Where its map does not confirm ``noise.epsilon``.
    CertificateError
        Where a value is not finite, which no certified solution is.
    """
    vector = np.asarray(values, dtype=np.float64)
    if vector.shape != (noise.n_parameters,):
        raise DeclarationError(
            f"values of shape {vector.shape}: the noise is for ({noise.n_parameters},)"
        )
    # OpenDP would take "not a number" for 0 and infinity for the largest double.
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

    Parameters
    ----------
    sensitivity
        s: how far replacing one record moves any score, at most.
    epsilon
        Budget of the choice.

    Raises
    ------
    CalibrationError
        Where the scale is out of floating-point range.
    """
    scale = 2 * sensitivity / epsilon * ROUND_UP
    if not 0.0 < scale < math.inf:
        raise CalibrationError(f"epsilon = {epsilon:g}: no scale of noise for it")
    return scale


def private_choice(sensitivity: int, epsilon: float, source: Source | None = None) -> Choice:
    """Permute-and-flip on whole-number scores by OpenDP, whose privacy map certifies ``epsilon``.

    Candidates in random order are accepted with probability ``exp(epsilon (q - q*) / 2s)``, ``q*``
    the best score and ``s`` their sensitivity (McKenna and Sheldon 2020).

    Parameters
    ----------
    sensitivity
        s: how far replacing one record moves any score, at most.
    epsilon
        Budget of the choice.
    source
        A seeded one has that law to the accuracy of doubles, without OpenDP: it is not private.

    Raises
    ------
    DeclarationError
        Where OpenDP is not installed.
    CalibrationError
        Where it does not certify epsilon.
    """
    scale = selection_scale(sensitivity, epsilon)
    if source is not None:
        return partial(_flip, scale, source)
    _require("opendp")
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_noisy_max
    from opendp.measures import max_divergence
    from opendp.metrics import linf_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    measurement: Any = make_noisy_max(
        vector_domain(atom_domain(T="i64")), linf_distance(T="i64"), max_divergence(), scale
    )
    if not measurement.map(sensitivity) <= epsilon:
        raise CalibrationError(
            f"OpenDP does not certify epsilon = {epsilon:g} at scale = {scale:g}"
        )
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

    ``counts`` (m,) are those of :func:`quantile_places`; candidate c has the ranks from the number
    of values below it to that of values up to it. Replacing one record moves both by at most 1, and
    so every score; of a person who adds K whole parts to several candidates, all by at most K.
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
    """Values plus discrete Laplace noise by OpenDP, whose map confirms epsilon.

    Parameters
    ----------
    atom
        Description of a value, for OpenDP.
    values
        The values.
    noise
        The law.
    sensitivity
        How far replacing one record moves the values, in the l1 norm.
    size
        Number of values, if it is public.
    k
        Exponent of the grid.
    """
    _require("opendp")
    # The prelude of OpenDP imports far more.
    from opendp import domains, measurements, metrics
    from opendp.mod import enable_features

    enable_features("contrib")
    vectors = domains.vector_domain(domains.atom_domain(**atom), size)
    distance = metrics.l1_distance(T=atom["T"])
    measurement: Any = measurements.make_laplace(vectors, distance, noise.scale, k=k)
    if not measurement.map(sensitivity) <= noise.epsilon:
        raise CalibrationError(
            f"OpenDP does not confirm epsilon = {noise.epsilon:g} for noise of scale "
            f"{noise.scale:g}"
        )
    return list(measurement(list(values)))


def _repeatable(point: Sequence[float], noise: GridNoise, source: Source) -> list[float]:
    """Values rounded to the grid, plus noise to the accuracy of doubles."""
    step = Fraction(2) ** noise.exponent
    rate = math.ldexp(1.0, noise.exponent) / noise.scale
    most = Fraction(_LARGEST)
    perturbed = []
    for value in point:
        number = (round(Fraction(value) / step) + _two_sided(rate, source)) * step
        perturbed.append(float(min(max(number, -most), most)))
    return perturbed


def _two_sided(rate: float, source: Source) -> int:
    """Discrete Laplace noise, as the difference of two geometric variables."""
    return math.floor(source.expovariate(rate)) - math.floor(source.expovariate(rate))


def _flip(scale: float, source: Source, scores: Sequence[int]) -> int:
    """Place of the first candidate, in random order, that is accepted."""
    best = max(scores)
    order = list(range(len(scores)))
    source.shuffle(order)
    for place in order:
        # random() is below 1, so that the best is always accepted.
        if source.random() < math.exp((scores[place] - best) / scale):
            return place
    raise AssertionError("the best candidate is always accepted")
