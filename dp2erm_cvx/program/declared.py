"""Declarations, and second stages by them: a problem is written once in CVXPY, the rest is derived.

A decorated function becomes a program class, with the decorator's keywords as its settings. A setting is a
number, or a formula of the public numbers M and outcome_bound such as ``"M**2 / 10"``.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Self

import cvxpy as cp
import numpy as np

from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet
from dp2erm_cvx.program.curves import Curve
from dp2erm_cvx.program.declaration import SIZES, printed, with_n
from dp2erm_cvx.program.form import Form
from dp2erm_cvx.program.margin_rows import MarginRows, RowBounds
from dp2erm_cvx.program.rows import Ball, DeclaredRecords
from dp2erm_cvx.program.second_stage import LinearStage
from dp2erm_cvx.program.stage import Program, Setting, setting
from dp2erm_cvx.public import public_number
from dp2erm_cvx.universe import Universe

#: What a decorator is put on.
Function = Callable[..., Any]


class _Formula:
    """The formula of a class whose problem is declared, read when it is asked for."""

    def __get__(self, program: Any, owner: Any) -> str:
        return _formula_of(owner) if hasattr(owner, "function") else ""


@lru_cache(maxsize=256)
def _formula_of(owner: Any) -> str:
    return str(owner().resolve(STANDARD).declared_formula())


class DeclaredProgram(Program):
    """Declaration by a function: its settings, and what is read of it. A mixin of the programs below."""

    function: ClassVar[Function]
    cone: ClassVar[str] = "exponential, second-order"
    formula = _Formula()
    #: Arguments of the function before its settings.
    first: ClassVar[int] = 2

    @abc.abstractmethod
    def refuse_misread(self) -> None:
        """Read the declaration and compare it with CVXPY. Raises DeclarationError for what is not read."""

    @classmethod
    def of(cls, function: Function, settings: Mapping[str, Setting], own: Mapping[str, Any]) -> Any:
        """Program class of a declaration; one of an author's is read at once, and refused where it stands."""
        name, stated = function.__name__, {**settings, **own}
        wanted = list(inspect.signature(function).parameters)[cls.first :]
        if unknown := [k for k in (*own, *wanted) if k not in stated or (k in own and k not in wanted)]:
            raise DeclarationError(
                f"{name}: {unknown[0]!r} must be a keyword of the decorator and an argument of the function"
            )
        doc = inspect.getdoc(function) or ""
        if not doc:
            raise DeclarationError(f"{name}: a declaration has a docstring, which says what it is")
        namespace = {"citation": doc.splitlines()[0], "__qualname__": function.__qualname__}
        made = cls.made(name, function, (cls,), stated, namespace | {"__doc__": doc})
        if not function.__module__.startswith("dp2erm_cvx."):
            made().resolve(STANDARD).refuse_misread()
        return made

    def own_data(self) -> tuple[str, ...] | None:
        """Names of data that maps of the author's own make; None for a class that changes a declaration."""
        return self.mapped_data() if "function" in vars(type(self)) else None

    def mapped_data(self) -> tuple[str, ...] | None:
        """Names of data that maps of the author's own make, one record at a time."""
        return ()

    @staticmethod
    def made(
        name: str, function: Function, bases: tuple[Any, ...], stated: Mapping[str, Any], own: dict[str, Any]
    ) -> Any:
        """Program class with these settings beside those of its bases; formulas stay open until resolved."""
        formulas = {k: v for k, v in stated.items() if isinstance(v, str)}
        numbers = {k: None if k in formulas else v for k, v in stated.items()}
        fields: list[Any] = [
            (k, Any, v if isinstance(v, dataclasses.Field) else _kept_check(bases, k, v))
            for k, v in numbers.items()
        ]
        namespace = {"name": name, "function": staticmethod(function), "formulas": formulas, **own}
        namespace["__module__"] = function.__module__
        cls: Any = dataclasses.make_dataclass(name, fields, bases=bases, namespace=namespace, frozen=True)
        cls.__module__ = function.__module__
        return cls

    @staticmethod
    def asked(function: Function, *arguments: Any, **settings: float) -> Any:
        """Result of an author's function. Raises DeclarationError with its error in one line."""
        try:
            return function(*arguments, **settings)
        except DeclarationError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            raise DeclarationError(f"{function.__name__}: {type(error).__name__}: {text}") from None

    def called(self, *arguments: Any) -> Any:
        """Result of the declaration at its settings."""
        return self.asked(type(self).function, *arguments, **dict(self.own_settings()))

    def own_settings(self) -> tuple[tuple[str, float], ...]:
        """Settings that the function itself asks for, as numbers. Raises ProgramError where one is open."""
        wanted = inspect.signature(type(self).function).parameters
        return tuple((name, self.number(name)) for name in self.by_name() if name in wanted)

    def by_name(self) -> dict[str, Any]:
        """Settings by name."""
        program: Any = self
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(program)}


@dataclasses.dataclass(frozen=True)
class LossProgram(DeclaredProgram, LinearStage):
    """Weighted minimization of a declared loss of one margin per record, linear in the covariates."""

    cone = "that of its atoms: QP, exponential, second-order"
    theorem = "Theorems 1, 2 and 15 to 19, derived from the declaration"
    defaults = MappingProxyType({**LinearStage.defaults, "theta_set": "the set that it declares"})

    def default_set(self, domain: Domain) -> ConvexSet:
        return self._numbers(domain).form(domain).feasible

    def _numbers(self, domain: Domain) -> Self:
        """The program with the number of every formula in place of it."""
        return Program.resolve(self, domain)

    def public_numbers(self, domain: Domain) -> dict[str, float]:
        return super().public_numbers(domain) | {"M": self.row_norm(domain)}

    def resolve(self, domain: Domain) -> Self:
        program = self._numbers(domain)
        form = program.form(domain)
        if form.term.curve != program.loss:
            raise DeclarationError(f"{self.name}: make what its loss takes from records.M a setting")
        if program.regularizer == ElasticNet():
            program = dataclasses.replace(program, regularizer=ElasticNet(form.l1, form.ridge))
        return dataclasses.replace(program, theta_set=program.theta_set or form.feasible)

    @property
    def loss(self) -> Curve:
        """Phi."""
        return self._numbers(STANDARD).form(STANDARD).term.curve

    def rows(self, records: Records) -> MarginRows:
        term = self.form(records.domain).term
        offset, factor = (term.numbers(which, records) for which in ("offset", "factor"))
        o = None if offset is None else -offset
        return MarginRows(term.rows.of(records), o, factor)

    def tilts(self, records: Records) -> Array | None:
        return self.form(records.domain).term.numbers("tilt", records)

    def row_bounds(self, universe: Universe) -> RowBounds:
        term = self._numbers(universe.domain).form(universe.domain).term
        assert isinstance(term.rows.within, Ball)
        low, high = term.interval("offset")
        return RowBounds(
            term.rows.within.radius, (-high, -low), term.interval("factor"), term.interval("tilt")
        )

    def form(self, domain: Domain) -> Form:
        """What was read of the declared problem, of a program without open settings."""
        return _read_loss(self, domain)[1]

    def mapped_data(self) -> tuple[str, ...] | None:
        return _read_loss(self._numbers(STANDARD), STANDARD)[0].own

    def declared_problem(self, domain: Domain, n: int, p: int) -> tuple[DeclaredRecords, Any, Any]:
        """Records as the function sees them, the variable theta (p,), and the problem that it returns."""
        records = DeclaredRecords(domain, n, p, self.covariates, self.row_norm(domain))
        theta = cp.Variable(p, name="theta")
        return records, theta, self.called(theta, records)

    def declared_formula(self) -> str:
        """The program in one line."""
        text = with_n(*(printed(self.declared_problem(STANDARD, n, 3)[2].objective.args[0]) for n in SIZES))
        return f"theta = argmin {text} with weights w_i + n gamma/2 |theta|^2 + b'theta"

    def refuse_misread(self) -> None:
        program, n = self.resolve(STANDARD), 7
        s = np.arange(n)
        X = np.sin(np.outer(s + 1.0, [1.0, 2.0, 3.0]))
        records = STANDARD.records(X, s % 2, np.cos(2.0 * s))
        model = program.instance(records, np.ones(n), gamma=0.0).model
        assert model is not None
        _, theta, problem = program.declared_problem(STANDARD, n, 3)
        for datum in problem.parameters():
            datum.value = datum.of(records)
        objective, own, theirs = problem.objective.args[0], [], []
        scale = n if program.form(STANDARD).is_mean else 1.0
        for point in 0.3 * np.array([[1.0, 0.2, -0.4], [-0.3, 0.7, 0.5], [0.1, -0.9, 0.6]]):
            theta.value = v = model.penalty.set.project(point)
            penalty = model.penalty.l1 * np.array([np.sum(np.abs(v)), *np.sign(v)])
            own.append(np.array([model.value(v), *model.gradient(v)]) + penalty)
            theirs.append(scale * np.array([objective.value, *objective.grad[theta].toarray().ravel()]))
        for values in (own, theirs):  # a constant moves no minimizer
            first = values[0][0]
            for row in values:
                row[0] -= first
        if not np.allclose(own, theirs, rtol=0, atol=1e-9 * (1 + np.max(np.abs(theirs)))):
            raise DeclarationError(
                f"{self.name}: {printed(objective)} was read as something with other values: please report it"
            )


#: Where declarations are read and compared; what they say does not depend on it.
STANDARD = Domain(1.0, 1.0)


@lru_cache(maxsize=256)
def _read_loss(program: LossProgram, domain: Domain) -> tuple[DeclaredRecords, Form]:
    """The records as the function sees them, and what is read of its problem, per record.

    It is read at two numbers of records: a loss may be declared as a sum or as a mean, its penalties with it.
    """
    forms = []
    for n in SIZES:
        records, theta, problem = program.declared_problem(domain, n, 3)
        forms.append((n, Form.of(problem, theta)))
    (few, first), (many, last) = forms
    penalties = np.array([[first.ridge, first.l1], [last.ridge, last.l1]])
    if first.term.near(last.term) and np.allclose(penalties[0] / few, penalties[1] / many, rtol=1e-12):
        form = replace(last, ridge=last.ridge / many, l1=last.l1 / many)
    elif np.allclose(penalties[0], penalties[1], rtol=1e-12) and first.scaled(few).term.near(
        last.scaled(many).term
    ):
        form = replace(last.scaled(many), ridge=last.ridge, l1=last.l1, is_mean=True)
    else:
        raise DeclarationError(
            f"{program.name}: a sum over records goes with records.n * R(theta), a mean with R(theta)"
        )
    return records, form


def _kept_check(bases: tuple[type[Any], ...], name: str, default: Any) -> Any:
    """Field of this name with another default, and the check of the field of the bases."""
    known = {field.name: field for base in bases for field in dataclasses.fields(base)}
    check, bounds = known[name].metadata["check"] if name in known else (public_number, {"infinite": True})
    return setting(default, check, **bounds)


def second_stage(**settings: Setting) -> Callable[[Function], Any]:
    """Decorator of ``function(theta, records, **settings) -> cp.Problem``, the sum of a loss over records.

    Weights, the ridge gamma and noise are the library's. The loss is a sum of curves of one margin per
    record, with a factor, an offset and a tilt; the set of theta is a ball, an l1 ball or a box; ``records``
    are a :class:`~dp2erm_cvx.program.rows.DeclaredRecords`. Constants, noise and certificates are derived
    (Theorems 1, 2 and 15 to 19). Raises DeclarationError, in one line.
    """
    return lambda function: LossProgram.of(function, {}, settings)
