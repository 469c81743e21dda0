"""Neighbors that are solved together have the weights of single solves, within what both claim."""

import math

import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import DeclarationError, InfeasibleError
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightingForm, WeightSums
from dp2erm_cvx.weighting.neighbors import means_of_arms
from dp2erm_cvx.weighting.neighbors.together import FormNeighbors
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting import examples
from tests.weighting.examples import BOTH, CONTROL, SIGNED, form_of, moments_by_arm, records_of

N = 60
M = 24
SQUARES = ImbalancePenalty(5 / N)
PENALTIES = {
    "squares": SQUARES,
    "tolerance": ImbalancePenalty(5 / N, tolerance=0.02 * N),
    "huber": ImbalancePenalty(50 / N, knee=0.005 * N),
    "ball": ImbalancePenalty(50 / N, knee=0.02 * N, norm=2),
    "norm beyond a tolerance": ImbalancePenalty(50 / N, tolerance=0.01 * N, norm=2),
}
SUMS = {
    "public": WeightSums(SumKind.PUBLIC, (0.45 * N, 0.55 * N)),
    "counts": WeightSums(SumKind.COUNTS),
    "controls": WeightSums(SumKind.CONTROLS),
    "treated": WeightSums(SumKind.TREATED),
}
DISPERSIONS = ("square", "entropy", "log", "logit", "power", "mixed", "kinked")
BOXES = {"logit": (0.1, 4.0), "log": (0.0, 3.0), "mixed": (0.0, 3.0), "kinked": (0.0, 2.0)}


def smooth_forms() -> dict[str, WeightingForm]:
    """Every penalty, dispersion and sum, base weights, a linear part and a cap that binds."""
    forms = {}
    for name, penalty in PENALTIES.items():
        forms[name] = form_of(N, moments_by_arm(penalty), dispersion="entropy")
    for dispersion in DISPERSIONS:
        low, cap = BOXES.get(dispersion, (0.0, math.inf))
        forms[dispersion] = form_of(
            N, moments_by_arm(SQUARES), dispersion=dispersion, low=(low, low), cap=(cap, cap)
        )
    for name, sums in SUMS.items():
        forms[f"sums: {name}"] = form_of(
            N, moments_by_arm(SQUARES), dispersion="entropy", cap=(4.0, 5.0), sums=sums
        )
    one = examples.part(examples.constant(), SIGNED, np.zeros(2))
    forms["linear"] = form_of(N, moments_by_arm(SQUARES), linear=one)
    forms["base"] = form_of(
        N, moments_by_arm(SQUARES), dispersion="entropy", base=examples.base_of()
    )
    forms["base of squares"] = form_of(
        N, moments_by_arm(SQUARES), cap=(1.5, 2.5), base=examples.base_of()
    )
    ends = {"low_of": examples.end_of(0.0, 0.5), "cap_of": examples.end_of(0.6, 1.5, 2.0)}
    hull = {"low": (0.0, 0.0), "cap": (3.0, 3.0)}
    forms["boxes of records"] = form_of(
        N, moments_by_arm(SQUARES), dispersion="entropy", **hull, **ends
    )
    forms["binding cap"] = form_of(N, moments_by_arm(SQUARES), dispersion="entropy", cap=(1.3, 1.3))
    pooled = examples.imbalance(
        ImbalancePenalty(50 / N, tolerance=0.01 * N),
        examples.part(examples.covariates(), SIGNED, 0.1 * BOTH),
    )
    for name, kind in (("all", examples.ALL), *SUMS.items()):
        mean = 0.5 * examples.TREATED if name == "treated" else np.array([-0.1, 0.9])
        to_means = examples.to_means_of_arms(SQUARES, CONTROL, mean, target=0.05 * BOTH)
        forms[f"means: {name}"] = form_of(
            N, to_means, dispersion="entropy", cap=(6.0, 6.0), sums=kind
        )
    by_norm = ImbalancePenalty(20 / N, knee=0.1 * N, norm=2)
    forms["two penalties"] = form_of(N, pooled, moments_by_arm(by_norm), dispersion="logit", **_BOX)
    return forms


_BOX = {"low": (0.1, 0.1), "cap": (4.0, 4.0)}
FORMS = smooth_forms()


def drawn_neighbors(records: Records, m: int, seed: int = 1) -> tuple[Array, Records]:
    """Replaced numbers and new records: at random, at the boundary, and flips of the old ones."""
    generator = np.random.default_rng(seed)
    n = records.n_samples
    index = generator.integers(0, n, m)
    new = records_of(m + 2, seed=seed + 1).at(np.arange(m) + 2)
    X = new.X.copy()
    a = new.a.copy()
    third = m // 3
    X[:third] *= 0.999 / np.linalg.norm(X[:third], axis=1)[:, None]
    X[-third:] = records.X[index[-third:]]
    a[-third:] = 1 - records.a[index[-third:]]
    return index, Records.within(records.space, X, a, records.y[index])


def single(
    form: WeightingForm, records: Records, index: Array, new: Records, k: int
) -> DualProblem:
    return DualProblem(form, records.replaced(int(index[k]), new.X[k], int(new.a[k])))


@pytest.mark.one_row_in(9)
@pytest.mark.parametrize("name", FORMS)
def test_together_is_alone_within_both_claims(name: str) -> None:
    form = FORMS[name]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    found = FormNeighbors(form, records).together(index, new)
    solved = found.claims <= 1e-10 * N
    assert np.mean(solved) >= 0.8
    for k in np.flatnonzero(solved)[::4]:
        one = single(form, records, index, new, k).newton()
        apart = float(np.sum(np.abs(one.weights - found.weights[k])))
        assert apart <= one.claim + found.claims[k]


@pytest.mark.one_row_in(9)
@pytest.mark.parametrize("name", FORMS)
def test_claims_hold_far_from_a_solution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few steps leave weights well off, which claims have to say."""
    form = FORMS[name]
    records = records_of(N)
    index, new = drawn_neighbors(records, M, seed=3)
    near = FormNeighbors(form, records).solve(index, new)
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.together._OWN_STEPS", 0)
    farthest = 0.0
    for steps in (0, 1, 2, 4):
        monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.together._SHARED_STEPS", steps)
        far = FormNeighbors(form, records).together(index, new)
        known = np.isfinite(far.claims)
        apart = np.sum(np.abs(far.weights - near.weights), axis=1)[known]
        assert np.all(apart <= far.claims[known] + near.claims[known])
        farthest = max(farthest, float(np.max(apart, initial=0.0)))
    assert farthest > 1e-9 * N


@pytest.mark.parametrize("norm", [None, 2])
def test_neighbors_of_forms_with_kinks_are_those_of_single_solves(norm: float | None) -> None:
    form = form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=0.1, norm=norm)))
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    found = FormNeighbors(form, records).solve(index, new, tolerance=1e-5)
    assert np.all(found.claims <= 1e-5 * N)
    for k in range(M):
        one = single(form, records, index, new, k).newton()
        assert np.sum(np.abs(one.weights - found.weights[k])) <= one.claim + found.claims[k]


def test_constraints_are_solved_alone() -> None:
    form = form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=math.inf, tolerance=0.1 * N)))
    records = records_of(N)
    index, new = drawn_neighbors(records, 3)
    neighbors = FormNeighbors(form, records)
    assert not neighbors.usable
    found = neighbors.solve(index, new)
    assert np.all(found.alone)
    for k in range(3):
        one = single(form, records, index, new, k).newton()
        np.testing.assert_array_equal(found.weights[k], one.weights)


def test_the_outcome_of_a_new_record_moves_weights_that_depend_on_it() -> None:
    outcome = examples.Features(
        "outcome", examples.IntervalSet(-1.0, 1.0), 1, lambda r: r.y[:, None]
    )
    linear = examples.part(outcome, BOTH, np.zeros(2))
    form = form_of(N, moments_by_arm(SQUARES), linear=linear)
    records = records_of(N)
    index, new = drawn_neighbors(records, 2)
    other = Records.within(records.space, new.X, new.a, np.array([0.5, -0.5]))
    together = FormNeighbors(form, records).together(index, other)
    alone = FormNeighbors(form, records).solve(index, other, tolerance=0.0)
    assert np.all(alone.alone)
    np.testing.assert_allclose(together.weights, alone.weights, atol=1e-9)
    assert np.max(np.abs(together.weights[0, index[0]] - 1.0)) > 0.1


def test_a_neighbor_without_weights_has_an_infinite_claim() -> None:
    """An arm that loses its last record cannot hold its sum."""
    records = records_of(N)
    only = Records.within(records.space, records.X, (np.arange(N) == 3).astype(int), records.y)
    form = form_of(N, moments_by_arm(SQUARES), sums=WeightSums(SumKind.PUBLIC, (N / 2, N / 2)))
    new = Records.within(records.space, records.X[:2], np.zeros(2, dtype=int), records.y[:2])
    index = np.array([3, 5])
    found = FormNeighbors(form, only).solve(index, new)
    assert math.isinf(found.claims[0])
    assert np.all(np.isnan(found.weights[0]))
    assert found.claims[1] <= 1e-10 * N
    with pytest.raises(InfeasibleError):
        single(form, only, index, new, 0)


@pytest.mark.parametrize("wrong", ["the new record", "the old record", "the number of records"])
def test_a_mean_that_a_neighbor_leaves_unmoved_is_caught(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = FORMS["means: all"]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    right = FormNeighbors(form, records).together(index, new)
    true = means_of_arms.mean_targets

    def mistaken(
        group: object, sums: dict[str, tuple[Array, Array]], by_arm: Array
    ) -> tuple[Array, Array]:
        if by_arm.ndim == 1:
            return true(group, sums, by_arm)  # type: ignore[arg-type]
        before = np.bincount(records.a, minlength=2)
        arms = np.arange(2)
        come = (new.a[:, None] == arms)[:, :, None]
        gone = (records.a[index][:, None] == arms)[:, :, None]
        changed = {}
        for name, (total, size) in sums.items():
            if wrong == "the new record":
                total = total - come * new.covariates[:, None, :]
            if wrong == "the old record":
                total = total + gone * records.covariates[index][:, None, :]
            changed[name] = (total, size)
        numbers = np.tile(before, (M, 1)) if wrong == "the number of records" else by_arm
        return true(group, changed, numbers)  # type: ignore[arg-type]

    monkeypatch.setattr(means_of_arms, "mean_targets", mistaken)
    off = FormNeighbors(form, records).together(index, new)
    apart = np.sum(np.abs(off.weights - right.weights), axis=1)
    assert np.any(apart > off.claims + right.claims)


def test_an_arm_that_loses_its_last_record_has_no_mean() -> None:
    records = records_of(N)
    only = Records.within(records.space, records.X, (np.arange(N) == 3).astype(int), records.y)
    new = Records.within(records.space, records.X[:2], np.zeros(2, dtype=int), records.y[:2])
    found = FormNeighbors(FORMS["means: all"], only).solve(np.array([3, 5]), new)
    assert math.isinf(found.claims[0])
    assert found.claims[1] <= 1e-10 * N
    with pytest.raises(InfeasibleError, match="whose mean is a target"):
        single(FORMS["means: all"], only, np.array([3, 5]), new, 0)


def test_weights_in_chunks_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["tolerance"]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    whole = FormNeighbors(form, records).together(index, new)
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.together._LEAST", 5)
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.together._CHUNK", 5 * N)
    parts = FormNeighbors(form, records).together(index, new)
    apart = np.sum(np.abs(whole.weights - parts.weights), axis=1)
    assert np.all(apart <= whole.claims + parts.claims)


def test_many_rows_have_their_own_jacobians_without_a_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = FORMS["tolerance"]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    whole = FormNeighbors(form, records).together(index, new)
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.data._MOST_PRODUCTS", 0)
    monkeypatch.setattr("dp2erm_cvx.weighting.neighbors.together._MORE_SHARED_STEPS", 0)
    single_products = FormNeighbors(form, records).together(index, new)
    apart = np.sum(np.abs(whole.weights - single_products.weights), axis=1)
    assert np.all(apart <= whole.claims + single_products.claims)


def test_numbers_of_records_that_do_not_exist_are_refused() -> None:
    records = records_of(N)
    _, new = drawn_neighbors(records, 2)
    neighbors = FormNeighbors(FORMS["squares"], records)
    for wrong in (np.array([0, N]), np.array([-1, 0]), np.array([0])):
        with pytest.raises(DeclarationError, match="one per new record"):
            neighbors.solve(wrong, new)
