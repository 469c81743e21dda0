"""What V costs in balance, on public records alone: schemes over grids of settings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from dp2erm_cvx.checks import Named, check_settings, public_fraction, setting, whole_number
from dp2erm_cvx.data.counts import refuse
from dp2erm_cvx.data.dataset import Dataset
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.data.space import Space
from dp2erm_cvx.data.universe import Universe
from dp2erm_cvx.design.rehearsal import (
    PublicBalance,
    largest_distance,
    largest_movement,
    rehearsed_size,
)
from dp2erm_cvx.design.samples import PublicData
from dp2erm_cvx.display import Shown, grid, heading, law_text
from dp2erm_cvx.errors import DeclarationError, Dp2ermError, brief, known_names
from dp2erm_cvx.inference.rehearsal import REHEARSED, normal_records, resized
from dp2erm_cvx.inference.weighted import expected_interval
from dp2erm_cvx.paper import usable_bound
from dp2erm_cvx.parallel import Progress, run_tasks
from dp2erm_cvx.plan.effect import EffectStudy, weighted_facts
from dp2erm_cvx.plan.plan import make_plan
from dp2erm_cvx.privacy import Budget
from dp2erm_cvx.program import FirstStage, PrivateFirstStage, registry
from dp2erm_cvx.program.stage import Registered, family_of, fields_of
from dp2erm_cvx.solve import solve

if TYPE_CHECKING:
    from dp2erm_cvx.display import Block

#: Parts of the default ridge, and caps, that are tried where none are chosen.
RIDGES = (1.0, 0.3, 0.1, 0.03, 0.01)
CAPS = (1.5, 2.0, 3.0)
#: Parts of what else is given away beside a price.
PARTS = (1.0, 0.1)
#: Settings of the paper's entropy balancing at which its bound is stated.
OF_PAPER = {"scaling": "paper", "arm_mass": "proportional", "radius": 1.0}
#: The setting that is the public share of the treated.
TREATED = "treated"
#: The most settings of one scheme that are tried.
MOST_SETTINGS = 200
#: What is proposed leaves so much of the distance at most, where no half width is predicted.
ENOUGH = 0.5
#: The fewest records of either arm.
FEWEST = 2
#: The outcome is declared within so many standard deviations of residuals.
OUTCOMES = 6.0
#: Level of the interval of the effect.
LEVEL = 0.95
#: A scheme by its name, as it was declared, or as a program with settings of its own.
AnyScheme = str | Registered | FirstStage


@dataclass(frozen=True)
class FrontierRequest:
    """What schemes are tried for; all of it is public.

    Attributes
    ----------
    universe
        What records may look like, n and the number of covariates.
    epsilon
        Budget of the release that the half width is predicted for.
    treated
        Part of the records that are treated. Schemes with a setting of this name get it.
    distance
        Distance of the means of both arms, in standard deviations of the covariates: that of normal
        records, and what the half width allows for.
    grids
        Values of settings by name, every combination of which is tried. None: of those that a
        scheme has, the ridge at parts of its default, a finite cap at 1.5, 2 and 3, a tolerance and
        a smoothing at their default and a tenth of it.
    public
        Records that are declared public, in the place of normal ones. The share of the treated is
        theirs.

    Raises
    ------
    DeclarationError
        For anything else.
    """

    universe: Universe
    epsilon: float = setting(1.0, above=0.0)
    treated: float = setting(0.5, public_fraction)
    distance: float = setting(1.0, above=0.0)
    grids: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    public: PublicData | None = None

    def __post_init__(self) -> None:
        check_settings(self)
        refuse(self.universe.domain.codebook, "what V costs in balance", "arms", "units")
        for name, values in self.grids.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise DeclarationError(f"grids: {name} = {brief(values)}: must be a list of values")
        grids = {name: tuple(values) for name, values in self.grids.items()}
        object.__setattr__(self, "grids", Named(grids))
        if self.public is not None:
            self._check_public(self.public.dataset)
        else:
            self._check_normal()

    def _check_normal(self) -> None:
        """Raise DeclarationError where no normal records have these arms."""
        n = self.universe.n_samples
        smaller = round(n * min(self.treated, 1.0 - self.treated))
        if smaller < max(self.universe.domain.arm_floor or 0, FEWEST):
            floor = self.universe.domain.arm_floor or FEWEST
            raise DeclarationError(
                f"treated = {self.treated:g}: an arm has {smaller} of {n:,} records, and needs "
                f"{floor:,}"
            )
        most = largest_distance(self.treated)
        if self.distance > most:
            raise DeclarationError(
                f"distance = {self.distance:g}: at a share of {self.treated:g} the means of normal "
                f"arms lie at most {most:.3g} standard deviations apart"
            )

    def _check_public(self, data: Dataset) -> None:
        """Raise DeclarationError where public records have other columns, or lack an arm."""
        columns = data.X.shape[1]
        if columns != self.universe.n_features:
            raise DeclarationError(
                f"public: has {columns} covariates, and not n_features = {self.universe.n_features}"
            )
        domain = resized(self.universe.domain, self.universe.n_samples, data.n_samples)
        smaller = min(int((data.a == arm).sum()) for arm in (0, 1))
        least = max(domain.arm_floor or 0, FEWEST)
        if smaller < least:
            raise DeclarationError(f"public: an arm has {smaller} records, and needs {least:,}")

    @property
    def share(self) -> float:
        """Share of the treated among the public records."""
        if self.public is None:
            return self.treated
        return float((self.public.dataset.a == 1).mean())

    def records(self, size: int, universe: Universe | None = None) -> Records:
        """Public records to rehearse on: so many normal ones, or all that were declared public.

        They are of the declared universe, or of another one of as many records.
        """
        where = self.universe if universe is None else universe
        if self.public is None:
            return normal_records(where, size, self.treated, self.distance)
        data = self.public.dataset
        domain = resized(where.domain, where.n_samples, data.n_samples)
        return domain.records(data.X, data.a, data.y)


@dataclass(frozen=True)
class FrontierRow:
    """One scheme at one choice of its settings. Numbers are nan where they do not exist.

    Attributes
    ----------
    scheme
        Name of the scheme.
    settings
        The settings that were chosen for it, by name.
    V
        Proved bound on the movement of the weights where one record is replaced, at n.
    theorem
        What proves it.
    left
        Share of the distance of the arms that is left on the public records.
    effective
        Effective share of the records there: so many without weights have the same sampling error.
    largest
        The largest weight there; the mean weight is 1.
    treated
        Share of the weight that the treated have there.
    moved
        The largest movement found among few neighbors of the public records: V is at least that.
    half_width
        Predicted half width of the 95 % interval of an effect by these weights, in standard
        deviations of residuals: that of its release at what it is expected to release.
    effect_V
        Bound on the movement of the weights as that effect computes them, of covariates as it maps
        them.
    no_effect
        Why no effect is answered by these weights, in a sentence; empty where there is a half
        width.
    efficient
        Whether no other row has both less V and less that is left.
    refusal
        Why there is no V, or nothing but V, in a sentence; empty where all is there.
    """

    scheme: str
    settings: Mapping[str, Any]
    V: float = math.nan
    theorem: str = ""
    left: float = math.nan
    effective: float = math.nan
    largest: float = math.nan
    treated: float = math.nan
    moved: float = math.nan
    half_width: float = math.nan
    effect_V: float = math.nan
    no_effect: str = ""
    efficient: bool = False
    refusal: str = ""

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain JSON types."""
        plain = {name: _plain(value) for name, value in self.settings.items()}
        return {**vars(self), "settings": plain}


@dataclass(frozen=True)
class FrontierResult(Shown):
    """Schemes at their settings, and which of them is proposed.

    Attributes
    ----------
    request
        What was asked.
    rows
        A row for every scheme and choice of settings, in their order.
    """

    request: FrontierRequest
    rows: tuple[FrontierRow, ...]

    @property
    def proposed(self) -> FrontierRow | None:
        """The row of least predicted half width; None where no row has numbers.

        Where no half width is predicted, the one of least V that leaves at most ``ENOUGH``, or the
        one that leaves least.
        """
        solved = [row for row in self.rows if not row.refusal]
        predicted = [row for row in solved if math.isfinite(row.half_width)]
        if predicted:
            return min(predicted, key=lambda row: (row.half_width, row.V))
        enough = [row for row in solved if row.left <= ENOUGH]
        if enough:
            return min(enough, key=lambda row: (row.V, row.left))
        return min(solved, key=lambda row: (row.left, row.V), default=None)

    def blocks(self) -> Iterator[Block]:
        """Report: what was asked, the table, and the proposal."""
        universe = self.request.universe
        n = universe.n_samples
        yield heading(f"What V costs in balance: n = {n:,}, {universe.n_features} covariates")
        law = law_text(Budget(self.request.epsilon))
        yield f"Rehearsed on {self._records_in_words()}; {law}. Nothing private was read."
        yield ""
        yield self._table()
        yield _LEGEND
        yield from dict.fromkeys(_refused(row, n) for row in self.rows if row.refusal)
        without_width = []
        for row in self.rows:
            if row.no_effect:
                without_width.append(f"{row.scheme} has no half width: {row.no_effect}.")
        yield from dict.fromkeys(without_width)
        yield ""
        yield self.advice()

    def _records_in_words(self) -> str:
        """The records that it was rehearsed on."""
        treated = f"{self.request.share:.3g} of them treated"
        public = self.request.public
        if public is None:
            return f"normal records, {treated}, arms {self.request.distance:g} sd apart"
        size = public.dataset.n_samples
        return f"{size:,} records that were declared public ({public.source}), {treated}"

    def _table(self) -> Block:
        """The rows that have numbers, by scheme."""
        table = grid(
            "", "settings", "V", "left", "effective", "largest", "found", "half width", left=2
        )
        best = self.proposed
        previous = None
        for row in self.rows:
            if row.refusal:
                continue
            if row.scheme != previous:
                table.add_row("", row.scheme, style="bold")
            mark = ""
            if row is best:
                mark = "1"
            elif row.efficient:
                mark = "="
            settings = self._chosen(row, " ")
            table.add_row(mark, f"  {settings}", *_cells(row, self.request.universe.n_samples))
            previous = row.scheme
        return table

    def advice(self) -> str:
        """What is proposed, in a sentence."""
        best = self.proposed
        if best is None:
            return "No setting has weights and a bound: nothing is proposed."
        n = self.request.universe.n_samples
        predicted = math.isfinite(best.half_width)
        V = best.effect_V if predicted else best.V
        if V >= 2.0 * n:
            return (
                "No setting has a bound below 2n, which holds for any weights: none is worth its "
                "noise."
            )
        text = f"Take: {best.scheme}"
        settings = self._chosen(best, " = ")
        if settings:
            text += f" at {settings}"
        if predicted:
            return (
                f"{text}; the least predicted half width is {best.half_width:.3g} standard "
                f"deviations of residuals, by weights that move by at most V = {best.effect_V:.4g} "
                "as the effect maps covariates."
            )
        return f"{text}; V is {best.V:.4g}, and {best.left:.2f} of the distance is left."

    def _chosen(self, row: FrontierRow, between: str) -> str:
        """The settings of a row, without a share of the treated that is that of the records."""
        settings = dict(row.settings)
        if settings.get(TREATED) == self.request.share:
            del settings[TREATED]
        return ", ".join(f"{name}{between}{brief_of(value)}" for name, value in settings.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain values: what was asked, the rows, and the number of the proposed one."""
        wanted = self.request
        universe = wanted.universe
        best = self.proposed
        return {
            "n_samples": universe.n_samples,
            "n_features": universe.n_features,
            "domain": universe.domain.to_dict(),
            "epsilon": wanted.epsilon,
            "treated": wanted.share,
            "distance": wanted.distance,
            "public": None if wanted.public is None else wanted.public.source,
            "rows": [row.to_dict() for row in self.rows],
            "proposed": None if best is None else self.rows.index(best),
        }


#: What the columns of the table are.
_LEGEND = (
    "1: proposed; =: no other row has both less V and less left. V: proved for every dataset of n "
    "records; left: share of the distance of the arms that the weights leave; effective: share of "
    "the records that would do as well without weights; largest: weight, where the mean is 1; "
    "found: largest movement among few neighbors, a lower bound of V; half width: of the 95 % "
    "interval of an [[effect]] by these weights, in standard deviations of residuals, at what it "
    "is expected to release."
)


def frontier(
    schemes: Sequence[AnyScheme],
    request: FrontierRequest,
    *,
    workers: int = 1,
    progress: Progress = lambda *_: None,
) -> FrontierResult:
    """What V costs in balance: every scheme at every choice of its settings, on public records.

    No private record is read and nothing is spent. V is that of the theorem in force at n; weights
    are solved for and certified on the public records.

    Parameters
    ----------
    schemes
        Names of registered first stages, schemes as a decorator makes them, or programs.
    request
        Public numbers, and the grids of settings.
    workers
        Processes, -1 for all cores; they do not change the result.
    progress
        Is told what is counted, how many of it are done, and their number.

    Returns
    -------
    FrontierResult

    Raises
    ------
    DeclarationError
        For an unknown setting, a second stage, and weights with noise of their own.
    ProgramError
        For an unknown name.
    """
    programs = [_program(scheme) for scheme in schemes]
    if not programs:
        raise DeclarationError("schemes: name one at least")
    names = [program.name for program in programs]
    if len(set(names)) < len(names):
        raise DeclarationError(f"schemes: {', '.join(names)}: name every one once")
    setting_names = set[str]()
    for program in programs:
        setting_names.update(program.setting_fields())
    for name in request.grids:
        if name not in setting_names:
            raise DeclarationError(
                f"no scheme has a setting {name!r}; {known_names(name, sorted(setting_names))}"
            )
    tasks = []
    for program in programs:
        tasks += [(program, chosen, request) for chosen in choices(program, request)]
    rows = []
    for row in run_tasks(_row, tasks, workers=workers):
        rows.append(row)
        progress("settings", len(rows), len(tasks))
    return FrontierResult(request, tuple(_with_efficient(rows)))


def _program(scheme: AnyScheme) -> FirstStage:
    """The program of a scheme at its default settings, or as it is."""
    program: Any = scheme
    if isinstance(scheme, str):
        second = registry.second_stages()
        if scheme in second:
            raise DeclarationError(f"{scheme}: is a second stage, which has no weights")
        program = registry.build(registry.first_stages(), scheme)
    elif not isinstance(scheme, FirstStage):
        family = family_of(scheme)
        if not issubclass(family, FirstStage):
            raise DeclarationError(f"{scheme.name}: is a second stage, which has no weights")
        program = scheme()
    if isinstance(program, PrivateFirstStage):
        raise DeclarationError(f"{program.name}: adds noise to its weights, which no rehearsal has")
    assert isinstance(program, FirstStage)
    return program


def choices(program: FirstStage, request: FrontierRequest) -> list[dict[str, Any]]:
    """Every choice of the settings of a program: those of the request, or the default grids.

    Raises
    ------
    DeclarationError
        Where there are more than ``MOST_SETTINGS``.
    """
    names = program.setting_fields()
    grids: dict[str, Sequence[Any]] = {}
    if TREATED in names:
        grids[TREATED] = (request.share,)
    grids |= {name: values for name, values in request.grids.items() if name in names}
    if not request.grids.keys() & set(names):
        grids |= _default_grids(program, request.universe.space)
    number = math.prod(len(values) for values in grids.values())
    whole_number(f"{program.name}: choices of settings", number, at_least=1, at_most=MOST_SETTINGS)
    return [dict(zip(grids, values, strict=True)) for values in itertools.product(*grids.values())]


def _default_grids(program: FirstStage, space: Space) -> dict[str, Sequence[Any]]:
    """Grids of the settings that a program has, where none are chosen."""
    names = program.setting_fields()
    resolved = program.resolve(space)
    grids: dict[str, Sequence[Any]] = {}
    for name, parts in (("ridge", RIDGES), ("tolerance", PARTS), ("smoothing", PARTS)):
        if name not in names:
            continue
        value = resolved.value(name)
        if isinstance(value, int | float) and math.isfinite(value) and value > 0.0:
            grids[name] = tuple(float(f"{part * value:.3g}") for part in parts)
    if "cap" in names and math.isfinite(resolved.value("cap")):
        grids["cap"] = CAPS
    return grids


def _row(program: FirstStage, chosen: Mapping[str, Any], request: FrontierRequest) -> FrontierRow:
    """One row; what the library refuses in a sentence is a row with that sentence."""
    named = partial(FrontierRow, program.name, dict(chosen))
    try:
        declared = program.with_settings(**chosen)
        resolved = declared.at(request.universe)
        bound = resolved.stability(request.universe)
    except Dp2ermError as error:
        return named(refusal=f"no bound: {error}")
    bounded = partial(named, V=bound.V, theorem=bound.theorem)
    try:
        return bounded(**_rehearsed(resolved, request), **_answered(declared, request))
    except Dp2ermError as error:
        return bounded(refusal=str(error))


def _rehearsed(program: FirstStage, request: FrontierRequest) -> dict[str, float]:
    """What a program that was read at n does to public records."""
    universe = request.universe
    size = universe.n_samples
    if request.public is None:
        size = rehearsed_size(program, universe)
    records = request.records(size)
    where = MappedUniverse(records.space, records.n_samples, records.n_features)
    rehearsed = program.at(where)
    weights = solve(rehearsed.instance(records)).value
    balance = PublicBalance.of(records, weights)
    return {
        "left": balance.left,
        "effective": balance.effective,
        "largest": balance.largest,
        "treated": balance.treated,
        "moved": largest_movement(rehearsed, records, weights),
    }


def _answered(program: FirstStage, request: FrontierRequest) -> dict[str, Any]:
    """The half width of an effect by the weights of a program, at what it is expected to release.

    In standard deviations of residuals: the effect is planned with those as ``residual_scale`` and
    outcomes within ``OUTCOMES`` of them, at the declared distance as ``confounding``.
    """
    universe = request.universe
    outcomes: dict[str, Any] = {
        "outcome_bound": OUTCOMES,
        "outcome_center": 0.0,
        "treatment_cost": 0.0,
    }
    domain = replace(universe.domain, binary_outcome=False, **outcomes)
    try:
        study = EffectStudy(
            replace(universe, domain=domain),
            Budget(request.epsilon),
            residual_scale=1.0,
            confounding=request.distance,
            weights=program,
        )
        plan = make_plan(study)
        records = request.records(min(universe.n_samples, REHEARSED), study.start)
        interval, weighting = expected_interval(weighted_facts(plan), records, LEVEL)
    except Dp2ermError as error:
        return {"no_effect": str(error)}
    half_width = 0.5 * (interval.high - interval.low)
    if not math.isfinite(half_width):
        return {
            "no_effect": "the rate of treatment leaves no room for a residual: take more records"
        }
    return {"half_width": half_width, "effect_V": weighting.stability}


def paper_curve(request: FrontierRequest) -> list[tuple[float, float]]:
    """What entropy balancing leaves of the distance, and V as the paper prints it.

    At the ridges of the default grid. Empty where the paper makes no statement, as without an arm
    floor.
    """
    made = registry.first_stages()["paper_entropy_balancing"]
    as_printed = {name: value for name, value in OF_PAPER.items() if name in fields_of(made)}
    program: Any = made(**as_printed)
    points = []
    for ridge in _default_grids(program, request.universe.space)["ridge"]:
        tried = program.with_settings(ridge=ridge)
        try:
            V = usable_bound(tried, request.universe).V
            records = request.records(min(request.universe.n_samples, REHEARSED))
            weights = solve(tried.instance(records)).value
        except Dp2ermError:
            continue
        points.append((PublicBalance.of(records, weights).left, V))
    return points


def _with_efficient(rows: Sequence[FrontierRow]) -> Iterator[FrontierRow]:
    """The rows, with whether none has both less V and less that is left."""
    solved = [row for row in rows if not row.refusal]
    for row in rows:
        beaten = any(_beats(other, row) for other in solved)
        fields = {**vars(row), "efficient": not row.refusal and not beaten}
        yield FrontierRow(**fields)


def _beats(other: FrontierRow, row: FrontierRow) -> bool:
    """Whether another row has no more V and no more left, and less of one, in digits shown."""
    V = round(row.V, 1)
    left = round(row.left, 3)
    other_V = round(other.V, 1)
    other_left = round(other.left, 3)
    less = other_V < V or other_left < left
    return other_V <= V and other_left <= left and less


def _refused(row: FrontierRow, n: int) -> str:
    """Why a row has no numbers, and whether at least its V is worth nothing."""
    any_weights = " (V = 2n)" if row.V >= 2.0 * n else ""
    return f"{row.scheme}{any_weights}: {row.refusal}"


def _cells(row: FrontierRow, n: int) -> tuple[str, ...]:
    """The numbers of a row as a table shows them."""
    V = "2n" if row.V >= 2.0 * n else f"{row.V:.1f}"
    width = "-" if math.isnan(row.half_width) else f"{row.half_width:.3g}"
    return (
        V,
        f"{row.left:.3f}",
        f"{row.effective:.0%}",
        f"{row.largest:.2f}",
        f"{row.moved:.1f}",
        width,
    )


def brief_of(value: object) -> str:
    """A setting in few characters."""
    return f"{value:.3g}" if isinstance(value, float) else str(_plain(value))


def _plain(value: Any) -> Any:
    """A setting as a number or a text."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, int | float | str | None) else str(value)
