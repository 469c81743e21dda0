"""Claims away from the solution, where no exact weights are known: distances to weights by
Newton.
"""

import math

import numpy as np
import pytest

from dp2erm_cvx.program.kernels import Energy, Gaussian
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightingForm, WeightSums
from dp2erm_cvx.weighting.solving.certificate import Point, certified_distance
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting import examples
from tests.weighting.examples import (
    ALL,
    BOTH,
    SIGNED,
    base_of,
    covariates,
    form_of,
    imbalance,
    moments_by_arm,
    of_kernel,
    part,
    records_of,
)

N = 90
SQUARES = ImbalancePenalty(5 / N)


def with_linear(form: WeightingForm) -> WeightingForm:
    rows = examples.FeatureRows(covariates(), np.array([[0.5, -0.2, 0.1]]), BOTH, 0 * BOTH)
    return WeightingForm(**{**vars(form), "linear": rows})


def base_form(dispersion: str) -> WeightingForm:
    return form_of(
        N, moments_by_arm(SQUARES), dispersion=dispersion, cap=(5.0, 5.0), base=base_of()
    )


COUNTED = WeightSums(SumKind.COUNTS)
FORMS = {
    "base, entropy": base_form("entropy"),
    "base, square": base_form("square"),
    "linear": with_linear(form_of(N, moments_by_arm(SQUARES), sums=COUNTED)),
    "linear, base": with_linear(base_form("entropy")),
    "1-norm": form_of(
        N, moments_by_arm(ImbalancePenalty(math.inf, price=0.05)), dispersion="entropy"
    ),
    "norm": form_of(N, moments_by_arm(ImbalancePenalty(math.inf, price=0.2, norm=2)), sums=COUNTED),
    "norm beside squares": form_of(
        N,
        moments_by_arm(SQUARES),
        imbalance(
            ImbalancePenalty(math.inf, price=0.2, norm=2), part(covariates(), SIGNED, 0 * BOTH)
        ),
    ),
    "kinked dispersion": form_of(N, moments_by_arm(SQUARES), dispersion="kinked", cap=(2.5, 2.5)),
    "power": form_of(N, moments_by_arm(SQUARES), dispersion="power", sums=COUNTED),
    "treated": form_of(
        N,
        moments_by_arm(SQUARES),
        low=(0.0, 1.0),
        cap=(math.inf, 1.0),
        sums=WeightSums(SumKind.TREATED),
        dispersion="entropy",
    ),
}


@pytest.mark.one_row_in(4)
@pytest.mark.parametrize("name", FORMS)
def test_weights_and_claims_at_points_away_from_the_solution(name: str) -> None:
    form = FORMS[name]
    records = records_of(N)
    problem = DualProblem(form, records)
    solution = problem.newton()
    reference = examples.Reference(form, records).weights()
    close = 1e-6 if name in ("norm", "norm beside squares", "power") else 1e-9
    assert np.sum(np.abs(solution.weights - reference)) <= close * N
    assert solution.claim <= (1e-6 if "norm" in name else 1e-10) * N
    generator = np.random.default_rng(3)
    data = problem.data
    size = len(solution.prices)
    for _ in range(20):
        scale = 10.0 ** generator.uniform(-12, 0)
        y = (solution.weights @ data.rows - data.targets) * (
            1.0 + scale * generator.normal(size=size)
        )
        given = solution.prices * (1.0 + scale * generator.normal(size=size))
        prices = given.copy()
        for one in data.priced:
            smooth = math.isfinite(one.penalty.factor)
            if smooth:
                y[one.columns] = given[one.columns] / one.penalty.smoothness
            prices[one.columns] = one.price(y[one.columns], given[one.columns])
        moved = solution.multipliers * (
            1.0 + scale * generator.normal(size=len(solution.multipliers))
        )
        weights, claim = certified_distance(data, Point(y, prices, moved))
        assert np.sum(np.abs(weights - solution.weights)) <= claim + solution.claim


@pytest.mark.parametrize(("kernel", "p"), [(Gaussian(), 1), (Energy(), 3)])
def test_claims_of_kernels_away_from_the_solution(kernel, p: int) -> None:
    features = of_kernel(kernel)
    squares = ImbalancePenalty(0.5)
    balance = imbalance(squares, part(features, SIGNED, 0 * BOTH))
    beside = imbalance(ImbalancePenalty(0.1), part(covariates(p), BOTH, BOTH))
    dispersion = examples.Dispersion((examples.DispersionPart("square", 0.1 * N),))
    form = form_of(N, balance, beside, dispersion=dispersion, sums=ALL)
    problem = DualProblem(form, records_of(N, p))
    solution = problem.newton()
    assert solution.claim <= 1e-9 * N
    generator = np.random.default_rng(4)
    assert (problem.pairs is None) is (p == 1)
    for _ in range(20):
        scale = 10.0 ** generator.uniform(-12, 0)
        prices = solution.prices * (1.0 + scale * generator.normal(size=len(solution.prices)))
        moved = solution.multipliers * (1.0 + scale * generator.normal(size=1))
        if problem.pairs is None:
            point = Point(prices / problem.data.smoothness, prices, moved)
            weights, claim = certified_distance(problem.data, point)
        else:
            weights, claim = problem.pairs.certified(prices, moved)
        assert np.sum(np.abs(weights - solution.weights)) <= claim + solution.claim
