"""Schemes of weights made of problems of CVXPY that somebody has written already.

A function of the number of records makes the problem, with named parameters in the place of data
and settings. Its leaves are exchanged for the weights, the data of records and the numbers of the
settings; what comes out is read as a declaration that was written for them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.errors import DeclarationError, brief, known_names
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.direct_stage import WeightsProgram, bounds_of_all
from dp2erm_cvx.program.form import states_sum
from dp2erm_cvx.program.rows import DeclaredRecords
from dp2erm_cvx.program.scheme import STANDARD, Scheme
from dp2erm_cvx.weighting.forms.form import SumKind

#: Makes a problem of a number of records.
Maker = Callable[[int], "cp.Problem"]
#: What a parameter stands for: the name of data of records, or a function of them.
Source = str | Callable[[DeclaredRecords], Any]

#: Data of records that a parameter may be, with one column for every covariate.
_COVARIATES = ("x", "signed", "favored")
#: Other data of records, by what a record has of them.
_OTHERS = ("treatment", "arms", "ones", "y", "response", "outcome_size")
#: Targets, which have one number for every covariate.
_TARGETS: Mapping[str, Callable[[DeclaredRecords], Any]] = {
    "target": lambda records: cp.sum(records.x, axis=0) / records.n,
    "target of treated": lambda records: records.mean_of(records.x, "treated"),
    "target of controls": lambda records: records.mean_of(records.x, "controls"),
}
#: Numbers of records at which a problem is looked at first.
_SIZES = (6, 9)


def scheme_of_problem(
    make: Maker,
    *,
    weights: str = "w",
    data: Mapping[str, Source],
    settings: Mapping[str, float] | Iterable[str] = (),
    columns: int | None = None,
    smoothing: float | None = None,
) -> Scheme:
    """A scheme whose programs are the problem that a function makes.

    Parameters
    ----------
    make
        Function of the number n of records that returns the problem. It is asked at several
        numbers: a single problem does not tell what depends on n.
    weights
        Name of the variable of shape (n,), the weights.
    data
        What every parameter of data stands for, by its name: ``x``, ``signed``, ``favored`` (n, p);
        ``treatment``, ``y``, ``response``, ``outcome_size`` (n,); ``arms`` (n, 2); ``ones`` (n, 1);
        ``target``, the mean (p,) of the covariates of all records; ``target of treated`` and
        ``target of controls``; or a function of records that returns data of theirs, or an
        expression in them.
    settings
        Names of parameters that are numbers, with their defaults, or names alone of parameters with
        a value.
    columns
        Number p of covariates, where no parameter of data has one column for each.
    smoothing
        As of the decorator ``scheme``.

    Returns
    -------
    Scheme

    Raises
    ------
    DeclarationError
        In one line: for a single problem, other variables than the weights, parameters that are
        neither data nor settings, names that are no parameters, other shapes than those of the
        data, a problem that is not DPP, and whatever a declaration of these weights is refused for.
    """
    if isinstance(make, cp.Problem):
        raise DeclarationError(
            "a single problem does not tell what depends on the number of records: pass the "
            "function of n that makes it"
        )
    if not callable(make) or not hasattr(make, "__code__"):
        raise DeclarationError(f"{brief(make)}: must be a function of the number of records")
    given = _GivenProblem(make, weights, dict(data))
    problems = [given.problem(n) for n in _SIZES]
    problem = problems[0]
    defaults = _defaults(settings, problem, make.__name__)
    given.refuse_other_parameters(problem, defaults)
    n_columns = columns
    if n_columns is None:
        n_columns = given.n_columns(problem)
    if n_columns is not None:
        whole_number("columns", n_columns, at_least=1)
    options = {} if smoothing is None else {"smoothing": smoothing}
    function = given.declaration(tuple(defaults))
    scheme = Scheme.declared(function, WeightsProgram, options, defaults, columns=n_columns)
    given.refuse_sum_or_sign_that_is_not_stated(problem, scheme)
    return scheme


@dataclass(frozen=True)
class _GivenProblem:
    """A problem that somebody has written, with the names of its parts.

    Parameters
    ----------
    make
        Makes it for a number of records.
    weights
        Name of the variable.
    data
        What every parameter of data stands for.
    """

    make: Maker
    weights: str
    data: dict[str, Source]

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.make.__name__

    def problem(self, n: int) -> cp.Problem:
        """The problem of n records, with the weights as its only variable.

        Raises
        ------
        DeclarationError
            For anything else that the function returns.
        """
        problem = self.make(n)
        if not isinstance(problem, cp.Problem):
            raise DeclarationError(
                f"{self.name}({n}): returns {brief(problem)}: return a cp.Problem"
            )
        self._variable(problem, n)
        return problem

    def _variable(self, problem: cp.Problem, n: int) -> cp.Variable:
        """The variable of the weights.

        Raises
        ------
        DeclarationError
            Where there are other variables, and for another shape than (n,).
        """
        variables = problem.variables()
        others = [one.name() for one in variables if one.name() != self.weights]
        if others:
            raise DeclarationError(
                f"{self.name}: {others[0]} is a variable beside the weights {self.weights}: write "
                "the expression that it stands for in its place, such as cp.norm1(m) for a bound "
                "of sizes"
            )
        if len(variables) != 1 or variables[0].shape != (n,):
            raise DeclarationError(
                f"{self.name}({n}): must have one variable {self.weights} of shape ({n},)"
            )
        return variables[0]

    def refuse_other_parameters(self, problem: cp.Problem, settings: Mapping[str, float]) -> None:
        """Raise DeclarationError for parameters without a role, and for unknown names."""
        parameters = [one.name() for one in problem.parameters()]
        for name in parameters:
            if name in self.data and name in settings:
                raise DeclarationError(
                    f"{self.name}: {name} is among the data and among the settings"
                )
            if name not in self.data and name not in settings:
                raise DeclarationError(f"{self.name}: say what {name} is: data=..., or a setting")
        for name in (*self.data, *settings):
            if name not in parameters:
                raise DeclarationError(
                    f"{self.name}: no parameter is called {name}; {known_names(name, parameters)}"
                )

    def n_columns(self, problem: cp.Problem) -> int | None:
        """Number of columns of parameters with one for every covariate, or None."""
        for parameter in problem.parameters():
            if self.data.get(parameter.name()) in _COVARIATES and len(parameter.shape) == 2:
                return int(parameter.shape[1])
        return None

    def declaration(self, settings: tuple[str, ...]) -> Callable[..., cp.Problem]:
        """The function of weights, records and settings that a scheme is made of."""

        @functools.wraps(self.make)
        def declared(w: cp.Variable, records: DeclaredRecords, **values: float) -> cp.Problem:
            problem = self.problem(records.n)
            # leaves of the problem by identity, each with what takes its place
            exchanged: dict[int, Any] = {id(self._variable(problem, records.n)): w}
            for parameter in problem.parameters():
                exchanged[id(parameter)] = self._in_place_of(parameter, records, values)
            objective = type(problem.objective)(problem.objective.args[0].tree_copy(exchanged))
            constraints = [one.tree_copy(exchanged) for one in problem.constraints]
            of_records = cp.Problem(objective, constraints)
            self._refuse_old_data(of_records)
            return of_records

        # a scheme reads the names of its settings off the signature
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = ("w", "records", *settings)
        signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        declared.__signature__ = signature  # type: ignore[attr-defined]
        return declared

    def _in_place_of(
        self, parameter: cp.Parameter, records: DeclaredRecords, values: Mapping[str, float]
    ) -> Any:
        """What a parameter is exchanged for: the number of a setting, or data of records.

        Raises
        ------
        DeclarationError
            Where the data have another shape than the parameter.
        """
        name = parameter.name()
        if name in values:
            return cp.Constant(np.full(parameter.shape, values[name]))
        data = self._of_records(name, records)
        if tuple(data.shape) != tuple(parameter.shape):
            raise DeclarationError(
                f"{self.name}: {name} has shape {parameter.shape}, and the data that it stands for "
                f"{tuple(data.shape)}"
            )
        return data

    def _of_records(self, name: str, records: DeclaredRecords) -> Any:
        """The data of records that a parameter of this name stands for, or an expression in them.

        Raises
        ------
        DeclarationError
            Where the parameter is said to stand for anything else.
        """
        source = self.data[name]
        if callable(source):
            return cp.Expression.cast_to_const(source(records))
        if source in _TARGETS:
            return _TARGETS[source](records)
        sources = (*_COVARIATES, *_OTHERS, *_TARGETS)
        if source not in sources:
            raise DeclarationError(
                f"{self.name}: {name} is no {source!r}; {known_names(str(source), sources)}"
            )
        return getattr(records, source)

    def _refuse_old_data(self, problem: cp.Problem) -> None:
        """Raise DeclarationError for a problem that is not DPP in its data.

        Old data could stay in it.
        """
        if problem.is_dcp(dpp=True):
            return
        if not problem.is_dcp():
            raise DeclarationError(f"{self.name}: is not convex by the rules of CVXPY (DCP)")
        raise DeclarationError(
            f"{self.name}: is not DPP, so that CVXPY could solve it with old data: multiply no two "
            "parameters of data, and none by a function of another one"
        )

    def refuse_sum_or_sign_that_is_not_stated(self, problem: cp.Problem, scheme: Scheme) -> None:
        """Raise DeclarationError where a problem states no sum or no sign of its weights.

        A scheme has both anyway, so that it would be another problem.

        Parameters
        ----------
        problem
            The problem as it was written.
        scheme
            The scheme that was made of it, whose weights have the sum n and are at least 0.
        """
        w = self._variable(problem, int(np.prod(problem.variables()[0].shape)))
        form = scheme().resolve(STANDARD).reading.form
        was_read = not isinstance(form, str)
        sums_of_all = [states_sum(one, w, float(w.size)) for one in problem.constraints]
        needs_sum_of_all = not was_read or form.sums.kind is SumKind.ALL
        if needs_sum_of_all and not any(sums_of_all):
            raise DeclarationError(
                f"{self.name}: states no sum of its weights: those of a scheme have the sum n, so "
                f"add cp.sum({self.weights}) == n, or sums of the arms"
            )
        # a dispersion is infinite below its first end
        starts_at_0 = was_read and form.dispersion.ends[0] >= 0.0
        lower_bounds = [end for end, above in bounds_of_all(problem.constraints, w) if not above]
        are_bounded = max(lower_bounds, default=-1.0) >= 0.0
        if not (w.is_nonneg() or starts_at_0 or are_bounded):
            raise DeclarationError(
                f"{self.name}: its weights may be negative: those of a scheme are not, so add "
                f"{self.weights} >= 0"
            )


def _defaults(
    settings: Mapping[str, float] | Iterable[str], problem: cp.Problem, name: str
) -> dict[str, float]:
    """Defaults of settings by name: as they are stated, or the values of the parameters.

    Parameters
    ----------
    settings
        Names with their defaults, or names alone.
    problem
        Has a parameter for every setting; one that it does not have is refused later.
    name
        What messages call the problem.

    Raises
    ------
    DeclarationError
        For a parameter without one number as its value, and a setting without a default.
    """
    if isinstance(settings, Mapping):
        return dict(settings)
    values = {parameter.name(): parameter.value for parameter in problem.parameters()}
    defaults = {}
    for setting in settings:
        if setting not in values:
            defaults[setting] = 0.0
            continue
        value = values[setting]
        if value is None or np.size(value) != 1:
            raise DeclarationError(
                f"{name}: {setting} has no value: give the parameter one number, or state its "
                f"default, settings={{{setting!r}: 0.1}}"
            )
        defaults[setting] = float(np.ravel(value)[0])
    return defaults
