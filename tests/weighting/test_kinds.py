"""Datasets of few kinds of records have the weights of all their records, within what both
claim.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.program.kernels import Energy, Gaussian, Linear
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, WeightingForm
from dp2erm_cvx.weighting.neighbors.claims import NeighborClaims
from dp2erm_cvx.weighting.neighbors.joint_steps import JointSteps
from dp2erm_cvx.weighting.neighbors.kind_weights import weights_of_kinds
from dp2erm_cvx.weighting.neighbors.kinds import KindsData, KindsPart
from dp2erm_cvx.weighting.solving import certificate
from dp2erm_cvx.weighting.solving.certificate import Point, certified_distance
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting import examples
from tests.weighting.examples import BOTH, CONTROL, SIGNED, TREATED, form_of, moments_by_arm
from tests.weighting.test_neighbors import FORMS, N

#: Public points, some of them alike.
POINTS = np.array([[0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, -0.3, 0.2]])
M = 12
KINDS = 5


def kernel_forms() -> dict[str, WeightingForm]:
    half = BOTH / 2
    forms = {}
    for name, kernel in {
        "gaussian": Gaussian(1.0),
        "energy": Energy(),
        "linear": Linear(0.5),
    }.items():
        features = examples.of_kernel(kernel, signed=name == "linear")
        parts = [examples.part(features, arm, half) for arm in (CONTROL, TREATED)]
        squares = [examples.imbalance(ImbalancePenalty(3.0 / N), part) for part in parts]
        forms[f"kernel: {name}"] = form_of(N, *squares, dispersion="entropy")
    both = examples.imbalance(
        ImbalancePenalty(3.0 / N), examples.part(features, SIGNED, 0.0 * BOTH)
    )
    for name, kernel in {"gaussian": Gaussian(1.0), "linear": Linear(0.5)}.items():
        features = replace(examples.of_kernel(kernel, signed=name == "linear"), points=POINTS)
        part = examples.part(features, BOTH, 0.0 * BOTH)
        targets = {"public": {"public": 1.0}, "means": {"mean": BOTH / 2}}
        targets["mixed"] = {"public": 0.5, "mean": TREATED / 4, "target": BOTH / 4}
        for of, factors in targets.items():
            squares = examples.imbalance(ImbalancePenalty(3.0 / N), replace(part, **factors))
            forms[f"kernel: {name} to {of}"] = form_of(N, squares, dispersion="entropy")
    forms["kernel and vectors"] = form_of(
        N, both, moments_by_arm(ImbalancePenalty(5 / N)), cap=(1.5, 2.0)
    )
    return forms


KERNELS = kernel_forms()
KINKS = {
    "kink": form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=0.1))),
    "kinked norm": form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=0.1, norm=2))),
}


def drawn_kinds(m: int = M, seed: int = 3) -> tuple[Records, Array]:
    """Kinds of m datasets and their counts: even ones, rare kinds, kinds that are missing or the
    same.
    """
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(m, KINDS, 3))
    X *= 0.99 / np.maximum(np.linalg.norm(X, axis=2, keepdims=True), 0.99)
    a = generator.integers(0, 2, (m, KINDS))
    a[:, :2] = 0, 1
    X[0, 2] = X[0, 3]
    count = np.floor(generator.dirichlet(np.full(KINDS, 0.7), m) * (N - 4))
    count[:, :2] += 2.0
    count[:, -1] += N - np.sum(count, axis=1)
    count[1] = 20.0, 20.0, 0.0, 0.0, 20.0
    X = X.reshape(-1, 3)
    return Domain(1.0, 1.0).records(X, a.ravel(), np.zeros(len(X))), count


def all_records(kinds: Records, count: Array, k: int) -> Records:
    """Dataset k, with every record of every kind."""
    rows = np.repeat(np.arange(k * KINDS, (k + 1) * KINDS), count[k].astype(int))
    return kinds.at(rows)


def spread(weights: Array, count: Array, k: int) -> Array:
    return np.repeat(weights[k], count[k].astype(int))


@pytest.mark.one_row_in(20)
@pytest.mark.parametrize("name", [*FORMS, *KERNELS, *KINKS])
def test_kinds_are_all_records_within_both_claims(name: str) -> None:
    form = {**FORMS, **KERNELS, **KINKS}[name]
    kinds, count = drawn_kinds()
    found = weights_of_kinds(form, kinds, count)
    goal = 1e-5 if name in KINKS else 1e-9
    certified = found.claims <= goal * N
    assert np.mean(certified) >= 0.7
    for k in range(0, M, 2):
        if not certified[k]:
            with pytest.raises(InfeasibleError):
                DualProblem(form, all_records(kinds, count, k))
            continue
        one = DualProblem(form, all_records(kinds, count, k)).newton()
        apart = float(np.sum(np.abs(one.weights - spread(found.weights, count, k))))
        assert apart <= one.claim + found.claims[k]


def farthest_of_few_steps(
    form: WeightingForm, factor: float, monkeypatch: pytest.MonkeyPatch
) -> float:
    """How far weights are off after few steps by the Jacobians of other datasets; claims have to
    cover it.
    """
    kinds, count = drawn_kinds()
    near = weights_of_kinds(form, kinds, count)
    right = JointSteps.own_steps

    def stale(
        self: Any, y: Array, state: Any, chosen: Array, part: KindsPart, damping: Array | None
    ) -> Array:
        rates = state.rates if factor > 0.9 else state.rates[::-1]
        return factor * right(self, y, replace(state, rates=rates), chosen, part, damping)

    monkeypatch.setattr(JointSteps, "own_steps", stale)
    farthest = 0.0
    for steps in (0, 1, 2, 4, 6, 7, 8):
        monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.kind_weights._MOST_STEPS", steps)
        far = weights_of_kinds(form, kinds, count)
        known = np.isfinite(far.claims) & (near.claims <= 1e-9 * N)
        apart = np.nansum(count * np.abs(far.weights - near.weights), axis=1)[known]
        assert np.all(apart <= far.claims[known] + near.claims[known])
        farthest = max(farthest, float(np.max(apart, initial=0.0)))
    return farthest


@pytest.mark.one_row_in(16)
@pytest.mark.parametrize("name", FORMS)
def test_claims_hold_far_from_a_solution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert farthest_of_few_steps(FORMS[name], 0.7, monkeypatch) > 1e-6 * N


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("name", KERNELS)
def test_claims_of_kernels_hold(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missed in features of a kernel is an error of every price: far off there is no
    claim.
    """
    assert farthest_of_few_steps(KERNELS[name], 0.95, monkeypatch) > 1e-11 * N


def test_steps_that_end_too_early_are_not_claimed_to_be_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ends the steps is an estimate; the certificate does not believe it."""
    kinds, count = drawn_kinds()
    monkeypatch.setattr(NeighborClaims, "estimates", lambda self, missed, *_: np.zeros(len(missed)))
    found = weights_of_kinds(FORMS["logit"], kinds, count)
    assert np.all(found.claims > 1e-3 * N)


@pytest.mark.parametrize("name", KINKS)
def test_steps_end_where_no_more_than_rounding_is_missed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a kink a claim is the root of what is missed, which rounding keeps above small goals."""
    kinds, count = drawn_kinds()
    right = JointSteps.own_steps
    number_of_steps = 0

    def counted(self: Any, *arguments: Any) -> Array:
        nonlocal number_of_steps
        number_of_steps += 1
        return right(self, *arguments)

    monkeypatch.setattr(JointSteps, "own_steps", counted)
    found = weights_of_kinds(KINKS[name], kinds, count, tolerance=0.0)
    assert np.mean(found.claims <= 1e-6 * N) >= 0.7
    assert number_of_steps <= 12


@pytest.mark.parametrize("norm", [None, 2.0, math.inf])
@pytest.mark.parametrize("dispersion", ["square", "entropy"])
def test_steep_kinks_are_solved_to_rounding(dispersion: str, norm: float | None) -> None:
    """Steep prices bring most weights to the ends of their boxes, where they answer no price."""
    penalty = ImbalancePenalty(math.inf, price=10.0, norm=norm)
    form = form_of(N, moments_by_arm(penalty), dispersion=dispersion)
    kinds, count = drawn_kinds(m=20, seed=7)
    found = weights_of_kinds(form, kinds, count)
    assert np.mean(found.claims <= 1e-5 * N) >= 0.9


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("wrong", ["rows", "targets", "count"])
@pytest.mark.parametrize("name", ["squares", "logit", "sums: counts", "kernel: gaussian"])
def test_wrong_data_of_kinds_are_seen(
    name: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison with all records fails where a row or target is off, or one record is counted
    twice.
    """
    form = {**FORMS, **KERNELS}[name]
    kinds, count = drawn_kinds()
    right = KindsData.part

    def mistaken(self: KindsData, kinds: Records, count: Array) -> KindsPart:
        part = right(self, kinds, count)
        if wrong == "count":
            twice = count.copy()
            twice[:, 0] += 1.0
            return replace(part, count=twice)
        return replace(part, **{wrong: getattr(part, wrong) * (1.0 + 1e-6)})

    monkeypatch.setattr(KindsData, "part", mistaken)
    off = weights_of_kinds(form, kinds, count)
    caught = 0
    for k in range(M):
        one = DualProblem(form, all_records(kinds, count, k)).newton()
        apart = float(np.sum(np.abs(one.weights - spread(off.weights, count, k))))
        caught += apart > one.claim + off.claims[k]
    assert caught >= 0.5 * M


def test_claims_are_those_of_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate of kinds is that of the dataset in full, at the same point, but for common
    bounds.

    Claims in the metric of the Hessian are made of single datasets alone.
    """
    monkeypatch.setattr(certificate, "_has_metric", lambda data, missed: False)
    kinds, count = drawn_kinds()
    for name in ("squares", "huber", "ball", "sums: counts", "base", "binding cap"):
        form = FORMS[name]
        data = KindsData(form, KINDS)
        part = data.part(kinds, count)
        generator = np.random.default_rng(8)
        for k in range(0, M, 3):
            records = all_records(kinds, count, k)
            problem = DualProblem(form, records)
            outer = problem.outer_point(problem.newton())
            y = outer.y * (1.0 + 1e-7 * generator.normal(size=len(outer.y)))
            steps = JointSteps(data, outer.step)
            some = part.take(np.array([k]))
            state = steps.state(y[None], outer.multipliers[None], some)
            (together,) = steps.judge.claims(state.points, some)
            points = state.points
            point = Point(points.imbalance[0], points.prices[0], points.multipliers[0])
            _, alone = certified_distance(problem.data, point)
            # Sums of five terms are rounded less than those of all records.
            assert 0.9 * alone - 1e-10 * N <= together <= 1.1 * alone + 1e-10 * N


def test_counts_that_do_not_add_up_to_n_are_refused() -> None:
    kinds, count = drawn_kinds()
    data = KindsData(FORMS["squares"], KINDS)
    for wrong in (count[:-1], count + 1.0, count * 0.999, count[:, :-1]):
        with pytest.raises(DeclarationError, match="count: must be"):
            data.part(kinds, wrong)
    hard = form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=math.inf, tolerance=0.1 * N)))
    with pytest.raises(DeclarationError, match="no claim"):
        weights_of_kinds(hard, kinds, count)


def test_weights_in_chunks_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds, count = drawn_kinds()
    whole = weights_of_kinds(FORMS["tolerance"], kinds, count)
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.kind_weights._CHUNK", 5)
    parts = weights_of_kinds(FORMS["tolerance"], kinds, count)
    apart = np.sum(count * np.abs(whole.weights - parts.weights), axis=1)
    assert np.all(apart <= whole.claims + parts.claims)
