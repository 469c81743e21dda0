"""One release through every door: Python, its command, files in blocks, a study, and what reads it."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.release.reading import read_release_file
from dp2erm_cvx.report import release_page
from tests.command_line import COLUMNS, EFFECT, done, facts, run

#: What the files and the flags of the good command declare.
DECLARED = Domain(
    2.0,
    8.0,
    intercept=1.0,
    ranges=dict.fromkeys(COLUMNS, (-1, 1)),
    codebook=Codebook(Treatment("a"), outcome="y"),
)
BINARY = {"outcome_center": 0.5, "outcome_bound": 0.5}
CELLS = {"cells": {"x1": [-0.5, 0.0, 0.25], "x2": 1, "x3": 1}}
WORTH = {"propensity": 0.5, "value_share": 0.2}
WEIGHTS = {"first_stage": ipw_private(ridge=2.0), "second_stage": "plug_in_ate", "arithmetic": "assumed"}
#: Flags of a command, the estimator in Python with its options, and a question of a study file.
RELEASES: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "effect": (
        *("effect --residual-scale 1", PrivateEffect, {"residual_scale": 1.0}),
        "[[effect]]\nresidual_scale = 1",
    ),
    "att": ("effect --estimand att", PrivateEffect, {"estimand": "att"}, '[[effect]]\nestimand = "att"'),
    "risks": (
        "effect --estimand risks --outcome-center 0.5 --outcome-bound 0.5",
        *(PrivateEffect, {"estimand": "risks"}, '[[effect]]\nestimand = "risks"'),
    ),
    "cells": (
        *("effect --cells x1=-0.5,0,0.25 --cells x2:1 --cells x3:1", PrivateEffect, {"settings": CELLS}),
        "[[effect]]\nsettings = { cells = { x1 = [-0.5, 0.0, 0.25], x2 = 1, x3 = 1 } }",
    ),
    "rule": ("rule --outcome-scale 1", PrivateRule, {"outcome_scale": 1.0}, "[[rule]]\noutcome_scale = 1"),
    "value": (
        *("rule --set propensity=0.5 --set value_share=0.2", PrivateRule, {"settings": WORTH}),
        "[[rule]]\nsettings = { propensity = 0.5, value_share = 0.2 }",
    ),
    "weights": ("fit", PrivateTwoStageERM, {}, "[[two_stage]]"),
    "plug_in_ate": (
        "fit --program ipw_private --ridge 2 --second-stage plug_in_ate --arithmetic assumed",
        *(PrivateTwoStageERM, WEIGHTS),
        '[[two_stage]]\nfirst_stage = { name = "ipw_private", ridge = 2.0 }\nsecond_stage = "plug_in_ate"\n'
        'arithmetic = "assumed"',
    ),
}


@pytest.mark.parametrize("kind", RELEASES)
def test_every_door_releases_the_same(folder, monkeypatch, kind):
    monkeypatch.delenv("COLUMNS", raising=False)  # a screen of another width fills its lines otherwise
    asked, estimator, options, question = RELEASES[kind]
    command, *flags = asked.split()
    words = [command, *EFFECT[1:], *flags, "--yes"]
    release = facts(*words, "--seed", "1", "--output", "r.json")
    assert release == json.loads(Path("r.json").read_bytes())
    assert command == "fit" or [*release][:2] == ["private", "standing"]  # what may be relied on
    frame = pd.read_csv("data.csv", float_precision="round_trip")
    domain = replace(DECLARED, **BINARY) if kind == "risks" else DECLARED
    model = estimator(domain, Budget(1.0), seed=1, **options)
    assert json.loads(model.fit(frame, frame["a"], frame["y"]).release_.to_json()) == release
    # in blocks
    monkeypatch.setattr("dp2erm_cvx.files.PART", 1000)
    frame.to_parquet("data.parquet", row_group_size=33)
    Path("many").mkdir()
    for k in range(2):
        frame[100 * k : 100 * k + 100].to_parquet(f"many/{k}.parquet")
    always = ["--blocks", "always"]
    for name, *more in (["data.csv", *always], ["data.parquet", *always], ["many"], ["many/*.parquet"]):
        assert facts(command, name, *words[2:], *more, "--seed", "1") == release
    # a study file
    study = (
        Path("domain.toml").read_text().replace("[ranges]", 'treatment = "a"\noutcome_column = "y"\n[ranges]')
    )
    if kind == "risks":
        study = study.replace("outcome_bound = 8.0", "outcome_bound = 0.5\noutcome_center = 0.5")
    paid = '[budget]\nepsilon = 1\n[ledger]\nfile = "book.db"\ndataset = "trial"\n'
    Path("study.toml").write_text(f"{study}{paid}{question}\n")
    answer = facts("run", "study.toml", "data.csv", "--seed", "1", "--yes")
    noisy = "released" if "released" in release else "theta"
    np.testing.assert_allclose(answer[noisy], release[noisy], rtol=1e-9)
    assert not Path("book.db").exists()  # what is seeded is charged to nobody
    # what reads it: a summary knows the file alone, so no number of it was not released
    told = done(*words, "--seed", "1").stdout
    read = read_release_file("r.json")
    assert "\n".join(line.rstrip() for line in told.splitlines()) == read.summary()
    assert done("show", "r.json").stdout == told
    verified = done("verify", "r.json", *([] if kind == "risks" else ["--domain", "domain.toml"]))
    assert (verified.stdout.splitlines()[0], "NOT PRIVATE: SEEDED" in verified.stderr) == ("Verified", True)
    assert done("report", "r.json").stdout == "wrote r.html\n"
    assert Path("r.html").read_text(encoding="utf-8") == release_page(read, source="r.json")
    if hasattr(model, "predict_effect"):
        rows = list(csv.DictReader(done("predict", "r.json", "data.csv").stdout.splitlines()))
        assert [float(row["effect"]) for row in rows] == list(model.predict_effect(frame[list(COLUMNS)]))
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
