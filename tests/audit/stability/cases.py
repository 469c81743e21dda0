"""Small universes for tests of the stability audit."""

from __future__ import annotations

import math

from dp2erm_cvx.compare.reference_audits import entropy, ipw, reference_program

INF = math.inf

__all__ = ["INF", "entropy", "ipw", "reference_program"]
