"""Weights of forms with squares of kernel features to 40 digits, from the records alone."""

from typing import Any

import mpmath

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from tests.exact_kernel import gram

Number = mpmath.mpf
DIGITS = 60
#: What conditions of optimality may be off.
_TINY = Number(10) ** -40


def slope_and_curvature(name: str, w: Number) -> tuple[Number, Number]:
    """Those of a dispersion of the examples."""
    if name == "square":
        return w - 1, Number(1)
    if name == "entropy":
        return mpmath.log(w), 1 / w
    if name == "log":
        return -1 / w, 1 / w**2
    low = w - Number(0.1)
    high = 4 - w
    return mpmath.log(low / high), 1 / low + 1 / high


def products(form: WeightingForm, records: Records) -> tuple[Any, Any]:
    """Products of rows (n, n) and of rows and targets (n,), of squares of kernel features and of
    vectors.
    """
    a = records.a
    n = len(a)
    Q = mpmath.zeros(n, n)
    b = mpmath.zeros(n, 1)
    for imbalance in form.imbalances:
        price = 2 * Number(imbalance.penalty.factor)
        for (part,) in imbalance.groups:
            if part.features.kernel is not None:
                K = gram(part.features.kernel, records.covariates)
            else:
                phi = part.features.of(records) @ part.matrix.T
                K = [[mpmath.fdot(map(Number, x), map(Number, y)) for y in phi] for x in phi]
            towards = [Number(part.target[arm]) for arm in a]
            for arm in (0, 1):
                members = [j for j in range(n) if a[j] == arm]
                for j in members:
                    towards[j] += Number(part.mean[arm]) * n / len(members)
            for i in range(n):
                own = price * Number(part.weighted[a[i]])
                for j in range(n):
                    Q[i, j] += own * Number(part.weighted[a[j]]) * K[i][j]
                    b[i] += own * towards[j] * K[i][j]
            points = part.features.points
            if points is not None:
                across = gram(part.features.kernel, records.covariates, points)
                for i in range(n):
                    own = price * Number(part.weighted[a[i]]) * Number(part.public) * n
                    b[i] += own * mpmath.fsum(across[i]) / len(points)
    return Q, b


def blocks(form: WeightingForm, records: Records) -> list[tuple[list[int], Number]]:
    """Records whose weights have a sum, with that sum."""
    n = form.n
    of_arm = [[i for i in range(n) if records.a[i] == arm] for arm in (0, 1)]
    kind = form.sums.kind
    if kind is SumKind.ALL:
        return [(list(range(n)), Number(n))]
    if kind is SumKind.COUNTS:
        return [(members, Number(len(members))) for members in of_arm if members]
    return [
        (members, Number(total)) for members, total in zip(of_arm, form.sums.public, strict=True)
    ]


def exact_weights(
    form: WeightingForm, name: str, records: Records, near: Array
) -> list[Number] | None:
    """The weights, from doubles ``near`` (n,) them that tell which are at an end of their boxes;
    None if not.

    Newton's method on the conditions of optimality, which are checked in the end.
    """
    with mpmath.workdps(DIGITS):
        n = form.n
        Q, b = products(form, records)
        sums = blocks(form, records)
        low = [Number(form.low[arm]) for arm in records.a]
        cap = [Number(form.cap[arm]) for arm in records.a]
        w = [Number(float(x)) for x in near]
        free = [i for i in range(n) if low[i] < w[i] < cap[i]]
        multipliers = [Number(0)] * len(sums)
        for _ in range(12):
            system = mpmath.zeros(len(free) + len(sums))
            right = mpmath.zeros(len(free) + len(sums), 1)
            for row, i in enumerate(free):
                slope, curvature = slope_and_curvature(name, w[i])
                right[row] = b[i] - slope - mpmath.fsum(Q[i, j] * w[j] for j in range(n))
                for column, j in enumerate(free):
                    system[row, column] = Q[i, j]
                system[row, row] += curvature
            for k, (members, total) in enumerate(sums):
                at = len(free) + k
                right[at] = total - mpmath.fsum(w[i] for i in members)
                inside = [row for row, i in enumerate(free) if i in members]
                for row in inside:
                    system[row, at] = system[at, row] = Number(1)
                if not inside:
                    system[at, at] = Number(1)
                    right[at] = Number(0)
            step = mpmath.lu_solve(system, right)
            for row, i in enumerate(free):
                w[i] += step[row]
                if not low[i] < w[i] < cap[i]:
                    return None
            multipliers = [step[len(free) + k] for k in range(len(sums))]
            if all(abs(step[row]) < _TINY for row in range(len(free))):
                break
        if not _optimal(form, name, (Q, b), sums, w, multipliers, (low, cap)):
            return None
        return w


def _optimal(
    form: WeightingForm,
    name: str,
    squares: tuple[Any, Any],
    sums: list[tuple[list[int], Number]],
    w: list[Number],
    multipliers: list[Number],
    ends: tuple[list[Number], list[Number]],
) -> bool:
    """Whether the sums are met, and every weight answers to its argument."""
    Q, b = squares
    low, cap = ends
    for (members, total), multiplier in zip(sums, multipliers, strict=True):
        if abs(mpmath.fsum(w[i] for i in members) - total) > _TINY:
            return False
        for i in members:
            if low[i] == cap[i]:
                continue
            pull = mpmath.fsum(Q[i, j] * w[j] for j in range(form.n)) - b[i] + multiplier
            if name != "square" and w[i] in (low[i], cap[i]):
                # A slope is infinite there, and the exact weight is nearer to the end than a
                # double.
                return False
            off = slope_and_curvature(name, w[i])[0] + pull
            if w[i] > low[i] and off > _TINY:
                return False
            if w[i] < cap[i] and off < -_TINY:
                return False
    return True
