"""The record of a release for the public registry of deployments of differential privacy."""

from __future__ import annotations

import datetime
import html
import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Any

from dp2erm_cvx.display import law_text
from dp2erm_cvx.errors import DeclarationError, brief
from dp2erm_cvx.privacy import Neighboring
from dp2erm_cvx.release import Release, Standing
from dp2erm_cvx.release.effect import EffectRelease
from dp2erm_cvx.release.record import BaseRelease
from dp2erm_cvx.release.story import story_of
from dp2erm_cvx.release.words import compared, declared_facts, meaning, noise_of, units_of
from dp2erm_cvx.report.page import check_installed
from dp2erm_cvx.steps.step import RELEASED

_TEMPLATE = tomllib.loads((resources.files(__package__) / "templates/datasheet.toml").read_text("utf-8"))
#: What only the deployer knows, by the name of the field in the registry: what to say there, then the
#: answers that the registry takes.
ASKED: dict[str, list[str]] = _TEMPLATE["asked"]
#: What marks a field that is left to the deployer.
BLANK = "TODO: "


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
    guarantee, story = release.guarantee, story_of(release)
    second = release.second_stage.get("name") if isinstance(release, Release) else None
    effect = isinstance(release, EffectRelease) or second in ("arm_means", "plug_in_ate")
    delta = {"delta": guarantee.delta} if guarantee.delta else {}
    record: dict[str, Any] = _filled(
        _TEMPLATE["record"],
        {name: _answer(name, answered.get(name)) for name in ASKED}
        | {
            "description": "\n".join(_description(release, story.title)),
            "product": "Summary statistics" if effect else "Machine learning model",
            "variant": "Approximate DP" if delta else "Pure DP",
            "domain": "\n".join(_domain(release)),
            "units": units_of(release),
            "n": release.n_samples,
            "neighbors": _neighbors(release),
            "parameters": {"epsilon": guarantee.epsilon, **delta},
            "law": _words(meaning(release)),
            "steps": "\n".join(_mechanisms(release)),
            "assumptions": _words("; ".join(guarantee.assumptions)),
            "theorem": _words(guarantee.theorem),
            "stability": _words(guarantee.stability_theorem),
            "processed": (
                "The estimate and its interval are computed from the released numbers and public constants."
                if effect
                else "Decisions, and the rule on the raw scale, follow from the released coefficients."
            ),
            "utility": f"{_code(story.headline)}. {story.precision}",
        },
    )
    return record


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    """A part of the template with its ``values``; what is one of them alone is of its type."""
    if isinstance(part, dict):
        return {name: _filled(one, values) for name, one in part.items()}
    if isinstance(part, list):
        return [_filled(one, values) for one in part]
    if not isinstance(part, str):
        return part
    alone = part.startswith("{") and part[1:-1] in values
    return values[part[1:-1]] if alone else part.format(**values)


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
        "# Fields: github.com/opendp/deployments-registry-data, schemas/deployments-schema.yaml at 057e5d8.",
        f'# Everything but the answers to "{BLANK.strip()}" follows from the release.',
    )
    written = yaml.dump(dict(record), Dumper=dumper, sort_keys=False, allow_unicode=True, width=math.inf)
    return "\n".join([*header, written])


def _line(text: object) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())


def _words(text: object) -> str:
    """One line of a text from the file: the registry shows markdown, in which HTML is HTML."""
    return html.escape(_line(text), quote=False)


def _code(name: object) -> str:
    """A name from the file, as it is."""
    return f"`{_line(name).replace('`', chr(39))}`"


def _description(release: BaseRelease, title: str) -> Iterator[str]:
    treatment, outcome = map(_code, compared(release))
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
    if units_of(release) == "persons":
        return "all records of one of them, replaced by any others, of any number"
    same = release.guarantee.relation is Neighboring.REPLACE_ONE_KEEP_TREATMENT
    return "one record, replaced by any other" + " with the same treatment, which is not protected" * same


def _mechanisms(release: BaseRelease) -> Iterator[str]:
    for step in release.steps:
        cost = law_text(step)
        if step.step in release.before:
            cost += f", spent once with the release {_words(release.before[step.step]['of'])} of the study"
        yield (
            f"- {_words(step.step)} ({RELEASED.get(step.step, step.theorem)}): {noise_of(step)} noise, "
            f"perturbed {step.perturbed.value}, {_words(step.theorem)}; {cost}."
        )
