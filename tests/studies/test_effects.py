"""The study of effects: its references, what its intervals are judged by, and its table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx.compare.effect_references import augmented, difference, hajek
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.datasets import EFFECT_SCENARIOS
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.plotting.studies import figures_of
from dp2erm_cvx.studies import design_path
from dp2erm_cvx.studies.effect_data import drawn_data, population, real_data
from dp2erm_cvx.studies.effect_methods import EffectMethod, PublishedMethod, published_row
from dp2erm_cvx.studies.effect_summary import effect_errors
from dp2erm_cvx.studies.effects import BenchmarkStudy, EffectsDesign, EffectsStudy
from dp2erm_cvx.studies.engine import load_design, run
from dp2erm_cvx.studies.summary import rule_errors


def linear(n=4000, noise=0.0):
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (n, 2))
    a = rng.binomial(1, 1 / (1 + np.exp(-2 * x[:, 0])))
    effect = 1.0 + x[:, 1] + 0.5 * x[:, 0]
    return Dataset.from_arrays(x, a, 3 * x[:, 0] + a * effect + noise * rng.standard_normal(n)), effect


def test_a_line_in_either_arm_is_exact_where_outcomes_are_lines():
    data, effect = linear()
    assert augmented(data).value == pytest.approx(np.mean(effect), abs=1e-9)
    assert augmented(data, treated_only=True).value == pytest.approx(np.mean(effect[data.a == 1]), abs=1e-2)
    assert difference(data).value > 2.0


def test_standard_errors_are_those_of_many_samples():
    found = {"difference": [], "hajek": [], "augmented": []}
    for replicate in range(80):
        data = EFFECT_SCENARIOS["varying"].draw(400, np.random.default_rng(replicate)).dataset
        for name, one in (("difference", difference), ("hajek", hajek), ("augmented", augmented)):
            found[name].append(one(data))
    for name, estimates in found.items():
        values, errors = np.array(estimates).T
        # the error of weighted means treats fitted propensities as known, which is on the safe side
        assert 0.8 < np.mean(errors) / np.std(values) < (3.0 if name == "hajek" else 1.25)
        if name != "difference":
            assert abs(np.mean(values) - 0.5) < 4 * np.std(values) / np.sqrt(80)


def test_a_run_has_a_line_for_every_method(tmp_path):
    design = load_design(EffectsDesign, design_path("effects"), "quick")
    table = run(EffectsStudy(), design, tmp_path)
    assert (table["status"] == "done").all()
    lines = effect_errors(table).set_index(["data", "method"])
    assert {"weights of 1", "IPW", "EBW", "private IPW", "private"} <= set(lines.loc["low overlap"].index)
    plain = lines.loc[("nhefs", "AIPW")]
    assert plain["bias"] == pytest.approx(0.0, abs=1e-12)
    assert table[table["data"] == "nhefs"]["effect"].unique() == pytest.approx([3.175], abs=0.01)
    headers, shown = EffectsStudy().summary_table(design, table)
    assert all(len(line) == len(headers) for line in shown)
    assert len(shown) == len(lines)


def test_errors_and_coverage_of_a_table():
    place = {"data": "d", "n": 5, "epsilon": 1.0, "method": "m", "status": "done", "effect": 1.0}
    rows = [
        {**place, "estimate": 1.5, "low": 0.5, "high": 2.5},
        {**place, "estimate": 0.5, "low": 0.0, "high": 0.9},
        {**place, "status": "refused"},
        {**place, "n": 0, "estimate": 2.0, "low": 1.0, "high": 3.0},
    ]
    drawn, real = effect_errors(pd.DataFrame(rows)).to_dict("records")
    assert (drawn["bias"], drawn["rmse"], drawn["samples"]) == (0.0, 0.5, 2)
    assert drawn["covers_effect"] == 0.5
    assert np.isnan(real["covers_effect"])


def test_settings_are_scaled_and_none_is_a_setting():
    data = drawn_data(population("varying"), 50, np.random.default_rng(0))
    settings = {"first_fit": "none", "cap": 3.0}
    model = EffectMethod(settings=settings, scaled={"slope": 2.0}, residual_scale=0.0).estimator(data, 1.0, 1)
    assert model.settings == {"first_fit": None, "cap": 3.0, "slope": 1.0}
    assert model.residual_scale is None
    assert EffectMethod().estimator(data, 1.0, 1).residual_scale == 0.5
    with pytest.raises(KeyError):
        population("none")
    with pytest.raises(DeclarationError):
        real_data("none")


def test_a_benchmark_has_the_methods_of_others(tmp_path):
    fields = {"data": {"varying": {"replicates": {150: 2}, "epsilons": [1.0], "weights": []}}, "rules": {}}
    design = load_design(EffectsDesign, design_path("benchmark"), **fields)
    table = run(BenchmarkStudy(), design, tmp_path)
    assert {"private", *design.published} <= set(table["method"])
    assert (table[table["epsilon"] == 1.0]["seconds"] > 0).all()
    lines = effect_errors(table).set_index("method")
    assert lines.loc["Lee et al.", "delta"] == 1e-5
    assert lines.loc["Guha & Reiter", "delta"] == 0.0
    assert (lines["records"] == 150).all()
    # no interval of theirs is public
    assert lines.loc[list(design.published), "width"].isna().all()
    paths = figures_of("benchmark", table, tmp_path)
    assert [path.name for path in paths] == ["benchmark.svg", "benchmark.png"]


def test_methods_without_an_effect_among_the_treated_have_no_row():
    data = replace(drawn_data(population("varying"), 200, np.random.default_rng(0)), treated_only=True)
    rng = np.random.default_rng(1)
    assert published_row(data, PublishedMethod(method="private_propensity"), 1.0, rng) is None
    row = published_row(data, PublishedMethod(method="subsample_aggregate"), 1.0, rng)
    assert row["status"] == "done"
    with pytest.raises(KeyError):
        published_row(data, PublishedMethod(method="none"), 1.0, rng)


def test_settings_of_a_challenge_share_a_line():
    place = {"n": 0, "epsilon": 1.0, "method": "m", "status": "done", "low": np.nan, "high": np.nan}
    rows = [
        {**place, "data": f"acic-{k}", "effect": float(k), "estimate": 3.0 + off}
        for k in (1, 5)
        for off in (-0.5, 0.5)
    ]
    (line,) = effect_errors(pd.DataFrame(rows)).to_dict("records")
    assert (line["data"], line["samples"]) == ("acic", 4)
    # off by 2 -+ .5 and -2 -+ .5
    assert line["bias"] == 0.0
    assert line["rmse"] == pytest.approx(np.sqrt(4.25))
    assert line["deviation"] == pytest.approx(np.sqrt(0.5))
    half = 1.96 * np.std([2.25, 6.25, 2.25, 6.25], ddof=1) / (4 * line["rmse"])
    assert line["rmse_half"] == pytest.approx(half, rel=1e-4)


def test_a_name_may_stand_for_several_benchmarks():
    source = {"replicates": {0: 2}, "epsilons": [1.0]}
    design = EffectsDesign(seed=1, data={"acic-hinges-*": source, "binary": source}, methods={})
    assert list(design.sources()) == [*(f"acic-hinges-{k}" for k in range(1, 11)), "binary"]
    assert len(list(EffectsStudy().keys(design))) == 22


def test_the_effect_among_the_treated_stands_where_it_is_known():
    rng = np.random.default_rng(4)
    data = drawn_data(population("linear"), 200_000, rng, treated_only=True)
    assert data.treated_only
    # its own propensity would be that of an average over all
    assert data.propensity is None
    found = augmented(data.dataset, treated_only=True)
    assert abs(found.value - data.effect) < 4 * found.error
    with pytest.raises(DeclarationError, match="not known"):
        drawn_data(population("varying"), 50, rng, treated_only=True)


def test_rules_stand_beside_effects_and_what_is_left_out_is_said(tmp_path):
    name = design_path("benchmark")
    whole = load_design(EffectsDesign, name)
    rule = whole.rules["confounded"].model_dump() | {"replicates": {300: 2}, "epsilons": [1.0], "n_test": 500}
    source = {"replicates": {200: 1}, "epsilons": [1.0]}
    few = {
        "data": {"confounded": source, "twins": source},
        "rules": {"confounded": rule, "twins": whole.rules["twins"].model_dump()},
        "published": {},
        "timed": False,
    }
    design = load_design(EffectsDesign, name, **few)
    study = BenchmarkStudy()
    table = run(study, design, tmp_path)
    assert set(table["data"]) == {"confounded"}
    assert "seconds" not in table
    rules, missing = study.listings(design, table, {})
    assert missing.lines == [["twins"], ["rules, twins"]]
    assert "Twin_Data.csv.gz" in missing.title
    found = rule_errors(table).set_index("method")
    assert {"private", "direct IPW", "composed IPW", "weighted rule, IPW", "treat none"} <= set(found.index)
    assert set(design.published_rules) <= set(found.index)
    assert found["accuracy"].between(0, 1).all()
    assert found.loc[["treat all", "treat none"], "accuracy"].sum() == pytest.approx(1.0)
    assert len(rules.lines) == len(rule_errors(table))
    # effects are summed up without them
    assert set(effect_errors(table)["method"]) >= {"private", "AIPW", "Hajek", "difference of means"}
    assert "treat all" not in set(effect_errors(table)["method"])
    assert [path.name for path in figures_of("benchmark", table, tmp_path)] == [
        *("benchmark.svg", "benchmark.png"),
        *("benchmark-rules.svg", "benchmark-rules.png"),
    ]
