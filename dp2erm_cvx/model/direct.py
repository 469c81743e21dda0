"""Weights that minimize a read objective over ``{w : floor <= w_i <= cap, sum w = n}``: two methods.

Theorem A judges any point by one gradient and a bound of its rounding, Theorem D where there is a kink;
Theorem C states, before any data, the radius that its method reaches after K steps whatever the data are.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.model.composite import LocalError, Penalty
from dp2erm_cvx.model.judged import JudgedModel, PointClaim
from dp2erm_cvx.model.sets import Simplices
from dp2erm_cvx.model.sums import UNIT
from dp2erm_cvx.model.terms import UP, ReadObjective, gamma

Mask = NDArray[np.bool_]

#: Whether a step of the proved method may do more than bisect; the last word has bisection alone.
PASSES = (False, True)

#: Steps of the proved method beyond which no radius is stated.
MOST_STEPS = 20_000


@dataclass(frozen=True, eq=False)
class PublicConstants:
    """Numbers that hold for every dataset within the public bounds, on the set.

    ``strong_convexity`` m_i (n,): the objective less ``sum m_i w_i^2 / 2`` is convex; ``smoothness`` L of any
    Hessian, or ``inf``; ``coupling`` ell of the terms that couple weights; ``error`` E of a computed gradient
    in norm; ``zeta`` and ``delta``, what a step leaves of its residual and of the total; ``radius`` R of
    ``||w_hat - w||_2`` after ``steps`` K; None for ``reason``.
    """

    strong_convexity: Array
    smoothness: float
    coupling: float
    error: float
    zeta: float
    delta: float
    radius: float | None
    steps: int
    reason: str = ""

    @property
    def least(self) -> float:
        """Strong convexity of the objective, the least ``m_i``."""
        return float(np.min(self.strong_convexity))

    @staticmethod
    @np.errstate(all="ignore")  # where data have no bound
    def of(objective: ReadObjective, bound: Array, floor: float, cap: float) -> PublicConstants:
        """The walk on public bounds (1 + D,) of the data: every majorant grows with them (Theorem C)."""
        n, zero = objective.n, np.zeros_like(bound)
        zero[0] = 1.0
        objective = objective.at(zero, bound)
        m, separate = np.zeros(n), np.zeros(n)
        coupled = steep = 0.0
        ranges = [t.range(floor, cap) for t in objective.terms]
        for t, (low, high, size) in zip(objective.terms, ranges, strict=True):
            least, most = t.curvature(low, high)
            if t.separable:
                separate = separate + t.back(t.M**2, t.major_s * most)
                # t T'' of a weight t; its argument is at most M t and the offset
                turned = t.back(t.M, t.major_s * np.where(size > 0, most * size, 0.0))
                steep += float(np.max(turned, initial=0.0))
                if np.all(t.M == np.abs(t.A)):
                    m = m + t.back(t.A**2, np.maximum(2 * np.abs(t.s) - t.major_s, 0.0) * least)
            else:
                norm = min(float(np.sum(t.M**2)), float(t.M.sum(axis=0).max() * t.M.sum(axis=1).max()))
                coupled += float(np.max(t.major_s * most)) * norm
        m, L = m / UP, (coupled + float(np.max(separate))) * UP
        least_m = float(np.min(m))
        unknown = partial(PublicConstants, m, L, math.inf, math.inf, math.inf, math.inf, None, 0)
        if not least_m > 0:
            return unknown("no strong convexity that the data cannot change in terms of single weights")
        if objective.kinks:
            return unknown("a norm, absolute value or maximum has a kink")
        G, E = objective.major * UP, gamma(objective.count) * objective.major
        for t, (low, high, size) in zip(objective.terms, ranges, strict=True):
            q, w = t.public_slope(low, high, gamma(t.count + t.longest + 2) * size * UP)
            h = t.major_s * q
            G = G + t.back(t.M, h) * UP
            E = E + t.back(t.M, t.major_s * (w + gamma(t.count_s + 1) * q))
            E = E + gamma(t.count + t.tallest + 2) * t.back(t.M, h)
        error = float(np.linalg.norm(E + gamma(len(objective.terms) + 2) * G)) * UP
        if not (math.isfinite(L) and math.isfinite(error)):
            return unknown("the slope of the objective has no public bound: state a floor above 0")
        ell, top = max(coupled * UP, 1e-3 * least_m), float(np.max(G))
        delta = n * 8 * UNIT * ((top + ell * cap) / (ell + least_m) + cap)
        zeta = math.sqrt(n) * 8 * UNIT * (steep + top + 2 * ell * cap)
        near, kappa = (error + zeta) / (ell + least_m) + delta, (ell + least_m) / least_m
        radius = ((4 * ell * kappa * near + 3 * error + 2 * zeta + 2 * L * delta) / least_m + delta) * UP
        distance = math.sqrt(2 * cap * n)
        steps = math.ceil(kappa * max(math.log(distance / (kappa * near)), 1.0)) + 1
        if steps > MOST_STEPS:
            reason = f"its coupling is strong: {steps:,} proved steps, at most {MOST_STEPS:,}"
            return PublicConstants(m, L, ell, error, zeta, delta, None, steps, reason)
        return PublicConstants(m, L, ell, error, zeta, delta, radius, steps)


@np.errstate(all="ignore")  # infinite bounds of errors, which end in an infinite claim
def judge_point(
    objective: ReadObjective, m: Array, floor: float, cap: float, x: Array, smoothing: float = 0.0
) -> PointClaim:
    """Theorem A for a point (n,) of doubles in the box; Theorem D where ``smoothing`` > 0.

    Whoever computed it. ``m`` (n,) as in :class:`PublicConstants`. ``inf`` where nothing is proved.
    """
    n, low, high = len(x), x <= floor, x >= cap
    missing = math.fsum([float(n), *(-x)])
    g, error, left_out = objective.gradient(x, None, smoothing)
    nu = _multiplier(g, low, high, missing)
    if missing:
        nu, moved = _absorb(x, missing, (floor, cap), g, nu, (low, high))
        _, error, left_out = objective.gradient(x, moved, smoothing)
    felt, r, error = _residual(g - nu, error, low, high)
    rho, length, least = float(np.linalg.norm(r / np.sqrt(m))), float(np.linalg.norm(r)), float(np.min(m))
    if smoothing > 0:
        rho, length = _grown(rho, left_out), _grown(length, least * left_out)
    two = min(length / least, rho / math.sqrt(least)) if least > 0 else math.inf
    one = min(math.sqrt(n) * two, rho * math.sqrt(float(np.sum(1.0 / m))))
    two, one = ((v + abs(missing)) * UP if math.isfinite(v) else math.inf for v in (two, one))
    return PointClaim(two, one, float(np.linalg.norm(felt)), float(np.linalg.norm(error)))


@np.errstate(all="ignore")
def judge_groups(
    objective: ReadObjective, m: float, floor: Array, cap: Array, v: Array, smoothing: float = 0.0
) -> Array:
    """Bounds (k,) on ``||x - x*||_1`` of equal weights in groups, whose totals are ``v`` (k, g).

    Theorems A and D with the r of a group once for each of its records, for an ``objective`` of totals, its
    strong convexity ``m`` in the weights, and the ends (k, g) of the totals. What their sum lacks is put on
    the group with the most room; ``inf`` where nothing is proved.
    """
    n, place, count = objective.total, np.arange(len(v)), objective.sizes
    missing = np.abs(n - np.sum(v, axis=-1)) + gamma(v.shape[-1] + 4) * n
    low, high, room = v <= floor, v >= cap, np.minimum(cap - v, v - floor)
    most, moved = np.argmax(room, axis=-1), 4 * UNIT * v
    moved[place, most] += missing
    g, error, left_out = objective.gradient(v, moved, smoothing)
    free = ~(low | high) * count
    _, r, _ = _residual(g - (np.sum(free * g, axis=-1) / np.sum(free, axis=-1))[:, None], error, low, high)
    rho = np.sqrt(np.sum(np.where(count > 0, count * r**2, 0.0), axis=-1) / m)
    if smoothing > 0:
        rho = _grown(rho, left_out)
    claim = (rho * math.sqrt(n / m) + missing) * UP
    return np.where(room[place, most] > missing, np.nan_to_num(claim, nan=math.inf), math.inf)


def _residual(z: Array, error: Array, low: Mask, high: Mask) -> tuple[Array, Array, Array]:
    """Residual of ``z = g - nu`` on a box, the most that it may be (Theorem A), and the error of ``z``."""
    error = error + 2 * UNIT * np.abs(z)
    felt = np.where(low, -z, np.where(high, z, np.abs(z)))
    return np.maximum(felt, 0.0), np.maximum(felt + error, 0.0), error


def _grown(rho: Any, left_out: Any) -> Any:
    """Theorem D: a residual beside what a smoothing leaves out; products, as powers of doubles may raise."""
    return rho + np.sqrt(rho * rho + 2 * left_out)


@dataclass(eq=False)
class DirectModel(JudgedModel):
    """A read objective at data over the capped simplex, its own variable the weights (n,).

    ``judged`` and ``minimized`` take the place of the certificate and of Newton's method of other models.
    """

    objective: ReadObjective
    public: PublicConstants
    floor: float
    cap: float

    self_concordance = math.inf
    _ended: bool = False

    def __post_init__(self) -> None:
        self.dimension = n = self.objective.n
        self.ridge, self.smoothness = self.public.least, self.public.smoothness
        group = np.zeros(n, dtype=np.int64)
        self.penalty = Penalty(Simplices(group, float(n), self.cap, self.floor))

    @property
    def half_digits(self) -> bool:
        return self.objective.kinks

    def clipped(self, point: Array) -> Array:
        return np.clip(point, self.floor, self.cap)

    def value(self, v: Array) -> float:
        return float(self.objective.value(v))

    def gradient(self, v: Array) -> Array:
        return self.objective.slope(v, self._smoothing)

    def hessian(self, v: Array) -> Array:
        B = self.objective.half_hessian(v, self._smoothing)
        return np.diag(self.objective.diagonal(v, self._smoothing)) + B.T @ B

    def rounding(self, v: Array) -> float:
        return float(np.linalg.norm(self.objective.gradient(v, None, self._smoothing)[1]))

    def start(self) -> Array:
        return np.ones(self.dimension)

    def output_radius(self, v: Array, radius: float, local: LocalError | None = None) -> float:
        return math.sqrt(self.dimension) * radius

    def output_scale(self, v: Array) -> float:
        return float(self.dimension)

    def judged(self, point: Array) -> PointClaim:
        """Certificate of ``point`` (n,), clipped into the box: by Theorem A, or by D where that is smaller.

        D takes for its u what the method ended in.
        """
        x, kinks = np.clip(point, self.floor, self.cap), self.objective.kinks
        if kinks and not self._ended:
            self.minimized(point, 100)
        m, ends = self.public.strong_convexity, (self.floor, self.cap)
        claims = [judge_point(self.objective, m, *ends, x, t) for t in (0.0, *(_LEVELS if kinks else ()))]
        return min(claims, key=lambda claim: claim.two)

    def minimized(self, start: Array, limit: int) -> tuple[Array, int]:
        """The point (n,) of the best certificate on the way of Newton's method, and the number of steps.

        At most ``limit``; at kinks as many in every turn of a method of multipliers. Nothing of it is
        trusted: where it is not within the public radius, the proved method takes its K steps (Theorem C).
        """
        x = at = start = self.penalty.set.project(start)
        public, ends, kinks = self.public, (self.floor, self.cap), self.objective.kinks
        m, stop, best, steps, idle = public.strong_convexity, 0.1 * (public.radius or 0.0), math.inf, 0, 0
        self._ended = True
        for turn in range(40 if kinks else 1):
            smoothing = max(0.1**turn, _LEVELS[-1]) if kinks else 0.0
            before, still, near, least = best, 0, math.inf, math.inf
            for _ in range(limit):
                steps, x = steps + 1, newton_step(self.objective, x, *ends, smoothing)
                claim = judge_point(self.objective, m, *ends, x, smoothing)
                still = 0 if claim.residual < 0.9 * near else still + 1
                near, least = min(near, claim.residual), min(least, claim.two)
                if claim.two < best:
                    at, best = x, claim.two
                idles = still > (12 if kinks else 4) or claim.residual <= 0.1 * claim.rounding
                if idles or best <= stop:
                    break
            if kinks:
                self.objective = self.objective.shifted(x, smoothing)
                idle = 0 if least < 0.5 * before else idle + 1
            if turn > 8 and idle > 5:
                break
        if public.radius is None or self.judged(at).two <= public.radius:
            return at, steps
        point, more = self.proved(start)
        return point, steps + more

    def by_gradient(self, start: Array) -> tuple[Array, int]:
        """A point (n,) of the proved method alone where a radius is public, else as :meth:`minimized`."""
        start = self.penalty.set.project(start)
        return self.minimized(start, 100) if self.public.radius is None else self.proved(start)

    @property
    def _smoothing(self) -> float:
        return _LEVELS[-1] if self.objective.kinks else 0.0

    def proved(self, x: Array) -> tuple[Array, int]:
        """K steps of the method of Theorem C, fewer where a certificate says so; ``x`` (n,) in the box."""
        public, nu = self.public, 0.0
        assert public.radius is not None
        for k in range(1, public.steps + 1):
            g = self.objective.slope(x, separable=False)
            x, nu = self._prox(x, g, nu)
            if k % 10 == 0 and self.judged(x).two <= public.radius:
                return x, k
        return x, public.steps

    def _prox(self, old: Array, g: Array, start: float) -> tuple[Array, float]:
        """The minimizer of ``h + <g, .> + ell/2 ||. - old||^2`` on the set, and its multiplier.

        By Newton's method in a bracket; where ``zeta`` and ``delta`` are not met, by bisection alone.
        """
        n = self.dimension
        for pure in PASSES:
            low, high, nu = -math.inf, math.inf, start
            span = 1.0 + abs(nu)
            for _ in range(2200 if pure else 120):
                x, off, bend = self._at_multiplier(old, g, nu, pure)
                missing = math.fsum([float(n), *(-x)])
                fits = abs(missing) <= self.public.delta and off <= self.public.zeta
                if missing == 0.0 or (fits and abs(missing) <= 16 * UNIT * n):
                    break
                low, high = (nu, high) if missing > 0 else (low, nu)
                new = nu + missing / bend if bend > 0 and not pure else math.nan
                if not low < new < high:
                    new = (low + high) / 2
                    if math.isinf(high - low):
                        new, span = nu + math.copysign(span, missing), 2 * span
                if new in (nu, low, high):
                    break
                nu = new
            if fits:
                break
        return x, nu

    def _at_multiplier(self, old: Array, g: Array, nu: float, pure: bool) -> tuple[Array, float, float]:
        """Weights at a multiplier, the norm of their residual, and how much their total grows with it."""
        ell, x = self.public.coupling, old
        low, high = np.full_like(old, self.floor), np.full_like(old, self.cap)
        for _ in range(2200 if pure else 60):
            z = self.objective.slope(x, separable=True) + ell * (x - old) + g - nu
            low, high = np.where(z < 0, x, low), np.where(z > 0, x, high)
            bend = self.objective.diagonal(x) + ell
            new = (low + high) / 2 if pure else x - z / bend
            new = np.where(z == 0, x, np.where((new >= low) & (new <= high), new, (low + high) / 2))
            new = np.where((x <= self.floor) & (z >= 0) | (x >= self.cap) & (z <= 0), x, new)
            # a move that would pass an end is tried there first
            new = np.where((x - z / bend <= self.floor) & (low == self.floor), self.floor, new)
            new = np.where((x - z / bend >= self.cap) & (high == self.cap), self.cap, new)
            if np.all(np.abs(new - x) <= 2 * UNIT * np.abs(x)):
                break
            x = new
        z = self.objective.slope(x, separable=True) + ell * (x - old) + g - nu
        off = np.where(x <= self.floor, np.minimum(z, 0.0), np.where(x >= self.cap, np.maximum(z, 0.0), z))
        free = (x > self.floor) & (x < self.cap)
        return x, float(np.linalg.norm(off)), float(np.sum(free / bend))


#: Smoothings of kinks that a point is judged at; the method ends with the least.
_LEVELS = (1e6, 1.0, 1e-3)


@np.errstate(all="ignore")
def newton_step(
    objective: ReadObjective, x: Array, floor: float | Array, cap: float | Array, smoothing: float = 0.0
) -> Array:
    """One step of a projected semismooth Newton method for points (k, n), halved where it goes too far."""
    sum_ = float(objective.total)
    g = objective.slope(x, smoothing)
    h, B = objective.diagonal(x, smoothing), objective.half_hessian(x, smoothing)
    h = np.maximum(h, 1e-12 * np.max(h, axis=-1, keepdims=True) + 1e-300)
    y = _project(x - g / h, h, floor, cap, sum_)
    free = (y > floor) & (y < cap)
    step = np.where(free, 0.0, y - x)
    rhs = -(g + ((B @ step[..., None]).swapaxes(-1, -2) @ B)[..., 0, :])
    short = np.where(free, 1.0 / h, 0.0)
    both = np.stack((rhs * free, free.astype(np.float64)), axis=-1)
    thin = B * short[..., None, :]
    core = np.eye(B.shape[-2]) + thin @ B.swapaxes(-1, -2)
    scaled = both * short[..., None]
    u: Array = scaled - thin.swapaxes(-1, -2) @ _solved(core, B @ scaled)
    total = np.sum(step + x, axis=-1) - sum_ + np.sum(u[..., 0], axis=-1)
    weight = np.sum(u[..., 1], axis=-1)
    nu = np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), 0.0)
    step = step + u[..., 0] - nu[..., None] * u[..., 1]
    D = h + np.sum(B * B, axis=-2)
    move = _project(x + step, np.ones_like(x), floor, cap, sum_) - x
    # moves sum to 0: without the multiplier, slopes along them lose no digits
    level = np.sum(np.where(free, g, 0.0), axis=-1, keepdims=True) / np.maximum(
        free.sum(-1, keepdims=True), 1
    )
    downhill = np.sum((g - level) * move, axis=-1)
    safe = _project(x - g / D, D, floor, cap, sum_) - x
    move = np.where((downhill < 0)[..., None], move, safe)
    downhill, size = np.abs(np.sum((g - level) * move, axis=-1)), np.ones(x.shape[:-1])
    for _ in range(20):
        there = objective.slope(x + size[..., None] * move, smoothing) - level
        far = ~(np.sum(there * move, axis=-1) <= 0.1 * downhill)
        if not np.any(far):
            break
        size = np.where(far, size / 2, size)
    return np.clip(x + size[..., None] * move, floor, cap)


def _solved(systems: Array, right: Array) -> Array:
    """Solutions (k, m, r) of systems (k, m, m); NaN for one that is singular to working precision.

    Where the numbers of a stiff objective are that far apart, a step without second derivatives is taken.
    """
    with contextlib.suppress(np.linalg.LinAlgError):
        return np.asarray(np.linalg.solve(systems, right), dtype=np.float64)
    solutions = np.full_like(right, np.nan)
    for place in np.ndindex(systems.shape[:-2]):
        with contextlib.suppress(np.linalg.LinAlgError):
            solutions[place] = np.linalg.solve(systems[place], right[place])
    return solutions


def _project(v: Array, metric: Array, floor: float | Array, cap: float | Array, n: float) -> Array:
    """``clip(v + nu / metric)`` of sum n for points (k, m): Newton on nu in a bracket."""
    nu = np.zeros(v.shape[:-1])
    low = np.min(metric * (floor - v), axis=-1)
    high = np.max(metric * (cap - v), axis=-1)
    for _ in range(100):
        y = v + nu[..., None] / metric
        missing = n - np.sum(np.clip(y, floor, cap), axis=-1)
        low, high = np.where(missing > 0, nu, low), np.where(missing > 0, high, nu)
        done = np.abs(missing) <= 4 * UNIT * n
        grows = np.sum(np.where((y > floor) & (y < cap), 1.0 / metric, 0.0), axis=-1)
        new = nu + missing / np.where(grows > 0, grows, np.inf)
        new = np.where((new > low) & (new < high) & (grows > 0), new, (low + high) / 2)
        if np.all(done | (new == nu) | (high <= low)):
            break
        nu = np.where(done, nu, new)
    return np.clip(v + nu[..., None] / metric, floor, cap)


def _multiplier(g: Array, low: Mask, high: Mask, missing: float) -> float:
    """The nu of least residual: the mean of g over the free weights and those on the wrong side."""
    on, nu = ~(low | high), math.nan
    if not np.any(on):
        above, below = float(np.min(g[low], initial=np.inf)), float(np.max(g[high], initial=-np.inf))
        nu = above if missing > 0 else below if missing < 0 else (above + below) / 2
        nu = nu if math.isfinite(nu) else above if math.isfinite(above) else below
    for _ in range(5):
        nu = float(np.mean(g[on])) if np.any(on) else nu
        on = ~(low | high) | (low & (g < nu)) | (high & (g > nu))
    return nu


def _absorb(
    x: Array, missing: float, ends: tuple[float, float], g: Array, nu: float, at: tuple[Any, Any]
) -> tuple[float, Array]:
    """Put ``missing`` on weights: the multiplier, and the moves (n,), nan where there is no room.

    On one free weight in the middle, or else free ones up to their end and then those at an end by the price
    ``g - nu``, the last of which becomes the multiplier. ``at``, the masks of both ends, follows the moves.
    """
    rest, up, (low, high) = abs(missing) * (1 + 4 * UNIT), missing > 0, at
    d, room = np.zeros_like(x), np.maximum(ends[1] - x if up else x - ends[0], 0.0) * (1 - 4 * UNIT)
    free = ~(low | high)
    middle = np.where(free, np.minimum(ends[1] - x, x - ends[0]), -1.0)
    if middle[j := int(np.argmax(middle))] > 2 * rest:
        d[j] = rest
        return nu, d
    for j in np.lexsort((np.where(free, -room, np.abs(g - nu)), ~free)):
        if room[j] <= 0:
            continue
        if room[j] > rest:
            d[j], low[j], high[j] = rest, False, False
            return nu if free[j] else float(g[j]), d
        d[j], rest = room[j] * (1 + 16 * UNIT), rest - room[j]
        low[j], high[j] = not up, up
    return nu, np.full_like(x, np.nan)
