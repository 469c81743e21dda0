"""What runs of any mechanism give: each observation is a kind, numbers, and marks that it bears."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.parallel import run_tasks

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


#: Runs of each dataset that one worker does at a time: fixed, so that no result depends on the workers.
CHUNK = 50


@dataclass(frozen=True)
class Runner:
    """A mechanism and what it is run on.

    ``mechanism(dataset)``, or ``mechanism(dataset, rng)`` where it ``takes_rng``: each run has a
    ``numpy.random.Generator`` of its own. ``statistics`` are numbers that the caller wants looked at.
    """

    mechanism: Callable[..., Any]
    datasets: tuple[Any, Any]
    takes_rng: bool
    seed: int
    statistics: Mapping[str, Callable[[Any], float]]

    def run(self, start: int, stop: int) -> list[tuple[Observation, Observation]]:
        """Runs ``start`` to ``stop`` on the first and the second dataset, in turns."""
        return [(self._once(0, run), self._once(1, run)) for run in range(start, stop)]

    def _once(self, which: int, run: int) -> Observation:
        dataset = self.datasets[which]
        settings = (np.random.default_rng([self.seed, which, run]),) if self.takes_rng else ()
        try:
            output = self.mechanism(dataset, *settings)
        except Exception as raised:
            return of_exception(raised)
        own = {name: float(statistic(output)) for name, statistic in self.statistics.items()}
        return dataclasses.replace(of_output(output), own=own)


def run_all(runner: Runner, runs: int, workers: int) -> tuple[list[Observation], list[Observation]]:
    """``runs`` observations of each dataset; more than one worker goes through joblib and its backend."""
    chunks = [(start, min(start + CHUNK, runs)) for start in range(0, runs, CHUNK)]
    parts = run_tasks(runner.run, chunks, workers=workers)
    pairs = [pair for part in parts for pair in part]
    return [one for one, _ in pairs], [other for _, other in pairs]
