"""Check a certificate, a bound or a release without this package: ``python checker.py FILE``.

This file imports the standard library alone (and python-flint, where it is installed, for speed).
It is meant to be read from top to bottom, before it is trusted.

**How it computes.** A double of the file is taken as the rational number that it is, and sums and
products are exact. Exponentials, logarithms and roots lie between two rationals, by series whose
remainders are bounded. What is long is rounded outward. A claim is accepted only where it follows.
A file that is not laid out as expected, or states a form, a loss or a theorem that is not named
below, is refused.

**A certificate** states a problem number by number, a point, multipliers, and the claim that the
point is within a radius of the exact minimizer. One theorem decides, whatever solver found the
point.

*Theorem.* Let F be convex on a convex set C with the minimizer v*, let x be in C, and T > 0. Let
every y of C with ``|y - x| <= T`` have ``F(y) >= F(x) + <r, y - x> - e + m/2 |y - x|^2``, and let
F less ``m/2 |. - x|^2`` be convex on every segment from x to such a y. If ``m T^2 > |r|_* T + e``,
with the dual norm of r, then ``|x - v*| < T``.

*Proof.* Else the segment from x to v* has a y with ``|y - x| = T``. Along it F falls up to v*, so
that its slope at y is at most 0, and ``F(x) >= F(y) + m/2 T^2``. Add the first inequality:
``0 >= -|r|_* T - e + m T^2``.

Here r is the residual, what the multipliers leave of the gradient at x. The number e is what is
missing where multipliers do not fit x exactly, and m is the curvature.

**A bound** claims that V, the largest change of all weights in the 1-norm when one record is
replaced, is at most a number for declared constants. Theorems 3, 22 and 23 are evaluated over cells
of margins that cover all records and all coefficients.

**A release** states what each of its steps spent. The chain is followed from the constants of a
step to V, from V to the scale of its noise, from the scale to its epsilon, and from there to the
guarantee, the declared budget and a charge of the ledger. Steps of pure differential privacy are
read: Theorems 1, 8, 12, 15, 17, 19, 26, 27, 30 and 31, Laplace noise on integers, and private
ranges.

**What is not checked** is printed with every answer. No file shows that noise was drawn, freshly
and by the law stated, that the constants of a loss are its own, that a solver kept its tolerance,
or that a person is one record. Steps with a delta (Gaussian noise) and the accountants that add
them are not read, and a release with one is refused.

**Parts of this file**, with the theorems that they apply. Pages are those of the documentation.

1. What is claimed and refused.
2. Rationals, and enclosures between two of them.
3. Convex functions of one number.
4. Certificates of sums over records: the theorem above, in the 2-norm (page on solving).
5. Certificates of weights that are the variable: the theorem above, in the 1-norm (page on
   certificates of weights).
6. V of declared constants: Theorem 3 (page on schemes), Theorems 22 and 23 (page on derived
   constants).
7. Releases: Theorem 1 (page on theory), Theorems 8, 15, 17 and 19 (page on calibrations), Theorem
   13 (page on rules), and Theorems 12, 26, 27, 30 and 31 (page on effects).
8. The command.
"""

import contextlib
import hashlib
import json
import math
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple


def _rationals() -> Any:
    """The class of rational numbers."""
    try:
        from flint import fmpq
    except ImportError:
        return Fraction
    return fmpq


Rational = _rationals()
ZERO = Rational(0)

# --- 1. What is claimed and refused --------------------------------------------------------------

#: Layouts that are read.
CERTIFICATE, CERTIFICATE_SCHEMA, RELEASE_SCHEMA = "dp2erm-cvx certificate", 2, 5


class RefusedError(Exception):
    """A claim that does not follow, or a form that is not read; its text is one sentence."""


def demand(holds: bool, sentence: str) -> None:
    """Raise RefusedError with a sentence where something does not hold."""
    if not holds:
        raise RefusedError(sentence)


# --- 2. Rationals, and enclosures between two of them --------------------------------------------

#: Significant bits that ends of enclosures are rounded to, outward.
BITS = 256


def exact(number: Any, name: str = "a number") -> Any:
    """The rational that a finite number of the JSON is."""
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    demand(is_number and math.isfinite(number), f"{name} is no finite number")
    return Rational(*number.as_integer_ratio())


def vector(numbers: Any, name: str, size: int | None = None) -> list[Any]:
    """The rationals of a list, which has to be of a given length."""
    demand(isinstance(numbers, list), f"{name} is no list")
    demand(size is None or len(numbers) == size, f"{name} has another length than {size}")
    return [exact(number, f"an entry of {name}") for number in numbers]


def vector_or(stated: Any, otherwise: int, name: str, size: int) -> list[Any]:
    """The rationals of a list; where none is stated, one number for all."""
    if stated is None:
        return [Rational(otherwise)] * size
    return vector(stated, name, size)


def total(numbers: Iterable[Any]) -> Any:
    """The exact sum."""
    return sum(numbers, ZERO)


def dot(first: Iterable[Any], second: Iterable[Any]) -> Any:
    """The exact sum of products."""
    return total(x * y for x, y in zip(first, second, strict=True))


def below(number: Any) -> Any:
    """A rational of at most BITS significant bits that is at most the number."""
    top = int(number.numerator)
    bottom = int(number.denominator)
    shift = BITS - (top.bit_length() - bottom.bit_length())
    if shift >= 0:
        return Rational((top << shift) // bottom, 1 << shift)
    return Rational((top // (bottom << -shift)) << -shift, 1)


def above(number: Any) -> Any:
    """A rational of at most BITS significant bits that is at least the number."""
    return -below(-number)


def floor(number: Any) -> int:
    """The largest whole number that is at most a rational."""
    return int(number.numerator) // int(number.denominator)


def clipped(u: Any, size: Any) -> Any:
    """The number of ``[-size, size]`` that is nearest to u."""
    return min(max(u, -size), size)


def ends_of_products(low: Any, high: Any, other_low: Any, other_high: Any) -> tuple[Any, Any]:
    """The least and the largest product of a number of each of two intervals."""
    products = (low * other_low, low * other_high, high * other_low, high * other_high)
    return min(products), max(products)


class Enclosure:
    """All numbers from ``low`` to ``high``.

    Sums, products and functions of enclosures hold whatever they may give for numbers inside.
    """

    def __init__(self, low: Any, high: Any | None = None) -> None:
        self.low = low
        self.high = low if high is None else high

    def rounded(self) -> "Enclosure":
        """An enclosure around it whose ends have few bits."""
        return Enclosure(below(self.low), above(self.high))

    def __add__(self, other: "Enclosure") -> "Enclosure":
        return Enclosure(self.low + other.low, self.high + other.high)

    def __neg__(self) -> "Enclosure":
        return Enclosure(-self.high, -self.low)

    def __sub__(self, other: "Enclosure") -> "Enclosure":
        return self + -other

    def __mul__(self, other: "Enclosure") -> "Enclosure":
        return Enclosure(*ends_of_products(self.low, self.high, other.low, other.high))

    def __truediv__(self, other: "Enclosure") -> "Enclosure":
        demand(other.low > 0 or other.high < 0, "a division by numbers around 0 has no bound")
        return self * Enclosure(1 / other.high, 1 / other.low).rounded()

    def times(self, factor: Any) -> "Enclosure":
        """The multiple by an exact factor."""
        return self * Enclosure(factor)

    def through(self, rising: Callable[[Any], "Enclosure"]) -> "Enclosure":
        """Values of a function that rises and is enclosed at single rationals."""
        return Enclosure(rising(self.low).low, rising(self.high).high)

    @property
    def largest_size(self) -> Any:
        """The largest size of a number inside."""
        return max(abs(self.low), abs(self.high))

    @property
    def least_size(self) -> Any:
        """The least size of a number inside."""
        if self.low <= 0 <= self.high:
            return ZERO
        return min(abs(self.low), abs(self.high))


ONE = Enclosure(Rational(1))


def sum_of(enclosures: Iterable[Enclosure]) -> Enclosure:
    """Enclosure of the sum of a number of each."""
    listed = list(enclosures)
    return Enclosure(total(x.low for x in listed), total(x.high for x in listed))


#: Fractional bits of the whole numbers that series are summed in.
WORK = 320


def exp(number: Any) -> Enclosure:
    """Enclosure of ``e^x``.

    Taylor's series at ``|x| / 2^k < 2^-8`` is squared k times; below 0 it is one over ``e^|x|``.
    """
    demand(abs(number) < 100000, "an exponential is out of range")
    size = abs(number)
    halvings = 0
    while size * 256 > 2**halvings:
        halvings += 1
    x = size / 2**halvings
    step = (int(x.numerator) << WORK) // int(x.denominator)
    low = high = 1 << WORK
    low_term = high_term = 1 << WORK
    for place in range(1, 40):
        low_term = low_term * step // place >> WORK
        high_term = (high_term * (step + 1) // place >> WORK) + 1
        low += low_term
        high += high_term
    high += high_term  # the rest of the series is less than its last term, as x < 2^-8
    for _ in range(halvings):
        low = low * low >> WORK
        high = (high * high >> WORK) + 1
    found = Enclosure(Rational(low, 1 << WORK), Rational(high, 1 << WORK)).rounded()
    return ONE / found if number < 0 else found


def _twice_artanh(z: Any) -> Enclosure:
    """Enclosure of ``log((1 + z) / (1 - z))`` for z in [0, 1/3]: ``2 (z + z^3/3 + ...)``."""
    step = (int(z.numerator) << WORK) // int(z.denominator)
    low = high = 0
    low_power = step
    high_power = step + 1
    for odd in range(1, 220, 2):
        low += low_power // odd
        high += high_power // odd + 1
        low_power = (low_power * step >> WORK) * step >> WORK
        high_power = ((high_power * (step + 1) >> WORK) + 1) * (step + 1) // (1 << WORK) + 1
    high += high_power  # at most z^220 / (1 - z^2), and its last factor counts less than 1/220
    return Enclosure(Rational(2 * low, 1 << WORK), Rational(2 * high, 1 << WORK))


_LOG_2 = _twice_artanh(Rational(1, 3)).rounded()


def log(number: Any) -> Enclosure:
    """Enclosure of the logarithm: ``log x = k log 2 + log m`` with m in [1, 2]."""
    demand(number > 0, "a logarithm of a number that is not above 0")
    power = int(number.numerator).bit_length() - int(number.denominator).bit_length()
    m = number / Rational(2) ** power
    if m < 1:
        power -= 1
        m *= 2
    return (_LOG_2.times(Rational(power)) + _twice_artanh((m - 1) / (m + 1))).rounded()


def root(number: Any) -> Enclosure:
    """Enclosure of the square root of a rational of at least 0."""
    demand(number >= 0, "a root of a number below 0")
    if number == 0:
        return Enclosure(number)
    top = int(number.numerator)
    bottom = int(number.denominator)
    shift = max(2 * BITS - top.bit_length() + bottom.bit_length(), 0) // 2 * 2
    whole = math.isqrt((top << shift) // bottom)
    unit = 1 << shift // 2
    return Enclosure(Rational(whole, unit), Rational(whole + 1, unit))


def norm(numbers: Iterable[Any]) -> Enclosure:
    """Enclosure of the Euclidean norm."""
    return root(total(x * x for x in numbers))


def sigmoid(u: Any) -> Enclosure:
    """Enclosure of ``1 / (1 + e^-u)``."""
    return (ONE / (ONE + exp(-u))).rounded()


def eigenvalues_exceed(bound: Any, matrix: list[list[Any]]) -> bool:
    """True if a symmetric matrix less ``bound`` times the identity has pivots above 0 alone."""
    rows = [list(row) for row in matrix]
    size = len(rows)
    for k in range(size):
        rows[k][k] -= bound
    for k in range(size):
        if not rows[k][k] > 0:
            return False
        for i in range(k + 1, size):
            share = rows[i][k] / rows[k][k]
            for j in range(k + 1, i + 1):
                rows[i][j] -= share * rows[j][k]
                rows[j][i] = rows[i][j]
    return True


# --- 3. Convex functions of one number -----------------------------------------------------------


class Atom:
    """A convex function of one number u, which may have a number k of its own.

    What a function does not define is not read, but curvature, which is at least 0.
    """

    #: True if k has to be above 0.
    needs_number = False
    #: True if the function rises everywhere; else it is even, and rises with the size of u.
    rises = False

    def value(self, k: Any, u: Any) -> Enclosure:
        """Enclosure of the value at a rational."""
        raise RefusedError(f"no values of the function {self.__doc__} are enclosed here")

    def slope(self, k: Any, u: Any) -> Enclosure:
        """Enclosure of the derivative at a rational; it rises with u."""
        raise RefusedError(f"no slopes of the function {self.__doc__} are enclosed here")

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        """Lower bound of the second derivative at all numbers of an enclosure."""
        return ZERO


class _Line(Atom):
    """``u``."""

    rises = True

    def value(self, k: Any, u: Any) -> Enclosure:
        return Enclosure(u)

    def slope(self, k: Any, u: Any) -> Enclosure:
        return ONE


class _Square(Atom):
    """``u^2``."""

    def value(self, k: Any, u: Any) -> Enclosure:
        return Enclosure(u * u)

    def slope(self, k: Any, u: Any) -> Enclosure:
        return Enclosure(2 * u)

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return Rational(2)


class _Exponential(Atom):
    """``e^u``."""

    rises = True

    def value(self, k: Any, u: Any) -> Enclosure:
        return exp(u)

    def slope(self, k: Any, u: Any) -> Enclosure:
        return exp(u)

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return exp(span.low).low


class _Logistic(Atom):
    """``log(1 + e^u)``, which is ``log(1 + e^-|u|)`` and the part of u above 0."""

    rises = True

    def value(self, k: Any, u: Any) -> Enclosure:
        return (ONE + exp(-abs(u))).through(log) + Enclosure(max(u, ZERO))

    def slope(self, k: Any, u: Any) -> Enclosure:
        return sigmoid(u)

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        share = sigmoid(-span.largest_size)
        return (share * (ONE - share)).low


class _Huber(Atom):
    """``u^2`` up to the size k, and ``k (2 |u| - k)`` beyond it."""

    needs_number = True

    def value(self, k: Any, u: Any) -> Enclosure:
        inner = clipped(u, k)
        return Enclosure(inner * (2 * u - inner))

    def slope(self, k: Any, u: Any) -> Enclosure:
        return Enclosure(2 * clipped(u, k))

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return Rational(2) if span.largest_size < k else ZERO


class _Hinge(Atom):
    """The square of the part of u above 0."""

    rises = True

    def value(self, k: Any, u: Any) -> Enclosure:
        return Enclosure(max(u, ZERO) ** 2)

    def slope(self, k: Any, u: Any) -> Enclosure:
        return Enclosure(2 * max(u, ZERO))

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return Rational(2) if span.low > 0 else ZERO


class _Saturating(Atom):
    """``k |u| - k^2 (1 - e^(-|u|/k))``."""

    needs_number = True

    def value(self, k: Any, u: Any) -> Enclosure:
        return (exp(-abs(u) / k) - ONE).times(k * k) + Enclosure(k * abs(u))

    def slope(self, k: Any, u: Any) -> Enclosure:
        size = (ONE - exp(-abs(u) / k)).times(k)
        return size if u >= 0 else -size

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return exp(-span.largest_size / k).low


class _Entropy(Atom):
    """``u log u``."""

    def slope(self, k: Any, u: Any) -> Enclosure:
        return log(u) + ONE

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return 1 / span.high if span.high > 0 else ZERO


class _MinusLog(Atom):
    """``-log u``."""

    def slope(self, k: Any, u: Any) -> Enclosure:
        demand(u > 0, "a logarithm of a weight that is not above 0")
        return Enclosure(-1 / u)

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        return 1 / (span.high * span.high) if span.high > 0 else ZERO


class _Power(Atom):
    """``u^k``, or ``-u^k`` for k between 0 and 1, at u above 0."""

    def slope(self, k: Any, u: Any) -> Enclosure:
        sign = -1 if 0 < k < 1 else 1
        return log(u).times(k - 1).through(exp).times(sign * k)

    def least_curvature(self, k: Any, span: Enclosure) -> Any:
        if span.low <= 0:
            return ZERO
        ends = [log(u).times(k - 2).through(exp).low for u in (span.low, span.high)]
        return abs(k * (k - 1)) * min(ends)


class _Size(Atom):
    """``|u|``."""

    def slope(self, k: Any, u: Any) -> Enclosure:
        demand(u != 0, "a weight is at the kink of its dispersion")
        return Enclosure(Rational(1 if u > 0 else -1))


#: Functions of margins, by the names that files give them.
OF_MARGINS: Mapping[str, Atom] = {
    "line": _Line(),
    "square": _Square(),
    "exp": _Exponential(),
    "logistic": _Logistic(),
    "huber": _Huber(),
    "hinge": _Hinge(),
    "saturating": _Saturating(),
}
#: Functions of weights.
OF_WEIGHTS: Mapping[str, Atom] = {
    **OF_MARGINS,
    "entropy": _Entropy(),
    "log": _MinusLog(),
    "power": _Power(),
    "size": _Size(),
}


def atom_of(kind: str, atoms: Mapping[str, Atom]) -> Atom:
    """The function of a name."""
    demand(kind in atoms, f"the function {kind!r} is not read")
    return atoms[kind]


class Part(NamedTuple):
    """``coefficient * atom(scale * u + shift)``, the atom with the number k."""

    atom: Atom
    k: Any
    coefficient: Any
    scale: Any
    shift: Any


class ConvexSum:
    """A convex sum of parts: a loss of margins, or a dispersion of weights."""

    def __init__(self, stated: Any, atoms: Mapping[str, Atom]) -> None:
        demand(isinstance(stated, list) and bool(stated), "a convex function has no parts")
        self.parts = [self._part(one, atoms) for one in stated]

    @staticmethod
    def _part(stated: Any, atoms: Mapping[str, Atom]) -> Part:
        atom = atom_of(stated["atom"], atoms)
        part = Part(
            atom,
            exact(stated["number"], "the number of an atom"),
            exact(stated["coefficient"], "a coefficient"),
            exact(stated["scale"], "a scale"),
            exact(stated["shift"], "a shift"),
        )
        is_convex = isinstance(atom, _Line) or part.coefficient >= 0
        demand(is_convex, "a function with a coefficient below 0 is not convex")
        demand(part.k > 0 or not atom.needs_number, "the number of an atom is not above 0")
        return part

    @property
    def has_line(self) -> bool:
        """True if a part is linear, and has no least value."""
        return any(isinstance(part.atom, _Line) for part in self.parts)

    @property
    def most_at_zero(self) -> Any:
        """Upper bound of the value at 0."""
        return total(
            part.coefficient * part.atom.value(part.k, part.shift).high for part in self.parts
        )

    def slope(self, u: Any) -> Enclosure:
        """Enclosure of the derivative at a rational."""
        found = Enclosure(ZERO)
        for part in self.parts:
            inner = part.atom.slope(part.k, part.scale * u + part.shift)
            found += inner.times(part.coefficient * part.scale)
        return found

    def least_curvature(self, low: Any, high: Any) -> Any:
        """Lower bound of the second derivative over ``[low, high]``."""
        found = ZERO
        for part in self.parts:
            ends = sorted((part.scale * low + part.shift, part.scale * high + part.shift))
            inner = part.atom.least_curvature(part.k, Enclosure(*ends))
            found += part.coefficient * part.scale * part.scale * inner
        return found


def atom_of_tree(tree: Any) -> tuple[Atom, Any]:
    """The function that a node of a log weight applies, and its number k."""
    demand(tree["operation"] == "atom", f"the log weight {tree['operation']!r} is not read")
    atom = atom_of(tree["atom"], OF_MARGINS)
    k = exact(tree["number"])
    demand(k > 0 or not atom.needs_number, "the number of an atom is not above 0")
    return atom, k


def log_weight(tree: Any, s: Enclosure) -> Enclosure:
    """Enclosure of the logarithm of a weight, a tree of functions, at an enclosure of margins."""
    operation = tree["operation"]
    parts = [log_weight(part, s) for part in tree["parts"]]
    if operation == "margin":
        return s
    if operation == "constant":
        return Enclosure(exact(tree["number"]))
    if operation == "sum":
        return sum_of(parts)
    if operation == "multiple":
        return parts[0].times(exact(tree["number"]))
    if operation == "minimum":
        return Enclosure(min(x.low for x in parts), min(x.high for x in parts))
    if operation == "log":
        return parts[0].through(log)
    atom, k = atom_of_tree(tree)
    (u,) = parts
    if atom.rises:
        return u.through(lambda x: atom.value(k, x))
    return Enclosure(atom.value(k, u.least_size).low, atom.value(k, u.largest_size).high)


def log_weight_slope(tree: Any, s: Enclosure) -> Enclosure:
    """Enclosure of the slopes of that logarithm, at a kink of both of its slopes."""
    operation = tree["operation"]
    slopes = [log_weight_slope(part, s) for part in tree["parts"]]
    if operation == "margin":
        return ONE
    if operation == "constant":
        return Enclosure(ZERO)
    if operation == "sum":
        return sum_of(slopes)
    if operation == "multiple":
        return slopes[0].times(exact(tree["number"]))
    values = [log_weight(part, s) for part in tree["parts"]]
    if operation == "minimum":
        # a part that is above another one everywhere is never the minimum
        least = min(x.high for x in values)
        felt = [slope for slope, x in zip(slopes, values, strict=True) if x.low <= least]
        return Enclosure(min(x.low for x in felt), max(x.high for x in felt))
    if operation == "log":
        return slopes[0] / values[0]
    atom, k = atom_of_tree(tree)
    return values[0].through(lambda u: atom.slope(k, u)) * slopes[0]


# --- 4. Certificates of sums over records: coefficients of weighting schemes, and second stages ---


def is_proved(curvature: Any, distance: Any, residual: Any, missing: Any) -> bool:
    """True if the inequality of the theorem holds: ``m T^2 > |r|_* T + e``."""
    return bool(curvature * distance * distance > residual * distance + missing)


class CoefficientSet:
    """The set of a coefficient: all of space, or a ball in the 2-norm, 1-norm or largest entry."""

    def __init__(self, stated: Any) -> None:
        self.kind = stated["kind"]
        demand(self.kind in ("space", "l2", "l1", "box"), f"the set {self.kind!r} is not read")
        self.size = Rational(1)
        if self.kind != "space":
            self.size = exact(stated["size"], "the size of the set")
        demand(self.size > 0, "the size of the set is not above 0")

    def length(self, v: Sequence[Any]) -> Enclosure:
        """Enclosure of the norm that the set bounds."""
        if self.kind == "l2":
            return norm(v)
        sizes = [abs(x) for x in v]
        return Enclosure(max(sizes) if self.kind == "box" else total(sizes))

    def most_along(self, q: Sequence[Any]) -> Any:
        """Upper bound of ``<q, y>`` over all y of the set: its size times the dual norm of q."""
        if self.kind == "space":
            demand(not any(q), "a normal vector of all of space is not 0")
            return ZERO
        if self.kind == "l2":
            return self.size * norm(q).high
        sizes = [abs(x) for x in q]
        return self.size * (max(sizes) if self.kind == "l1" else total(sizes))

    def placed(self, v: list[Any], q: Sequence[Any]) -> list[Any]:
        """A point of the set near v, on the boundary where a normal vector q says that v is."""
        if self.kind == "space":
            return v
        if self.kind == "box":
            return [self._placed_entry(x, n) for x, n in zip(v, q, strict=True)]
        length = self.length(v).high
        if length <= self.size and not any(q):
            return v
        demand(length > 0, "a normal vector is stated at the origin, inside of the set")
        share = self.size / length
        if self.kind == "l2":
            share = below(share)
        return [x * share for x in v]

    def _placed_entry(self, x: Any, n: Any) -> Any:
        """An entry of a box, at the end that an entry n of the normal vector points to."""
        if not n:
            return clipped(x, self.size)
        return self.size if n > 0 else -self.size


class MarginProblem:
    """A sum over n records of losses of their margins ``s_i = <z_i, v> - o_i``, over a set of v.

    It is ``sum_i m_i phi(s_i) + ridge/2 |v|^2 + <linear, v> + sum_k l1_k |v_k|``. With "log of
    exponentials", ``n log sum_i exp(s_i)`` stands for the sum over the records. Weights, where a
    problem states them, are functions of the margins: ``w_i = n b_i f(s_i) / sum_j b_j f(s_j)``,
    where "arm_total" is stated of weights that were divided by the sum of their arm before.
    """

    def __init__(self, stated: Any) -> None:
        self.rows = [vector(row, "a row") for row in stated["rows"]]
        self.n = len(self.rows)
        self.dimension = len(self.rows[0]) if self.rows else 0
        demand(self.n > 0 and self.dimension > 0, "there are no rows")
        same = all(len(row) == self.dimension for row in self.rows)
        demand(same, "rows are of several lengths")
        self._read_records(stated)
        self._read_penalties(stated)

    def _read_records(self, stated: Any) -> None:
        """What each record contributes, and the functions that this is put into."""
        self.offsets = vector_or(stated["offsets"], 0, "offsets", self.n)
        self.factors = vector_or(stated["multipliers"], 1, "multipliers", self.n)
        demand(min(self.factors) >= 0, "a multiplier of a loss is below 0")
        self.base = vector_or(stated["base"], 1, "base", self.n)
        demand(min(self.base) > 0, "a base of a weight is not above 0")
        self.arms = stated["arm"]
        if self.arms is not None:
            known = len(self.arms) == self.n and set(self.arms) <= {0, 1}
            demand(known, "an arm of a record is neither 0 nor 1")
        kind = stated["sum"]
        demand(kind in ("plain", "log of exponentials"), f"the sum {kind!r} is not read")
        self.is_plain = kind == "plain"
        is_counted = self.is_plain or stated["multipliers"] is None
        demand(is_counted, "a sum of exponentials with multipliers is not read")
        self.losses = [ConvexSum(parts, OF_MARGINS) for parts in stated["losses"]]
        self.log_weights = stated["log_weights"]
        self.arm_total = stated["arm_total"]

    def _read_penalties(self, stated: Any) -> None:
        """What the coefficient costs by itself, and its set."""
        self.ridge = exact(stated["ridge"], "the ridge")
        demand(self.ridge >= 0, "the ridge is below 0")
        self.linear = vector_or(stated["linear"], 0, "the linear term", self.dimension)
        if isinstance(stated["l1"], list):
            self.l1 = vector(stated["l1"], "the prices", self.dimension)
        else:
            self.l1 = [exact(stated["l1"], "the price")] * self.dimension
        demand(min(self.l1) >= 0, "a price of a size is below 0")
        self.set = CoefficientSet(stated["set"])

    def of_arm(self, each: Sequence[Any], record: int) -> Any:
        """What belongs to the arm of a record, or to all of them."""
        if len(each) == 1:
            return each[0]
        demand(len(each) == 2 and self.arms is not None, "there are losses of unknown arms")
        return each[self.arms[record]]

    def margins(self, v: Sequence[Any]) -> list[Any]:
        """Margins of all records, exactly."""
        return [dot(row, v) - o for row, o in zip(self.rows, self.offsets, strict=True)]

    def spans(self, v: Sequence[Any], distance: Any) -> list[Enclosure]:
        """Enclosures of the margins of all records at every coefficient within a distance of v."""
        found = []
        for row, s in zip(self.rows, self.margins(v), strict=True):
            change = norm(row).high * distance
            found.append(Enclosure(s - change, s + change))
        return found

    def pulls(self, v: Sequence[Any]) -> list[Enclosure]:
        """Enclosures of the derivatives of the sum over records by each of the margins."""
        margins = self.margins(v)
        if self.is_plain:
            slopes = [self.of_arm(self.losses, i).slope(s) for i, s in enumerate(margins)]
            return [x.times(m).rounded() for x, m in zip(slopes, self.factors, strict=True)]
        top = max(margins)
        parts = [exp(s - top) for s in margins]
        whole = sum_of(parts)
        return [(part / whole).times(Rational(self.n)).rounded() for part in parts]

    def gradient(self, v: Sequence[Any]) -> list[Enclosure]:
        """Enclosure of the gradient of all but the sizes of v."""
        pulls = self.pulls(v)
        gradient = []
        for k in range(self.dimension):
            low = high = self.ridge * v[k] + self.linear[k]
            for row, pull in zip(self.rows, pulls, strict=True):
                z = row[k]
                low += z * (pull.low if z >= 0 else pull.high)
                high += z * (pull.high if z >= 0 else pull.low)
            gradient.append(Enclosure(low, high))
        return gradient

    def curvature_exceeds(self, bound: Any, v: Sequence[Any], distance: Any) -> bool:
        """True if every Hessian within a distance of v has eigenvalues of at least ``bound``."""
        if bound <= self.ridge:
            return bool(bound > 0)
        if not self.is_plain:
            return False
        return eigenvalues_exceed(bound, self._least_hessian(self.spans(v, distance)))

    def _least_hessian(self, spans: Sequence[Enclosure]) -> list[list[Any]]:
        """A matrix that every Hessian exceeds, at margins in the enclosures."""
        d = self.dimension
        matrix = [[ZERO] * d for _ in range(d)]
        for record, (row, span) in enumerate(zip(self.rows, spans, strict=True)):
            least = self.of_arm(self.losses, record).least_curvature(span.low, span.high)
            curvature = self.factors[record] * below(least)
            for i in range(d):
                scaled = curvature * row[i]
                for j in range(i + 1):
                    matrix[i][j] += scaled * row[j]
        for i in range(d):
            matrix[i][i] += self.ridge
            for j in range(i):
                matrix[j][i] = matrix[i][j]
        return matrix

    def weights(self, v: Sequence[Any], radius: Any) -> list[Enclosure]:
        """Enclosures of all weights at every coefficient within a radius of v."""
        logs = []
        for record, span in enumerate(self.spans(v, radius)):
            tree = self.of_arm(self.log_weights, record)
            logs.append(log_weight(tree, span).rounded())
        # every weight over the same power of e, which cancels
        top = max(span.high for span in logs)
        parts = [
            (span - Enclosure(top)).through(exp).times(b)
            for span, b in zip(logs, self.base, strict=True)
        ]
        if self.arm_total is not None:
            parts = self._over_sums_of_arms(parts, top)
        whole = sum_of(parts)
        n = Rational(self.n)
        return [Enclosure(n * part.low / whole.high, n * part.high / whole.low) for part in parts]

    def _over_sums_of_arms(self, parts: list[Enclosure], top: Any) -> list[Enclosure]:
        """Weights over the sum of their arm, or over n times the total where that is more."""
        demand(self.arms is not None, "weights are normalized by unknown arms")
        least = exp(-top).times(exact(self.arm_total) * self.n)
        divisors = []
        for arm in (0, 1):
            own = sum_of(part for part, a in zip(parts, self.arms, strict=True) if a == arm)
            divisors.append(Enclosure(max(own.low, least.low), max(own.high, least.high)))
        return [(part / divisors[a]).rounded() for part, a in zip(parts, self.arms, strict=True)]


class MarginProof:
    """What a proof states near the claimed point: a point x of the set, and multipliers.

    Multipliers are a normal vector of the set, and slopes of the sizes of the entries, at most
    their prices. Both are of planes below their functions up to what is missing at x.
    """

    def __init__(self, problem: MarginProblem, stated: Any) -> None:
        d = problem.dimension
        normal = vector_or(stated["normal"], 0, "the normal vector", d)
        slopes = vector_or(stated["slopes"], 0, "the slopes", d)
        allowed = all(abs(u) <= price for u, price in zip(slopes, problem.l1, strict=True))
        demand(allowed, "a slope of a size is larger than its price")
        self.problem = problem
        self.x = problem.set.placed(vector(stated["at"], "the point of the proof", d), normal)
        cost_of_sizes = dot(problem.l1, [abs(y) for y in self.x])
        missing_of_set = problem.set.most_along(normal) - dot(normal, self.x)
        missing_of_sizes = cost_of_sizes - dot(slopes, self.x)
        self.missing = missing_of_set + missing_of_sizes
        left = [
            g + Enclosure(u + q)
            for g, u, q in zip(problem.gradient(self.x), slopes, normal, strict=True)
        ]
        self.residual = norm(above(entry.largest_size) for entry in left).high

    def distance(self, point: Sequence[Any]) -> Any:
        """Upper bound of the distance of a point to x."""
        return norm(p - y for p, y in zip(point, self.x, strict=True)).high

    def proves(self, point: Sequence[Any], radius: Any, curvature: Any) -> bool:
        """True if the theorem proves that the point is within the radius of the minimizer."""
        distance = radius - self.distance(point)
        if not distance > 0:
            return False
        if not is_proved(curvature, distance, self.residual, self.missing):
            return False
        return self.problem.curvature_exceeds(curvature, self.x, distance)


def distance_of_weights(
    problem: MarginProblem, point: Sequence[Any], radius: Any, weights: Sequence[Any]
) -> Any:
    """Upper bound of the distance in the 1-norm of weights to those of the exact minimizer."""
    exact_ones = problem.weights(point, radius)
    return total(
        max(abs(w - span.low), abs(w - span.high))
        for w, span in zip(weights, exact_ones, strict=True)
    )


def check_margins(document: Any) -> list[str]:
    """Check a certificate of a sum over records; returns what was checked."""
    problem = MarginProblem(document["problem"])
    claim = document["claim"]
    checked = []
    if document["rows_are"] is not None:
        checked.append(_check_rows(problem, document["rows_are"], document["records"]))
    point = vector(document["point"], "the point", problem.dimension)
    radius = exact(claim["radius"])
    proof = MarginProof(problem, document["proof"])
    curvature = exact(document["proof"]["curvature"], "the curvature")
    text = f"the point is within {claim['radius']:.3g} of the"
    demand(
        proof.proves(point, radius, curvature), f"it does not follow that {text} exact minimizer"
    )
    checked.append(f"{text} exact minimizer of the problem stated")
    if claim["weights"] is not None:
        demand(problem.log_weights is not None, "weights are claimed of a problem that states none")
        weights = vector(claim["weights"], "the weights", problem.n)
        distance = distance_of_weights(problem, point, radius, weights)
        text = f"within {claim['weights_radius']:.3g} in all of those of the exact minimizer"
        follows = distance <= exact(claim["weights_radius"])
        demand(follows, f"it does not follow that the weights are {text}")
        checked.append(f"the {problem.n} weights are {text}")
    return checked


def _check_rows(problem: MarginProblem, made: str, records: Any) -> str:
    """Check that rows are made of the records as it is stated; returns the sentence of it."""
    demand(made in ("x", "(2a - 1) x"), f"rows {made!r} are not read")
    rows = [vector(x, "the covariates of a record") for x in records["x"]]
    if made == "(2a - 1) x":
        signs = [2 * a - 1 for a in records["a"]]
        rows = [[sign * entry for entry in x] for sign, x in zip(signs, rows, strict=True)]
    demand(rows == problem.rows, f"the rows of the problem are not {made} of the records")
    return f"every row of the problem is {made} of its record"


# --- 5. Certificates of weights that are the variable --------------------------------------------


class ImbalanceCost:
    """What an imbalance m costs, as a function of its size r.

    That is ``f(r) = factor * huber(max(r - tolerance, 0), knee)``, or ``kink * r``. The size is
    that of every entry, or of what it is above 0 ("sided"), or the Euclidean norm, or the largest
    entry. The Moreau envelope with a number e is ``min_u cost(u) + |u - m|^2 / (2 e)``.
    """

    def __init__(self, stated: Any) -> None:
        self.columns = range(*stated["columns"])
        self.norm = stated["norm"]
        self.sided = stated["sided"]
        self.kink = self._number(stated, "price")
        self.factor = self._number(stated, "factor")
        self.knee = self._number(stated, "knee")
        self.envelope = exact(stated["envelope"], "the number of the envelope")
        self.tolerances = vector(stated["tolerances"], "the tolerances", len(self.columns))
        self._refuse_unread()

    @staticmethod
    def _number(stated: Any, name: str) -> Any:
        return None if stated[name] is None else exact(stated[name], f"the {name}")

    def _refuse_unread(self) -> None:
        """Raise RefusedError for a cost that is not convex, or that is not read."""
        known = self.norm in ("entries", "euclidean", "largest")
        demand(known, f"a price of the norm {self.norm!r} is not read")
        numbers = [self.factor or ZERO, self.kink or ZERO, self.envelope, *self.tolerances]
        demand(min(numbers) >= 0, "a number of a price is below 0")
        demand(self.kink is not None or bool(self.factor), "a price has no factor")
        demand(self.knee is None or self.knee > 0, "the knee of a price is not above 0")
        plain_kink = self.kink is None or not any(self.tolerances)
        demand(plain_kink, "a kink beyond a tolerance is not read")
        is_one_size = len(set(self.tolerances)) <= 1 and not self.sided
        demand(
            self.norm == "entries" or is_one_size,
            "a price of a norm of one side, or beyond several tolerances, is not read",
        )

    def excess(self, m: Sequence[Any], slopes: Sequence[Any]) -> Any:
        """How much the plane of these slopes at m exceeds the cost anywhere, at most.

        That is ``cost(m) + conjugate(slopes) - <slopes, m>`` (Fenchel and Young). What holds of a
        cost at ``u = m - e slopes`` holds of its envelope at m.
        """
        demand(not self.sided or min(slopes) >= 0, "a slope of a price of one side is below 0")
        u = [x - self.envelope * y for x, y in zip(m, slopes, strict=True)]
        sizes = [max(x, ZERO) if self.sided else abs(x) for x in u]
        steepnesses = [abs(y) for y in slopes]
        tolerances = self.tolerances
        if self.norm == "euclidean":
            sizes = [norm(sizes).high]
            steepnesses = [norm(steepnesses).high]
            tolerances = tolerances[:1]
        elif self.norm == "largest":
            sizes = [max(sizes)]
            steepnesses = [total(steepnesses)]
            tolerances = tolerances[:1]
        excess = -dot(slopes, u)
        for r, y, tolerance in zip(sizes, steepnesses, tolerances, strict=True):
            excess += self._of_size(r, tolerance) + self._conjugate(y, tolerance)
        return excess

    def _of_size(self, r: Any, tolerance: Any) -> Any:
        """The cost of a size."""
        if self.kink is not None:
            return self.kink * r
        beyond = max(r - tolerance, ZERO)
        near = beyond if self.knee is None else min(beyond, self.knee)
        return self.factor * near * (2 * beyond - near)

    def _conjugate(self, y: Any, tolerance: Any) -> Any:
        """The largest ``y r - f(r)`` over sizes r."""
        if self.kink is not None:
            demand(y <= self.kink, "a slope is larger than the price of its kink")
            return ZERO
        is_bounded = self.knee is None or y <= 2 * self.factor * self.knee
        demand(is_bounded, "a slope is larger than any of its price")
        return y * tolerance + y * y / (4 * self.factor)


class WeightProblem:
    """``sum_i d_i phi(w_i / d_i) + c_i w_i`` and costs of the imbalance ``sum_i w_i z_i - t``.

    Each weight is in a box, and weights of a block have a given sum.
    """

    def __init__(self, stated: Any) -> None:
        self.low = vector(stated["low"], "low")
        self.n = len(self.low)
        demand(self.n > 0, "there are no boxes of the weights")
        self.cap = vector(stated["cap"], "cap", self.n)
        ordered = all(low <= cap for low, cap in zip(self.low, self.cap, strict=True))
        demand(ordered, "a box of a weight is empty")
        self.base = vector_or(stated["base"], 1, "the bases", self.n)
        self.linear = vector(stated["linear"], "the linear term", self.n)
        self.dispersion = ConvexSum(stated["dispersion"], OF_WEIGHTS)
        self.targets = vector(stated["targets"], "the targets")
        self.rows = [vector(row, "a row", len(self.targets)) for row in stated["rows"]]
        complete = len(self.rows) == self.n and min(self.base) > 0
        demand(complete, "rows or bases are not those of the records")
        self.costs = [ImbalanceCost(one) for one in stated["prices"]]
        columns = [column for one in self.costs for column in one.columns]
        each_once = columns == list(range(len(self.targets)))
        demand(each_once, "prices are not of all imbalances, each once")
        self.blocks = [(one["members"], exact(one["total"], "a sum")) for one in stated["blocks"]]
        self._refuse_blocks()

    def _refuse_blocks(self) -> None:
        """Raise RefusedError where blocks share a record, or leave a free weight out."""
        members = [i for block, _ in self.blocks for i in block]
        demand(len(set(members)) == len(members), "a record is in two blocks")
        demand(set(members) <= set(range(self.n)), "a block holds a record that is none")
        rest = set(range(self.n)) - set(members)
        demand(not any(self.is_free(i) for i in rest), "a weight in no block is free")

    def is_free(self, record: int) -> bool:
        """True if the box of a weight is more than one number."""
        return bool(self.low[record] < self.cap[record])

    def placed(self, weights: Sequence[Any]) -> list[Any]:
        """Weights in their boxes, with the sums of their blocks: the freest takes what is left."""
        w = [min(max(x, a), b) for x, a, b in zip(weights, self.low, self.cap, strict=True)]
        for members, wanted in self.blocks:
            left = wanted - total(w[i] for i in members)
            if left == 0:
                continue
            freest = max(members, key=lambda i: min(w[i] - self.low[i], self.cap[i] - w[i]))
            w[freest] += left
            inside = self.low[freest] <= w[freest] <= self.cap[freest]
            demand(inside, "the sum of a block is not met")
        return w

    def imbalance(self, w: Sequence[Any]) -> list[Any]:
        """``sum_i w_i z_i - t``, exactly."""
        columns = zip(*self.rows, strict=True)
        return [dot(w, column) - t for column, t in zip(columns, self.targets, strict=True)]

    def excess(self, w: Sequence[Any], slopes: Sequence[Any]) -> Any:
        """What planes of these slopes exceed the costs by, at weights w."""
        m = self.imbalance(w)
        return total(
            one.excess([m[k] for k in one.columns], [slopes[k] for k in one.columns])
            for one in self.costs
        )

    def residual(self, w: Sequence[Any], slopes: Sequence[Any], multipliers: Sequence[Any]) -> Any:
        """Upper bound of what multipliers of the blocks leave of the gradient at any free weight.

        A weight at the low end of its box cannot fall, and a slope above 0 holds it there; so
        does a slope below 0 at the cap.
        """
        largest = ZERO
        for (members, _), multiplier in zip(self.blocks, multipliers, strict=True):
            for i in filter(self.is_free, members):
                rest = dot(self.rows[i], slopes) + self.linear[i] + multiplier
                left = self.dispersion.slope(w[i] / self.base[i]) + Enclosure(rest)
                if w[i] > self.low[i]:
                    largest = max(largest, left.high)
                if w[i] < self.cap[i]:
                    largest = max(largest, -left.low)
        return largest

    def response(self, w: Sequence[Any], distance: Any) -> Any:
        """Upper bound of ``sum_i d_i / phi_i''`` over all weights within a distance of w."""
        found = ZERO
        for i in filter(self.is_free, range(self.n)):
            d = self.base[i]
            low = max(w[i] - distance, self.low[i]) / d
            high = min(w[i] + distance, self.cap[i]) / d
            curvature = below(self.dispersion.least_curvature(low, high)) / d
            demand(curvature > 0, "a weight has no curvature near by")
            found += above(1 / curvature)
        return found


class WeightProof:
    """What a proof states near the claimed weights: weights w, slopes of costs, and multipliers.

    The theorem is used in the 1-norm. The sum of ``phi_i''`` times squares of changes is at least
    the square of their 1-norm over the response, by Cauchy and Schwarz. So the curvature is one
    over the response, and the dual norm of the residual is its largest entry.
    """

    def __init__(self, problem: WeightProblem, stated: Any) -> None:
        self.problem = problem
        self.w = problem.placed(vector(stated["weights"], "the weights of the proof", problem.n))
        slopes = vector(stated["slopes"], "the slopes", len(problem.targets))
        multipliers = vector(stated["multipliers"], "the multipliers", len(problem.blocks))
        self.residual = above(problem.residual(self.w, slopes, multipliers))
        self.missing = above(problem.excess(self.w, slopes))

    def distance(self, point: Sequence[Any]) -> Any:
        """The distance of weights to those of the proof, in the 1-norm."""
        return total(abs(x - y) for x, y in zip(point, self.w, strict=True))

    def proves(self, point: Sequence[Any], radius: Any) -> bool:
        """True if the theorem proves that the point is within the radius of the minimizer."""
        distance = radius - self.distance(point)
        if not distance > 0:
            return False
        response = self.problem.response(self.w, distance)
        # the inequality times the response, which is 0 where no weight is free
        return bool(distance * distance > (self.residual * distance + self.missing) * response)


def check_weights(document: Any) -> list[str]:
    """Check a certificate of weights that are the variable; returns what was checked."""
    problem = WeightProblem(document["problem"])
    proof = WeightProof(problem, document["proof"])
    point = vector(document["point"], "the weights", problem.n)
    radius = document["claim"]["radius"]
    text = f"within {radius:.3g} in all of those of the exact minimizer of the problem stated"
    follows = proof.proves(point, exact(radius))
    demand(follows, f"it does not follow that the weights are {text}")
    return [f"the {problem.n} weights are {text}"]


# --- 6. V of declared constants, by cells --------------------------------------------------------


class Strip(NamedTuple):
    """An interval of margins m in [-1, 1], in whole units of ``2^-PairsOfRecords.UNIT``.

    ``low`` and ``high`` are ends of m, ``y_low`` and ``y_high`` those of the gradients there, and
    ``across`` is the largest ``sqrt(1 - m^2)``; all rounded outward.
    """

    low: int
    high: int
    y_low: int
    y_high: int
    across: int

    @property
    def along(self) -> tuple[int, int]:
        """Ends of ``y m``, in squared units."""
        return ends_of_products(self.y_low, self.y_high, self.low, self.high)

    @property
    def sideways(self) -> int:
        """The largest ``|y| c``, in squared units."""
        return max(-self.y_low, self.y_high) * self.across


class PairsOfRecords:
    """Two records at one coefficient, with margins ``rho m`` and ``rho m'``, gradients y and y'.

    Rows have the norm 1, so that a gradient is ``y m`` along the coefficient and ``y c`` across it,
    with ``c = sqrt(1 - m^2)``. Across they are opposite at worst, and
    ``sqrt((y m - y' m')^2 + (|y| c + |y'| c')^2)`` apart. At given margins a shorter coefficient
    leaves them nearer: rho is the largest length. The square [-1, 1]^2 of m and m' is cut into
    cells until each of them is below a limit.

    Parameters
    ----------
    rho
        Largest length of the coefficient.
    gradients
        Encloses all y at an enclosure of margins.
    """

    #: Fractional bits of whole numbers, halvings of [-1, 1] to begin with, and at most.
    UNIT, FIRST, DEEPEST = 60, 5, 40
    #: Parts by which a diameter is lowered, and cells that each attempt may take.
    PARTS, ATTEMPT = (20, 200, 1000), 4_000

    def __init__(self, rho: Any, gradients: Callable[[Enclosure], Enclosure]) -> None:
        demand(rho > 0, "the radius of margins is not above 0")
        self.rho = rho
        self.gradients = gradients
        self._known: dict[tuple[int, int], Strip] = {}

    def _strip(self, place: int, depth: int) -> Strip:
        """The interval of a place, of [-1, 1] that was cut in half ``depth`` times."""
        found = self._known.get((place, depth))
        if found is None:
            low = Rational(2 * place, 1 << depth) - 1
            high = Rational(2 * (place + 1), 1 << depth) - 1
            m = Enclosure(low, high)
            y = self.gradients(m.times(self.rho))
            across = root(1 - m.least_size**2).high
            unit = 1 << self.UNIT
            found = Strip(
                floor(m.low * unit),
                floor(m.high * unit) + 1,
                floor(y.low * unit),
                floor(y.high * unit) + 1,
                floor(across * unit) + 1,
            )
            self._known[place, depth] = found
        return found

    def is_below(self, a: Any, k: Any, limit: Any, most: int = 400_000) -> bool:
        """True if ``a`` times the distance and ``4 k y (1 - y)`` are at most a limit for all pairs.

        False where they are not, and where it is not seen at ``most`` cells, or at DEEPEST
        halvings.
        """
        unit = 1 << self.UNIT
        steep = floor(a * unit) + 1
        bent = floor(k * unit) + bool(k)
        allowed = floor(limit * unit) << self.UNIT
        side = range(1 << self.FIRST)
        cells = [(i, j, self.FIRST) for i in side for j in side]
        count = 0
        while cells:
            i, j, depth = cells.pop()
            count += 1
            if count > most:
                return False
            first = self._strip(i, depth)
            bound = steep * self._apart(first, self._strip(j, depth))
            if bent:
                bound += bent * self._curved(first)
            if bound <= allowed:
                continue
            if depth == self.DEEPEST:
                return False
            for p in (2 * i, 2 * i + 1):
                cells += [(p, 2 * j, depth + 1), (p, 2 * j + 1, depth + 1)]
        return True

    def _apart(self, first: Strip, second: Strip) -> int:
        """Upper bound of the distance of two gradients on a cell."""
        low, high = first.along
        other_low, other_high = second.along
        along = max(high - other_low, other_high - low, 0)
        across = first.sideways + second.sideways
        return (math.isqrt(along * along + across * across) >> self.UNIT) + 2

    def _curved(self, strip: Strip) -> int:
        """Upper bound of ``4 y (1 - y)``, of y in [0, 1]."""
        half = 1 << self.UNIT - 1
        y = min(max(half, strip.y_low), strip.y_high)
        return (4 * y * (2 * half - y) >> self.UNIT) + 1

    def diameter(self) -> Any:
        """Upper bound of the distance of two gradients, near to it."""
        strips = [self._strip(place, self.FIRST) for place in range(1 << self.FIRST)]
        widest = max(self._apart(first, second) for first in strips for second in strips)
        found = Rational(widest, 1 << self.UNIT)
        for parts in self.PARTS:
            smaller = found * (parts - 1) / parts
            while widest and self.is_below(Rational(1), ZERO, smaller, self.ATTEMPT):
                found = smaller
                smaller = found * (parts - 1) / parts
        return found


def logistic_gradients(margins: Enclosure) -> Enclosure:
    """Shares of the full slope of the logistic loss at an enclosure of margins."""
    return margins.through(sigmoid)


def corners(points: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The points (x, y) at which some sum ``a x + b y`` with a and b of at least 0 is largest."""
    hull: list[tuple[Any, Any]] = []
    for x, y in sorted(set(points), reverse=True):
        if hull and y <= hull[-1][1]:
            continue
        while len(hull) > 1:
            (first, low), (second, high) = hull[-2:]
            if (first - second) * (y - high) < (second - x) * (high - low):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def largest_pull(loss: ConvexSum, margins: Enclosure) -> Any:
    """Upper bound of ``-x phi'(x)`` at an enclosure of margins x."""
    return -(margins * margins.through(loss.slope)).low


class MarginCell:
    """What a loss phi and a weight f are on an interval of margins x.

    ``pull`` bounds ``-x phi'`` from above, ``least`` and ``largest`` are ends of f, ``steep``
    bounds ``|log f'|``, and ``curvature`` phi'' from below. ``nearest`` is the least size of x.
    """

    def __init__(self, loss: ConvexSum, tree: Any, low: Any, high: Any) -> None:
        span = Enclosure(low, high)
        self.nearest = span.least_size
        self.pull = above(largest_pull(loss, span))
        self.logs = log_weight(tree, span).rounded()
        self.least = exp(self.logs.low).low
        self.largest = exp(self.logs.high).high
        self.steep = above(log_weight_slope(tree, span).largest_size)
        self.curvature = below(loss.least_curvature(low, high))


class StabilityOfScheme:
    """V of weights ``w_i = n f(s_i) / sum f``, s at the minimizer of a mean of losses and a ridge.

    Rows are in a ball of the norm ``row_norm``, margins have no offset, and f and the loss are one
    function for all records: Theorems 3, 22 and 23 of the page on derived constants, by cells of
    margins and of the length of the minimizer. Everything is in units in which rows have the norm
    1.
    """

    #: Cells of margins, of lengths of a minimizer, of masses of an event, and of moves.
    CELLS, LENGTHS, MASSES, MOVES = 192, 24, 32, 256

    def __init__(self, stated: Any) -> None:
        self.n = exact(stated["n"], "the number of records")
        demand(self.n >= 2 and self.n == int(self.n), "the number of records is none")
        row_norm = exact(stated["row_norm"], "the norm of rows")
        self.mu = exact(stated["ridge"], "the ridge") / row_norm / row_norm
        demand(row_norm > 0 and self.mu > 0, "the ridge or the norm of rows is not above 0")
        self.loss = ConvexSum(stated["loss"], OF_MARGINS)
        self.tree = stated["log_weight"]
        self.reach = self._largest_length(stated["radius"], row_norm)
        edges = [self.reach * (2 * k - self.CELLS) / self.CELLS for k in range(self.CELLS + 1)]
        self.cells = [MarginCell(self.loss, self.tree, a, b) for a, b in pairwise(edges)]

    def _largest_length(self, radius: Any, row_norm: Any) -> Any:
        """Bound of the length of a minimizer v, and so of every margin.

        It is in the ball that is declared. Its objective is at most that at 0, where no part of
        the loss is linear: all others are at least 0. And ``mu |v|^2`` is at most the largest pull
        of a margin within a bound that is known already.
        """
        bounds = []
        if radius is not None:
            bounds.append(exact(radius, "the radius") * row_norm)
            demand(bounds[0] > 0, "the radius is not above 0")
        if not self.loss.has_line:
            bounds.append(root(2 * self.loss.most_at_zero / self.mu).high)
        demand(bool(bounds), "a loss that falls without end needs a radius")
        reach = min(bounds)
        for _ in range(4):
            edges = [reach * k / 32 for k in range(-32, 33)]
            pulls = [largest_pull(self.loss, Enclosure(a, b)) for a, b in pairwise(edges)]
            reach = above(min(reach, root(max(*pulls, ZERO) / self.mu).high))
        is_enclosed = 0 < reach <= 300
        demand(is_enclosed, "margins are out of reach of the exponentials that are enclosed here")
        return reach

    def bound(self) -> tuple[Any, Any]:
        """Upper bounds of V and of the largest weight."""
        n = self.n
        # the diameters of the gradients of the loss and of h = log f, and the range of h
        D = PairsOfRecords(self.reach, self._slopes).diameter()
        D_h = PairsOfRecords(self.reach, self._log_slopes).diameter()
        H = max(cell.logs.high for cell in self.cells) - min(cell.logs.low for cell in self.cells)
        # Theorem 3: w <= n / (1 + (n - 1) e^-H), |v - v'| <= min(D / (n mu), 2 r), and
        # V <= 2 w + (n - w) l, with the change l of the law of the other records
        largest_by_range = n / (1 + (n - 1) * exp(-H).low)
        farthest_move = min(D / n / self.mu, 2 * self.reach)
        change_by_range = self._tilt(min(D_h * farthest_move, 2 * H))
        V_by_range = 2 * largest_by_range + (n - largest_by_range) * change_by_range
        # Theorem 23 for w, and Theorem 22 for l
        largest, least_mean = self._largest_and_mean()
        largest = min(largest, largest_by_range)
        change = self._law_change(D, (D_h, H), farthest_move, least_mean)
        change = min(change_by_range, change)
        V = 2 * largest + (n - largest) * change
        return min(V_by_range, V, 2 * n), largest

    def _slopes(self, margins: Enclosure) -> Enclosure:
        """Slopes of the loss at an enclosure of margins."""
        return margins.through(self.loss.slope)

    def _log_slopes(self, margins: Enclosure) -> Enclosure:
        """Slopes of log f at an enclosure of margins, and 0."""
        slopes = log_weight_slope(self.tree, margins)
        return Enclosure(min(slopes.low, ZERO), max(slopes.high, ZERO))

    def _tilt(self, change: Any) -> Any:
        """Upper bound ``2 tanh(change / 4)`` of the change of a law (tilt lemma).

        The logarithms of its parts move by a range of this ``change``.
        """
        grown = exp(change / 2).high
        return 2 * (grown - 1) / (grown + 1)

    def _largest_and_mean(self) -> tuple[Any, Any]:
        """Theorem 23: the largest weight, and the least mean of f over the n - 1 other records.

        With a mean of pulls of at least kappa, the mean of f is at least
        ``tau kappa + min (f - tau pull)`` for every tau >= 0 (weak duality).
        """
        n = self.n
        largest = ZERO
        means = []
        edges = [self.reach * k / self.LENGTHS for k in range(self.LENGTHS + 1)]
        for shortest, longest in pairwise(edges):
            possible = [cell for cell in self.cells if cell.nearest <= longest]
            top = max(cell.pull for cell in possible)
            planes = self._planes(possible, top)
            for cell in possible:
                length = max(shortest, cell.nearest)
                kappa = (n * self.mu * length * length - cell.pull) / (n - 1)
                if kappa > top:  # no n - 1 records have so large a mean pull
                    continue
                mean = max(tau * kappa + floor_of_f for tau, floor_of_f in planes)
                demand(mean > 0, "the mean of weights may be 0")
                means.append(mean)
                largest = max(largest, n * cell.largest / (cell.largest + (n - 1) * mean))
        demand(bool(means), "no length of a minimizer is possible")
        return above(largest), below(min(means))

    def _planes(self, cells: Sequence[MarginCell], top: Any) -> list[tuple[Any, Any]]:
        """Prices tau of the pull, each with the least ``f - tau pull`` on some cells."""
        prices = [ZERO]
        if top > 0:
            largest_weight = max(cell.largest for cell in self.cells)
            prices += [largest_weight / top * Rational(2) ** power for power in range(-14, 5)]
        return [(tau, below(min(cell.least - tau * cell.pull for cell in cells))) for tau in prices]

    def _law_change(self, D: Any, ranges: tuple[Any, Any], end: Any, least_mean: Any) -> Any:
        """Theorem 22: the largest change of the law of the others over all moves up to an end.

        It is the largest ``min(2 tanh(min(D_h d, 2 H) / 4), sqrt(n / (n - 1) C_d K_d))`` of a move
        d, with ``K_d = D d / n - mu d^2``, ``C_d = min(C, G / m (e^x - 1) / x)``, ``x = L d / 2``.
        ``ranges`` are D_h and H, and ``least_mean`` is m.
        """
        n = self.n
        D_h, H = ranges
        points = self._points()
        if points is None:
            return self._tilt(min(D_h * end, 2 * H))
        C = self._variance(points)
        G = max(g for g, _ in points)
        L = max(cell.steep for cell in self.cells)
        worst = ZERO
        for k in range(self.MOVES):  # moves d from the first to the last
            first = end * k / self.MOVES
            last = end * (k + 1) / self.MOVES
            x = max(L * last / 2, Rational(1, 10**9))
            C_d = min(C, G / least_mean * (exp(x).high - 1) / x)
            farthest = min(max(D / (2 * n * self.mu), first), last)  # the d with the largest K_d
            K_d = max(D * farthest / n - self.mu * farthest * farthest, ZERO)
            by_curvature = root(above(n / (n - 1) * C_d * K_d)).high
            worst = max(worst, min(by_curvature, self._tilt(min(D_h * last, 2 * H))))
        return worst

    def _points(self) -> list[tuple[Any, Any]] | None:
        """Upper bounds of ``g = f h'^2 / phi''`` and of 1/f by cells; None where g has none."""
        points = []
        for cell in self.cells:
            g = ZERO
            if cell.steep != 0:
                if cell.curvature <= 0:
                    return None
                g = above(cell.largest * cell.steep * cell.steep / cell.curvature)
            points.append((g, above(1 / cell.least)))
        return points

    def _variance(self, points: Iterable[tuple[Any, Any]]) -> Any:
        """``sup 4 E[c_A^2 g] E[1/f]`` over laws and events A of which the smaller part counts.

        For any t > 0 the product of X and Y is at most ``((t X + Y / t) / 2)^2``, and X and Y are
        linear in the laws on A and off it, which each sit on one cell at worst.
        """
        hull = corners(points)
        largest_inverse = max(y for _, y in hull)
        size = max(max(g for g, _ in hull), Rational(1, 10**30))
        worst = ZERO
        for k in range(self.MASSES):  # A has a mass from p to q
            p = Rational(k, 2 * self.MASSES)
            q = Rational(k + 1, 2 * self.MASSES)
            inside = 4 * q * (1 - p) ** 2
            outside = 4 * (1 - p) * q * q
            middle = root(largest_inverse / (size * (inside + outside))).low
            found = []
            for power in range(-8, 9):
                t = below(middle * Rational(3, 2) ** power)
                on = max(t * inside * g + q / t * y for g, y in hull)
                off = max(t * outside * g + (1 - p) / t * y for g, y in hull)
                found.append(((on + off) / 2) ** 2)
            worst = max(worst, min(found))
        return above(min(worst, size * largest_inverse))


def check_bound(document: Any) -> list[str]:
    """Check a bound of V for declared constants; returns what was checked."""
    claimed = document["claim"]["V"]
    V, _ = StabilityOfScheme(document["problem"]).bound()
    text = f"V is at most {claimed:.6g} for the constants declared"
    found = f"{float(V):.6g} is what follows here"
    demand(V <= exact(claimed), f"it does not follow that {text}: {found}")
    return [text]


# --- 7. Releases: from the constants of a step to V, to its noise, to the budget -----------------

#: A number q with ``h <= q (1 - u)``, u the share of the full slope of a loss and h that of its
#: largest curvature, at any margin (Theorem 15).
STEEPNESS = {"saturating": 1, "logistic": 4}
#: Losses of second stages by name, and of steps of effects and of rules.
LOSSES = {
    "itr_saturating": "saturating",
    "saturating_regression": "saturating",
    "itr_logistic": "logistic",
    "center": "saturating",
    "rule": "saturating",
    "arms": "saturating",
    "propensity": "logistic",
}
#: Weights whose V is 2: each depends on its own record, without a normalization.
FIXED = ("uniform weights", "Theorem 13 (factors at most 1, not normalized)")
#: How far one record moves the mean of scores that are cut off at B, in units of B / n (Theorem
#: 12).
SCORES = {"ate": Rational(2), "att": Rational(16, 7), "overlap": Rational(5, 2)}
#: Kinds of integers with discrete Laplace noise for what one record moves, as theorems are named.
INTEGERS = ("Laplace noise on integers", "(integers, ", "(Laplace noise, second moment included)")
#: What one record moves the integers of a step by, at least, in the units that are stated.
MOVED = {"rate": 1, "scale": 2}
#: Standings that a release may have: the others say themselves that nothing is promised.
PROMISED = (
    "private",
    "conditional on certification",
    "conditional on what a Pipeline learned before",
)
#: Shares that a double may be off the number that it stands for, and a stated supremum rounded up.
_OF_A_DOUBLE = Rational(1, 10**12)
_OF_A_SUPREMUM = Rational(1, 10**9)


class StatedStep:
    """The statement of one step of a release: what it released, by which theorem, at what cost.

    ``n`` is the number of records, ``epsilon`` what the step spends, ``scale`` that of its noise,
    and ``V`` how far one record moves all weights in the 1-norm, at most.
    """

    def __init__(self, stated: Any, document: Any) -> None:
        self.name = stated["step"]
        self.theorem = stated["theorem"]
        self.stated = stated
        self.document = document
        self.n = exact(document["n_samples"], "the number of records")
        demand(self.n >= 2, "there are fewer than two records")
        self.epsilon = self.positive("epsilon")
        self.demand(
            self.number("delta") == 0,
            "it spends a delta, and steps of pure differential privacy alone are read",
        )
        self.scale = self.positive("scale")
        self.V = self.number("stability")
        least = least_stability(document) if self.name == "theta" else Rational(2)
        self.demand(
            self.V >= least,
            f"V = {float(self.V):.6g} is below {float(least):.6g}, that of its weights",
        )

    def demand(self, holds: bool, sentence: str) -> None:
        """Raise RefusedError with a sentence about this step where something does not hold."""
        demand(holds, f"{self.name}: {sentence}")

    def number(self, field: str) -> Any:
        """A number of the statement, exactly."""
        return exact(self.stated[field], f"{self.name}: its {field}")

    def positive(self, field: str) -> Any:
        """A number of the statement that has to be above 0."""
        number = self.number(field)
        self.demand(number > 0, f"its {field} is not above 0")
        return number

    def spends(self, needed: Any, what: str) -> str:
        """The sentence of an epsilon that is enough, as it has to be."""
        stated = f"epsilon = {float(needed):.6g}, and {float(self.epsilon):.6g} is stated"
        self.demand(needed <= self.epsilon, f"{what} needs {stated}")
        return f"{self.name}: {what} needs {stated}"

    def checked(self) -> list[str]:
        """Sentences of what was checked."""
        perturbed = self.stated["perturbed"]
        if perturbed == "objective":
            return self._objective()
        self.demand(perturbed == "output", f"noise on the {perturbed} is not read")
        self.demand(self.stated["noise"] == "gamma", "its noise is not read")
        if self.theorem.startswith("permute-and-flip on ranks"):
            return [self._ranges()]
        if self.theorem == "Theorem 8 (output perturbation)":
            return [self._mean_of_outcomes()]
        known = any(kind in self.theorem for kind in INTEGERS)
        self.demand(known, f"{self.theorem} is not read")
        return [self._integers()]

    # Noise on what is released itself.

    def _integers(self) -> str:
        """Discrete Laplace noise on integers: what one record moves them by, over the scale."""
        sensitivity = self.positive("sensitivity")
        self.demand(
            sensitivity >= MOVED.get(self.name, 0),
            "one record moves it by more than the sensitivity stated",
        )
        if self.name == "score" and self.document["declared"]["goal"] == "effect":
            self._refuse_narrow_scores(sensitivity)
        moved = f"on what one record moves by {self.stated['sensitivity']:.6g}"
        text = f"Laplace noise of scale {self.stated['scale']:.6g} {moved}"
        return self.spends(sensitivity / self.scale, text)

    def _refuse_narrow_scores(self, sensitivity: Any) -> None:
        """Raise RefusedError where scores of records move their mean by more than is covered."""
        share = Rational(1)
        if "codebook" not in self.document["domain"]:
            share = SCORES.get(self.document["estimand"], share)
        bound = exact(self.document["settings"]["score_bound"], "the bound of scores")
        self.demand(
            sensitivity * self.n >= share * bound * (1 - _OF_A_DOUBLE),
            f"scores up to {float(bound):.6g} move their mean by more than what is stated",
        )

    def _ranges(self) -> str:
        """Two private choices for every column, each with exponential noise of its candidates."""
        chosen = sum(1 for one in self.document["ranges"] if one["chosen"] is not None)
        self.demand(chosen > 0, "nothing was chosen")
        needed = 4 * chosen * self.positive("sensitivity") / self.scale
        return self.spends(needed, f"noise on {2 * chosen} choices")

    def _mean_of_outcomes(self) -> str:
        """Theorem 8: a mean, rounded to a grid, with Laplace noise that covers its arithmetic."""
        largest = exact(self.document["domain"]["outcome_bound"], "the bound of outcomes")
        sensitivity = self.positive("sensitivity")
        self.demand(
            sensitivity >= 2 * largest * self.V / self.n,
            "V moves the mean by more than the sensitivity stated",
        )
        grid = self.stated["numerical"]
        if grid is None:
            return self.spends(sensitivity / self.scale, "noise on the mean")
        moved = sensitivity + 2 * exact(grid["tolerance"]) + Rational(2) ** grid["grid_exponent"]
        return self.spends(moved / exact(grid["scale"]), "noise on the mean")

    # Noise as a linear term of an objective whose minimizer is released.

    def _objective(self) -> list[str]:
        """Sentences of the noise in the objective, and of what hides the minimizer's arithmetic."""
        self.demand(self.stated["noise"] in ("gamma", "box"), "its noise is not read")
        gamma = self.number("gamma")
        strong_convexity = self.number("strong_convexity")
        curvature = self.n * (gamma + strong_convexity)
        is_convex = gamma >= 0 and strong_convexity >= 0 and curvature > 0
        self.demand(is_convex, "its objective is not strongly convex")
        sentences = [f"{self.name}: V = {float(self.V):.6g} is that of its weights, or more"]
        hidden = ZERO
        if self.stated["numerical"] is not None:
            hidden = 2 * self._epsilon_of_grid(self.stated["numerical"])
            told = f"the tolerance stated at epsilon = {float(hidden):.6g}"
            sentences.append(f"{self.name}: noise on the grid hides {told}")
        needed = self._needed_by_theorem(curvature, hidden)
        sentences.append(self.spends(needed + hidden, self._noise_in_words))
        return sentences

    @property
    def _noise_in_words(self) -> str:
        noise = f"{self.stated['noise']} noise of scale {self.stated['scale']:.6g}"
        return f"{noise} and ridge {self.stated['gamma']:.6g}"

    def _needed_by_theorem(self, curvature: Any, hidden: Any) -> Any:
        """Upper bound of the epsilon of noise and ridge by the theorem that is stated.

        ``curvature`` is n times the ridge with the strong convexity of the regularizer, and
        ``hidden`` is the epsilon of the noise on the grid.
        """
        sensitivity = self.positive("sensitivity")
        radius = self.positive("gradient_radius")
        k = self.positive("hessian_trace") / curvature
        a = sensitivity / self.V / self.scale
        if self.theorem in ("Theorem 1 (pure)", "Theorem 17 (box noise)"):
            return self._by_determinants(radius, k)
        if self.theorem.startswith("Theorem 15 (saturating loss"):
            return self._by_saturation(radius, sensitivity, a, k)
        if self.theorem.startswith("Theorem 19 (in a ball"):
            # epsilon = V/2 sup [a |difference of gradients| + k 4 u (1 - u)]
            available = self.epsilon - hidden
            self._refuse_beyond_ball(a, k, 2 * available / self.V)
            return available
        self.demand(self.theorem == "Theorem 27 (multinomial)", f"{self.theorem} is not read")
        # curvature epsilon >= 4 M^2 V, with the sensitivity 2^(1/2) M V of rows of the norm M
        needed_curvature = 2 * sensitivity * sensitivity / self.V
        is_covered = curvature * self.epsilon >= needed_curvature
        self.demand(is_covered, "its ridge is too small for its epsilon")
        return sensitivity / self.scale

    def _by_determinants(self, radius: Any, k: Any) -> Any:
        """Theorems 1 and 17: ``radius V / scale + p log(1 + k V / (2 p))``."""
        p = self.parameters
        return radius * self.V / self.scale + p * log(1 + k * self.V / (2 * p)).high

    def _by_saturation(self, radius: Any, sensitivity: Any, a: Any, k: Any) -> Any:
        """Theorem 15: ``V/2 (a + max_u {a u + k h(u)})`` with ``h(u) <= q (1 - u)``."""
        # the largest gradient is at least half of the diameter of all of them, which is stated
        # rounded up
        self.demand(
            sensitivity >= radius * self.V * (1 - _OF_A_SUPREMUM),
            "its sensitivity is less than V times the radius of its gradients",
        )
        return self.V / 2 * (a + max(a, self._steepness * k))

    @property
    def _steepness(self) -> int:
        """How fast the curvature of the loss falls as its slope grows (Theorem 15)."""
        declared = self.document["declared"]
        name = self.name
        if name == "theta" and declared["goal"] == "weighted":
            name = declared["second"]["name"]
        self.demand(name in LOSSES, f"the loss of {name} is not read")
        return STEEPNESS[LOSSES[name]]

    def _refuse_beyond_ball(self, a: Any, k: Any, limit: Any) -> None:
        """Raise RefusedError where noise and ridge spend more than a limit (Theorem 19)."""
        is_logistic = self._steepness == STEEPNESS["logistic"]
        self.demand(is_logistic, "a loss in a ball that is not read")
        rho = self._largest_margin()
        if self.stated["noise"] == "box":
            top = sigmoid(rho).high
            u = min((a + 4 * k) / (8 * k), top)
            holds = a * top + a * u + 4 * k * u * (1 - u) <= limit
        else:
            holds = PairsOfRecords(rho, logistic_gradients).is_below(a, k, limit)
        noise = f"noise of scale {self.stated['scale']:.6g} and ridge {self.stated['gamma']:.6g}"
        self.demand(holds, f"{noise} spend more than the epsilon stated, or it is not proved here")

    def _largest_margin(self) -> Any:
        """Bound of the margins of rows of the largest norm, by the radius that is declared."""
        declared = self.document["declared"]
        if declared["goal"] != "weighted":
            return exact(self.document["settings"]["radius"], "the radius")
        bound = exact(self.document["domain"]["covariate_bound"], "the bound of covariates")
        if self.name == "propensity":
            return bound * exact(declared["first"]["settings"]["radius"], "the radius")
        sets = declared["second"]["settings"]["theta_set"]
        self.demand(set(sets) == {"L2Ball"}, "the set of its coefficient is not read")
        return bound * exact(sets["L2Ball"]["radius"], "the radius")

    def _epsilon_of_grid(self, grid: Any) -> Any:
        """Epsilon of the noise on the grid that hides how far the minimizer is from the exact one.

        It has to cover the tolerance in the 1-norm, and a rounding to the grid.
        """
        epsilon = exact(grid["epsilon"])
        scale = exact(grid["scale"])
        self.demand(epsilon > 0 and scale > 0, "the noise on its grid is none")
        p = self.parameters
        tolerance = root(Rational(p)).high * exact(grid["tolerance"])
        moved = tolerance + p * Rational(2) ** grid["grid_exponent"]
        is_covered = scale * epsilon >= moved
        self.demand(is_covered, "the noise on its grid is too small for its tolerance")
        return epsilon

    @property
    def parameters(self) -> int:
        """Number of parameters that the step released, which the release has to list."""
        listed = {part["step"]: part["coefficient"] for part in self.document.get("nuisances", [])}
        released = listed.get(self.name)
        if released is None and self.name in ("theta", "rule"):
            released = self.document.get("theta")
        if released is None and self.name == "propensity":  # of the weights of a second stage
            intercept = 1 if self.document["domain"]["intercept"] else 0
            return len(self.document["columns"]) + intercept
        self.demand(bool(released), "the release does not list what it released")
        return len(released or ())


def least_stability(document: Any) -> Any:
    """The least that may be stated as V of the weights of a declared first stage."""
    theorem = document["guarantee"]["stability_theorem"]
    name = document["declared"]["first"]["name"]
    settings = document["declared"]["first"]["settings"]
    if name == "uniform":
        demand(theorem in FIXED, f"V of weights 1 is not by {theorem}")
        return Rational(2)
    is_read = name in ("ipw_private", "overlap_private")
    demand(is_read, f"V of {name} by {theorem} is not read")
    # weights of one normalization, functions of margins from -M R to M R: V is twice the largest
    radius = exact(settings["radius"], "the radius")
    reach = exact(document["domain"]["covariate_bound"]) * radius
    n = exact(document["n_samples"])
    least = 1 + exp(-reach).low
    largest = 1 + exp(reach).high
    if settings.get("trim", "inf") != "inf":
        largest = min(largest, exact(settings["trim"], "the trim"))
    return 2 * n / (1 + (n - 1) * least / largest) * (1 - _OF_A_DOUBLE)


def check_release(document: Any) -> tuple[list[str], list[str]]:
    """Check a release; returns what was checked, and what was not."""
    _refuse_unread_release(document)
    before = document["declared"].get("before", {})
    checked = []
    spent = ZERO
    for stated in document["steps"]:
        step = StatedStep(stated, document)
        checked += step.checked()
        if step.name in before:
            owner = before[step.name]["of"]
            checked.append(f"{step.name}: was released before, by {owner}, and is not paid again")
        else:
            spent += step.epsilon
    checked.append(_check_sum(document, spent))
    return checked, _not_checked(document)


def _refuse_unread_release(document: Any) -> None:
    """Raise RefusedError for a release whose layout, promise or weights are not read."""
    version = document.get("schema_version")
    demand(version == RELEASE_SCHEMA, f"releases of schema version {version} are not read")
    guarantee = document["guarantee"]
    standing = guarantee["standing"]
    demand(standing in PROMISED, f"the release says of itself that it is {standing}")
    demand(
        exact(guarantee["delta"]) == 0,
        "the guarantee has a delta: other accountants than pure sums are not read",
    )
    is_weighted = document["declared"]["goal"] == "weighted"
    theorem = guarantee["stability_theorem"]
    demand(is_weighted or theorem in FIXED, f"V of weights by {theorem} is not read")
    demand(bool(document["steps"]), "the release states no step")
    has_theta = any(stated["step"] == "theta" for stated in document["steps"])
    demand(has_theta is is_weighted, "the steps are not those of what was declared")


def _check_sum(document: Any, spent: Any) -> str:
    """Check what steps spend against the guarantee and the budget; returns the sentence of it."""
    declared = document["declared"]
    epsilon = exact(document["guarantee"]["epsilon"])
    stated = f"the guarantee states {float(epsilon):.10g}"
    text = f"the steps spend {float(spent):.10g} together, and {stated}"
    demand(spent <= epsilon, text)
    spent_before = total(exact(one["epsilon"]) for one in declared.get("before", {}).values())
    budget = exact(declared["budget"]["epsilon"])
    is_within = epsilon + spent_before <= budget * (1 + _OF_A_SUPREMUM)
    demand(is_within, "the guarantee is above the budget that is declared")
    return text


def _not_checked(document: Any) -> list[str]:
    """What this file does not check of a release."""
    guarantee = document["guarantee"]
    sentences = []
    if guarantee["standing"] != "private":
        sentences.append(
            f"the condition that the release states of itself: {guarantee['standing']}"
        )
    sentences += [
        "that estimates, intervals and texts follow from the released numbers, as dp2erm verify "
        "checks",
        "that the constants of each step (gradients, curvature, sensitivity) are those of its loss",
        "that the noise was drawn, freshly and by the law stated, and that solvers kept their "
        "tolerances",
        "that the records are of the domain declared, and every record is one person's",
        f"that these assumptions hold: {'; '.join(guarantee['assumptions'])}",
        "other releases from the same records",
    ]
    if document["domain"].get("released") is not None:
        sentences.append(
            "the release of ranges that the domain rests on, whose epsilon is to be added"
        )
    return sentences


def check_charge(document: Any, path: str) -> str:
    """Check that a ledger has a charge as large as a release; returns the sentence of it."""
    guarantee = document["guarantee"]
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
            charges = ledger.execute("SELECT epsilon, delta, unit FROM charges").fetchall()
    except sqlite3.Error:
        raise RefusedError(f"{path} is no ledger that can be read") from None
    unit = guarantee["unit"] or "records"
    spent = exact(guarantee["epsilon"])
    charged = [
        exact(float(epsilon))
        for epsilon, delta, who in charges
        if who == unit and float(delta) == 0
    ]
    amount = f"epsilon = {float(spent):.10g}"
    demand(spent in charged, f"no charge of {path} is the {amount} of the release, for {unit}")
    return f"{path} charged {amount} for {unit}"


# --- 8. The command ------------------------------------------------------------------------------

#: Forms of certificates, and what checks them.
FORMS: Mapping[str, Callable[[Any], list[str]]] = {
    "sum over records": check_margins,
    "weights as the variable": check_weights,
    "bound of a scheme": check_bound,
}
#: What no certificate shows, for its reader.
BESIDE_CERTIFICATES = (
    "that the problem stated is the one that somebody needs, and its numbers are those of his "
    "records",
    "how the numbers of the problem were made of raw data: units, ranges, balance functions, "
    "offsets",
)
#: What a file raises that is laid out in another way.
NOT_LAID_OUT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def digest(document: Any) -> str:
    """SHA-256 of all entries but the digest, in one order and layout."""
    rest = {name: entry for name, entry in document.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_certificate(document: Any) -> list[str]:
    """Check one certificate; returns what was checked."""
    unchanged = document.get("digest") == digest(document)
    demand(unchanged, "the digest is not that of the entries: something was changed")
    form = document.get("form")
    demand(form in FORMS, f"the form {form!r} is not read by this file")
    return FORMS[form](document)


def check_certificates(document: Any) -> list[str]:
    """Check all certificates of a file; returns what was checked."""
    demand(document.get("format") == CERTIFICATE, "the file is of no format that is read here")
    version = document.get("schema_version")
    demand(version == CERTIFICATE_SCHEMA, f"certificates of schema version {version} are not read")
    demand(bool(document.get("certificates")), "the file holds no certificate")
    checked = []
    for number, one in enumerate(document["certificates"], 1):
        try:
            sentences = check_certificate(one)
        except RefusedError as error:
            raise RefusedError(f"certificate {number}: {error}") from None
        except NOT_LAID_OUT:
            raise RefusedError(f"certificate {number} is not laid out as such files are") from None
        name = f"certificate {number} ({one.get('program')}, {one.get('solver')})"
        checked += [f"{name}: {sentence}" for sentence in sentences]
    return checked


def check(document: Any) -> tuple[list[str], list[str]]:
    """Check a document; returns what was checked, and what was not.

    Raises RefusedError where something does not follow.
    """
    demand(isinstance(document, dict), "the file holds no JSON object")
    if "guarantee" not in document or "steps" not in document:
        return check_certificates(document), list(BESIDE_CERTIFICATES)
    try:
        return check_release(document)
    except NOT_LAID_OUT:
        raise RefusedError("the release is not laid out as such files are") from None


def main(arguments: Sequence[str]) -> int:
    """Check the file that is named; prints what was checked and what was not, and returns 0 or 1.

    A second name is that of a ledger, in which a charge of the release is looked for.
    """
    if len(arguments) not in (1, 2):
        print("usage: python checker.py FILE [LEDGER]")
        return 1
    try:
        with open(arguments[0], encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError):
        print(f"REFUSED: {arguments[0]} is no file of JSON that can be read")
        return 1
    try:
        checked, beside = check(document)
        if len(arguments) == 2:
            demand("guarantee" in document, "a ledger is for a release alone")
            checked.append(check_charge(document, arguments[1]))
    except RefusedError as error:
        print(f"REFUSED: {error}")
        return 1
    print("ACCEPTED")
    for title, sentences in (("Checked", checked), ("Not checked", beside)):
        print(f"{title}:")
        for sentence in sentences:
            print(f"- {sentence}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
