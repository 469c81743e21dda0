"""Whole fits at growing numbers of records: seconds beside one fit of scikit-learn, and memory."""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array

#: Covariates of every record.
WIDTH = 20
LOGISTIC = "scikit-learn newton-cholesky"
#: Limits of seconds, in fits of scikit-learn, of memory, in tables of covariates, and of the slope.
LIMITS = {
    "IPW effect": 2.0,
    "entropy balancing effect": 4.0,
    "default PrivateEffect, no check": 6.0,
    "default PrivateEffect": 6.6,
    "default PrivateRule": 5.0,
}
PEAK_LIMIT, SLOPE_LIMIT = 3.0, 1.05

Raw = tuple[Array, NDArray[np.int64], Array]
#: The norm of the mean gradient at the fit, where one is stated: evaluated when the clock has
#: stopped.
Gradient = Callable[[], float | None]


@dataclass(frozen=True)
class ScaleRow:
    """One contender at one n: CPU seconds, also in fits of scikit-learn, and peak memory.

    ``gradient`` is the norm of the mean gradient of a logistic regression at its solution. ``peak``
    is beyond what the process holds before it has data, and counts them.
    """

    contender: str
    n_samples: int
    seconds: float
    ratio: float
    peak: float | None
    gradient: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)


def drawn(n_samples: int) -> Raw:
    """Uniform covariates, a logistic propensity and an effect that one of them moves."""
    rng = np.random.default_rng(0)
    X = rng.random((n_samples, WIDTH))
    X *= 2.0
    X -= 1.0
    a = (rng.random(n_samples) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(np.int64)
    return X, a, X[:, 0] + a * X[:, 1] + 0.5 * rng.standard_normal(n_samples)


def _logistic(X: Array, a: NDArray[np.int64], y: Array) -> Gradient:
    from sklearn.linear_model import LogisticRegression

    fit = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10).fit(X, a)

    def gradient() -> float:
        residual = 1.0 / (1.0 + np.exp(-X @ fit.coef_[0] - fit.intercept_[0])) - a
        return float(np.linalg.norm(X.T @ residual + fit.coef_[0])) / len(a)

    return gradient


def _two_stages(first: str) -> Callable[[Array, NDArray[np.int64], Array], Gradient]:
    def fit(X: Array, a: NDArray[np.int64], y: Array) -> Gradient:
        from dp2erm_cvx import PrivateTwoStageERM

        model = PrivateTwoStageERM(*_declared(), first_stage=first, second_stage="arm_means").fit(
            X, a, y
        )
        coefficient = model.private_workings_.propensity
        if coefficient is None or coefficient.solution is None:
            return _unknown
        certificate = coefficient.solution.certificate
        return lambda: certificate.dual_residual / len(a)

    return fit


def _effect(X: Array, a: NDArray[np.int64], y: Array) -> Gradient:
    from dp2erm_cvx import PrivateEffect

    PrivateEffect(*_declared()).fit(X, a, y)
    return _unknown


def _unchecked_effect(X: Array, a: NDArray[np.int64], y: Array) -> Gradient:
    from dp2erm_cvx import Dataset, PrivateEffect

    PrivateEffect(*_declared()).fit_announced(Dataset.from_arrays(X, a, y))
    return _unknown


def _rule(X: Array, a: NDArray[np.int64], y: Array) -> Gradient:
    from dp2erm_cvx import PrivateRule

    PrivateRule(*_declared()).fit(X, a, y)
    return _unknown


def _unknown() -> None:
    """Several regressions have no gradient in common."""


def _declared() -> tuple[Any, Any]:
    from dp2erm_cvx import Budget, Domain

    return Domain(covariate_bound=math.sqrt(WIDTH), outcome_bound=4.0), Budget(2.0)


CONTENDERS: dict[str, Callable[[Array, NDArray[np.int64], Array], Gradient]] = {
    LOGISTIC: _logistic,
    "IPW effect": _two_stages("ipw_private"),
    "entropy balancing effect": _two_stages("entropy_balancing"),
    "default PrivateEffect, no check": _unchecked_effect,
    "default PrivateEffect": _effect,
    "default PrivateRule": _rule,
}


def measure_scale(sizes: Sequence[int], rounds: int, *, apart: bool = True) -> list[ScaleRow]:
    """All contenders at all sizes, in turns.

    With ``apart`` each round of each contender runs in a process of its own.
    """
    seconds: dict[tuple[str, int], list[float]] = {}
    peaks: dict[str, list[float]] = {}
    gradients: dict[tuple[str, int], float | None] = {}
    for _ in range(rounds):
        for name in CONTENDERS:
            words = [sys.executable, __file__, name, *map(str, sizes)]
            if apart:
                text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
            run = json.loads(text) if apart else _alone(name, sizes)
            peaks.setdefault(name, []).append(run["peak"])
            for n, taken, gradient in zip(sizes, run["seconds"], run["gradients"], strict=True):
                seconds.setdefault((name, n), []).append(taken)
                gradients[name, n] = gradient
    least = {key: median(taken) for key, taken in seconds.items()}
    return [
        ScaleRow(
            name,
            n,
            least[name, n],
            least[name, n] / least[LOGISTIC, n],
            # the largest size comes last, and a process does not give back what it held
            median(peaks[name]) if n == max(sizes) else None,
            gradients[name, n],
        )
        for n in sizes
        for name in CONTENDERS
    ]


def slopes(rows: Sequence[ScaleRow]) -> dict[str, float]:
    """Slopes of the logarithm of seconds in that of n, by contender."""
    out = {}
    for name in CONTENDERS:
        own = [
            (math.log(row.n_samples), math.log(row.seconds))
            for row in rows
            if row.contender == name
        ]
        out[name] = float(np.polyfit(*zip(*own, strict=True), 1)[0])
    return out


def draw_growth(rows: Sequence[ScaleRow], path: str | Path) -> None:
    """Seconds against n, one curve per contender."""
    from dp2erm_cvx.report.figures import COLORS, new_figure, plain, save

    figure = new_figure(7.7, 4.2)
    ax = figure.subplots()
    for name, color in zip(CONTENDERS, COLORS, strict=False):
        own = [(row.n_samples, row.seconds) for row in rows if row.contender == name]
        ax.loglog(
            *zip(*own, strict=True), "o-", color=color, label=name, markersize=4, linewidth=1.4
        )
    ax.set(xlabel="records n", ylabel="CPU seconds, one thread")
    plain(ax)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    save(figure, path)


def _peak() -> int:
    """Bytes that this process has held at most; what its parent held counts elsewhere."""
    status = Path("/proc/self/status")
    if status.exists():
        own = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(own[0].split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _alone(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Seconds and gradients by size, and the peak over the largest table of covariates."""
    contender, seconds, gradients = CONTENDERS[name], list[float](), list[float | None]()
    contender(*drawn(500))  # whatever is imported or made once
    before = most = _peak()
    for n in sizes:
        raw = drawn(n)
        # one thread: what an idle machine takes, whoever else is busy on it
        began = time.process_time()
        gradient = contender(*raw)
        seconds.append(time.process_time() - began)
        most = _peak()
        gradients.append(gradient())
        del raw, gradient
    return {
        "seconds": seconds,
        "gradients": gradients,
        "peak": (most - before) / (8 * WIDTH * max(sizes)),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(_alone(sys.argv[1], [int(number) for number in sys.argv[2:]])))
