"""``dp2erm settings``: what may be declared, as the classes themselves describe it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields
from typing import Any

import click

import dp2erm_cvx as library
from dp2erm_cvx.checks import wanted
from dp2erm_cvx.cli import options as opt
from dp2erm_cvx.cli.programs import known_name
from dp2erm_cvx.cli.screen import console, print_json
from dp2erm_cvx.display import as_plain, described_settings, written_form
from dp2erm_cvx.errors import DeclarationError, known_names

#: Where the public rule of use decides, unless a value is set.
BY_RULE = "by the rule of use"
#: Arguments of estimators that a study states in tables of their own, or that no file may hold.
_ELSEWHERE = ("domain", "budget", "seed", "ledger", "dataset")


@dataclass(frozen=True)
class SettingText:
    """What is known of one setting, for readers.

    Parameters
    ----------
    name
        As a study file writes it within the table of the question or of the program.
    default
        Its value where it is left out; None where it has to be declared.
    wanted
        What is accepted, beginning with "must"; empty where the text alone says it.
    text
        What the class that declares it says of it; empty where a program of one's own says nothing.
    """

    name: str
    default: str | None
    wanted: str
    text: str


@click.command("settings", short_help="Every setting of a question or of a program.")
@click.argument("question", metavar="QUESTION|PROGRAM|FILE.py")
@click.argument("name", metavar="[NAME]", required=False)
@opt.json_option
def settings_command(question: str, name: str | None, as_json: bool) -> None:
    """Print the settings of a question (effect, rule, ...), of the budget, or of a program.

    With NAME it prints that one alone. Each has its default, what is accepted, and what it is for.
    A study declares them in the table of the question, and dp2erm run --set NAME=VALUE puts another
    value over it.
    """
    listed = {setting.name: setting for setting in _settings_of(question)}
    if name is not None:
        if name not in listed:
            raise DeclarationError(
                f"{question}: no setting {name!r}; {known_names(name, sorted(listed))}"
            )
        listed = {name: listed[name]}
    if as_json:
        print_json([asdict(setting) for setting in listed.values()])
        return
    if not listed:
        click.echo(f"{question} has no settings")
    screen = console()
    for setting in listed.values():
        screen.print(_title(setting), style="bold")
        for line in textwrap.wrap(setting.text, screen.width - 2):
            screen.print(f"  {line}")


def _title(setting: SettingText) -> str:
    """The first line about a setting: its name, its default and what is accepted."""
    default = "required"
    if setting.default is not None:
        default = f"default {setting.default}"
    title = f"{setting.name}: {default}"
    if setting.wanted:
        title += f"; {setting.wanted}"
    return title


def _settings_of(what: str) -> Iterator[SettingText]:
    """The settings of a kind of question, of the budget, or of a program by its name or in a file.

    Raises DeclarationError where nothing of this name has settings.
    """
    from dp2erm_cvx.program import registry
    from dp2erm_cvx.study import QUESTIONS

    if what in QUESTIONS:
        return _of_question(what)
    if what == "budget":
        return _of_class(library.Budget)
    name = known_name(what)  # a file is read, and known until the command ends
    program = registry.available().get(name)
    if program is None:
        known = [*QUESTIONS, "budget", *registry.available()]
        raise DeclarationError(f"{what!r}: {known_names(what, known)}")
    return _of_class(program, program.defaults)


def _of_question(kind: str) -> Iterator[SettingText]:
    """The settings of a kind of question: of its outcome, its estimator, and its rule of use."""
    from dp2erm_cvx.study import OUTCOME, Question

    texts = described_settings(Question)
    yield SettingText("share", "an even part", "", texts["share"])
    if kind == "ranges":
        yield from _of_ranges()
        return
    yield SettingText("covariates", "those of the study", "", texts["covariates"])
    for setting in (*_of_class(library.Codebook), *_of_class(library.Domain)):
        name = "outcome_column" if setting.name == "outcome" else setting.name
        if name in OUTCOME:
            yield SettingText(name, "that of the study", setting.wanted, setting.text)
    yield from _of_estimator(kind)


def _of_ranges() -> Iterator[SettingText]:
    """The settings of a question that releases ranges."""
    from dp2erm_cvx.study import OpenRanges

    texts = described_settings(OpenRanges)
    wanted_range = 'by column: must be [low, high], { within = [low, high] } or "release"'
    yield SettingText("columns", "released", wanted_range, texts["columns"])
    default = "released, unless they have a bound"
    yield SettingText("outcomes", default, wanted_range, texts["outcomes"])


def _of_estimator(kind: str) -> Iterator[SettingText]:
    """The settings of the estimator of a question, and those that its rule of use decides."""
    from dp2erm_cvx.plan import EffectSettings, EffectStudy, RuleSettings, RuleStudy, Study
    from dp2erm_cvx.study import QUESTIONS

    # the estimator hands its arguments on to a study, which checks most of them
    studies: dict[str, Any] = {"effect": EffectStudy, "rule": RuleStudy, "two_stage": Study}
    checks = {field.name: field for field in fields(studies[kind])}
    decided = {"effect": EffectSettings, "rule": RuleSettings}
    for setting in _of_class(QUESTIONS[kind], checks=checks):
        if setting.name != "settings":
            yield setting
            continue
        for inner in _of_class(decided[kind]):
            yield SettingText(f"settings.{inner.name}", BY_RULE, inner.wanted, inner.text)


def _of_class(
    kind: Any,
    defaults: Mapping[str, str] | None = None,
    checks: Mapping[str, Field[Any]] | None = None,
) -> Iterator[SettingText]:
    """The settings of a dataclass or of a scheme.

    Parameters
    ----------
    kind
        The class or the scheme.
    defaults
        Words for defaults that follow from others, by the name of the setting.
    checks
        Fields of another class, by name, that check what this one does not.
    """
    from dp2erm_cvx.program.stage import fields_of

    defaults = defaults or {}
    checks = checks or {}
    texts = described_settings(kind)
    for name, field in fields_of(kind).items():
        if not field.init or name in _ELSEWHERE:
            continue
        default = defaults.get(name) or _default(field)
        checked = field if "check" in field.metadata else checks.get(name, field)
        yield SettingText(name, default, _wanted(checked), as_plain(texts.get(name, "")))


def _default(field: Field[Any]) -> str | None:
    """The default of a field as users write it; None where there is none."""
    if field.default is MISSING or field.default == ():
        return None
    if field.default is None:
        return "none"
    return str(field.default)


def _wanted(field: Field[Any]) -> str:
    """What the check of a field accepts, in words; and how a file writes choices."""
    if "check" not in field.metadata:
        return ""
    check, bounds = field.metadata["check"]
    forms = [written_form(kind) for kind in bounds.get("kinds", ()) if hasattr(kind, "word")]
    text = wanted(check, bounds)
    if not forms:
        return text
    return f"{text}, written {', '.join(forms)}"
