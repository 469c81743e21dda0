"""Excess objective and error of the parameter against n, beside the consistency theorem of the paper."""

from dp2erm_cvx.studies.rates.experiment import Rates

__all__ = ["Rates"]
