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
    duals = [dual for constraint in problem.constraints for dual in constraint.dual_variables]
    return Left(
        status=status if isinstance(status, str) else None,
        iterations=iterations if isinstance(iterations, int) else 0,
        variables={variable.id: _numbers(variable) for variable in problem.variables()},
        duals={dual.id: _numbers(dual) for dual in duals},
    )


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

    Raises SolverError where no answer came in time, where the process ended, or where the solver
    raised; ProgramError as the solver raises it.
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
    for constraint in problem.constraints:
        for dual in constraint.dual_variables:
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
    """The process that solvers run in, started when it is first needed and anew after it ended."""

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
            whole = None if token in self._sent else _without_caches(problem)
            answer = self._asked(seconds, name, token, whole, parameters, run)
            if answer is None:  # the process has kept newer problems in its place
                answer = self._asked(
                    seconds, name, token, _without_caches(problem), parameters, run
                )
            assert answer is not None
            self._sent.add(token)
            return answer

    def _asked(self, seconds: float, name: str, *question: Any) -> Left | _Raised | None:
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
        if self._executor is not None and self._process == os.getpid():
            return
        # joblib holds loky, or depends on it
        inside = "joblib.externals.loky"
        loky = importlib.import_module(inside if importlib.util.find_spec(inside) else "loky")
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
        executor = self._executor
        self._executor = None
        self._sent = set()
        if executor is not None:
            executor.shutdown(wait=True, kill_workers=True)


_WORKER = _Worker()


def _pickled(value: Any) -> bytes:
    """By value where the other process could not import it, as joblib sends tasks."""
    inside = "joblib.externals.cloudpickle"
    cloudpickle = importlib.import_module(
        inside if importlib.util.find_spec(inside) else "cloudpickle"
    )
    data: bytes = cloudpickle.dumps(value)
    return data


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
    token: int, whole: bytes | None, parameters: Mapping[int, Any], run: bytes
) -> Left | _Raised | None:
    """Solve a problem for new data; None where it is not kept any more and did not come along."""
    try:
        if whole is not None:
            _keep(token, pickle.loads(whole))
        problem = _PROBLEMS.get(token)
        if problem is None:
            return None
        _PROBLEMS.move_to_end(token)
        for parameter in problem.parameters():
            parameter.value = parameters[parameter.id]
        problem._clear_solution()
        return run_here(problem, pickle.loads(run))
    except (Exception, SystemExit) as error:
        own = isinstance(error, ProgramError)
        return _Raised(type(error).__name__, str(error) if own else None)


def _keep(token: int, problem: Any) -> None:
    """Keep a problem that another process has made, whose ids must not be given anew."""
    leaves = (*problem.variables(), *problem.parameters())
    used = [leaf.id for leaf in leaves] + [constraint.id for constraint in problem.constraints]
    used += [dual.id for constraint in problem.constraints for dual in constraint.dual_variables]
    counter = cp.lin_ops.lin_utils.ID_COUNTER
    counter.count = max(counter.count, max(used, default=0) + 1)
    _PROBLEMS[token] = problem
    while len(_PROBLEMS) > _KEPT:
        _PROBLEMS.popitem(last=False)
