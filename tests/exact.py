"""Minimizers to 50 digits, from the records alone: nothing here uses the package's models or
solvers.

Every minimizer is accepted only after its own optimality conditions hold to 40 digits; the program
is strictly convex, so the point found is the one minimizer. A double-precision start only says
which bounds are active.
"""

from typing import Any

import mpmath as mp
import numpy as np

from dp2erm_cvx.model.sets import L2Ball
from dp2erm_cvx.program import Box, L1Ball, WholeSpace

mp.mp.dps = 50

Vector = list[Any]
_TINY = mp.mpf(10) ** -40


def to_mp(values):
    """Doubles as exact rationals of 50 digits: a list, or a list of lists."""
    array = np.asarray(values, dtype=np.float64)
    return (
        [to_mp(row) for row in array]
        if array.ndim > 1
        else [mp.mpf(float(value)) for value in array]
    )


def distance(first, second, order=2):
    """Norm of ``first - second``, the second in doubles."""
    gaps = [mp.fabs(a - mp.mpf(float(b))) for a, b in zip(first, second, strict=True)]
    return float(mp.fsum(gaps) if order == 1 else mp.sqrt(mp.fsum(g * g for g in gaps)))


def spectral_distance(true, computed):
    """Largest singular value of the difference of two matrices."""
    gap = [
        [float(true[i, j] - mp.mpf(float(x))) for j, x in enumerate(row)]
        for i, row in enumerate(computed)
    ]
    return float(np.linalg.norm(np.array(gap), 2))


def logistic(records, ridge, radius, trim, start, noise=None):
    """(lambda, weights) of the logistic propensity program, perturbed by ``noise`` if there is
    one.
    """
    v, scores = _propensity(records, ridge, radius, start, noise)
    return v, _normalized([min(1 + mp.exp(-s), mp.mpf(trim)) for s in scores])


def overlap(records, ridge, radius, start, noise=None):
    """(lambda, overlap weights): the probability of the other arm."""
    v, scores = _propensity(records, ridge, radius, start, noise)
    return v, _normalized([1 / (1 + mp.exp(s)) for s in scores])


def odds(records, ridge, radius, trim, start):
    """(lambda, weights): 1 at the treated, and the odds of treatment at controls."""
    v, scores = _propensity(records, ridge, radius, start, None)
    ones = [mp.mpf(1)] * len(scores)
    of_controls = [min(mp.exp(-s), mp.mpf(trim)) for s in scores]
    return v, _normalized(_of_arms(records, of_controls, ones))


def calibrated(program, records, start):
    """(lambda, weights): 1 at the treated, and at controls a logistic curve from ``low`` to
    ``high``.
    """
    rows, low, high = to_mp(records.X), mp.mpf(program.low), mp.mpf(program.high)
    width = high - low
    scale = width / ((1 - low) * (high - 1))
    shift = mp.log((1 - low) / (high - 1))

    def loss(u):
        share = 1 / (1 + mp.exp(-scale * u - shift))
        return low + width * share, width * scale * share * (1 - share)

    linear = [-_dot(column, to_mp(records.a)) for column in zip(*rows, strict=True)]
    ridge = len(rows) * mp.mpf(program.ridge)
    derivatives = _of_margins(rows, loss, ridge, linear, factors=to_mp(1 - records.a))
    v = _minimize(derivatives, to_mp(start), _ball(program.radius))
    of_controls = [loss(_dot(x, v))[0] for x in rows]
    return v, _normalized(_of_arms(records, of_controls, [mp.mpf(1)] * len(rows)))


def _of_arms(records, of_controls, of_treated):
    """The number of each record that belongs to its arm."""
    return [
        treated if a == 1 else control
        for a, control, treated in zip(records.a, of_controls, of_treated, strict=True)
    ]


def _propensity(records, ridge, radius, start, noise):
    """(lambda, margins) of the logistic regression of a on x."""
    v = _minimize(propensity_derivatives(records, ridge, noise), to_mp(start), _ball(radius))
    return v, [_dot(z, v) for z in _signed_rows(records)]


def _signed_rows(records):
    return to_mp((2 * records.a - 1)[:, None] * records.X)


def propensity_derivatives(records, ridge, noise=None):
    """Gradient and Hessian of the logistic regression of a on x."""
    rows = _signed_rows(records)
    b = to_mp(np.zeros(len(rows[0])) if noise is None else noise)
    return _of_margins(rows, _logistic_loss, len(rows) * mp.mpf(ridge), b)


def _logistic_loss(s):
    """Slope and curvature of ``log(1 + exp(-s))``."""
    missed = 1 / (1 + mp.exp(s))
    return -missed, missed * (1 - missed)


def _of_margins(rows, loss, ridge, linear, offsets=None, factors=None):
    """Of ``sum f_i loss(<z_i, v> - o_i) + <linear, v> + ridge ||v||^2 / 2``; loss is (slope,
    curvature).
    """
    offsets, factors = offsets or [mp.mpf(0)] * len(rows), factors or [mp.mpf(1)] * len(rows)

    def derivatives(v):
        both = [loss(_dot(z, v) - o) for z, o in zip(rows, offsets, strict=True)]
        pull, steep = ([f * one[k] for f, one in zip(factors, both, strict=True)] for k in (0, 1))
        gradient = [
            linear[k] + ridge * v[k] + mp.fsum(s * z[k] for s, z in zip(pull, rows, strict=True))
            for k in range(len(v))
        ]
        return gradient, _second_moment(rows, steep, ridge)

    return derivatives


def tilting(program, records, start, ridge, noise=None):
    """(lambda, weights) of inverse probability tilting, perturbed by ``noise`` if there is one."""
    v = _minimize(
        tilting_derivatives(program, records, ridge, noise), to_mp(start), _ball(program.radius)
    )
    rows = _by_arm(_balanced(program, records), records.a)
    return v, _normalized([1 + mp.exp(-_dot(b, v)) for b in rows])


def tilting_derivatives(program, records, ridge, noise=None):
    """Gradient and Hessian of inverse probability tilting."""
    g = _balanced(program, records)
    rows, terms = _by_arm(g, records.a), _by_arm(g, 1 - records.a)
    terms = terms if noise is None else [*terms, to_mp(noise)]
    linear = [mp.fsum(column) for column in zip(*terms, strict=True)]

    def loss(s):
        return -mp.exp(-s), mp.exp(-s)

    return _of_margins(rows, loss, len(rows) * mp.mpf(ridge), linear)


def _balanced(program, records):
    """The balance functions of every record, the constant first."""
    _, constant = program.bounds(records.space)
    return [[mp.mpf(constant), *row] for row in to_mp(program.balance(records.covariates))]


def _by_arm(g, a):
    """Every row in the place of its arm, zeros in that of the other."""
    zero = [mp.mpf(0)] * len(g[0])
    return [zero + row if arm else row + zero for row, arm in zip(g, a, strict=True)]


def entropy_rows(program, records):
    """Rows b_i and target t in exact arithmetic from the balance functions of every record."""
    g, treated = _balanced(program, records), int(np.sum(records.a))
    n = len(g)
    share = [mp.mpf(n - treated) / n, mp.mpf(treated) / n]
    if program.arm_mass == "equal":
        share = [mp.mpf(1) / 2] * 2
    mean = [mp.fsum(column) / n for column in zip(*g, strict=True)]
    return _by_arm(g, records.a), [share[arm] * value for arm in (0, 1) for value in mean]


def paper_entropy(program, records, start):
    """(lambda, weights) of the paper's dual: rows over the share of their arm, of norm at most
    1.
    """
    g, treated = _balanced(program, records), int(np.sum(records.a))
    n = len(g)
    size = mp.sqrt(mp.fsum(mp.mpf(bound) ** 2 for bound in program.bounds(records.space)))
    floor = records.space.arm_floor or max(min(n - treated, treated), 1)
    factor = [floor / (size * max(count, floor)) for count in (n - treated, treated)]
    rows = _by_arm(
        [[factor[a] * value for value in row] for a, row in zip(records.a, g, strict=True)],
        records.a,
    )
    target = [floor / (n * size) * mp.fsum(column) / n for column in zip(*g, strict=True)] * 2
    return entropy_dual(rows, target, mp.mpf(program.ridge), program.radius, to_mp(start))


def capped_entropy(program, records, near):
    """Weights of entropy balancing with caps by arm; ``near`` are weights that tell which caps are
    active.
    """
    constant = mp.mpf(program.constant)
    g = [[constant, *row] for row in to_mp(program.balance(records.covariates))]
    rows, n = _by_arm(g, records.a), len(g)
    target = [mp.fsum(column) / n / 2 for column in zip(*g, strict=True)] * 2
    caps = to_mp(program.cap / 2 / np.where(records.a == 1, program.treated, 1 - program.treated))
    held = {i: cap for i, cap in enumerate(caps) if near[i] >= cap * (1 - mp.mpf(10) ** -9)}
    means = [_dot(to_mp(near), column) / n for column in zip(*rows, strict=True)]
    start = [(t - m) / mp.mpf(program.ridge) for t, m in zip(target, means, strict=True)]
    size = mp.norm(start)
    if size > program.radius:
        start = [value * program.radius / size for value in start]
    lam, weights = entropy_dual(rows, target, mp.mpf(program.ridge), program.radius, start, held)
    # weights below their caps are the tilts times a common factor, of which those at their caps
    # have more
    factor = next(weights[i] / mp.exp(_dot(rows[i], lam)) for i in range(n) if i not in held)
    for i, cap in enumerate(caps):
        assert weights[i] <= cap
        assert i not in held or factor * mp.exp(_dot(rows[i], lam)) >= cap
    return weights


def _normalized(factors):
    total = mp.fsum(factors)
    return [len(factors) * f / total for f in factors]


def entropy_dual(rows, target, ridge, radius, start, held=None):
    """Entropy balancing by its dual for given rows and target; ``held`` are weights that are at a
    cap.
    """
    held = held or {}
    n, left = len(rows), len(rows) - mp.fsum(held.values())
    free = [row for i, row in enumerate(rows) if i not in held]
    fixed = [mp.fsum(cap * rows[i][k] for i, cap in held.items()) for k in range(len(target))]

    def law(v):
        tilts = [mp.exp(_dot(b, v)) for b in free]
        total = mp.fsum(tilts)
        return [tilt / total for tilt in tilts]

    def derivatives(v):
        p = law(v)
        mean = [mp.fsum(q * b[k] for q, b in zip(p, free, strict=True)) for k in range(len(v))]
        second = _second_moment(free, p, 0)
        for i in range(len(v)):
            for j in range(len(v)):
                second[i, j] = left * (second[i, j] - mean[i] * mean[j])
            second[i, i] += n * ridge
        gradient = [
            left * mean[k] + fixed[k] + n * (ridge * v[k] - target[k]) for k in range(len(v))
        ]
        return gradient, second

    lam = _minimize(derivatives, start, _ball(radius))
    shares = iter(law(lam))
    return lam, [held[i] if i in held else left * next(shares) for i in range(n)]


def second_stage(program, records, weights, gamma, noise, near):
    """Theta of a second stage; ``near`` tells its zero coordinates and active bounds."""
    n, net = records.n_samples, program.regularizer
    derivatives = second_stage_derivatives(program, records, weights, gamma, noise)
    scale = n * (mp.mpf(gamma) + mp.mpf(net.l2))
    theta_set = program.feasible(records.space)
    return _minimize(derivatives, to_mp(near), theta_set, n * mp.mpf(net.l1), scale)


def second_stage_derivatives(program, records, weights, gamma, noise):
    """Gradient and Hessian of a second stage, less its l1 norm."""
    rows, offsets, factors, loss = _loss(program, records)
    factors = [mp.mpf(float(w)) * f for w, f in zip(weights, factors, strict=True)]
    ridge = len(rows) * (mp.mpf(gamma) + mp.mpf(program.regularizer.l2))
    return _of_margins(rows, loss, ridge, to_mp(noise), offsets, factors)


def _loss(program, records):
    """Rows, offsets and factors of the margins, and (slope, curvature) of the loss of one
    margin.
    """
    name, ones, y = program.name, [mp.mpf(1)] * records.n_samples, to_mp(records.y)
    side = [2 * int(arm) - 1 for arm in records.a]
    response = [2 * t * value for t, value in zip(side, y, strict=True)]
    if getattr(program, "squared", False):
        rows = program.rows(records)
        return to_mp(rows.Z), to_mp(rows.offsets), ones, lambda s: (2 * s, mp.mpf(2))
    if name == "itr_huber":
        k = mp.mpf(records.space.outcome_bound if program.threshold is None else program.threshold)

        def huber(s):
            return 2 * min(max(s, -k), k), mp.mpf(2 if mp.fabs(s) <= k else 0)

        return to_mp(records.X), response, ones, huber
    if name in ("saturating_regression", "itr_saturating"):
        S = mp.mpf(program.slope)

        def saturating(s):
            curvature = mp.exp(-mp.fabs(s) / S)
            return mp.sign(s) * S * (1 - curvature), curvature

        X = to_mp(program.covariates(records.space, records.X))
        return X, response if name == "itr_saturating" else y, ones, saturating
    assert name == "itr_logistic"
    sign = [-t if outcome < 0 else t for t, outcome in zip(side, y, strict=True)]
    rows = [[t * value for value in row] for t, row in zip(sign, to_mp(records.X), strict=True)]
    return rows, None, [mp.fabs(outcome) for outcome in y], _logistic_loss


def _dot(first, second):
    return mp.fdot(zip(first, second, strict=True))


def _second_moment(rows, weights, ridge):
    d = len(rows[0])
    matrix = mp.matrix(d, d)
    for i in range(d):
        for j in range(i, d):
            matrix[i, j] = matrix[j, i] = mp.fsum(
                w * r[i] * r[j] for w, r in zip(weights, rows, strict=True)
            )
        matrix[i, i] += ridge
    return matrix


def _ball(radius):
    return WholeSpace() if mp.isinf(radius) else L2Ball(radius)


def _minimize(derivatives, near, theta_set, price=0, scale=0):
    """Minimizer of a strictly convex function plus ``price`` times the l1 norm over a set, by
    Newton steps.

    ``near`` tells the signs and the active bounds; where the Hessian jumps a step may end on
    another piece, and the next goes on from there.
    """
    p, nu, edge = len(near), mp.mpf(0), 1 - mp.mpf(10) ** -9
    order = {L1Ball: 1, L2Ball: 2}.get(type(theta_set))
    kinked = bool(price) or order == 1
    sign = [0 if kinked and mp.fabs(t) < 1e-9 else int(mp.sign(t)) for t in near]
    box = theta_set.bound if isinstance(theta_set, Box) else mp.inf
    fixed = {k: sign[k] * mp.mpf(box) for k in range(p) if mp.fabs(near[k]) > box * edge}
    free = [k for k in range(p) if k not in fixed and (sign[k] or not kinked)]
    active = order is not None and mp.norm(near, order) > theta_set.radius * edge
    theta = [fixed.get(k, near[k] if k in free else mp.mpf(0)) for k in range(p)]

    def normal(k):
        return sign[k] if order == 1 else theta[k]

    for step_number in range(60):
        slope, hessian = derivatives(theta)
        residual = [slope[k] + price * sign[k] for k in free]
        if active and order == 2 and not step_number:
            nu = -mp.fsum(r * theta[k] for r, k in zip(residual, free, strict=True)) / _dot(
                theta, theta
            )
        matrix = mp.matrix(len(free) + active, len(free) + active)
        for i, k in enumerate(free):
            for j, other in enumerate(free):
                matrix[i, j] = hessian[k, other] + (nu if k == other and order == 2 else 0)
            if active:
                residual[i] += nu * normal(k)
                matrix[i, len(free)] = matrix[len(free), i] = normal(k)
        if active:
            residual.append(
                (mp.fsum(theta[k] * normal(k) for k in free) - mp.mpf(theta_set.radius) ** order)
                / order
            )
        if not residual or max(mp.fabs(r) for r in residual) < _TINY * (1 + scale):
            break
        step = mp.lu_solve(matrix, mp.matrix(residual))
        for i, k in enumerate(free):
            theta[k] -= step[i]
        nu -= step[len(free)] if active else 0
    else:
        raise AssertionError("the exact minimizer did not converge")
    # optimality: the multipliers have the right sign and the signs and bounds were guessed right
    assert nu >= 0
    assert active or order is None or mp.norm(theta, order) <= theta_set.radius
    assert all(mp.fabs(value) <= box for value in theta)
    for k in range(p):
        if k in fixed:
            assert -(slope[k] + price * sign[k]) * sign[k] >= 0
        elif k in free:
            assert not kinked or theta[k] * sign[k] > 0
        else:
            assert mp.fabs(slope[k]) <= price + nu * (order == 1)
    return theta
