"""Audit of planted bugs: a mean with Laplace noise that is too small, or that shows all its bits.

A black-box audit runs a mechanism on two neighbors and bounds its epsilon from below, with 99 %
confidence. It underestimates: for right noise at epsilon = 1 it reports about 0.8 here. A bound
above what is declared refutes it. Noise in doubles is a bug of its own: the lowest bits of a sum
tell the dataset (Mironov 2012).
"""

import sys

import numpy as np

from dp2erm_cvx.audit import Attack, Declared, audit_runs
from dp2erm_cvx.report.figures import BLUE, ORANGE, new_figure, plain, save


def noisy_mean(share, digits):
    """The mean of numbers in [0, 1] with a share of the noise that epsilon = 1 needs.

    The noise is rounded or not.
    """

    def released(values, rng):
        value = float(np.mean(values) + rng.laplace(scale=share / len(values)))
        return value if digits is None else round(value, digits)

    return released


left, right = np.zeros(10), np.eye(10)[0]  # datasets that differ in one record
mechanisms = {
    "right noise, three digits": noisy_mean(1.0, 3),
    "right noise, all bits": noisy_mean(1.0, None),
    "half the noise": noisy_mean(0.5, 3),
    "a quarter of it": noisy_mean(0.25, 3),
}
bounds = {}
for label, mechanism in mechanisms.items():
    attack = Attack(runs=4000, takes_rng=True, seed=1)
    audit = audit_runs(mechanism, left, right, Declared(1.0), attack=attack)
    bounds[label] = audit.epsilon_low
    print(label, audit)
figure = new_figure(6.4, 2.8)
ax = figure.subplots()
colors = [ORANGE if bound > 1.0 else BLUE for bound in bounds.values()]
ax.axvline(1.0, color="0.3", linestyle="--", label="declared epsilon")
ax.set(xlabel="epsilon is at least this, with 99 % confidence")
ax.invert_yaxis()
ax.legend(frameon=False)
plain(ax)
ax.barh(list(bounds), list(bounds.values()), color=colors, zorder=3)
save(figure, sys.argv[1])
