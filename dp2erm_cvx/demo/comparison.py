"""Weights and rules on NHEFS: private releases beside non-private fits, certificates and short audits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dp2erm_cvx.audit import StabilityAudit, audit_stability
from dp2erm_cvx.audit.search import SearchPlan
from dp2erm_cvx.compare.certify import CertificateRow, certificates
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.demo import settings
from dp2erm_cvx.demo.settings import DemoScheme, effect_domain, schemes
from dp2erm_cvx.diagnostics import BalanceTable
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.estimators import PrivateTwoStageERM, TwoStageERM
from dp2erm_cvx.parallel import run_tasks
from dp2erm_cvx.plan.predict import NoiseRange, planned_range
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import LossStage
from dp2erm_cvx.release import Release
from dp2erm_cvx.universe import Universe


@dataclass(frozen=True, eq=False)
class Published:
    """A release, and the public range of its noise."""

    budget: Budget
    release: Release
    noise: NoiseRange

    @property
    def effect(self) -> float:
        """The effect that was released."""
        return effect_of(self.release.theta)


@dataclass(frozen=True, eq=False)
class DemoComparison:
    """One first stage: its releases beside the non-private fit at the same ridge, which is not private.

    ``stability`` is the bound V. ``theta`` is that of the non-private fit, without noise and gamma;
    ``balance`` is not private either.
    """

    scheme: DemoScheme
    stability: float
    theta: tuple[float, ...]
    balance: BalanceTable
    published: tuple[Published, ...]

    @property
    def effect(self) -> float:
        """The non-private effect."""
        return effect_of(self.theta)

    @property
    def imbalance(self) -> float:
        """The mean absolute standardized difference after weighting. Not private."""
        return float(np.mean(np.abs(self.balance.smd_after)))


def effect_of(theta: Sequence[float]) -> float:
    """theta_1 - theta_0 of arm means; theta itself of the plug-in."""
    return theta[0] if len(theta) == 1 else theta[1] - theta[0]


def compare_schemes(
    data: Dataset,
    domain: Domain,
    schemes: Iterable[DemoScheme],
    second: LossStage,
    budgets: Sequence[Budget],
    seeds: Iterator[int | None],
) -> Iterator[DemoComparison]:
    """Release theta once for every scheme and budget. Every release is a separate one from the same data.

    A seed of None takes the operating system's entropy.
    """
    for scheme in schemes:
        plain = TwoStageERM(domain, scheme.program, second).fit(data.X, data.a, data.y)
        published = tuple(_publish(data, domain, scheme, second, budget, next(seeds)) for budget in budgets)
        yield DemoComparison(
            scheme=scheme,
            stability=scheme.program.stability(Universe(domain, data.n_samples, len(data.columns))).V,
            theta=tuple(float(value) for value in plain.theta_),
            balance=plain.workings_.balance(),
            published=published,
        )


def _publish(
    data: Dataset,
    domain: Domain,
    scheme: DemoScheme,
    second: LossStage,
    budget: Budget,
    seed: int | None,
) -> Published:
    model = PrivateTwoStageERM(domain, budget, scheme.program, second, seed=seed)
    model.fit(data.X, data.a, data.y)
    return Published(budget, model.release_, planned_range(model.plan(*data.X.shape)))


def weight_comparisons(data: Dataset, seeds: Iterator[int | None]) -> Iterator[DemoComparison]:
    """The average effect by arm means, for every scheme."""
    yield from compare_schemes(
        data, effect_domain(), schemes(), settings.arm_means(), settings.WEIGHT_BUDGETS, seeds
    )


def certificate_rows(data: Dataset, solvers: Sequence[str]) -> Iterator[list[CertificateRow]]:
    """The schemes of better balance, which are the harder ones, with every solver."""
    domain = effect_domain()
    records = domain.records(data.X, data.a, data.y)
    for scheme in schemes():
        if "/" in scheme.label:
            yield certificates(scheme.label, scheme.program.instance(records), solvers)


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
