"""Neighbors solved together against single solves, and readings of them against held weights."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import FirstStage
from dp2erm_cvx.registry import programs
from dp2erm_cvx.solve import batch, certify, solve
from dp2erm_cvx.solve.batch import Neighborhood, NeighborSolutions, Reading, Replacements
from tests.every_program import SETTINGS, edge_records
from tests.helpers import make_records

CLOSED = ("uniform", "ipw_known", "ipw_randomized")
MARGINS = ("ipw_logistic", "entropy_balancing", "entropy_balancing_primal", "overlap")
MARGINS += ("inverse_probability_tilting",)
KERNELS = ("mmd", "mmd_pooled", "energy_balancing", "stable_balancing")


def replacements(records: Records, m: int, seed: int = 3) -> Replacements:
    """Random records over the whole universe, half of them on its boundary, any index, any arm."""
    rng = np.random.default_rng(seed)
    domain, p = records.domain, records.covariates.shape[1]
    direction = rng.normal(size=(m, p))
    direction /= np.linalg.norm(direction, axis=1)[:, None]
    length = np.where(rng.random(m) < 0.5, 1.0, rng.random(m)) * domain.features_bound
    X = np.column_stack([np.full(m, domain.intercept), direction * length[:, None] * (1 - 1e-12)])
    return Replacements(records, rng.integers(records.n_samples, size=m), X, rng.integers(2, size=m))


def joined(chunks: Iterator[NeighborSolutions]) -> NeighborSolutions:
    parts = [(c.radius, c.certified, c.iterations, c.by_single, *c.values) for c in chunks]
    *columns, weights = (np.concatenate(column) for column in zip(*parts, strict=True))
    return NeighborSolutions(0, *columns, (weights,))


def program(name: str, settings: dict[str, Any]) -> FirstStage:
    made = programs()[name](**settings)
    assert isinstance(made, FirstStage)
    return made


def every(*names: str) -> pytest.MarkDecorator:
    """Programs at the settings that all tests share, but for the paper's scaling, which is solved alone."""
    made = [program(name, row) for name in names for row in SETTINGS[name] if row.get("scaling") != "paper"]
    return pytest.mark.parametrize("made", made, ids=lambda one: one.name)


@every(*MARGINS, *KERNELS, *CLOSED)
def test_weights_and_radii_are_those_of_single_solves(made: FirstStage) -> None:
    records = make_records(90, 3)
    chosen, base = replacements(records, 12), made.instance(records)
    result = joined(Neighborhood(made, records).solve(chosen))
    path = batch.fast_path(base, records, solve(base).point)
    assert path is not None
    fast = path(chosen, 1e-13)
    assert np.all(result.certified)
    assert not np.any(result.by_single)
    assert np.allclose(result.values[0].sum(axis=1), 90, rtol=1e-12)
    for k in range(len(chosen)):
        instance = made.instance(chosen.neighbor(k))
        single = solve(instance)
        distance = float(np.sum(np.abs(single.value - result.values[0][k])))
        assert distance <= result.radius[k] + single.certificate.output_radius
        if made.name not in CLOSED:
            judged = certify(instance, fast.points[k])
            assert 0.25 * judged.output_radius <= fast.radius[k] <= 25 * judged.output_radius


def test_a_wrong_fast_path_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made, records = program("ipw_logistic", {"ridge": 0.05}), make_records(60, 3)
    chosen = replacements(records, 12)
    right = joined(Neighborhood(made, records).solve(chosen))
    rows = type(made).row_neighbors

    def forgets_flips(self: FirstStage, base: Records) -> Any:
        given = rows(self, base)
        assert given is not None
        return lambda old, new: given(old, dataclasses.replace(new, a=1 - new.a))

    monkeypatch.setattr(type(made), "row_neighbors", forgets_flips)
    result = joined(Neighborhood(made, records).solve(chosen))
    assert np.all(result.by_single)
    assert np.all(np.sum(np.abs(result.values[0] - right.values[0]), axis=1) <= result.radius + right.radius)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("name", "ridge"),
    [("ipw_logistic", 1e-5), ("entropy_balancing", 1e-3), ("mmd", 1e-6), ("mmd_pooled", 1e6)],
)
def test_extreme_ridges_and_datasets_give_sound_radii(name: str, ridge: float) -> None:
    made, certified = program(name, {"ridge": ridge}), 0
    for records in list(edge_records().values())[::4]:
        chosen = replacements(records, 2)
        result = joined(Neighborhood(made, records).solve(chosen))
        for k in np.flatnonzero(result.certified):
            single = solve(made.instance(chosen.neighbor(int(k))), throw=False)
            distance = float(np.sum(np.abs(single.value - result.values[0][k])))
            assert distance <= result.radius[k] + single.certificate.output_radius
            certified += 1
    assert certified > 0  # at ridges below the least none is


def test_invalid_replacements_and_settings_are_refused_and_results_hide_the_records() -> None:
    records, made = make_records(30, 3), program("uniform", {})
    right: dict[str, Any] = {"index": [0], "X": records.X[:1].copy(), "a": [1]}
    wrong = [{"index": [one]} for one in (0.5, 30, -1)] + [{"a": one} for one in ([2], [0, 1])]
    rows = (np.full((1, 4), np.nan), np.zeros((1, 4)), [[1.0, 9.0, 0.0, 0.0]], np.zeros((1, 3)))
    for change in [{}, *wrong, *({"X": one} for one in rows)]:
        arrays = {name: np.array(value) for name, value in (right | change).items()}
        told = pytest.raises(DeclarationError, match=r"index must be .* from 0 to 29, a .* 0 or 1, X")
        with told if change else contextlib.nullcontext():
            assert len(Replacements(records, **arrays)) == 1
    chosen = replacements(records, 2)
    for tolerance in (0.0, "x"):
        with pytest.raises(DeclarationError):
            Neighborhood(made, records).solve(chosen, tolerance=tolerance)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="other records"):
        Neighborhood(made, make_records(30, 3)).solve(chosen)
    assert list(Neighborhood(made, records).solve(chosen.take(0, 0))) == []
    assert repr(joined(Neighborhood(made, records).solve(chosen))) == "NeighborSolutions(first=0)"
    assert repr(chosen) == "Replacements(n_neighbors=2)"


class Moved(Reading):
    """How far the weights are from given ones (n,), and the largest; keeps all weights of the last chunk."""

    def __init__(self, base: Array) -> None:
        self.beside, self.parts = (base, np.arange(float(len(base)))), {}

    def of(self, weights: Array, *beside: Array) -> tuple[Array, Array]:
        base, numbers = beside
        self.parts[numbers[0], len(weights)] = weights.copy()
        gap = np.abs(weights - base)
        return np.sum(gap, axis=1, keepdims=True), np.max(weights, axis=1, keepdims=True, initial=0.0)

    def kept(self, m: int) -> Array:
        return np.hstack([self.parts[key] for key in sorted(self.parts) if key[1] == m])


@pytest.mark.parametrize("heights", [(1, 7), (16, 16)])
@every(*MARGINS)
def test_readings_are_those_of_the_held_weights(
    made: FirstStage, heights: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dp2erm_cvx.solve.batch.rows._SHORTEST", heights[0])
    monkeypatch.setattr("dp2erm_cvx.solve.batch.rows._TALLEST", heights[1])
    records = make_records(90, 3)
    chosen, reading = replacements(records, 30), Moved(np.ones(90))
    (result,) = Neighborhood(made, records).solve(chosen, reading)
    held = joined(Neighborhood(made, records).solve(chosen))
    weights, both = reading.kept(30), result.radius + held.radius
    assert np.all(result.certified)
    assert not np.any(result.by_single)
    assert np.all(np.sum(np.abs(weights - held.values[0]), axis=1) <= both)
    assert np.allclose(weights.sum(axis=1), 90, rtol=1e-12)
    sums, largest, own = result.values
    assert np.allclose(sums[:, 0], np.sum(np.abs(weights - 1), axis=1), rtol=1e-12)
    assert np.array_equal(largest[:, 0], weights.max(axis=1))
    assert np.array_equal(own, weights[np.arange(30), chosen.index])


def test_what_is_not_certified_is_solved_alone_and_read(monkeypatch: pytest.MonkeyPatch) -> None:
    records = make_records(60, 3)
    chosen, made = replacements(records, 12), program("entropy_balancing", {"ridge": 0.02})
    (right,) = Neighborhood(made, records).solve(chosen, Moved(np.ones(60)))
    monkeypatch.setattr("dp2erm_cvx.solve.batch.row_batch._MAX_SWEEPS", 1)
    (result,) = Neighborhood(made, records).solve(chosen, Moved(np.ones(60)))
    assert np.any(result.by_single)
    assert np.all(result.certified)
    assert np.all(np.abs(result.values[0] - right.values[0])[:, 0] <= result.radius + right.radius)
    assert np.all(np.abs(result.values[2] - right.values[2]) <= result.radius + right.radius)
