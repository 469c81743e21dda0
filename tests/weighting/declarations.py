"""Declarations of problems in the weights, in many spellings, all of which are read."""

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.program.kernels import Energy, Gaussian, PublicSample
from dp2erm_cvx.program.rows import Ball, DeclaredRecords

#: A problem, or a part of one, of weights and records.
Function = Callable[[Any, Any], Any]
DOMAIN = Domain(1.5, 2.0)


def declared(
    function: Function, n: int, domain: Domain = DOMAIN
) -> tuple[Any, Any, DeclaredRecords]:
    """Problem, weights and records of a declaration with three columns."""
    w = cp.Variable(n, name="w")
    records = DeclaredRecords(domain.space, n, 3)
    return function(w, records), w, records


def minimized(
    objective: Function, constraints: Function = lambda w, r: [cp.sum(w) == r.n]
) -> Function:
    return lambda w, r: cp.Problem(cp.Minimize(objective(w, r)), constraints(w, r))


def square(w: Any) -> Any:
    return cp.sum_squares(w - 1)


def difference(w: Any, r: Any) -> Any:
    return r.signed.T @ w - cp.sum(r.x, axis=0) / 2


def balance(w: Any, r: Any) -> Any:
    return cp.sum_squares(difference(w, r)) / r.n


def plus(dispersion: Callable[[Any], Any]) -> Function:
    return minimized(lambda w, r: dispersion(w) + balance(w, r))


def of(price: Function) -> Function:
    return minimized(lambda w, r: square(w) + price(w, r))


def under(*constraints: Function) -> Function:
    return minimized(
        lambda w, r: square(w) + balance(w, r), lambda w, r: [c(w, r) for c in constraints]
    )


MATRIX = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
TOLERANCES = np.array([0.1, 0.2, 0.3])


def mean(w: Any, r: Any) -> Any:
    return difference(w, r) / r.n


def by_the_first(x: Any, a: int, y: float) -> Any:
    return x * x[0]


def is_positive(x: Any, a: int, y: float) -> Any:
    return x[0] > 0


def products(r: Any) -> Any:
    return r.rows("products", by_the_first, Ball(2.0))


def signs(r: Any) -> Any:
    return r.cells("sign", is_positive, 2)


def pooled(w: Any, r: Any) -> Any:
    return r.features(Gaussian(1.0), "signed").T @ w


DISPERSIONS: dict[str, Function] = {
    "sum_squares(w)": plus(lambda w: cp.sum_squares(w)),
    "sum(square(w - 1))": plus(lambda w: cp.sum(cp.square(w - 1))),
    "sum((2 w - 2)**2) / 8": plus(lambda w: cp.sum((2 * w - 2) ** 2) / 8),
    "quad_over_lin": plus(lambda w: cp.quad_over_lin(w - 1, 4)),
    "norm(w - 1)**2": plus(lambda w: cp.norm(w - 1) ** 2),
    "square(norm(w - 1))": plus(lambda w: 3 * cp.square(cp.norm(1 - w))),
    "mean of squares": plus(lambda w: cp.mean(cp.square(w))),
    "var": plus(lambda w: cp.var(w)),
    "sum_squares(w - mean(w))": plus(lambda w: cp.sum_squares(w - cp.mean(w))),
    "-entr": plus(lambda w: -cp.sum(cp.entr(w))),
    "-sum(entr(w)) / n": plus(lambda w: 4 * -cp.sum(cp.entr(2 * w + 1)) / 7),
    "-log": plus(lambda w: -cp.sum(cp.log(w + 0.5))),
    "power 1.5": plus(lambda w: cp.sum(cp.power(w, 1.5))),
    "power 3": plus(lambda w: cp.sum(w**3)),
    "power 4": plus(lambda w: cp.sum(w**4)),
    "inv_pos": plus(lambda w: cp.sum(cp.inv_pos(w))),
    "-sqrt": plus(lambda w: -2 * cp.sum(cp.sqrt(w))),
    "kl_div(w, 2)": plus(lambda w: cp.sum(cp.kl_div(w, 2))),
    "kl_div(1, w)": plus(lambda w: cp.sum(cp.kl_div(np.ones(w.size), w))),
    "rel_entr(w, 1)": plus(lambda w: cp.sum(cp.rel_entr(w, 1))),
    "rel_entr(2, w)": plus(lambda w: cp.sum(cp.rel_entr(2 * np.ones(w.size), w))),
    "logit": plus(lambda w: -cp.sum(cp.entr(w - 0.1)) - cp.sum(cp.entr(4 - w))),
    "norm1 and squares": plus(lambda w: 0.2 * cp.norm1(w - 1) + cp.sum_squares(w - 1)),
    "abs and squares": plus(lambda w: cp.sum(cp.abs(w) + (w - 1) ** 2)),
    "huber and squares": plus(lambda w: cp.sum(cp.huber(w - 1, 0.2)) + 0.1 * cp.sum_squares(w)),
    "linear and squares": plus(lambda w: cp.sum_squares(w) - 2 * cp.sum(w)),
}

IMBALANCES: dict[str, Function] = {
    "P.T @ w": of(lambda w, r: cp.sum_squares(r.x.T @ w)),
    "w @ P": of(lambda w, r: cp.sum_squares(w @ r.x)),
    "one column": of(lambda w, r: cp.square(r.x[:, 1] @ w)),
    "column by column": of(
        lambda w, r: sum(cp.square(r.x[:, k] @ w - cp.sum(r.x[:, k])) for k in range(3))
    ),
    "sum(multiply)": of(lambda w, r: cp.sum_squares(cp.sum(cp.multiply(r.x, w[:, None]), axis=0))),
    "sum(multiply) of a column": of(lambda w, r: cp.square(cp.sum(cp.multiply(r.x[:, 0], w)))),
    "diag @": of(lambda w, r: cp.sum_squares(np.diag([1.0, 2.0, 3.0]) @ (r.x.T @ w))),
    "cp.diag @": of(lambda w, r: cp.sum_squares(cp.diag(TOLERANCES) @ (r.x.T @ w))),
    "P.T @ (w - 1)": of(lambda w, r: cp.sum_squares(r.x.T @ (w - 1))),
    "(w - 1) @ P": of(lambda w, r: cp.sum_squares((w - 1) @ r.signed / r.n)),
    "P.T @ ones": of(lambda w, r: cp.sum_squares(r.x.T @ w - r.x.T @ np.ones(r.n))),
    "mean(P)": of(lambda w, r: r.n * cp.sum_squares(r.x.T @ w / r.n - cp.mean(r.x, axis=0))),
    "public target": of(lambda w, r: r.n * cp.sum_squares(r.x.T @ w / r.n - TOLERANCES)),
    "centered rows": of(
        lambda w, r: cp.sum_squares((r.x - np.ones((r.n, 1)) @ TOLERANCES[None]).T @ w)
    ),
    "slice": of(lambda w, r: cp.sum_squares(r.x[:, :2].T @ w - cp.sum(r.x[:, :2], axis=0))),
    "hstack": of(
        lambda w, r: cp.sum_squares(cp.hstack([r.x.T @ w, r.signed.T @ w, cp.sum(w) - r.n]))
    ),
    "vstack": of(lambda w, r: cp.sum_squares(cp.vstack([r.x.T @ w, 2 * (r.signed.T @ w)]))),
    "half of both": of(
        lambda w, r: cp.sum_squares(r.by_arm(1.0).T @ w - cp.sum(r.by_arm(1.0), axis=0) / 2)
    ),
    "arms": of(lambda w, r: cp.sum_squares(r.arms.T @ w - r.n / 2)),
    "treatment": of(lambda w, r: cp.square(r.treatment @ w - cp.sum(r.treatment))),
    "outcomes": of(
        lambda w, r: cp.square(r.y @ w) + cp.square(r.response @ w) + cp.square(r.outcome_size @ w)
    ),
    "favored": of(lambda w, r: cp.sum_squares(r.favored.T @ w)),
    "mixed features": of(lambda w, r: cp.square(r.x[:, 0] @ w + r.y @ w - cp.sum(r.y))),
    "own rows": of(lambda w, r: cp.sum_squares(products(r).T @ w)),
    "own numbers": of(
        lambda w, r: cp.square(r.numbers("first", lambda x, a, y: x[0], -1.0, 1.0) @ w)
    ),
    "own cells": of(lambda w, r: cp.sum_squares(signs(r).T @ w - r.n / 2)),
    "quad_form": of(lambda w, r: cp.quad_form(difference(w, r), MATRIX)),
    "factors": of(lambda w, r: TOLERANCES @ cp.square(difference(w, r))),
    "multiplied squares": of(
        lambda w, r: cp.sum(cp.multiply(TOLERANCES, cp.square(difference(w, r))))
    ),
    "squares of factors": of(
        lambda w, r: cp.sum_squares(cp.multiply(TOLERANCES, difference(w, r)))
    ),
    "maximized": lambda w, r: cp.Problem(
        cp.Maximize(-cp.sum_squares(w) - balance(w, r)), [cp.sum(w) == r.n]
    ),
}


def to_treated(w: Any, r: Any) -> Any:
    return r.x.T @ w - r.n * r.mean_of(r.x, "treated")


#: Public points that features of a kernel are compared with.
POINTS = PublicSample([[0.2, 0.1, -0.3], [0.4, 0.0, 0.1]])


def of_all(r: Any) -> Any:
    return r.features(Gaussian(0.7))


def of_controls(w: Any, r: Any) -> Any:
    return r.features(Gaussian(0.7), "controls").T @ w


MEANS: dict[str, Function] = {
    "all to the treated": of(lambda w, r: cp.sum_squares(to_treated(w, r)) / r.n),
    "controls to the treated": minimized(
        lambda w, r: square(w) + cp.sum_squares(to_treated(w, r)) / r.n,
        lambda w, r: [w <= 4 * (1 - r.treatment)],
    ),
    "difference of means": of(
        lambda w, r: r.n * cp.sum_squares(r.x.T @ w / r.n - r.mean_of(r.x, "controls"))
    ),
    "both means": of(
        lambda w, r: cp.sum_squares(
            r.x.T @ w / r.n - (r.mean_of(r.x, "controls") + r.mean_of(r.x, "treated")) / 2
        )
    ),
    "multiples": of(
        lambda w, r: cp.sum_squares(
            MATRIX @ (r.x.T @ w - cp.sum(r.x, axis=0) / 2)
            - r.n / 3 * (MATRIX @ r.mean_of(r.x, "treated"))
        )
    ),
    "parts": of(
        lambda w, r: (
            cp.sum_squares(r.x[:, :2].T @ w / r.n - r.mean_of(r.x, "treated")[:2]) + cp.sum(w**2)
        )
    ),
    "tolerance": of(lambda w, r: cp.sum_squares(cp.pos(cp.abs(to_treated(w, r)) - 0.1))),
    "norm": of(lambda w, r: cp.norm(to_treated(w, r)) / 4),
    "within": under(lambda w, r: cp.abs(to_treated(w, r)) <= TOLERANCES * r.n),
    "mean of a number": of(lambda w, r: cp.square(r.y @ w / r.n - r.mean_of(r.y, "controls"))),
    "mean of own rows": of(
        lambda w, r: cp.sum_squares(products(r).T @ w / r.n - r.mean_of(products(r), "treated"))
    ),
    "means alone are of own rows": of(
        lambda w, r: cp.sum_squares(r.x.T @ w / r.n - r.mean_of(products(r), "treated"))
    ),
    "mean of cells": of(
        lambda w, r: cp.sum_squares(signs(r).T @ w / r.n - r.mean_of(signs(r), "treated"))
    ),
    "mean of a kernel": minimized(
        lambda w, r: (
            square(w) + cp.sum_squares(of_controls(w, r) - r.n * r.mean_of(of_all(r), "treated"))
        ),
        lambda w, r: [w <= 4 * (1 - r.treatment)],
    ),
    "both means of a kernel": of(
        lambda w, r: cp.sum_squares(
            of_all(r).T @ w / r.n
            - (r.mean_of(of_all(r), "controls") + r.mean_of(of_all(r), "treated")) / 2
        )
    ),
    "public points": of(
        lambda w, r: cp.sum_squares(of_all(r).T @ w / r.n - r.mean_of(of_all(r), POINTS))
    ),
    "public points and records": of(
        lambda w, r: (
            cp.sum_squares(
                of_controls(w, r)
                - cp.sum(of_all(r), axis=0) / 4
                - r.n / 4 * r.mean_of(of_all(r), POINTS)
            )
            / r.n
        )
    ),
    "public points in one price of two": of(
        lambda w, r: (
            cp.sum_squares(of_all(r).T @ w / r.n - r.mean_of(of_all(r), POINTS))
            + 2 * cp.sum_squares(of_controls(w, r) - cp.sum(of_all(r), axis=0) / 2)
        )
    ),
    "mean by arm": of(
        lambda w, r: cp.sum_squares(r.by_arm(1.0).T @ w - r.n * r.mean_of(r.by_arm(1.0), "treated"))
    ),
}

PRICES: dict[str, Function] = {
    "tolerance": of(lambda w, r: cp.sum_squares(cp.pos(cp.abs(difference(w, r)) - 0.1))),
    "tolerance of means": of(lambda w, r: cp.sum(cp.square(cp.pos(2 * cp.abs(mean(w, r)) - 0.1)))),
    "maximum(., 0)": of(
        lambda w, r: 5 * cp.sum(cp.maximum(cp.abs(difference(w, r)) - 0.1, 0) ** 2)
    ),
    "tolerances": of(lambda w, r: cp.sum_squares(cp.pos(cp.abs(difference(w, r)) - TOLERANCES))),
    "tolerance of a norm": of(lambda w, r: cp.square(cp.pos(cp.norm(difference(w, r)) / 2 - 0.1))),
    "huber": of(lambda w, r: cp.sum(cp.huber(difference(w, r), 0.3))),
    "huber of a norm": of(lambda w, r: 2 * cp.huber(cp.norm(difference(w, r)), 0.3)),
    "huber of a tolerance": of(
        lambda w, r: cp.sum(cp.huber(cp.pos(cp.abs(difference(w, r)) - 0.1), 0.3))
    ),
    "norm": of(lambda w, r: 0.5 * cp.norm(difference(w, r))),
    "norm1": of(lambda w, r: cp.norm1(difference(w, r)) / 2),
    "norm(., 1)": of(lambda w, r: cp.norm(difference(w, r), 1)),
    "sum(abs)": of(lambda w, r: cp.sum(cp.abs(difference(w, r)))),
    "prices, one of them 0": of(lambda w, r: np.array([0.0, 1.0, 2.0]) @ cp.abs(difference(w, r))),
    "factors, one of them 0": of(
        lambda w, r: np.array([0.0, 1.0, 2.0]) @ cp.square(difference(w, r))
    ),
    "prices": of(lambda w, r: TOLERANCES @ cp.abs(difference(w, r))),
    "norm_inf": of(lambda w, r: cp.norm_inf(difference(w, r))),
    "max(abs)": of(lambda w, r: 2 * cp.max(cp.abs(difference(w, r)))),
    "3-norm": of(lambda w, r: 0.4 * cp.pnorm(difference(w, r), 3)),
    "1.5-norm": of(lambda w, r: cp.norm(mean(w, r), 1.5)),
    "squared 3-norm": of(lambda w, r: cp.square(cp.norm(difference(w, r), 3)) / r.n),
    "3-norm ** 2": of(lambda w, r: 0.3 * cp.norm(difference(w, r), 3) ** 2),
    "huber of a 4-norm": of(lambda w, r: cp.huber(cp.norm(difference(w, r), 4), 0.3)),
    "tolerance of a 3-norm": of(lambda w, r: cp.square(cp.pos(cp.norm(difference(w, r), 3) - 0.1))),
    "one side": of(lambda w, r: cp.sum_squares(cp.pos(difference(w, r) - 0.1))),
    "one side, tolerances": of(
        lambda w, r: cp.sum(cp.square(cp.pos(difference(w, r) - TOLERANCES)))
    ),
    "one side, factors": of(lambda w, r: TOLERANCES @ cp.square(cp.pos(difference(w, r)))),
    "the other side": of(lambda w, r: cp.sum_squares(cp.neg(difference(w, r)))),
    "sum(pos)": of(lambda w, r: 0.3 * cp.sum(cp.pos(difference(w, r)))),
    "sum(neg)": of(lambda w, r: cp.sum(cp.neg(difference(w, r)))),
    "sum(pos), prices": of(lambda w, r: TOLERANCES @ cp.pos(difference(w, r))),
    "huber of one side": of(lambda w, r: cp.sum(cp.huber(cp.pos(difference(w, r)), 0.3))),
    "log_sum_exp": of(lambda w, r: cp.log_sum_exp(difference(w, r))),
    "log_sum_exp of both sides": of(
        lambda w, r: 2 * cp.log_sum_exp(cp.hstack([3 * mean(w, r), -3 * mean(w, r)]))
    ),
    "log_sum_exp of a target": of(lambda w, r: cp.log_sum_exp(2 * mean(w, r) - TOLERANCES)),
}


def own_cap(r: Any) -> Any:
    return r.numbers("cap", lambda x, a, y: 2 + x[0], 1.5, 3.0)


def own_floor(r: Any) -> Any:
    return r.numbers("floor", lambda x, a, y: x[1], 0.0, 0.5)


SETS: dict[str, Function] = {
    "no sum": under(),
    "w >= 0": under(lambda w, r: w >= 0, lambda w, r: cp.sum(w) == r.n),
    "mean": under(lambda w, r: cp.mean(w) == 1),
    "ones @ w": under(lambda w, r: np.ones(r.n) @ w == r.n),
    "cap": under(lambda w, r: w <= 3, lambda w, r: w >= 0.2),
    "caps": under(lambda w, r: w <= 3 * np.ones(r.n)),
    "largest weight": under(lambda w, r: cp.max(w) <= 3, lambda w, r: cp.min(w) >= 0.2),
    "largest distance from 1": under(lambda w, r: 2 * cp.norm_inf(w - 1) <= 2),
    "no cap": under(lambda w, r: w <= np.inf),
    "2 w <= 6": under(lambda w, r: 2 * w - 6 <= 0),
    "arm totals": under(lambda w, r: r.arms.T @ w == np.array([0.3, 0.7]) * r.n),
    "one arm's total": under(lambda w, r: r.treatment @ w == r.n / 2),
    "counts": under(lambda w, r: r.arms.T @ w == cp.sum(r.arms, axis=0)),
    "counts of treated": under(lambda w, r: r.treatment @ (w - 1) == 0),
    "controls": under(lambda w, r: w <= 4 * (1 - r.treatment), lambda w, r: cp.sum(w) == r.n),
    "treated 0": under(lambda w, r: cp.multiply(r.treatment, w) == 0),
    "treated": under(
        lambda w, r: cp.multiply(r.treatment, w - 1) == 0,
        lambda w, r: (1 - r.treatment) @ w == cp.sum(r.treatment),
    ),
    "sum of both": under(
        lambda w, r: cp.multiply(r.treatment, w) == r.treatment,
        lambda w, r: cp.sum(w) == 2 * cp.sum(r.treatment),
    ),
    "cap by arm": under(lambda w, r: w <= 2 + 2 * r.treatment),
    "caps of records": under(lambda w, r: w <= own_cap(r)),
    "boxes of records": under(
        lambda w, r: 2 * w <= 3 * own_cap(r),
        lambda w, r: w >= own_floor(r) / 2,
        lambda w, r: w <= 5,
    ),
    "caps of controls": under(
        lambda w, r: w <= 4 * (1 - r.treatment), lambda w, r: w <= own_cap(r)
    ),
    "abs(m) <= tolerance": under(lambda w, r: cp.abs(difference(w, r)) <= 0.1),
    "abs(m) / n <= tolerances": under(lambda w, r: cp.abs(difference(w, r)) / r.n <= TOLERANCES),
    "tolerance >= abs(m)": under(lambda w, r: cp.abs(difference(w, r)) <= TOLERANCES),
    "m == 0": under(lambda w, r: difference(w, r) == 0),
    "X.T @ w == X.T @ 1": under(lambda w, r: r.x.T @ w == r.x.T @ np.ones(r.n)),
    "norm_inf(m) <= d": under(lambda w, r: cp.norm_inf(difference(w, r)) <= 0.4),
    "norm(m) <= d": under(lambda w, r: cp.norm(difference(w, r)) <= 0.4),
    "norm1(m) <= d": under(lambda w, r: cp.norm1(difference(w, r)) <= 0.4),
    "norm(m, 3) <= d": under(lambda w, r: cp.norm(difference(w, r), 3) <= 0.4),
    "one side": under(lambda w, r: difference(w, r) <= 0.1),
    "two sides": under(
        lambda w, r: difference(w, r) <= 0.1, lambda w, r: difference(w, r) >= -TOLERANCES
    ),
}

LINEAR: dict[str, Function] = {
    "sum_squares(w - d)": minimized(lambda w, r: cp.sum_squares(w - r.y) + balance(w, r)),
    "c @ w": of(lambda w, r: 3 * r.y @ w + balance(w, r)),
    "sum(multiply)": of(
        lambda w, r: cp.sum(cp.multiply(r.numbers("c", lambda x, a, y: x[1], -1, 1), w))
    ),
    "treatment @ w": of(lambda w, r: r.treatment @ w),
    "beta @ x.T @ w": of(lambda w, r: TOLERANCES @ (r.x.T @ w)),
}


def design(x: Any, a: int, y: float) -> Any:
    return min(max(1 + x[0], 0.5), 2.0)


def by_design(x: Any, a: int, y: float) -> Any:
    return design(x, a, y) * x


def designed(r: Any) -> Any:
    return r.numbers("design", design, 0.5, 2.0)


def positive(r: Any) -> Any:
    return r.numbers("base", lambda x, a, y: 1 + x[0] / 2, 0.5, 2.0)


BASES: dict[str, Function] = {
    "kl_div(w, d)": minimized(lambda w, r: cp.sum(cp.kl_div(w, positive(r))) + balance(w, r)),
    "kl_div(2 w, 3 d)": minimized(
        lambda w, r: cp.sum(cp.kl_div(2 * w, 3 * positive(r))) + balance(w, r)
    ),
    "design weights": minimized(
        lambda w, r: (
            cp.sum(cp.kl_div(w, designed(r)))
            + cp.sum_squares(r.x.T @ w - cp.sum(r.rows("weighted", by_design, Ball(3.0)), axis=0))
            / r.n
        )
    ),
    "kl_div(d, w)": minimized(lambda w, r: cp.sum(cp.kl_div(positive(r), w)) + balance(w, r)),
    "rel_entr(w, d)": minimized(lambda w, r: cp.sum(cp.rel_entr(w, positive(r))) + cp.sum(w)),
    "rel_entr(d, w)": minimized(
        lambda w, r: 2 * cp.sum(cp.rel_entr(positive(r), w)) + balance(w, r)
    ),
}

KERNELS: dict[str, Function] = {
    "pooled": of(lambda w, r: cp.sum_squares(pooled(w, r))),
    "three ways": of(
        lambda w, r: (
            cp.sum_squares(
                r.features(Energy(), "treated").T @ w - cp.sum(r.features(Energy()), axis=0) / 2
            )
            + cp.sum_squares(r.features(Energy(), "signed").T @ w)
        )
    ),
    "by arm": of(lambda w, r: cp.sum_squares(r.features(Gaussian(1.0), "by_arm").T @ w / r.n)),
    "norm": of(lambda w, r: cp.norm(2 * r.features(Gaussian(1.0), "controls").T @ w)),
    "two kernels": of(
        lambda w, r: cp.sum_squares(
            cp.hstack(
                [r.features(Gaussian(1.0)).T @ w, 2 * (r.features(Gaussian(2.0)).T @ w), r.x.T @ w]
            )
        )
    ),
}

READ = {
    f"{kind}: {name}": function
    for kind, table in {
        "dispersion": DISPERSIONS,
        "imbalance": IMBALANCES,
        "mean": MEANS,
        "price": PRICES,
        "set": SETS,
        "linear": LINEAR,
        "base": BASES,
        "kernel": KERNELS,
    }.items()
    for name, function in table.items()
}
