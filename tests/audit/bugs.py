"""Complete releases, and bugs planted into their plans."""

import dataclasses

import numpy as np

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.audit.density import log_density_ratio
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.problems.arm_means import plug_in_ate
from dp2erm_cvx.program import WholeSpace
from tests.plan.changed import changed

DOMAIN, MEAN = Domain(1.0, 1.0), plug_in_ate(WholeSpace())


def release(
    first="uniform", second="itr", epsilon=1.0, delta=0.0, cls=PrivateTwoStageERM, **settings
):
    return cls(settings.pop("domain", DOMAIN), Budget(epsilon, delta), first, second, **settings)


def loss_at_zero(model, pair):
    """The log ratio where every step releases 0."""
    one, other = audited_laws(model, pair)[1]
    return abs(log_density_ratio(one, other, one.place(np.zeros(len(one.units)))))


def whole(self, counts, person, repeats=None):
    """In place of ``Unit.shared``: V = 2 for all records of a person, each of which counts
    fully.
    """
    return counts, np.maximum(person, 0)


def weaker(plan, name="theta", **factors):
    """The plan with some fields of a calibration multiplied."""
    calibration = plan.step(name).calibration
    fields = {field: getattr(calibration, field) * factor for field, factor in factors.items()}
    return changed(plan, name, calibration=dataclasses.replace(calibration, **fields))


def weak(**factors):
    """A class of estimators whose plans are weaker."""

    class Weak(PrivateTwoStageERM):
        def plan(self, n_samples, n_features):
            return weaker(super().plan(n_samples, n_features), **factors)

    return Weak


HalfTheNoise, HardlyAnyGamma = weak(scale=0.5), weak(gamma=1e-6)
