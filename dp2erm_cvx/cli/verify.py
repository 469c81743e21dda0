"""``dp2erm verify``: whether a release follows from what it declares."""

from __future__ import annotations

import re

import click

from dp2erm_cvx.cli.options import DOMAIN_FIELDS
from dp2erm_cvx.cli.screen import console, progress


@click.command("verify", short_help="Whether a release follows from what it declares.")
@click.argument("release", metavar="RELEASE.json")
@click.option("--domain", metavar="FILE.toml", help="The domain that it has to be about.")
@click.option("--study", metavar="STUDY.toml", help="The study that it has to answer, or its digest.")
def verify_command(release: str, domain: str | None, study: str | None) -> int:
    """Plan again what a release declares, and refute what does not follow: bounds, noise, guarantee, results.

    All but the released numbers is computed again from them and from the declarations, and compared entry by
    entry. Exit code 1 where something is refuted. No file can show that its numbers are those of a run, or
    that the noise was drawn as it says.
    """
    from dp2erm_cvx.cli.reading import read_domain
    from dp2erm_cvx.release.reading import read_release_file
    from dp2erm_cvx.release.verify import verify

    expected = None
    if domain is not None:
        expected = read_domain({**dict.fromkeys(DOMAIN_FIELDS), "ranges": (), "domain": domain})
    with progress("verifying"):
        found = verify(read_release_file(release, check=False), expected, _digest(study))
    screen = console()
    for block in found.blocks():
        screen.print(block)
    return 0 if found.holds else 1


def _digest(study: str | None) -> str | None:
    """The digest of a study file; a digest is its own. Raises DeclarationError where the file is none."""
    if study is None or re.fullmatch("[0-9a-f]{64}", study):
        return study
    from dp2erm_cvx.study_file import read_study

    return read_study(study).digest
