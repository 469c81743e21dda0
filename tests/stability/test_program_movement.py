"""Movement of every registered program, solved and certified, between random neighbors with flips."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.special import expit

from dp2erm_cvx import Domain, registry
from dp2erm_cvx.domain import Universe
from dp2erm_cvx.errors import CalibrationError, DeclarationError
from dp2erm_cvx.program import PrivateFirstStage
from dp2erm_cvx.solve import solve
from tests.drawn import first_stage

FLOOR = 3


#: Settings of private programs, whose ball holds the coefficient; others are drawn as for certificates.
PRIVATE = {"ipw_private": 3.0, "overlap_private": 2.0, "tilting_private": 1.0}


def random_program(name, rng, domain, m):
    """A registered program at random settings, for m columns."""
    cls = registry.first_stages()[name]
    if name in PRIVATE:
        return cls(radius=min(float(np.exp(rng.uniform(-2.3, 1.1))), PRIVATE[name])).resolve(domain)
    program = first_stage(rng, name, domain, m, least=-3)
    return dataclasses.replace(program, cap=math.inf) if name == "mmd" else program


def neighbors(rng, n, domain):
    """Two datasets that differ in record 0, with flips; each arm keeps FLOOR records in both."""
    x = rng.choice([-3.0, -1.0, 0.0, 1.0, 3.0], (n + 1, 2)) * rng.choice([1.0, rng.uniform()], (n + 1, 2))
    a = (rng.uniform(size=n + 1) < rng.choice([0.2, 0.5, expit(2 * x[:, 0]).mean()])).astype(int)
    a[1 : 1 + FLOOR], a[1 + FLOOR : 1 + 2 * FLOOR] = 0, 1
    x[0] *= -5.0 * (rng.random() < 0.5) + 1
    second = np.r_[n, 1:n]
    y = np.zeros(n)
    return domain.records(x[:n], a[:n], y), domain.records(x[second], a[second], y)


def released(program, records, rng):
    """A coefficient within the ball."""
    lam = rng.normal(size=program.model(records).dimension)
    return lam * min(1.0, min(program.radius, 5.0) / np.linalg.norm(lam))


def weights_of(program, records, lam):
    if lam is None:
        return solve(program.instance(records)).value
    # Theorem 9: the coefficient has been released; it is the same for both datasets
    return program.perturbed(records, 0.0, np.zeros(len(lam))).model.output(lam)


def worst_ratio(name, count, seed):
    rng = np.random.default_rng([seed, *name.encode()])
    largest = 0.0
    for _ in range(count):
        n = int(rng.integers(2 * FLOOR + 2, 25))
        domain = Domain(1.0, 1.0, intercept=float(rng.choice([0.0, 0.5])), arm_floor=FLOOR)
        m = 3 if domain.intercept else 2
        program = random_program(name, rng, domain, m)
        first, second = neighbors(rng, n, domain)
        lam = None
        if isinstance(program, PrivateFirstStage):
            lam = released(program, first, rng)
        w, v = weights_of(program, first, lam), weights_of(program, second, lam)
        moved = float(np.abs(w[1:] - v[1:]).sum() + w[0] + v[0])
        bound = program.stability(Universe(domain, n, 2))
        # the certified error of either solution is a millionth of this
        assert moved <= bound.V + 1e-6, (program, n)
        assert max(w[0], v[0]) <= bound.w_max + 1e-6
        largest = max(largest, moved / bound.V)
    return largest


def bounded(cls):
    try:
        return cls().stability(Universe(Domain(1.0, 1.0, arm_floor=FLOOR), 50, 2)).V < math.inf
    except CalibrationError:
        return False
    except DeclarationError:  # of settings without a default
        return True


@pytest.mark.parametrize("name", [name for name, cls in registry.first_stages().items() if bounded(cls)])
def test_movement_of_solved_programs_is_within_their_bounds(name):
    assert worst_ratio(name, 4, seed=0) > 0.05
