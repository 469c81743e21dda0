"""The study of effects: its references, what its intervals are judged by, and its table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import real_data
from common import hajek
from effects import drawn, effect_errors, population, published_row
from populations import POPULATIONS

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.diagnostics import augmented, difference
from dp2erm_cvx.errors import DeclarationError


def test_a_line_in_either_arm_is_exact_where_outcomes_are_lines():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (4000, 2))
    a, effect = rng.binomial(1, 1 / (1 + np.exp(-2 * x[:, 0]))), 1.0 + x[:, 1] + 0.5 * x[:, 0]
    data = Dataset.from_arrays(x, a, 3 * x[:, 0] + a * effect)
    assert augmented(data).value == pytest.approx(np.mean(effect), abs=1e-9)
    assert augmented(data, estimand="att").value == pytest.approx(np.mean(effect[a == 1]), abs=1e-2)
    assert difference(data).value > 2.0


def test_standard_errors_are_those_of_many_samples():
    ways = {"difference": difference, "hajek": hajek, "augmented": augmented}
    samples = [POPULATIONS["varying"].draw(400, np.random.default_rng(k)).dataset for k in range(80)]
    for name, estimate in ways.items():
        values, errors = np.array([estimate(data) for data in samples]).T
        # the error of weighted means treats fitted propensities as known, which is on the safe side
        assert 0.8 < np.mean(errors) / np.std(values) < (3.0 if name == "hajek" else 1.25)
        if name != "difference":
            assert abs(np.mean(values) - 0.5) < 4 * np.std(values) / np.sqrt(80)


def test_errors_and_coverage_of_a_table():
    place = {"data": "d", "n": 5, "epsilon": 1.0, "method": "m", "status": "done", "effect": 1.0}
    records = [
        {**place, "estimate": 1.5, "low": 0.5, "high": 2.5},
        {**place, "estimate": 0.5, "low": 0.0, "high": 0.9},
        {**place, "status": "refused"},
        {**place, "n": 0, "estimate": 2.0, "low": 1.0, "high": 3.0},
    ]
    anew, real = effect_errors(pd.DataFrame(records)).to_dict("records")
    assert (anew["bias"], anew["rmse"], anew["samples"]) == (0.0, 0.5, 2)
    assert anew["covers_effect"] == 0.5
    assert np.isnan(real["covers_effect"])


def test_settings_of_a_challenge_share_a_line():
    place = {"n": 0, "epsilon": 1.0, "method": "m", "status": "done", "low": np.nan, "high": np.nan}
    records = [
        {**place, "data": f"acic-{k}", "effect": float(k), "estimate": 3.0 + off}
        for k in (1, 5)
        for off in (-0.5, 0.5)
    ]
    (line,) = effect_errors(pd.DataFrame(records)).to_dict("records")
    assert (line["data"], line["samples"]) == ("acic", 4)
    # off by 2 -+ .5 and -2 -+ .5
    assert line["bias"] == 0.0
    assert line["rmse"] == pytest.approx(np.sqrt(4.25))
    assert line["deviation"] == pytest.approx(np.sqrt(0.5))
    half = 1.96 * np.std([2.25, 6.25, 2.25, 6.25], ddof=1) / (4 * line["rmse"])
    assert line["rmse_half"] == pytest.approx(half, rel=1e-4)


def test_methods_without_an_effect_among_the_treated_have_no_row():
    data = replace(drawn(population("varying"), 200, np.random.default_rng(0)), treated_only=True)
    rng = np.random.default_rng(1)
    assert published_row(data, {"method": "private_propensity"}, 1.0, rng) is None
    assert published_row(data, {"method": "subsample_aggregate"}, 1.0, rng)["status"] == "done"
    with pytest.raises(KeyError):
        population("none")
    with pytest.raises(DeclarationError):
        real_data.load("none")


def test_the_effect_among_the_treated_stands_where_it_is_known():
    rng = np.random.default_rng(4)
    data = drawn(population("linear"), 200_000, rng, treated_only=True)
    # its own propensity would be that of an average over all
    assert (data.treated_only, data.propensity) == (True, None)
    estimate = augmented(data.dataset, estimand="att")
    assert abs(estimate.value - data.effect) < 4 * estimate.error
    with pytest.raises(DeclarationError, match="not known"):
        drawn(population("varying"), 50, rng, treated_only=True)
