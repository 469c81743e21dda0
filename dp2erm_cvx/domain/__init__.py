"""The public record universe: what a record may look like, and the fixed rule that puts it there."""

from dp2erm_cvx.domain.checks import checked_codebook, norm_within
from dp2erm_cvx.domain.clipping import LARGEST, Array, cleaned, clip_norm
from dp2erm_cvx.domain.domain import Domain
from dp2erm_cvx.domain.records import Make, NumbersOf, Records

__all__ = [
    "LARGEST",
    "Array",
    "Domain",
    "Make",
    "NumbersOf",
    "Records",
    "checked_codebook",
    "cleaned",
    "clip_norm",
    "norm_within",
]
