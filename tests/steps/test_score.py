"""Propensities at which records are scored."""

import numpy as np
import pytest

from dp2erm_cvx import Domain
from dp2erm_cvx.domain import Records
from dp2erm_cvx.steps import AverageScore, TreatedScore
from dp2erm_cvx.steps.nuisances import LinearNuisances


@pytest.mark.parametrize(
    ("kind", "least"),
    # the odds of controls are capped from above alone: a floor would give weight to those hardly ever treated
    [(AverageScore, 0.2), (TreatedScore, 0.0)],
)
def test_inverse_propensities_are_capped_and_what_is_no_number_is_a_half(kind, least):
    logits = np.array([-60.0, -5.0, 0.3, 5.0, 60.0])
    x = logits[:, None]
    records = Records(x, np.zeros(5, int), np.zeros(5), Domain(covariate_bound=60.0, outcome_bound=1.0))
    score = kind(LinearNuisances((), "propensity"), 5.0, 1.0, 4.0)
    found = score.propensity(records, {"propensity": np.array([0.0, 1.0])})
    exact = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(found, np.clip(exact, least, 0.8), rtol=1e-12, atol=1e-15)
    broken = score.propensity(records, {"propensity": np.array([np.inf, -np.inf])})
    assert set(broken) <= {0.5, 0.8, least}
