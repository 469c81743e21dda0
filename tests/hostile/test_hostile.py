"""No input ends in a traceback, a number that is not finite or a release that is not private."""

import io
import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp2erm_cvx import Domain
from dp2erm_cvx.cli import main
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.domain_file import load_domain
from tests.command_line import study_of
from tests.hostile import releases
from tests.hostile.arrays import count, failures, one
from tests.hostile.command import run
from tests.hostile.outcome import Failure, Outcome, judge

#: Cells that break careless readers.
CELLS = (
    "nan", "NaN", "inf", "-inf", "1e999", "-1e999", "1e308", "5e-324", "", " ", "\t", "abc", "1,5",
    '"1,5"',
    "1 000", "1_000", "1'000", "0x10", "--1", "1e", ".", "-", "+1", "true", "FALSE", "TRUE ", "NA",
    "NULL",
    "None", "#DIV/0!", "=1+1", "\x00", "\x001", "1\x00", "\ufeff1", "\u0661\u0662", "\uff11", "½",
    "²", "∞",
    "\u22121", "1\u00a0000", '"', '""', '"a"b', '"a\nb"', "'1'", "\r", "1\r", "a\rb", '"a\rb"',
    "\ufeff", ";",
    "1;2", "1.0.0", "1e5e5", "9" * 400, "0." + "1" * 5000, "x" * 140_000, '"' + "x" * 140_000 + '"',
    "\ud7ff",
    "😀", "nan(1)", "infinity", "1d5", "1j", "2020-01-01", "a", "y", "x1", " a ", "A", '"a"',
)  # fmt: skip
ENCODINGS = (
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "latin-1",
    "cp1252",
    "utf-7",
    "shift_jis",
)


@st.composite
def written(draw: Callable[..., Any]) -> bytes:
    """A good table with a few wrong cells, each put in the place of one, or none, or one too
    many.
    """
    rows = [
        ["x1", "x2", "a", "y"],
        *([str(k % 3 - 1), "0.5", str(k % 2), "0.1"] for k in range(24)),
    ]
    rows = rows[: draw(st.sampled_from((25, 25, 11, 3, 2, 1)))]
    cells = st.sampled_from(CELLS).map(lambda cell: [cell]) | st.just([])
    for row, column, cell in draw(
        st.lists(st.tuples(st.integers(0, 24), st.integers(0, 4), cells), max_size=3)
    ):
        rows[row % len(rows)][column : column + 1] = cell
    separator = draw(st.sampled_from((*[","] * 8, ";", "\t", "|", ", ")))
    end = draw(st.sampled_from((*["\n"] * 4, "\r\n", "\r", "\n\n", "\x0b", "\u2028", "")))
    text = end.join(map(separator.join, rows)) + draw(st.sampled_from((end, "", "\x1a", '"')))
    return text.encode(draw(st.sampled_from((*["utf-8"] * 8, *ENCODINGS))), errors="ignore")


def parquet() -> bytes:
    file = io.BytesIO()
    columns = {"x1": [0.5, -0.5] * 9, "x2": [0.1] * 18, "a": [0, 1] * 9, "y": [1.0, 0.2] * 9}
    pd.DataFrame(columns).to_parquet(file)
    return file.getvalue()


def fine(case: Callable[[], Outcome]) -> bool:
    """Whether the outcome of a case is one that may come up, which a failure shows."""
    result = judge(case)
    assert not result.failed, f"{result.name}\n{result.detail}"
    return True


SHORT = st.binary(max_size=300) | st.text(alphabet='x1ay0,.-e"\n\r;\x00', max_size=80).map(
    str.encode
)
CUT = st.integers(0, 3000).map(lambda end: parquet()[:end])
CHOSEN = (None, None, ["x1"], ["x1", "x2"], ["x1", "x1"], [], "x1", ["a"], ["\ud800"])
RECORDS = 'treatment = "a"\noutcome_column = "y"\ncovariate_bound = 1\noutcome_bound = 2\n'
QUESTIONS = (
    '[[effect]]\nsettings = { propensity = "logistic" }\n',
    "[[rule]]\n",
    '[[two_stage]]\nfirst_stage = "ipw_private"\n',
    '[[two_stage]]\nfirst_stage = "mmd_pooled"\nsecond_stage = "plug_in_ate"\n',
)


@pytest.mark.parametrize("examples", [25, pytest.param(3000, marks=pytest.mark.slow)])
def test_any_table(tmp_path: Path, examples: int) -> None:
    @settings(max_examples=examples)
    @given(written() | written() | SHORT | CUT, st.sampled_from(CHOSEN), st.sampled_from(QUESTIONS))
    def does_no_harm(data: bytes, chosen: Any, question: str) -> None:
        study = tmp_path / "study.toml"
        study.write_text(study_of(question, RECORDS))
        for name in (
            ("any.csv", "any.parquet") if data.startswith((b"PAR1", b"\x00")) else ("any.csv",)
        ):
            (path := tmp_path / name).write_bytes(data)

            def case(path: Path = path) -> Outcome:
                read = Dataset.read(path, treatment="a", outcome="y", covariates=chosen)
                if not (
                    np.all(np.isfinite(read.X))
                    and np.all(np.isfinite(read.y))
                    and read.n_samples >= 2
                ):
                    raise Failure(f"accepted what is not finite: {data[:500]!r}")
                return Outcome("records, all finite")

            assert fine(case)
            words = [
                "run",
                str(study),
                str(path),
                "--json",
                "--force",
                "--output",
                str(tmp_path / "r.json"),
            ]
            assert fine(lambda words=words: run(words))

    does_no_harm()


@pytest.mark.slow
def test_seeded_cases() -> None:
    result = [one(number) for number in range(80)]
    assert not failures(result)
    assert [one(number) for number in range(3)] == result[:3]  # a number repeats its case


@pytest.mark.slow
def test_many_seeded_cases() -> None:
    result = count(range(1_000_000, 1_070_000), processes=min(os.cpu_count() or 1, 4))
    names = {outcome.name for _, outcome in result}
    assert not failures(result)
    assert "release, private" in names
    # certified by design: no record may decide about the standing of a release
    assert "release, conditional on certification" not in names


@settings(max_examples=20)
@given(
    st.binary(max_size=300)
    | st.text(alphabet="cov_bound=[]{}.,'\"0123e-\n", max_size=80).map(str.encode)
)
def test_any_bytes_as_a_domain(tmp_path, data: bytes) -> None:
    def case() -> Outcome:
        domain = load_domain(tmp_path / "any.toml")
        if Domain.from_dict(json.loads(json.dumps(domain.to_dict(), allow_nan=False))) != domain:
            raise Failure(f"does not survive its own plain form: {domain}")
        return Outcome("domain")

    (tmp_path / "any.toml").write_bytes(b"covariate_bound = 1\noutcome_bound = 1\n" + data)
    assert fine(case)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=20)
@given(st.integers(0, 3), st.integers(0, 10_000), JSON)
def test_any_json_in_place_of_any_entry(number: int, which: int, value: object) -> None:
    plain = releases.good(number)
    listed = releases.places(plain)
    releases.put(plain, listed[which % len(listed)], value)
    assert fine(lambda: releases.read_back(json.dumps(plain)))


@settings(max_examples=15)
@given(
    st.lists(
        st.sampled_from([*main.commands, "--json", "--n", "--epsilon"]) | st.text(max_size=6),
        max_size=6,
    )
)
def test_any_words(tmp_path, monkeypatch, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    if words and words[0] in ("demo", "certify"):
        words[0] = "bounds"  # those two do honest work for longer than a case may take
    assert fine(lambda: run(words))


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (lambda: np.float64(1) / np.float64(0), "RuntimeWarning"),
        (lambda: [][1], "IndexError"),
        (lambda: warnings.warn("x", stacklevel=1), "UserWarning"),
        (lambda: signal.raise_signal(signal.SIGPROF), "TooSlow"),  # as if the time were over
    ],
)
def test_the_judge_sees_what_it_is_for(case: Callable[[], Any], name: str) -> None:
    assert judge(lambda: Outcome(str(case()))).name == f"FAILURE {name}"
