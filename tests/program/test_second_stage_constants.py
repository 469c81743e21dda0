"""zeta_c, the trace bound, mu_R and the bound on theta against numerical maximization over the universe.

The search sees raw records only: it goes through the domain's clipping, the program's design or rows and the
set's projection, and differentiates the loss itself.
"""

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx.domain import Array, Domain, Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.model.sets import ElasticNet, L2Ball, UserRegularizer
from dp2erm_cvx.privacy import LossConstants
from dp2erm_cvx.program import Box, L1Ball, WholeSpace, second_stage
from dp2erm_cvx.program.declaration import Compiled
from dp2erm_cvx.registry import programs

PROGRAMS: dict[str, Any] = dict(programs())
P = 2
DOMAINS = {
    "plain": Domain(1.5, 2.0),
    "intercept": Domain(2.0, 0.7, intercept=1.0, outcome_center=3.0),
    "ranges and cost": Domain(
        1.2, 5.0, outcome_center=-1.0, treatment_cost=2.0, ranges={"age": (20, 80), "weight": (40, 160)}
    ),
}
SETS: list[Any] = [None, L1Ball(0.8), L2Ball(1.7), Box(0.6), Box(30.0), L2Ball(0.01)]
COUNT, ROUNDS = 200, 40

SQUARED = ["itr", "arm_means", "plug_in_ate", "regression"]
MARGINS = ["itr_huber", "itr_logistic"]


def _slopes(name: str, s: Array, threshold: float | None) -> tuple[Array, Array]:
    """First and second derivative of the loss of a margin, written out again."""
    if name == "itr_logistic":
        return -expit(-s), expit(s) * expit(-s)
    assert threshold is not None
    if name == "itr_huber":
        return 2 * np.clip(s, -threshold, threshold), 2.0 * (np.abs(s) < threshold)
    assert name in ("saturating_regression", "itr_saturating")
    return threshold * np.sign(s) * -np.expm1(-np.abs(s) / threshold), np.exp(-np.abs(s) / threshold)


def _gradients(program: Any, domain: Domain, raw: Array, theta: Array) -> tuple[Array, Array]:
    """Loss gradients (m, p) at one theta per raw record, and Hessian traces (m,)."""
    X, a, y = raw[:, :P], (raw[:, P] > 0).astype(int), raw[:, P + 1]
    if domain.ranges is not None:
        X = np.array([50.0, 100.0]) + 30 * X
    # unclipped outcomes several bounds wide, so that both ends are reached
    y = domain.outcome_center + domain.treatment_cost * a + 3 * domain.outcome_bound * y
    records = domain.records(X, a, y)
    resolved = program if program.squared else program.resolve(domain)
    rows = resolved.rows(records)
    margin, squared = np.sum(rows.Z * theta, axis=1) - rows.offsets, np.sum(rows.Z**2, axis=1)
    if program.squared:
        return 2 * rows.Z * margin[:, None], 2 * squared
    threshold = getattr(resolved, "threshold", getattr(resolved, "slope", None))
    slope, curvature = _slopes(program.name, margin, threshold)
    factor = rows.multipliers
    return (factor * slope)[:, None] * rows.Z, factor * curvature * squared


def _search(program: Any, domain: Domain, seed: int, rounds: int = ROUNDS) -> tuple[float, float, float]:
    """Largest (half diameter of gradients, trace, norm of theta) found by an evolution strategy."""
    rng, theta_set = np.random.default_rng(seed), program.feasible(domain)
    p = len(program.parameter_names(("x0", "x1"), domain))
    width = 2 * (P + 2) + p
    radius = theta_set.norm_bound(p)
    scale = np.concatenate([np.full(2 * (P + 2), 2.0), np.full(p, 2 * radius)])
    pool = scale * rng.normal(size=(COUNT, width))
    best = [0.0, 0.0, 0.0]
    for step in range(rounds):
        theta = np.array([theta_set.project(row) for row in pool[:, 2 * (P + 2) :]])
        first, trace = _gradients(program, domain, pool[:, : P + 2], theta)
        second, _ = _gradients(program, domain, pool[:, P + 2 : 2 * (P + 2)], theta)
        half = 0.5 * np.linalg.norm(first - second, axis=1)
        result = half.max(), trace.max(), np.linalg.norm(theta, axis=1).max()
        best = [*map(max, best, result)]
        order = np.argsort(-half)[:20]
        parents = pool[np.concatenate([order, rng.choice(order, COUNT - 20)])]
        moves = scale * rng.normal(size=parents.shape) * 10.0 ** rng.uniform(-2.5, 0, (COUNT, 1))
        moves *= rng.uniform(size=parents.shape) < 0.5
        moves[:20] = 0.0
        pool = parents + moves
        if step % 8 == 7:  # fresh blood against local optima
            pool[-40:] = scale * rng.normal(size=(40, width))
    return best[0], best[1], best[2]


#: Every set in one domain and every domain at the default set; the other pairs repeat them.
PLACES = [
    pytest.param(theta_set, domain, marks=[] if theta_set is None or domain == "plain" else pytest.mark.slow)
    for theta_set in SETS
    for domain in DOMAINS
]


@pytest.mark.parametrize(("theta_set", "domain"), PLACES, ids=str)
@pytest.mark.parametrize("name", SQUARED + MARGINS)
def test_derived_constants_cover_what_a_search_finds(name, theta_set, domain):
    domain = DOMAINS[domain]
    program = PROGRAMS[name](theta_set=theta_set)
    derived: LossConstants = program.constants(Universe(domain, 100, P))
    half, trace, norm = _search(program, domain, seed=1, rounds=ROUNDS // 2)
    tiny = 1 + 1e-12
    assert half <= derived.gradient_radius * tiny
    assert trace <= derived.hessian_trace * tiny
    assert derived.theta_bound is not None
    assert norm <= derived.theta_bound * tiny
    # and none of them is vacuous
    assert half >= 0.5 * derived.gradient_radius
    assert trace >= 0.9 * derived.hessian_trace
    assert norm >= 0.5 * derived.theta_bound
    assert derived.n_parameters == len(program.parameter_names(("x0", "x1"), domain))
    M = domain.outcome_bound
    # the root of the full slope 2M times the largest response 2M; of the largest loss at 0
    sizes = {"itr_huber": 2 * M, "itr_logistic": math.sqrt(M * math.log(2))}
    assert derived.outcome_bound == pytest.approx(sizes.get(name, M), rel=1e-3)


@pytest.mark.parametrize("threshold", [0.05, 0.7, 50.0])
@pytest.mark.parametrize("theta_set", [L2Ball(1.7), L1Ball(0.1), WholeSpace()], ids=str)
@pytest.mark.parametrize(
    ("name", "setting"),
    [("itr_huber", "threshold"), ("saturating_regression", "slope"), ("itr_saturating", "slope")],
)
def test_the_radius_holds_at_any_threshold(name, setting, theta_set, threshold):
    domain = DOMAINS["plain"]
    program = PROGRAMS[name](theta_set=theta_set, **{setting: threshold})
    declared = program.constants(Universe(domain, 100, P))
    size = theta_set if math.isfinite(theta_set.norm_bound(P)) else L2Ball(400.0)
    half, trace, _ = _search(PROGRAMS[name](theta_set=size, **{setting: threshold}), domain, seed=4)
    assert 0.5 * declared.gradient_radius <= half <= declared.gradient_radius * (1 + 1e-12)
    # what curves most pulls least, where the search for the largest pull seldom goes
    assert 0.7 * declared.hessian_trace <= trace <= declared.hessian_trace * (1 + 1e-12)


@pytest.mark.parametrize(
    ("name", "settings", "domain"),
    [
        # 2 M k with a threshold that both ends reach; the diameter of the logistic set in two dimensions
        ("itr_huber", {"theta_set": L2Ball(1.3), "threshold": 0.3}, DOMAINS["plain"]),
        ("itr_logistic", {"theta_set": L2Ball(1.3)}, DOMAINS["plain"]),
        *((name, {}, domain) for name in ("arm_means", "plug_in_ate") for domain in DOMAINS.values()),
        # both terms of the radius of a rule, each alone
        ("itr", {"theta_set": L2Ball(1.7)}, Domain(1.5, 0.01)),
        ("itr", {"theta_set": L2Ball(0.01)}, Domain(1.5, 2.0)),
    ],
)
def test_the_radius_is_attained(name, settings, domain):
    program = PROGRAMS[name](**settings)
    half, _, _ = _search(program, domain, seed=2)
    assert half >= 0.95 * program.constants(Universe(domain, 100, P)).gradient_radius


def test_chosen_features_have_their_own_bound():
    domain = Domain(2.0, 1.0, intercept=1.0)
    program = PROGRAMS["itr"](features=(1,), features_bound=0.4, theta_set=L1Ball(0.5))
    derived = program.constants(Universe(domain, 100, P))
    half, trace, _ = _search(program, domain, seed=3)
    assert derived.n_parameters == 2
    assert derived.hessian_trace == pytest.approx(2 * (1 + 0.4**2))
    assert trace <= derived.hessian_trace * (1 + 1e-12)
    assert 0.5 * derived.gradient_radius <= half <= derived.gradient_radius * (1 + 1e-12)


NETS = [ElasticNet(l1, l2) for l1 in (0.0, 0.7) for l2 in (0.0, 0.4)]
USERS = {"norm": lambda theta: cp.norm(theta, 2), "squares": lambda theta: 3 * cp.sum_squares(theta)}


@pytest.mark.parametrize(
    "regularizer",
    [*NETS, *(pytest.param(UserRegularizer(own), id=name) for name, own in USERS.items())],
    ids=str,
)
@pytest.mark.parametrize("name", SQUARED + MARGINS)
def test_strong_convexity_of_the_declared_regularizer(name, regularizer):
    """mu_R is at most the least second difference of R as declared, and equals it for the elastic net."""
    domain = DOMAINS["plain"]
    if name in MARGINS and isinstance(regularizer, UserRegularizer):
        with pytest.raises(DeclarationError, match="ElasticNet only"):
            PROGRAMS[name](regularizer=regularizer)
        return
    program = PROGRAMS[name](regularizer=regularizer)
    records = domain.records(np.zeros((4, P)), [0, 1, 0, 1], np.zeros(4))
    # weights 0 leave n R alone in the declared objective
    instance = program.instance(records, np.zeros(4), gamma=0.0)
    compiled = Compiled(instance.program.declare, instance.data)
    compiled.load(instance.data)
    theta = compiled.declaration.variables["theta"]
    for variable in compiled.declaration.variables.values():
        variable.value = np.zeros(variable.shape)

    def value(at: Array) -> float:
        theta.value = at
        return float(compiled.problem.objective.value) / 4

    rng = np.random.default_rng(0)
    least = math.inf
    for _ in range(60):
        first, second = rng.normal(size=(2, theta.size))
        if rng.uniform() < 0.5:
            second = first * rng.uniform(0.2, 0.9)  # along a ray norms are linear
        bend = value(first) + value(second) - 2 * value((first + second) / 2)
        least = min(least, 4 * bend / float((first - second) @ (first - second)))
    declared = program.constants(Universe(domain, 100, P)).strong_convexity
    assert declared <= least + 1e-9
    assert declared == pytest.approx(least if isinstance(regularizer, ElasticNet) else 0.0, abs=1e-6)


@pytest.mark.parametrize("name", ["itr", "arm_means", "regression"])
def test_unbounded_theta_is_refused_where_the_gradient_is_unbounded(name):
    program = PROGRAMS[name](theta_set=WholeSpace())
    with pytest.raises(CalibrationError, match="l1 ball, an l2 ball or a box"):
        program.constants(Universe(DOMAINS["plain"], 100, P))


@pytest.mark.parametrize(("radius", "slope"), [(math.inf, 0.3), (1000.0, 1.0)])
def test_a_factor_from_0_on_does_not_bound_a_slope_without_end(radius, slope):
    @second_stage(radius=radius)
    def steep(theta, records, radius):
        size = records.numbers("size", lambda x, a, y: abs(y), 0, 1)
        s = records.signed @ theta
        bends = cp.square(cp.pos(s)) if math.isinf(radius) else cp.exp(s)
        return cp.Problem(
            cp.Minimize(cp.sum(cp.multiply(size, bends - slope * s))), [cp.norm(theta) <= radius]
        )

    with pytest.raises(CalibrationError, match="the gradient of its loss is unbounded"):
        steep().constants(Universe(DOMAINS["plain"], 100, P))


def test_a_part_of_a_loss_times_0_has_no_slope_far_out():
    @second_stage(mix=0.0)
    def mixed(theta, records, mix):
        s = records.signed @ theta
        loss = 3 * cp.logistic(s) - 0.5 * s + mix * cp.square(cp.pos(s))
        return cp.Problem(cp.Minimize(cp.sum(loss)))

    constants = mixed().constants(Universe(DOMAINS["plain"], 100, P))
    assert constants.gradient_radius == pytest.approx(2.5 * DOMAINS["plain"].covariate_bound)


def test_unbounded_theta_is_allowed_where_gradient_differences_are_bounded():
    domain = DOMAINS["plain"]
    M, y = domain.covariate_bound, domain.outcome_bound
    for name, radius in (("plug_in_ate", 4 * y), ("itr_huber", 2 * M * y), ("itr_logistic", M * y)):
        constants = PROGRAMS[name](theta_set=WholeSpace()).constants(Universe(domain, 100, P))
        assert constants.theta_bound is None
        assert constants.gradient_radius == pytest.approx(radius)


@pytest.mark.parametrize(("M", "outcome_bound", "size"), [(1.0, 1.0, 1.0), (1.5, 2.0, 1.7), (2.0, 0.05, 3.0)])
def test_the_gradient_radius_of_a_rule_is_exact_in_two_dimensions(M, outcome_bound, size):
    program = PROGRAMS["itr"](theta_set=L2Ball(size))
    derived = program.constants(Universe(Domain(M, outcome_bound), 100, 2)).gradient_radius
    angle = np.linspace(0, 2 * np.pi, 20_001)
    x = M * np.column_stack([np.cos(angle), np.sin(angle)])
    gradients = 2 * x * (size * x[:, :1] + 2 * outcome_bound)
    directions = np.column_stack([np.cos(angle[::25]), np.sin(angle[::25])])
    widths = np.ptp(gradients @ directions.T, axis=0)
    assert derived * (1 - 1e-5) <= np.max(widths) / 2 <= derived
    assert derived <= M**2 * size + 4 * M * outcome_bound
