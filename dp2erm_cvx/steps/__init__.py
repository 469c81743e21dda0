"""Private steps: each is planned from public quantities and run on records and on what was released.

A :class:`Fit` releases a perturbed minimizer: theta, a regression of the outcome, a propensity, a rule.
:class:`IntegerSums` release exact integers with noise: a rate, counts, cells, covariates, scores. Beside them
stand the ranges of columns that nobody declared, and the value of a weighted rule.
"""

from dp2erm_cvx.steps.cells import CellNuisances, CellSums, Partition, declared_partition
from dp2erm_cvx.steps.covariates import CovariateLaw, CovariateMean, MeanSquare, placed
from dp2erm_cvx.steps.estimands import (
    ArmScores,
    AverageScore,
    GroupScore,
    OverlapScore,
    RiskScores,
    TreatedScore,
    ValueScore,
)
from dp2erm_cvx.steps.fit import Fit
from dp2erm_cvx.steps.nuisances import (
    ArmNuisances,
    Confounding,
    LinearNuisances,
    Nuisances,
    RidgeFit,
    RuleNuisances,
    TwoValues,
    shrinkage,
)
from dp2erm_cvx.steps.propensity import ArmPropensity, enters_no_outcome
from dp2erm_cvx.steps.ranges import ColumnRanges
from dp2erm_cvx.steps.record_map import (
    Arms,
    Balance,
    Factors,
    OutcomeRows,
    RecordMap,
    Rows,
    RuleRows,
    Term,
    WithConstant,
)
from dp2erm_cvx.steps.score import EffectScore, MeanScore
from dp2erm_cvx.steps.step import Execution, Inputs, Precision, Step, StepResult
from dp2erm_cvx.steps.sums import IntegerSums, SideCounts, TreatmentRate
from dp2erm_cvx.steps.weights import WeightsPlan, refuse_unsolvable, solve_theta, solve_weights

__all__ = [
    "ArmNuisances",
    "ArmPropensity",
    "ArmScores",
    "Arms",
    "AverageScore",
    "Balance",
    "CellNuisances",
    "CellSums",
    "ColumnRanges",
    "Confounding",
    "CovariateLaw",
    "CovariateMean",
    "EffectScore",
    "Execution",
    "Factors",
    "Fit",
    "GroupScore",
    "Inputs",
    "IntegerSums",
    "LinearNuisances",
    "MeanScore",
    "MeanSquare",
    "Nuisances",
    "OutcomeRows",
    "OverlapScore",
    "Partition",
    "Precision",
    "RecordMap",
    "RidgeFit",
    "RiskScores",
    "Rows",
    "RuleNuisances",
    "RuleRows",
    "SideCounts",
    "Step",
    "StepResult",
    "Term",
    "TreatedScore",
    "TreatmentRate",
    "TwoValues",
    "ValueScore",
    "WeightsPlan",
    "WithConstant",
    "declared_partition",
    "enters_no_outcome",
    "placed",
    "refuse_unsolvable",
    "shrinkage",
    "solve_theta",
    "solve_weights",
]
