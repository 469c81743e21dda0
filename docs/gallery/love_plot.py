"""A love plot: balance before and after weighting, for the data holder only.

Balance tables are functions of the private records: nothing of this picture may be published.
"""

import sys

from dp2erm_cvx import TwoStageERM, love_plot
from dp2erm_cvx.datasets import load_nhefs, nhefs_domain
from dp2erm_cvx.problems.entropy_balancing import entropy_balancing

data = load_nhefs()
domain = nhefs_domain(covariate_bound=2.7, intercept=1.0)
model = TwoStageERM(domain, entropy_balancing(ridge=0.1), "arm_means").fit(data.X, data.a, data.y)
love_plot(model.workings_.balance(), sys.argv[1])
