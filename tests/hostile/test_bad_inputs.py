"""Bad inputs to all commands end in exit code 2 and one line, and neither write nor charge
anything.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from dp2erm_cvx.cli import main, reading
from tests.command_line import run
from tests.hostile.bad_inputs import Bad, every, write_files
from tests.hostile.bad_inputs import refused as table
from tests.hostile.outcome import Failure, Outcome, judge

#: What of an effect and a rule their numbers of records or their ledgers decide.
AFTER_READING = ("delta", "does not fit", "something else")
AFTER_READING += (
    "not a database",
    "folder",
    "cannot be read",
    "is read in blocks",
    "are read in blocks",
)


def state(folder: Path) -> dict[str, bytes]:
    """Every file, the ledger among them, but what Python keeps."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def refused(bad: Bad, folder: Path, ran: Callable[..., object]) -> Outcome:
    """Judge one line in a folder that all lines share, as none of them may change it."""
    if bad.name:
        (folder / bad.name).write_bytes(bad.content)
    before = state(folder)
    with contextlib.chdir(folder):
        result = ran(*bad.words)
    after = state(folder)
    if bad.name:
        (folder / bad.name).unlink()
        write_files(folder)
    code, told, line = result.exit_code, result.stdout, result.stderr.strip()
    if line.startswith("NOT PRIVATE, for the data holder only: "):
        line = line.partition("\n")[2]  # before a charge that is refused
    one_line = line.startswith("error: ") and len(line.splitlines()) == 1 and 20 < len(line) < 600
    if bad.words[0] == "verify" and (code, line, told[:10]) == (1, "", "REFUTED\n- "):
        code, told, one_line = 2, "", True  # a release whose entries do not follow
    if code != 2 or told or not one_line or bad.told not in line or after != before:
        raise Failure(
            f"not refused in one line: {bad!s:.400}: exit {code}: {told[-200:]} {line[-300:]}"
        )
    return Outcome("exit 2, one line")


def failures(chosen: list[Bad], folder: Path, ran: Callable[..., object] = run) -> list[Outcome]:
    write_files(folder)
    result = [judge(lambda bad=bad: refused(bad, folder, ran)) for bad in chosen]
    return [outcome for outcome in result if outcome.failed]


@pytest.mark.parametrize(
    "chosen", [slice(10, None, 12), pytest.param(slice(None), marks=pytest.mark.slow)]
)
def test_what_is_wrong_is_told_and_nothing_is_written_or_charged(
    tmp_path: Path, monkeypatch, chosen: slice
) -> None:
    """And what a declaration decides before the data are read."""
    asked, read, table_of = [], set(), reading.raw_table
    monkeypatch.setattr(
        reading, "raw_table", lambda *known: read.add(asked[-1]) or table_of(*known)
    )
    lines = table()[chosen]
    assert not failures(lines, tmp_path, lambda *words: asked.append(words) or run(*words))
    releases = [
        bad for bad in table() if bad.words[:2] in (("run", "effect.toml"), ("run", "rule.toml"))
    ]
    early = {bad.words for bad in releases if bad.told not in AFTER_READING}
    assert len(early) > 20
    assert not read & early
    assert read


@pytest.mark.parametrize(
    "chosen", [slice(3, None, 25), pytest.param(slice(None), marks=pytest.mark.slow)]
)
def test_bad_inputs(tmp_path: Path, chosen: slice) -> None:
    listed = every()
    assert len(listed) >= 1000
    assert {bad.words[0] for bad in listed} >= set(main.commands)
    assert not failures(listed[chosen], tmp_path)


@pytest.mark.slow
def test_the_judge_sees_what_is_no_refusal(tmp_path: Path) -> None:
    def wrote(*words: str) -> object:
        Path("new.json").write_text("")
        return run("bounds")

    good = Bad(("run", "fit.toml", "--plan", "50"))
    assert len(failures([good, Bad(("bounds",), told="nobody")], tmp_path)) == 2
    assert not failures([Bad(("bounds",))], tmp_path)
    assert failures([Bad(("bounds",))], tmp_path, wrote)
