"""``dp2erm audit --mechanism``: runs of any callable against the guarantee that is declared for it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.audit_show import VIOLATED, audited_universe, saved_files, search_of
from dp2erm_cvx.cli.options import Number, apply
from dp2erm_cvx.cli.own_program import send_by_value
from dp2erm_cvx.cli.screen import console, print_json, progress, writable
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp2erm_cvx.audit import Attack, BlackBoxAudit
    from dp2erm_cvx.audit.search import Progress

#: Pairs that are screened where nothing limits the search.
PAIRS = 60

mechanism_options = apply(
    click.option(
        "--mechanism",
        metavar="FILE.py:NAME",
        help="Audit any function by its runs; or package.module:NAME.",
    ),
    click.option("--epsilon", type=Number(), help="With --mechanism: epsilon that is declared for it."),
    click.option("--delta", type=Number(), default=0.0, help="With --mechanism: delta."),
    click.option("--runs", type=Number(), help="With --mechanism: runs on each of the worst pair [2000]."),
    click.option("--bits", is_flag=True, help="With --mechanism: look at the lowest bits of numbers, too."),
)


def audited_mechanism(options: dict[str, Any]) -> int:
    """Search for the worst pair of ``--mechanism`` and show its audit, or replay a pair; the exit code."""
    from dp2erm_cvx.audit import replay_blackbox, search_blackbox
    from dp2erm_cvx.cli.reading import read_domain

    mechanism = _mechanism(options)
    attack = _attack(options, mechanism)
    if options["replay"] is not None:
        # as it was saved, unless asked otherwise
        asked = None if options["runs"] is None else attack
        return _show("replayed", replay_blackbox(options["replay"], mechanism, attack=asked), options)
    if options["epsilon"] is None:
        raise DeclarationError("--epsilon is missing: say what is declared for the mechanism")
    for path in saved_files(options):
        writable(path, options["domain"])
    universe = audited_universe(read_domain(options, {"outcome_bound": 1.0}), options)
    plan = search_of(options, evaluations=PAIRS)
    with progress("searching", total=100) as bar:
        (task,) = bar.task_ids

        def shown(state: Progress) -> None:
            bar.update(task, completed=100 * state.share, description=f"{state.evaluations:,} pairs")

        found = search_blackbox(
            mechanism,
            universe,
            epsilon=options["epsilon"],
            delta=options["delta"],
            attack=attack,
            search=dataclasses.replace(plan, progress=shown),
        )
    if options["save"] is not None:
        found.save(options["save"])
    return _show(f"the worst of {found.screened} pairs", found.audit, options)


def _mechanism(options: dict[str, Any]) -> functools.partial[Any]:
    """The callable with its settings, under the name that repeats it."""
    from dp2erm_cvx.cli.reading import read_settings
    from dp2erm_cvx.conformance import callable_of

    text = options["mechanism"]
    function = callable_of(text)
    if text.rpartition(":")[0].endswith(".py"):
        send_by_value(function)
    settings = read_settings(options)
    for name in settings:
        if name not in _parameters(function):
            raise DeclarationError(f"--set {name}: {text} takes no such argument")
    chosen = functools.partial(function, **settings)
    chosen.__name__ = " ".join([text, *(f"{name}={value}" for name, value in settings.items())])  # type: ignore[attr-defined]
    return chosen


def _parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some that are written in C tell nothing
        return ()


def _attack(options: dict[str, Any], mechanism: Callable[..., Any]) -> Attack:
    from dp2erm_cvx.audit import Attack
    from dp2erm_cvx.audit.blackbox import FAMILIES

    return Attack(
        2000 if options["runs"] is None else options["runs"],
        events=FAMILIES if options["bits"] else tuple(one for one in FAMILIES if one != "bits"),
        takes_rng="rng" in _parameters(mechanism),
        seed=options["seed"],
        workers=options["workers"],
    )


def _show(what: str, audit: BlackBoxAudit, options: dict[str, Any]) -> int:
    if options["as_json"]:
        print_json(dataclasses.asdict(audit) | {"exceeds": audit.exceeds, "able": audit.able})
    else:
        screen = console()
        screen.print(f"Black-box audit of {options['mechanism']}: {what}", style="bold")
        for way in audit.counted:
            screen.print(f"  {way}")
        screen.print(str(audit))
    return VIOLATED if audit.exceeds else 0
