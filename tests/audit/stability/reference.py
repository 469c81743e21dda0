"""Stability audits whose outcome is known: worst cases that must be met, wrong bounds that must be
caught.
"""

import dataclasses
import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit import Claim, Quantity, SearchPlan, StabilityAudit, audit_stability
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.program import FirstStage, registry
from dp2erm_cvx.program.kernels import Kernel
from tests.helpers import logistic_propensity, planted_diameters, with_kernel

_INF, _HALF = math.inf, math.sqrt(0.5)

#: A search is as good as it should be if it meets this share of the largest V known.
ENOUGH = 0.95


@dataclass(frozen=True)
class Orthant(Kernel):
    """``<|x|, |z|>``: features that are any vectors of the nonnegative part of the ball.

    No program takes it: only its audit needs the worst of all kernels between 0 and a bound.
    """

    def cross(self, X: Array, Y: Array) -> Array:
        return np.asarray(np.abs(X) @ np.abs(Y).T)

    def diagonal(self, X: Array) -> Array:
        return np.asarray(np.sum(X**2, axis=1))

    def bound(self, features_bound: float) -> float:
        return features_bound**2


@dataclass(frozen=True)
class ReferenceSetting:
    """One audit. ``known`` is the largest V found by longer searches, 0 where none is asked for.

    ``bounds`` are the claims, by default all that are stated for the program. ``wrong`` are those
    that are false, by name and quantity: the audit must report them and no other.
    """

    name: str
    program: FirstStage
    universe: Universe
    known: float = 0.0
    bounds: tuple[Claim, ...] | None = None
    wrong: frozenset[tuple[str, Quantity]] = frozenset()

    @property
    def sharp(self) -> float:
        """The sharp bound on V."""
        return self.program.resolve(self.universe.space).stability(self.universe).V

    def planted(self, name: str, bound: float) -> "ReferenceSetting":
        """The same with a wrong bound beside the sharp one."""
        bounds = (Claim(name, Quantity.V, bound), Claim("sharp", Quantity.V, self.sharp))
        wrong, name = frozenset({(name, Quantity.V)}), f"{self.program.name}: {name}"
        return dataclasses.replace(self, name=name, bounds=bounds, wrong=wrong)


@dataclass(frozen=True)
class ReferenceAudit:
    """A setting with its audit."""

    setting: ReferenceSetting
    audit: StabilityAudit

    @property
    def met(self) -> float:
        """The largest V found, surely."""
        return max(v.movement.low for v in self.audit.verdicts if v.claim.quantity is Quantity.V)

    @property
    def as_expected(self) -> bool:
        """True if enough of the known movement was met, and exactly the wrong bounds were
        reported.
        """
        reported = {
            (verdict.claim.name, verdict.claim.quantity) for verdict in self.audit.violations
        }
        return reported == self.setting.wrong and self.met >= ENOUGH * self.setting.known


def reference_audit(setting: ReferenceSetting, search: SearchPlan) -> ReferenceAudit:
    audit = audit_stability(
        setting.program, None, setting.universe, bounds=setting.bounds, search=search
    )
    return ReferenceAudit(setting, audit)


def reference_program(name: str, **settings: Any) -> FirstStage:
    return registry.build(registry.first_stages(), name, **settings)


def ipw(
    n: int, ridge: float, radius: float, known: float = 0.0, trim: float = _INF
) -> ReferenceSetting:
    """A logistic propensity; covariates in the unit disk."""
    name = f"IPW, n = {n:,}, ridge {ridge:g}" + _named(radius=radius, trim=trim)
    program = reference_program("ipw_logistic", ridge=ridge, radius=radius, trim=trim)
    return ReferenceSetting(name, program, Universe(Domain(1, 1), n, 2), known)


def entropy(n: int, ridge: float, radius: float, known: float = 0.0) -> ReferenceSetting:
    """Entropy balancing without caps; one covariate."""
    name = f"EBW, n = {n:,}, ridge {ridge:g}" + _named(radius=radius)
    program = reference_program("entropy_balancing", ridge=ridge, radius=radius, cap=_INF)
    return ReferenceSetting(name, program, Universe(Domain(_HALF, 1), n, 1), known)


def entropy_paper(known: float) -> ReferenceSetting:
    # a constant of next to nothing leaves the whole ball to the balance functions
    settings = {"ridge": 1.0, "constant": 1e-6}
    name = "EBW of the paper, n = 400, ridge 1, arm floor 100"
    universe = Universe(Domain(1, 1, arm_floor=100), 400, 2)
    return ReferenceSetting(
        name, reference_program("paper_entropy_balancing", **settings), universe, known
    )


def mmd(ridge: float, known: float, pooled: bool = False) -> ReferenceSetting:
    """Kernel weights per arm, or on one simplex; ``ridge`` is lambda_MMD."""
    # a public program takes no kernel of a user's own; its bound holds for any with 0 <= K <= C
    made = with_kernel(registry.programs()["mmd_pooled" if pooled else "mmd"], Orthant())
    program = made(ridge=ridge / 400)
    name = f"{'pooled ' * pooled}MMD, n = 400, ridge {ridge:g}" + ", arm floor 100" * (not pooled)
    domain = Domain(1, 1) if pooled else Domain(1, 1, arm_floor=100)
    return ReferenceSetting(name, program, Universe(domain, 400, 3), known)


def _named(**limits: float) -> str:
    return "".join(f", {name} {value:g}" for name, value in limits.items() if math.isfinite(value))


@cache
def worst_cases() -> list[ReferenceSetting]:
    """Settings with the largest V that longer searches met."""
    return [
        ipw(400, 1, _INF, 2.98),
        ipw(400, 0.1, _INF, 10.0),
        ipw(400, 0.1, 1, 5.41),
        ipw(400, 0.003, 1, 16.1),
        ipw(10_000, 0.003, 2, 43.1),
        ipw(4, 1, _INF, 2.32),
        ipw(400, 0.003, 4, 32.2, trim=5),
        ipw(400, 0.03, 4, 12.8, trim=5),
        ipw(400, 0.1, _INF, 7.2, trim=4),
        ipw(100, 0.003, 2, 17.4, trim=4),
        entropy(400, 3, _INF, 2.78),
        entropy(400, 1, _INF, 5.34),
        entropy(400, 0.3, _INF, 38.7),
        entropy(400, 0.1, 1, 8.16),
        entropy(100, 1, _INF, 5.09),
        entropy_paper(3.88),
        mmd(20, 63.4),
        mmd(100, 16.8),
        mmd(400, 8.22),
        mmd(4000, 5.58),
        mmd(100, 15.0, pooled=True),
        mmd(400, 4.96, pooled=True),
        mmd(8000, 2.15, pooled=True),
    ]


@cache
def wrong_bounds() -> list[ReferenceSetting]:
    """The paper's kernel bound, which a flip violates, and sharp bounds with a mistake in them."""
    few, printed = (
        Universe(Domain(1, 1, arm_floor=25), 100, 2),
        frozenset({("paper, printed", Quantity.L2)}),
    )
    narrow, tight = ipw(400, 0.003, 1), entropy(400, 3, _INF)
    paper, kernel = (
        reference_program("mmd", ridge=100.0, cap=4.0),
        reference_program("mmd", ridge=1e3),
    )
    keep = replace(few.space, relation=Neighboring.REPLACE_ONE_KEEP_TREATMENT)
    with planted_diameters(1 / 3):
        third = logistic_propensity(400, 1.0, 0.003, 1.0).V
    unflipped = kernel.stability(few.within(keep)).V
    return [
        ReferenceSetting("paper's kernel bound, treatments flipped", paper, few, wrong=printed),
        narrow.planted("divided by sqrt n", narrow.sharp / math.sqrt(narrow.universe.n_samples)),
        tight.planted("divided by 2", tight.sharp / 2),
        ReferenceSetting("", kernel, few).planted("flips forgotten", unflipped),
        narrow.planted("a third of the diameter", third),
    ]
