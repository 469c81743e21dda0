"""No input ends in a traceback, a number that is not finite or a release that is not private."""

import json
import math
import os
import signal
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain
from dp2erm_cvx.cli import main
from dp2erm_cvx.data import Dataset
from dp2erm_cvx.domain_file import load_domain
from tests.hostile import outcome, releases
from tests.hostile.command import run
from tests.hostile.outcome import Failure, Outcome, judge
from tests.hostile.run import KINDS, count, failures, one

#: Cases of the slow run: 100,000 in all.
MANY = {"arrays": 70_000, "tables": 30_000}


@pytest.mark.parametrize(("kind", "number"), [("arrays", 80), ("tables", 50)])
def test_seeded_cases(kind: str, number: int) -> None:
    assert not failures(count((kind, k) for k in range(number)))


@pytest.mark.slow
def test_a_hundred_thousand_cases() -> None:
    # other seeds than those of the default test
    cases = [(kind, k) for kind, number in MANY.items() for k in range(1_000_000, 1_000_000 + number)]
    result = count(cases, processes=min(os.cpu_count() or 1, 4))
    names = Counter(outcome.name for _, _, outcome in result)
    print(names)
    assert len(result) == len(cases) == 100_000
    assert not failures(result)
    assert names["release, private and certified"] > 0
    # certified by design: no record may decide about the standing of a release
    assert names["release, conditional on certification"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_repeats_its_case(kind: str) -> None:
    # the noise of a release is fresh every time, but what is judged about it is not
    assert [one(kind, k).name for k in range(3)] == [one(kind, k).name for k in range(3)]


def failure(case: Callable[[], Outcome]) -> list[Outcome]:
    """The outcome of one case, if it may not come up."""
    result = judge(case)
    return [result] if result.failed else []


@settings(max_examples=50)
@given(st.binary(max_size=300) | st.text(alphabet='x1ay0,.-e"\n\r;\x00', max_size=80).map(str.encode))
def test_any_bytes_as_csv(tmp_path, data: bytes) -> None:
    (tmp_path / "any.csv").write_bytes(data)

    def case() -> Outcome:
        Dataset.read(tmp_path / "any.csv", treatment="a", outcome="y")
        return Outcome("records")

    assert not failure(case)


def checked(domain: Domain) -> Outcome:
    """An accepted universe is finite, and maps any finite record into itself."""
    plain: dict[str, Any] = domain.to_dict()
    json.dumps(plain, allow_nan=False)
    if Domain.from_dict(plain) != domain:
        raise Failure(f"does not survive its own plain form: {plain}")
    width = 3 if domain.ranges is None else len(domain.ranges)
    if isinstance(domain.coordinate_bound, tuple):
        width = len(domain.coordinate_bound)
    ends = np.array([1e300, -1e300, 0.0, 1e-300, 1.0])
    X = np.resize(ends, (5, min(width, 50))) if width <= 50 else np.resize(ends, (2, width))
    a = np.arange(len(X)) % 2
    records = domain.records(X, a, np.resize(ends, len(X)))
    norms = [math.hypot(*row) for row in records.X.tolist()]
    inside = max(norms) <= domain.covariate_bound and np.max(np.abs(records.y)) <= domain.outcome_bound
    widths = domain.widths(width)
    inside &= widths is None or bool(np.all(np.abs(records.covariates) <= widths[: X.shape[1]]))
    if not (np.all(np.isfinite(records.X)) and inside):
        raise Failure(f"records outside the universe: {str(plain)[:500]}: {norms}")
    return Outcome("domain, finite")


@settings(max_examples=50)
@given(st.binary(max_size=300) | st.text(alphabet="cov_bound=[]{}.,'\"0123e-\n", max_size=80).map(str.encode))
def test_any_bytes_as_a_domain(tmp_path, data: bytes) -> None:
    start = b"covariate_bound = 1\noutcome_bound = 1\n"
    (tmp_path / "any.toml").write_bytes(start + data)
    assert not failure(lambda: checked(load_domain(tmp_path / "any.toml")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.integers(0, 3), st.integers(0, 10_000), JSON)
def test_any_json_in_place_of_any_entry(number: int, which: int, value: object) -> None:
    def case() -> Outcome:
        plain = releases.good(number)
        listed = releases.places(plain)
        releases.put(plain, listed[which % len(listed)], value)
        return releases.read_back(releases.written(plain))

    assert not failure(case)


@settings(max_examples=30)
@given(
    st.lists(
        st.sampled_from([*main.commands, "--json", "--n", "--epsilon"]) | st.text(max_size=6), max_size=6
    )
)
def test_any_words(tmp_path, monkeypatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    if words and words[0] in ("demo", "certify"):
        words[0] = "bounds"  # those two do honest work for longer than a case may take
    assert not failure(lambda: run(words))


def test_a_header_of_many_columns_is_read_at_once(tmp_path) -> None:
    names = [f"x{k}" for k in range(50_000)]
    (tmp_path / "wide.csv").write_text(",".join([*names, "a", "y"]) + "\n" + ",".join("1" * 50_002) + "\n")
    result = judge(lambda: Outcome(str(Dataset.read(tmp_path / "wide.csv", treatment="a", outcome="y"))))
    assert result.name == "DataError"  # one record is too few, and that is all


def test_the_judge_sees_what_it_is_for(monkeypatch) -> None:
    def slow(clock: int, its_signal: int) -> Outcome:
        assert signal.getitimer(clock)[0] > 0.0
        signal.raise_signal(its_signal)  # as if the time were over
        return Outcome("fine")

    assert judge(lambda: Outcome(str(np.float64(1) / np.float64(0)))).name == "FAILURE RuntimeWarning"
    assert judge(lambda: Outcome(str([][1]))).name == "FAILURE IndexError"
    assert judge(lambda: warnings.warn("x", stacklevel=1)).name == "FAILURE UserWarning"
    assert judge(lambda: slow(signal.ITIMER_PROF, signal.SIGPROF)).name == "FAILURE too slow"
    assert judge(lambda: slow(signal.ITIMER_REAL, signal.SIGALRM)).name == "FAILURE too slow"
    monkeypatch.setattr(outcome, "SECONDS", -1.0)
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    assert judge(lambda: Outcome("fine")).name == "FAILURE too slow"
