"""Universes whose worst neighbors are known from long searches, and bounds that are wrong on purpose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp2erm_cvx import Domain
from dp2erm_cvx.audit.stability import Claim, Quantity
from dp2erm_cvx.program import FirstStage, Kernel
from dp2erm_cvx.registry import build, first_stages
from dp2erm_cvx.stability.entropy import entropy_law_change, moment_diameter, target_movement
from dp2erm_cvx.stability.tilt import coupled_variation, largest_weight

INF = math.inf
G = math.sqrt(0.5)


def first_stage(name: str, **settings: Any) -> FirstStage:
    return build(first_stages(), name, **settings)


@dataclass(frozen=True)
class Orthant(Kernel):
    """``<|x|, |z|>``: features that are any vectors of the nonnegative part of the ball."""

    def cross(self, X, Y):
        return np.abs(X) @ np.abs(Y).T

    def diagonal(self, X):
        return np.sum(X**2, axis=1)

    def bound(self, features_bound):
        return features_bound**2


def kernel_stage(name: str, ridge: float, n: int) -> FirstStage:
    program = first_stage(name, ridge=ridge / n)
    # a public program takes no kernel of a user's own; Theorems 5 and 6 hold for any with 0 <= K <= C
    object.__setattr__(program, "kernel", Orthant())
    return program


@dataclass(frozen=True)
class Case:
    """``known`` is the largest V that earlier searches met."""

    program: FirstStage
    domain: Domain
    n: int
    n_features: int
    known: float

    def __str__(self) -> str:
        settings = {k: v for k, v in self.program.settings().items() if k in NAMED and v not in ("inf", None)}
        return f"{self.program.name} n={self.n} {settings}"


NAMED = ("ridge", "radius", "trim", "arm_mass", "scaling")


def ipw(n: int, ridge: float, radius: float, known: float, trim: float = INF) -> Case:
    return Case(first_stage("ipw_logistic", ridge=ridge, radius=radius, trim=trim), Domain(1, 1), n, 2, known)


def entropy(mass: str, n: int, ridge: float, radius: float, known: float, floor: int | None = None) -> Case:
    program = first_stage("entropy_balancing", ridge=ridge, radius=radius, arm_mass=mass)
    return Case(program, Domain(G, 1, arm_floor=floor), n, 1, known)


def entropy_paper(known: float) -> Case:
    # a constant of next to nothing leaves the whole ball to the balance functions
    program = first_stage(
        "entropy_balancing", ridge=1.0, scaling="paper", arm_mass="proportional", constant=1e-6
    )
    return Case(program, Domain(1, 1, arm_floor=100), 400, 2, known)


def mmd(ridge: float, known: float) -> Case:
    return Case(kernel_stage("mmd", ridge, 400), Domain(1, 1, arm_floor=100), 400, 3, known)


def pooled(ridge: float, known: float) -> Case:
    return Case(kernel_stage("mmd_pooled", ridge, 400), Domain(1, 1), 400, 3, known)


TABLE = [
    ipw(400, 1, INF, 2.98),
    ipw(400, 0.1, INF, 10.0),
    ipw(400, 0.1, 1, 5.41),
    ipw(400, 0.003, 1, 16.1),
    ipw(10_000, 0.003, 2, 43.1),
    ipw(4, 1, INF, 2.32),
    ipw(400, 0.003, 4, 32.2, trim=5),
    ipw(400, 0.03, 4, 12.8, trim=5),
    ipw(400, 0.1, INF, 7.2, trim=4),
    ipw(100, 0.003, 2, 9.7, trim=4),
    entropy("proportional", 400, 3, INF, 2.36),
    entropy("proportional", 400, 1, INF, 3.28),
    entropy("proportional", 400, 0.3, INF, 9.90),
    entropy("proportional", 400, 0.1, 1, 6.09),
    entropy("equal", 400, 3, INF, 2.78),
    entropy("equal", 400, 1, INF, 5.34),
    entropy("equal", 400, 0.3, INF, 38.7),
    entropy("equal", 400, 0.1, 1, 8.16),
    entropy("equal", 100, 1, INF, 5.09),
    entropy_paper(3.86),
    mmd(20, 58.3),
    mmd(100, 16.8),
    mmd(400, 8.22),
    mmd(4000, 5.53),
    pooled(100, 15.0),
    pooled(400, 4.96),
    pooled(8000, 2.15),
]


def trimmed_entropy() -> tuple[Case, Claim]:
    """Entropy balancing with a cap inside the bound for none: the largest trimmed weight put into e."""
    n, mu, radius, size = 1000, 0.5, 2.0, 1.0
    cap = 3 * math.exp(-radius * math.sqrt(2))
    program = first_stage("entropy_balancing", ridge=mu, radius=radius, constant=size, trim=cap)
    w_max = largest_weight(n, math.log(3))
    p, diameter = w_max / n, moment_diameter(size, size)
    pull = p * diameter + target_movement(size, size, True) / n
    wrong = coupled_variation(n, w_max, entropy_law_change(mu, radius, diameter, pull, 1 - p))
    case = Case(program, Domain(size, 1), n, 1, 57.3)
    return case, Claim("trimming inside the untrimmed bound", Quantity.V, wrong)
