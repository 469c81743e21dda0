"""The figures of the first page: ``python doors.py``, in seconds."""

from __future__ import annotations

import argparse
from pathlib import Path

import cvxpy as cp
import numpy as np

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.plan.predict import planned_range
from dp2erm_cvx.problems.overlap import overlap
from dp2erm_cvx.program import scheme
from dp2erm_cvx.report.figures import BLUE, COLORS, ORANGE, new_figure, plain, save
from dp2erm_cvx.solve import SCS, Clarabel, Newton, OwnSolver, ProjectedGradient, solve
from dp2erm_cvx.solve.solvers import compiled_for

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


def chain_figure(folder: Path, n: int = 1000, p: int = 5) -> dict[str, float]:
    """One program from its declaration to its noise. Returns the numbers that are drawn."""
    program = overlap()
    instance = program.instance(records(n, p))
    data = compiled_for(instance, "clarabel").problem.get_problem_data(cp.CLARABEL)[0]
    solution = solve(instance, solver="clarabel")
    plan = PrivateTwoStageERM(DOMAIN, Budget(epsilon=1.0), program, "arm_means").plan(n, p)
    noise, V = plan.main.calibration, plan.bound.V
    (rows, columns), radius = data["A"].shape, solution.certificate.relative_radius
    effect = planned_range(plan).effect
    texts = {
        "declaration": [
            program.formula.split(",")[0],
            program.formula.split(";")[1].strip(),
            f"overlap weights, mu = {program.resolve(DOMAIN.space).ridge:g}, n = {n:,}, p = {p}",
        ],
        "canonical data": [
            f"A: {rows:,} x {columns:,}, {data['A'].nnz:,} nonzeros",
            f"{data['dims'].exp:,} exponential cones",
            "a quadratic objective",
        ],
        "certificate": [
            f"weights by {solution.solver}, polished:",
            f"error at most {radius:.0e} n, proved",
            f"a release needs {plan.main.tolerance:.0e} n",
        ],
        "V": [
            "weights of neighbors differ",
            f"by at most V = {V:.1f} of 2n = {2 * n:,}",
            plan.bound.theorem.split(" (")[0],
        ],
        "noise": [
            f"epsilon 1: norm of scale {noise.scale:.1f},",
            f"and a ridge gamma of {noise.gamma:.2f}",
            f"95 % within {effect:.2f} in the effect",
        ],
    }
    figure = new_figure(5.4, 6.6)
    figure.set_layout_engine("none")
    for row, (name, lines) in enumerate(texts.items()):
        top = 0.985 - 0.2 * row
        figure.text(0.02, top, name, weight="bold", va="top", color=BLUE)
        for k, line in enumerate(lines):
            font = {"family": "monospace", "size": 8.5} if row == 0 and k < 2 else {"size": 9.5}
            figure.text(0.02, top - 0.036 - 0.031 * k, line, va="top", fontdict=font)
        if row:
            figure.text(
                0.1, top + 0.045, "\u2193", va="center", ha="center", fontsize=15, color="0.5"
            )
    axes = {
        name: figure.add_axes((0.66, 0.858 - 0.2 * row, 0.31, 0.124))
        for row, name in enumerate(texts)
    }
    center = {"ha": "center", "va": "center", "fontsize": 8}
    s = np.linspace(-3.0, 3.0, 101)
    axes["declaration"].plot(s, np.log1p(np.exp(-s)), color=BLUE)
    axes["declaration"].plot(s, -np.log1p(np.exp(s)), color=ORANGE)
    axes["declaration"].text(-2.9, 1.3, "loss", color=BLUE, fontsize=9)
    axes["declaration"].text(-2.9, -1.4, "log weight", color=ORANGE, fontsize=9)
    axes["declaration"].set(xlabel="s", yticks=[-3, 0, 3])
    axes["canonical data"].spy(
        data["A"], markersize=0.3, color=BLUE, aspect="auto", rasterized=True
    )
    axes["canonical data"].set(xticks=[], yticks=[])
    axes["certificate"].axvspan(plan.main.tolerance, 1.0, color=ORANGE, alpha=0.35)
    axes["certificate"].plot([radius], [0.5], "o", color=BLUE)
    axes["certificate"].text(
        0.82, 0.5, "uncertified", transform=axes["certificate"].transAxes, **center
    )
    axes["certificate"].set(xscale="log", xlim=(1e-16, 1.0), ylim=(0, 1), xlabel="error / n")
    axes["certificate"].set(xticks=[1e-16, 1e-11, 1e-6], yticks=[])
    sizes = np.array([10, 30, 100, 300, 1000, 3000, 10_000])
    axes["V"].plot(sizes, 2 * sizes, color="0.6")
    axes["V"].plot(
        sizes, [program.stability(Universe(DOMAIN, int(k), p)).V for k in sizes], color=BLUE
    )
    axes["V"].plot([n], [V], "o", color=BLUE)
    axes["V"].text(90, 900, "2n", color="0.4", fontsize=9)
    axes["V"].set(xscale="log", yscale="log", xlabel="n", xticks=[10, 1000], yticks=[10, 1000])
    size = np.linspace(0.0, 8 * noise.scale, 200)
    axes["noise"].fill_between(size, size * np.exp(-size / noise.scale), color=ORANGE, alpha=0.35)
    axes["noise"].set(xlabel="norm of the noise", yticks=[], ylim=(0, None), xlim=(0, None))
    for ax in axes.values():
        ax.tick_params(labelsize=8, pad=2)
        ax.minorticks_off()
        ax.xaxis.set_label_coords(0.5, -0.25)
        ax.xaxis.label.set_size(8)
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, folder / "door_chain.svg")
    return {"radius": radius, "V": V, "scale": noise.scale, "effect": effect}


def scheme_figure(folder: Path, n: int = 24) -> float:
    """Weights of two neighbors; the shaded area is the movement V. Returns it."""
    moved = n - 2
    w, other = (
        solve(matching().instance(own)).value for own in (records(n), records(n, moved=moved))
    )
    low, high = np.minimum(w, other), np.maximum(w, other)
    low[moved], high[moved] = 0.0, w[moved] + other[moved]
    V, bound = float(np.sum(high - low)), matching().stability(Universe(DOMAIN, n, 1)).V
    figure = new_figure(5.4, 3.0)
    ax, edges = figure.subplots(), np.arange(n + 1) + 0.5
    ax.stairs(high, edges, baseline=low, fill=True, color=ORANGE, alpha=0.35, label="movement")
    ax.stairs(other, edges, baseline=None, color=ORANGE, label="weights after the change")
    ax.stairs(w, edges, baseline=None, color=BLUE, label="weights before")
    ax.text(moved + 0.3, 1.7, "changed record", ha="right", va="center")
    ax.set(
        xlabel="record",
        ylabel="weight",
        xlim=(0.5, n + 0.5),
        ylim=(0, 2.1),
        yticks=[0, 0.5, 1, 1.5, 2],
    )
    ax.set_title(
        f"The area is {V:.1f}; it is at most V = {bound:.1f} (2n = {2 * n})", loc="left", size=10
    )
    plain(ax)
    ax.legend(frameon=False, loc="upper left")
    save(figure, folder / "door_scheme.svg")
    return V / bound


def audit_figure(folder: Path, most: int = 10_000, n: int = 100) -> float:
    """The largest movement reached against the neighbors tried. Returns its share of the bound."""
    universe, tried = (
        Universe(DOMAIN, n, 2),
        [k for k in (10, 30, 100, 300, 1000, 3000, 10_000) if k <= most],
    )
    audits = [
        audit_stability(matching(), None, universe, search=SearchPlan(evaluations=k, seed=0))
        for k in tried
    ]
    bound, largest = (
        matching().stability(universe).V,
        [audit.verdicts[0].movement.low for audit in audits],
    )
    figure = new_figure(5.4, 3.0)
    ax = figure.subplots()
    ax.plot(tried, largest, "o-", color=BLUE)
    ax.text(tried[0], largest[0] - 0.3, "largest movement reached", va="top", color=BLUE)
    for level, style, text in (
        (bound, "-", "the bound, V"),
        (bound / 2, ":", "a planted error, V / 2"),
    ):
        ax.axhline(level, color=ORANGE, linestyle=style)
        ax.text(
            tried[-1], level + 0.2, f"{text} = {level:.1f}", color=ORANGE, ha="right", va="bottom"
        )
    ax.set(xlabel="neighbors tried", ylabel="movement", xscale="log", ylim=(0, 1.15 * bound))
    plain(ax)
    save(figure, folder / "door_audit.svg")
    return largest[-1] / bound


def solver_figure(folder: Path, n: int = 60) -> list[tuple[str, float, float]]:
    """Draw claimed against true errors of solvers, and return (solver, true, claimed) of each."""
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
            solution = solve(instance, solver=solver, polish=False, throw=False)
            true = float(np.sum(np.abs(solution.value - exact))) / n
            points.append((name, max(true, 1e-15), solution.certificate.relative_radius))
    figure = new_figure(5.4, 3.6)
    ax, decades = figure.subplots(), 10.0 ** np.arange(-15, 1, 3)
    for name, marker, color in zip(tried, "osD^X", COLORS[1:], strict=False):
        own = np.array([point[1:] for point in points if point[0] == name])
        ax.plot(*own.T, marker, label=name, color=color)
    ax.fill_between([1e-16, 10.0], [1e-16, 10.0], 1e-16, color="0.93")
    ax.text(1e-5, 1e-9, "claim below the truth: none", color="0.3", ha="center")
    ax.set(
        xscale="log",
        yscale="log",
        xlim=(3e-16, 10.0),
        ylim=(3e-16, 10.0),
        xticks=decades,
        yticks=decades,
    )
    ax.set(xlabel="true error of the weights, relative", ylabel="claimed by the certificate")
    plain(ax)
    ax.set_axisbelow(True)
    ax.legend(frameon=False, loc="upper left")
    save(figure, folder / "door_solver.svg")
    return points


def _zeros(problem) -> None:
    for variable in problem.variables():
        variable.value = np.zeros(variable.shape)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="A short search.")
    parser.add_argument("--folder", type=Path, default=STATIC)
    args = parser.parse_args()
    print(", ".join(f"{name} {number:.3g}" for name, number in chain_figure(args.folder).items()))
    print(f"scheme: {scheme_figure(args.folder):.2f} of the bound")
    print(f"audit: {audit_figure(args.folder, 300 if args.quick else 10_000):.2f} of the bound")
    for name, true, claimed in solver_figure(args.folder):
        print(f"{name:20} true {true:.1e} claimed {claimed:.1e}")
