"""Private steps: each is planned from public quantities and run on records.

A step also knows what was released before it. A :class:`~dp2erm_cvx.steps.fit.Fit` releases a
perturbed minimizer: theta, a regression of the outcome, a propensity, a rule.
:class:`~dp2erm_cvx.steps.sums.IntegerSums` release exact integers with noise: a rate, counts,
covariates, scores. Beside them stand the ranges of columns that nobody declared.
"""
