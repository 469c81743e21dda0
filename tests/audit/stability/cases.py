"""Small universes for tests of the stability audit."""

from __future__ import annotations

import math

from tests.audit.stability.reference import entropy, ipw, reference_program

INF = math.inf

__all__ = ["INF", "entropy", "ipw", "reference_program"]
