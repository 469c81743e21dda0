"""The paper's bounds by themselves, without their minimum with the universal corollary."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dp2erm_cvx import stability
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.privacy import StabilityBound

#: By first stage: the bound for a resolved program, n and a domain.
PRINTED: dict[str, Callable[[Any, int, Domain], StabilityBound]] = {
    "ipw_logistic": lambda p, n, d: stability.paper_ipw_logistic(
        n, d.covariate_bound, p.mu, p.radius, usable=False
    ),
    "ipw_known": lambda p, n, d: stability.paper_known_coefficient(
        n, d.covariate_bound, math.hypot(*p.coefficient), usable=False
    ),
    "ipw_randomized": lambda p, n, d: stability.paper_randomized_trial(n, p.propensity, usable=False),
    "entropy_balancing": lambda p, n, d: stability.paper_entropy_balancing(
        n, **p.paper_arguments(d), usable=False
    ),
    "mmd": lambda p, n, d: stability.paper_kernel_balancing(
        n, p.kernel.bound(d.features_bound), n * p.mu, p.cap, relation=d.relation, usable=False
    ),
}
