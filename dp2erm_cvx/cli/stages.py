"""Programs from command-line texts, and back from the JSON of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dp2erm_cvx.cli.options import names
from dp2erm_cvx.cli.own_program import known_name
from dp2erm_cvx.cli.reading import read_setting, read_settings
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.text import number_or_text

if TYPE_CHECKING:
    from dp2erm_cvx.domain import Domain
    from dp2erm_cvx.program import FirstStage, SecondStage


def first_stage(text: str, options: dict[str, Any]) -> FirstStage:
    """The first stage of that name, or in that file, with the settings given as flags."""
    from dp2erm_cvx import registry

    name = known_name(text, "first")
    return registry.build(registry.first_stages(), name, **read_settings(options))


def second_stage(text: str, options: dict[str, Any], columns: tuple[str, ...], domain: Domain) -> SecondStage:
    """The second stage of that name, or in that file, with Theta, R and features given as flags."""
    from dp2erm_cvx import registry
    from dp2erm_cvx.model.regularizer import ElasticNet
    from dp2erm_cvx.program import ConvexSet

    name = known_name(text, "second")
    settings: dict[str, Any] = {}
    if options["theta_set"] is not None:
        settings["theta_set"] = ConvexSet.from_text(options["theta_set"], "--theta-set")
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


def _feature(text: str, columns: tuple[str, ...], domain: Domain) -> str | int:
    # without named ranges the domain knows columns by number only
    if domain.columns is None and text in columns:
        return columns.index(text)
    number = number_or_text(text)
    known = text in columns or not isinstance(number, int)
    return text if known else int(number)
