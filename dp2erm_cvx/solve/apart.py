"""A foreign solver in a process of its own, which a limit in seconds ends.

It is for work that releases nothing.

A private fit never comes here: what a clock decides would depend on the machine and on the records.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswerInTime
from dataclasses import dataclass
from itertools import count
from threading import RLock
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.errors import ProgramError, SolverError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.parallel import ending_with_this_process

#: Solves the loaded ``cvxpy.Problem`` that it is handed, and leaves values in its variables.
Run = Callable[[Any], object]

#: Seconds that a foreign solver has by default.
SECONDS = 30.0
#: Seconds within which a process has to be there, which are no part of a limit.
_START = 300.0
#: Problems that the process keeps compiled, for the next data of the same shape.
_KEPT = 16


@dataclass(frozen=True)
class Left:
    """What a solver left in a problem.

    Parameters
    ----------
    status
        CVXPY's word for how it ended; None where a function of an author's own set none.
    iterations
        How many it says that it took, 0 where it does not say.
    variables, duals
        Values by the id of the variable or dual variable, None where there are no numbers.
    """

    status: str | None
    iterations: int
    variables: Mapping[int, Array | None]
    duals: Mapping[int, Array | None]


@dataclass(frozen=True)
class _Raised:
    """An exception of a solver: its type, and its text where it is one of this library's own."""

    kind: str
    text: str | None


def what_is_left(problem: Any) -> Left:
    """Read what a solver left in a problem; nothing that it may have left there raises."""
    stats = problem.solver_stats
    iterations = None if stats is None else stats.num_iters
    status = problem.status
    if not isinstance(status, str):
        status = None
    if not isinstance(iterations, int):
        iterations = 0
    return Left(
        status=status,
        iterations=iterations,
        variables={variable.id: _numbers(variable) for variable in problem.variables()},
        duals={dual.id: _numbers(dual) for dual in _duals(problem)},
    )


def _duals(problem: Any) -> list[Any]:
    """The dual variables of all constraints."""
    duals: list[Any] = []
    for constraint in problem.constraints:
        duals += constraint.dual_variables
    return duals


def _numbers(variable: Any) -> Array | None:
    """Finite numbers of the shape of the variable, or None: a solver may leave anything."""
    try:
        value = np.asarray(variable.value, dtype=np.float64)
    except Exception:
        return None
    if value.shape != variable.shape or not np.all(np.isfinite(value)):
        return None
    return value


def run_here(problem: Any, run: Run) -> Left:
    """Run a solver in this process, without a limit. Raises whatever the solver raises."""
    run(problem)
    return what_is_left(problem)


def run_apart(problem: Any, run: Run, seconds: float, name: str) -> Left:
    """Run a solver in a process of its own, which is ended after a limit.

    Parameters
    ----------
    problem
        A loaded ``cvxpy.Problem``; it gets the values that the solver leaves in its copy.
    run
        What to run, which is sent to the other process. Where it cannot be sent, because it holds
        something of this process alone such as an open file, it runs here, and no limit applies.
    seconds
        The limit; that of starting the process comes on top.
    name
        The name of the solver in messages.

    Returns
    -------
    Left
        What the solver left.

    Raises
    ------
    SolverError
        Where no answer came in time, where the process ended, or where the solver raised.
    ProgramError
        As the solver raises it.
    """
    try:
        sent = _pickled(run)
    except Exception:  # of whatever an author's own function holds
        return run_here(problem, run)
    answer = _WORKER.answer(problem, sent, seconds, name)
    if isinstance(answer, _Raised):
        if answer.kind == ProgramError.__name__ and answer.text is not None:
            raise ProgramError(answer.text)
        raise SolverError(raised_text(name, answer.kind))
    for variable in problem.variables():
        variable.save_value(answer.variables.get(variable.id))
    for dual in _duals(problem):
        dual.save_value(answer.duals.get(dual.id))
    return answer


def raised_text(name: str, kind: str) -> str:
    """What a message says of a solver that raised an exception of this type."""
    if kind == "SolverError":
        return (
            f"{name} gave up with an error of its own: choose another solver, or loosen its "
            "settings"
        )
    return f"{name} raised {kind} and left no solution: choose another solver"


class _Worker:
    """The process that solvers run in, started when it is first needed and anew after it ended.

    Problems have tokens, by which the process knows those that it keeps compiled.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._executor: Any = None
        self._process = 0
        self._sent = set[int]()
        self._tokens: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._numbers = count(1)

    def answer(self, problem: Any, run: bytes, seconds: float, name: str) -> Left | _Raised:
        """What the process answers. Raises SolverError where it does not."""
        with self._lock:
            self._start()
            if problem not in self._tokens:
                self._tokens[problem] = next(self._numbers)
            token = self._tokens[problem]
            parameters = {parameter.id: parameter.value for parameter in problem.parameters()}
            answer = None
            if token in self._sent:
                answer = self._asked(seconds, name, token, None, parameters, run)
            if answer is None:  # the process does not have it, or has kept newer ones in its place
                sent_problem = _without_caches(problem)
                answer = self._asked(seconds, name, token, sent_problem, parameters, run)
            assert answer is not None
            self._sent.add(token)
            return answer

    def _asked(self, seconds: float, name: str, *question: Any) -> Left | _Raised | None:
        """The answer of :func:`_answered` to a question; SolverError where none comes."""
        future: Future[Left | _Raised | None] = self._executor.submit(_answered, *question)
        try:
            return future.result(timeout=seconds)
        except NoAnswerInTime:
            self._end()
            raise SolverError(
                f"{name} gave no answer within {seconds:.3g} s and was ended: choose another "
                "solver, or allow it more seconds"
            ) from None
        except Exception:  # the process ended, or sent what cannot be read
            self._end()
            raise SolverError(
                f"{name} ended its process without an answer (it crashed, or ran out of memory): "
                "choose another solver"
            ) from None

    def _start(self) -> None:
        """Start the process, unless it runs: after a fork this process has none of its own."""
        if self._executor is not None and self._process == os.getpid():
            return
        loky = _part_of_joblib("loky")
        watched = ending_with_this_process()
        self._executor = loky.ProcessPoolExecutor(
            max_workers=1,
            initializer=_begin,
            initargs=(watched["initializer"], watched["initargs"]),
        )
        self._process = os.getpid()
        self._sent = set()
        try:
            self._executor.submit(_ready).result(timeout=_START)
        except Exception:
            self._end()
            raise SolverError(
                "no process for solvers could be started on this machine: leave out the limit in "
                "seconds"
            ) from None

    def _end(self) -> None:
        """End the process, and forget what was sent to it."""
        executor = self._executor
        self._executor = None
        self._sent = set()
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)


_WORKER = _Worker()


def _pickled(value: Any) -> bytes:
    """By value where the other process could not import it, as joblib sends tasks."""
    data: bytes = _part_of_joblib("cloudpickle").dumps(value)
    return data


def _part_of_joblib(name: str) -> Any:
    """A package that joblib holds, or depends on."""
    inside = f"joblib.externals.{name}"
    if importlib.util.find_spec(inside):
        return importlib.import_module(inside)
    return importlib.import_module(name)


def _without_caches(problem: Any) -> bytes:
    """A problem as it was declared: what solvers left in it belongs to this process."""
    return _pickled(cp.Problem(problem.objective, problem.constraints))


# ---- what follows runs in the other process ----

_PROBLEMS: OrderedDict[int, Any] = OrderedDict()


def _begin(watch: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """End with the parent and print nowhere: a solver may print megabytes, or private numbers."""
    watch(*arguments)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _ready() -> None:
    """Do nothing: to find this function the process has imported what solves need."""


def _answered(
    token: int, sent_problem: bytes | None, parameters: Mapping[int, Any], run: bytes
) -> Left | _Raised | None:
    """Solve a problem for new data; None where it is not kept any more and did not come along."""
    try:
        if sent_problem is not None:
            _keep(token, pickle.loads(sent_problem))
        problem = _PROBLEMS.get(token)
        if problem is None:
            return None
        _PROBLEMS.move_to_end(token)
        for parameter in problem.parameters():
            parameter.value = parameters[parameter.id]
        problem._clear_solution()
        return run_here(problem, pickle.loads(run))
    except ProgramError as error:
        return _Raised(type(error).__name__, str(error))
    except (Exception, SystemExit) as error:
        return _Raised(type(error).__name__, None)


def _keep(token: int, problem: Any) -> None:
    """Keep a problem that another process has made, whose ids must not be given anew."""
    leaves = (*problem.variables(), *problem.parameters())
    used = [leaf.id for leaf in leaves]
    used += [constraint.id for constraint in problem.constraints]
    used += [dual.id for dual in _duals(problem)]
    counter = cp.lin_ops.lin_utils.ID_COUNTER
    counter.count = max(counter.count, max(used, default=0) + 1)
    _PROBLEMS[token] = problem
    while len(_PROBLEMS) > _KEPT:
        _PROBLEMS.popitem(last=False)
