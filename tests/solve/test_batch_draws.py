"""Draws of the noise solved together, against single solves and the declared CVXPY problem."""

from __future__ import annotations

import dataclasses
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError, ProgramError
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.program import Box, Instance, L1Ball, WholeSpace
from dp2erm_cvx.program.curves import SQUARE
from dp2erm_cvx.program.margin_model import MarginModel
from dp2erm_cvx.program.margin_rows import MarginRows
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import certify, solve
from dp2erm_cvx.solve.batch import solve_draws
from tests.helpers import make_records, make_weights

SETTINGS: list[dict[str, Any]] = [
    {"theta_set": chosen, "regularizer": net}
    for chosen in (WholeSpace(), L1Ball(0.5), L1Ball(5.0), Box(0.2), L2Ball(0.3), L2Ball(20.0))
    for net in (ElasticNet(), ElasticNet(l2=0.3), ElasticNet(l1=0.3))
    if not (isinstance(chosen, L2Ball) and net.l1)
]


def bound(settings: dict[str, Any], noise: Array | None = None) -> Instance:
    records = make_records(150, 6)
    program: Any = programs()["itr"](**settings)
    instance: Instance = program.instance(records, make_weights(records), gamma=0.05, noise=noise)
    return instance


def noises(m: int, scale: float = 60.0) -> Array:
    return scale * np.random.default_rng(7).normal(size=(m, 7))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_draws_agree_with_single_solves(settings: dict[str, Any]) -> None:
    drawn = noises(600)  # more than one tile
    found = solve_draws(bound(settings), drawn)
    assert np.all(found.certified)
    assert not np.any(found.by_single)
    for k in (*range(0, 600, 40), 599):
        instance = bound(settings, drawn[k])
        single = solve(instance)
        assert np.linalg.norm(single.value - found.thetas[k]) <= found.radius[k] + single.certificate.radius
        judged = certify(instance, found.thetas[k])
        assert 0.1 * judged.radius <= found.radius[k] <= 10 * judged.radius


@pytest.mark.parametrize("settings", [{}, {"theta_set": Box(0.2)}, {"theta_set": L2Ball(0.3)}], ids=str)
def test_draws_agree_with_the_declaration(settings: dict[str, Any]) -> None:
    drawn = noises(3)
    found = solve_draws(bound(settings), drawn)
    for k in range(3):
        declared = solve(bound(settings, drawn[k]), solver="clarabel", polish=False, throw=False)
        distance = float(np.linalg.norm(declared.value - found.thetas[k]))
        assert distance <= found.radius[k] + declared.certificate.radius
        assert distance <= 1e-4


def test_theta_zero_is_certified() -> None:
    found = solve_draws(
        bound({"theta_set": L1Ball(5.0), "regularizer": ElasticNet(l1=50.0)}), noises(20, 1.0)
    )
    assert np.all(found.thetas == 0)
    assert np.all(found.certified)
    assert not np.any(found.by_single)


def test_what_has_no_fast_path_is_solved_alone_and_counted() -> None:
    settings = {"theta_set": L2Ball(0.3), "regularizer": ElasticNet(l1=0.3)}
    found = solve_draws(bound(settings), noises(4))
    assert np.all(found.by_single)
    assert np.all(found.certified)
    assert np.all(np.linalg.norm(found.thetas, axis=1) <= 0.3 * (1 + 1e-12))


def test_states_that_do_not_settle_are_solved_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dp2erm_cvx.solve.batch.draws._MAX_CHANGES", 1)
    found = solve_draws(bound({"theta_set": L1Ball(0.5)}), noises(20))
    assert np.any(found.by_single)
    assert np.all(found.certified)


def test_without_any_curvature_nothing_is_claimed() -> None:
    instance = bound({"theta_set": WholeSpace()})
    model = instance.model
    assert isinstance(model, MarginModel)
    X = model.Z.copy()
    X[:, 2] = 0.0
    flat = MarginModel(
        MarginRows(X, model.whole.offsets), SQUARE, 0.0, model.penalty, multipliers=model.multipliers
    )
    found = solve_draws(dataclasses.replace(instance, model=flat), noises(2))
    assert not np.any(found.certified)
    assert np.all(found.by_single)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(DeclarationError, match="7 columns"):
        solve_draws(bound({}), np.zeros((2, 6)))
    with pytest.raises(DeclarationError, match="finite"):
        solve_draws(bound({}), np.full((1, 7), np.inf))
    with pytest.raises(DeclarationError):
        solve_draws(bound({}), noises(1), tolerance=0.0)
    norm = UserRegularizer(lambda theta: 0.2 * cp.norm(theta, 1), "norm")
    with pytest.raises(ProgramError, match="one by one"):
        solve_draws(bound({"regularizer": norm}), noises(1))


def test_no_draws() -> None:
    assert len(solve_draws(bound({}), np.zeros((0, 7)))) == 0
