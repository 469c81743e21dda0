"""Whether weights, gamma and noise enter an objective as the theorems of its release have them.

Theorem 1 in a second stage, Theorems 7 and 8 in its form without Theta, Theorem 9 in a private first stage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dp2erm_cvx.conformance.own_record import contributions
from dp2erm_cvx.conformance.report import CheckStatus, Judgment, Subject, failed, noted, passed
from dp2erm_cvx.conformance.samples import standard_records, unequal_weights
from dp2erm_cvx.conformance.solutions import DeclaredValue, apart, points_of
from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import CalibrationError, ProgramError
from dp2erm_cvx.program import Instance, PrivateFirstStage, SecondStage
from dp2erm_cvx.program.stage import smooth_of

#: gamma and the size of the noise: each without the other, then both.
_PERTURBED = ((0.05, 0.0), (0.0, 3.0), (0.7, 1.0))
#: Records that it is tried on.
_SIZE = 6
#: Far outside of any Theta that is a ball or a box of the checks.
_FAR = 1e6


def perturbation(subject: Subject) -> Judgment:
    """Linear in the weights; ``n gamma theta + noise`` in the gradient, and nothing else of either.

    Theorem 1 is about this objective: noise that is left out, or less of gamma, is no privacy at all.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    points = list(points_of(smooth_of(_weighted(program, np.ones(_SIZE))), subject.seed))
    if wrong := _not_linear(program, points):
        return failed(wrong)
    weights = unequal_weights(_SIZE)
    pairs = list(_perturbed(partial(_weighted, program, weights), len(points[0]), subject.seed))
    if wrong := _first(pair.wrong_gradient(points, "theta") for pair in pairs):
        return failed(wrong)
    return _judged(
        (pair.wrong_value(points, "theta") for pair in pairs),
        "linear in the weights; the gradient of the rest is n gamma theta + noise",
    )


def coefficient_noise(subject: Subject) -> Judgment:
    """``n gamma lam + noise`` in the gradient, and nothing else of either.

    Nor anywhere else: what the other checks examine is the program without both, and weights that depend on
    the noise beside the coefficient say more of the records than the coefficient does.
    """
    program = subject.program
    assert isinstance(program, PrivateFirstStage)
    records = standard_records(_SIZE)
    # without gamma and noise it is the instance that all other checks are about
    examined = program.instance(records)
    pairs = list(_perturbed(partial(program.perturbed, records), smooth_of(examined).dimension, subject.seed))
    points = list(points_of(smooth_of(pairs[0].plain), subject.seed))
    if _different_gradient(pairs[0].plain, examined, points):
        return failed("perturbed(records, 0, 0) is another program than instance(records)")
    for pair in pairs:
        if wrong := pair.wrong_gradient(points, "lam") or pair.wrong_weights(points):
            return failed(wrong)
    return _judged(
        (pair.wrong_value(points, "coefficient") for pair in pairs),
        "the gradient of the rest is n gamma lam + noise; no weight depends on either",
    )


def unconstrained(subject: Subject) -> Judgment:
    """The same objective over all of R^p, with weights, gamma and noise where Theorems 7 and 8 have them.

    Calibrations "renyi" and "output" solve it in place of the program.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    try:
        free = program.unconstrained()
    except CalibrationError as error:
        return passed(f"no such form: {error}")
    for name, check in (("weights, gamma, noise", perturbation), ("own record", contributions)):
        status, detail = check(dataclasses.replace(subject, program=free))
        if status is CheckStatus.FAILED:
            return failed(f"{name}: {detail}")
    if _constrained(free):
        return failed("theta is still constrained, which Theorems 7 and 8 do not cover")
    weights = unequal_weights(_SIZE)
    points = list(points_of(smooth_of(_weighted(program, weights)), subject.seed))
    b = np.random.default_rng([subject.seed, 23]).normal(size=len(points[0]))
    both = [
        (_weighted(program, weights, *perturbed), _weighted(free, weights, *perturbed))
        for perturbed in ((0.0, 0 * b), (0.3, b))
    ]
    for bound, unbound in both:
        if smooth_of(bound).dimension != smooth_of(unbound).dimension:
            return failed("theta has another length than with Theta")
        if _different_gradient(bound, unbound, points):
            return failed("the model is another objective than with Theta, whose constants calibrate it")
    return _judged(
        (_different_value(bound, unbound, points) for bound, unbound in both),
        "the same objective, and weights, gamma and noise enter it as they should",
    )


@dataclass(frozen=True)
class _Pair:
    """One objective of ``_SIZE`` records without and with ``gamma`` and noise ``b``."""

    plain: Instance
    noisy: Instance
    gamma: float
    b: Array

    def wrong_gradient(self, points: list[Array], name: str) -> str:
        """What is wrong about the models, or nothing."""
        for point in points:
            before, after = smooth_of(self.plain).gradient(point), smooth_of(self.noisy).gradient(point)
            if apart(after - before, _SIZE * self.gamma * point + self.b, before, after):
                return (
                    f"the model's gradient at gamma = {self.gamma:g} with noise lacks n gamma {name} + noise"
                )
        return ""

    def wrong_value(self, points: list[Array], name: str) -> str:
        """The same of the declarations. Raises ProgramError where one cannot be evaluated."""
        before, after = DeclaredValue(self.plain, name), DeclaredValue(self.noisy, name)
        if before.dimension != len(self.b):
            return f"the variable {name} has {before.dimension} entries, the model {len(self.b)}"
        values = [(before(point), after(point)) for point in points]
        expected = [
            0.5 * _SIZE * self.gamma * float(point @ point) + float(self.b @ point) for point in points
        ]
        constant = values[0][1] - values[0][0]  # at the origin, where nothing is expected
        for (first, second), more in zip(values, expected, strict=True):
            if apart(np.array([second - first - constant]), np.array([more]), np.array([first, second])):
                return (
                    f"the declaration at gamma = {self.gamma:g} lacks n gamma/2 |{name}|^2 + <noise, {name}>"
                )
        return ""

    def wrong_weights(self, points: list[Array]) -> str:
        """What is wrong about the weights at given coefficients, or nothing."""
        for point in points:
            before, after = smooth_of(self.plain).output(point), smooth_of(self.noisy).output(point)
            if apart(before, after, before):
                return "the weights at a given coefficient depend on gamma or noise"
        return ""


def _weighted(
    program: SecondStage, weights: Array, gamma: float = 0.0, noise: Array | None = None
) -> Instance:
    return program.instance(standard_records(_SIZE), weights, gamma=gamma, noise=noise)


def _perturbed(bind: Callable[[float, Array], Instance], p: int, seed: int) -> Iterator[_Pair]:
    rng = np.random.default_rng(seed)
    plain = bind(0.0, np.zeros(p))
    for gamma, size in _PERTURBED:
        b = size * rng.normal(size=p)
        yield _Pair(plain, bind(gamma, b), gamma, b)


def _judged(wrong: Iterator[str], right: str) -> Judgment:
    """What is wrong about declarations, once the models are right."""
    try:
        found = _first(wrong)
    except ProgramError as error:
        return noted(f"right in the model; the declaration could not be evaluated: {error}")
    return failed(found) if found else passed(right)


def _first(wrong: Iterator[str]) -> str:
    return next(filter(None, wrong), "")


def _not_linear(program: SecondStage, points: list[Array]) -> str:
    # weights of sum n only, as all first stages give them
    one, other = unequal_weights(_SIZE, seed=4), unequal_weights(_SIZE, seed=5)
    for first, second in ((one, other), (np.eye(_SIZE)[0] * _SIZE, np.eye(_SIZE)[3] * _SIZE)):
        models = [
            smooth_of(_weighted(program, weights))
            for weights in (first, second, 0.25 * first + 0.75 * second)
        ]
        for theta in points:
            start, end, middle = (model.gradient(theta) for model in models)
            if apart(middle, 0.25 * start + 0.75 * end, start, end):
                return "the objective is not linear in the weights: V bounds how much these move, not more"
    return ""


def _constrained(program: SecondStage) -> bool:
    model = smooth_of(_weighted(program, np.ones(_SIZE)))
    far = np.full(model.dimension, _FAR)
    sets = (program.feasible(standard_records(_SIZE).domain), model.penalty.set)
    return any(apart(where.project(far), far) for where in sets)


def _different_gradient(one: Instance, other: Instance, points: list[Array]) -> bool:
    for point in points:
        first, second = smooth_of(one).gradient(point), smooth_of(other).gradient(point)
        if apart(first, second, first):
            return True
    return False


def _different_value(bound: Instance, free: Instance, points: list[Array]) -> str:
    values = (DeclaredValue(bound, "theta"), DeclaredValue(free, "theta"))
    first, second = (np.array([value(theta) for theta in points]) for value in values)
    # up to a constant, which no minimizer depends on
    if apart(first - first[0], second - second[0], first, second):
        return "the declaration is another objective than with Theta, whose constants calibrate it"
    return ""
