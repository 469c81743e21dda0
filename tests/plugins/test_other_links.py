"""Probit and entropy weights: read, solved by this library, certified, bounded and released."""

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import entr, log_ndtr
from scipy.stats import norm

from dp2erm_cvx import Budget, Domain, PrivateTwoStageERM
from dp2erm_cvx.curves.atoms import atom
from dp2erm_cvx.curves.curves import Curve, Part
from dp2erm_cvx.curves.log_weights import LogWeight
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program import probit, scheme
from dp2erm_cvx.solve import solve
from tests.exact import mp
from tests.plugins import other_links
from tests.plugins.clusters import clustered, largest_movement
from tests.plugins.test_by_arm import records, sigma

DOMAIN = Domain(1.5, 1.0, intercept=0.5)
N, P = 60, 3
SCHEMES = [other_links.probit_weights, other_links.entropy_weights]
every = pytest.mark.parametrize("made", SCHEMES, ids=lambda one: one.name)


@every
def test_weights_are_those_of_another_minimizer(made):
    data = records()
    program = made().resolve(DOMAIN.space)
    Z = (2 * data.a - 1)[:, None] * data.X
    of_probit = made is other_links.probit_weights

    def objective(v):
        loss = -log_ndtr(Z @ v) if of_probit else np.log1p(np.exp(-Z @ v))
        return np.mean(loss) + program.mu / 2 * v @ v

    v = minimize(objective, np.zeros(P + 1), method="BFGS", options={"gtol": 1e-10}).x
    s = Z @ v
    f = 1 / norm.cdf(s) if of_probit else (entr(sigma(s)) + entr(sigma(-s))) / sigma(s)
    solution = solve(program.instance(data))
    np.testing.assert_allclose(solution.value, N * f / f.sum(), atol=1e-5)
    assert solution.certificate.output_radius <= 1e-8 * N


def test_no_solver_of_cvxpy_takes_a_probit_for_something_else():
    instance = other_links.probit_weights().resolve(DOMAIN.space).instance(records())
    solution = solve(instance, solver="clarabel", throw=False)
    assert not solution.certified or solution.solver == "newton"
    u = cp.Variable()
    with pytest.raises(cp.error.SolverError, match="newton"):
        cp.Problem(cp.Minimize(probit(u) - u)).solve(solver="CLARABEL")


@pytest.mark.one_row_in(2)
@every
def test_weights_move_by_no_more_than_their_bound(made):
    """Clustered datasets, of which the replaced record is at the far end."""
    domain = Domain(1.0, 1.0)
    program = made().resolve(domain.space)
    bound = program.stability(Universe(domain, 40, 1))
    worst = largest_movement(program, bound, clustered(domain))
    assert 0.1 * bound.V < worst <= bound.V


@pytest.mark.one_row_in(2)
@every
def test_a_release_is_private(made):
    data = records(6, 400)
    model = PrivateTwoStageERM(DOMAIN, Budget(2.0), made(), "arm_means").fit(
        data.covariates, data.a, data.y
    )
    assert model.release_.private


def test_a_probit_is_evaluated_to_its_stated_rounding():
    """Against 60 digits: value, slope and curvature, and the least and largest curvature of
    cells.
    """
    one = atom("probit")
    u = np.concatenate([np.linspace(-12.0, 12.0, 97), [-37.0, 30.0, 100.0, 1000.0]])
    slopes, unit = one.slope(u), 2.0**-53
    least, largest = one.curvatures(u, u)
    values = one.value(u)
    with mp.workdps(60):
        for k, at in enumerate(map(float, u)):
            x = mp.mpf(at)
            hazard = mp.sqrt(2 / mp.pi) * mp.exp(-x * x / 2) / mp.erfc(x / mp.sqrt(2))
            assert abs(slopes[k] - hazard) <= (8 + 16 * hazard) * unit
            bent = hazard * (hazard - x)
            assert least[k] <= bent <= largest[k]
            assert values[k] == pytest.approx(
                float(-mp.log(mp.erfc(x / mp.sqrt(2)) / 2)), rel=1e-13
            )


@pytest.mark.parametrize("reach", [0.5, 2.0, 8.0])
def test_the_bend_of_a_probit_holds_on_a_reach(reach):
    curve = Curve((Part(1.0, atom("probit"), -1.0),))
    s = np.linspace(-reach, reach, 4001)
    step = 1e-5
    third = (curve.curvature(s + step) - curve.curvature(s - step)) / (2 * step)
    ratio = np.abs(third) / curve.curvature(s)
    assert np.max(ratio) <= curve.bend_within(reach) * (1 + 1e-4)
    assert np.max(ratio) >= 0.3 * (curve.bend_within(reach) - 1.6)


def test_enclosures_of_an_entropy_hold_its_values_and_slopes():
    margin = LogWeight()
    propensity = LogWeight(
        "atom",
        (LogWeight("atom", (margin.times(-1.0),), atom=atom("logistic")).times(-1.0),),
        atom=atom("exp"),
    )
    entropy = LogWeight("entr", (propensity,))
    edges = np.linspace(-9.0, 9.0, 60)
    found = entropy.enclose(edges[:-1], edges[1:])
    for t in np.linspace(0.0, 1.0, 9):
        s = edges[:-1] + t * np.diff(edges)
        value = entr(sigma(s))
        slope = -(np.log(sigma(s)) + 1) * sigma(s) * sigma(-s)
        assert np.all((found.low <= value * (1 + 1e-12)) & (value <= found.high * (1 + 1e-12)))
        assert np.all((found.down <= slope + 1e-12) & (slope <= found.up + 1e-12))
        np.testing.assert_allclose(entropy.log(s), value, rtol=1e-12)


def test_the_approximation_of_cvxpy_is_refused():
    with pytest.raises(DeclarationError):

        @scheme.separable(ridge=0.1)
        def near_probit(s):
            """A loss that is near a probit."""
            return -cp.log_normcdf(s), -s
