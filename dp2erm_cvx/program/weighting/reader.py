"""From an author's CVXPY problem in the weights to its form.

The form is compared with CVXPY's own values.

Coefficients of affine expressions are computed (:mod:`dp2erm_cvx.program.weighting.sums`), what
stands above them is recognized from CVXPY's tree. Whatever was read has to have the values of the
problem, and its slopes, at drawn records and weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.checks import public_size
from dp2erm_cvx.curves.dispersion import Dispersion
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.on_demand import cvxpy as cp
from dp2erm_cvx.program.declaration import derivative, printed, refuse_no_problem
from dp2erm_cvx.program.rows import DeclaredRecords, PublicPoints, mean_of_arm
from dp2erm_cvx.program.scheme import STANDARD
from dp2erm_cvx.program.weighting.data import FeatureTable, at_features, is_mean
from dp2erm_cvx.program.weighting.prices import ScaledNode, all_entries, entries_of, is_public
from dp2erm_cvx.program.weighting.sets import ConstraintReader, HardSums, is_no_bound
from dp2erm_cvx.program.weighting.sums import AffineReader, flat
from dp2erm_cvx.program.weighting.terms import TermReader
from dp2erm_cvx.weighting.bounds.diameters import largest_row
from dp2erm_cvx.weighting.forms.form import (
    Arms,
    Imbalance,
    SumKind,
    WeightingForm,
    least_and_largest,
)
from dp2erm_cvx.weighting.forms.objective import WeightingObjective
from dp2erm_cvx.weighting.forms.proximal import ROUGH
from dp2erm_cvx.weighting.forms.shapes import shape_of

#: Slopes are compared up to this many records; beyond, CVXPY takes too long for them.
_MOST_SLOPES = 200
#: Numbers of records at which a function is read first.
_FEW = (7, 11)
#: Datasets that are drawn.
_DATASETS = 2
#: Weights that are drawn on each of them.
_POINTS = 2
#: Values may differ by this part of their sizes.
_CLOSE = 1e-9
#: A weight that no finite cap of an author reaches.
_FAR = 1e12
#: Step of differences of values, where CVXPY knows no slope.
_STEP = 1e-6
#: Part of the largest slope by which slopes of differences may differ: rounding of values of some
#: thousands over the step, and curvature times the step.
_OF_DIFFERENCES = 1e-4
#: Weights that are moved for slopes of differences, which take two values of CVXPY each.
_MOST_MOVED = 20
#: Changes of the sums of controls and treated that the equations of a kind of sums exclude.
_MOVES = {
    SumKind.ALL: np.array([1.0, 1.0]),
    SumKind.PUBLIC: np.array([1.0, -1.0]),
    SumKind.COUNTS: np.array([1.0, -1.0]),
    SumKind.CONTROLS: np.array([1.0, 0.0]),
    SumKind.TREATED: np.array([1.0, 0.0]),
}
#: What refuses a box and sums that are not those of the problem.
_ANOTHER_BOX = "w: was read as weights in another box: please report it"
_OTHER_SUMS = "w: was read as weights of other sums: please report it"


def read_weighting(
    problem: cp.Problem,
    w: cp.Variable,
    records: DeclaredRecords,
    smoothing: float | None = None,
    *,
    compared: bool = True,
) -> WeightingForm:
    """The form of a problem in the weights, or a refusal in one line.

    Parameters
    ----------
    problem
        The author's problem at n records. Its sum of weights n and weights of at least 0 need not
        be written.
    w
        Its variable (n,).
    records
        What its data were taken from.
    smoothing
        Moreau parameter eta > 0 in the Euclidean norm by which kinks of an imbalance are smoothed,
        over n and in units of the largest norm of its rows; None leaves them.
    compared
        Whether values and slopes of what was read are compared with those of the problem.

    Returns
    -------
    WeightingForm
        The form, which has the values of the problem, but for a number that weights do not change.

    Raises
    ------
    DeclarationError
        Where something is not read, or was read as something with other values.
    """
    problem = _with_public_numbers(problem, w, records)
    with _as_before(problem, w):
        reading = _read(problem, w, records, compared=compared)
        if compared:
            _refuse_misread(reading, problem, w, records)
    form = reading.form
    if smoothing is None:
        _refuse_rough(form)
        return form
    return smoothed(form, public_size("smoothing", smoothing))


def read_declared_weighting(
    declare: Callable[[cp.Variable, DeclaredRecords], cp.Problem],
    universe: MappedUniverse,
    smoothing: float | None = None,
) -> WeightingForm:
    """The form of an author's function at all records of a universe.

    It is read at few records first, where slopes are compared as well: beyond some number CVXPY
    takes too long for them.

    Parameters
    ----------
    declare
        The author's function of weights and records, with its settings.
    universe
        Numbers of records and of covariates, and their space.
    smoothing
        As of :func:`read_weighting`.

    Returns
    -------
    WeightingForm
        The form at the number of records of the universe.

    Raises
    ------
    DeclarationError
        As :func:`read_weighting`, and where the problem leaves out data that it asked for.
    """
    for n in _FEW:
        _declared(declare, replace(universe, n_samples=n), smoothing)
    return _declared(declare, universe, smoothing)


def _declared(
    declare: Callable[[cp.Variable, DeclaredRecords], cp.Problem],
    universe: MappedUniverse,
    smoothing: float | None,
) -> WeightingForm:
    """The form of an author's function at the records of a universe."""
    n = universe.n_samples
    w = cp.Variable(n, name="w")
    records = DeclaredRecords(
        universe.space, n, universe.n_columns, tried=universe.space is not STANDARD
    )
    return read_weighting(records.used(declare(w, records)), w, records, smoothing)


def smoothed(form: WeightingForm, eta: float) -> WeightingForm:
    """A form in which prices whose gradients jump are replaced by their Moreau envelopes.

    With m = n y a price of m is ``n Psi(y)``, and n times the envelope of Psi of parameter e is
    that of the price by m of parameter ``n e``. Here e is ``eta Z^2``, Z the largest norm of a row:
    eta is that of an imbalance whose rows have norms of at most 1, in whatever units it is written,
    as a sum or as a mean.

    Parameters
    ----------
    form
        The form.
    eta
        The parameter, in the Euclidean norm of an imbalance over n and over the largest norm of a
        row.

    Returns
    -------
    WeightingForm

    Raises
    ------
    DeclarationError
        Where there is no such price.
    """
    imbalances = []
    texts = dict(form.smoothed)
    for imbalance in form.imbalances:
        penalty = imbalance.penalty
        if penalty.kinked or penalty.rough:
            parameter = eta * largest_row(imbalance) ** 2
            penalty = penalty.smoothed(parameter * form.n)
            texts[imbalance.text] = parameter
        imbalances.append(replace(imbalance, penalty=penalty))
    if not texts:
        raise DeclarationError("no price of an imbalance has a kink: leave the smoothing out")
    return replace(form, imbalances=tuple(imbalances), smoothed=texts)


def _refuse_rough(form: WeightingForm) -> None:
    """Raise DeclarationError for squares of a norm that have to be smoothed."""
    for imbalance in form.imbalances:
        if imbalance.penalty.rough:
            raise DeclarationError(f"{imbalance.text}: {ROUGH}")


@dataclass(frozen=True)
class _Reading:
    """A form, and what each of its parts was read of.

    Parameters
    ----------
    form
        The form.
    table
        The features of the data.
    constraints
        What was read of the constraints.
    hard
        Constraints on imbalances by the place of the imbalance, with the places of its coordinates.
    written
        Ends of the box as written, before the domain of the dispersion.
    centered
        Whether slopes are those of the problem up to one number.
    terms
        Every term of the objective with the form of that term alone.
    """

    form: WeightingForm
    table: FeatureTable
    constraints: ConstraintReader
    hard: Mapping[int, tuple[HardSums, NDArray[np.int64]]]
    written: tuple[Array, Array]
    centered: bool
    terms: list[tuple[ScaledNode, WeightingForm]]


def _with_public_numbers(
    problem: cp.Problem, w: cp.Variable, records: DeclaredRecords
) -> cp.Problem:
    """The problem with public numbers in place of parameters that are no data.

    Raises DeclarationError for no convex problem in these weights, and for data of other records.
    """
    refuse_no_problem("the function", problem)
    others = [variable.name() for variable in problem.variables() if variable is not w]
    if others:
        raise DeclarationError(
            f"variable {others[0]}: is none of the weights: write the problem in w alone"
        )
    if w.shape != (records.n,) or records.n < 2:
        raise DeclarationError(
            f"w has shape {w.shape}: must be ({records.n},), of at least 2 records"
        )
    public = {}
    for parameter in problem.parameters():
        if hasattr(parameter, "within") or parameter.value is None:
            records.refuse_other_datum(parameter)
        else:
            public[id(parameter)] = cp.Constant(parameter.value)
    if public:
        objective = type(problem.objective)(problem.objective.args[0].tree_copy(public))
        problem = cp.Problem(objective, [one.tree_copy(public) for one in problem.constraints])
    _refuse_infinite(problem)
    if not problem.is_dcp():
        raise DeclarationError(
            f"{printed(problem.objective.args[0])}: is not convex by the rules of CVXPY"
        )
    return problem


def _refuse_infinite(problem: cp.Problem) -> None:
    """Raise DeclarationError for public numbers that are not finite.

    A bound that is not set is no such number.
    """
    parts = [problem.objective.args[0]]
    for constraint in problem.constraints:
        if type(constraint).__name__ != "Inequality" or not is_no_bound(*constraint.args):
            parts.append(constraint)
    for part in parts:
        for constant in part.constants():
            if not np.all(np.isfinite(flat(constant.value))):
                raise DeclarationError(f"{printed(part)}: holds a public number that is not finite")


@contextmanager
def _as_before(problem: cp.Problem, w: cp.Variable) -> Iterator[None]:
    """Put the values of the weights and of the data back."""
    leaves = [w, *problem.parameters()]
    values = [leaf.value for leaf in leaves]
    try:
        yield
    finally:
        for leaf, value in zip(leaves, values, strict=True):
            leaf.save_value(value)


def _read(
    problem: cp.Problem, w: cp.Variable, records: DeclaredRecords, *, compared: bool
) -> _Reading:
    """Everything that is read of a problem: its constraints first, then its objective."""
    table = FeatureTable(records)
    affine = AffineReader(w, table, compared=compared)

    constraints = ConstraintReader(affine)
    for constraint in problem.constraints:
        constraints.read(constraint)
    constraints.close()
    sums = constraints.sums(records.n)
    constraints.refuse_unmet(sums)

    # of weights of the treated at 1 the sum is twice their number, which is data
    total = None if sums.kind is SumKind.TREATED else float(records.n)
    objective, terms = _read_objective(problem, affine, table, total)
    written = constraints.box()
    low, cap = _box_of_form(constraints, written, objective)
    imbalances, hard = _with_hard_sums(objective, constraints.hard)
    form = WeightingForm(
        records.n,
        objective.dispersion(),
        low,
        cap,
        sums,
        tuple(table.with_points(imbalance) for imbalance in imbalances),
        objective.linear_rows(),
        objective.base,
        constraints.low_of,
        constraints.cap_of,
    )
    forms_of_terms = [(term, _form_of_term(form, reader)) for term, reader in terms]
    return _Reading(form, table, constraints, hard, written, objective.centered, forms_of_terms)


def _read_objective(
    problem: cp.Problem, affine: AffineReader, table: FeatureTable, total: float | None
) -> tuple[TermReader, list[tuple[ScaledNode, TermReader]]]:
    """The objective to be minimized, and each of its terms alone.

    Parameters
    ----------
    total
        Sum of all weights where it is public, else None.
    """
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    objective = TermReader(affine, table, total)
    terms = []
    for term in entries_of(problem.objective.args[0], sign):
        if is_public(term.node) or not np.any(term.factor):
            continue
        if not np.all(np.isfinite(term.factor)):
            raise DeclarationError(f"{printed(term.node)}: has a factor that is not finite")
        if not term.node.variables():
            raise DeclarationError(f"{printed(term.node)}: holds no weights: leave it out")
        reader = TermReader(affine, table, total)
        reader.read(term)
        terms.append((term, reader))
        objective.add(reader)
    objective.refuse_no_dispersion()
    return objective, terms


def _box_of_form(
    constraints: ConstraintReader, written: tuple[Array, Array], objective: TermReader
) -> tuple[Array, Array]:
    """Ends of the box by arm, over all that numbers of records admit."""
    low, cap = _within_domain(written, objective)
    if constraints.low_of is not None:
        low = np.maximum(low, least_and_largest(constraints.low_of)[0])
    if constraints.cap_of is not None:
        cap = np.minimum(cap, least_and_largest(constraints.cap_of)[1])
    return low, cap


def _with_hard_sums(
    objective: TermReader, hard_sums: list[HardSums]
) -> tuple[list[Imbalance], dict[int, tuple[HardSums, NDArray[np.int64]]]]:
    """All imbalances, those of the objective first, and the constraint of each that has one."""
    imbalances = list(objective.imbalances)
    constraint_of: dict[int, tuple[HardSums, NDArray[np.int64]]] = {}
    for constraint in hard_sums:
        priced = objective.priced(constraint.sums, constraint.penalty, constraint.text)
        if priced is None:
            continue
        imbalance, order = priced
        constraint_of[len(imbalances)] = constraint, order
        imbalances.append(imbalance)
    return imbalances, constraint_of


def _form_of_term(form: WeightingForm, term: TermReader) -> WeightingForm:
    """A form with one term of the objective alone, for comparisons."""
    return replace(
        form,
        dispersion=term.dispersion(),
        imbalances=tuple(term.imbalances),
        linear=term.linear_rows(),
        base=term.base,
    )


def _within_domain(written: tuple[Array, Array], objective: TermReader) -> tuple[Array, Array]:
    """Ends of the box in the domain of the dispersion.

    Raises DeclarationError where weights of mean 1, or fixed ones, are outside, and where a power
    is taken of negative numbers, which is read for positive ones alone.
    """
    for part in objective.whole_line:
        least = np.min([part.factor * end + part.offset for end in written])
        if least < 0.0:
            raise DeclarationError(
                f"objective: a power {part.number:g} of numbers below 0 is not read: take "
                "sum_squares(w - 1)"
            )
    dispersion = objective.dispersion()
    begin, end = dispersion.ends
    if not begin < 1.0 < end:
        raise DeclarationError(
            f"objective: is infinite at weights 1: is finite on ({begin:g}, {end:g})"
        )
    written_low, written_cap = written
    low = np.maximum(written_low, begin)
    cap = np.minimum(written_cap, end)
    for arm in np.flatnonzero(written_low == written_cap):
        weight = float(written_low[arm])
        if objective.base is not None:
            raise DeclarationError(
                f"objective: is measured from {objective.base.name}: fix no weights"
            )
        finite = math.isfinite(_value_at(dispersion, weight))
        if low[arm] > cap[arm] or not finite:
            raise DeclarationError(
                f"objective: is infinite at the fixed weight {weight:g}: take sum_squares"
            )
    return low, cap


def _value_at(dispersion: Dispersion, weight: float) -> float:
    """Value of the dispersion at one weight; infinite outside of its domain."""
    for part in dispersion.parts:
        inner = part.factor * weight + part.offset
        if inner <= 0.0 and (part.atom == "log" or (part.atom == "power" and part.number < 0.0)):
            return math.inf
    return float(dispersion.value(np.array([weight]))[0])


def _refuse_misread(
    reading: _Reading, problem: cp.Problem, w: cp.Variable, records: DeclaredRecords
) -> None:
    """Compare a form with the problem, at drawn records and weights.

    Compared are values of the objective, up to a number for each dataset, and of every constraint
    on an imbalance; their slopes where there are few records; and whether weights within and beyond
    the box and the sums of the form are within those of the problem. Raises DeclarationError where
    one differs.
    """
    sign = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    minimized = sign * problem.objective.args[0]
    rng = np.random.default_rng(records.n + 3)
    datasets = _DATASETS if records.n <= _MOST_SLOPES else 1
    for _ in range(datasets):
        drawn = drawn_records(records, rng)
        phi = reading.table.features_at(drawn, rng)
        _load(problem, reading.table, phi, drawn)
        points = [
            drawn_weights(reading.form, rng, of_mean_one=reading.centered) for _ in range(_POINTS)
        ]
        objective = WeightingObjective(reading.form, phi, drawn.a)
        _refuse_other_objective(reading, minimized, w, objective, points)
        for term, form_of_term in reading.terms:
            # a misreading of a small term would not be seen beside a large one
            alone = WeightingObjective(form_of_term, phi, drawn.a)
            _refuse_other_objective(reading, all_entries(term), w, alone, points)
        for place in reading.hard:
            _refuse_other_constraint(reading, place, w, objective, points)
        _refuse_other_box(reading, w, drawn.a, rng)
        _refuse_other_ends(reading, w, phi, drawn.a, rng)
        _refuse_other_sums(reading, w, drawn.a, rng)


def drawn_records(records: DeclaredRecords, rng: np.random.Generator) -> Records:
    """Public records that are drawn from a space, of both arms."""
    space = records.space.of_records
    n = records.n
    intercept = float(space.intercept)
    p = records.n_columns - bool(intercept)
    spread = space.features_bound / math.sqrt(p)
    X = space.inside(spread * rng.standard_normal((n, p)))
    if intercept:
        X = np.hstack([np.full((n, 1), intercept), X])
    a = rng.permutation(np.arange(n) % 2)
    y = space.outcome_bound * rng.uniform(-1.0, 1.0, n)
    return Records(X, a.astype(np.int64), y, space)


def drawn_weights(form: WeightingForm, rng: np.random.Generator, *, of_mean_one: bool) -> Array:
    """Weights (n,) where the dispersion is finite; the box and sums by arm do not matter."""
    begin, end = form.dispersion.ends
    low = max(begin, 0.0)
    cap = min(end, 3.0)
    if not of_mean_one:
        return rng.uniform(low + 0.02 * (cap - low), cap - 0.02 * (cap - low), form.n)
    spread = rng.uniform(-1.0, 1.0, form.n)
    spread = spread - np.mean(spread)
    room = 0.95 * min(1.0 - low, cap - 1.0)
    return np.asarray(1.0 + room * spread / np.max(np.abs(spread)))


def _load(
    problem: cp.Problem, table: FeatureTable, phi: Mapping[str, Array], drawn: Records
) -> None:
    """Set data to those of drawn records.

    Raises DeclarationError where features say something else.
    """
    for datum in problem.parameters():
        of_features = _at_features(datum, table, phi, drawn.a)
        values = of_features
        if not table.is_drawn(datum):
            values = np.asarray(datum.of(drawn), dtype=np.float64).reshape(of_features.shape)
            if not np.allclose(
                values, of_features, rtol=_CLOSE, atol=_CLOSE * datum.within.largest
            ):
                raise DeclarationError(f"{datum.name()}: was read as other data: please report it")
        datum.save_value(values.reshape(datum.shape))


def _at_features(datum: Any, table: FeatureTable, phi: Mapping[str, Array], a: Arms) -> Array:
    """Values (n, k) of a datum at features, or those (k,) of a mean."""
    if not is_mean(datum):
        return at_features(table.parts(datum), phi, a)
    base, over = datum.averaged
    if isinstance(over, PublicPoints):
        # the features of a kernel are one datum
        name = next(iter(table.parts(base)))
        return np.asarray(phi[table.features[name].name_at_points][0])
    return mean_of_arm(at_features(table.parts(base), phi, a), a, over)


def _refuse_other_objective(
    reading: _Reading,
    e: Any,
    w: cp.Variable,
    objective: WeightingObjective,
    points: list[Array],
) -> None:
    """Raise DeclarationError where an expression has other differences or slopes than a form."""
    read_values = []
    problem_values = []
    for point in points:
        w.save_value(point)
        value = e.value
        if value is None or not np.all(np.isfinite(value)):
            raise DeclarationError(
                f"{printed(e)}: has no value at weights near 1: please report it"
            )
        problem_values.append(float(flat(value)[0]))
        read_values.append(objective.value(point))
        if reading.form.n <= _MOST_SLOPES:
            _refuse_other_slope(e, w, objective.slope(point), centered=reading.centered)
    read_difference = read_values[1] - read_values[0]
    problem_difference = problem_values[1] - problem_values[0]
    size = 1e-300 + max(map(abs, read_values)) + max(map(abs, problem_values))
    if not abs(read_difference - problem_difference) <= _CLOSE * size:
        raise DeclarationError(
            f"{printed(e)}: was read as something with other values: please report it"
        )


def _refuse_other_slope(e: Any, w: cp.Variable, read_slope: Array, *, centered: bool) -> None:
    """Raise DeclarationError where an expression has another slope.

    A centered slope may differ by one number. Weights without a slope of the problem, at a kink or
    at the end of a domain, are not compared.
    """
    problem_slope, precision = _slope_of_problem(e, w)
    known = np.isfinite(problem_slope)
    if not np.any(known):
        return
    difference = problem_slope[known] - read_slope[known]
    if centered:
        difference = difference - np.mean(difference)
    largest_of_problem = float(np.max(np.abs(problem_slope[known])))
    size = 1e-300 + largest_of_problem + float(np.max(np.abs(read_slope)))
    if not float(np.max(np.abs(difference))) <= precision * size:
        raise DeclarationError(
            f"{printed(e)}: was read as something with other slopes: please report it"
        )


def _slope_of_problem(e: Any, w: cp.Variable) -> tuple[Array, float]:
    """Slope (n,) of an expression at the weights that are set, and its relative precision.

    It is CVXPY's, which has none of the largest of sizes; there it is one of differences of values.
    NaN stands where no slope is known.
    """
    slope = derivative(e, w)
    if slope is not None:
        return slope, 1e2 * _CLOSE
    return _slope_by_differences(e, w), _OF_DIFFERENCES


def _slope_by_differences(e: Any, w: cp.Variable) -> Array:
    """Slope (n,) of an expression by values on both sides of the weights that are set.

    NaN stands at the weights that are not moved, and where both sides have other slopes: at a kink,
    where the largest of several sizes is not unique, every slope in between is a subgradient.
    """
    point = np.array(w.value)
    value = float(flat(e.value)[0])
    n_moved = min(w.size, _MOST_MOVED)
    moved_places = np.linspace(0, w.size - 1, n_moved).astype(np.int64)
    ahead = np.full(w.size, np.nan)
    behind = np.full(w.size, np.nan)
    for place in moved_places:
        ahead[place] = (_value_moved(e, w, point, place, _STEP) - value) / _STEP
        behind[place] = (value - _value_moved(e, w, point, place, -_STEP)) / _STEP
    w.save_value(point)
    slope = (ahead + behind) / 2.0
    largest = float(np.max(np.abs(slope[moved_places]), initial=0.0))
    is_smooth = np.abs(ahead - behind) <= _OF_DIFFERENCES * largest
    return np.where(is_smooth, slope, np.nan)


def _value_moved(e: Any, w: cp.Variable, point: Array, place: int, step: float) -> float:
    """Value of an expression at a point one of whose weights is moved by a step."""
    moved = point.copy()
    moved[place] += step
    w.save_value(moved)
    return float(flat(e.value)[0])


def _refuse_other_constraint(
    reading: _Reading,
    place: int,
    w: cp.Variable,
    objective: WeightingObjective,
    points: list[Array],
) -> None:
    """Raise DeclarationError where a constraint of the form has other values or slopes."""
    constraint, order = reading.hard[place]
    for point in points:
        w.save_value(point)
        m = objective.imbalances(point)[place]
        _refuse_other_excess(reading, place, m)
        if reading.form.n <= _MOST_SLOPES and constraint.equality:
            _refuse_other_rows(constraint, order, w, objective.rows[place])


def _refuse_other_excess(reading: _Reading, place: int, m: Array) -> None:
    """Raise DeclarationError where an imbalance m exceeds its limit by another amount.

    The weights of the problem are those that m is the imbalance of.
    """
    constraint, order = reading.hard[place]
    penalty = reading.form.imbalances[place].penalty
    read_excess = shape_of(penalty).excess(m)
    values = np.max([flat(e.value) for e in constraint.expressions], axis=0)
    problem_excess = values / constraint.factor
    if constraint.equality:
        problem_excess = np.abs(problem_excess)
    is_largest = problem_excess.size == 1 and read_excess.size > 1
    if is_largest:
        read_excess = np.array([np.max(read_excess)])
    elif penalty.norm is None:
        problem_excess = problem_excess[order]
    size = 1e-300 + float(np.max(np.abs(problem_excess))) + float(np.max(np.abs(m)))
    size = size + float(np.max(np.abs(penalty.tolerance)))
    same_shape = problem_excess.shape == read_excess.shape
    if not same_shape or not np.max(np.abs(problem_excess - read_excess)) <= _CLOSE * size:
        raise DeclarationError(
            f"{constraint.text}: was read as something with other values: please report it"
        )


def _refuse_other_rows(
    constraint: HardSums, order: NDArray[np.int64], w: cp.Variable, rows: Array
) -> None:
    """Raise DeclarationError where an equation has another slope than the rows (n, K)."""
    total = cp.sum(cp.vec(constraint.expressions[0], order="F")[order])
    _refuse_other_slope(total, w, np.sum(rows, axis=1), centered=False)


def _refuse_other_box(reading: _Reading, w: cp.Variable, a: Arms, rng: np.random.Generator) -> None:
    """Raise DeclarationError where the box of the form is not that of the problem."""
    boxes = reading.constraints.boxes
    low, cap = reading.written
    highest = np.minimum(cap, low + 3.0)
    inside = low[a] + (highest - low)[a] * rng.uniform(0.05, 0.95, len(a))
    far = np.minimum(cap, np.maximum(_FAR, low))[a]
    for weights in (inside, far):
        w.save_value(weights)
        if not _within_boxes(boxes):
            raise DeclarationError(_ANOTHER_BOX)
    for arm in (0, 1):
        place = int(np.flatnonzero(a == arm)[0])
        for weight in _beyond_ends(float(low[arm]), float(cap[arm])):
            moved = inside.copy()
            moved[place] = weight
            w.save_value(moved)
            if _within_boxes(boxes):
                raise DeclarationError(_ANOTHER_BOX)


def _beyond_ends(low: float, cap: float) -> list[float]:
    """Weights just outside of an interval: above a finite cap, and below a floor above 0."""
    beyond = []
    if math.isfinite(cap):
        beyond.append(cap + 0.01 * (1.0 + cap))
    if low > 0.0:
        beyond.append(low - 0.01 * low)
    return beyond


def _refuse_other_ends(
    reading: _Reading, w: cp.Variable, phi: Mapping[str, Array], a: Arms, rng: np.random.Generator
) -> None:
    """Raise DeclarationError where boxes of records are not those of the problem."""
    weights = rng.uniform(0.0, 4.0, len(a))
    w.save_value(weights)
    expressions = list(reading.constraints.boxes_of_records)
    for rows, sign in ((reading.constraints.cap_of, 1.0), (reading.constraints.low_of, -1.0)):
        if rows is None:
            continue
        ends = rows.row(phi[rows.features.name], a)[:, 0]
        excess = sign * (weights - ends)
        errors = [np.max(np.abs(flat(e.value) - excess)) for e in expressions]
        if not np.min(errors) <= _CLOSE * float(np.max(np.abs(weights) + np.abs(ends))):
            raise DeclarationError(
                "w: was read as weights in other boxes of records: please report it"
            )


def _within_boxes(boxes: list[tuple[Any, bool]]) -> bool:
    """True if the weights meet all constraints that boxes were read of."""
    for e, equality in boxes:
        values = flat(e.value)
        sizes = np.abs(values) if equality else values
        if not np.max(sizes) <= 1e-9:
            return False
    return True


def _refuse_other_sums(
    reading: _Reading, w: cp.Variable, a: Arms, rng: np.random.Generator
) -> None:
    """Raise DeclarationError where sums of the form are not those of the problem."""
    n = reading.form.n
    equations = reading.constraints.equations
    totals = _totals(reading.form, a)
    w.save_value(_of_totals(totals, a, rng))
    if not _solved(equations, n):
        raise DeclarationError(_OTHER_SUMS)
    if not equations:
        return
    moved_totals = totals + 0.01 * n * _MOVES[reading.form.sums.kind]
    w.save_value(_of_totals(moved_totals, a, rng))
    if _solved(equations, n):
        raise DeclarationError(_OTHER_SUMS)


def _solved(equations: list[tuple[Any, NDArray[np.int64]]], n: int) -> bool:
    """True if the weights meet all equations of sums."""
    errors = [np.max(np.abs(flat(e.value)[places])) for e, places in equations]
    return bool(np.max(errors, initial=0.0) <= _CLOSE * n)


def _totals(form: WeightingForm, a: Arms) -> Array:
    """Sums of the weights of both arms that a form asks for; where it leaves them open, any."""
    n_treated = float(np.sum(a))
    n = float(form.n)
    by_kind = {
        SumKind.ALL: (0.4 * n, 0.6 * n),
        SumKind.PUBLIC: form.sums.public,
        SumKind.COUNTS: (n - n_treated, n_treated),
        SumKind.CONTROLS: (n, 0.0),
        SumKind.TREATED: (n_treated, n_treated),
    }
    return np.array(by_kind[form.sums.kind])


def _of_totals(totals: Array, a: Arms, rng: np.random.Generator) -> Array:
    """Weights (n,) whose sums by arm are these."""
    w = rng.uniform(0.5, 1.5, len(a))
    by_arm = np.bincount(a, w, 2)
    return np.asarray(w * (totals / by_arm)[a])
