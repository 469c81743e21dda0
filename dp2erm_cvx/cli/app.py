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
from dp2erm_cvx.cli import audit, demo, frontier, programs, released, run, settings, study
from dp2erm_cvx.cli.options import WORDS
from dp2erm_cvx.errors import DeclarationError, Dp2ermError

USAGE, INTERNAL, INTERRUPTED = 2, 70, 130
#: Words that stand for a question, and the table of a study that asks it.
ASKED_BY_A_STUDY = {"effect": "effect", "rule": "rule", "fit": "two_stage"}


class Guarded(click.Group):
    """A group that ends every error in one line on stderr and an exit code."""

    def make_context(
        self, info_name: str | None, args: list[str], *rest: Any, **extra: Any
    ) -> click.Context:
        """Keep the words of the command line, for reports that say how to repeat them."""
        words = list(args)
        context = super().make_context(info_name, args, *rest, **extra)
        context.meta[WORDS] = words
        return context

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The command that is run; an empty text is no value of any of its parameters.

        Raises DeclarationError for what only a study asks.
        """
        if args[0] in ASKED_BY_A_STUDY:
            table = f"[[{ASKED_BY_A_STUDY[args[0]]}]]"
            raise DeclarationError(
                f"dp2erm {args[0]}: is no command: ask {table} in a study, which dp2erm check DATA "
                "--draft study.toml writes, and dp2erm run study.toml DATA answers"
            )
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            for parameter in command.params:
                parameter.callback = parameter.callback or _filled
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
                warnings.showwarning = lambda text, *_: click.echo(
                    f"warning: {Dp2ermError(text)}", err=True
                )
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
            return _fail(
                f"internal error: {name}; run with DP2ERM_DEBUG=1 for the traceback", INTERNAL
            )
        return returned if isinstance(returned, int) else 0


def _fail(message: str, code: int) -> int:
    line = str(Dp2ermError(message))  # one line, whatever it quotes
    click.echo(line if code == INTERNAL else f"error: {line}", err=True)
    return code


@click.group(
    cls=Guarded,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="dp2erm")
@click.pass_context
def main(context: click.Context) -> None:
    """Differentially private treatment effects and treatment rules from observational data."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _filled(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse an empty text: a shell makes one of a variable that is not set."""
    if value == "" or (isinstance(value, tuple) and "" in value):
        if isinstance(parameter, click.Option):
            name = parameter.opts[-1]
        else:
            name = parameter.make_metavar(context)
        raise DeclarationError(f"{name} is empty: give a value, or leave it out")
    return value


#: The lines of every command's example, which click does not fill.
EXAMPLES = {
    "run": ("run study.toml --plan 6000", "run study.toml trial.csv --output-dir releases"),
    "check": (
        "check trial.csv --treatment arm --outcome score --draft study.toml",
        "check trial.csv --study study.toml",
    ),
    "design": (
        "design study.toml --n 3000 --confounding weak --effect 2 --output chosen.toml",
        "run chosen.toml --plan 3000",
    ),
    "show": ("show releases/average.json",),
    "report": ("report releases/average.json", "report releases/*.json --output answers.csv"),
    "verify": (
        "verify releases/average.json --study study.toml",
        "verify own.json --program matching.py",
    ),
    "predict": ("predict rule.json patients.csv --output treatments.csv",),
    "ledger": (
        "ledger budget.db --dataset trial --declare-epsilon 3",
        "run study.toml trial.csv",
        "ledger budget.db",
    ),
    "audit": (
        "audit --study study.toml",
        "audit --program ipw_logistic --set ridge=0.1 --set radius=1 --set covariate_bound=1",
    ),
    "bounds": (
        "bounds --study study.toml --n 400",
        "bounds --program ipw_logistic --set ridge=0.1 --set covariate_bound=1",
    ),
    "certify": (
        "certify --program entropy_balancing --set ridge=0.1 --solver newton --solver clarabel",
    ),
    "programs": ("programs", "programs ipw_logistic --n 1000"),
    "frontier": (
        "frontier entropy_balancing logit_calibration --treated 0.3 --plot trade_off.png",
        "frontier matching.py --n 10000 --set ridge=0.1,0.03,0.01 --set cap=1.5,2",
    ),
    "settings": ("settings effect", "settings effect residual_scale", "settings matching.py"),
    "new-program": ("new-program matching --kind exponential", "check-program matching.py"),
    "check-program": ("check-program matching.py --seconds 20",),
    "demo": ("demo --output-dir output",),
}

for module in (audit, demo, frontier, programs, released, run, settings, study):
    for command in vars(module).values():
        if isinstance(command, click.Command):
            lines = [f"dp2erm {words}" for words in EXAMPLES[str(command.name)]]
            command.epilog = "\n".join(("\b", "Example:", *lines))
            main.add_command(command)
