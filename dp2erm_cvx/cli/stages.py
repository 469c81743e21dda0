"""From the texts of options to settings and programs, those of a file of one's own included."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from dp2erm_cvx.cli.options import SETTING_FLAGS, names, read_setting
from dp2erm_cvx.cli.reading import read_domain, read_layout
from dp2erm_cvx.errors import DeclarationError, ProgramError, shown

if TYPE_CHECKING:
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.program import FirstStage, Program, SecondStage
    from dp2erm_cvx.program.kernel_model import PublicSample
    from dp2erm_cvx.solve import Solver


#: Covariates or simulated records that a command may be asked for: more would only fill the memory.
MOST = 1_000_000


def count_features(domain: Domain, second: SecondStage, first: FirstStage, given: object) -> int:
    """Number of covariates: ``--n-features``, else that of the ranges, else 1 where it does not matter.

    Raises DeclarationError where it matters and nobody said.
    """
    from dp2erm_cvx.program import PrivateFirstStage
    from dp2erm_cvx.public import whole_number
    from dp2erm_cvx.universe import Universe

    if given is not None:
        number = whole_number("--n-features", given, at_least=1)
        if number > MOST:
            raise DeclarationError(f"--n-features = {shown(given)}: must be at most {MOST:,}")
        return number
    if domain.ranges is not None:
        return len(domain.ranges)
    one, two = (second.loss_constants(Universe(domain, 2, columns)) for columns in (1, 2))
    if one != two or isinstance(first, PrivateFirstStage):
        raise DeclarationError("the number of covariates is not declared: give --n-features, or ranges")
    return 1


def read_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Settings of the first stage from ``--set`` and its short forms."""
    found: dict[str, Any] = {}
    given = [read_setting(text) for text in options["settings"]]
    given += [(name, options[name]) for name in SETTING_FLAGS if options[name] is not None]
    for name, value in given:
        if name in found:
            raise DeclarationError(f"setting {name!r} is given twice: give it once")
        found[name] = value
    if "degree" in found:
        if "balance" in found:
            raise DeclarationError("setting 'balance' is given twice: give --degree only")
        found["balance"] = found.pop("degree")
    if "target" in found:
        found["target"] = public_sample(str(found["target"]), options)
    from dp2erm_cvx.study_file import stage_settings

    return stage_settings(found)


def public_sample(path: str, options: dict[str, Any]) -> PublicSample:
    """Rows of a file that are public, with the covariates that the domain or ``--covariates`` name."""
    import numpy as np

    from dp2erm_cvx.data import covariate_table
    from dp2erm_cvx.files import read_table
    from dp2erm_cvx.program.kernel_model import PublicSample

    declared = options.get("domain") is not None or options.get("ranges")
    domain = read_domain(options) if declared else None
    chosen = (domain.columns if domain else None) or names(options.get("covariates"))
    if chosen is None:
        raise DeclarationError(f"target={path}: name its covariates by --covariates, or by named ranges")
    table = read_table(path, read_layout(options))
    if domain is not None and domain.codebook is not None:
        return PublicSample(covariate_table(domain, table, chosen))
    return PublicSample(np.column_stack([table.numbers(name) for name in chosen]))


def first_stage(text: str, options: dict[str, Any]) -> FirstStage:
    """The first stage of that name, or in that file, with the settings given as flags."""
    from dp2erm_cvx import registry

    name = known_name(text, "first")
    return registry.build(registry.first_stages(), name, **read_settings(options))


def second_stage_of(
    text: str, options: dict[str, Any], columns: tuple[str, ...], domain: Domain
) -> SecondStage:
    """The second stage of that name, or in that file, with the settings of ``--second-set``."""
    from dp2erm_cvx import registry
    from dp2erm_cvx.study_file import stage_settings

    name = known_name(text, "second")
    settings: dict[str, Any] = {}
    for one in options["second_settings"]:
        setting, value = read_setting(one)
        if setting in settings:
            raise DeclarationError(f"--second-set {setting}: is given twice: give it once")
        settings[setting] = value
    if "features" in settings:
        stated = settings["features"]
        features = stated if isinstance(stated, tuple) else (stated,)
        features = domain.codebook.expanded(features) if domain.codebook else features
        # without named ranges the domain knows columns by number only
        numbered = {} if domain.columns else {column: place for place, column in enumerate(columns)}
        settings["features"] = tuple(numbered.get(feature, feature) for feature in features)
    return registry.build(registry.second_stages(), name, **stage_settings(settings))


_FILE = re.compile(r"(?P<path>.*\.py)(:(?P<chosen>\w*))?", re.DOTALL)

_OPTIONS = {"first": "--program", "second": "--second-stage"}


def known_name(text: str, stage: str | None = None) -> str:
    """The name that ``text`` stands for, which it is itself unless it is a file.

    ``stage`` is "first" or "second", None where either will do. A file is executed, and its program can be
    used by name until the command ends. Raises ProgramError where it holds none of that stage, or several
    without a choice.
    """
    match = _FILE.fullmatch(text)
    if match is None:
        return text
    from dp2erm_cvx.registry import known_meanwhile

    cls = _chosen(match["path"], match["chosen"], stage)
    send_by_value(cls)
    click.get_current_context().with_resource(known_meanwhile(cls))
    return cls.name


def known_solver(text: str) -> str | Solver:
    """A solver by its name, or ``FILE.py:NAME`` as a solver of its own. Raises ProgramError, SolverError."""
    from dp2erm_cvx.solve import OwnSolver, solver_by_name

    if ":" not in text:
        solver_by_name(text)
        return text
    from dp2erm_cvx.conformance.files import callable_of

    function = callable_of(text)
    if text.partition(":")[0].endswith(".py"):
        send_by_value(function)
    return OwnSolver(function, text.rpartition(":")[2])


def _chosen(path: str, chosen: str | None, stage: str | None) -> type[Program]:
    from dp2erm_cvx.conformance import programs_of_file
    from dp2erm_cvx.program import FirstStage

    by_stage: dict[str, dict[str, type[Program]]] = {"first": {}, "second": {}}
    for cls in programs_of_file(path):
        by_stage["first" if issubclass(cls, FirstStage) else "second"][cls.__name__] = cls
    fitting = by_stage["first"] | by_stage["second"] if stage is None else by_stage[stage]
    what = "programs" if stage is None else f"{stage} stages"
    if not fitting:
        (other,) = {"first", "second"} - {stage}
        raise ProgramError(
            f"{path}: holds no {stage} stage; {', '.join(by_stage[other])} goes with {_OPTIONS[other]}"
        )
    if chosen is None and len(fitting) > 1:
        listed = ", ".join(f"{path}:{name}" for name in fitting)
        raise ProgramError(f"{path}: holds {len(fitting)} {what}: choose one of {listed}")
    if chosen is None:
        return next(iter(fitting.values()))
    if chosen not in fitting:
        raise ProgramError(
            f"{path}: holds no {what.removesuffix('s')} {chosen!r}; it has {', '.join(fitting)}"
        )
    return fitting[chosen]


def send_by_value(named: Callable[..., Any]) -> None:
    """Other processes cannot import a file that is not installed: joblib sends them what it holds."""
    inside = "joblib.externals.cloudpickle"  # which newer versions of joblib import from elsewhere
    pickler = importlib.import_module(inside if importlib.util.find_spec(inside) else "cloudpickle")
    pickler.register_pickle_by_value(sys.modules[named.__module__])
