"""The page of a release, for readers who know causal inference and no differential privacy."""

from __future__ import annotations

from dp2erm_cvx.display import pairs
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.release.story import story_of
from dp2erm_cvx.release.words import declared_tables, promised
from dp2erm_cvx.report.page import check_installed, rendered
from dp2erm_cvx.report.picture import bars, picture

#: Rows of a table from which on it is folded.
_LONG = 16


def release_page(release: BaseRelease, *, source: str = "release.json") -> str:
    """One page of HTML about a release, from what it states alone: no other file, no script, no network.

    It tells the estimate, what its interval counts, the guarantee in words, what was declared, for whom the
    result holds and what it rests on. ``source`` is the name of the file, for who wants to check it. Where
    the programs of the release are not known here, the page says that nothing was computed again.
    Raises DeclarationError where jinja2 is missing.
    """
    check_installed(("jinja2",))
    story = story_of(release)
    return rendered(
        "release.html.j2",
        title=story.title,
        story=story,
        picture=picture(story.spans, story.caption),
        private=release.private,
        standing=release.guarantee.standing.value.upper(),
        promised=list(promised(release)),
        parameters=[
            {"noise_half_width": None, **row, "bar": bar}
            for row, bar in zip(story.rows, bars(story.rows), strict=True)
        ],
        declared=[*story.declared, *declared_tables(release)],
        spent=[*story.spent, pairs(list(story.guarantee))],
        long=_LONG,
        at_hand=release.at_hand,
        source=source,
    )
