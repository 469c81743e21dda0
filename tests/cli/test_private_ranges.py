"""``--private-ranges``: what the domain file and the flags may leave out, and how that is told."""

from pathlib import Path

import numpy as np
import pytest

from dp2erm_cvx.cli.options import DOMAIN_FIELDS
from dp2erm_cvx.cli.reading import read_ranges
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.private_ranges import PrivateRanges, Within
from tests.command_line import facts, shown


def test_nothing_has_to_be_declared(folder):
    rng, n = np.random.default_rng(0), 3000
    x, z, a = rng.normal(50, 9, n), rng.uniform(0, 1, n), rng.integers(0, 2, n)
    rows = np.column_stack([x, z, a, 3 * x + 20 * a + rng.normal(0, 9, n)])
    np.savetxt("wide.csv", rows, delimiter=",", header="x,z,a,y", comments="")
    words = ["effect", "wide.csv", "--treatment", "a", "--outcome", "y", "--epsilon", "2"]
    words += ["--private-ranges", "0.2", "--seed", "1"]
    plain = facts(*words)
    assert plain["interval"]["low"] < 20 < plain["interval"]["high"]
    assert [one["column"] for one in plain["ranges"]] == ["x", "z", "y"]
    assert "Ranges were released for epsilon = 0.4" in shown(*words)


def asked(text="", **given):
    """The public ranges of a domain file and of flags."""
    Path("domain.toml").write_text(text)
    plain = {**dict.fromkeys((*DOMAIN_FIELDS, "covariates")), "ranges": (), "private_ranges": 0.1}
    return read_ranges(plain | {"domain": "domain.toml"} | given)


def test_the_file_and_the_flags_together(folder):
    text = 'relation = "replace-one"\n[ranges]\nx = [0, 100]\nz = {within = [0, 9]}\nw = "private"\n'
    ranges = {"x": (0, 100), "z": Within(0, 9), "w": (1, 2)}
    both = asked(text, ranges=("w=1:2",), outcome_bound=3, outcome_center=1)
    assert both == PrivateRanges(ranges=ranges, outcome=(-2.0, 4.0))
    assert asked(text, covariates="z,x,v").known(3) == (Within(0, 9), (0.0, 100.0), None, None)
    assert asked("outcome = {within = [0, 1]}").outcome == Within(0, 1)
    assert asked(domain=None, private_ranges=0.3) == PrivateRanges(0.3)


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
        asked(text, **given)
