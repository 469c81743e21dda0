"""A release: theta, its guarantee, and every public constant that the guarantee rests on."""

from __future__ import annotations

import enum
import json
import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.privacy import Budget, Neighboring
from dp2erm_cvx.value import ValueRelease

SCHEMA_VERSION = 2

# what pydantic checks when a release is read from JSON
_STRICT = {"extra": "forbid", "allow_inf_nan": False}


class Standing(enum.StrEnum):
    """Whether the guarantee holds for this release.

    ``CONDITIONAL``: the theorems' exact minimizer was not established, because a solution was not
    certified or because a regularizer of the user's own leaves only a duality gap to judge by.
    ``NOT_PRIVATE``: the noise was seeded, so anyone can subtract it. ``UNPROVEN``: the plan says itself
    that no theorem certifies its bound or its noise.
    """

    PRIVATE = "private"
    CONDITIONAL = "conditional on certification"
    NOT_PRIVATE = "not private: seeded noise"
    UNPROVEN = "not private: the calibration is not proven"


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-differential privacy of one release under ``relation``, and what it rests on."""

    __pydantic_config__: ClassVar = _STRICT

    epsilon: float
    delta: float
    relation: Neighboring
    theorem: str
    stability_theorem: str
    assumptions: tuple[str, ...]
    standing: Standing

    @property
    def private(self) -> bool:
        """True only where the guarantee holds without a condition."""
        return self.standing is Standing.PRIVATE

    def __str__(self) -> str:
        law = f"epsilon = {self.epsilon:g}" + (f", delta = {self.delta:g}" if self.delta else " (pure)")
        theorems = f"{self.theorem}, {self.stability_theorem}"
        return f"{law}; neighbors: {self.relation.value}; {theorems}; {self.standing}"


class Perturbed(enum.StrEnum):
    """What the noise was added to."""

    OBJECTIVE = "objective"
    UNCONSTRAINED = "unconstrained objective, theta projected afterwards"
    OUTPUT = "output"


@dataclass(frozen=True)
class NumericalNoise:
    """What covers floating point: rounding to multiples of ``2**grid_exponent`` and discrete Laplace noise.

    ``tolerance`` bounds the distance of what was computed to what the theorem speaks of; ``scale`` is that of
    the Laplace noise, and ``epsilon`` what it costs on either side, or once where the output itself is
    perturbed.
    """

    __pydantic_config__: ClassVar = _STRICT

    tolerance: float
    grid_exponent: int
    scale: float
    epsilon: float


@dataclass(frozen=True)
class PropensityMechanism:
    """Objective perturbation of a private first stage: what it spent, and its noise."""

    __pydantic_config__: ClassVar = _STRICT

    epsilon: float
    delta: float
    noise: Noise
    scale: float
    gamma: float
    theorem: str
    numerical: NumericalNoise | None = None


@dataclass(frozen=True)
class Mechanism:
    """The calibrated perturbation, from public quantities alone.

    ``scale`` is 1/beta (gamma) or sigma (gaussian), in units of n times the gradient, or of the outcome where
    the output is perturbed; ``gamma`` the ridge on every coordinate, ``split`` the share of epsilon spent on
    noise, ``stability`` the bound V, ``weight_bound`` that on one weight, ``sensitivity`` what the noise
    covers, ``gradient_radius`` zeta_c (None where infinite). ``reason`` says why this calibration was taken;
    ``propensity`` is the mechanism of a private first stage; ``numerical`` covers the arithmetic, None where
    it is assumed to be exact.
    """

    __pydantic_config__: ClassVar = _STRICT

    perturbed: Perturbed
    noise: Noise
    scale: float
    gamma: float
    split: float
    stability: float
    weight_bound: float
    sensitivity: float
    gradient_radius: float | None
    hessian_trace: float
    strong_convexity: float
    reason: str
    propensity: PropensityMechanism | None = None
    numerical: NumericalNoise | None = None


@dataclass(frozen=True)
class Release:
    """What may be published. Weights, duals, residuals and noise are not in it.

    ``theta`` (p,) has one name per coordinate in ``parameters``; it is in units of the outcome per unit
    of the scaled covariates; ``value`` is that of its rule, if a share of the budget was declared for it.
    ``domain``, ``first_stage`` and ``second_stage`` hold the declared constants.
    """

    __pydantic_config__: ClassVar = _STRICT

    theta: tuple[float, ...]
    parameters: tuple[str, ...]
    columns: tuple[str, ...]
    n_samples: int
    guarantee: Guarantee
    mechanism: Mechanism
    domain: dict[str, Any]
    first_stage: dict[str, Any]
    second_stage: dict[str, Any]
    value: ValueRelease | None = None
    schema_version: int = field(default=SCHEMA_VERSION)

    @property
    def private(self) -> bool:
        """True only where the guarantee holds without a condition."""
        return self.guarantee.private

    def to_json(self) -> str:
        """The release as JSON, with ``private`` spelled out."""
        plain = _adapter().dump_python(self, mode="json")
        return json.dumps({"private": self.private, **plain}, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Release:
        """Read a release back. Raises DeclarationError, in one line, if it does not fit the schema."""
        from pydantic import ValidationError

        try:
            plain = json.loads(
                text, parse_constant=_refused, parse_float=_finite, object_pairs_hook=_named_once
            )
            stated = plain.pop("private", None) if isinstance(plain, dict) else None
            release: Release = _adapter().validate_python(plain)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise DeclarationError(f"release JSON: {_line(where)}: {first['msg']}") from None
        except (TypeError, ValueError, UnicodeDecodeError) as error:
            raise DeclarationError(f"release JSON: {_line(error)}") from None
        except RecursionError:
            raise DeclarationError("release JSON: brackets within brackets without end") from None
        _check_numbers(release)
        if release.schema_version != SCHEMA_VERSION:
            raise DeclarationError(
                f"release JSON: schema_version {release.schema_version} is not {SCHEMA_VERSION}"
            )
        if stated is not release.private:
            raise DeclarationError("release JSON: private does not agree with guarantee.standing")
        return release


def _check_numbers(release: Release) -> None:
    """Refuse what no release states, although every field has the right type."""
    try:
        Budget(release.guarantee.epsilon, release.guarantee.delta)
    except DeclarationError as error:
        raise DeclarationError(f"release JSON: guarantee: {error}") from None
    if release.n_samples < 2:
        raise DeclarationError(f"release JSON: n_samples = {release.n_samples}: must be at least 2")
    if not release.columns or not 1 <= len(release.theta) == len(release.parameters):
        raise DeclarationError("release JSON: theta needs a name for every value, and columns to apply to")


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


def json_schema() -> dict[str, Any]:
    """JSON Schema of :meth:`Release.to_json`."""
    schema: dict[str, Any] = _adapter().json_schema()
    schema["properties"] = {"private": {"type": "boolean"}, **schema["properties"]}
    schema["required"] = ["private", *schema["required"]]
    return schema


@cache
def _adapter() -> Any:
    # pydantic is imported when JSON is written or read, not at start-up
    from pydantic import TypeAdapter

    return TypeAdapter(Release)
