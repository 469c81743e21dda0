"""What tuning hands back."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.ledger import Receipt
from dp2erm_cvx.release import Guarantee, Release


@dataclass(frozen=True)
class TuningRow:
    """One candidate.

    ``scores`` has one score per replicate, None where the replicate failed; ``mean`` is over the others and
    ``standard_error`` that of the mean. ``effective_share`` is the mean effective sample size of the first
    stage's weights over n: at 1 the weights are uniform and nothing is balanced. ``V`` is the stability
    bound, None where the plan was refused. ``failures`` counts replicates that raised a typed error,
    ``uncertified`` fits whose weights or theta were not certified. ``reason`` is the refusal, or the first
    failure.
    """

    name: str
    epsilon: float
    delta: float
    V: float | None
    mean: float | None
    standard_error: float | None
    effective_share: float | None
    failures: int
    uncertified: int
    reason: str
    scores: tuple[float | None, ...]

    @property
    def refused(self) -> bool:
        """Whether no calibration covers this candidate at n."""
        return self.V is None


@dataclass(frozen=True)
class TuningResult:
    """The candidates in the order given, and the best.

    ``best`` has the highest mean among the candidates with the fewest failed replicates; equal means go to
    the name that sorts first. Everything here follows from data declared public and costs no privacy.
    ``source`` is where the user said they come from.
    """

    best: str
    rows: tuple[TuningRow, ...]
    source: str
    scored_by: str
    n_samples: int
    n_public: int
    replicates: int
    holdout: float | None
    seed: int

    def row(self, name: str) -> TuningRow:
        """The row of one candidate. Raises DeclarationError where there is none."""
        for row in self.rows:
            if row.name == name:
                return row
        raise DeclarationError(f"{name!r} is no candidate; there are {', '.join(r.name for r in self.rows)}")

    def behind(self, name: str) -> tuple[float, float]:
        """Mean score of the best less that of ``name``, and the standard error of this paired difference.

        The candidates saw the same samples, so this is far more precise than comparing two means; nan
        where fewer than two replicates succeeded for both.
        """
        both = zip(self.row(self.best).scores, self.row(name).scores, strict=False)
        gaps = [best - other for best, other in both if best is not None and other is not None]
        if len(gaps) < 2:
            return math.nan, math.nan
        return float(np.mean(gaps)), float(np.std(gaps, ddof=1) / math.sqrt(len(gaps)))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        plain = asdict(self)
        plain["rows"] = [{**row, "scores": list(row["scores"])} for row in plain["rows"]]
        return plain

    def __str__(self) -> str:
        head = f"{'candidate':<24} {'score':>10} {'std.err.':>9} {'behind':>16} {'ESS/n':>6} {'V':>9} failed"
        lines = [f"tuned on public data: {self.source}; n = {self.n_samples}; {self.scored_by}", head]
        for row in self.rows:
            if row.mean is None:
                lines.append(f"{row.name:<24} {row.reason}")
                continue
            gap, error = self.behind(row.name)
            behind = "best" if row.name == self.best else f"{gap:.3g} +- {error:.2g}"
            spread = math.nan if row.standard_error is None else row.standard_error
            lines.append(
                f"{row.name:<24} {row.mean:>10.4g} {spread:>9.2g} {behind:>16} "
                f"{row.effective_share:>6.2f} {row.V:>9.4g} {row.failures}"
            )
        return "\n".join(lines)


def best_of(rows: list[TuningRow]) -> str | None:
    """The name of the best candidate by the rule of :class:`TuningResult`; None where none has a score."""
    scored = [(row.failures, -row.mean, row.name) for row in rows if row.mean is not None]
    return min(scored)[2] if scored else None


@dataclass(frozen=True)
class Selection:
    """How the winner was chosen, from public quantities alone.

    ``scale`` is that of the exponential noise, in units of the outcome (mean gain per record): with
    probability 0.95 the winner's gain on the records scored is within ``resolution`` of the best.
    ``sampler`` says what drew it.
    """

    epsilon: float
    scale: float
    resolution: float
    propensity: float
    sampler: str


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
