"""Checks of a program: what its author states by hand is searched for violations.

The rest is derived.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, Array
from dp2erm_cvx.audit import Quantity, SearchPlan, audit_stability
from dp2erm_cvx.audit.movement import NeighborPair
from dp2erm_cvx.audit.pairs import Pairs, next_pair
from dp2erm_cvx.audit.search import Deadline
from dp2erm_cvx.audit.surrogates import Surrogate
from dp2erm_cvx.audit.weighing import ProgramWeights
from dp2erm_cvx.conformance.gradients import facing_pair, largest_gradient_movement
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.errors import (
    CalibrationError,
    CertificateError,
    DataError,
    Dp2ermError,
    InfeasibleError,
    SolverError,
)
from dp2erm_cvx.privacy import StabilityBound
from dp2erm_cvx.program import FirstStage, Instance, PrivateFirstStage, Program, SecondStage
from dp2erm_cvx.program.direct_stage import WeightsProgram
from dp2erm_cvx.program.stage import DeclaredProgram, Registered, family_of
from dp2erm_cvx.program.standing import CONDITIONAL, COVERS_ALL, public_error
from dp2erm_cvx.program.stated import assumed_in_words
from dp2erm_cvx.solve import Solution, solve


class CheckStatus(enum.StrEnum):
    """What came of a check.

    ``NOTED``: nothing to pass or fail, but the reader should know; ``SKIPPED``: it is derived.
    """

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    NOTED = "noted"

    def __call__(self, detail: str) -> Judgment:
        """The judgment with its reason."""
        return self, detail


#: What a check says of a program: whether it passed, and the numbers or the reason in words.
Judgment = tuple[CheckStatus, str]

passed = CheckStatus.PASSED
failed = CheckStatus.FAILED
noted = CheckStatus.NOTED

#: Covariates of all records here, an intercept apart.
N_FEATURES = 3
#: Sizes that checks look at, beside the few records that they search and those that are asked for:
#: some errors begin at a size.
LARGER = (500,)
#: Numbers that every number among the settings is multiplied by, one at a time.
_FACTORS = (0.5, 2.0, 0.1, 10.0, 0.01, 100.0)
#: Pairs whose gradients are compared at each size and setting.
_GRADIENTS = 30
#: Pairs that are solved for at each size and setting.
_PAIRS = 24
#: Pairs of a climb by weights of distinct records.
_CLIMB = 800
#: Pairs that are solved for at larger sizes, and where no weights can move more than is declared.
_AT_LARGER = 3
#: Of the audit, and the seed of all searches, unless others are asked for.
SEARCH = SearchPlan(20_000)
#: Records of the datasets that the audit searches.
_AUDITED = 40
#: Records of the dataset whose balance is compared.
_BALANCED = 200
#: Records of the datasets whose certificate is asked for in advance.
_REACHED = 400
#: Seconds that an audit has where the searches before it left none: it looks at one pair.
_LEAST_SECONDS = 1e-3
#: What a solve raises that ends without a certified solution.
UNSOLVED = (InfeasibleError, SolverError, CertificateError)


@dataclass(frozen=True)
class Subject:
    """A program at one choice of settings, as it is examined.

    Parameters
    ----------
    program
        At these settings.
    search
        Limits all searches, and has their seed.
    sizes
        Numbers of records of neighbors whose weights are compared.
    larger
        Numbers of records at which a few of them are.
    until
        A search ends soon after it, but not before it has looked at one pair.
    n
        The number of records that V is told at.
    """

    program: Program
    search: SearchPlan = SEARCH
    sizes: tuple[int, ...] = (8, _AUDITED)
    larger: tuple[int, ...] = LARGER
    until: Deadline = field(default_factory=Deadline)
    n: int = 60

    @property
    def first(self) -> FirstStage:
        """The program, where it is a first stage."""
        assert isinstance(self.program, FirstStage)
        return self.program

    @property
    def derived(self) -> bool:
        """Whether all that sets noise follows from the declaration.

        Then no bound is an author's, and none was made by hand. What a release calls its author's
        word is searched for, and so are the library's own classes.
        """
        return isinstance(self.program, DeclaredProgram) and self.program.scheme.statement is None

    @property
    def public_error(self) -> float | None:
        """Public bound of weights or of a parameter; None or ``inf`` where nothing is sure."""
        universe = check_universe(_REACHED)
        return public_error(self.program.at(universe), universe)

    def bind(self, records: Records) -> Instance:
        """The program on records.

        A second stage has unequal weights, gamma = 0.05 and random noise.
        """
        if isinstance(self.program, FirstStage):
            return self.program.instance(records)
        assert isinstance(self.program, SecondStage)
        n = records.n_samples
        noise = np.random.default_rng(2).normal(size=self.program.n_parameters(check_universe(n)))
        raw = np.random.default_rng(1).uniform(0.2, 3.0, n)
        return self.program.instance(records, raw * (n / math.fsum(raw)), gamma=0.05, noise=noise)

    @cached_property
    def covers_all(self) -> bool:
        """Whether V is 2n, so that weights need no certificate.

        Then weights 1 serve where there are none.
        """
        if not isinstance(self.program, FirstStage) or not self.program.relations:
            return False
        with suppress(CalibrationError):
            return _universal(self.program.stability(check_universe(_REACHED)).V, _REACHED)
        return False

    def certified(self, records: Records) -> Solution:
        """A solution by whatever solver certifies first.

        It is uncertified where V is 2n. Raises what is ``UNSOLVED``.
        """
        if not self.covers_all:
            return solve(self.bind(records), solver="first_certified")
        solution = solve(self.bind(records), solver="first_certified", throw=False)
        if solution.substituted:
            raise SolverError(solution.advice())
        return solution


#: What the theorems assume of a program, searched for violations. May raise: a program may do
#: anything.
Check = Callable[[Subject], Judgment]


def check_universe(n_samples: int = 60) -> MappedUniverse:
    """The universe of the checks: 3 covariates in [-1, 1], an intercept, an arm floor of a tenth.

    Not round, so that M^2 is not 2 M and no other slip of a formula goes unseen.
    """
    bound = math.hypot(math.sqrt(N_FEATURES), 1.2)
    space = Space(bound, 4.7, intercept=1.2, arm_floor=max(2, n_samples // 10))
    return MappedUniverse(space, n_samples, N_FEATURES)


def plain_universe(n_samples: int) -> MappedUniverse:
    """The space of the checks, without an intercept and without an arm floor.

    So all columns vary.
    """
    space = Space(math.sqrt(N_FEATURES), 4.7)
    return MappedUniverse(space, n_samples, N_FEATURES)


def _universes(program: FirstStage, n: int) -> list[MappedUniverse]:
    """The universe of the checks, and the plain one where the program can be used there."""
    universes = [check_universe(n)]
    with suppress(Dp2ermError):  # it may need an arm floor
        program.stability(plain_universe(n))
        universes.append(plain_universe(n))
    return universes


def standard_records(n_samples: int = 60, seed: int = 0) -> Records:
    """Confounded records: propensity and outcome depend on the first covariates."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_samples, N_FEATURES))
    propensity = 1 / (1 + np.exp(-(0.6 * X[:, 0] - 0.8 * X[:, -1] + 0.1)))
    a = (rng.uniform(size=n_samples) < propensity).astype(int)
    y = X[:, 0] * (2 * a - 1) + 0.5 * X[:, -1] + rng.normal(size=n_samples)
    return Records.within(check_universe(n_samples).space, X, a, y)


def edge_records(space: Space | None = None) -> dict[str, Records]:
    """Datasets of a space that break careless code; not all keep the arm floor.

    By default it is the space of the checks.
    """
    space = space or check_universe(12).space
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (12, N_FEATURES))
    y = rng.normal(size=12)
    half = np.arange(12) % 2
    constant = X.copy()
    constant[:, 1] = 0.7
    separable = X.copy()
    separable[:, 0] = np.where(half == 1, 0.9, -0.9)
    at_bound = np.where(half == 1, 99.0, -99.0)
    columns: dict[str, tuple[Any, Any, Any]] = {
        "two records": (X[:2], [0, 1], y[:2]),
        "two records of one arm": (X[:2], [1, 1], y[:2]),
        "three records": (X[:3], [0, 1, 1], y[:3]),
        "constant column": (constant, half, y),
        "separable arms": (separable, half, y),
        "no treated": (X, np.zeros(12), y),
        "no control": (X, np.ones(12), y),
        "duplicate rows": (np.repeat(X[:1], 12, axis=0), half, np.full(12, y[0])),
        "zero covariates": (np.zeros((12, N_FEATURES)), half, y),
        "outcome at its bound": (X, half, at_bound),
    }
    return {name: Records.within(space, *each) for name, each in columns.items()}


def _samples() -> dict[str, Records]:
    """Ordinary and adversarial datasets, by name."""
    samples = edge_records()
    for seed in range(5):
        samples[f"random {seed}"] = standard_records(25, seed)
    return samples


def _derived(detail: str = "") -> Judgment:
    """The judgment of what is derived, with a reason where there is more to say."""
    text = "derived: nothing to check"
    if detail:
        text += f" ({detail})"
    return CheckStatus.SKIPPED, text


def _no_bound(program: Program, error: Exception) -> Judgment:
    """The judgment of a program without a bound, which it may be declared not to have."""
    if not program.relations:
        return noted(f"no bound: {error}")
    return failed(f"no bound: {error}; a program without one has relations = frozenset()")


def _universal(V: float, n: int, w_max: float = math.inf) -> bool:
    """True for a bound that no weights of sum n exceed."""
    return V >= 2 * n and w_max >= n


def declaration(subject: Subject) -> Judgment:
    """A theorem and finite constants, from public numbers.

    Where they are derived no more is to check.
    """
    program = subject.program
    universe = check_universe(subject.n)
    text = "Theorems 1 and 2"
    try:
        if isinstance(program, SecondStage):
            program.constants(universe)
        if isinstance(program, PrivateFirstStage):
            program.at(universe).loss_constants(universe)
        if isinstance(program, FirstStage):
            bound = program.stability(universe)
            place = f"n = {universe.n_samples}, M = {universe.space.covariate_bound:.4g}"
            text = f"V = {bound.V:.4g} at {place} by {bound.theorem}"
    except CalibrationError as error:
        return _no_bound(program, error)
    return _derived(text) if subject.derived else passed(text)


def assumed(subject: Subject) -> Judgment:
    """What no program can be examined for.

    That is that functions see one record alone, and that numbers are public.
    """
    universe = check_universe(_REACHED)
    text = assumed_in_words(subject.program.at(universe), universe)
    return noted(text) if text else _derived("no data of its own")


def feasibility(subject: Subject) -> Judgment:
    """Every dataset of the universe has a certified solution.

    A refusal would depend on private records.
    """
    error = subject.public_error
    if error is not None and math.isfinite(error):
        return _derived("every dataset is certified by design")
    first = isinstance(subject.program, FirstStage)
    samples = _samples()
    missed = []
    for name, records in samples.items():
        try:
            solution = subject.certified(records)
        except UNSOLVED as refused:
            if subject.program.relations and not subject.covers_all:
                return failed(f"{name}: {refused}")
            missed.append(name)
            continue
        wrong = _wrong_weights(solution.value, records.n_samples) if first else ""
        if wrong:
            return failed(f"{name}: {wrong}")
    if missed and subject.covers_all:
        return noted(f"no weights on {', '.join(missed)}: weights 1 stand in, which V = 2n covers")
    if missed:
        return noted(
            f"no weights on {', '.join(missed)}: not private, whether they exist depends on data"
        )
    what = "certified, weights >= 0 with sum n" if first else "certified"
    return passed(f"{len(samples)} ordinary and adversarial datasets: {what}")


def _wrong_weights(weights: Array, n: int) -> str:
    """What of the form of weights is wrong: they are to be (n,), at least 0, and of sum n."""
    if weights.shape != (n,) or not np.all(np.isfinite(weights)):
        return f"weights have shape {weights.shape} or are not finite"
    total = math.fsum(weights)
    least = np.min(weights)
    if least < 0 or abs(total / n - 1) > 1e-12:
        return f"a weight is {least:.3g}, and their sum {total!r}, not {n}"
    return ""


def certified_in_advance(subject: Subject) -> Judgment:
    """The public bound on the numerical error over all datasets.

    Without one it is what a release says.
    """
    with suppress(CalibrationError):
        if isinstance(subject.program, FirstStage):
            bound = subject.program.stability(check_universe(_REACHED))
            if _universal(bound.V, _REACHED):
                return passed(f"{COVERS_ALL}, none needs a certificate")
    error = subject.public_error
    if error is None or not math.isfinite(error):
        return noted(f"no public bound on the numerical error: releases are {CONDITIONAL}")
    return passed(f"private: error at most {error:.1e} on every dataset, at n = {_REACHED}")


def balance(subject: Subject) -> Judgment:
    """Largest difference of the arms' mean covariates before and after.

    A wrong sign makes it larger.
    """
    records = standard_records(_BALANCED)
    weights = subject.certified(records).value
    masses = [float(np.sum(weights[records.a == arm])) for arm in (0, 1)]
    if min(masses) < 1e-9 * _BALANCED:
        return noted("one arm has no weight")
    before = _largest_difference(records, np.ones(_BALANCED))
    after = _largest_difference(records, weights)
    text = (
        f"largest difference of covariate means between arms: {before:.3f} before, {after:.3f} "
        "after"
    )
    # noted only: it is no matter of privacy, and a scheme may have another target
    if after > before * ROUND_UP_SUMS:
        return noted(f"{text}: a wrong sign?")
    return passed(text)


def _largest_difference(records: Records, weights: Array) -> float:
    """Largest difference of the weighted means of a covariate between the arms."""
    means = []
    for arm in (0, 1):
        inside = records.a == arm
        means.append(np.average(records.covariates[inside], axis=0, weights=weights[inside]))
    controls, treated = means
    return float(np.max(np.abs(controls - treated)))


def stated_gradient(subject: Subject) -> Judgment:
    """The movement of the gradient that is stated, at other settings too.

    Nothing is solved, so that it is early.
    """
    program = subject.program
    if subject.derived:
        return _derived()
    if not isinstance(program, WeightsProgram) or program.scheme.statement is None:
        return passed("no movement of a gradient is stated")
    largest = 0.0
    places = 0
    for place, other, universe, pairs in _gradient_places(subject, program):
        if places and subject.until.passed:
            break
        stated = other.at(universe).stated_bound(universe)
        if stated is None or stated.gradient is None:
            return passed("no movement of a gradient is stated")
        try:
            moved, _ = largest_gradient_movement(
                other, universe, stated.gradient, pairs, subject.search.seed
            )
        except NotImplementedError:
            return noted("CVXPY has no gradient of the objective: what is stated is not compared")
        if moved > stated.gradient * ROUND_UP_SUMS:
            return failed(
                f"{place}: the gradient moves by {moved:.4g}, and {stated.gradient:.4g} is stated"
            )
        largest = max(largest, moved / max(stated.gradient, 1e-300))
        places += 1
    return passed(
        f"it moves by at most {largest:.0%} of what is stated, at {places} sizes and settings"
    )


def _gradient_places(
    subject: Subject, program: WeightsProgram
) -> Iterator[tuple[str, WeightsProgram, MappedUniverse, int]]:
    """Where gradients are compared, in words, and by how many pairs.

    The sizes come first, then other settings.
    """
    few = min(subject.search.evaluations or _GRADIENTS, _GRADIENTS)
    for n in dict.fromkeys((_AUDITED, *subject.larger, subject.n)):
        for universe in _universes(program, n):
            place = "" if universe.space.intercept else ", no intercept"
            yield f"n = {n}{place}", program, universe, few
    universe = _universes(program, _AUDITED)[-1]
    for name, value, other in _variations(program, universe):
        assert isinstance(other, WeightsProgram)
        yield f"n = {_AUDITED}, {name} = {value:.4g}", other, universe, max(few // 2, 1)


@dataclass
class _Moved:
    """What was found of weights on neighbors.

    Parameters
    ----------
    refuted
        What refutes a bound, in words; empty where nothing does.
    largest
        The largest V of a pair, from below, over its bound.
    pairs
        How many were solved for.
    """

    refuted: str = ""
    largest: float = 0.0
    pairs: int = 0

    def add(
        self, subject: Subject, pair: Pairs, universe: MappedUniverse, bound: StabilityBound
    ) -> float:
        """V of one pair, from below, after both datasets are solved.

        Raises what is ``UNSOLVED``.
        """
        ends = pair.records(universe.space)
        solved = [subject.certified(records) for records in ends]
        weights = [(one.value, one.certificate.output_radius) for one in solved]
        moved = NeighborPair(*ends, 0, "").moved(*weights).movements
        self.pairs += 1
        self.largest = max(self.largest, moved[Quantity.V].low / bound.V)
        for quantity, declared in ((Quantity.V, bound.V), (Quantity.LARGEST, bound.w_max)):
            reached = moved[quantity].low
            if not reached <= declared * ROUND_UP_SUMS:
                numbers = f"{quantity} = {reached:.4g}, declared {declared:.4g}"
                self.refuted = f"n = {universe.n_samples}: {numbers}"
        return moved[Quantity.V].low


def _moved(subject: Subject, universe: MappedUniverse, bound: StabilityBound, many: int) -> _Moved:
    """Certified movements of ``many`` pairs against a bound: drawn ones, then changes of the worst.

    Raises what is ``UNSOLVED``.
    """
    found = _Moved()
    worst = None
    highest = -math.inf
    rng = np.random.default_rng([subject.search.seed, 7])
    for turn in range(many):
        if turn and subject.until.passed:
            break
        begun_from = worst if turn >= many / 2 else None
        pair = _next(universe, begun_from, turn, rng)
        moved = found.add(subject, pair, universe, bound)
        if found.refuted:
            return found
        if moved > highest:
            worst = pair
            highest = moved
    return found


def _climbed(subject: Subject, universe: MappedUniverse, bound: StabilityBound) -> _Moved:
    """Certified movements of the pairs at the ends of one climb of V against a bound.

    The climb goes by weights of the distinct records where those are known, and else by few full
    solves. Raises what is ``UNSOLVED``.
    """
    found = _Moved()
    surrogate = Surrogate.of(ProgramWeights(subject.first), universe)
    budget = _PAIRS if surrogate.exact else min(subject.search.evaluations or _CLIMB, _CLIMB)
    rng = np.random.default_rng([subject.search.seed, 8])
    with np.errstate(all="ignore"):
        ends, _ = surrogate.climb(Quantity.V, [], budget, rng, subject.until)
    for number in range(len(ends)):
        found.add(subject, ends.take(np.array([number])), universe, bound)
        if found.refuted:
            break
    return found


def _next(
    universe: MappedUniverse, worst: Pairs | None, turn: int, rng: np.random.Generator
) -> Pairs:
    """A change of the worst pair; without one a new pair.

    The two of every other new pair face each other.
    """
    if worst is None and turn % 2 == 1:
        facing = facing_pair(universe, turn // 2, rng)
        if facing.admissible(universe.space):
            return facing
    return next_pair(universe, worst, rng)


def movement(subject: Subject) -> Judgment:
    """V and the largest weight over certified solves of neighbors.

    They are searched for where an author's bound is used.
    """
    if subject.derived:
        return _derived()
    largest = 0.0
    pairs = 0
    compared = list[int]()
    theorem = ""
    unused = ""
    many = min(max((subject.search.evaluations or 400) // 10, 3), _PAIRS)
    try:
        for n in dict.fromkeys((*subject.sizes, *subject.larger, subject.n)):
            universe = check_universe(n)
            program = subject.first.at(universe)
            bound = program.stability(universe)
            not_used = program.unused_bound(universe)
            if not_used is not None:
                unused = not_used
                continue
            # what no weights of sum n exceed needs no search, only solves that are certified
            universal = _universal(bound.V, n, bound.w_max)
            if universal and n in subject.larger:
                continue
            if pairs and subject.until.passed:
                break
            few = universal or n not in subject.sizes
            spent = _AT_LARGER if few else many
            found = _moved(replace(subject, program=program), universe, bound, spent)
            if found.refuted:
                return failed(found.refuted)
            compared.append(n)
            largest = max(largest, found.largest)
            pairs += found.pairs
            theorem = bound.theorem
    except CalibrationError as error:
        return _no_bound(subject.program, error)
    except UNSOLVED as error:
        return failed(f"a neighbor has no certified weights: {error}")
    if not compared:
        return CheckStatus.SKIPPED, unused
    text = f"{pairs} pairs, n = {min(compared)} to {max(compared):,}"
    return passed(f"{text}: V at most {largest:.0%} of the bound of {theorem}")


def short_audit(subject: Subject) -> Judgment:
    """A short stability audit: neighbors searched for, not drawn."""
    universe = check_universe(_AUDITED)
    if subject.derived:
        return _derived()
    try:
        bound = subject.first.stability(universe)
        unused = subject.first.at(universe).unused_bound(universe)
        if unused is not None:
            return CheckStatus.SKIPPED, unused
        if _universal(bound.V, _AUDITED, bound.w_max):
            return passed(
                f"V = 2n and w_max = n: no weights of sum n can move more, at n = {_AUDITED}"
            )
        search = _shorter(subject, universe)
        audit = audit_stability(subject.first, None, universe, bounds=[bound], search=search)
    except (CalibrationError, DataError) as error:
        return noted(f"nothing to audit: {error}")
    if audit.violations:
        worst = max(audit.verdicts, key=lambda verdict: verdict.ratio)
        return failed(
            f"{worst.claim.quantity.value} reaches {worst.ratio:.4g} times what is declared"
        )
    if not audit.check.disagreement <= 1.0:
        return failed(f"a certificate of two solvers is wrong: {audit.check}")
    seen = f"{audit.scouted + audit.resolved:,} neighbors at n = {_AUDITED}"
    # the largest weight reaches its bound more easily, and sets no noise alone
    moved = next(one for one in audit.verdicts if one.claim.quantity is not Quantity.LARGEST)
    claim = moved.claim
    return passed(
        f"{seen}: {claim.quantity} at most {moved.ratio:.0%} of its bound {claim.bound:.4g}"
    )


def _shorter(subject: Subject, universe: MappedUniverse) -> SearchPlan:
    """Fewer neighbors where each takes two solves in full, or as many small ones as a kink does."""
    evaluations = subject.search.evaluations
    slow = 1
    if Surrogate.of(ProgramWeights(subject.first.at(universe)), universe).exact:
        slow = 100
    elif subject.public_error is None:
        slow = 8
    search = subject.search
    if search.seconds is not None:
        search = replace(search, seconds=max(subject.until.left, _LEAST_SECONDS))
    if evaluations is None or slow == 1:
        return search
    return replace(search, evaluations=max(evaluations // slow, min(evaluations, 40)))


def other_settings(subject: Subject) -> Judgment:
    """Movement of weights with every number among the settings changed, one at a time.

    Each is taken times 2, 10 and 100, and over them. Where what is used follows from what is
    minimized, nothing is solved.
    """
    if subject.derived:
        return _derived()
    tried: dict[str, list[str]] = {}
    for name, value, other in _variations(subject.first, check_universe(_AUDITED)):
        if tried and subject.until.passed:
            break
        for universe in _universes(other, _AUDITED):
            refuted = _refuted_at(replace(subject, program=other.at(universe)), universe)
            if refuted:
                return failed(f"{name} = {value:.4g}: movement: {refuted}")
        tried.setdefault(name, []).append(f"{value:.4g}")
    text = "no other values were tried"
    if tried:
        values = "; ".join(f"{name} = {', '.join(others)}" for name, others in tried.items())
        text = f"{values}: nothing found"
    alone = [name for name in subject.program.setting_fields() if name not in tried]
    if alone:
        return noted(f"{text}. {', '.join(alone)}: not varied")
    return passed(text)


def _refuted_at(subject: Subject, universe: MappedUniverse) -> str:
    """What refutes the bound of a program that was read in a universe, in words.

    It is empty if nothing does.
    """
    if subject.first.unused_bound(universe) is not None:
        return ""
    bound = subject.first.stability(universe)
    if _universal(bound.V, universe.n_samples, bound.w_max):
        return ""
    few = min(max((subject.search.evaluations or 60) // 6, 3), _PAIRS)
    with suppress(*UNSOLVED):  # settings that nobody asked for may be hard to solve
        drawn = _moved(subject, universe, bound, few)
        return drawn.refuted or _climbed(subject, universe, bound).refuted
    return ""


def _variations(
    program: FirstStage, universe: MappedUniverse
) -> Iterator[tuple[str, float, FirstStage]]:
    """A setting, another value of it, and the program with that: those that can be used at all."""
    resolved = program.at(universe)
    for name in resolved.setting_fields():
        value = resolved.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        for other in _other_values(value):
            with suppress(Dp2ermError, TypeError, ValueError):  # a setting that the program refuses
                changed = program.with_settings(**{name: other}).at(universe)
                changed.stability(universe)
                yield name, other, changed


def _other_values(value: float) -> list[float]:
    """Other values of a setting: of 0 and of infinity one, of others multiples."""
    if math.isinf(value):
        return [1.5]
    if not value:
        return [0.5]
    return [value * factor for factor in _FACTORS]


#: Every check by name, with the programs that it concerns.
CHECKS: dict[str, tuple[Check, type[Program]]] = {
    "declaration": (declaration, Program),
    "assumed": (assumed, Program),
    "gradient": (stated_gradient, FirstStage),
    "movement": (movement, FirstStage),
    "audit": (short_audit, FirstStage),
    "feasibility": (feasibility, Program),
    "balance": (balance, FirstStage),
    "certified by design": (certified_in_advance, Program),
    "other settings": (other_settings, FirstStage),
}
#: The check that is run once, beside the first example.
BESIDE = "other settings"


def checks_of(made: Registered, *, first: bool = False) -> dict[str, Check]:
    """All that programs of a class or scheme are examined by, at examples of settings."""
    family = family_of(made)
    checks = {}
    for name, (check, base) in CHECKS.items():
        if issubclass(family, base) and (first or name != BESIDE):
            checks[name] = check
    return checks
