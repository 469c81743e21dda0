"""The effect of giving up smoking on weight, over budgets: what a release would say, many times."""

from dp2erm_cvx.studies.nhefs_budgets.experiment import NhefsBudgets

__all__ = ["NhefsBudgets"]
