"""Effects and rules of one covariate, with neighbors on which all that they may lose is nearly
lost.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from dp2erm_cvx import Budget, Codebook, PrivateEffect, PrivateRule
from dp2erm_cvx.data.counts import SamplingWeights
from tests.audit.bugs import DOMAIN
from tests.audit.pairs import changed_record

N = 8
SAMPLED = replace(DOMAIN, codebook=Codebook(sampling_weights=SamplingWeights("wt", 5.0)))


def effect(shares=(0.5, 0.2), epsilon=1.0, delta=0.0, estimand="ate", domain=DOMAIN, **settings):
    """At a ``score_bound`` of 4 no released rate widens a score."""
    shares = {"center_share": shares[0], "propensity_share": shares[1]}
    fixed = {"rows": "common", "propensity": "logistic", "score_bound": 4.0, "cap": 4.0}
    fixed |= {"rate_share": 0.01, "mean_share": None, "spread_share": None, "arms": "alike"}
    return PrivateEffect(
        domain,
        Budget(epsilon, delta),
        estimand=estimand,
        residual_scale=0.3,
        effect_center=0.0 if estimand != "risks" else None,
        settings=fixed | shares | settings,
        noise="gaussian" if delta else "gamma",
        arithmetic="assumed",
    )


def rule(
    center=0.4,
    propensity=None,
    balance="matching",
    budget=1.0,
    domain=DOMAIN,
    noise="gamma",
    **others,
):
    """``propensity`` is its share, None for factors 1."""
    settings = {
        "center_share": center,
        "propensity": None,
        "balance": balance,
        "cap": 5.0,
        **others,
    }
    if propensity is not None:
        settings |= {"propensity": "logistic", "propensity_share": propensity}
    declared = {
        "outcome_scale": 0.05,
        "settings": settings,
        "arithmetic": "assumed",
        "noise": noise,
    }
    return PrivateRule(domain, Budget(budget), **declared)


#: A flip that moves everything, and one with the other outcome beside records that say nothing.
FLIP = changed_record((1, 1, 1), (1, 0, 1), (-1, 0, -1))
MOVED = changed_record((1, 1, 1), (1, 0, -1))
#: One outcome turns from one end to the other, or an arm, where everybody else pulls to the first.
OPPOSED = changed_record((1, 1, 1), (1, 1, -1), (1, 1, 1))
LEAVING = changed_record((1, 1, 1), (1, 0, 1), (1, 1, 1))


def weighted(pair, *weights):
    """The pair with sampling weights (n,) of its own in either dataset."""
    frames = [
        pd.DataFrame({"x": X[:, 0], "wt": wt}) for (X, *_), wt in zip(pair, weights, strict=True)
    ]
    return tuple((frame, a, y) for frame, (_, a, y) in zip(frames, pair, strict=True))


def weights(own, others=5.0):
    """Sampling weights (n,) of which the first is ``own``."""
    return np.append(own, np.broadcast_to(others, N - 1)).astype(float)
