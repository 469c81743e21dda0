"""Weights on distinct rows are those of the full solves."""

from __future__ import annotations

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.audit import Quantity, scouts
from dp2erm_cvx.audit.groups import structured_starts
from dp2erm_cvx.program import Gaussian, Moments
from dp2erm_cvx.program.kernel_model import PublicSample
from dp2erm_cvx.program.kernels import Linear
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.universe import Universe
from tests.audit.stability.cases import reference_program

PLAIN, FLOOR = Domain(1.0, 1.0), Domain(1.5, 1.0, arm_floor=8, intercept=0.5)


@pytest.mark.parametrize(
    ("program", "domain"),
    [
        (reference_program("ipw_logistic", ridge=0.01), PLAIN),
        (reference_program("ipw_logistic", ridge=0.003, radius=1.0, trim=2.5), FLOOR),
        (reference_program("entropy_balancing", ridge=0.3), PLAIN),
        (reference_program("entropy_balancing", ridge=0.1, radius=0.7, arm_mass="proportional"), FLOOR),
        (reference_program("entropy_balancing", ridge=0.5, radius=2.0, trim=0.2), PLAIN),
        (reference_program("entropy_balancing", ridge=1.0, scaling="paper", arm_mass="proportional"), FLOOR),
        (reference_program("mmd", ridge=0.05, kernel=Gaussian(0.5)), PLAIN),
        (reference_program("mmd", ridge=0.05, cap=1.7, alpha=0.2, kernel=Gaussian(0.3)), FLOOR),
        (reference_program("mmd_pooled", ridge=0.1, kernel=Linear(0.2)), PLAIN),
        (reference_program("overlap", ridge=0.01), PLAIN),
        (reference_program("overlap", ridge=0.003, radius=1.0), FLOOR),
        (reference_program("inverse_probability_tilting", ridge=0.02, radius=1.0, balance=Moments(2)), FLOOR),
        (reference_program("energy_balancing", ridge=0.1), FLOOR),
        (reference_program("stable_balancing", ridge=0.05, alpha=0.3), PLAIN),
        (reference_program("kernel_mean_matching", ridge=0.1, kernel=Linear(0.2)), FLOOR),
        (reference_program("kernel_mean_matching", ridge=0.1), PLAIN),
        (reference_program("kernel_mean_matching", ridge=0.1, target=PublicSample([[0.9, 0.0]])), FLOOR),
        (reference_program("ipw_known", coefficient=(1.0, -0.5), trim=2.0), PLAIN),
        (reference_program("ipw_randomized", propensity=0.3), FLOOR),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_movements_on_distinct_rows_are_those_of_all_records(program, domain):
    universe = Universe(domain, 23, 2)
    program = program.resolve(domain)
    pairs = structured_starts(universe, 25, np.random.default_rng(4))
    quickly = scouts.known_scout(program, universe)
    full = scouts.Scout(program, universe)
    with np.errstate(all="ignore"):
        quick, slow = quickly.movements(pairs), full.movements(pairs)
    assert np.isfinite(slow[Quantity.V]).sum() > 10
    for quantity in (Quantity.V, Quantity.L1, Quantity.L2, Quantity.W1, Quantity.LARGEST):
        np.testing.assert_allclose(quick[quantity], slow[quantity], rtol=2e-7, atol=2e-7)


def test_a_program_that_is_not_known_is_solved_in_full():
    universe = Universe(PLAIN, 10, 2)
    sample = structured_starts(universe, 5, np.random.default_rng(0))
    known = reference_program("ipw_logistic", ridge=0.1)
    assert not scouts.scout_for(known, universe, sample).exact
    measured = reference_program("entropy_balancing", ridge=1.0, base_measure=(1.0,) * 10).resolve(PLAIN)
    assert scouts.scout_for(measured, universe, sample).exact


def test_a_scout_that_disagrees_with_the_solves_is_dropped(monkeypatch):
    universe = Universe(PLAIN, 10, 2)
    sample = structured_starts(universe, 5, np.random.default_rng(0))
    family, right = scouts._FAST[MarginModel]
    monkeypatch.setitem(scouts._FAST, MarginModel, (family, lambda *given: 1.01 * right(*given)))
    assert scouts.scout_for(reference_program("ipw_logistic", ridge=0.1), universe, sample).exact
