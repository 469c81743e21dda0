"""Base of both kinds of programs: settings, bound data and a replaced record.

A program is of a class of the library; those of a scheme hold what was read of its function. A
setting is a number, or a formula of the public numbers M and outcome_bound such as ``"M**2 / 10"``.
"""

from __future__ import annotations

import abc
import ast
import dataclasses
import enum
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Self

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import Named, check_settings
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program.declaration import Declaration, Params, Value
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.program.scheme import Function, Scheme, Setting, asked
from dp2erm_cvx.program.stated import DeclaredExpressions
from dp2erm_cvx.program.trust import (
    checked_setting,
    refuse_other_scheme,
    refuse_own_class,
    refuse_patched,
)

#: What may be registered under a name: a class of the library, or a scheme.
Registered = type["Program"] | Scheme


class Kind(enum.StrEnum):
    """The form of a weighting program, and in words what bounds the movement of its weights.

    It decides which theorem can. Without one only the universal corollary holds, V <= 2n.
    """

    proved: str

    def __new__(cls, value: str, proved: str) -> Self:
        """A member that is equal to its ``value``."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.proved = proved
        return member

    CLOSED_FORM = "closed form", "weights fixed up to normalization: V = 2 w_max"
    EXPONENTIAL = "exponential", "a parametric program with a ridge: Theorems 3, 22 and 23, or 4"
    PRIVATE = "private", "a private coefficient: Theorem 9"
    WEIGHTING = (
        "weights as the variable",
        "a dispersion and prices of imbalances: Theorems 5, 6, 18 and 29",
    )
    STATED = "stated bound", "a bound that the author of the program states"
    DIRECT = (
        "direct",
        "no theorem, or hard constraints that depend on the data: universal corollary only",
    )


#: Takes m records that leave and the m records that replace them, and returns the models of the m
#: neighbors: their rows (m, d) in the place of the old ones, not centered, and their targets
#: (m, d), or None where targets stay.
RowNeighbors = Callable[[Records, Records], tuple[Array, Array | None]]


class Program(abc.ABC):
    """A convex program, declared once.

    Concrete programs are frozen dataclasses of hyper-parameters.

    Classes are the library's; a program of one's own is a function under one of the decorators, so
    that what sets noise is derived from what was read of it.

    Raises
    ------
    DeclarationError
        For an object of another subclass.
    """

    #: Its registered name.
    name: ClassVar[str]
    #: What it minimizes, in words and symbols.
    formula: ClassVar[str]
    #: Where it was published.
    citation: ClassVar[str]
    #: What proves its bound, in words.
    theorem: ClassVar[str]
    #: The neighboring relations that its bound covers.
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
        refuse_own_class(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_settings(self)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "formulas" not in vars(cls):
            return
        in_words = {}
        for name, formula in cls.formulas.items():
            if isinstance(formula, str):
                in_words[name] = formula.replace("**", "^").replace("*", "")
        cls.defaults = {**cls.defaults, **in_words, **vars(cls).get("defaults", {})}

    @abc.abstractmethod
    def declare(self, data: Params) -> Declaration:
        """The CVXPY problem; ``data(name)`` is a parameter. Must be DPP."""

    def read(
        self, instance: Instance, values: Mapping[str, Array], duals: Mapping[str, Array]
    ) -> Array:
        """The point of the composite model that a solver's variables and duals stand for.

        By default the first declared variable, put into the model's set, which solvers meet only
        nearly.
        """
        return instance.composite.penalty.set.project(next(iter(values.values())))

    def resolve(self, space: Space) -> Self:
        """The program with every default that depends on the space filled in.

        A formula may ask for settings whose formulas stand before it.
        """
        open_settings = [name for name in self.formulas if self.value(name) is None]
        if not open_settings:
            return self
        public_numbers = self.public_numbers(space)
        settings: dict[str, float] = {}
        for name in open_settings:
            settings[name] = evaluated(name, self.formulas[name], {**public_numbers, **settings})
        return self.with_settings(**settings)

    def read_at(self, space: Space, n: int, p: int) -> Self:
        """The resolved program, read again at the public sizes that it is used at.

        A fit asks for it before anything is charged, so that what is declared is what is solved.

        Parameters
        ----------
        space
            The space of the records.
        n
            Number of records; of persons where they are units.
        p
            Number of columns of the records, the intercept included.

        Raises
        ------
        DeclarationError
            Where what is read there is not what was declared, and where something was put on the
            program after it was made.
        """
        refuse_patched(self)
        return self.resolve(space)

    def at(self, universe: MappedUniverse) -> Self:
        """The resolved program, read at the public sizes of a universe unless it was already."""
        return self.read_at(universe.space, universe.n_samples, universe.n_columns)

    @property
    def made_by(self) -> Registered:
        """The class that is registered under its name, or the scheme."""
        return type(self)

    def setting_fields(self) -> Mapping[str, dataclasses.Field[Any]]:
        """The fields of its settings, by name and in order."""
        program: Any = self
        return {one.name: one for one in dataclasses.fields(program)}

    def value(self, name: str) -> Any:
        """The setting of this name."""
        return vars(self)[name]

    def with_settings(self, **changes: Any) -> Self:
        """The program with other settings."""
        program: Any = self
        changed: Self = dataclasses.replace(program, **changes)
        return changed

    def number(self, name: str) -> float:
        """A setting whose default may depend on the domain.

        Raises
        ------
        ProgramError
            Where it is still left to the domain.
        """
        value = self.value(name)
        if value is None and name in self.formulas:
            raise ProgramError(f"{name} is left to the domain: call resolve(space) first")
        number: float = value
        return number

    def public_numbers(self, space: Space) -> dict[str, float]:
        """Numbers that formulas of settings may ask for."""
        return {"M": space.covariate_bound, "outcome_bound": space.outcome_bound}

    def takes_blocks(self, universe: MappedUniverse) -> bool:
        """True if the resolved program can be fitted to records that are never all in memory."""
        return self.by_blocks

    def own_data(self) -> tuple[str, ...]:
        """Names of data that maps of an author's own make."""
        return ()

    def uses_stated_bound(self, universe: MappedUniverse) -> bool:
        """True where a guarantee rests on a bound that the author states, without a proof.

        Parameters
        ----------
        universe
            The public sizes that the resolved program is used at. A larger bound than the derived
            one is not used.
        """
        return False

    def own_function(self) -> Function | None:
        """The author's function that it was declared by; None of a program of the library."""
        return None

    def own_calls(self) -> dict[str, Called]:
        """Functions of an author that it calls for one record or for a bound, by name."""
        return {}

    def declared_at(self, universe: MappedUniverse) -> DeclaredExpressions:
        """What the author's function of a resolved program returns at public sizes."""
        return DeclaredExpressions()

    def settings(self) -> dict[str, Any]:
        """Hyper-parameters as plain JSON types; all of them are public."""
        return {name: _plain(self.value(name)) for name in self.setting_fields()}


class OfScheme:
    """An attribute that a program takes from its scheme, under the name of the attribute.

    Parameters
    ----------
    of_class
        Its value where the class itself is asked, which has no scheme.
    """

    def __init__(self, of_class: Any = "") -> None:
        self.of_class = of_class

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, program: DeclaredProgram | None, owner: type[Any]) -> Any:
        if program is None:
            return self.of_class
        return getattr(program.scheme, self.name)


@dataclass(frozen=True, repr=False)
class DeclaredProgram(Program):
    """A program of a scheme: its settings, and what was read of its function.

    Every class of programs that schemes make is one of these.

    Parameters
    ----------
    scheme
        What it was declared by.
    own
        The author's own settings, by name.
    reading
        What was read of the function at these settings, when the program was made; never handed
        over, so that no copy comes without it or with another one.
    place
        The space, the number of records and that of columns that it was read at again; None until
        then.
    """

    name: ClassVar[Any] = OfScheme()
    citation: ClassVar[Any] = OfScheme()
    formula: ClassVar[Any] = OfScheme()
    formulas: ClassVar[Any] = OfScheme(MappingProxyType({}))
    #: Number of arguments of the function before its settings.
    first: ClassVar[int] = 2
    #: Names of arguments that are no settings, wherever they stand.
    arguments: ClassVar[tuple[str, ...]] = ()

    scheme: Scheme = field(kw_only=True)
    own: Mapping[str, Any] = field(kw_only=True)
    reading: Any = field(init=False, default=None, compare=False)
    place: tuple[Space, int, int] | None = field(init=False, default=None, compare=False)

    def __post_init__(self) -> None:
        refuse_other_scheme(self)
        own = {}
        for name, one in self.scheme.settings.items():
            checked = checked_setting(name, one, self.value(name))
            if name in self.own:
                own[name] = checked
            else:
                object.__setattr__(self, name, checked)
        object.__setattr__(self, "own", Named({name: own[name] for name in self.own}))
        object.__setattr__(self, "reading", self.first_reading())

    def __getattr__(self, name: str) -> Any:
        own = vars(self).get("own", {})
        if name not in own:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return own[name]

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={self.value(name)!r}" for name in self.setting_fields())
        return f"{self.name}({settings})"

    def __reduce__(self) -> Any:
        # a copy is read anew
        values = {name: self.value(name) for name in self.setting_fields()}
        return _made_again, (self.scheme, values, self.place)

    @classmethod
    def leading(cls, function: Function) -> int:
        """Number of arguments of a function before its settings.

        Raises
        ------
        DeclarationError
            For other names.
        """
        return cls.first

    @classmethod
    def theorem_of(cls, scheme: Scheme) -> str:
        """What proves the bound of a scheme's programs, in words."""
        return cls.theorem

    @classmethod
    def relations_of(cls, scheme: Scheme) -> frozenset[Neighboring]:
        """The neighboring relations that programs of a scheme cover, at its defaults."""
        return cls.relations

    @classmethod
    def kind_of(cls, scheme: Scheme) -> Any:
        """The form of a scheme's weights; None of a second stage."""
        return getattr(cls, "kind", None)

    def read_at(self, space: Space, n: int, p: int) -> Self:
        refuse_patched(self)
        program = self.resolve(space)
        return program.changed(reading=program.reading_at(space, n, p), place=(space, n, p))

    def at(self, universe: MappedUniverse) -> Self:
        place = (universe.space, universe.n_samples, universe.n_columns)
        if self.place == place:
            return self
        return self.read_at(*place)

    @property
    def made_by(self) -> Registered:
        return self.scheme

    def changed(self, **values: Any) -> Self:
        """The program with another reading, or with settings that none depends on.

        Nothing is read anew.
        """
        program = object.__new__(type(self))
        vars(program).update(vars(self) | values)
        return program

    def own_function(self) -> Function | None:
        return None if self.scheme.of_library else self.scheme.function

    @abc.abstractmethod
    def reading_at(self, space: Space, n: int, p: int) -> Any:
        """What is read of the function of a resolved program at these sizes.

        Raises
        ------
        DeclarationError
            Where that is not what was read when the program was made.
        """

    @abc.abstractmethod
    def first_reading(self) -> Any:
        """What is read of the function at these settings; None while one of its own is open."""

    @abc.abstractmethod
    def refuse_misread(self) -> None:
        """Read the declaration and compare it with CVXPY.

        Raises
        ------
        DeclarationError
            For what is not read.
        """

    def setting_fields(self) -> Mapping[str, dataclasses.Field[Any]]:
        return self.scheme.settings

    def value(self, name: str) -> Any:
        return self.own[name] if name in self.own else getattr(self, name)

    def with_settings(self, **changes: Any) -> Self:
        values = {name: self.value(name) for name in self.setting_fields()}
        program: Self = self.scheme(**values | changes)
        return program

    def called(self, *arguments: Any) -> Any:
        """Result of the declaration at its settings."""
        return asked(self.scheme.function, *arguments, **dict(self.own_settings()))

    def own_settings(self) -> tuple[tuple[str, Any], ...]:
        """Settings that the function itself asks for, with their names.

        Raises
        ------
        ProgramError
            Where a number is still left to the domain.
        """
        arguments = inspect.signature(self.scheme.function).parameters
        asked_for = [name for name in self.setting_fields() if name in arguments]
        return tuple((name, self.number(name)) for name in asked_for)


def family_of(made: Registered) -> type[Program]:
    """The class of the programs that a scheme makes; a class is its own."""
    if isinstance(made, Scheme):
        return made.family
    return made


def fields_of(made: Registered) -> Mapping[str, dataclasses.Field[Any]]:
    """The fields of the settings of a class of programs or of a scheme, by name and in order."""
    if isinstance(made, Scheme):
        return made.settings
    family: Any = made
    return {one.name: one for one in dataclasses.fields(family)}


def _made_again(
    scheme: Scheme, settings: Mapping[str, Any], place: tuple[Space, int, int] | None
) -> Any:
    """The program of a scheme at these settings, read at the same place."""
    program = scheme(**settings)
    if place is None:
        return program
    return program.read_at(*place)


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
        The exact smooth-plus-prox form. Where only a duality gap can judge, the program less its
        kinks.
    gap_convexity
        Where only a duality gap can judge, the strong convexity that is declared.
    kinked
        Where only a duality gap can judge, makes the problem that is judged. Raises
        CertificateError where nothing can be proved about it, whatever the data are.
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
    scaled: Callable[[], Mapping[str, Value]] | None = None
    unit: float = 1.0

    @cached_property
    def data(self) -> Mapping[str, Value]:
        """Data of the parameters, made when a solver that goes through CVXPY asks for them."""
        return self.load()

    @cached_property
    def scaled_data(self) -> Mapping[str, Value]:
        """Data of the parameters in public units, or those of ``load``."""
        if self.scaled is None:
            return self.data
        return self.scaled()

    @property
    def model(self) -> Composite | None:
        """The exact form; None where only a duality gap can judge."""
        if self.gap_convexity is not None:
            return None
        return self.composite

    @property
    def strong_convexity(self) -> float:
        """Strong convexity of the declared objective, in its units."""
        if self.gap_convexity is not None:
            return self.gap_convexity
        return self.composite.ridge

    @property
    def half_digits(self) -> bool:
        """True if a certificate loses half of the digits: by a duality gap, or at a kink."""
        return self.model is None or self.model.half_digits

    def __repr__(self) -> str:
        # the data are private
        return f"Instance({self.program!r})"


def _plain(value: Any) -> Any:
    """A setting in plain JSON types."""
    if hasattr(value, "describe"):
        return value.describe()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [one.name for one in dataclasses.fields(value)]
        if not names:
            return type(value).__name__
        return {type(value).__name__: {name: _plain(getattr(value, name)) for name in names}}
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


#: What a formula of a setting is made of, beside numbers and names.
_FORMULA = (ast.Expression, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.Load)


def evaluated(name: str, formula: Setting, numbers: Mapping[str, float]) -> float:
    """Number of a setting: itself, or the value of its formula.

    Parameters
    ----------
    name
        Name of the setting, for messages.
    formula
        A number, or a formula as text.
    numbers
        Public numbers that a formula may ask for, by name.

    Raises
    ------
    DeclarationError
        For a text that is no such formula, and where its value overflows.
    """
    if not isinstance(formula, str):
        return formula
    what = f"{name} = {formula!r}"
    try:
        tree = ast.parse(formula, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
                # a power of whole numbers may take any time and memory
                node.value = float(node.value)
            elif not isinstance(node, _FORMULA) and getattr(node, "id", None) not in numbers:
                raise DeclarationError(
                    f"{what}: a formula has numbers, {', '.join(numbers)}, + - * / **"
                )
        number: float = eval(compile(tree, formula, "eval"), {"__builtins__": {}}, dict(numbers))
    except SyntaxError:
        raise DeclarationError(f"{what}: is no formula") from None
    except ArithmeticError:
        raise DeclarationError(f"{what}: is no finite number") from None
    return number
