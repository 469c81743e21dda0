"""Of many records a copy at few is read: it has the same coefficients, or there is no copy."""

from dataclasses import fields, is_dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.weighting import few_records, sums
from dp2erm_cvx.program.weighting.few_records import FEW, at_few_records
from dp2erm_cvx.program.weighting.reader import read_weighting
from tests.rows import one_of
from tests.weighting.declarations import READ, declared, minimized

N = 200
P = cp.Parameter((N, 3), name="P")
A = cp.Parameter(N, name="a")
MEAN = cp.Parameter(3, name="mean")
MEAN.averaged = None
W = cp.Variable(N, name="w")
COLUMN = np.array([1.0, -2.0, 0.5])

COPIED = {
    "P.T @ w": P.T @ W,
    "sums beside one another": cp.hstack([cp.sum(W), P.T @ W]) / N,
    "sum of data": cp.sum(P, axis=0) / 2 - P.T @ W,
    "mean of data": cp.mean(P, axis=0) - P.T @ W / N,
    "mean": P.T @ W - N * MEAN,
    "public matrix": np.eye(3)[:2] @ (P.T @ W) - 7.0,
    "a column": P[:, 1] @ W,
    "columns": cp.sum(cp.multiply(A, W)) * COLUMN,
    "scaled": cp.sum(cp.multiply(3.0, W)) + A @ (W / 2),
    "combination": (P @ COLUMN) @ W,
    "vdot": cp.vdot(A, W),
    "reshaped": P.T @ cp.reshape(W, (N, 1), order="F"),
    "data of two sums": cp.sum(A) + cp.sum(W) + cp.sum(cp.vstack([A, W])),
    "product of sums": cp.sum(A) * cp.sum(W),
}
NOT_COPIED = {
    "some places": cp.sum(W[:3]),
    "all places but one": cp.sum(W[1:]),
    "places of a list": cp.sum(W[[0, 1]]),
    "last place": W[N - 1] + A @ W,
    "backwards": P.T @ W[::-1],
    "numbers of records": np.arange(N) @ W,
    "added to every record": cp.sum(W - 1),
    "added to data": cp.sum(A + 1) * cp.sum(W),
    "count of records": cp.sum(cp.promote(cp.Constant(2.0), (N,))) * cp.sum(W),
    "sum for every record": cp.sum(cp.sum(W) + A),
    "pairs": cp.sum(cp.reshape(W, (N, 1), order="F") + cp.reshape(A, (1, N), order="F"), axis=0),
    "running sum": cp.sum(cp.cumsum(W)),
    "differences": cp.sum(cp.diff(W)),
    "twice as many": cp.sum(cp.hstack([W, W])),
    "line": W - 1,
    "reordered": P.T @ cp.vec(cp.reshape(W, (2, N // 2), order="C"), order="F"),
}

LINES = {
    "w": W,
    "shifted": 2 * W - 6,
    "by a datum": W - (2 + 2 * A),
    "times a datum": cp.multiply(A, W - 1),
    "combination": W - P @ COLUMN + 1,
    "over a number": (W - 1) / 3,
}
NO_LINES = {
    "numbers of records": W - np.linspace(0, 1, N),
    "sum added": W - cp.sum(W) / N,
    "share added": W - cp.sum(A),
    "some places": cp.hstack([W[:3], W[3:]]),
    "running sum": cp.cumsum(W),
}


def values_at_few(e: Any, *, is_line: bool = False) -> tuple[Any, Any]:
    """Values of an expression and its copy at weights and data that are 0 beyond the first."""
    rng = np.random.default_rng(0)
    copy = at_few_records(e, W, [P, A, MEAN], is_line=is_line)
    assert copy is not None
    MEAN.value = rng.standard_normal(3)
    copy.w.value = rng.standard_normal(FEW)
    W.value = np.append(copy.w.value, np.zeros(N - FEW))
    for datum, few in zip((P, A), copy.data, strict=False):
        few.value = rng.standard_normal((FEW, *datum.shape[1:]))
        datum.value = np.concatenate([few.value, np.zeros((N - FEW, *datum.shape[1:]))])
    return e.value, copy.e.value


@pytest.mark.parametrize("name", COPIED)
def test_a_copy_has_the_values_of_the_expression_where_all_other_records_are_zero(name):
    value, few = values_at_few(COPIED[name])
    np.testing.assert_allclose(few, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NOT_COPIED)
def test_what_may_be_another_function_of_few_records_has_no_copy(name):
    assert at_few_records(NOT_COPIED[name], W, [P, A, MEAN]) is None


@pytest.mark.parametrize("name", LINES)
def test_a_copy_of_a_line_has_its_values_at_the_first_records(name):
    value, few = values_at_few(LINES[name], is_line=True)
    np.testing.assert_allclose(few, value[:FEW], rtol=1e-12, atol=1e-12)
    assert np.ptp(value[FEW:]) == 0.0


@pytest.mark.parametrize("name", NO_LINES)
def test_a_line_that_depends_on_all_records_has_no_copy(name):
    assert at_few_records(NO_LINES[name], W, [P, A, MEAN], is_line=True) is None


@pytest.mark.parametrize("shape", [(N, N), (N,)])
def test_data_and_means_with_as_many_columns_as_records_have_no_copy(shape):
    wide = cp.Parameter(shape)
    if shape == (N,):
        wide.averaged = None
    assert at_few_records(cp.sum(W), W, [wide]) is None


def numbers_of(part: Any) -> Any:
    """All that a form holds, as nested lists of numbers, words and functions."""
    if is_dataclass(part):
        return [type(part).__name__, *(numbers_of(getattr(part, f.name)) for f in fields(part))]
    if isinstance(part, tuple | list):
        return [numbers_of(one) for one in part]
    if isinstance(part, dict):
        return [[name, numbers_of(one)] for name, one in part.items()]
    if isinstance(part, np.ndarray | float):
        return np.asarray(part)
    return repr(part) if callable(part) else part


def assert_same(one: Any, other: Any) -> None:
    if isinstance(one, list):
        assert len(one) == len(other)
        for part, other_part in zip(one, other, strict=True):
            assert_same(part, other_part)
    elif isinstance(one, np.ndarray):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)
    elif not str(one).startswith("<"):
        assert one == other


@pytest.mark.parametrize("name", one_of(READ, 3))
def test_a_form_that_is_read_at_few_records_is_that_of_all(monkeypatch, name):
    problem, w, records = declared(READ[name], N)
    of_all = read_weighting(problem, w, records, compared=False)
    monkeypatch.setattr(sums, "_MANY", N - 1)
    assert_same(numbers_of(read_weighting(problem, w, records)), numbers_of(of_all))


def test_most_spellings_are_read_at_few_records(monkeypatch):
    monkeypatch.setattr(sums, "_MANY", N - 1)
    found = []

    def counted(*arguments, **options):
        copy = at_few_records(*arguments, **options)
        found.append(copy is not None)
        return copy

    monkeypatch.setattr(sums, "at_few_records", counted)
    for name in ("imbalance: P.T @ w", "set: arm totals", "set: m == 0", "linear: c @ w"):
        problem, w, records = declared(READ[name], N)
        read_weighting(problem, w, records, compared=False)
    assert len(found) >= 4
    assert all(found)


def test_a_wrong_copy_of_an_authors_problem_is_refused_by_all_records(monkeypatch):
    def counted(w: Any, r: Any) -> Any:
        count = cp.sum(cp.promote(cp.Constant(1.0), (r.n,)))
        return cp.sum_squares(count * (r.x.T @ w)) + cp.sum_squares(w)

    problem, w, records = declared(minimized(counted), N)
    right = read_weighting(problem, w, records)
    monkeypatch.setattr(sums, "_MANY", N - 1)
    assert_same(numbers_of(read_weighting(problem, w, records)), numbers_of(right))
    # a copier that counts few records in the place of all
    monkeypatch.setattr(few_records._Copier, "_refuse_unlike", lambda *arguments: None)
    with pytest.raises(DeclarationError, match="is no sum over records"):
        read_weighting(problem, w, records)
    wrong = read_weighting(problem, w, records, compared=False)
    with pytest.raises(AssertionError):
        assert_same(numbers_of(wrong), numbers_of(right))
