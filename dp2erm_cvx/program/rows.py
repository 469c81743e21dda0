"""Data of a declaration: rows and numbers of single records, each in a public set that is enforced.

A declared program sees its data as CVXPY parameters. Each of them knows the public set that holds
the row or number of every record, so that whatever sets noise follows from the declaration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import ROUND_UP, Array
from dp2erm_cvx.checks import check_settings, public_number, public_size, setting
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space, clip_norm
from dp2erm_cvx.errors import DeclarationError, InfeasibleError, brief, known_names
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.balance import BALANCES, Balance, BalanceFunctions, one_by_one
from dp2erm_cvx.program.kernels import CHOICES, Energy, Kernel, PublicSample
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.weighting.forms.form import Arms

#: Rows (n, k) or numbers (n,), each made of one record: of covariates with the intercept, and the
#: records.
RecordMap = Callable[[Records], Array]


@dataclass(frozen=True)
class Ball:
    """Rows z with ``||z|| <= radius``.

    Raises DeclarationError unless the radius is a positive size.
    """

    radius: float = setting(check=public_size)
    vertices: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_settings(self)

    @property
    def largest(self) -> float:
        """Bound on the size of every entry."""
        return self.radius

    def project(self, rows: Array) -> Array:
        """Rows (n, k) shrunk into the set, each by itself."""
        return clip_norm(rows, self.radius)

    def __str__(self) -> str:
        return f"||z|| <= {self.radius:.4g}"


@dataclass(frozen=True)
class Vertices:
    """Rows that are unit vectors, of as many entries: one is 1, the others are 0."""

    vertices: int
    radius: ClassVar[float] = 1.0
    largest: ClassVar[float] = 1.0

    def project(self, places: Array) -> Array:
        """Unit vectors (n, vertices) of the places (n,) of their 1, which are cut off."""
        return np.asarray(
            np.eye(self.vertices)[np.clip(places, 0, self.vertices - 1).astype(np.int64)]
        )

    def __str__(self) -> str:
        return f"one of {self.vertices} unit vectors"


@dataclass(frozen=True)
class Range:
    """Numbers in ``[low, high]``. Raises DeclarationError unless both are numbers in this order."""

    low: float = setting()
    high: float = setting()

    def __post_init__(self) -> None:
        check_settings(self)
        public_number("high", self.high, at_least=self.low)

    @property
    def largest(self) -> float:
        """Bound on the size of every number."""
        return max(abs(self.low), abs(self.high))

    def project(self, numbers: Array) -> Array:
        """Numbers (n,) clipped into the set."""
        return np.clip(numbers, self.low, self.high)

    def __str__(self) -> str:
        return f"in [{self.low:.4g}, {self.high:.4g}]"


#: The public set of a row or a number.
Within = Ball | Vertices | Range


#: A ``cp.Parameter`` with a row or number of every record: ``within`` is its public set,
#: ``of(records)`` are the rows (n, k) or numbers (n,). No subclass: CVXPY is imported by whoever
#: reads a problem.
Datum = Any


class StatedDatum:
    """A datum of a form that is stated, and read of no problem, without CVXPY.

    Parameters
    ----------
    shape
        Of the rows or numbers.
    name
        Its name.

    What it is read by is put on it as on a parameter.
    """

    def __init__(self, shape: tuple[int, ...], name: str) -> None:
        self.shape = shape
        self._name = name

    def name(self) -> str:
        """Its name."""
        return self._name


#: Attributes of a datum that it is read by.
_READ = ("within", "of", "source", "kernel", "functions", "arm_factors", "averaged")


@dataclass(frozen=True)
class _Map:
    """What makes the data of one name.

    Parameters
    ----------
    function
        The author's function of one record; None for data of the library.
    within
        The public set of the data.
    width
        Entries of a row, where the author states them; the constant of ``by_arm``.
    """

    function: object
    within: Within
    width: float | None = None

    def is_that_of(self, other: _Map) -> bool:
        """True for the very same function into the same set.

        Two functions of equal text are two.
        """
        same_function = self.function is other.function
        return same_function and self.within == other.within and self.width == other.width


@dataclass(frozen=True)
class PublicPoints:
    """Public points whose mean features are a target.

    Parameters
    ----------
    sample
        The raw points, which tell them from others.
    X
        Covariates (m, p) on the scale of those of records; zeros at an example, which has other
        columns.
    """

    sample: PublicSample
    X: Array = field(compare=False, repr=False)


@dataclass
class DeclaredRecords:
    """Records as a declaration sees them: public numbers, and data with their public sets.

    Data are attributes: ``x`` covariates, ``signed`` ``(2a - 1) x``, ``favored``
    ``sign(y) (2a - 1) x``, ``y`` the centered outcome, ``outcome_size`` its absolute value,
    ``response`` ``2 (2a - 1) y``, ``treatment`` a, ``arms`` the unit vectors ``(1 - a, a)``, and
    ``ones`` rows of one 1. Another attribute raises DeclarationError.

    Parameters
    ----------
    space
        The public sets of the records.
    n, n_columns
        Numbers of records, and of columns of covariates, the intercept included.
    covariates_of
        Makes the covariates of the design of those of the space.
    bound
        Norm bound of the design; None for that of the space.
    own
        Names of data that the author's maps make.
    parameter
        Stands for the data where a problem is made for solvers.
    tried
        Whether these are the columns of data, and not those of an example: maps are then tried at a
        record of zeros, which is public.
    stated
        Whether data are no parameters of CVXPY.
    called
        The author's maps by name, with what they reach.
    """

    space: Space
    n: int
    n_columns: int
    covariates_of: Callable[[Space, Array], Array] = lambda space, X: X
    bound: float | None = None
    own: tuple[str, ...] = ()
    parameter: Callable[..., Any] | None = None
    tried: bool = False
    stated: bool = False
    called: dict[str, Called] = field(default_factory=dict)
    _data: dict[str, Datum] = field(default_factory=dict)
    _held: dict[str, dict[str, Any]] = field(default_factory=dict)
    _maps: dict[str, _Map] = field(default_factory=dict)

    @property
    def M(self) -> float:
        """Bound on the norm of the covariates, the intercept counted."""
        self._refuse_solver("M")
        return self.space.covariate_bound if self.bound is None else self.bound

    @property
    def outcome_bound(self) -> float:
        """Bound on the size of the centered outcome."""
        self._refuse_solver("outcome_bound")
        return self.space.outcome_bound

    def __getattr__(self, name: str) -> Datum:
        if name not in _LIBRARY:
            makers = ("by_arm", "features", "rows", "cells", "numbers", "mean_of")
            known = (*_LIBRARY, *makers, "n", "M", "outcome_bound")
            raise DeclarationError(f"records have no {name!r}; {known_names(name, known)}")
        low, high, make = _LIBRARY[name]
        if name in ("arms", "ones"):
            return self._datum(name, Vertices(int(high)), make, int(high))
        if math.isinf(high):
            bound = self.space.covariate_bound if self.bound is None else self.bound
            return self._datum(name, Ball(bound), self._signed(make), self.n_columns)
        unit = 1.0 if name == "treatment" else self.space.outcome_bound
        return self._datum(name, Range(low * unit, high * unit), make)

    def by_arm(self, constant: float | None = None) -> Datum:
        """Rows ``e_a (x) (constant, covariates)``.

        The constant defaults to the bound of the covariates.
        """
        bound = self.space.features_bound
        value = bound if constant is None else public_size("constant", constant, zero=True)

        def make(records: Records) -> Array:
            g = np.column_stack([np.full(records.n_samples, value), records.covariates])
            a = records.a[:, None]
            return np.hstack([(1 - a) * g, a * g])

        within = Ball(math.hypot(bound, value) * ROUND_UP)
        self._refuse_other_map("by_arm", _Map(None, within, value))
        width = 1 + self.n_columns - bool(self.space.intercept)
        return self._datum("by_arm", within, make, 2 * width, constant)

    def rows(
        self, name: str, make: Callable[..., Any], within: Ball, width: int | None = None
    ) -> Datum:
        """Rows of an author's own, ``make(x, a, y)`` of one record.

        x is (p,), a in {0, 1} and y centered.

        They are shrunk into ``within``, so that its bound need not be believed; where ``make``
        fails a row is 0. ``width`` is that of a row, by default that of x.
        """
        if not isinstance(within, Ball):
            raise DeclarationError(
                f"{name!r} is within {within!r}: must be Ball(r), r the norm bound of its rows"
            )
        columns = self.n_columns if width is None else width
        return self._own(name, within, make, width, columns)

    def cells(self, name: str, make: Callable[..., Any], size: int) -> Datum:
        """Unit vectors of an author's own: ``make(x, a, y)`` of one record is the place of its 1.

        A whole number from 0 to ``size - 1``; others are cut off, and where ``make`` fails it is 0.
        """
        return self._own(name, Vertices(size), make, 0, 1)

    def numbers(self, name: str, make: Callable[..., Any], low: float, high: float) -> Datum:
        """Numbers of an author's own, ``make(x, a, y)`` of one record, in ``[low, high]``.

        They are clipped to that interval.
        """
        return self._own(name, Range(low, high), make, 0, 1)

    @staticmethod
    def at_zeros(
        name: str, make: Callable[..., Any], n_columns: int, k: int, *, of_width: bool = False
    ) -> Array:
        """Values (2, k) at public records of zeros in both arms.

        Raises DeclarationError for others.

        ``of_width`` says that k may be declared, as ``width``.
        """
        rows = []
        for arm in (0, 1):
            try:
                values = np.asarray(make(np.zeros(n_columns), arm, 0.0), dtype=np.float64).ravel()
            except Exception as error:
                reason = f"fails at a record of zeros in arm {arm}: {type(error).__name__}"
                raise DeclarationError(f"{name!r} {reason}") from None
            if len(values) != k:
                remedy = f", or declare width={len(values)}" if of_width else ""
                raise DeclarationError(
                    f"{name!r} returns {len(values)} numbers for a record of zeros: return "
                    f"{k}{remedy}"
                )
            rows.append(values)
        return np.array(rows)

    def used(self, problem: Any) -> Any:
        """The declared problem.

        Raises DeclarationError where it leaves out data that it asked for.
        """
        inside = list(self._data)
        if isinstance(problem, cp.Problem):
            inside = [datum.name() for datum in data_of(problem)]
            for datum in problem.parameters():
                self.refuse_other_datum(datum)
        for name in self._data:
            if name not in inside:
                raise DeclarationError(
                    f"records: {name!r} is asked for and no part of the problem: leave it out, "
                    "and take shapes from data that are a part"
                )
        return problem

    def features(self, source: Kernel | Balance, of: str = "all") -> Datum:
        """Features of a kernel, or values of balance functions.

        A kernel has a number of entries that stands for any.

        Parameters
        ----------
        source
            The kernel that the inner products of two records are; or functions of the covariates of
            one record, whose values are the features.
        of
            ``all``; ``treated`` or ``controls``, where those of the other arm are 0; ``signed``,
            times ``2a - 1``; or ``by_arm``, those of controls and those of treated beside each
            other.

        Raises
        ------
        DeclarationError
            For anything else.
        """
        if of not in _FEATURES_OF:
            raise DeclarationError(f"of = {brief(of)}: {known_names(of, _FEATURES_OF)}")
        factors = _FEATURES_OF[of]
        bound = self.space.features_bound
        if isinstance(source, BALANCES):
            return self._of_balance(source, of, factors)
        # the bound of another kernel would be taken on trust
        if type(source) not in (*CHOICES, Energy):
            raise DeclarationError(
                f"features of {brief(source)}: must be those of a kernel of the library such as "
                "Gaussian, or of balance functions"
            )
        name = f"features({source!r}, {of!r})"
        within = Ball(math.sqrt(source.bound(bound)) * ROUND_UP)
        make = partial(_features_of, source.features, factors)
        k = _KERNEL_WIDTH * len(factors)
        return self._datum(name, within, make, k, name, kernel=source, arm_factors=factors)

    def _of_balance(
        self, functions: Balance, of: str, factors: tuple[tuple[float, float], ...]
    ) -> Datum:
        """Values of balance functions, times factors by arm."""
        label = repr(functions)
        identity: object = label
        if isinstance(functions, BalanceFunctions):
            label = functions.name
            identity = (label, functions.function, functions.norm_bound)
            self._refuse_other_map(label, _Map(functions.function, Ball(functions.norm_bound)))
            self.called[label] = functions.called
            if label not in self.own:
                self.own = (*self.own, label)
        return self._datum(
            f"features({label}, {of!r})",
            Ball(functions.bound(self.space.features_bound) * ROUND_UP),
            partial(_features_of, functions, factors),
            self._width_of_balance(functions) * len(factors),
            identity,
            functions=functions,
            arm_factors=factors,
        )

    def _width_of_balance(self, functions: Balance) -> int:
        """Number of balance functions.

        How many an author's own are is known of the covariates that they are tried at; elsewhere
        some number of them stands for any.
        """
        of_author = isinstance(functions, BalanceFunctions)
        if self.parameter is not None or (of_author and not self.tried):
            return _KERNEL_WIDTH
        return functions.size(self.n_columns - bool(self.space.intercept))

    def mean_of(self, datum: Datum, of: str | PublicSample) -> Datum:
        """The mean of data over the records of one arm, or of features over public points.

        The mean is a number, or a vector (k,). It is no datum of one record, so that it multiplies
        no weights. ``P.T @ w - records.n * records.mean_of(P, "treated")`` balances weights of sum
        n to the mean of the treated. How far that mean moves with one record follows from a
        declared arm floor. The mean of public points does not move.

        Parameters
        ----------
        datum
            Data of these records, whole: parts are taken of the mean. For public points the
            features of a kernel; the mean of anything else is a number that its author may write.
        of
            ``treated`` or ``controls``, or public points.

        Raises
        ------
        DeclarationError
            For another arm, for what is no datum of these records, for public points of other
            columns, and for those of anything but the features of a kernel.
        """
        if isinstance(of, PublicSample):
            return self._mean_of_points(datum, of)
        if of not in _ARMS:
            raise DeclarationError(f"of = {brief(of)}: {known_names(of, _ARMS)}")
        if not _is_datum(datum) or hasattr(datum, "averaged"):
            raise DeclarationError(
                f"records.mean_of({brief(datum)}, ..): takes data of every record, such as "
                "records.x; take parts and multiples of the mean"
            )
        name = f"mean_of({datum.name()}, {of!r})"
        if self.parameter is not None:
            return self.parameter(name)
        self.refuse_other_datum(datum)
        if name not in self._data:
            self._hold_mean_of_arm(name, datum, of)
        return self._data[name]

    def _hold_mean_of_arm(self, name: str, datum: Datum, of: str) -> None:
        """Make the datum that is the mean of another one over an arm."""
        arm = _ARMS[of]
        make_each = datum.of

        def make(records: Records) -> Array:
            return mean_of_arm(np.asarray(make_each(records), dtype=np.float64), records.a, arm)

        # the set of an author's own data is a part of what makes them
        own_set = str(datum.within) if callable(datum.source) else ""
        parts = {
            "within": Ball(1.0) if isinstance(datum.within, Vertices) else datum.within,
            "of": make,
            "source": (datum.source, of, own_set),
            "averaged": (datum, arm),
        }
        self._hold(cp.Parameter(datum.shape[1:], name=name), parts)

    def _mean_of_points(self, datum: Datum, sample: PublicSample) -> Datum:
        """The mean of the features of a kernel over public points."""
        called = datum.name() if _is_datum(datum) else brief(datum)
        name = f"mean_of({called}, {sample!r})"
        if self.parameter is not None:
            return self.parameter(name)
        if not hasattr(datum, "kernel") or datum.arm_factors != _FEATURES_OF["all"]:
            raise DeclarationError(
                f"records.mean_of({called}, ..): the mean of public points is that of "
                "records.features(..) of a kernel, whose treatment does not matter; write the "
                "number that another mean is"
            )
        self.refuse_other_datum(datum)
        if name not in self._data:
            points = self._scaled_points(sample)
            parts = {
                "within": datum.within,
                "of": partial(_mean_at, datum.kernel, points),
                "source": name,
                "averaged": (datum, PublicPoints(sample, points)),
            }
            self._hold(cp.Parameter(datum.shape[1:], name=name), parts)
        return self._data[name]

    def _scaled_points(self, sample: PublicSample) -> Array:
        """Public points (m, p) on the scale of covariates; zeros at an example.

        An example has other columns than the points.
        """
        p = self.n_columns - bool(self.space.intercept)
        return sample.scaled(self.space, p) if self.tried else np.zeros((1, p))

    def refuse_other_datum(self, datum: Datum) -> None:
        """Raise DeclarationError for a parameter that is not of these records, or was changed."""
        if self.parameter is not None or self._is_held(datum):
            return
        instead = "" if datum.size > 1 else ", or write its number"
        raise DeclarationError(
            f"parameter {datum.name()} has no public set: take it from records (rows(), "
            f"numbers()), or make it a setting{instead}"
        )

    def _is_held(self, datum: Datum) -> bool:
        """True for a datum of these records that is read by what it was made with."""
        name = datum.name()
        if self._data.get(name) is not datum:
            return False
        held = self._held[name]
        read = {label: value for label, value in vars(datum).items() if label in _READ}
        return len(read) == len(held) and all(read[label] is held[label] for label in held)

    def _own(
        self, name: str, within: Within, make: Callable[..., Any], width: int | None, size: int
    ) -> Datum:
        """Data of an author's map to ``size`` numbers of one record, put into their set."""
        if name in _LIBRARY:
            raise DeclarationError(f"records: {name!r} is data of the library; choose another name")
        self._refuse_other_map(name, _Map(make, within, width))
        called = Called.of(name, make)
        self.called[name] = called
        if self.tried:
            self.at_zeros(name, make, self.n_columns, size, of_width=width != 0)
        if name not in self.own:
            self.own = (*self.own, name)

        def made(records: Records) -> Array:
            alone = by_record(name, called.unchanged(), width)
            return within.project(alone(records))

        k = None if isinstance(within, Range) else within.vertices or size
        return self._datum(name, within, made, k, make)

    def _refuse_other_map(self, name: str, new: _Map) -> None:
        """Raise DeclarationError where another map, or another set, has this name already."""
        known = self._maps.setdefault(name, new)
        if not known.is_that_of(new):
            raise DeclarationError(
                f"records: two data are called {name!r}; choose another name for one, or pass the "
                "very same function twice"
            )

    def _refuse_solver(self, name: str) -> None:
        """Raise DeclarationError for a public number where a problem is made for solvers."""
        if self.parameter is not None:
            raise DeclarationError(
                f"records.{name} is no part of a problem in the weights: make it a setting of the "
                "decorator, "
                f'such as size="{name}"'
            )

    def _signed(self, signs: Callable[[Records], Array | None]) -> RecordMap:
        """A map to covariates times a sign of every record; None for 1."""

        def make(records: Records) -> Array:
            x = self.covariates_of(records.space, records.X)
            sign = signs(records)
            return x if sign is None else sign[:, None] * x

        return make

    def _datum(
        self,
        name: str,
        within: Within,
        make: RecordMap,
        k: int | None = None,
        source: object = None,
        **parts: object,
    ) -> Datum:
        """The datum of this name, made when it is first asked for.

        Parameters
        ----------
        name
            Its name.
        within, make
            Its public set, and the map from records into it.
        k
            Entries of a row; None for numbers.
        source
            What tells it from another one of this name in another reading.
        parts
            What it is read by, as attributes: a kernel, or functions, and factors by arm.
        """
        nonneg = isinstance(within, Range) and within.low >= 0
        if self.parameter is not None:
            # a problem for solvers: its parameters are the data themselves
            return self.parameter(name, nonneg=nonneg)
        if name not in self._data:
            shape = (self.n,) if k is None else (self.n, k)
            datum: Datum = StatedDatum(shape, name)
            if not self.stated:
                datum = cp.Parameter(shape, name=name, nonneg=nonneg)
            self._hold(datum, {"within": within, "of": make, "source": source, **parts})
        return self._data[name]

    def _hold(self, datum: Datum, parts: dict[str, Any]) -> None:
        """Keep a new datum, with what it is read by as its attributes."""
        self._data[datum.name()] = datum
        self._held[datum.name()] = parts
        for label, value in parts.items():
            setattr(datum, label, value)


def shifted_rows(rows: Datum, constant: Array) -> Datum:
    """Rows plus a public constant row (k,), of which there is one datum for every constant.

    Their norm is at most that of the rows and that of the constant together.
    """
    places = np.flatnonzero(constant)
    entries = ", ".join(f"{float(constant[k])!r} at {k}" for k in places)
    name = f"{rows.name()} plus {entries}"
    if not hasattr(rows, "shifted"):
        rows.shifted = {}
    known: dict[str, Datum] = rows.shifted
    if name not in known:
        shifted: Datum = cp.Parameter(rows.shape, name=name)
        size = float(np.linalg.norm(constant))
        shifted.within = Ball((rows.within.radius + size) * ROUND_UP)
        shifted.source = rows.source
        shifted.of = partial(_with_constant, rows.of, places, constant[places])
        known[name] = shifted
    return known[name]


def _with_constant(
    make: RecordMap, places: NDArray[np.int64], constant: Array, records: Records
) -> Array:
    """Rows (n, k) with public constants added at places."""
    rows = np.array(make(records), dtype=np.float64)
    rows[:, places] += constant
    return rows


def mean_of_arm(values: Array, a: Arms, arm: int) -> Array:
    """Mean over the records of an arm of values (n, ..) with treatments a (n,).

    Raises :class:`~dp2erm_cvx.errors.InfeasibleError` where there are none; shown to the data
    holder only.
    """
    members = np.asarray(values)[a == arm]
    if not len(members):
        raise InfeasibleError(f"no record has arm {arm}, whose mean is asked for")
    return np.asarray(np.mean(members, axis=0))


def _is_datum(value: object) -> bool:
    """True for a parameter, and for the constant that stands for one that is too large."""
    return isinstance(value, (cp.Parameter, cp.Constant))


def data_of(problem: Any) -> list[Datum]:
    """The data of a problem, and those that its means are taken of, each once."""
    found = {datum.name(): datum for datum in problem.parameters()}
    for datum in problem.parameters():
        if hasattr(datum, "averaged"):
            base, _ = datum.averaged
            found.setdefault(base.name(), base)
    return list(found.values())


def same_data(one: Datum, other: Datum) -> bool:
    """True if two readings of a declaration mean the same data: by name and what makes them.

    The set of an author's own data is part of the declaration; that of the library's follows from
    the domain.
    """
    if one.name() != other.name() or not _same(one.source, other.source):
        return False
    return not callable(one.source) or one.within == other.within


def _same(one: Any, other: Any, inside: tuple[object, ...] = ()) -> bool:
    """True if objects of two calls of a function are the same.

    Functions are compared by their code and what they hold.

    ``inside`` are the functions that hold them: a function may hold itself.
    """
    if one is other or any(one is outer for outer in inside):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, FunctionType):
        return one.__code__ == other.__code__ and _same(_held(one), _held(other), (*inside, one))
    if isinstance(one, partial):
        return _same(_parts_of(one), _parts_of(other), inside)
    if isinstance(one, tuple | list):
        if len(one) != len(other):
            return False
        pairs = zip(one, other, strict=True)
        return all(_same(item, other_item, inside) for item, other_item in pairs)
    if isinstance(one, dict):
        if list(one) != list(other):
            return False
        return all(_same(one[name], other[name], inside) for name in one)
    return isinstance(one, int | float | str | bytes) and one == other


def _parts_of(made: partial[Any]) -> tuple[Any, ...]:
    """What a partial function is made of."""
    return made.func, made.args, made.keywords


def _held(function: FunctionType) -> tuple[Any, ...]:
    """What a function holds of the call that made it: its defaults and its closure."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return function.__defaults__, function.__kwdefaults__, cells


#: Name: least and largest in units of the outcome's bound (infinite for rows), and numbers, or
#: signs of rows; of unit vectors their length.
_LIBRARY: Mapping[str, tuple[float, float, Callable[[Records], Any]]] = {
    "x": (0.0, math.inf, lambda records: None),
    "signed": (0.0, math.inf, lambda records: 2 * records.a - 1),
    "favored": (
        0.0,
        math.inf,
        lambda records: np.where(records.y < 0, -1.0, 1.0) * (2 * records.a - 1),
    ),
    "y": (-1.0, 1.0, lambda records: records.y),
    "outcome_size": (0.0, 1.0, lambda records: np.abs(records.y)),
    "response": (-2.0, 2.0, lambda records: 2.0 * (2 * records.a - 1) * records.y),
    "treatment": (0.0, 1.0, lambda records: records.a.astype(np.float64)),
    "arms": (0.0, 2.0, lambda records: np.column_stack([1.0 - records.a, records.a])),
    "ones": (0.0, 1.0, lambda records: np.ones((records.n_samples, 1))),
}

#: Arms by the name of their records.
_ARMS: Mapping[str, int] = {"controls": 0, "treated": 1}

#: Entries that the features of a kernel are read with; there may be any number of them.
_KERNEL_WIDTH = 3

#: Factors of the features of a kernel for controls and for treated, of every block of entries.
_FEATURES_OF: Mapping[str, tuple[tuple[float, float], ...]] = {
    "all": ((1.0, 1.0),),
    "treated": ((0.0, 1.0),),
    "controls": ((1.0, 0.0),),
    "signed": ((-1.0, 1.0),),
    "by_arm": ((1.0, 0.0), (0.0, 1.0)),
}


def _features_of(
    values: Callable[[Array], Array], factors: tuple[tuple[float, float], ...], records: Records
) -> Array:
    """Values (n, m k) of m blocks, each with a factor by arm.

    Parameters
    ----------
    values
        Makes values (n, k) of covariates (n, p).
    factors
        Of every block the factor of controls and that of treated.
    records
        The records.
    """
    made = values(records.covariates)
    blocks = [
        np.where(records.a == 1, treated, control)[:, None] * made for control, treated in factors
    ]
    return np.hstack(blocks)


def _mean_at(kernel: Kernel, points: Array, records: Records) -> Array:
    """Mean features (k,) of public points (T, p), in the features that a kernel has on records.

    Where those are a factor of the kernel's matrix, the part outside of their span is left out,
    which is one number in every square of an imbalance.
    """
    X = records.covariates
    if kernel.n_features(X.shape[1]) is not None:
        return np.asarray(np.mean(kernel.features(points), axis=0))
    mean = np.mean(kernel.cross(X, points), axis=1)
    return np.asarray(np.linalg.lstsq(kernel.features(X), mean, rcond=None)[0])


def by_record(name: str, make: Callable[..., Any], width: int | None) -> RecordMap:
    """A map that sees one record at a time.

    Its width is 0 for a number, None for that of the covariates.
    """

    def made(records: Records) -> Array:
        k = records.X.shape[1] if width is None else width or 1
        table = list(zip(records.X, map(int, records.a), map(float, records.y), strict=True))
        rows = one_by_one(repr(name), make, table, k)
        return rows if width != 0 else rows[:, 0]

    return made
