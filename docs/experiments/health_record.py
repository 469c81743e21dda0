"""A health-record extract with known truths, from table to answers: ``python health_record.py``.

Every truth below is what the extract was drawn from. A study file reads the table as it is; each
seed draws another extract and other noise. Nothing of the declaration was chosen by looking at
results.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from common import Cell, Design, Row, cells, report, run, start

from dp2erm_cvx.report.answers import answers
from dp2erm_cvx.study import read_study

#: Seeds by n, of the study as it is; a quarter as many of the study that only marks missing
#: severities.
DESIGN: Design = {"seed": 20, "sizes": {6000: 50, 60000: 50}}
QUICK: Design = {"seed": 20, "sizes": {3000: 2}}
#: What is declared of records without a severity, which confounds: not eligible, or marked.
MISSING = {"left out": '"age >= 18", "severity >= 0"', "marked": '"age >= 18"'}

STUDY = """
outcome_column = "sbp_change"    # mmHg after 24 hours
outcome_center = 3.0
outcome_bound = 30.0
eligible = ["age >= 18", "ward != Hospice"]
eligible_share = 0.9
treatment = { column = "drug", treated = "vasopressor", control = "usual care" }

[ranges]
age = [18, 100]
severity = [0, 24]
creatinine = [0.3, 5]
admitted = [0, 730]

[levels]
sex = ["F", "M", "other"]
ward = ["ICU", "Surgery", "Medicine"]

[missing]
severity = 6

[cells]
sex = { synonyms = { F = ["female", "Frau"], M = ["male", "Mann"] } }
drug = { synonyms = { vasopressor = ["VP"], "usual care" = ["none"] } }
age = { censored = true }
creatinine = { units = { "mg/dL" = 1, "umol/L" = 0.0113 }, unit_column = "unit" }
admitted = { since = 2023-01-01, date_format = "%d.%m.%Y" }
shock = { synonyms = { 1 = ["yes"], 0 = ["no"] } }

[units]
sbp_change = "mmHg"

[budget]
epsilon = 4.0

[[effect]]
name = "average"
residual_scale = 6.0

[[effect]]
name = "sex"
by = "sex"
residual_scale = 6.0

[[effect]]
name = "treated"
estimand = "att"
residual_scale = 6.0

[[effect]]
name = "shock"
estimand = "risks"
outcome_column = "shock"
outcome_center = 0.5
outcome_bound = 0.5
"""


def extract(n: int, rng: np.random.Generator) -> tuple[pd.DataFrame, dict[str, float]]:
    """The table as it was written down (n rows, 12 columns), and the truth of every answer."""
    female, age = rng.random(n) < 0.45, np.clip(rng.normal(62, 15, n), 15, 100).round()
    severity, creatinine = (
        np.clip(rng.gamma(4, 1.5, n), 0, 24).round(1),
        np.exp(rng.normal(0.1, 0.45, n)),
    )
    ward = rng.choice(["ICU", "Surgery", "Hospice", "Medicine"], n, p=[0.4, 0.25, 0.05, 0.3])
    log_odds = (
        0.03 * (age - 62) + 0.12 * (severity - 6) + 0.5 * (creatinine - 1.2) - 0.2 - 0.3 * female
    )
    treated = rng.random(n) < 1 / (1 + np.exp(-log_odds - 0.4 * (ward == "ICU")))
    effect = 4.0 + 1.5 * female
    outcome = 3 - 0.08 * (age - 62) - 0.5 * (severity - 6) + 0.8 * female - (creatinine - 1.2)
    outcome += 1.5 * (ward == "ICU") + effect * treated + rng.normal(0, 6, n)
    baseline = 0.4 + 0.012 * (severity - 6) + 0.002 * (age - 62)
    shock = rng.random(n) < baseline * np.where(treated, 0.6, 1.0)
    micromoles = rng.random(n) < 0.35
    admitted = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 730, n), "D")

    def spelled(which: np.ndarray, texts: list[str], others: list[str]) -> np.ndarray:
        return np.where(which, rng.choice(texts, n), rng.choice(others, n)).astype(object)

    table = pd.DataFrame(
        {
            "patient": rng.integers(0, 0.8 * n, n),  # several rows of some
            "sex": spelled(female, ["F", "f", "female", "Frau", " F"], ["M", "m", "male", "Mann"]),
            "age": np.where(age > 89, ">89", age.astype(int).astype(str)),
            "severity": severity.astype(object),
            "creatinine": np.where(micromoles, (creatinine / 0.0113).round(1), creatinine.round(3)),
            "unit": np.where(micromoles, "umol/L", "mg/dL"),
            "ward": ward,
            "admitted": admitted.strftime("%d.%m.%Y"),
            "drug": spelled(treated, ["vasopressor", "Vasopressor", "VP"], ["none", "Usual care"]),
            "sbp_change": outcome.round(2).astype(object),
            "shock": np.where(shock, "yes", "no"),
            "nurse": rng.choice(["a", "b", "c"], n),
        }
    )
    for column, share, text in (
        ("severity", 0.3, None), ("drug", 0.08, "unknown"), ("sbp_change", 0.05, None), ("sex",
        0.03, "?"),
    ):  # fmt: skip
        table.loc[rng.random(n) < share, column] = text
    who = (age >= 18) & (ward != "Hospice")
    among = effect[who & treated].mean()
    truths = {"average": effect[who].mean(), "sex: F": 5.5, "sex: M": 4.0, "treated": among}
    return table, truths | {"shock": -0.4 * baseline[who].mean(), "shock: risk ratio": 0.6}


def replicate(design: Design, cell: Cell) -> list[Row]:
    """Every answer of one extract, beside its truth."""
    table, truths = extract(cell["n"], cell.rng("extract"))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.toml"
        file.write_text(STUDY.replace('"age >= 18"', MISSING[cell["severity"]]), encoding="utf-8")
        models = read_study(file).models(seed=cell["replicate"])
    fits: dict[str, Any] = {
        name: model.fit(table, table["drug"], table[model.domain.codebook.outcome]).release_
        for name, model in models.items()
    }
    triples = [(one.name, one.estimate, one.interval, one.joint) for one in answers(fits)]
    # at its own level alone: the table of all answers is of differences
    triples += [
        (f"{name}: {one.name}", one.estimate, one.interval, one.interval)
        for name, release in fits.items()
        for one in release.ratios
    ]
    rows = []
    for name, estimate, *intervals in triples:
        if name not in truths:
            continue
        truth = truths[name]
        covered, joint = (
            (own.low is None or own.low <= truth) and (own.high is None or truth <= own.high)
            for own in intervals
        )
        rows.append(
            {"answer": name, "truth": truth, "error": estimate - truth, "covered": covered}
            | {"all together": joint, "half width": intervals[0].half_width}
        )
    return rows


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """A line for every answer and size."""
    lines = []
    for (n, severity, answer), part in table.groupby(["n", "severity", "answer"], sort=False):
        error = np.sqrt(np.mean(part["error"] ** 2))
        lines.append(
            {
                "n": f"{n:,}",
                "without severity": severity,
                "answer": answer,
                "truth": f"{part['truth'].mean():.2f}",
            }
            | {"RMSE": f"{error:.3f}", "half width": f"{part['half width'].median():.3f}"}
            | {
                name: f"{int(part[name].sum())} of {len(part)}"
                for name in ("covered", "all together")
            }
        )
    return pd.DataFrame(lines)


def main() -> None:
    """Draw, release and compare; print the tables."""
    args, design, folder = start(__doc__, "health-record", DESIGN, {"quick": QUICK})
    keys = (
        {"n": n, "severity": declared, "replicate": k}
        for n, number in design["sizes"].items()
        for declared in MISSING
        for k in range(number if declared == "left out" else -(-number // 4))
    )
    results = run(replicate, design, cells(design, keys), folder, args.workers)
    table = summary(results)
    table.to_csv(folder / "table.csv", index=False)
    report(folder, [table])


if __name__ == "__main__":
    main()
