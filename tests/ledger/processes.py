"""Processes that are killed, and some that charge one ledger at once; run as a script by
test_killed.py.

Arguments: folder, number of points, number of commands. At a point of its run a command is killed.
A point is a call: of a function of this package, or of any built-in one, such as the writes to
files and the statements to the ledger. Half of the points lie after the charge began. Every process
is forked here, where all is imported. Prints one JSON line for the charges of four processes, and
one for each point.
"""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from dp2erm_cvx import Budget
from dp2erm_cvx.cli import main
from dp2erm_cvx.errors import Dp2ermError, LedgerError
from dp2erm_cvx.ledger import Ledger
from dp2erm_cvx.release.reading import read_release_file
from tests.command_line import done, write_files

_CHARGED = "data.csv --set ledger.file=book.db --set ledger.dataset=trial --output out.json"
_STAGES = "--set two_stage.first_stage=uniform --set two_stage.second_stage=arm_means"
COMMANDS = (f"run fit.toml {_CHARGED} {_STAGES}", f"run effect.toml {_CHARGED}")
COMMANDS += (f"run rule.toml {_CHARGED}",)
#: Seconds after which a rerun counts as hanging.
PATIENCE = 3600


class Calls:
    """Counts calls; at number ``last`` the process is killed as by the system."""

    def __init__(self, last: int = -1) -> None:
        self.count, self.last, self.charge = 0, last, -1

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event not in ("call", "c_call") or (
            event == "call" and "dp2erm_cvx" not in frame.f_code.co_filename
        ):
            return
        self.count += 1
        if self.charge < 0 and event == "call" and frame.f_code.co_qualname == "Ledger.charge":
            self.charge = self.count
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def forked(words: str, calls: Calls | None) -> int:
    """Run the command in a process of its own; how it ended, as ``waitpid`` says."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    signal.alarm(PATIENCE)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    code = 99
    try:
        sys.setprofile(calls)
        main(words.split())
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.setprofile(None)
        if calls is not None:
            Path("calls").write_text(f"{calls.count} {calls.charge}")
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


def charged(folder: Path) -> dict[str, Any]:
    """Charges of each of four processes, until the total is used up, and what the ledger holds."""
    book = Ledger(folder / "shared.db")
    book.declare("trial", Budget(1.0))
    children = []
    for k in range(4):
        children.append(os.fork())
        if not children[-1]:
            numbers, code = [], 1
            try:
                while True:
                    numbers.append(book.charge("trial", Budget(0.04)).number)
            except LedgerError as refused:  # nobody is refused for having come at the same time
                (folder / str(k)).write_text(json.dumps(numbers))
                code = 0 if "does not fit" in str(refused) else 1
            finally:
                os._exit(code)
    codes = [os.waitpid(child, 0)[1] for child in children]
    account = book.account("trial")
    return {
        "codes": codes,
        "numbers": [json.loads((folder / str(k)).read_text()) for k in range(4)],
        "kept": [one.number for one in account.receipts],
        "left": account.spent.left_epsilon,
    }


def shown() -> dict[str, Any]:
    """What is on disk: the charges, and the output: whole, torn or none."""
    output = "none"
    if os.path.exists("out.json"):
        try:
            read_release_file("out.json")
            output = "whole"
        except Dp2ermError:
            output = "torn"
    charges = len(Ledger("book.db").account("trial").receipts)
    told, error = (Path(name).read_text() for name in ("stdout", "stderr"))
    return {"charges": charges, "output": output, "told": bool(told.strip()), "stderr": error}


def points(calls: int, charge: int, number: int) -> list[int]:
    """Half of them over the whole run, half from the charge on, where they begin close together."""
    first = number // 2
    second = number - first
    over = [1 + k * (calls - 1) // max(first, 1) for k in range(first)]
    return over + [charge + k * k * (calls - charge) // second**2 for k in range(second)]


@contextlib.contextmanager
def fresh(folder: Path) -> Any:
    folder.mkdir(parents=True)
    with contextlib.chdir(folder):
        write_files()
        Ledger("book.db").declare("trial", Budget(5.0))
        yield


def run(folder: Path, number: int, commands: int) -> None:
    print(json.dumps(charged(folder)))
    for place, words in enumerate(COMMANDS[:commands]):
        with fresh(folder / f"{place}-warm"):
            done(*words.split())  # imports, and what reading it keeps, as all others have them
            read_release_file("out.json")
        with fresh(folder / f"{place}-whole"):
            assert forked(words, Calls()) == 0
            calls, charge = map(int, Path("calls").read_text().split())
        share = number // commands + (place < number % commands)
        for point in points(calls, charge, share):
            with fresh(folder / f"{place}-{point}"):
                status = forked(words, Calls(point))
                killed = shown() | {"status": status, "point": point, "charge": charge}
                again = {"code": os.waitstatus_to_exitcode(forked(words, None)), **shown()}
                print(json.dumps({"command": words, "killed": killed, "again": again}), flush=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]), *map(int, sys.argv[2:]))
