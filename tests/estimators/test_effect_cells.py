"""An effect from cells: regions that no line describes, messy tables, and what a release states."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from dp2erm_cvx import Budget, Domain, EffectRelease, PrivateEffect
from dp2erm_cvx.release import json_schema

DOMAIN = Domain(covariate_bound=6.0, outcome_bound=1.0, ranges={"x1": (-3.0, 3.0), "x2": (-3.0, 3.0)})
CUTS = {"x1": [-1.5, -0.75, -0.05, 0.0, 0.1, 0.75, 1.5], "x2": [-1.5, -0.75, -0.35, 0.0, 0.05, 0.75, 1.5]}


def regions(n, seed):
    """Propensity and outcome by region (Lebeda, Even, Bellet and Josse): the effect is .2, naive -.14."""
    rng = np.random.default_rng(seed)
    x1, x2 = rng.standard_normal((2, n))
    e, level = np.full(n, 0.5), np.full(n, 0.1)
    e[(x1 < -0.05) & (x2 <= 0)] = 0.25
    e[(x1 <= 0.1) & (x2 > 0)] = 0.6
    e[(x1 > 0.1) & (x2 > 0)] = 0.75
    level[(x1 < 0) & (x2 <= 0.05)] = 0.6
    level[(x1 <= 0) & (x2 > 0.05)] = -0.4
    level[(x1 > 0) & (x2 > 0)] = -0.7
    a = rng.binomial(1, e)
    y = np.clip(level + 0.05 * rng.standard_normal(n), -1, 1)
    return pd.DataFrame({"x1": x1, "x2": x2}), a, np.where(a == 1, np.clip(y + 0.2, -1, 1), y)


def model(cells=CUTS, epsilon=2.0, seed=1, **changes):
    declared = {"residual_scale": 0.1, "settings": {"cells": cells}} | changes
    return PrivateEffect(DOMAIN, Budget(epsilon), seed=seed, **declared)


def test_cells_find_an_effect_where_lines_do_not():
    data = regions(50_000, 0)
    assert abs(model().fit(*data).effect_ - 0.2) < 0.003
    assert abs(model({"x1": 61, "x2": 61}).fit(*data).effect_ - 0.2) < 0.01
    assert model(settings={"first_fit": None}).fit(*data).effect_ < 0.15


def test_the_release_states_the_cells_and_their_noise():
    release = model(seed=None).fit(*regions(4000, 0)).release_
    assert release.private
    assumed = model(arithmetic="assumed").fit(*regions(4000, 0)).release_  # which draws in floating point
    assert assumed.guarantee.assumptions == ("exact arithmetic assumed", *release.guarantee.assumptions)
    assert EffectRelease.from_json(release.to_json()) == release
    assert set(json_schema(EffectRelease)["required"])
    step = release.step("cells")
    assert step.scale == pytest.approx(2.0 / step.epsilon)
    assert step.sensitivity == 2.0
    table, count, *means, share = release.nuisances
    assert len(table.coefficient) == 4 * 64
    assert math.fsum(table.coefficient) == pytest.approx(math.fsum(count.coefficient))
    assert math.fsum(count.coefficient) == pytest.approx(4000, abs=6 * step.scale * math.sqrt(2 * 256))
    assert [one.rows for one in means] == ["outcome of controls", "outcome of treated"]
    assert all(0.0 <= value <= 1.0 for value in share.coefficient)
    ends = {end for name in share.parameters for end in re.findall(r"-?[\d.]+(?= <=)|(?<=< )-?[\d.]+", name)}
    assert ends
    assert ends <= {f"{cut:g}" for cuts in CUTS.values() for cut in cuts}
    assert release.settings["cells"] == {name: pytest.approx(cuts) for name, cuts in CUTS.items()}
    assert release.settings["rows"] is None
    assert "cells" in release.summary()


@pytest.mark.parametrize("estimand", ["att", "overlap", "risks"])
def test_other_estimands_take_cells(estimand):
    X, a, y = regions(20_000, 4)
    domain = Domain(covariate_bound=6.0, outcome_bound=0.5, outcome_center=0.5, ranges=DOMAIN.ranges)
    binary = np.random.default_rng(0).binomial(1, 0.5 + 0.4 * y)
    result = PrivateEffect(domain, Budget(2.0), estimand=estimand, settings={"cells": CUTS}, seed=1)
    low, high = result.fit(X, a, binary).interval_
    assert low < 0.4 * 0.2 < high
    assert high - low < 0.1
