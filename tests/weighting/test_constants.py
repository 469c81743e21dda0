"""Constants and V of known schemes, and what is refused."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.errors import CalibrationError, DeclarationError, InfeasibleError
from dp2erm_cvx.weighting.bounds import constants
from dp2erm_cvx.weighting.bounds.constants import spread_factor, weighting_constants
from dp2erm_cvx.weighting.forms.features import Features, IntervalSet
from dp2erm_cvx.weighting.forms.form import ImbalancePenalty, SumKind, WeightingForm, WeightSums
from dp2erm_cvx.weighting.solving.dual import DualProblem
from tests.weighting import examples, forms

CONTROLS = WeightSums(SumKind.CONTROLS)
TREATED = WeightSums(SumKind.TREATED)


def stability(
    form: WeightingForm, floors: tuple[int, int] = (0, 0), *, keeps: bool = False
) -> float:
    return weighting_constants(form, floors, keeps).V


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(
    ("form", "floor", "V"),
    [
        (forms.entropy_balancing(), 0, 7.15),
        (forms.entropy_balancing(ridge=0.1, cap=3.0), 0, 15.5),
        (forms.entropy_balancing(300, ridge=0.1, radius=0.5), 0, 14.0),
        (forms.stable_balancing(), 0, 5.32),
        (forms.stable_balancing(300, ridge=0.1), 0, 96.2),
        (forms.mmd_pooled(), 0, 7.10),
        (forms.mmd(), 100, 10.11),
        (forms.mmd(ridge=0.3, cap=3.0), 134, 16.35),
        (forms.logit_calibration(), 0, 13.7),
        (forms.minimal_dispersion(), 0, 20.65),
    ],
    ids=[
        "entropy balancing",
        "entropy balancing, cap 3",
        "entropy balancing in a ball",
        "stable balancing",
        "stable balancing, ridge .1",
        "MMD pooled",
        "MMD by arm",
        "MMD by arm, cap 3",
        "logit calibration",
        "tolerance",
    ],
)
def test_stability_of_known_schemes(form: WeightingForm, floor: int, V: float) -> None:
    found = stability(form, (floor, floor))
    assert 0.98 * V <= found <= 1.001 * V


def test_a_bound_that_is_no_number_is_the_trivial_one(monkeypatch: pytest.MonkeyPatch) -> None:
    form = forms.entropy_balancing()
    with monkeypatch.context() as patched:
        patched.setattr(constants, "_bound_of_box", lambda *_: math.nan)
        assert stability(form) == 2.0 * form.n
    # of several corners the last one
    total = constants._PairKind.total
    seen = []

    def planted(*of: Any) -> float:
        seen.append(of)
        return math.nan if len(seen) % 2 == 0 else total(*of)

    monkeypatch.setattr(constants._PairKind, "total", planted)
    assert stability(form) == 2.0 * form.n


def test_a_kink_with_a_cap_by_hand() -> None:
    """|w - 1|^2 + rho |sum w x|, cap 3: 2 W + sqrt(n R Gamma W D), where W <= 1 + rho D / 2 as
    well.
    """
    n, R, D = 400, 0.5, 2.0
    for rho, W in ((1.0, 2.0), (2.0, 3.0), (10.0, 3.0)):
        found = stability(forms.robust(n, rho=rho))
        assert found == pytest.approx(2 * W + math.sqrt(n * R * 2 * rho * W * D), rel=2e-3)


@pytest.mark.parametrize("W", [1.0, 1.5, 3.0])
def test_kappa_of_rows_by_arm(W: float) -> None:
    """Rows e_a (x) (c_0, x) with targets (g, g)/2: the closed forms of the page, for the cap W."""
    c, G_x = 0.7, 1.3
    G = math.hypot(c, G_x)
    groups = forms.by_arm([(forms.ONE, c), (forms.ball(G_x), 1.0)])
    # Rows are scaled by sqrt(n * 2 * factor) = 10.
    form = forms.form(50, forms.SQUARE, [forms.imbalance(groups, ImbalancePenalty(1.0))], cap=W)
    constants = weighting_constants(form, (0, 0), keeps_treatment=False)
    u = min(1.0, W / (2.0 * W - 2.0)) if W > 1.0 else 1.0
    both = max(2.0 * G_x * math.hypot(W - 0.5, 0.5), math.sqrt(2.0) * G * W)
    one = max(
        4.0 * W**2 * G_x**2,
        2.0 * W**2 * c**2 + G_x**2 * (2.0 * W**2 + 2.0 * W * u - (2.0 * W - 2.0) * u**2),
    )
    assert constants.largest == pytest.approx((W, W))
    kappa = max(pair.kappa for pair in constants.pairs)
    assert kappa / 10.0 == pytest.approx(max(both, math.sqrt(one)), rel=1e-6)
    assert constants.diameter / 10.0 == pytest.approx(max(2.0 * G_x, math.sqrt(2.0) * G), rel=1e-8)
    assert constants.target_diameter / 10.0 == pytest.approx(math.sqrt(2.0) * G_x, rel=1e-8)
    assert constants.row_bound / 10.0 == pytest.approx(G, rel=1e-8)


def test_the_factor_of_the_spread_by_hand() -> None:
    assert spread_factor(1.0, 2.0) == 0.25
    assert spread_factor(1.0, 100.0) == 0.25
    assert spread_factor(2.0, 0.0) == 0.0
    assert spread_factor(2.0, 1.0) == pytest.approx(2.0 * 0.5 / 1.5**2)


def test_a_hard_constraint_has_the_trivial_bound() -> None:
    groups = forms.by_arm([(forms.ball(1.0), 1.0)])
    form = forms.form(
        50, forms.SQUARE, [forms.imbalance(groups, ImbalancePenalty(math.inf, price=math.inf))]
    )
    constants = weighting_constants(form, (0, 0), keeps_treatment=False)
    assert constants.V == 100.0
    assert "2n" in constants.limits


def test_a_flat_dispersion_has_the_trivial_bound() -> None:
    groups = forms.by_arm([(forms.ball(1.0), 1.0)])
    cubic = forms.Dispersion((forms.DispersionPart("power", 1.0, number=3.0),))
    constants = weighting_constants(
        forms.form(50, cubic, [forms.imbalance(groups, ImbalancePenalty(1.0))], cap=3.0),
        (0, 0),
        False,
    )
    assert constants.V == 100.0
    assert "flat" in constants.limits


def test_a_cap_of_1_leaves_weights_of_1() -> None:
    form = forms.entropy_balancing(60, ridge=0.1, cap=1.0)
    assert stability(form) == 2.0


def test_keeping_the_treatment_is_no_larger() -> None:
    for form, floors in ((forms.mmd(), (100, 100)), (forms.entropy_balancing(), (0, 0))):
        assert stability(form, floors, keeps=True) < stability(form, floors)
    # With floors that leave one split no record can change its arm.
    tight = forms.mmd(400)
    assert stability(tight, (200, 200)) == stability(tight, (200, 200), keeps=True)


@pytest.mark.parametrize(
    ("form", "floors", "message"),
    [
        (forms.mmd(), (0, 100), "controls have the sum 200"),
        (forms.mmd(cap=1.5), (100, 100), "declare a larger arm_floor"),
        (forms.form(50, forms.SQUARE, [], cap=0.9), (0, 0), "sum n"),
        (forms.form(50, forms.SQUARE, [], low=1.1), (0, 0), "sum n"),
        (forms.form(50, forms.SQUARE, [], low=-1.0), (0, 0), "at least 0"),
        (forms.form(50, forms.SQUARE, [], low=1.2, sums=forms.COUNTS), (0, 0), "hold 1"),
        (
            forms.form(
                50, forms.SQUARE, [], low=0.5, sums=WeightSums(SumKind.PUBLIC, (15.0, 35.0))
            ),
            (5, 5),
            "at least 0.5 each",
        ),
        (forms.form(50, forms.SQUARE, [], sums=TREATED), (5, 0), "at least 1"),
        (
            forms.form(50, forms.SQUARE, [], cap=2.0, sums=WeightSums(SumKind.TREATED)),
            (5, 5),
            "cannot reach",
        ),
        (
            forms.form(50, forms.SQUARE, [], cap=2.0, sums=WeightSums(SumKind.CONTROLS)),
            (5, 5),
            "cannot reach",
        ),
    ],
)
def test_a_universe_with_datasets_without_weights_is_refused(
    form: WeightingForm, floors: tuple[int, int], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        weighting_constants(form, floors, keeps_treatment=False)


def test_a_universe_is_refused_where_rounding_leaves_a_dataset_without_weights() -> None:
    """44 weights of at most 60/44, rounded down, have a sum below 60: no dataset of it has such
    weights.
    """
    totals = WeightSums(SumKind.PUBLIC, (40.0, 60.0))
    cap = 60.0 / 44.0
    tight = examples.form_of(100, cap=(cap, cap), sums=totals)
    records = examples.records_of(100)
    at_the_floor = replace(records, a=(np.arange(100) < 44).astype(np.int64))
    with pytest.raises(InfeasibleError):
        DualProblem(tight, at_the_floor)
    with pytest.raises(CalibrationError, match="which 44 of them"):
        stability(tight, (44, 44))
    wider = replace(tight, cap=np.full(2, np.nextafter(cap, 2.0)))
    assert stability(wider, (44, 44)) < 10.0
    assert DualProblem(wider, at_the_floor).newton().claim < 1e-9


def test_wrong_floors_and_sums_are_refused() -> None:
    with pytest.raises(DeclarationError, match="at most n"):
        stability(forms.entropy_balancing(50), (30, 30))
    with pytest.raises(DeclarationError, match="whole number"):
        stability(forms.entropy_balancing(50), (1.5, 0))  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="add up"):
        stability(
            forms.form(50, forms.SQUARE, [], sums=WeightSums(SumKind.PUBLIC, (20.0, 20.0))), (5, 5)
        )


def test_a_square_of_the_largest_entry_is_refused() -> None:
    groups = forms.by_arm([(forms.ball(1.0), 1.0)])
    form = forms.form(
        50, forms.SQUARE, [forms.imbalance(groups, ImbalancePenalty(1.0, norm=math.inf))]
    )
    with pytest.raises(CalibrationError, match="give smoothing="):
        stability(form)


@pytest.mark.parametrize(
    ("dispersion", "interval", "sums", "message"),
    [
        (forms.ENTROPY, (0.0, 2.0), forms.ALL, "above 0"),
        (forms.logit(0.1, 4.0), (0.5, 2.0), forms.ALL, "all positive weights"),
        (forms.ENTROPY, (0.5, 2.0), CONTROLS, "no theorem"),
    ],
)
def test_base_weights_without_a_theorem_are_refused(
    dispersion: forms.Dispersion, interval: tuple[float, float], sums: WeightSums, message: str
) -> None:
    base = Features("base", IntervalSet(*interval), 1)
    form = forms.form(50, dispersion, [], cap=4.0, sums=sums, base=base)
    with pytest.raises(CalibrationError, match=message):
        weighting_constants(form, (20, 20), keeps_treatment=False)


def test_no_imbalance_moves_nothing_but_the_record() -> None:
    """Weights of 1 without an imbalance: V = 2."""
    assert stability(forms.form(50, forms.SQUARE, [], cap=3.0)) == pytest.approx(2.0)
    assert np.isclose(stability(forms.form(50, forms.ENTROPY, [])), 2.0)


def test_controls_that_weigh_as_many_as_the_treated_by_hand() -> None:
    """(1 + W)(1 + sqrt(1 + F D^2)) at a change of arm, 2 W + sqrt(F) W D within the controls."""
    n, floors, W, rho = 100, (30, 20), 4.0, 3.0
    groups = ((forms.rows(forms.ball(1.0), [1.0, -1.0], [0.0, 0.0]),),)
    terms = [forms.imbalance(groups, ImbalancePenalty(rho / (2.0 * n)))]
    form = forms.form(n, forms.SQUARE, terms, cap=W, sums=TREATED)
    stated = weighting_constants(form, floors, keeps_treatment=False)
    R = 0.8
    D = 2.0 * math.sqrt(rho)
    assert stated.response == pytest.approx(R)
    assert stated.diameter == pytest.approx(D)
    F = spread_factor(R, D)
    by_arms = {pair.arms: pair.V for pair in stated.pairs}
    W = stated.largest[0]
    assert by_arms[0, 0] == pytest.approx(2.0 * W + math.sqrt(F) * W * D)
    assert by_arms[1, 1] == pytest.approx(2.0 + math.sqrt(F) * D)
    assert by_arms[0, 1] == pytest.approx((1.0 + W) * (1.0 + math.sqrt(1.0 + F * D**2)))
    assert by_arms[1, 0] == pytest.approx(by_arms[0, 1])
    scaled = max(n / 40.0 * by_arms[0, 0], n / 42.0 * (by_arms[0, 1] + 2.0))
    assert stated.V == pytest.approx(scaled)
    assert stated.release_factor == 2.5


def test_changes_of_arm_pair_neighboring_sizes() -> None:
    """With n/2 per arm a heavy record of a small arm was a light one of the large arm."""
    stated = weighting_constants(forms.mmd(), (100, 100), keeps_treatment=False)
    change = next(pair for pair in stated.pairs if pair.arms == (0, 1))
    assert max(change.largest) == pytest.approx(max(stated.largest))
    assert min(change.largest) < 0.6 * max(stated.largest)


def test_smoothing_says_what_it_leaves_out() -> None:
    groups = forms.by_arm([(forms.ball(1.0), 1.0)])
    penalty = ImbalancePenalty(2.0, knee=0.25, norm=2)
    form = forms.form(
        50, forms.SQUARE, [forms.imbalance(groups, penalty)], smoothed={"norm(m)": 0.1}
    )
    stated = weighting_constants(form, (0, 0), keeps_treatment=False)
    assert "norm(m) with parameter 0.1" in stated.smoothing
    assert weighting_constants(forms.mmd(), (100, 100), False).smoothing == ""


DISPERSIONS = [
    forms.SQUARE,
    forms.ENTROPY,
    forms.LOG,
    forms.logit(0.0, 5.0),
    forms.Dispersion((forms.DispersionPart("power", 1.0, number=-0.5),)),
    forms.Dispersion(
        (forms.DispersionPart("power", 1.0, number=3.0), forms.DispersionPart("square", 0.1))
    ),
    forms.Dispersion(
        (forms.DispersionPart("square", 0.3), forms.DispersionPart("size", 2.0, 1.0, -1.0))
    ),
    forms.Dispersion((forms.DispersionPart("huber", 0.3, 1.0, -1.0, 0.5),)),
]


@pytest.mark.one_row_in(28)
@pytest.mark.parametrize("kind", list(SumKind))
@pytest.mark.parametrize("place", range(len(DISPERSIONS)))
def test_every_form_has_finite_constants_or_a_reason(kind: SumKind, place: int) -> None:
    """Drawn forms of few records, odd boxes and extreme prices: 2 max(w) <= V <= 2n, or a typed
    refusal.
    """
    generator = np.random.default_rng([place, len(kind.value)])
    stated = 0
    for _ in range(8):
        n = int(generator.choice([2, 3, 5, 50, 1500]))
        least = n // 3 if kind is SumKind.PUBLIC else 0
        floors = (
            int(generator.integers(least, n // 2 + 1)),
            int(generator.integers(least, n // 2 + 1)),
        )
        sums = WeightSums(kind, (0.4 * n, 0.6 * n) if kind is SumKind.PUBLIC else None)
        low = generator.choice([0.0, 0.0, 0.2, 1.0], 2)
        cap = generator.choice([1.0, 1.5, 4.0, 5.0], 2)
        if place != 3 and generator.random() < 0.4:
            cap = np.full(2, math.inf)
        factor = float(10.0 ** generator.uniform(-8, 4))
        knee = float(generator.choice([math.inf, 0.1, 10.0]))
        groups = forms.by_arm([(forms.ONE, 0.5), (forms.ball(1.0), 1.0)])
        terms = [forms.imbalance(groups, ImbalancePenalty(factor, knee=knee, norm=2))]
        if generator.random() < 0.3:
            terms.append(forms.imbalance(groups, ImbalancePenalty(math.inf, price=factor)))
        form = forms.form(n, DISPERSIONS[place], terms, low=low, cap=cap, sums=sums)
        try:
            constants = weighting_constants(
                form, floors, keeps_treatment=bool(generator.integers(2))
            )
        except CalibrationError:
            continue
        stated += 1
        assert 0.0 <= constants.V <= 2.0 * n
        assert all(0.0 <= weight <= n * (1.0 + 1e-9) for weight in constants.largest)
        assert constants.theorem
        assert constants.limits
    assert stated >= 1
