"""Composition by privacy loss distributions."""

import sys

import pytest

from dp2erm_cvx import Budget
from dp2erm_cvx.ledger import Composition
from dp2erm_cvx.ledger.ledger import Cost, fits, spent
from tests.ledger.model import optimal_delta


def release(epsilon: float, delta: float = 0.0) -> Cost:
    return Cost(Budget(epsilon, delta))


@pytest.mark.parametrize(("epsilon", "count"), [(0.1, 100), (0.05, 400), (0.137, 60)])
def test_loss_distributions_are_tight_and_safe(epsilon: float, count: int) -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(epsilon * count, 1e-6)
    figures = spent([release(epsilon)] * count, total, Composition.PLD)
    assert figures.composition is Composition.PLD
    assert figures.epsilon < 0.8 * epsilon * count
    assert optimal_delta(epsilon, count, figures.epsilon) <= 1e-6
    assert optimal_delta(epsilon, count, 0.98 * figures.epsilon) > 1e-6
    assert figures.left_epsilon == pytest.approx(total.epsilon - figures.epsilon)


def test_loss_distributions_count_every_delta() -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(4.0, 1e-6)
    mixed = [*[release(0.1, 4e-9)] * 50, release(0.3)]
    more = [*[release(0.1, 4e-9)] * 50, release(0.3, 9e-7)]
    assert spent(mixed, total, Composition.PLD).epsilon > spent(mixed[1:], total, Composition.PLD).epsilon
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


def test_every_repetition_counts_however_releases_are_grouped() -> None:
    pytest.importorskip("dp_accounting")
    total = Budget(6.0, 1e-6)
    figures = [spent([release(0.1)] * count, total, Composition.PLD).epsilon for count in (20, 40, 60)]
    assert figures[0] < figures[1] < figures[2]
    assert optimal_delta(0.1, 60, figures[2]) <= 1e-6 < optimal_delta(0.1, 60, 0.5 * figures[2])
    # one by one, as distributions that differ in the last digit, they cost the same
    apart = [release(0.1 * (1.0 - k * 2.0**-52)) for k in range(60)]
    assert spent(apart, total, Composition.PLD).epsilon == pytest.approx(figures[2], rel=1e-3)
