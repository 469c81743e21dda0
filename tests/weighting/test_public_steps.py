"""The public radius holds for every solve by public steps, and is known before any record."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.kernels import Energy, Gaussian
from dp2erm_cvx.weighting.bounds import public_radius
from dp2erm_cvx.weighting.bounds.constants import weighting_constants
from dp2erm_cvx.weighting.bounds.public_radius import StepConstants
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightingForm, WeightSums
from dp2erm_cvx.weighting.solving import certificate
from dp2erm_cvx.weighting.solving.dual import DualProblem
from dp2erm_cvx.weighting.solving.multipliers import met_sums
from tests.weighting.examples import (
    BOTH,
    CONTROL,
    DISPERSIONS,
    SIGNED,
    TREATED,
    base_of,
    form_of,
    imbalance,
    moments_by_arm,
    of_kernel,
    part,
    records_of,
    to_means_of_arms,
)

BOXES = {"logit": (0.1, 4.0), "log": (0.0, 3.0)}


def drawn_form(generator: np.random.Generator, n: int) -> WeightingForm:
    name = str(generator.choice(["square", "entropy", "log", "logit"]))
    low, cap = BOXES.get(name, (0.0, float(generator.choice([2.5, 20.0, math.inf]))))
    factor = 10.0 ** generator.uniform(-2, 0.7) / n
    kind = int(generator.integers(4))
    penalty = (
        ImbalancePenalty(factor),
        ImbalancePenalty(factor, tolerance=0.01 * n),
        ImbalancePenalty(factor, knee=0.02 * n),
        ImbalancePenalty(factor, tolerance=0.005 * n, knee=0.03 * n, norm=2),
    )[kind]
    sums = WeightSums(SumKind.COUNTS if generator.integers(2) else SumKind.ALL)
    base = None
    if name in ("square", "entropy") and generator.integers(2):
        base = base_of()
    ends = (low, low), (cap, cap)
    if sums.kind is SumKind.ALL:
        # boxes by arm, beside base weights as well, of which some end where a slope is infinite
        narrow = 1.0 + (min(cap, 10.0) - 1.0) * generator.uniform(0.01, 1.0)
        caps = (cap, narrow) if generator.integers(2) else (narrow, cap)
        floor = low + (1.0 - low) * float(generator.choice([0.0, 0.5]))
        ends = (low, floor), caps
    return form_of(
        n, moments_by_arm(penalty), dispersion=name, low=ends[0], cap=ends[1], sums=sums, base=base
    )


def form_to_means(generator: np.random.Generator, n: int) -> WeightingForm:
    """Controls, or all, balanced to the means of arms."""
    drawn = drawn_form(generator, n)
    mean = generator.uniform(-1.0, 1.0, 2)
    own = to_means_of_arms(
        drawn.imbalances[0].penalty, generator.uniform(0.2, 1.0, 2), mean, 0.1 * mean
    )
    to_means = replace(drawn, imbalances=(own,))
    if (
        drawn.base is None
        and drawn.dispersion.family in ("square", "entropy")
        and generator.random() < 0.7
    ):
        kind = (SumKind.CONTROLS, SumKind.TREATED)[int(generator.integers(2))]
        wide = np.array([n, n], float)
        return replace(to_means, sums=WeightSums(kind), low=np.zeros(2), cap=wide)
    return to_means


def solves(seed: int, count: int) -> list[tuple[float, float]]:
    """Claims of weights by public steps over the public radius, and their distances to Newton's."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        n = int(generator.choice([6, 20, 60]))
        form = drawn_form(generator, n)
        if generator.random() < 0.3:
            form = form_to_means(generator, n)
        constants = StepConstants.of(form)
        radius = public_radius.public_radius(form, constants)
        assert radius is not None
        records = records_of(n, seed=int(generator.integers(10_000)))
        problem = DualProblem(form, records)
        by_steps = problem.by_public_steps(constants)
        newton = problem.newton()
        apart = float(np.sum(np.abs(by_steps.weights - newton.weights)))
        found.append((apart / (radius + newton.claim), radius / n))
    return found


@pytest.mark.slow
def test_the_public_radius_holds() -> None:
    found = solves(1, 120)
    assert max(ratio for ratio, _ in found) <= 1.0
    assert np.median([radius for _, radius in found]) <= 1e-8


@pytest.mark.parametrize("name", ["entropy", "log", "logit"])
def test_multipliers_of_boxes_by_arm_are_within_their_public_bound(name: str) -> None:
    """At the ends of the share of an arm, where the bracket is as near to an infinite slope as it
    comes.
    """
    n = 40
    low, cap = BOXES.get(name, (0.0, 2.5))
    form = form_of(
        n,
        moments_by_arm(ImbalancePenalty(1.0 / n)),
        dispersion=name,
        low=(low, low),
        cap=(1.0 + 1e-3, cap),
    )
    steepest = public_radius._steepest_slope(form)
    assert steepest is not None
    largest = 0.0
    for n_treated in (0, 1, 20, n - 1, n):
        arms = (np.arange(n) < n_treated).astype(np.int64)
        caps = form.cap[arms]
        share = n * (1.0 - low) / float(np.sum(caps - low))
        bracket = low + share * (caps - low)
        assert np.mean(bracket) == pytest.approx(1.0)
        inside = bracket[(bracket > low) & (bracket < form.dispersion.ends[1])]
        largest = max(largest, float(np.max(np.abs(form.dispersion.slope(inside)))))
    assert largest <= steepest
    assert largest > 0.3 * steepest


@pytest.mark.slow
def test_the_public_radius_holds_two_thousand_times() -> None:
    assert max(ratio for ratio, _ in solves(2, 2000)) <= 1.0


def power(exponent: float, factor: float = 1.0, offset: float = 0.0) -> Dispersion:
    return Dispersion((DispersionPart("power", 0.7, factor, offset, exponent),))


SQUARES = DispersionPart("square", 0.1)
#: Squares beside logarithms that are infinite at a weight of 5.
FALLING_LOG = Dispersion((DispersionPart("square", 0.5), DispersionPart("log", 0.3, -1.0, 5.0)))
#: Dispersions with their boxes: powers have a formula, the others end in brackets.
CURVES: dict[str, tuple[Dispersion, float, float]] = {
    "squares and logarithms that end at 5": (FALLING_LOG, 0.0, 3.0),
    "power 1.5": (power(1.5), 0.0, math.inf),
    "power 1.1": (power(1.1), 0.0, 3.0),
    "power 1.5 of 2 w + 0.3": (power(1.5, 2.0, 0.3), 0.0, 3.0),
    "power 3 from a floor": (power(3.0), 0.1, 3.0),
    "power 10 from a floor": (power(10.0), 0.5, 1.5),
    "power -1": (power(-1.0), 0.0, 3.0),
    "power -12": (power(-12.0), 0.5, 1.5),
    "root": (power(0.5), 0.0, 3.0),
    "squares and logarithms": (DISPERSIONS["mixed"], 0.0, 3.0),
    "squares and sizes": (DISPERSIONS["kinked"], 0.0, 3.0),
    "squares and Huber functions": (
        Dispersion((DispersionPart("square", 0.1), DispersionPart("huber", 0.5, 1.0, -1.0, 0.2))),
        0.0,
        math.inf,
    ),
    "powers and entropies": (
        Dispersion((DispersionPart("power", 0.3, 1.0, 0.0, 3.0), DispersionPart("entropy", 1.0))),
        0.0,
        4.0,
    ),
    "logarithms and roots of sums": (
        Dispersion(
            (
                DispersionPart("log", 0.3, 2.0, 0.1),
                DispersionPart("power", 0.2, 1.0, 0.5, 0.5),
                SQUARES,
            )
        ),
        0.0,
        4.0,
    ),
}


@pytest.mark.one_row_in(28)
@pytest.mark.parametrize(
    "kind", [SumKind.ALL, pytest.param(SumKind.COUNTS, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", CURVES)
def test_every_curve_reaches_its_public_radius(name: str, kind: SumKind) -> None:
    n = 40
    dispersion, low, cap = CURVES[name]
    form = form_of(
        n,
        moments_by_arm(ImbalancePenalty(1 / n)),
        dispersion=dispersion,
        low=(low, low),
        cap=(cap, cap),
        sums=WeightSums(kind),
    )
    constants = StepConstants.of(form)
    radius = public_radius.public_radius(form, constants)
    assert radius is not None
    assert radius <= 1e-6 * n
    for seed in range(2):
        problem = DualProblem(form, records_of(n, seed=seed))
        newton = problem.newton()
        apart = np.sum(np.abs(problem.by_public_steps(constants).weights - newton.weights))
        assert apart <= radius + newton.claim
        assert newton.claim <= 1e-9 * n


def test_powers_have_a_radius_where_their_slope_is_finite() -> None:
    """Under public sums and unequal caps a multiplier is bounded by slopes at 0, which roots do not
    have.
    """
    n = 40
    by_arm = WeightSums(SumKind.PUBLIC, (20.0, 20.0))
    for sums, exponent, stated in (
        (by_arm, 1.5, True),
        (by_arm, 0.5, False),
        (WeightSums(SumKind.ALL), 0.5, True),
    ):
        form = form_of(
            n,
            moments_by_arm(ImbalancePenalty(1 / n)),
            dispersion=power(exponent),
            cap=(6.0, 3.0),
            sums=sums,
        )
        radius = public_radius.public_radius(form, StepConstants.of(form))
        assert (radius is not None) is stated


def test_a_line_is_not_hidden_by_the_slope_of_a_power_at_weights_of_nothing() -> None:
    """Computed slopes of powers near 1 are above 0 at 0, where their exact slope is 0."""
    parts = (DispersionPart("power", 1.0, 1.0, 0.0, 1.01), DispersionPart("line", -1e-3))
    dispersion = Dispersion(parts)
    assert abs(float(dispersion.slope(np.array(0.0)))) < 2e-4
    assert public_radius._slope_size(dispersion, 0.0) >= 1e-3


def test_too_few_steps_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of the steps leaves more than the radius of all."""
    form = form_of(60, moments_by_arm(ImbalancePenalty(20 / 60)), dispersion="entropy")
    constants = StepConstants.of(form)
    radius = public_radius.public_radius(form, constants)
    assert radius is not None
    steps = public_radius.public_steps(form, constants)
    monkeypatch.setattr(
        "dp2erm_cvx.weighting.solving.dual.public_steps", lambda *given: steps // 16
    )
    problem = DualProblem(form, records_of(60))
    apart = problem.by_public_steps(constants).weights - problem.newton().weights
    assert np.sum(np.abs(apart)) > radius


def mmd(n: int, kernel, ridge: float, sums: WeightSums, cap: float = math.inf) -> WeightingForm:
    features = of_kernel(kernel)
    half = BOTH / 2
    squares = ImbalancePenalty(0.5)
    imbalances = [
        imbalance(squares, part(features, CONTROL, half)),
        imbalance(squares, part(features, TREATED, half)),
        imbalance(squares, part(features, SIGNED, 0 * half)),
    ]
    dispersion = Dispersion((DispersionPart("square", n * ridge),))
    return form_of(n, *imbalances, dispersion=dispersion, cap=(cap, cap), sums=sums)


POOLED = WeightSums(SumKind.ALL)


@pytest.mark.parametrize(("kernel", "p"), [(Gaussian(), 1), (Gaussian(), 3), (Energy(), 2)])
def test_kernels_by_public_steps(kernel, p: int) -> None:
    """Features where they are few, pairs of records where they are not."""
    n = 240
    form = mmd(n, kernel, 1.0, POOLED)
    constants = StepConstants.of(form, 256.0)
    radius = public_radius.public_radius(form, constants)
    problem = DualProblem(form, records_of(n, p))
    assert problem.data.by_pairs is not (p == 1)
    by_steps = problem.by_public_steps(constants)
    newton = problem.newton()
    assert radius is not None
    assert radius <= 1e-8 * n
    assert np.sum(np.abs(by_steps.weights - newton.weights)) <= radius + newton.claim
    assert newton.claim <= 1e-9 * n


def test_features_and_pairs_of_one_kernel_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 200
    sums = WeightSums(SumKind.PUBLIC, (n / 2, n / 2))
    form = mmd(n, Gaussian(), 0.1, sums, cap=3.0)
    records = records_of(n, 1)
    by_features = DualProblem(form, records)
    assert not by_features.data.by_pairs
    monkeypatch.setattr("dp2erm_cvx.weighting.solving.dataset.few_features", lambda *given: None)
    by_pairs = DualProblem(form, records)
    assert by_pairs.data.by_pairs
    first, second = by_features.newton(), by_pairs.newton()
    apart = np.sum(np.abs(first.weights - second.weights))
    assert apart <= first.claim + second.claim
    assert apart <= 1e-12 * n


def test_no_radius_is_stated_without_a_proof() -> None:
    n = 50
    kink = ImbalancePenalty(math.inf, price=0.1)
    hard = ImbalancePenalty(math.inf, price=math.inf, tolerance=0.1 * n)
    squares = ImbalancePenalty(1 / n)
    unproved = [
        form_of(n, moments_by_arm(kink)),
        form_of(n, moments_by_arm(hard)),
        form_of(n, moments_by_arm(squares), dispersion=FALLING_LOG, cap=(6.0, 6.0)),
        form_of(
            n, moments_by_arm(squares), dispersion=power(200.0), low=(0.1, 0.1), cap=(3.0, 3.0)
        ),
        form_of(n, moments_by_arm(squares), dispersion=power(3.0), cap=(3.0, 3.0)),
        mmd(20_000, Gaussian(), 1.0, POOLED),
    ]
    for form in unproved:
        assert public_radius.public_radius(form, StepConstants.of(form, 256.0)) is None
    assert FALLING_LOG.family == "general"
    # Nearly hard balance has a radius that is of no use, and it is said as it is.
    steep = form_of(n, moments_by_arm(ImbalancePenalty(1e5 / n)))
    radius = public_radius.public_radius(steep, StepConstants.of(steep))
    assert radius is None or radius > 1e-4 * n
    assert certificate.squared_gain(1.0, 100.0) == 0.25


def test_sharper_constants_need_fewer_steps() -> None:
    """Those of the stability know that rows and targets of a record go together."""
    n = 80
    form = form_of(n, moments_by_arm(ImbalancePenalty(5 / n)), dispersion="entropy", cap=(3.0, 3.0))
    plain = StepConstants.of(form)
    sharp = plain.sharpened(form, weighting_constants(form, (1, 1), False))
    assert sharp.diameter <= plain.diameter
    assert public_radius.public_steps(form, sharp) < public_radius.public_steps(form, plain)
    radius = public_radius.public_radius(form, sharp)
    wide = public_radius.public_radius(form, plain)
    assert radius is not None
    assert wide is not None
    assert radius < wide
    for seed in range(3):
        problem = DualProblem(form, records_of(n, seed=seed))
        newton = problem.newton()
        apart = np.sum(np.abs(problem.by_public_steps(sharp).weights - newton.weights))
        assert apart <= radius + newton.claim
        rows = problem.data.rows * np.sqrt(problem.data.smoothness)
        assert np.max(np.linalg.norm(rows, axis=1)) <= sharp.row
        assert np.max(np.linalg.norm(rows[:, None] - rows[None, :], axis=2)) <= sharp.diameter


def test_the_response_of_steps_is_that_of_all_prices_on_their_way() -> None:
    """Weights on the way may be larger than those of any solution, at which a logarithm answers
    more.
    """
    n = 40
    form = form_of(n, moments_by_arm(ImbalancePenalty(0.2 / n)), dispersion="log", low=(0.0, 0.0))
    bounds = weighting_constants(form, (1, 1), False)
    sharp = StepConstants.of(form).sharpened(form, bounds)
    data = DualProblem(form, records_of(n)).data
    heavy = data.rows[0] - np.mean(data.rows, axis=0)
    size = np.linalg.norm(heavy / np.sqrt(data.smoothness))
    # Theorem 34 bounds prices by three times the largest imbalance
    prices = -3.0 * sharp.largest_imbalance * heavy / size
    weights = met_sums(data, -(data.rows @ prices), np.zeros(1))[0]
    assert np.max(weights) > 1.5 * max(bounds.largest)
    mean_response = np.mean(np.square(weights))
    assert bounds.response < mean_response <= sharp.response


@pytest.mark.parametrize(
    "penalty", [ImbalancePenalty(1.0, knee=0.2), ImbalancePenalty(1.0, tolerance=0.1)]
)
def test_prices_that_are_no_squares_are_refused_beside_a_kernel(penalty: ImbalancePenalty) -> None:
    """Pairs of records do not serve them: datasets of many features would have no weights, others
    would.
    """
    squares = imbalance(ImbalancePenalty(0.1), part(of_kernel(Gaussian(0.3)), BOTH, 0.5 * BOTH))
    form = form_of(60, squares, moments_by_arm(penalty))
    many = records_of(60)
    few = replace(many, X=np.tile(many.X[0], (60, 1)))
    with pytest.raises(DeclarationError, match="no square, beside features of a kernel"):
        public_radius.public_radius(form, StepConstants.of(form, 40.0))
    for records in (few, many):
        with pytest.raises(DeclarationError, match="no square, beside features of a kernel"):
            DualProblem(form, records)
