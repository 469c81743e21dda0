"""Data files in blocks on the command line: the same release, and what cannot be had is refused at once."""

import json
from pathlib import Path

import click
import dask
import pytest

from dp2erm_cvx.cli import reading
from tests.command_line import EFFECT, done, run, write_files

pa = pytest.importorskip("pyarrow")
from pyarrow import csv, parquet  # noqa: E402


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_files()
    parquet.write_table(csv.read_csv("data.csv"), "data.parquet", row_group_size=33)
    Path("many").mkdir()
    for k in range(2):
        parquet.write_table(csv.read_csv("data.csv").slice(100 * k, 100), f"many/{k}.parquet")


def with_data(words: list[str], name: str, *more: str) -> list[str]:
    return [name if word == "data.csv" else word for word in words] + ["--seed", "1", "--json", *more]


def test_blocks_are_audited():
    words = ["audit", "data.csv", *EFFECT[2:8], "--program", "ipw_logistic", "--ridge", "0.1"]
    words += ["--solves", "100"]
    result = done(*with_data(words, "many"))
    actual = json.loads(result.stdout)
    assert actual["check"]["solver"] == "first_certified"
    assert not any(verdict["violated"] for verdict in actual["verdicts"])
    assert "read in blocks" in Path("output/audit.html").read_text(encoding="utf-8")
    refused = run(*with_data(words, "many", "--save", "pair"))
    assert "two whole datasets" in refused.stderr


def test_large_files_are_read_in_blocks_without_being_asked_to(monkeypatch):
    asked = []
    monkeypatch.setattr(reading, "_connect", asked.append)
    run(*with_data(EFFECT, "data.parquet"))
    assert not asked
    monkeypatch.setattr(reading, "LARGE", 1e-9 * 8 * 200)
    with open("domain.toml") as plain, open("persons.toml", "w") as persons:  # whose rows are private
        persons.write(plain.read() + '[unit]\ncolumn = "who"\nnumber = 9\n')
    of_persons = ["persons.toml" if word == "domain.toml" else word for word in EFFECT]
    assert run(*with_data(of_persons, "data.parquet")).exit_code == 0
    assert not asked
    assert run(*with_data(EFFECT, "data.parquet", "--blocks", "never")).exit_code == 0
    assert not asked
    assert run(*with_data(EFFECT, "data.parquet")).exit_code == 0
    assert asked


def test_every_pass_over_blocks_is_told_with_a_time_of_its_own(monkeypatch):
    told = []
    monkeypatch.setattr(reading, "stages", lambda bar: lambda *facts: told.append(facts))
    with click.Context(click.Command("effect")):
        reading._show_passes(None)
        for _ in range(2):
            dask.compute(dask.delayed(len)("ab"), scheduler="threads")
    passes = (f"blocks of records, pass {number}" for number in (1, 2))
    assert told == [(one, done, 1) for one in passes for done in (0, 1)]
