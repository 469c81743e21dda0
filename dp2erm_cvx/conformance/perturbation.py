"""Whether weights, gamma and noise enter a second stage as objective perturbation has them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.declared_value import DeclaredValue
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import standard_records, unequal_weights
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Composite, Instance, SecondStage

_CHECK = "weights, gamma, noise"
_ROUNDING = 1e-8
_N = 6


def perturbation(subject: Subject) -> Outcome:
    """Linear in the weights; ``n gamma theta + noise`` in the gradient, and nothing else of either.

    Theorem 1 is about this objective: noise that is left out, or less of gamma, is no privacy at all.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    records = standard_records(_N)
    points = list(points_of(program, records, subject.seed))
    if wrong := _linearity(program, records, points):
        return failed(_CHECK, wrong)
    rng = np.random.default_rng(subject.seed)
    weights, p = unequal_weights(_N), len(points[0])
    plain = program.instance(records, weights, gamma=0.0, noise=np.zeros(p))
    for gamma, size in ((0.05, 0.0), (0.0, 3.0), (0.7, 1.0)):
        b = size * rng.normal(size=p)
        noisy = program.instance(records, weights, gamma=gamma, noise=b)
        if wrong := _gradients(plain, noisy, gamma, b, points):
            return failed(_CHECK, wrong)
        try:
            wrong = _values(plain, noisy, gamma, b, points)
        except ProgramError as error:
            return noted(_CHECK, f"right in the model; the declaration could not be evaluated: {error}")
        if wrong:
            return failed(_CHECK, wrong)
    return passed(_CHECK, "linear in the weights; the gradient of the rest is n gamma theta + noise")


def smooth_of(instance: Instance) -> Composite:
    """The smooth part of a second stage. Raises ProgramError where there is none."""
    model = instance.model or instance.smooth
    if model is None:
        raise ProgramError("a second stage needs a model, or the smooth part of one")
    return model


def points_of(program: SecondStage, records: Records, seed: int) -> Iterator[Array]:
    """Points of Theta, the origin first."""
    rng = np.random.default_rng([seed, 11])
    p = smooth_of(program.instance(records, np.ones(records.n_samples), gamma=0.0)).dimension
    theta_set = program.feasible(records.domain)
    for size in (0.0, 0.1, 1.0, 10.0):
        yield theta_set.project(size * rng.normal(size=p))


def _linearity(program: SecondStage, records: Records, points: list[Array]) -> str:
    def gradient(weights: Array, theta: Array) -> Array:
        return smooth_of(program.instance(records, weights, gamma=0.0)).gradient(theta)

    # weights of sum n only, as all first stages give them
    one, other = unequal_weights(_N, seed=4), unequal_weights(_N, seed=5)
    for first, second in ((one, other), (np.eye(_N)[0] * _N, np.eye(_N)[3] * _N)):
        for theta in points:
            ends = gradient(first, theta), gradient(second, theta)
            middle = gradient(0.25 * first + 0.75 * second, theta)
            if _apart(middle, 0.25 * ends[0] + 0.75 * ends[1], *ends):
                return "the objective is not linear in the weights: V bounds how much these move, not more"
    return ""


def _gradients(plain: Instance, noisy: Instance, gamma: float, b: Array, points: list[Array]) -> str:
    for theta in points:
        before, after = smooth_of(plain).gradient(theta), smooth_of(noisy).gradient(theta)
        if _apart(after - before, _N * gamma * theta + b, before, after):
            return f"the model's gradient at gamma = {gamma:g} with noise lacks n gamma theta + noise"
    return ""


def _values(plain: Instance, noisy: Instance, gamma: float, b: Array, points: list[Array]) -> str:
    before, after = DeclaredValue(plain, "theta"), DeclaredValue(noisy, "theta")
    if before.dimension != len(b):
        return f"the variable theta has {before.dimension} entries, the model {len(b)}"
    values = [(before(theta), after(theta)) for theta in points]
    expected = [0.5 * _N * gamma * float(theta @ theta) + float(b @ theta) for theta in points]
    constant = values[0][1] - values[0][0]  # at the origin, where nothing is expected
    for (first, second), more in zip(values, expected, strict=True):
        if _apart(np.array([second - first - constant]), np.array([more]), np.array([first, second])):
            return f"the declaration at gamma = {gamma:g} lacks n gamma/2 |theta|^2 + <noise, theta>"
    return ""


def _apart(found: Array, expected: Array, *sizes: Array) -> bool:
    scale = 1e-12 + max(float(np.max(np.abs(one), initial=0.0)) for one in (expected, *sizes))
    return not bool(np.max(np.abs(found - expected), initial=0.0) <= _ROUNDING * scale)
