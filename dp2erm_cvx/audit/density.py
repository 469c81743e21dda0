"""The exact-density audit of a complete release: on a pair of neighbors, or on the worst that is
found.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.audit.events import upper
from dp2erm_cvx.audit.finding import DIRECTIONS, REPLAYS, Finding
from dp2erm_cvx.audit.laws import Outputs, ReleaseLaw
from dp2erm_cvx.audit.pairs import Pairs, next_pair
from dp2erm_cvx.audit.release_laws import Audited, Raw, audited_laws
from dp2erm_cvx.audit.search import Deadline, Gain, OutOfTime, SearchPlan, State, explore
from dp2erm_cvx.calibration import Noise
from dp2erm_cvx.checks import json_types, whole_number
from dp2erm_cvx.data.counts import refuse
from dp2erm_cvx.display import Shown, digits_of
from dp2erm_cvx.errors import CertificateError, DeclarationError
from dp2erm_cvx.estimators import PrivateTwoStageERM
from dp2erm_cvx.estimators.fitting import PrivateEstimator
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.program import Program, registry

#: Probability with which all confidence bounds of one audit hold.
CONFIDENCE = 0.99
#: The best starts that are improved, per direction and region.
ASCENTS = 4
_EVALUATIONS = 120  # per coordinate and ascent
#: What is said of an audit that a limit in seconds ended.
_CUT = "(the limit in seconds cut this audit short)"
#: Draws in each direction that a limit in seconds leaves: a variance needs two.
_FEWEST = 2


@dataclass(frozen=True)
class HockeyStick:
    """``delta(epsilon) = E[(1 - exp(epsilon - L))_+]``, L the log density ratio at an output of one
    law.

    ``estimate`` is the mean over ``draws``; delta(epsilon) of (theta, multiplier) is between
    ``low`` and ``high``, and that of theta alone at least ``theta_low``, all at once with
    probability at least ``confidence``. The errors of the densities are allowed for.
    """

    estimate: float
    low: float
    high: float
    theta_low: float
    confidence: float
    draws: int


@dataclass(frozen=True)
class DensityAudit(Shown):
    """The largest privacy loss found on one neighboring pair. It depends on the records: not
    private.

    ``loss`` is the largest log ratio of the exact densities of all steps, in this ``direction``,
    minimizers with their multipliers. ``outputs`` says where, by step; ``multipliers`` are the
    subgradients of n R and Theta there. ``theta_loss`` is that of theta alone, where it determines
    all of that, else -inf. ``numerical_error`` bounds the error of both.

    ``epsilon`` and ``delta`` are those of the calibrations, or what the plan guarantees where that
    is less: of the ideal output. Gaussian noise in any stage: the losses are the largest of the
    draws only, and ``hockey_stick`` is to be compared with ``delta``. ``noise`` is that of the last
    step.
    """

    loss: float
    direction: str
    outputs: Mapping[str, tuple[float, ...]]
    multipliers: Mapping[str, tuple[float, ...]]
    theta_loss: float
    epsilon: float
    delta: float
    noise: Noise
    numerical_error: float
    searched: str
    hockey_stick: HockeyStick | None
    private: bool = field(default=False, init=False)

    @property
    def exceeds(self) -> bool:
        """True if the bound of the theorem in force is violated, beyond the numerical or sampling
        error.
        """
        stick = self.hockey_stick
        return stick.low > self.delta if stick else self.loss - self.numerical_error > self.epsilon

    @property
    def theta_exceeds(self) -> bool:
        """True if the released theta alone violates (epsilon, delta), beyond those errors."""
        stick = self.hockey_stick
        return (
            stick.theta_low > self.delta
            if stick
            else self.theta_loss - self.numerical_error > self.epsilon
        )

    def __str__(self) -> str:
        stick, verdict = self.hockey_stick, "EXCEEDED" if self.exceeds else "not exceeded"
        text = f"loss {self.loss:.4g} found, epsilon = {digits_of(self.epsilon)}"
        if stick is not None:
            bounds = f"[{stick.low:.3g}, {stick.high:.3g}] with confidence {stick.confidence:g}"
            text = f"delta({digits_of(self.epsilon)}) in {bounds}, delta = {digits_of(self.delta)}"
            if stick.high > self.delta and not self.exceeds:
                verdict = "undecided (more draws would narrow it)"
        return f"{text}: {verdict} on this pair; {self.searched}; not private"


def audit_density(
    model: Audited, first: Raw, second: Raw, *, seed: int = 0, starts: int = 16, draws: int = 4000
) -> DensityAudit:
    """Privacy loss of ``model`` between the raw datasets ``first`` and ``second``, each (X, a, y).

    The density of all steps together is known exactly (Theorems 1, 8 to 10 and 12); weights without
    noise are certified on both datasets. Gamma, box or Laplace noise throughout: the log ratio is
    maximized in both directions from ``starts`` random starts of each kind. Any Gaussian noise:
    delta(epsilon) is estimated from ``draws`` outputs in each direction. ``seed`` makes the audit
    repeatable.

    Audited is the output as the theorems have it: before a projection, before Gaussian noise is
    rounded to integers, and before noise that covers the arithmetic.

    Parameters
    ----------
    model
        An estimator, a declared study, or a plan: of theta or of an effect, with any first stage.
    first, second
        Neighbors, in the units of the data.

    Not private: the records must be synthetic, or the audit must stay with the data holder. Raises
    DataError unless the datasets are neighbors, and CertificateError where a solution is not
    certified. Raises DeclarationError where a step has no density that is known here: private
    ranges, and a program that is neither weighted least squares nor a sum of margin losses with an
    elastic net.
    """
    starts = whole_number("starts", starts, at_least=1)
    draws = whole_number("draws", draws, at_least=100)
    seed = whole_number("seed", seed, at_least=0)
    return _audited(model, first, second, _Effort(seed, starts, draws), Deadline())


@dataclass(frozen=True)
class _Effort:
    """How long one pair is looked at: the seed, starts of each kind, and draws, of
    ``audit_density``.
    """

    seed: int
    starts: int
    draws: int


def _audited(
    model: Audited, first: Raw, second: Raw, effort: _Effort, until: Deadline
) -> DensityAudit:
    """The audit of one pair. A deadline that passes cuts it short, but not before one output is
    judged.
    """
    plan, (one, other) = audited_laws(model, (first, second))
    # what the calibrations promise together: of the ideal output, without a share for the
    # arithmetic
    parts, whole = [step.calibration for step in plan.steps], plan.guarantee
    epsilon = min(sum(part.epsilon for part in parts), whole.epsilon)
    delta = min(sum(getattr(part, "delta", 0.0) for part in parts), whole.delta)
    both = ((one, other), (other, one))
    stick = None
    if one.pure:
        peaks, within, searched = _ascended(both, len(plan.steps), effort, until)
    else:
        samples = _drawn(both, effort, until)
        peaks = [max(sample, key=lambda peak: peak.ratio) for sample in samples]
        regular = [[peak for peak in sample if peak.regular] for sample in samples]
        within = [max(sample, key=lambda peak: peak.ratio, default=_NOWHERE) for sample in regular]
        stick = _hockey_stick(samples, epsilon)
        searched = f"{effort.draws} outputs of each dataset"
        if (fewest := min(map(len, samples))) < effort.draws:
            searched = f"{fewest} outputs of each dataset {_CUT}"
    # either search may find what the other missed
    best = [max(ends, key=lambda peak: peak.certain) for ends in zip(peaks, within, strict=True)]
    way = int(best[1].certain > best[0].certain)
    peak = best[way]
    theta_peak = max(
        (at for at in within if at.regular), key=lambda at: at.certain, default=_NOWHERE
    )
    if not (outputs := peak.outputs):
        raise CertificateError("density audit: no output has a density that is a number")
    return DensityAudit(
        loss=peak.ratio,
        direction=DIRECTIONS[way],
        outputs={
            name: tuple(map(float, law.released(at)))
            for name, law, at in one.steps(lambda name, _: outputs[name])
        },
        multipliers={name: tuple(map(float, place.multiplier)) for name, place in outputs.items()},
        # theta alone loses no more than theta and its multiplier, beyond the errors of both
        theta_loss=min(theta_peak.ratio, peak.ratio),
        epsilon=epsilon,
        delta=delta,
        noise=getattr(plan.steps[-1].calibration, "noise", Noise.GAMMA),
        numerical_error=max(peak.error, theta_peak.error),
        searched=f"{searched} in {len(one.units)} coordinates",
        hockey_stick=stick,
    )


#: Both laws of a pair, in either direction.
_Ways = tuple[tuple[ReleaseLaw, ReleaseLaw], tuple[ReleaseLaw, ReleaseLaw]]


def _ascended(
    both: _Ways, n_steps: int, effort: _Effort, until: Deadline
) -> tuple[list[_Peak], list[_Peak], str]:
    """The largest ratio in each direction, the same where theta determines the rest, and how it was
    searched.

    Every search of a direction has an equal part of the time that is left.
    """
    rng = np.random.default_rng(effort.seed)
    one, other = both[0]
    starting = until.part(0.1)
    points = one.starts(other, effort.starts, rng, starting) + other.starts(
        one, effort.starts, rng, starting
    )
    peaks = []
    for left, pair in zip((4, 3), both, strict=True):
        last = until.part(1 / left)
        peaks.append(_largest_ratio(*pair, points, ascents=ASCENTS, until=last))
    within = []
    for left, peak, pair in zip((2, 1), peaks, both, strict=True):
        # after an earlier step no point is regular
        if not peak.regular and n_steps == 1:
            last = until.part(1 / left)
            peak = _largest_ratio(*pair, points, inside=True, ascents=ASCENTS, until=last)
        within.append(peak)
    searched = f"{len(points)} starts and {ASCENTS} ascents a direction"
    if any(peak.cut for peak in peaks + within):
        searched = f"at most {searched} {_CUT}"
    return peaks, within, searched


def _drawn(both: _Ways, effort: _Effort, until: Deadline) -> list[list[_Peak]]:
    """Random outputs of each dataset, at least two; each is judged while the laws given it are
    kept.
    """
    rng = np.random.default_rng(effort.seed)
    samples = []
    for left, pair in zip((2, 1), both, strict=True):
        last = until.part(1 / left)
        sample = list[_Peak]()
        while len(sample) < effort.draws and not (len(sample) >= _FEWEST and last.passed):
            sample.append(_peak(*pair, pair[0].draw(rng)))
        samples.append(sample)
    return samples


@dataclass(frozen=True)
class _Peak:
    """The largest ratio found beyond its ``error``, and where: nowhere without ``outputs``.

    ``cut`` says that a deadline ended the search for it.
    """

    ratio: float
    error: float
    outputs: Outputs
    cut: bool = False

    @property
    def certain(self) -> float:
        return self.ratio - self.error

    @property
    def regular(self) -> bool:
        """True if one output determines everything that the density is of: after an earlier one
        none does.
        """
        places = list(self.outputs.values())
        return len(places) == 1 and places[0].regular


_NOWHERE = _Peak(-np.inf, 0.0, {})


def log_density_ratio(one: ReleaseLaw, other: ReleaseLaw, outputs: Outputs) -> float:
    """Log of the density of ``one`` over that of ``other``."""
    return one.log_density(outputs) - other.log_density(outputs)


def _peak(one: ReleaseLaw, other: ReleaseLaw, outputs: Outputs) -> _Peak:
    return _Peak(
        log_density_ratio(one, other, outputs), one.error(outputs) + other.error(outputs), outputs
    )


def _largest_ratio(
    one: ReleaseLaw,
    other: ReleaseLaw,
    starts: list[Array],
    *,
    inside: bool = False,
    ascents: int,
    until: Deadline,
) -> _Peak:
    """Largest log ratio of ``one`` over ``other``; ``inside`` keeps to where theta determines v.

    Half of the time that is left goes to the starts at most. One is judged in any case.
    """
    best, units = _NOWHERE, one.units

    def depth(u: Array) -> float:
        nonlocal best
        outputs = one.place(u)
        if inside and not _Peak(0.0, 0.0, outputs).regular:
            return math.inf
        ratio = log_density_ratio(one, other, outputs)
        # far out, a ratio can be larger by nothing but its rounding
        if ratio > best.certain and (peak := _peak(one, other, outputs)).certain > best.certain:
            best = peak
        return -ratio

    def finite_depth(u: Array) -> float:
        until.check()
        return min(depth(u), 1e300)

    starting = until.part(0.5)
    depths = list[float]()
    for start in starts:
        if depths and starting.passed and (inside or best.outputs):
            break
        depths.append(depth(start))
    cut = len(depths) < len(starts)
    highest = [int(index) for index in np.argsort(depths)[:ascents] if np.isfinite(depths[index])]
    try:
        for index in highest if len(units) else ():
            start = starts[index]
            # a simplex, because the ratio jumps where Pi does and has kinks where a noise vanishes
            reach = 0.1 * (float(np.linalg.norm(start / units)) + 1.0) * units
            simplex = np.vstack([start, start + np.diag(reach)])
            limits: Any = {"initial_simplex": simplex, "maxfev": _EVALUATIONS * len(start)}
            limits |= {"xatol": 1e-9, "fatol": 1e-9}
            minimize(finite_depth, start, method="Nelder-Mead", options=limits)
    except OutOfTime:
        cut = True
    return replace(best, cut=cut)


def _hockey_stick(samples: list[list[_Peak]], epsilon: float) -> HockeyStick:
    """Bounds on the larger direction: each has half of the risk, and a bound a quarter of that."""
    risk = (1.0 - CONFIDENCE) / 2 / 4
    bounds = []
    for sample in samples:
        ratio, error = np.array([p.ratio for p in sample]), np.array([p.error for p in sample])
        regular = np.array([p.regular for p in sample], dtype=np.float64)
        # where an error is unknown, nothing is: the loss may be any
        above, below = (np.nan_to_num(ratio + side * error, nan=side * np.inf) for side in (1, -1))
        most, least = _excess(above, epsilon), _excess(below, epsilon)
        exceeding = np.array([np.sum(above > epsilon)], dtype=np.float64)
        high = min(_bernstein(most, risk, 1), float(upper(exceeding, len(most), risk)[0]), 1.0)
        lows = [max(_bernstein(part, risk, -1), 0.0) for part in (least, least * regular)]
        bounds.append(
            (float(np.mean(np.nan_to_num(_excess(ratio, epsilon)))), lows[0], high, lows[1])
        )
    estimate, low, high, theta_low = map(max, *bounds)
    draws = min(map(len, samples))
    return HockeyStick(estimate, low, high, theta_low, CONFIDENCE, draws)


def _excess(ratio: Array, epsilon: float) -> Array:
    """``(1 - exp(epsilon - L))_+``, elementwise."""
    return -np.expm1(np.minimum(epsilon - ratio, 0.0))


def _bernstein(values: Array, risk: float, side: int) -> float:
    """One-sided bound on the mean of variables in [0, 1], wrong with probability at most ``risk``.

    Maurer & Pontil (2009), Theorem 4; ``side`` is 1 for an upper and -1 for a lower bound.
    """
    n = len(values)
    log = math.log(2.0 / risk)
    spread = math.sqrt(2.0 * float(np.var(values, ddof=1)) * log / n) + 7.0 * log / (3.0 * (n - 1))
    return float(np.mean(values)) + side * spread


#: Pairs that are looked at before one is audited, and the share of looks at new ones.
_SCREENED, _FRESH = 8, 0.4
#: Points or outputs that a look at a pair takes; outputs of an audit while searching.
_LOOK, _SEARCH_DRAWS = 60, 300
#: Shares of a limit in seconds: of the search for pairs, and of the screening of a look.
_SEARCHING, _SCREENING = 0.6, 0.25


@dataclass(frozen=True, eq=False)
class _Seen:
    """A pair with its audit by the search, which a checkpoint does not hold."""

    NOT_SAVED: ClassVar = ("audit",)
    pair: Pairs
    audit: DensityAudit | None = None


def search_density(
    model: PrivateEstimator,
    n_samples: int,
    n_features: int,
    *,
    search: SearchPlan | None = None,
    starts: int = 16,
    draws: int = 4000,
) -> Finding:
    """Look for the neighbors of ``n_samples`` records on which ``model`` loses most, in its own
    domain.

    Every look screens a few pairs, of structured families or small changes of the best so far, by
    the log density ratio where an ascent would start, and audits the best. The worst pair is then
    audited with ``starts`` and ``draws``.

    Parameters
    ----------
    model
        An estimator of a rule or an effect, with all covariates.
    n_features
        Raw covariates, without an intercept.
    search
        Its evaluations are audited pairs; default: 100. Of its seconds the search for pairs takes
        three fifths, and the last audits of the worst ones the rest; both are cut short where they
        end.

    Raises what :func:`audit_density` raises, except that a pair without a certified solution is
    only counted; CertificateError if every pair was; DeclarationError for a domain with sampling
    weights, which are not drawn; DataError for a checkpoint of another search.
    """
    refuse(model.public().codebook, "a search for pairs", "arms")
    search, plan = search or SearchPlan(evaluations=100), model.plan(n_samples, n_features)
    seed, universe = search.seed, plan.study.universe
    if universe.domain.sampling is not None:
        raise DeclarationError(
            "sampling_weights: pairs are drawn without any; audit_density takes a pair that has "
            "its own"
        )
    limit = search.deadline()
    searching = limit.part(_SEARCHING)
    quick = {"seed": seed, "starts": 1, "draws": _SEARCH_DRAWS}
    options = {"seed": seed, "starts": starts, "draws": draws}

    def audited(pair: Pairs, settings: Mapping[str, int], until: Deadline) -> DensityAudit:
        first, second = pair.raw(model.domain)
        return _audited(model, first, second, _Effort(**settings), until)

    def look(state: State, number: int, room: int) -> Gain:
        rng = np.random.default_rng([seed, number])
        known = None if rng.random() < _FRESH else state.elite("loss", rng)
        pairs = [
            next_pair(universe, None if known is None else known.pair, rng)
            for _ in range(_SCREENED)
        ]
        heights = _heights(
            plan, [pair.raw(model.domain) for pair in pairs], rng, searching.part(_SCREENING)
        )
        counts = {"screened": len(heights), "failed": int(np.isnan(heights).sum())}
        pair = pairs[int(np.argmax(np.nan_to_num(heights, nan=-math.inf)))]
        try:
            audit = audited(pair, quick, searching)
        except CertificateError:
            return Gain(1, counts={**counts, "failed": counts["failed"] + 1}, cut=searching.passed)
        return Gain(
            1, [({"loss": _height(audit)}, _Seen(pair, audit))], counts, cut=searching.passed
        )

    def highest(state: State) -> float:
        return float(state.best["loss"][0][0]) if state.best.get("loss") else 0.0

    facts, weights = _facts_of(model)
    call = [facts, n_samples, n_features, seed]
    kinds = [Pairs, _Seen]
    state = explore(look, search, highest=highest, wave=4, call=call, kinds=kinds, until=searching)
    best = state.pairs("loss")
    if not best:
        raise CertificateError(
            f"none of {state.spent} pairs had certified solutions: nothing was audited"
        )
    # the best pairs with all starts, and the very best as the search audited it, too
    known = best[0].audit or audited(best[0].pair, quick, limit.part(0.25))
    audits = list[tuple[DensityAudit, dict[str, int], Pairs]]()
    for place, seen in enumerate(best[:3]):
        if not limit.passed:
            until = limit.part(1 / (len(best[:3]) - place))
            audits.append((audited(seen.pair, options, until), options, seen.pair))
    # with other starts the same pair may have been higher; of random outputs the most are the
    # surest
    if known.hockey_stick is None or not audits:
        audits.append((known, quick, best[0].pair))
    audit, settings, worst = max(audits, key=lambda item: _height(item[0]))
    counts = {"audited": state.spent, **{name: int(count) for name, count in state.counts.items()}}
    more: dict[str, Any] = {"model": facts, "settings": settings, "counts": counts}
    return Finding.of("density", worst, model.domain, audit, first_stage=weights, **more)


def _heights(
    plan: Plan[Any], pairs: list[tuple[Raw, Raw]], rng: np.random.Generator, until: Deadline
) -> Array:
    """What :func:`_screened` finds on pairs, (m,): on all, or those before a deadline, at least
    one.
    """
    heights = list[float]()
    for pair in pairs:
        if not heights or not until.passed:
            heights.append(_screened(plan, pair, rng, until))
    return np.array(heights)


def _screened(
    plan: Plan[Any], pair: tuple[Raw, Raw], rng: np.random.Generator, until: Deadline
) -> float:
    """A high log ratio, where a search would start or among a few outputs; NaN if nothing was
    certified.
    """
    try:
        _, (one, other) = audited_laws(plan, pair)
        ways = ((one, other), (other, one))
        if not one.pure:
            return max(_high_quantile(a, b, rng, until) for a, b in ways)
        points = one.starts(other, 1, rng, until) + other.starts(one, 1, rng, until)
        points = points[:: 1 + len(points) // _LOOK]
        return max(_largest_ratio(*way, points, ascents=0, until=until).certain for way in ways)
    except CertificateError:
        return math.nan


def _high_quantile(
    one: ReleaseLaw, other: ReleaseLaw, rng: np.random.Generator, until: Deadline
) -> float:
    """A high quantile of the log ratio among a few outputs, one at least, of ``one``."""
    losses = list[float]()
    while len(losses) < _LOOK and not (losses and until.passed):
        losses.append(log_density_ratio(one, other, one.draw(rng)))
    return float(np.quantile(losses, 0.95))


def _height(audit: DensityAudit) -> float:
    stick = audit.hockey_stick
    if stick is None:
        return (audit.loss - audit.numerical_error) / audit.epsilon
    # where no output lost more than epsilon, the loss still tells pairs apart
    return stick.estimate / audit.delta + 1e-6 * min(audit.loss / audit.epsilon, 1e3)


#: Parameters of an estimator that do not change the law of what it releases.
_HOW = frozenset({"solver", "seed", "level", "ledger", "dataset"})


def _facts_of(model: PrivateEstimator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters that a density audit depends on, and the first stage (weights 1 without), in JSON
    types.
    """
    facts = model.get_params(deep=False)
    first: Program = registry.build(registry.first_stages(), "uniform")
    if isinstance(model, PrivateTwoStageERM):
        first = model.resolved_first_stage()
        facts |= {"first_stage": first, "second_stage": model.resolved_second_stage()}
    named = {name: value for name, value in facts.items() if name not in _HOW}
    return {name: _plain(value) for name, value in named.items()}, _plain(first)


def _plain(value: Any) -> Any:
    if isinstance(value, Program):
        return {"name": value.name, "settings": value.settings()}
    return json_types(value)


def _again(pair: Finding, model: PrivateEstimator, **_: Any) -> Callable[[], DensityAudit]:
    """By the saved settings, or the usual ones for the pair of a stability audit."""
    mine, weights = _facts_of(model)
    if pair.kind == "density":
        theirs, settings = dict(pair.facts["model"]), dict(pair.facts["settings"])
    else:
        mine, settings = {"first_stage": weights, "domain": model.domain.to_dict()}, {}
        theirs = {"first_stage": pair.first_stage, "domain": pair.domain.to_dict()}

    def again() -> DensityAudit:
        for name, value in json.loads(json.dumps(mine, default=float)).items():
            if json.loads(json.dumps(theirs.get(name), default=float)) != value:
                raise DeclarationError(f"the pair was saved for another model: {name} differs")
        return audit_density(model, *pair.raw(), **settings)

    return again


REPLAYS["density"] = _again
