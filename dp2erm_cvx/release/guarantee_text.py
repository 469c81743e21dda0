"""What every release says of its guarantee, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp2erm_cvx.display import heading

if TYPE_CHECKING:
    from rich.text import Text

    from dp2erm_cvx.release.record import BaseRelease


def titled(title: str, release: BaseRelease) -> Text:
    """The title, and the standing where it is not private."""
    return heading(title if release.private else f"{title}: {release.guarantee.standing.upper()}")


def guaranteed(release: BaseRelease) -> list[tuple[str, str]]:
    """What holds, by which theorems, and what that rests on."""
    guarantee = release.guarantee
    delta = f"delta = {guarantee.delta:g}" if guarantee.delta else "pure"
    return [
        ("guarantee", f"epsilon = {guarantee.epsilon:g} ({delta}); neighbors: {guarantee.relation}"),
        ("standing", str(guarantee.standing)),
        ("theorems", f"{guarantee.theorem}; {guarantee.stability_theorem}"),
        ("assuming", "; ".join(guarantee.assumptions)),
    ]


def warned(release: BaseRelease) -> list[Text]:
    """The last line of a release that is not private, none otherwise."""
    told = f"{release.guarantee.standing.upper()}: do not publish this release"
    return [] if release.private else [heading(told)]
