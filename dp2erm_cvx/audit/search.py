"""One search for all audits: limits, workers, what is kept."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import check_settings, setting, whole_number
from dp2erm_cvx.errors import DataError, DeclarationError
from dp2erm_cvx.parallel import run_tasks, whole_workers
from dp2erm_cvx.solve.apart import SECONDS


@dataclass(frozen=True)
class Deadline:
    """When something has to end; never, by default.

    Parameters
    ----------
    at
        The moment, in seconds of the clock.
    clock
        Tells the seconds. That of the system counts them since the epoch, alike on every machine.
    """

    at: float = math.inf
    clock: Callable[[], float] = time.time

    @property
    def passed(self) -> bool:
        """True once the moment has come."""
        return self.clock() >= self.at

    @property
    def left(self) -> float:
        """Seconds until then, 0 at least."""
        return max(self.at - self.clock(), 0.0)

    def check(self) -> None:
        """Raise OutOfTime once the moment has come."""
        if self.passed:
            raise OutOfTime

    def part(self, share: float) -> Deadline:
        """The moment at which this share of the time that is left is over."""
        if math.isinf(self.at):
            return self
        return Deadline(self.clock() + share * self.left, self.clock)


class OutOfTime(Exception):
    """A deadline has passed in the middle of a look, which ends without a result."""


@dataclass(frozen=True)
class SearchPlan:
    """Limits of a search, and how it runs; at least one limit is needed.

    Parameters
    ----------
    evaluations
        Search at most so many neighbors. Of other audits: pairs. Only a search without ``seconds``
        is repeatable.
    seconds
        Search for at most so long, the last audit of what was found included. At least one
        evaluation is done in any case, and what was cut short says so.
    solver_seconds
        End a solver that is reached through CVXPY after so long on one problem. It runs in a
        process of its own. An audit of weights compares with such a solver.
    seed
        Repeats a search; it has nothing to do with a release.
    workers
        Processes, -1 for all cores, or what ``joblib.parallel_config`` says. They do not change the
        result.
    checkpoint
        File that holds the search as it goes. A search with the same arguments goes on from there,
        to the same result as without a break.
    progress
        Called after every round with the share of the limit, the evaluations so far and the largest
        ratio to a bound.
    clock
        Tells the seconds; a test brings its own.

    Raises DeclarationError for anything else.
    """

    evaluations: int | None = setting(None, whole_number, at_least=1)
    seconds: float | None = setting(None, above=0.0)
    seed: int = setting(0, whole_number, at_least=0)
    workers: int = 1
    checkpoint: Path | str | None = None
    progress: Callable[[float, int, float], None] | None = field(
        default=None, repr=False, compare=False
    )
    solver_seconds: float = setting(SECONDS, above=0.0)
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.evaluations is None and self.seconds is None:
            raise DeclarationError("search: declare evaluations or seconds")
        check_settings(self)
        object.__setattr__(self, "workers", whole_workers(self.workers))
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", Path(self.checkpoint))

    def deadline(self) -> Deadline:
        """When a search that begins now has to end."""
        if self.seconds is None:
            return Deadline(clock=self.clock)
        return Deadline(self.clock() + self.seconds, self.clock)


#: A number, or several that are compared one after the other.
Height = Any


@dataclass
class Gain:
    """Results of one look: pairs with their heights by name, numbers to be added up, and largest
    numbers.

    ``cut`` says that the look ended early, at the deadline of the search.
    """

    spent: int = 1
    pairs: Sequence[tuple[Mapping[str, Height], Any]] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    largest: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False


@dataclass
class State:
    """Where a search stands after ``rounds`` looks: each draws from a generator of its own.

    ``best`` holds what is kept of a pair by the name of what it is high in: how high, largest
    first, and the pair.
    """

    rounds: int = 0
    spent: int = 0
    counts: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    best: dict[str, list[tuple[Height, Any]]] = field(default_factory=dict)

    def pairs(self, name: str) -> list[Any]:
        """The best pairs by ``name``, largest first."""
        return [pair for _, pair in self.best.get(name, ())]

    @staticmethod
    def distinct(pairs: Sequence[Any]) -> list[Any]:
        """Each of the pairs once, in their order."""
        return list({_in_json(pair): pair for pair in pairs}.values())

    def elite(self, name: str, rng: np.random.Generator) -> Any:
        """One of the best pairs by ``name``, better ones more often; None before the first."""
        best = self.pairs(name)
        return best[min(int(rng.geometric(0.5)), len(best)) - 1] if best else None

    def add(self, gain: Gain, keep: int, apart: float) -> None:
        """Count a look, and keep ``keep`` pairs of every name, their heights no less than
        ``apart``.
        """
        self.rounds += 1
        self.spent += gain.spent
        for name, count in gain.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for name, size in gain.largest.items():
            self.largest[name] = float(np.maximum(self.largest.get(name, 0.0), size))
        for heights, pair in gain.pairs:
            for name, height in heights.items():
                best = self.best.setdefault(name, [])
                if len(best) == keep and not height > best[-1][0]:
                    continue
                if np.isnan(height).any():  # which nothing can be sorted by
                    continue
                if not apart or not any(abs(height - known) < apart for known, _ in best):
                    best.append((height, pair))
                    best.sort(key=lambda item: item[0], reverse=True)
                    del best[keep:]


def explore(
    look: Callable[[State, int, int], Gain],
    plan: SearchPlan,
    *,
    most: Callable[[int], int] = lambda number: 1,
    highest: Callable[[State], float] = lambda state: 0.0,
    keep: int = 6,
    apart: float = 0.0,
    wave: int = 1,
    call: object = None,
    kinds: Sequence[type] = (),
    until: Deadline | None = None,
) -> State:
    """Search in waves of looks until a limit is reached; the first look is always taken.

    ``look(state, number, room)`` tries new pairs, or changes of the best before its wave, with at
    most ``room`` evaluations, ``most(number)`` at most, and depends on nothing else. ``highest`` is
    the largest ratio to a bound so far. ``keep`` pairs are kept, their heights no less than
    ``apart``. ``wave`` looks start from the same best pairs, whoever takes them: no result depends
    on the workers. ``call`` is what a checkpoint belongs to, and ``kinds`` the classes of pairs in
    it; a search without has no checkpoints. One is written wherever the search could go on after a
    stop. ``until`` is when the search ends, default: after the seconds of the plan; looks that take
    long keep to it by themselves.

    Raises DataError for a checkpoint of another search.
    """
    path = Path(plan.checkpoint) if plan.checkpoint is not None and kinds else None
    state = _loaded(path, call, kinds) if path is not None and path.exists() else State()
    limit, seconds = plan.evaluations or math.inf, plan.seconds or math.inf
    began, whole, run = plan.clock(), True, partial(_look, look)
    until = until or plan.deadline()
    while (state.spent < limit and not until.passed) or state.rounds == 0:
        left = max(limit - state.spent, 0)
        # looks are added up one by one: what a wave starts from must not change meanwhile
        before = State(
            state.rounds, state.spent, best={name: [*pairs] for name, pairs in state.best.items()}
        )
        tasks = []
        for number in range(state.rounds, state.rounds + wave):
            room, left = int(min(most(number), left)), left - most(number)
            whole = whole and left >= 0
            if room > 0:
                tasks.append((before, number, room, until if number else Deadline()))
        together = run_tasks(run, tasks, workers=plan.workers if wave > 1 else 1)
        for gain in together:
            whole = whole and gain is not None and not gain.cut
            state.add(gain or Gain(0), keep, apart)
            if plan.progress is not None:
                share = max(state.spent / limit, (plan.clock() - began) / seconds)
                plan.progress(min(share, 1.0), state.spent, highest(state))
        # nothing is gone on from a wave that was cut short, so that a stop does not change the
        # result
        if path is not None and whole:
            # all of it or nothing, and a file of this process alone: another may work in the same
            # folder
            part = path.with_name(f"{path.name}.{os.getpid()}.part")
            part.write_text(_in_json({"call": _in_json(call), **vars(state)}), encoding="utf-8")
            part.replace(path)
    return state


def _in_json(value: object) -> str:
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"$array": value.tolist(), "dtype": value.dtype.name}
    if isinstance(value, np.number):
        return float(value)
    left_out = getattr(type(value), "NOT_SAVED", ())
    kept = {name: part for name, part in vars(value).items() if name not in left_out}
    return {"$pair": type(value).__name__, **kept}


def _loaded(path: Path, call: object, kinds: Sequence[type]) -> State:
    known = {kind.__name__: kind for kind in kinds}

    def read(plain: dict[str, Any]) -> Any:
        if "$array" in plain:
            return np.array(plain["$array"], dtype=plain["dtype"])
        return known[plain.pop("$pair")](**plain) if "$pair" in plain else plain

    try:
        plain = json.loads(path.read_text(encoding="utf-8"), object_hook=read)
        if plain.pop("call") != _in_json(call):
            raise DataError(f"{path}: the state of another audit")
        return State(**plain)
    except DataError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not the state of an audit ({type(error).__name__})") from None


def _look(
    look: Callable[[State, int, int], Gain], before: State, number: int, room: int, until: Deadline
) -> Gain | None:
    """None after the deadline."""
    if until.passed:
        return None
    return look(before, number, room)


#: Generations without a gain of 1e-6 of the value after which a climb ends.
_PATIENCE = 30


def evolve(
    objective: Callable[[list[tuple[int, Array]]], Sequence[Array]],
    climbs: Sequence[tuple[Array, float, int]],
    rng: np.random.Generator,
) -> list[tuple[Array, float, int]]:
    """The best candidate (d,) of every climb, its value, and how many were tried.

    A climb is its start (d,), its first step, and how many candidates it may try. All go in
    lockstep, so that many candidates are looked at together: ``objective`` maps candidates (b, d)
    by the number of their climb to values (b,) each, in this order; NaN where one is not admitted.

    (mu/mu_w, lambda)-CMA-ES with the default constants of Hansen (2016, The CMA evolution strategy:
    a tutorial).
    """
    going = [_climb(*climb, rng) for climb in climbs]
    now = [next(climb) for climb in going]
    while open_ := [
        (k, candidates) for k, candidates in enumerate(now) if isinstance(candidates, np.ndarray)
    ]:
        for (k, _), values in zip(open_, objective(open_), strict=True):
            now[k] = going[k].send(values)
    return now


def _climb(
    start: Array, step: float, evaluations: int, rng: np.random.Generator
) -> Generator[Any, Any, None]:
    """Candidates of one climb, whose values it is sent, and its end."""
    d = len(start)
    size = 4 + int(3 * math.log(d))
    parents = size // 2
    weights = math.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mass = 1.0 / float(np.sum(weights**2))
    c_path = (4 + mass / d) / (d + 4 + 2 * mass / d)
    c_step = (mass + 2) / (d + mass + 5)
    c_one = 2 / ((d + 1.3) ** 2 + mass)
    c_many = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass))
    damping = 1 + 2 * max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1) + c_step
    expected = math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2))
    mean, covariance = start.copy(), np.eye(d)
    path, step_path = np.zeros(d), np.zeros(d)
    best, largest, spent, gained, generation = start, -math.inf, 0, 0, 0
    while spent + size <= evaluations and generation - gained < _PATIENCE and 1e-9 < step < 1e4:
        generation += 1
        scale, basis = np.linalg.eigh(covariance)
        root = basis * np.sqrt(np.maximum(scale, 1e-20))
        normal = rng.standard_normal((size, d))
        moves = normal @ root.T
        values = np.nan_to_num((yield mean + step * moves), nan=-np.inf, posinf=-np.inf)
        spent += size
        order = np.argsort(-values, kind="stable")[:parents]
        top = float(values[order[0]])
        if top > largest:
            if not top <= largest + 1e-6 * abs(largest):
                gained = generation
            best, largest = mean + step * moves[order[0]], top
        shift = weights @ moves[order]
        mean = mean + step * shift
        turned = basis @ (weights @ normal[order])
        step_path = (1 - c_step) * step_path + math.sqrt(c_step * (2 - c_step) * mass) * turned
        length = float(np.linalg.norm(step_path))
        usual = (
            length / math.sqrt(1 - (1 - c_step) ** (2 * generation))
            < (1.4 + 2 / (d + 1)) * expected
        )
        path = (1 - c_path) * path + usual * math.sqrt(c_path * (2 - c_path) * mass) * shift
        chosen = moves[order]
        covariance = (
            (1 - c_one - c_many) * covariance
            + c_one * (np.outer(path, path) + (1 - usual) * c_path * (2 - c_path) * covariance)
            + c_many * (chosen.T * weights) @ chosen
        )
        covariance = 0.5 * (covariance + covariance.T)
        step *= math.exp(min(1.0, c_step / damping * (length / expected - 1)))
    yield best, largest, spent
