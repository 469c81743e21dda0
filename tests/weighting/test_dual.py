"""Weights by the dual are those of CVXPY, and the certificate says how far they may be off."""

import math

import numpy as np
import pytest

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightingForm, WeightSums
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting import examples
from tests.weighting.examples import form_of, moments_by_arm, records_of

N = 120
PENALTIES = {
    "squares": ImbalancePenalty(5 / N),
    "tolerance": ImbalancePenalty(5 / N, tolerance=0.02 * N),
    "huber": ImbalancePenalty(50 / N, knee=0.005 * N),
    "ball": ImbalancePenalty(50 / N, knee=0.02 * N, norm=2),
    "norm beyond a tolerance": ImbalancePenalty(50 / N, tolerance=0.01 * N, norm=2),
    "1-norm": ImbalancePenalty(math.inf, price=0.05),
    "norm": ImbalancePenalty(math.inf, price=0.2, norm=2),
    "constraint": ImbalancePenalty(math.inf, price=math.inf, tolerance=0.03 * N),
}
BOXES = {"logit": (0.1, 4.0), "log": (0.0, 3.0), "mixed": (0.0, 3.0)}


def form_with(dispersion: str, penalty: ImbalancePenalty, n: int = N) -> WeightingForm:
    low, cap = BOXES.get(dispersion, (0.0, math.inf))
    return form_of(
        n, moments_by_arm(penalty), dispersion=dispersion, low=(low, low), cap=(cap, cap)
    )


@pytest.mark.one_row_in(18)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("dispersion", ["square", "entropy", "log", "logit", "mixed"])
def test_weights_are_those_of_cvxpy(dispersion: str, penalty: str) -> None:
    form = form_with(dispersion, PENALTIES[penalty])
    records = records_of(N)
    solution = DualProblem(form, records).newton()
    # Clarabel loses half of the digits where a cone touches its boundary.
    close = 1e-6 if PENALTIES[penalty].norm == 2 else 1e-9
    apart = np.sum(np.abs(solution.weights - examples.Reference(form, records).weights()))
    assert apart <= close * N
    if PENALTIES[penalty].hard:
        assert math.isinf(solution.claim)
        assert solution.residual.largest <= 1e-10
    else:
        assert solution.claim <= (1e-6 if PENALTIES[penalty].kinked else 5e-12) * N


KINKS = {
    "1-norm": ImbalancePenalty(math.inf, price=5.0),
    "norm": ImbalancePenalty(math.inf, price=5.0, norm=2),
    "largest entry": ImbalancePenalty(math.inf, price=5.0, norm=math.inf),
}


@pytest.mark.one_row_in(6)
@pytest.mark.parametrize("kink", KINKS)
@pytest.mark.parametrize("seed", range(6))
def test_kinks_are_certified_where_records_repeat(kink: str, seed: int) -> None:
    """Steps that jump between kinks go round in circles there, and no weight answers to some
    prices.
    """
    rng = np.random.default_rng(seed)
    n = 12
    kinds = rng.normal(size=(2, 3)) * rng.choice([0.01, 2.0], size=(2, 1))
    covariates = rng.choice([-1.0, 1.0], (n, 1)) * kinds[rng.integers(0, 2, n)]
    records = Domain(1.0, 1.0).records(covariates, rng.integers(0, 2, n), np.zeros(n))
    form = form_of(n, moments_by_arm(KINKS[kink]), low=(0.0, 0.0), cap=(5.0, 5.0))
    assert DualProblem(form, records).newton().claim <= 1e-5 * n


SUMS = {
    "all": WeightSums(SumKind.ALL),
    "public": WeightSums(SumKind.PUBLIC, (0.45 * N, 0.55 * N)),
    "counts": WeightSums(SumKind.COUNTS),
    "controls": WeightSums(SumKind.CONTROLS),
    "treated": WeightSums(SumKind.TREATED),
}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("kind", SUMS)
@pytest.mark.parametrize("dispersion", ["square", "entropy"])
def test_weights_with_sums_and_boxes_by_arm_are_those_of_cvxpy(dispersion: str, kind: str) -> None:
    """Every kind of sum, with boxes that differ by arm."""
    low, cap = (0.1, 0.3), (4.0, 3.0)
    if kind == "controls":
        low, cap = (0.0, 0.0), (math.inf, 0.0)
    if kind == "treated":
        low, cap = (0.0, 1.0), (math.inf, 1.0)
    imbalance = moments_by_arm(ImbalancePenalty(5 / N))
    form = form_of(N, imbalance, dispersion=dispersion, low=low, cap=cap, sums=SUMS[kind])
    records = records_of(N)
    solution = DualProblem(form, records).newton()
    reference = examples.Reference(form, records).weights()
    assert np.sum(np.abs(solution.weights - reference)) <= 1e-9 * N
    assert solution.claim <= 1e-10 * N


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("penalty", ["squares", "tolerance", "ball", "norm", "constraint"])
@pytest.mark.parametrize("kind", ["all", "controls", "treated", "counts"])
def test_means_of_arms_are_targets(kind: str, penalty: str) -> None:
    """Controls, or all, are balanced to the mean of the treated less a tenth of that of the
    controls.
    """
    own = PENALTIES[penalty]
    weighted = examples.BOTH if kind in ("all", "counts") else 2.0 * examples.CONTROL
    factor = 0.5 if kind == "treated" else 1.0
    mean = factor * np.array([-0.1, 1.0])
    imbalance = examples.to_means_of_arms(own, weighted, mean, target=np.array([0.02, -0.03]))
    # Clarabel loses half of the digits of entropies of weights that are fixed at 0.
    dispersion = "square" if kind == "controls" else "entropy"
    form = form_of(N, imbalance, dispersion=dispersion, sums=SUMS[kind])
    records = records_of(N)
    solution = DualProblem(form, records).newton()
    close = 1e-6 if own.norm == 2 else 1e-9
    apart = np.sum(np.abs(solution.weights - examples.Reference(form, records).weights()))
    assert apart <= close * N
    if own.hard:
        assert solution.residual.largest <= 1e-10
    else:
        assert solution.claim <= (1e-6 if own.kinked else 1e-11) * N


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("dispersion", ["square", "entropy"])
@pytest.mark.parametrize("kind", ["all", "public", "counts"])
def test_boxes_of_single_records_bind_as_they_are_written(kind: str, dispersion: str) -> None:
    """Caps of 1.1 to 1.6 bind for many, floors of 0 to .9 for some."""
    ends = {"low_of": examples.end_of(0.0, 0.9), "cap_of": examples.end_of(0.55, 0.8, 2.0)}
    hull = {"low": (0.0, 0.0), "cap": (1.6, 1.6)}
    imbalance = moments_by_arm(ImbalancePenalty(50 / N))
    sums = SUMS["counts" if kind == "public" else kind]
    if kind == "public":
        sums = WeightSums(SumKind.PUBLIC, (0.5 * N, 0.5 * N))
    form = form_of(N, imbalance, dispersion=dispersion, sums=sums, **hull, **ends)
    records = records_of(N)
    solution = DualProblem(form, records).newton()
    first = records.covariates[:, 0]
    caps = 2.0 * np.clip(0.675 + 0.25 * first, 0.55, 0.8)
    floors = np.clip(0.45 + 0.9 * first, 0.0, 0.9)
    assert np.all(solution.weights <= caps * (1.0 + 1e-12))
    assert np.all(solution.weights >= floors * (1.0 - 1e-12))
    assert np.sum(solution.weights > caps - 1e-9) >= 5
    assert (
        np.sum(np.abs(solution.weights - examples.Reference(form, records).weights())) <= 2e-9 * N
    )
    assert solution.claim <= 1e-10 * N
