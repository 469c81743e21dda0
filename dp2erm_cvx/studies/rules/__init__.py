"""Private treatment rules over many budgets, noises and calibrations at once, for experiments only.

Noise is drawn from seeded generators, so nothing here is a release. Bounds, noise scales and gamma come from
the same plans that releases are made by.
"""

from dp2erm_cvx.studies.rules.fit import Fitted, Weights, effective_share, fitted, without_noise
from dp2erm_cvx.studies.rules.listing import InForce, constants_listing
from dp2erm_cvx.studies.rules.plans import (
    FAMILIES,
    PLAIN,
    PlannedRule,
    Refused,
    describe,
    plan_rule,
)
from dp2erm_cvx.studies.rules.scheme import Constants, Scheme

__all__ = [
    "FAMILIES",
    "PLAIN",
    "Constants",
    "Fitted",
    "InForce",
    "PlannedRule",
    "Refused",
    "Scheme",
    "Weights",
    "constants_listing",
    "describe",
    "effective_share",
    "fitted",
    "plan_rule",
    "without_noise",
]
