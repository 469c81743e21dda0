"""The public record universe: what a record may look like, and the fixed rule that puts it there."""

from dp2erm_cvx.domain.domain import Domain, ReleasedRanges
from dp2erm_cvx.domain.records import LARGEST, Make, NumbersOf, Records, cleaned, clip_norm
from dp2erm_cvx.domain.universe import Curves, Universe

__all__ = [
    "LARGEST",
    "Curves",
    "Domain",
    "Make",
    "NumbersOf",
    "Records",
    "ReleasedRanges",
    "Universe",
    "cleaned",
    "clip_norm",
]
