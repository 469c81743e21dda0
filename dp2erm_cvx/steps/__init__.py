"""Private steps: each is planned from public quantities and run on records and on what was released.

``propensity`` releases the coefficient of a private first stage, ``theta`` a weighted convex program and
``value`` what its rule is worth. Another step is one more module beside them.
"""

from dp2erm_cvx.steps.precision import Precision
from dp2erm_cvx.steps.propensity import Propensity, PropensityPlan
from dp2erm_cvx.steps.solving import solve_theta, solve_weights
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult
from dp2erm_cvx.steps.theta import Theta, ThetaPlan
from dp2erm_cvx.steps.value import Value, ValuePlan
from dp2erm_cvx.steps.weights import WeightsPlan

__all__ = [
    "Execution",
    "Inputs",
    "Precision",
    "Propensity",
    "PropensityPlan",
    "Step",
    "StepPlan",
    "StepResult",
    "Theta",
    "ThetaPlan",
    "Value",
    "ValuePlan",
    "WeightsPlan",
    "solve_theta",
    "solve_weights",
]
