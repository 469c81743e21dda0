"""One release through every door: Python, a study, files in blocks, and what reads it."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.data.cells import Treatment
from dp2erm_cvx.data.codebook import Codebook
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.release.reading import read_release_file
from dp2erm_cvx.report import release_page
from tests.command_line import COLUMNS, done, facts, run, sets, study_of
from tests.rows import slow_rows

#: What the files declare.
DECLARED = Domain(
    2.0,
    8.0,
    intercept=1.0,
    ranges=dict.fromkeys(COLUMNS, (-1, 1)),
    codebook=Codebook(Treatment("a"), outcome="y"),
)
BINARY = {"outcome_center": 0.5, "outcome_bound": 0.5}
WORTH = {"propensity": 0.5, "value_share": 0.2}
WEIGHTS = {
    "first_stage": ipw_private(ridge=2.0),
    "second_stage": "plug_in_ate",
    "arithmetic": "assumed",
}
#: The estimator in Python with its options, and the question of a study file.
RELEASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "effect": (PrivateEffect, {"residual_scale": 1.0}, "[[effect]]\nresidual_scale = 1"),
    "att": (PrivateEffect, {"estimand": "att"}, '[[effect]]\nestimand = "att"'),
    "risks": (PrivateEffect, {"estimand": "risks"}, '[[effect]]\nestimand = "risks"'),
    "rule": (PrivateRule, {"outcome_scale": 1.0}, "[[rule]]\noutcome_scale = 1"),
    "value": (
        *(PrivateRule, {"settings": WORTH}),
        "[[rule]]\nsettings = { propensity = 0.5, value_share = 0.2 }",
    ),
    "weights": (PrivateTwoStageERM, {}, "[[two_stage]]"),
    "plug_in_ate": (
        *(PrivateTwoStageERM, WEIGHTS),
        '[[two_stage]]\nfirst_stage = { name = "ipw_private", ridge = 2.0 }\nsecond_stage = '
        '"plug_in_ate"\n'
        'arithmetic = "assumed"',
    ),
}


def without_study(release):
    """A release as Python makes it, which is of no study."""
    return {name: value for name, value in release.items() if name != "study"}


@pytest.mark.one_row_in(8)
@pytest.mark.parametrize("kind", slow_rows(RELEASES, "att", "value", "weights"))
def test_every_door_releases_the_same(folder, monkeypatch, kind):
    # a screen of another width fills its lines otherwise
    monkeypatch.delenv("COLUMNS", raising=False)
    estimator, options, question = RELEASES[kind]
    account = '[ledger]\nfile = "book.db"\ndataset = "trial"\n'
    Path("study.toml").write_text(study_of(f"{account}{question}\n"))
    words = ["run", "study.toml", "data.csv", "--yes", "--force", "--output", "r.json"]
    if kind == "risks":
        words += sets(*(f"{name}={value}" for name, value in BINARY.items()))
    release = facts(*words, "--seed", "1")
    assert not Path("book.db").exists()  # what is seeded is charged to nobody
    assert release == json.loads(Path("r.json").read_bytes())
    assert estimator is PrivateTwoStageERM or [*release][:2] == [
        "private",
        "standing",
    ]  # to be relied on
    frame = pd.read_csv("data.csv", float_precision="round_trip")
    domain = replace(DECLARED, **BINARY) if kind == "risks" else DECLARED
    model = estimator(domain, Budget(1.0), seed=1, **options)
    own = json.loads(model.fit(frame, frame["a"], frame["y"]).release_.to_json())
    assert without_study(own) == without_study(release)
    # in blocks
    monkeypatch.setattr("dp2erm_cvx.data.files.PART", 1000)
    frame.to_parquet("data.parquet", row_group_size=33)
    Path("many").mkdir()
    for k in range(2):
        frame[100 * k : 100 * k + 100].to_parquet(f"many/{k}.parquet")
    always = ["--blocks", "always"]
    for name, *more in (
        ["data.csv", *always],
        ["data.parquet", *always],
        ["many"],
        ["many/*.parquet"],
    ):
        assert facts(*words[:2], name, *words[3:], *more, "--seed", "1") == release
    # what reads it: a summary knows the file alone, so no number of it was not released
    told = done(*words, "--seed", "1").stdout
    read = read_release_file("r.json")
    assert "\n".join(line.rstrip() for line in told.splitlines()).startswith(
        f"{read.summary()}\nstudy "
    )
    assert told.startswith(done("show", "r.json").stdout)
    about = [] if kind == "risks" else ["--domain", "domain.toml", "--study", "study.toml"]
    verified = done("verify", "r.json", *about)
    assert (verified.stdout.splitlines()[0], "NOT PRIVATE: SEEDED" in verified.stderr) == (
        "Verified",
        True,
    )
    assert done("report", "r.json").stdout == "wrote r.html\n"
    assert Path("r.html").read_text(encoding="utf-8") == release_page(read, source="r.json")
    if hasattr(model, "predict_effect"):
        rows = list(csv.DictReader(done("predict", "r.json", "data.csv").stdout.splitlines()))
        assert [float(row["effect"]) for row in rows] == list(
            model.predict_effect(frame[list(COLUMNS)])
        )
        assert [int(row["treatment"]) for row in rows] == list(model.predict(frame[list(COLUMNS)]))
    # and the plan that it followed
    planned, known = facts(*words, "--plan", "200")["steps"], ("step", "theorem", "scale")
    assert [[step[name] for name in known] for step in planned] == [
        [step[name] for name in known] for step in release["steps"]
    ]
    # a number that does not follow from the declaration is refuted, and not shown
    release["steps"][0]["stability"] = 0.0
    Path("changed.json").write_text(json.dumps(release))
    refuted = run("verify", "changed.json")
    assert (refuted.exit_code, refuted.stdout.splitlines()[0]) == (1, "REFUTED")
    assert "steps.0.stability: 0.0 stated" in " ".join(refuted.stdout.split())
    for reader in ("show", "report"):
        assert "steps.0.stability: 0.0 stated" in run(reader, "changed.json").stderr
    assert not Path("changed.html").exists()
