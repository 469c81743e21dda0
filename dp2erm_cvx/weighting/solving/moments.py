"""Moments of a form at a dataset: the unit of each, and its name."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.weighting.forms.form import FeatureRows, Group, SumKind
from dp2erm_cvx.weighting.solving.dataset import WeightingData, vector_groups

#: What is said of the arm that a moment is of.
_ARMS = ("control", "treated")


def weight_by_arm(data: WeightingData) -> Array:
    """The stated weight of both arms (2,), or that of all records.

    An arm without a sum of its own has the latter.

    Parameters
    ----------
    data
        The dataset.
    """
    form = data.form
    n = float(form.n)
    treated = float(np.sum(data.arms))
    if form.sums.kind is SumKind.PUBLIC:
        assert form.sums.public is not None
        return np.array(form.sums.public, dtype=np.float64)
    if form.sums.kind is SumKind.COUNTS:
        return np.array([n - treated, treated])
    if form.sums.kind is SumKind.TREATED:
        return np.array([treated, treated])
    return np.array([n, n])


def moment_units(data: WeightingData) -> Array:
    """Units (K,) of all moments of vectors.

    A unit is that of a mean of a balanced function over an arm, in sums.

    The moment of a function g over an arm of weight W, ``sum w_i g_i - target``, is W times what
    its mean is off; a factor of the author's is one of the unit as well.

    Parameters
    ----------
    data
        The dataset.

    Returns
    -------
    Array
        The units.
    """
    weight = weight_by_arm(data)
    units = [np.zeros(0)]
    for group in vector_groups(data.form):
        of_group = np.zeros(len(group[0].matrix))
        for part in group:
            factor = float(np.max(np.abs(part.weighted) * weight))
            of_group = of_group + factor * np.linalg.norm(part.matrix, axis=1)
        units.append(of_group)
    every: Array = np.concatenate(units)
    # A coordinate that no weight enters is a number: its own unit is that of all weights.
    return np.where(every > 0.0, every, float(data.form.n))


def moment_names(data: WeightingData, records: Records) -> tuple[str, ...]:
    """Names of all moments of vectors: a covariate or function, and the arm whose weights it is of.

    Parameters
    ----------
    data
        The dataset.
    records
        Its records, whose domain names the covariates.

    Returns
    -------
    tuple
        The names, in the order of the columns.
    """
    names: list[str] = []
    for group in vector_groups(data.form):
        for row in range(len(group[0].matrix)):
            names.append(_name(group, row, records))
    return tuple(names)


def _name(group: Group, row: int, records: Records) -> str:
    """The name of one coordinate of a group, by the feature with the largest factor."""
    part = max(group, key=lambda part: float(np.max(np.abs(part.matrix[row]))))
    place = int(np.argmax(np.abs(part.matrix[row])))
    return _feature_name(part, place, records) + _arm_of(part)


def _feature_name(part: FeatureRows, place: int, records: Records) -> str:
    """The name of one entry of a feature."""
    features = part.features
    if features.labels is not None:
        return features.labels(records)[place]
    if features.width == 1:
        return features.name
    return f"{features.name}[{place}]"


def _arm_of(part: FeatureRows) -> str:
    """The arm whose weights alone are in a moment, in brackets; nothing where both are."""
    arms = np.flatnonzero(part.weighted)
    if len(arms) == 1:
        return f" ({_ARMS[int(arms[0])]})"
    return ""
