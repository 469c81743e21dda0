"""Twins: the file as it stands, outcomes as declared, and the study on a stand-in of the same schema."""

import dataclasses
import gzip
import hashlib
import io
import os
from itertools import product

import numpy as np
import pandas as pd
import pytest
import twins
import twins_data
from common import cells
from populations import twins_population
from twins import Outcomes
from twins_data import SHA256, read_twins

from dp2erm_cvx.errors import DataError

REAL = os.environ.get("DP2ERM_TWINS")
LINEAR = Outcomes(n_important=4, treat_share=0.3, outcome_scale=2.0, seed=1)


@pytest.fixture
def written(tmp_path):
    """Writes a file with the columns, codes and stray quotes of the real one: (path, digest)."""

    def write(n=700, change=lambda columns: None):
        rng, path, text = np.random.default_rng(0), tmp_path / "stand-in.csv.gz", io.StringIO()
        columns = {name: rng.choice([1, 2, 2, 2, 8], n) for name in twins_data.RISKS}
        columns |= {name: rng.integers(low, high + 1, n) for name, (low, high) in twins_data.AMOUNTS.items()}
        columns |= {name: rng.integers(1, levels + 1, n) for name, levels in twins_data.LEVELS.items()}
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
        columns["outcome(t=0)"], columns["outcome(t=1)"] = (np.where(d, 5, 9999) for d in (lighter, heavier))

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
