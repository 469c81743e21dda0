"""Whether what the theorems take as a function of one record is one.

The methods of a program may each be a function of one record, and what is solved another thing: ``data``,
``model`` and ``instance`` can be overridden. So the objective is examined beside the methods.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance import samples
from dp2erm_cvx.conformance.objective import DeclaredValue, points_of, smooth_of
from dp2erm_cvx.conformance.outcome import Judgment, failed, noted, passed
from dp2erm_cvx.conformance.subject import Subject, check_named
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, Instance, Kind, SecondStage
from dp2erm_cvx.program.losses.margin_model import MarginModel
from dp2erm_cvx.program.schemes.entropy import EntropyFirstStage
from dp2erm_cvx.program.schemes.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.schemes.margin_stage import MarginFirstStage

#: Sums over the covariates of one record may round otherwise beside other records, and objectives more so.
_ROUNDING, _LOOSE = 1e-9, 1e-7
#: The places of the two records whose losses are compared, and others that they are moved to.
_FIRST, _SECOND = samples.KEPT[:2]
_ORDER = [2, 1, _FIRST, 3, _SECOND, 4, 6, 7]


@check_named("own record")
def own_record(subject: Subject) -> Judgment:
    """Rows, weights and kernel entries of records among others, against those of each record alone.

    A quantity that is centered, scaled or ranked by the sample differs: one changed record then changes the
    terms of all others, which no theorem of these kinds covers. Then the objective that is solved.
    """
    program = subject.program
    assert isinstance(program, FirstStage)
    compared: dict[str, None] = {}
    for what, together, alone in _all_pairs(program):
        scale = max(1.0, float(np.max(np.abs(alone), initial=0.0)))
        if together.shape != alone.shape or not np.max(np.abs(together - alone)) <= _ROUNDING * scale:
            return failed(f"{what}: depends on the other records, which no theorem covers")
        compared[what] = None
    for what, wrong in _shared_terms(program.resolve(samples.check_domain()), subject.seed):
        if wrong:
            return failed(f"{wrong}, which no theorem of kind {program.kind.value!r} covers")
        compared[what] = None
    if not compared:
        return noted(f"nothing to compare: {program.kind.proved}")
    return passed(f"{', '.join(compared)}: a record's own, whatever the others are")


def _all_pairs(program: FirstStage) -> Iterator[tuple[str, Array, Array]]:
    for records in (samples.standard_records(20), *next(samples.neighbors(1, 20, seed=3))):
        yield from _pairs(program.resolve(records.domain), records)


def _pairs(program: FirstStage, records: Records) -> Iterator[tuple[str, Array, Array]]:
    X = records.covariates
    each = [_one(records, i) for i in range(records.n_samples)]
    if isinstance(program, MarginFirstStage):
        yield "rows", program.rows(records), np.vstack([program.rows(one) for one in each])
        weight_rows = program.weight_rows(records)
        if weight_rows is not None:
            each_row = [program.weight_rows(one) for one in each]
            yield "weight_rows", weight_rows, np.vstack([one for one in each_row if one is not None])
        terms = program.linear_terms(records)
        if terms is not None:
            own = [program.linear_terms(one) for one in each]
            yield "linear_terms", terms, np.vstack([one for one in own if one is not None])
        margins = np.linspace(-2.0, 2.0, 41)
        for what, function in (("log_weight", program.log_weight.log), ("loss", program.loss.slope)):
            alone = [function(margins[i : i + 1]) for i in range(len(margins))]
            yield what, function(margins), np.concatenate(alone)
    elif isinstance(program, ClosedFormWeights):
        alone = [program.unnormalized(one) for one in each]
        yield "unnormalized", program.unnormalized(records), np.concatenate(alone)
    elif isinstance(program, KernelFirstStage):
        kernel, few = program.kernel, X[::3]
        entries = np.array([[kernel.cross(x[None], z[None])[0, 0] for z in few] for x in few])
        yield "kernel", kernel.matrix(X)[::3, ::3], entries


def _one(records: Records, i: int) -> Records:
    assert records.X.shape[1] == samples.N_FEATURES + 1
    return records.domain.records(records.covariates[i : i + 1], records.a[i : i + 1], records.y[i : i + 1])


def _shared_terms(program: FirstStage, seed: int) -> Iterator[tuple[str, str]]:
    """What was compared between datasets, and what is wrong about it, if anything."""
    if program.kind is Kind.DIRECT:
        return
    for same_arms in (True,) if _needs_arms(program) else (True, False):
        for square in samples.squares(same_arms=same_arms, seed=seed):
            try:
                bound = [program.instance(records) for records in square.corners]
            except InfeasibleError:
                continue  # which the check of feasibility judges
            if program.kind is Kind.QUADRATIC:
                yield from _quadratic(bound)
            elif all(one.model is not None for one in bound):
                models = [one.model for one in bound if one.model is not None]
                if len({model.dimension for model in models}) == 1:
                    yield from _parametric(program, models, same_arms)


def _needs_arms(program: FirstStage) -> bool:
    """Whether the theorem lets the sizes of the arms enter."""
    paper = isinstance(program, EntropyFirstStage) and program.scaling == "paper"
    return paper or "weights" in program.moving


def _parametric(program: FirstStage, models: list[Composite], same_arms: bool) -> Iterator[tuple[str, str]]:
    rng = np.random.default_rng(17)
    # the log of a mean of exponentials, which a model of another class may be, is a sum at 0 only
    everywhere = isinstance(models[0], MarginModel)
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


def _quadratic(bound: list[Instance]) -> Iterator[tuple[str, str]]:
    forms = [_form(one) for one in bound]
    entries = [form[0] for form in forms]
    scale = 1e-12 + float(np.max(np.abs(entries[0])))
    apart = max(float(np.max(np.abs(one - entries[0]))) for one in entries)
    wrong = "" if apart <= _LOOSE * scale else "the entry of two records depends on the other records"
    yield "entries of the quadratic form", wrong
    wrong = _not_a_sum([form[1] for form in forms])
    wrong = wrong and "what one record adds to the linear term of another depends on the other records"
    yield "terms of the linear form", wrong


def _form(instance: Instance) -> tuple[Array, Array]:
    """The quadratic and the linear form between the records that stay."""
    if instance.model is not None:
        model = instance.model
        hessian, linear = model.hessian(model.start()), model.gradient(np.zeros(model.dimension))
        # a record may have no variable: what a unit of each variable brings says whose it is
        owners = [int(np.argmax(np.abs(model.output(unit)))) for unit in np.eye(model.dimension)]
        kept = [owners.index(index) for index in samples.KEPT if index in owners]
        return hessian[np.ix_(kept, kept)], linear[kept]
    value = DeclaredValue(instance, "weights")
    if value.dimension != samples.SIZE:
        return np.zeros((1, 1)), np.zeros(1)
    at_zero, units = value(np.zeros(samples.SIZE)), np.eye(samples.SIZE)[list(samples.KEPT)]
    single = np.array([value(unit) - at_zero for unit in units])
    pairs = np.array([[value(one + other) - at_zero for other in units] for one in units])
    if not np.all(np.isfinite(pairs)):
        return np.zeros((1, 1)), np.zeros(1)  # no quadratic form, which its author answers for
    return pairs - single[:, None] - single[None, :], single


@check_named("own record")
def contributions(subject: Subject) -> Judgment:
    """What weight brings that moves from one record to another, whatever the other records are.

    Theorems 1 and 2 count one changed loss: a response centered by the sample, or a loss scaled by the size
    of its arm, changes all of them.
    """
    program = subject.program
    assert isinstance(program, SecondStage)
    for same_arms in (True, False):
        for square in samples.squares(same_arms=same_arms, seed=subject.seed):
            shifted = list(_shifted(program, square))
            for theta in points_of(shifted[0][0], subject.seed):
                if _differ(shifted, theta):
                    return failed(
                        "the loss of one record depends on the other records: Theorems 1 and 2 need "
                        "sum_i w_i l(theta; d_i)"
                    )
    if _shared_effect(program.resolve(samples.check_domain())):
        return failed("the effect at one record depends on the other records: it is no rule")
    return passed("losses and effects are a record's own, whatever the others are")


def _shared_effect(program: SecondStage) -> bool:
    """Whether ``effect`` is another one where records are asked about together."""
    records = samples.standard_records(20)
    domain, X = records.domain, records.covariates
    names = program.parameter_names(domain.columns or tuple(f"x{k}" for k in range(X.shape[1])), domain)
    theta = np.random.default_rng(5).normal(size=len(names))
    together = program.effect(theta, domain, X)
    alone = np.concatenate([program.effect(theta, domain, X[i : i + 1]) for i in range(len(X))])
    close = together.shape == alone.shape and np.allclose(together, alone, rtol=_ROUNDING, atol=_ROUNDING)
    return not close


def _shifted(program: SecondStage, square: samples.Square) -> Iterator[tuple[Composite, Composite, float]]:
    """Objectives between which weight moves from one record to another, and how much on either side."""
    there = square.there[0]
    moved = Records(there.X[_ORDER], there.a[_ORDER], there.y[_ORDER], there.domain)
    ends = (_ORDER.index(_FIRST), _ORDER.index(_SECOND))
    for records, one, other in (*((corner, _FIRST, _SECOND) for corner in square.corners), (moved, *ends)):
        weights = samples.unequal_weights(samples.SIZE)
        step = 0.5 * min(weights[one], weights[other])
        shift = step * (np.eye(samples.SIZE)[one] - np.eye(samples.SIZE)[other])
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
