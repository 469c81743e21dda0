"""Weights that are the variable of a convex program: only CVXPY is written, the rest is derived."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NoReturn

import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_number, setting
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import CalibrationError, CertificateError, DeclarationError, ProgramError
from dp2erm_cvx.model.composite import Composite, SimplexModel
from dp2erm_cvx.model.kinked import KinkedProblem
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.supports import SupportedFunction, refuse_other_values
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.privacy import Neighboring, StabilityBound
from dp2erm_cvx.program.balance import BALANCES, BalanceFunctions
from dp2erm_cvx.program.declaration import (
    SIZES,
    Declaration,
    Params,
    Value,
    differing,
    printed,
    refuse_no_problem,
    refuse_products,
    with_n,
)
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.form import states_sum, weights_curvature
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.program.memory import COPIES, refuse_size
from dp2erm_cvx.program.reach import Called
from dp2erm_cvx.program.rows import DeclaredRecords, data_of, same_data
from dp2erm_cvx.program.scheme import STANDARD, Scheme, asked
from dp2erm_cvx.program.stage import DeclaredProgram, Instance, Kind, OfScheme
from dp2erm_cvx.program.stated import DeclaredExpressions
from dp2erm_cvx.program.weighting.data import n_entries
from dp2erm_cvx.program.weighting.reader import read_weighting
from dp2erm_cvx.program.weighting.stage import (
    FormInUniverse,
    few_of_kernel,
    kernels_of,
    refuse_kernel,
    strong_convexity_of_form,
    theorem_of_form,
)
from dp2erm_cvx.stability import Bound
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from dp2erm_cvx.weighting.neighbors.kind_weights import weights_of_kinds
from dp2erm_cvx.weighting.solving.dataset import MOST_PAIRS

#: Seconds of a solve by pairs of records over n^3, measured at 2,000 records.
_SECONDS = 2e-10
#: Seconds of a long solve, which is told.
_LONG = 10.0
#: Certified error of the weights of one record that a search goes on with.
_SEARCHED = 1e-6
#: Name of what is there for every record among the data, whatever a problem asks for: it tells
#: their number.
EACH_RECORD = "each record"


class _RelationsOfForm:
    """The neighboring relations that are covered: none under constraints of the imbalance."""

    def __get__(self, program: WeightsProgram | None, owner: type[Any]) -> frozenset[Neighboring]:
        if program is None:
            return frozenset(Neighboring)
        form = program.reading.form
        hard = isinstance(form, WeightingForm) and form.hard
        return frozenset() if hard else frozenset(Neighboring)


@dataclass(frozen=True, repr=False)
class WeightsProgram(DeclaredProgram, FirstStage):
    """Weights w (n,) that are the variable of a declared problem, beside ``sum(w) = n, w >= 0``.

    Where the problem is a dispersion of the weights, prices of their imbalances, boxes and sums, it
    is read into a :class:`~dp2erm_cvx.weighting.forms.form.WeightingForm`: V, the certificate and
    the radius that every solve reaches follow from that (page on weights as the variable).

    Of any other problem V is 2n, unless its author states a bound, and no radius is public: a
    release on a stated bound is conditional. Its weights are judged by a duality gap (Theorem 40),
    which reads norms, absolute values, maxima, squares and Huber's function, one inside of another,
    and inequalities that are slack at weights 1. What that does not read is refused when planned,
    with what to write.

    Constraints of an imbalance are never private: no bound exists, and the certificate of the
    weights is a backward error (Theorem 7 of the page on certificates of weights) in place of a
    distance.

    Parameters
    ----------
    smoothing
        Public parameter of Moreau envelopes in the place of kinks of an imbalance, over n and in
        units of the largest norm of its rows: a sum and a mean are smoothed alike. None leaves
        kinks as they are.
    """

    kind: ClassVar[Any] = OfScheme(Kind.DIRECT)
    theorem: ClassVar[Any] = OfScheme("none: universal corollary")
    relations: ClassVar[Any] = _RelationsOfForm()

    smoothing: float | None = setting(None, public_number, above=0.0)

    @classmethod
    def kind_of(cls, scheme: Scheme) -> Kind:
        form = _form_by_default(scheme)
        if form is not None and form.hard:
            return Kind.DIRECT
        if scheme.statement is not None:
            return Kind.STATED
        return Kind.DIRECT if form is None else Kind.WEIGHTING

    @classmethod
    def theorem_of(cls, scheme: Scheme) -> str:
        form = _form_by_default(scheme)
        if form is not None and form.hard:
            return "none: not private"
        if scheme.statement is not None:
            return "a bound that its author states"
        return "none: universal corollary" if form is None else theorem_of_form(form)

    @classmethod
    def relations_of(cls, scheme: Scheme) -> frozenset[Neighboring]:
        program: Any = scheme()
        covered: frozenset[Neighboring] = program.relations
        return covered

    def called(self, *arguments: Any) -> Any:
        """The problem at its settings, as a minimization.

        A function that is maximized is negated.
        """
        problem = super().called(*arguments)
        if isinstance(problem, cp.Problem) and isinstance(problem.objective, cp.Maximize):
            return cp.Problem(cp.Minimize(-problem.objective.args[0]), problem.constraints)
        return problem

    def first_reading(self) -> WeightsReading:
        numbers = self.resolve(STANDARD)
        if numbers is self:
            return WeightsReading(self, self.scheme.example())
        read: WeightsReading = numbers.reading
        return read

    def reading_at(self, space: Space, n: int, p: int) -> WeightsReading:
        universe = MappedUniverse(space, n, p - bool(space.intercept))
        declared: WeightsReading = self.reading
        columns = sum(n_entries(datum) for datum in declared.problem.parameters())
        refuse_size(n, max(columns, 1), f"{columns} columns of data")
        if isinstance(declared.form, WeightingForm):
            for kernel in kernels_of(declared.form):
                refuse_kernel(kernel, universe)
        read = WeightsReading(self, universe)
        if not self.scheme.of_library:
            # a function may remember
            again, _, w = _stated_problem(self, universe)
            read.refuse_other(again, _ends(again.constraints, w), universe)
        declared.refuse_other(read.problem, read.ends, universe)
        return read

    def _at(self, universe: MappedUniverse) -> WeightsReading:
        """The reading in a universe: that of the program, unless it was read elsewhere."""
        read: WeightsReading = self.reading
        place = universe.space, universe.n_samples, universe.n_columns
        known = read.universe
        # What is read depends on the place alone, whatever else is declared of the universe.
        if (known.space, known.n_samples, known.n_columns) == place:
            return read
        return self.reading_at(*place)

    def refuse_misread(self) -> None:
        reading = self._at(self.scheme.example())
        other = self.scheme.example(1009, 7)
        self.reading_at(STANDARD, other.n_samples, other.n_columns)
        if isinstance(reading.form, str):
            refuse_products(reading.problem)
        if not isinstance(reading.form, WeightingForm) and not reading.curvature > 0.0:
            raise DeclarationError(
                f"{printed(reading.objective)}: no strong convexity in the weights is known; "
                f"{reading.form}"
            )

    def own_calls(self) -> dict[str, Called]:
        bound = self.scheme.statement
        return {} if bound is None else {bound.name: bound}

    def declared_at(self, universe: MappedUniverse) -> DeclaredExpressions:
        w = cp.Variable(universe.n_samples, name="w")
        records = DeclaredRecords(universe.space, universe.n_samples, universe.n_columns)
        return DeclaredExpressions.of_problem(records.used(self.called(w, records)), records)

    def own_data(self) -> tuple[str, ...]:
        read: WeightsReading = self.reading
        if not self.scheme.of_library:
            return read.own
        # maps of the library see one record alone; balance functions that are handed over are a
        # user's
        of_user = [value.name for value in self.own.values() if isinstance(value, BalanceFunctions)]
        return tuple(name for name in read.own if name in of_user)

    def public_numbers(self, space: Space) -> dict[str, float]:
        """Numbers that formulas of settings may ask for.

        Beside those of the domain ``M_x``, the norm bound of the covariates without the intercept;
        ``C``, the bound of a kernel that is a setting; ``G_x``, the norm bound of balance functions
        that are one; and settings that are numbers, by their names.
        """
        bound = space.features_bound
        numbers = super().public_numbers(space) | {"M_x": bound}
        for name, value in self.own.items():
            if isinstance(value, Kernel):
                numbers["C"] = value.bound(bound)
            elif isinstance(value, BALANCES):
                numbers["G_x"] = value.bound(bound)
            elif isinstance(value, int | float):
                numbers[name] = float(value)
        return numbers

    def stated_bound(self, universe: MappedUniverse) -> Bound | None:
        """Result of the author's function at public numbers; None without one."""
        statement = self.scheme.statement
        if statement is None:
            return None
        function = statement.unchanged()
        numbers = {
            "n": universe.n_samples,
            "M": universe.space.covariate_bound,
            "outcome_bound": universe.space.outcome_bound,
        }
        numbers |= {name: self.value(name) for name in self.setting_fields()}
        wanted = inspect.signature(function).parameters
        for name in wanted:
            if name not in numbers:
                raise DeclarationError(
                    f"{self.name}: its bound asks for {name!r}: it may ask for {', '.join(numbers)}"
                )
        try:
            bound = asked(function, **{name: numbers[name] for name in wanted})
        except DeclarationError as error:
            raise DeclarationError(f"{self.name}: its bound states {error}") from None
        if not isinstance(bound, Bound):
            raise DeclarationError(
                f"{self.name}: its bound returns Bound.from_l2(...) or Bound.from_gradient(...)"
            )
        return bound

    def data(self, records: Records) -> dict[str, Value]:
        read: WeightsReading = self.reading
        if read.universe.space != records.space:
            read = self._at(MappedUniverse(records.space, records.n_samples, records.n_features))
        return read.data(records)

    @property
    def balances_arms(self) -> bool:
        """Whether an imbalance compares the arms.

        Its rows then differ by treatment, and both arms have weights.
        """
        form = self.reading.form
        if isinstance(form, str):
            return True
        if form.sums.kind is SumKind.CONTROLS:
            return False
        for imbalance in form.imbalances:
            for group in imbalance.groups:
                if any(part.weighted[0] != part.weighted[1] for part in group):
                    return True
        return False

    def strong_convexity(self, universe: MappedUniverse) -> float:
        """Largest m known such that the objective less ``m/2 ||w||^2`` is convex, or 0."""
        return self._at(universe).curvature

    def declared_formula(self) -> str:
        """The program in one line."""
        texts = []
        for n in SIZES:
            reading = WeightsReading(self, self.scheme.example(n))
            sets = [printed(constraint) for constraint in reading.problem.constraints]
            # what is added where it is not written
            if "0 <= w" not in sets:
                sets.insert(0, "w >= 0")
            if reading.has_total_of_library and f"sum(w) == {n}" not in sets:
                sets.insert(0, "sum(w) == n")
            texts.append(f"w = argmin {printed(reading.objective)}, {', '.join(sets)}")
        return with_n(*texts)

    def _for_solver(
        self, data: Params, w: cp.Variable
    ) -> tuple[Any, tuple[float, float], dict[str, Any]]:
        """The objective, the box, and the constraints beside it."""
        read: WeightsReading = self.reading
        problem = self.called(w, DeclaredRecords(STANDARD, w.size, 0, parameter=data))
        read.refuse_other_problem(problem, w.size)
        beside: dict[str, Any] = {}
        for place, constraint in enumerate(problem.constraints):
            if _end(constraint, w) is not None:
                continue
            # what the library adds is not written twice
            is_total = not constraint.parameters() and states_sum(constraint, w, float(w.size))
            if is_total and read.has_total_of_library:
                continue
            beside[f"constraint_{place}"] = constraint
        return problem.objective.args[0], _ends(problem.constraints, w), beside

    def declare(self, data: Params) -> Declaration:
        n = data.shape(EACH_RECORD)[0]
        w = cp.Variable(n, name="weights", nonneg=True)
        objective, (floor, cap), beside = self._for_solver(data, w)
        read: WeightsReading = self.reading
        constraints: dict[str, Any] = {}
        if read.has_total_of_library:
            constraints["total"] = cp.sum(w) == n
        if not math.isinf(cap):
            constraints["cap"] = w <= cap
        if floor > 0:
            constraints["floor"] = w >= floor
        return Declaration(objective, {"weights": w}, constraints | beside)

    def bound(self, universe: MappedUniverse) -> StabilityBound:
        """The smaller one of the derived bound and of the one that its author states.

        Raises CalibrationError for constraints of the imbalance: no distance of computed weights to
        the exact ones is known, and what the records do not admit is said to the data holder.
        """
        form = self._at(universe).form
        if isinstance(form, WeightingForm) and form.hard:
            raise CalibrationError(
                f"{self.name} has no stability bound: a hard constraint of an imbalance depends on "
                "the data. Price the imbalance instead, as entropy_balancing and stable_balancing "
                "do"
            )
        if self.scheme.statement is None:
            return self.derived_bound(universe)
        stated = self._bound_of_author(universe)
        if isinstance(self._at(universe).form, str):
            return stated
        derived = self.derived_bound(universe)
        return stated if stated.V < derived.V else derived

    def derived_bound(self, universe: MappedUniverse) -> StabilityBound:
        """The bound that follows from what was read: 2n outside of the form.

        Raises CalibrationError where some dataset has no weights in their box.
        """
        form = self._at(universe).form
        if isinstance(form, str):
            self.box(universe)
            return stability.any_weights(
                universe.n_samples, f"{Kind.DIRECT.proved}: {form}", self.relations
            )
        return self.form_in(universe).bound(self.relations)

    def uses_stated_bound(self, universe: MappedUniverse) -> bool:
        if self.scheme.statement is None:
            return False
        try:
            return self.unused_bound(universe) is None
        except CalibrationError:  # of the bound that the author states, which a plan then refuses
            return True

    def unused_bound(self, universe: MappedUniverse) -> str | None:
        if self.scheme.statement is None or isinstance(self._at(universe).form, str):
            return None
        stated = self._bound_of_author(universe)
        derived = self.derived_bound(universe)
        if stated.V < derived.V:
            return None
        smaller = f"V = {derived.V:.4g} follows from what is minimized ({derived.theorem})"
        return f"the bound that its author states, V = {stated.V:.4g}, is not used: {smaller}"

    def _bound_of_author(self, universe: MappedUniverse) -> StabilityBound:
        """The bound that the author of the program states.

        Raises CalibrationError where it says nothing about what is released.
        """
        bound = self.stated_bound(universe)
        assert bound is not None
        _, cap = self.box(universe)
        reading = self._at(universe)
        self._refuse_statement(bound, reading)
        bound = replace(bound, w_max=min(bound.w_max, cap))
        try:
            return bound.at(universe.n_samples, self.strong_convexity(universe), self.relations)
        except CalibrationError as error:
            raise CalibrationError(
                f"{self.name}: {error}: add a term such as sum_squares(w - 1)"
            ) from None

    def _refuse_statement(self, bound: Bound, reading: WeightsReading) -> None:
        """Raise CalibrationError for a stated bound that does not fit.

        It is one of other weights, or from gradients on a set that moves.

        Where the treated weigh 1 all weights are multiplied for the release, by a number that is
        data. Where kinks are smoothed the weights are those of another problem than the author
        writes. And ``||w - w'|| <= g / m`` follows from both variational inequalities on one set
        alone, while sums and boxes by arm are other ones at other treatments.
        """
        form = reading.form
        if isinstance(form, WeightingForm) and form.sums.kind is SumKind.TREATED:
            raise CalibrationError(
                f"{self.name}: its bound is of weights of sum n, and these are multiplied by n / "
                "(2 n_1) for a release: state none, and V is derived"
            )
        if isinstance(form, WeightingForm) and form.smoothed:
            raise CalibrationError(
                f"{self.name}: its bound is of the weights of the kink, and smoothing = "
                f"{self.value('smoothing'):g} asks for others: state none, and V is derived"
            )
        moving = [one for one in reading.problem.constraints if one.parameters()]
        if bound.gradient is not None and moving:
            raise CalibrationError(
                f"{self.name}: its bound is from the gradient, which holds on one set of weights "
                f"for all records, and {printed(moving[0])} is made of data: state Bound.from_l2"
            )

    def certified_error(self, universe: MappedUniverse) -> float | None:
        """``||w_hat - w||_1 / n`` on every dataset, None where it is not known before the data are.

        Of a form it is the radius of its public steps. Raises CalibrationError where no weights are
        in the box of another problem.
        """
        form = self.form(universe)
        if isinstance(form, str):
            self.box(universe)
            return None
        if form.hard:
            return None  # V covers all weights of sum n
        radius = self.form_in(universe).certified_radius(self.bound(universe).V)
        return None if radius is None else radius / universe.n_samples

    def takes_blocks(self, universe: MappedUniverse) -> bool:
        """Whether the dual solves a resolved program, by features that are few beside the records.

        Of kernels the covariates of all records are in memory as well.
        """
        form = self.form(universe)
        if isinstance(form, str):
            return False
        return all(few_of_kernel(kernel, universe) for kernel in kernels_of(form))

    def cost(self, universe: MappedUniverse) -> str | None:
        form = self.form(universe)
        if isinstance(form, str) or self.takes_blocks(universe):
            return None
        n = universe.n_samples
        pairs = min(n, MOST_PAIRS)
        seconds = _SECONDS * pairs**3
        if seconds < _LONG:
            return None
        gigabytes = COPIES * 8.0 * pairs**2 / 1e9
        return (
            f"{self.name} at n = {n:,}: where the kernel has many features on the records, a Gram "
            f"matrix with its working copies takes {gigabytes:,.1f} GB (as "
            f"n^2), and a solve some {seconds:,.0f} seconds (as n^3), more at a smaller ridge"
        )

    def instance(self, records: Records) -> Instance:
        n = records.n_samples
        universe = MappedUniverse(records.space, n, records.n_features)
        program = self.at(universe)
        reading = program._at(universe)
        if isinstance(reading.form, WeightingForm):
            V = program._movement(universe)
            convexity = program.strong_convexity(universe)
            model = program.form_in(universe).model(records, V, convexity)
            return Instance(program, lambda: program.data(records), model)
        floor, cap = program.box(universe)
        data = program.data(records)
        one_simplex = np.zeros(n, dtype=np.int64)
        smooth = SimplexModel(Simplices(one_simplex, float(n), cap, floor))
        kinked = partial(reading.kinked, data, smooth.feasible, reading.curvature)
        return Instance(program, lambda: data, smooth, reading.curvature, kinked)

    def _movement(self, universe: MappedUniverse) -> float:
        """V of a resolved program, 0 where none is derived.

        No radius is small beside 0.
        """
        try:
            return self.bound(universe).V
        except CalibrationError:
            # no plan gets here: these are weights for comparison, of records that may admit them
            return 0.0

    def model(self, records: Records) -> Composite:
        model = self.instance(records).model
        if model is None:
            raise ProgramError(
                f"{self.name} is not read: solve it by a conic solver such as clarabel"
            )
        return model

    def has_weights_of_kinds(self, universe: MappedUniverse) -> bool:
        """Whether :meth:`weights_of_kinds` knows a resolved program: its form, without constraints.

        Constraints of the imbalance have no certificate.
        """
        form = self.form(universe)
        return isinstance(form, WeightingForm) and not form.hard

    def weights_of_kinds(self, universe: MappedUniverse, kinds: Records, count: Array) -> Array:
        """Weights per record (b, m) of b datasets of a resolved program, NaN where not certified.

        Dataset k has ``count[k, j]`` records like number ``k m + j`` of the ``kinds``. They are
        released weights of the exact problem of the form, which has no constraints of the
        imbalance.
        """
        form = self.form(universe)
        assert isinstance(form, WeightingForm)
        # at a kink a claim is the root of what is missed
        tolerance = 0.1 * _SEARCHED if form.kinked else 1e-10
        found = weights_of_kinds(form, kinds, count, tolerance)
        certified = found.claims <= _SEARCHED * universe.n_samples
        return np.where(certified[:, None], found.factor[:, None] * found.weights, np.nan)

    def form_in(self, universe: MappedUniverse) -> FormInUniverse:
        """The form of a resolved program that has one, with what follows from it in a universe."""
        return self._at(universe).in_universe

    def form(self, universe: MappedUniverse) -> WeightingForm | str:
        """The form of a resolved program, or in one line why it has none."""
        return self._at(universe).form

    def unread(self, universe: MappedUniverse) -> str | None:
        """Why nothing certifies a resolved program, with what to write, or None."""
        reading = self._at(universe)
        if isinstance(reading.form, WeightingForm):
            return None
        try:
            reading.supported  # noqa: B018
        except CertificateError as error:
            return str(error)
        return None

    def box(self, universe: MappedUniverse) -> tuple[float, float]:
        """Floor and cap of the weights in a universe; raises as its reading does."""
        return self._at(universe).box()


class WeightsReading:
    """The problem in the weights as its author states it, and its reading on demand.

    Parameters
    ----------
    program
        The program at its settings.
    universe
        Where it is read: the number of records and of columns, and the public sets of the data.
    """

    def __init__(self, program: WeightsProgram, universe: MappedUniverse) -> None:
        self.program = program
        self.universe = universe
        problem, records, w = _stated_problem(program, universe)
        self.problem = problem
        self._records = records
        self._w = w
        self.own = records.own
        self.objective = problem.objective.args[0]
        self.ends = _ends(problem.constraints, w)
        self.form = self._form_read()
        if isinstance(self.form, WeightingForm):
            self.curvature = strong_convexity_of_form(self.form)
        else:
            self._refuse_outside(self.form)
            self.curvature = weights_curvature(problem, w)

    @cached_property
    def in_universe(self) -> FormInUniverse:
        """The form, where there is one, with what follows from it where it was read.

        Raises DeclarationError where solvers are given another problem than was read.
        """
        assert isinstance(self.form, WeightingForm)
        parameters, w = self._declared_anew()
        records = DeclaredRecords(STANDARD, w.size, 0, parameter=parameters)
        self.refuse_other_problem(self.program.called(w, records), w.size)
        return FormInUniverse(self.form, self.universe)

    @property
    def has_total_of_library(self) -> bool:
        """Whether all weights have the sum n, which a problem for solvers is given."""
        return not isinstance(self.form, WeightingForm) or self.form.sums.kind is SumKind.ALL

    def box(self) -> tuple[float, float]:
        """Floor and cap of the weights by the declared constraints, 0 and n without any.

        Raises CalibrationError where no weights of sum n are between them.
        """
        floor, cap = self.ends
        if not (0.0 <= floor <= 1.0 <= cap):
            raise CalibrationError(
                f"{self.program.name}: no weights of mean 1 have floor = {floor:g} and cap = "
                f"{cap:g}: state a floor in [0, 1] and a cap of at least 1"
            )
        return floor, min(cap, float(self.universe.n_samples))

    def data(self, records: Records) -> dict[str, Value]:
        """Data of the parameters, clipped to their public bounds."""
        data: dict[str, Value] = {EACH_RECORD: np.ones(records.n_samples)}
        for datum in data_of(self.problem):
            size = datum.within.largest
            values = np.asarray(datum.of(records), dtype=np.float64)
            data[datum.name()] = np.clip(values, -size, size)
        return data

    def refuse_other(
        self, problem: cp.Problem, ends: tuple[float, float], universe: MappedUniverse
    ) -> None:
        """Raise DeclarationError where another problem is stated than was read, in its units of n.

        Parameters
        ----------
        problem
            What the function states elsewhere, or once more.
        ends
            Floor and cap of all weights there.
        universe
            Where it is stated.
        """
        n = universe.n_samples
        p = universe.n_columns
        if self.ends != ends:
            self._refuse(problem, n, p)
        self.refuse_other_problem(problem, n, p)

    def refuse_other_problem(self, problem: cp.Problem, n: int, p: int | None = None) -> None:
        """Raise DeclarationError where a problem of n records is another one than was read."""
        parts = [self.objective, *self.problem.constraints]
        other_parts = [problem.objective.args[0], *problem.constraints]
        if len(parts) != len(other_parts):
            self._refuse(problem, n, p)
        own_n = self.universe.n_samples
        own_p = self.universe.n_columns
        columns = (own_p, own_p if p is None else p)
        for part, other in zip(parts, other_parts, strict=True):
            if differing(part, other, own_n, n, same_data, columns) is not None:
                self._refuse(problem, n, p)

    def _refuse(self, problem: cp.Problem, n: int, p: int | None) -> NoReturn:
        """Raise DeclarationError for another problem, with both of them."""
        columns = "" if p is None else f", p = {p}"
        raise DeclarationError(
            f"{self.program.name}: its problem changes with the records: {_in_words(self.problem)} "
            f"is declared, {_in_words(problem)} is read at n = {n}{columns}: state one for all, "
            "without loops over records or columns"
        )

    def _form_read(self) -> WeightingForm | str:
        """The form of weights as the variable that a problem has, or why it has none.

        Raises DeclarationError where a smoothing is asked for that would smooth nothing.
        """
        smoothing = self.program.value("smoothing")
        # functions of the library are compared with CVXPY by its tests, those of authors here
        compared = not self.program.scheme.of_library
        try:
            return self._read_anew(compared=compared)
        except DeclarationError as error:
            if smoothing is not None:
                # outside of the form weights would be those of the kink, which nobody asked for
                raise DeclarationError(
                    f"{self.program.name}: smoothing = {smoothing:g}: {error}"
                ) from None
            return str(error)

    def compare(self) -> None:
        """Compare a form with values and slopes of CVXPY.

        Raises DeclarationError where one differs.
        """
        self._read_anew(compared=True)

    def _read_anew(self, *, compared: bool) -> WeightingForm:
        """The form; raises DeclarationError where it has none, or another one where compared."""
        smoothing = self.program.value("smoothing")
        return read_weighting(self.problem, self._w, self._records, smoothing, compared=compared)

    def _refuse_outside(self, reason: str) -> None:
        """Raise DeclarationError for what no solver is given outside of the form.

        The error holds what the reader says.

        These are constraints that hold data, features of a kernel, means of arms, and other
        variables.

        Parameters
        ----------
        reason
            Why the problem is not of the form, and what to write instead.
        """
        has_data = any(constraint.parameters() for constraint in self.problem.constraints)
        has_features = any(
            hasattr(datum, "kernel") or hasattr(datum, "averaged")
            for datum in self.problem.parameters()
        )
        has_variables = any(variable is not self._w for variable in self.problem.variables())
        if has_data or has_features or has_variables:
            raise DeclarationError(f"{self.program.name}: {reason}")

    @cached_property
    def supported(self) -> tuple[SupportedFunction, SupportedFunction | None]:
        """The objective and the constraints beside the box as a duality gap reads them.

        Raises CertificateError for what it does not read.
        """
        parameters, w = self._declared_anew()
        objective, _, beside = self.program._for_solver(parameters, w)
        excess = self._excess(list(beside.values()))
        limits = None
        try:
            function = SupportedFunction(objective, w, parameters.made)
            if excess is not None:
                limits = SupportedFunction(excess, w, parameters.made)
        except ProgramError as error:
            raise CertificateError(f"{self.form}; {error}") from None
        rng = np.random.default_rng(self.universe.n_samples)
        for records in self.universe.examples():
            data = self.data(records)
            _clip(data, parameters.made)
            for name, datum in parameters.made.items():
                datum.value = data[name]
            point = rng.uniform(0.5, 1.5, w.size)
            refuse_other_values(function.at(data), objective, w, [point])
            if limits is not None:
                refuse_other_values(limits.at(data), excess, w, [point])
        return function, limits

    def _excess(self, constraints: list[Any]) -> Any | None:
        """What is at most 0 by constraints that are inequalities; None without any.

        Raises CertificateError for another constraint.
        """
        parts = []
        for constraint in constraints:
            if not isinstance(constraint, cp.constraints.Inequality):
                reason = "state it by inequalities, each of them slack at weights 1"
                unread = f"a duality gap does not read {printed(constraint)}: {reason}"
                raise CertificateError(f"{self.form}; {unread}")
            left, right = constraint.args
            parts.append(cp.vec(left - right, order="F"))
        return cp.hstack(parts) if parts else None

    def kinked(
        self, data: dict[str, Value], feasible: Simplices, convexity: float
    ) -> KinkedProblem:
        """The problem at data as a duality gap judges it.

        Raises CertificateError where it does not.
        """
        function, limits = self.supported
        _clip(data, function.parameters)
        beside = None if limits is None else limits.at(data)
        # weights 1 are in every box; constraints that they do not meet with room to spare prove
        # nothing
        inside = np.ones(function.dimension)
        return KinkedProblem(function.at(data), feasible, convexity, beside=beside, inside=inside)

    def _declared_anew(self) -> tuple[Params, cp.Variable]:
        """Parameters of the shapes of the data, and the variable that solvers see."""
        n = self.universe.n_samples
        zeros = {datum.name(): np.zeros(datum.shape) for datum in data_of(self.problem)}
        zeros[EACH_RECORD] = np.zeros(n)
        return Params(zeros, embed=False), cp.Variable(n, name="weights", nonneg=True)


def _stated_problem(
    program: WeightsProgram, universe: MappedUniverse
) -> tuple[cp.Problem, DeclaredRecords, cp.Variable]:
    """The problem that a program's function states in a universe, its records and weights.

    Raises DeclarationError for what is no problem.
    """
    space = universe.space
    w = cp.Variable(universe.n_samples, name="w")
    tried = space is not STANDARD
    records = DeclaredRecords(space, universe.n_samples, universe.n_columns, tried=tried)
    problem = records.used(program.called(w, records))
    refuse_no_problem(program.name, problem)
    return problem, records, w


def _form_by_default(scheme: Scheme) -> WeightingForm | None:
    """The form of the programs of a scheme at its defaults; None where they have none."""
    form = scheme().resolve(STANDARD).form(scheme.example())
    return form if isinstance(form, WeightingForm) else None


def _in_words(problem: cp.Problem) -> str:
    """A problem in one line."""
    parts = [problem.objective.args[0], *problem.constraints]
    return ", ".join(map(printed, parts))


def _clip(data: dict[str, Value], parameters: Mapping[str, Any]) -> None:
    """Clip data that are declared nonnegative."""
    for name, parameter in parameters.items():
        if parameter.is_nonneg():
            data[name] = np.maximum(data[name], 0.0)


def bounds_of_all(constraints: Sequence[Any], w: cp.Variable) -> list[tuple[float, bool]]:
    """Public numbers that bound all weights, each with whether it does so from above."""
    ends = [_end(constraint, w) for constraint in constraints]
    return [end for end in ends if end is not None]


def _ends(constraints: Sequence[Any], w: cp.Variable) -> tuple[float, float]:
    """Largest floor and least cap of the weights; 0 and ``inf`` without any."""
    floor = 0.0
    cap = math.inf
    for end, is_above in bounds_of_all(constraints, w):
        if is_above:
            cap = min(cap, end)
        else:
            floor = max(floor, end)
    return floor, cap


def _end(constraint: Any, w: cp.Variable) -> tuple[float, bool] | None:
    """The number that a constraint bounds every weight by, and whether from above.

    It is None for any other constraint.
    """
    if not isinstance(constraint, cp.constraints.Inequality):
        return None
    left, right = constraint.args
    is_above = left is w
    if is_above == (right is w):
        return None
    end = right if is_above else left
    if not end.is_constant() or end.parameters():
        return None
    values = np.ravel(end.value)
    return (float(values[0]), is_above) if np.all(values == values[0]) else None
