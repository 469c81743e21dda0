"""Bugs planted into the plans of complete releases."""

import dataclasses

import numpy as np

from dp2erm_cvx import PrivateTwoStageERM
from dp2erm_cvx.calibration import Perturbed
from tests.plan.changed import changed


def whole(self, counts, person, repeats=None):
    """In place of ``Unit.shared``: V = 2 for all records of a person, each of which counts fully."""
    return counts, np.maximum(person, 0)


def weaker(plan, name="theta", **factors):
    """The plan with some fields of a calibration multiplied."""
    calibration = plan.step(name).calibration
    fields = {field: getattr(calibration, field) * factor for field, factor in factors.items()}
    return changed(plan, name, calibration=dataclasses.replace(calibration, **fields))


def weak(name="theta", **factors):
    """A class of estimators whose plans are weaker."""

    class Weak(PrivateTwoStageERM):
        def plan(self, n_samples, n_features):
            return weaker(super().plan(n_samples, n_features), name, **factors)

    return Weak


HalfTheNoise, HardlyAnyGamma = weak(scale=0.5), weak(gamma=1e-6)
AThirdOfThePropensityNoise = weak("propensity", scale=1 / 3)
HardlyAnyPropensityGamma = weak("propensity", gamma=1e-6)


class BoundIgnored(PrivateTwoStageERM):
    """Calibrates as if the weights were constants."""

    def plan(self, n_samples, n_features):
        plan = super().plan(n_samples, n_features)
        fields = ("scale", "gamma")[: 1 + (plan.main.perturbed is Perturbed.OBJECTIVE)]
        return weaker(plan, **dict.fromkeys(fields, 2 / plan.bound.V))
