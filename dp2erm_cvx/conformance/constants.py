"""Constants that a program states, searched for violations: of rows, kernels, and the loss that sets noise.

The latter are those of Theorems 1, 2, 9, 15 and 19, and what certificates rest on. What is derived from a
declaration is not searched. A search refutes a constant and never proves one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from dp2erm_cvx.audit.search import Reached, Region, ball, largest, record_domain, remembered
from dp2erm_cvx.conformance.solutions import points_of
from dp2erm_cvx.conformance.subject import (
    N_FEATURES,
    Judgment,
    Subject,
    check_domain,
    check_universe,
    edge_records,
    failed,
    noted,
    other_domains,
    passed,
    standard_records,
)
from dp2erm_cvx.domain import Array, Domain, Records
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.composite import Composite
from dp2erm_cvx.model.sets import ConvexSet
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.program import (
    PrivateFirstStage,
    Program,
    SecondStage,
    SeparableFirstStage,
)
from dp2erm_cvx.program.kernel_stage import KernelFirstStage
from dp2erm_cvx.program.stage import DeclaredProgram

_Row = Callable[[Array], tuple[Array, Array]]


def constants(subject: Subject) -> Judgment:
    """Part of the theorem that a program states itself: diameters, ranges, kernel bounds, loss constants.

    In universes of other scales as well, because a formula may be right at one of them only.
    """
    domain, findings = check_domain(), list[Reached]()
    try:
        program = subject.program.resolve(domain)
        if wrong := _wrong(program, subject, domain):
            return failed(wrong)
        findings = _searched(program, domain, subject.evaluations, subject.seed)
    except CalibrationError as error:
        return noted(str(error))
    if not findings:
        return passed("derived from the declaration and the domain: nothing to check")
    if wrong := _refuted(findings):
        return failed(wrong)
    # an error of scale is found at once: a part of the points will do
    few = max(subject.evaluations // 6, 20)
    for other in other_domains():
        try:
            elsewhere = _searched(subject.program.resolve(other), other, few, subject.seed)
        except (CalibrationError, DeclarationError):
            continue  # a program may be declared for one scale
        if wrong := _refuted(elsewhere):
            return failed(f"{wrong}, in a domain of M = {other.covariate_bound:g}")
    text = ", ".join(f"{finding.constant} {finding.ratio:.0%}" for finding in findings)
    return passed(f"found of declared: {text}")


def _searched(program: Program, domain: Domain, evaluations: int, seed: int) -> list[Reached]:
    """Of what is derived there is nothing to search."""
    findings = list[Reached]()
    if isinstance(program, DeclaredProgram) and program.own_data() is not None:
        return findings
    if isinstance(program, SecondStage | PrivateFirstStage):
        findings += loss_constants(program, domain, evaluations, seed)
    if isinstance(program, SeparableFirstStage):
        findings += _row_sizes(program, domain, evaluations, seed)
    elif isinstance(program, KernelFirstStage):
        kernel, bound = program.kernel, domain.features_bound
        findings += check_kernel(
            ball(N_FEATURES, bound),
            lambda points: kernel.cross(points, points),
            kernel.bound(bound),
            signed=kernel.negative_within(bound),
            evaluations=evaluations,
            seed=seed,
        )
    return findings


def _refuted(findings: list[Reached]) -> str:
    worst = max((one for one in findings if one.violated), key=lambda one: one.ratio, default=None)
    if worst is None:
        return ""
    return f"{worst.constant} is declared {worst.declared:.4g}, found {worst.value:.4g}"


def _wrong(program: Program, subject: Subject, domain: Domain) -> str:
    """What is wrong apart from the sizes of constants."""
    if isinstance(program, SeparableFirstStage) and (wrong := _wrong_rows(program)):
        return wrong
    if isinstance(program, PrivateFirstStage) and (wrong := _larger_set(program, domain)):
        return wrong
    if isinstance(program, SecondStage | PrivateFirstStage):
        return undeclared_curvature(program, domain, subject.seed) or turning_gradient(
            program, domain, subject.seed
        )
    return ""


def _wrong_rows(program: SeparableFirstStage) -> str:
    records = standard_records()
    Z, U = program.rows(records), program.weight_rows(records)
    known = program.n_rows(check_universe(records.domain))
    if Z.shape[1] != known:
        return f"rows have {Z.shape[1]} entries, n_rows says {known}"
    if U is not None and U.shape != Z.shape:
        return f"weight_rows have the shape {U.shape}, rows {Z.shape}"
    return ""


def _larger_set(program: PrivateFirstStage, domain: Domain) -> str:
    """A coefficient may lie outside the ball that bounds the weights (Theorem 9)."""
    for records in edge_records().values():
        model = program.instance(records).composite
        ball = program.ball(domain)
        if math.isinf(ball):
            return ""
        far = norm(model.penalty.set.project(np.full(model.dimension, 1e3 * ball)))
        if far > ball * (1 + 1e-9):
            return f"weights are bounded within {ball:.4g}, a coefficient may be {far:.4g} long"
    return ""


def _rows(program: SeparableFirstStage, domain: Domain) -> tuple[_Row, Callable[[Array], Array]]:
    """Functions of a record: its row with its linear term, and the row of its weight."""

    @remembered
    def row(record: Array) -> tuple[Array, Array]:
        one = _one_record(domain, record)
        z = program.rows(one)[0]
        linear = program.linear_terms(one)
        return z, np.zeros(len(z)) if linear is None else linear[0]

    @remembered
    def weight_row(record: Array) -> Array:
        rows = program.weight_rows(_one_record(domain, record))
        return row(record)[0] if rows is None else rows[0]

    return row, weight_row


def _row_sizes(
    program: SeparableFirstStage, domain: Domain, evaluations: int, seed: int
) -> Iterator[Reached]:
    """Bounds on rows, which every derived constant starts from."""
    row, weight_row = _rows(program, domain)
    region = record_domain(N_FEATURES, domain.features_bound)
    for constant, bound, value in (
        ("row_bound", program.row_bound(domain), lambda d: norm(row(d)[0])),
        ("weight_row_bound", program.weight_row_bound(domain), lambda d: norm(weight_row(d))),
        ("linear_bound", program.linear_bound(domain), lambda d: norm(row(d)[1])),
    ):
        yield largest(constant, bound, value, (region,), evaluations=evaluations, seed=seed)


def check_kernel(
    covariates: Region,
    kernel: Callable[[Array], Array],
    kernel_bound: float,
    *,
    signed: bool = False,
    evaluations: int = 2000,
    seed: int = 0,
) -> list[Reached]:
    """Search for violations of the constants of Theorems 5 and 6: ``0 <= K <= C``, or ``|K| <= C`` if signed.

    ``kernel`` gives the values (m, m) between all pairs of m points (m, d).
    ``sign`` (declared as 0) is the largest of ``-K`` unless signed; ``positive_definiteness`` (declared as 0)
    minus the smallest eigenvalue of Gram matrices of four points over the largest one.
    """

    def between(x: Array, z: Array) -> float:
        return float(kernel(np.stack([x, z]))[0, 1])

    def indefinite(*points: Array) -> float:
        gram = kernel(np.stack(points))
        asymmetry = float(np.max(np.abs(gram - gram.T)))
        value = np.linalg.eigvalsh((gram + gram.T) / 2.0)
        return max(asymmetry, -float(value[0])) / max(float(np.max(np.abs(value))), 1e-300)

    search = partial(largest, evaluations=evaluations, seed=seed)
    reached = [search("kernel_bound", kernel_bound, lambda *at: abs(between(*at)), (covariates,) * 2)]
    if not signed:
        reached.append(search("sign", 0.0, lambda *at: -between(*at) / kernel_bound, (covariates,) * 2))
    return [*reached, search("positive_definiteness", 0.0, indefinite, (covariates,) * 4)]


def check_loss(
    records: Region,
    parameters: Region,
    gradient: Callable[[Array, Array], Array],
    trace: Callable[[Array, Array], float],
    declared: LossConstants,
    *,
    evaluations: int = 2000,
    seed: int = 0,
) -> Iterator[Reached]:
    """Search for violations of the loss constants that Theorems 1, 2, 15 and 19 consume.

    ``gradient(theta, record)`` is (p,), ``trace`` that of the Hessian, over ``parameters``, which is Theta.
    Searched are ``gradient_radius`` (half the distance of two gradients at one theta), ``hessian_trace``,
    and, where declared, ``gradient_bound``, ``theta_bound``, the slope of a ``box`` in its norm, and of a
    ``saturation`` the sums of slope and curvature that Theorem 15, and in a ball Theorem 19, bound.
    """
    search = partial(largest, evaluations=evaluations, seed=seed)
    one, two = (parameters, records), (parameters, records, records)

    def apart(theta: Array, record: Array, other: Array) -> float:
        return norm(gradient(theta, record) - gradient(theta, other))

    yield search("gradient_radius", declared.gradient_radius, lambda *at: 0.5 * apart(*at), two)
    yield search("hessian_trace", declared.hessian_trace, trace, one)
    if declared.gradient_bound is not None:
        bound = declared.gradient_bound
        yield search("gradient_bound", bound, lambda theta, record: norm(gradient(theta, record)), one)
    if declared.box is not None:
        widths = np.array(declared.box.widths)

        def slope(theta: Array, record: Array) -> float:
            return float(np.max(np.abs(gradient(theta, record)) / widths))

        yield search("box", declared.box.slope, slope, one)
    saturation = declared.saturation
    if saturation is not None:
        full, steep = saturation.slope * saturation.row_norm, saturation.curvature * saturation.row_norm**2
        anywhere = dataclasses.replace(saturation, ball=math.inf)
        # a u + h of a record alone: where full slope is the worst, between, and curvature alone
        steepness = saturation.steepness
        sums = {a: anywhere.largest(a, 1.0) - a for a in (steepness, 0.5 * steepness, 0.0)}

        def beyond(theta: Array, record: Array) -> float:
            used, bent = norm(gradient(theta, record)) / full, trace(theta, record) / steep
            return max((a * used + bent) / most for a, most in sums.items())

        yield search("saturation", 1.0, beyond, one)
        if math.isfinite(saturation.ball):
            share = 0.1
            a = saturation.steepest(1.0, share) / full

            def together(theta: Array, record: Array, other: Array) -> float:
                return a * apart(theta, record, other) + share * trace(theta, record) / steep

            yield search("ball", 1.0, together, two)
    if declared.theta_bound is not None:
        yield search("theta_bound", declared.theta_bound, norm, (parameters,))


#: Records of the datasets whose weight is all on the one that is searched for, and the share of the points.
_SIZES = ((1, 1.0), (6, 0.25))
_STEP = 1e-4
#: Differences of gradients over such a step are good to about this much of the largest curvature.
_ROUNDING = 1e-6


def _one_record(domain: Domain, record: Array) -> Records:
    """Of a point (x, a) or (x, a, y - center) that a search tries."""
    y = record[N_FEATURES + 1] if len(record) > N_FEATURES + 1 else 0.0
    return domain.records(record[None, :N_FEATURES], [int(record[N_FEATURES])], [y])


#: What is perturbed: a second stage with its weights, or a first stage that weighs all records alike.
_Perturbed = SecondStage | PrivateFirstStage


def loss_constants(program: _Perturbed, domain: Domain, evaluations: int, seed: int) -> list[Reached]:
    """Of a resolved program, for a record alone and for one among others.

    In a second stage these have no weight. Raises CalibrationError where the gradient is unbounded.
    """
    own, universe = isinstance(program, SecondStage), check_universe(domain)
    if isinstance(program, SecondStage):
        declared = program.constants(universe)
    else:
        # theta_bound is what a budget is split by: it sets no noise
        declared = dataclasses.replace(program.loss_constants(universe), theta_bound=None)
    region = record_domain(N_FEATURES, domain.features_bound, domain.outcome_bound if own else None)
    parameters = _parameters(program, domain, declared.n_parameters, region.vertices[0])
    findings = list[Reached]()
    for n, share in _SIZES:
        model = _of_record(program, domain, n)

        def gradient(theta: Array, record: Array, n: int = n, model: _OfRecord = model) -> Array:
            total = model(record).gradient(theta) - model(record).ridge * theta
            return total / n if own else total

        def trace(theta: Array, record: Array, n: int = n, model: _OfRecord = model) -> float:
            # of the mean record, less what a large ridge leaves of rounding
            ridge = len(theta) * model(record).ridge * (1 + 1e-15)
            return (float(np.trace(model(record).hessian(theta))) - ridge) / n

        findings += check_loss(
            region,
            parameters,
            gradient,
            trace,
            # the norm of a sum of gradients is no record's own, a difference of two sums is
            declared
            if own or n == 1
            else dataclasses.replace(declared, gradient_bound=None, saturation=None, box=None),
            evaluations=max(int(share * evaluations), 20),
            seed=seed,
        )
    few = max(evaluations // 4, 20)
    for constant, bound, value in _row_bounds(program, domain):
        findings.append(largest(constant, bound, value, (region,), evaluations=few, seed=seed))
    # of every constant the finding that is the largest part of what is declared
    worst: dict[str, Reached] = {}
    for finding in findings:
        if finding.ratio > worst.setdefault(finding.constant, finding).ratio:
            worst[finding.constant] = finding
    return list(worst.values())


#: The model at a record.
_OfRecord = Callable[[Array], Composite]


def _parameters(program: _Perturbed, domain: Domain, p: int, record: Array) -> Region:
    """Theta, or the set of coefficients."""
    model = _model(program, _one_record(domain, record))
    within = program.feasible(domain) if isinstance(program, SecondStage) else model.penalty.set
    size = within.norm_bound(p) if isinstance(within, ConvexSet) else math.inf
    return Region(p, within.project, size / math.sqrt(p) if math.isfinite(size) else 10.0)


def _of_record(program: _Perturbed, domain: Domain, n: int) -> _OfRecord:
    return remembered(lambda record: _model(program, _beside(_one_record(domain, record), n)))


def _model(program: _Perturbed, records: Records) -> Composite:
    """Without noise; in a second stage with all weight on the first record."""
    if isinstance(program, PrivateFirstStage):
        none = np.zeros(program.instance(records).composite.dimension)
        return program.perturbed(records, 0.0, none).composite
    weights = np.zeros(records.n_samples)
    weights[0] = records.n_samples
    return program.instance(records, weights, gamma=0.0).composite


def _beside(record: Records, n: int) -> Records:
    """A record in place of the first of n others, or alone."""
    if n == 1:
        return record
    domain, others = record.domain, standard_records(n)
    X = np.vstack([record.covariates, others.covariates[1:]])
    return domain.records(X, np.r_[record.a, others.a[1:]], np.r_[record.y, others.y[1:]])


def _row_bounds(program: _Perturbed, domain: Domain) -> Iterator[tuple[str, float, Callable[[Array], float]]]:
    """Bounds that the public bound on the numerical error, and Theorems 7 and 8, take over."""
    if isinstance(program, SecondStage):
        bounds = program.row_bounds(check_universe(domain))
        rows = remembered(lambda record: program.rows(_one_record(domain, record)))
        yield "row_bounds norm", bounds.norm, lambda d: norm(rows(d).Z)
        yield "row_bounds offset", max(map(abs, bounds.offset)), lambda d: norm(rows(d).offsets)
        yield "row_bounds factor", bounds.factor[1], lambda d: norm(rows(d).times(None))
        declared = program.loss_constants(check_universe(domain))
        if declared.covariate_bound is not None:
            yield "covariate_bound", declared.covariate_bound, lambda d: norm(rows(d).Z)
        if declared.response_bound is not None:
            yield "response_bound", declared.response_bound, lambda d: norm(rows(d).offsets)
        if declared.is_mean:
            yield "is_mean (x = 1)", 0.0, lambda d: norm(rows(d).Z - 1.0)


def norm(values: Array) -> float:
    """Of all entries, as a plain float."""
    return float(np.linalg.norm(values))


def undeclared_curvature(program: _Perturbed, domain: Domain, seed: int) -> str:
    """What is wrong about mu_R, which is credited against gamma, or nothing.

    With gamma = 0 and all weight on one record the loss curves in few directions: what is left in the others
    is the regularizer's, and no more may be declared.
    """
    declared = program.loss_constants(check_universe(domain)).strong_convexity
    if declared == 0.0:
        return ""
    for model, n in _lonely(program, domain, seed):
        for theta in points_of(model, seed):
            least = min(_curvatures(model, theta)) / n
            if not least >= declared * (1 - _ROUNDING) - _ROUNDING * model.smoothness / n:
                return (
                    f"strong_convexity (mu_R) is declared {declared:.4g}, and with gamma = 0 and all "
                    f"weight on one record the curvature is {max(least, 0.0):.4g}: the regularizer's "
                    "counts, not the loss's"
                )
    return ""


def turning_gradient(program: _Perturbed, domain: Domain, seed: int) -> str:
    """What is wrong about a declared ``is_margin``, or nothing: gradients of one record at several theta."""
    if not program.loss_constants(check_universe(domain)).is_margin:
        return ""
    for model, n in _lonely(program, domain, seed):
        found = [(model.gradient(theta) - model.ridge * theta) / n for theta in points_of(model, seed)]
        longest = max(found, key=norm)
        size = norm(longest)
        for gradient in found if size else []:
            beside = norm(gradient - longest * float(gradient @ longest) / size**2)
            if not beside <= _ROUNDING * (size + model.smoothness / n):
                return "is_margin is declared, and gradients of one record are not all in one direction"
    return ""


def _lonely(program: _Perturbed, domain: Domain, seed: int) -> Iterator[tuple[Composite, int]]:
    """Models of datasets whose first record has all weight, with their number of records."""
    region = record_domain(N_FEATURES, domain.features_bound, domain.outcome_bound)
    rng = np.random.default_rng([seed, 19])
    for record in (*map(region.project, region.vertices[::5]), *(region.draw(rng) for _ in range(4))):
        yield _model(program, _one_record(domain, record)), 1
    if not isinstance(program, PrivateFirstStage):  # which weighs all records alike
        for records in (standard_records(6), edge_records()["duplicate rows"]):
            yield _model(program, records), records.n_samples


def _curvatures(model: Composite, theta: Array) -> Iterator[float]:
    """Least eigenvalue of the Hessian, and the same by differences of the gradient along its directions."""
    values, directions = np.linalg.eigh(model.hessian(theta))
    yield float(values[0])
    for direction in directions.T:
        step = _STEP * direction
        change = model.gradient(theta + step) - model.gradient(theta - step)
        yield float(change @ direction) / (2 * _STEP)
