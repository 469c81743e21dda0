"""``dp2erm demo``: a study of embedded real data, from its declaration to a forged number."""

from __future__ import annotations

import json
import shlex
from importlib import resources
from pathlib import Path

import click

from dp2erm_cvx.checks import public_number, whole_number
from dp2erm_cvx.cli.options import ESTIMATOR, Number, field_option
from dp2erm_cvx.cli.screen import console, made_folder, write_text
from dp2erm_cvx.errors import DeclarationError

_FILES = ("study.toml", "rule.toml", "nhefs.csv")


@click.command(
    "demo", short_help="A study of real data: declared, planned, released, verified, audited."
)
@click.option(
    "--output-dir",
    default="output",
    metavar="FOLDER",
    help="For the studies, the data, two releases, a page and the report of the audit.",
)
@click.option(
    "--audit-seconds",
    type=Number(),
    default=20,
    help="For the audit at the end, about; 0 leaves it out.",
)
@field_option(f"{ESTIMATOR}.seed", type=Number())
@click.option(
    "--export", metavar="FOLDER", help="Write the data and the studies alone, for other commands."
)
@click.pass_context
def demo_command(
    context: click.Context,
    output_dir: str,
    audit_seconds: float,
    seed: int | None,
    export: str | None,
) -> None:
    """Release a private effect and a rule from NHEFS, and check them.

    All is done by the commands that are printed. NHEFS: 1,566 smokers, 403 of whom gave up; the
    outcome is their change of weight in about ten years.
    """
    if export is not None:
        _export(Path(export))
        return
    from dp2erm_cvx.report import missing

    if seed is not None:
        whole_number("seed", seed, at_least=0)
    audit_seconds = public_number("--audit-seconds", audit_seconds, at_least=0.0)
    folder = Path(output_dir)
    files = _files(folder)
    seeded = "" if seed is None else f" --seed {seed}"
    screen = console()
    if seed is not None:
        screen.print("NOT PRIVATE: the noise is seeded, for tests only.", style="bold")

    def step(title: str, text: str) -> None:
        screen.print(f"\n{title}", style="bold")
        screen.print(text)

    def run(words: str, *, holds: bool = True) -> None:
        command = words.format(**files)
        if words.startswith(("run", "report")):
            command += " --force"
        click.echo(f"\n$ dp2erm {command}")
        group = context.find_root().command
        with group.make_context("dp2erm", shlex.split(command)) as own:
            if bool(group.invoke(own)) is holds:
                raise DeclarationError(
                    f"dp2erm {command}: ended otherwise than it should: please report it"
                )

    step(
        "1. A study is declared in public, before anybody sees the data",
        "NHEFS: 1,566 smokers seen in 1971-75 and again in 1982-84. Treatment: gave up smoking. "
        "Outcome: change of weight in kg. Protected: all that is known of one person.\n",
    )
    click.echo(Path(folder / "study.toml").read_text(encoding="utf-8"), nl=False)
    step("2. What it would spend, and how wide its interval would be", "No data are read.")
    run("run {study} --plan 1566")
    step(
        "3. Its answer",
        "An outcome regression is released first, then the mean of one number per record.",
    )
    run(f"run {{study}} {{data}} --output-dir {{folder}}{seeded}")
    step("Beside it, NOT PRIVATE", _without_privacy())
    step("4. Whom to treat", "The same with a public cost of treatment, by age and wt71.")
    run(f"run {{rule}} {{data}} --output-dir {{folder}}{seeded}")
    step(
        "5. What others can check",
        "A page for readers; then everything that is stated is computed again.",
    )
    if missing():
        screen.print(f"No page: pip install {' '.join(missing())}")
    else:
        run("report {average}")
    run("verify {average} --study {study}")
    step("A number that somebody changed", "The same file, its estimate larger by 1 kg.")
    fields = json.loads((folder / "average.json").read_text(encoding="utf-8"))
    write_text(folder / "forged.json", json.dumps(fields | {"estimate": fields["estimate"] + 1.0}))
    run("verify {forged}", holds=False)
    step(
        "6. Every solution is checked by a bound that does not rely on the solver (for the data "
        "holder)",
        "raw: error of the solver's own point; final: after Newton steps; both are proved.",
    )
    for program in ("entropy_balancing --set ridge=3", "ipw_logistic --set ridge=0.1 --set trim=4"):
        run(
            f"certify {{data}} --study {{study}} --solver newton --solver clarabel --program "
            f"{program}"
        )
    if audit_seconds > 0:
        step(
            "7. Does the bound behind the noise of weights hold? A search for neighbors that "
            "violate it",
            "V: how far all weights move where one record is replaced. A search, no proof; no "
            "data are read.",
        )
        words = "audit --program entropy_balancing --study {rule} --n 400"
        words += " --workers -1 --output-dir {folder}"
        if missing():
            words += " --no-page"
        run(f"{words} --seconds {audit_seconds:g}")


def _export(folder: Path) -> None:
    """Write the data and the studies to a folder that has none of them yet."""
    paths = [folder / name for name in _FILES]
    for path in paths:
        if path.exists():
            raise DeclarationError(f"{path}: exists: choose another folder")
    _files(folder)
    click.echo("\n".join(map(str, paths)))


def _files(folder: Path) -> dict[str, str]:
    """Write the data and the two studies; every file of the demonstration by its name."""
    made_folder(folder)
    for name in _FILES:
        source = resources.files("dp2erm_cvx.datasets") / name
        write_text(folder / name, source.read_text(encoding="utf-8"))
    names = {"study": "study.toml", "rule": "rule.toml", "data": "nhefs.csv"}
    names |= {"average": "average.json", "forged": "forged.json", "folder": ""}
    return {name: shlex.quote(str(folder / file)) for name, file in names.items()}


def _without_privacy() -> str:
    """Answer of the same records without noise."""
    from dp2erm_cvx.data.dataset import Dataset
    from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
    from dp2erm_cvx.diagnostics import augmented, difference_of_means

    data = load_nhefs()
    records = nhefs_domain().records(data.X, data.a, data.y)
    robust = augmented(Dataset(records.X, records.a, records.y, data.columns)).value
    plain = difference_of_means(data).value
    return (
        f"Doubly robust {robust:.2f} kg, from all ten covariates of the clipped records; the plain "
        f"difference of means {plain:.2f} kg, but those who gave up were also "
        "older."
    )
