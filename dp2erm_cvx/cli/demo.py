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
    if seed is not None:
        whole_number("seed", seed, at_least=0)
    audit_seconds = public_number("--audit-seconds", audit_seconds, at_least=0.0)
    demonstration = _Demonstration(context, Path(output_dir), seed)
    if seed is not None:
        console().print("NOT PRIVATE: the noise is seeded, for tests only.", style="bold")
    demonstration.declare()
    demonstration.release()
    demonstration.verify()
    demonstration.certify()
    if audit_seconds > 0:
        demonstration.audit(audit_seconds)


class _Demonstration:
    """The steps of the demonstration, each with the commands that it runs.

    Parameters
    ----------
    context
        Of the command, from which others are run.
    folder
        Where all files are written.
    seed
        Of the noise; None for a private release.
    """

    def __init__(self, context: click.Context, folder: Path, seed: int | None) -> None:
        from dp2erm_cvx.report import missing

        self.folder = folder
        self._context = context
        self._missing = missing()
        self._files = _files(folder)
        self._seeded = "" if seed is None else f" --seed {seed}"

    def declare(self) -> None:
        """Steps 1 and 2: the study, and its plan."""
        _step(
            "1. A study is declared in public, before anybody sees the data",
            "NHEFS: 1,566 smokers seen in 1971-75 and again in 1982-84. Treatment: gave up "
            "smoking. Outcome: change of weight in kg. Protected: all that is known of one "
            "person.\n",
        )
        click.echo((self.folder / "study.toml").read_text(encoding="utf-8"), nl=False)
        _step("2. What it would spend, and how wide its interval would be", "No data are read.")
        self._run("run {study} --plan 1566")

    def release(self) -> None:
        """Steps 3 and 4: the releases of an effect and of a rule."""
        _step(
            "3. Its answer",
            "An outcome regression is released first, then the mean of one number per record.",
        )
        self._run(f"run {{study}} {{data}} --output-dir {{folder}}{self._seeded}")
        _step("Beside it, NOT PRIVATE", _without_privacy())
        _step("4. Whom to treat", "The same with a public cost of treatment, by age and wt71.")
        self._run(f"run {{rule}} {{data}} --output-dir {{folder}}{self._seeded}")

    def verify(self) -> None:
        """Step 5: what others can check, and a number that somebody changed."""
        _step(
            "5. What others can check",
            "A page for readers; then everything that is stated is computed again.",
        )
        if self._missing:
            console().print(f"No page: pip install {' '.join(self._missing)}")
        else:
            self._run("report {average}")
        self._run("verify {average} --study {study}")
        _step("A number that somebody changed", "The same file, its estimate larger by 1 kg.")
        fields = json.loads((self.folder / "average.json").read_text(encoding="utf-8"))
        forged = fields | {"estimate": fields["estimate"] + 1.0}
        write_text(self.folder / "forged.json", json.dumps(forged))
        self._run("verify {forged}", holds=False)

    def certify(self) -> None:
        """Step 6: bounds on the errors of solvers."""
        _step(
            "6. Every solution is checked by a bound that does not rely on the solver (for the "
            "data holder)",
            "raw: error of the solver's own point; final: after Newton steps; both are proved.",
        )
        for program in (
            "entropy_balancing --set ridge=3",
            "ipw_logistic --set ridge=0.1 --set trim=4",
        ):
            self._run(
                "certify {data} --study {study} --solver newton --solver clarabel --program "
                f"{program}"
            )

    def audit(self, seconds: float) -> None:
        """Step 7: a search for neighbors that violate the bound on weights."""
        _step(
            "7. Does the bound behind the noise of weights hold? A search for neighbors that "
            "violate it",
            "V: how far all weights move where one record is replaced. A search, no proof; no "
            "data are read.",
        )
        words = "audit --program entropy_balancing --study {rule} --n 400"
        words += " --workers -1 --output-dir {folder}"
        if self._missing:
            words += " --no-page"
        self._run(f"{words} --seconds {seconds:g}")

    def _run(self, words: str, *, holds: bool = True) -> None:
        """Print a command and run it.

        Parameters
        ----------
        words
            The command, with names of files in braces.
        holds
            Whether it should end without an exit code.
        """
        command = words.format(**self._files)
        if words.startswith(("run", "report")):
            command += " --force"
        click.echo(f"\n$ dp2erm {command}")
        group = self._context.find_root().command
        with group.make_context("dp2erm", shlex.split(command)) as context:
            if bool(group.invoke(context)) is holds:
                raise DeclarationError(
                    f"dp2erm {command}: ended otherwise than it should: please report it"
                )


def _step(title: str, text: str) -> None:
    """Print what the next commands show."""
    screen = console()
    screen.print(f"\n{title}", style="bold")
    screen.print(text)


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
    names = {
        "study": "study.toml",
        "rule": "rule.toml",
        "data": "nhefs.csv",
        "average": "average.json",
        "forged": "forged.json",
        "folder": "",
    }
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
        f"difference of means {plain:.2f} kg, but those who gave up were also older."
    )
