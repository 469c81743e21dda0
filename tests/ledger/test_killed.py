"""Whatever stops a command that spends: the ledger has the charge, a release is on disk whole or
never.

No release is shown uncharged, and no total is exceeded.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dp2erm_cvx.cli.screen import reserved
from dp2erm_cvx.errors import DeclarationError
from tests.command_line import FIT, done, run, sets
from tests.ledger.model import spent

fcntl = pytest.importorskip("fcntl")
PROCESSES = Path(__file__).with_name("processes.py")
CHARGED = [*FIT[:3], *sets("ledger.file=b.db", "ledger.dataset=trial"), "--output", "out.json"]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture(scope="module", params=[(4, 1), pytest.param((200, 3), marks=pytest.mark.slow)])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What became of processes that share a ledger, and of the points where one was killed."""
    words = [
        sys.executable,
        "-W",
        "ignore",
        PROCESSES,
        tmp_path_factory.mktemp("forked"),
        *request.param,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROCESSES.parents[2])}
    ended = subprocess.run(
        [*map(str, words)], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    result = [json.loads(line) for line in ended.stdout.splitlines()]
    assert len(result) == 1 + request.param[0]
    return result


@pytest.mark.slow
def test_four_processes_share_one_total(told: list[Any]) -> None:
    numbers = sorted(number for own in told[0]["numbers"] for number in own)
    assert numbers == sorted(told[0]["kept"])
    assert len(set(numbers)) == 25
    assert (told[0]["codes"], told[0]["left"]) == ([0] * 4, 0.0)


def test_kill_at_points_of_a_run(told: list[Any]) -> None:
    for one in told[1:]:
        before, again = one["killed"], one["again"]
        assert before["status"] == 9, one
        assert before["output"] in ("none", "whole"), one
        # nothing is shown that was not charged, and before the charge nothing is spent
        assert before["charges"] == 1 or (before["output"], before["told"]) == ("none", False), one
        assert before["charges"] == 0 or before["point"] > before["charge"], one
        # the same line again neither hangs nor spends in silence
        if before["output"] == "whole":
            assert (again["code"], again["charges"], again["output"]) == (2, 1, "whole"), one
        else:
            assert (again["code"], again["output"]) == (0, "whole"), one
            assert again["charges"] == before["charges"] + 1, one
            assert (
                f"charge {again['charges']}, epsilon = {5 - again['charges']} left"
                in again["stderr"]
            ), one
    ends = [(one["killed"]["charges"], one["killed"]["output"]) for one in told[1:]]
    assert (1, "none") in ends  # some points lie between the charge and the release


def uncharged(*words: str) -> str:
    """The line of a command that is refused, behind what becomes of the records if they were
    read.
    """
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return str(result.stderr.splitlines()[-1])


def full(*known: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_is_found_before_the_charge(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    assert "out.json: cannot be written: No space left" in uncharged(*CHARGED)
    assert spent() == 0.0
    assert not list(folder.glob("out.json*"))


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_disk_that_fails_after_the_charge(
    call: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("out.json").write_text("kept")
    monkeypatch.setattr(os, call, full)
    told = run(*CHARGED, "--force")
    assert (told.exit_code, spent()) == (2, 1.0)
    assert json.loads(told.stdout)["private"] is True
    assert "charged to 'trial'" in told.stderr
    # what stood there is kept whole, and nothing else is left
    assert [path.read_text() for path in folder.glob("out.json*")] == ["kept"]


def test_a_second_process_at_the_same_output_spends_nothing(folder: Path) -> None:
    with reserved("out.json") as file:
        assert file is not None
        assert "another process is writing it" in uncharged(*CHARGED)
        assert spent() == 0.0
        file.write("first")
    assert Path("out.json").read_text() == "first"
    with pytest.raises(DeclarationError, match="exists"), reserved("out.json"):
        pytest.fail("was overwritten")
    assert [path.name for path in folder.glob("out.json*")] == ["out.json"]


@pytest.mark.one_row_in(2)
@pytest.mark.parametrize("kept", ["ledger", "link"])
def test_a_part_is_no_file_of_the_command_and_no_link(kept: str, folder: Path) -> None:
    """The part is written over: as a ledger it was gone, with what had been spent."""
    words = [*CHARGED]
    if kept == "ledger":
        Path("b.db").rename("out.json.part")
        words += sets("ledger.file=out.json.part")
    else:
        Path("real.json").write_text("old")
        Path("out.json.part").symlink_to("real.json")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    told = "cannot be written" if kept == "link" else "is used by this command already"
    assert told in uncharged(*words)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.slow
def test_an_output_that_is_a_link_is_written_through(folder: Path) -> None:
    Path("real.json").write_text("old")
    Path("out.json").symlink_to("real.json")
    done(*CHARGED, "--force")
    assert Path("out.json").is_symlink()
    assert json.loads(Path("real.json").read_text())["private"] is True
