"""NHEFS: the effect of giving up smoking on weight, 1,566 smokers of whom 403 gave up.

The data are those of Hernan and Robins, "Causal Inference: What If", part II. ``README.md`` beside this
file tells where the CSV comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType
from typing import Any

from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain import Domain

#: The covariates of :func:`load_nhefs`, in order: least and largest value, unit, and why. None of the ends is
#: read off the data.
NHEFS_RANGES: Mapping[str, tuple[float, float, str, str]] = MappingProxyType(
    {
        "sex": (0, 1, "0 male, 1 female", "codebook"),
        "age": (25, 74, "years at baseline", "the cohort was defined as ages 25 to 74"),
        "race": (0, 1, "0 white, 1 other", "codebook"),
        "education": (1, 5, "level", "codebook: 1 (8th grade or less) to 5 (college or more)"),
        "smokeintensity": (0, 60, "cigarettes a day", "none to three packs of 20"),
        "smokeyrs": (0, 60, "years", "the oldest age of the cohort, less a start at 14"),
        "exercise": (0, 2, "level", "codebook: 0 (much) to 2 (little or none)"),
        "active": (0, 2, "level", "codebook: 0 (very active) to 2 (inactive)"),
        "wt71": (40, 140, "kg at baseline", "body mass index 16 at 158 cm to 40 at 187 cm"),
        "ht": (140, 200, "cm", "adult height: about 170 cm, and three standard deviations of 10"),
    }
)


def load_nhefs() -> Dataset:
    """The 1,566 complete records in their own units.

    Covariates are those of :data:`~dp2erm_cvx.datasets.NHEFS_RANGES`; the treatment ``qsmk`` is 1 for those
    who gave up smoking between the two visits; the outcome ``wt82_71`` is the change of weight in kg (1982-84
    less 1971-75).
    """
    with resources.as_file(resources.files(__package__) / "nhefs.csv") as path:
        return Dataset.read(path, treatment="qsmk", outcome="wt82_71", covariates=list(NHEFS_RANGES))


def nhefs_domain(
    *, covariate_bound: float = 2.5, outcome_bound: float = 20.0, outcome_center: float = 2.5, **settings: Any
) -> Domain:
    """A public :class:`~dp2erm_cvx.domain.Domain` for :func:`load_nhefs`, declared without the data.

    Covariates are scaled by :data:`~dp2erm_cvx.datasets.NHEFS_RANGES`, so that each lies in [-1, 1] inside
    its range.

    Parameters
    ----------
    covariate_bound
        Norm of the ten scaled covariates (with the intercept). The default 2.5 is a little above the root
        mean square 2.35 of ten columns spread evenly over their ranges and levels; sqrt(10) = 3.16 clips no
        record inside the ranges, but every constant of the squared loss grows with its square.
    outcome_bound, outcome_center
        In kg. Adults in middle life gain about a quarter of a kilogram a year, so 2.5 kg in the ten years
        between the visits; a change 20 kg away from that is rare.
    others
        ``treatment_cost`` (in kg), ``intercept``, ``arm_floor`` and ``relation`` of
        :class:`~dp2erm_cvx.domain.Domain`.

    Raises
    ------
    DeclarationError
        A constant is invalid.
    """
    return Domain(
        covariate_bound=covariate_bound,
        outcome_bound=outcome_bound,
        outcome_center=outcome_center,
        ranges={name: (low, high) for name, (low, high, *_) in NHEFS_RANGES.items()},
        **settings,
    )
