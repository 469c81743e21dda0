"""Experiments by design and by cell, as plain tables. Nothing is printed or drawn here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.resources import files
from typing import Any

from dp2erm_cvx.studies.engine import Experiment

_HOMES: dict[str, tuple[str, str]] = {
    "benchmark": ("dp2erm_cvx.studies.effects", "BenchmarkStudy"),
    "confounded": ("dp2erm_cvx.studies.confounded", "Confounded"),
    "effects": ("dp2erm_cvx.studies.effects", "EffectsStudy"),
    "nhefs": ("dp2erm_cvx.studies.nhefs", "NhefsBudgets"),
    "rates": ("dp2erm_cvx.studies.rates", "Rates"),
    "simulation": ("dp2erm_cvx.studies.simulation", "SimulationStudy"),
    "twins": ("dp2erm_cvx.studies.twins", "TwinsStudy"),
}


def experiment_by_name(name: str) -> Experiment[Any]:
    """The experiment. Raises KeyError."""
    module, attribute = _HOMES[name]
    found: Callable[[], Experiment[Any]] = getattr(import_module(module), attribute)
    return found()


def design_path(name: str) -> str:
    """Its design in the package."""
    return str(files("dp2erm_cvx.studies") / "designs" / f"{name}.toml")
