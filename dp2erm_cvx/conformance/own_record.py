"""Whether what the theorems take as a function of one record is one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.conformance.outcome import Outcome, failed, noted, passed
from dp2erm_cvx.conformance.own_objective import shared_terms
from dp2erm_cvx.conformance.samples import N_FEATURES, check_domain, neighbors, standard_records
from dp2erm_cvx.conformance.subject import Subject
from dp2erm_cvx.domain import Array, Records
from dp2erm_cvx.program import ClosedFormWeights, FirstStage, KernelFirstStage, SeparableFirstStage

#: Sums over the covariates of one record may round otherwise beside other records.
_ROUNDING = 1e-9


def own_record(subject: Subject) -> Outcome:
    """Rows, weights and kernel entries of records among others, against those of each record alone.

    A quantity that is centered, scaled or ranked by the sample differs: one changed record then changes the
    terms of all others, which no theorem of these kinds covers. Then the objective that is solved.
    """
    check, program = "own record", subject.program
    assert isinstance(program, FirstStage)
    compared: dict[str, None] = {}
    for what, together, alone in _all_pairs(program):
        scale = max(1.0, float(np.max(np.abs(alone), initial=0.0)))
        if together.shape != alone.shape or not np.max(np.abs(together - alone)) <= _ROUNDING * scale:
            return failed(check, f"{what}: depends on the other records, which no theorem covers")
        compared[what] = None
    for what, wrong in shared_terms(program.resolve(check_domain()), subject.seed):
        if wrong:
            return failed(check, f"{wrong}, which no theorem of kind {program.kind.value!r} covers")
        compared[what] = None
    if not compared:
        return noted(check, f"nothing to compare: {program.kind.proved}")
    return passed(check, f"{', '.join(compared)}: a record's own, whatever the others are")


def _all_pairs(program: FirstStage) -> Iterator[tuple[str, Array, Array]]:
    for records in (standard_records(20), *next(neighbors(1, 20, seed=3))):
        yield from _pairs(program.resolve(records.domain), records)


def _pairs(program: FirstStage, records: Records) -> Iterator[tuple[str, Array, Array]]:
    X = records.covariates
    each = [_one(records, i) for i in range(records.n_samples)]
    if isinstance(program, SeparableFirstStage):
        yield "rows", program.rows(records), np.vstack([program.rows(one) for one in each])
        weight_rows = program.weight_rows(records)
        if weight_rows is not None:
            each_row = [program.weight_rows(one) for one in each]
            yield "weight_rows", weight_rows, np.vstack([one for one in each_row if one is not None])
        terms = program.linear_terms(records)
        if terms is not None:
            own = [program.linear_terms(one) for one in each]
            yield "linear_terms", terms, np.vstack([one for one in own if one is not None])
        margins = np.linspace(-2.0, 2.0, 41)
        for what, function in (("log_weight", program.log_weight.log), ("loss", program.loss.slope)):
            alone = [function(margins[i : i + 1]) for i in range(len(margins))]
            yield what, function(margins), np.concatenate(alone)
    elif isinstance(program, ClosedFormWeights):
        alone = [program.unnormalized(one) for one in each]
        yield "unnormalized", program.unnormalized(records), np.concatenate(alone)
    elif isinstance(program, KernelFirstStage):
        kernel = program.kernel
        entries = np.array([[kernel.cross(x[None], z[None])[0, 0] for z in X] for x in X])
        yield "kernel", kernel.matrix(X), entries


def _one(records: Records, i: int) -> Records:
    assert records.X.shape[1] == N_FEATURES + 1
    return records.domain.records(records.covariates[i : i + 1], records.a[i : i + 1], records.y[i : i + 1])
