"""Neighbors of programs that an author writes: together, one by one, and in a loop of CVXPY."""

from __future__ import annotations

import sys
import time
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd

from dp2erm_cvx import Domain
from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.neighbors import Neighborhood, Replacements
from dp2erm_cvx.program import FirstStage, Gaussian, scheme
from dp2erm_cvx.solve import solve

#: Moments that are balanced.
MOMENTS = 5
#: Records, and the neighbors that are solved together; one by one and in the loop there are fewer.
SIZES = {100: 4000, 400: 2000, 2000: 512}
_SINGLE = 20
#: CPU seconds over which common steps are repeated, the fastest of which counts.
_REPEATS = 3


def entropy_cap(w: cp.Variable, m: Any, n: int) -> cp.Problem:
    """Entropies and squares of the imbalance m, weights at most 3."""
    objective = 5 * cp.sum_squares(m) / n - cp.sum(cp.entr(w))
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == n, w >= 0, w <= 3])


def least_dispersion(w: cp.Variable, m: Any, n: int) -> cp.Problem:
    """Squares of the weights, and of the imbalance beyond a tolerance."""
    beyond = cp.pos(cp.abs(m) - 0.02 * n)
    objective = cp.sum_squares(w - 1) / 2 + 5 * cp.sum_squares(beyond) / n
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == n, w >= 0])


def logit(w: cp.Variable, m: Any, n: int) -> cp.Problem:
    """The logit distance on weights from 0.1 to 4."""
    entropies = cp.sum(cp.entr(w - 0.1)) + cp.sum(cp.entr(4 - w))
    return cp.Problem(cp.Minimize(5 * cp.sum_squares(m) / n - entropies), [cp.sum(w) == n])


def kernel_squares(w: cp.Variable, m: Any, n: int) -> cp.Problem:
    """Squares of the weights, and of the imbalance of features of a kernel."""
    objective = cp.sum_squares(w - 1) / 2 + 5 * cp.sum_squares(m) / n
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == n, w >= 0])


def kernel_entropy(w: cp.Variable, m: Any, n: int) -> cp.Problem:
    """Entropies of the weights, and squares of the imbalance of features of a kernel."""
    objective = 5 * cp.sum_squares(m) / n - cp.sum(cp.entr(w))
    return cp.Problem(cp.Minimize(objective), [cp.sum(w) == n, w >= 0])


PROGRAMS = {
    "entropy, cap 3": entropy_cap,
    "least dispersion, tolerance": least_dispersion,
    "logit": logit,
}
#: The programs of features of a kernel, and how many of their neighbors are solved alone.
KERNEL, OF_KERNEL = Gaussian(1.0), "Gaussian kernel, squares"
KERNEL_ENTROPY = "Gaussian kernel, entropy"
OF_KERNELS = {OF_KERNEL: kernel_squares, KERNEL_ENTROPY: kernel_entropy}
_SINGLE_OF_KERNEL = 5
#: The most records of these, of which CVXPY takes a minute for 2,000.
_MOST_OF_KERNEL = 400


def declared(name: str) -> FirstStage:
    """The program of the library."""

    def own(w: cp.Variable, records: Any) -> cp.Problem:
        if name in OF_KERNELS:
            return OF_KERNELS[name](w, records.features(KERNEL, "signed").T @ w, records.n)
        return PROGRAMS[name](w, records.signed.T @ w, records.n)

    program: FirstStage = scheme(own)()
    return program


def drawn(n: int, m: int, seed: int = 0) -> Replacements:
    """Confounded records, and replaced ones."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(n + m, MOMENTS))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1) / 0.99)[:, None]
    a = (generator.uniform(size=n + m) < 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))).astype(np.int64)
    records = Domain(1.0, 1.0).records(X[:n], a[:n], np.zeros(n))
    return Replacements(records, generator.integers(0, n, m), X[n:], a[n:])


def signed(records: Records, name: str) -> Array:
    """Covariates, or features of the kernel, of the treated, and minus those of the controls."""
    features = KERNEL.features(records.covariates) if name in OF_KERNELS else records.covariates
    return np.where(records.a[:, None] == 1, 1.0, -1.0) * features


class Loop:
    """One problem with a parameter, as a researcher would write it, solved by Clarabel."""

    def __init__(self, name: str, n: int) -> None:
        w = cp.Variable(n)
        self.w = w
        self.name = name
        self.n = n
        self.rows = cp.Parameter((n, MOMENTS))
        self.problem = None if name in OF_KERNELS else PROGRAMS[name](w, self.rows.T @ w, n)

    def weights(self, records: Records) -> Array:
        """Weights (n,) of a dataset; the n features of a kernel are too many for a parameter."""
        problem = self.problem
        rows = signed(records, self.name)
        if problem is None:
            problem = OF_KERNELS[self.name](self.w, rows.T @ self.w, self.n)
        else:
            self.rows.value = rows
        problem.solve(solver=cp.CLARABEL)
        return np.asarray(self.w.value)


def measured(name: str, n: int, m: int) -> dict[str, str]:
    """Neighbors per CPU second on the same neighbors."""
    part = drawn(n, m)
    program = declared(name).at(MappedUniverse(part.base.space, n, MOMENTS))
    began = time.process_time()
    neighborhood = Neighborhood(program, part.base)
    list(neighborhood.solve(part.take(0, 2)))
    shared = time.process_time() - began
    seconds = []
    for _ in range(_REPEATS):
        began = time.process_time()
        chunks = list(neighborhood.solve(part))
        seconds.append(time.process_time() - began)
    together = m / min(seconds)
    radius = max(float(np.max(chunk.radius)) for chunk in chunks)
    weights = chunks[0].values[0]
    few = min(_SINGLE_OF_KERNEL if name in OF_KERNELS else _SINGLE, m)
    began = time.process_time()
    for k in range(few):
        solve(program.instance(part.neighbor(k)))
    alone = few / (time.process_time() - began)
    loop = Loop(name, n)
    loop.weights(part.base)
    began = time.process_time()
    apart = 0.0
    for k in range(few):
        apart = max(apart, float(np.sum(np.abs(loop.weights(part.neighbor(k)) - weights[k]))))
    in_loop = few / (time.process_time() - began)
    return {
        "program": name,
        "n": f"{n:,}",
        "together": f"{together:,.0f}",
        "one by one": f"{alone:,.0f}",
        "CVXPY loop": f"{in_loop:,.0f}",
        "over one by one": f"{together / alone:,.0f}",
        "over the loop": f"{together / in_loop:,.0f}",
        "shared": f"{1000 * shared:.0f} ms",
        "certified error": f"{radius / n:.0e}",
        "loop's error": f"{apart / n:.0e}",
        "alone": str(sum(int(np.sum(chunk.by_single)) for chunk in chunks)),
    }


def main() -> None:
    """Print the table of the page; run it with one thread of BLAS."""
    sizes = {100: 50} if "--quick" in sys.argv else SIZES
    rows = []
    for name in (*PROGRAMS, *OF_KERNELS):
        most = _MOST_OF_KERNEL if name in OF_KERNELS else max(sizes)
        rows += [measured(name, n, m) for n, m in sizes.items() if n <= most]
    print(pd.DataFrame(rows).to_markdown(index=False, disable_numparse=True))


if __name__ == "__main__":
    main()
