"""Excess objective and error of the parameter against n.

Beside them stands the consistency theorem of the paper.

``python rates.py --workers 2`` takes 11 minutes. The linear scenario at one budget, and the same
with every covariate twice: half of R^p has no curvature then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from common import (
    Cell,
    Design,
    Row,
    budget_of,
    cells,
    each,
    grid,
    legend_below,
    means,
    report,
    run,
    start,
)
from figure1 import IPW, UNIFORM
from matplotlib.figure import Figure
from rules import (
    Constants,
    PlannedRule,
    RuleDeclaration,
    Weights,
    effective_share,
    first_stage,
    plan_rule,
)
from scipy import special
from scipy.stats import linregress, t

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.calibration import Calibration, utility_bound
from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.datasets import simulate
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.noise import simulate_noise
from dp2erm_cvx.report.figures import COLORS, WIDTH, new_figure, plain
from dp2erm_cvx.solve import solve

STRONG, NONE = "strongly convex", "not strongly convex"
#: Level at which the observed tail of the excess is compared with the bound.
LEVEL = 0.95
#: Pairs of noise scales: the paper's bounds against the sharp ones, then composition against direct
#: calibration, all as the paper prints them, which is what its "117 times larger" compares, and all
#: sharp.
PAIRS = (("paper", "sharp"), ("composition-printed", "paper"), ("composition-sharp", "sharp"))
FULL: Design = {
    "seed": 2604,
    "n_samples": [200, 800, 3200, 12_800, 51_200],
    "population": 400_000,  # records that stand for infinitely many
    "replicates": 20,
    "draws": 50,
    "epsilon": 1.0,
    "noises": ["gamma", "gaussian"],
    "families": ["sharp", "paper", "composition-printed"],
    "constants": Constants(
        1.5, 4.0, "l1", theta_radius=2.0
    ),  # as in the paper, of which this is a study
    "schemes": {
        "w = 1": UNIFORM,
        "IPW": {name: IPW[name] for name in ("program", "settings", "paper")},
    },
}
QUICK: Design = {
    "n_samples": [200, 800, 3200],
    "population": 20_000,
    "replicates": 2,
    "draws": 10,
    "families": ["sharp"],
}


def noise_tail(calibration: Calibration, level: float) -> float:
    """``P(||b||_2 >= level)``, rounded up.

    For box noise it is a bound, by ``||b||_2 <= ||m||_2 max |b_j|/m_j``.
    """
    ratio = max(0.0, level * (1.0 - 1e-9) / calibration.unit)
    p = calibration.n_parameters
    if calibration.noise.pure:
        tail = float(special.gammaincc(p, ratio))
    else:
        tail = float(special.gammaincc(p / 2.0, min(ratio, 1e150) ** 2 / 2.0))
    # the smallest positive number where the true tail has underflowed
    return min(1.0, max(tail * (1.0 + 1e-9), 5e-324))


@dataclass(frozen=True)
class PaperUtility:
    """Constants of Theorem utility as printed (arXiv 2602.12604), and its tails.

    With ``A = (2 rho + 3 gamma) / (2 (rho + gamma)^2)``,
    ``B = a_0 gamma (rho + 3 gamma) / (rho + gamma)^2``,
    ``C = 2 a_0^2 gamma^2 (rho + 2 gamma) / (rho + gamma)^2`` and a_0 = ``||theta_opt||`` the excess
    is at most ``A (||b||/n)^2 + B ||b||/n + C``, in units of the objective.
    """

    A: float
    B: float
    C: float

    @classmethod
    def of(cls, gamma: float, theta_norm: float, strong_convexity: float = 0.0) -> PaperUtility:
        """Constants at ``gamma`` > 0, a_0 >= 0 and rho >= 0. Raises DeclarationError."""
        g = public_number("gamma", gamma, above=0.0)
        a = public_number("theta_norm", theta_norm, at_least=0.0)
        rho = public_number("strong_convexity", strong_convexity, at_least=0.0)
        total = rho + g
        pull = a * (g / total)
        return cls(
            A=(2.0 * rho + 3.0 * g) / total / (2.0 * total),
            B=pull * ((rho + 3.0 * g) / total),
            C=2.0 * pull * pull * (rho + 2.0 * g),
        )

    def noise_level(self, excess: float) -> float:
        """D_t for t = ``excess``: it needs ``||b|| >= n D_t``. Raises DeclarationError below C.

        ``D_t = 2 (t - C) / (B + sqrt(B^2 + 4 A (t - C)))``.
        """
        t = public_number("excess", excess, at_least=0.0)
        if t < self.C:
            raise DeclarationError(f"excess = {t:g}: the theorem begins at C = {self.C:g}")
        if t == self.C:
            return 0.0
        left = t - self.C
        return 2.0 * left / (self.B + math.hypot(self.B, 2.0 * math.sqrt(self.A) * math.sqrt(left)))

    def tail(self, excess: float, n_samples: int, calibration: Calibration) -> float:
        """Printed bound on the probability of an excess of t, at most 1; 1 below C.

        Gamma noise, and box noise by its longest vectors: ``C_p exp(-beta n D_t / 2)``,
        ``C_p = e (2 (p - 1) / e)^(p - 1)`` and ``C_1 = 1``. Gaussian noise:
        ``2 exp(-(n D_t - sigma sqrt(p))_+^2 / (2 sigma^2))``. ``calibration`` has the gamma that
        the constants were computed at. Raises DeclarationError.
        """
        n = whole_number("n_samples", n_samples, at_least=1)
        if public_number("excess", excess, at_least=0.0) < self.C:
            return 1.0
        ratio = n * self.noise_level(excess) / calibration.unit
        p = calibration.n_parameters
        if calibration.noise.pure:
            log_constant = 0.0 if p == 1 else 1.0 + (p - 1) * (math.log(2.0 * (p - 1)) - 1.0)
            exponent = log_constant - ratio / 2.0
        else:
            exponent = math.log(2.0) - max(ratio - math.sqrt(p), 0.0) ** 2 / 2.0
        return math.exp(min(exponent, 0.0))


def costs(
    rule: PlannedRule, records: Records, w: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, dict[str, float]]:
    """Thetas (draws, p), and the mean excess objective per record, its quantile and its bound.

    ``error`` is the mean distance to the minimizer on the same sample: the price of privacy alone.
    ``exceeded`` is the share of draws whose excess is above the bound at the quantile of ``||b||``,
    which should be at most ``1 - LEVEL`` up to chance.
    """
    calibration, second, n = rule.plan.main.calibration, rule.plan.study.second, records.n_samples
    unperturbed = second.instance(records, w, gamma=0.0)
    best, model = solve(unperturbed, solver="newton", throw=False).value, unperturbed.model
    perturbed = (
        second.instance(records, w, gamma=calibration.gamma, noise=b)
        for b in simulate_noise(calibration, draws, rng)
    )
    thetas = np.array([solve(one, solver="newton", throw=False).value for one in perturbed])
    least = model.value(best)
    excess = np.array([model.value(theta) - least for theta in thetas]) / n
    curvature = max(float(np.linalg.eigvalsh(model.hessian(best))[0]) / n, 0.0)
    # a radius that the noise exceeds with probability at most 1 - LEVEL
    level = _quantile(partial(noise_tail, calibration), calibration.unit)
    size = float(np.linalg.norm(best))
    bound = utility_bound(level, n, calibration, size, curvature)
    paper = PaperUtility.of(calibration.gamma, size, curvature)
    return thetas, {
        "excess": float(np.mean(excess)),
        "excess_quantile": float(np.quantile(excess, LEVEL)),
        "excess_bound": bound,
        "paper_excess_bound": _quantile(
            lambda at: paper.tail(at, n, calibration), max(paper.C, 1e-12)
        ),
        "exceeded": float(np.mean(excess > bound)),
        "error": float(np.mean(np.linalg.norm(thetas - best, axis=1))),
    }


def _quantile(tail: Callable[[float], float], start: float) -> float:
    """The number where a tail that falls from 1 reaches ``1 - LEVEL``.

    It is found by bisection from below ``start``.
    """
    low, high = 0.0, start
    while tail(high) > 1 - LEVEL:
        high *= 2
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if tail(middle) > 1 - LEVEL else (low, middle)
    return high


def scales(design: Design, name: str, shape: tuple[int, int]) -> Iterator[Row]:
    """Both scales of every noise and pair, and their ratio, or why there is none."""
    scheme, constants = design["schemes"][name], design["constants"]
    for noise in design["noises"]:
        budget = budget_of(design["epsilon"], noise, shape[0])
        for pair in PAIRS:
            head = {"scheme": name, "family": " / ".join(pair), "noise": noise}
            plans = [
                plan_rule(RuleDeclaration(scheme, constants, family, noise, budget, shape))
                for family in pair
            ]
            refused = [plan for plan in plans if isinstance(plan, str)]
            if refused:
                yield head | {"status": "refused", "reason": refused[0]}
                continue
            scale, beside = (plan.plan.main.calibration.scale for plan in plans)
            ratio = {"scale": scale, "scale_beside": beside, "scale_ratio": scale / beside}
            yield head | {"status": "compared"} | ratio


def drawn(curvature: str, n: int, rng: np.random.Generator) -> Dataset:
    """Records of the linear scenario, every covariate twice where there is no curvature."""
    data = simulate("linear", n, rng=rng).dataset
    X = data.X if curvature == STRONG else np.hstack([data.X, data.X])
    return Dataset.from_arrays(X, data.a, data.y)


def image(curvature: str, theta: Array) -> Array:
    """Image of theta that matters to the rule: the coefficients of equal columns add up."""
    half = theta.shape[-1] // 2
    return theta if curvature == STRONG else theta[..., :half] + theta[..., half:]


def limit(design: Design, curvature: str, name: str) -> dict[str, Array]:
    """The minimizer of a scheme on a large sample, by the norm of the ball Theta."""
    data, constants = (
        drawn(curvature, design["population"], np.random.default_rng([design["seed"], 9])),
        design["constants"],
    )
    domain = constants.domain(design["population"])
    weights = Weights(domain.records(data.X, data.a, data.y))
    w, images = weights(first_stage(design["schemes"][name], domain)).value, dict[str, Array]()
    for family in design["families"]:
        if constants.norm(family) not in images:
            second = (
                constants.second_stage(family)
                .resolve(domain.space)
                .instance(weights.records, w, gamma=0.0)
            )
            images[constants.norm(family)] = image(
                curvature, solve(second, solver="newton", throw=False).value
            )
    return images


def rows(design: Design, cell: Cell) -> list[Row]:
    """Every scheme, family and noise on one dataset.

    Scales of noise, which no data change, are computed once.
    """
    curvature, n, constants = cell["curvature"], cell["n"], design["constants"]
    data = drawn(curvature, n, cell.rng("train"))
    weights = Weights(constants.domain(n).records(data.X, data.a, data.y))
    out = list[Row]()
    for name, scheme in design["schemes"].items():
        if cell["replicate"] == 0:
            out += scales(design, name, data.X.shape)
        for family in design["families"]:
            at_infinity = design["limits"][curvature, name][constants.norm(family)]
            for noise in design["noises"]:
                head = {"scheme": name, "family": family, "noise": noise}
                budget = budget_of(design["epsilon"], noise, n)
                shape = data.X.shape
                rule = plan_rule(RuleDeclaration(scheme, constants, family, noise, budget, shape))
                if isinstance(rule, str):
                    out.append(head | {"status": "refused", "reason": rule})
                    continue
                w = weights(rule.plan.study.first).value
                rng = cell.rng(f"{name}/{family}/{noise}")
                thetas, measured = costs(rule, weights.records, w, design["draws"], rng)
                apart = np.linalg.norm(image(curvature, thetas) - at_infinity, axis=-1)
                head |= {"status": "done"} | measured | {"population_error": float(np.mean(apart))}
                out.append(head | {"effective_share": effective_share(w)} | rule.facts())
    return out


def slope(x: Array, y: Array) -> tuple[float, float]:
    """Least-squares slope of log y in log x, and the half width of its 95 % interval.

    The half width is infinite for two points.
    """
    fit, free = linregress(np.log(x), np.log(y)), len(x) - 2
    return float(fit.slope), float(t.ppf(0.975, free) * fit.stderr) if free > 0 else np.inf


def summary(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Slopes of the logarithm of each quantity in that of n, with 95 % intervals.

    Ratios of noise scales stand beside them.
    """
    by = ["curvature", "scheme", "family", "noise"]
    fitted = {
        "excess": "excess ~ n^",
        "error": "error ~ n^",
        "population_error": "to the population ~ n^",
    }
    last = {
        "V": "V at the last n",
        "excess_quantile": "95 % of the excess there",
        "excess_bound": "its bound",
        "paper_excess_bound": "the paper's",
    }
    lines = []
    for place, group in means(table, [*by, "n"], [*fitted, *last, "exceeded"]).groupby(
        by, sort=False
    ):
        line = dict(zip(by, place, strict=True))
        for name, label in fitted.items():
            line[label] = "{:.2f}±{:.2f}".format(
                *slope(group["n"].to_numpy(), group[name].to_numpy())
            )
        line |= {label: f"{group[name].iloc[-1]:.2g}" for name, label in last.items()}
        lines.append(line | {"above the bound": f"{group['exceeded'].max():.3f}"})
    yield pd.DataFrame(lines)
    compared = table[table["status"] == "compared"]
    ratios = compared.pivot_table("scale_ratio", by, "n", "first", sort=False)
    yield ratios.map("{:.3g}".format).rename(columns="n = {:,}".format).reset_index()


_VALUES = {"excess": "excess objective", "error": "distance to the sample minimizer"}


def figures(table: pd.DataFrame) -> Iterator[tuple[str, Figure]]:
    """Excess and error over n, by curvature, a figure for each noise.

    Bands are 95 % intervals over replicates; dotted lines have the slopes of the theorem.
    """
    every = means(table, ["curvature", "scheme", "family", "noise", "n"], list(_VALUES))
    for noise in every["noise"].unique():
        here = every[every["noise"] == noise]
        curvatures = list(here["curvature"].unique())
        figure = new_figure(WIDTH, 0.9 + 2.9 * len(curvatures))
        axes = figure.subplots(len(curvatures), len(_VALUES), squeeze=False, sharex=True)
        for row, curvature in zip(axes, curvatures, strict=True):
            part = here[here["curvature"] == curvature]
            for ax, (name, label) in zip(row, _VALUES.items(), strict=True):
                _panel(ax, part, name, curvature == STRONG)
                ax.set_title(curvature, loc="left", fontsize="medium")
                ax.set_ylabel(label)
                plain(ax)
        for ax in axes[-1]:
            ax.set_xlabel("number of records n")
        legend_below(figure, axes.ravel())
        yield f"rates-{noise}", figure


def _panel(ax, part: pd.DataFrame, name: str, strong: bool) -> None:
    ax.set(xscale="log", yscale="log")
    for number, ((scheme, family), line) in enumerate(
        part.groupby(["scheme", "family"], sort=False)
    ):
        color = COLORS[number % len(COLORS)]
        ax.plot(
            line["n"], line[name], "o-", color=color, markersize=3.5, label=f"{scheme}, {family}"
        )
        half = line[f"{name}_half"].fillna(0.0)
        low = (line[name] - half).clip(lower=line[name] / 10)  # a logarithm has no zero
        ax.fill_between(line["n"], low, line[name] + half, color=color, alpha=0.2, linewidth=0)
    if name == "excess" or strong:  # the theorem says nothing of theta without curvature
        rate, text, style = (
            (1.0, "-1", (0, (1, 1))) if name == "excess" and strong else (0.5, "-1/2", (0, (1, 3)))
        )
        first, last = part["n"].min(), part["n"].max()
        top = part[part["n"] == first][name].min()
        ends = (top, top * (first / last) ** rate)
        ax.plot(
            (first, last), ends, linestyle=style, color="0.4", label=f"slope {text}, of the theorem"
        )


def main() -> None:
    """Solve for the limits, run, and report."""
    args, design, folder = start(__doc__, "rates", FULL, {"quick": QUICK})
    parts = [(curvature, name) for curvature in (STRONG, NONE) for name in design["schemes"]]
    limits = each(limit, [(design, *part) for part in parts], folder, args.workers)
    design["limits"] = dict(zip(parts, limits, strict=True))
    keys = grid(
        curvature=(STRONG, NONE), n=design["n_samples"], replicate=range(design["replicates"])
    )
    table = run(rows, design, cells(design, keys), folder, args.workers)
    report(folder, summary(table), figures(table))


if __name__ == "__main__":
    main()
