"""Average effects with intervals over populations, real data, numbers of records and budgets.

``python effects.py`` takes eight minutes of two cores, ``--variant benchmarks`` reads the packages
of the extra ``benchmarks``, ``--quick`` takes seconds. Populations are drawn anew for every
replicate; of real records (n = 0) the noise is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import competitors
import drawing
import numpy as np
import pandas as pd
import real_data
from common import Cell, Design, Row, Z, cells, hajek, means, report, run, start, with_interval
from confounded import CONFOUNDED
from populations import POPULATIONS, Population, nhefs_plasmode, paper_population, twins_population
from real_data import EffectData
from rules import Constants, Trial, first_stage, judged, taken
from twins_data import SHA256, read_twins

from dp2erm_cvx import Budget, Codebook, Domain, PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.datasets import SCENARIOS, simulate
from dp2erm_cvx.diagnostics import augmented, difference_of_means
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import Box, registry

IPW = {"program": "ipw_logistic", "settings": {"ridge": 0.1, "trim": 4.0}}
EBW = {"program": "entropy_balancing", "settings": {"ridge": 1.0}}
# at most one record's weight for a control, so that B need not exceed M_r
CAP_2 = {
    "prognostic": ["re74", "re75", "age", "educ", "black", "married"],
    "settings": {
        "cap": 2.0,
        "rows": "common",
        "center_share": 0.4,
        "propensity_share": 0.2,
    },
    "scaled": {"residual_bound": 3.0, "score_bound": 3.0},
}
# cuts as a codebook may have them, some at the borders of the regions
_CUTS = {
    "x1": [-1.5, -0.75, -0.05, 0.0, 0.1, 0.75, 1.5],
    "x2": [-1.5, -0.75, -0.35, 0.0, 0.05, 0.75, 1.5],
}
# those at the borders alone
_BORDERS = {"x1": [-0.05, 0.0, 0.1], "x2": [0.0, 0.05]}


def source(
    replicates: dict[int, int], epsilons: list[float], weights: tuple[int, ...] = (), **more: Any
) -> Row:
    """A population or data set: samples by n, budgets, and the n of direct weights."""
    return {
        "replicates": replicates,
        "epsilons": epsilons,
        "weights": weights,
        "methods": {},
    } | more


FULL: Design = {
    "seed": 2615,
    "timed": False,
    # declared beside the domain and the guess of the residual's standard deviation: nothing
    "methods": {"private": {}},
    "published": {},
    "rules": {},
    "weights": {
        "weights of 1": {"program": "uniform"},
        "IPW": IPW,
        "EBW": EBW,
        "private IPW": {
            "program": "ipw_private",
            "settings": {"share": 0.3, "ridge": 0.01, "trim": 4.0},
        },
    },
    "data": {
        "low overlap": source(
            {1000: 100, 5000: 60, 50_000: 20},
            [1.0, 2.0],
            (5000,),
            # propensities as they are, and room for the residuals that they multiply
            methods={
                "private, cap 50, B = 30 s": {
                    "settings": {"cap": 50.0},
                    "scaled": {"score_bound": 30.0},
                }
            },
        ),
        "regions": source(
            {5000: 60, 50_000: 20},
            [1.0, 2.0],
            (5000,),
            methods={
                "private, 8 x 8 crossed bins": {"residual_scale": 0.1, "crossed_bins": _CUTS},
                "private, 4 x 3 crossed bins": {"residual_scale": 0.1, "crossed_bins": _BORDERS},
            },
        ),
        "binary": source({1000: 100, 5000: 100, 50_000: 40}, [1.0, 2.0], (5000,)),
        "varying": source({1000: 100, 10_000: 100}, [1.0], (1000,)),
        "nhefs plasmode": source({500: 100, 2000: 100, 10_000: 60}, [0.5, 1.0, 2.0]),
        "nhefs": source(
            {0: 100},
            [1.0, 2.0],
            (0,),
            methods={
                "private, age and weight": {"prognostic": ["age", "wt71"]},
                "private, no scale declared": {"residual_scale": 0.0},
            },
        ),
    },
}
VARIANTS: dict[str, Design] = {
    "quick": {
        "data": {
            "low overlap": source({1000: 2}, [1.0], (1000,)),
            "nhefs plasmode": source({500: 3}, [2.0]),
            "nhefs": source(
                {0: 2}, [2.0], methods={"private, age and weight": {"prognostic": ["age", "wt71"]}}
            ),
        }
    },
    "benchmarks": {
        "data": {
            "401k": source({0: 100}, [1.0, 2.0], (0,)),
            "nsw-psid": source(
                {0: 100}, [1.0, 4.0], (0,), methods={"private, cap 2, six covariates": CAP_2}
            ),
            "acic-*": source({0: 20}, [1.0, 2.0, 4.0]),
        }
    },
}


@cache
def real(name: str) -> EffectData:
    """Real records, read once."""
    return real_data.load(name)


@cache
def population(name: str, twins: str | None = None, sha256: str | None = None) -> Population:
    """A population by its name. Raises KeyError."""
    if name == "twins":
        return twins_population(twins, sha256)
    if name in SCENARIOS:
        return paper_population(name)
    built = {"nhefs plasmode": nhefs_plasmode, "confounded": CONFOUNDED.population}
    return built[name]() if name in built else POPULATIONS[name]


def drawn(
    one: Population, n_samples: int, rng: np.random.Generator, treated_only: bool = False
) -> EffectData:
    """Records of a population.

    Raises DeclarationError where its effect among the treated is not known.
    """
    sample = one.draw(n_samples, rng)
    if not treated_only:
        return EffectData(
            sample.dataset, one.domain, one.residual_scale, one.effect, propensity=sample.propensity
        )
    if one.effect_on_treated is None:
        raise DeclarationError(f"{one.name}: its effect among the treated is not known")
    return EffectData(
        sample.dataset, one.domain, one.residual_scale, one.effect_on_treated, treated_only=True
    )


def sources(design: Design) -> dict[str, Row]:
    """Every population and data set by its own name: "acic-*" stands for several."""
    return {
        own: known
        for name, known in design["data"].items()
        for own in ([one for one in real_data.NAMES if fnmatchcase(one, name)] or [name])
    }


def left_out(design: Design) -> list[str]:
    """Methods that need the Twins file, where there is none."""
    if design.get("twins") is not None:
        return []
    effects = [
        name for name, known in design["data"].items() if known.get("population", name) == "twins"
    ]
    return [
        *effects,
        *(f"rules, {name}" for name, known in design["rules"].items() if known.get("outcomes")),
    ]


def keys(design: Design) -> Iterator[Row]:
    """Samples of every population and number of records, for effects and then for rules."""
    missing = left_out(design)
    kinds = [
        ({"data": name}, known) for name, known in sources(design).items() if name not in missing
    ]
    for name, known in design["rules"].items():
        if f"rules, {name}" not in missing:
            kinds.append(({"task": "rule", "data": name}, known))
    for place, known in kinds:
        for n, count in known["replicates"].items():
            for replicate in range(count):
                yield place | {"n": n, "replicate": replicate}


def rows(design: Design, cell: Cell) -> list[Row]:
    """Every method at every budget on one sample."""
    if "task" in dict(cell.key):
        answers = rule_rows(design, design["rules"][cell["data"]], cell)
    else:
        answers = effect_rows(design, sources(design)[cell["data"]], cell)
    return [
        {name: one for name, one in row.items() if name != "seconds" or design["timed"]}
        for row in answers
    ]


def effect_rows(design: Design, known: Row, cell: Cell) -> Iterator[Row]:
    """Private estimates, those of others and of direct weights, beside those without privacy."""
    if cell["n"] == 0:
        data = real(cell["data"])
    else:
        one = population(
            known.get("population", cell["data"]), design.get("twins"), design.get("sha256", SHA256)
        )
        data = drawn(one, cell["n"], cell.rng("records"), known.get("treated_only", False))
    head = {"effect": data.effect, "records": len(data.dataset.a)}
    answers = {
        label: (private_row, method)
        for label, method in (design["methods"] | known["methods"]).items()
    }
    answers |= {label: (published_row, method) for label, method in design["published"].items()}
    if cell["n"] in known["weights"]:
        answers |= {label: (weighted_row, scheme) for label, scheme in design["weights"].items()}
    for epsilon in known["epsilons"]:
        for label, (answer, declared) in answers.items():
            start = time.process_time()
            row = answer(data, declared, epsilon, cell.rng(f"{label}/{epsilon}"))
            if row is not None:
                yield (
                    head
                    | {"method": label, "epsilon": epsilon}
                    | row
                    | {"seconds": time.process_time() - start}
                )
    for label, estimate in plain_estimates(data).items():
        ends = {
            "low": estimate.value - Z * estimate.error,
            "high": estimate.value + Z * estimate.error,
        }
        row = {"method": label, "epsilon": np.inf, "status": "done", "estimate": estimate.value}
        yield head | row | ends


def private_row(data: EffectData, declared: Row, epsilon: float, rng: np.random.Generator) -> Row:
    """One release: its estimate and its interval.

    ``scaled`` are settings in units of the residual scale. ``crossed_bins`` are the cuts of two
    columns, whose bins are crossed.
    """
    domain = data.domain
    if "crossed_bins" in declared:
        domain = with_crossed_bins(domain, declared["crossed_bins"])
    scale, delta = (
        declared.get("residual_scale", data.residual_scale) or None,
        declared.get("delta", 0.0),
    )
    scaled = {
        name: value * data.residual_scale for name, value in declared.get("scaled", {}).items()
    }
    model = PrivateEffect(
        domain,
        Budget(epsilon, delta),
        estimand="att" if data.treated_only else "ate",
        prognostic=declared.get("prognostic"),
        residual_scale=scale,
        settings=declared.get("settings", {}) | scaled,
        noise="gaussian" if delta else "gamma",
        seed=int(rng.integers(2**62)),
    ).fit(data.dataset.X, data.dataset.a, data.dataset.y)
    low, high = model.interval_
    return {
        "status": "done",
        "estimate": model.release_.estimate,
        "low": low,
        "high": high,
        "delta": delta,
    }


def with_crossed_bins(domain: Domain, cuts: dict[str, list[float]]) -> Domain:
    """A domain of two columns with ranges that are cut, and crossed."""
    book = Codebook(bins=cuts, crossed=[tuple(cuts)])
    ranges = book.ranges(domain.ranges)
    bound = math.hypot(domain.intercept, book.norm(ranges))
    return replace(domain, codebook=book, ranges=ranges, covariate_bound=bound)


def published_row(
    data: EffectData, declared: Row, epsilon: float, rng: np.random.Generator
) -> Row | None:
    """One estimate, or why there is none; None where the method has none among the treated."""
    kind, delta = competitors.EFFECTS[declared["method"]], declared.get("delta", 0.0)
    if data.treated_only and not kind.serves_treated:
        return None
    records = data.domain.records(data.dataset.X, data.dataset.a, data.dataset.y)
    method = kind(**declared.get("settings", {}), treated_only=data.treated_only)
    try:
        value, error = method(records, Budget(epsilon, delta), rng)
    except ValueError as failed:  # of code that is not ours, and may fail by the data
        return {"status": "failed", "reason": str(failed), "delta": delta}
    ends = {"low": value - Z * error, "high": value + Z * error}
    return {"status": "done", "estimate": value, "delta": delta} | ends


def weighted_row(data: EffectData, scheme: Row, epsilon: float, rng: np.random.Generator) -> Row:
    """Arm means at direct weights of this library, which have no interval."""
    domain = data.domain
    second = registry.build(
        registry.second_stages(), "arm_means", theta_set=Box(domain.outcome_bound)
    )
    try:
        seed, first = int(rng.integers(2**62)), first_stage(scheme, domain)
        model = PrivateTwoStageERM(domain, Budget(epsilon), first, second, seed=seed)
        theta = model.fit(data.dataset.X, data.dataset.a, data.dataset.y).theta_
    except (CalibrationError, DeclarationError) as error:
        return {"status": "refused", "reason": str(error)}
    return {"status": "done", "estimate": float(theta[1] - theta[0])}


def plain_estimates(data: EffectData) -> dict[str, Any]:
    """Estimates without privacy from the records inside the universe."""
    inside = data.inside
    estimates = {"difference of means": difference_of_means(inside)}
    estimates["AIPW"] = augmented(inside, estimand="att" if data.treated_only else "ate")
    if not data.treated_only:
        estimates["Hajek"] = hajek(inside)
    if data.propensity is not None:
        estimates["Hajek, true propensity"] = hajek(inside, data.propensity)
    return estimates


def rule_rows(design: Design, known: Row, cell: Cell) -> Iterator[Row]:
    """Accuracy and value of every private rule by budget, and of rules without privacy."""
    trial = rule_trial(design, known, cell)
    constants: Constants = known["constants"]
    for label, declared in known["pipelines"].items():
        center = constants.outcome_center
        yield from _timed(
            label, trial.pipeline_rows(label, declared, "gamma", cell.rng(label), center)
        )
    for label, scheme in design["rule_schemes"].items():
        composed = {"composed": "composition-sharp"} if scheme["program"] == "ipw_logistic" else {}
        for word, family in ({"direct": "sharp"} | composed).items():
            rng = cell.rng(f"{label}/{family}")
            yield from _timed(
                f"{word} {label}", trial.private_rows(scheme, constants, family, "gamma", rng)
            )
        yield from _timed(f"weighted rule, {label}", iter([trial.plain_row(scheme, constants)]))
    for label, declared in design["published_rules"].items():
        yield from _published_rule(trial, known["others"], label, declared, known["epsilons"], cell)
    for row in trial.constant_rows():
        yield {"method": row["scheme"]} | {
            name: row[name] for name in ("epsilon", "status", "accuracy", "value")
        }


def rule_trial(design: Design, known: Row, cell: Cell) -> Trial:
    """A sample to learn from and one to judge by. Raises KeyError for an unknown name."""
    name, n = cell["data"], cell["n"]
    if known.get("outcomes") is not None:
        X = read_twins(design["twins"], sha256=design.get("sha256", SHA256)).X
        pool = known["outcomes"].draw(X, cell.rng("records"))
        order = cell.rng("subset").permutation(pool.dataset.n_samples)
        return Trial(taken(pool, order[:n]), taken(pool, order[n:]), known["epsilons"])
    draw = {"confounded": CONFOUNDED.draw} if name not in SCENARIOS else {}
    sizes = (("records", n), ("test", known.get("n_test", 10_000)))
    train, test = (
        draw[name](size, cell.rng(purpose)) if draw else simulate(name, size, rng=cell.rng(purpose))
        for purpose, size in sizes
    )
    return Trial(train, test, known["epsilons"])


def _published_rule(
    trial: Trial, constants: Constants, label: str, declared: Row, epsilons: list[float], cell: Cell
) -> Iterator[Row]:
    """A rule of others at every budget, and without noise."""
    data, domain = trial.train.dataset, constants.domain(trial.train.dataset.n_samples)
    records, test = domain.records(data.X, data.a, data.y), domain.features(trial.test.dataset.X)
    rule = competitors.RULES[declared["method"]](**declared.get("settings", {}))
    for epsilon in (*epsilons, np.inf):
        private = np.isfinite(epsilon)
        start, rng = time.process_time(), cell.rng(f"{label}/{epsilon}" if private else label)
        budget = Budget(epsilon, declared["delta"]) if private else None
        known = judged(
            trial.test, (test @ rule(records, trial.train.propensity, budget, rng) > 0)[None]
        )
        row = {"method": label, "epsilon": epsilon, "status": "done"}
        row |= {name: known[name] for name in ("accuracy", "value")}
        seconds = (
            {"delta": declared["delta"], "seconds": time.process_time() - start} if private else {}
        )
        yield row | seconds


def _timed(label: str, answers: Iterator[Row]) -> Iterator[Row]:
    """The rows of a method of this library, with the seconds that each took."""
    fields, start = (
        ("status", "reason", "epsilon", "accuracy", "value", "certified"),
        time.process_time(),
    )
    for row in answers:
        seconds = {"seconds": time.process_time() - start}
        yield {"method": label} | {name: row[name] for name in fields if name in row} | seconds
        start = time.process_time()


_PLACE = ["data", "n", "epsilon", "method"]


def effect_errors(table: pd.DataFrame) -> pd.DataFrame:
    """One line for every method, budget, population and number of records.

    ``bias``, ``deviation`` and ``rmse`` are of the estimate; ``covers_effect`` is how often the
    interval holds the effect; ``width`` and ``seconds`` are the median ones. ``rmse_half`` is the
    half width of an interval of 95 % for the error. Names that end in a number, such as ``acic-3``,
    share lines, whose deviation is that within a name.
    """
    done = table[(table["status"] == "done") & table["estimate"].notna()]
    # of real records alone, by methods without intervals, not timed
    optional = [name for name in ("seconds", "delta", "records") if name not in done]
    done = done.assign(**dict.fromkeys(optional, np.nan), setting=done["data"])
    done["data"] = done["data"].str.replace(r"-\d+$", "", regex=True)
    off = done["estimate"] - done["effect"]
    # of real records the noise alone is drawn anew, and an interval is about more
    anew = done["low"].notna() & (done["n"] > 0)
    covers = (done["low"] <= done["effect"]) & (done["effect"] <= done["high"])
    covers = covers.astype(float).where(anew)
    done = done.assign(
        bias=off, square=off**2, covers_effect=covers, width=done["high"] - done["low"]
    )
    grouped = done.groupby(_PLACE, sort=False)
    errors = grouped[["bias", "square", "covers_effect"]].mean()
    within = done.groupby([*_PLACE, "setting"], sort=False)["bias"].var()
    errors["deviation"] = np.sqrt(within.groupby(_PLACE).mean())
    errors["rmse"] = np.sqrt(errors.pop("square"))
    errors["samples"] = grouped["bias"].count()
    errors["rmse_half"] = (
        Z * grouped["square"].std() / (2.0 * errors["rmse"] * np.sqrt(errors["samples"]))
    )
    return errors.join(
        grouped[["width", "seconds", "delta", "records", "effect"]].median()
    ).reset_index()


def rule_errors(table: pd.DataFrame) -> pd.DataFrame:
    """Mean accuracy and value of every rule, with half widths of their intervals of 95 %."""
    timed = ["seconds"] if "seconds" in table else []
    return means(table[table["accuracy"].notna()], _PLACE, ["accuracy", "value", *timed])


def summary(table: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Bias, error, coverage and width of every method; then rules, if any."""
    errors = effect_errors(table)
    heads = {"delta": "delta", "bias": "bias", "deviation": "sd", "rmse": "RMSE", "rmse_half": "±"}
    heads |= {"width": "width", "seconds": "seconds"}
    texts = errors[_PLACE].assign(
        n=errors["n"].map("{:,}".format).replace("0", "all"),
        epsilon=errors["epsilon"].map("{:g}".format),
    )
    texts["samples"] = errors["samples"].astype(str)
    for name, head in heads.items():
        texts[head] = errors[name].map("{:.3g}".format).replace({"nan": "", "0": ""})
    yield texts.assign(covers=errors["covers_effect"].map("{:.3f}".format).replace("nan", ""))
    if "accuracy" in table:
        rules = rule_errors(table)
        values = {
            name: rules.apply(with_interval, axis=1, name=name).to_numpy()
            for name in ("accuracy", "value")
        }
        yield rules[_PLACE].assign(n=rules["n"].map("{:,}".format), **values)


def main(
    name: str = "effects", full: Design = FULL, variants: dict[str, Design] = VARIANTS
) -> None:
    """Run and report."""
    args, design, folder = start(__doc__, name, full, variants, data=True)
    design["twins"] = None if args.data is None else str(args.data)
    if missing := left_out(design):
        print(f"Not run, for want of Twin_Data.csv.gz (--data FILE): {', '.join(missing)}")
    table = run(rows, design, cells(design, keys(design)), folder, args.workers)
    figures = [(name, drawing.effects(effect_errors(table)))]
    if "accuracy" in table:
        figures.append((f"{name}-rules", drawing.learned(rule_errors(table))))
    report(folder, summary(table), figures if name == "benchmark" else ())


if __name__ == "__main__":
    main()
