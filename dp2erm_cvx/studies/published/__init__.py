"""Private estimators of an effect that others published, one file each, behind one call."""

from collections.abc import Mapping
from types import MappingProxyType

from dp2erm_cvx.studies.published.dpate_package import Dpate
from dp2erm_cvx.studies.published.folds import FoldNuisances
from dp2erm_cvx.studies.published.method import PublishedEffect
from dp2erm_cvx.studies.published.noisy_least_squares import NoisyLeastSquares
from dp2erm_cvx.studies.published.private_propensity import PrivatePropensity
from dp2erm_cvx.studies.published.subsample_aggregate import SubsampleAggregate

#: By the names of designs.
PUBLISHED: Mapping[str, type[PublishedEffect]] = MappingProxyType(
    {
        "dpate": Dpate,
        "folds": FoldNuisances,
        "noisy_least_squares": NoisyLeastSquares,
        "private_propensity": PrivatePropensity,
        "subsample_aggregate": SubsampleAggregate,
    }
)

__all__ = [
    "PUBLISHED",
    "Dpate",
    "FoldNuisances",
    "NoisyLeastSquares",
    "PrivatePropensity",
    "PublishedEffect",
    "SubsampleAggregate",
]
