"""Whether what the theorems take as a function of one record is one.

The methods of a program may each be a function of one record, and what is solved another thing: ``data``,
``model`` and ``instance`` can be overridden. So the objective is examined beside the methods.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.conformance import samples
from dp2erm_cvx.conformance.report import Judgment, Subject, failed, noted, passed
from dp2erm_cvx.conformance.solutions import DeclaredValue, points_of
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, Kind, SecondStage
from dp2erm_cvx.program.entropy import EntropyFirstStage
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.separable import SeparableFirstStage
from dp2erm_cvx.program.stage import smooth_of
from dp2erm_cvx.program.weights import WeightsProgram

#: Sums over the covariates of one record may round otherwise beside other records, and objectives more so.
_ROUNDING, _LOOSE = 1e-9, 1e-7
#: The places of the two records whose losses are compared, and others that they are moved to.
_FIRST, _SECOND = samples.KEPT[:2]
_ORDER = [2, 1, _FIRST, 3, _SECOND, 4, 6, 7]
#: Records that are asked about alone, at most.
_ALONE = 20


def own_record(subject: Subject) -> Judgment:
    """Rows, weights and kernel entries of records among others, against those of each record alone.

    A quantity that is centered, scaled or ranked by the sample differs: one changed record then changes the
    terms of all others, which no theorem of these kinds covers. Then the objective that is solved. All of it
    once more beside many records.
    """
    program = subject.program
    assert isinstance(program, FirstStage)
    compared: dict[str, None] = {}
    for what, together, alone in _all_pairs(program, subject.many):
        scale = max(1.0, float(np.max(np.abs(alone), initial=0.0)))
        if together.shape != alone.shape or not np.max(np.abs(together - alone)) <= _ROUNDING * scale:
            return failed(f"{what}: depends on the other records, which no theorem covers")
        compared[what] = None
    for what, wrong in _shared_terms(program.resolve(samples.check_domain()), subject):
        if wrong:
            return failed(f"{wrong}, which no theorem of kind {program.kind.value!r} covers")
        compared[what] = None
    if not compared:
        return noted(f"nothing to compare: {program.kind.proved}")
    told = f"{', '.join(compared)}: a record's own, whatever the others are"
    return passed(f"{told}, n = 8 to {_largest(subject):,}")


def _all_pairs(program: FirstStage, larger: tuple[int, ...]) -> Iterator[tuple[str, Array, Array]]:
    few = samples.standard_records(_ALONE), *next(samples.neighbors(1, _ALONE, seed=3))
    for records in (*few, *map(samples.standard_records, larger)):
        yield from _pairs(program.resolve(records.domain), records)


def _largest(subject: Subject) -> int:
    return max(_ALONE, *subject.many, 0)


def _asked_alone(count: int) -> NDArray[np.int64]:
    """Places of a few among so many, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, _ALONE)).astype(np.int64))


def _pairs(program: FirstStage, records: Records) -> Iterator[tuple[str, Array, Array]]:
    X, asked = records.covariates, _asked_alone(records.n_samples)
    each = [_one(records, i) for i in asked]
    if isinstance(program, SeparableFirstStage):
        yield "rows", program.rows(records)[asked], np.vstack([program.rows(one) for one in each])
        weight_rows = program.weight_rows(records)
        if weight_rows is not None:
            each_row = [program.weight_rows(one) for one in each]
            yield "weight_rows", weight_rows[asked], np.vstack([one for one in each_row if one is not None])
        terms = program.linear_terms(records)
        if terms is not None:
            own = [program.linear_terms(one) for one in each]
            yield "linear_terms", terms[asked], np.vstack([one for one in own if one is not None])
        margins = np.linspace(-2.0, 2.0, records.n_samples)
        for what, function in (("log_weight", program.log_weight.log), ("loss", program.loss.slope)):
            alone = [function(margins[i : i + 1]) for i in asked]
            yield what, function(margins)[asked], np.concatenate(alone)
    elif isinstance(program, ClosedFormWeights):
        alone = [program.unnormalized(one) for one in each]
        yield "unnormalized", program.unnormalized(records)[asked], np.concatenate(alone)
    elif isinstance(program, KernelFirstStage):
        kernel, few = program.kernel, X[asked]
        entries = np.array([[kernel.cross(x[None], z[None])[0, 0] for z in few] for x in few])
        yield "kernel", kernel.matrix(X)[np.ix_(asked, asked)], entries


def _one(records: Records, i: int) -> Records:
    assert records.X.shape[1] == samples.N_FEATURES + 1
    return records.domain.records(records.covariates[i : i + 1], records.a[i : i + 1], records.y[i : i + 1])


def _shared_terms(program: FirstStage, subject: Subject) -> Iterator[tuple[str, str]]:
    """What was compared between datasets, and what is wrong about it, if anything."""
    if program.kind is Kind.DIRECT or isinstance(program, WeightsProgram):
        return  # any weights are covered, or data are made one record at a time
    for same_arms in (True,) if _needs_arms(program) else (True, False):
        for square in _all_squares(subject, same_arms):
            try:
                if program.kind is Kind.QUADRATIC:
                    # one after the other: each may hold a matrix of all pairs of records
                    yield from _quadratic([_form(program, records) for records in square.corners])
                    continue
                bound = [program.instance(records) for records in square.corners]
            except InfeasibleError:
                continue  # which the check of feasibility judges
            if all(one.model is not None for one in bound):
                models = [one.model for one in bound if one.model is not None]
                if len({model.dimension for model in models}) == 1:
                    yield from _parametric(program, models, same_arms)


def _all_squares(subject: Subject, same_arms: bool) -> Iterator[samples.FourDatasets]:
    """Of few records, then of many: where pairs of records make a matrix, one of each size will do."""
    yield from samples.squares(same_arms=same_arms, seed=subject.seed)
    for size in subject.many:
        squares = samples.squares(same_arms=same_arms, seed=subject.seed, size=size)
        yield from itertools.islice(squares, 1 if subject.paired else None)


def _needs_arms(program: FirstStage) -> bool:
    """Whether the theorem lets the sizes of the arms enter."""
    paper = isinstance(program, EntropyFirstStage) and program.scaling == "paper"
    return paper or "weights" in program.moving


def _parametric(program: FirstStage, models: list[Composite], same_arms: bool) -> Iterator[tuple[str, str]]:
    rng = np.random.default_rng(17)
    # the log of a mean of exponentials, which a model of another class may be, is a sum at 0 only
    everywhere = isinstance(models[0], MarginModel) and not models[0].shifted
    for size in (0.0, 0.3, 1.0):
        point = models[0].penalty.set.project(size * rng.normal(size=models[0].dimension))
        if program.kind is not Kind.CLOSED_FORM and (everywhere or (size == 0.0 and same_arms)):
            yield "terms of the objective", _not_a_sum([model.gradient(point) for model in models])
        at = point if program.kind is not Kind.CLOSED_FORM else np.ones(models[0].dimension)
        logs = [_logs(model.output(at)) for model in models]
        yield "ratios of weights", _other_ratios(logs)


def _not_a_sum(gradients: list[Array]) -> str:
    scale = 1e-12 + max(float(np.max(np.abs(one))) for one in gradients)
    apart = (gradients[0] - gradients[1]) - (gradients[2] - gradients[3])
    if np.max(np.abs(apart)) <= _LOOSE * scale:
        return ""
    return "the term of one record in the objective depends on the other records"


def _logs(weights: Array) -> Array:
    return np.log(np.maximum(np.abs(weights[list(samples.KEPT)]), 1e-300))


def _other_ratios(logs: list[Array]) -> str:
    shifted = [one - one[0] for one in logs]
    if all(np.max(np.abs(one - shifted[0])) <= _LOOSE * (1 + np.max(np.abs(shifted[0]))) for one in shifted):
        return ""
    return "the ratio of two weights at a fixed coefficient depends on the other records"


def _quadratic(forms: list[tuple[Array, Array]]) -> Iterator[tuple[str, str]]:
    entries = [form[0] for form in forms]
    scale = 1e-12 + float(np.max(np.abs(entries[0])))
    apart = max(float(np.max(np.abs(one - entries[0]))) for one in entries)
    wrong = "" if apart <= _LOOSE * scale else "the entry of two records depends on the other records"
    yield "entries of the quadratic form", wrong
    wrong = _not_a_sum([form[1] for form in forms])
    wrong = wrong and "what one record adds to the linear term of another depends on the other records"
    yield "terms of the linear form", wrong


def _form(program: FirstStage, records: Records) -> tuple[Array, Array]:
    """The quadratic and the linear form between the records that stay."""
    instance = program.instance(records)
    if instance.model is not None:
        model, length = instance.model, instance.model.dimension
        linear = model.gradient(np.zeros(length))
        # a record may have no variable: what a unit of a variable brings says whose it is
        units, numbered = (
            model.output(one)[list(samples.KEPT)] for one in (np.ones(length), np.arange(float(length)))
        )
        places = np.clip(np.rint(numbered / np.where(units == 0, np.inf, units)), 0, length - 1).astype(int)
        owners = [int(np.argmax(np.abs(model.output(_unit(place, length))))) for place in places]
        kept = [
            place
            for place, owner, record in zip(places, owners, samples.KEPT, strict=True)
            if owner == record
        ]
        rows = [model.gradient(_unit(index, length))[kept] - linear[kept] for index in kept]
        return np.reshape(rows, (len(kept), len(kept))), linear[kept]
    value, n = DeclaredValue(instance, "weights"), records.n_samples
    if value.dimension != n:
        return np.zeros((1, 1)), np.zeros(1)
    at_zero, moves = value(np.zeros(n)), [_unit(index, n) for index in samples.KEPT]
    single = np.array([value(move) - at_zero for move in moves])
    pairs = np.array([[value(one + other) - at_zero for other in moves] for one in moves])
    if not np.all(np.isfinite(pairs)):
        return np.zeros((1, 1)), np.zeros(1)  # no quadratic form, which its author answers for
    return pairs - single[:, None] - single[None, :], single


def _unit(index: int, length: int) -> Array:
    unit = np.zeros(length)
    unit[index] = 1.0
    return unit


def contributions(subject: Subject) -> Judgment:
    """What weight brings that moves from one record to another, whatever the other records are.

    Theorems 1 and 2 count one changed loss: a response centered by the sample, or a loss scaled by the size
    of its arm, changes all of them.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    for same_arms in (True, False):
        for square in _all_squares(subject, same_arms):
            shifted = list(_shifted(program, square))
            for theta in points_of(shifted[0][0], subject.seed):
                if _differ(shifted, theta):
                    return failed(
                        "the loss of one record depends on the other records: Theorems 1 and 2 need "
                        "sum_i w_i l(theta; d_i)"
                    )
    for n in (_ALONE, *subject.many):
        if wrong := _no_rule(program.resolve(samples.check_domain()), samples.standard_records(n)):
            return failed(f"{wrong}: it is no rule")
    told = "losses, effects and choices are a record's own, whatever the others are"
    return passed(f"{told}, n = 8 to {_largest(subject):,}")


def _no_rule(program: SecondStage, records: Records) -> str:
    """What is wrong about ``effect`` and ``choices``, of records together and of each alone; "" for nothing.

    A fit asks about choices one record at a time, so that these hurt nobody there: what they mean is another
    thing in a fit than here.
    """
    domain, X = records.domain, records.covariates
    names = program.parameter_names(domain.columns or tuple(f"x{k}" for k in range(X.shape[1])), domain)
    theta, asked = np.random.default_rng(5).normal(size=len(names)), _asked_alone(len(X))
    for what, function in (("effect", program.effect), ("choice", program.choices)):
        together = np.asarray(function(theta, domain, X))
        alone = [np.asarray(function(theta, domain, X[i : i + 1])) for i in asked]
        if together.shape != (len(X),) or any(one.shape != (1,) for one in alone):
            return f"the {what} has another shape than one number a record"
        if what == "choice" and not np.all(np.isin(together, (0, 1))):
            return "a choice is neither 0 nor 1"
        if not np.allclose(together[asked], np.concatenate(alone), rtol=_ROUNDING, atol=_ROUNDING):
            return f"the {what} at one record depends on the other records"
    return ""


def _shifted(
    program: SecondStage, square: samples.FourDatasets
) -> Iterator[tuple[Composite, Composite, float]]:
    """Objectives between which weight moves from one record to another, and how much on either side."""
    there = square.there[0]
    n = there.n_samples
    order = [*_ORDER, *range(samples.SIZE, n)]
    moved = Records(there.X[order], there.a[order], there.y[order], there.domain)
    ends = (_ORDER.index(_FIRST), _ORDER.index(_SECOND))
    for records, one, other in (*((corner, _FIRST, _SECOND) for corner in square.corners), (moved, *ends)):
        weights, shift = samples.unequal_weights(n), np.zeros(n)
        step = 0.5 * min(weights[one], weights[other])
        shift[[one, other]] = step, -step
        before, after = (
            smooth_of(program.instance(records, weights + side * shift, gamma=0.0)) for side in (-1, 1)
        )
        yield before, after, step


def _differ(shifted: list[tuple[Composite, Composite, float]], theta: Array) -> bool:
    """Whether the difference of the two losses' gradients is not the same in all datasets."""
    gradients = [(before.gradient(theta), after.gradient(theta), step) for before, after, step in shifted]
    differences = [(after - before) / (2 * step) for before, after, step in gradients]
    scale = 1e-12 + max(float(np.max(np.abs(before))) / step for before, _, step in gradients)
    return any(not np.max(np.abs(one - differences[0])) <= _LOOSE * scale for one in differences)
