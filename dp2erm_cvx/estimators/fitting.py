"""Base of every private fit: check the data, charge the ledger, run the plan, state the release."""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from types import FrameType, MappingProxyType
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from dp2erm_cvx.checks import whole_number
from dp2erm_cvx.data.blocked import BlockedDataset, size_text
from dp2erm_cvx.data.dataset import Dataset, Public, cells_of
from dp2erm_cvx.data.domain import Domain
from dp2erm_cvx.diagnostics.look import AskedAbout, look, rows_that_do_not_match, seen_of
from dp2erm_cvx.diagnostics.look.records import SAMPLE
from dp2erm_cvx.errors import (
    CalibrationError,
    DataError,
    DeclarationError,
    ProgramError,
    WorkerError,
    known_names,
)
from dp2erm_cvx.ledger import Ledger, Receipt
from dp2erm_cvx.plan import NUMERICAL_SHARE, Pipeline, Plan, PlanResult, make_plan
from dp2erm_cvx.plan.standing import standing_in_words
from dp2erm_cvx.privacy import Budget, Standing
from dp2erm_cvx.program import registry
from dp2erm_cvx.program.stage import Program
from dp2erm_cvx.program.standing import CONDITIONAL
from dp2erm_cvx.release.declaration import guarantee_of
from dp2erm_cvx.release.record import FITTED_BEFORE, BaseRelease, Guarantee
from dp2erm_cvx.solve import FirstCertified, Solver, by_design, private_solver
from dp2erm_cvx.solve.solvers import ConicSolver
from dp2erm_cvx.steps.execution import Execution, StepResult

#: Relative radius that the solutions behind a release are certified to.
TOLERANCE = 1e-6
#: What the grid of the weights and every solver leave room for.
LEAST_TOLERANCE = 1e-8
#: Numbers of records that stand for all: rules of use change at numbers a factor of 2 or more
#: apart.
_NUMBERS = tuple(2**power for power in range(1, 54))
#: What has settings of its own, which are reached as ``first_stage__ridge`` and
#: ``budget__epsilon``.
_NESTED = ("domain", "budget", "first_stage", "second_stage", "weights")


@dataclass(frozen=True, eq=False)
class PlanRun:
    """What the run of a plan gave.

    Parameters
    ----------
    release
        The only thing to publish.
    plan
        What was run.
    result
        What it found. Private: for the data holder, and for later questions of the same study.
    """

    release: Any
    plan: Plan[Any]
    result: PlanResult

    def results_for_later(self) -> dict[str, StepResult]:
        """What later questions may take over: results of the steps without solutions and noise."""
        steps = self.result.steps.items()
        return {name: replace(step, solution=None, noise=None) for name, step in steps}


class ConfiguredEstimator:
    """Settings by name, those of programs, domain and budget included, as scikit-learn has them.

    Pipelines, ``clone`` and searches of scikit-learn take it for one of theirs. It is derived from
    none of their classes, because scikit-learn takes longer to import than a small study takes to
    be answered.
    """

    def __repr__(self) -> str:
        defaults = self._defaults()
        own = self.get_params(deep=False)
        stated = [f"{name}={value!r}" for name, value in own.items() if value is not defaults[name]]
        return f"{type(self).__name__}({', '.join(stated)})"

    def _repr_html_(self) -> str:
        """The settings as scikit-learn shows those of its estimators in a notebook."""
        from sklearn.utils import estimator_html_repr

        text: str = estimator_html_repr(self)
        return text

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator: it is no classifier, and needs a fit."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Settings by name.

        Where ``deep``, those of programs, domain and budget are among them, as
        ``first_stage__ridge``. A program that is given by its name has its default settings.
        """
        params = {name: getattr(self, name) for name in sorted(self._defaults())}
        if not deep:
            return params
        for outer in _NESTED:
            inner = _settings(build_program(outer, params.get(outer)))
            params |= {f"{outer}__{name}": value for name, value in inner.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings by name, ``first_stage__ridge`` and the like included.

        Programs, domains and budgets are never changed in place: a new one takes the place of the
        old.

        Raises
        ------
        DeclarationError
            For an unknown name or an invalid value; then nothing is changed.
        """
        own = self.get_params(deep=False)
        changing = {name.partition("__")[0] for name in params if "__" in name}
        whole: dict[str, Any] = {}
        known = list(own)
        for outer in _NESTED:
            if outer in own and outer in changing:
                # The outer one may be new as well.
                whole[outer] = build_program(outer, params.get(outer, own[outer]))
                known += [f"{outer}__{name}" for name in _settings(whole[outer])]
        changed: dict[str, Any] = {}
        inner: dict[str, dict[str, Any]] = {outer: {} for outer in whole}
        for name, value in params.items():
            if name not in known:
                kind = type(self).__name__
                raise DeclarationError(
                    f"{kind} has no setting {name!r}; {known_names(name, sorted(known))}"
                )
            outer, _, setting = name.partition("__")
            if setting:
                inner[outer][setting] = value
            else:
                changed[outer] = value
        for outer, values in inner.items():
            changed[outer] = _with_settings(whole[outer], values)
        for name, value in changed.items():
            setattr(self, name, value)
        return self

    def settings_shared_with(self, study: type, *but: str) -> dict[str, Any]:
        """The settings that a ``study`` has as well, by name."""
        names = {field.name for field in dataclasses.fields(study)} - {*but, *_NESTED}
        return {name: value for name, value in self.get_params(deep=False).items() if name in names}

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Defaults of the settings by name."""
        known: Any = cls
        return {one.name: one.default for one in dataclasses.fields(known) if one.init}

    def _refuse_unfitted(self) -> None:
        """Raise scikit-learn's NotFittedError where nothing has been released yet."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)

    def _remember_columns(self, columns: tuple[str, ...]) -> None:
        """Remember the columns of a fit, as scikit-learn names them."""
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array(columns, dtype=object)

    def _steps_fitted_before(self) -> tuple[str, ...]:
        """Names of the steps that a Pipeline around this fit has fitted to the same records.

        Steps of scikit-learn that learn nothing are none of them. A function counts unless it is a
        ufunc of numpy, as another may read all rows; so do steps of others, and frozen ones: nobody
        knows what they were fitted to. Only pipelines of scikit-learn are seen.
        """
        names: list[str] = []
        known: Any = sys.modules.get("sklearn.pipeline")
        if known is None:
            # Nobody has made a pipeline.
            return ()
        last: Any = self
        for frame in _callers():
            pipeline = frame.f_locals.get("self")
            if isinstance(pipeline, known.Pipeline) and pipeline.steps[-1][1] is last:
                names += [name for name, step in pipeline.steps[:-1] if _learns(step)]
                last = pipeline  # perhaps the last step of another
        return tuple(names)


def build_program(outer: str, value: Any) -> Any:
    """The program of a name; anything else as it stands.

    Raises
    ------
    ProgramError
        For an unknown name.
    """
    if not isinstance(value, str):
        return value
    if outer == "first_stage":
        return registry.build(registry.first_stages(), value)
    if outer == "second_stage":
        return registry.build(registry.second_stages(), value)
    return value


def _with_settings(value: Any, changes: dict[str, Any]) -> Any:
    """A program, a domain or a budget with some of its settings changed."""
    if isinstance(value, Program):
        return value.with_settings(**changes)
    return replace(value, **changes)


def _settings(value: Any) -> dict[str, Any]:
    """Settings of a program, a domain or a budget by name; none of anything else."""
    if isinstance(value, Program):
        return {name: value.value(name) for name in value.setting_fields()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return {}
    names = [field.name for field in dataclasses.fields(value) if field.init]
    return {name: getattr(value, name) for name in names}


def _learns(step: Any) -> bool:
    """True unless a step of a Pipeline surely learns nothing from the records."""
    if step is None or step == "passthrough":
        return False
    function = getattr(step, "func", None)
    elementwise = isinstance(function, np.ufunc) and function.signature is None
    ours = type(step).__module__.startswith("sklearn.") and (function is None or elementwise)
    return not ours or bool(step.__sklearn_tags__().requires_fit)


def _callers() -> Iterator[FrameType]:
    """The frames that called: scikit-learn does not tell an estimator who fits it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def names_or_numbers(n_features: int | Sequence[str]) -> Sequence[str] | range:
    """The names of covariates, or their numbers where only how many is known.

    Raises
    ------
    DeclarationError
        For what is neither.
    """
    if isinstance(n_features, Sequence) and not isinstance(n_features, str):
        return n_features
    return range(whole_number("n_features", n_features, at_least=1))


def checked_domain(domain: object) -> Domain:
    """The same, a Domain.

    Raises
    ------
    DeclarationError
        For anything else, subclasses included, which could read their rules off the data.
    """
    if not isinstance(domain, Domain) or type(domain) is not Domain:
        raise DeclarationError(f"domain = {domain!r}: must be a Domain")
    return domain


@dataclass(eq=False, repr=False)
class PrivateEstimator(ConfiguredEstimator):
    """Common to everything that releases something from records: its fields are its settings.

    Its methods call each other in this order. ``*`` marks those that every subclass overrides,
    ``+`` those that some do.

    - ``fit`` checks the records by ``public+``, then calls ``plan+``.
    - ``plan+`` makes the calibrated steps of ``_study*``.
    - The look at the records asks ``asked_about+``, whose ``advice+`` is on outcomes.
    - ``_charge_and_run`` calls the rest: first ``before_run+``, which refuses what cannot be run.
    - ``charge`` charges the ledger, and calls the release ``_name_of_release*`` in its note.
    - ``run_plan`` draws noise for the records of ``_select_columns+``, calls ``_warn_of_result+``
      and returns the release of ``_make_release*``.
    - ``after_run``, where it is set, and ``_keep_workings+`` get what the run found.

    ``check`` reads no records. Where nobody names their covariates it assumes those of
    ``_assumed_covariates+``.

    Parameters
    ----------
    domain
        The public universe of records.
    budget
        (epsilon, delta) of this release.
    noise
        "gamma" (pure), "gaussian" (needs delta > 0) or "box" (pure, needs ranges); of effects and
        rules also "auto", the shorter of gamma and box noise. Gaussian noise is pure in steps of
        these where that errs less; box noise is less than gamma noise where records are at the
        corners of their ranges.
    solver
        Solver of every program: newton, projected_gradient, clarabel, scs, osqp, any other of
        CVXPY, or first_certified. A name is followed by Newton and projected gradient where it does
        not certify, with the same noise. Settings of your own are used alone: unless they reach as
        far, whether they certify depends on the data, and the release says that it is conditional.
    seed
        For tests and experiments only: a seeded fit is marked as not private, and charges nothing.
    arithmetic
        "counted": the numerical error of what is released is covered by noise of its own (extra
        ``secure``); "assumed": exact arithmetic is assumed, and the release says so; "auto":
        counted where it can be.
    numerical_share
        Share of epsilon that pays for counted arithmetic.
    ledger
        The ledger to charge before noise is drawn. What the plan guarantees is on disk before the
        first of it; ``dataset`` is declared too.
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
    #: Called before every charge, once all that is declared has been judged: what it raises costs
    #: nothing.
    before_charge: Callable[[], None] | None = field(default=None, init=False)
    #: Gets the plan and what its run found, where it is set: private, for the data holder alone.
    after_run: Callable[[Plan[Any], PlanResult], None] | None = field(default=None, init=False)
    #: The file that the release goes to, where that is known: the note of the charge names it.
    output: str | None = field(default=None, init=False)

    #: What the weights of a first stage are certified to, where there are any.
    tolerance = TOLERANCE

    def fit(
        self,
        X: ArrayLike | Dataset | BlockedDataset,
        a: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        conditional: bool = False,
        accept: bool = False,
    ) -> Self:
        """Release from records.

        A release that will not be private by what is declared (``plan(...).standing``), or by the
        steps of a Pipeline before, is refused before anything is spent; ``conditional=True``
        consents to it. A seed is a consent of its own: nothing is charged then. A solution that
        could not be certified does not raise; the release then says that its guarantee is
        conditional, unless that covers any weights.

        A warning tells of a long solve, by public numbers, before anything is spent. For the data
        holder only, warnings tell what the look finds otherwise, and of weights 1 in place of those
        that were not found.

        Parameters
        ----------
        X
            (n, k) covariates, or a dataset alone, in memory or blocks.
        a
            (n,) treatments in {0, 1}; labels where a codebook is declared.
        y
            (n,) outcomes; labels where a codebook is declared.
        conditional
            Whether to release what will not be private.
        accept
            Whether to release all the same where a look at the records finds that they do not suit
            what is declared, see :mod:`~dp2erm_cvx.diagnostics.look`. Decide that in advance where
            others submit what is declared.

        Raises
        ------
        DeclarationError, CalibrationError
            For what was declared.
        DataError
            For invalid data, and for what the look finds (for the data holder: outside the
            guarantee).
        LedgerError
            Where the ledger refuses the charge, which depends on public numbers alone.
        """
        if self.seed is None and isinstance(self.ledger, Ledger) and self.dataset is not None:
            # Raises where there is no such account, before records are looked at.
            self.ledger.account(self.dataset)
        with telling_charge(None):
            raw = self._checked_data(X, a, y)
        plan = self.plan(raw.n_samples, raw.columns)
        if not conditional:
            self._refuse_weaker(plan)
        public = self.public()
        cells = cells_of(public, X, a, y)
        with telling_charge(None):
            seen = seen_of(raw, public, cells, most=SAMPLE)
        findings = rows_that_do_not_match(X, a, y) + look(seen, self.asked_about(raw.columns))
        if not accept:
            findings.refuse("fit(..., accept=True)")
        for line in (*findings.gross, *findings.lines):
            warnings.warn(f"{line} (for the data holder only)", stacklevel=2)
        return self._charge_and_run(raw, plan)

    def fit_announced(self, data: Dataset | BlockedDataset, plan: Plan[Any] | None = None) -> Self:
        """As :meth:`fit`, where the data holder was told of the records, or nobody holds them.

        Parameters
        ----------
        data
            The records.
        plan
            That of these settings for so many records with these columns, where it is known
            already.
        """
        with telling_charge(None):
            raw = self._checked_data(data, None, None)
        if plan is None:
            plan = self.plan(raw.n_samples, raw.columns)
        return self._charge_and_run(raw, plan)

    def _checked_data(
        self, X: ArrayLike | Dataset | BlockedDataset, a: ArrayLike | None, y: ArrayLike | None
    ) -> Dataset | BlockedDataset:
        """Checked raw data, in memory or in blocks. Raises DataError and DeclarationError."""
        alone = isinstance(X, BlockedDataset | Dataset)
        if alone and (a is not None or y is not None):
            raise DataError("a dataset has its own treatments and outcomes: give no others")
        if not alone and (a is None or y is None):
            raise DataError(
                "a and y are missing: only a Dataset and a BlockedDataset come with their own"
            )
        public = self.public()
        if isinstance(X, BlockedDataset):
            return X.declared(public)
        return Dataset.declared(public, X, a, y)

    def public(self) -> Public:
        """Declaration about the records. Raises DeclarationError."""
        return checked_domain(self.domain)

    def plan(self, n_samples: int, n_features: int | Sequence[str]) -> Plan[Any]:
        """The calibrated steps, from public quantities alone.

        Parameters
        ----------
        n_samples
            Number of records.
        n_features
            Number of covariates, or their names.

        Raises
        ------
        DeclarationError
            Where something declared is invalid.
        CalibrationError
            Where no theorem covers it, and where records would have no declared weights.
        """
        self.execution()
        study = self._study(n_samples, names_or_numbers(n_features))
        return self._with_execution(make_plan(study))

    def execution(self) -> Execution:
        """How a plan is run.

        Raises
        ------
        DeclarationError, SolverError
            Where something declared is invalid.
        """
        if self.seed is not None and (type(self.seed) is not int or self.seed < 0):
            raise DeclarationError(
                f"seed = {self.seed!r}: must be a whole number of at least 0, or None"
            )
        return Execution(private_solver(self.solver), self.tolerance, self.seed)

    def _study(self, n_samples: int, known: Sequence[str] | range) -> Pipeline:
        """The study that is declared, for covariates of these names or numbers.

        Raises
        ------
        DeclarationError
            For what cannot be declared.
        """
        raise NotImplementedError

    def declared_budget(self) -> Budget:
        """Raises DeclarationError where the budget is none."""
        if not isinstance(self.budget, Budget):
            raise DeclarationError(f"budget = {self.budget!r}: must be a Budget")
        return self.budget

    def _with_execution(self, plan: Plan[Any]) -> Plan[Any]:
        """A plan with what is known in advance of how these settings run it."""
        solves = any(step.programs for step in plan.steps)
        certifies = not solves or by_design(private_solver(self.solver))
        return replace(plan, certifies=certifies, seeded=self.seed is not None)

    def _refuse_weaker(self, plan: Plan[Any]) -> None:
        """Raise DeclarationError where an unseeded release will not be private."""
        if plan.seeded:
            return
        weaker = weaker_standings({"": plan})
        learned = self._steps_fitted_before()
        if learned:
            weaker.append(
                f"its release will be {CONDITIONAL} (step {', '.join(learned)} of this Pipeline "
                "read all of these records before)"
            )
        if weaker:
            text = "; ".join(weaker)
            raise DeclarationError(
                f"{text}. Nothing was charged; fit(..., conditional=True) releases all the same"
            )

    def asked_about(self, columns: Sequence[str]) -> AskedAbout:
        """What a look at records with these covariates has to know of what is asked."""
        return AskedAbout(self.public(), tuple(columns), advice=self.advice)

    def advice(self, values: Sequence[float]) -> str:
        """Advice on what to declare where outcomes have these values alone; mostly nothing."""
        return ""

    def _charge_and_run(self, raw: Dataset | BlockedDataset, plan: Plan[Any]) -> Self:
        """Charge the ledger, run the plan, and state what was released and what that guarantees."""
        with telling_charge(None):
            self.before_run(plan, raw)
        self.receipt_ = self.charge(plan, raw)
        with telling_charge(self.receipt_):
            run = self.run_plan(plan, raw)
        if self.after_run is not None:
            self.after_run(run.plan, run.result)
        self._keep_workings(run)
        self.release_: Any = self._name_steps_before(run.release)
        self._remember_columns(raw.columns)
        return self

    def before_run(self, plan: Plan[Any], raw: Dataset | BlockedDataset) -> None:
        """Refuse a plan that cannot be run on such records, before it is paid for.

        It depends on public numbers alone. A warning tells of a plan that takes long.

        Raises
        ------
        ProgramError
            Where a program needs all records in memory.
        WorkerError, FileError
            Where workers of a cluster differ, or do not reach the files.
        """
        in_blocks(plan, raw, self.execution())
        if isinstance(raw, BlockedDataset):
            raw.check_workers()

    def charge(self, plan: Plan[Any], data: Dataset | BlockedDataset) -> Receipt | None:
        """Charge what a plan guarantees, if there is a ledger; None without one.

        Raises
        ------
        LedgerError
            Where it does not fit.
        CalibrationError
            Where the plan is not proven.
        DeclarationError
            Within a search of scikit-learn.
        """
        if self.before_charge is not None:
            self.before_charge()
        if self.seed is None and _in_a_search():
            PrivateEstimator.score.__get__(self)  # raises, whatever score a subclass has
        learned = self._steps_fitted_before()
        if learned:
            warnings.warn(
                f"step {', '.join(learned)} of this Pipeline read all of these records before: "
                "that is not covered by the guarantee. Declare ranges in the Domain, which "
                "scales every record by itself",
                stacklevel=4,
            )
        if self.ledger is None and self.dataset is None:
            return None
        if not isinstance(self.ledger, Ledger) or self.dataset is None:
            raise DeclarationError(
                "ledger and dataset go together: a Ledger and the name of the data set"
            )
        if self.seed is not None:
            warnings.warn(
                "seeded, hence not private: nothing is charged to the ledger", stacklevel=4
            )
            return None
        what = self._name_of_release(plan)
        note = self._note_of_charge(what, data)
        return charge(self.ledger, self.dataset, {what: plan}, plan.guarantee, note)

    def _name_of_release(self, plan: Any) -> str:
        """What is released, in a few words for the note of a charge."""
        raise NotImplementedError

    def _note_of_charge(self, what: str, data: Dataset | BlockedDataset) -> str:
        """What the account says of a charge: of which columns, and to which file if it is known."""
        treatment = None
        outcome = None
        book = self.public().codebook
        if book is not None:
            treatment = book.treatment.column
            outcome = book.outcome
        note = f"{what} of {treatment or data.treatment} on {outcome or data.outcome}"
        if self.output:
            note += f", to {self.output}"
        return note

    def run_plan(
        self,
        plan: Plan[Any],
        raw: Dataset | BlockedDataset,
        earlier: Mapping[str, StepResult] = MappingProxyType({}),
    ) -> PlanRun:
        """Draw the noise of a plan and state what was released.

        It charges nothing, and changes nothing here.

        Parameters
        ----------
        plan
            Of these settings, see :meth:`plan`, for so many records and covariates.
        raw
            Checked records, in memory or in blocks.
        earlier
            Results of the steps that an earlier question released, by name: those that
            ``plan.study.before`` names. They have to be of the same records.

        Raises
        ------
        DeclarationError
            Where the plan is for other numbers of records or covariates.
        DataError
            Where the records are not of the declared domain.
        """
        data = self._select_columns(raw)
        universe = plan.study.universe
        if (universe.n_samples, universe.n_features) != (data.n_samples, len(data.columns)):
            raise DeclarationError(
                f"the plan is for {universe.n_samples} records of {universe.n_features} "
                f"covariates, and these are {data.n_samples} of {len(data.columns)}: plan for the "
                "records that you have"
            )
        execution = in_blocks(plan, data, self.execution())
        result = plan.run(data, execution, earlier)
        ran = result.plan
        self._warn_of_result(ran, result)
        guarantee = guarantee_of(self._with_execution(ran), result.certified, result.by_gap)
        return PlanRun(self._make_release(ran, data, result, guarantee), ran, result)

    def _select_columns(self, raw: Any) -> Any:
        """The columns of checked data that a plan is run on: mostly all."""
        return raw

    def _warn_of_result(self, plan: Plan[Any], result: PlanResult) -> None:
        """Warn the data holder of what a run met; mostly nothing."""

    def _make_release(self, plan: Any, data: Any, result: PlanResult, guarantee: Guarantee) -> Any:
        """The release of a run."""
        raise NotImplementedError

    def _keep_workings(self, run: PlanRun) -> None:
        """Keep private workings of a fit for the data holder; mostly none."""

    def _name_steps_before(self, release: BaseRelease) -> BaseRelease:
        """The release, with what it rests on where a Pipeline has read the records before."""
        learned = self._steps_fitted_before()
        if not learned:
            return release
        guarantee = release.guarantee
        changed = replace(
            guarantee,
            assumptions=(*guarantee.assumptions, f"step {', '.join(learned)} {FITTED_BEFORE}"),
            standing=Standing.FITTED_BEFORE if guarantee.private else guarantee.standing,
        )
        return replace(release, guarantee=changed)

    def plan_and_data(self, X: ArrayLike, a: ArrayLike, y: ArrayLike) -> tuple[Plan[Any], Dataset]:
        """The plan of a fit to raw data, and the records that it is run on.

        Raises as :meth:`plan` does.
        """
        raw = Dataset.declared(self.public(), X, a, y)
        return self.plan(raw.n_samples, raw.columns), self._select_columns(raw)

    def check(self, columns: Sequence[str] | None = None) -> None:
        """Judge what is declared, before any data are read: whether it suits any number of records.

        What is not declared follows from the number of records: what suits no propensity, say, may
        suit more of them.

        Parameters
        ----------
        columns
            Names of the covariates of the data, where they are known.

        Raises
        ------
        DeclarationError, SolverError
            Where every fit does.
        """
        self.execution()
        public = self.public()
        number = None if public.ranges is None else len(public.ranges)
        known = columns or public.columns or self._assumed_covariates(number)
        numbers: Sequence[int] = _NUMBERS
        book = public.codebook
        if book is not None and book.unit is not None:
            numbers = (book.unit.number,)
        for n_samples in numbers:
            try:
                self._study(n_samples, known)
            except DeclarationError as error:
                refused = error
            else:
                return
        raise refused

    def _assumed_covariates(self, number: int | None) -> Sequence[str] | range:
        """Covariates to judge a declaration for, where nobody names them.

        Their ``number`` may be unknown as well, and is then None.
        """
        return range(number or 1)

    @property
    def score(self) -> NoReturn:
        """Always raises DeclarationError, which names what compares candidates.

        Raised as soon as it is looked up: a search of scikit-learn does so before its first fit,
        and nothing has been spent.
        """
        raise DeclarationError(
            f"{type(self).__name__} has no score: one of private records is not private, and every "
            "fit of a search is a release that spends its budget again. Candidates are compared "
            "by a design (dp2erm_cvx.design), which simulates records or reads public ones"
        )

    def __dir__(self) -> list[str]:
        """Names without ``score``, which raises when it is looked up, as shells do to complete."""
        names = list(object.__dir__(self))
        if type(self).score is PrivateEstimator.score:
            names = [name for name in names if name != "score"]
        return [name for name in names if hasattr(self, name)]

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle carries: the release, and not the private workings."""
        left = ("private_workings_", "before_charge", "after_run")
        return {name: value for name, value in vars(self).items() if name not in left}


def _in_a_search() -> bool:
    """True if a search of scikit-learn has called."""
    modules = [str(frame.f_globals.get("__name__")) for frame in _callers()]
    return any(name.startswith("sklearn.model_selection.") for name in modules)


def charge(
    ledger: Ledger, dataset: str, plans: Mapping[str, Plan[Any]], total: Budget, note: str
) -> Receipt:
    """Charge what plans spend, all at once and before any noise.

    Whatever happens later, a release that could be shown has been paid for.

    Parameters
    ----------
    ledger
        The ledger.
    dataset
        Name of the data set in it.
    plans
        What is charged for, by name.
    total
        What they spend together.
    note
        What the releases are of; shortened to the line that a ledger takes.

    Raises
    ------
    CalibrationError
        Where a plan is not proven; nothing is charged then.
    LedgerError
        Where the total does not fit; nothing is charged then.
    """
    for name, plan in plans.items():
        if not plan.proven:
            why = "".join(f" ({step.reason})" for step in plan.steps if not step.proven)
            raise CalibrationError(f"{name}: is not proven{why}: no charge to the ledger covers it")
    (first, *others) = plans.values()
    domain = first.study.universe.domain
    curve = None if others else first.curve
    line = "".join(one if one.isprintable() else "?" for one in note).strip()
    if len(line) > 200:
        line = f"{line[:197]}..."
    return ledger.charge(
        dataset, total, line, relation=domain.relation, unit=domain.protected, curve=curve
    )


@contextmanager
def telling_charge(receipt: Receipt | None) -> Iterator[None]:
    """Say of a run that its workers end what was charged for it, and what another one costs.

    Parameters
    ----------
    receipt
        Of the charge; None where nothing was charged.
    """
    try:
        yield
    except WorkerError as error:
        told = "Nothing was charged"
        if receipt is not None:
            told = (
                f"{receipt.dataset!r} was charged {receipt}, which stays: another run is charged "
                "again"
            )
        raise WorkerError(f"{error}. {told}") from None


def weaker_standings(plans: Mapping[str, Plan[Any]]) -> list[str]:
    """What is said of every plan whose release will not be private, though its noise is not seeded.

    Parameters
    ----------
    plans
        By the names of their questions; one alone may have the empty name.
    """
    told = []
    for name, plan in plans.items():
        if plan.standing is Standing.PRIVATE or plan.seeded:
            continue
        whose = f"{name}: its" if name else "its"
        told.append(f"{whose} release will be {standing_in_words(plan)}")
    return told


def in_blocks(plan: Plan[Any], data: Dataset | BlockedDataset, execution: Execution) -> Execution:
    """How the plan is run on records in blocks: without the solvers that need all of them.

    Raises
    ------
    ProgramError
        Where a program needs all records at once, or the solver that is asked for: by what is
        declared and by n, before anything is spent.
    """
    if isinstance(data, Dataset):
        return execution
    universe = plan.study.universe
    first = private_solver(execution.solver)
    solvers = first.solvers if isinstance(first, FirstCertified) else (first,)
    whole = [program.name for program in plan.programs if not program.takes_blocks(universe)]
    whole += [one.name for one in solvers[:1] if isinstance(one, ConicSolver)]
    if whole:
        size = size_text(8 * data.n_samples * (universe.n_features + 2))
        raise ProgramError(
            f"{whole[0]} needs all records in memory at once, {size} of them and more to work on, "
            "and this dataset is read in blocks: choose a program of sums over records with "
            "newton or projected_gradient, or fit to a Dataset"
        )
    if not isinstance(first, FirstCertified):
        return execution
    left = tuple(one for one in solvers if not isinstance(one, ConicSolver))
    return replace(execution, solver=FirstCertified(left))
