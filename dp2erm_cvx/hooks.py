"""Reports of objects that are data: the folder that writes them registers them here, by kind.

This file imports nothing, since the package itself imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: What is told of an object of a kind, block by block.
Report = Callable[[Any], "Iterable[Any]"]
#: Reports of kinds that are data and know no sentences, by the folder that writes them.
_REPORTS: dict[type, Report] = {}
#: What imports that folder.
_LOADERS: list[Callable[[], object]] = []


def register(kind: type, report: Report) -> None:
    """Tell objects of this kind, and of the kinds derived from it, by a report.

    Parameters
    ----------
    kind
        A class whose objects are data, such as a release.
    report
        What a reader is shown of one of them.
    """
    _REPORTS[kind] = report


def load_by(loader: Callable[[], object]) -> None:
    """Call a loader where a report is asked for that nobody registered yet.

    Parameters
    ----------
    loader
        Imports the folder that registers the reports; a second call does nothing.
    """
    _LOADERS.append(loader)


def report_of(shown: object) -> Iterator[Any]:
    """Report of an object, as it was registered for its kind.

    Parameters
    ----------
    shown
        A release, a plan, or another object that is data.

    Raises
    ------
    LookupError
        If no report of its kind is registered.
    """
    report = _registered(type(shown))
    if report is None:
        for loader in _LOADERS:
            loader()
        report = _registered(type(shown))
    if report is None:
        raise LookupError(
            f"no report of a {type(shown).__name__} is registered: import dp2erm_cvx.report"
        )
    return iter(report(shown))


def _registered(kind: type) -> Report | None:
    """The report of a kind, or of the nearest kind that it is derived from."""
    for one in kind.__mro__:
        if one in _REPORTS:
            return _REPORTS[one]
    return None
