"""One search for all audits: limits, workers, what is kept."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
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
    """A deadline has passed in the middle of an attempt, which ends without a result."""


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
        Called after every attempt with the share of the limit, the evaluations so far and the
        largest ratio to a bound.
    clock
        Tells the seconds; a test brings its own.

    Raises
    ------
    DeclarationError
        For anything else.
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
    """Results of one attempt.

    Parameters
    ----------
    spent
        Evaluations that the attempt took.
    pairs
        Pairs that were found, each behind its heights by the name of what it is high in.
    counts
        Numbers that are added up over all attempts, by name.
    largest
        Numbers of which the largest of all attempts is kept, by name.
    cut
        True if the attempt ended early, at the deadline of the search.
    """

    spent: int = 1
    pairs: Sequence[tuple[Mapping[str, Height], Any]] = ()
    counts: Mapping[str, float] = field(default_factory=dict)
    largest: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False


@dataclass
class State:
    """Where a search stands after a number of attempts.

    Parameters
    ----------
    attempts
        Attempts so far, each of which draws from a generator of its own.
    spent
        Evaluations so far.
    counts
        Sums of what the attempts counted, by name.
    largest
        Largest numbers that the attempts returned, by name.
    best
        Pairs that are kept by the name of what they are high in, each behind its height, largest
        first.
    """

    attempts: int = 0
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
        if not best:
            return None
        place = min(int(rng.geometric(0.5)), len(best))
        return best[place - 1]

    def at_start_of_wave(self) -> State:
        """A copy that stays as it is while the attempts of a wave are added one by one."""
        best = {name: [*pairs] for name, pairs in self.best.items()}
        return State(self.attempts, self.spent, best=best)

    def add(self, gain: Gain, keep: int, apart: float) -> None:
        """Count an attempt, and keep its best pairs.

        Parameters
        ----------
        gain
            Results of the attempt.
        keep
            How many pairs are kept of every name.
        apart
            The least distance between the heights of those that are kept.
        """
        self.attempts += 1
        self.spent += gain.spent
        for name, count in gain.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for name, size in gain.largest.items():
            self.largest[name] = float(np.maximum(self.largest.get(name, 0.0), size))
        for heights, pair in gain.pairs:
            for name, height in heights.items():
                self._keep(name, height, pair, keep, apart)

    def _keep(self, name: str, height: Height, pair: Any, keep: int, apart: float) -> None:
        """Put a pair among the best by ``name``, unless it is too low or too near to another."""
        best = self.best.setdefault(name, [])
        if len(best) == keep:
            lowest, _ = best[-1]
            if not height > lowest:
                return
        # nothing can be sorted by a height that is no number
        if np.isnan(height).any():
            return
        if apart and any(abs(height - kept) < apart for kept, _ in best):
            return
        best.append((height, pair))
        best.sort(key=lambda item: item[0], reverse=True)
        del best[keep:]


def explore(
    attempt: Callable[[State, int, int], Gain],
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
    """Search in waves of attempts until a limit is reached; the first attempt is always taken.

    An attempt is one call of ``attempt``, which may try many pairs.

    Parameters
    ----------
    attempt
        ``attempt(state, number, room)`` tries new pairs, or changes of the best before its wave,
        with at most ``room`` evaluations. Its ``number`` is its index among all attempts, and seeds
        it; attempts that are made one by one may be seeded by the evaluations before them instead.
        It depends on nothing else.
    plan
        The limits of the search, its workers, and its checkpoint.
    most
        How many evaluations an attempt takes at most, by its number.
    highest
        The largest ratio to a bound so far, which is told to ``plan.progress``.
    keep
        How many pairs are kept of every name.
    apart
        The least distance between the heights of those that are kept.
    wave
        Attempts that start from the same best pairs, whoever takes them: no result depends on the
        workers.
    call
        What a checkpoint belongs to. One is written wherever the search could go on after a stop.
    kinds
        Classes of the pairs in a checkpoint. A search without any has no checkpoints.
    until
        When the search ends; default: after the seconds of the plan. Attempts that take long
        keep to it by themselves.

    Returns
    -------
    state
        Where the search ended.

    Raises
    ------
    DataError
        If the checkpoint is that of another search.
    """
    state = State()
    checkpoint = None
    if plan.checkpoint is not None and kinds:
        checkpoint = _Checkpoint(Path(plan.checkpoint), _in_json(call), kinds)
        state = checkpoint.read()
    limit = plan.evaluations or math.inf
    seconds = plan.seconds or math.inf
    began = plan.clock()
    until = until or plan.deadline()
    workers = 1
    if wave > 1:
        workers = plan.workers
    is_whole = True
    while state.attempts == 0 or (state.spent < limit and not until.passed):
        numbers = range(state.attempts, state.attempts + wave)
        tasks, is_affordable = _tasks_of_wave(state, numbers, most, limit, until)
        is_whole = is_whole and is_affordable
        for gain in run_tasks(partial(_attempt_in_time, attempt), tasks, workers=workers):
            is_whole = is_whole and gain is not None and not gain.cut
            state.add(gain or Gain(0), keep, apart)
            if plan.progress is not None:
                share = max(state.spent / limit, (plan.clock() - began) / seconds)
                plan.progress(min(share, 1.0), state.spent, highest(state))
        # A search does not go on from a wave that was cut short: a stop must not change the result.
        if checkpoint is not None and is_whole:
            checkpoint.write(state)
    return state


def _tasks_of_wave(
    state: State, numbers: Sequence[int], most: Callable[[int], int], limit: float, until: Deadline
) -> tuple[list[tuple[State, int, int, Deadline]], bool]:
    """The attempts of a wave, as :func:`_attempt_in_time` takes them.

    Parameters
    ----------
    state
        Where the search stands.
    numbers
        Numbers of the attempts.
    most
        How many evaluations an attempt takes at most, by its number.
    limit
        Evaluations of the whole search.
    until
        When the search ends.

    Returns
    -------
    tasks
        Those for which any evaluation is left.
    is_affordable
        Whether all attempts have as many evaluations as they may take.
    """
    before = state.at_start_of_wave()
    evaluations_left = max(limit - state.spent, 0)
    tasks = []
    for number in numbers:
        wanted = most(number)
        room = int(min(wanted, evaluations_left))
        evaluations_left = evaluations_left - wanted
        end = until
        if number == 0:
            # the first attempt is taken whatever the time
            end = Deadline()
        if room > 0:
            tasks.append((before, number, room, end))
    return tasks, evaluations_left >= 0


@dataclass(frozen=True)
class _Checkpoint:
    """The file that holds a search as it goes.

    Parameters
    ----------
    path
        The file.
    call
        The arguments of the search, in JSON.
    kinds
        Classes of the pairs in the file.
    """

    path: Path
    call: str
    kinds: Sequence[type]

    def write(self, state: State) -> None:
        """Write all of the state, or nothing."""
        # The part is a file of this process alone: another may work in the same folder.
        part = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        part.write_text(_in_json({"call": self.call, **vars(state)}), encoding="utf-8")
        part.replace(self.path)

    def read(self) -> State:
        """The state in the file; that of a search which begins, where there is no file.

        Raises
        ------
        DataError
            If the file holds another search, or none.
        """
        if not self.path.exists():
            return State()
        try:
            text = self.path.read_text(encoding="utf-8")
            plain = json.loads(text, object_hook=self._of_plain)
            if plain.pop("call") != self.call:
                raise DataError(f"{self.path}: the state of another audit")
            return State(**plain)
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            kind = type(error).__name__
            raise DataError(f"{self.path}: not the state of an audit ({kind})") from None

    def _of_plain(self, plain: dict[str, Any]) -> Any:
        """An array or a pair that ``_plain`` wrote; anything else as it is."""
        if "$array" in plain:
            return np.array(plain["$array"], dtype=plain["dtype"])
        if "$pair" in plain:
            kinds = {kind.__name__: kind for kind in self.kinds}
            return kinds[plain.pop("$pair")](**plain)
        return plain


def _in_json(value: object) -> str:
    """A value in JSON, arrays and pairs as ``_plain`` writes them."""
    return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON can hold of an array, a number of NumPy, or a pair."""
    if isinstance(value, np.ndarray):
        return {"$array": value.tolist(), "dtype": value.dtype.name}
    if isinstance(value, np.number):
        return float(value)
    left_out = getattr(type(value), "NOT_SAVED", ())
    kept = {name: part for name, part in vars(value).items() if name not in left_out}
    return {"$pair": type(value).__name__, **kept}


def _attempt_in_time(
    attempt: Callable[[State, int, int], Gain],
    before: State,
    number: int,
    room: int,
    until: Deadline,
) -> Gain | None:
    """What an attempt gains; None where the deadline passed before it."""
    if until.passed:
        return None
    return attempt(before, number, room)


#: Generations without a gain of 1e-6 of the value after which a climb ends.
_PATIENCE = 30


def evolve(
    objective: Callable[[list[tuple[int, Array]]], Sequence[Array]],
    climbs: Sequence[tuple[Array, float, int]],
    rng: np.random.Generator,
) -> list[tuple[Array, float, int]]:
    """Climb several hills side by side by an evolution strategy.

    It is the (mu/mu_w, lambda)-CMA-ES with the default constants of Hansen (2016, The CMA evolution
    strategy: a tutorial). All climbs go in lockstep, so that many candidates are looked at
    together.

    Parameters
    ----------
    objective
        Maps candidates (b, d), each array behind the number of its climb, to an array of values
        (b,) for each, in this order. A value is NaN where a candidate is not admitted.
    climbs
        The start (d,) of every climb, its first step, and how many candidates it may try.
    rng
        Draws the candidates.

    Returns
    -------
    ends
        Of every climb its best candidate (d,), the value there, and how many candidates were tried.
    """
    climbing = [_Climb(start, step, evaluations) for start, step, evaluations in climbs]
    asked = [(k, climb.candidates(rng)) for k, climb in enumerate(climbing) if climb.goes_on]
    while asked:
        answered = zip(asked, objective(asked), strict=True)
        asked = []
        for (k, _), values in answered:
            climb = climbing[k]
            climb.learn(values)
            if climb.goes_on:
                asked.append((k, climb.candidates(rng)))
    return [(climb.best, climb.largest, climb.spent) for climb in climbing]


@dataclass(frozen=True, eq=False)
class _Defaults:
    """Default constants of the CMA-ES in ``d`` dimensions (Hansen 2016, Table 1).

    Parameters
    ----------
    size
        Candidates of a generation (lambda).
    weights
        Weights (mu,) of the best candidates, which sum to 1.
    mass
        Number of equal weights that would average as well (mu_eff).
    path_rate, step_rate
        Learning rates of the path of the mean (c_c) and of that of the step (c_sigma).
    one_rate, many_rate
        Learning rates of the update of the covariance by the path (c_1) and by all candidates
        (c_mu).
    damping
        How slowly the step changes (d_sigma).
    expected
        The mean length of a standard normal vector, nearly.
    """

    size: int
    weights: Array
    mass: float
    path_rate: float
    step_rate: float
    one_rate: float
    many_rate: float
    damping: float
    expected: float

    @classmethod
    def in_dimension(cls, d: int) -> _Defaults:
        """The constants by the formulas of the table."""
        size = 4 + int(3 * math.log(d))
        parents = size // 2
        weights = math.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
        weights /= weights.sum()
        mass = 1.0 / float(np.sum(weights**2))
        step_rate = (mass + 2) / (d + mass + 5)
        one_rate = 2 / ((d + 1.3) ** 2 + mass)
        many_rate = 2 * (mass - 2 + 1 / mass) / ((d + 2) ** 2 + mass)
        beyond = max(0.0, math.sqrt((mass - 1) / (d + 1)) - 1)
        return cls(
            size=size,
            weights=weights,
            mass=mass,
            path_rate=(4 + mass / d) / (d + 4 + 2 * mass / d),
            step_rate=step_rate,
            one_rate=one_rate,
            many_rate=min(1 - one_rate, many_rate),
            damping=1 + 2 * beyond + step_rate,
            expected=math.sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d**2)),
        )


class _Climb:
    """One climb of :func:`evolve`: it is asked for candidates, and learns their values.

    Parameters
    ----------
    start
        Where it begins, (d,).
    step
        The first standard deviation of candidates around their mean (sigma).
    evaluations
        Candidates that it may try.
    """

    def __init__(self, start: Array, step: float, evaluations: int) -> None:
        d = len(start)
        self.defaults = _Defaults.in_dimension(d)
        self.evaluations = evaluations
        self.step = step
        self.mean = start.copy()
        self.covariance = np.eye(d)
        #: Discounted sums of the moves of the mean, as they are and as if the covariance were I.
        self.path = np.zeros(d)
        self.step_path = np.zeros(d)
        #: The best candidate so far, its value, and how many were tried.
        self.best = start
        self.largest = -math.inf
        self.spent = 0
        self.generation = 0
        #: The last generation that brought a gain.
        self.gained = 0
        #: Of the last generation: axes of the covariance, and what the candidates were made of.
        self.basis = np.eye(d)
        self.normal = np.zeros((self.defaults.size, d))
        self.moves = np.zeros((self.defaults.size, d))

    @property
    def goes_on(self) -> bool:
        """False once it has no candidates left, gains nothing any more, or has no sensible step."""
        affordable = self.spent + self.defaults.size <= self.evaluations
        patient = self.generation - self.gained < _PATIENCE
        return affordable and patient and 1e-9 < self.step < 1e4

    def candidates(self, rng: np.random.Generator) -> Array:
        """Candidates (size, d) of the next generation."""
        variances, self.basis = np.linalg.eigh(self.covariance)
        root = self.basis * np.sqrt(np.maximum(variances, 1e-20))
        self.normal = rng.standard_normal((self.defaults.size, len(self.mean)))
        self.moves = self.normal @ root.T
        return np.asarray(self.mean + self.step * self.moves)

    def learn(self, values: Array) -> None:
        """Take the values (size,) of the candidates that were asked for last, NaN for none."""
        self.generation += 1
        self.spent += self.defaults.size
        values = np.nan_to_num(values, nan=-np.inf, posinf=-np.inf)
        order = np.argsort(-values, kind="stable")[: len(self.defaults.weights)]
        self._remember(self.moves[order[0]], float(values[order[0]]))
        self._adapt(self.moves[order], self.normal[order])

    def _remember(self, move: Array, value: float) -> None:
        """Keep the best candidate of this generation if it is the best of all."""
        if value > self.largest:
            # The first candidate counts as a gain: -inf + inf is NaN, and nothing is at most NaN.
            if not value <= self.largest + 1e-6 * abs(self.largest):
                self.gained = self.generation
            self.best = self.mean + self.step * move
            self.largest = value

    def _adapt(self, moves: Array, normal: Array) -> None:
        """Move the mean, and adapt the step and the covariance, to the best candidates.

        Parameters
        ----------
        moves
            Steps (mu, d) from the mean to the best candidates, over the step; the best is first.
        normal
            The standard normal vectors (mu, d) that they were made of.
        """
        rates = self.defaults
        shift = rates.weights @ moves
        self.mean = self.mean + self.step * shift
        length = self._lengthen_path_of_step(rates.weights @ normal)
        self._adapt_covariance(shift, moves, length)
        # sigma exp(c_sigma / d_sigma (|p_sigma| / E|N(0, I)| - 1))
        growth = rates.step_rate / rates.damping * (length / rates.expected - 1)
        self.step *= math.exp(min(1.0, growth))

    def _lengthen_path_of_step(self, shift: Array) -> float:
        """Add a shift (d,) in units of the covariance to the path of the step; the new length.

        ``p_sigma`` becomes ``(1 - c_sigma) p_sigma + sqrt(c_sigma (2 - c_sigma) mu_eff) B z``.
        """
        rates = self.defaults
        gain = math.sqrt(rates.step_rate * (2 - rates.step_rate) * rates.mass)
        self.step_path = (1 - rates.step_rate) * self.step_path + gain * (self.basis @ shift)
        return float(np.linalg.norm(self.step_path))

    def _adapt_covariance(self, shift: Array, moves: Array, length: float) -> None:
        """Add a shift of the mean to its path, and adapt the covariance to the path and all moves.

        The path stalls while that of the step is unusually long. With ``h`` 0 where it does and
        else 1, ``p_c`` becomes ``(1 - c_c) p_c + h sqrt(c_c (2 - c_c) mu_eff) shift``, and C
        becomes ``(1 - c_1 - c_mu) C + c_1 (p_c p_c' + (1 - h) c_c (2 - c_c) C) + c_mu sum w y y'``.

        Parameters
        ----------
        shift
            The shift (d,) of the mean, over the step.
        moves
            As of :meth:`_adapt`.
        length
            Of the path of the step.
        """
        rates = self.defaults
        settled_length = length / math.sqrt(1 - (1 - rates.step_rate) ** (2 * self.generation))
        is_usual = settled_length < (1.4 + 2 / (len(shift) + 1)) * rates.expected
        gain = math.sqrt(rates.path_rate * (2 - rates.path_rate) * rates.mass)
        self.path = (1 - rates.path_rate) * self.path + is_usual * gain * shift
        stalled = (1 - is_usual) * rates.path_rate * (2 - rates.path_rate)
        along_path = np.outer(self.path, self.path) + stalled * self.covariance
        covariance = (
            (1 - rates.one_rate - rates.many_rate) * self.covariance
            + rates.one_rate * along_path
            + rates.many_rate * (moves.T * rates.weights) @ moves
        )
        self.covariance = 0.5 * (covariance + covariance.T)
