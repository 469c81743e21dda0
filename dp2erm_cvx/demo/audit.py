"""A short stability audit of the demonstration's first stages, on the records of NHEFS and around them."""

from __future__ import annotations

from collections.abc import Iterator

from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.audit.stability import StabilityAudit, audit_stability
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.demo.settings import DemoScheme, effect_domain, schemes
from dp2erm_cvx.parallel import run_tasks


def audited() -> tuple[DemoScheme, ...]:
    """The schemes whose weights depend on all records."""
    return tuple(scheme for scheme in schemes() if scheme.label != "uniform")


def audits(data: Dataset, search: SearchPlan) -> Iterator[tuple[DemoScheme, StabilityAudit]]:
    """Each scheme with its audit, in turn; ``search`` limits each. Not private: movements are of NHEFS."""
    chosen = audited()
    tasks = [(scheme, data, search.alone()) for scheme in chosen]
    yield from zip(chosen, run_tasks(_audit, tasks, workers=search.workers), strict=True)


def _audit(scheme: DemoScheme, data: Dataset, search: SearchPlan) -> StabilityAudit:
    domain = effect_domain()
    return audit_stability(scheme.program, domain.records(data.X, data.a, data.y), domain, search=search)
