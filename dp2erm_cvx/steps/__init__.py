"""Private steps: each is planned from public quantities and run on records and on what was released.

``propensity`` releases the coefficient of a private first stage, ``theta`` a weighted convex program,
``value`` what its rule is worth, ``center`` a regression of the outcome, ``rule`` one of effects, ``sides``
counts by side of a rule, ``arms`` regressions of the outcome by arm, ``cells`` means by cell, ``score`` an
average effect, ``ranges`` those of columns that nobody declared. Another step is
one more module beside them.
"""

from dp2erm_cvx.steps.cell_nuisances import CellNuisances
from dp2erm_cvx.steps.cell_sums import CellSums, CellSumsPlan
from dp2erm_cvx.steps.center import ArmsFit, Center, CenterPlan, Refit, RefitPlan, RuleFit, RuleFitPlan
from dp2erm_cvx.steps.covariates import (
    CovariateLaw,
    CovariateMean,
    CovariateMeanPlan,
    MeanSquare,
    MeanSquarePlan,
)
from dp2erm_cvx.steps.estimands import (
    AverageScore,
    GroupScore,
    OverlapScore,
    RiskScores,
    TreatedScore,
    ValueScore,
)
from dp2erm_cvx.steps.factors import Balance, Factors, ResponseRows, RuleRows
from dp2erm_cvx.steps.mean_score import MeanScore, MeanScorePlan, RuleValue, RuleValuePlan
from dp2erm_cvx.steps.nuisances import LinearNuisances, Nuisances
from dp2erm_cvx.steps.number import SideCounts, SideCountsPlan, SumsPlan, TreatmentRate, TreatmentRatePlan
from dp2erm_cvx.steps.partition import Partition, declared_partition
from dp2erm_cvx.steps.precision import Precision
from dp2erm_cvx.steps.propensity import Propensity, PropensityPlan
from dp2erm_cvx.steps.ranges import ColumnRanges, ColumnRangesPlan
from dp2erm_cvx.steps.record_map import Arms, OutcomeRows, RecordMap, Rows, Term, WithConstant
from dp2erm_cvx.steps.rule_nuisances import RuleNuisances
from dp2erm_cvx.steps.score import EffectScore
from dp2erm_cvx.steps.shrinkage import Confounding, RidgeFit, TwoValues, shrinkage
from dp2erm_cvx.steps.solving import refuse_unsolvable, solve_theta, solve_weights
from dp2erm_cvx.steps.step import Execution, Inputs, Step, StepPlan, StepResult
from dp2erm_cvx.steps.theta import Theta, ThetaPlan
from dp2erm_cvx.steps.value import Value, ValuePlan
from dp2erm_cvx.steps.weights import WeightsPlan

__all__ = [
    "Arms",
    "ArmsFit",
    "AverageScore",
    "Balance",
    "CellNuisances",
    "CellSums",
    "CellSumsPlan",
    "Center",
    "CenterPlan",
    "ColumnRanges",
    "ColumnRangesPlan",
    "Confounding",
    "CovariateLaw",
    "CovariateMean",
    "CovariateMeanPlan",
    "EffectScore",
    "Execution",
    "Factors",
    "GroupScore",
    "Inputs",
    "LinearNuisances",
    "MeanScore",
    "MeanScorePlan",
    "MeanSquare",
    "MeanSquarePlan",
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
    "RidgeFit",
    "RiskScores",
    "Rows",
    "RuleFit",
    "RuleFitPlan",
    "RuleNuisances",
    "RuleRows",
    "RuleValue",
    "RuleValuePlan",
    "SideCounts",
    "SideCountsPlan",
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
    "TwoValues",
    "Value",
    "ValuePlan",
    "ValueScore",
    "WeightsPlan",
    "WithConstant",
    "declared_partition",
    "refuse_unsolvable",
    "shrinkage",
    "solve_theta",
    "solve_weights",
]
