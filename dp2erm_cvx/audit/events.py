"""Events among the outputs of any mechanism, and bounds from their counts.

An output is taken apart into numbers and words. Scores, learned from some runs, order the outputs.
Events are marks, repeated values and tails of scores, of which other runs choose the best.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
#: Levels of nested lists and dicts that an output may have.
_DEEPEST = 8
#: Every whole number up to this is a float.
_LARGEST_EXACT = 2**53


@dataclass(frozen=True, repr=False)
class Observation:
    """One output, taken apart.

    Parameters
    ----------
    kind
        The structure of the output, such as ``array (3,)`` or ``raised ValueError``.
    numbers
        The numbers (q,) in it.
    names
        The place in the output of every number.
    marks
        What is said of the output in words: its kind, its texts, and which numbers are not finite.
    key
        Equal for equal outputs only; -0.0 is not 0.0.
    statistics
        Values by name of the statistics that an attack computes from the output itself.
    """

    kind: str
    numbers: Array
    names: tuple[str, ...]
    marks: frozenset[str]
    key: str | bytes
    statistics: Mapping[str, float] = field(default_factory=dict)

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

    Raises
    ------
    DeclarationError
        For anything else: equal objects could not be distinguished from different ones.
    """
    parts = _Parts()
    kind = _walk(output, "output", parts, 0)
    values = np.array(parts.numbers, dtype=np.float64)
    not_finite = []
    for name, number in zip(parts.names, parts.numbers, strict=True):
        if not math.isfinite(number):
            not_finite.append(f"{name} is {number:g}")
    marks = {f"the output is of kind {kind}", *parts.texts, *not_finite}
    if not_finite:
        marks.add("a number is not finite")
    words = "\0".join([kind, *sorted(parts.texts)])
    key = words.encode("utf-8", "surrogatepass") + b"\0" + values.tobytes()
    return Observation(kind, values, tuple(parts.names), frozenset(marks), key)


def of_exception(raised: Exception) -> Observation:
    """A refusal is an observation, and so is what it says."""
    kind = f"raised {type(raised).__name__}"
    message = f"{kind}: {raised}"
    return Observation(kind, np.empty(0), (), frozenset({_RAISED, kind, message}), message)


@dataclass
class _Parts:
    """What an output consists of, in the order in which it stands there.

    Parameters
    ----------
    names
        The place in the output of every number.
    numbers
        The numbers.
    texts
        What is said of its other parts, each after its place.
    """

    names: list[str] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add_number(self, name: str, value: Any) -> None:
        """Add a number; one too large for a float is infinite."""
        try:
            number = float(value)
        except OverflowError:
            number = math.copysign(math.inf, value)
        self.names.append(name)
        self.numbers.append(number)


def _walk(value: Any, name: str, parts: _Parts, depth: int) -> str:
    """The kind of a value; its numbers and texts are added to the ``parts``."""
    if depth > _DEEPEST:
        raise DeclarationError(f"mechanism: its output is nested more than {_DEEPEST} deep")
    if value is None:
        parts.texts.append(f"{name} is None")
        return "none"
    if isinstance(value, bool | str | bytes | np.bool_):
        parts.texts.append(f"{name} is {value!r}")
        return type(value).__name__
    if isinstance(value, int | float | np.integer | np.floating):
        return _walk_number(value, name, parts)
    if isinstance(value, complex | np.complexfloating):
        parts.add_number(f"{name}.real", value.real)
        parts.add_number(f"{name}.imag", value.imag)
        return "complex number"
    if isinstance(value, Mapping):
        kinds_by_key = {}
        for key in sorted(value, key=repr):
            kinds_by_key[key] = _walk(value[key], f"{name}[{key!r}]", parts, depth + 1)
        return str(kinds_by_key)
    if hasattr(value, "__array__"):
        return _walk_array(np.asarray(value), name, parts, depth)
    if isinstance(value, list | tuple):
        return _walk_items(value, name, parts, depth)
    raise DeclarationError(
        f"mechanism: {name} is of type {type(value).__name__}: return a number, an array, text, "
        "None, or lists and dicts of those"
    )


def _walk_number(value: Any, name: str, parts: _Parts) -> str:
    """A whole number that a float does not hold is added in words as well."""
    if isinstance(value, int | np.integer) and abs(int(value)) > _LARGEST_EXACT:
        parts.texts.append(f"{name} is {int(value)}")
    parts.add_number(name, value)
    return "number"


def _walk_array(array: NDArray[Any], name: str, parts: _Parts, depth: int) -> str:
    """An array of numbers that floats hold is one kind; any other is a list of its entries."""
    are_floats = (
        array.dtype.kind in "fiu" and array.dtype.itemsize <= 8 and array.dtype != np.uint64
    )
    if not are_floats:
        return _walk(array.tolist(), name, parts, depth + 1)
    if array.dtype != np.float64:
        parts.texts.append(f"{name} has type {array.dtype}")
    for index, number in zip(np.ndindex(array.shape), array.ravel().tolist(), strict=True):
        place = "".join(f"[{i}]" for i in index)
        parts.add_number(name + place, number)
    return f"array {array.shape}"


def _walk_items(items: Sequence[Any], name: str, parts: _Parts, depth: int) -> str:
    """A list or tuple, with a short name where all items are of one kind."""
    kinds = []
    for i, item in enumerate(items):
        kinds.append(_walk(item, f"{name}[{i}]", parts, depth + 1))
    if len(set(kinds)) == 1:
        return f"{len(kinds)} x {kinds[0]}"
    return f"({', '.join(kinds)})"


#: Kinds of output with fewer learning runs have no scores of their own.
_FEWEST = 10
#: At most so many kinds of output have scores of their own.
_MOST_KINDS = 6
#: Learning runs of each dataset without which no score is fitted.
_FEWEST_TO_FIT = 5
#: Standardized numbers are cut off here before a classifier sees them.
_FAR = 20.0
#: Bins of a coordinate, of equal shares of the learning runs.
_BINS = 12
#: Norms of an output of several numbers: the order, and what it is called.
_NORMS = ((1, "l1"), (2, "l2"), (np.inf, "largest"))
#: A relative spread below this is taken to be none: rounding leaves about so much.
_NO_SPREAD = 1e-13

Observations = Sequence[Observation]
#: Maps observations to a number (m,) each; NaN where one has none.
Score = Callable[[Observations], Array]
#: A function of the numbers (m, q) of outputs of one kind, giving (m,).
_OfNumbers = Callable[[Array], Any]


def scores(
    first: Observations, second: Observations, families: Sequence[str]
) -> Iterator[tuple[str, Score]]:
    """Scores with their names from the learning runs of both datasets."""
    pooled = (*first, *second)
    statistics = set[str]()
    for one in pooled:
        statistics.update(one.statistics)
    for statistic in sorted(statistics):
        yield statistic, partial(_statistic, statistic)
    if "values" in families:
        odds = _log_odds_of_keys(first, second)
        yield "log odds of the same output among the learning runs", partial(_log_odds, odds)
    kinds = Counter(one.kind for one in pooled if len(one.numbers))
    names = {one.kind: one.names for one in pooled}
    for kind, count in kinds.most_common(_MOST_KINDS):
        if count < _FEWEST:
            break
        first_numbers = _finite_numbers(first, kind, len(names[kind]))
        second_numbers = _finite_numbers(second, kind, len(names[kind]))
        with np.errstate(all="ignore"):
            functions = list(_of_numbers(first_numbers, second_numbers, names[kind], families))
        for name, function in functions:
            yield name, partial(_of_kind, kind, function)


def _statistic(name: str, observations: Observations) -> Array:
    """The values (m,) of one statistic of the attack."""
    values = [one.statistics.get(name, math.nan) for one in observations]
    return _finite_or_nan(np.array(values, dtype=np.float64))


def _log_odds_of_keys(first: Observations, second: Observations) -> dict[str | bytes, float]:
    """Log odds of the first dataset for every output that came among the learning runs."""
    first_counts = Counter(one.key for one in first)
    second_counts = Counter(one.key for one in second)
    odds = {}
    for key in first_counts.keys() | second_counts.keys():
        odds[key] = math.log((first_counts[key] + 0.5) / (second_counts[key] + 0.5))
    return odds


def _log_odds(odds: Mapping[str | bytes, float], observations: Observations) -> Array:
    """The log odds (m,) of outputs; 0 for those that were not seen before."""
    return np.array([odds.get(one.key, 0.0) for one in observations], dtype=np.float64)


def _finite_numbers(observations: Observations, kind: str, q: int) -> Array:
    """The numbers (m, q) of the observations of one kind, where all of them are finite."""
    numbers = np.array([one.numbers for one in observations if one.kind == kind]).reshape(-1, q)
    return np.asarray(numbers[np.all(np.isfinite(numbers), axis=1)])


def _of_kind(kind: str, function: _OfNumbers, observations: Observations) -> Array:
    """A function of the numbers (m, q) of one kind; NaN for the outputs of all others."""
    values = np.full(len(observations), np.nan)
    places = [k for k, one in enumerate(observations) if one.kind == kind]
    if places:
        numbers = np.array([observations[k].numbers for k in places])
        with np.errstate(all="ignore"):
            values[places] = function(numbers)
    return _finite_or_nan(values)


def _finite_or_nan(values: Array) -> Array:
    """NaN for infinite values."""
    return np.where(np.isfinite(values), values, np.nan)


def _of_numbers(
    first: Array, second: Array, names: Sequence[str], families: Sequence[str]
) -> Iterator[tuple[str, _OfNumbers]]:
    """Scores of one kind of output, from the finite learning runs (m, q) of both datasets."""
    if len(first) + len(second) >= _FEWEST:
        pooled = np.concatenate([first, second])
        low, middle, high = np.quantile(pooled, [0.25, 0.5, 0.75], axis=0)
        scale = np.where(high > low, high - low, np.std(pooled, axis=0))
        scale = np.where(scale > 0, scale, 1.0)
        if "tails" in families:
            yield from _distances(names, middle, scale)
        if "learned" in families and min(len(first), len(second)) >= _FEWEST_TO_FIT:
            for j, name in enumerate(names):
                odds = _OddsInBins.of_runs(j, first[:, j], second[:, j])
                yield f"log odds of {name} in bins", odds
            yield from _learned(first, second, middle, scale)
    if "bits" in families:
        # naive floating-point noise leaks through the grid that a coordinate lies on
        for j, name in enumerate(names):
            yield f"lowest set bit of {name}", partial(_lowest_bits_of, j)


def _distances(
    names: Sequence[str], middle: Array, scale: Array
) -> Iterator[tuple[str, _OfNumbers]]:
    """Every coordinate, its distance from the middle, and norms of the standardized output."""
    for j, name in enumerate(names):
        yield name, partial(_coordinate, j)
        yield f"|{name} - {middle[j]:.6g}|", partial(_distance, j, middle[j])
    if len(names) > 1:
        for order, label in _NORMS:
            name = f"{label} norm of the standardized output"
            yield name, partial(_standardized_norm, middle, scale, order)


def _coordinate(j: int, x: Array) -> Array:
    return x[:, j]


def _distance(j: int, center: float, x: Array) -> Array:
    return np.abs(x[:, j] - center)


def _standardized_norm(middle: Array, scale: Array, order: float, x: Array) -> Any:
    return np.linalg.norm((x - middle) / scale, order, axis=1)


def _lowest_bits_of(j: int, x: Array) -> Array:
    return lowest_bits(x[:, j])


def lowest_bits(values: Array) -> Array:
    """Exponent of the lowest set bit of each finite value: v is an odd multiple of 2 to that power.

    0 is a multiple of every power: 1100. The shape is that of ``values``.
    """
    fraction, exponent = np.frexp(values)
    significand = np.abs(fraction * 2.0**53).astype(np.int64)
    lowest = np.log2(np.maximum(significand & -significand, 1).astype(np.float64))
    return np.where(significand == 0, 1100.0, exponent - 53 + lowest)


@dataclass(frozen=True, eq=False)
class _OddsInBins:
    """Log odds of a coordinate below, on, between and above the edges of bins.

    Parameters
    ----------
    j
        The coordinate.
    edges
        Edges (e,) of the bins.
    odds
        Log odds (2 e + 1,) of the first dataset, by place.
    """

    j: int
    edges: Array
    odds: Array

    @classmethod
    def of_runs(cls, j: int, first: Array, second: Array) -> _OddsInBins:
        """Bins of equal shares of the learning runs, with these values (m,) of the coordinate."""
        pooled = np.concatenate([first, second])
        edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _BINS + 1), method="lower"))
        n_places = 2 * len(edges) + 1
        first_counts = np.bincount(_places(edges, first), minlength=n_places)
        second_counts = np.bincount(_places(edges, second), minlength=n_places)
        return cls(j, edges, np.log((first_counts + 0.5) / (second_counts + 0.5)))

    def __call__(self, x: Array) -> Array:
        """The log odds (m,) of outputs (m, q)."""
        return np.asarray(self.odds[_places(self.edges, x[:, self.j])])


def _places(edges: Array, values: Array) -> NDArray[np.intp]:
    """The number of the place of every value (m,) among the edges and the bins between them.

    A value on an edge, such as a bound that outputs are clipped to, is a place of its own.
    """
    edges_below = np.searchsorted(edges, values, side="left")
    return edges_below + np.searchsorted(edges, values, side="right")


def _learned(
    first: Array, second: Array, middle: Array, scale: Array
) -> Iterator[tuple[str, _OfNumbers]]:
    """Scores that separate the learning runs: Fisher's, and a logistic regression's."""
    direction = _fisher(first / scale, second / scale) / scale
    if np.all(np.isfinite(direction)):
        yield "Fisher's direction of the output", partial(_along, direction)
    first_center = np.median((first - middle) / scale, axis=0)
    second_center = np.median((second - middle) / scale, axis=0)
    features = _Features(middle, scale, first_center, second_center)
    model = LogisticRegression(max_iter=300)
    labels = np.repeat([1, 0], [len(first), len(second)])
    with warnings.catch_warnings():
        # a score that is not quite converged is a worse guess, not a wrong one
        warnings.simplefilter("ignore")
        model.fit(features(np.concatenate([first, second])), labels)
    name = "log odds of a logistic regression on the output, its absolute values and distances"
    yield name, partial(_decision, model, features)


def _along(direction: Array, x: Array) -> Any:
    return x @ direction


def _decision(model: LogisticRegression, features: _Features, x: Array) -> Any:
    return model.decision_function(features(x))


@dataclass(frozen=True, eq=False)
class _Features:
    """What a logistic regression sees of an output of q numbers.

    Parameters
    ----------
    middle, scale
        Medians (q,) and spreads (q,) by which numbers are standardized.
    first_center, second_center
        Medians (q,) of the standardized numbers of either dataset.
    """

    middle: Array
    scale: Array
    first_center: Array
    second_center: Array

    @np.errstate(all="ignore")  # outputs may be as large as floats get
    def __call__(self, x: Array) -> Array:
        """Standardized numbers, their sizes, and norms of three differences, within ``_FAR``."""
        z = (x - self.middle) / self.scale
        columns = [z, np.abs(z)]
        for vector in (z, z - self.first_center, z - self.second_center):
            for order in (1, 2):
                columns.append(np.linalg.norm(vector, order, axis=1))
        within = np.clip(np.column_stack(columns), -_FAR, _FAR)
        return np.asarray(np.nan_to_num(within), dtype=np.float64)


def _fisher(first: Array, second: Array) -> Array:
    """Fisher's direction ``S^+ (m_1 - m_2)`` (q,) of learning runs (m, q), of unit length.

    S is the spread within a dataset. It comes from singular values, so that a direction that is
    nearly flat, because the same noise came twice along it, keeps its digits.
    """
    first_mean = first.mean(axis=0)
    second_mean = second.mean(axis=0)
    between = first_mean - second_mean
    within = np.concatenate([first - first_mean, second - second_mean])
    if not np.all(np.isfinite(within)):
        return np.full(within.shape[1], np.nan)
    _, spread, axes = np.linalg.svd(within, full_matrices=False)
    if spread[0] == 0.0:
        return np.asarray(between, dtype=np.float64)
    relative_spread = np.maximum(spread / spread[0], _NO_SPREAD)
    direction = axes.T @ (axes @ between / relative_spread**2)
    return np.asarray(direction / (np.linalg.norm(direction) or 1.0), dtype=np.float64)


#: Larger than the relative error of the inverse of the incomplete beta function.
_SLACK = 1e-10


def lower(hits: Array, runs: int, risk: float) -> Array:
    """A bound of Clopper and Pearson below a probability, wrong with probability at most ``risk``.

    The hits are counts among ``runs``.
    """
    inner = np.maximum(hits, 1)
    bound = betaincinv(inner, runs - inner + 1, risk) * (1 - _SLACK)
    return np.where(hits > 0, bound, 0.0)


def upper(hits: Array, runs: int, risk: float) -> Array:
    """A bound of Clopper and Pearson above a probability, wrong with probability at most ``risk``.

    The hits are counts among ``runs``.
    """
    # from the other end, where a risk near 0 keeps its digits
    return np.minimum(1.0, (1.0 - lower(runs - hits, runs, risk)) * (1 + _SLACK))


class CountBound:
    """Lower confidence bounds on a parameter of privacy from counts of one event.

    P is the probability of the event on one dataset, Q that on the other. With a delta the bound
    is on epsilon: P <= exp(epsilon) Q + delta, hence epsilon >= log((P - delta) / Q). Without one
    it is on mu: P <= Phi(Phi^-1(Q) + mu), hence mu >= Phi^-1(P) - Phi^-1(Q), Phi the distribution
    function of the normal distribution. It is at least 0, increases in P and decreases in Q.

    Parameters
    ----------
    runs
        Runs of each dataset in which the event is counted.
    risk
        Probability at most which the bound on P is wrong with, and that on Q: the bound on the
        parameter is right with probability at least ``1 - 2 risk``.
    delta
        The delta at which epsilon is bounded; None: mu is bounded.
    """

    @np.errstate(divide="ignore")
    def __init__(self, runs: int, risk: float, delta: float | None) -> None:
        counts = np.arange(runs + 1, dtype=np.float64)
        self.low = lower(counts, runs, risk)
        self.high = upper(counts, runs, risk)
        if delta is None:
            self._term_of_low = ndtri(self.low)
            self._term_of_high = ndtri(self.high)
        else:
            self._term_of_low = np.log(np.maximum(self.low - delta, 0.0))
            self._term_of_high = np.log(self.high)
        #: The most that any counts of this many runs give: always under P, never under Q.
        self.ceiling = self.one(runs, 0)

    @classmethod
    def of(cls, declared: Declared, runs: int, risk: float) -> CountBound:
        """On the number that is declared."""
        return cls(runs, risk, declared.delta if declared.mu is None else None)

    def __call__(self, hits: NDArray[np.int64], other_hits: NDArray[np.int64]) -> Array:
        """The bounds (m,) for whole counts (m,) of events under P and under Q."""
        # An event that never came under P gives -inf, and one that is perhaps certain under Q
        # gives +inf to subtract at worst; a bound on Q is never 0.
        term_of_low = self._term_of_low[hits.astype(np.intp)]
        bound = term_of_low - self._term_of_high[other_hits.astype(np.intp)]
        return np.maximum(bound * (1 - _SLACK), 0.0)

    def one(self, hits: int, other_hits: int) -> float:
        """The bound for one pair of counts."""
        return float(self(np.array([hits]), np.array([other_hits]))[0])


@dataclass(frozen=True, eq=False)
class Event:
    """A set of outputs.

    Parameters
    ----------
    words
        What a report calls it.
    contains
        Tells of observations whether each is in it, as a mask (m,).
    """

    words: str
    contains: Callable[[Observations], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Chosen:
    """The event that the picking runs choose for one direction.

    Parameters
    ----------
    event
        The event.
    low
        Its lower bound in the picking runs.
    """

    event: Event
    low: float


def best_events(
    pick: tuple[Observations, Observations],
    known_scores: Iterable[tuple[str, Score]],
    bound: CountBound,
    *,
    values: bool = True,
) -> tuple[tuple[Chosen, Chosen], int]:
    """The event with the largest lower bound in the picking runs, by direction.

    Parameters
    ----------
    pick
        The picking runs of both datasets. An event must be counted in other runs than these.
    known_scores
        Scores with their names, whose tails are events.
    bound
        The lower bound by which events are compared.
    values
        Whether marks and repeated values are events, too.

    Returns
    -------
    chosen
        The best event for P = first over Q = second, then that of the other direction.
    looked_at
        How many events were compared.
    """
    forward = _NOTHING
    backward = _NOTHING
    looked_at = 0
    for offer in _offers(pick, known_scores, values):
        looked_at += len(offer.first_counts)
        forward = _better(forward, offer, bound(offer.first_counts, offer.second_counts))
        backward = _better(backward, offer, bound(offer.second_counts, offer.first_counts))
    return (forward, backward), looked_at


def _better(chosen: Chosen, offer: _Offer, lows: Array) -> Chosen:
    """The best event of an offer by its lower bounds (k,), if it is better than the chosen one."""
    top = int(np.argmax(lows))
    if lows[top] > chosen.low:
        return Chosen(offer.event(top), float(lows[top]))
    return chosen


def _never(observations: Observations) -> NDArray[np.bool_]:
    return np.zeros(len(observations), dtype=bool)


_NOTHING = Chosen(Event("no event", _never), 0.0)


@dataclass(frozen=True, eq=False)
class _Offer:
    """Events by number, with their counts in the picking runs.

    Parameters
    ----------
    event
        Makes the event of a number.
    first_counts, second_counts
        How often each event came on either dataset, (k,).
    """

    event: Callable[[int], Event]
    first_counts: NDArray[np.int64]
    second_counts: NDArray[np.int64]


def _offers(
    pick: tuple[Observations, Observations],
    known_scores: Iterable[tuple[str, Score]],
    values: bool,
) -> Iterator[_Offer]:
    """Marks and repeated values, if they are wanted, then both tails of every score."""
    first, second = pick
    if values:
        yield from _repeated(first, second, attrgetter("marks"), 1)
        yield from _repeated(first, second, attrgetter("equalities"), 2)
    for name, score in known_scores:
        yield from _tails(name, score, first, second)


def _repeated(
    first: Observations,
    second: Observations,
    words_of: Callable[[Observation], frozenset[str]],
    fewest: int,
) -> Iterator[_Offer]:
    """The words that are said of at least ``fewest`` observations."""
    first_counts = _counts_of_words(first, words_of)
    second_counts = _counts_of_words(second, words_of)
    totals = first_counts + second_counts
    # sorted, because the order of a set changes from process to process
    words = sorted(word for word, times in totals.items() if times >= fewest)
    if words:
        yield _Offer(
            event=partial(_said, words, words_of),
            first_counts=np.array([first_counts[word] for word in words]),
            second_counts=np.array([second_counts[word] for word in words]),
        )


def _counts_of_words(
    observations: Observations, words_of: Callable[[Observation], frozenset[str]]
) -> Counter[str]:
    counts = Counter[str]()
    for one in observations:
        counts.update(words_of(one))
    return counts


def _said(words: Sequence[str], words_of: Callable[[Observation], frozenset[str]], i: int) -> Event:
    """That word ``i`` is said of an output."""

    def contains(observations: Observations) -> NDArray[np.bool_]:
        return np.array([words[i] in words_of(one) for one in observations], dtype=bool)

    return Event(words[i], contains)


def _tails(name: str, score: Score, first: Observations, second: Observations) -> Iterator[_Offer]:
    """Both tails of a score, from every threshold that separates the picking runs."""
    first_values = _sorted_values(score(first))
    second_values = _sorted_values(score(second))
    pooled = np.unique(np.concatenate([first_values, second_values]))
    if not pooled.size:
        return
    # a score may have no value: "above all" is an event, too
    below_all = np.nextafter(pooled[0], -np.inf)
    thresholds = np.append(below_all, pooled[:-1] / 2 + pooled[1:] / 2)
    first_below = np.searchsorted(first_values, thresholds, side="right")
    second_below = np.searchsorted(second_values, thresholds, side="right")
    yield _Offer(
        event=partial(_upper_tail, name, score, thresholds),
        first_counts=len(first_values) - first_below,
        second_counts=len(second_values) - second_below,
    )
    yield _Offer(partial(_lower_tail, name, score, thresholds), first_below, second_below)


def _sorted_values(values: Array) -> Array:
    """The values that are numbers, in order."""
    return np.sort(values[~np.isnan(values)])


def _upper_tail(name: str, score: Score, thresholds: Array, i: int) -> Event:
    def contains(observations: Observations) -> NDArray[np.bool_]:
        return np.asarray(score(observations) > thresholds[i])

    return Event(f"{name} > {thresholds[i]:.9g}", contains)


def _lower_tail(name: str, score: Score, thresholds: Array, i: int) -> Event:
    def contains(observations: Observations) -> NDArray[np.bool_]:
        return np.asarray(score(observations) <= thresholds[i])

    return Event(f"{name} <= {thresholds[i]:.9g}", contains)
