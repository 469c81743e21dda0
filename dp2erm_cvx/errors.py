"""Typed errors, split by what the reader can do about them."""

from __future__ import annotations

import difflib
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Characters of a message: what it quotes can have any length.
LONGEST = 500


class Dp2ermError(Exception):
    """Base of every error this library raises on purpose. Its text is always one line."""

    def __str__(self) -> str:
        line = " ".join(super().__str__().split())
        return line if len(line) <= LONGEST else f"{line[:250]} ... {line[-250:]}"


def brief(value: object) -> str:
    """A value as a message quotes it: short, and whatever it is."""
    try:
        text = " ".join(repr(value).split())
    except (
        Exception
    ):  # a whole number of thousands of digits has no text, and a foreign object may have none
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def known_names(name: object, known: Iterable[str]) -> str:
    """Hint about an unknown name: the nearest known one, or else the first ones of them."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    listed = ", ".join(names[:12]) + (", ..." if names[12:] else "")
    return f"did you mean {near[0]}?" if near else f"known: {listed or 'none'}"


class DeclarationError(Dp2ermError, ValueError):
    """A public quantity (budget, domain, hyper-parameter) is invalid: change the declaration."""


class DataError(Dp2ermError, ValueError):
    """The data file or array is invalid: mend the named row or column.

    Shown to the data holder only; its text may depend on private records.
    """


class FileError(DataError):
    """A file cannot be opened, or is another one than when a run began.

    All passes have to reach one file.
    """


class ProgramError(Dp2ermError):
    """A program is unknown, not DPP, or has no solution: choose or mend the program."""


class InfeasibleError(ProgramError):
    """The hard constraints of a program have no solution: add a ridge or drop constraints.

    Shown to the data holder only.

    Parameters
    ----------
    message
        What is wrong.
    covariates
        Names of the balance functions that stand in the way, the most important first.
    smallest_tolerance
        The least tolerance for which weights exist; None where it is not known.
    """

    def __init__(
        self,
        message: str,
        *,
        covariates: tuple[str, ...] = (),
        smallest_tolerance: float | None = None,
    ) -> None:
        super().__init__(message)
        self.covariates = covariates
        self.smallest_tolerance = smallest_tolerance


@contextmanager
def placed(place: object) -> Iterator[None]:
    """Name the place of whatever is refused, once."""
    try:
        yield
    except (DeclarationError, ProgramError) as error:
        raise DeclarationError(f"{place}: {str(error).removeprefix(f'{place}: ')}") from None


class SolverError(Dp2ermError):
    """No solver reached a solution: choose another solver or looser settings."""


class CertificateError(Dp2ermError):
    """A solution was found but could not be certified to the tolerance asked for."""


class CalibrationError(Dp2ermError):
    """No noise calibration covers what was declared: change the program, bound or budget."""


class LedgerError(Dp2ermError):
    """The ledger does not admit a release: spend less, declare a total, or name another file.

    Its text depends on public numbers alone.
    """


class WorkerError(Dp2ermError):
    """The workers of a cluster died, are gone, or have something else installed than the client.

    Its text depends on the cluster alone.
    """
