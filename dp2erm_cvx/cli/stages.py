"""Programs from command-line texts, and back from the JSON of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dp2erm_cvx.cli.options import names, number_or_text
from dp2erm_cvx.cli.own_program import known_name
from dp2erm_cvx.cli.reading import read_setting, read_settings
from dp2erm_cvx.errors import DeclarationError

if TYPE_CHECKING:
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.program import ConvexSet, FirstStage, SecondStage


def first_stage(text: str, options: dict[str, Any]) -> FirstStage:
    """The first stage of that name, or in that file, with the settings given as flags."""
    from dp2erm_cvx import registry

    name = known_name(text, "first")
    return registry.build(registry.first_stages(), name, **read_settings(options))


def second_stage(text: str, options: dict[str, Any], columns: tuple[str, ...], domain: Domain) -> SecondStage:
    """The second stage of that name, or in that file, with Theta, R and features given as flags."""
    from dp2erm_cvx import registry
    from dp2erm_cvx.program import ElasticNet

    name = known_name(text, "second")
    settings: dict[str, Any] = {}
    if options["theta_set"] is not None:
        settings["theta_set"] = theta_set(options["theta_set"])
    penalty = {kind: options[kind] for kind in ("l1", "l2") if options[kind] is not None}
    if penalty:
        settings["regularizer"] = ElasticNet(**penalty)
    features = names(options["features"])
    if features is not None:
        settings["features"] = tuple(_feature(feature, columns, domain) for feature in features)
    if options["features_bound"] is not None:
        settings["features_bound"] = options["features_bound"]
    for text in options["second_settings"]:
        setting, value = read_setting(text)
        if setting in settings or setting in ("theta_set", "regularizer", "features"):
            raise DeclarationError(f"--second-set {setting}: it has an option of its own, or is given twice")
        settings[setting] = value
    return registry.build(registry.second_stages(), name, **settings)


def second_stage_by_name(text: str, domain: Domain) -> SecondStage:
    """The second stage of that name, or in that file, with its default settings for the domain."""
    from dp2erm_cvx import registry

    name = known_name(text, "second")
    return registry.build(registry.second_stages(), name).resolve(domain)


def theta_set(text: str) -> ConvexSet:
    """``l1:2``, ``l2:2``, ``box:5`` or ``whole``."""
    from dp2erm_cvx.program import Box, L1Ball, L2Ball, WholeSpace

    kind, separator, size = text.strip().lower().partition(":")
    if kind == "whole" and not separator:
        return WholeSpace()
    kinds: dict[str, Any] = {"l1": L1Ball, "l2": L2Ball, "box": Box}
    if kind not in kinds or not size:
        raise DeclarationError(f"--theta-set {text!r}: must be l1:RADIUS, l2:RADIUS, box:BOUND or whole")
    made: ConvexSet = kinds[kind](number_or_text(size))
    return made


def _feature(text: str, columns: tuple[str, ...], domain: Domain) -> str | int:
    # without named ranges the domain knows columns by number only
    if domain.columns is None and text in columns:
        return columns.index(text)
    number = number_or_text(text)
    known = text in columns or not isinstance(number, int)
    return text if known else int(number)
