"""What every release states: its guarantee, its declaration, and what every private step spent."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from dp2erm_cvx import __version__
from dp2erm_cvx.calibration import Noise, Perturbed
from dp2erm_cvx.checks import Stated, json_types
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.display import WIDTH, Shown, as_text, law_text
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.hooks import report_of
from dp2erm_cvx.privacy import Neighboring, Standing
from dp2erm_cvx.release.caveats import caveats_of

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: Layout of the JSON of a release: its declaration, its released numbers, and all that follows from
#: both.
SCHEMA_VERSION = 4

#: What is assumed where an earlier step of a Pipeline learned from the records.
FITTED_BEFORE = "of a Pipeline, fitted to the same records before, reveals nothing of them"


@dataclass(frozen=True)
class Guarantee(Stated):
    """(epsilon, delta)-differential privacy of one release under ``relation``, and what it rests
    on.

    ``unit`` is who is protected, "persons by COLUMN"; None where records are.
    """

    epsilon: float
    delta: float
    relation: Neighboring
    theorem: str
    stability_theorem: str
    assumptions: tuple[str, ...]
    standing: Standing
    unit: str | None = None

    @property
    def private(self) -> bool:
        """True only where the guarantee holds without a condition."""
        return self.standing is Standing.PRIVATE

    @property
    def fitted_before(self) -> str:
        """Assumption about a step that was fitted to the same records before; empty without one."""
        return next((one for one in self.assumptions if one.endswith(FITTED_BEFORE)), "")

    def __str__(self) -> str:
        law = law_text(self) + ("" if self.delta else " (pure)")
        theorems = f"{self.theorem}, {self.stability_theorem}"
        return f"{law}; neighbors: {self.relation.value}; {theorems}; {self.standing}"


@dataclass(frozen=True)
class NumericalNoise(Stated):
    """Cover of floating point: rounding to multiples of ``2**grid_exponent`` and discrete Laplace
    noise.

    ``tolerance`` bounds the distance of what was computed to what the theorem speaks of; ``scale``
    is that of the Laplace noise, and ``epsilon`` what it costs on either side, or once where the
    output itself is perturbed.
    """

    tolerance: float
    grid_exponent: int
    scale: float
    epsilon: float


@dataclass(frozen=True)
class StepStatement(Stated):
    """Budget of one step of a release, and its calibrated noise, from public quantities alone.

    ``scale`` is 1/beta (gamma, box), sigma (gaussian) or that of Laplace noise, in units of n times
    the gradient, or of the outcome where the output is perturbed; ``gamma`` the ridge on every
    coordinate, ``split`` the share of its epsilon spent on noise. ``stability`` is the bound V,
    ``weight_bound`` that on one weight, ``sensitivity`` what the noise covers, ``gradient_radius``
    zeta_c (None where infinite). The last ones are None where a step has none. ``reason`` says why
    this calibration was taken, where there was a choice; ``numerical`` covers the arithmetic, None
    where it is assumed to be exact or counted in the noise itself. ``box`` are the half widths (p,)
    of box noise, in whose norm scale, sensitivity and gradient radius are; None for another law.
    """

    step: str
    epsilon: float
    delta: float
    theorem: str
    perturbed: Perturbed
    noise: Noise
    scale: float
    gamma: float
    stability: float
    weight_bound: float
    split: float | None = None
    sensitivity: float | None = None
    gradient_radius: float | None = None
    hessian_trace: float | None = None
    strong_convexity: float | None = None
    reason: str | None = None
    numerical: NumericalNoise | None = None
    box: tuple[float, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class BaseRelease(abc.ABC, Shown, Stated):
    """Base of releases: the guarantee, and the budget of each private step.

    ``steps`` state what each private step spent and why, in their order. ``domain`` and
    ``declared`` hold all that was declared; ``study`` is the digest of the study file, where one
    was.
    """

    #: What was asked for, as its declaration names it.
    goal: ClassVar[str]
    #: What its JSON spells out of the guarantee, beside stating it there.
    spelled: ClassVar[tuple[str, ...]] = ("private",)
    #: What follows from what was released, in the JSON of those releases that have it.
    derived: ClassVar[tuple[str, ...]] = ("caveats",)

    guarantee: Guarantee
    steps: tuple[StepStatement, ...]
    n_samples: int
    columns: tuple[str, ...]
    domain: dict[str, Any]
    declared: dict[str, Any]
    study: str | None = None
    version: str = __version__
    schema_version: int = SCHEMA_VERSION

    @property
    def private(self) -> bool:
        """True only where the guarantee holds without a condition."""
        return self.guarantee.private

    def step(self, name: str) -> StepStatement | None:
        """The statement of a step, such as "propensity" or "theta"; None where there was none."""
        return next((step for step in self.steps if step.step == name), None)

    @property
    def before(self) -> Mapping[str, Mapping[str, Any]]:
        """Steps that an earlier question of the same study released, by name: ``of`` which one."""
        steps: Mapping[str, Mapping[str, Any]] = self.declared.get("before", {})
        return steps

    @cached_property
    def public(self) -> Domain:
        """Declaration of the records. Raises DeclarationError where that is no domain."""
        return Domain.from_dict(self.domain)

    @property
    def whole_guarantee(self) -> Guarantee:
        """What it guarantees together with the released ranges that its domain rests on, if there
        are any.

        Basic composition: epsilons add up, and ranges spend no delta.
        """
        own, ranges = self.guarantee, self.public.released
        return own if ranges is None else replace(own, epsilon=own.epsilon + ranges.epsilon)

    @property
    def standing(self) -> Standing:
        """True if the guarantee holds for this release."""
        return self.guarantee.standing

    def to_json(self) -> str:
        """The release as JSON, with what it has ``spelled`` out."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_dict(self, *, derived: bool = True) -> dict[str, Any]:
        """Plain JSON types; without ``derived`` the fields alone, whatever they hold."""
        plain: dict[str, Any] = release_adapter(type(self)).dump_python(self, mode="json")
        # what was released comes before what every release states
        plain = {
            name: plain[name]
            for name in sorted(plain, key=BaseRelease.__dataclass_fields__.__contains__)
        }
        spelled = {name: getattr(self, name) for name in self.spelled}
        return {**spelled, **plain, **self.worked_out()} if derived else plain

    def worked_out(self) -> dict[str, Any]:
        """Entries at the end of the JSON: arithmetic on what was released and on public
        constants.
        """
        fields = {name: getattr(self, name) for name in self.derived}
        return {name: json_types(value) for name, value in fields.items() if value is not None}

    @property
    def caveats(self) -> tuple[str, ...]:
        """Codes of what a reader has to know, of :data:`~dp2erm_cvx.release.caveats.CAVEATS`."""
        return tuple(one.code for one in caveats_of(self))

    @abc.abstractmethod
    def rows(self) -> list[Mapping[str, Any]]:
        """The rows of the data frame."""

    def summary(self, width: int = WIDTH) -> str:
        """Report of the release as text, as the command line prints it."""
        return as_text(self.blocks(), width)

    def to_frame(self) -> Any:
        """A data frame of pandas, whose rows say what they cost and what their standing is.

        Raises DeclarationError where pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise DeclarationError(
                "a data frame needs pandas: pip install 'dp2erm-cvx[data]'"
            ) from None
        return pd.DataFrame(self.rows())

    def blocks(self) -> Iterator[Block]:
        """Report, from what was released and public numbers alone."""
        return report_of(self)

    def cost(self) -> dict[str, Any]:
        """Columns of the data frame about the guarantee."""
        guarantee = self.guarantee
        named = {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
        return {"n_samples": self.n_samples, **named, "standing": guarantee.standing.value}


@cache
def release_adapter(kind: type[BaseRelease]) -> Any:
    """Adapter that validates and writes a release of this kind."""
    from pydantic import TypeAdapter  # when JSON is written or read, not at start-up

    return TypeAdapter(kind)
