"""Neighbors with features of kernels are solved together, and claims hold against 40 digits."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.inverse_slope import InverseSlope
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.errors import InfeasibleError
from dp2erm_cvx.program.kernels import Energy, Gaussian, Kernel, Laplace, Linear, RandomFourier
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightingForm, WeightSums
from dp2erm_cvx.weighting.neighbors import pair_steps
from dp2erm_cvx.weighting.neighbors import together as common
from dp2erm_cvx.weighting.neighbors.pairs import NeighboringPairs, ReplacedPairs
from dp2erm_cvx.weighting.neighbors.together import FormNeighbors
from dp2erm_cvx.weighting.solving.dual import DualProblem
from dp2erm_cvx.weighting.solving.pairs import PairsProblem
from tests.rows import slow
from tests.weighting import examples
from tests.weighting.exact_pairs import exact_weights
from tests.weighting.examples import (
    BOTH,
    CONTROL,
    SIGNED,
    TREATED,
    form_of,
    moments_by_arm,
    records_of,
)
from tests.weighting.test_neighbors import BOXES, drawn_neighbors, single

N = 60
M = 24
KERNELS: dict[str, Kernel] = {
    "gaussian": Gaussian(1.0),
    "laplace": Laplace(0.5),
    "energy": Energy(),
    "linear": Linear(1.0),
    "fourier": RandomFourier(1.0, frequencies=20),
}


def three_ways(kernel: Kernel, factor: float, n: int) -> tuple[examples.Imbalance, ...]:
    """Both arms against all records, and against each other."""
    features = examples.of_kernel(kernel)
    penalty = ImbalancePenalty(factor / n)
    to_all = [examples.part(features, arm, BOTH / 2) for arm in (CONTROL, TREATED)]
    parts = [*to_all, examples.part(features, SIGNED, np.zeros(2))]
    return tuple(examples.imbalance(penalty, part) for part in parts)


#: Public points, some of them alike.
POINTS = np.array([[0.5, 0.0, 0.0], [0.5, 0.0, 0.0], [0.0, -0.3, 0.2]])


def targets_of(kernel: Kernel, n: int, p: int = 3) -> dict[str, tuple[examples.Imbalance, ...]]:
    """Imbalances to the mean of the treated, to both means, to public points, and to all of
    them.
    """
    penalty = ImbalancePenalty(5.0 / n)
    plain = examples.part(examples.of_kernel(kernel), BOTH, np.zeros(2))
    with_points = replace(plain, features=replace(plain.features, points=POINTS[:, :p]))
    parts = {
        "treated": replace(plain, weighted=CONTROL, mean=TREATED),
        "both means": replace(plain, mean=np.array([-0.3, 0.8])),
        "public points": replace(with_points, public=1.0),
        "all of them": replace(with_points, target=BOTH / 4, mean=BOTH / 4, public=0.25),
    }
    return {name: (examples.imbalance(penalty, part),) for name, part in parts.items()}


def sums_of(n: int) -> dict[str, WeightSums]:
    return {
        "all": examples.ALL,
        "public": WeightSums(SumKind.PUBLIC, (0.45 * n, 0.55 * n)),
        "counts": WeightSums(SumKind.COUNTS),
        "controls": WeightSums(SumKind.CONTROLS),
        "treated": WeightSums(SumKind.TREATED),
    }


def forms() -> dict[str, WeightingForm]:
    """Every kernel, dispersion and sum, boxes, lines, bases, and vectors beside a kernel."""
    found = {}
    for name, kernel in KERNELS.items():
        found[name] = form_of(N, *three_ways(kernel, 5.0, N), sums=sums_of(N)["public"])
    squares = three_ways(KERNELS["gaussian"], 5.0, N)
    for dispersion in ("entropy", "log", "logit", "power", "mixed", "kinked"):
        low, cap = BOXES.get(dispersion, (0.0, math.inf))
        found[dispersion] = form_of(
            N, *squares, dispersion=dispersion, low=(low, low), cap=(cap, cap)
        )
    for name, sums in sums_of(N).items():
        found[f"sums: {name}"] = form_of(N, *squares, cap=(4.0, 5.0), sums=sums)
        found[f"entropy, {name}"] = form_of(
            N, *squares, dispersion="entropy", cap=(4.0, 5.0), sums=sums
        )
    for cap in (1.05, 1.3):
        found[f"cap {cap}"] = form_of(N, *squares, cap=(cap, cap))
    found["box of entropies"] = form_of(
        N, *squares, dispersion="entropy", low=(0.8, 0.8), cap=(1.2, 1.2)
    )
    one = examples.part(examples.constant(), SIGNED, np.zeros(2))
    found["linear"] = form_of(N, *squares, linear=one)
    found["base"] = form_of(N, *squares, dispersion="entropy", base=examples.base_of())
    found["base of squares"] = form_of(N, *squares, cap=(1.5, 2.5), base=examples.base_of())
    ends = {"low_of": examples.end_of(0.0, 0.5), "cap_of": examples.end_of(0.6, 1.5, 2.0)}
    found["boxes of records"] = form_of(N, *squares, cap=(3.0, 3.0), **ends)
    found["vectors"] = form_of(N, *squares, moments_by_arm(ImbalancePenalty(5.0 / N)))
    mean = np.array([-0.1, 0.9])
    to_means = examples.to_means_of_arms(
        ImbalancePenalty(5.0 / N), CONTROL, mean, target=0.05 * BOTH
    )
    found["means"] = form_of(N, *squares, to_means, dispersion="entropy", cap=(6.0, 6.0))
    for name in ("gaussian", "linear"):
        for of, squares_of in targets_of(KERNELS[name], N).items():
            found[f"{name} to {of}"] = form_of(N, *squares_of, dispersion="entropy", cap=(6.0, 6.0))
    controls = targets_of(KERNELS["laplace"], N)["treated"]
    found["controls to treated"] = form_of(N, *controls, sums=sums_of(N)["controls"])
    found["two kernels"] = form_of(N, *squares, *three_ways(KERNELS["energy"], 1.0, N))
    return found


FORMS = forms()


@pytest.mark.one_row_in(16)
@pytest.mark.parametrize("name", FORMS)
def test_together_is_alone_within_both_claims(name: str) -> None:
    form = FORMS[name]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    neighbors = FormNeighbors(form, records)
    assert neighbors.usable
    found = neighbors.together(index, new)
    solved = found.claims <= 1e-10 * N
    assert np.mean(solved) >= 0.8
    moved = 0.0
    for k in np.flatnonzero(solved)[::8]:
        one = single(form, records, index, new, k).newton()
        apart = float(np.sum(np.abs(one.weights - found.weights[k])))
        assert apart <= one.claim + found.claims[k]
        moved = max(moved, float(np.sum(np.abs(found.weights[k] - found.weights[0]))))
    assert moved > 1e-3


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("name", FORMS)
def test_claims_hold_far_from_a_solution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are taken after the first steps are well off, which claims have to say."""
    form = FORMS[name]
    records = records_of(N)
    index, new = drawn_neighbors(records, M, seed=3)
    near = FormNeighbors(form, records).together(index, new)
    farthest = 0.0
    for within in (1e12, 1e6, 1e3):
        monkeypatch.setattr(pair_steps, "_WITHIN", within)
        far = FormNeighbors(form, records).together(index, new)
        known = np.isfinite(far.claims) & np.isfinite(near.claims)
        apart = np.sum(np.abs(far.weights - near.weights), axis=1)[known]
        assert np.all(apart <= far.claims[known] + near.claims[known])
        farthest = max(farthest, float(np.max(apart, initial=0.0)))
    # Straight pieces have exact weights, or sums that are too far off for a claim.
    straight = form.dispersion.family == "square" or name == "kinked"
    assert straight or farthest > 1e-9 * N


def test_a_poor_solution_of_the_dataset_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["entropy"]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    near = FormNeighbors(form, records).together(index, new)
    newton = common.DualProblem.newton

    def poor(self: common.DualProblem, tolerance: float = 1e-12) -> object:
        found = newton(self, tolerance)
        off = found.weights * (1.0 + 0.01 * np.sin(np.arange(N)))
        return common.replace(found, weights=off)

    monkeypatch.setattr(common.DualProblem, "newton", poor)
    far = FormNeighbors(form, records).together(index, new)
    assert np.all(far.claims <= 1e-10 * N)
    assert np.all(np.sum(np.abs(far.weights - near.weights), axis=1) <= far.claims + near.claims)


def drawn_case(
    generator: np.random.Generator, dispersion: str
) -> tuple[WeightingForm, Records, Array, Records]:
    """A form of few records with ties, and neighbors: new records, copies of others, and flips."""
    n = int(generator.choice([2, 3, 5, 8]))
    X = generator.normal(size=(n, 2))
    X /= np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]
    if generator.integers(3) == 0:
        X = X[generator.integers(0, max(1, n // 2), n)]
    a = generator.integers(0, 2, n)
    if generator.integers(2) == 0:
        # One arm loses its last record where that one is replaced.
        a = np.zeros(n, dtype=int)
        a[0] = 1
    records = Domain(1.0, 1.0).records(X, a, np.zeros(n))
    kernel = list(KERNELS.values())[generator.integers(len(KERNELS))]
    factor = 10.0 ** generator.uniform(-1, 2.5)
    low, cap = (0.1, 4.0) if dispersion == "logit" else (0.0, math.inf)
    if dispersion == "square" and generator.integers(2) == 0:
        cap = 1.2
    kinds = [SumKind.ALL, SumKind.COUNTS]
    sums = WeightSums(kinds[generator.integers(2)])
    beside = ()
    if generator.integers(4) == 0:
        beside = (moments_by_arm(ImbalancePenalty(factor / n), p=2),)
    elif generator.integers(2) == 0:
        of = ("both means", "all of them")[generator.integers(2)]
        beside = targets_of(kernel, n, p=2)[of if len(set(a)) == 2 else "public points"]
    ends = {"low": (low, low), "cap": (cap, cap)}
    form = form_of(
        n, *three_ways(kernel, factor, n), *beside, dispersion=dispersion, sums=sums, **ends
    )
    index = np.array([0, 0, n - 1, n - 1])
    new = records_of(4, p=2, seed=int(generator.integers(1000)))
    rows = new.X.copy()
    rows[1] = records.X[n - 1]
    rows[2] = records.X[n - 1]
    arms = np.array([0, 1, 1 - a[n - 1], a[0]])
    return form, records, index, Domain(1.0, 1.0).records(rows, arms, np.zeros(4))


def exactly(
    dispersion: str, seeds: range, tolerance: float = 1e-10
) -> tuple[list[float], list[float]]:
    """Distances to the exact weights and claims, over n."""
    distances = []
    claims = []
    for seed in seeds:
        form, records, index, new = drawn_case(np.random.default_rng(seed), dispersion)
        found = FormNeighbors(form, records).together(index, new, tolerance)
        for k in np.flatnonzero(np.isfinite(found.claims)):
            neighbor = records.replaced(int(index[k]), new.X[k], int(new.a[k]))
            exact = exact_weights(form, dispersion, neighbor, found.weights[k])
            if exact is None:
                continue
            apart = sum(abs(w - float(x)) for w, x in zip(exact, found.weights[k], strict=True))
            distances.append(float(apart) / form.n)
            claims.append(float(found.claims[k]) / form.n)
    return distances, claims


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("dispersion", ["square", slow("entropy"), slow("log"), "logit"])
@pytest.mark.slow
def test_claims_hold_against_exact_weights(dispersion: str) -> None:
    distances, claims = exactly(dispersion, range(25))
    assert len(claims) >= 30
    assert np.all(np.array(distances) <= np.array(claims))
    assert np.median(claims) <= 1e-10


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("dispersion", ["entropy", "log", "logit"])
def test_claims_of_steps_that_end_early_hold_against_exact_weights(
    dispersion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are nearly reached there."""
    monkeypatch.setattr(pair_steps, "_WITHIN", 1e5)
    distances, claims = exactly(dispersion, range(40, 50))
    assert len(claims) >= 10
    assert np.all(np.array(distances) <= np.array(claims))
    assert np.max(np.array(distances) / np.array(claims)) >= 0.4


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("dispersion", ["square", slow("entropy"), slow("log"), "logit"])
def test_claims_of_single_solves_hold_against_exact_weights(dispersion: str) -> None:
    """By the radii of weights and by the prices that they have themselves, of which the smaller
    counts.
    """
    counted = 0
    for seed in range(40, 60):
        form, records, _, _ = drawn_case(np.random.default_rng(seed), dispersion)
        problem = DualProblem(form, records)
        if problem.pairs is None:
            problem.pairs = PairsProblem(problem.data, records.covariates)
        found = problem.newton()
        exact = exact_weights(form, dispersion, records, found.weights)
        if exact is None:
            continue
        counted += 1
        apart = sum(abs(w - float(x)) for w, x in zip(exact, found.weights, strict=True))
        assert float(apart) <= found.claim
        assert found.claim <= 1e-7 * form.n
    assert counted >= 8


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("dispersion", ["square", "entropy"])
@pytest.mark.parametrize("beside", [False, True])
def test_claims_by_few_features_hold_against_exact_weights(dispersion: str, beside: bool) -> None:
    n = 24
    for seed, factor in enumerate((0.3, 3000.0)):
        records = records_of(n, p=2, seed=seed)
        vectors = (moments_by_arm(ImbalancePenalty(factor / n), p=2),) if beside else ()
        squares = three_ways(Linear(1.0), factor, n)
        form = form_of(n, *squares, *vectors, dispersion=dispersion, cap=(9.0, 9.0))
        problem = DualProblem(form, records)
        assert problem.pairs is None
        found = problem.newton()
        exact = exact_weights(form, dispersion, records, found.weights)
        assert exact is not None
        apart = sum(abs(w - float(x)) for w, x in zip(exact, found.weights, strict=True))
        assert float(apart) <= found.claim
        assert found.claim <= 1e-11 * n * max(1.0, factor)


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("dispersion", ["entropy", "log", "logit"])
def test_a_tenth_of_what_arguments_are_off_is_seen(
    dispersion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims by own prices fail where arguments are said to be nearer than they are."""
    monkeypatch.setattr(pair_steps, "_WITHIN", 1e5)
    proved = InverseSlope.arguments_off

    def nearer(self: InverseSlope, *given: Array) -> Array:
        return 0.1 * proved(self, *given)

    monkeypatch.setattr(InverseSlope, "arguments_off", nearer)
    distances, claims = exactly(dispersion, range(40, 50))
    assert np.any(np.array(distances) > np.array(claims))


@pytest.mark.one_row_in(3)
@pytest.mark.parametrize("wrong", ["across", "own", "pulled"])
def test_wrong_products_are_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison with exact weights fails where one product is that of another record."""
    replaced = NeighboringPairs.replaced

    def mistaken(self: NeighboringPairs, index: Array, new: Records) -> ReplacedPairs:
        part = replaced(self, index, new)
        return common.replace(part, **{wrong: getattr(part, wrong) * (1.0 + 1e-6)})

    monkeypatch.setattr(NeighboringPairs, "replaced", mistaken)
    distances, claims = exactly("square", range(3))
    assert np.any(np.array(distances) > np.array(claims))


def test_an_arm_that_loses_its_last_record() -> None:
    records = records_of(N)
    only = Records.within(records.space, records.X, (np.arange(N) == 3).astype(int), records.y)
    form = form_of(N, *three_ways(Gaussian(1.0), 1.0, N), sums=sums_of(N)["public"])
    new = Records.within(records.space, records.X[:2], np.zeros(2, dtype=int), records.y[:2])
    index = np.array([3, 5])
    found = FormNeighbors(form, only).solve(index, new)
    assert math.isinf(found.claims[0])
    assert np.all(np.isnan(found.weights[0]))
    assert found.claims[1] <= 1e-10 * N
    with pytest.raises(InfeasibleError):
        single(form, only, index, new, 0)


def test_weights_in_chunks_are_those_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["entropy"]
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    whole = FormNeighbors(form, records).together(index, new)
    monkeypatch.setattr(common, "_LEAST", 5)
    monkeypatch.setattr(common, "_CHUNK", 5 * N)
    parts = FormNeighbors(form, records).together(index, new)
    apart = np.sum(np.abs(whole.weights - parts.weights), axis=1)
    assert np.all(apart <= whole.claims + parts.claims)


def test_neighbors_with_too_many_changes_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    records = records_of(N)
    index, new = drawn_neighbors(records, M)
    monkeypatch.setattr(pair_steps, "_MOST_CHANGED", 2)
    found = FormNeighbors(FORMS["cap 1.05"], records).together(index, new)
    left = np.isinf(found.claims)
    assert 0 < np.sum(left) < M
    assert np.all(np.isnan(found.weights[left]))
    assert np.all(found.claims[~left] <= 1e-10 * N)


def test_few_features_of_many_records_are_solved_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What neighbors by pairs share would cost more than some solves by few features."""
    records = records_of(N)
    features = form_of(N, *three_ways(Linear(1.0), 5.0, N))
    monkeypatch.setattr(common, "_MOST_BESIDE_FEATURES", N - 1)
    assert not FormNeighbors(features, records).usable
    assert FormNeighbors(FORMS["gaussian"], records).usable
