"""Audits of records in blocks: what an audit of the same records in memory finds."""

from typing import Any

import numpy as np
import pytest

from dp2erm_cvx import Domain, blocks
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.audit import stability as module
from dp2erm_cvx.blocked import BlockedDataset, pieces
from dp2erm_cvx.domain import records
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.registry import programs

pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

N, DOMAIN = 421, Domain(2.0, 1.0)
PROGRAMS: dict[str, dict[str, Any]] = {
    "ipw_logistic": {"ridge": 0.05, "trim": 4.0},
    "entropy_balancing": {"ridge": 0.1, "arm_mass": "proportional"},
    "ipw_randomized": {"propensity": 0.3},
}
NEIGHBORS = ("random", "held-out", "extreme", "flips", "each")


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 128)
    monkeypatch.setattr(pieces, "KEEP", 5000)
    for place in (blocks, records):
        monkeypatch.setattr(place, "VIEW", 32)
    monkeypatch.setattr(module, "LARGEST_DECLARED", 100)


@pytest.fixture(scope="module")
def raw():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 3))
    return X, (rng.random(N) < 1 / (1 + np.exp(-X[:, 0]))).astype(int), np.round(rng.normal(size=N), 2)


@pytest.fixture(scope="module")
def path(raw, tmp_path_factory):
    X, a, y = raw
    where = tmp_path_factory.mktemp("records") / "records.parquet"
    names = ["x0", "x1", "x2", "a", "y"]
    parquet.write_table(pa.table([*X.T.copy(), a, y], names=names), where, row_group_size=53)
    return where


def dataset(path):
    return BlockedDataset.read(path, treatment="a", outcome="y")


def audited(program, data, **more):
    more = {"search": SearchPlan(evaluations=60, seed=4), "strategies": NEIGHBORS, **more}
    return audit_stability(program, data, DOMAIN, **more)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_audit_in_memory_to_the_bit(name, raw, path):
    program = programs()[name](**PROGRAMS[name])
    known = audited(program, raw)
    assert len(known.verdicts) > 2
    assert not known.violations
    result = audited(program, dataset(path))
    # exponentials are taken less the largest margin of a block: these agree within what is certified
    for one, other in zip(result.verdicts, known.verdicts, strict=True):
        assert one.movement == other.movement or name == "entropy_balancing"
        assert max(one.movement.low, other.movement.low) <= min(one.movement.high, other.movement.high)
    assert result.check == known.check or name == "entropy_balancing"
    assert result.resolved == known.resolved
    assert result.check.datasets >= 2
    assert result.check.disagreement <= 1
    assert not result.private


def test_what_needs_all_records_is_refused(path):
    program, data = programs()["ipw_logistic"](ridge=0.05), dataset(path)
    with pytest.raises(ProgramError, match="mmd needs all records in memory"):
        audited(programs()["mmd"](), data)
    with pytest.raises(DeclarationError, match="ascent"):
        audited(program, data, strategies="ascent")
    with pytest.raises(DeclarationError, match="engine"):
        audited(program, data, search=SearchPlan(evaluations=10, workers=2))
