"""Weights that are the variable of a convex program: only CVXPY is written, the rest is derived."""

from __future__ import annotations

import abc
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import cvxpy as cp
import numpy as np

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError, ProgramError
from dp2erm_cvx.model.composite import Composite, LocalError, Penalty
from dp2erm_cvx.model.direct import DirectModel, PublicConstants, minimize_points
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.terms import ReadObjective
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program.declaration import Declaration, Leaves, Value
from dp2erm_cvx.program.first_stage import FirstStage
from dp2erm_cvx.program.stage import Instance, Kind
from dp2erm_cvx.universe import Universe

T = TypeVar("T")
#: Steps of Newton's method on many datasets at once; whoever needs more is solved alone.
_STEPS = 30
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class DirectFirstStage(FirstStage):
    """minimize ``objective(leaf, w)`` subject to ``sum(w) = n``, ``floor <= w <= cap``.

    A concrete program states the leaves of its objective (``data``) with public bounds of their entries
    (``data_bounds``), and the objective as a convex expression of CVXPY. Where its tree is read, strong
    convexity, smooth form, certificate (Theorem A; D at a kink) and the radius that every solve reaches
    (Theorem C) are derived. Read are sums of square, entr, log, exp, logistic, power, quad_form, log_det,
    norms, absolute values and maxima of affine functions. Any other program is judged by a duality gap, which
    knows quadratics, norms and absolute values; one that nothing can certify is refused when planned.

    V is 2n, unless the kind is ``Kind.STATED`` and the author states a ``stated_bound``. ``cap``, ``floor``
    and ``eigenvalue_floor`` (of every argument of log_det) are public: class attributes, or fields of the
    dataclass.
    """

    kind: ClassVar[Kind] = Kind.DIRECT
    usual_solver: ClassVar[str] = "first_certified"
    cone: ClassVar[str] = "second-order"

    cap: float = math.inf
    floor: float = 0.0
    eigenvalue_floor: float | None = None

    @abc.abstractmethod
    def objective(self, leaf: Leaves, weights: cp.Variable) -> Any:
        """A convex CVXPY expression of the weights (n,), DPP in the leaves."""

    def data_bounds(self, universe: Universe) -> Mapping[str, Value]:
        """Public bounds of the sizes of the leaves' entries, a number or an array each; they are enforced.

        A leaf without one leaves the program without a radius that is known in advance.
        """
        return {}

    def box(self, n: int) -> tuple[float, float]:
        """Least and largest of n weights: ``floor``, and ``cap`` or ``inf``."""
        return self.floor, self.cap

    def stated_bound(self, universe: Universe) -> stability.Bound | None:
        """How far the weights of a resolved program move, by its author's own proof; None for V = 2n."""
        return None

    def strong_convexity(self, records: Records) -> float:
        """M such that the objective less ``m/2 ||w||^2`` is convex, where it cannot be derived.

        Of an objective that is not read, or strongly convex by a term that couples weights; 0 for none.
        """
        return 0.0

    def constraints(self, leaf: Leaves, weights: cp.Variable) -> dict[str, Any]:
        """Further constraints by name: such a program is not read, and its data may leave it no weights."""
        return {}

    def declare(self, leaf: Leaves) -> Declaration:
        n = leaf("ones").shape[0]
        w = cp.Variable(n, name="weights", nonneg=True)
        floor, cap = self.box(n)
        box: dict[str, Any] = {} if math.isinf(cap) else {"cap": w <= cap}
        if floor > 0:
            box["floor"] = w >= floor
        total = {"total": leaf("ones") @ w == n}
        constraints = total | box | self.constraints(leaf, w)
        return Declaration(self.objective(leaf, w), {"weights": w}, constraints)

    def bound(self, universe: Universe) -> StabilityBound:
        n, stated = universe.n_samples, self.stated_bound(universe)
        _, cap = self._box(n)
        if stated is None:
            return stability.any_weights(n, self.kind.proved, self.relations)
        example = self._bounded(next(universe.examples()), universe)
        public = self._public(example, universe)
        if public is not None and public.reason and not self._kinks(example, universe):
            # a radius that is not known in advance would have to be read off the data
            return stability.any_weights(n, f"the stated bound is not used: {public.reason}", self.relations)
        m = self.strong_convexity(next(universe.examples()))
        m = m if public is None else max(m, float(np.min(public.strong_convexity)))
        try:
            return replace(stated, w_max=min(stated.w_max, cap)).at(n, m, self.relations)
        except CalibrationError as error:
            raise CalibrationError(f"{self.name}: {error}: add a term such as sum_squares(weights)") from None

    def certified_error(self, universe: Universe) -> float | None:
        """``||w_hat - w||_1 / n`` by Theorem C; ``inf`` where it is silent, None where a tree is not read.

        Raises CalibrationError where no weights are in the box, or nothing makes them unique.
        """
        self._box(universe.n_samples)
        records = next(universe.examples())
        example = self._bounded(records, universe)
        public = self._public(example, universe)
        if public is None:
            return None
        if not float(np.min(public.strong_convexity)) > 0:
            if self.strong_convexity(records) > 0:
                return None
            raise CalibrationError(
                f"{self.name}: {public.reason}: add a term such as sum_squares(weights), or state "
                "strong_convexity"
            )
        if public.radius is None:
            return None if self._kinks(example, universe) else math.inf
        return public.radius / math.sqrt(universe.n_samples)

    def instance(self, records: Records) -> Instance:
        program = self.resolve(records.domain)
        n = records.n_samples
        floor, cap = program._box(n)
        universe = Universe(records.domain, n, records.n_features)
        data, targets = program._bounded(records, universe), program.targets(records)
        public = program._public(data, universe)
        declared = program.strong_convexity(records)
        if public is not None and not float(np.min(public.strong_convexity)) > 0:
            public = replace(public, strong_convexity=np.full(n, declared)) if declared > 0 else None
        if public is None:
            smooth = _OnSimplex(n, cap, floor)
            return Instance(program, lambda: data, None, declared, smooth, targets)
        read = program._read(data, universe)
        assert isinstance(read, ReadObjective)
        _made_nonneg(read, data)
        model = DirectModel(read.at(read.vector(data)), public, floor, cap)
        return Instance(program, lambda: data, model, model.ridge)

    def model(self, records: Records) -> Composite:
        found = self.instance(records).model
        if found is None:
            raise ProgramError(f"{self.name} is not read: solve it by a conic solver such as clarabel")
        return found

    def solved_together(self, datasets: Sequence[Records]) -> tuple[Array, Array] | None:
        """Weights (k, n) of k datasets of one universe, and bounds (k,) of their errors in l1.

        By Theorem A, at a kink by D. None where the objective is not read.
        """
        first = datasets[0]
        program = self.resolve(first.domain)
        model = program.instance(first).model
        if not isinstance(model, DirectModel):
            return None
        universe = Universe(first.domain, first.n_samples, first.n_features)
        bounds = program.data_bounds(universe)
        leaves = [program._clipped(records, bounds) for records in datasets]
        read = program._read(leaves[0], universe)
        assert isinstance(read, ReadObjective)
        for data in leaves:
            _made_nonneg(read, data)
        objective = read.at(np.stack([read.vector(data) for data in leaves]))
        start = np.ones((len(datasets), first.n_samples))
        at, claim, *_ = minimize_points(objective, model.public, model.floor, model.cap, start, _STEPS)
        return at, claim.one

    def unread(self, universe: Universe) -> str | None:
        """Why the objective of a resolved program is not read, in one line; None where it is."""
        found = self._read(self._bounded(next(universe.examples()), universe), universe)
        return found if isinstance(found, str) else None

    def _box(self, n: int) -> tuple[float, float]:
        """Floor and cap, at most n. Raises CalibrationError where no weights of sum n are between them."""
        floor, cap = self.cached(("box", n), lambda: self.box(n))
        if not (0.0 <= floor <= 1.0 <= cap):
            raise CalibrationError(
                f"{self.name}: no weights of mean 1 have floor = {floor:g} and cap = {cap:g}: state a floor "
                "in [0, 1] and a cap of at least 1"
            )
        return floor, min(cap, float(n))

    def _bounded(self, records: Records, universe: Universe) -> dict[str, Value]:
        """The leaves, clipped to their public bounds."""
        bounds = self.cached(("bounds", universe), lambda: self.data_bounds(universe))
        return self._clipped(records, bounds)

    def _clipped(self, records: Records, bounds: Mapping[str, Value]) -> dict[str, Value]:
        data: dict[str, Value] = {**self.data(records), "ones": np.ones(records.n_samples)}
        for name, bound in bounds.items():
            if name not in data:
                raise ProgramError(f"{self.name}: data_bounds names {name!r}, which data does not make")
            data[name] = np.clip(np.asarray(data[name], dtype=np.float64), -np.asarray(bound), bound)
        return data

    def _read(self, data: Mapping[str, Value], universe: Universe) -> ReadObjective | str:
        """The objective at data of these shapes, or why it is not read."""
        shapes = tuple((name, np.shape(value)) for name, value in data.items())
        return self.cached(("read", shapes), lambda: _reading(self, shapes, universe))

    def _public(self, data: Mapping[str, Value], universe: Universe) -> PublicConstants | None:
        read = self._read(data, universe)
        if isinstance(read, str):
            return None
        shapes = tuple((name, np.shape(value)) for name, value in data.items())
        return self.cached(("constants", shapes, universe), lambda: _constants(self, read, universe))

    def cached(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """One result per program and key; a program that cannot be hashed is read anew."""
        own = (type(self), self, *key)
        try:
            hash(own)
        except TypeError:
            return make()
        if own not in _cache:
            _cache[own] = make()
            if len(_cache) > 64:
                _cache.popitem(last=False)
        _cache.move_to_end(own)
        found: T = _cache[own]
        return found

    def _kinks(self, data: Mapping[str, Value], universe: Universe) -> bool:
        read = self._read(data, universe)
        return isinstance(read, ReadObjective) and read.kinks


_cache: OrderedDict[Any, Any] = OrderedDict()


def _reading(program: DirectFirstStage, shapes: Shapes, universe: Universe) -> ReadObjective | str:
    leaves = Leaves({name: np.zeros(shape) for name, shape in shapes}, embed=False)
    n = dict(shapes)["ones"][0]
    w = cp.Variable(n, name="weights", nonneg=True)
    if program.constraints(leaves, w):
        return "it has constraints beside its cap and floor"
    leaves = Leaves({name: np.zeros(shape) for name, shape in shapes}, embed=False)
    objective = program.objective(leaves, w)
    try:
        read = ReadObjective(objective, w, leaves.parameters, program.eigenvalue_floor)
    except ProgramError as error:
        return str(error)
    if not _agrees(program, read, objective, w, leaves.parameters, universe):
        return "its values on public data could not be compared with those of CVXPY"
    return read


def _agrees(
    program: DirectFirstStage,
    read: ReadObjective,
    objective: Any,
    w: Any,
    leaves: Mapping[str, Any],
    universe: Universe,
) -> bool:
    """Value and gradient against CVXPY's own, on public data: what is certified is what is declared.

    False where nothing could be compared. Raises ProgramError where they differ.
    """
    rng, compared = np.random.default_rng(read.n), False
    for records in universe.examples():
        data = program._bounded(records, universe)
        if any(np.shape(data[name]) != leaf.shape for name, leaf in leaves.items()):
            continue  # records that change the shapes of their data: nothing public is known of these
        for name, leaf in leaves.items():
            leaf.value = data[name]
        w.value = rng.uniform(0.5, 1.5, read.n)
        at = read.at(read.vector(data))
        theirs, derivative = objective.value, objective.grad.get(w)
        if theirs is None or derivative is None or not np.all(np.isfinite(theirs)):
            continue  # outside of the domain of an atom
        derivative = derivative.toarray() if hasattr(derivative, "toarray") else derivative
        value, slope = float(np.ravel(theirs)[0]), np.ravel(derivative)
        scale = 1.0 + abs(value) + float(np.max(np.abs(slope)))
        off = abs(float(at.value(w.value)) - value)
        if not read.kinks:  # where a derivative need not be one and the same
            off = max(off, float(np.max(np.abs(at.slope(w.value) - slope))))
        if not off <= 1e-9 * scale:
            raise ProgramError(f"{program.name}: the objective was read as another one; report it")
        compared = True
    return compared


def _made_nonneg(read: ReadObjective, data: dict[str, Value]) -> None:
    """Clip leaves that are declared nonnegative, or the objective would not be convex."""
    for name, leaf in read.leaves.items():
        if leaf.is_nonneg():
            data[name] = np.maximum(data[name], 0.0)


def _constants(program: DirectFirstStage, read: ReadObjective, universe: Universe) -> PublicConstants:
    bounds = {"ones": 1.0, **program.data_bounds(universe)}
    missing = [name for name in read.leaves if name not in bounds]
    bound = read.bound_vector({**dict.fromkeys(missing, math.inf), **bounds})
    found = PublicConstants.of(read, bound, *program._box(read.n))
    if missing and found.radius is None and float(np.min(found.strong_convexity)) > 0 and not read.kinks:
        return replace(found, reason=f"state a public bound of the entries of {missing[0]!r} in data_bounds")
    return found


class _OnSimplex(Composite):
    """The feasible set and the scale of weights; nothing is known of their objective."""

    ridge, smoothness, self_concordance = 0.0, 1.0, 0.0

    def __init__(self, n: int, cap: float, floor: float) -> None:
        self.n = self.dimension = n
        self.penalty = Penalty(Simplices(np.zeros(n, dtype=np.int64), float(n), cap, floor))

    def value(self, v: Array) -> float:
        return 0.0

    def gradient(self, v: Array) -> Array:
        return np.zeros(self.n)

    def hessian(self, v: Array) -> Array:
        return np.zeros((self.n, self.n))

    def rounding(self, v: Array) -> float:
        return 0.0

    def start(self) -> Array:
        return np.ones(self.n)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return math.sqrt(self.n) * radius

    def output_scale(self, v: Array) -> float:
        return float(self.n)
