"""Minimizers to 50 digits, from the records alone: nothing here uses the package's models or solvers.

Every minimizer is accepted only after its own optimality conditions hold to 40 digits; the program is
strictly convex, so the point found is the one minimizer. A double-precision start only says which bounds
are active.
"""

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import Box, L1Ball, SecondStage, WholeSpace
from dp2erm_cvx.program.entropy import EntropyFirstStage

mp.mp.dps = 50

Vector = list[Any]
#: The gradient and the Hessian at a point.
Derivatives = Callable[[Vector], tuple[Vector, Any]]
_TINY = mp.mpf(10) ** -40


def to_mp(values: Any) -> Any:
    """Doubles as exact rationals of 50 digits: a list, or a list of lists."""
    array = np.asarray(values, dtype=np.float64)
    return [to_mp(row) for row in array] if array.ndim > 1 else [mp.mpf(float(value)) for value in array]


def distance(first: Vector, second: Any, order: int = 2) -> float:
    """Norm of ``first - second``, the second in doubles."""
    gaps = [mp.fabs(a - mp.mpf(float(b))) for a, b in zip(first, second, strict=True)]
    return float(mp.fsum(gaps) if order == 1 else mp.sqrt(mp.fsum(g * g for g in gaps)))


def logistic(
    records: Records, ridge: Any, radius: float, trim: float, start: Array, noise: Array | None = None
) -> tuple[Vector, Vector]:
    """(lambda, weights) of the logistic propensity program, perturbed by ``noise`` if there is one."""
    v, scores = _propensity(records, ridge, radius, start, noise)
    return v, _normalized([min(1 + mp.exp(-s), mp.mpf(trim)) for s in scores])


def overlap(
    records: Records, ridge: Any, radius: float, start: Array, noise: Array | None = None
) -> tuple[Vector, Vector]:
    """(lambda, overlap weights): the probability of the other arm."""
    v, scores = _propensity(records, ridge, radius, start, noise)
    return v, _normalized([1 / (1 + mp.exp(s)) for s in scores])


def _propensity(
    records: Records, ridge: Any, radius: float, start: Array, noise: Array | None
) -> tuple[Vector, Vector]:
    """(lambda, margins) of the logistic regression of a on x."""
    v = _minimize(propensity_derivatives(records, ridge, noise), to_mp(start), radius)
    rows = to_mp((2 * records.a - 1)[:, None] * records.X)
    return v, [_dot(z, v) for z in rows]


def propensity_derivatives(records: Records, ridge: Any, noise: Array | None = None) -> Derivatives:
    """Gradient and Hessian of the logistic regression of a on x."""
    rows = to_mp((2 * records.a - 1)[:, None] * records.X)
    m = len(rows) * mp.mpf(ridge)
    b = to_mp(np.zeros(len(rows[0])) if noise is None else noise)

    def derivatives(v: Vector) -> tuple[Vector, Any]:
        slopes = [1 / (1 + mp.exp(_dot(z, v))) for z in rows]
        gradient = [
            b[k] + m * v[k] - mp.fsum(s * z[k] for s, z in zip(slopes, rows, strict=True))
            for k in range(len(v))
        ]
        return gradient, _second_moment(rows, [s * (1 - s) for s in slopes], m)

    return derivatives


def tilting(
    program: Any, records: Records, start: Array, ridge: Any, noise: Array | None = None
) -> tuple[Vector, Vector]:
    """(lambda, weights) of inverse probability tilting, perturbed by ``noise`` if there is one."""
    v = _minimize(tilting_derivatives(program, records, ridge, noise), to_mp(start), program.radius)
    rows, _ = _tilting_rows(program, records)
    return v, _normalized([1 + mp.exp(-_dot(b, v)) for b in rows])


def tilting_derivatives(
    program: Any, records: Records, ridge: Any, noise: Array | None = None
) -> Derivatives:
    """Gradient and Hessian of inverse probability tilting."""
    rows, terms = _tilting_rows(program, records)
    terms = terms if noise is None else [*terms, to_mp(noise)]
    linear = [mp.fsum(column) for column in zip(*terms, strict=True)]
    m = len(rows) * mp.mpf(ridge)

    def derivatives(v: Vector) -> tuple[Vector, Any]:
        tilts = [mp.exp(-_dot(b, v)) for b in rows]
        gradient = [
            linear[k] + m * v[k] - mp.fsum(t * b[k] for t, b in zip(tilts, rows, strict=True))
            for k in range(len(v))
        ]
        return gradient, _second_moment(rows, tilts, m)

    return derivatives


def _tilting_rows(program: Any, records: Records) -> tuple[list[Vector], list[Vector]]:
    """The balance functions of every record in the place of its own arm, and in that of the other."""
    _, constant = program.bounds(records.domain)
    g = [[mp.mpf(constant), *row] for row in to_mp(program.balance(records.covariates))]
    zero = [mp.mpf(0)] * len(g[0])
    own = [zero + row if arm else row + zero for row, arm in zip(g, records.a, strict=True)]
    other = [row + zero if arm else zero + row for row, arm in zip(g, records.a, strict=True)]
    return own, other


def hard_balance(program: Any, records: Records, near: Array) -> tuple[Vector, Vector]:
    """(multipliers, weights) of stable balancing under hard bounds; ``near`` tells which bounds are active.

    The multipliers are unique only where the system that they solve is regular: it raises otherwise.
    """
    rows, target, slack = hard_balance_rows(program, records)
    n, zero = len(rows), mp.mpf(0)
    d = len(target)
    sign = [0 if k < 2 else int(np.sign(near[k])) for k in range(d)]
    free = [k for k in range(d) if k < 2 or sign[k]]
    held = [b for b in rows if _dot(b, to_mp(near)) > 0]
    matrix, right = mp.matrix(len(free), len(free)), mp.matrix(len(free), 1)
    for i, k in enumerate(free):
        right[i] = n * (target[k] - sign[k] * slack[k])
        for j, other in enumerate(free):
            matrix[i, j] = mp.fsum(b[k] * b[other] for b in held)
    if not np.linalg.cond(np.array(matrix.tolist(), dtype=np.float64)) < 1e13:
        raise ZeroDivisionError("the multipliers are not unique")
    v = [zero] * d
    for k, value in zip(free, mp.lu_solve(matrix, right), strict=True):
        v[k] = value
    scores = [_dot(b, v) for b in rows]
    weights = [max(zero, s) for s in scores]
    for k in range(d):
        missed = mp.fsum(w * b[k] for w, b in zip(weights, rows, strict=True)) - n * target[k]
        if k in free:
            assert mp.fabs(missed + n * sign[k] * slack[k]) < n * _TINY
            assert v[k] * sign[k] > 0 or k < 2
        else:
            assert mp.fabs(missed) <= n * slack[k] * (1 + _TINY)
    return v, weights


def hard_balance_rows(program: Any, records: Records) -> tuple[list[Vector], Vector, Vector]:
    """Arm indicators and balance functions by arm of every record, their targets and tolerances over n."""
    g = to_mp(program.balance(records.covariates))
    n, one, zero = len(g), mp.mpf(1), mp.mpf(0)
    blank = [zero] * len(g[0])
    rows = [
        [zero, one, *blank, *row] if arm else [one, zero, *row, *blank]
        for row, arm in zip(g, records.a, strict=True)
    ]
    mean = [mp.fsum(column) / n / 2 for column in zip(*g, strict=True)]
    target = [one / 2, one / 2, *mean, *mean]
    slack = [zero, zero] + [mp.mpf(program.tolerance) / 2] * (2 * len(mean))
    return rows, target, slack


def entropy_rows(program: EntropyFirstStage, records: Records) -> tuple[list[Vector], Vector]:
    """Rows b_i and target t in exact arithmetic from the balance functions of every record."""
    bound, constant = program.bounds(records.domain)
    g = [[mp.mpf(constant), *row] for row in to_mp(program.balance(records.covariates))]
    n, treated = len(g), int(np.sum(records.a))
    size = [n - treated, treated]
    scale, share = [mp.mpf(1)] * 2, [mp.mpf(s) / n for s in size]
    if program.scaling == "paper":
        norm = mp.sqrt(mp.mpf(constant) ** 2 + mp.mpf(bound) ** 2)
        floor = min(size)
        g = [[value * floor / n / norm for value in row] for row in g]
        scale = [mp.mpf(n) / s for s in size]
    if program.arm_mass == "equal":
        share = [mp.mpf(1) / 2] * 2
    k = len(g[0])
    mean = [mp.fsum(row[j] for row in g) / n for j in range(k)]
    zero = [mp.mpf(0)] * k
    scaled = [[scale[arm] * value for value in row] for row, arm in zip(g, records.a, strict=True)]
    rows = [zero + row if arm else row + zero for row, arm in zip(scaled, records.a, strict=True)]
    return rows, [scale[arm] * share[arm] * value for arm in (0, 1) for value in mean]


def entropy(
    program: EntropyFirstStage, records: Records, ridge: float, radius: float, start: Array
) -> tuple[Vector, Vector]:
    """(lambda, weights) of the entropy-balancing dual."""
    rows, target = entropy_rows(program, records)
    lam, weights = entropy_dual(rows, target, mp.mpf(ridge), radius, to_mp(start))
    trim = getattr(program, "trim", mp.inf)
    if mp.isinf(trim):
        return lam, weights
    return lam, _normalized([min(mp.exp(_dot(b, lam)), mp.mpf(trim)) for b in rows])


def hard_entropy(program: EntropyFirstStage, records: Records, near: Array) -> Vector:
    """Weights of exact balance.

    The constant of the control arm is left out: with that of the treated arm it adds up to a constant, along
    which the dual is flat, and the other columns are assumed independent. ``near`` are weights to start at.
    """
    rows, target = entropy_rows(program, records)
    balanced = [row[1:] for row in rows]
    columns = np.column_stack([np.array(balanced, dtype=np.float64), np.ones(len(rows))])
    start = np.linalg.lstsq(columns, np.log(near), rcond=None)[0][:-1]
    return entropy_dual(balanced, target[1:], mp.mpf(0), float("inf"), to_mp(start))[1]


def _normalized(factors: Vector) -> Vector:
    total = mp.fsum(factors)
    return [len(factors) * f / total for f in factors]


def entropy_dual(
    rows: list[Vector], target: Vector, ridge: Any, radius: float, start: Vector
) -> tuple[Vector, Vector]:
    """Entropy balancing by its dual for given rows and target."""
    n = len(rows)

    def law(v: Vector) -> Vector:
        tilts = [mp.exp(_dot(b, v)) for b in rows]
        total = mp.fsum(tilts)
        return [tilt / total for tilt in tilts]

    def derivatives(v: Vector) -> tuple[Vector, Any]:
        p = law(v)
        mean = [mp.fsum(q * b[k] for q, b in zip(p, rows, strict=True)) for k in range(len(v))]
        second = _second_moment(rows, p, ridge)
        for i in range(len(v)):
            for j in range(len(v)):
                second[i, j] -= mean[i] * mean[j]
        return [n * (mean[k] - target[k] + ridge * v[k]) for k in range(len(v))], n * second

    lam = _minimize(derivatives, start, radius)
    return lam, [n * q for q in law(lam)]


def second_stage(
    program: SecondStage, records: Records, weights: Array, gamma: float, noise: Array, near: Array
) -> Vector:
    """Theta of a second stage; ``near`` tells its zero coordinates and active bounds."""
    regularizer: Any = program.regularizer  # type: ignore[attr-defined]
    n = records.n_samples
    scale = n * (mp.mpf(gamma) + mp.mpf(regularizer.l2))
    derivatives = second_stage_derivatives(program, records, weights, gamma, noise)
    return _penalized(derivatives, n * mp.mpf(regularizer.l1), program.feasible(records.domain), near, scale)


def second_stage_derivatives(
    program: SecondStage, records: Records, weights: Array, gamma: float, noise: Array
) -> Derivatives:
    """Gradient and Hessian of a second stage, less its l1 norm."""
    (rows, offsets, factors), derivative = _loss(program, records)
    n, p = len(rows), len(rows[0])
    multipliers = [mp.mpf(float(w)) * f for w, f in zip(weights, factors, strict=True)]
    regularizer: Any = program.regularizer  # type: ignore[attr-defined]
    ridge = n * (mp.mpf(gamma) + mp.mpf(regularizer.l2))
    b = to_mp(noise)

    def derivatives(theta: Vector) -> tuple[Vector, Any]:
        both = [derivative(_dot(z, theta) - o) for z, o in zip(rows, offsets, strict=True)]
        pull = [m * slope for m, (slope, _) in zip(multipliers, both, strict=True)]
        steep = [m * curvature for m, (_, curvature) in zip(multipliers, both, strict=True)]
        gradient = [
            b[k] + ridge * theta[k] + mp.fsum(s * z[k] for s, z in zip(pull, rows, strict=True))
            for k in range(p)
        ]
        return gradient, _second_moment(rows, steep, ridge)

    return derivatives


def _loss(
    program: Any, records: Records
) -> tuple[tuple[list[Vector], Vector, Vector], Callable[[Any], tuple[Any, Any]]]:
    """Rows, offsets and factors of the margins, and (slope, curvature) of the loss of one margin."""
    n = records.n_samples
    if getattr(program, "squared", False):
        rows = program.rows(records)
        return (to_mp(rows.Z), to_mp(rows.offsets), [mp.mpf(1)] * n), lambda s: (2 * s, mp.mpf(2))
    side = [2 * int(arm) - 1 for arm in records.a]
    rows, y = to_mp(records.X), to_mp(records.y)
    if program.name == "itr_huber":
        k = mp.mpf(records.domain.outcome_bound if program.threshold is None else program.threshold)
        response = [2 * t * value for t, value in zip(side, y, strict=True)]
        return (rows, response, [mp.mpf(1)] * n), lambda s: (
            2 * min(max(s, -k), k),
            mp.mpf(2 if mp.fabs(s) <= k else 0),
        )
    if program.name in ("saturating_regression", "itr_saturating"):
        S = mp.mpf(program.slope)
        if program.name == "itr_saturating":
            y = [2 * t * value for t, value in zip(side, y, strict=True)]

        def saturating(s: Any) -> tuple[Any, Any]:
            curvature = mp.exp(-mp.fabs(s) / S)
            return mp.sign(s) * S * (1 - curvature), curvature

        X = to_mp(program.covariates(records.domain, records.X))
        return (X, y, [mp.mpf(1)] * n), saturating
    assert program.name == "itr_logistic"
    signed = [
        [t * (-value if outcome < 0 else value) for value in row]
        for t, outcome, row in zip(side, y, rows, strict=True)
    ]

    def logistic_loss(s: Any) -> tuple[Any, Any]:
        missed = 1 / (1 + mp.exp(s))
        return -missed, missed * (1 - missed)

    return (signed, [mp.mpf(0)] * n, [mp.fabs(outcome) for outcome in y]), logistic_loss


def _penalized(derivatives: Derivatives, price: Any, theta_set: Any, near: Array, scale: Any) -> Vector:
    """Minimizer of a convex function plus ``price`` times the l1 norm over Theta, by Newton's method.

    The function is taken to be strictly convex; where its Hessian jumps a step may end on another piece, and
    the next goes on from there.
    """
    p = len(near)
    sign = [0 if abs(t) < 1e-9 and price + isinstance(theta_set, L1Ball) else int(np.sign(t)) for t in near]
    fixed = {}
    if isinstance(theta_set, Box):
        fixed = {
            k: sign[k] * mp.mpf(theta_set.bound)
            for k in range(p)
            if abs(near[k]) > theta_set.bound * (1 - 1e-9)
        }
    free = [k for k in range(p) if k not in fixed and sign[k] != 0]
    active = isinstance(theta_set, L1Ball | L2Ball) and theta_set.radius * (1 - 1e-9) < np.linalg.norm(
        near, 1 if isinstance(theta_set, L1Ball) else 2
    )
    theta = [fixed.get(k, mp.mpf(float(near[k])) if k in free else mp.mpf(0)) for k in range(p)]
    nu = mp.mpf(0)

    def normal(k: int) -> Any:
        return (sign[k] if isinstance(theta_set, L1Ball) else theta[k]) if active else mp.mpf(0)

    for _ in range(60):
        slope, hessian = derivatives(theta)
        residual = [slope[k] + price * sign[k] + nu * normal(k) for k in free]
        matrix = mp.matrix(len(free) + active, len(free) + active)
        for i, k in enumerate(free):
            for j, other in enumerate(free):
                matrix[i, j] = hessian[k, other] + (nu if k == other and isinstance(theta_set, L2Ball) else 0)
            if active:
                matrix[i, len(free)] = matrix[len(free), i] = normal(k)
        if active:
            assert isinstance(theta_set, L1Ball | L2Ball)
            length = mp.fsum(theta[k] * normal(k) for k in free)
            if isinstance(theta_set, L1Ball):
                residual.append(length - mp.mpf(theta_set.radius))
            else:
                residual.append((length - mp.mpf(theta_set.radius) ** 2) / 2)
        if not residual or max(mp.fabs(r) for r in residual) < _TINY * (1 + scale):
            break
        step = mp.lu_solve(matrix, mp.matrix(residual))
        for i, k in enumerate(free):
            theta[k] -= step[i]
        if active:
            nu -= step[len(free)]
    else:
        raise AssertionError("the exact second stage did not converge")
    # optimality: the multipliers have the right sign and the signs and bounds were guessed right
    assert nu >= 0
    cap = price + (nu if isinstance(theta_set, L1Ball) else 0)
    for k in range(p):
        if k in fixed:
            assert -(slope[k] + price * sign[k]) * sign[k] >= 0
        elif k in free:
            assert theta[k] * sign[k] > 0
        else:
            assert mp.fabs(slope[k]) <= cap
    if isinstance(theta_set, Box):
        assert all(mp.fabs(value) <= theta_set.bound for value in theta)
    elif not isinstance(theta_set, WholeSpace) and not active:
        norm = 1 if isinstance(theta_set, L1Ball) else 2
        assert mp.norm(theta, norm) <= theta_set.radius
    return theta


def _dot(first: Vector, second: Vector) -> Any:
    return mp.fdot(zip(first, second, strict=True))


def _second_moment(rows: list[Vector], weights: Vector, ridge: Any) -> Any:
    d = len(rows[0])
    matrix = mp.matrix(d, d)
    for i in range(d):
        for j in range(i, d):
            matrix[i, j] = matrix[j, i] = mp.fsum(w * r[i] * r[j] for w, r in zip(weights, rows, strict=True))
        matrix[i, i] += ridge
    return matrix


def _minimize(derivatives: Derivatives, v: Vector, radius: float) -> Vector:
    """Newton's method, on the conditions of the ball if it is active at the start."""
    active = mp.norm(v) > mp.mpf(radius) * (1 - mp.mpf(10) ** -9)
    nu = mp.mpf(0)
    d = len(v)
    if active:
        gradient, _ = derivatives(v)
        nu = -_dot(gradient, v) / _dot(v, v)
    for _ in range(60):
        gradient, hessian = derivatives(v)
        residual = [gradient[k] + nu * v[k] for k in range(d)]
        matrix = mp.matrix(d + active, d + active)
        for i in range(d):
            for j in range(d):
                matrix[i, j] = hessian[i, j] + (nu if i == j else 0)
            if active:
                matrix[i, d] = matrix[d, i] = v[i]
        if active:
            residual.append((_dot(v, v) - mp.mpf(radius) ** 2) / 2)
        if max(mp.fabs(r) for r in residual) < _TINY:
            assert nu >= 0
            assert mp.norm(v) <= mp.mpf(radius) * (1 + _TINY)
            return v
        step = mp.lu_solve(matrix, mp.matrix(residual))
        v = [v[k] - step[k] for k in range(d)]
        if active:
            nu -= step[d]
    raise AssertionError("the exact minimizer did not converge")
