"""Forms of the programs of the library have the weights that the library finds for the programs."""

import math

import numpy as np
import pytest

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing
from dp2erm_cvx.problems.mmd import energy_balancing, mmd, mmd_pooled
from dp2erm_cvx.problems.stable_balancing import stable_balancing
from dp2erm_cvx.program.kernels import Energy, Gaussian, Kernel
from dp2erm_cvx.solve import solve
from dp2erm_cvx.weighting.forms.features import ConstantSet, Features
from dp2erm_cvx.weighting.forms.form import (
    Imbalance,
    ImbalancePenalty,
    SumKind,
    WeightingForm,
    WeightSums,
)
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting.examples import (
    ALL,
    BOTH,
    CONTROL,
    DISPERSIONS,
    SIGNED,
    TREATED,
    covariates,
    form_of,
    imbalance,
    of_kernel,
    part,
    records_of,
)

N = 150


def squares_of(n: int, features: list[Features], alpha: float) -> list[Imbalance]:
    """``alpha (|F_0'w - t|^2 + |F_1'w - t|^2) + (1 - alpha) |F_0'w - F_1'w|^2`` with t half of the
    sums.
    """
    half = BOTH / 2
    found = [
        imbalance(ImbalancePenalty(alpha), *(part(one, arm, half) for one in features))
        for arm in (CONTROL, TREATED)
    ]
    if alpha < 1:
        apart = (part(one, SIGNED, 0 * half) for one in features)
        found.append(imbalance(ImbalancePenalty(1 - alpha), *apart))
    return found


def with_constant(value: float) -> list[Features]:
    """The constant, as it is in balance functions, and the covariates."""

    def of(records: Records) -> Array:
        return np.full((len(records.a), 1), value)

    return [Features("scaled constant", ConstantSet(), 1, of), covariates()]


def kernel_form(
    kernel: Kernel, ridge: float, sums: WeightSums, cap: float = math.inf
) -> WeightingForm:
    """Squares n ridge |w|^2 beside those of a kernel; per arm the program has v = 2 w, a quarter of
    all.
    """
    dispersion = Dispersion((DispersionPart("square", N * ridge),))
    imbalances = squares_of(N, [of_kernel(kernel)], 0.5)
    return form_of(N, *imbalances, dispersion=dispersion, sums=sums, cap=(cap, cap))


def halves() -> WeightSums:
    return WeightSums(SumKind.PUBLIC, (N / 2, N / 2))


def moments_form(ridge: float, constant: float) -> WeightingForm:
    dispersion = Dispersion((DispersionPart("square", N * ridge),))
    return form_of(N, *squares_of(N, with_constant(constant), 1.0), dispersion=dispersion)


def entropy_form(ridge: float, radius: float, constant: float) -> WeightingForm:
    """``n huber(|m / n|, ridge radius) / (2 ridge)``, the primal of ridge and ball."""
    knee = N * ridge * radius
    penalty = ImbalancePenalty(1.0 / (2.0 * ridge * N), knee=knee, norm=2)
    half = BOTH / 2
    features = with_constant(constant)
    rows = [part(one, arm, half) for arm in (CONTROL, TREATED) for one in features]
    return form_of(N, imbalance(penalty, *rows), dispersion=DISPERSIONS["entropy"], sums=ALL)


PROGRAMS = {
    "entropy": (
        entropy_balancing(ridge=2.0, constant=1.0),
        lambda: entropy_form(2.0, math.inf, 1.0),
    ),
    "entropy, small ridge": (
        entropy_balancing(ridge=0.1, constant=1.0),
        lambda: entropy_form(0.1, math.inf, 1.0),
    ),
    "entropy, ball": (
        entropy_balancing(ridge=0.1, constant=1.0, radius=0.5),
        lambda: entropy_form(0.1, 0.5, 1.0),
    ),
    "stable": (stable_balancing(ridge=2.0, constant=1.0), lambda: moments_form(2.0, 1.0)),
    "stable, small ridge": (
        stable_balancing(ridge=0.1, constant=1.0),
        lambda: moments_form(0.1, 1.0),
    ),
    "mmd pooled": (mmd_pooled(ridge=1.0), lambda: kernel_form(Gaussian(), 1.0, ALL)),
    "mmd": (mmd(ridge=1.0), lambda: kernel_form(Gaussian(), 1.0, halves())),
    "mmd, cap": (mmd(ridge=0.3, cap=3.0), lambda: kernel_form(Gaussian(), 0.3, halves(), 3.0)),
    "energy": (energy_balancing(ridge=2.0), lambda: kernel_form(Energy(), 2.0, halves())),
}


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_weights_are_those_of_the_program(name: str) -> None:
    program, make = PROGRAMS[name]
    records = records_of(N)
    shipped = solve(program.instance(records)).value
    solution = DualProblem(make(), records).newton()
    assert np.sum(np.abs(solution.weights - shipped)) <= 1e-9 * N
    assert solution.claim <= 1e-10 * N
