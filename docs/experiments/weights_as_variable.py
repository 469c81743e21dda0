"""V of shipped first stages, by their own theorems and as problems in the weights.

A second table has the imbalance that is left.

``python weights_as_variable.py`` prints two tables as CSV. Covariates have norms of at most 1, arms
at least a fifth of the records. Where weights are found, the log odds of treatment are three times
a covariate.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.kernel_mean_matching import kernel_mean_matching
from dp2erm_cvx.problems.mmd import energy_balancing, mmd, mmd_pooled
from dp2erm_cvx.problems.stable_balancing import stable_balancing
from dp2erm_cvx.program import FirstStage, scheme
from dp2erm_cvx.program.kernels import Energy, Gaussian, Kernel, Linear, PublicSample
from dp2erm_cvx.solve import solve

P = 5
#: Ridges of shipped programs: None is the default.
RIDGES = (None, 0.1, 0.01)
CAP = 3.0
#: Every covariate of a public population of one record, which kernel mean matching aims at.
TARGET = 0.2
POPULATION = PublicSample(np.full((1, P), TARGET))
#: A program of the library at a ridge.
Shipped = Callable[[float | None], FirstStage]
#: The same problem in the weights, at a ridge and a cap.
Declared = Callable[[float, float], FirstStage]


def boxed(w: cp.Variable, cap: float) -> list[cp.Constraint]:
    """Weights from 0 to the cap, which may be infinite."""
    if math.isinf(cap):
        return [w >= 0]
    return [w >= 0, w <= cap]


def moments_by_arm(w: cp.Variable, records: Any) -> cp.Expression:
    """Sums of (1, x) over each arm, less half of those over all records."""
    half = cp.hstack([records.n / 2, cp.sum(records.x, axis=0) / 2])
    return records.by_arm(1.0).T @ w - cp.hstack([half, half])


def entropy(ridge: float, cap: float) -> FirstStage:
    """Entropy balancing with equal arm mass, in its primal form."""

    @scheme()
    def declared_entropy(w: cp.Variable, records: Any) -> cp.Problem:
        imbalance = moments_by_arm(w, records) / records.n
        price = records.n / (2 * ridge) * cp.sum_squares(imbalance)
        return cp.Problem(
            cp.Minimize(-cp.sum(cp.entr(w)) + price), [cp.sum(w) == records.n, *boxed(w, cap)]
        )

    return declared_entropy()


def stable(ridge: float, cap: float) -> FirstStage:
    """Stable balancing, its imbalance penalized."""

    @scheme()
    def declared_stable(w: cp.Variable, records: Any) -> cp.Problem:
        price = cp.sum_squares(moments_by_arm(w, records))
        squares = records.n * ridge * cp.sum_squares(w)
        return cp.Problem(cp.Minimize(squares + price), [cp.sum(w) == records.n, *boxed(w, cap)])

    return declared_stable()


def three_ways(kernel: Kernel, pooled: bool) -> Declared:
    """Kernel balance of both arms to all records and to each other.

    Each arm has half of the weight unless they are pooled.
    """

    def made(ridge: float, cap: float) -> FirstStage:
        @scheme()
        def declared_kernel(w: cp.Variable, records: Any) -> cp.Problem:
            half = cp.sum(records.features(kernel), axis=0) / 2
            controls = cp.sum_squares(records.features(kernel, "controls").T @ w - half)
            treated = cp.sum_squares(records.features(kernel, "treated").T @ w - half)
            apart = cp.sum_squares(records.features(kernel, "signed").T @ w)
            squares = records.n * ridge * cp.sum_squares(w)
            objective = squares + (controls + treated + apart) / 2
            sums = cp.sum(w) == records.n if pooled else records.arms.T @ w == records.n / 2
            return cp.Problem(cp.Minimize(objective), [sums, *boxed(w, cap)])

        return declared_kernel()

    return made


def matching(ridge: float, cap: float) -> FirstStage:
    """Kernel mean matching to a public sample with the kernel ``1 + <x, x'>``.

    The kernel matches means and a constant.
    """

    @scheme()
    def declared_matching(w: cp.Variable, records: Any) -> cp.Problem:
        price = cp.sum_squares(records.x.T @ w - records.n * TARGET)
        squares = records.n * ridge * cp.sum_squares(w)
        return cp.Problem(cp.Minimize(squares + price), [cp.sum(w) == records.n, *boxed(w, cap)])

    return declared_matching()


#: Name, program of the library, the same in the weights, default ridge at M = 1, largest n to
#: solve.
SCHEMES: tuple[tuple[str, Shipped, Declared, float, int], ...] = (
    (
        "entropy balancing",
        lambda r: entropy_balancing(ridge=r, constant=1.0, cap=math.inf),
        entropy,
        2.0,
        10_000,
    ),
    ("stable balancing", lambda r: stable_balancing(ridge=r, constant=1.0), stable, 2.0, 10_000),
    ("mmd", lambda r: mmd(ridge=r or 1.0), three_ways(Gaussian(), False), 1.0, 400),
    ("mmd pooled", lambda r: mmd_pooled(ridge=r or 1.0), three_ways(Gaussian(), True), 1.0, 400),
    (
        "energy balancing",
        lambda r: energy_balancing(ridge=r),
        three_ways(Energy(), False),
        2.0,
        400,
    ),
    (
        "kernel mean matching, means of a public target",
        lambda r: kernel_mean_matching(
            PublicSample(np.full((1, P), TARGET)), ridge=r or 1.0, kernel=Linear(1.0)
        ),
        matching,
        1.0,
        400,
    ),
)


def domain_of(n: int) -> Domain:
    """Covariates of norm at most 1, and at least a fifth of the records in each arm."""
    return Domain(1.0, 1.0, arm_floor=n // 5)


def drawn(n: int, seed: int = 0) -> Records:
    """Confounded records: the log odds of treatment are three times the first covariate."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, P)) / math.sqrt(P)
    a = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-3.0 * X[:, 0]))).astype(np.int64)
    return domain_of(n).records(X, a, np.zeros(n))


def weights_of(program: FirstStage, records: Records) -> np.ndarray:
    """Weights (n,) of a program, certified."""
    return np.asarray(solve(program.instance(records)).value)


def print_bounds(sizes: tuple[int, ...], solved: int) -> None:
    """One line for each program, ridge and n; weights are compared up to ``solved`` records."""
    print("scheme,ridge,n,V of its theorem,V in the weights,V with cap 3,distance of weights")
    for name, shipped, declared, default, largest_solved in SCHEMES:
        for ridge in RIDGES:
            own = default if ridge is None else ridge
            old = shipped(ridge)
            new = declared(own, math.inf)
            capped = declared(own, CAP)
            for n in sizes:
                universe = Universe(domain_of(n), n, P)
                bounds = [one.stability(universe).V for one in (old, new, capped)]
                distance = "-"
                if n <= min(solved, largest_solved):
                    records = drawn(n)
                    apart = np.sum(np.abs(weights_of(old, records) - weights_of(new, records)))
                    distance = f"{apart:.0e}"
                row = ",".join(f"{V:.1f}" for V in bounds)
                print(f'"{name}",{own:g},{n},{row},{distance}', flush=True)


@scheme(ridge=0.1, cap=CAP)
def least_dispersion(w: cp.Variable, records: Any, ridge: float, cap: float) -> cp.Problem:
    """Squares of weights less 1, and a price of the imbalance of both arms to each other."""
    imbalance = records.signed.T @ w / records.n
    price = records.n / (2 * ridge) * cp.sum_squares(imbalance)
    squares = cp.sum_squares(w - 1) / 2
    return cp.Problem(cp.Minimize(squares + price), [cp.sum(w) == records.n, w >= 0, w <= cap])


@scheme(ridge=0.1, cap=CAP)
def even_entropy(w: cp.Variable, records: Any, ridge: float, cap: float) -> cp.Problem:
    """Entropy of the weights, and the same price."""
    imbalance = records.signed.T @ w / records.n
    price = records.n / (2 * ridge) * cp.sum_squares(imbalance)
    return cp.Problem(cp.Minimize(-cp.sum(cp.entr(w)) + price), [cp.sum(w) == records.n, w <= cap])


def print_imbalance(n: int) -> None:
    """V beside the share of the imbalance that is left, and the effective sample size."""
    print("scheme,ridge,n,V,largest weight,imbalance left,effective size")
    records = drawn(n)
    universe = Universe(domain_of(n), n, P)
    signed = (2 * records.a - 1)[:, None] * records.covariates
    before = np.linalg.norm(np.sum(signed, axis=0))
    for name, made in (("least dispersion", least_dispersion), ("entropy", even_entropy)):
        for ridge in (0.1, 0.01, 0.003):
            program = made(ridge=ridge)
            w = weights_of(program, records)
            left = np.linalg.norm(w @ signed) / before
            effective = np.sum(w) ** 2 / np.sum(w**2) / n
            V = program.stability(universe).V
            print(
                f"{name},{ridge:g},{n},{V:.1f},{np.max(w):.2f},{left:.3f},{effective:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="at 60 records")
    quick = parser.parse_args().quick
    started = time.perf_counter()
    print_bounds((60,) if quick else (400, 10_000), 60 if quick else 10_000)
    print()
    print_imbalance(60 if quick else 4000)
    print(f"# {time.perf_counter() - started:.0f} s")
