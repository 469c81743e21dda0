"""What ``--private-ranges`` needs: a domain of which some ranges are public, and the others are released."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.cli.options import DOMAIN_FIELDS, names
from dp2erm_cvx.cli.reading import coded_columns, range_of, with_columns
from dp2erm_cvx.errors import DeclarationError, shown

if TYPE_CHECKING:
    from dp2erm_cvx.private_ranges import PrivateRanges

#: What stands for a range that is released.
_RELEASED = "private"
#: What a domain may declare beside ranges.
_KNOWN = ("covariate_bound", "outcome_bound", "outcome_center", "outcome", "relation", "ranges")


def read_ranges(options: dict[str, Any]) -> PrivateRanges:
    """The public ranges of ``--domain`` and of the flags; the other covariates of ``--covariates`` have none.

    In the file a range is ``[low, high]``, ``{within = [low, high]}`` for wide bounds, or ``"private"``, and
    ``outcome`` may be one. An outcome bound declares that of the outcome.
    """
    from dp2erm_cvx.declared_domain import split_codebook
    from dp2erm_cvx.domain_file import read_declared
    from dp2erm_cvx.private_ranges import PrivateRanges

    stated: dict[str, Any] = {} if options["domain"] is None else read_declared(options["domain"])
    chosen = names(options.get("covariates"))
    stated = with_columns(stated if chosen is None else coded_columns(stated, chosen), options)
    book, declared = split_codebook(stated)
    declared |= {name: options[name] for name in DOMAIN_FIELDS if options[name] is not None}
    for name in declared:
        if name not in _KNOWN:
            raise DeclarationError(f"--private-ranges: {name} cannot be declared; known: {', '.join(_KNOWN)}")
    ranges = declared.get("ranges") or {}
    if not isinstance(ranges, Mapping):
        raise DeclarationError("--private-ranges: ranges of the domain file must have names")
    known = {str(name): _entry(name, entry) for name, entry in ranges.items()}
    known |= dict(map(range_of, options["ranges"]))
    if chosen is not None:
        known = {name: known.get(name) for name in chosen if book is None or name not in book.levels}
    if book is not None:
        known = book.ranges(known)
    rest = {name: declared[name] for name in ("covariate_bound", "relation") if name in declared}
    outcome = _outcome(declared)
    return PrivateRanges(options["private_ranges"], known or None, outcome=outcome, codebook=book, **rest)


def _entry(name: str, entry: Any) -> Any:
    from dp2erm_cvx.private_ranges import Within

    if isinstance(entry, Mapping):
        if list(entry) != ["within"] or not isinstance(entry["within"], list) or len(entry["within"]) != 2:
            raise DeclarationError(f"{name} = {shown(entry)}: must be {{within = [low, high]}}")
        return Within(*entry["within"])
    return None if entry == _RELEASED else entry


def _outcome(declared: Mapping[str, Any]) -> Any:
    if "outcome_bound" not in declared:
        if "outcome_center" in declared:
            raise DeclarationError("--private-ranges: outcome_center needs an outcome_bound")
        return _entry("outcome", declared.get("outcome"))
    if "outcome" in declared:
        raise DeclarationError("--private-ranges: declare outcome or outcome_bound, not both")
    from dp2erm_cvx.public import public_number

    bound = public_number("outcome_bound", declared["outcome_bound"], above=0.0)
    center = public_number("outcome_center", declared.get("outcome_center", 0.0))
    return center - bound, center + bound
