"""Budget of several releases from one data set, on disk; accounts and receipts."""

from __future__ import annotations

import enum
import json
import math
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from dp2erm_cvx.calibration import renyi_epsilon
from dp2erm_cvx.checks import json_types, one_line, one_of
from dp2erm_cvx.display import digits_of, law_text
from dp2erm_cvx.errors import DeclarationError, LedgerError
from dp2erm_cvx.ledger.store import transaction
from dp2erm_cvx.privacy import RENYI_ORDERS, Budget, Neighboring, RenyiCurve, Standing
from dp2erm_cvx.release import Guarantee


def decimal(number: float) -> Fraction:
    """The decimal that the number is written as, so that ten times 0.1 are 1."""
    return Fraction(repr(number))


def sums(budgets: Iterable[Budget]) -> tuple[Fraction, Fraction]:
    """The sum of the epsilons and that of the deltas."""
    epsilon = Fraction(0)
    delta = Fraction(0)
    for one in budgets:
        epsilon += decimal(one.epsilon)
        delta += decimal(one.delta)
    return epsilon, delta


def up(number: Fraction) -> float:
    """The nearest float that is written as no less."""
    near = float(number)
    if decimal(near) >= number:
        return near
    return math.nextafter(near, math.inf)


def down(number: Fraction) -> float:
    """The nearest float that is written as no more."""
    near = float(number)
    if decimal(near) <= number:
        return near
    return math.nextafter(near, 0.0)


def encode(curve: RenyiCurve | None) -> str | None:
    """Numbers as they are written, null for an infinite divergence."""
    if curve is None:
        return None
    bounds = [None if math.isinf(bound) else bound for bound in curve.divergences]
    return json.dumps({"orders": curve.orders, "divergences": bounds}, allow_nan=False)


def decode(text: object) -> RenyiCurve | None:
    """The curve that was encoded. Raises ValueError for anything else."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("a curve is kept as text")
    try:
        plain = json.loads(text)
        orders = plain.pop("orders")
        bounds = plain.pop("divergences")
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise ValueError("a curve is kept as its orders and divergences") from None
    if plain or not (isinstance(orders, list) and isinstance(bounds, list)):
        raise ValueError("a curve is kept as two lists: its orders and divergences")
    divergences = [math.inf if bound is None else bound for bound in bounds]
    return RenyiCurve(tuple(orders), tuple(divergences))


#: Grid steps of a loss distribution per declared epsilon. Coarser is quicker and errs on the safe
#: side.
_STEPS = 20_000

#: Taken off delta for the rounding of its convolutions, which was measured below 1e-14.
_SLACK = 1e-12

#: Declared epsilon beyond which a loss distribution says nothing.
_LARGEST_TOTAL = 50.0
#: Sum of epsilons beyond which the exponentials of a loss distribution overflow.
_LARGEST_SUM = 500.0


def by_loss_distribution(releases: Sequence[Budget], total: Budget) -> float | None:
    """Epsilon of all releases by the composition of their privacy loss distributions.

    ``from_privacy_parameters`` knows (epsilon, delta) alone, so the figure is for the relation
    under which the releases were stated.

    Parameters
    ----------
    releases
        What each of them spends.
    total
        The declared budget, at whose delta epsilon is read off.

    Returns
    -------
    float or None
        None where there is no finite epsilon, or no package ``dp-accounting``.
    """
    delta = total.delta * (1.0 - 1e-9) - _SLACK
    if not releases or delta <= 0.0:
        return None
    if total.epsilon > _LARGEST_TOTAL or sums(releases)[0] > _LARGEST_SUM:
        return None
    try:
        from dp_accounting.pld import common, privacy_loss_distribution
    except ImportError:
        return None
    # The accountant of the package takes no (epsilon, delta) event, and counts randomized responses
    # once however often they are repeated; so the distributions are composed directly.
    composed = None
    counted = Counter((one.epsilon, one.delta) for one in releases)
    for (epsilon, failure), count in sorted(counted.items()):
        parameters = common.DifferentialPrivacyParameters(epsilon, failure)
        loss = privacy_loss_distribution.from_privacy_parameters(parameters, total.epsilon / _STEPS)
        if count > 1:
            loss = loss.self_compose(count)
        composed = loss if composed is None else composed.compose(loss)
    assert composed is not None
    epsilon = float(composed.get_epsilon_for_delta(delta)) * (1.0 + 1e-12)
    if not math.isfinite(epsilon):
        return None
    return epsilon


#: Part of delta that is not converted. It pays for rounding, and for what a release that counts its
#: arithmetic sets aside: Gaussian noise too long for its numerical error, of probability below
#: exp(-1800).
_SET_ASIDE = 1e-9

#: Up to this epsilon exp(epsilon) times such a probability is nothing beside the part set aside.
_LARGEST_CONVERTED = 500.0
#: The same from this delta on.
_LEAST_DELTA = 1e-300


def by_curves(releases: Sequence[Receipt], total: Budget) -> float | None:
    """Epsilon of all releases by the sum of their Renyi curves.

    Releases with a curve, and pure ones, add their divergences at each order. The sum is converted
    at the delta that the others leave, by the best order, and their epsilons are added on top.

    Parameters
    ----------
    releases
        The charges.
    total
        The declared budget, at whose delta epsilon is read off.

    Returns
    -------
    float or None
        None where there is no finite epsilon.
    """
    plain = [one.budget for one in releases if one.curve is None and one.budget.delta > 0.0]
    if len(plain) == len(releases) or total.epsilon > _LARGEST_CONVERTED:
        return None
    epsilon, delta = sums(plain)
    left = down(max(decimal(total.delta) - delta, decimal(0.0))) * (1.0 - _SET_ASIDE)
    if left < _LEAST_DELTA:
        return None
    curves = [one.curve for one in releases if one.curve is not None]
    orders = set(RENYI_ORDERS)
    for curve in curves:
        orders.update(curve.orders)
    curves += _pure_curves(releases, tuple(sorted(orders)))
    whole = curves[0].plus(*curves[1:])
    converted = renyi_epsilon(whole.orders, whole.divergences, left)
    if not math.isfinite(converted):
        return None
    return up(decimal(converted) + epsilon)


def _pure_curves(releases: Sequence[Receipt], orders: tuple[float, ...]) -> list[RenyiCurve]:
    """Curves of the releases that state none and are pure, each of many equal ones made once."""
    made: dict[float, RenyiCurve] = {}
    curves = []
    for one in releases:
        if one.curve is not None or one.budget.delta > 0.0:
            continue
        epsilon = one.budget.epsilon
        if epsilon not in made:
            made[epsilon] = RenyiCurve.pure(epsilon, orders)
        curves.append(made[epsilon])
    return curves


#: Keeps what is left below the declared epsilon by more than the tighter figures are rounded.
_ROUNDING = Fraction(1, 10**9)


class Composition(enum.StrEnum):
    """How releases add up.

    ``BASIC``: the epsilons add up and the deltas add up (Dwork et al. 2006). It holds whatever
    later releases are made to depend on, their budgets included (Rogers et al. 2016). ``PLD``: the
    composed privacy loss distribution, where it gives less, by the package ``dp-accounting``.
    ``RENYI``: the sum of the Renyi curves (Mironov 2017), where it gives less. The last two hold
    where no budget, no curve, and no number of releases but an earlier stop, was chosen after
    seeing a result.
    """

    BASIC = "basic"
    PLD = "pld"
    RENYI = "renyi"


@dataclass(frozen=True)
class Spent:
    """What releases spent together, and what is certainly left of the declared total.

    Tighter figures than those of basic composition are read off at the whole declared delta, so
    that none of it is left.

    Parameters
    ----------
    epsilon
        Epsilon of all releases together.
    delta
        Their delta.
    left_epsilon
        What is left of the declared epsilon.
    left_delta
        What is left of the declared delta.
    composition
        The composition that the figures follow from.
    relation
        The neighbors that they are for.
    """

    epsilon: float
    delta: float
    left_epsilon: float
    left_delta: float
    composition: Composition
    relation: Neighboring


def fits(releases: Sequence[Receipt], total: Budget, composition: Composition) -> bool:
    """True if the releases together stay within ``total``."""
    epsilon, delta = sums(one.budget for one in releases)
    if epsilon <= decimal(total.epsilon) and delta <= decimal(total.delta):
        return True
    tighter = _tighter(releases, total, composition)
    return tighter is not None and tighter <= total.epsilon


def spent(
    releases: Sequence[Receipt],
    total: Budget,
    composition: Composition,
    relation: Neighboring = Neighboring.REPLACE_ONE,
) -> Spent:
    """What releases spent: the smaller of the admitted figures, rounded up.

    What is left of the total is rounded down.

    Parameters
    ----------
    releases
        The charges.
    total
        The declared budget.
    composition
        The declared composition; basic figures are taken where they are smaller.
    relation
        The neighbors that all of them are for.
    """
    epsilon, delta = sums(one.budget for one in releases)
    tighter = _tighter(releases, total, composition)
    declared_epsilon = decimal(total.epsilon)
    declared_delta = decimal(total.delta)
    if tighter is not None:
        basic_is_smaller = delta <= declared_delta and epsilon <= decimal(tighter)
        if not basic_is_smaller:
            return Spent(
                epsilon=tighter,
                delta=total.delta,
                left_epsilon=_left(declared_epsilon * (1 - _ROUNDING), decimal(tighter)),
                left_delta=0.0,
                composition=composition,
                relation=relation,
            )
    return Spent(
        epsilon=up(epsilon),
        delta=up(delta),
        left_epsilon=_left(declared_epsilon, epsilon),
        left_delta=_left(declared_delta, delta),
        composition=Composition.BASIC,
        relation=relation,
    )


def _left(declared: Fraction, used: Fraction) -> float:
    """What is left of a declared figure, rounded down, and nothing where more was used."""
    return down(max(declared - used, Fraction(0)))


def _tighter(releases: Sequence[Receipt], total: Budget, composition: Composition) -> float | None:
    """Epsilon at the delta of ``total`` by the declared composition; None for the basic one."""
    if composition is Composition.PLD:
        return by_loss_distribution([one.budget for one in releases], total)
    if composition is Composition.RENYI:
        return by_curves(releases, total)
    return None


@dataclass(frozen=True)
class Receipt:
    """One committed charge.

    Parameters
    ----------
    number
        Its number, unique in its file.
    dataset
        Name of the data set in the ledger.
    budget
        What was charged.
    note
        What the release is of, in one line.
    charged_at
        When it was charged: UTC in ISO 8601.
    curve
        Bounds on the Renyi divergences of the release; None where it stated none.
    unit
        Who is protected: "records" or "persons by COLUMN".
    """

    number: str
    dataset: str
    budget: Budget
    note: str
    charged_at: str
    curve: RenyiCurve | None = None
    unit: str = "records"

    def __str__(self) -> str:
        return f"{law_text(self.budget, zero=True)}, receipt {self.number}"


@dataclass(frozen=True)
class Account:
    """The state of one data set.

    Parameters
    ----------
    dataset
        Name of the data set in the ledger.
    total
        Budget of all its releases together; it is declared once.
    relation
        Neighbors that every figure is for.
    composition
        How releases add up, as it was declared: basic; pld or renyi where budgets do not depend on
        results.
    receipts
        Every charge in its order.
    spent
        What they spent, and what is left, by the composition in force.
    """

    dataset: str
    total: Budget
    relation: Neighboring
    composition: Composition
    receipts: tuple[Receipt, ...]
    spent: Spent

    @property
    def unit(self) -> str | None:
        """Who is protected: "records" or "persons by COLUMN". None before the first charge."""
        if not self.receipts:
            return None
        return self.receipts[0].unit

    def to_dict(self) -> dict[str, Any]:
        """The account as plain JSON values; of a curve, only whether there is one."""
        plain: dict[str, Any] = json_types(vars(self))
        for receipt in plain["receipts"]:
            receipt["curve"] = receipt["curve"] is not None
        return plain | {"unit": self.unit}


@dataclass(frozen=True)
class Ledger:
    """The budgets of data sets, in one SQLite file that several processes may use at once.

    ``path`` is made absolute. Nothing is opened before the first operation, and nothing stays open
    after it.
    """

    path: Path

    def __init__(self, path: str | Path) -> None:
        if not isinstance(path, str | Path) or not str(path).isprintable() or not str(path):
            raise DeclarationError(f"ledger = {path!r}: must be the path of a file")
        object.__setattr__(self, "path", Path(path).absolute())

    def declare(
        self,
        dataset: str,
        total: Budget,
        *,
        relation: Neighboring | str = Neighboring.REPLACE_ONE,
        composition: Composition | str = Composition.BASIC,
    ) -> Account:
        """Open the account of a data set; the file is made if it is missing.

        It is declared once: to declare the same again changes nothing.

        Parameters
        ----------
        dataset
            Name of the data set in the ledger.
        total
            Budget of all releases together.
        relation
            Neighbors that it is for.
        composition
            How releases add up.

        Raises
        ------
        DeclarationError
            For an invalid argument.
        LedgerError
            Where something else was declared before, or the file cannot be used.
        """
        one_line("dataset", dataset)
        _budget(total)
        related = one_of("relation", relation, Neighboring)
        composed = one_of("composition", composition, Composition)
        if composed is not Composition.BASIC and not total.delta > 0.0:
            raise DeclarationError(
                f"composition = {composed.value!r}: needs a total with delta > 0"
            )
        row = (dataset, repr(total.epsilon), repr(total.delta), related.value, composed.value)
        with transaction(self.path, create=True) as db:
            db.execute("INSERT OR IGNORE INTO accounts VALUES (?, ?, ?, ?, ?)", row)
            account = self._account(db, dataset)
        if (account.total, account.relation, account.composition) != (total, related, composed):
            text = law_text(account.total, zero=True)
            raise LedgerError(
                f"data set {dataset!r} was declared with {text}, {account.relation}, "
                f"{account.composition}: a total is declared once"
            )
        return account

    def charge(
        self,
        dataset: str,
        guarantee: Budget | Guarantee,
        note: str = "",
        *,
        relation: Neighboring | str = Neighboring.REPLACE_ONE,
        unit: str = "records",
        curve: RenyiCurve | None = None,
    ) -> Receipt:
        """Charge a release before its noise is drawn; the receipt is on disk when this returns.

        Parameters
        ----------
        dataset
            Name of the data set in the ledger.
        guarantee
            What is charged.
        note
            What the release is of, in one line.
        relation
            Neighbors that a ``Budget`` is for; a ``Guarantee`` states its own.
        unit
            Who is protected: "records", or "persons by COLUMN"; the first charge of an account
            decides. A ``Guarantee`` states its own.
        curve
            Bounds on the Renyi divergences of the same release, for the composition ``renyi``; all
            others use the (epsilon, delta).

        Raises
        ------
        DeclarationError
            For what is no known guarantee.
        LedgerError
            Where the charge does not fit; then nothing was changed.
        """
        one_line("dataset", dataset)
        one_line("note", note, empty=True)
        if isinstance(guarantee, Guarantee):
            if guarantee.standing in (Standing.NOT_PRIVATE, Standing.UNPROVEN):
                raise DeclarationError(f"this release is {guarantee.standing}: no charge covers it")
            budget = Budget(guarantee.epsilon, guarantee.delta)
            relation = guarantee.relation
            unit = guarantee.unit or "records"
        else:
            budget = _budget(guarantee)
        related = one_of("relation", relation, Neighboring)
        if curve is not None and not isinstance(curve, RenyiCurve):
            raise DeclarationError(f"curve = {curve!r:.60}: must be a RenyiCurve")
        one_line("unit", unit)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        receipt = Receipt(uuid.uuid4().hex, dataset, budget, note, now, curve, unit)
        with transaction(self.path) as db:
            _refuse_unfit(self._account(db, dataset), receipt, related)
            row = (receipt.number, dataset, repr(budget.epsilon), repr(budget.delta), note, now)
            db.execute(
                "INSERT INTO charges (number, dataset, epsilon, delta, note, charged_at, curve, "
                "unit) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, encode(curve), unit),
            )
        return receipt

    def account(self, dataset: str) -> Account:
        """The account of one data set. Raises LedgerError where none was declared."""
        with transaction(self.path) as db:
            return self._account(db, dataset)

    def accounts(self) -> list[Account]:
        """All accounts, by name. Raises LedgerError where the file is no ledger."""
        with transaction(self.path) as db:
            rows = db.execute("SELECT dataset FROM accounts ORDER BY dataset").fetchall()
            return [self._account(db, name) for (name,) in rows]

    def _account(self, db: sqlite3.Connection, dataset: str) -> Account:
        """The account of one data set, read within a transaction."""
        row = db.execute(
            "SELECT epsilon, delta, relation, composition FROM accounts WHERE dataset = ?",
            (dataset,),
        ).fetchone()
        if row is None:
            raise LedgerError(
                f"data set {dataset!r} has no declared total in {self.path}: declare one first"
            )
        rows = db.execute(
            "SELECT number, epsilon, delta, note, charged_at, curve, unit FROM charges WHERE "
            "dataset = ? ORDER BY place",
            (dataset,),
        )
        try:
            total = _stored(row[0], row[1])
            related = Neighboring(row[2])
            composed = Composition(row[3])
            receipts = tuple(
                Receipt(number, dataset, _stored(epsilon, delta), note, at, decode(curve), unit)
                for number, epsilon, delta, note, at, curve, unit in rows
            )
        except ValueError as error:
            raise LedgerError(f"{self.path}: the ledger is damaged: {error}") from None
        figures = spent(receipts, total, composed, related)
        return Account(dataset, total, related, composed, receipts, figures)


def _refuse_unfit(account: Account, receipt: Receipt, relation: Neighboring) -> None:
    """Raise LedgerError where a charge under this relation is none for an account, or too much."""
    named = f"data set {account.dataset!r}"
    if account.relation is not relation and account.relation is Neighboring.REPLACE_ONE:
        raise LedgerError(
            f"{named} counts neighbors as {account.relation}, and this release protects "
            f"{relation} only: release under {account.relation}"
        )
    if account.unit not in (None, receipt.unit):
        raise LedgerError(
            f"{named} protects {account.unit}, and this release {receipt.unit}: epsilon for the "
            "one is none for the other, so give it an account of its own"
        )
    if not fits([*account.receipts, receipt], account.total, account.composition):
        left = account.spent
        raise LedgerError(
            f"{named}: {law_text(receipt.budget, zero=True)} does not fit: epsilon = "
            f"{digits_of(left.left_epsilon, left=True)}, delta = "
            f"{digits_of(left.left_delta, left=True)} is left of "
            f"{law_text(account.total, zero=True)} ({left.composition} composition, "
            f"neighbors: {account.relation})"
        )


def _stored(epsilon: object, delta: object) -> Budget:
    """The budget of a row, whose numbers are decimal texts.

    Raises
    ------
    ValueError
        Where they are none.
    """
    numbers = [float(text) if isinstance(text, str) else text for text in (epsilon, delta)]
    return Budget(*numbers)  # type: ignore[arg-type]


def _budget(value: object) -> Budget:
    """Raise DeclarationError for what is no Budget."""
    if not isinstance(value, Budget):
        raise DeclarationError(
            f"{value!r}: the ledger adds up a Budget or the Guarantee of a release"
        )
    return value
