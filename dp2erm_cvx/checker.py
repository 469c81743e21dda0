"""Check a certificate or a release in exact arithmetic, without this package: ``python checker.py
FILE``.

The file imports the standard library alone (and python-flint, where it is installed, for speed),
and is meant to be read. Doubles of the JSON are exact rationals here. Exponentials, logarithms and
roots are enclosed between two rationals, by series whose remainders are bounded. A claim is
accepted only where it follows.

*A certificate* states a problem number by number, a point, multipliers, and a claim: that the point
is within a radius of the exact minimizer. It is checked by one theorem, whatever solver found the
point.

**Theorem.** Let F be convex on a convex set C with the minimizer v*, let x be in C, and T > 0. Let
every y of C with ``|y - x| <= T`` have ``F(y) >= F(x) + <r, y - x> - eps + m/2 |y - x|^2``, and let
F less ``m/2 |. - x|^2`` be convex on every segment from x to such a y. If ``m T^2 > |r|_* T +
eps``, with the dual norm of r, then ``|x - v*| < T``.

*Proof.* Else the segment from x to v* has a y with ``|y - x| = T``. Along it F falls up to v*, so
that its slope at y is at most 0, and ``F(x) >= F(y) + m/2 T^2``. Add the first inequality: ``0 >=
-|r|_* T - eps + m T^2``.

*A release* states what every step spent. Its chain is followed from the constants of each step to
V, to the scale of the noise, and to the budget, for steps of pure differential privacy. What is not
checked is printed.
"""

import contextlib
import hashlib
import json
import math
import sqlite3
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any


def _rationals() -> Any:
    """The class of rational numbers."""
    try:
        from flint import fmpq
    except ImportError:
        return Fraction
    return fmpq


Rational = _rationals()

#: Layouts that are read.
CERTIFICATE, CERTIFICATE_SCHEMA, RELEASE_SCHEMA = "dp2erm-cvx certificate", 1, 4
#: Significant bits that ends of enclosures are rounded to, outward.
BITS = 256


class RefusedError(Exception):
    """A claim that does not follow, or a form that is not read; its text is one sentence."""


def demand(holds: bool, sentence: str) -> None:
    """Refuse with a sentence where something does not hold."""
    if not holds:
        raise RefusedError(sentence)


# --- Rationals, and enclosures between two of them
# ----------------------------------------------------------


def exact(number: Any, name: str = "a number") -> Any:
    """The rational that a finite number of the JSON is; raises RefusedError for anything else."""
    usable = (
        isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
    )
    demand(usable, f"{name} is no finite number")
    return Rational(*number.as_integer_ratio())


def vector(numbers: Any, name: str, size: int | None = None) -> list[Any]:
    """The rationals of a list; raises RefusedError for another length than ``size``."""
    demand(isinstance(numbers, list), f"{name} is no list")
    demand(size is None or len(numbers) == size, f"{name} has another length than {size}")
    return [exact(number, f"an entry of {name}") for number in numbers]


def dot(first: Iterable[Any], second: Iterable[Any]) -> Any:
    """The sum of products, exactly."""
    return sum((x * y for x, y in zip(first, second, strict=True)), Rational(0))


def below(number: Any) -> Any:
    """A rational of at most BITS significant bits that is at most the number."""
    top, bottom = int(number.numerator), int(number.denominator)
    shift = BITS - (top.bit_length() - bottom.bit_length())
    if shift >= 0:
        return Rational((top << shift) // bottom, 1 << shift)
    return Rational((top // (bottom << -shift)) << -shift, 1)


def above(number: Any) -> Any:
    """A rational of at most BITS significant bits that is at least the number."""
    return -below(-number)


class Span:
    """All numbers from ``low`` to ``high``; sums, products and functions enclose what they may
    give.
    """

    def __init__(self, low: Any, high: Any | None = None) -> None:
        self.low = low
        self.high = low if high is None else high

    def rounded(self) -> "Span":
        """A span that holds it, whose ends have few bits."""
        return Span(below(self.low), above(self.high))

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.high + other.high)

    def __neg__(self) -> "Span":
        return Span(-self.high, -self.low)

    def __sub__(self, other: "Span") -> "Span":
        return self + -other

    def __mul__(self, other: "Span") -> "Span":
        ends = [x * y for x in (self.low, self.high) for y in (other.low, other.high)]
        return Span(min(ends), max(ends))

    def __truediv__(self, other: "Span") -> "Span":
        demand(other.low > 0 or other.high < 0, "a division by numbers around 0 has no bound")
        return self * Span(1 / other.high, 1 / other.low).rounded()

    def times(self, factor: Any) -> "Span":
        """The multiple by an exact factor."""
        return self * Span(factor)

    def monotone(self, function: Callable[[Any], "Span"], *, falls: bool = False) -> "Span":
        """Values of a function that rises, or falls, known at single rationals."""
        first, last = (self.high, self.low) if falls else (self.low, self.high)
        return Span(function(first).low, function(last).high)

    @property
    def largest_size(self) -> Any:
        """The largest size of a number of the span."""
        return max(abs(self.low), abs(self.high))


ONE = Span(Rational(1))
_WORK = 320  # fractional bits of the integers that series are summed in


def exp(number: Any) -> Span:
    """Enclosure of ``e^x``: Taylor's series at ``|x| / 2^k < 2^-8``, squared k times, or one over
    that.
    """
    demand(abs(number) < 100000, "an exponential is out of range")
    size, halvings = abs(number), 0
    while size * 256 > 2**halvings:
        halvings += 1
    x = size / 2**halvings
    step = (int(x.numerator) << _WORK) // int(x.denominator)
    low = high = term = 1 << _WORK
    bound = term
    for place in range(1, 40):
        term = term * step // place >> _WORK
        bound = (bound * (step + 1) // place >> _WORK) + 1
        low += term
        high += bound
    high += bound  # the rest of the series is less than its last term, as x < 2^-8
    for _ in range(halvings):
        low = low * low >> _WORK
        high = (high * high >> _WORK) + 1
    span = Span(Rational(low, 1 << _WORK), Rational(high, 1 << _WORK)).rounded()
    return ONE / span if number < 0 else span


def _twice_artanh(z: Any) -> Span:
    """Enclosure of ``log((1 + z) / (1 - z))`` for z in [0, 1/3]: ``2 (z + z^3/3 + ...)``."""
    step = (int(z.numerator) << _WORK) // int(z.denominator)
    low = high = 0
    power, bound = step, step + 1
    for odd in range(1, 220, 2):
        low += power // odd
        high += bound // odd + 1
        power = (power * step >> _WORK) * step >> _WORK
        bound = ((bound * (step + 1) >> _WORK) + 1) * (step + 1) // (1 << _WORK) + 1
    high += bound  # at most z^220 / (1 - z^2), and its last factor counts less than 1/220
    return Span(Rational(2 * low, 1 << _WORK), Rational(2 * high, 1 << _WORK))


_LOG_2 = _twice_artanh(Rational(1, 3)).rounded()


def log(number: Any) -> Span:
    """Enclosure of the logarithm of a rational above 0: ``log x = k log 2 + log m`` with m in [1,
    2].
    """
    demand(number > 0, "a logarithm of a number that is not above 0")
    power = int(number.numerator).bit_length() - int(number.denominator).bit_length()
    m = number / Rational(2) ** power
    if m < 1:
        power -= 1
        m *= 2
    return (_LOG_2.times(Rational(power)) + _twice_artanh((m - 1) / (m + 1))).rounded()


def root(number: Any) -> Span:
    """Enclosure of the square root of a rational of at least 0."""
    demand(number >= 0, "a root of a number below 0")
    if number == 0:
        return Span(number)
    top, bottom = int(number.numerator), int(number.denominator)
    shift = max(2 * BITS - top.bit_length() + bottom.bit_length(), 0) // 2 * 2
    whole = math.isqrt((top << shift) // bottom)
    return Span(Rational(whole, 1 << shift // 2), Rational(whole + 1, 1 << shift // 2))


def norm(numbers: Iterable[Any]) -> Span:
    """Enclosure of the Euclidean norm."""
    return root(sum((x * x for x in numbers), Rational(0)))


def spans_norm(spans: Iterable[Span]) -> Any:
    """Upper bound of the Euclidean norm of any vector in the spans."""
    return norm(above(span.largest_size) for span in spans).high


def least_eigenvalue_is(matrix: list[list[Any]], bound: Any) -> bool:
    """True if a symmetric matrix less ``bound`` times the identity has pivots above 0 alone."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        rows[k][k] -= bound
    for k in range(len(rows)):
        if not rows[k][k] > 0:
            return False
        for i in range(k + 1, len(rows)):
            share = rows[i][k] / rows[k][k]
            for j in range(k + 1, i + 1):
                rows[i][j] -= share * rows[j][k]
                rows[j][i] = rows[i][j]
    return True


# --- Functions of one number
# --------------------------------------------------------------------------------


def _sigmoid(u: Any) -> Span:
    """Enclosure of ``1 / (1 + e^-u)``."""
    return (ONE / (ONE + exp(-u))).rounded()


def _bounded(u: Any, size: Any) -> Any:
    return min(max(u, -size), size)


def slope(kind: str, k: Any, u: Any) -> Span:
    """Enclosure of the derivative of an atom at a rational: all of them rise."""
    if kind == "line":
        return ONE
    if kind == "square":
        return Span(2 * u)
    if kind == "exp":
        return exp(u)
    if kind == "logistic":
        return _sigmoid(u)
    if kind == "huber":
        return Span(2 * _bounded(u, k))
    if kind == "hinge":
        return Span(2 * max(u, Rational(0)))
    if kind == "saturating":
        size = (ONE - exp(-abs(u) / k)).times(k)
        return size if u >= 0 else -size
    raise RefusedError(
        f"the function {kind!r} is not read: no enclosure of its derivative is known here"
    )


def least_curvature(kind: str, k: Any, low: Any, high: Any) -> Any:
    """Lower bound of the second derivative of an atom over ``[low, high]``."""
    farthest = max(abs(low), abs(high))
    if kind == "square":
        return Rational(2)
    if kind == "exp":
        return exp(low).low
    if kind == "logistic":
        share = _sigmoid(-farthest)
        return (share * (ONE - share)).low
    if kind == "huber":
        return Rational(2) if farthest < k else Rational(0)
    if kind == "hinge":
        return Rational(2) if low > 0 else Rational(0)
    if kind == "saturating":
        return exp(-farthest / k).low
    return Rational(0)


def value(kind: str, k: Any, u: Any) -> Span:
    """Enclosure of an atom at a rational."""
    if kind == "line":
        return Span(u)
    if kind == "square":
        return Span(u * u)
    if kind == "exp":
        return exp(u)
    if kind == "logistic":
        span = (ONE + exp(-abs(u))).monotone(log)
        return span + Span(max(u, Rational(0)))
    if kind == "huber":
        inner = _bounded(u, k)
        return Span(inner * (2 * u - inner))
    if kind == "hinge":
        return Span(max(u, Rational(0)) ** 2)
    if kind == "saturating":
        return (exp(-abs(u) / k) - ONE).times(k * k) + Span(k * abs(u))
    raise RefusedError(
        f"the function {kind!r} is not read: no enclosure of its values is known here"
    )


class Loss:
    """A convex sum of ``coefficient * atom(scale * s + shift)``, as the JSON states it."""

    def __init__(self, parts: Any) -> None:
        demand(isinstance(parts, list) and bool(parts), "a loss has no parts")
        self.parts = []
        for part in parts:
            kind = part["atom"]
            numbers = [
                exact(part[name], name) for name in ("coefficient", "number", "scale", "shift")
            ]
            demand(
                kind == "line" or numbers[0] >= 0, "a loss with a coefficient below 0 is not convex"
            )
            demand(
                kind not in ("huber", "saturating") or numbers[1] > 0,
                "the number of an atom is not above 0",
            )
            self.parts.append((kind, *numbers))

    def slope(self, s: Any) -> Span:
        """Enclosure of the derivative at a rational margin."""
        total = Span(Rational(0))
        for kind, c, k, scale, shift in self.parts:
            total += slope(kind, k, scale * s + shift).times(c * scale)
        return total

    def least_curvature(self, s: Any, distance: Any) -> Any:
        """Lower bound of the second derivative within a distance of a margin."""
        total = Rational(0)
        for kind, c, k, scale, shift in self.parts:
            if kind != "line":
                middle, reach = scale * s + shift, abs(scale) * distance
                total += (
                    c * scale * scale * least_curvature(kind, k, middle - reach, middle + reach)
                )
        return total


def log_weight(tree: Any, s: Span) -> Span:
    """Enclosure of the logarithm of a weight, a tree of functions of the margin, over a span of
    margins.
    """
    operation, inner = tree["operation"], [log_weight(part, s) for part in tree["parts"]]
    if operation == "margin":
        return s
    if operation == "constant":
        return Span(exact(tree["number"]))
    if operation == "sum":
        return Span(
            sum((x.low for x in inner), Rational(0)), sum((x.high for x in inner), Rational(0))
        )
    if operation == "multiple":
        return inner[0].times(exact(tree["number"]))
    if operation == "minimum":
        return Span(min(x.low for x in inner), min(x.high for x in inner))
    if operation == "log":
        return inner[0].monotone(log)
    demand(operation == "atom", f"the log weight {operation!r} is not read")
    kind, k, u = tree["atom"], exact(tree["number"]), inner[0]
    if kind in ("line", "exp", "logistic", "hinge"):
        return u.monotone(lambda x: value(kind, k, x))
    # the others are even, and rise with the size
    ends = [value(kind, k, abs(x)) for x in (u.low, u.high)]
    least = Rational(0) if u.low < 0 < u.high else min(x.low for x in ends)
    return Span(least, max(x.high for x in ends))


# --- Certificates of sums over records: coefficients of weighting schemes, and second stages
# ----------------


class Region:
    """The set of a coefficient: all of space, or a ball in the 2-norm, the 1-norm or the largest
    entry.
    """

    def __init__(self, stated: Any) -> None:
        self.kind = stated["kind"]
        demand(self.kind in ("space", "l2", "l1", "box"), f"the set {self.kind!r} is not read")
        self.size = (
            exact(stated["size"], "the size of the set") if self.kind != "space" else Rational(1)
        )
        demand(self.size > 0, "the size of the set is not above 0")

    def length(self, v: Sequence[Any]) -> Span:
        """Enclosure of the norm that the set bounds."""
        if self.kind == "l2":
            return norm(v)
        sizes = [abs(x) for x in v]
        return Span(max(sizes) if self.kind == "box" else sum(sizes, Rational(0)))

    def support(self, q: Sequence[Any]) -> Any:
        """Upper bound of the largest ``<q, y>`` over the set."""
        if self.kind == "space":
            demand(not any(q), "a normal vector of all of space is not 0")
            return Rational(0)
        sizes = [abs(x) for x in q]
        if self.kind == "l2":
            return self.size * norm(q).high
        return self.size * (max(sizes) if self.kind == "l1" else sum(sizes, Rational(0)))

    def placed(self, v: list[Any], q: Sequence[Any]) -> list[Any]:
        """A point of the set near v: on its boundary where the normal vector q says that this holds
        it.
        """
        if self.kind == "space":
            return v
        if self.kind == "box":
            inside = [_bounded(x, self.size) for x in v]
            return [
                x if not n else self.size if n > 0 else -self.size
                for x, n in zip(inside, q, strict=True)
            ]
        length = self.length(v).high
        if length <= self.size and not any(q):
            return v
        demand(length > 0, "a normal vector is stated at the origin, inside of the set")
        share = self.size / length if self.kind == "l1" else below(self.size / length)
        return [x * share for x in v]


class MarginProblem:
    """``sum m_i phi(<z_i, v> - o_i) + ridge/2 |v|^2 + <linear, v> + sum l1_k |v_k|`` over a set of
    v.

    With "log of exponentials", ``n log sum exp(<z_i, v> - o_i)`` stands for the sum over the n
    records.
    """

    def __init__(self, stated: Any) -> None:
        self.rows = [vector(row, "a row") for row in stated["rows"]]
        n, d = len(self.rows), len(self.rows[0]) if self.rows else 0
        demand(n > 0 and d > 0, "there are no rows")
        demand(all(len(row) == d for row in self.rows), "rows are of several lengths")
        self.n, self.dimension = n, d
        self.offsets = self._of_records(stated, "offsets", 0)
        self.factors = self._of_records(stated, "multipliers", 1)
        demand(min(self.factors) >= 0, "a multiplier of a loss is below 0")
        self.base = self._of_records(stated, "base", 1)
        demand(min(self.base) > 0, "a base of a weight is not above 0")
        self.arms = stated["arm"]
        if self.arms is not None:
            demand(
                len(self.arms) == n and set(self.arms) <= {0, 1},
                "an arm of a record is neither 0 nor 1",
            )
        self.summed = stated["sum"]
        demand(
            self.summed in ("plain", "log of exponentials"), f"the sum {self.summed!r} is not read"
        )
        counted = self.summed == "plain" or stated["multipliers"] is None
        demand(counted, "a sum of exponentials with multipliers is not read")
        self.losses = [Loss(parts) for parts in stated["losses"]]
        self.ridge = exact(stated["ridge"], "the ridge")
        demand(self.ridge >= 0, "the ridge is below 0")
        self.linear = [Rational(0)] * d
        if stated["linear"] is not None:
            self.linear = vector(stated["linear"], "the linear term", d)
        l1 = stated["l1"]
        self.prices = (
            vector(l1, "the prices", d) if isinstance(l1, list) else [exact(l1, "the price")] * d
        )
        demand(min(self.prices) >= 0, "a price of a size is below 0")
        self.set = Region(stated["set"])
        self.log_weights, self.arm_total = stated["log_weights"], stated["arm_total"]

    def _of_records(self, stated: Any, name: str, otherwise: int) -> list[Any]:
        if stated[name] is None:
            return [Rational(otherwise)] * self.n
        return vector(stated[name], name, self.n)

    def of_arm(self, each: Sequence[Any], record: int) -> Any:
        """What belongs to the arm of a record, or to all of them."""
        demand(
            len(each) == 1 or (len(each) == 2 and self.arms is not None),
            "there are losses of unknown arms",
        )
        return each[0] if len(each) == 1 else each[self.arms[record]]

    def margins(self, v: Sequence[Any]) -> list[Any]:
        """``<z_i, v> - o_i``, exactly."""
        return [dot(row, v) - o for row, o in zip(self.rows, self.offsets, strict=True)]

    def gradient(self, v: Sequence[Any]) -> list[Span]:
        """Enclosure of the gradient of all but the sizes of v."""
        margins = self.margins(v)
        if self.summed == "plain":
            pulls = [
                self.of_arm(self.losses, i).slope(s).times(self.factors[i])
                for i, s in enumerate(margins)
            ]
        else:
            top = max(margins)
            parts = [exp(s - top) for s in margins]
            total = Span(
                sum((x.low for x in parts), Rational(0)), sum((x.high for x in parts), Rational(0))
            )
            pulls = [(part / total).times(Rational(self.n)) for part in parts]
        pulls = [pull.rounded() for pull in pulls]
        gradient = []
        for k in range(self.dimension):
            low = high = self.ridge * v[k] + self.linear[k]
            for row, pull in zip(self.rows, pulls, strict=True):
                z = row[k]
                low += z * (pull.low if z >= 0 else pull.high)
                high += z * (pull.high if z >= 0 else pull.low)
            gradient.append(Span(low, high))
        return gradient

    def curvature_is(self, bound: Any, v: Sequence[Any], distance: Any) -> bool:
        """True if no Hessian within a distance of v has an eigenvalue of ``bound`` or less."""
        if bound <= self.ridge:
            return bool(bound > 0)
        if self.summed != "plain":
            return False
        weights = []
        for i, s in enumerate(self.margins(v)):
            reach = norm(self.rows[i]).high * distance
            weights.append(
                self.factors[i] * below(self.of_arm(self.losses, i).least_curvature(s, reach))
            )
        d = self.dimension
        matrix = [[Rational(0)] * d for _ in range(d)]
        for row, weight in zip(self.rows, weights, strict=True):
            for i in range(d):
                scaled = weight * row[i]
                for j in range(i + 1):
                    matrix[i][j] += scaled * row[j]
        for i in range(d):
            matrix[i][i] += self.ridge
            for j in range(i):
                matrix[j][i] = matrix[i][j]
        return least_eigenvalue_is(matrix, bound)

    def weights(self, v: Sequence[Any], radius: Any) -> list[Span]:
        """Enclosures of all weights at every coefficient within a radius of v."""
        logs = []
        for i, s in enumerate(self.margins(v)):
            reach = norm(self.rows[i]).high * radius
            tree = self.of_arm(self.log_weights, i)
            logs.append(log_weight(tree, Span(s - reach, s + reach)).rounded())
        top = max(span.high for span in logs)
        # every weight over the same power of e, which cancels
        plain = [Span(exp(span.low - top).low, exp(span.high - top).high) for span in logs]
        plain = [span.times(b) for span, b in zip(plain, self.base, strict=True)]
        if self.arm_total is not None:
            plain = self._over_sums_of_arms(plain, top)
        low, high = (sum((getattr(x, end) for x in plain), Rational(0)) for end in ("low", "high"))
        n = Rational(self.n)
        return [Span(n * x.low / high, n * x.high / low) for x in plain]

    def _over_sums_of_arms(self, plain: list[Span], top: Any) -> list[Span]:
        """Weights over the sum of their arm, or over n times the total where that is more."""
        demand(self.arms is not None, "weights are normalized by unknown arms")
        least = exp(-top).times(exact(self.arm_total) * self.n)
        divisors = []
        for arm in (0, 1):
            own = [x for x, a in zip(plain, self.arms, strict=True) if a == arm]
            low, high = (
                sum((getattr(x, end) for x in own), Rational(0)) for end in ("low", "high")
            )
            divisors.append(Span(max(low, least.low), max(high, least.high)))
        return [(x / divisors[a]).rounded() for x, a in zip(plain, self.arms, strict=True)]


class Evidence:
    """What a proof states about a point x near the claimed one: its residual, and what is
    missing.
    """

    def __init__(self, problem: MarginProblem, proof: Any) -> None:
        d = problem.dimension
        normal = (
            [Rational(0)] * d
            if proof["normal"] is None
            else vector(proof["normal"], "the normal vector", d)
        )
        slopes = (
            [Rational(0)] * d
            if proof["slopes"] is None
            else vector(proof["slopes"], "the slopes", d)
        )
        allowed = all(abs(u) <= price for u, price in zip(slopes, problem.prices, strict=True))
        demand(allowed, "a slope of a size is larger than its price")
        self.problem = problem
        self.x = problem.set.placed(vector(proof["at"], "the point of the proof", d), normal)
        sizes = sum(
            (price * abs(y) for price, y in zip(problem.prices, self.x, strict=True)), Rational(0)
        )
        self.missing = (
            problem.set.support(normal) - dot(normal, self.x) + sizes - dot(slopes, self.x)
        )
        gradient = problem.gradient(self.x)
        self.residual = spans_norm(
            g + Span(u + q) for g, u, q in zip(gradient, slopes, normal, strict=True)
        )

    def distance(self, point: Sequence[Any]) -> Any:
        """Upper bound of the distance of a point to x."""
        return norm(p - y for p, y in zip(point, self.x, strict=True)).high

    def proves(self, point: Sequence[Any], radius: Any, curvature: Any) -> bool:
        """True if the theorem proves that the point is within the radius of the minimizer."""
        distance = radius - self.distance(point)
        if not distance > 0:
            return False
        if not curvature * distance * distance > self.residual * distance + self.missing:
            return False
        return self.problem.curvature_is(curvature, self.x, distance)


def proved_weights(
    problem: MarginProblem, point: Sequence[Any], radius: Any, weights: Sequence[Any]
) -> Any:
    """Upper bound of the distance in the 1-norm of weights to those of the exact minimizer."""
    spans = problem.weights(point, radius)
    return sum(
        (max(abs(w - s.low), abs(w - s.high)) for w, s in zip(weights, spans, strict=True)),
        Rational(0),
    )


def check_margins(document: Any) -> list[str]:
    """Check a certificate of a sum over records; returns what was checked."""
    problem, claim = MarginProblem(document["problem"]), document["claim"]
    checked = []
    records, made = document["records"], document["rows_are"]
    if made is not None:
        demand(made in ("x", "(2a - 1) x"), f"rows {made!r} are not read")
        signs = [1 if made == "x" else 2 * a - 1 for a in records["a"]]
        covariates = [vector(x, "the covariates of a record") for x in records["x"]]
        same = [
            [sign * e for e in x] for sign, x in zip(signs, covariates, strict=True)
        ] == problem.rows
        demand(same, f"the rows of the problem are not {made} of the records")
        checked.append(f"every row of the problem is {made} of its record")
    point, radius = (
        vector(document["point"], "the point", problem.dimension),
        exact(claim["radius"]),
    )
    evidence = Evidence(problem, document["proof"])
    proved = evidence.proves(point, radius, exact(document["proof"]["curvature"], "the curvature"))
    demand(
        proved,
        f"it does not follow that the point is within {claim['radius']:.3g} of the minimizer",
    )
    checked.append(
        f"the point is within {claim['radius']:.3g} of the exact minimizer of the problem stated"
    )
    if claim["weights"] is not None:
        demand(problem.log_weights is not None, "weights are claimed of a problem that states none")
        weights = vector(claim["weights"], "the weights", problem.n)
        distance = proved_weights(problem, point, radius, weights)
        text = f"within {claim['weights_radius']:.3g} in all of those of the exact minimizer"
        demand(
            distance <= exact(claim["weights_radius"]),
            f"it does not follow that the weights are {text}",
        )
        checked.append(f"the {problem.n} weights are {text}")
    return checked


# --- Certificates of weights that are the variable
# ----------------------------------------------------------


def dispersion_slope(kind: str, k: Any, t: Any) -> Span:
    """Enclosure of the derivative of a function of one weight: ``t log t`` is "entropy", ``-log t``
    "log".
    """
    if kind == "entropy":
        return log(t) + ONE
    if kind == "log":
        demand(t > 0, "a logarithm of a weight that is not above 0")
        return Span(-1 / t)
    if kind == "power":
        sign = -1 if 0 < k < 1 else 1
        return log(t).times(k - 1).monotone(exp).times(sign * k)
    if kind == "size":
        demand(t != 0, "a weight is at the kink of its dispersion")
        return Span(Rational(1 if t > 0 else -1))
    return slope(kind, k, t)


def dispersion_curvature(kind: str, k: Any, low: Any, high: Any) -> Any:
    """Lower bound of the second derivative of a function of one weight over ``[low, high]``."""
    if kind == "entropy" and high > 0:
        return 1 / high
    if kind == "log" and high > 0:
        return 1 / (high * high)
    if kind == "power" and low > 0:
        ends = [log(t).times(k - 2).monotone(exp).low for t in (low, high)]
        return abs(k * (k - 1)) * min(ends)
    if kind in ("square", "huber"):
        return least_curvature(kind, k, low, high)
    return Rational(0)


class Dispersion:
    """A convex sum of ``scale * atom(factor * w + offset)``, the same for every weight."""

    def __init__(self, parts: Any) -> None:
        demand(isinstance(parts, list) and bool(parts), "a dispersion has no parts")
        self.parts = []
        for part in parts:
            numbers = [exact(part[name], name) for name in ("scale", "number", "factor", "offset")]
            convex = part["atom"] == "line" or numbers[0] > 0
            demand(convex, "a part of a dispersion with a scale below 0 is not convex")
            demand(
                part["atom"] != "huber" or numbers[1] > 0, "the knee of a dispersion is not above 0"
            )
            self.parts.append((part["atom"], *numbers))

    def slope(self, w: Any) -> Span:
        """Enclosure of the derivative at a weight."""
        total = Span(Rational(0))
        for kind, scale, k, factor, offset in self.parts:
            total += dispersion_slope(kind, k, factor * w + offset).times(scale * factor)
        return total

    def least_curvature(self, low: Any, high: Any) -> Any:
        """Lower bound of the second derivative over an interval of weights."""
        total = Rational(0)
        for kind, scale, k, factor, offset in self.parts:
            ends = sorted((factor * low + offset, factor * high + offset))
            total += scale * factor * factor * dispersion_curvature(kind, k, *ends)
        return total


class Price:
    """What an imbalance m costs: ``f(r) = factor * huber(max(r - tolerance, 0), knee)``, or ``price
    * r``.

    The size r is that of every entry, or of what it is above 0, or the Euclidean norm, or the
    largest entry. The Moreau envelope with a number e is ``min_u price(u) + |u - m|^2 / (2 e)``.
    """

    def __init__(self, stated: Any) -> None:
        self.columns = range(*stated["columns"])
        self.norm, self.sided = stated["norm"], stated["sided"]
        demand(
            self.norm in ("entries", "euclidean", "largest"),
            f"a price of the norm {self.norm!r} is not read",
        )
        self.kink = None if stated["price"] is None else exact(stated["price"], "the price")
        self.factor = (
            Rational(0) if stated["factor"] is None else exact(stated["factor"], "the factor")
        )
        self.tolerances = vector(stated["tolerances"], "the tolerances", len(self.columns))
        self.knee = None if stated["knee"] is None else exact(stated["knee"], "the knee")
        self.envelope = exact(stated["envelope"], "the number of the envelope")
        numbers = [self.factor, self.envelope, *self.tolerances, self.kink or Rational(0)]
        demand(min(numbers) >= 0, "a number of a price is below 0")
        demand(self.kink is not None or self.factor > 0, "a price has no factor")
        demand(self.knee is None or self.knee > 0, "the knee of a price is not above 0")
        demand(
            self.kink is None or not any(self.tolerances), "a kink beyond a tolerance is not read"
        )
        single = self.norm == "entries" or (len(set(self.tolerances)) <= 1 and not self.sided)
        demand(single, "a price of a norm of one side, or beyond several tolerances, is not read")

    def excess(self, m: Sequence[Any], slopes: Sequence[Any]) -> Any:
        """How much the plane of these slopes at m exceeds the price anywhere, at most (Fenchel and
        Young).

        That is ``price(m) + conjugate(slopes) - <slopes, m>``; what holds of a price at ``u = m - e
        slopes`` holds of its envelope at m.
        """
        u = [x - self.envelope * y for x, y in zip(m, slopes, strict=True)]
        sizes = [max(x, Rational(0)) if self.sided else abs(x) for x in u]
        steep = [abs(y) for y in slopes]
        demand(not self.sided or min(slopes) >= 0, "a slope of a price of one side is below 0")
        tolerances = self.tolerances
        if self.norm != "entries":
            tolerances = tolerances[:1]
            largest = self.norm == "largest"
            sizes = [max(sizes) if largest else norm(sizes).high]
            steep = [sum(steep, Rational(0)) if largest else norm(steep).high]
        total = -dot(slopes, u)
        for r, y, t in zip(sizes, steep, tolerances, strict=True):
            total += self._of_size(r, t) + self._conjugate(y, t)
        return total

    def _of_size(self, r: Any, tolerance: Any) -> Any:
        """The price of a size."""
        if self.kink is not None:
            return self.kink * r
        beyond = max(r - tolerance, Rational(0))
        near = beyond if self.knee is None else min(beyond, self.knee)
        return self.factor * near * (2 * beyond - near)

    def _conjugate(self, y: Any, tolerance: Any) -> Any:
        """The largest ``y r - f(r)`` over sizes r."""
        if self.kink is not None:
            demand(y <= self.kink, "a slope is larger than the price of its kink")
            return Rational(0)
        steepest = self.knee is None or y <= 2 * self.factor * self.knee
        demand(steepest, "a slope is larger than any of its price")
        return y * tolerance + y * y / (4 * self.factor)


class WeightProblem:
    """``sum_i d_i phi(w_i / d_i) + c_i w_i`` and prices of ``sum_i w_i z_i - t``, over boxes and
    sums.
    """

    def __init__(self, stated: Any) -> None:
        self.low, self.cap = (vector(stated[name], name) for name in ("low", "cap"))
        n = len(self.low)
        demand(n > 0 and len(self.cap) == n, "there are no boxes of the weights")
        self.n = n
        self.targets = vector(stated["targets"], "the targets")
        self.rows = [vector(row, "a row", len(self.targets)) for row in stated["rows"]]
        self.linear = vector(stated["linear"], "the linear term", n)
        self.base = (
            [Rational(1)] * n if stated["base"] is None else vector(stated["base"], "the bases", n)
        )
        demand(
            len(self.rows) == n and min(self.base) > 0, "rows or bases are not those of the records"
        )
        self.dispersion = Dispersion(stated["dispersion"])
        self.prices = [Price(one) for one in stated["prices"]]
        columns = [column for one in self.prices for column in one.columns]
        demand(
            columns == list(range(len(self.targets))), "prices are not of all imbalances, each once"
        )
        self.blocks = [(one["members"], exact(one["total"], "a sum")) for one in stated["blocks"]]
        members = [i for block, _ in self.blocks for i in block]
        demand(len(set(members)) == len(members), "a record is in two blocks")
        demand(set(members) <= set(range(n)), "a block holds a record that is none")
        ordered = all(low <= cap for low, cap in zip(self.low, self.cap, strict=True))
        demand(ordered, "a box of a weight is empty")
        rest = set(range(n)) - set(members)
        demand(all(self.low[i] == self.cap[i] for i in rest), "a weight in no block is free")

    def placed(self, weights: Sequence[Any]) -> list[Any]:
        """Weights in their boxes with the sums of their blocks: the freest one takes what is
        missing.
        """
        w = [min(max(x, a), b) for x, a, b in zip(weights, self.low, self.cap, strict=True)]
        for members, total in self.blocks:
            missing = total - sum((w[i] for i in members), Rational(0))
            if missing == 0:
                continue
            free = max(members, key=lambda i: min(w[i] - self.low[i], self.cap[i] - w[i]))
            w[free] += missing
            demand(self.low[free] <= w[free] <= self.cap[free], "the sum of a block is not met")
        return w

    def residual(
        self, w: Sequence[Any], slopes: Sequence[Any], multipliers: Sequence[Any]
    ) -> tuple[Any, Any]:
        """The largest size of what is left of the slopes at weights w, and what planes exceed
        prices by.
        """
        m = [
            dot(w, column) - t
            for column, t in zip(zip(*self.rows, strict=True), self.targets, strict=True)
        ]
        excess = Rational(0)
        for one in self.prices:
            excess += one.excess([m[k] for k in one.columns], [slopes[k] for k in one.columns])
        left = Rational(0)
        for (members, _), multiplier in zip(self.blocks, multipliers, strict=True):
            for i in members:
                if self.low[i] == self.cap[i]:
                    continue
                rest = dot(self.rows[i], slopes) + self.linear[i] + multiplier
                span = self.dispersion.slope(w[i] / self.base[i]) + Span(rest)
                if w[i] > self.low[i]:  # else the weight cannot fall, and a slope above 0 holds it
                    left = max(left, span.high)
                if w[i] < self.cap[i]:
                    left = max(left, -span.low)
        return above(left), above(excess)

    def response(self, w: Sequence[Any], distance: Any) -> Any:
        """Upper bound of ``sum_i 1 / phi_i''`` over all weights within a distance of w."""
        total = Rational(0)
        for i, d in enumerate(self.base):
            if self.low[i] < self.cap[i]:
                low, high = max(w[i] - distance, self.low[i]), min(w[i] + distance, self.cap[i])
                curvature = below(self.dispersion.least_curvature(low / d, high / d)) / d
                demand(curvature > 0, "a weight has no curvature near by")
                total += above(1 / curvature)
        return total


class WeightEvidence:
    """What a proof states about weights near the claimed ones, by the theorem in the 1-norm.

    The sum of ``phi_i''`` times squares of changes is at least the square of their 1-norm over the
    response, by Cauchy and Schwarz: so m is one over the response, and the dual norm of the
    residual its largest entry.
    """

    def __init__(self, problem: WeightProblem, proof: Any) -> None:
        self.problem = problem
        self.w = problem.placed(vector(proof["weights"], "the weights of the proof", problem.n))
        slopes = vector(proof["slopes"], "the slopes", len(problem.targets))
        multipliers = vector(proof["multipliers"], "the multipliers", len(problem.blocks))
        self.residual, self.excess = problem.residual(self.w, slopes, multipliers)

    def distance(self, point: Sequence[Any]) -> Any:
        """The distance of weights to those of the proof, in the 1-norm."""
        return sum((abs(x - y) for x, y in zip(point, self.w, strict=True)), Rational(0))

    def proves(self, point: Sequence[Any], radius: Any) -> bool:
        """True if the theorem proves that the point is within the radius of the minimizer."""
        distance = radius - self.distance(point)
        if not distance > 0:
            return False
        needed = (self.residual * distance + self.excess) * self.problem.response(self.w, distance)
        return bool(distance * distance > needed)


def check_weights(document: Any) -> list[str]:
    """Check a certificate of weights that are the variable; returns what was checked."""
    problem, radius = WeightProblem(document["problem"]), document["claim"]["radius"]
    evidence = WeightEvidence(problem, document["proof"])
    point = vector(document["point"], "the weights", problem.n)
    text = f"within {radius:.3g} in all of those of the exact minimizer of the problem stated"
    demand(evidence.proves(point, exact(radius)), f"it does not follow that the weights are {text}")
    return [f"the {problem.n} weights are {text}"]


# --- Pairs of records, and V of declared constants
# ----------------------------------------------------------


def _floor(number: Any) -> int:
    """The largest whole number that is at most a rational."""
    return int(number.numerator) // int(number.denominator)


class PairsOfRecords:
    """Two records at one coefficient: their margins ``rho m`` and ``rho m'``, and their gradients y
    and y'.

    Rows have the norm 1, so that a gradient is ``y m`` along the coefficient and ``y c`` across it,
    with ``c = sqrt(1 - m^2)``. Across they are opposite at worst, and ``sqrt((y m - y' m')^2 + (|y|
    c + |y'| c')^2)`` apart. At given margins a shorter coefficient leaves them nearer: rho is the
    largest length. The square [-1, 1]^2 of m and m' is cut into cells until each of them is below a
    total. Whole numbers in units of ``2^-_UNIT`` are rounded outward.

    Parameters
    ----------
    rho
        Largest length of the coefficient.
    gradients
        Encloses all y of an interval of margins.
    """

    #: Parts by which a diameter is lowered, and cells that each attempt may take.
    PARTS, MOST = (20, 200, 1000), 4_000
    _UNIT, _FIRST = 60, 5

    def __init__(self, rho: Any, gradients: Callable[[Any, Any], Span]) -> None:
        demand(rho > 0, "the radius of margins is not above 0")
        self.rho, self.gradients = rho, gradients
        self._known: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}

    def _cell(self, place: int, depth: int) -> tuple[int, int, int, int, int]:
        """Ends of m and of y, and the largest c, on a cell of [-1, 1] that is cut in half ``depth``
        times.
        """
        found = self._known.get((place, depth))
        if found is None:
            ends = [Rational(2 * at, 1 << depth) - 1 for at in (place, place + 1)]
            y = self.gradients(self.rho * ends[0], self.rho * ends[1])
            nearest = Rational(0) if ends[0] <= 0 <= ends[1] else min(abs(end) for end in ends)
            across = root(1 - nearest * nearest).high
            unit = 1 << self._UNIT
            m = [_floor(end * unit) for end in ends]
            found = (
                m[0],
                m[1] + 1,
                _floor(y.low * unit),
                _floor(y.high * unit) + 1,
                _floor(across * unit) + 1,
            )
            self._known[place, depth] = found
        return found

    def is_below(self, a: Any, k: Any, total: Any, most: int = 400_000) -> bool:
        """True if ``a`` times the distance and ``4 k y (1 - y)`` are at most a total, for all
        pairs.

        False where it is not, and where more than ``most`` cells would be looked at.
        """
        unit = 1 << self._UNIT
        steep, bent, allowed = (
            _floor(a * unit) + 1,
            _floor(k * unit) + bool(k),
            _floor(total * unit),
        )
        side = range(1 << self._FIRST)
        cells = [(i, j, self._FIRST) for i in side for j in side]
        count = 0
        while cells:
            i, j, depth = cells.pop()
            count += 1
            if count > most:
                return False
            bound = steep * self._apart(i, j, depth)
            if bent:
                bound += bent * self._curved(i, depth)
            if bound > allowed << self._UNIT:
                cells += [(2 * i + p, 2 * j + q, depth + 1) for p in (0, 1) for q in (0, 1)]
        return True

    def _apart(self, i: int, j: int, depth: int) -> int:
        """Upper bound of the distance on a cell."""
        m_low, m_high, y_low, y_high, c = self._cell(i, depth)
        n_low, n_high, z_low, z_high, d = self._cell(j, depth)
        first = (y_low * m_low, y_low * m_high, y_high * m_low, y_high * m_high)
        second = (z_low * n_low, z_low * n_high, z_high * n_low, z_high * n_high)
        along = max(max(first) - min(second), max(second) - min(first), 0)
        across = max(-y_low, y_high) * c + max(-z_low, z_high) * d
        return (math.isqrt(along * along + across * across) >> self._UNIT) + 2

    def _curved(self, i: int, depth: int) -> int:
        """Upper bound of ``4 y (1 - y)`` on a cell, of y in [0, 1]."""
        _, _, low, high, _ = self._cell(i, depth)
        half = 1 << self._UNIT - 1
        y = min(max(half, low), high)
        return (4 * y * (2 * half - y) >> self._UNIT) + 1

    def diameter(self) -> Any:
        """Upper bound of the distance of two gradients, near to it."""
        side = range(1 << self._FIRST)
        found = max(self._apart(i, j, self._FIRST) for i in side for j in side)
        high = Rational(found, 1 << self._UNIT)
        for parts in self.PARTS:
            while found and self.is_below(
                Rational(1), Rational(0), high * (parts - 1) / parts, self.MOST
            ):
                high = high * (parts - 1) / parts
        return high


def _logistic_gradients(low: Any, high: Any) -> Span:
    """Shares of the full slope of the logistic loss over an interval of margins."""
    return Span(_sigmoid(low).low, _sigmoid(high).high)


def log_weight_slope(tree: Any, s: Span) -> Span:
    """Enclosure of the slopes of the logarithm of a weight over a span of margins, at a kink of
    both.
    """
    operation = tree["operation"]
    inner = [log_weight_slope(part, s) for part in tree["parts"]]
    if operation == "margin":
        return ONE
    if operation == "constant":
        return Span(Rational(0))
    if operation == "sum":
        return Span(
            sum((x.low for x in inner), Rational(0)), sum((x.high for x in inner), Rational(0))
        )
    if operation == "multiple":
        return inner[0].times(exact(tree["number"]))
    values = [log_weight(part, s) for part in tree["parts"]]
    if operation == "minimum":
        least = min(
            x.high for x in values
        )  # what is above the least part everywhere is never the minimum
        felt = [x for x, y in zip(inner, values, strict=True) if y.low <= least]
        return Span(min(x.low for x in felt), max(x.high for x in felt))
    if operation == "log":
        return inner[0] / values[0]
    demand(operation == "atom", f"the log weight {operation!r} is not read")
    kind, k = tree["atom"], exact(tree["number"])
    return values[0].monotone(lambda u: slope(kind, k, u)) * inner[0]


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


class Cell:
    """What a loss phi and a weight f are on an interval of margins x.

    ``pull`` bounds ``-x phi'`` from above, ``least`` and ``largest`` are ends of f, ``steep``
    bounds ``|log f'|``, and ``curvature`` phi'' from below.
    """

    def __init__(self, loss: Loss, tree: Any, low: Any, high: Any) -> None:
        self.low, self.high = low, high
        ends = (loss.slope(low).low, loss.slope(high).high)
        self.pull = above(max(-x * y for x in (low, high) for y in ends))
        self.logs = log_weight(tree, Span(low, high)).rounded()
        self.least, self.largest = exp(self.logs.low).low, exp(self.logs.high).high
        self.steep = above(log_weight_slope(tree, Span(low, high)).largest_size)
        half = (high - low) / 2
        self.curvature = below(loss.least_curvature(low + half, half))

    @property
    def nearest(self) -> Any:
        """The least size of a margin."""
        return Rational(0) if self.low <= 0 <= self.high else min(abs(self.low), abs(self.high))


class StabilityOfScheme:
    """V of weights ``w_i = n f(s_i) / sum f``, s read at the minimizer of a mean of losses with a
    ridge.

    Rows are in a ball of the norm ``row_norm``, margins have no offset, and f and the loss are one
    function for all records: Theorems 3, 22 and 23 of the page on derived constants, by cells of
    margins and of the length of the minimizer. Everything is in units in which rows have the norm
    1.
    """

    CELLS, LENGTHS, MASSES, MOVES = 192, 24, 32, 256

    def __init__(self, stated: Any) -> None:
        self.n = exact(stated["n"], "the number of records")
        demand(self.n >= 2 and self.n == int(self.n), "the number of records is none")
        norm_bound = exact(stated["row_norm"], "the norm of rows")
        self.mu = exact(stated["ridge"], "the ridge") / norm_bound / norm_bound
        demand(norm_bound > 0 and self.mu > 0, "the ridge or the norm of rows is not above 0")
        self.loss, self.tree = Loss(stated["loss"]), stated["log_weight"]
        self.reach = self._reach(stated["radius"], norm_bound)
        self.cells = self._cells(self.reach)

    def _cells(self, reach: Any) -> list[Cell]:
        edges = [reach * (2 * k - self.CELLS) / self.CELLS for k in range(self.CELLS + 1)]
        return [Cell(self.loss, self.tree, a, b) for a, b in pairwise(edges)]

    def _reach(self, radius: Any, norm_bound: Any) -> Any:
        """Bound of the length of a minimizer: ``mu |v|^2`` is at most the largest pull of its
        margins.
        """
        reach = None if radius is None else exact(radius, "the radius") * norm_bound
        demand(reach is None or reach > 0, "the radius is not above 0")
        if all(kind != "line" for kind, *_ in self.loss.parts):
            # atoms are at least 0, and the objective is no larger than at 0
            at_zero = sum(
                (c * value(kind, k, o).high for kind, c, k, _, o in self.loss.parts), Rational(0)
            )
            falls = root(2 * at_zero / self.mu).high
            reach = falls if reach is None else min(reach, falls)
        if reach is None:
            raise RefusedError("a loss that falls without end needs a radius")
        for _ in range(4):
            edges = [self.loss.slope(reach * k / 32) for k in range(-32, 33)]
            pulls = [
                -reach * at / 32 * y
                for k, (low, high) in enumerate(pairwise(edges), -32)
                for at in (k, k + 1)
                for y in (low.low, high.high)
            ]
            largest = max(pulls)
            reach = above(min(reach, root(max(largest, Rational(0)) / self.mu).high))
        demand(
            0 < reach <= 300, "margins are out of reach of the exponentials that are enclosed here"
        )
        return reach

    def bound(self) -> tuple[Any, Any]:
        """Upper bounds of V and of the largest weight."""
        n, reach = self.n, self.reach
        diameter = PairsOfRecords(
            reach, lambda a, b: Span(self.loss.slope(a).low, self.loss.slope(b).high)
        )
        D, D_h = diameter.diameter(), PairsOfRecords(reach, self._log_slopes).diameter()
        H = max(cell.logs.high for cell in self.cells) - min(cell.logs.low for cell in self.cells)
        crude = n / (1 + (n - 1) * exp(-H).low)
        end = min(D / n / self.mu, 2 * reach)
        by_range = self._tilt(min(D_h * end, 2 * H))
        largest, least_mean = self._largest_and_mean()
        largest = min(largest, crude)
        law = min(by_range, self._law_change((D, D_h, H), end, least_mean))
        V = min(2 * crude + (n - crude) * by_range, 2 * largest + (n - largest) * law, 2 * n)
        return V, largest

    def _log_slopes(self, low: Any, high: Any) -> Span:
        """Slopes of log f over an interval, and 0."""
        span = log_weight_slope(self.tree, Span(low, high))
        return Span(min(span.low, Rational(0)), max(span.high, Rational(0)))

    def _tilt(self, change: Any) -> Any:
        """Upper bound of the change of a law whose logarithms move by numbers of this range (tilt
        lemma).
        """
        grown = exp(change / 2).high
        return 2 * (grown - 1) / (grown + 1)

    def _largest_and_mean(self) -> tuple[Any, Any]:
        """Theorem 23: the largest weight, and the least mean of f over n - 1 records of a
        minimizer.

        With a mean of pulls of at least kappa, the mean of f is at least
        ``tau kappa + min (f - tau pull)`` for every tau >= 0 (weak duality).
        """
        n, largest, least_mean = self.n, Rational(0), None
        edges = [self.reach * k / self.LENGTHS for k in range(self.LENGTHS + 1)]
        steepest = max(cell.largest for cell in self.cells)
        for p, q in pairwise(edges):
            inside = [cell for cell in self.cells if cell.nearest <= q]
            top = max(cell.pull for cell in inside)
            prices = [Rational(0)]
            if top > 0:
                prices += [steepest / top * Rational(2) ** power for power in range(-14, 5)]
            planes = [
                (t, below(min(cell.least - t * cell.pull for cell in inside))) for t in prices
            ]
            for cell in inside:
                rho = max(p, cell.nearest)
                kappa = (n * self.mu * rho * rho - cell.pull) / (n - 1)
                if kappa > top:  # no n - 1 records have so large a mean pull
                    continue
                mean = max(t * kappa + floor for t, floor in planes)
                demand(mean > 0, "the mean of weights may be 0")
                least_mean = mean if least_mean is None else min(least_mean, mean)
                largest = max(largest, n * cell.largest / (cell.largest + (n - 1) * mean))
        if least_mean is None:
            raise RefusedError("no length of a minimizer is possible")
        return above(largest), below(least_mean)

    def _law_change(self, facts: tuple[Any, Any, Any], end: Any, least_mean: Any) -> Any:
        """Theorem 22: the largest change of the law of the others over all moves up to an end."""
        D, D_h, H = facts
        points = []
        for cell in self.cells:
            if cell.steep == 0:
                g = Rational(0)
            elif cell.curvature > 0:
                g = above(cell.largest * cell.steep * cell.steep / cell.curvature)
            else:
                return self._tilt(min(D_h * end, 2 * H))
            points.append((g, above(1 / cell.least)))
        constant, growth = self._variance(points), max(g for g, _ in points)
        steep = max(cell.steep for cell in self.cells)
        worst = Rational(0)
        for k in range(self.MOVES):
            first, last = end * k / self.MOVES, end * (k + 1) / self.MOVES
            x = max(steep * last / 2, Rational(1, 10**9))
            from_mean = growth / least_mean * (exp(x).high - 1) / x
            best = min(max(D / (2 * self.n * self.mu), first), last)
            moved = max(D * best / self.n - self.mu * best * best, Rational(0))
            curved = root(above(self.n / (self.n - 1) * min(constant, from_mean) * moved)).high
            worst = max(worst, min(curved, self._tilt(min(D_h * last, 2 * H))))
        return worst

    def _variance(self, points: list[tuple[Any, Any]]) -> Any:
        """``sup 4 E[c_A^2 g] E[1/f]`` over laws and events A of a mass Q, of which the smaller part
        counts.

        For any t > 0 the product of X and Y is at most ``((t X + Y / t) / 2)^2``, and X and Y are
        linear in the laws on A and off it, which each sit on one cell at worst.
        """
        worst, points = Rational(0), corners(points)
        scale = max(y for _, y in points)
        size = max(max(g for g, _ in points), Rational(1, 10**30))
        for k in range(self.MASSES):
            p, q = Rational(k, 2 * self.MASSES), Rational(k + 1, 2 * self.MASSES)
            inside, outside = 4 * q * (1 - p) ** 2, 4 * (1 - p) * q * q
            best = None
            middle = root(scale / (size * (inside + outside))).low
            for power in range(-8, 9):
                t = below(middle * Rational(3, 2) ** power)
                on = max(t * inside * g + q / t * y for g, y in points)
                off = max(t * outside * g + (1 - p) / t * y for g, y in points)
                found = ((on + off) / 2) ** 2
                best = found if best is None else min(best, found)
            worst = max(worst, best)
        return above(min(worst, size * scale))


def check_bound(document: Any) -> list[str]:
    """Check a bound of V for declared constants; returns what was checked."""
    claim = document["claim"]
    V, _ = StabilityOfScheme(document["problem"]).bound()
    text = f"V is at most {claim['V']:.6g} for the constants declared"
    demand(
        V <= exact(claim["V"]),
        f"it does not follow that {text}: {float(V):.6g} is what follows here",
    )
    return [text]


# --- Releases: from the constants of every step to V, to the scale of its noise, to the budget
# --------------

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


def log_of_one_plus(number: Any) -> Any:
    """Upper bound of ``log(1 + x)``."""
    return log(1 + number).high


class Step:
    """The statement of one step of a release."""

    def __init__(self, stated: Any, document: Any) -> None:
        self.name, self.theorem = stated["step"], stated["theorem"]
        self.stated, self.document = stated, document
        self.n = exact(document["n_samples"], "the number of records")
        demand(self.n >= 2, "there are fewer than two records")
        self.epsilon = self.number("epsilon")
        demand(self.epsilon > 0, f"{self.name}: its epsilon is not above 0")
        delta = self.number("delta")
        demand(
            delta == 0,
            f"{self.name}: it spends a delta, and steps of pure differential privacy alone are "
            "read",
        )
        self.scale = self.number("scale")
        demand(self.scale > 0, f"{self.name}: its scale is not above 0")

    def number(self, field: str) -> Any:
        """A number of the statement, exactly."""
        return exact(self.stated[field], f"{self.name}: its {field}")

    def positive(self, field: str) -> Any:
        """A number of the statement that has to be above 0."""
        number = self.number(field)
        demand(number > 0, f"{self.name}: its {field} is not above 0")
        return number

    def spends(self, needed: Any, what: str) -> str:
        """The line of an epsilon that is enough. Raises RefusedError where more is needed."""
        sizes = f"epsilon = {float(needed):.6g}, and {float(self.epsilon):.6g} is stated"
        text = f"{self.name}: {what} needs {sizes}"
        demand(needed <= self.epsilon, text)
        return text

    @property
    def parameters(self) -> int:
        """Number of parameters that the step released. Raises RefusedError where they are not
        listed.
        """
        parts = {part["step"]: part["coefficient"] for part in self.document.get("nuisances", [])}
        released = parts.get(self.name)
        if released is None and self.name in ("theta", "rule"):
            released = self.document.get("theta")
        if released is None and self.name == "propensity":  # of the weights of a second stage
            return len(self.document["columns"]) + (
                1 if self.document["domain"]["intercept"] else 0
            )
        demand(bool(released), f"{self.name}: the release does not list what it released")
        return len(released or ())

    def checked(self) -> list[str]:
        """Lines of what was checked. Raises RefusedError where it does not follow, or is not
        read.
        """
        kinds = {
            "objective": self._objective,
            "output": self._output,
        }
        self._stability()
        perturbed = self.stated["perturbed"]
        demand(perturbed in kinds, f"{self.name}: noise on the {perturbed} is not read")
        return kinds[perturbed]()

    def _output(self) -> list[str]:
        """Noise on what is released itself."""
        demand(self.stated["noise"] == "gamma", f"{self.name}: its noise is not read")
        if self.theorem.startswith("permute-and-flip on ranks"):
            return [self._ranges()]
        if self.theorem == "Theorem 8 (output perturbation)":
            return [self._statistic()]
        known = any(kind in self.theorem for kind in INTEGERS)
        demand(known, f"{self.name}: {self.theorem} is not read")
        sensitivity = self.positive("sensitivity")
        least = MOVED.get(self.name, 0)
        demand(
            sensitivity >= least,
            f"{self.name}: one record moves it by more than the sensitivity stated",
        )
        if self.name == "score" and self.document["declared"]["goal"] == "effect":
            self._refuse_narrow(sensitivity)
        text = f"Laplace noise of scale {self.stated['scale']:.6g} on what one record moves by "
        return [self.spends(sensitivity / self.scale, text + f"{self.stated['sensitivity']:.6g}")]

    def _refuse_narrow(self, sensitivity: Any) -> None:
        """Raise RefusedError where the scores of records move their mean by more than what is
        covered.
        """
        plain = "codebook" not in self.document["domain"]
        share = SCORES.get(self.document["estimand"], Rational(1)) if plain else Rational(1)
        bound = exact(self.document["settings"]["score_bound"], "the bound of scores")
        demand(
            sensitivity * self.n >= share * bound * (1 - Rational(1, 10**12)),
            f"{self.name}: scores up to {float(bound):.6g} move their mean by more than what is "
            "stated",
        )

    def _ranges(self) -> str:
        """Two private choices for every column, each with exponential noise of its candidates."""
        chosen = sum(1 for one in self.document["ranges"] if one["chosen"] is not None)
        demand(chosen > 0, f"{self.name}: nothing was chosen")
        needed = 4 * chosen * self.positive("sensitivity") / self.scale
        return self.spends(needed, f"noise on {2 * chosen} choices")

    def _statistic(self) -> str:
        """A mean of outcomes, rounded to a grid, with discrete Laplace noise that covers its
        arithmetic.
        """
        largest = exact(self.document["domain"]["outcome_bound"], "the bound of outcomes")
        sensitivity = self.positive("sensitivity")
        moved = 2 * largest * self._stability() / self.n
        demand(
            sensitivity >= moved,
            f"{self.name}: V moves the mean by more than the sensitivity stated",
        )
        if self.stated["numerical"] is None:
            return self.spends(sensitivity / self.scale, "noise on the mean")
        grid = self.stated["numerical"]
        step, tolerance = Rational(2) ** grid["grid_exponent"], exact(grid["tolerance"])
        return self.spends(
            (sensitivity + 2 * tolerance + step) / exact(grid["scale"]), "noise on the mean"
        )

    def _stability(self) -> Any:
        """V, which has to be at least what its theorem gives."""
        stability = self.number("stability")
        least = least_stability(self.document) if self.name == "theta" else Rational(2)
        demand(
            stability >= least,
            f"{self.name}: V = {float(stability):.6g} is below {float(least):.6g}, that of its "
            "weights",
        )
        return stability

    def _objective(self) -> list[str]:
        """Noise as a linear term of the objective, and what hides the arithmetic of the
        minimizer.
        """
        demand(self.stated["noise"] in ("gamma", "box"), f"{self.name}: its noise is not read")
        V, radius = self._stability(), self.positive("gradient_radius")
        trace, gamma, own = (
            self.positive("hessian_trace"),
            self.number("gamma"),
            self.number("strong_convexity"),
        )
        curvature = self.n * (gamma + own)
        demand(
            gamma >= 0 and own >= 0 and curvature > 0,
            f"{self.name}: its objective is not strongly convex",
        )
        sensitivity = self.positive("sensitivity")
        lines, hidden = (
            [f"{self.name}: V = {float(V):.6g} is that of its weights, or more"],
            Rational(0),
        )
        if self.stated["numerical"] is not None:
            hidden = 2 * self._hidden(self.stated["numerical"])
            lines.append(
                f"{self.name}: noise on the grid hides the tolerance stated at epsilon = "
                f"{float(hidden):.6g}"
            )
        if self.theorem in ("Theorem 1 (pure)", "Theorem 17 (box noise)"):
            p = self.parameters
            spread = p * log_of_one_plus(trace * V / (2 * p * curvature))
            needed = radius * V / self.scale + spread
        elif self.theorem.startswith("Theorem 15 (saturating loss"):
            # the largest gradient is at least half the diameter of all of them, which is stated
            # rounded up
            whole = sensitivity >= radius * V * (1 - Rational(1, 10**9))
            demand(
                whole,
                f"{self.name}: its sensitivity is less than V times the radius of its gradients",
            )
            a = sensitivity / V / self.scale
            needed = V / 2 * (a + max(a, self._steepness() * trace / curvature))
        elif self.theorem.startswith("Theorem 19 (in a ball"):
            a, total = sensitivity / V / self.scale, 2 * (self.epsilon - hidden) / V
            self._refuse_beyond_ball(a, trace / curvature, total)
            needed = self.epsilon - hidden
        elif self.theorem == "Theorem 27 (multinomial)":
            needed = sensitivity / self.scale
            steep = 2 * sensitivity * sensitivity / V  # 4 M^2 V of rows of norm M
            demand(
                curvature * self.epsilon >= steep,
                f"{self.name}: its ridge is too small for its epsilon",
            )
        else:
            raise RefusedError(f"{self.name}: {self.theorem} is not read")
        noise, ridge = self.stated["noise"], self.stated["gamma"]
        what = f"{noise} noise of scale {self.stated['scale']:.6g} and ridge {ridge:.6g}"
        return [*lines, self.spends(needed + hidden, what)]

    def _steepness(self) -> int:
        """How fast the curvature of the loss falls as its slope grows (Theorem 15)."""
        declared = self.document["declared"]
        name = (
            declared["second"]["name"]
            if declared["goal"] == "weighted" and self.name == "theta"
            else self.name
        )
        demand(name in LOSSES, f"{self.name}: the loss of {name} is not read")
        return STEEPNESS[LOSSES[name]]

    def _refuse_beyond_ball(self, a: Any, k: Any, total: Any) -> None:
        """Raise RefusedError where noise and ridge spend more than a total in a ball (Theorem
        19).
        """
        demand(
            self._steepness() == STEEPNESS["logistic"],
            f"{self.name}: a loss in a ball that is not read",
        )
        rho = self._ball()
        if self.stated["noise"] == "box":
            top = _sigmoid(rho).high
            u = min((a + 4 * k) / (8 * k), top)
            holds = a * top + a * u + 4 * k * u * (1 - u) <= total
        else:
            holds = PairsOfRecords(rho, _logistic_gradients).is_below(a, k, total)
        spent = f"noise of scale {self.stated['scale']:.6g} and ridge {self.stated['gamma']:.6g}"
        demand(
            holds,
            f"{self.name}: {spent} spend more than the epsilon stated, or it is not proved here",
        )

    def _ball(self) -> Any:
        """Bound of the margins of rows of the largest norm, by the radius that is declared."""
        declared = self.document["declared"]
        if declared["goal"] != "weighted":
            return exact(self.document["settings"]["radius"], "the radius")
        bound = exact(self.document["domain"]["covariate_bound"], "the bound of covariates")
        if self.name == "propensity":
            return bound * exact(declared["first"]["settings"]["radius"], "the radius")
        sets = declared["second"]["settings"]["theta_set"]
        demand(set(sets) == {"L2Ball"}, f"{self.name}: the set of its coefficient is not read")
        return bound * exact(sets["L2Ball"]["radius"], "the radius")

    def _hidden(self, grid: Any) -> Any:
        """Epsilon of the noise on the grid, on either side. Raises RefusedError where it covers
        less.
        """
        epsilon, scale, p = exact(grid["epsilon"]), exact(grid["scale"]), self.parameters
        demand(epsilon > 0 and scale > 0, f"{self.name}: the noise on its grid is none")
        moved = (
            root(Rational(p)).high * exact(grid["tolerance"])
            + p * Rational(2) ** grid["grid_exponent"]
        )
        demand(
            scale * epsilon >= moved,
            f"{self.name}: the noise on its grid is too small for its tolerance",
        )
        return epsilon


def least_stability(document: Any) -> Any:
    """Lower end of what may be stated as V for the weights of a declared first stage, by its
    theorem.
    """
    theorem, first = document["guarantee"]["stability_theorem"], document["declared"]["first"]
    name, settings = first["name"], first["settings"]
    if name == "uniform":
        demand(theorem in FIXED, f"V of weights 1 is not by {theorem}")
        return Rational(2)
    if name in ("ipw_private", "overlap_private"):
        # weights of one normalization, functions of margins from -M R to M R: V is twice the
        # largest
        reach = exact(document["domain"]["covariate_bound"]) * exact(
            settings["radius"], "the radius"
        )
        n, least, largest = exact(document["n_samples"]), 1 + exp(-reach).low, 1 + exp(reach).high
        if settings.get("trim", "inf") != "inf":
            largest = min(largest, exact(settings["trim"], "the trim"))
        # a double may be below the number that it stands for
        return 2 * n / (1 + (n - 1) * least / largest) * (1 - Rational(1, 10**12))
    raise RefusedError(f"V of {name} by {theorem} is not read")


def check_release(document: Any) -> tuple[list[str], list[str]]:
    """What was checked of a release, and what was not. Raises RefusedError where it does not
    follow.
    """
    version = document.get("schema_version")
    demand(version == RELEASE_SCHEMA, f"releases of schema version {version} are not read")
    guarantee, declared = document["guarantee"], document["declared"]
    standing = guarantee["standing"]
    demand(standing in PROMISED, f"the release says of itself that it is {standing}")
    demand(
        exact(guarantee["delta"]) == 0,
        "the guarantee has a delta: other accountants than pure sums are not read",
    )
    theorem = guarantee["stability_theorem"]
    demand(
        declared["goal"] == "weighted" or theorem in FIXED, f"V of weights by {theorem} is not read"
    )
    names = [stated["step"] for stated in document["steps"]]
    of_weights = declared["goal"] == "weighted"
    demand(("theta" in names) is of_weights, "the steps are not those of what was declared")
    before, checked, total = declared.get("before", {}), [], Rational(0)
    demand(bool(document["steps"]), "the release states no step")
    for stated in document["steps"]:
        step = Step(stated, document)
        checked += step.checked()
        if step.name in before:
            checked.append(
                f"{step.name}: was released before, by {before[step.name]['of']}, and is not paid "
                "for again"
            )
        else:
            total += step.epsilon
    epsilon, budget = exact(guarantee["epsilon"]), exact(declared["budget"]["epsilon"])
    text = (
        f"the steps spend {float(total):.10g} together, and the guarantee states "
        f"{float(epsilon):.10g}"
    )
    demand(total <= epsilon, text)
    whole = epsilon + sum((exact(before[name]["epsilon"]) for name in before), Rational(0))
    demand(
        whole <= budget * (1 + Rational(1, 10**9)),
        "the guarantee is above the budget that is declared",
    )
    checked.append(text)
    beside = [
        "that estimates, intervals and texts follow from the released numbers, as dp2erm verify "
        "checks",
        "that the constants of each step (gradients, curvature, sensitivity) are those of its loss",
        "that the noise was drawn, freshly and by the law stated, and that solvers kept their "
        "tolerances",
        "that the records are of the domain declared, and every record is one person's",
        f"that these assumptions hold: {'; '.join(guarantee['assumptions'])}",
        "other releases from the same records",
    ]
    if standing != "private":
        beside.insert(0, f"the condition that the release states of itself: {standing}")
    if document["domain"].get("released") is not None:
        beside.append(
            "the release of ranges that the domain rests on, whose epsilon is to be added"
        )
    return checked, beside


# --- A file, and what is said about it
# ----------------------------------------------------------------------


#: What no certificate shows, for its reader.
BESIDE = (
    "that the problem stated is the one that somebody needs, and its numbers are those of his "
    "records",
    "how the numbers of the problem were made of raw data: units, ranges, balance functions, "
    "offsets",
)

FORMS: dict[str, Callable[[Any], list[str]]] = {
    "sum over records": check_margins,
    "weights as the variable": check_weights,
    "bound of a scheme": check_bound,
}


def digest(document: Any) -> str:
    """SHA-256 of all entries but the digest, in one order and layout."""
    rest = {name: entry for name, entry in document.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_certificate(document: Any) -> list[str]:
    """Check one certificate; returns what was checked. Raises RefusedError for what does not
    follow.
    """
    demand(
        document.get("digest") == digest(document),
        "the digest is not that of the entries: something was changed",
    )
    form = document.get("form")
    demand(form in FORMS, f"the form {form!r} is not read by this file")
    return FORMS[form](document)


def check(document: Any) -> tuple[list[str], list[str]]:
    """What was checked of a document, and what was not. Raises RefusedError where it does not
    follow.
    """
    demand(isinstance(document, dict), "the file holds no JSON object")
    if "guarantee" in document and "steps" in document:
        try:
            return check_release(document)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise RefusedError("the release is not laid out as such files are") from None
    demand(document.get("format") == CERTIFICATE, "the file is of no format that is read here")
    version = document.get("schema_version")
    demand(version == CERTIFICATE_SCHEMA, f"certificates of schema version {version} are not read")
    checked = []
    demand(bool(document["certificates"]), "the file holds no certificate")
    for number, one in enumerate(document["certificates"], 1):
        try:
            lines = check_certificate(one)
        except RefusedError as error:
            raise RefusedError(f"certificate {number}: {error}") from None
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise RefusedError(f"certificate {number} is not laid out as such files are") from None
        checked += [
            f"certificate {number} ({one.get('program')}, {one.get('solver')}): {line}"
            for line in lines
        ]
    return checked, list(BESIDE)


def check_charge(document: Any, path: str) -> str:
    """What a ledger charged for a release. Raises RefusedError where no charge of it is as
    large.
    """
    guarantee = document["guarantee"]
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as ledger:
            charges = ledger.execute("SELECT epsilon, delta, unit FROM charges").fetchall()
    except sqlite3.Error:
        raise RefusedError(f"{path} is no ledger that can be read") from None
    unit, spent = guarantee["unit"] or "records", exact(guarantee["epsilon"])
    own = [
        exact(float(epsilon))
        for epsilon, delta, who in charges
        if who == unit and float(delta) == 0
    ]
    text = f"no charge of {path} is the epsilon = {float(spent):.10g} of the release, for {unit}"
    demand(spent in own, text)
    return f"{path} charged epsilon = {float(spent):.10g} for {unit}"


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
    for title, lines in (("Checked", checked), ("Not checked", beside)):
        print(f"{title}:")
        for line in lines:
            print(f"- {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
