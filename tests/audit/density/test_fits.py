"""The audited mechanism is the one that releases: the law of a step at its noise is what was released."""

import numpy as np
import pytest

from dp2erm_cvx.audit.laws import ObjectiveLaw
from dp2erm_cvx.audit.release_laws import audited_laws
from dp2erm_cvx.problems.entropy_balancing import EntropyBalancing
from dp2erm_cvx.problems.ipw_logistic import ipw_private
from dp2erm_cvx.steps.step import Execution
from tests.audit.density import test_composed, test_density, test_margin
from tests.audit.density.test_effect import effect
from tests.audit.pairs import neighbors

#: What is released, and the number of covariates.
FITS = {
    **{f"{one!r}": (test_density.release("entropy_balancing", one), 2) for one in test_density.SECOND},
    **{
        name: (test_margin.release(one[0], first="entropy_balancing"), 2)
        for name, one in test_margin.LOSSES.items()
    },
    "a mean": (test_composed.release(EntropyBalancing(), calibration="output"), 2),
    **{
        f"private weights, {second}": (
            test_composed.release(ipw_private(radius=1.0), second, arithmetic="assumed"),
            2,
        )
        for second in ("itr", "arm_means")
    },
    "effect": (effect(first_fit=0.4), 1),
}


@pytest.mark.parametrize("name", FITS)
def test_the_law_of_every_step_is_that_of_the_fit(name):
    model, covariates = FITS[name]
    n = 8 if name == "effect" else 6
    pair = neighbors(np.random.default_rng(7), n, covariates)
    plan, data = model.prepared(*pair[0])
    _, (release, _) = audited_laws(plan, pair)
    for seed in range(3):
        result, drawn = plan.run(data, Execution("newton", 1e-6, seed=seed)), 0
        for step, own in result.steps.items():
            if own.noise is not None:
                law = release.conditional[step](result.released)
                theta = np.add(getattr(law, "center", 0.0), own.noise)
                if isinstance(law, ObjectiveLaw):
                    place = law.place(law.at_noise(own.noise))
                    np.testing.assert_allclose(law.noise(place), own.noise, rtol=1e-8, atol=1e-8)
                    theta = law.released(place)
                np.testing.assert_allclose(theta, own.released, rtol=1e-6, atol=1e-7)
                drawn += 1
        assert drawn == {"effect": 3}.get(name, 1 + name.startswith("private"))
