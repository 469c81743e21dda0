"""Means of arms that are targets, for neighbors of one dataset."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import UNIT, Array
from dp2erm_cvx.weighting.forms.form import Arms, WeightingForm
from dp2erm_cvx.weighting.neighbors.many_datasets import Numbers
from dp2erm_cvx.weighting.solving.dataset import mean_targets, sums_by_arm, vector_groups


class MeansOfArms:
    """Means of features over an arm that are targets, and what a replaced record makes of them.

    Parameters
    ----------
    form
        The form.
    vectors
        Features (n, width) of the records of a dataset by name.
    arms
        Their treatment (n,).
    """

    def __init__(self, form: WeightingForm, vectors: Mapping[str, Array], arms: Arms) -> None:
        self.form = form
        self.vectors = vectors
        self.arms = arms
        self.groups = vector_groups(form)
        self.arms_of_means = form.arms_of_means
        #: Numbers of controls and of treated (2,).
        self.arm_sizes: Array = np.bincount(arms, minlength=2).astype(np.float64)
        self.sums = {name: sums_by_arm(phi, arms) for name, phi in vectors.items()}
        self.targets, self.errors = self._targets(self.sums, self.arm_sizes)

    def moved(
        self, index: Numbers, vectors: Mapping[str, Array], arms: Arms
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """How far these targets move with one replaced record, for m neighbors.

        Parameters
        ----------
        index
            Numbers of the replaced records (m,).
        vectors
            Features (m, width) of the new records by name.
        arms
            Their treatment (m,).

        Returns
        -------
        tuple
            Movements (m, K), bounds (m, K) of their rounding, and whether every mean has a record
            (m,).
        """
        comes = (arms[:, None] == np.arange(2)).astype(np.float64)
        goes = (self.arms[index][:, None] == np.arange(2)).astype(np.float64)
        arm_sizes = self.arm_sizes + comes - goes
        sums = {}
        for name, new in vectors.items():
            old = self.vectors[name][index]
            total, size = self.sums[name]
            enters = comes[:, :, None] * new[:, None, :]
            leaves = goes[:, :, None] * old[:, None, :]
            entering_size = comes[:, :, None] * np.abs(new[:, None, :])
            leaving_size = goes[:, :, None] * np.abs(old[:, None, :])
            sums[name] = (total + (enters - leaves), size + (entering_size + leaving_size))
        targets, errors = self._targets(sums, arm_sizes)
        rounding = errors + self.errors + 2.0 * UNIT * (np.abs(targets) + np.abs(self.targets))
        have_records = np.all(arm_sizes[:, list(self.arms_of_means)] > 0, axis=1)
        return targets - self.targets, rounding, have_records

    def _targets(
        self, sums: Mapping[str, tuple[Array, Array]], arm_sizes: Array
    ) -> tuple[Array, Array]:
        """Means (..., K) in the targets of all coordinates, and bounds of their rounding."""
        targets = [np.zeros((*arm_sizes.shape[:-1], 0))]
        errors = [np.zeros((*arm_sizes.shape[:-1], 0))]
        for group in self.groups:
            target, error = mean_targets(group, sums, arm_sizes)
            targets.append(target)
            errors.append(error)
        return np.concatenate(targets, axis=-1), np.concatenate(errors, axis=-1)
