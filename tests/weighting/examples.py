"""Forms built by hand, records for them, and the same problems in CVXPY."""

import math
import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.weighting.forms.features import (
    BallSet,
    ConstantSet,
    Features,
    IntervalSet,
    SimilaritySet,
)
from dp2erm_cvx.weighting.forms.form import (
    FeatureRows,
    Imbalance,
    ImbalancePenalty,
    SumKind,
    WeightingForm,
    WeightSums,
)
from dp2erm_cvx.weighting.solving.dataset import boxes_of_records

BOTH = np.ones(2)
CONTROL = np.array([1.0, 0.0])
TREATED = np.array([0.0, 1.0])
SIGNED = np.array([-1.0, 1.0])
ALL = WeightSums(SumKind.ALL)

DISPERSIONS = {
    "square": Dispersion((DispersionPart("square", 0.5, 1.0, -1.0),)),
    "entropy": Dispersion((DispersionPart("entropy", 1.0), DispersionPart("line", -1.0))),
    "log": Dispersion((DispersionPart("log", 1.0),)),
    "logit": Dispersion(
        (DispersionPart("entropy", 1.0, 1.0, -0.1), DispersionPart("entropy", 1.0, -1.0, 4.0))
    ),
    "power": Dispersion((DispersionPart("power", 0.7, 1.0, 0.0, 1.5),)),
    "mixed": Dispersion((DispersionPart("square", 0.5), DispersionPart("log", 0.3))),
    "kinked": Dispersion((DispersionPart("square", 0.5), DispersionPart("size", 0.4, 1.0, -1.0))),
}


def records_of(n: int, p: int = 3, seed: int = 0) -> Records:
    """Confounded records with covariates in the unit ball."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n, p))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1) / 0.99)[:, None]
    a = (generator.uniform(size=n) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(int)
    a[:2] = 0, 1
    return Domain(1.0, 1.0).records(X, a, np.zeros(n))


def covariates(p: int = 3) -> Features:
    return Features("covariates", BallSet(1.0), p, lambda records: records.covariates)


def constant() -> Features:
    return Features("constant", ConstantSet(), 1, lambda records: np.ones((len(records.a), 1)))


def base_of(low: float = 0.5, high: float = 2.0) -> Features:
    """A base measure from the second covariate."""

    def of(records: Records) -> Array:
        return np.clip(1.0 + records.covariates[:, 1:2], low, high)

    return Features("base", IntervalSet(low, high), 1, of)


def end_of(low: float, high: float, factor: float = 1.0) -> FeatureRows:
    """Multiples of a number of every record, from its first covariate."""

    def of(records: Records) -> Array:
        middle = (low + high) / 2.0
        return np.clip(middle + (high - low) * records.covariates[:, :1], low, high)

    features = Features(f"number from {low} to {high}", IntervalSet(low, high), 1, of)
    return FeatureRows(features, factor * np.eye(1), BOTH, 0.0 * BOTH)


def of_kernel(kernel: Kernel, signed: bool = False) -> Features:
    return Features(f"kernel {kernel}", SimilaritySet(kernel.bound(1.0), signed), 7, kernel=kernel)


def part(features: Features, weighted: Array, target: Array) -> FeatureRows:
    return FeatureRows(features, np.eye(features.width), weighted, target)


def to_means_of_arms(
    penalty: ImbalancePenalty, weighted: Array, mean: Array, target: Array | None = None, p: int = 3
) -> Imbalance:
    """Covariates times factors by arm, against factors of n times the means of arms and those of
    records.
    """
    x = covariates(p)
    of_records = np.zeros(2) if target is None else target
    return imbalance(penalty, FeatureRows(x, np.eye(p), weighted, of_records, mean))


def imbalance(
    penalty: ImbalancePenalty, *parts: FeatureRows, shift: Array | None = None
) -> Imbalance:
    """One group per part."""
    width = sum(len(one.matrix) for one in parts)
    moved = np.zeros(width) if shift is None else shift
    return Imbalance(tuple((one,) for one in parts), moved, penalty)


def moments_by_arm(penalty: ImbalancePenalty, p: int = 3) -> Imbalance:
    """The constant and covariates of each arm, against half of the sums of all records."""
    x, one = covariates(p), constant()
    half = BOTH / 2
    return imbalance(
        penalty,
        *(part(feature, arm, half) for arm in (CONTROL, TREATED) for feature in (one, x)),
    )


def form_of(
    n: int,
    *imbalances: Imbalance,
    dispersion: str | Dispersion = "square",
    low: tuple[float, float] = (0.0, 0.0),
    cap: tuple[float, float] = (math.inf, math.inf),
    sums: WeightSums = ALL,
    **optional: object,
) -> WeightingForm:
    curve = DISPERSIONS[dispersion] if isinstance(dispersion, str) else dispersion
    return WeightingForm(n, curve, np.array(low), np.array(cap), sums, imbalances, **optional)


_ATOMS = {
    "square": lambda t, number: cp.square(t),
    "entropy": lambda t, number: -cp.entr(t),
    "log": lambda t, number: -cp.log(t),
    "power": lambda t, number: cp.power(t, number) * (-1.0 if 0 < number < 1 else 1.0),
    "huber": lambda t, number: cp.huber(t, number),
    "size": lambda t, number: cp.abs(t),
    "line": lambda t, number: t,
}


@dataclass(frozen=True)
class Reference:
    """A form at records, in CVXPY."""

    form: WeightingForm
    records: Records

    def vectors(self) -> dict[str, Array]:
        """Features of the records that are no kernel's."""
        return {one.name: one.of(self.records) for one in self.form.features if one.of is not None}

    def weights(self, solver: str = "CLARABEL", **options: object) -> Array:
        """Weights by Clarabel at tight tolerances."""
        form, a = self.form, self.records.a
        w = cp.Variable(form.n)
        phi = self.vectors()
        base = np.ones(form.n) if form.base is None else phi[form.base.name][:, 0]
        objective = 0
        for piece in form.dispersion.parts:
            inner = piece.factor * cp.multiply(1.0 / base, w) + piece.offset
            atom = _ATOMS[piece.atom](inner, piece.number)
            objective += piece.scale * cp.sum(cp.multiply(base, atom))
        if form.linear is not None:
            objective += form.linear.row(phi[form.linear.features.name], a)[:, 0] @ w
        constraints = []
        for one in form.imbalances:
            m = one.rows(phi, a).T @ w - one.targets(phi, a)
            price, constraint = _priced(one.penalty, m)
            objective += price
            constraints += constraint
        constraints += self.boxes(w) + self.sums(w)
        problem = cp.Problem(cp.Minimize(objective), constraints)
        tight = {
            "tol_gap_abs": 1e-13,
            "tol_gap_rel": 1e-13,
            "tol_feas": 1e-13,
            "tol_ktratio": 1e-10,
        }
        with warnings.catch_warnings():
            # Tolerances are tighter than what it can reach.
            warnings.simplefilter("ignore")
            problem.solve(solver=solver, **(tight if solver == "CLARABEL" else {}), **options)
        return np.asarray(w.value)

    def boxes(self, w: cp.Variable) -> list[cp.Constraint]:
        form, a = self.form, self.records.a
        low, cap = boxes_of_records(form, a, self.vectors())
        bounded = np.flatnonzero(np.isfinite(cap))
        return [w >= low] + ([w[bounded] <= cap[bounded]] if len(bounded) else [])

    def sums(self, w: cp.Variable) -> list[cp.Constraint]:
        kind, a, n = self.form.sums.kind, self.records.a, self.form.n
        if kind is SumKind.ALL:
            return [cp.sum(w) == n]
        if kind is SumKind.CONTROLS:
            return [(1 - a) @ w == n, w[a == 1] == 0]
        if kind is SumKind.TREATED:
            return [(1 - a) @ w == int(np.sum(a)), w[a == 1] == 1]
        totals = (
            self.form.sums.public
            if kind is SumKind.PUBLIC
            else (n - int(np.sum(a)), int(np.sum(a)))
        )
        return [(1 - a) @ w == totals[0], a @ w == totals[1]]


def _priced(
    penalty: ImbalancePenalty, m: cp.Expression
) -> tuple[cp.Expression | int, list[cp.Constraint]]:
    size = cp.norm(m, 2) if penalty.norm == 2 else cp.abs(m)
    if penalty.hard:
        return 0, [size <= penalty.tolerance]
    if penalty.kinked:
        return penalty.price * cp.sum(size), []
    if np.any(penalty.tolerance) and math.isinf(penalty.knee):
        # The distance to what costs nothing, which solvers are more accurate for.
        inside = cp.Variable(m.shape)
        free = (cp.norm(inside, 2) if penalty.norm == 2 else cp.abs(inside)) <= penalty.tolerance
        return penalty.factor * cp.sum_squares(m - inside), [free]
    beyond = cp.pos(size - penalty.tolerance) if np.any(penalty.tolerance) else size
    if math.isinf(penalty.knee):
        return penalty.factor * cp.sum(cp.square(beyond)), []
    return penalty.factor * cp.sum(cp.huber(beyond, penalty.knee)), []
