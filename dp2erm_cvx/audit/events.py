"""Events among the outputs of any mechanism, and bounds from their counts.

Here stands what is looked at, and what is chosen.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.finding import Declared
from dp2erm_cvx.errors import DeclarationError

_RAISED = "the mechanism raised"
_DEEPEST = 8


@dataclass(frozen=True, repr=False)
class Observation:
    """One output, taken apart.

    ``kind`` is its structure, such as ``array (3,)`` or ``raised ValueError``. ``numbers`` (q,) are
    the numbers in it, in the order of ``names``. ``marks`` are what is said of it in words: its
    kind, its texts, and which numbers are not finite. ``key`` is the same for equal outputs only;
    -0.0 is not 0.0.
    """

    kind: str
    numbers: Array
    names: tuple[str, ...]
    marks: frozenset[str]
    key: str | bytes
    own: Mapping[str, float] = field(default_factory=dict)

    @property
    def raised(self) -> bool:
        """True if there was no output but an exception."""
        return _RAISED in self.marks

    @property
    def equalities(self) -> frozenset[str]:
        """Every number in words."""
        pairs = zip(self.names, self.numbers.tolist(), strict=True)
        return frozenset(f"{name} == {number!r}" for name, number in pairs)


def of_output(output: object) -> Observation:
    """Take apart a number, text, None, an array, or lists, tuples and dicts of those.

    Raises DeclarationError for anything else: equal objects could not be distinguished from
    different ones.
    """
    parts: list[tuple[str, float | str]] = []
    kind = _walk(output, "output", parts, 0)
    texts = [f"{name} {text}" for name, text in parts if isinstance(text, str)]
    numbers = [(name, number) for name, number in parts if not isinstance(number, str)]
    values = np.array([number for _, number in numbers], dtype=np.float64)
    odd = [f"{name} is {number:g}" for name, number in numbers if not math.isfinite(number)]
    marks = {
        f"the output is of kind {kind}",
        *texts,
        *odd,
        *(["a number is not finite"] if odd else []),
    }
    key = (
        "\0".join([kind, *sorted(texts)]).encode("utf-8", "surrogatepass")
        + b"\0"
        + values.tobytes()
    )
    return Observation(kind, values, tuple(name for name, _ in numbers), frozenset(marks), key)


def of_exception(raised: Exception) -> Observation:
    """A refusal is an observation, and so is what it says."""
    kind = f"raised {type(raised).__name__}"
    said = f"{kind}: {raised}"
    return Observation(kind, np.empty(0), (), frozenset({_RAISED, kind, said}), said)


def _walk(value: Any, name: str, parts: list[tuple[str, float | str]], depth: int) -> str:
    """The kind of a value; its numbers and texts are added to the ``parts``."""
    if depth > _DEEPEST:
        raise DeclarationError(f"mechanism: its output is nested more than {_DEEPEST} deep")
    if value is None or isinstance(value, bool | str | bytes | np.bool_):
        parts.append((name, f"is {value!r}"))
        return "none" if value is None else type(value).__name__
    if isinstance(value, int | np.integer) and abs(int(value)) > 2**53:
        parts.append((name, f"is {int(value)}"))  # a float would not hold it
    if isinstance(value, int | float | np.integer | np.floating):
        parts.append((name, _number(value)))
        return "number"
    if isinstance(value, complex | np.complexfloating):
        parts += [(f"{name}.real", float(value.real)), (f"{name}.imag", float(value.imag))]
        return "complex number"
    if isinstance(value, Mapping):
        keys = sorted(value, key=repr)
        return str({key: _walk(value[key], f"{name}[{key!r}]", parts, depth + 1) for key in keys})
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "fiu" and array.dtype.itemsize <= 8 and array.dtype != np.uint64:
            parts += [(name, f"has type {array.dtype}")] if array.dtype != np.float64 else []
            places = (name + "".join(f"[{i}]" for i in index) for index in np.ndindex(array.shape))
            parts += zip(places, map(_number, array.ravel().tolist()), strict=True)
            return f"array {array.shape}"
        return _walk(array.tolist(), name, parts, depth + 1)
    if isinstance(value, list | tuple):
        kinds = [_walk(item, f"{name}[{i}]", parts, depth + 1) for i, item in enumerate(value)]
        return f"{len(kinds)} x {kinds[0]}" if len(set(kinds)) == 1 else f"({', '.join(kinds)})"
    raise DeclarationError(
        f"mechanism: {name} is of type {type(value).__name__}: return a number, an array, text, "
        "None, or lists and dicts of those"
    )


def _number(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def lowest_bits(values: Array) -> Array:
    """Exponent of the lowest set bit of each finite value: v is an odd multiple of 2 to that power.

    0 is a multiple of every power: 1100. The shape is that of ``values``.
    """
    fraction, exponent = np.frexp(values)
    whole = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(whole & -whole, 1).astype(np.float64))
    return np.where(whole == 0, 1100.0, exponent - 53 + lowest)


#: Kinds of output with fewer learning runs have no scores of their own, and at most so many kinds
#: have.
_FEWEST, _MOST_KINDS = 10, 6
#: Standardized numbers are cut off here before a classifier sees them.
_FAR = 20.0
#: Bins of a coordinate, of equal shares of the learning runs.
_BINS = 12

Observations = Sequence[Observation]
#: Maps observations to a number (m,) each; NaN where one has none.
Score = Callable[[Observations], Array]
#: A function of the numbers (m, q) of outputs of one kind, giving (m,).
_OfNumbers = Callable[..., Any]


def scores(
    first: Observations, second: Observations, families: Sequence[str]
) -> Iterator[tuple[str, Score]]:
    """Scores with their names from the learning runs of both datasets."""
    both = (*first, *second)
    for own in sorted({name for one in both for name in one.own}):
        yield (
            own,
            partial(
                _scored, None, lambda them, own=own: [one.own.get(own, math.nan) for one in them]
            ),
        )
    if "values" in families:
        mine, theirs = (Counter(one.key for one in part) for part in (first, second))
        odds = {
            key: math.log((mine[key] + 0.5) / (theirs[key] + 0.5))
            for key in mine.keys() | theirs.keys()
        }
        name = "log odds of the same output among the learning runs"  # 0 for what was not seen
        yield name, partial(_scored, None, lambda them: [odds.get(one.key, 0.0) for one in them])
    kinds = Counter(one.kind for one in both if len(one.numbers))
    names = {one.kind: one.names for one in both}
    for kind, count in kinds.most_common(_MOST_KINDS):
        if count < _FEWEST:
            break
        rows = [
            np.array([one.numbers for one in part if one.kind == kind]) for part in (first, second)
        ]
        rows = [part.reshape(-1, len(names[kind])) for part in rows]
        finite = [part[np.all(np.isfinite(part), axis=1)] for part in rows]
        with np.errstate(all="ignore"):
            functions = list(_of_numbers(finite[0], finite[1], names[kind], families))
        yield from ((name, partial(_scored, kind, function)) for name, function in functions)


def _scored(kind: str | None, function: Callable[..., Any], observations: Observations) -> Array:
    """A function of all observations, or of the numbers (m, q) of one ``kind``.

    It is NaN where it has no value.
    """
    values = np.full(len(observations), np.nan)
    mine = [k for k, one in enumerate(observations) if kind in (None, one.kind)]
    some = [observations[k] for k in mine]
    if some:
        with np.errstate(all="ignore"):
            values[mine] = function(
                some if kind is None else np.array([one.numbers for one in some])
            )
    return np.where(np.isfinite(values), values, np.nan)


def _of_numbers(
    first: Array, second: Array, names: Sequence[str], families: Sequence[str]
) -> Iterator[tuple[str, _OfNumbers]]:
    """Scores of one kind of output, from the finite learning runs (m, q) of both datasets."""
    if len(first) + len(second) >= _FEWEST:
        low, middle, high = np.quantile(
            both := np.concatenate([first, second]), [0.25, 0.5, 0.75], axis=0
        )
        scale = np.where(high > low, high - low, np.std(both, axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        if "tails" in families:  # every coordinate, its distance from the middle, and norms
            for j, name in enumerate(names):
                yield name, lambda x, j=j: x[:, j]
                yield f"|{name} - {middle[j]:.6g}|", lambda x, j=j: np.abs(x[:, j] - middle[j])
            for order, label in (
                ((1, "l1"), (2, "l2"), (np.inf, "largest")) if len(names) > 1 else ()
            ):
                name = f"{label} norm of the standardized output"
                yield (
                    name,
                    lambda x, order=order: np.linalg.norm((x - middle) / scale, order, axis=1),
                )
        if "learned" in families and min(len(first), len(second)) >= 5:
            for j, name in enumerate(names):
                odds = _bins(first[:, j], second[:, j])
                yield f"log odds of {name} in bins", lambda x, j=j, odds=odds: odds(x[:, j])
            yield from _learned(first, second, middle, scale)
    if (
        "bits" in families
    ):  # naive floating-point noise leaks through the grid that a coordinate lies on
        for j, name in enumerate(names):
            yield f"lowest set bit of {name}", lambda x, j=j: lowest_bits(x[:, j])


def _learned(
    first: Array, second: Array, middle: Array, scale: Array
) -> Iterator[tuple[str, _OfNumbers]]:
    """Scores that separate the learning runs: Fisher's, and a logistic regression's."""
    direction = _fisher(first / scale, second / scale) / scale
    centers = [np.median((part - middle) / scale, axis=0) for part in (first, second)]
    if np.all(np.isfinite(direction)):
        yield "Fisher's direction of the output", lambda x: x @ direction

    @np.errstate(all="ignore")  # outputs may be as large as floats get
    def features(x: Array) -> Array:
        z = (x - middle) / scale
        ends = [z - center for center in centers]
        lengths = [np.linalg.norm(v, order, axis=1) for v in (z, *ends) for order in (1, 2)]
        cut = np.clip(np.column_stack([z, np.abs(z), *lengths]), -_FAR, _FAR)
        return np.asarray(np.nan_to_num(cut), dtype=np.float64)

    model = LogisticRegression(max_iter=300)
    with warnings.catch_warnings():
        # a score that is not quite converged is a worse guess, not a wrong one
        warnings.simplefilter("ignore")
        model.fit(
            features(np.concatenate([first, second])), np.repeat([1, 0], [len(first), len(second)])
        )
    name = "log odds of a logistic regression on the output, its absolute values and distances"
    yield name, lambda x: model.decision_function(features(x))


def _bins(first: Array, second: Array) -> _OfNumbers:
    """The log odds of the values below, on, between and above the edges of bins."""
    pooled = np.concatenate([first, second])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _BINS + 1), method="lower"))

    def places(values: Array) -> NDArray[np.intp]:
        # a value on an edge, such as a bound that outputs are clipped to, is a place of its own
        return np.searchsorted(edges, values, side="left") + np.searchsorted(
            edges, values, side="right"
        )

    counts = [np.bincount(places(part), minlength=2 * len(edges) + 1) for part in (first, second)]
    odds = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    return lambda values: odds[places(values)]


def _fisher(first: Array, second: Array) -> Array:
    """Fisher's direction ``S^+ (m_1 - m_2)`` (q,) of learning runs (m, q), of unit length.

    S is the spread within a dataset.

    It comes from singular values, so that a direction that is nearly flat, because the same noise
    came twice along it, keeps its digits.
    """
    between = first.mean(axis=0) - second.mean(axis=0)
    within = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    if not np.all(np.isfinite(within)):
        return np.full(within.shape[1], np.nan)
    _, spread, axes = np.linalg.svd(within, full_matrices=False)
    if spread[0] == 0.0:
        return np.asarray(between, dtype=np.float64)
    # a relative spread below this is taken to be none
    direction = axes.T @ (axes @ between / np.maximum(spread / spread[0], 1e-13) ** 2)
    return np.asarray(direction / (np.linalg.norm(direction) or 1.0), dtype=np.float64)


#: Larger than the relative error of the inverse of the incomplete beta function.
_SLACK = 1e-10


def lower(hits: Array, runs: int, risk: float) -> Array:
    """A bound below the probability, wrong with probability at most ``risk``.

    It is that of Clopper and Pearson. The hits are counts among ``runs``.
    """
    inner = np.maximum(hits, 1)
    bound = betaincinv(inner, runs - inner + 1, risk) * (1 - _SLACK)
    return np.where(hits > 0, bound, 0.0)


def upper(hits: Array, runs: int, risk: float) -> Array:
    """A bound above the probability, wrong with probability at most ``risk``.

    It is that of Clopper and Pearson.
    """
    # from the other end, where a risk near 0 keeps its digits
    return np.minimum(1.0, (1.0 - lower(runs - hits, runs, risk)) * (1 + _SLACK))


class CountBound:
    """Lower confidence bounds on a parameter of privacy from counts of one event.

    The event is counted in ``runs`` runs of each dataset.

    On epsilon at ``delta``: P <= exp(epsilon) Q + delta, hence epsilon >= log((P - delta) / Q).
    Without a delta on mu: P <= Phi(Phi^-1(Q) + mu), hence mu >= Phi^-1(P) - Phi^-1(Q), Phi the
    normal distribution.

    With probability at least 1 - 2 ``risk`` the bound is right: the probability P of the event on
    one dataset and Q on the other each get ``risk``. At least 0, and increasing in P and decreasing
    in Q.
    """

    @np.errstate(divide="ignore")
    def __init__(self, runs: int, risk: float, delta: float | None) -> None:
        counts = np.arange(runs + 1, dtype=np.float64)
        self.low, self.high = lower(counts, runs, risk), upper(counts, runs, risk)
        if delta is None:
            self._above, self._below = ndtri(self.low), ndtri(self.high)
        else:
            self._above, self._below = np.log(np.maximum(self.low - delta, 0.0)), np.log(self.high)
        #: The most that any counts of this many runs give: always under P, never under Q.
        self.ceiling = self.one(runs, 0)

    @classmethod
    def of(cls, declared: Declared, runs: int, risk: float) -> CountBound:
        """On the number that is declared."""
        return cls(runs, risk, declared.delta if declared.mu is None else None)

    def __call__(self, mine: Array, theirs: Array) -> Array:
        """The bound for counts ``mine`` of the event under P and ``theirs`` under Q.

        Counts are whole numbers.
        """
        # never counted under P: -inf; perhaps certain under Q: +inf, at worst; a bound on Q is
        # never 0
        bound = self._above[mine.astype(np.intp)] - self._below[theirs.astype(np.intp)]
        return np.maximum(bound * (1 - _SLACK), 0.0)

    def one(self, hits: int, other_hits: int) -> float:
        """The bound for one pair of counts."""
        return float(self(np.array([hits]), np.array([other_hits]))[0])


#: A set of outputs: in words, and a test of which observations are in it.
_Event = tuple[str, Callable[[Observations], NDArray[np.bool_]]]

#: Events by number, and how often each came on either dataset.
_Offer = tuple[Callable[[int], _Event], Sequence[Any]]


def best_events(
    pick: tuple[Observations, Observations],
    known: Iterable[tuple[str, Score]],
    bound: CountBound,
    *,
    values: bool = True,
) -> tuple[list[tuple[float, _Event]], int]:
    """The event with the largest lower bound in the picking runs, by direction.

    The second result is how many events were looked at.

    Of marks and repeated ``values``, and of tails of ``known`` scores. The first is for P = first
    over Q = second. Each must be counted in other runs than those that chose it.
    """
    nothing: _Event = ("no event", lambda observations: np.zeros(len(observations), dtype=bool))
    best, looked_at = [(0.0, nothing), (0.0, nothing)], 0
    for make, counts in chain(
        _marks(*pick) if values else (), *(_tails(*one, *pick) for one in known)
    ):
        looked_at += len(counts[0])
        for way, lows in enumerate((bound(*counts), bound(*reversed(counts)))):
            top = int(np.argmax(lows))
            if lows[top] > best[way][0]:
                best[way] = (float(lows[top]), make(top))
    return best, looked_at


def _tails(name: str, score: Score, *pick: Observations) -> Iterator[_Offer]:
    """Both tails of ``score``, from every threshold that separates the picking runs."""
    values = [np.sort(part[~np.isnan(part)]) for part in map(score, pick)]
    pooled = np.unique(np.concatenate(values))
    if pooled.size:
        # a score may have no value: "above all" is an event, too
        cuts = np.concatenate(
            [[np.nextafter(pooled[0], -np.inf)], pooled[:-1] / 2 + pooled[1:] / 2]
        )
        below = [np.searchsorted(part, cuts, side="right") for part in values]
        above = [len(part) - count for part, count in zip(values, below, strict=True)]
        yield lambda i: (f"{name} > {cuts[i]:.9g}", lambda them: score(them) > cuts[i]), above
        yield lambda i: (f"{name} <= {cuts[i]:.9g}", lambda them: score(them) <= cuts[i]), below


def _marks(*pick: Observations) -> Iterator[_Offer]:
    """Every mark of an observation, and every number that came more than once."""
    for read, fewest in ((attrgetter("marks"), 1), (attrgetter("equalities"), 2)):
        parts = [Counter(mark for one in part for mark in read(one)) for part in pick]
        # sorted, because the order of a set changes from process to process
        known = sorted(mark for mark, times in (parts[0] + parts[1]).items() if times >= fewest)
        if known:

            def make(i: int, known: Any = known, read: Any = read) -> _Event:
                return known[i], lambda them: np.array(
                    [known[i] in read(one) for one in them], dtype=bool
                )

            yield make, [np.array([part[mark] for mark in known]) for part in parts]
