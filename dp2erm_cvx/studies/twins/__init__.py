"""Rules for semi-synthetic outcomes on the covariates of Twins (Table 1 of the paper)."""

from dp2erm_cvx.studies.twins.experiment import TwinsStudy

__all__ = ["TwinsStudy"]
