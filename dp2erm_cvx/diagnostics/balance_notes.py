"""Why an entry of a balance table is not defined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dp2erm_cvx.diagnostics.checks import ARMS, Array, Mask
from dp2erm_cvx.tables import listed


def about_arms(weight: Array, arms: tuple[Mask, Mask]) -> Iterator[str]:
    """One note for each arm that has too few records or too little weight."""
    for name, members in zip(ARMS, arms, strict=True):
        if not members.any():
            yield f"the {name} arm is empty: no difference is defined"
        elif not weight[members].any():
            yield f"the {name} arm has no weight: no difference is defined after weighting"
        elif members.sum() == 1:
            yield f"the {name} arm has one record: no standard deviation is defined"


def about_columns(
    names: Sequence[str], binary: Mask, before: tuple[Array, Array], after: tuple[Array, Array]
) -> Iterator[str]:
    """Notes on columns, from the (p,) variances of the two arms before and after weighting."""
    constant = (before[0] == 0) & (before[1] == 0)
    for k in np.flatnonzero(constant):
        yield f"{names[int(k)]} does not vary within the arms: no ratio or standardized difference is defined"
    if binary.any():
        told = listed([names[int(k)] for k in np.flatnonzero(binary)])
        yield f"variance ratios are left out for covariates with two values: {told}"
    if np.isnan(after).any() and not np.isnan(before).any():
        yield "an arm has its weight on fewer than two records: no variance ratio is defined after weighting"
    for when, (control, _) in (("", before), (" after weighting", after)):
        for k in np.flatnonzero((control == 0) & ~constant & ~binary):
            yield f"{names[int(k)]} does not vary among the controls: no variance ratio is defined{when}"
