"""Theorem 7: the bound against exact divergences of Gaussians, and the calibration against mpmath."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy import optimize, stats

from dp2erm_cvx.calibration import (
    SquaredLoss,
    calibrate_renyi,
    renyi_divergence,
    renyi_epsilon,
)
from dp2erm_cvx.calibration.renyi import TAU_GRID, gradient_movement
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.mechanism import draw
from dp2erm_cvx.privacy import Budget, Neighboring, StabilityBound

BOTH = frozenset(Neighboring)


def bound_of(V):
    return StabilityBound(V=V, theorem="a test", assumptions=(), relations=BOTH, w_max=V / 2)


def coupled_variation(w, w_new):
    return float(np.abs(w - w_new).sum() + 2 * min(w[0], w_new[0]))


@dataclasses.dataclass
class Side:
    """Half of a neighboring pair: what determines the law of theta."""

    X: np.ndarray
    z: np.ndarray
    w: np.ndarray

    def law(self, gamma, scale):
        """Mean and covariance of theta."""
        n, p = self.X.shape
        A = 2 * (self.X.T * self.w) @ self.X + n * gamma * np.eye(p)
        inverse = np.linalg.inv(A)
        return inverse @ (2 * self.X.T @ (self.w * self.z)), scale**2 * inverse @ inverse


def random_pair(rng, loss):
    """Neighbors at the edge of the universe: record 0 is replaced, weights move together or freely."""
    n, p = int(rng.integers(2, 8)), loss.n_parameters
    M, Z = loss.covariate_bound, loss.response_bound
    kind = rng.integers(3)
    X = rng.normal(size=(n, p))
    X *= M / np.linalg.norm(X, axis=1, keepdims=True)
    if kind == 1:
        X *= rng.random((n, 1)) ** 0.3
    if kind == 2:
        X = M * np.eye(p)[rng.integers(0, p, n)] * rng.choice([-1, 0, 1], n)[:, None]
    X_new = X.copy()
    fresh = rng.normal(size=p)
    X_new[0] = X[0] * rng.choice([0, 1, -1]) if rng.random() < 0.5 else M * fresh / np.linalg.norm(fresh)
    # aligned responses make the noiseless theta as large as it can be
    z = Z * (np.where(X.sum(1) >= 0, 1.0, -1.0) if kind == 2 else rng.choice([-1.0, 1.0], n))
    z_new = z.copy()
    z_new[0] = Z * rng.choice([-1.0, 1.0])
    w = n * rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 10.0])))
    w_new = n * rng.dirichlet(np.ones(n)) if rng.random() < 0.3 else w * np.exp(0.1 * rng.normal(size=n))
    w_new *= n / w_new.sum()
    return Side(X, z, w), Side(X_new, z_new, w_new)


def exact_divergence(first, second, order, gamma, scale):
    """Renyi divergence of two Gaussians, in the parameter theta."""
    (mean, cov), (mean_new, cov_new) = first.law(gamma, scale), second.law(gamma, scale)
    mixed = order * cov_new + (1 - order) * cov
    if np.linalg.eigvalsh(mixed)[0] <= 0:
        return math.inf
    shift = mean_new - mean

    def logdet(matrix):
        return np.linalg.slogdet(matrix)[1]

    volume = logdet(mixed) - (1 - order) * logdet(cov) - order * logdet(cov_new)
    return order / 2 * shift @ np.linalg.solve(mixed, shift) - volume / (2 * (order - 1))


def attacks(count, seed=3):
    """(pair, order, V, gamma, scale) with V and tau as large as the pair allows."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        loss = SquaredLoss(int(rng.integers(1, 4)), float(rng.choice([1.0, 0.5, 3.0])), 2.0)
        first, second = random_pair(rng, loss)
        V = max(coupled_variation(first.w, second.w), 1e-2)
        tau = 10 ** rng.uniform(-3, 0.3)
        n = len(first.w)
        gamma = loss.covariate_bound**2 * V / (n * tau)
        order = 1 + rng.choice([rng.random(), 0.99, 1e-3]) / (tau * (2 + tau))
        S = gradient_movement(V, loss, gamma)
        scale = S * 10 ** rng.uniform(-1, 4)
        yield loss, first, second, order, V, gamma, scale


def test_bound_is_above_the_exact_divergence():
    closest = 0.0
    for loss, first, second, order, V, gamma, scale in attacks(4000):
        n = len(first.w)
        bound = float(renyi_divergence(order, V, loss, n, scale, gamma))
        exact = exact_divergence(first, second, order, gamma, scale)
        assert exact <= bound * (1 + 1e-9) + 1e-9
        if bound > 1e-4:
            closest = max(closest, exact / bound)
    # the search comes close: the theorem has little slack left
    assert closest > 0.95


@pytest.mark.parametrize("bug", ["no curvature cost", "half of tau", "no h"])
def test_planted_bugs_are_exceeded(bug):
    def planted(loss, order, V, n, scale, gamma):
        M, Z = loss.covariate_bound, loss.response_bound
        tau = M * M * V / (n * gamma) / (2 if bug == "half of tau" else 1)
        S = V * (M * M * Z / math.sqrt(2 * gamma) + 2 * M * Z)
        gone = order - (order - 1) * (1 + tau) ** 2
        h = 1.0 if bug == "no h" else gone
        f = -math.log1p(tau) - math.log(gone) / (2 * (order - 1))
        return order * S * S / (2 * scale**2 * h) + (0.0 if bug == "no curvature cost" else 2 * f)

    exceeded = sum(
        exact_divergence(first, second, order, gamma, scale)
        > planted(loss, order, V, len(first.w), scale, gamma) * (1 + 1e-6) + 1e-9
        for loss, first, second, order, V, gamma, scale in attacks(4000)
    )
    assert exceeded > 0


def test_the_size_of_theta_counts_in_the_movement_of_the_gradient():
    # 20,000 aligned records pull theta to its largest norm Z / sqrt(2 gamma) = 10 Z; then one vanishes
    n, gamma, Z, V = 20_000, 0.005, 2.0, 2.0
    x = np.full((n, 1), math.sqrt(gamma / 2))
    z = np.full(n, Z)
    x[0], z[0] = 1.0, -Z
    x_new = x.copy()
    x_new[0] = 0.0
    first, second = Side(x, z, np.ones(n)), Side(x_new, z, np.ones(n))
    theta = first.law(gamma, 1.0)[0][0]
    assert theta == pytest.approx(Z / math.sqrt(2 * gamma), rel=0.02)
    loss, scale, order = SquaredLoss(1, 1.0, Z), 300.0, 5.0
    exact = exact_divergence(first, second, order, gamma, scale)
    assert 0.5 < exact / float(renyi_divergence(order, V, loss, n, scale, gamma)) <= 1.0
    # without the term in ||theta|| the stated movement would be 2 M Z V, five times too small
    without = order * (2 * Z * V) ** 2 / (2 * scale**2)
    assert exact > 5 * without


def hockey_stick(first, second, epsilon, gamma, scale):
    """Exact delta of two one-dimensional Gaussians at epsilon: the integral of (p - e^eps p')_+."""
    ((mean,), ((var,),)), ((mean_new,), ((var_new,),)) = first.law(gamma, scale), second.law(gamma, scale)
    sd = math.sqrt(var)
    t = mean + sd * np.linspace(-9, 9, 18_001)
    density = stats.norm.pdf(t, mean, sd)
    loss = stats.norm.logpdf(t, mean, sd) - stats.norm.logpdf(t, mean_new, math.sqrt(var_new))
    return float(np.sum(density * np.maximum(-np.expm1(epsilon - loss), 0.0))) * sd * 1e-3


def worst_delta(epsilon, gamma_factor, weaken=1.0):
    """Largest exact delta over one-dimensional pairs at the calibration of each pair's own V, over delta."""
    rng = np.random.default_rng(8)
    loss, worst = SquaredLoss(1, 1.0, 2.0), 0.0
    for _ in range(150):
        n = int(rng.integers(2, 30))
        w = n * rng.dirichlet(np.full(n, rng.choice([1.0, 10.0])))
        sign = rng.choice([-1.0, 1.0], n) if rng.random() < 0.3 else np.ones(n)
        x = np.ones(n) * rng.choice([0.0, 0.2, 1.0], n)
        if rng.random() < 0.5:
            # the pull 2s/(2 s^2 + n gamma) on theta is largest at 2 s^2 = n gamma
            x[1:] = rng.random()
        x_new, sign_new = x.copy(), sign.copy()
        x[0], x_new[0] = 1.0, rng.choice([-1.0, 0.0, 1.0])
        sign_new[0] = -sign[0]
        first = Side(x[:, None], 2 * sign, w)
        second = Side(x_new[:, None], 2 * sign_new, w)
        V = coupled_variation(w, w)
        gamma = gamma_factor * V / n
        delta = 1 / 400
        calibration = calibrate_renyi(bound_of(V), loss, n, Budget(epsilon, delta), gamma=gamma)
        scale = calibration.scale * weaken
        for pair in ((first, second), (second, first)):
            worst = max(worst, hockey_stick(*pair, epsilon, gamma, scale) / delta)
    return worst


@pytest.mark.parametrize(("epsilon", "gamma_factor"), [(1.0, 100.0), (0.3, 400.0), (3.0, 20.0)])
def test_exact_privacy_loss_in_one_dimension(epsilon, gamma_factor):
    assert 0.0 < worst_delta(epsilon, gamma_factor) <= 1.0
    # with half of the noise the same pairs break the budget
    assert worst_delta(epsilon, gamma_factor, weaken=0.5) > 1.0


def random_settings(count, extreme=False):
    rng = np.random.default_rng(77)

    def log_uniform(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for _ in range(count):
        loss = SquaredLoss(int(rng.choice([1, 10, 1000])), log_uniform(1e-3, 1e3), log_uniform(1e-3, 1e3))
        delta = float(rng.choice([1e-300, 0.9, 1 / 400, log_uniform(1e-12, 0.1)]))
        epsilon = float(rng.choice([1e-3, 100.0, log_uniform(1e-2, 20.0)]))
        if extreme:
            delta, epsilon = log_uniform(1e-300, 0.999), log_uniform(1e-9, 1e6)
        n = int(rng.choice([2, 400, 10**7]))
        yield log_uniform(2.0, 1e4), loss, n, Budget(epsilon, delta), [None, 2.0][rng.integers(2)]


def proven_epsilon(V, loss, n, delta, calibration):
    """The guarantee of Theorem 7 at the calibration's own order, evaluated in mpmath."""
    mp = mpmath.mpf
    M, Z, gamma = mp(loss.covariate_bound), mp(loss.response_bound), mp(calibration.gamma)
    order = mp(calibration.order)
    tau = M**2 * V / (n * gamma)
    h = order - (order - 1) * (1 + tau) ** 2
    if h <= 0:
        return mpmath.inf
    S = V * (M**2 * Z / mpmath.sqrt(2 * gamma) + 2 * M * Z)
    f = -mpmath.log(1 + tau) - mpmath.log(h) / (2 * (order - 1))
    divergence = order * S**2 / (2 * mp(calibration.scale) ** 2 * h) + 2 * f
    # delta = exp((alpha - 1)(D - epsilon)) / (alpha - 1) (1 - 1/alpha)^alpha, solved for epsilon
    spent = order * mpmath.log(1 - 1 / order) - mpmath.log(order - 1) - mpmath.log(mp(delta))
    return divergence + spent / (order - 1)


def test_guarantee_holds_in_exact_arithmetic():
    kept = 0
    with mpmath.workdps(50):
        for V, loss, n, budget, size in random_settings(250):
            calibration = calibrate_renyi(bound_of(V), loss, n, budget, theta_bound=size)
            assert proven_epsilon(V, loss, n, budget.delta, calibration) <= budget.epsilon
            kept += proven_epsilon(V, loss, n, budget.delta, calibration) > 0.999 * budget.epsilon
            half = dataclasses.replace(calibration, scale=calibration.scale / 1.01)
            assert proven_epsilon(V, loss, n, budget.delta, half) > budget.epsilon
    assert kept == 250


@pytest.mark.slow
def test_guarantee_holds_in_exact_arithmetic_widely():
    refused = 0
    with mpmath.workdps(50):
        for V, loss, n, budget, size in random_settings(10_000, extreme=True):
            try:
                calibration = calibrate_renyi(bound_of(V), loss, n, budget, theta_bound=size)
            except CalibrationError:
                refused += 1
                continue
            assert proven_epsilon(V, loss, n, budget.delta, calibration) <= budget.epsilon
    assert refused < 3000


@pytest.mark.parametrize("tau", [1e-6, 0.02, 0.1])
@pytest.mark.parametrize("epsilon", [1.0, 5.0])
def test_scale_is_within_a_thousandth_of_the_best_order(tau, epsilon):
    loss, V, n, delta = SquaredLoss(5, 1.0, 2.0), 8.0, 1000, 1e-3
    gamma = V / (n * tau)
    top = math.log(0.9999 / (tau * (2 + tau)))

    def unit(log_k):
        k = math.exp(log_k)
        h = 1 - k * tau * (2 + tau)
        f = -math.log1p(tau) - math.log(h) / (2 * k)
        left = epsilon - 2 * f - (-math.log1p(1 / k) - (math.log1p(k) + math.log(delta)) / k)
        return math.sqrt((1 + k) / (2 * h * left)) if left > 0 else math.inf

    starts = np.linspace(-5, top, 2000)
    centre = starts[int(np.argmin([unit(point) for point in starts]))]
    best = optimize.minimize_scalar(unit, bounds=(centre - 0.01, min(centre + 0.01, top)), method="bounded")
    if not math.isfinite(best.fun):
        with pytest.raises(CalibrationError, match="no order fits"):
            calibrate_renyi(bound_of(V), loss, n, Budget(epsilon, delta), gamma=gamma)
        return
    calibration = calibrate_renyi(bound_of(V), loss, n, Budget(epsilon, delta), gamma=gamma)
    ratio = calibration.scale / calibration.sensitivity / best.fun
    assert 1.0 - 1e-9 <= ratio < 1.001


@pytest.mark.parametrize(("p", "noise_norm"), [(10, 9.9), (40, 20.0)])
def test_published_noise_norms(p, noise_norm):
    # delta = 1/400, epsilon = 1, tau = 0.02, per unit of S
    loss, V, n = SquaredLoss(p, 1.0, 2.0), 8.7, 400
    calibration = calibrate_renyi(bound_of(V), loss, n, Budget(1.0, 1 / 400), gamma=V / (n * 0.02))
    assert calibration.tau == pytest.approx(0.02)
    norm = calibration.scale / calibration.sensitivity * math.sqrt(p)
    assert norm == pytest.approx(noise_norm, rel=0.02)


def test_movement_of_the_gradient_is_the_stated_formula():
    V, M, outcome, gamma = 3.0, 2.0, 5.0, 0.1
    stated = V * (M**2 * outcome * math.sqrt(2 / gamma) + 4 * M * outcome)
    assert gradient_movement(V, SquaredLoss(4, M, 2 * outcome), gamma) == pytest.approx(stated, rel=1e-10)


@pytest.mark.parametrize("size", [None, 0.5])
@pytest.mark.parametrize("n", [400, 100_000])
def test_gamma_minimizes_the_predicted_error_over_the_grid(size, n):
    loss, V, budget = SquaredLoss(10, 1.0, 2.0), 8.7, Budget(1.0, 1e-3)

    def predicted(calibration):
        theta = loss.response_bound / math.sqrt(2 * calibration.gamma) if size is None else size
        return (calibration.expected_noise / n + calibration.gamma * theta) ** 2 / (4 * calibration.gamma)

    chosen = calibrate_renyi(bound_of(V), loss, n, budget, theta_bound=size)
    costs = []
    for tau in TAU_GRID[::4]:
        try:
            found = calibrate_renyi(bound_of(V), loss, n, budget, gamma=V / (n * tau), theta_bound=size)
        except CalibrationError:
            continue
        costs.append(predicted(found))
    assert len(costs) > 20
    assert predicted(chosen) <= min(costs) * 1.001


def test_releases_compose_by_adding_divergences():
    loss, V, n = SquaredLoss(3, 1.0, 2.0), 4.0, 2000
    one = calibrate_renyi(bound_of(V), loss, n, Budget(1.0, 1e-6), gamma=5.0)
    orders = 1 + np.geomspace(1e-2, 1e4, 4000)
    curve = renyi_divergence(orders, V, loss, n, one.scale, one.gamma)
    single, double = (renyi_epsilon(orders, k * curve, 1e-6) for k in (1, 2))
    assert single == pytest.approx(1.0, rel=1e-3)
    # two releases cost more than one and less than basic composition at the same total delta
    assert 1.3 < double < 2 * renyi_epsilon(orders, curve, 5e-7)
    assert renyi_epsilon(orders, np.zeros_like(orders), 0.5) == 0.0


def test_a_small_budget_needs_a_large_gamma():
    loss = SquaredLoss(5, 1.0, 2.0)
    with pytest.raises(CalibrationError, match=r"no order fits .* at gamma = 1e-05"):
        calibrate_renyi(bound_of(8.0), loss, 400, Budget(0.1, 1e-6), gamma=1e-5)
    assert calibrate_renyi(bound_of(8.0), loss, 400, Budget(0.1, 1e-6)).gamma > 0.1


def test_the_calibration_can_be_drawn():
    calibration = calibrate_renyi(bound_of(8.0), SquaredLoss(5, 1.0, 2.0), 400, Budget(1.0, 1e-6))
    assert draw(calibration, seed=1).shape == (5,)
    assert (calibration.theorem, calibration.split) == ("Theorem 7 (Renyi)", 1.0)


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        (CalibrationError, {"budget": Budget(1.0)}, "delta = 0.0"),
        (CalibrationError, {"bound": dataclasses.replace(bound_of(4.0), private=False)}, "read off the data"),
        (
            CalibrationError,
            {"bound": dataclasses.replace(bound_of(4.0), relations=frozenset())},
            "replace-one",
        ),
        (CalibrationError, {"bound": bound_of(math.inf)}, "V = inf"),
        (CalibrationError, {"bound": bound_of(1e300)}, "out of floating-point range"),
        (DeclarationError, {"n_samples": 1}, "n_samples"),
        (DeclarationError, {"gamma": 0.0}, "gamma"),
        (DeclarationError, {"theta_bound": -1.0}, "theta_bound"),
    ],
)
def test_refusals(error, change, message):
    arguments = {
        "bound": bound_of(4.0),
        "loss": SquaredLoss(5, 1.0, 2.0),
        "n_samples": 400,
        "budget": Budget(1.0, 1e-6),
        **change,
    }
    with pytest.raises(error, match=message) as caught:
        calibrate_renyi(**arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["n_parameters", "covariate_bound", "response_bound"])
def test_loss_constants(name):
    with pytest.raises(DeclarationError, match=name):
        SquaredLoss(**{"n_parameters": 3, "covariate_bound": 1.0, "response_bound": 1.0, name: 0})


def test_curve_refusals():
    loss = SquaredLoss(3, 1.0, 2.0)
    for order in (1.0, math.inf, math.nan):
        with pytest.raises(DeclarationError, match="order"):
            renyi_divergence(order, 4.0, loss, 400, 10.0, 1.0)
    with pytest.raises(DeclarationError, match="scale"):
        renyi_divergence(2.0, 4.0, loss, 400, 0.0, 1.0)
    # h <= 0: the divergence is infinite there
    assert renyi_divergence(1000.0, 4.0, loss, 4, 10.0, 1.0) == math.inf
    with pytest.raises(DeclarationError, match="delta"):
        renyi_epsilon([2.0], [1.0], 1.0)
    with pytest.raises(DeclarationError, match="divergence"):
        renyi_epsilon([2.0], [-1.0], 0.1)
