"""A scheme: a function that declares a program, with its settings.

It makes programs that hold what was read. Classes of the library derive every constant that sets
noise (V, the largest weight) from what they read of the function; a bound V that an author states
beside it is that author's word, as a release says. A scheme is an object, not a base class, so
nobody can subclass it and overwrite such a constant.
"""

from __future__ import annotations

import dataclasses
import importlib.machinery
import inspect
import sys
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from dp2erm_cvx.checks import declared_choice, public_number, public_size, setting
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.balance import BALANCES
from dp2erm_cvx.program.declaration import printed
from dp2erm_cvx.program.kernels import CHOICES, Energy, Kernel
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.program.stated import refuse_unused

#: What a decorator is put on.
Function = Callable[..., Any]
#: A number, or a formula of public numbers such as M and outcome_bound.
Setting = float | str
#: Where declarations are read and compared; what they say does not depend on it.
STANDARD = Space(1.0, 1.0)
#: What refuses a class of one's own, and what to do.
REMEDY = (
    "classes of programs are the library's: put scheme, scheme.separable, scheme.known, "
    "scheme.moments or second_stage on a function instead"
)
#: Fields of the programs of ``program.stage`` that are no settings. Beside the scheme and the
#: author's own settings, ``reading`` is what was read of the function, and ``place`` the (space, n,
#: columns) that it was read at again.
HELD = ("scheme", "own", "reading", "place")


def refuse_no_function(function: object) -> None:
    """Raise DeclarationError for what a decorator cannot read.

    It reads nothing but a function with a name.
    """
    if isinstance(function, types.FunctionType):
        return
    if isinstance(function, cp.Problem):
        raise DeclarationError(
            f"{printed(function.objective.args[0])}: a single problem does not tell what depends "
            "on the number of records: put the decorator on a function of (w, records), or of "
            "(theta, records) for a second stage; or pass a function of n that makes a problem of "
            "weights to scheme.from_problem"
        )
    kind = type(function).__name__
    raise DeclarationError(
        f"an object of the class {kind}: put the decorator on a function, made by def"
    )


class Scheme:
    """A declared program, called with settings: what a decorator makes of a function.

    Parameters
    ----------
    function
        The author's function, of CVXPY objects or of one record.
    family
        The class of the library whose programs it makes.
    settings
        Fields of the settings, by name and in order, each with its default and its check.
    formulas
        Defaults that depend on the domain: formulas of public numbers, by the name of a setting.
    options
        What else the decorator was told, by name.
    name
        Name of the programs; by default that of the function.
    """

    __name__: str
    __qualname__: str
    function: Function
    family: type[Any]
    settings: Mapping[str, Any]
    formulas: Mapping[str, str]
    options: Mapping[str, Any]
    name: str
    #: The first line of the function's docstring.
    citation: str
    #: That with a private coefficient, once :func:`~dp2erm_cvx.program.private` has declared one.
    variant: Scheme | None
    #: The author's function that states a bound, once ``bound`` has been put on one.
    statement: Called | None
    #: Settings that the conformance suite tries its programs at.
    examples: tuple[Mapping[str, Any], ...] = ({},)

    def __init__(
        self,
        function: Function,
        family: type[Any],
        settings: Mapping[str, Any],
        formulas: Mapping[str, str],
        options: Mapping[str, Any],
        name: str = "",
    ) -> None:
        text = inspect.getdoc(function) or "a declaration of its author"
        vars(self).update(
            function=function,
            family=family,
            settings=MappingProxyType(dict(settings)),
            formulas=MappingProxyType(dict(formulas)),
            options=MappingProxyType(dict(options)),
            name=name or function.__name__,
            citation=text.splitlines()[0],
            variant=None,
            statement=None,
            __doc__=text,
            __module__=function.__module__,
            __name__=name or function.__name__,
            __qualname__=name or function.__qualname__,
            __signature__=_signature(settings),
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        """Refuse a change: what was read of a scheme is what its programs solve."""
        raise DeclarationError(
            f"{self.name}.{name} cannot be set: a scheme is its function, as it was read"
        )

    @classmethod
    def declared(
        cls,
        function: Function,
        family: type[Any],
        family_defaults: Mapping[str, Any],
        own: Mapping[str, Any],
        *,
        hidden: tuple[str, ...] = (),
        **options: Any,
    ) -> Scheme:
        """Scheme of a decorated function.

        One of an author's is read at once, and refused where it stands.

        Parameters
        ----------
        function, family, options
            As above.
        family_defaults
            Defaults of settings of the family that the decorator states, by name.
        own
            Defaults of the author's own settings, which are arguments of the function.
        hidden
            Settings of the family that this scheme does not have.

        Raises
        ------
        DeclarationError
            For settings that are no arguments, arguments that are no settings, and for whatever is
            not read of the function of an author.
        """
        refuse_no_function(function)
        defaults = {**family_defaults, **own}
        _refuse_other_arguments(function, family, defaults, own)
        settings, formulas = scheme_settings(family, defaults, hidden=hidden)
        scheme = cls(function, family, settings, formulas, options)
        if not _in_library(function):  # whose programs are read where they are made
            program = scheme().resolve(STANDARD)
            program.refuse_misread()
            refuse_unused(program, tuple(own), scheme.example())
        return scheme

    def __call__(self, *values: Any, **settings: Any) -> Any:
        """The program at these settings."""
        bound = vars(self)["__signature__"].bind(*values, **settings)
        bound.apply_defaults()
        of_family = {field.name for field in dataclasses.fields(self.family)}
        own: dict[str, Any] = {}
        shared: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            settings_of = shared if name in of_family else own
            settings_of[name] = value
        return self.family(scheme=self, own=own, **shared)

    def bound(self, function: Function) -> Function:
        """Decorator of a function that states the bound of weights.

        A release says that it is its author's word.
        """
        if not hasattr(self.family, "stated_bound"):
            raise DeclarationError(f"{self.name}: its bound is derived: leave out what states one")
        vars(self)["statement"] = Called.of(f"the bound of {self.name}", function)
        return function

    def example(self, n: int = 6, columns: int = 3) -> MappedUniverse:
        """Where programs are read before they are used: public sizes, and a space of unit bounds.

        Parameters
        ----------
        n
            Number of records.
        columns
            Number of columns, where the declaration is read at any.
        """
        stated: int | None = self.options.get("columns")
        return MappedUniverse(STANDARD, n, columns if stated is None else stated)

    @property
    def of_library(self) -> bool:
        """True if this very object is found in the module where its function is written.

        That has to be one of the package.
        """
        module = sys.modules.get(self.__module__)
        found = getattr(module, self.__qualname__, None) is self
        return found and _in_library(self.function)

    @property
    def formula(self) -> str:
        """The program in one line."""
        return str(self().resolve(STANDARD).declared_formula())

    @property
    def theorem(self) -> str:
        """What proves its bound, in words."""
        return str(self.family.theorem_of(self))

    @property
    def kind(self) -> Any:
        """The form of weights, which decides what can be proved about them."""
        return self.family.kind_of(self)

    @property
    def relations(self) -> frozenset[Any]:
        """The neighboring relations that are covered."""
        covered: frozenset[Any] = self.family.relations_of(self)
        return covered

    @property
    def defaults(self) -> dict[str, str]:
        """Defaults that are left to the domain, in words."""
        words = {
            name: text.replace("**", "^").replace("*", "") for name, text in self.formulas.items()
        }
        return {**self.family.defaults, **words}

    def __repr__(self) -> str:
        return f"<scheme {self.__module__}.{self.__qualname__}>"

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        """Refuse ``class Mine(scheme)``.

        A class could state other constants than those of what it solves.
        """
        raise DeclarationError(f"a class based on {self.name}: {REMEDY}")

    def __copy__(self) -> Scheme:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Scheme:
        return self

    def __reduce__(self) -> Any:
        """By its name where another process can import it, else by what it was made of."""
        if _importable(self):
            return self.__qualname__
        made = (
            self.function,
            self.family,
            dict(self.settings),
            dict(self.formulas),
            dict(self.options),
        )
        return _remade, (*made, self.name, self.__qualname__, self.variant, self.statement)


def scheme_settings(
    family: type[Any],
    defaults: Mapping[str, Any],
    *,
    hidden: tuple[str, ...] = (),
    base: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[dict[str, Any], dict[str, str]]:
    """Fields of the settings of a scheme, and the formulas among their defaults.

    Parameters
    ----------
    family
        The class of the library, whose settings come first and keep their checks.
    defaults
        By name other defaults of these settings, and more settings: a number, a formula, a kernel,
        balance functions, or a field. A field of a number may have a formula as its default.
    hidden
        Settings of the family that this scheme does not have.
    base
        Fields of the scheme that it is a variant of, which come first.

    Returns
    -------
    settings, formulas
        Fields by name and in order, and formulas by the name of their setting.
    """
    fields = {
        field.name: field
        for field in dataclasses.fields(family)
        if field.name not in (*HELD, *hidden)
    }
    fields |= base
    formulas: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for name in dict.fromkeys((*base, *fields, *defaults)):
        if name not in defaults:
            settings[name] = fields[name]
            continue
        formula = _formula_of(defaults[name])
        if formula is not None:
            formulas[name] = formula
        settings[name] = _field_of(defaults[name], formula, fields.get(name))
    return settings, formulas


def _field_of(
    declared: Any, formula: str | None, of_family: dataclasses.Field[Any] | None
) -> dataclasses.Field[Any]:
    """The field of a setting.

    Parameters
    ----------
    declared
        Its default, or a field with a check of its own.
    formula
        The formula that it defaults to, which leaves the field without a default; None for none.
    of_family
        The field of the family of this name, whose check is kept.
    """
    if isinstance(declared, dataclasses.Field):
        return declared if formula is None else _left_open(declared)
    default = None if formula is not None else declared
    if of_family is None:
        made: dataclasses.Field[Any] = _setting_of(default)
        return made
    check, bounds = of_family.metadata["check"]
    optional = of_family.metadata["optional"]
    kept: dataclasses.Field[Any] = setting(default, check, optional=optional, **bounds)
    return kept


def _formula_of(declared: Any) -> str | None:
    """The formula of public numbers that a setting defaults to; None for any other default."""
    if isinstance(declared, dataclasses.Field):
        check, _ = declared.metadata.get("check", (None, {}))
        if check not in (public_number, public_size):
            return None
        declared = declared.default
    return declared if isinstance(declared, str) else None


def _left_open(declared: dataclasses.Field[Any]) -> Any:
    """The field of a setting without its default, which is a formula."""
    check, bounds = declared.metadata["check"]
    return setting(None, check, **bounds)


def _setting_of(default: Any) -> Any:
    """The field of a setting, with the check that its default asks for.

    A default is a kernel, balance functions or a number.

    Parameters
    ----------
    default
        The default; None for a formula, which is a number.
    """
    if isinstance(default, Kernel):
        return setting(default, declared_choice, kinds=(*CHOICES, Energy))
    if isinstance(default, BALANCES):
        return setting(default, declared_choice, kinds=BALANCES)
    return setting(default, public_number, infinite=True)


def asked(function: Function, *arguments: Any, **settings: Any) -> Any:
    """Result of an author's function. Raises DeclarationError with its error in one line."""
    try:
        return function(*arguments, **settings)
    except DeclarationError:
        raise
    except Exception as error:
        text = " ".join(str(error).split()).rstrip(".")
        if isinstance(error, TypeError) and "positional argument" in text:
            names = ["theta" if _is_theta(arguments) else "w", "records", *settings]
            text += f"; its arguments are ({', '.join(names)})"
        variable = arguments[0] if arguments else None
        if isinstance(variable, cp.Variable) and variable.name() == "w":
            text += _hint_of_weights(error, settings)
        elif "ncompatible dimensions" in text:
            text += (
                "; theta has one entry for every column of records.x, or for each of its "
                "coordinates"
            )
        raise DeclarationError(f"{function.__name__}: {type(error).__name__}: {text}") from None


def _refuse_other_arguments(
    function: Function, family: type[Any], defaults: Mapping[str, Any], own: Mapping[str, Any]
) -> None:
    """Raise DeclarationError unless settings are keywords of the decorator and arguments.

    Parameters
    ----------
    function, family
        The decorated function, and the class of its programs.
    defaults
        Defaults of all settings.
    own
        Those of the author's own settings.
    """
    wanted = list(inspect.signature(function).parameters)[family.leading(function) :]
    for name in (*own, *wanted):
        if name in HELD or name in family.arguments:
            raise DeclarationError(
                f"{function.__name__}: a setting is called {name!r}: choose another name"
            )
        is_no_argument = name in own and name not in wanted
        if name not in defaults or is_no_argument:
            beside = "".join(
                f"; {argument!r} is an argument beside settings" for argument in family.arguments
            )
            raise DeclarationError(
                f"{function.__name__}: {name!r} must be a keyword of the decorator and an "
                f"argument of the function{beside}"
            )


def _is_theta(arguments: tuple[Any, ...]) -> bool:
    """Whether a function was asked for a second stage: its first argument is the parameter."""
    if not arguments or not isinstance(arguments[0], cp.Variable):
        return False
    return bool(arguments[0].name() == "theta")


def _hint_of_weights(error: Exception, settings: Mapping[str, Any]) -> str:
    """What to write instead, for an error that a function of the weights and the records raised."""
    text = str(error)
    if isinstance(error, cp.error.ParameterError) or "'NoneType'" in text:
        return (
            "; data have no values yet: write records.x, and return the problem, which is solved "
            "later"
        )
    if isinstance(error, ZeroDivisionError) and 0 in settings.values():
        return "; a setting is 0: start it above 0, such as ridge=setting(0.1, above=0)"
    if "unexpected keyword argument" in text or "NumPy function" in text:
        return (
            "; write functions of CVXPY, such as cp.sum(records.x, axis=0), in the place of NumPy's"
        )
    if isinstance(error, NotImplementedError) and "Strict inequalities" in text:
        return "; write <= for <, cp.max(m) for max(m) and w <= cap for the largest weight"
    if isinstance(error, IndexError) and "valid indices" in text:
        return (
            "; no records are chosen by a condition: records.by_arm(1.0) has a block of columns "
            "for each arm, which is 0 at records of the other one"
        )
    if isinstance(error, IndexError) and "out of bounds" in text:
        return (
            "; a declaration is read at three columns first: name one by itself, such as "
            "records.numbers('age', lambda x, a, y: x[7], -1, 1)"
        )
    if "must be symmetric" in text:
        return "; write sum_squares(Z.T @ w) in the place of quad_form(w, Z @ Z.T)"
    sizes = (
        isinstance(error, ValueError | IndexError) or "dimensions" in text or "has no len()" in text
    )
    if not sizes:
        return ""
    return (
        "; take all data from records, such as records.x[:, 0], and sizes from records.n and their "
        "shape: the problem is read at several numbers of records and columns"
    )


def _signature(settings: Mapping[str, Any]) -> inspect.Signature:
    """Signature of a call with these settings."""
    parameters: list[inspect.Parameter] = []
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    for name, field in settings.items():
        default = field.default
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
            if parameters:  # no place follows one that may be left out
                kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default))
    return inspect.Signature(parameters)


def _in_library(function: Function) -> bool:
    """True if a function is written in a module of the package.

    Which module it says it is of does not count.
    """
    module = sys.modules.get(function.__module__)
    written = module is not None and getattr(function, "__globals__", None) is vars(module)
    return written and function.__module__.startswith("dp2erm_cvx.")


def _importable(scheme: Scheme) -> bool:
    """True if another process finds the scheme under its name in its module."""
    module = sys.modules.get(scheme.__module__)
    if getattr(module, scheme.__qualname__, None) is not scheme:
        return False
    parent, _, _ = scheme.__module__.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    return importlib.machinery.PathFinder.find_spec(scheme.__module__, folders) is not None


def _remade(
    function: Function,
    family: type[Any],
    settings: Mapping[str, Any],
    formulas: Mapping[str, str],
    options: Mapping[str, Any],
    *named: Any,
) -> Scheme:
    """A scheme of what it was made of, in another process."""
    name, qualified, variant, statement = named
    scheme = Scheme(function, family, settings, formulas, options, name)
    vars(scheme).update(__qualname__=qualified, variant=variant, statement=statement)
    return scheme
