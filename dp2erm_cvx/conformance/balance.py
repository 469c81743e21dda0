"""Whether the weights do what weights are for."""

from __future__ import annotations

import numpy as np

from dp2erm_cvx.conformance.outcome import Outcome, noted, passed
from dp2erm_cvx.conformance.samples import standard_records
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Records

_N = 200


def balance(subject: Subject) -> Outcome:
    """Largest difference of the arms' mean covariates before and after: a wrong sign makes it larger.

    Noted only: it is no matter of privacy, and a scheme may have another target.
    """
    check, records = "balance", standard_records(_N)
    w = subject.solve(records).value
    if min(float(np.sum(w[records.a == arm])) for arm in (0, 1)) < 1e-9 * _N:
        return noted(check, "one arm has no weight")
    before, after = _difference(records, np.ones(_N)), _difference(records, w)
    text = f"largest difference of covariate means between arms: {before:.3f} before, {after:.3f} after"
    return passed(check, text) if after <= before * (1 + 1e-9) else noted(check, f"{text}: a wrong sign?")


def _difference(records: Records, w: Array) -> float:
    X, a = records.covariates, records.a
    control, treated = (np.average(X[a == arm], axis=0, weights=w[a == arm]) for arm in (0, 1))
    return float(np.max(np.abs(treated - control)))
