"""The record of a release for the public registry of deployments of differential privacy."""

from __future__ import annotations

import datetime
import html
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Neighboring, digits_of
from dp2erm_cvx.release import Release, Standing
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.release.story import story_of
from dp2erm_cvx.release.words import UNNAMED, compared, declared_facts, promised, stated_law, units_of
from dp2erm_cvx.report.page import check_installed
from dp2erm_cvx.steps.step import RELEASED

#: What marks a field that is left to the deployer.
BLANK = "TODO: "


#: What only the deployer knows, by the name of the field in the registry: what to say there, then the
#: answers that the registry takes.
ASKED: dict[str, tuple[str, ...]] = {
    "url_slug": ("a short name for the address",),
    "name": ("the name of the data product",),
    "data_curator_name": ("who publishes it",),
    "data_curator_type": ("what the publisher is", "Government", "Industry", "Nonprofit"),
    "intended_use": ("what it is for",),
    "data_product_region": ("the region that the data describe, or whose law applies",),
    "data_product_sector": (
        "the sector",
        "Technology",
        "Healthcare",
        "Education",
        "Government",
        "Energy",
        "Finance",
    ),
    "publication_date": ("the day of publication as YYYY-MM-DD",),
    "privacy_unit": ("what one record is, such as a person, and that nobody has two",),
    "trust_assumptions": ("who may see the data or the release, and what they are trusted with",),
    "actors": ("who holds the data, who ran the release, who reads it",),
    "release_type_details": ("plans for other releases from these data: each of them adds to epsilon",),
    "data_source_type": ("whether records are added later", "Static", "Dynamic"),
    "tuning": ("how ranges, bounds and epsilon were chosen, and whether the data were looked at",),
    "access_controls": ("how the records are secured, and who has access to them",),
    "justification": ("why this epsilon, this unit and these bounds",),
    "additional_information": ("where the release is, and the paper about it",),
    "registry_author": ("who fills in this record",),
}


def _answer(name: str, text: str | None) -> str:
    """Value of a field, or the mark of a blank. Raises DeclarationError for what the registry refuses."""
    what, *known = ASKED[name]
    if text is None:
        return BLANK + what + (f" ({', '.join(known)})" if known else "")
    checks: dict[str, Callable[[str], object]] = {
        "url_slug": re.compile(r"[\w-]+").fullmatch,
        "publication_date": _is_date,
    }
    if (known and text not in known) or not text or not checks.get(name, str.isprintable)(text):
        expected = f"one of {', '.join(known)}" if known else what
        raise DeclarationError(f"{name} = {brief(text)}: must be {expected}")
    return text


def _is_date(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


#: Where the fields are from.
SCHEMA = "github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml at 057e5d8"
#: Second stages whose result is a number for everybody.
_NUMBERS = ("arm_means", "plug_in_ate")


def datasheet(release: BaseRelease, known: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The record of a deployment, tier 3, as plain values in the order of the registry's schema.

    Everything is from the release alone but the fields ``ASKED``, of which ``known`` has the answers; others
    are marked by ``BLANK``. Raises DeclarationError for an unknown name, for an answer that the registry
    refuses, and for a release without a guarantee.
    """
    answered = dict(known or {})
    for name in answered:
        if name not in ASKED:
            raise DeclarationError(f"{name}: no field that is asked for; known: {', '.join(ASKED)}")
    if release.standing in (Standing.NOT_PRIVATE, Standing.UNPROVEN):
        raise DeclarationError(f"{release.standing.value}: a registry is for releases with a guarantee")
    answers = {name: _answer(name, answered.get(name)) for name in ASKED}
    guarantee, kind, story = release.guarantee, _kind(release), story_of(release)
    parameters = {"epsilon": guarantee.epsilon} | ({"delta": guarantee.delta} if guarantee.delta else {})

    def own(*names: str) -> dict[str, str]:
        return {name: answers[name] for name in names}

    return {
        **own("url_slug"),
        "deployment": {
            "basic": {
                **own("name"),
                "data_curators": [own("data_curator_name", "data_curator_type")],
                "description": "\n".join(_description(release, story.title)),
                "data_product_type": "Summary statistics" if kind == "effect" else "Machine learning model",
                **own("intended_use", "data_product_region", "data_product_sector", "publication_date"),
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if guarantee.delta else "Pure DP",
                "data_domain": "\n".join(_domain(release)),
                "unprotected_quantities": (
                    f"The number of {units_of(release)}, {release.n_samples}, and all that was declared "
                    "before the data were read. No number in the release was computed from records without "
                    "noise."
                ),
            },
            "privacy_loss": {
                **own("privacy_unit"),
                "privacy_unit_details": _neighbors(release),
                "number_of_privacy_units": release.n_samples,
                "privacy_parameters": parameters,
                "privacy_parameters_details": " ".join([f"{stated_law(guarantee)}.", *_conditions(release)]),
            },
            "deployment_model": {
                "model_name": "Central",
                **own("trust_assumptions", "actors"),
                "release_type": "One release",
                **own("release_type_details", "data_source_type"),
                "access_type": "Non-interactive",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "\n".join(
                    [
                        "- Each record is mapped into the data domain by a public rule, by itself: clipped, "
                        "scaled, and shrunk where its norm is too large.",
                        f"- {answers['tuning']}",
                    ]
                ),
                "mechanisms": "\n".join([*_mechanisms(release), f"- {answers['access_controls']}"]),
                "composition": (
                    f"{_words(guarantee.theorem)}. Stability: {_words(guarantee.stability_theorem)}. All "
                    "steps together are within the privacy parameters above."
                ),
                "post_processing": _POST[kind],
                "justification": answers["justification"],
                "utility": f"{_code(story.headline)}. {story.precision}",
                "additional_information": answers["additional_information"],
            },
            "administrative": {
                "status": "Draft",
                "registry_authors": [answers["registry_author"]],
                "tier": 3,
            },
        },
    }


def datasheet_text(record: Mapping[str, Any]) -> str:
    """The record as YAML, with a header that says where its fields are from and what is left to do.

    Raises DeclarationError where PyYAML is missing.
    """
    check_installed(("yaml",))
    import yaml

    def text_of(writer: Any, text: str) -> Any:
        """Quoted, lest a reader take it for a date or a number; words are plain, several lines stay lines."""
        lines = "\n" in text and text.replace("\n", "").isprintable()
        style = "|" if lines else None if text.isidentifier() else '"'
        return writer.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {})
    dumper.add_representer(str, text_of)
    header = (
        "# Record for the OpenDP registry of deployments of differential privacy, tier 3.",
        f"# Fields: {SCHEMA}.",
        f'# Everything but the answers to "{BLANK.strip()}" follows from the release.',
    )
    written = yaml.dump(dict(record), Dumper=dumper, sort_keys=False, allow_unicode=True, width=math.inf)
    return "\n".join([*header, written])


_POST = {
    "effect": "The estimate and its interval are computed from the released numbers and public constants.",
    "rule": "Decisions, and the rule on the raw scale, follow from the released coefficients.",
}


def _kind(release: BaseRelease) -> str:
    stage = release.second_stage.get("name") if isinstance(release, Release) else None
    return "effect" if isinstance(release, EffectRelease) or stage in _NUMBERS else "rule"


def _line(text: object) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())


def _words(text: object) -> str:
    """One line of a text from the file: the registry shows markdown, in which HTML is HTML."""
    return html.escape(_line(text), quote=False)


def _code(name: object) -> str:
    """A name from the file, as it is."""
    return f"`{_line(name).replace('`', chr(39))}`"


def _description(release: BaseRelease, title: str) -> Iterator[str]:
    treatment, outcome = (name if name in UNNAMED else _code(name) for name in compared(release))
    yield f"{_words(title)}: {treatment} and {outcome}."
    if isinstance(release, Release):
        first, second = (_code(stage.get("name")) for stage in (release.first_stage, release.second_stage))
        yield f"By weights of {first}, then {second}."
    columns = ", ".join(map(_code, release.columns))
    yield f"From {release.n_samples} {units_of(release)}, adjusted for {columns}."


def _domain(release: BaseRelease) -> Iterator[str]:
    domain, columns = release.public, release.columns
    units = f"{release.n_samples} {units_of(release)}"
    yield f"Tables of {units} with a treatment, an outcome and {len(columns)} covariates."
    for name, fact in declared_facts(release):
        if name not in ("records", "persons", "settings", "first stage", "second stage", "neighbors"):
            yield f"- {name}: {_words(fact)}"
    for column, (low, high) in zip(columns, domain.range_pairs, strict=False):
        switch = domain.codebook is not None and domain.codebook.origin(column)[1] is not None
        yield f"- {_code(column)}: {'0 or 1' if switch else f'clipped to {low:g} to {high:g}'}"
    if isinstance(release, EffectRelease) and release.ranges:
        yield "- ranges were released at a part of the privacy parameters; records are clipped to them"


def _neighbors(release: BaseRelease) -> str:
    same = release.guarantee.relation is Neighboring.REPLACE_ONE_KEEP_TREATMENT
    if units_of(release) == "persons":
        return (
            "Adjacent datasets of the data domain have the same number of persons and differ in all records "
            "of one of them, replaced by any others, of any number."
        )
    neighbors = (
        "Adjacent datasets of the data domain have the same number of records and differ in one record, "
        "replaced by any other"
    )
    return f"{neighbors} with the same treatment, which is not protected." if same else f"{neighbors}."


def _conditions(release: BaseRelease) -> Iterator[str]:
    """Condition that the guarantee rests on, where there is one."""
    if not release.private:
        yield next(promised(release))


def _mechanisms(release: BaseRelease) -> Iterator[str]:
    for step in release.steps:
        cost = f"epsilon {digits_of(step.epsilon)}" + f", delta {digits_of(step.delta)}" * bool(step.delta)
        if step.step in release.before:
            cost += f", spent once with the release {_words(release.before[step.step]['of'])} of the study"
        yield (
            f"- {_words(step.step)} ({RELEASED.get(step.step, step.theorem)}): {step.noise.value} noise, "
            f"perturbed {step.perturbed.value}, {_words(step.theorem)}; {cost}."
        )
    yield "- Implemented in dp2erm-cvx; noise from the entropy of the operating system, without a seed."
    yield f"- Assumptions: {_words('; '.join(release.guarantee.assumptions))}."
    yield "- Not interactive. Nothing is claimed about timing or other side channels of the computer."
