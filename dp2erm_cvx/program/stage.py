"""Base of both kinds of programs: settings, a program bound to its data, and a record replaced in it.

A decorated function becomes a program class, with the decorator's keywords as its settings. A setting is a
number, or a formula of the public numbers M and outcome_bound such as ``"M**2 / 10"``.
"""

from __future__ import annotations

import abc
import ast
import dataclasses
import enum
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Self

from dp2erm_cvx.domain import Array, Domain, Records, Universe
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.direct import DirectModel
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program.balance import MomentTargets
from dp2erm_cvx.program.declaration import Declaration, Params, Value
from dp2erm_cvx.public import check_settings, public_number, setting

#: A number, or a formula of public numbers such as M and outcome_bound.
Setting = float | str


def declared_choice(
    name: str, value: object, *, kinds: tuple[type, ...] = (), words: tuple[str, ...] = ()
) -> object:
    """The value. Raises DeclarationError where it is none of these words, nor exactly of one of these types.

    Bounds and constants are proved for these: one of another type would be taken on trust.
    """
    if type(value) in kinds or value in words:
        return value
    *most, last = [kind.__name__ for kind in kinds] + [repr(word) for word in words]
    raise DeclarationError(f"{name} = {value!r}: must be {', '.join(most)} or {last}")


class Kind(enum.StrEnum):
    """The form of a weighting program, and in words what bounds the movement of its weights.

    It decides which theorem can. Without one only the universal corollary holds, V <= 2n.
    """

    proved: str

    def __new__(cls, value: str, proved: str) -> Self:
        """A member that is equal to its ``value``."""
        member = str.__new__(cls, value)
        member._value_, member.proved = value, proved
        return member

    CLOSED_FORM = "closed form", "weights fixed up to normalization: V = 2 w_max"
    EXPONENTIAL = "exponential", "a parametric program with a ridge: Theorems 3, 22 and 23, or 4"
    QUADRATIC = "quadratic", "strongly convex on a fixed set: Theorem 5, 6 or a stated one"
    PRIVATE = "private", "a private coefficient: Theorem 9"
    STATED = "stated bound", "a bound that the author of the program states"
    DIRECT = "direct", "no theorem, or hard constraints that depend on the data: universal corollary only"


#: From m records that leave and m new ones to the models of m neighbors: the rows (m, d) in place of the old
#: ones, not centered, and the targets (m, d), None for the same.
RowNeighbors = Callable[[Records, Records], tuple[Array, Array | None]]


class Program(abc.ABC):
    """A convex program, declared once. Concrete programs are frozen dataclasses of hyper-parameters.

    Classes are the library's; a program of one's own is a function under one of the decorators, so that
    what sets noise is derived. Raises DeclarationError for an object of another subclass.
    """

    name: ClassVar[str]
    formula: ClassVar[str]
    citation: ClassVar[str]
    theorem: ClassVar[str]
    relations: ClassVar[frozenset[Neighboring]] = frozenset(Neighboring)
    #: Defaults that depend on the domain: formulas of public numbers, see ``resolve``.
    formulas: ClassVar[Mapping[str, Setting]] = MappingProxyType({})
    #: The same in words, and whatever else is left to the domain.
    defaults: ClassVar[Mapping[str, str]] = {}
    #: Whether its model asks records for sums alone, so that they may come in blocks.
    by_blocks: ClassVar[bool] = False
    #: Settings that the conformance suite tries the program at.
    examples: ClassVar[tuple[Mapping[str, Any], ...]] = ({},)

    def __new__(cls, *arguments: Any, **settings: Any) -> Self:
        cls.refuse_own_class()
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_settings(self)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "formulas" in vars(cls):
            texts = {k: v for k, v in cls.formulas.items() if isinstance(v, str)}
            words = {k: v.replace("**", "^").replace("*", "") for k, v in texts.items()}
            cls.defaults = {**cls.defaults, **words, **vars(cls).get("defaults", {})}

    @classmethod
    def refuse_own_class(cls) -> None:
        """Raise DeclarationError for a class that is neither the library's nor that of a decorator."""
        if not cls.__module__.startswith("dp2erm_cvx.") and "_made" not in vars(cls):
            raise DeclarationError(
                f"{cls.__name__}: classes of programs are the library's: put scheme, scheme.separable, "
                "scheme.known, scheme.moments or second_stage on a function instead"
            )

    @abc.abstractmethod
    def declare(self, data: Params) -> Declaration:
        """The CVXPY problem; ``data(name)`` is a parameter. Must be DPP."""

    def read(self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]) -> Array:
        """The point of the composite model that a solver's variables and duals stand for.

        By default the first declared variable, put into the model's set, which solvers meet only nearly.
        """
        return instance.composite.penalty.set.project(next(iter(values.values())))

    def resolve(self, domain: Domain) -> Self:
        """The program with every default that depends on the public domain filled in."""
        left = [name for name in self.formulas if getattr(self, name) is None]
        known = self.public_numbers(domain) if left else {}
        numbers = {name: _evaluated(name, self.formulas[name], known) for name in left}
        program: Any = self
        return dataclasses.replace(program, **numbers) if numbers else self

    def number(self, name: str) -> float:
        """A setting whose default depends on the domain. Raises ProgramError where it is still open."""
        value: float | None = getattr(self, name)
        if value is None:
            raise ProgramError(f"{name} is left to the domain: call resolve(domain) first")
        return value

    def public_numbers(self, domain: Domain) -> dict[str, float]:
        """Numbers that formulas of settings may ask for."""
        return {"M": domain.covariate_bound, "outcome_bound": domain.outcome_bound}

    def takes_blocks(self, universe: Universe) -> bool:
        """True if the resolved program can be fitted to records that are never in memory together."""
        return self.by_blocks

    def own_data(self) -> tuple[str, ...] | None:
        """Names of data that maps of an author's own make; None where its bound is its author's word."""
        return ()

    def settings(self) -> dict[str, Any]:
        """Hyper-parameters as plain JSON types; all of them are public."""
        return {name: _plain(value) for name, value in vars(self).items()}


#: What a decorator is put on.
Function = Callable[..., Any]
#: Where declarations are read and compared; what they say does not depend on it.
STANDARD = Domain(1.0, 1.0)


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
    formula = _Formula()
    #: Arguments of the function before its settings.
    first: ClassVar[int] = 2

    @abc.abstractmethod
    def refuse_misread(self) -> None:
        """Read the declaration and compare it with CVXPY. Raises DeclarationError for what is not read."""

    @classmethod
    def of(
        cls, function: Function, settings: Mapping[str, Setting], own: Mapping[str, Any], **members: Any
    ) -> Any:
        """Program class of a declaration; one of an author's is read at once, and refused where it stands."""
        name, defaults = function.__name__, {**settings, **own}
        wanted = list(inspect.signature(function).parameters)[cls.first :]
        if unknown := [k for k in (*own, *wanted) if k not in defaults or (k in own and k not in wanted)]:
            raise DeclarationError(
                f"{name}: {unknown[0]!r} must be a keyword of the decorator and an argument of the function"
            )
        made = made_class(function, (cls,), defaults, {"function": staticmethod(function), **members})
        if not function.__module__.startswith("dp2erm_cvx."):
            made().resolve(STANDARD).refuse_misread()
        return made

    @staticmethod
    def asked(function: Function, *arguments: Any, **settings: float) -> Any:
        """Result of an author's function. Raises DeclarationError with its error in one line."""
        try:
            return function(*arguments, **settings)
        except DeclarationError:
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            if "ncompatible dimensions" in text:
                text += "; theta has one entry for every column of records.x, or for each of its coordinates"
            raise DeclarationError(f"{function.__name__}: {type(error).__name__}: {text}") from None

    def called(self, *arguments: Any) -> Any:
        """Result of the declaration at its settings."""
        return self.asked(type(self).function, *arguments, **dict(self.own_settings()))

    def own_settings(self) -> tuple[tuple[str, float], ...]:
        """Settings that the function itself asks for, as numbers. Raises ProgramError where one is open."""
        wanted = inspect.signature(type(self).function).parameters
        return tuple((name, self.number(name)) for name in vars(self) if name in wanted)


def made_class(
    function: Function, bases: tuple[Any, ...], settings: Mapping[str, Any], members: Mapping[str, Any]
) -> Any:
    """Program class of a decorator, with the name, docstring and module of its function unless stated.

    ``settings`` are beside those of its bases, whose checks they keep; formulas stay open until
    resolved.
    """
    doc = inspect.getdoc(function) or "a declaration of its author"
    known = {field.name: field for base in bases for field in dataclasses.fields(base)}
    formulas = {k: v for k, v in settings.items() if isinstance(v, str)}
    fields: list[Any] = []
    for k, v in settings.items():
        check, bounds = known[k].metadata["check"] if k in known else (public_number, {"infinite": True})
        field = setting(None if k in formulas else v, check, **bounds)
        fields.append((k, Any, v if isinstance(v, dataclasses.Field) else field))
    namespace: dict[str, Any] = {
        "name": function.__name__,
        "citation": doc.splitlines()[0],
        "__doc__": doc,
        "__qualname__": function.__qualname__,
        **({"formulas": formulas} if formulas else {}),
        **members,
        "__module__": function.__module__,
        "_made": True,
    }
    cls: Any = dataclasses.make_dataclass(
        namespace["name"], fields, bases=bases, namespace=namespace, frozen=True
    )
    cls.__module__ = function.__module__
    return cls


@dataclass(frozen=True, eq=False)
class Instance:
    """A program bound to data: what a solver solves and what a certificate judges.

    Parameters
    ----------
    program
        The program.
    load
        Makes the data of the declaration.
    composite
        The exact smooth-plus-prox form. Where only a duality gap can judge, the program less its kinks.
    gap_convexity
        Where only a duality gap can judge, the strong convexity that is declared.
    kinked
        Where only a duality gap can judge, makes the problem that is judged. Raises CertificateError where
        nothing can be proved about it, whatever the data are.
    targets
        Hard constraints that may have no solution.
    scaled
        Makes the data of the declaration in public units, for solvers; None for those of ``load``.
    unit
        With the scaled data the first variable of the declaration is that of the program over this.
    """

    program: Program
    load: Callable[[], Mapping[str, Value]]
    composite: Composite
    gap_convexity: float | None = None
    kinked: Callable[[], KinkedProblem] | None = None
    targets: MomentTargets | None = None
    scaled: Callable[[], Mapping[str, Value]] | None = None
    unit: float = 1.0

    @cached_property
    def data(self) -> Mapping[str, Value]:
        """Data of the parameters, made when a solver that goes through CVXPY asks for them."""
        return self.load()

    @cached_property
    def scaled_data(self) -> Mapping[str, Value]:
        """Data of the parameters in public units."""
        return self.data if self.scaled is None else self.scaled()

    @property
    def model(self) -> Composite | None:
        """The exact form; None where only a duality gap can judge."""
        return self.composite if self.gap_convexity is None else None

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the declared objective, in its units."""
        return self.composite.ridge if self.gap_convexity is None else self.gap_convexity

    @property
    def half_digits(self) -> bool:
        """True if a certificate loses half of the digits: by a duality gap, or at a kink (Theorem D)."""
        return self.model is None or (isinstance(self.model, DirectModel) and self.model.objective.kinks)

    def __repr__(self) -> str:
        # the data are private
        return f"Instance({self.program!r})"


def _plain(value: Any) -> Any:
    if hasattr(value, "describe"):
        return value.describe()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {type(value).__name__: inner} if inner else type(value).__name__
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


#: What a formula of a setting is made of, beside numbers and names.
_FORMULA = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Load)


def _evaluated(name: str, formula: Setting, known: Mapping[str, float]) -> float:
    """Number of a setting: itself, or its formula in ``known`` numbers. Raises DeclarationError."""
    if not isinstance(formula, str):
        return formula
    what = f"{name} = {formula!r}"
    try:
        tree = ast.parse(formula, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                node.value = float(node.value)  # a power of whole numbers may take any time and memory
            elif not isinstance(node, _FORMULA) and getattr(node, "id", None) not in known:
                raise DeclarationError(f"{what}: a formula has numbers, {', '.join(known)}, + - * / **")
        number: float = eval(compile(tree, formula, "eval"), {"__builtins__": {}}, dict(known))
    except SyntaxError:
        raise DeclarationError(f"{what}: is no formula") from None
    except ArithmeticError:
        raise DeclarationError(f"{what}: is no finite number") from None
    return number
