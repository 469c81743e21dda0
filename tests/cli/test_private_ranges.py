"""``--private-ranges``: what the domain file and the flags may leave out, and how that is told."""

import json
from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.cli.options import DOMAIN_FIELDS
from dp2erm_cvx.cli.reading import read_ranges
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.private_ranges import PrivateRanges, Within
from tests.command_line import done, run

EFFECT = ["effect", "data.csv", "--treatment", "a", "--outcome", "y", "--epsilon", "2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n = 3000
    x, z, a = rng.normal(50, 9, n), rng.uniform(0, 1, n), rng.integers(0, 2, n)
    rows = np.column_stack([x, z, a, 3 * x + 20 * a + rng.normal(0, 9, n)])
    np.savetxt("data.csv", rows, delimiter=",", header="x,z,a,y", comments="")
    return tmp_path


def test_nothing_has_to_be_declared(folder):
    result = done(*EFFECT, "--private-ranges", "0.2", "--json", "--seed", "1")
    plain = json.loads(result.stdout)
    assert plain["interval"]["low"] < 20 < plain["interval"]["high"]
    assert [one["column"] for one in plain["ranges"]] == ["x", "z", "y"]
    shown = run(*EFFECT, "--private-ranges", "0.2", "--seed", "1").stdout
    assert "Ranges were released for epsilon = 0.4" in " ".join(shown.split())


def options(text="", **given):
    Path("domain.toml").write_text(text)
    return {
        **dict.fromkeys((*DOMAIN_FIELDS, "covariates")),
        "ranges": (),
        "private_ranges": 0.1,
        "domain": "domain.toml",
        **given,
    }


def test_the_file_and_the_flags_together(folder):
    text = 'relation = "replace-one"\n[ranges]\nx = [0, 100]\nz = {within = [0, 9]}\nw = "private"\n'
    result = read_ranges(options(text, ranges=("w=1:2",), outcome_bound=3, outcome_center=1))
    assert result == PrivateRanges(
        ranges={"x": (0, 100), "z": Within(0, 9), "w": (1, 2)}, outcome=(-2.0, 4.0)
    )
    assert read_ranges(options(text, covariates="z,x,v")).known(3) == (Within(0, 9), (0.0, 100.0), None, None)
    assert read_ranges(options("outcome = {within = [0, 1]}", domain="domain.toml")).outcome == Within(0, 1)
    assert read_ranges(options(domain=None, private_ranges=0.3)) == PrivateRanges(0.3)


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("intercept = 1", {}, "intercept cannot be declared"),
        ("", {"treatment_cost": 1}, "treatment_cost cannot be declared"),
        ("ranges = [[0, 1]]", {}, "must have names"),
        ("[ranges]\nx = {inside = [0, 1]}", {}, "must be {within"),
        ("[ranges]\nx = {within = [1, 0]}", {}, "low must be below high"),
        ("outcome_center = 1", {}, "needs an outcome_bound"),
        ("outcome = [0, 1]\noutcome_bound = 1", {}, "not both"),
        ("", {"private_ranges": 2}, "private ranges: share"),
        ("", {"private_ranges": "much"}, "private ranges: share"),
        ("", {"ranges": ("x=1",)}, "COLUMN=LOW:HIGH"),
    ],
)
def test_what_cannot_be_declared(folder, text, given, message):
    with pytest.raises(DeclarationError, match=message):
        read_ranges(options(text, **given))
