"""One release through every door: Python, its command, files in blocks, a study, and what reads it."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateRule, PrivateTwoStageERM
from dp2erm_cvx.cells import Treatment
from dp2erm_cvx.codebook import Codebook
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.release.reading import read_release_file
from dp2erm_cvx.report import release_page
from tests.command_line import COLUMNS, EFFECT, done, run

#: What the files and the flags of the good command declare.
DECLARED = Domain(
    2.0,
    8.0,
    intercept=1.0,
    ranges=dict.fromkeys(COLUMNS, (-1, 1)),
    codebook=Codebook(Treatment("a"), outcome="y"),
)
BINARY = {"outcome_center": 0.5, "outcome_bound": 0.5}


class Asked(NamedTuple):
    """One release: flags of a command, the estimator in Python, and a question of a study file."""

    words: str
    model: Callable[..., Any]
    options: dict[str, Any]
    question: str
    domain: dict[str, float] = {}  # noqa: RUF012


RELEASES = {
    "effect": Asked(
        "effect --residual-scale 1", PrivateEffect, {"residual_scale": 1.0}, "[[effect]]\nresidual_scale = 1"
    ),
    "att": Asked("effect --estimand att", PrivateEffect, {"estimand": "att"}, '[[effect]]\nestimand = "att"'),
    "risks": Asked(
        "effect --estimand risks --outcome-center 0.5 --outcome-bound 0.5",
        *(PrivateEffect, {"estimand": "risks"}, '[[effect]]\nestimand = "risks"', BINARY),
    ),
    "cells": Asked(
        "effect --cells x1=-0.5,0,0.25 --cells x2:1 --cells x3:1",
        PrivateEffect,
        {"settings": {"cells": {"x1": [-0.5, 0.0, 0.25], "x2": 1, "x3": 1}}},
        "[[effect]]\nsettings = { cells = { x1 = [-0.5, 0.0, 0.25], x2 = 1, x3 = 1 } }",
    ),
    "rule": Asked(
        "rule --outcome-scale 1", PrivateRule, {"outcome_scale": 1.0}, "[[rule]]\noutcome_scale = 1"
    ),
    "value": Asked(
        "rule --set propensity=0.5 --set value_share=0.2",
        PrivateRule,
        {"settings": {"propensity": 0.5, "value_share": 0.2}},
        "[[rule]]\nsettings = { propensity = 0.5, value_share = 0.2 }",
    ),
    "weights": Asked("fit", PrivateTwoStageERM, {}, "[[weights]]"),
    **{
        second: Asked(
            f"fit --program ipw_private --ridge 2 --second-stage {second} --arithmetic assumed",
            PrivateTwoStageERM,
            {"first_stage": ipw_private(ridge=2.0), "second_stage": second, "arithmetic": "assumed"},
            f'[[weights]]\nfirst_stage = {{ name = "ipw_private", ridge = 2.0 }}\nsecond_stage = "{second}"\n'
            'arithmetic = "assumed"',
        )
        for second in ("arm_means", "plug_in_ate")
    },
}


def numbers(release: dict[str, Any]) -> Any:
    return release.get("released") or release["theta"]


@pytest.mark.parametrize("asked", RELEASES.values(), ids=RELEASES.keys())
def test_every_door_releases_the_same(folder, monkeypatch, asked):
    monkeypatch.delenv("COLUMNS", raising=False)  # a screen of another width fills its lines otherwise
    command, *flags = asked.words.split()
    words = [command, *EFFECT[1:], *flags, "--yes"]
    release = json.loads(done(*words, "--seed", "1", "--json", "--output", "r.json").stdout)
    assert release == json.loads(Path("r.json").read_bytes())
    frame = pd.read_csv("data.csv", float_precision="round_trip")
    model = asked.model(replace(DECLARED, **asked.domain), Budget(1.0), seed=1, **asked.options)
    fitted = model.fit(frame, frame["a"], frame["y"]).release_
    assert json.loads(fitted.to_json()) == release
    # in blocks
    monkeypatch.setattr("dp2erm_cvx.files.PART", 1000)
    frame.to_parquet("data.parquet", row_group_size=33)
    Path("many").mkdir()
    for k in range(2):
        frame[100 * k : 100 * k + 100].to_parquet(f"many/{k}.parquet")
    always = ["--blocks", "always"]
    for name, *more in (["data.csv", *always], ["data.parquet", *always], ["many"], ["many/*.parquet"]):
        assert json.loads(run(command, name, *words[2:], *more, "--seed", "1", "--json").stdout) == release
    # a study file
    columns = 'treatment = "a"\noutcome_column = "y"\n[ranges]'
    study = Path("domain.toml").read_text().replace("[ranges]", columns)
    if asked.domain:
        study = study.replace("outcome_bound = 8.0", "outcome_bound = 0.5\noutcome_center = 0.5")
    paid = '[budget]\nepsilon = 1\n[ledger]\nfile = "book.db"\ndataset = "trial"\n'
    Path("study.toml").write_text(f"{study}{paid}{asked.question}\n")
    (answer,) = json.loads(
        done("run", "study.toml", "data.csv", "--seed", "1", "--json", "--yes").stdout
    ).values()
    np.testing.assert_allclose(numbers(answer), numbers(release), rtol=1e-9)
    assert not Path("book.db").exists()  # what is seeded is charged to nobody
    # what reads it: a summary knows the file alone, so no number of it was not released
    shown = done(*words, "--seed", "1").stdout
    read = read_release_file("r.json")
    assert "\n".join(line.rstrip() for line in shown.splitlines()) == read.summary()
    assert done("show", "r.json").stdout == shown
    verified = done("verify", "r.json", *([] if asked.domain else ["--domain", "domain.toml"]))
    assert (verified.stdout.splitlines()[0], "NOT PRIVATE: SEEDED" in verified.stderr) == ("Verified", True)
    assert done("report", "r.json").stdout == "wrote r.html\n"
    assert Path("r.html").read_text(encoding="utf-8") == release_page(read, source="r.json")
    if hasattr(model, "predict_effect"):
        rows = list(csv.DictReader(done("predict", "r.json", "data.csv").stdout.splitlines()))
        assert [float(row["effect"]) for row in rows] == list(model.predict_effect(frame[list(COLUMNS)]))
        assert [int(row["treatment"]) for row in rows] == list(model.predict(frame[list(COLUMNS)]))
    # and the plan that it followed
    planned = json.loads(done(*words, "--plan", "200", "--json").stdout)
    known = [{name: step[name] for name in ("step", "theorem", "scale")} for step in planned["steps"]]
    assert known == [{name: step[name] for name in ("step", "theorem", "scale")} for step in release["steps"]]
    # a number that does not follow from the declaration is refuted, and neither shown nor registered
    release["steps"][0]["stability"] = 0.0
    Path("changed.json").write_text(json.dumps(release))
    refuted = run("verify", "changed.json")
    assert (refuted.exit_code, refuted.stdout.splitlines()[0]) == (1, "REFUTED")
    assert "steps.0.stability: 0.0 stated" in " ".join(refuted.stdout.split())
    for reader in ("show", "report", "datasheet"):
        assert "steps.0.stability: 0.0 stated" in run(reader, "changed.json").stderr
    assert not Path("changed.html").exists()


def test_a_record_for_a_registry_is_written_with_marks(folder) -> None:
    done(*EFFECT, "--output", "effect.json")
    shown = done("datasheet", "effect.json", "--set", "name=A = B")
    assert '\n    name: "A = B"\n' in shown.stdout
    assert "17 of 18 fields" in shown.stderr
    assert shown.stdout.partition("url_slug")[2].count("TODO") == 17
    written = run("datasheet", "effect.json", "--set", "name=A = B", "--output", "record.yaml")
    assert (written.exit_code, written.stdout) == (0, "")
    assert Path("record.yaml").read_text(encoding="utf-8") == shown.stdout
