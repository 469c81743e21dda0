"""A private first stage where its noise enters: the coefficient that Theorem 9 releases."""

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
from dp2erm_cvx.conformance.samples import standard_records
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.program import Instance, PrivateFirstStage

_CHECK = "gamma, noise"


def coefficient_noise(subject: Subject) -> Outcome:
    """``n gamma lam + noise`` in the gradient, and nothing else of either.

    Nor anywhere else: what the other checks examine is the program without both, and weights that depend on
    the noise beside the coefficient say more of the records than the coefficient does.
    """
    program = subject.program
    assert isinstance(program, PrivateFirstStage)
    records = standard_records(SIZE)
    p = smooth_of(program.instance(records)).dimension
    plain = program.perturbed(records, 0.0, np.zeros(p))
    points = list(_coefficients(plain, subject.seed))
    if wrong := _not_the_same(program, records, plain, points):
        return failed(_CHECK, wrong)
    rng = np.random.default_rng(subject.seed)
    for gamma, size in PERTURBED:
        b = size * rng.normal(size=p)
        noisy = program.perturbed(records, gamma, b)
        if wrong := wrong_gradients(plain, noisy, gamma, b, points, name="lam") or _weights(
            plain, noisy, points
        ):
            return failed(_CHECK, wrong)
        try:
            wrong = wrong_values(plain, noisy, gamma, b, points, name="coefficient")
        except ProgramError as error:
            return noted(_CHECK, f"right in the model; the declaration could not be evaluated: {error}")
        if wrong:
            return failed(_CHECK, wrong)
    return passed(_CHECK, "the gradient of the rest is n gamma lam + noise; no weight depends on either")


def _coefficients(plain: Instance, seed: int) -> Iterator[Array]:
    """Points of the set of coefficients, the origin first."""
    rng, model = np.random.default_rng([seed, 11]), smooth_of(plain)
    for size in (0.0, 0.1, 1.0, 10.0):
        yield model.penalty.set.project(size * rng.normal(size=model.dimension))


def _not_the_same(program: PrivateFirstStage, records: Records, plain: Instance, points: list[Array]) -> str:
    # without gamma and noise it is the instance that all other checks are about
    examined = smooth_of(program.instance(records))
    for lam in points:
        one, other = smooth_of(plain).gradient(lam), examined.gradient(lam)
        if apart(one, other, one):
            return "perturbed(records, 0, 0) is another program than instance(records)"
    return ""


def _weights(plain: Instance, noisy: Instance, points: list[Array]) -> str:
    for lam in points:
        one, other = smooth_of(plain).output(lam), smooth_of(noisy).output(lam)
        if apart(one, other, one):
            return "the weights at a given coefficient depend on gamma or noise"
    return ""
