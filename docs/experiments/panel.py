"""A panel extract with known truths: 600 patients with up to 40 visits each.

The command is ``python panel.py 50``. One study file reads the table as it was written down; every
seed draws another extract and other noise. Prints a line for every answer; for a trial, in which
patients keep the dose that they were given, another one for the same table read as if its rows were
independent. Draws the coverage of both.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from common import repeated

from dp2erm_cvx.report.answers import answers
from dp2erm_cvx.study import read_study

PATIENTS, VISITS = 600, 40
#: Points of pain and hours of sleep that either dose adds to those of nobody.
EFFECTS = {
    "pain": {"none": 0.0, "low": -6.0, "high": -12.0},
    "sleep": {"none": 0.0, "low": 0.5, "high": 1.0},
}
STUDY = f"""
eligible = ["age >= 18"]
outcome_column = "pain"    # 0 to 100
outcome_center = 45
outcome_bound = 40

[treatment]
column = "dose"
levels = ["none", "low", "high"]
contrasts = "pairs"

[unit]
column = "patient_id"
number = {PATIENTS}

[ranges]
age = [18, 90]
severity = [0, 10]

[levels]
sex = ["F", "M"]

[cells]
dose = {{ synonyms = {{ none = ["placebo", "0"], low = ["10 mg"], high = ["40 mg", "HD"] }} }}
sex = {{ synonyms = {{ F = ["female"], M = ["male"] }} }}

[units]
pain = "points"

[budget]
epsilon = 8.0

[[effect]]
name = "pain"
residual_scale = 7.0

[[effect]]
name = "sleep"
outcome_column = "sleep"
outcome_center = 6
outcome_bound = 4
residual_scale = 0.8
"""


#: The same of a trial, and read by rows: then a row is what is protected, and what an interval
#: counts.
TRIAL = STUDY.replace('contrasts = "pairs"', 'contrasts = "pairs"\nrates = [0.4, 0.3, 0.3]')
ROWS = TRIAL.replace(f'[unit]\ncolumn = "patient_id"\nnumber = {PATIENTS}\n', "")


def extract(patients: int, rng: np.random.Generator, trial: bool = False) -> pd.DataFrame:
    """The table as it was written down: a row for every visit, of which sicker patients have more.

    In a ``trial`` a patient's dose is drawn once.
    """
    illness = rng.normal(0, 1, patients)
    visits = np.clip(rng.poisson(np.exp(2.2 + 0.6 * illness)), 1, VISITS)
    who = np.repeat(np.arange(patients), visits)
    n, person = len(who), rng.normal(0, 1, (patients, 2))
    age = np.clip(rng.normal(55, 12, patients), 15, 90).round()[who]
    severity = np.clip(5 + 1.5 * illness[who] + rng.normal(0, 1, n), 0, 10).round(1)
    female = (rng.random(patients) < 0.5)[who]
    # most patients keep to the dose that they began with
    leaning = (0.3 * illness + 0.4 * rng.normal(0, 1, patients))[who] + 0.3 * rng.normal(0, 1, n)
    dose = np.array(["none", "low", "high"])[np.searchsorted([-0.2, 0.3], leaning)]
    if trial:
        dose = rng.choice(["none", "low", "high"], patients, p=[0.4, 0.3, 0.3])[who]
    pain = 45 + 3 * (severity - 5) + 0.1 * (age - 55) + 5 * person[who, 0] + rng.normal(0, 5, n)
    sleep = 6 - 0.2 * (severity - 5) + 0.6 * person[who, 1] + rng.normal(0, 0.6, n)
    added = {name: pd.Series(dose).map(one).to_numpy() for name, one in EFFECTS.items()}

    def spelled(cells: np.ndarray, texts: dict[str, list[str]]) -> list[str]:
        return [
            texts[cell][k % len(texts[cell])]
            for cell, k in zip(cells, rng.integers(0, 9, n), strict=True)
        ]

    doses = {"none": ["none", "None", "placebo", "0"], "low": ["low", "10 mg", " low"]}
    labels = [f"P-{k:04d}" + " " * (k % 3) for k in who]
    table = pd.DataFrame(
        {
            "patient_id": [label if k % 7 else f" {label}" for k, label in enumerate(labels)],
            "sex": spelled(
                np.where(female, "F", "M"), {"F": ["F", "f", "female"], "M": ["M", "male"]}
            ),
            "age": age,
            "severity": severity,
            "dose": spelled(dose, doses | {"high": ["high", "40 mg", "HD"]}),
            "pain": (pain + added["pain"]).round(1),
            "sleep": (sleep + added["sleep"]).round(2),
        }
    ).astype(object)
    lost = {"patient_id": (0.02, ""), "dose": (0.04, "?"), "pain": (0.03, None), "sex": (0.02, "")}
    for column, (share, text) in lost.items():
        table.loc[rng.random(n) < share, column] = text
    return table.sample(frac=1.0, random_state=int(rng.integers(2**31))).reset_index(drop=True)


def truth(answer: str) -> float:
    """The true contrast of an answer's name, such as "pain: low less none"."""
    outcome, contrast = answer.split(": ", 1)
    level, against = contrast.split(" less ")
    return EFFECTS[outcome][level] - EFFECTS[outcome][against]


def released(study: str, table: pd.DataFrame, seed: int) -> list[tuple[str, float, bool, float]]:
    """Rows of every answer: name, error, whether its interval covers, and the half width."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "study.toml"
        file.write_text(study, encoding="utf-8")
        models = read_study(file).models(seed=seed)
    fits = {
        name: model.fit(table, table["dose"], table[model.domain.codebook.outcome]).release_
        for name, model in models.items()
    }
    out = []
    for one in answers(fits):
        true, interval = truth(one.name), one.interval
        out.append(
            (
                one.name,
                one.estimate - true,
                interval.low <= true <= interval.high,
                interval.half_width,
            )
        )
    return out


def figure(table: pd.DataFrame, path: Path) -> None:
    """Coverage of all answers of the trial, by person and by row."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4, 2.8), layout="constrained")
    axes = drawn.subplots()
    parts = table[table["read"] != "visits"]
    for place, (read, own) in enumerate(parts.groupby("read", sort=False)):
        covered = own.groupby("answer", sort=False)["covered"].mean()
        axes.barh(np.arange(len(covered)) + 0.4 * place, covered, 0.38, label=read)
    axes.set_yticks(np.arange(len(covered)) + 0.2, covered.index)
    axes.axvline(0.95, color="black", linewidth=1)
    axes.set(xlim=(0, 1), xlabel="intervals of 95 % that cover")
    drawn.legend(loc="outside upper center", ncols=2)
    drawn.savefig(path, metadata={"Date": None})


def main(seeds: int, folder: Path) -> None:
    """Print the table as CSV, and draw the figure into the folder; of trials half as many."""
    rows = []
    for seed in range(seeds):
        visits, trial = (
            extract(PATIENTS, np.random.default_rng([7, seed]), one) for one in (False, True)
        )
        ways = [("visits", STUDY, visits)]
        if seed < (seeds + 1) // 2:
            ways += [("trial, by person", TRIAL, trial), ("trial, by row", ROWS, trial)]
        for read, study, table in ways:
            rows += [(read, *row) for row in released(study, table, seed)]
    results = pd.DataFrame(rows, columns=["read", "answer", "off", "covered", "half"])
    print("table,answer,seeds,RMSE,covered,half width")
    for (read, answer), own in results.groupby(["read", "answer"], sort=False):
        error = np.sqrt(np.mean(own["off"] ** 2))
        shares = f"{error:.2f},{own['covered'].mean():.2f},{own['half'].median():.2f}"
        print(f'"{read}",{answer},{len(own)},{shares}')
    figure(results, folder / "panel.svg")


if __name__ == "__main__":
    args, figures = repeated(__doc__, 50), Path(__file__).parent / "figures"
    with tempfile.TemporaryDirectory() as elsewhere:
        main(args.runs, Path(elsewhere) if args.quick else figures)
