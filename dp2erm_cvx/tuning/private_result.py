"""What tuning on private data hands back."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.ledger import Receipt
from dp2erm_cvx.release import Guarantee, Release
from dp2erm_cvx.tuning.selection import Selection


@dataclass(frozen=True)
class PrivateCandidate:
    """What one candidate spends, and its stability bound on the part that it is fitted to."""

    name: str
    epsilon: float
    delta: float
    V: float


@dataclass(frozen=True)
class PrivateTuning:
    """The winner of a private comparison and what everything together guarantees.

    ``guarantee`` covers the choice and the releases of all candidates. ``release`` is the winner's, fitted to
    ``n_fitted`` records, and states this guarantee in place of its own. No score is kept: scores are private.
    ``model`` is the winner, whose ``private_workings_`` are for the data holder only.
    """

    best: str
    release: Release
    guarantee: Guarantee
    candidates: tuple[PrivateCandidate, ...]
    selection: Selection
    n_fitted: int
    n_scored: int
    receipt: Receipt | None
    model: PrivateTwoStageERM = field(repr=False, compare=False)

    @property
    def private(self) -> bool:
        """True only where the guarantee holds without a condition."""
        return self.guarantee.private

    def to_dict(self) -> dict[str, Any]:
        """What may be published, as plain JSON values."""
        guarantee = asdict(self.guarantee) | {
            "relation": self.guarantee.relation.value,
            "standing": self.guarantee.standing.value,
            "assumptions": list(self.guarantee.assumptions),
        }
        return {
            "private": self.private,
            "best": self.best,
            "guarantee": guarantee,
            "candidates": [asdict(one) for one in self.candidates],
            "selection": asdict(self.selection),
            "n_fitted": self.n_fitted,
            "n_scored": self.n_scored,
            "receipt": None if self.receipt is None else asdict(self.receipt),
            "release": json.loads(self.release.to_json()),
        }
