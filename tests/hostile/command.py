"""One hostile command line in a folder of its own, judged by what it prints and how it ends."""

import re
import traceback
from pathlib import Path

from click.testing import CliRunner, Result

from dp2erm_cvx.cli import main
from tests.hostile.outcome import FAILURE, Failure, Generator, Outcome, TooSlow, pick, strict_json

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
            return _release(words, shown)
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


def _release(words: list[str], shown: dict[str, object]) -> Outcome:
    guarantee = shown["guarantee"]
    assert isinstance(guarantee, dict)
    standing = guarantee["standing"]
    if standing == "private" and shown["private"] is True and "--seed" not in words:
        return Outcome("release, private and certified")
    if standing == "conditional on certification" and any(
        "not known to" in one for one in guarantee["assumptions"]
    ):
        return Outcome("release, conditional on every dataset")
    if standing == "conditional on certification":
        return Outcome("release, conditional on certification", str(words))
    if standing == "not private: seeded noise" and any(word.startswith("--seed") for word in words):
        return Outcome("release, says that it is seeded")
    if standing == "not private: the calibration is not proven":
        return Outcome("release, says that it is not proven")
    raise Failure(f"not private without a seed: {standing}: {words}")


def fit_case(rng: Generator, path: Path) -> Outcome:
    """``dp2erm fit`` or ``dp2erm effect`` on a file."""
    program = pick(rng, ("entropy_balancing", "ipw_logistic", "uniform", "ipw_private", "mmd_pooled"))
    effect = rng.random() < 0.4
    bounds = ["--covariate-bound", "1", "--outcome-bound", "2", "--epsilon", "1"]
    words = [
        "effect" if effect else "fit", str(path), "--treatment", "a", "--outcome", "y", *bounds, "--json",
    ]  # fmt: skip
    if effect:
        return run([*words, "--estimand", pick(rng, ("ate", "att")), "--set", "propensity=logistic"])
    words += ["--program", program]
    return run([*words, "--second-stage", pick(rng, ("itr", "arm_means", "plug_in_ate"))])
