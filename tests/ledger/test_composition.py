"""What several releases spend by each composition: what is proven, and that it is never too
little.
"""

import sys
from functools import cache
from pathlib import Path

import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.calibration import calibrate_renyi
from dp2erm_cvx.errors import LedgerError
from dp2erm_cvx.ledger import Composition, Ledger, Spent
from dp2erm_cvx.ledger.ledger import Receipt, fits, spent
from dp2erm_cvx.privacy import RenyiCurve
from tests.calibration.gaussian_pairs import (
    composed_hockey_stick,
    hockey_stick,
    objective_of,
    one_dimensional_pairs,
    squared_loss,
)
from tests.ledger.model import optimal_delta


def release(epsilon: float, delta: float = 0.0, curve: RenyiCurve | None = None) -> Receipt:
    return Receipt("", "", Budget(epsilon, delta), "", "", curve)


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize(("way", "tight"), [(Composition.PLD, 0.98), (Composition.RENYI, 0.9)])
@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.05, 400), (0.137, 60)])
def test_figures_of_pure_releases_are_tight_and_safe(
    epsilon: float, count: int, way, tight: float
) -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(epsilon * count, 1e-6)
    figures = spent([release(epsilon)] * count, total, way)
    assert figures.composition is way
    assert figures.epsilon < 0.9 * epsilon * count
    assert optimal_delta(epsilon, count, figures.epsilon) <= 1e-6
    assert optimal_delta(epsilon, count, tight * figures.epsilon) > 1e-6
    assert figures.left_epsilon == pytest.approx(total.epsilon - figures.epsilon)
    if way is Composition.PLD and count == 60:
        # one by one, as distributions that differ in the last digit, they cost the same
        apart = [release(epsilon * (1.0 - k * 2.0**-52)) for k in range(count)]
        assert spent(apart, total, way).epsilon == pytest.approx(figures.epsilon, rel=1e-3)


def test_loss_distributions_count_every_delta() -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(4.0, 1e-6)
    mixed = [*[release(0.1, 4e-9)] * 50, release(0.3)]
    more = [*[release(0.1, 4e-9)] * 50, release(0.3, 9e-7)]
    assert (
        spent(mixed, total, Composition.PLD).epsilon
        > spent(mixed[1:], total, Composition.PLD).epsilon
    )
    # the failure of every release is an infinite loss: with this one they exceed delta
    assert fits(mixed, total, Composition.PLD)
    assert not fits(more, total, Composition.PLD)
    assert not fits(mixed, total, Composition.BASIC)
    single = spent([release(0.5, 1e-6)], total, Composition.PLD)
    assert (single.epsilon, single.composition) == (0.5, Composition.BASIC)
    pure = Budget(4.0)
    assert not fits([release(0.1)] * 41, pure, Composition.PLD)
    assert spent([release(0.1)] * 40, pure, Composition.PLD).composition is Composition.BASIC


def test_basic_composition_where_the_package_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    releases, total = [release(0.1)] * 80, Budget(8.0, 1e-6)
    for name in [name for name in sys.modules if name.startswith("dp_accounting")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    figures = spent(releases, total, Composition.PLD)
    assert (figures.epsilon, figures.composition) == (8.0, Composition.BASIC)
    assert not fits([*releases, release(0.1)], total, Composition.PLD)


ONE, PURE = Budget(1.0, 1e-6), release(0.1)


@cache
def theorem_7() -> Receipt:
    """A release of (1, 1e-6) with its curve."""
    one = calibrate_renyi(objective_of(4.0, squared_loss(2, 1.0, 2.0), 2000), ONE)
    return release(1.0, 1e-6, one.curve())


def renyi(releases: list[Receipt], total: Budget) -> Spent:
    return spent(releases, total, Composition.RENYI)


def test_two_releases_of_theorem_7_cost_less_together(tmp_path: Path) -> None:
    ledger, curve = Ledger(tmp_path / "ledger.db"), theorem_7().curve
    ledger.declare("trial", Budget(2.0, 2e-6), composition="renyi")
    ledger.declare("plain", Budget(2.0, 2e-6))
    for name in ("trial", "plain") * 2:
        ledger.charge(name, ONE, curve=curve)
    composed, basic = ledger.account("trial").spent, ledger.account("plain").spent
    assert basic.epsilon == 2.0
    assert (composed.composition, composed.epsilon) == (
        Composition.RENYI,
        pytest.approx(1.3286, abs=1e-4),
    )
    assert (composed.left_epsilon, composed.left_delta) == (
        pytest.approx(2.0 - composed.epsilon),
        0.0,
    )
    with pytest.raises(
        LedgerError, match=r"left of epsilon = 2, delta = 2e-06 \(basic composition"
    ):
        ledger.charge("plain", ONE, curve=curve)
    ledger.charge("trial", ONE, curve=curve)
    # without its curve the same release would have been one of basic composition
    with pytest.raises(LedgerError, match=r"\(renyi composition, neighbors: replace-one\)"):
        ledger.charge("trial", ONE)
    account = ledger.account("trial")
    assert [one.curve for one in account.receipts] == [curve] * 3
    assert [one["curve"] for one in account.to_dict()["receipts"]] == [True] * 3


def test_one_release_costs_its_own_budget() -> None:
    figures = renyi([theorem_7()], ONE)
    assert (figures.epsilon, figures.delta, figures.composition) == (1.0, 1e-6, Composition.BASIC)
    # at a larger delta it costs less
    assert renyi([theorem_7()], Budget(1.0, 1e-4)).epsilon < 0.85


def test_two_releases_lose_no_more_than_the_figure() -> None:
    delta = 1 / 400
    worst = counted_once = 0.0
    for loss, first, second, V in one_dimensional_pairs(20):
        n = len(first.w)
        gamma = 100.0 * V / n
        one = calibrate_renyi(objective_of(V, loss, n), Budget(1.0, delta), gamma=gamma)
        cost = release(1.0, delta, one.curve())
        figures = [renyi([cost] * count, Budget(9.0, delta)).epsilon for count in (1, 2)]
        for pair in ((first, second), (second, first)):
            assert hockey_stick(*pair, figures[0], gamma, one.scale) <= delta
            worst = max(worst, composed_hockey_stick(*pair, figures[1], gamma, one.scale))
            # planted: equal releases are counted once
            counted_once = max(
                counted_once, composed_hockey_stick(*pair, figures[0], gamma, one.scale)
            )
    assert 0.0 < worst <= delta < counted_once


def test_releases_without_a_curve_are_added_on_top() -> None:
    many = [PURE] * 100
    total = Budget(20.0, 1e-6)
    alone = renyi(many, total).epsilon
    other = release(0.5, 4e-7)
    together = renyi([*many, other], total).epsilon
    left = renyi(many, Budget(20.0, 6e-7)).epsilon
    assert together == pytest.approx(left + 0.5, rel=1e-8)
    assert together > alone + 0.5
    # the worst of them: it fails outright with probability 4e-7, and else responds like a pure one
    assert 4e-7 + optimal_delta(0.1, 100, together - 0.5) <= 1e-6
    # planted: its delta is converted a second time
    assert 4e-7 + optimal_delta(0.1, 100, renyi(many, Budget(20.0, 9.9e-7)).epsilon * 0.93) > 1e-6
    # where nothing is left to convert, or nothing has a curve, basic composition is in force
    used_up = [*[PURE] * 5, release(0.5, 1e-6)]
    assert renyi(used_up, total).composition is Composition.BASIC
    assert not fits([*many, release(0.5, 1e-6)], Budget(9.0, 1e-6), Composition.RENYI)
    assert renyi([other, other], total) == spent([other, other], total, Composition.BASIC)
    assert renyi([], total).epsilon == 0.0


def test_curves_of_numerical_error_cost_more() -> None:
    exact = theorem_7()
    level = 0.0025
    counted = release(1.0, 1e-6, exact.curve.shifted(level))
    total = Budget(9.0, 1e-6)
    added = renyi([counted] * 4, total).epsilon - renyi([exact] * 4, total).epsilon
    assert 2 * 4 * level < added < 2 * 4 * level * 1.2


@pytest.mark.parametrize("total", [Budget(2.0), Budget(501.0, 1e-6), Budget(2.0, 5e-324)])
def test_where_no_figure_is_proven_basic_is_in_force(total: Budget) -> None:
    assert renyi([theorem_7(), PURE], total).composition is Composition.BASIC
    assert not fits([PURE] * 21, Budget(2.0, total.delta), Composition.RENYI)


def test_what_is_left_fits_and_no_more() -> None:
    total = Budget(3.0, 1e-6)
    releases = [theorem_7()] * 2
    figures = renyi(releases, total)
    assert fits([*releases, release(figures.left_epsilon)], total, Composition.RENYI)
    assert not fits(releases, Budget(figures.epsilon * (1 - 1e-9), 1e-6), Composition.RENYI)
    counts = [
        count for count in range(1, 12) if fits([theorem_7()] * count, total, Composition.RENYI)
    ]
    assert counts == [*range(1, 10)]  # of three by basic composition, at a delta of 3e-6
    assert renyi([theorem_7()] * 9, total).epsilon <= 3.0 < renyi([theorem_7()] * 10, total).epsilon


def test_the_figure_is_above_a_conversion_in_exact_sums() -> None:
    mpmath = pytest.importorskip("mpmath")
    releases = [*[theorem_7()] * 3, *[PURE] * 7, release(0.3, 1e-7)]
    stated = renyi(releases, Budget(9.0, 1e-6)).epsilon
    with mpmath.workdps(50):
        mp = mpmath.mpf
        best = mpmath.inf
        for order in theorem_7().curve.orders:
            bound = 3 * mp(theorem_7().curve.at(order)) + 7 * min(mp("0.1"), mp(order) / 200)
            k = mp(order) - 1
            converted = (
                bound + mpmath.log(k / order) - (mpmath.log(mp("9e-7")) + mpmath.log(order)) / k
            )
            best = min(best, converted + mp("0.3"))
        assert best <= stated <= best * (1 + mp("1e-8"))
