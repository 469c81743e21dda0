"""Runs of any mechanism: how many, what they give, and every number of it whose tails are events."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import run_tasks, whole_workers
from dp2erm_cvx.public import public_fraction, whole_number

_LARGEST_EXACT = 2**53
_DEEPEST = 8


@dataclass(frozen=True, repr=False)
class Observation:
    """One output, taken apart.

    ``kind`` is its structure, such as ``array (3,)`` or ``raised ValueError``. ``numbers`` (q,) are the
    numbers in it, in the order of ``names``. ``marks`` are what is said of it in words: its kind, its texts,
    and which numbers are not finite. ``key`` is the same for equal outputs only; -0.0 is not 0.0.
    """

    kind: str
    numbers: Array
    names: tuple[str, ...]
    marks: frozenset[str]
    key: str | bytes
    own: Mapping[str, float] = field(default_factory=dict)


def of_output(output: object) -> Observation:
    """Take apart a number, text, None, an array, or lists, tuples and dicts of those.

    Raises DeclarationError for anything else: equal objects could not be distinguished from different ones.
    """
    numbers: list[float] = []
    names: list[str] = []
    texts: list[str] = []
    kind = _walk(output, "output", numbers, names, texts, 0)
    values = np.array(numbers, dtype=np.float64)
    odd = np.flatnonzero(~np.isfinite(values))
    marks = {f"the output is of kind {kind}", *texts, *(f"{names[j]} is {values[j]:g}" for j in odd)}
    if odd.size:
        marks.add("a number is not finite")
    key = "\0".join([kind, *sorted(texts)]).encode("utf-8", "surrogatepass") + b"\0" + values.tobytes()
    return Observation(kind, values, tuple(names), frozenset(marks), key)


def of_exception(raised: Exception) -> Observation:
    """A refusal is an observation, and so is what it says."""
    kind = f"raised {type(raised).__name__}"
    said = f"{kind}: {raised}"
    return Observation(kind, np.empty(0), (), frozenset({"the mechanism raised", kind, said}), said)


def _walk(value: Any, name: str, numbers: list[float], names: list[str], texts: list[str], depth: int) -> str:
    if depth > _DEEPEST:
        raise DeclarationError(f"mechanism: its output is nested more than {_DEEPEST} deep")
    if value is None or isinstance(value, bool | str | bytes | np.bool_):
        texts.append(f"{name} is {value!r}")
        return "none" if value is None else type(value).__name__
    if isinstance(value, int | np.integer) and abs(int(value)) > _LARGEST_EXACT:
        # a float would not hold it
        texts.append(f"{name} is {int(value)}")
    if isinstance(value, int | float | np.integer | np.floating):
        names.append(name)
        numbers.append(_number(value))
        return "number"
    if isinstance(value, complex | np.complexfloating):
        names += [f"{name}.real", f"{name}.imag"]
        numbers += [float(value.real), float(value.imag)]
        return "complex number"
    if isinstance(value, Mapping):
        parts = [
            f"{key!r}: {_walk(value[key], f'{name}[{key!r}]', numbers, names, texts, depth + 1)}"
            for key in sorted(value, key=repr)
        ]
        return "{" + ", ".join(parts) + "}"
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype.kind in "fiu" and array.dtype.itemsize <= 8 and array.dtype != np.uint64:
            texts += [f"{name} has type {array.dtype}"] if array.dtype != np.float64 else []
            names += [name + "".join(f"[{i}]" for i in index) for index in np.ndindex(array.shape)]
            numbers += [_number(entry) for entry in array.ravel().tolist()]
            return f"array {array.shape}"
        value = array.tolist()
    if isinstance(value, list | tuple):
        parts = [
            _walk(item, f"{name}[{i}]", numbers, names, texts, depth + 1) for i, item in enumerate(value)
        ]
        alike = len(set(parts)) == 1
        return f"{len(parts)} x {parts[0]}" if alike else "(" + ", ".join(parts) + ")"
    if hasattr(value, "__array__"):
        return _walk(value, name, numbers, names, texts, depth + 1)
    raise DeclarationError(
        f"mechanism: {name} is of type {type(value).__name__}: return a number, an array, text, None, "
        "or lists and dicts of those"
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


#: Marks and repeated values, tails, learned scores, and the grid of floating point.
FAMILIES = ("values", "tails", "learned", "bits")

#: What each family is called in a report.
_NAMES = {
    "values": "marks and repeated values",
    "tails": "tails of coordinates and norms",
    "learned": "learned scores",
    "bits": "the lowest bits of coordinates",
}


@dataclass(frozen=True)
class Attack:
    """Runs of a mechanism on each of two datasets, and the events that are looked for in its outputs.

    Parameters
    ----------
    runs
        On each dataset, at least 40.
    confidence
        Probability at least which the bound is right with, in (0, 1).
    events
        Families to look at: "values", "tails", "learned", "bits"; may be empty if there are ``statistics``.
    statistics
        Functions from an output to a number of your own, whose tails are looked at as well.
    takes_rng
        Whether the mechanism takes a ``numpy.random.Generator`` after the dataset.
    seed
        Seeds the generators of a mechanism that takes one; drawn and reported if None.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the result.

    Raises DeclarationError for anything else.
    """

    runs: int = 2000
    confidence: float = 0.99
    events: Sequence[str] = FAMILIES
    statistics: Mapping[str, Callable[[Any], float]] = field(default_factory=dict)
    takes_rng: bool = False
    seed: int | None = None
    workers: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", whole_number("runs", self.runs, at_least=40))
        object.__setattr__(self, "confidence", public_fraction("confidence", self.confidence))
        object.__setattr__(self, "events", _families(self.events, own=bool(self.statistics)))
        object.__setattr__(self, "statistics", dict(self.statistics))
        if self.seed is not None:
            object.__setattr__(self, "seed", whole_number("seed", self.seed, at_least=0))
        object.__setattr__(self, "workers", whole_workers(self.workers))

    @property
    def names(self) -> list[str]:
        """What is looked at, in words."""
        own = [f"{len(self.statistics)} own statistics"] if self.statistics else []
        return [_NAMES[family] for family in self.events] + own


def _families(events: Sequence[str], *, own: bool) -> tuple[str, ...]:
    chosen = (events,) if isinstance(events, str) else tuple(events)
    for family in chosen:
        if family not in FAMILIES:
            raise DeclarationError(f"events: {family!r} is unknown: choose from {', '.join(FAMILIES)}")
    if not chosen and not own:
        raise DeclarationError("events: choose at least one family, or give statistics")
    return tuple(family for family in FAMILIES if family in chosen)


#: Runs of each dataset that one worker does at a time: fixed, so that no result depends on the workers.
_CHUNK = 50


def run_all(
    mechanism: Callable[..., Any], datasets: tuple[Any, Any], attack: Attack, runs: int, seed: int
) -> tuple[list[Observation], list[Observation]]:
    """``runs`` observations of each dataset, each run with a generator of its own."""
    chunks = [(start, min(start + _CHUNK, runs)) for start in range(0, runs, _CHUNK)]
    # what processes are sent: the workers of an attack are none of theirs
    once = partial(_run, mechanism, datasets, attack.takes_rng, seed, attack.statistics)
    pairs = [pair for part in run_tasks(once, chunks, workers=attack.workers) for pair in part]
    return [one for one, _ in pairs], [other for _, other in pairs]


def _run(
    mechanism: Callable[..., Any],
    datasets: tuple[Any, Any],
    takes_rng: bool,
    seed: int,
    statistics: Mapping[str, Callable[[Any], float]],
    start: int,
    stop: int,
) -> list[tuple[Observation, ...]]:
    """Runs ``start`` to ``stop`` on the first and the second dataset, in turns."""

    def once(which: int, run: int) -> Observation:
        settings = (np.random.default_rng([seed, which, run]),) if takes_rng else ()
        try:
            output = mechanism(datasets[which], *settings)
        except Exception as raised:
            return of_exception(raised)
        own = {name: float(statistic(output)) for name, statistic in statistics.items()}
        return dataclasses.replace(of_output(output), own=own)

    return [(once(0, run), once(1, run)) for run in range(start, stop)]


#: Kinds of output with fewer learning runs have no scores of their own, and at most so many kinds have.
_FEWEST, _MOST_KINDS = 10, 6
#: Standardized numbers are cut off here before a classifier sees them.
_FAR = 20.0
#: Bins of a coordinate, of equal shares of the learning runs.
_BINS = 12
#: Directions of a relative spread below this are taken to have none.
_FLAT = 1e-13

Observations = Sequence[Observation]


@dataclass(frozen=True)
class Score:
    """``name`` of a number for every observation, given by ``function``; NaN where it has none."""

    name: str
    function: Callable[[Observations], Array]

    def __call__(self, observations: Observations) -> Array:
        """Values (m,), NaN where one is not finite."""
        with np.errstate(all="ignore"):
            values = np.asarray(self.function(observations), dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)


def scores(first: Observations, second: Observations, families: Sequence[str]) -> Iterator[Score]:
    """Scores from the learning runs of both datasets."""
    both = (*first, *second)
    for name in sorted({name for one in both for name in one.own}):
        yield Score(name, partial(_own, name))
    if "values" in families:
        mine, theirs = (Counter(one.key for one in part) for part in (first, second))
        keys = mine.keys() | theirs.keys()
        odds = {key: math.log((mine[key] + 0.5) / (theirs[key] + 0.5)) for key in keys}
        name = "log odds of the same output among the learning runs"  # 0 for what was not seen
        yield Score(name, lambda them: np.array([odds.get(one.key, 0.0) for one in them]))
    kinds = Counter(one.kind for one in both if len(one.numbers))
    names = {one.kind: one.names for one in both}
    for kind, count in kinds.most_common(_MOST_KINDS):
        if count < _FEWEST:
            break
        rows = [_numbers_of(part, kind).reshape(-1, len(names[kind])) for part in (first, second)]
        one, other = (part[np.all(np.isfinite(part), axis=1)] for part in rows)
        for name, function in _of_numbers(one, other, names[kind], families):
            yield Score(name, partial(_within, kind, function))


#: A function of the numbers (m, q) of outputs of one kind, giving (m,).
_OfNumbers = Callable[[Array], Array]


def _numbers_of(observations: Observations, kind: str) -> Array:
    """The numbers (m, q) of the observations of ``kind``."""
    return np.array([one.numbers for one in observations if one.kind == kind])


def _within(kind: str, function: _OfNumbers, observations: Observations) -> Array:
    """Of the observations of ``kind``; NaN for others."""
    mine = np.array([one.kind == kind for one in observations], dtype=bool)
    values = np.full(len(observations), np.nan)
    if mine.any():
        values[mine] = function(_numbers_of(observations, kind))
    return values


def _of_numbers(
    first: Array, second: Array, names: Sequence[str], families: Sequence[str]
) -> Iterator[tuple[str, _OfNumbers]]:
    """Of one kind of output, from the finite learning runs (m, q) of both datasets."""
    if len(first) + len(second) >= _FEWEST:
        if "tails" in families:
            yield from _tails(np.concatenate([first, second]), names)
        if "learned" in families and min(len(first), len(second)) >= 5:
            yield from _learned(first, second, names)
    if "bits" in families:  # naive floating-point noise leaks through the grid that a coordinate lies on
        for j, name in enumerate(names):
            yield f"lowest set bit of {name}", _column(j, lowest_bits)


def _tails(pooled: Array, names: Sequence[str]) -> Iterator[tuple[str, _OfNumbers]]:
    """Every coordinate, its distance from the middle, and norms."""
    with np.errstate(all="ignore"):
        middle, scale = _standard(pooled)
    for j, name in enumerate(names):
        yield name, _column(j, np.asarray)
        yield f"|{name} - {middle[j]:.6g}|", _column([j], partial(_length, np.inf, middle[j], 1.0))
    for order, label in ((1, "l1"), (2, "l2"), (np.inf, "largest")) if len(names) > 1 else ():
        yield f"{label} norm of the standardized output", partial(_length, order, middle, scale)


def _learned(first: Array, second: Array, names: Sequence[str]) -> Iterator[tuple[str, _OfNumbers]]:
    """Scores that separate the learning runs: of each coordinate, Fisher's, a logistic regression's."""
    for j, name in enumerate(names):
        yield f"log odds of {name} in bins", _column(j, _bins(first[:, j], second[:, j]))
    pooled = np.concatenate([first, second])
    with np.errstate(all="ignore"):  # outputs may be as large as floats get
        direction = _fisher(first, second)
        middle, scale = _standard(pooled)
        centers = [np.median((part - middle) / scale, axis=0) for part in (first, second)]
    if np.all(np.isfinite(direction)):
        yield "Fisher's direction of the output", lambda x: x @ direction

    def features(x: Array) -> Array:
        with np.errstate(all="ignore"):
            z = (x - middle) / scale
            ends = [z - center for center in centers]
            lengths = [np.linalg.norm(v, order, axis=1) for v in (z, *ends) for order in (1, 2)]
        cut = np.clip(np.column_stack([z, np.abs(z), *lengths]), -_FAR, _FAR)
        return np.asarray(np.nan_to_num(cut), dtype=np.float64)

    labels = np.repeat([1, 0], [len(first), len(second)])
    model = LogisticRegression(max_iter=300)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # a score that is not quite converged is a worse guess, not a wrong one
        warnings.simplefilter("ignore")
        model.fit(features(pooled), labels)
    name = "log odds of a logistic regression on the output, its absolute values and distances"
    yield name, lambda x: model.decision_function(features(x))


def _own(name: str, observations: Observations) -> Array:
    return np.array([one.own.get(name, math.nan) for one in observations])


def _length(order: float, middle: Array, scale: Array | float, x: Array) -> Array:
    return np.asarray(np.linalg.norm((x - middle) / scale, order, axis=1), dtype=np.float64)


def _column(j: int | list[int], of: _OfNumbers) -> _OfNumbers:
    return lambda x: of(x[:, j])


def _bins(first: Array, second: Array) -> _OfNumbers:
    """The log odds of the values below, on, between and above the edges of bins."""
    pooled = np.concatenate([first, second])
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _BINS + 1), method="lower"))
    counts = [np.bincount(_places(part, edges), minlength=2 * len(edges) + 1) for part in (first, second)]
    odds = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    return lambda values: odds[_places(values, edges)]


def _places(values: Array, edges: Array) -> NDArray[np.intp]:
    # a value on an edge, such as a bound that outputs are clipped to, is a place of its own
    return np.searchsorted(edges, values, side="left") + np.searchsorted(edges, values, side="right")


def _standard(x: Array) -> tuple[Array, Array]:
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = np.where(high > low, high - low, np.std(x, axis=0))
    return middle, np.where(spread > 0, spread, 1.0)


def _fisher(first: Array, second: Array) -> Array:
    """``S^+ (m_1 - m_2)`` (q,), S the spread within a dataset, of learning runs (m, q).

    It comes from singular values, so that a direction that is nearly flat, because the same noise came twice
    along it, keeps its digits.
    """
    _, scale = _standard(np.concatenate([first, second]))
    one, other = first / scale, second / scale
    between = one.mean(axis=0) - other.mean(axis=0)
    within = np.concatenate([one - one.mean(axis=0), other - other.mean(axis=0)])
    if not np.all(np.isfinite(within)):
        return np.full(within.shape[1], np.nan)
    _, spread, axes = np.linalg.svd(within, full_matrices=False)
    if spread[0] == 0.0:
        return np.asarray(between / scale, dtype=np.float64)
    relative = np.maximum(spread / spread[0], _FLAT)
    direction = axes.T @ (axes @ between / relative**2)
    length = float(np.linalg.norm(direction))
    return np.asarray(direction / scale / (length if length > 0 else 1.0), dtype=np.float64)
