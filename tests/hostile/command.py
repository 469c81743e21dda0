"""One hostile command line in a folder of its own, judged by what it prints and how it ends."""

import re
import traceback

from click.testing import CliRunner, Result

from dp2erm_cvx.cli import main
from tests.hostile.outcome import FAILURE, Failure, Outcome, TooSlow, standing, strict_json

#: A word of a table that is no number.
NO_NUMBER = re.compile(r"(?<![\w.=-])-?(nan|inf)(?![\w.-])", re.IGNORECASE)


def run(words: list[str]) -> Outcome:
    """Run ``dp2erm`` with these words: exit 0 with finite numbers, or exit 2 with one line."""
    result = CliRunner().invoke(main, words, env={"DP2ERM_DEBUG": "1"})
    if isinstance(result.exception, TooSlow):
        raise result.exception
    if result.exit_code == 2:
        return _refused(words, result)
    if result.exit_code != 0:
        told = result.stderr[-2500:] + "".join(traceback.format_exception(result.exception))[-500:]
        last = result.stderr.strip().splitlines()[-1:] or [str(result.exit_code)]
        return Outcome(f"{FAILURE} exit {result.exit_code}: {last[0][:60]}", f"{words}\n{told}")
    if "Traceback" in result.output or "Warning" in result.stderr:
        raise Failure(f"traceback or warning with exit 0: {words}: {result.output[-1500:]}")
    if "--json" in words and result.stdout.lstrip().startswith(("{", "[")):
        shown = strict_json(result.stdout)
        if isinstance(shown, dict) and "guarantee" in shown:
            seeded = any(word.startswith("--seed") for word in words)
            return standing(
                shown["guarantee"]["standing"], shown["guarantee"]["assumptions"], str(words), seeded
            )
    elif (actual := NO_NUMBER.search(result.stdout)) and "--help" not in words and "-h" not in words:
        raise Failure(
            f"non-finite number on the screen: {actual.group()!r}: {words}: {result.stdout[-1500:]}"
        )
    return Outcome("exit 0, finite")


def _refused(words: list[str], result: Result) -> Outcome:
    lines = result.stderr.strip().splitlines()
    if lines and lines[0].startswith("NOT PRIVATE, for the data holder only: "):
        del lines[0]  # what was read, before a charge that is refused
    if len(lines) != 1 or not lines[0].startswith("error: ") or result.stdout:
        raise Failure(f"refusal is not one line: {words}: {result.output[-1500:]}")
    if len(lines[0]) > 2000:
        raise Failure(f"refusal is too long: {words}: {lines[0][:300]}")
    return Outcome("exit 2, one line")
