"""Declaration of a release, the study that it declares, and the statements of its plan and run."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dp2erm_cvx.calibration import EXACT_ARITHMETIC
from dp2erm_cvx.calibration.base import gradient_size
from dp2erm_cvx.checks import declared_by_name
from dp2erm_cvx.data.counts import OWN_RECORD
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.private_ranges import OpenDomain
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.display import digits_of, law_text, written_members
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, brief
from dp2erm_cvx.model.sets import ConvexSet, ElasticNet
from dp2erm_cvx.plan import EffectStudy, Pipeline, Plan, RangesStudy, RuleStudy, Study
from dp2erm_cvx.privacy import Budget, Standing
from dp2erm_cvx.program import Landmarks, Moments, registry
from dp2erm_cvx.program.kernels import Kernel
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.program.stated import (
    assumed_public,
    program_source,
    stated_program,
    written_in_a_file,
)
from dp2erm_cvx.release.record import BaseRelease, Guarantee, NumericalNoise, StepStatement
from dp2erm_cvx.steps.record_map import Term
from dp2erm_cvx.steps.step import Step

#: What may be asked for, by the name that a release gives it.
GOALS: dict[str, type[EffectStudy] | type[RuleStudy] | type[Study] | type[RangesStudy]] = {
    "effect": EffectStudy,
    "rule": RuleStudy,
    "weighted": Study,
    "ranges": RangesStudy,
}
_KINDS: tuple[type[Any], ...] = (
    ElasticNet,
    Landmarks,
    *written_members(ConvexSet),
    *written_members(Kernel),
)
#: Settings of programs that are more than numbers and texts.
_PARTS = {kind.__name__: kind for kind in _KINDS}


#: Fields of a study that a release states elsewhere.
_NOT_DECLARED = ("universe", "released_scale")


class NotAtHandError(DeclarationError):
    """A release names a program, or a part of one, that is not known here.

    Nothing can then be planned again.
    """


def declaration_of(plan: Plan[Any]) -> dict[str, Any]:
    """All that was declared for a plan but its records, in plain JSON types, with its goal.

    The arithmetic is stated as it is in force, counted or assumed: "auto" depends on what is
    installed.
    """
    study = plan.study
    goal, kind = next((name, kind) for name, kind in GOALS.items() if isinstance(study, kind))
    own: dict[str, Any] = {}
    for one in fields(kind):
        value = getattr(study, one.name)
        if isinstance(value, Program):
            own[one.name] = _stated_program(value, study.universe)
        elif one.name not in _NOT_DECLARED:
            own[one.name] = _plain(value)
    if not study.before:  # which most releases do not state
        own.pop("before", None)
    if own.get("weights", "") is None:  # that of a score, which has none
        del own["weights"]
    return {"goal": goal, **own, "arithmetic": "counted" if plan.counted else "assumed"}


def study_of(release: BaseRelease) -> Pipeline:
    """Declaration of a release, by its file alone.

    Raises
    ------
    NotAtHandError
        Where it names what is not known here.
    DeclarationError
        Where it declares nothing that can be planned.
    """
    try:
        return _declared_study(release)
    except Dp2ermError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise DeclarationError(f"declared: is no declaration of a release: {error}") from None


#: Programs that a declaration may name, by its entry.
_STAGES: dict[str, Callable[[], Mapping[str, Any]]] = {
    "first": registry.first_stages,
    "second": registry.second_stages,
    "weights": registry.first_stages,
}


def _declared_study(release: BaseRelease) -> Pipeline:
    """Declaration of a release; any error of Python where it is damaged."""
    declared = dict(release.declared)
    kind = GOALS[declared.pop("goal")]
    declared["budget"] = Budget(**declared.pop("budget"))
    universe = Universe(release.public, release.n_samples, len(release.columns))
    for stage, known in _STAGES.items():
        if isinstance(declared.get(stage), dict):
            declared[stage] = _program(known(), declared[stage])
    if kind is RangesStudy:
        public = OpenDomain.from_dict(declared["public"])
        declared["public"] = public
        universe = Universe(public.universe(), release.n_samples, len(public.known) - 1)
    return declared_by_name(kind, "declared", {"universe": universe, **declared})


def _program(known: Mapping[str, Any], fields: Mapping[str, Any]) -> Any:
    """The program of that name, at the settings that are stated.

    Raises
    ------
    NotAtHandError
        Where another program, or another file, is known here.
    """
    name = fields["name"]
    source = fields.get("source")
    stated = source if isinstance(source, dict) else {}
    if not isinstance(name, str) or name not in known:
        which = "is of no file: nobody else can compute again what rests on it"
        if any(map(written_in_a_file, stated)):
            which = (
                f"is not known here: give its file, of SHA-256 {_in_words(stated)}, by --program "
                "FILE.py"
            )
        raise NotAtHandError(f"declared: the program {brief(name)} {which}")
    settings = {setting: rebuilt(value) for setting, value in fields["settings"].items()}
    program = registry.build(dict(known), name, **settings)
    here = program_source(program)
    if sorted(map(str, stated.values())) != sorted(here.values()):
        raise NotAtHandError(
            f"declared: the program {brief(name)} is that of a file of SHA-256 "
            f"{_in_words(stated)}, and the one known here is of {_in_words(here)}: give that file "
            "by --program FILE.py"
        )
    return program


def _in_words(source: Mapping[str, Any]) -> str:
    """Digests of the files that a program is written in, as it is stated."""
    return ", ".join(map(brief, source.values())) or "none"


def _stated_program(program: Program, universe: Universe) -> dict[str, Any]:
    """A program in plain JSON types; one of an author's with its files and what was read of it."""
    stated = stated_program(program.at(universe), universe)
    return {"name": program.name, **stated, "settings": _plain(program.settings())}


def _plain(value: Any) -> Any:
    """A declared value in plain JSON types."""
    if isinstance(value, Budget):
        return {"epsilon": value.epsilon, "delta": value.delta}
    if isinstance(value, Term):
        return {"rows": value.rows.value, "source": _plain(value.source)}
    if isinstance(value, OpenDomain):
        return value.to_dict()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def rebuilt(stored: Any) -> Any:
    """A setting of a program, from :meth:`~dp2erm_cvx.program.Program.settings`.

    Raises
    ------
    NotAtHandError
        For a part of the user's own, or one of other sizes.
    """
    if stored == "inf":
        return math.inf
    if isinstance(stored, list):
        return tuple(stored)
    if isinstance(stored, dict) and list(stored) == ["moments"]:
        return Moments(stored["moments"])
    if isinstance(stored, str) and stored[:1].isupper():
        # A part without settings is its name alone.
        part: dict[str, Any] = {stored: {}}
    elif isinstance(stored, dict):
        part = stored
    else:
        return stored
    try:
        ((name, inner),) = part.items()
        return _PARTS[name](**{setting: rebuilt(value) for setting, value in inner.items()})
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NotAtHandError(
            f"{brief(stored)} is a function of its author's own, which no release holds: it would "
            "have to be part of a program in a FILE.py"
        ) from None


#: What only a run knows of itself: its solver, and how its solutions were certified.
UNKNOWN_SOLVER = "the declared solver certifies on every dataset: it is not known to"
BY_GAP = "a stage is certified by its duality gap alone"


def guarantee_of(plan: Plan[Any], certified: bool, by_gap: bool) -> Guarantee:
    """Guarantee of a run of a plan.

    Parameters
    ----------
    plan
        The plan, whose standing is the best that its release can have.
    certified
        Whether the solutions of this run are certified.
    by_gap
        Whether a duality gap alone certified one of them.
    """
    standing = plan.standing
    if standing is Standing.PRIVATE and (by_gap or not certified):
        standing = Standing.CONDITIONAL
    certifies = plan.certifies and plan.certified_by_design
    domain = plan.study.universe.domain
    return Guarantee(
        epsilon=plan.guarantee.epsilon,
        delta=plan.guarantee.delta,
        relation=domain.relation,
        theorem=plan.theorem,
        stability_theorem=plan.bound.theorem,
        assumptions=_assumptions(plan, certifies, by_gap),
        standing=standing,
        unit=None if domain.units is None else domain.protected,
    )


def together(domain: Domain, epsilon: float, delta: float) -> str:
    """Sentence on what a release guarantees with released ranges that it rests on; "" for none."""
    ranges = domain.released
    if ranges is None:
        return ""
    whole = Budget(ranges.epsilon + epsilon, delta)
    return (
        "the domain is not declared alone: ranges of it were released from the same records "
        f"before, for epsilon = {digits_of(ranges.epsilon)} (SHA-256 {ranges.digest}); that "
        f"release and this one guarantee the sum together, {law_text(whole)}"
    )


def state_steps(plan: Plan[Any]) -> tuple[StepStatement, ...]:
    """Budget of every step, and its calibrated noise."""
    return tuple(_stated(step) for step in plan.steps)


def _assumptions(plan: Plan[Any], certifies: bool, by_gap: bool) -> tuple[str, ...]:
    """Assumptions of the guarantee beyond its theorems, public quantities and the standing."""
    texts: list[str] = []
    for step in plan.steps:
        texts += [text for text in step.assumptions if text not in texts]
    domain = plan.study.universe.domain
    if domain.released is not None:
        texts.append(together(domain, plan.guarantee.epsilon, plan.guarantee.delta))
    if domain.sampling is not None:
        texts.append(OWN_RECORD)
    if domain.units is not None:
        texts.append("neighbors differ in all records of one person, N is public (Theorem 24)")
    stated: set[Program] = set()
    for step in plan.steps:
        stated.update(step.stated_programs())
    for program in plan.programs:
        texts += _word_of_author(program, is_stated=program in stated)
        texts += assumed_public(program, plan.study.universe)
    # Sums alone say nothing of the noise that they draw in floating point.
    beside = {UNKNOWN_SOLVER: not certifies, BY_GAP: by_gap, EXACT_ARITHMETIC: not plan.counted}
    texts += [fact for fact, holds in beside.items() if holds and fact not in texts]
    return tuple(texts)


def _word_of_author(program: Program, *, is_stated: bool) -> Iterator[str]:
    """What is assumed of a program by the word of its author alone."""
    home = f"{program.made_by.__module__}.{program.made_by.__name__}"
    own_data = program.own_data()
    if is_stated:
        yield (
            f"the stated bound of {home} holds, and its own functions see one record: its "
            "author's word"
        )
    elif own_data:
        yield f"{', '.join(own_data)} of {home}: each record's value is made of that record alone"


def _stated(step: Step) -> StepStatement:
    """Budget and calibrated noise of one step."""
    loss = step.loss
    law = step.noise_law
    numerical = None
    if step.precision is not None:
        grid = step.precision.grid
        numerical = NumericalNoise(
            step.precision.tolerance, grid.exponent, grid.scale, grid.epsilon
        )
    # The radius is in the norm of the noise.
    radius = math.inf if loss is None else gradient_size(loss, law["noise"])
    return StepStatement(
        step=step.name,
        epsilon=step.guarantee.epsilon,
        delta=step.guarantee.delta,
        theorem=step.theorem,
        perturbed=step.perturbed,
        **law,
        stability=step.bound.V,
        weight_bound=step.bound.w_max,
        gradient_radius=radius if math.isfinite(radius) else None,
        hessian_trace=None if loss is None else loss.hessian_trace,
        strong_convexity=None if loss is None else loss.strong_convexity,
        reason=step.reason,
        numerical=numerical,
    )
