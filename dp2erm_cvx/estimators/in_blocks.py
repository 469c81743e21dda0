"""What a fit asks of records in blocks before anything is spent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dp2erm_cvx.blocked import BlockedDataset, told_bytes
from dp2erm_cvx.data import Dataset, Public
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import ProgramError
from dp2erm_cvx.estimators.fitting import arms_of, refuse_other_columns, refuse_small_arms
from dp2erm_cvx.plan import Plan
from dp2erm_cvx.solve import FirstCertified, private_solver
from dp2erm_cvx.solve.solvers import ConicSolver
from dp2erm_cvx.steps import Execution


def blocked_dataset(public: Public, data: BlockedDataset) -> BlockedDataset:
    """Raw data in blocks by what is declared: the same that :func:`dataset_of` makes in memory.

    Raises as it does. Where no codebook is declared, what is no record is found by a pass over all of them.
    """
    floor = public.arm_floor if isinstance(public, Domain) else None
    if public.codebook is not None and data.coded_by != public:
        data = data.coded(public)
    refuse_other_columns(public, data.columns)
    if public.codebook is None or floor is not None:
        # before anything is spent, as in memory
        arms = np.sum(data.blocks.map(arms_of), axis=0)
        if isinstance(public, Domain):
            refuse_small_arms(public, arms)
    return data


def in_blocks(plan: Plan, data: Dataset | BlockedDataset, execution: Execution) -> Execution:
    """How the plan is run on records in blocks: without the solvers that need all of them, tried last.

    Raises ProgramError where a program needs all records at once, or the solver that is asked for: by what is
    declared and by n, before anything is spent.
    """
    if isinstance(data, Dataset):
        return execution
    universe = plan.study.universe
    asked = private_solver(execution.solver)
    solvers = asked.solvers if isinstance(asked, FirstCertified) else (asked,)
    whole = [program.name for program in plan.programs if not program.takes_blocks(universe)]
    whole += [one.name for one in solvers[:1] if isinstance(one, ConicSolver)]
    if whole:
        size = told_bytes(8 * data.n_samples * (len(data.columns) + 2))
        raise ProgramError(
            f"{whole[0]} needs all records in memory at once, {size} of them and more to work on, and this "
            "dataset is read in blocks: choose a program of sums over records with newton or "
            "projected_gradient, or fit to a Dataset"
        )
    left = tuple(one for one in solvers if not isinstance(one, ConicSolver))
    return replace(execution, solver=FirstCertified(left)) if isinstance(asked, FirstCertified) else execution
