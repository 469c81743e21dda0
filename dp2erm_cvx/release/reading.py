"""The strict reader of releases: what does not fit the schema is refused in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeVar

from dp2erm_cvx.calibration import Noise, Perturbed
from dp2erm_cvx.calibration.profiles import LossLaw, joint_delta
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.release.record import (
    SCHEMA_VERSION,
    BaseRelease,
    Release,
    Standing,
    StepStatement,
    release_adapter,
)
from dp2erm_cvx.release.schema_2 import upgraded

#: Parts of a budget add up to at most the whole, but for the rounding of their sum.
_ROUNDING = 1.0 + 1e-9


P = TypeVar("P", bound=BaseRelease)


def read_release(text: str | bytes) -> Release:
    """Read :meth:`Release.to_json` back, and files of schema 2 as well.

    Raises DeclarationError, in one line, if the text does not fit the schema.
    """
    return read_published(text, Release, _check_numbers, upgraded)


def read_published(
    text: str | bytes,
    kind: type[P],
    check: Callable[[P], None],
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> P:
    """Read ``to_json`` of this kind of release back, which ``check`` judges; ``upgrade`` is for schema 2.

    Raises DeclarationError, in one line, if the text does not fit the schema.
    """
    from pydantic import ValidationError

    try:
        plain = json.loads(text, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_named_once)
        if upgrade is not None and isinstance(plain, dict) and plain.get("schema_version") == 2:
            plain = upgrade(plain)
        besides = (*kind.spelled, *kind.derived) if isinstance(plain, dict) else ()
        stated = {name: plain.pop(name, None) for name in besides}
        release: P = release_adapter(kind).validate_python(plain)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise DeclarationError(f"release JSON: {_line(where)}: {first['msg']}") from None
    except (TypeError, ValueError, UnicodeDecodeError) as error:
        raise DeclarationError(f"release JSON: {_line(error)}") from None
    except RecursionError:
        raise DeclarationError("release JSON: brackets within brackets without end") from None
    check(release)
    if release.schema_version != SCHEMA_VERSION:
        raise DeclarationError(
            f"release JSON: schema_version {release.schema_version} is not {SCHEMA_VERSION}"
        )
    for name, spelled in release.spelled_out().items():
        # a number or another type is not what was spelled out, even where it compares equal
        if type(stated[name]) not in (bool, str) or stated[name] != spelled:
            raise DeclarationError(f"release JSON: {name} does not agree with guarantee.standing")
    worked_out = release.worked_out()
    for name in kind.derived if release.at_hand else ():
        if stated[name] is not None and not _same(stated[name], worked_out.get(name)):
            raise DeclarationError(f"release JSON: {name} does not follow from what was released")
    return release


def _same(stated: Any, known: Any) -> bool:
    """Whether both state the same: numbers may be written in any way."""
    if isinstance(known, dict):
        fine = isinstance(stated, dict) and list(stated) == list(known)
        return fine and all(_same(stated[name], value) for name, value in known.items())
    return not isinstance(stated, bool) and bool(stated == known)


def _check_numbers(release: Release) -> None:
    """Refuse what no release states, although every field has the right type."""
    check_guarantee(release)
    try:
        Domain.from_dict(release.domain)
    except DeclarationError as error:
        raise DeclarationError(f"release JSON: {error}") from None
    for stage in ("first_stage", "second_stage"):
        stated = getattr(release, stage)
        if not (isinstance(stated.get("name"), str) and isinstance(stated.get("settings"), dict)):
            raise DeclarationError(f"release JSON: {stage}: states a name and settings")
    names = [step.step for step in release.steps]
    if "theta" not in names or len(set(names)) < len(names):
        raise DeclarationError("release JSON: steps: one of them releases theta, and none stands twice")
    if (release.value is None) != ("value" not in names):
        raise DeclarationError("release JSON: value: stands with a step of that name, or not at all")
    theta = release.mechanism
    for name in ("sensitivity", "hessian_trace", "strong_convexity", "reason"):
        if getattr(theta, name) is None:
            raise DeclarationError(f"release JSON: steps: theta states no {name}")
    check_spent(release)
    if release.n_samples < 2:
        raise DeclarationError(f"release JSON: n_samples = {release.n_samples}: must be at least 2")
    if not release.columns or not 1 <= len(release.theta) == len(release.parameters):
        raise DeclarationError("release JSON: theta needs a name for every value, and columns to apply to")


def check_guarantee(release: BaseRelease) -> None:
    """Raise DeclarationError where the guarantee is none, or a predicted share."""
    for name in ("kept_imbalance", "kept_confounding"):
        if (getattr(release, name, None) or 0.0) < 0.0:
            raise DeclarationError(f"release JSON: {name}: is no share")
    try:
        Budget(release.guarantee.epsilon, release.guarantee.delta)
    except DeclarationError as error:
        raise DeclarationError(f"release JSON: guarantee: {error}") from None


def check_spent(release: BaseRelease) -> None:
    """Raise DeclarationError where the steps spend more than is guaranteed, or what is no budget."""
    for step in release.steps:
        try:
            Budget(step.epsilon, step.delta)
        except DeclarationError as error:
            raise DeclarationError(f"release JSON: steps: {_line(step.step)}: {error}") from None
        if not step.scale > 0.0 or step.gamma < 0.0:
            raise DeclarationError(f"release JSON: steps: {_line(step.step)}: scale or gamma of no noise")
        if step.noise is Noise.GAUSSIAN and not step.delta:
            raise DeclarationError(f"release JSON: steps: {_line(step.step)}: Gaussian noise is not pure")
        boxed = step.box is not None and min(step.box, default=0.0) > 0.0
        if (step.noise is Noise.BOX) is not boxed or (step.box is not None) is not boxed:
            raise DeclarationError(f"release JSON: steps: {_line(step.step)}: a box for box noise, none else")
        if release.standing is not Standing.UNPROVEN and not _hides(step):
            raise DeclarationError(
                f"release JSON: steps: {_line(step.step)}: too little noise for its epsilon"
            )
    for whole, parts in (
        (release.guarantee.epsilon, [step.epsilon for step in release.steps]),
        (release.guarantee.delta, [step.delta for step in release.steps]),
    ):
        if math.fsum(parts) > whole * _ROUNDING and not _jointly(release):
            raise DeclarationError("release JSON: steps: they spend more than the guarantee states")


def _jointly(release: BaseRelease) -> bool:
    """Whether the noise of Gaussian steps may be within the guarantee together (Theorem 16)."""
    if any(step.noise is not Noise.GAUSSIAN or not step.sensitivity for step in release.steps):
        return False
    laws = [
        LossLaw(step.sensitivity / step.scale / _ROUNDING, folded=step.perturbed is not Perturbed.OUTPUT)
        for step in release.steps
        if step.sensitivity
    ]
    return joint_delta(laws, release.guarantee.epsilon * _ROUNDING) <= release.guarantee.delta * _ROUNDING


def _hides(step: StepStatement) -> bool:
    """False where pure noise loses more than epsilon for certain: what it must hide, in scales."""
    covered = step.numerical
    if covered is not None and not (covered.scale > 0.0 and 0.0 < covered.epsilon <= step.epsilon):
        return False
    moved = step.sensitivity
    if step.perturbed is not Perturbed.OUTPUT:
        moved = None if step.gradient_radius is None else step.gradient_radius * step.stability
    return (
        step.noise is Noise.GAUSSIAN or moved is None or 0.0 <= moved <= step.epsilon * step.scale * _ROUNDING
    )


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a finite number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refused(text[:20])


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # of two statements about one name, one reader could see the first and another the second
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in one object")
    return found


def _line(message: object) -> str:
    """At most one line of a message that quotes the file."""
    line = " ".join(str(message).split())
    return line if len(line) <= 200 else line[:197] + "..."
