"""One hostile command line in a folder of its own, judged by what it prints and how it ends."""

import re

from tests.command_line import run as in_this_process
from tests.hostile.outcome import Failure, Outcome, TooSlow, refusal, standing, strict_json

#: A word of a table that is no number.
NO_NUMBER = re.compile(r"(?<![\w.=-])-?(nan|inf)(?![\w.-])", re.IGNORECASE)


def run(words: list[str]) -> Outcome:
    """Run ``dp2erm`` with these words: exit 0 with finite numbers, or exit 2 with one line."""
    result = in_this_process(*words, env={"DP2ERM_DEBUG": "1"})
    if isinstance(result.exception, TooSlow):
        raise result.exception
    if result.exit_code == 2:
        told = result.stderr.strip()
        if told.startswith("NOT PRIVATE, for the data holder only: "):
            told = told.partition("\n")[2]  # what was read, before a charge that is refused
        if not told.startswith("error: ") or result.stdout:
            raise Failure(f"refusal is not one line: {words}: {result.output[-1500:]}")
        return refusal(told)
    if result.exit_code != 0:
        raise Failure(
            f"exit {result.exit_code}: {words}: {result.exception!r}: {result.output[-2500:]}"
        )
    if "Traceback" in result.output or "Warning" in result.stderr:
        raise Failure(f"traceback or warning with exit 0: {words}: {result.output[-1500:]}")
    if "--json" in words and result.stdout.lstrip().startswith(("{", "[")):
        shown = strict_json(result.stdout)
        if isinstance(shown, dict) and "guarantee" in shown:
            seeded = any(word.startswith("--seed") for word in words)
            known = shown["guarantee"]
            return standing(known["standing"], known["assumptions"], str(words), seeded)
    elif (actual := NO_NUMBER.search(result.stdout)) and not {"--help", "-h"} & {*words}:
        raise Failure(
            f"non-finite number on the screen: {actual.group()}: {words}: {result.stdout[-1500:]}"
        )
    return Outcome("exit 0, finite")
