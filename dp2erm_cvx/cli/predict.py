"""``dp2erm predict``: recommendations from a release alone."""

from __future__ import annotations

import csv
import io

import click

from dp2erm_cvx.cli.own_program import known_name
from dp2erm_cvx.errors import DeclarationError


@click.command("predict", short_help="Recommendations from a release alone.")
@click.argument("release", metavar="RELEASE.json")
@click.argument("data", metavar="DATA.csv|.parquet")
@click.option("--second-stage", metavar="FILE.py", help="The file of a second stage of your own.")
@click.option("--output", metavar="FILE", help="Write the CSV to a file instead of stdout.")
def predict_command(release: str, data: str, second_stage: str | None, output: str | None) -> None:
    """Recommended treatment and estimated effect for every row of DATA, as CSV.

    Columns are found by name, then scaled and clipped exactly as in the fit. The effect is in units of the
    outcome, net of the public treatment cost; treatment is recommended where it is positive.
    """
    from pathlib import Path

    import numpy as np

    from dp2erm_cvx.cli.screen import progress, writable, write_text
    from dp2erm_cvx.release import Release
    from dp2erm_cvx.release.rule import effects as effects_of
    from dp2erm_cvx.release.rule import rule_of
    from dp2erm_cvx.tables import read_csv, read_parquet

    writable(output)
    try:
        text = Path(release).read_bytes()
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise DeclarationError(f"{release}: cannot be read: {told}") from None
    if second_stage is not None:
        known_name(second_stage, "second")
    with progress("predicting"):
        published = Release.from_json(text)
        rule_of(published)  # a damaged release is named before the data are read
        table = read_parquet(data) if data.lower().endswith((".parquet", ".pq")) else read_csv(data)
        X = np.column_stack([table.numbers(name) for name in published.columns])
        effects = effects_of(published, X)
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("row", "treatment", "effect"))
        writer.writerows((k + 1, int(effect > 0), repr(float(effect))) for k, effect in enumerate(effects))
    if not published.private:
        click.echo(
            f"{published.guarantee.standing.upper()}: this release has no unconditional guarantee", err=True
        )
    if output:
        write_text(output, file.getvalue())
    else:
        click.echo(file.getvalue(), nl=False)
