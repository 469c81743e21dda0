"""Bugs planted into the plans of complete releases."""

import dataclasses

import numpy as np

from dp2erm_cvx import PrivateTwoStageERM
from dp2erm_cvx.calibration import Perturbed
from tests.plan.changed import changed


def whole(self, counts, person, repeats=None):
    """In place of ``Unit.shared``: V = 2 for all records of a person, each of which counts fully."""
    return counts, np.maximum(person, 0)


def less(calibration, **factors):
    """A calibration with some fields multiplied."""
    fields = {name: getattr(calibration, name) * factor for name, factor in factors.items()}
    return dataclasses.replace(calibration, **fields)


class HalfTheNoise(PrivateTwoStageERM):
    def plan(self, n_samples, n_features):
        plan = super().plan(n_samples, n_features)
        return changed(plan, calibration=less(plan.main.calibration, scale=0.5))


class HardlyAnyGamma(PrivateTwoStageERM):
    def plan(self, n_samples, n_features):
        plan = super().plan(n_samples, n_features)
        return changed(plan, calibration=less(plan.main.calibration, gamma=1e-6))


class BoundIgnored(PrivateTwoStageERM):
    """Calibrates as if the weights were constants."""

    def plan(self, n_samples, n_features):
        plan = super().plan(n_samples, n_features)
        share = {"scale": 2 / plan.bound.V}
        if plan.main.perturbed is Perturbed.OBJECTIVE:
            share["gamma"] = 2 / plan.bound.V
        return changed(plan, calibration=less(plan.main.calibration, **share))


class AThirdOfThePropensityNoise(PrivateTwoStageERM):
    def plan(self, n_samples, n_features):
        plan = super().plan(n_samples, n_features)
        return changed(plan, "propensity", calibration=less(plan.step("propensity").calibration, scale=1 / 3))


class HardlyAnyPropensityGamma(PrivateTwoStageERM):
    def plan(self, n_samples, n_features):
        plan = super().plan(n_samples, n_features)
        return changed(plan, "propensity", calibration=less(plan.step("propensity").calibration, gamma=1e-6))
