"""The form of a second stage without Theta, which calibration "renyi" and "output" solve in its place."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.contributions import contributions
from dp2erm_cvx.conformance.declared_value import DeclaredValue
from dp2erm_cvx.conformance.noise_terms import SIZE, apart, smooth_of
from dp2erm_cvx.conformance.outcome import Outcome, Status, failed, noted, passed
from dp2erm_cvx.conformance.perturbation import perturbation, points_of
from dp2erm_cvx.conformance.samples import standard_records, unequal_weights
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CalibrationError, ProgramError
from dp2erm_cvx.program import Instance, SecondStage

_CHECK = "without Theta"
#: Far outside of any Theta that is a ball or a box of the checks.
_FAR = 1e6


def unconstrained(subject: Subject) -> Outcome:
    """The same objective over all of R^p, with weights, gamma and noise where Theorems 7 and 8 have them."""
    program = subject.program
    assert isinstance(program, SecondStage)
    try:
        free = program.unconstrained()
    except CalibrationError as error:
        return passed(_CHECK, f"no such form: {error}")
    at = dataclasses.replace(subject, program=free)
    for check in (perturbation, contributions):
        found = check(at)
        if found.status is Status.FAILED:
            return failed(_CHECK, f"{found.check}: {found.detail}")
    if wrong := _still_constrained(free):
        return failed(_CHECK, wrong)
    points = list(points_of(program, standard_records(SIZE), subject.seed))
    for bound, other in _pairs(program, free, len(points[0]), subject.seed):
        if wrong := _gradients(bound, other, points):
            return failed(_CHECK, wrong)
        try:
            wrong = _values(bound, other, points)
        except ProgramError as error:
            return noted(_CHECK, f"right in the model; the declaration could not be evaluated: {error}")
        if wrong:
            return failed(_CHECK, wrong)
    return passed(_CHECK, "the same objective, and weights, gamma and noise enter it as they should")


def _still_constrained(free: SecondStage) -> str:
    records = standard_records(SIZE)
    model = smooth_of(free.instance(records, np.ones(SIZE), gamma=0.0))
    far = np.full(model.dimension, _FAR)
    for where in (free.feasible(records.domain), model.penalty.set):
        if apart(where.project(far), far):
            return "theta is still constrained, which Theorems 7 and 8 do not cover"
    return ""


def _pairs(program: SecondStage, free: SecondStage, p: int, seed: int) -> Iterator[tuple[Instance, Instance]]:
    """Both forms bound to the same records, weights, gamma and noise."""
    rng = np.random.default_rng([seed, 23])
    records, weights = standard_records(SIZE), unequal_weights(SIZE)
    for gamma, noise in ((0.0, np.zeros(p)), (0.3, rng.normal(size=p))):
        yield (
            program.instance(records, weights, gamma=gamma, noise=noise),
            free.instance(records, weights, gamma=gamma, noise=noise),
        )


def _gradients(bound: Instance, free: Instance, points: list[Array]) -> str:
    if smooth_of(bound).dimension != smooth_of(free).dimension:
        return "theta has another length than with Theta"
    for theta in points:
        one, other = smooth_of(bound).gradient(theta), smooth_of(free).gradient(theta)
        if apart(one, other, one):
            return "the model is another objective than with Theta, whose constants calibrate it"
    return ""


def _values(bound: Instance, free: Instance, points: list[Array]) -> str:
    one, other = DeclaredValue(bound, "theta"), DeclaredValue(free, "theta")
    first, second = (np.array([value(theta) for theta in points]) for value in (one, other))
    # up to a constant, which no minimizer depends on
    if apart(first - first[0], second - second[0], first, second):
        return "the declaration is another objective than with Theta, whose constants calibrate it"
    return ""
