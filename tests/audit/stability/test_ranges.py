"""Audits of tables whose covariates each have a range of their own."""

from __future__ import annotations

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import SearchPlan, audit_stability
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.program import registry


@pytest.mark.parametrize("n_features", [2, 5])
def test_an_audit_takes_as_many_covariates_as_have_ranges(n_features: int) -> None:
    rng = np.random.default_rng(0)
    n = 40
    ranges = {f"x{k}": (-1.0, 2.0) for k in range(n_features)}
    X = rng.uniform(-1.0, 2.0, (n, n_features))
    data = Dataset(X, rng.integers(0, 2, n), rng.normal(size=n), columns=tuple(ranges))
    program = registry.build(registry.first_stages(), "ipw_logistic", ridge=0.5)
    domain = Domain(n_features**0.5, 4.0, ranges=ranges)
    audit = audit_stability(program, data, domain, search=SearchPlan(evaluations=200))
    largest = max(verdict.ratio for verdict in audit.verdicts)
    assert 0.0 < largest <= 1.0
