"""A public sample of covariates, as a hyper-parameter."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError


class PublicSample:
    """Raw covariates (m, k) that are public: published microdata, or a population that was simulated.

    No guarantee covers them. Raises DeclarationError unless they are a finite matrix with a row.
    """

    def __init__(self, X: ArrayLike) -> None:
        try:
            rows = np.array(X, dtype=np.float64, ndmin=2)
        except (TypeError, ValueError):
            raise DeclarationError("public sample: must be a matrix of numbers") from None
        if rows.ndim != 2 or not rows.size or not np.all(np.isfinite(rows)):
            raise DeclarationError("public sample: must be a matrix of finite numbers with at least one row")
        rows.flags.writeable = False
        self.X: Array = rows
        self.digest = hashlib.sha256(repr(rows.shape).encode() + rows.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicSample) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"PublicSample({self.X.shape[0]} x {self.X.shape[1]}, sha256 {self.digest[:12]})"

    def describe(self) -> dict[str, Any]:
        """Plain JSON types for a release: its size and its digest, not its rows."""
        return {"rows": self.X.shape[0], "columns": self.X.shape[1], "sha256": self.digest}
