"""Hostile records, unequal weights, and programs at random settings."""

import math
from typing import Any

import cvxpy as cp
import numpy as np

from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.model.sets import Box, ElasticNet, L1Ball, L2Ball, WholeSpace
from dp2erm_cvx.program import Gaussian, Landmarks, Moments, PrivateFirstStage, SecondStage
from dp2erm_cvx.program.kernels import Laplace, Linear, PublicSample, RandomFourier
from dp2erm_cvx.program.registry import programs
from dp2erm_cvx.program.stage import family_of
from tests.helpers import LOSSES, penalized

PROGRAMS: dict[str, Any] = dict(programs())
#: Second stages whose loss has a bounded slope.
ROBUST = ("itr_huber", "itr_logistic")
KINDS = ("random", "duplicate", "collinear", "corners", "zero", "tiny", "separable", "one arm")


def hostile_records(rng, n, p, *, orders=1.0, **changes):
    """Records of any kind in a universe whose scale is within so many powers of ten of 1."""
    kind, M, largest = (
        str(rng.choice(KINDS)),
        10 ** rng.uniform(-orders, orders),
        10 ** rng.uniform(-2, 2),
    )
    intercept = float(rng.choice([0.0, 0.5 * M]))
    domain = Domain(math.hypot(M, intercept) * (1 + 1e-9), largest, intercept=intercept, **changes)
    X = rng.normal(size=(n, p))
    X *= 0.99 / np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    a, y = np.where(np.arange(n) == 0, 1, rng.integers(0, 2, n)), rng.uniform(-largest, largest, n)
    if kind == "duplicate":
        X = np.tile(X[0], (n, 1))
    elif kind == "collinear":
        X = np.outer(rng.uniform(-1, 1, n), X[0])
    elif kind == "corners":
        X = 0.9999 * np.sign(rng.normal(size=(n, p))) / math.sqrt(p)
    elif kind == "separable":
        a = X[:, 0] > 0
        y = np.where(a, largest, -largest)
    X *= {"zero": 0.0, "tiny": 1e-9}.get(kind, 1.0)
    return domain.records(M * X, 0 * a if kind == "one arm" else a, y)


def unequal_weights(rng, n):
    kind = str(rng.choice(["random", "one", "sparse", "heavy"]))
    w = rng.pareto(0.5, n) + 1e-12 if kind == "heavy" else rng.uniform(0.1, 1, n)
    if kind == "one":
        w = np.eye(n)[rng.integers(n)]
    elif kind == "sparse":
        w[1:] *= rng.uniform(size=n - 1) < 0.2
    return w * (n / math.fsum(w))


def first_stage(rng, name, space, columns, least=-6):
    """A program at random settings, its ridge from ``10^least`` times its scale on."""
    M2, share = space.covariate_bound**2, 10 ** rng.uniform(least, 1)
    radius = float(rng.choice([math.inf, 0.3, 3.0])) / space.covariate_bound
    kernel = [Gaussian(0.2), Gaussian(1.0), Laplace(0.5), Linear(), Linear(1.0)][rng.integers(5)]
    # a draw that no program takes any more, so that all others stay what they are
    rng.choice(["equal", "proportional"])
    alpha, balance = float(rng.choice([0.0, 0.5, 1.0])), Moments(int(rng.integers(1, 3)))
    G = math.hypot(*PROGRAMS["inverse_probability_tilting"](balance=balance).bounds(space))
    public = PublicSample(
        rng.normal(size=(int(rng.integers(1, 6)), columns - (space.intercept > 0)))
    )
    cap = float(rng.choice([math.inf, 1.3, 3.0]))
    mmd = {"alpha": alpha, "ridge": share, "kernel": kernel}
    constant = float(rng.choice([0.1, 1.0])) * G
    arms = {"balance": balance, "constant": constant, "ridge": share * G**2}
    cap = float(rng.choice([2.0, math.inf]))
    settings: dict[str, dict[str, Any]] = {
        "uniform": {},
        "ipw_randomized": {"propensity": float(rng.uniform(0.01, 0.99))},
        "ipw_known": {"coefficient": tuple(rng.normal(size=columns) / space.covariate_bound)},
        "ipw_logistic": {
            "ridge": share * M2,
            "radius": radius,
            "trim": float(rng.choice([math.inf, 1.7])),
        },
        "paper_entropy_balancing": {
            "ridge": share,
            "radius": radius * space.covariate_bound,
            "balance": Moments() if rng.uniform() < 0.3 else balance,
        },
        "entropy_balancing": {
            "ridge": share * M2,
            "radius": radius,
            "balance": balance,
            "cap": cap,
        },
        "entropy_balancing_hard": {"balance": balance},
        "mmd": mmd | {"cap": float(rng.choice([math.inf, 4.0]))},
        "mmd_pooled": mmd,
        "overlap": {"ridge": share * M2, "radius": radius},
        "odds_weights": {"ridge": share * M2, "radius": radius, "trim": cap},
        "att_calibration": {
            "ridge": share * M2,
            "radius": radius,
            "low": 0.1 + 0.4 * alpha,
            "high": min(cap, 10.0),
        },
        "att_balancing": {"ridge": share * M2, "balance": balance, "cap": 4 * cap},
        "inverse_probability_tilting": {
            "balance": balance,
            "ridge": share * G**2,
            "radius": float(rng.choice([0.3, 3.0, 11.9])) / G,
        },
        "energy_balancing": {"alpha": alpha, "ridge": share * math.sqrt(M2)},
        "stable_balancing": {
            "alpha": alpha,
            "balance": balance,
            "constant": constant,
            "ridge": share * G**2,
        },
        "raking": arms | {"cap": cap},
        "landmark_balancing": {
            "balance": Landmarks(int(rng.integers(1, 9)), float(rng.choice([0.3, 1.0]))),
            "ridge": share,
            "cap": cap,
        },
        "logit_calibration": arms | {"cap": float(rng.choice([2.0, 4.0]))},
        "empirical_likelihood": arms | {"low": float(rng.choice([0.0, 0.3]))},
        "minimal_dispersion": arms | {"tolerance": float(rng.choice([0.0, 0.05])), "cap": cap},
        "residual_balancing": arms | {"smoothing": share, "cap": cap},
        "stable_balancing_hard": {"tolerance": 10 ** rng.uniform(-3, 0), "balance": balance},
        "kernel_mean_matching": {
            "target": (None, public)[rng.integers(2)],
            "ridge": share,
            "kernel": (kernel, RandomFourier(10 ** rng.uniform(-3, 0), 3))[rng.integers(2)],
        },
    }
    return PROGRAMS[name](**settings[name]).resolve(space)


def noisy_stage(rng, name, space, smallest):
    """(program, gamma, scale of the noise) of what is perturbed, in the units of its loss.

    Gamma and the regularizer are from ``smallest`` times the curvature of the loss on. The name of
    a loss stands for it beside public linear and quadratic terms.
    """
    if name in LOSSES:
        return _stage_with_quadratic(rng, name, space, smallest)
    M, y = space.covariate_bound, space.outcome_bound
    if issubclass(family_of(PROGRAMS[name]), PrivateFirstStage):
        M = PROGRAMS[name]().row_bound(space)
        radius = float(rng.choice([math.inf if name == "ipw_private" else 2 / M, 1 / M, 1e-3 / M]))
        program = PROGRAMS[name](ridge=smallest * 10 ** rng.uniform(0, 2) * M**2, radius=radius)
        gamma = M**2 / 4 * smallest * 10 ** rng.uniform(0, 11)
        return program.resolve(space), gamma, M * 10 ** rng.uniform(-1, 3)
    units = {
        "itr_huber": (2 * y / M, 4 * M * y, 2 * M**2),
        "itr_logistic": (1 / M, M * y, M**2 * y / 4),
    }
    unit, slope, curvature = units.get(name, (2 * y / M, 8 * M * y, 2 * M**2))
    size = 10 ** rng.uniform(-2, 2) * unit
    sets = [None, L1Ball(size), L2Ball(size), Box(size), *([WholeSpace()] * (name not in ROBUST))]
    l1, l2 = slope * 10 ** rng.uniform(-3, 1), curvature * 10 ** rng.uniform(-3, 2)
    net = (ElasticNet(), ElasticNet(l1=l1), ElasticNet(l2=l2), ElasticNet(l1, l2))[rng.integers(4)]
    settings: dict[str, Any] = {"theta_set": sets[rng.integers(len(sets))], "regularizer": net}
    if name == "itr_huber":
        settings["threshold"] = (None, 2 * y * 10 ** rng.uniform(-9, 3))[rng.integers(2)]
    gamma = curvature * smallest * 10 ** rng.uniform(0, 11)
    mean = name == "plug_in_ate" and rng.uniform() < 0.5
    return (
        PROGRAMS[name](**settings).resolve(space),
        0.0 if mean else gamma,
        slope * 10 ** rng.uniform(-1, 3),
    )


def _stage_with_quadratic(rng, name, space, smallest):
    """A loss beside public terms whose sizes and ranks are any, as :func:`noisy_stage` has
    others.
    """
    M = space.covariate_bound
    unit = (1.0 if name in ("logistic", "hinge") else space.outcome_bound) / M
    curvature = (0.25 if name == "logistic" else 2.0) * M**2
    slope = curvature * unit
    rank, seed, kind = (int(rng.integers(end)) for end in (5, 1000, 4))
    steep = math.sqrt(curvature) * 10 ** rng.uniform(-4, 1.5, (rank, 1))
    shift = math.sqrt(curvature) * unit * 10 ** rng.uniform(-2, 2) * rng.normal(size=rank)
    pull, price = slope * 10 ** rng.uniform(-3, 2), slope * 10 ** rng.uniform(-3, 0)

    def penalty(theta):
        drawn = np.random.default_rng(seed).normal(size=(1 + rank, theta.size))
        linear, root = pull * drawn[0] @ theta, steep * drawn[1:]
        if kind == 0 or rank == 0:
            return linear
        squares = cp.sum_squares(root @ theta + shift)
        if kind == 1:
            return squares
        form = root.T @ root
        # a matrix that CVXPY is sure of
        form += 1e-9 * np.trace(form) * np.eye(theta.size)
        return (
            squares + linear + price * cp.norm1(theta)
            if kind == 2
            else linear + cp.quad_form(theta, form)
        )

    size = 10 ** rng.uniform(-2, 2) * unit
    sets = [L1Ball(size), L2Ball(size), Box(size), *([WholeSpace()] * (name == "squares"))]
    program = penalized(LOSSES[name], penalty)(theta_set=sets[rng.integers(len(sets))])
    gamma = curvature * smallest * 10 ** rng.uniform(0, 11)
    return program.resolve(space), gamma, slope * 10 ** rng.uniform(-1, 3)


def instance_of(rng, name, records):
    """A program at random settings, bound to records, and what else its exact minimizer depends
    on.
    """
    p = records.covariates.shape[1]
    if not issubclass(family_of(PROGRAMS[name]), SecondStage | PrivateFirstStage):
        return first_stage(rng, name, records.space, records.X.shape[1]).instance(records), {}
    program, gamma, scale = noisy_stage(rng, name, records.space, 1e-7)
    size = program.loss_constants(MappedUniverse(records.space, 100, p)).n_parameters
    b = scale * float(rng.choice([0.0, 1.0, 100.0])) * rng.normal(size=size)
    if isinstance(program, PrivateFirstStage):
        return program.perturbed(records, gamma, b), {"ridge": program.mu + gamma, "noise": b}
    gamma = gamma or 1e-3
    bound = {"weights": unequal_weights(rng, records.n_samples), "gamma": gamma, "noise": b}
    return program.instance(records, **bound), bound
