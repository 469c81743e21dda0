"""Private steps: each is planned from public quantities and run on records and on what was released.

``propensity`` releases the coefficient of a private first stage, ``theta`` a weighted convex program,
``value`` what its rule is worth, ``center`` a regression of the outcome, ``rule`` one of effects, ``cells``
means by cell, ``score`` an average effect, ``ranges`` those of columns that nobody declared. Another step is
one more module beside them.
"""

from dp2erm_cvx.steps.cell_nuisances import CellNuisances
from dp2erm_cvx.steps.cell_sums import CellSums, CellSumsPlan
from dp2erm_cvx.steps.center import Center, CenterPlan, Refit, RefitPlan, RuleFit, RuleFitPlan
from dp2erm_cvx.steps.estimands import AverageScore, OverlapScore, RiskScores, TreatedScore, ValueScore
from dp2erm_cvx.steps.factors import Balance, Factors, ResponseRows, RuleRows
from dp2erm_cvx.steps.mean_score import MeanScore, MeanScorePlan, RuleValue, RuleValuePlan
from dp2erm_cvx.steps.nuisances import LinearNuisances, Nuisances
from dp2erm_cvx.steps.number import SumsPlan, TreatmentRate, TreatmentRatePlan
from dp2erm_cvx.steps.partition import Partition, declared_partition
from dp2erm_cvx.steps.precision import Precision
from dp2erm_cvx.steps.propensity import Propensity, PropensityPlan
from dp2erm_cvx.steps.ranges import ColumnRanges, ColumnRangesPlan
from dp2erm_cvx.steps.record_map import OutcomeRows, RecordMap, Rows, Term, WithConstant
from dp2erm_cvx.steps.rule_nuisances import RuleNuisances
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.solving import solve_theta, solve_weights
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult
from dp2erm_cvx.steps.theta import Theta, ThetaPlan
from dp2erm_cvx.steps.value import Value, ValuePlan
from dp2erm_cvx.steps.weights import WeightsPlan

__all__ = [
    "AverageScore",
    "Balance",
    "CellNuisances",
    "CellSums",
    "CellSumsPlan",
    "Center",
    "CenterPlan",
    "ColumnRanges",
    "ColumnRangesPlan",
    "EffectScore",
    "Execution",
    "Factors",
    "Inputs",
    "LinearNuisances",
    "MeanScore",
    "MeanScorePlan",
    "Nuisances",
    "OutcomeRows",
    "OverlapScore",
    "Partition",
    "Precision",
    "Propensity",
    "PropensityPlan",
    "RecordMap",
    "Refit",
    "RefitPlan",
    "ResponseRows",
    "RiskScores",
    "Rows",
    "RuleFit",
    "RuleFitPlan",
    "RuleNuisances",
    "RuleRows",
    "RuleValue",
    "RuleValuePlan",
    "Step",
    "StepPlan",
    "StepResult",
    "SumsPlan",
    "Term",
    "Theta",
    "ThetaPlan",
    "TreatedScore",
    "TreatmentRate",
    "TreatmentRatePlan",
    "Value",
    "ValuePlan",
    "ValueScore",
    "WeightsPlan",
    "WithConstant",
    "declared_partition",
    "solve_theta",
    "solve_weights",
]
