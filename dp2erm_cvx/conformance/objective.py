"""Whether records, weights, gamma and noise enter an objective as the theorems of its release have them.

The methods of a program may each be a function of one record, and what is solved another thing: ``data``,
``model`` and ``instance`` can be overridden. So the objective is examined beside the methods. Perturbation:
Theorem 1 in a second stage, Theorems 7 and 8 in its form without Theta, Theorem 9 in a private first stage.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from dp2erm_cvx.conformance.solutions import DeclaredValue, apart, points_of
from dp2erm_cvx.conformance.subject import (
    KEPT,
    SIZE,
    Check,
    CheckStatus,
    Judgment,
    Subject,
    check_domain,
    failed,
    noted,
    passed,
    squares,
    standard_records,
    unequal_weights,
)
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import CalibrationError, InfeasibleError, ProgramError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.program import (
    ClosedFormWeights,
    FirstStage,
    Instance,
    Kind,
    PrivateFirstStage,
    Program,
    SecondStage,
    SeparableFirstStage,
)
from dp2erm_cvx.program.entropy import EntropyFirstStage
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.weights import WeightsProgram

#: Sums over the covariates of one record may round otherwise beside other records, and objectives more so.
_ROUNDING, _LOOSE = 1e-9, 1e-7


def own_record(subject: Subject) -> Judgment:
    """What the theorems take as a function of one record, or of two, compared between datasets of others.

    First stages: rows, weights and kernel entries, then terms of the objective and ratios of weights at one
    coefficient. A quantity that is centered, scaled or ranked by the sample differs: one changed record then
    changes the terms of all others. Second stages: effects and choices, then what weight brings that moves
    from one record to another: Theorems 1 and 2 count one changed loss. All of it beside few and many.
    """
    program, compared = subject.program, dict[str, None]()
    for same_arms in (True, False):
        for corners in _all_squares(subject, same_arms):
            try:
                for what, wrong in _compared(subject, corners, same_arms):
                    if wrong:
                        return failed(wrong)
                    compared[what] = None
            except InfeasibleError:
                continue  # which the check of feasibility judges
    if not compared:
        assert isinstance(program, FirstStage)
        return noted(f"nothing to compare: {program.kind.proved}")
    largest = max(SIZE, *subject.many, 0)
    return passed(f"{', '.join(compared)}: a record's own, whatever the others are, n = 8 to {largest:,}")


#: What was compared between datasets, and what is wrong about it, if anything.
_Compared = Iterator[tuple[str, str]]
_Corners = tuple[Records, ...]


def _all_squares(subject: Subject, same_arms: bool) -> Iterator[_Corners]:
    """Of few records, then of many: where pairs of records make a matrix, one of each size will do."""
    yield from squares(same_arms=same_arms, seed=subject.seed)
    for size in subject.many:
        many = squares(same_arms=same_arms, seed=subject.seed, size=size)
        yield from itertools.islice(many, 1 if subject.paired else None)


def _compared(subject: Subject, corners: _Corners, same_arms: bool) -> _Compared:
    program = subject.program
    if isinstance(program, SecondStage):
        yield from _rule(program, corners)
        yield "losses", _losses(program, corners, subject.seed)
        return
    assert isinstance(program, FirstStage)
    why = f"depends on the other records, which no theorem of kind {program.kind.value!r} covers"
    for what, wrong in itertools.chain(_methods(program, corners), _objective(program, corners, same_arms)):
        yield what, wrong and f"{what}: {wrong} {why}"


def _differ(values: list[Array], tolerance: float, scale: float) -> bool:
    """Whether arrays that should be one and the same are not, beyond rounding."""
    first = values[0]
    allowed = tolerance * max(scale, float(np.max(np.abs(first), initial=0.0)))
    return any(
        one.shape != first.shape or not np.max(np.abs(one - first), initial=0.0) <= allowed for one in values
    )


def _no_sum(values: list[Array]) -> bool:
    """Whether one change of a record moves a sum over records by something else among other records."""
    scale = 1e-12 + max(float(np.max(np.abs(one))) for one in values)
    apart = (values[0] - values[1]) - (values[2] - values[3])
    return not np.max(np.abs(apart)) <= _LOOSE * scale


def _beside(corners: _Corners) -> Iterator[tuple[Records, list[int]]]:
    """The records that stay, among others and by themselves, with their places."""
    kept = list(KEPT)
    yield corners[0].at(np.array(kept)), list(range(len(kept)))
    for records in corners:
        yield records, kept


def _methods(program: FirstStage, corners: _Corners) -> _Compared:
    program = program.resolve(corners[0].domain)
    methods: dict[str, Callable[[Records], Array | None]] = {}
    if isinstance(program, SeparableFirstStage):
        names = ("rows", "weight_rows", "linear_terms")
        methods = {name: getattr(program, name) for name in names}
    elif isinstance(program, ClosedFormWeights):
        methods = {"unnormalized": program.unnormalized}
    for what, method in methods.items():
        found = [(method(records), places) for records, places in _beside(corners)]
        values = [value[places] for value, places in found if value is not None]
        if values:
            yield what, "one of a record" if _differ(values, _ROUNDING, 1.0) else ""
    if isinstance(program, KernelFirstStage):
        kernel, beside = program.kernel, _beside(corners)
        values = [kernel.matrix(one.covariates)[np.ix_(places, places)] for one, places in beside]
        yield "kernel", "one of two records" if _differ(values, _ROUNDING, 1.0) else ""


def _objective(program: FirstStage, corners: _Corners, same_arms: bool) -> _Compared:
    """What is solved: where a program is made one record at a time, or any weights are covered, nothing."""
    paper = isinstance(program, EntropyFirstStage) and program.scaling == "paper"
    arms = paper or "weights" in program.moving  # the theorem lets the sizes of the arms enter
    if program.kind is Kind.DIRECT or isinstance(program, WeightsProgram) or (arms and not same_arms):
        return
    if program.kind is Kind.QUADRATIC:
        # one after the other: each may hold a matrix of all pairs of records
        entries, terms = zip(*(_form(program, records) for records in corners), strict=True)
        yield (
            "entries of the quadratic form",
            "that of two records" if _differ([*entries], _LOOSE, 0.0) else "",
        )
        yield "terms of the linear form", "what one adds to that of another" if _no_sum([*terms]) else ""
        return
    models = [model for one in corners if (model := program.instance(one).model) is not None]
    if len(models) < len(corners) or len({model.dimension for model in models}) > 1:
        return
    rng, closed = np.random.default_rng(17), program.kind is Kind.CLOSED_FORM
    # the log of a mean of exponentials, which a model of another class may be, is a sum at 0 only
    everywhere = isinstance(models[0], MarginModel) and not models[0].shifted
    for size in (0.0, 0.3, 1.0):
        point = models[0].penalty.set.project(size * rng.normal(size=models[0].dimension))
        if not closed and (everywhere or (size == 0.0 and same_arms)):
            wrong = _no_sum([model.gradient(point) for model in models])
            yield "terms of the objective", "that of one record" if wrong else ""
        at = np.ones(models[0].dimension) if closed else point
        weights = [np.maximum(np.abs(model.output(at)[list(KEPT)]), 1e-300) for model in models]
        logs = [np.log(one) - np.log(one[0]) for one in weights]
        yield "ratios of weights", "that of two records" if _differ(logs, _LOOSE, 1.0) else ""


def _form(program: FirstStage, records: Records) -> tuple[Array, Array]:
    """The quadratic and the linear form between the records that stay."""
    instance, kept = program.instance(records), list(KEPT)
    if instance.model is not None:
        model, length = instance.model, instance.model.dimension
        linear = model.gradient(np.zeros(length))
        # a record may have no variable: what a unit of a variable brings says whose it is
        units, numbered = (model.output(one)[kept] for one in (np.ones(length), np.arange(float(length))))
        places = np.clip(np.rint(numbered / np.where(units == 0, np.inf, units)), 0, length - 1).astype(int)
        owners = [int(np.argmax(np.abs(model.output(_unit(place, length))))) for place in places]
        own = [place for place, owner, record in zip(places, owners, kept, strict=True) if owner == record]
        rows = [model.gradient(_unit(index, length))[own] - linear[own] for index in own]
        return np.reshape(rows, (len(own), len(own))), linear[own]
    value, n = DeclaredValue(instance, "weights"), records.n_samples
    nothing = np.zeros((1, 1)), np.zeros(1)
    if value.dimension != n:
        return nothing
    at_zero, moves = value(np.zeros(n)), [_unit(index, n) for index in kept]
    single = np.array([value(move) - at_zero for move in moves])
    pairs = np.array([[value(one + other) - at_zero for other in moves] for one in moves])
    if not np.all(np.isfinite(pairs)):
        return nothing  # no quadratic form, which its author answers for
    return pairs - single[:, None] - single[None, :], single


def _unit(index: int, length: int) -> Array:
    unit: Array = np.eye(1, length, index)[0]
    return unit


def _rule(program: SecondStage, corners: _Corners) -> _Compared:
    """Effects and choices: a fit asks for them one record at a time, where they would mean another thing."""
    domain = corners[0].domain
    program = program.resolve(domain)
    columns = domain.columns or tuple(f"x{k}" for k in range(corners[0].covariates.shape[1]))
    theta = np.random.default_rng(5).normal(size=len(program.parameter_names(columns, domain)))
    for what, function in (("effect", program.effect), ("choice", program.choices)):
        values = []
        for records, places in _beside(corners):
            value = np.asarray(function(theta, domain, records.covariates))
            if value.shape != (records.n_samples,):
                yield what, f"the {what} has another shape than one number a record: it is no rule"
            if what == "choice" and not np.all(np.isin(value, (0, 1))):
                yield what, "a choice is neither 0 nor 1: it is no rule"
            values.append(value[places].astype(np.float64))
        wrong = f"the {what} at one record depends on the other records: it is no rule"
        yield what, wrong if _differ(values, _ROUNDING, 1.0) else ""


def _losses(program: SecondStage, corners: _Corners, seed: int) -> str:
    """Gradients of what weight brings that moves from one of the records that stay to another."""
    moved = list[tuple[Composite, Composite, float]]()
    for records, places in _beside(corners):
        weights, shift = unequal_weights(records.n_samples), np.zeros(records.n_samples)
        step = 0.5 * float(np.min(weights[places[:2]]))
        shift[places[:2]] = step, -step
        ends = [program.instance(records, weights + side * shift, gamma=0.0) for side in (-1, 1)]
        moved.append((ends[0].composite, ends[1].composite, step))
    for theta in points_of(moved[0][0], seed):
        ends_of = [(before.gradient(theta), after.gradient(theta), step) for before, after, step in moved]
        scale = 1e-12 + max(float(np.max(np.abs(before))) / step for before, _, step in ends_of)
        if _differ([(after - before) / (2 * step) for before, after, step in ends_of], _LOOSE, scale):
            return (
                "the loss of one record depends on the other records: Theorems 1 and 2 need "
                "sum_i w_i l(theta; d_i)"
            )
    return ""


#: gamma and the size of the noise: each without the other, then both.
_PERTURBED = ((0.05, 0.0), (0.0, 3.0), (0.7, 1.0))
#: Records that it is tried on.
_SIZE = 6
#: Far outside of any Theta that is a ball or a box of the checks.
_FAR = 1e6
#: An objective with gamma and noise.
_Bind = Callable[[float, Array], Instance]


def perturbation(subject: Subject) -> Judgment:
    """Linear in the weights; ``n gamma theta + noise`` in the gradient, and nothing else of either.

    Theorem 1 is about this objective: noise that is left out, or less of gamma, is no privacy at all.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    points = list(points_of(_weighted(program, np.ones(_SIZE)).composite, subject.seed))
    # weights of sum n only, as all first stages give them
    ends = [unequal_weights(_SIZE, seed=4), unequal_weights(_SIZE, seed=5)]
    for first, second in (ends, (np.eye(_SIZE)[0] * _SIZE, np.eye(_SIZE)[3] * _SIZE)):
        between = (first, second, 0.25 * first + 0.75 * second)
        models = [_weighted(program, weights).composite for weights in between]
        for theta in points:
            start, end, middle = (model.gradient(theta) for model in models)
            if apart(middle, 0.25 * start + 0.75 * end, start, end):
                return failed(
                    "the objective is not linear in the weights: V bounds how much these move, not more"
                )
    bind = partial(_weighted, program, unequal_weights(_SIZE))
    right = "linear in the weights; the gradient of the rest is n gamma theta + noise"
    return _judged(_perturbed(bind, points, subject.seed, "theta", "theta"), right)


def coefficient_noise(subject: Subject) -> Judgment:
    """``n gamma lam + noise`` in the gradient, and nothing else of either.

    Nor anywhere else: what the other checks examine is the program without both, and weights that depend on
    the noise beside the coefficient say more of the records than the coefficient does.
    """
    program, records = subject.program, standard_records(_SIZE)
    assert isinstance(program, PrivateFirstStage)
    # without gamma and noise it is the instance that all other checks are about
    examined = program.instance(records)
    plain = program.perturbed(records, 0.0, np.zeros(examined.composite.dimension))
    points = list(points_of(plain.composite, subject.seed))
    if _different_gradient(plain, examined, points):
        return failed("perturbed(records, 0, 0) is another program than instance(records)")
    bind = partial(program.perturbed, records)
    right = "the gradient of the rest is n gamma lam + noise; no weight depends on either"
    return _judged(_perturbed(bind, points, subject.seed, "lam", "coefficient"), right)


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
    for name, check in (("weights, gamma, noise", perturbation), ("own record", own_record)):
        status, detail = check(dataclasses.replace(subject, program=free))
        if status is CheckStatus.FAILED:
            return failed(f"{name}: {detail}")
    model = _weighted(free, np.ones(_SIZE)).composite
    far = np.full(model.dimension, _FAR)
    if any(
        apart(where.project(far), far) for where in (free.feasible(check_domain(_SIZE)), model.penalty.set)
    ):
        return failed("theta is still constrained, which Theorems 7 and 8 do not cover")
    weights = unequal_weights(_SIZE)
    points = list(points_of(_weighted(program, weights).composite, subject.seed))
    b = np.random.default_rng([subject.seed, 23]).normal(size=len(points[0]))
    both = [
        (_weighted(program, weights, *perturbed), _weighted(free, weights, *perturbed))
        for perturbed in ((0.0, 0 * b), (0.3, b))
    ]
    for bound, unbound in both:
        if bound.composite.dimension != unbound.composite.dimension:
            return failed("theta has another length than with Theta")
        if _different_gradient(bound, unbound, points):
            return failed("the model is another objective than with Theta, whose constants calibrate it")
    return _judged(
        (_different_value(bound, unbound, points) for bound, unbound in both),
        "the same objective, and weights, gamma and noise enter it as they should",
    )


def _weighted(
    program: SecondStage, weights: Array, gamma: float = 0.0, noise: Array | None = None
) -> Instance:
    return program.instance(standard_records(_SIZE), weights, gamma=gamma, noise=noise)


def _judged(wrong: Iterator[str], right: str) -> Judgment:
    """What is wrong about models and then about declarations, once the models are right."""
    try:
        found = next(filter(None, wrong), "")
    except ProgramError as error:
        return noted(f"right in the model; the declaration could not be evaluated: {error}")
    return failed(found) if found else passed(right)


def _perturbed(bind: _Bind, points: list[Array], seed: int, name: str, variable: str) -> Iterator[str]:
    """What gamma and noise do to models and to the weights that these give, then to declarations."""
    rng, p = np.random.default_rng(seed), len(points[0])
    plain, noises = bind(0.0, np.zeros(p)), [(gamma, size * rng.normal(size=p)) for gamma, size in _PERTURBED]
    pairs = [(bind(gamma, b), gamma, b) for gamma, b in noises]
    for noisy, gamma, b in pairs:
        for point in points:
            before, after = plain.composite, noisy.composite
            first, second = before.gradient(point), after.gradient(point)
            if apart(second - first, _SIZE * gamma * point + b, first, second):
                yield f"the model's gradient at gamma = {gamma:g} with noise lacks n gamma {name} + noise"
            if variable == "coefficient":
                weights = before.output(point)
                if apart(weights, after.output(point), weights):
                    yield "the weights at a given coefficient depend on gamma or noise"
    for noisy, gamma, b in pairs:
        yield _different_value(plain, noisy, points, variable, gamma, b)


def _different_gradient(one: Instance, other: Instance, points: list[Array]) -> bool:
    both = ((one.composite.gradient(point), other.composite.gradient(point)) for point in points)
    return any(apart(first, second, first) for first, second in both)


def _different_value(
    one: Instance,
    other: Instance,
    points: list[Array],
    variable: str = "theta",
    gamma: float = 0.0,
    b: Array | None = None,
) -> str:
    """Two declarations of which the other has gamma and noise beside: up to a constant."""
    first, second = DeclaredValue(one, variable), DeclaredValue(other, variable)
    noise = np.zeros(len(points[0])) if b is None else b
    if first.dimension != len(noise):
        return f"the variable {variable} has {first.dimension} entries, the model {len(noise)}"
    before, after = (np.array([value(point) for point in points]) for value in (first, second))
    more = np.array([0.5 * _SIZE * gamma * float(at @ at) + float(noise @ at) for at in points])
    moved = after - before
    if not apart(moved - moved[0], more - more[0], before, after):
        return ""
    if b is None:
        return "the declaration is another objective than with Theta, whose constants calibrate it"
    return f"the declaration at gamma = {gamma:g} lacks n gamma/2 |{variable}|^2 + <noise, {variable}>"


#: What is examined here, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "own record": (own_record, Program),
    "weights, gamma, noise": (perturbation, SecondStage),
    "gamma, noise": (coefficient_noise, PrivateFirstStage),
    "without Theta": (unconstrained, SecondStage),
}
