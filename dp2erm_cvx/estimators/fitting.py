"""What every private fit does: check the data, charge the ledger, and keep private workings to itself."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.blocked import BlockedDataset, told_bytes
from dp2erm_cvx.data import Dataset, NamedColumns, Public
from dp2erm_cvx.diagnostics.columns import dataset_counts
from dp2erm_cvx.domain import Domain
from dp2erm_cvx.errors import CalibrationError, DataError, DeclarationError, ProgramError
from dp2erm_cvx.estimators.scikit import ConfiguredEstimator
from dp2erm_cvx.ledger import Ledger, Receipt
from dp2erm_cvx.plan import NUMERICAL_SHARE, Pipeline, Plan, PlanResult, make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.private_ranges import PrivateRanges
from dp2erm_cvx.public import printable
from dp2erm_cvx.release.declaration import guarantee_of
from dp2erm_cvx.release.record import FITTED_BEFORE, BaseRelease, Guarantee, Standing
from dp2erm_cvx.solve import FirstCertified, Solver, by_design, private_solver
from dp2erm_cvx.solve.solvers import ConicSolver
from dp2erm_cvx.steps.step import Execution, StepResult
from dp2erm_cvx.tables import column_names

Stated = TypeVar("Stated", bound=BaseRelease)

#: Relative radius that the solutions behind a release are certified to.
TOLERANCE = 1e-6
#: What the grid of the weights and every solver leave room for.
LEAST_TOLERANCE = 1e-8
#: Numbers of records that stand for all: rules of use change at numbers a factor of 2 or more apart.
_NUMBERS = tuple(2**power for power in range(1, 54))


def dataset_of(public: Public, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Dataset:
    """Checked raw data (n, k), (n,), (n,), with the declared names of their columns, if there are any.

    Where a codebook is declared, it makes records of whatever their cells hold. Raises DataError for what is
    no data of the declared universe, DeclarationError where the columns are others.
    """
    dataset = _named_dataset(public, X, a, y)
    _refuse_small_arms(public, _arms_of(dataset))
    return dataset


def _arms_of(data: Dataset) -> tuple[int, int]:
    """Treated and untreated records."""
    return int(np.sum(data.a)), int(np.sum(1 - data.a))


def _refuse_small_arms(public: Public, arms: Sequence[int]) -> None:
    """Raise DataError where an arm is smaller than the domain declares."""
    floor = public.arm_floor if isinstance(public, Domain) else None
    if floor is not None and min(arms) < floor:
        # outside the guarantee, like every message about invalid data: no theorem covers such a dataset
        raise DataError(
            f"an arm has fewer than the declared arm_floor = {floor} records: these data are outside the "
            "declared universe"
        )


def _named_dataset(public: Public, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Dataset:
    if isinstance(a, str) and isinstance(y, str):
        covariates = "X" if public.codebook is not None else f"X.drop(columns=[{a!r}, {y!r}])"
        raise DataError(f"a and y are names: give their cells, by fit({covariates}, X[{a!r}], X[{y!r}])")
    if public.codebook is not None and not isinstance(X, NamedColumns):
        return Dataset.coded(public, X, a, y)
    columns, named = public.columns, column_names(X)
    book = public.codebook
    n_arms = 2 if book is None else len(book.treatment.labels)
    dataset = Dataset.from_arrays(X, a, y, columns if named is None else tuple(named), n_arms)
    if book is not None:
        if (sampling := getattr(X, "sampling", None)) is None and book.sampling_weights is not None:
            raise DataError("sampling weights are declared, and these columns come without any")
        if book.groups and (sampling is None or np.ndim(sampling) < 2):
            raise DataError("groups are declared, and these columns come without any")
        if book.unit is not None and (getattr(X, "person", None) is None or sampling is None):
            raise DataError("persons are declared to be units, and these columns come without any")
        persons = None if book.unit is None else book.unit.number
        dataset = replace(dataset, sampling=sampling, person=getattr(X, "person", None), persons=persons)
    _refuse_other_columns(public, dataset.columns)
    return dataset


def _refuse_other_columns(public: Public, columns: tuple[str, ...]) -> None:
    """Raise DeclarationError where the data have other columns than the domain."""
    if public.columns is not None and columns != public.columns:
        raise DeclarationError(
            f"the domain declares the columns {', '.join(public.columns)}; the data have {', '.join(columns)}"
        )


def checked_domain(domain: object) -> Domain:
    """Raise DeclarationError unless this is a Domain: a subclass could read its rules off the data."""
    if not isinstance(domain, Domain) or type(domain) is not Domain:
        raise DeclarationError(f"domain = {domain!r}: must be a Domain")
    return domain


@dataclass(eq=False, repr=False)
class PrivateEstimator(ConfiguredEstimator):
    """Common to everything that releases something from records: its fields are its settings.

    Parameters
    ----------
    domain
        The public universe of records.
    budget
        (epsilon, delta) of this release.
    noise
        "gamma" (pure), "gaussian" (needs delta > 0) or "box" (pure, needs ranges); of effects and rules also
        "auto", the shorter of gamma and box noise. Gaussian noise is pure in steps of these where that errs
        less; box noise is less than gamma noise where records are at the corners of their ranges.
    solver
        Solver of every program: newton, projected_gradient, clarabel, scs, osqp, any other of CVXPY, or
        first_certified. A name is followed by Newton and projected gradient where it does not certify, with
        the same noise. Settings of your own are used alone: unless they reach as far, whether they certify
        depends on the data, and the release says that it is conditional.
    seed
        For tests and experiments only: a seeded fit is marked as not private, and charges nothing.
    arithmetic
        "counted": the numerical error of what is released is covered by noise of its own (extra ``secure``);
        "assumed": exact arithmetic is assumed, and the release says so; "auto": counted where it can be.
    numerical_share
        Share of epsilon that pays for counted arithmetic.
    ledger
        The ledger to charge before noise is drawn. What the plan guarantees is on disk before the first of
        it; ``dataset`` is declared too.
    dataset
        As in :class:`~dp2erm_cvx.ledger.Account`.
    """

    #: A Domain, or what stands for one.
    domain: Any
    budget: Budget
    _: KW_ONLY
    noise: str = "gamma"
    solver: str | Solver = "first_certified"
    seed: int | None = None
    arithmetic: str = "auto"
    numerical_share: float = NUMERICAL_SHARE
    ledger: Ledger | None = None
    dataset: str | None = None
    #: Asked before every charge, once all that is declared has been judged: what it raises costs nothing.
    before_charge: Callable[[], None] | None = field(default=None, init=False)
    #: Gets the plan and what its run found, where it is set: private, for the data holder alone.
    look: Callable[[Plan[Any], PlanResult], None] | None = field(default=None, init=False)
    #: The file that the release goes to, where that is known: the note of the charge names it.
    output: str | None = field(default=None, init=False)
    #: Steps that earlier questions of a study release, see :class:`~dp2erm_cvx.plan.Pipeline`; and by whom.
    before: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, init=False)
    owners: Mapping[str, PrivateEstimator] = field(default_factory=dict, init=False)
    #: The budget as it was declared, and as a study enlarges it by what its questions save.
    enlarged: tuple[Budget, Budget] | None = field(default=None, init=False)

    #: What the weights of a first stage are certified to, where there are any.
    tolerance = TOLERANCE

    def declared_budget(self) -> Budget:
        """Raises DeclarationError where the budget is none."""
        if not isinstance(self.budget, Budget):
            raise DeclarationError(f"budget = {self.budget!r}: must be a Budget")
        if self.enlarged is not None and self.enlarged[0] == self.budget:
            return self.enlarged[1]
        return self.budget

    def dataset_from(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> Dataset:
        """Checked raw data (n, k), (n,), (n,), with names. Raises DataError and DeclarationError."""
        return dataset_of(self.public(), X, a, y)

    def _study(self, n_samples: int, n_features: int) -> Pipeline:
        """What is declared, for datasets of this size. Raises DeclarationError where something is invalid."""
        raise NotImplementedError

    def plan(self, n_samples: int, n_features: int) -> Plan[Any]:
        """The calibrated steps, from public quantities alone.

        Raises DeclarationError or CalibrationError where something declared is invalid or not covered.
        """
        self.execution()
        return make_plan(self._study(n_samples, n_features))

    def check(self, columns: Sequence[str] | None = None) -> None:
        """Judge what is declared, before any data are read: whether it suits any number of records.

        ``columns`` name the covariates of the data where that is known. What is not declared follows from the
        number of records: what suits no propensity, say, may suit more of them. Raises DeclarationError or
        SolverError where every fit does.
        """
        self.execution()
        book = self.public().codebook
        for number in _NUMBERS if book is None or book.unit is None else (book.unit.number,):
            try:
                self._judged(number, columns)
            except DeclarationError as error:
                refused = error
            else:
                return
        raise refused

    def _judged(self, n_samples: int, columns: Sequence[str] | None) -> None:
        """Raise DeclarationError where something is invalid for covariates of these names, or any."""
        public = self.public()
        known = columns or public.columns or public.ranges
        self._study(n_samples, 1 if known is None else len(known))

    def fit(
        self, X: ArrayLike | BlockedDataset, a: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> Self:
        """Release from X (n, k), a (n,) in {0, 1} and y (n,), or from a blocked dataset alone.

        Raises DeclarationError or CalibrationError for what was declared, DataError for invalid data
        (for the data holder: outside the guarantee), LedgerError where the ledger refuses the charge, which
        depends on public numbers alone. A solution that could not be certified does not raise; the release
        then says that its guarantee is conditional, unless that covers any weights. Warns of a long solve, by
        public numbers, before anything is spent. For the data holder only, it warns of records in memory that
        hardly suit what is declared, and of weights 1 in place of those that were not found.
        """
        raw = self._data(X, a, y)
        plan, data = self._planned(raw)
        if isinstance(raw, Dataset) and not isinstance(X, NamedColumns):
            counts = dataset_counts(raw, self.public())
            for line in filter(None, [*counts.wrong, self.advice(counts.values)]):
                warnings.warn(f"{line} (for the data holder only)", stacklevel=2)
        found, guarantee = self._run(plan, data, self._note(plan))
        self._keep(plan, data, found, guarantee)
        self._saw(raw.columns)
        return self

    def prepared(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> tuple[Plan[Any], Dataset]:
        """The plan of a fit to raw data, and the records that it is run on. Raises as :meth:`plan` does."""
        return self._planned(self.dataset_from(X, a, y))

    def _planned(self, raw: Any) -> tuple[Plan[Any], Any]:
        """The same for checked data."""
        return self.plan(raw.n_samples, len(raw.columns)), raw

    def _note(self, plan: Any) -> str:
        """What a ledger says of the charge."""
        raise NotImplementedError

    def _keep(self, plan: Any, data: Any, found: PlanResult, guarantee: Guarantee) -> None:
        """Keep the release of a run, and what follows from it."""
        raise NotImplementedError

    def public(self) -> Domain | PrivateRanges:
        """What is declared about the records. Raises DeclarationError."""
        return checked_domain(self.domain)

    def _data(
        self, X: ArrayLike | BlockedDataset, a: ArrayLike | None, y: ArrayLike | None
    ) -> Dataset | BlockedDataset:
        """Checked raw data, in memory or in blocks. Raises DataError and DeclarationError."""
        if isinstance(X, BlockedDataset):
            if a is not None or y is not None:
                raise DataError("a BlockedDataset has its own treatments and outcomes: give no others")
            return blocked_dataset(self.public(), X)
        if a is None or y is None:
            raise DataError("a and y are missing: only a BlockedDataset comes with its own")
        return self.dataset_from(X, a, y)

    @property
    def score(self) -> NoReturn:
        """Always raises DeclarationError, which names what compares candidates.

        Raised as soon as it is looked up: a search of scikit-learn does so before its first fit, and nothing
        has been spent.
        """
        raise DeclarationError(self._no_score())

    def execution(self) -> Execution:
        """How a plan is run. Raises DeclarationError or SolverError where something declared is invalid."""
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise DeclarationError(f"seed = {self.seed!r}: must be a whole number of at least 0, or None")
        return Execution(private_solver(self.solver), self.tolerance, self.seed)

    def advice(self, values: Sequence[float]) -> str:
        """What to declare instead where outcomes have these values alone; mostly nothing."""
        return ""

    def _run(
        self, plan: Plan[Any], data: Dataset | BlockedDataset, what: str
    ) -> tuple[PlanResult, Guarantee]:
        """Charge the ledger for ``what`` is released, run the plan, and state what that guarantees."""
        execution = in_blocks(plan, data, self.execution())
        fitted = (
            plan,
            data.columns,
            execution.seed is None,
            _digest(data) if self.owners or self.enlarged else b"",
        )
        for name, owner in self.owners.items():
            _refuse_other(name, self.before[name]["of"], owner, fitted)
        self.receipt_ = self._charge(plan, what, data)
        earlier = {name: owner.steps_[name] for name, owner in self.owners.items()}
        found = plan.run(data, execution, earlier)
        self.ran_ = fitted
        self.steps_: Mapping[str, StepResult] = {
            name: replace(result, solution=None, noise=None) for name, result in found.steps.items()
        }
        if self.look is not None:
            self.look(plan, found)
        certifies, seeded = by_design(private_solver(execution.solver)), execution.seed is not None
        return found, guarantee_of(plan, certifies, found.certified, found.by_gap, seeded)

    def _charge(self, plan: Plan[Any], what: str, data: Dataset | BlockedDataset) -> Receipt | None:
        """Before any noise: whatever happens later, a release that could be shown has been paid for."""
        if self.before_charge is not None:
            self.before_charge()
        if self.seed is None:
            self._refuse_search()
        if learned := self._fitted_before():
            warnings.warn(
                f"step {', '.join(learned)} of this Pipeline read all of these records before: that is not "
                "covered by the guarantee. Declare ranges in the Domain, which scales every record by itself",
                stacklevel=4,
            )
        if self.ledger is None and self.dataset is None:
            return None
        if not isinstance(self.ledger, Ledger) or self.dataset is None:
            raise DeclarationError(
                "ledger and dataset go together: give a Ledger and the name of the data set"
            )
        if self.seed is not None:
            warnings.warn("seeded, hence not private: nothing is charged to the ledger", stacklevel=4)
            return None
        if not plan.proven:
            reason = next(step.reason for step in plan.steps if not step.proven)
            raise CalibrationError(f"{reason}, which is not proven: no charge to the ledger covers it")
        domain, book = plan.study.universe.domain, self.public().codebook
        treatment = (None if book is None else book.treatment.column) or data.treatment
        outcome = (None if book is None else book.outcome) or data.outcome
        to = f", to {self.output}" if self.output else ""
        note = printable(f"{what} of {treatment} on {outcome}{to}")
        how = {"relation": domain.relation, "unit": domain.protected, "curve": plan.curve}
        return self.ledger.charge(self.dataset, plan.guarantee, note, **how)

    def _stated(self, release: Stated) -> Stated:
        """The release, with what it rests on where a Pipeline has read the records before."""
        if not (learned := self._fitted_before()):
            return release
        guarantee = release.guarantee
        assumptions = (*guarantee.assumptions, f"step {', '.join(learned)} {FITTED_BEFORE}")
        standing = Standing.CONDITIONAL if guarantee.private else guarantee.standing
        guarantee = replace(guarantee, assumptions=assumptions, standing=standing)
        changed: Stated = replace(release, guarantee=guarantee)
        return changed

    def __getstate__(self) -> dict[str, Any]:
        # a pickle travels: it carries the release, not the private workings
        left = ("private_workings_", "before_charge", "look", "ran_", "steps_")
        state = {name: value for name, value in super().__getstate__().items() if name not in left}
        # copies know nothing of the other questions of a study: each has its own part of the budget
        return state | {"before": {}, "owners": {}, "enlarged": None}


def _digest(data: Dataset | BlockedDataset) -> bytes:
    """BLAKE2 of what enters steps without outcomes. Private: it stays in memory and is never released."""
    if isinstance(data, BlockedDataset):
        return hashlib.blake2b(b"".join(data.blocks.map(_digest))).digest()
    digest = hashlib.blake2b()
    for part in (data.X, data.a, data.sampling, data.person):
        digest.update(b"-" if part is None else np.ascontiguousarray(part).data)
    return digest.digest()


def _refuse_other(name: str, of: str, owner: PrivateEstimator, fitted: tuple[Any, ...]) -> None:
    """Raise DeclarationError where the step that the question ``of`` released is not that of this fit.

    DataError where it was of other records. A study that is fitted to one table, in memory or in blocks, is
    never refused for that: the refusal is about two tables, and for the data holder.
    """
    if not hasattr(owner, "ran_"):
        raise DeclarationError(f"{of} comes before this question, which takes over steps of it")
    (plan, columns, unseeded, records), (earlier, of_columns, fresh, seen) = fitted, owner.ran_
    own, other = plan.step(name), earlier.step(name)
    spent = [one and (one.guarantee, one.calibration) for one in (own, other)]
    if spent[0] != spent[1] or columns != of_columns:
        raise DeclarationError(
            f"{name}: is not the step that {of} released, of other columns or another number of records: "
            "plan the questions for the records that they are fitted to"
        )
    if fresh != unseeded:
        raise DeclarationError(f"seed: {of} has one, or this question: give both one, or neither")
    if seen and seen != records:
        raise DataError(f"{name}: {of} released it of other records: fit both to one table")


def blocked_dataset(public: Public, data: BlockedDataset) -> BlockedDataset:
    """Raw data in blocks by what is declared: the same that :func:`dataset_of` makes in memory.

    Raises as it does. Where no codebook is declared, what is no record is found by a pass over all of them.
    """
    floor = public.arm_floor if isinstance(public, Domain) else None
    if public.codebook is not None and data.coded_by != public:
        data = data.coded(public)
    if data.n_samples < 2:
        raise DataError(f"{data.n_samples} record(s): at least 2 are needed")
    _refuse_other_columns(public, data.columns)
    if public.codebook is None or floor is not None:
        # before anything is spent, as in memory
        _refuse_small_arms(public, np.sum(data.blocks.map(_arms_of), axis=0))
    return data


def in_blocks(plan: Plan[Any], data: Dataset | BlockedDataset, execution: Execution) -> Execution:
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
