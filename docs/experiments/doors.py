"""The three figures of the first page: ``python doors.py``, in seconds."""

from __future__ import annotations

import argparse
from pathlib import Path

import cvxpy as cp
import numpy as np

from dp2erm_cvx import Domain, Universe
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.plotting.figure import BLUE, ORANGE, new_figure, save
from dp2erm_cvx.program import scheme
from dp2erm_cvx.solve import SCS, Clarabel, Newton, OwnSolver, ProjectedGradient, solve

STATIC = Path(__file__).parents[1] / "_static"
DOMAIN = Domain(covariate_bound=1.0, outcome_bound=1.0)


@scheme.separable(ridge=0.1, radius=2.0)
def matching(s):
    """Matching weights (Li & Greene 2013): min(p, 1 - p) over the propensity of the own arm."""
    return cp.logistic(-s), cp.minimum(-s, 0)


def records(n: int, p: int = 1, moved: int | None = None):
    """Records sorted by their first covariate, those with a large one mostly treated."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1.0, 1.0, (n, p)) / np.sqrt(p)
    X = X[np.argsort(X[:, 0])]
    a = (rng.uniform(size=n) < 1 / (1 + np.exp(-3 * X[:, 0]))).astype(int)
    if moved is not None:
        X[moved] = -X[moved]
    return DOMAIN.records(X, a, np.zeros(n))


def scheme_figure(folder: Path, n: int = 24) -> float:
    """Weights of two neighbors; the shaded area is the movement V. Returns it."""
    moved = n - 2
    w, other = (solve(matching().instance(found)).value for found in (records(n), records(n, moved=moved)))
    low, high = np.minimum(w, other), np.maximum(w, other)
    low[moved], high[moved] = 0.0, w[moved] + other[moved]
    V, bound = float(np.sum(high - low)), matching().stability(Universe(DOMAIN, n, 1)).V
    figure = new_figure(6.2, 3.0)
    ax, edges = figure.subplots(), np.arange(n + 1) + 0.5
    ax.stairs(high, edges, baseline=low, fill=True, color=ORANGE, alpha=0.35, label="movement V")
    ax.stairs(w, edges, color=BLUE, label="weights")
    ax.stairs(other, edges, color=ORANGE, label="weights after the change")
    ax.annotate("changed", (moved + 1, high[moved]), (moved - 5, high[moved]), arrowprops={"arrowstyle": "-"})
    ax.set(xlabel="record", ylabel="weight", xlim=(0.5, n + 0.5))
    ax.set_title(
        f"The area is V = {V:.1f}; the bound is {bound:.1f} of {2 * n}", loc="left", fontsize="medium"
    )
    _finish(ax)
    save(figure, folder / "door_scheme.svg")
    return V / bound


def audit_figure(folder: Path, most: int = 10_000, n: int = 100) -> float:
    """The largest movement reached against the neighbors tried. Returns its share of the bound."""
    universe, tried = Universe(DOMAIN, n, 2), [k for k in (10, 30, 100, 300, 1000, 3000, 10_000) if k <= most]
    audits = [
        audit_stability(matching(), None, universe, search=SearchPlan(evaluations=k, seed=0)) for k in tried
    ]
    bound, met = matching().stability(universe).V, [audit.verdicts[0].movement.low for audit in audits]
    figure = new_figure(6.2, 3.0)
    ax = figure.subplots()
    ax.plot(tried, met, "o-", color=BLUE, label="largest movement reached")
    ax.axhline(bound, color=ORANGE, label=f"bound, V = {bound:.1f}")
    ax.axhline(bound / 2, color=ORANGE, linestyle=":", label="V / 2, a planted error")
    ax.set(xlabel="neighbors tried", ylabel="movement", xscale="log", ylim=(0, 1.1 * bound))
    _finish(ax)
    save(figure, folder / "door_audit.svg")
    return met[-1] / bound


def solver_figure(folder: Path, n: int = 60) -> list[tuple[str, float, float]]:
    """Claimed against true error of whatever solvers return. Returns (solver, true, claimed) of each."""
    instance = matching(ridge=0.01).instance(records(n, 5))
    exact = solve(instance).value
    tried = {
        "clarabel": [Clarabel(tol=10.0**-k) for k in (2, 4, 6, 8, 10)],
        "scs": [SCS(eps=10.0**-k) for k in (1, 2, 3, 4, 6, 8)],
        "projected gradient": [ProjectedGradient(k) for k in (1, 3, 10, 30, 100)],
        "Newton": [Newton(k) for k in (1, 2, 3, 4)],
        "zeros": [OwnSolver(_zeros, "zeros")],
    }
    points = []
    for name, settings in tried.items():
        for solver in settings:
            found = solve(instance, solver=solver, polish=False, throw=False)
            true = float(np.sum(np.abs(found.value - exact))) / n
            points.append((name, max(true, 1e-15), found.certificate.relative_radius))
    figure = new_figure(6.2, 3.4)
    ax = figure.subplots()
    for name, marker in zip(tried, "osD^x", strict=True):
        own = np.array([point[1:] for point in points if point[0] == name])
        ax.plot(*own.T, marker, label=name, markersize=5)
    ax.plot([1e-15, 2.0], [1e-15, 2.0], color="0.6", linewidth=0.8)
    ax.text(1e-5, 2e-8, "below the line: never", color="0.4", fontsize="small")
    ax.set(
        xscale="log", yscale="log", xlabel="true error of the weights", ylabel="claimed by the certificate"
    )
    _finish(ax)
    save(figure, folder / "door_solver.svg")
    return points


def _zeros(problem) -> None:
    for variable in problem.variables():
        variable.value = np.zeros(variable.shape)


def _finish(ax) -> None:
    ax.grid(color="0.9", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="A short search.")
    parser.add_argument("--folder", type=Path, default=STATIC)
    asked = parser.parse_args()
    print(f"scheme: {scheme_figure(asked.folder):.2f} of the bound")
    print(f"audit: {audit_figure(asked.folder, 300 if asked.quick else 10_000):.2f} of the bound")
    for name, true, claimed in solver_figure(asked.folder):
        print(f"{name:20} true {true:.1e} claimed {claimed:.1e}")
