"""The command group and what it does with errors."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from typing import Any

import click

from dp2erm_cvx import __version__
from dp2erm_cvx.cli import audit, demo, programs, release, released, run, settings, study
from dp2erm_cvx.cli.options import WORDS
from dp2erm_cvx.errors import DeclarationError, Dp2ermError

USAGE, INTERNAL, INTERRUPTED = 2, 70, 130


class Guarded(click.Group):
    """A group that ends every error in one line on stderr and an exit code."""

    def make_context(self, info_name: str | None, args: list[str], *rest: Any, **extra: Any) -> click.Context:
        """Keep the words of the command line, for reports that say how to repeat them."""
        words = list(args)
        context = super().make_context(info_name, args, *rest, **extra)
        context.meta[WORDS] = words
        return context

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that is run; an empty text is no value of any of its parameters."""
        name, command, rest = super().resolve_command(ctx, args)
        for one in () if command is None else command.params:
            one.callback = one.callback or _filled
        return name, command, rest

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, and exit with 0, 2, 70 or 130."""
        kwargs["standalone_mode"] = False
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="replace")  # without UTF-8: question marks and no error
        sys.exit(self._code(*args, **kwargs))

    def _code(self, *args: Any, **kwargs: Any) -> int:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda text, *_: click.echo(f"warning: {Dp2ermError(text)}", err=True)
                returned = super().main(*args, **kwargs)
        except click.ClickException as error:
            return _fail(error.format_message(), USAGE)
        except Dp2ermError as error:
            return _fail(str(error), USAGE)
        except (click.Abort, KeyboardInterrupt):
            return _fail("interrupted", INTERRUPTED)
        except Exception as error:
            if os.environ.get("DP2ERM_DEBUG") == "1":
                traceback.print_exc()
                return INTERNAL
            # neither the message nor a traceback: both could hold values of private records
            name = type(error).__name__
            return _fail(f"internal error: {name}; run with DP2ERM_DEBUG=1 for the traceback", INTERNAL)
        return returned if isinstance(returned, int) else 0


def _fail(message: str, code: int) -> int:
    line = str(Dp2ermError(message))  # one line, whatever it quotes
    click.echo(line if code == INTERNAL else f"error: {line}", err=True)
    return code


@click.group(
    cls=Guarded,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, prog_name="dp2erm")
@click.pass_context
def main(context: click.Context) -> None:
    """Differentially private treatment effects and treatment rules from observational data."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _filled(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """An empty text is what a shell makes of a variable that is not set: no value, and no default either."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        name = parameter.opts[-1] if isinstance(parameter, click.Option) else parameter.make_metavar(context)
        raise DeclarationError(f"{name} is empty: give a value, or leave it out")
    return value


#: The lines of every command's example, which click does not fill.
EXAMPLES = {
    "run": ("run study.toml --plan 6000", "run study.toml trial.csv --output-dir releases"),
    "effect": (
        "effect trial.csv --treatment a --outcome y --domain domain.toml \\",
        "    --prognostic age,bmi --residual-scale 4 --epsilon 1 --output effect.json",
    ),
    "rule": (
        "rule trial.csv --treatment a --outcome y --domain domain.toml \\",
        "    --outcome-scale 8 --epsilon 1 --output rule.json",
        "predict rule.json patients.csv",
    ),
    "fit": (
        "fit trial.csv --treatment a --outcome y --range age=18:90 --range bmi=15:45 \\",
        "    --covariate-bound 1.4 --outcome-bound 10 --second-stage arm_means --epsilon 1",
    ),
    "check": (
        "check trial.csv --treatment arm --outcome score --draft study.toml",
        "check trial.csv --domain study.toml",
    ),
    "design": (
        "design study.toml --n 3000 --confounding weak --effect 2 --output chosen.toml",
        "run chosen.toml --plan 3000",
    ),
    "show": ("show releases/average.json",),
    "report": ("report effect.json", "report releases/*.json --output answers.csv"),
    "verify": ("verify releases/average.json --study study.toml", "verify fit.json --program matching.py"),
    "predict": ("predict rule.json patients.csv --output treatments.csv",),
    "ledger": (
        "ledger budget.db --dataset trial --declare-epsilon 3",
        "fit trial.csv ... --epsilon 1 --ledger budget.db --dataset trial",
        "ledger budget.db",
    ),
    "audit": ("audit --program ipw_logistic --ridge 0.1 --radius 1 --covariate-bound 1",),
    "bounds": ("bounds --program ipw_logistic --n 400 --ridge 0.1 --radius 1 --covariate-bound 1",),
    "certify": ("certify --program entropy_balancing --ridge 0.1 --solver newton --solver clarabel",),
    "programs": ("programs", "programs ipw_logistic --n 1000"),
    "settings": ("settings effect", "settings effect residual_scale", "settings matching.py"),
    "new-program": ("new-program matching --kind exponential", "check-program matching.py"),
    "check-program": ("check-program matching.py --seconds 20",),
    "demo": ("demo --output-dir output",),
}

for module in (audit, demo, programs, release, released, run, settings, study):
    for command in vars(module).values():
        if isinstance(command, click.Command):
            lines = (one if one.startswith(" ") else f"dp2erm {one}" for one in EXAMPLES[str(command.name)])
            command.epilog = "\n".join(("\b", "Example:", *lines))
            main.add_command(command)
