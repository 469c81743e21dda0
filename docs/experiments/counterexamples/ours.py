"""The worst pair of a search by exact densities, of this library's rows: python ours.py [names].

python ours.py mu: the exact mu of the sums with Gaussian noise in an effect, where a covariate is
turned.
"""

import sys

import numpy as np

from dp2erm_cvx import Budget, Domain, PrivateEffect, PrivateTwoStageERM
from dp2erm_cvx.audit import SearchPlan, audit_density, search_density
from dp2erm_cvx.audit.laws import ShiftLaw
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.program import Box, L2Ball, registry

DOMAIN = Domain(1.0, 1.0)


def effect(epsilon, delta=0.0, **settings):
    """A private effect at its defaults, or at these settings."""
    noise = "gaussian" if delta else "gamma"
    return PrivateEffect(
        DOMAIN,
        Budget(epsilon, delta),
        residual_scale=0.3,
        effect_center=0.0,
        settings=settings,
        noise=noise,
        arithmetic="assumed",
    )


def weighted(first, second, theta_set, **settings):
    """Arm means, or a rule, at direct weights, or at those of a private coefficient."""

    def made(epsilon):
        weights = registry.build(registry.first_stages(), first, **settings)
        estimate = registry.build(registry.second_stages(), second, theta_set=theta_set)
        return PrivateTwoStageERM(DOMAIN, Budget(epsilon), weights, estimate, arithmetic="assumed")

    return made


ROWS = {
    "arm means, IPW": weighted("ipw_logistic", "arm_means", Box(1.0), ridge=0.1, trim=4.0),
    "arm means, EBW": weighted("entropy_balancing", "arm_means", Box(1.0), ridge=1.0),
    "rule, w = 1": weighted("uniform", "itr", L2Ball(1.0)),
    "rule, IPW": weighted("ipw_logistic", "itr", L2Ball(1.0), ridge=0.1, trim=4.0),
    "rule, EBW": weighted("entropy_balancing", "itr", L2Ball(1.0), ridge=1.0),
    "effect": effect,
    "effect, Gaussian": lambda epsilon: effect(epsilon, 1e-5),
}


def worst(name, epsilon):
    """The audit of the worst pair of a search, or of a pair that flips treatment and outcome."""
    model = ROWS[name](epsilon)
    if not name.startswith("effect"):
        return search_density(
            model, 8, 1, search=SearchPlan(evaluations=6), starts=2, draws=1000
        ).audit
    return audit_density(model, *flipped(), starts=1, draws=1000)


def flipped():
    """One record at the end of everything changes its arm and its outcome; all others are 0."""
    x, treated, outcome = np.zeros((8, 1)), np.zeros(8, dtype=int), np.zeros(8)
    x[0], outcome[0] = 1.0, 1.0
    other = treated.copy()
    other[0] = 1
    return (x, treated, outcome), (x, other, -outcome)


def turned():
    """The covariate of one record turns from one end to the other; all others are 0."""
    (x, treated, outcome), _ = flipped()
    return (x, treated, outcome), (-x, treated, outcome)


def mus(epsilon, releases=50):
    """Largest mu of every step with Gaussian noise on sums: reached, and by its sensitivity."""
    settings = {"propensity": 0.5, "mean_share": 0.1, "spread_share": 0.1}
    plan, laws = audited_laws(effect(epsilon, 0.1, **settings), turned())
    steps, rng, reached = {step.name: step for step in plan.steps}, np.random.default_rng(0), {}
    for _ in range(releases):
        released = {}
        for name in laws[0].conditional:
            one, other = (law.conditional[name](released) for law in laws)
            if isinstance(one, ShiftLaw) and not one.pure:
                mu = float(np.linalg.norm(one.center - other.center)) / one.scale
                integers = getattr(steps[name].calibration, "integers", steps[name].calibration)
                reached[name] = (
                    max(mu, reached.get(name, (0.0,))[0]),
                    integers.sensitivity / integers.scale,
                )
            released[name] = one.released(one.draw(rng))
    return reached


if __name__ == "__main__":
    if sys.argv[1:] == ["mu"]:
        print(mus(1.0), mus(2.0), sep="\n")
        sys.exit()
    for name in sys.argv[1:] or ROWS:
        for epsilon in (1.0, 2.0):
            print(name, epsilon, worst(name, epsilon), flush=True)
