"""``dp2erm demo``: the whole method on embedded real data, as a short text with tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import Number, output_dir_option
from dp2erm_cvx.cli.screen import advance, console, counted, progress, unwritable, write_text
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.public import public_number

if TYPE_CHECKING:
    from dp2erm_cvx.cli.audit import Output
    from dp2erm_cvx.data import Dataset
    from dp2erm_cvx.demo.comparison import DemoComparison


@click.command("demo", short_help="A private effect and a rule from real data, and an audit.")
@output_dir_option("For the figure and two releases.")
@click.option("--solver", "solvers", multiple=True, help="Solver of the certificate table; repeatable.")
@click.option(
    "--audit-seconds", type=Number(), default=30, help="For the audit at the end, about; 0 leaves it out."
)
@click.option("--seed", type=Number(), help="For tests only: nothing released is then private.")
@click.option(
    "--export", metavar="FOLDER", help="Write the files of the quickstart instead: made up, for its commands."
)
def demo_command(
    output_dir: str, solvers: Sequence[str], audit_seconds: float, seed: int | None, export: str | None
) -> None:
    """Private effects and treatment rules from NHEFS, beside non-private comparisons.

    NHEFS: 1,566 smokers, 403 of whom gave up; the outcome is their change of weight in about ten years.
    """  # fmt: skip
    if export is not None:
        _export(Path(export))
        return
    from dp2erm_cvx.cli.audit import Output
    from dp2erm_cvx.report import missing

    if seed is not None and not isinstance(seed, int):
        raise DeclarationError(f"seed = {seed!r}: must be a whole number")
    audit_seconds = public_number("--audit-seconds", audit_seconds, at_least=0.0)
    report = Output(output_dir, "audit_nhefs", page=audit_seconds > 0 and not missing())
    data, sections = _released(Path(output_dir), tuple(solvers) or ("newton", "clarabel", "scs"), seed)
    screen = console()
    if seed is not None:
        screen.print("NOT PRIVATE: the noise is seeded, for tests only.", style="bold")
    for section in sections:
        screen.print(section)
    if audit_seconds > 0:
        for section in _audited(data, audit_seconds, report):
            screen.print(section)


#: The domain of the quickstart.
_DOMAIN = """\
covariate_bound = 1.5
outcome_bound = 4.0
outcome_center = 0.0

[ranges]
dose = [-3.0, 3.0]
severity = [-3.0, 3.0]
"""
_RECORDS, _NEW = 300, 10


def _export(folder: Path) -> None:
    """``data.csv``, ``new.csv`` and ``domain.toml``, of which none may exist: made up, always the same."""
    import numpy as np

    rng = np.random.default_rng(0)
    x = np.clip(rng.standard_normal((_RECORDS + _NEW, 2)), -3.0, 3.0)
    a = (rng.uniform(size=len(x)) < 1.0 / (1.0 + np.exp(-x[:, 1]))).astype(int)
    y = a + 0.5 * x[:, 0] - x[:, 1] + rng.standard_normal(len(x))
    rows = [f"{dose:.3f},{severity:.3f}" for dose, severity in x]
    data = [f"{row},{arm},{outcome:.3f}" for row, arm, outcome in zip(rows, a, y, strict=True)]
    texts = {
        "data.csv": ["dose,severity,a,y", *data[:_RECORDS]],
        "new.csv": ["dose,severity", *rows[_RECORDS:]],
        "domain.toml": _DOMAIN.splitlines(),
    }
    for name in texts:
        if (folder / name).exists():
            raise DeclarationError(f"{folder / name}: exists: choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from None
    for name, lines in texts.items():
        write_text(folder / name, "\n".join(lines) + "\n")
        click.echo(folder / name)


def _released(folder: Path, solvers: Sequence[str], seed: int | None) -> tuple[Dataset, list[Any]]:
    """The data, and everything to print before the audit; the figure and two releases are in ``folder``."""
    from dp2erm_cvx.cli import demo_text as text
    from dp2erm_cvx.cli.certify import certificate_table

    with progress("loading", total=14) as bar:
        from dp2erm_cvx.compare.effect_references import difference
        from dp2erm_cvx.datasets import load_nhefs
        from dp2erm_cvx.demo import comparison, effect
        from dp2erm_cvx.solve import solver_by_name

        for name in solvers:
            solver_by_name(name)
        data = load_nhefs()
        seeds: Iterator[int | None] = itertools.repeat(None) if seed is None else itertools.count(seed)
        effects = list(counted(effect.private_effects(data, seeds), bar, "releasing effects"))
        weights = list(counted(comparison.weight_comparisons(data, seeds), bar, "weighting"))
        rules = list(counted(effect.private_rules(data, seeds), bar, "releasing rules"))
        rows = list(counted(comparison.certificate_rows(data, solvers), bar, "certifying"))
        drawn = _drawn(min(weights, key=lambda one: one.imbalance), folder / "love_nhefs.png")
        # the first effect, and the rule that can be read: at the larger budget
        kept = {"effect_nhefs.json": effects[0], "release_nhefs.json": rules[-1][0]}
        for name, release in kept.items():
            write_text(folder / name, release.to_json() + "\n")
        naive, robust = difference(data).value, effect.robust_effect(data)
        textbook = effect.textbook_effect(data)
        advance(bar)
    files = [str(folder / name) for name in kept]
    published = [one.release for each in weights for one in each.published]
    return data, [
        *text.data_section(data),
        *text.effect_section(effects, naive, robust, files[0]),
        *text.weight_section(weights, textbook),
        *text.rule_section(rules),
        *text.certificate_section(certificate_table([row for group in rows for row in group]), drawn),
        *text.guarantee_section([*effects, *(rule for rule, _ in rules), *published], files),
    ]


def _drawn(best: DemoComparison, path: Path) -> str:
    """Draw the balance where matplotlib is installed; what to say of it."""
    from dp2erm_cvx.plotting import love_plot

    try:
        love_plot(best.balance, path)
    except DeclarationError as error:
        return f"No love plot: {error}"
    return f"Love plot (not private): {path}"


def _audited(data: Dataset, seconds: float, report: Output) -> Iterator[Any]:
    """The audits, and where their report is."""
    from joblib import effective_n_jobs

    from dp2erm_cvx.audit.search import SearchPlan
    from dp2erm_cvx.cli.demo_text import audit_section
    from dp2erm_cvx.demo.comparison import audited, audits
    from dp2erm_cvx.report import AuditSection, missing

    schemes = audited()
    # the certified solves at the end of each take the rest
    together = min(effective_n_jobs(-1), len(schemes))
    each = SearchPlan(seconds=0.75 * seconds * together / len(schemes), workers=-1)
    with progress("auditing", total=len(schemes)) as bar:
        found = list(counted(audits(data, each), bar))
    sections = [AuditSection(scheme.label, audit) for scheme, audit in found]
    written = report.write(sections, "dp2erm demo", "Stability audit around NHEFS")
    if missing():
        written += f" (no page: pip install {' '.join(missing())})"
    yield from audit_section(found, written)
