"""``dp2erm audit --mechanism``: runs of any callable against the guarantee that is declared for it."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.audit_show import VIOLATED, audited_universe, saved_files, search_of
from dp2erm_cvx.cli.options import Number, apply
from dp2erm_cvx.cli.own_program import send_by_value
from dp2erm_cvx.cli.screen import console, print_json, progress, writable
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from dp2erm_cvx.audit import Attack, BlackBoxAudit
    from dp2erm_cvx.audit.search import Progress, SearchPlan
    from dp2erm_cvx.universe import Universe

#: Pairs that are screened where nothing limits the search.
PAIRS = 60
EXACT_PAIRS = 3000

mechanism_options = apply(
    click.option(
        "--mechanism",
        metavar="FILE.py:NAME",
        help="Audit any function by its runs; or package.module:NAME.",
    ),
    click.option("--epsilon", type=Number(), help="With --mechanism: epsilon that is declared for it."),
    click.option("--delta", type=Number(), default=0.0, help="With --mechanism: delta."),
    click.option("--mu", type=Number(), help="With --mechanism: mu that is declared for it, of mu-GDP."),
    click.option(
        "--exact",
        is_flag=True,
        help="With --mechanism that yields what it adds noise to: exact losses, no runs.",
    ),
    click.option("--runs", type=Number(), help="With --mechanism: runs on each of the worst pair [2000]."),
    click.option("--bits", is_flag=True, help="With --mechanism: look at the lowest bits of numbers, too."),
)


def audited_mechanism(options: dict[str, Any]) -> int:
    """Search for the worst pair of ``--mechanism`` and show its audit, or replay a pair; the exit code."""
    from dp2erm_cvx.audit import Declared, replay_blackbox, search_blackbox

    mechanism = _mechanism(options)
    if options["exact"]:
        return _exact(mechanism, options)
    if inspect.isgeneratorfunction(mechanism):
        mechanism = _driven(mechanism)
    attack = _attack(options, mechanism)
    if options["replay"] is not None:
        # as it was saved, unless asked otherwise
        asked = None if options["runs"] is None else attack
        return _show("replayed", replay_blackbox(options["replay"], mechanism, attack=asked), options)
    universe, declared = _universe(options), Declared(**_declared(options))
    with _searching(options, PAIRS) as plan:
        found = search_blackbox(mechanism, universe, declared, attack=attack, search=plan)
    if options["save"] is not None:
        found.save(options["save"])
    return _show(f"the worst of {found.screened} pairs", found.audit, options)


def _exact(mechanism: Callable[..., Any], options: dict[str, Any]) -> int:
    """Search for the pair on which a mechanism of known noise loses most, or replay one; the exit code."""
    from dp2erm_cvx.audit import Declared, replay_additive, search_additive

    if not inspect.isgeneratorfunction(mechanism):
        raise DeclarationError(f"--exact: {options['mechanism']} does not yield what it adds noise to")
    if options["runs"] is not None or options["bits"]:
        raise DeclarationError("--exact runs nothing: leave out --runs and --bits")
    if options["replay"] is not None:
        # as it was saved, unless asked otherwise
        asked = options["epsilon"] is not None or options["mu"] is not None
        declared = Declared(**_declared(options)) if asked else None
        audit, what = replay_additive(options["replay"], mechanism, declared), "replayed"
    else:
        universe, declared = _universe(options), Declared(**_declared(options))
        with _searching(options, EXACT_PAIRS) as plan:
            found = search_additive(mechanism, universe, declared, search=plan)
        if options["save"] is not None:
            found.save(options["save"])
        audit, what = found.audit, f"the worst of {found.screened} pairs"
    if options["as_json"]:
        print_json(audit.to_dict())
    else:
        console().print(f"Exact audit of {options['mechanism']}: {what}", style="bold")
        console().print(str(audit))
    return VIOLATED if audit.exceeds or audit.uncovered else 0


def _driven(mechanism: Callable[..., Any]) -> Callable[..., Any]:
    """A mechanism that yields its noised values, run with a generator of random numbers."""
    from dp2erm_cvx.audit.additive import run_stages

    def driven(dataset: Any, rng: np.random.Generator) -> Any:
        return run_stages(mechanism(dataset), rng)

    driven.__name__ = mechanism.__name__
    return driven


def _declared(options: dict[str, Any]) -> dict[str, Any]:
    if options["epsilon"] is None and options["mu"] is None:
        raise DeclarationError("--epsilon is missing: say what is declared for the mechanism, or --mu")
    return {name: options[name] for name in ("epsilon", "delta", "mu")}


def _universe(options: dict[str, Any]) -> Universe:
    from dp2erm_cvx.cli.reading import read_domain

    for path in saved_files(options):
        writable(path, options["domain"])
    return audited_universe(read_domain(options, {"outcome_bound": 1.0}), options)


@contextmanager
def _searching(options: dict[str, Any], pairs: int) -> Iterator[SearchPlan]:
    """The search that is asked for, which shows how far it is; ``pairs`` where nothing limits it."""
    plan = search_of(options, evaluations=pairs)
    with progress("searching", total=100) as bar:
        (task,) = bar.task_ids

        def shown(state: Progress) -> None:
            bar.update(task, completed=100 * state.share, description=f"{state.evaluations:,} pairs")

        yield dataclasses.replace(plan, progress=shown)


def _mechanism(options: dict[str, Any]) -> Callable[..., Any]:
    """The callable with its settings, under the name that repeats it."""
    from dp2erm_cvx.cli.stages import read_settings
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
