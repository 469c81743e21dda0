"""``dp2erm verify``: whether a release follows from what it declares."""

from __future__ import annotations

import re
from pathlib import Path

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
    from dp2erm_cvx.release.reading import read_release_file, unfollowed
    from dp2erm_cvx.release.verify import Verification, verify

    expected = None
    if domain is not None:
        expected = read_domain({**dict.fromkeys(DOMAIN_FIELDS), "ranges": (), "domain": domain})
    with progress("verifying"):
        declared = read_release_file(release, check=False)
        digest, beside = study, []
        if study is not None and not re.fullmatch("[0-9a-f]{64}", study):
            from dp2erm_cvx.study_file import read_study

            registered = read_study(study)
            digest = registered.digest
            if registered.question_of(declared) is None:
                beside.append(f"study: what is declared answers no question of {study}")
        found = verify(declared, expected, digest)
        found = Verification((*found.refuted, *beside))
        if found.holds:
            found = Verification(tuple(unfollowed(declared, Path(release).read_bytes())))
    screen = console()
    for block in found.blocks():
        screen.print(block)
    return 0 if found.holds else 1
