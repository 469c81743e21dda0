"""What may come of hostile input: a finite release, or one typed error."""

import json
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from dp2erm_cvx.errors import Dp2ermError

#: What takes so much of the processor hangs. The slow run asks for far less.
SECONDS = 600.0

FAILURE = "FAILURE"


@dataclass(frozen=True)
class Outcome:
    """``name`` is what is counted; ``detail`` is shown where it is a failure or a conditional
    release.
    """

    name: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.name.startswith(FAILURE)


class TooSlow(BaseException):
    """Not an Exception: nothing on the way may swallow it."""


class Failure(AssertionError):
    """A case judged its own result to be wrong."""


def judge(case: Callable[[], Outcome]) -> Outcome:
    """Run a case with a time limit; which warnings are errors is up to whoever runs it."""

    def late(*_: object) -> NoReturn:
        raise TooSlow

    previous = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return case()
    except Dp2ermError as error:
        return refusal(error)
    except Failure as error:
        return Outcome(f"{FAILURE} {str(error).split(':')[0]}", str(error))
    except (Exception, TooSlow) as error:
        return Outcome(f"{FAILURE} {type(error).__name__}", traceback.format_exc(limit=-6))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def refusal(error: Dp2ermError | str) -> Outcome:
    """What is refused is fine if it says what is wrong in one line of readable length."""
    text = str(error)
    if not text.strip() or len(text.splitlines()) > 1 or len(text) > 2000:
        return Outcome(f"{FAILURE} message is not one line", repr(text)[:2000])
    return Outcome("refused in one line" if isinstance(error, str) else type(error).__name__)


def public_refusal(error: Dp2ermError, values: Any) -> None:
    """A message does not show a private number; short ones are told by chance."""
    for value in values:
        for shown in (repr(float(value)), f"{float(value):g}"):
            if len(shown.strip("-0.")) >= 5 and shown in str(error):
                raise Failure(f"private number in a public message: {shown} in {error}")


def standing(stated: str, assumptions: Any, told: str, seeded: bool = False) -> Outcome:
    """What a release says of itself: private unless it is seeded, or the declaration leaves it
    open.
    """
    if stated == "conditional on certification" and any(
        "not known to" in one for one in assumptions
    ):
        # of the declaration, whatever the records
        return Outcome("release, conditional on every dataset")
    allowed = ["conditional on certification", "not private: the calibration is not proven"]
    if stated in [*allowed, "not private: seeded noise" if seeded else "private"]:
        return Outcome(f"release, {stated}", told)
    raise Failure(f"not private without a seed: {stated}: {told}")


def strict_json(text: str) -> Any:
    """Parsed JSON whose numbers are all finite."""

    def refuse(constant: str) -> NoReturn:
        raise Failure(f"non-finite number in JSON: {constant}")

    def finite(number: str) -> float:
        if abs(float(number)) == float("inf"):
            refuse(number)
        return float(number)

    return json.loads(text, parse_constant=refuse, parse_float=finite)
