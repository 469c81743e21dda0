"""Whether gamma and noise enter an objective, and its declaration, as objective perturbation has them."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.conformance.declared_value import DeclaredValue
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Composite, Instance

#: gamma and the size of the noise: each without the other, then both.
PERTURBED = ((0.05, 0.0), (0.0, 3.0), (0.7, 1.0))
_ROUNDING = 1e-8
#: Records that it is tried on.
SIZE = 6


def smooth_of(instance: Instance) -> Composite:
    """The smooth part of what is perturbed. Raises ProgramError where there is none."""
    model = instance.model or instance.smooth
    if model is None:
        raise ProgramError("it needs a model, or the smooth part of one")
    return model


def wrong_gradients(
    plain: Instance, noisy: Instance, gamma: float, b: Array, points: list[Array], *, name: str = "theta"
) -> str:
    """What is wrong about the models of ``SIZE`` records without and with ``gamma`` and noise ``b``."""
    for theta in points:
        before, after = smooth_of(plain).gradient(theta), smooth_of(noisy).gradient(theta)
        if apart(after - before, SIZE * gamma * theta + b, before, after):
            return f"the model's gradient at gamma = {gamma:g} with noise lacks n gamma {name} + noise"
    return ""


def wrong_values(
    plain: Instance, noisy: Instance, gamma: float, b: Array, points: list[Array], *, name: str = "theta"
) -> str:
    """The same of the declarations. Raises ProgramError where one cannot be evaluated."""
    before, after = DeclaredValue(plain, name), DeclaredValue(noisy, name)
    if before.dimension != len(b):
        return f"the variable {name} has {before.dimension} entries, the model {len(b)}"
    values = [(before(theta), after(theta)) for theta in points]
    expected = [0.5 * SIZE * gamma * float(theta @ theta) + float(b @ theta) for theta in points]
    constant = values[0][1] - values[0][0]  # at the origin, where nothing is expected
    for (first, second), more in zip(values, expected, strict=True):
        if apart(np.array([second - first - constant]), np.array([more]), np.array([first, second])):
            return f"the declaration at gamma = {gamma:g} lacks n gamma/2 |{name}|^2 + <noise, {name}>"
    return ""


def apart(found: Array, expected: Array, *sizes: Array) -> bool:
    """Whether two vectors differ by more than rounding of numbers of these sizes."""
    scale = 1e-12 + max(float(np.max(np.abs(one), initial=0.0)) for one in (expected, *sizes))
    return not bool(np.max(np.abs(found - expected), initial=0.0) <= _ROUNDING * scale)
