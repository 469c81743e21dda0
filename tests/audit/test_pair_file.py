"""One format of pairs: every audit repeats what another one saved, and nothing else is taken for a pair."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM, Universe
from dp2erm_cvx.audit import Claim, Quantity, SearchPlan, audit_stability, replay, search_density
from dp2erm_cvx.audit.finding import Finding, unscaled
from dp2erm_cvx.errors import DataError
from dp2erm_cvx.registry import build, first_stages

DOMAIN = Domain(2.0, 1.0, 3.0, 0.5, ranges=[(-5.0, 1.0)], intercept=1.0)
IPW = build(first_stages(), "ipw_logistic", ridge=0.5, radius=1.0)


def release(first=IPW, second="arm_means"):
    return PrivateTwoStageERM(DOMAIN, Budget(1.0), first, second)


@pytest.fixture(scope="module")
def of_density(tmp_path_factory):
    path = tmp_path_factory.mktemp("density") / "pair"
    search_density(release(), 4, 1, search=SearchPlan(1), starts=1).save(path)
    return path


@pytest.fixture(scope="module")
def of_stability(tmp_path_factory):
    path = tmp_path_factory.mktemp("stability") / "pair"
    bounds = [Claim("too small", Quantity.V, 1.0)]
    result = audit_stability(IPW, None, Universe(DOMAIN, 6, 1), bounds=bounds, search=SearchPlan(60))
    result.save(path)
    return path


def test_records_come_back_in_either_unit(of_stability):
    pair = Finding.load(of_stability)
    for raw, records in zip(pair.raw(), pair.records(), strict=True):
        mapped = DOMAIN.records(*raw)
        np.testing.assert_allclose(mapped.X, records.X, atol=1e-12)
        np.testing.assert_allclose(mapped.y, records.y, atol=1e-12)
        assert np.array_equal(mapped.a, records.a)
    first, second = pair.records()
    differ = (first.X != second.X).any(axis=1) | (first.a != second.a)
    assert np.flatnonzero(differ).tolist() == [pair.changed]


@pytest.mark.parametrize("center", [None, (-4.0,)])
def test_what_is_written_in_units_of_the_data_is_read_as_it_was(center):
    """A pair was written by the middle of a range where the domain scales by a declared center."""
    domain = replace(DOMAIN, center=center)
    x, a, y = np.array([[-0.2], [0.0], [0.9]]), np.array([0, 1, 1]), np.array([0.5, -1.0, 0.0])
    raw = unscaled(domain, x, a, y)
    np.testing.assert_allclose(domain.records(*raw).covariates, x, atol=1e-12)
    np.testing.assert_allclose(domain.records(*raw).y, y, atol=1e-12)


def test_another_format_is_refused(of_density, tmp_path):
    stated = json.loads(of_density.with_suffix(".json").read_text())
    (tmp_path / "pair.npz").write_bytes(of_density.with_suffix(".npz").read_bytes())
    for wrong in ({**stated, "format": "dp2erm-cvx counterexample 1"}, {**stated, "mapped": True}, {}, []):
        (tmp_path / "pair.json").write_text(json.dumps(wrong))
        with pytest.raises(DataError):
            replay(tmp_path / "pair")
        with pytest.raises(DataError):
            replay(tmp_path / "pair", release())
