"""Private estimators of an effect, and rules, that others published, one file each, behind one call."""

from collections.abc import Mapping
from types import MappingProxyType

from dp2erm_cvx.studies.published.dpate_package import Dpate
from dp2erm_cvx.studies.published.folds import FoldNuisances
from dp2erm_cvx.studies.published.method import PublishedEffect, PublishedRule, StagedEffect
from dp2erm_cvx.studies.published.noisy_least_squares import NoisyInteractions, NoisyLeastSquares
from dp2erm_cvx.studies.published.private_propensity import PrivatePropensity
from dp2erm_cvx.studies.published.subsample_aggregate import SubsampleAggregate
from dp2erm_cvx.studies.published.weighted_learning import WeightedLearning

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

#: Rules, in the same way.
PUBLISHED_RULES: Mapping[str, type[PublishedRule]] = MappingProxyType(
    {"noisy_interactions": NoisyInteractions, "weighted_learning": WeightedLearning}
)

__all__ = [
    "PUBLISHED",
    "PUBLISHED_RULES",
    "Dpate",
    "FoldNuisances",
    "NoisyInteractions",
    "NoisyLeastSquares",
    "PrivatePropensity",
    "PublishedEffect",
    "PublishedRule",
    "StagedEffect",
    "SubsampleAggregate",
    "WeightedLearning",
]
