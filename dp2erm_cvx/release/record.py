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
SCHEMA_VERSION = 5

#: What is assumed where an earlier step of a Pipeline learned from the records.
FITTED_BEFORE = "of a Pipeline, fitted to the same records before, reveals nothing of them"


@dataclass(frozen=True)
class Guarantee(Stated):
    """(epsilon, delta)-differential privacy of one release, and what it rests on.

    Parameters
    ----------
    epsilon
        Bound on the log ratio of probabilities of any result between neighbors.
    delta
        Probability that is allowed beside it; 0 under pure privacy.
    relation
        The datasets that count as neighbors.
    theorem
        The theorem that turned stability into noise.
    stability_theorem
        The theorem that bounds the movement of the weights.
    assumptions
        What both theorems rest on, one sentence each.
    standing
        Whether the guarantee holds for this release.
    unit
        Who is protected: "persons by COLUMN"; None where records are.
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
    """Noise that covers floating point: rounding to a grid, and discrete Laplace noise on it.

    Parameters
    ----------
    tolerance
        Bound on the distance of what was computed to what the theorem speaks of.
    grid_exponent
        The grid has the multiples of ``2**grid_exponent``.
    scale
        Scale of the discrete Laplace noise.
    epsilon
        What it costs on either side, or once where the output itself is perturbed.
    """

    tolerance: float
    grid_exponent: int
    scale: float
    epsilon: float


@dataclass(frozen=True)
class StepStatement(Stated):
    """Budget of one step of a release, and its calibrated noise, from public quantities alone.

    Parameters
    ----------
    step
        Name of the step, such as "propensity" or "theta".
    epsilon
        What the step spent of the epsilon of the guarantee.
    delta
        What the step spent of its delta.
    theorem
        The theorem by which it is private.
    perturbed
        What the noise was added to: an objective, an objective without constraints whose minimizer
        was projected afterwards (Theorem 7), or the output (Theorem 8).
    noise
        Law of the noise.
    scale
        1/beta of gamma and box noise, sigma of Gaussian noise, or the scale of Laplace noise. In
        units of n times the gradient, or of the outcome where the output is perturbed.
    gamma
        Ridge on every coordinate that the calibration added.
    stability
        Bound V on the movement of the weights when one record is replaced.
    weight_bound
        Bound on the weight of one record.
    split
        Share of the epsilon of this step that pays for the noise; None without a split.
    sensitivity
        What the noise covers: the gradient radius times V; None where a step has none.
    gradient_radius
        Half the diameter of the gradients of one record (zeta_c); None where it is infinite.
    hessian_trace
        Bound on the trace of the Hessian of one record; None where a step has none.
    strong_convexity
        Strong convexity mu_R of the penalty; None where a step has none.
    reason
        Why this calibration was taken; None where there was no choice.
    numerical
        The noise that covers the arithmetic; None where it is assumed to be exact, or counted in
        the noise itself.
    box
        Half widths (p,) of box noise, in whose norm scale, sensitivity and gradient radius are;
        None for another law.
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
    """What every release states: its guarantee, its steps, and all that was declared.

    Parameters
    ----------
    guarantee
        What is guaranteed, and what it rests on.
    steps
        One statement for each private step, in their order.
    n_samples
        Number of records, or of persons where they are protected; public.
    columns
        Names of the covariates, in the order of the released coefficients.
    domain
        What was declared of the records.
    declared
        The question, the budget and every setting. Programs are named with their settings, and
        those of a file of your own with its digest.
    study
        SHA-256 of the study file; None without one.
    version
        Version of the package that made the release.
    schema_version
        Version of the layout of the JSON.
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
        """What it guarantees together with released ranges that its domain rests on.

        By basic composition epsilons add up, and ranges spend no delta.
        """
        ranges = self.public.released
        if ranges is None:
            return self.guarantee
        return replace(self.guarantee, epsilon=self.guarantee.epsilon + ranges.epsilon)

    @property
    def standing(self) -> Standing:
        """Whether the guarantee holds for this release, and on what condition."""
        return self.guarantee.standing

    def to_json(self) -> str:
        """The release as JSON, with what it has ``spelled`` out."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_dict(self, *, derived: bool = True) -> dict[str, Any]:
        """Plain JSON types; without ``derived`` the fields alone, whatever they hold."""
        plain: dict[str, Any] = release_adapter(type(self)).dump_python(self, mode="json")
        # What was released comes before what every release states.
        in_order = sorted(plain, key=BaseRelease.__dataclass_fields__.__contains__)
        plain = {name: plain[name] for name in in_order}
        if not derived:
            return plain
        spelled = {name: getattr(self, name) for name in self.spelled}
        return {**spelled, **plain, **self.worked_out()}

    def worked_out(self) -> dict[str, Any]:
        """Entries at the end of the JSON, which follow from what was released by arithmetic."""
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
        return {
            "n_samples": self.n_samples,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "standing": self.guarantee.standing.value,
        }


@cache
def release_adapter(kind: type[BaseRelease]) -> Any:
    """Adapter that validates and writes a release of this kind."""
    from pydantic import TypeAdapter  # when JSON is written or read, not at start-up

    return TypeAdapter(kind)
