"""Bad inputs to all commands end in exit code 2 and one line, and neither write nor charge anything."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dp2erm_cvx.cli import main, reading
from tests.hostile.bad_inputs import Bad, every, write_files
from tests.hostile.bad_inputs import refused as table
from tests.hostile.outcome import Failure, Outcome, judge

#: What of an effect and a rule their numbers of records or their ledgers decide.
AFTER_READING = ("delta", "does not fit", "no declared total", "no such ledger", "something else")
AFTER_READING += ("not a database", "folder", "need an epsilon of", "cannot be read", "is read in blocks")
#: Exit code, stdout and stderr of a command line.
Ran = Callable[[list[str]], tuple[int, str, str]]


def here(words: list[str]) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.stdout, result.stderr


def elsewhere(words: list[str]) -> tuple[int, str, str]:
    command = [sys.executable, "-c", "from dp2erm_cvx.cli import main; main()", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def state(folder: Path) -> dict[str, bytes]:
    """Every file, the ledger among them, but what Python keeps."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


def refused(bad: Bad, folder: Path, ran: Ran = here) -> Outcome:
    """Judge one line in a folder that all lines share, as none of them may change it."""
    if bad.name:
        (folder / bad.name).write_bytes(bad.content)
    before = state(folder)
    with contextlib.chdir(folder):
        code, told, error = ran(list(bad.words))
    after = state(folder)
    if bad.name:
        (folder / bad.name).unlink()
        write_files(folder)
    line = error.strip()
    if line.startswith("NOT PRIVATE, for the data holder only: "):
        line = line.partition("\n")[2]  # before a charge that is refused
    one_line = line.startswith("error: ") and len(line.splitlines()) == 1 and 20 < len(line) < 600
    if bad.words[0] == "verify" and (code, error, told[:10]) == (1, "", "REFUTED\n- "):
        code, told, one_line = 2, "", True  # a release whose entries do not follow
    if code != 2 or told or not one_line or bad.told not in line or after != before:
        raise Failure(f"not refused in one line: {bad}: exit {code}: {told[-200:]!r} {line[-300:]!r}")
    return Outcome("exit 2, one line")


def failures(chosen: list[Bad], folder: Path, ran: Ran = here) -> list[Outcome]:
    write_files(folder)
    result = [judge(lambda bad=bad: refused(bad, folder, ran)) for bad in chosen]
    return [outcome for outcome in result if outcome.failed]


def test_every_command_is_asked() -> None:
    listed = every()
    assert len(listed) >= 2000
    assert {bad.words[0] for bad in listed} >= set(main.commands)


def test_what_is_wrong_is_told_and_nothing_is_written_or_charged(tmp_path: Path) -> None:
    wrong = failures(table(), tmp_path)
    assert not wrong, "\n".join(one.detail for one in wrong)


def test_a_declaration_is_judged_before_the_data_are_read(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "raw_table", lambda *_: pytest.fail("the data were read"))
    early = [bad for bad in table() if bad.words[0] in ("effect", "rule") and bad.told not in AFTER_READING]
    assert len(early) > 30
    assert not failures(early, tmp_path)


def test_a_tenth_of_the_bad_inputs(tmp_path: Path) -> None:
    assert not failures(every()[3::10], tmp_path)


@pytest.mark.slow
def test_all_bad_inputs(tmp_path: Path) -> None:
    assert not failures(every(), tmp_path)


@pytest.mark.slow
def test_a_process_of_its_own_says_the_same(tmp_path: Path) -> None:
    without_nul = [bad for bad in every() if not any("\x00" in word for word in bad.words)]
    assert not failures(without_nul[5::40], tmp_path, elsewhere)


def test_the_judge_sees_what_is_no_refusal(tmp_path: Path) -> None:
    assert failures([Bad(("fit", "--plan", "50", "--domain", "domain.toml", "--epsilon", "1"))], tmp_path)
    wrote: Ran = lambda words: (Path("new.json").write_text(""), (2, "", "error: what is wrong with this"))[1]  # noqa: E731
    assert failures([Bad(("bounds",))], tmp_path, wrote)
