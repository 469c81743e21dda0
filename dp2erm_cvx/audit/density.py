"""The exact-density audit of a complete release, on a pair of neighbors or the worst found."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
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
#: Evaluations per coordinate and ascent.
_EVALUATIONS = 120
#: Ascents end where points and ratios of a simplex differ by no more than this.
_PRECISION = 1e-9
#: What is said of an audit that a limit in seconds ended.
_CUT = "(the limit in seconds cut this audit short)"
#: Draws in each direction that a limit in seconds leaves: a variance needs two.
_FEWEST = 2


@dataclass(frozen=True)
class HockeyStick:
    """Bounds on the hockey-stick divergence ``delta(epsilon) = E[(1 - exp(epsilon - L))_+]``.

    L is the log density ratio at an output of one law. The errors of the densities are allowed for.

    Parameters
    ----------
    estimate
        The mean over the draws.
    low, high
        Between these is delta(epsilon) of (theta, multiplier).
    theta_low
        At least this is delta(epsilon) of theta alone.
    confidence
        Probability at least with which all three bounds hold at once.
    draws
        Outputs that were drawn from each law.
    """

    estimate: float
    low: float
    high: float
    theta_low: float
    confidence: float
    draws: int


@dataclass(frozen=True)
class DensityAudit(Shown):
    """The largest privacy loss found on one neighboring pair.

    It depends on the records and is not private. Where any stage adds Gaussian noise, the losses
    are the largest of the draws only, and the hockey stick is to be compared with ``delta``.

    Parameters
    ----------
    loss
        The largest log ratio of the exact densities of all steps, minimizers with their
        multipliers.
    direction
        Which dataset's density is divided by which.
    outputs
        The outputs at which the loss is that large, by step.
    multipliers
        v at those outputs, by step: the subgradient of n (R - mu_R/2 ||.||^2) plus the indicator
        of Theta (proof of Theorem 1); for rounded Gaussian outputs, what rounding took off.
    theta_loss
        The largest log ratio of theta alone, where theta determines all of that; else -inf.
    epsilon, delta
        The guarantee of the ideal output: that of the calibrations together, or of the plan where
        it is less.
    noise
        The noise of the last step.
    numerical_error
        Bounds the errors of both losses.
    searched
        How many outputs were looked at, in words.
    hockey_stick
        Bounds on delta(epsilon) where any stage adds Gaussian noise; else None.
    private
        False: the audit reads the datasets.
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
        """True if the guarantee is violated, beyond the numerical or sampling error."""
        if self.hockey_stick is not None:
            return self.hockey_stick.low > self.delta
        return self.loss - self.numerical_error > self.epsilon

    @property
    def theta_exceeds(self) -> bool:
        """True if the released theta alone violates (epsilon, delta), beyond those errors."""
        if self.hockey_stick is not None:
            return self.hockey_stick.theta_low > self.delta
        return self.theta_loss - self.numerical_error > self.epsilon

    def __str__(self) -> str:
        stick = self.hockey_stick
        verdict = "EXCEEDED" if self.exceeds else "not exceeded"
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
    noise are certified on both datasets. Where all noise is gamma, box or Laplace noise, the log
    ratio is maximized in both directions. Where any is Gaussian, delta(epsilon) is estimated from
    draws.

    The audit is of the output as the theorems have it: before a projection, before Gaussian noise
    is rounded to integers, and before noise that covers the arithmetic. It is not private: the
    records must be synthetic, or the audit must stay with the data holder.

    Parameters
    ----------
    model
        An estimator, a declared study, or a plan: of theta or of an effect, with any first stage.
    first, second
        Neighbors, in the units of the data.
    seed
        Repeats the audit.
    starts
        Random starts of each kind from which the log ratio is maximized.
    draws
        Outputs that are drawn in each direction where any noise is Gaussian.

    Returns
    -------
    audit
        The largest loss that was found, and where.

    Raises
    ------
    DataError
        Unless the datasets are neighbors.
    CertificateError
        If a solution is not certified.
    DeclarationError
        If a step has no density that is known here: private ranges, and a program that is neither
        weighted least squares nor a sum of margin losses with an elastic net.
    """
    starts = whole_number("starts", starts, at_least=1)
    draws = whole_number("draws", draws, at_least=100)
    seed = whole_number("seed", seed, at_least=0)
    return _audited(model, first, second, _Effort(seed, starts, draws), Deadline())


@dataclass(frozen=True)
class _Effort:
    """How long one pair is looked at.

    Parameters
    ----------
    seed, starts, draws
        As of :func:`audit_density`.
    """

    seed: int
    starts: int
    draws: int


def _audited(
    model: Audited, first: Raw, second: Raw, effort: _Effort, until: Deadline
) -> DensityAudit:
    """The audit of one pair.

    A deadline that passes cuts it short, but not before one output is judged.
    """
    plan, (one, other) = audited_laws(model, (first, second))
    epsilon, delta = _promised(plan)
    ways = ((one, other), (other, one))
    stick = None
    if one.pure:
        search = _ascended(ways, len(plan.steps), effort, until)
    else:
        samples = _drawn(ways, effort, until)
        search = _highest_draws(samples, effort)
        stick = _hockey_stick(samples, epsilon)
    # either search may find what the other missed
    forward = max(search.peaks[0], search.within[0], key=_certain)
    backward = max(search.peaks[1], search.within[1], key=_certain)
    peak = forward
    direction = DIRECTIONS[0]
    if backward.certain > forward.certain:
        peak = backward
        direction = DIRECTIONS[1]
    if not peak.outputs:
        raise CertificateError("density audit: no output has a density that is a number")
    regular = [end for end in search.within if end.regular]
    theta_peak = max(regular, key=_certain, default=_NOWHERE)
    released = {}
    multipliers = {}
    for name, law, place in one.steps(lambda name, _: peak.outputs[name]):
        released[name] = tuple(map(float, law.released(place)))
        multipliers[name] = tuple(map(float, place.multiplier))
    return DensityAudit(
        loss=peak.ratio,
        direction=direction,
        outputs=released,
        multipliers=multipliers,
        # theta alone loses no more than theta and its multiplier, beyond the errors of both
        theta_loss=min(theta_peak.ratio, peak.ratio),
        epsilon=epsilon,
        delta=delta,
        noise=getattr(plan.steps[-1].calibration, "noise", Noise.GAMMA),
        numerical_error=max(peak.error, theta_peak.error),
        searched=f"{search.searched} in {len(one.units)} coordinates",
        hockey_stick=stick,
    )


def _promised(plan: Plan[Any]) -> tuple[float, float]:
    """The epsilon and the delta that the ideal output has.

    What the calibrations promise together is a guarantee of it: there is no share for the
    arithmetic.
    """
    calibrations = [step.calibration for step in plan.steps]
    epsilon = sum(calibration.epsilon for calibration in calibrations)
    delta = sum(getattr(calibration, "delta", 0.0) for calibration in calibrations)
    return min(epsilon, plan.guarantee.epsilon), min(delta, plan.guarantee.delta)


#: Both laws of a pair, in either direction.
_Ways = tuple[tuple[ReleaseLaw, ReleaseLaw], tuple[ReleaseLaw, ReleaseLaw]]


@dataclass(frozen=True)
class _Search:
    """Outcome of a search among the outputs of a pair.

    Parameters
    ----------
    peaks
        The largest ratio in each direction.
    within
        One candidate for ``theta_loss`` in each direction. The caller drops those that are not
        regular; for the loss of all outputs it counts every one.
    searched
        How it was searched, in words.
    """

    peaks: list[_Judged]
    within: list[_Judged]
    searched: str


def _ascended(ways: _Ways, n_steps: int, effort: _Effort, until: Deadline) -> _Search:
    """The largest ratios by ascents from many starts.

    Every search of a direction has an equal part of the time that is left.
    """
    rng = np.random.default_rng(effort.seed)
    one, other = ways[0]
    starting = until.part(0.1)
    points = one.starts(other, effort.starts, rng, starting)
    points = points + other.starts(one, effort.starts, rng, starting)
    peaks = []
    for n_left, pair in zip((4, 3), ways, strict=True):
        last = until.part(1 / n_left)
        peaks.append(_largest_ratio(*pair, points, ascents=ASCENTS, until=last))
    within = []
    for n_left, peak, pair in zip((2, 1), peaks, ways, strict=True):
        # after an earlier step no point is regular
        if not peak.regular and n_steps == 1:
            last = until.part(1 / n_left)
            peak = _largest_ratio(*pair, points, only_regular=True, ascents=ASCENTS, until=last)
        within.append(peak)
    searched = f"{len(points)} starts and {ASCENTS} ascents a direction"
    if any(peak.cut for peak in peaks + within):
        searched = f"at most {searched} {_CUT}"
    return _Search(peaks, within, searched)


def _highest_draws(samples: list[list[_Judged]], effort: _Effort) -> _Search:
    """The largest ratios among random outputs of each dataset."""
    peaks = []
    within = []
    for sample in samples:
        peaks.append(max(sample, key=_ratio))
        regular = [peak for peak in sample if peak.regular]
        within.append(max(regular, key=_ratio, default=_NOWHERE))
    fewest = min(len(sample) for sample in samples)
    searched = f"{fewest} outputs of each dataset"
    if fewest < effort.draws:
        searched = f"{searched} {_CUT}"
    return _Search(peaks, within, searched)


def _drawn(ways: _Ways, effort: _Effort, until: Deadline) -> list[list[_Judged]]:
    """Random outputs of each dataset, at least two.

    Each is judged while the laws given it are kept.
    """
    rng = np.random.default_rng(effort.seed)
    samples = []
    for n_left, pair in zip((2, 1), ways, strict=True):
        last = until.part(1 / n_left)
        sample = list[_Judged]()
        while len(sample) < effort.draws and not (len(sample) >= _FEWEST and last.passed):
            sample.append(_judged(*pair, pair[0].draw(rng)))
        samples.append(sample)
    return samples


@dataclass(frozen=True)
class _Judged:
    """One output with its log ratio and error; of a search, the best one.

    Parameters
    ----------
    ratio
        The log density ratio.
    error
        A bound on its error.
    outputs
        The output of every step, by its name; empty if a search found none.
    cut
        True if a deadline ended the search for it.
    """

    ratio: float
    error: float
    outputs: Outputs
    cut: bool = False

    @property
    def certain(self) -> float:
        """The ratio less its error."""
        return self.ratio - self.error

    @property
    def regular(self) -> bool:
        """True if theta determines the multiplier v: inside Theta and off the kinks of R.

        No output of several steps counts as regular.
        """
        places = list(self.outputs.values())
        return len(places) == 1 and places[0].regular


_NOWHERE = _Judged(-np.inf, 0.0, {})
_certain = attrgetter("certain")
_ratio = attrgetter("ratio")


def log_density_ratio(one: ReleaseLaw, other: ReleaseLaw, outputs: Outputs) -> float:
    """Log of the density of ``one`` over that of ``other``."""
    return one.log_density(outputs) - other.log_density(outputs)


def _judged(one: ReleaseLaw, other: ReleaseLaw, outputs: Outputs) -> _Judged:
    """The outputs with their log ratio and its error."""
    ratio = log_density_ratio(one, other, outputs)
    return _Judged(ratio, one.error(outputs) + other.error(outputs), outputs)


def _largest_ratio(
    one: ReleaseLaw,
    other: ReleaseLaw,
    starts: list[Array],
    *,
    only_regular: bool = False,
    ascents: int,
    until: Deadline,
) -> _Judged:
    """Largest log ratio of ``one`` over ``other``.

    Half of the time that is left goes to the starts at most. One is judged in any case.

    Parameters
    ----------
    one, other
        Laws of the release on both datasets.
    starts
        Points from which ascents may begin.
    only_regular
        Whether to keep to outputs whose theta determines the multiplier v: inside Theta and off the
        kinks of R.
    ascents
        How many of the highest starts are improved.
    until
        When the search ends.
    """
    best = _NOWHERE

    def depth(u: Array) -> float:
        """The ratio at a point with its sign turned; the highest one is kept."""
        nonlocal best
        outputs = one.place(u)
        if only_regular and not _Judged(0.0, 0.0, outputs).regular:
            return math.inf
        ratio = log_density_ratio(one, other, outputs)
        if ratio > best.certain:
            # far out, a ratio can be larger by nothing but its rounding
            best = max(best, _judged(one, other, outputs), key=_certain)
        return -ratio

    def finite_depth(u: Array) -> float:
        """The same as an optimizer takes it, which the deadline ends."""
        until.check()
        return min(depth(u), 1e300)

    starting = until.part(0.5)
    depths = list[float]()
    for start in starts:
        if depths and starting.passed and (only_regular or best.outputs):
            break
        depths.append(depth(start))
    cut = len(depths) < len(starts)
    highest = [int(index) for index in np.argsort(depths)[:ascents] if np.isfinite(depths[index])]
    if len(one.units):
        try:
            for index in highest:
                _descend(finite_depth, starts[index], one.units)
        except OutOfTime:
            cut = True
    return replace(best, cut=cut)


def _descend(depth: Callable[[Array], float], start: Array, units: Array) -> None:
    """Go down from a start (d,), by a simplex whose edges are about a tenth of the units (d,).

    It is a simplex because the ratio jumps where Pi does and has kinks where a noise vanishes.
    """
    edges = 0.1 * (float(np.linalg.norm(start / units)) + 1.0) * units
    options: Any = {
        "initial_simplex": np.vstack([start, start + np.diag(edges)]),
        "maxfev": _EVALUATIONS * len(start),
        "xatol": _PRECISION,
        "fatol": _PRECISION,
    }
    minimize(depth, start, method="Nelder-Mead", options=options)


def _hockey_stick(samples: list[list[_Judged]], epsilon: float) -> HockeyStick:
    """Bounds on the larger direction, from outputs of each dataset."""
    forward, backward = (_hockey_stick_one_way(sample, epsilon) for sample in samples)
    return HockeyStick(
        estimate=max(forward.estimate, backward.estimate),
        low=max(forward.low, backward.low),
        high=max(forward.high, backward.high),
        theta_low=max(forward.theta_low, backward.theta_low),
        confidence=CONFIDENCE,
        draws=min(forward.draws, backward.draws),
    )


def _hockey_stick_one_way(sample: list[_Judged], epsilon: float) -> HockeyStick:
    """Bounds from outputs of one law."""
    # each direction has half of the risk, and each of its bounds a quarter of that
    risk = (1.0 - CONFIDENCE) / 2 / 4
    ratio = np.array([peak.ratio for peak in sample])
    error = np.array([peak.error for peak in sample])
    regular = np.array([peak.regular for peak in sample], dtype=np.float64)
    # where an error is unknown, nothing is known: the loss may be any
    above = np.nan_to_num(ratio + error, nan=np.inf)
    below = np.nan_to_num(ratio - error, nan=-np.inf)
    least = _excess(below, epsilon)
    exceeding = np.array([np.sum(above > epsilon)], dtype=np.float64)
    # the bound of Clopper and Pearson on the probability that the loss exceeds epsilon, which is at
    # least the mean excess
    by_counts = float(upper(exceeding, len(sample), risk)[0])
    by_means = _bernstein(_excess(above, epsilon), risk, 1)
    return HockeyStick(
        estimate=float(np.mean(np.nan_to_num(_excess(ratio, epsilon)))),
        low=max(_bernstein(least, risk, -1), 0.0),
        high=min(by_means, by_counts, 1.0),
        theta_low=max(_bernstein(least * regular, risk, -1), 0.0),
        confidence=CONFIDENCE,
        draws=len(sample),
    )


def _excess(ratio: Array, epsilon: float) -> Array:
    """``(1 - exp(epsilon - L))_+``, elementwise."""
    return -np.expm1(np.minimum(epsilon - ratio, 0.0))


def _bernstein(values: Array, risk: float, side: int) -> float:
    """One-sided bound on the mean of variables in [0, 1], wrong with probability at most ``risk``.

    Maurer & Pontil (2009), Theorem 4; ``side`` is 1 for an upper and -1 for a lower bound.
    """
    n = len(values)
    log = math.log(2.0 / risk)
    variance = float(np.var(values, ddof=1))
    spread = math.sqrt(2.0 * variance * log / n) + 7.0 * log / (3.0 * (n - 1))
    return float(np.mean(values)) + side * spread


#: Pairs that are looked at before one is audited.
_SCREENED = 8
#: Share of the attempts that are at new pairs.
_FRESH = 0.4
#: The best pairs that are audited in the end.
_AUDITED = 3
#: Points or outputs by which a pair is screened.
_POINTS = 60
#: Outputs of each dataset that an audit draws while searching.
_SEARCH_DRAWS = 300
#: Share of a limit in seconds that the search for pairs takes.
_SEARCHING = 0.6
#: Share of what is left of it that the screening of an attempt takes.
_SCREENING = 0.25


@dataclass(frozen=True, eq=False)
class _Seen:
    """A pair with its audit by the search.

    Parameters
    ----------
    pair
        The pair.
    audit
        Its audit, which a checkpoint does not hold.
    """

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
    """Look in its own domain for the neighbors on which ``model`` loses most.

    Every attempt screens a few pairs, of structured families or small changes of the best so far,
    by the log density ratio where an ascent would start, and audits the best. The worst pair is
    then audited with ``starts`` and ``draws``.

    Parameters
    ----------
    model
        An estimator of a rule or an effect, with all covariates.
    n_samples
        Records of each dataset.
    n_features
        Raw covariates, without an intercept.
    search
        Its evaluations are audited pairs; default: 100. Of its seconds the search for pairs takes
        three fifths, and the last audits of the worst ones the rest; both are cut short where they
        end.
    starts, draws
        How long the worst pairs are audited, as of :func:`audit_density`.

    Returns
    -------
    finding
        The worst pair with its audit.

    Raises
    ------
    CertificateError
        If no pair had certified solutions. A single pair without one is only counted.
    DeclarationError
        Where :func:`audit_density` does, and for a domain with sampling weights, which are not
        drawn.
    DataError
        For a checkpoint of another search.
    """
    refuse(model.public().codebook, "a search for pairs", "arms")
    search = search or SearchPlan(evaluations=100)
    plan = model.plan(n_samples, n_features)
    if plan.study.universe.domain.sampling is not None:
        raise DeclarationError(
            "sampling_weights: pairs are drawn without any; audit_density takes a pair that has "
            "its own"
        )
    limit = search.deadline()
    hunt = _Hunt(model, plan, search.seed, limit.part(_SEARCHING))
    facts, weights = _facts_of(model)
    state = explore(
        hunt.attempt,
        search,
        highest=_highest,
        wave=4,
        call=[facts, n_samples, n_features, search.seed],
        kinds=[Pairs, _Seen],
        until=hunt.until,
    )
    best = state.pairs("loss")
    if not best:
        raise CertificateError(
            f"none of {state.spent} pairs had certified solutions: nothing was audited"
        )
    effort = _Effort(search.seed, starts, draws)
    audit, effort, worst = hunt.worst(best, effort, limit)
    counts = {"audited": state.spent}
    counts |= {name: int(count) for name, count in state.counts.items()}
    more: dict[str, Any] = {"model": facts, "settings": asdict(effort), "counts": counts}
    return Finding.of("density", worst, model.domain, audit, first_stage=weights, **more)


def _highest(state: State) -> float:
    """The largest loss so far."""
    best = state.best.get("loss")
    if not best:
        return 0.0
    height, _ = best[0]
    return float(height)


@dataclass(frozen=True, eq=False)
class _Hunt:
    """A search for the pair on which a model loses most.

    Parameters
    ----------
    model
        The estimator.
    plan
        What it plans for datasets of this size.
    seed
        Repeats the search.
    until
        When the search for pairs ends.
    """

    model: PrivateEstimator
    plan: Plan[Any]
    seed: int
    until: Deadline

    @property
    def quick(self) -> _Effort:
        """How long a pair is audited while searching."""
        return _Effort(self.seed, 1, _SEARCH_DRAWS)

    def audited(self, pair: Pairs, effort: _Effort, until: Deadline) -> DensityAudit:
        """The audit of one pair."""
        first, second = pair.raw(self.model.domain)
        return _audited(self.model, first, second, effort, until)

    def attempt(self, state: State, number: int, room: int) -> Gain:
        """Screen a few pairs, and audit the best of them."""
        rng = np.random.default_rng([self.seed, number])
        best = None
        if rng.random() >= _FRESH:
            seen = state.elite("loss", rng)
            if seen is not None:
                best = seen.pair
        pairs = [next_pair(self.plan.study.universe, best, rng) for _ in range(_SCREENED)]
        raw = [pair.raw(self.model.domain) for pair in pairs]
        heights = _heights(self.plan, raw, rng, self.until.part(_SCREENING))
        counts = {"screened": len(heights), "failed": int(np.isnan(heights).sum())}
        pair = pairs[int(np.argmax(np.nan_to_num(heights, nan=-math.inf)))]
        try:
            audit = self.audited(pair, self.quick, self.until)
        except CertificateError:
            counts["failed"] += 1
            return Gain(1, counts=counts, cut=self.until.passed)
        gained = ({"loss": _height(audit)}, _Seen(pair, audit))
        return Gain(1, [gained], counts, cut=self.until.passed)

    def worst(
        self, best: Sequence[_Seen], effort: _Effort, limit: Deadline
    ) -> tuple[DensityAudit, _Effort, Pairs]:
        """The highest audit of the best pairs, its effort, and its pair.

        The best pairs are audited with all ``effort`` until the ``limit``.
        """
        highest = best[0]
        quick_audit = highest.audit or self.audited(highest.pair, self.quick, limit.part(0.25))
        audits = list[tuple[DensityAudit, _Effort, Pairs]]()
        chosen = best[:_AUDITED]
        for place, seen in enumerate(chosen):
            if not limit.passed:
                until = limit.part(1 / (len(chosen) - place))
                audits.append((self.audited(seen.pair, effort, until), effort, seen.pair))
        # With other starts the same pair may have been higher: the very best counts as the search
        # audited it, too. Of random outputs the most are the surest.
        if quick_audit.hockey_stick is None or not audits:
            audits.append((quick_audit, self.quick, highest.pair))
        return max(audits, key=lambda item: _height(item[0]))


def _heights(
    plan: Plan[Any], pairs: list[tuple[Raw, Raw]], rng: np.random.Generator, until: Deadline
) -> Array:
    """What :func:`_screened` finds on the pairs before a deadline, at least one: (m,)."""
    heights = list[float]()
    for pair in pairs:
        if not heights or not until.passed:
            heights.append(_screened(plan, pair, rng, until))
    return np.array(heights)


def _screened(
    plan: Plan[Any], pair: tuple[Raw, Raw], rng: np.random.Generator, until: Deadline
) -> float:
    """A high log ratio, where a search would start or among a few outputs.

    It is NaN if nothing was certified.
    """
    try:
        _, (one, other) = audited_laws(plan, pair)
        ways = ((one, other), (other, one))
        if not one.pure:
            return max(_high_quantile(a, b, rng, until) for a, b in ways)
        points = one.starts(other, 1, rng, until) + other.starts(one, 1, rng, until)
        points = points[:: 1 + len(points) // _POINTS]
        peaks = [_largest_ratio(*way, points, ascents=0, until=until) for way in ways]
        return max(peak.certain for peak in peaks)
    except CertificateError:
        return math.nan


def _high_quantile(
    one: ReleaseLaw, other: ReleaseLaw, rng: np.random.Generator, until: Deadline
) -> float:
    """A high quantile of the log ratio among a few outputs, one at least, of ``one``."""
    losses = list[float]()
    while len(losses) < _POINTS and not (losses and until.passed):
        losses.append(log_density_ratio(one, other, one.draw(rng)))
    return float(np.quantile(losses, 0.95))


def _height(audit: DensityAudit) -> float:
    """How near an audit comes to the guarantee, to put pairs into an order."""
    stick = audit.hockey_stick
    if stick is None:
        return (audit.loss - audit.numerical_error) / audit.epsilon
    # where no output lost more than epsilon, the loss still tells pairs apart
    return stick.estimate / audit.delta + 1e-6 * min(audit.loss / audit.epsilon, 1e3)


#: Parameters of an estimator that do not change the law of what it releases.
_HOW = frozenset({"solver", "seed", "level", "ledger", "dataset"})


def _facts_of(model: PrivateEstimator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters that a density audit depends on, and the first stage, in JSON types.

    Without a first stage all weights are 1.
    """
    facts = model.get_params(deep=False)
    first: Program = registry.build(registry.first_stages(), "uniform")
    if isinstance(model, PrivateTwoStageERM):
        first = model.resolved_first_stage()
        facts |= {"first_stage": first, "second_stage": model.resolved_second_stage()}
    named = {name: value for name, value in facts.items() if name not in _HOW}
    return {name: _plain(value) for name, value in named.items()}, _plain(first)


def _plain(value: Any) -> Any:
    """A parameter in JSON types, a program by its name and its settings."""
    if isinstance(value, Program):
        return {"name": value.name, "settings": value.settings()}
    return json_types(value)


def _again(pair: Finding, model: PrivateEstimator, **_: Any) -> Callable[[], DensityAudit]:
    """By the saved settings, or the usual ones for the pair of a stability audit."""
    mine, weights = _facts_of(model)
    if pair.kind == "density":
        theirs = dict(pair.facts["model"])
        settings = dict(pair.facts["settings"])
    else:
        mine = {"first_stage": weights, "domain": model.domain.to_dict()}
        theirs = {"first_stage": pair.first_stage, "domain": pair.domain.to_dict()}
        settings = {}

    def again() -> DensityAudit:
        for name, value in mine.items():
            if _through_json(theirs.get(name)) != _through_json(value):
                raise DeclarationError(f"the pair was saved for another model: {name} differs")
        return audit_density(model, *pair.raw(), **settings)

    return again


def _through_json(value: Any) -> Any:
    """A value as it is read from a file that it was written to."""
    return json.loads(json.dumps(value, default=float))


REPLAYS["density"] = _again
