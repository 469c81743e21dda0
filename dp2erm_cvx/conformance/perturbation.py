"""Whether weights, gamma and noise enter a second stage as objective perturbation has them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.noise_terms import (
    PERTURBED,
    SIZE,
    apart,
    smooth_of,
    wrong_gradients,
    wrong_values,
)
from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.samples import standard_records, unequal_weights
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import SecondStage

_CHECK = "weights, gamma, noise"


def perturbation(subject: Subject) -> Outcome:
    """Linear in the weights; ``n gamma theta + noise`` in the gradient, and nothing else of either.

    Theorem 1 is about this objective: noise that is left out, or less of gamma, is no privacy at all.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    records = standard_records(SIZE)
    points = list(points_of(program, records, subject.seed))
    if wrong := _linearity(program, records, points):
        return failed(_CHECK, wrong)
    rng = np.random.default_rng(subject.seed)
    weights, p = unequal_weights(SIZE), len(points[0])
    plain = program.instance(records, weights, gamma=0.0, noise=np.zeros(p))
    for gamma, size in PERTURBED:
        b = size * rng.normal(size=p)
        noisy = program.instance(records, weights, gamma=gamma, noise=b)
        if wrong := wrong_gradients(plain, noisy, gamma, b, points):
            return failed(_CHECK, wrong)
        try:
            wrong = wrong_values(plain, noisy, gamma, b, points)
        except ProgramError as error:
            return noted(_CHECK, f"right in the model; the declaration could not be evaluated: {error}")
        if wrong:
            return failed(_CHECK, wrong)
    return passed(_CHECK, "linear in the weights; the gradient of the rest is n gamma theta + noise")


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
    one, other = unequal_weights(SIZE, seed=4), unequal_weights(SIZE, seed=5)
    for first, second in ((one, other), (np.eye(SIZE)[0] * SIZE, np.eye(SIZE)[3] * SIZE)):
        for theta in points:
            ends = gradient(first, theta), gradient(second, theta)
            middle = gradient(0.25 * first + 0.75 * second, theta)
            if apart(middle, 0.25 * ends[0] + 0.75 * ends[1], *ends):
                return "the objective is not linear in the weights: V bounds how much these move, not more"
    return ""
