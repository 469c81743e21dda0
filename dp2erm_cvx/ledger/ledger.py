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
from functools import cache
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
    epsilon = delta = Fraction(0)
    for one in budgets:
        epsilon, delta = epsilon + decimal(one.epsilon), delta + decimal(one.delta)
    return epsilon, delta


def up(number: Fraction) -> float:
    """The nearest float that is written as no less."""
    near = float(number)
    return near if decimal(near) >= number else math.nextafter(near, math.inf)


def down(number: Fraction) -> float:
    """The nearest float that is written as no more."""
    near = float(number)
    return near if decimal(near) <= number else math.nextafter(near, 0.0)


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
        orders, bounds = plain.pop("orders"), plain.pop("divergences")
    except (AttributeError, KeyError, TypeError, RecursionError):
        raise ValueError("a curve is kept as its orders and divergences") from None
    if plain or not (isinstance(orders, list) and isinstance(bounds, list)):
        raise ValueError("a curve is kept as two lists: its orders and divergences")
    return RenyiCurve(
        tuple(orders), tuple(math.inf if bound is None else bound for bound in bounds)
    )


#: Grid steps of a loss distribution per declared epsilon. Coarser is quicker and errs on the safe
#: side.
_STEPS = 20_000

#: Taken off delta for the rounding of its convolutions, which was measured below 1e-14.
_SLACK = 1e-12

#: Beyond these the exponentials of a loss distribution say nothing, or overflow.
_LARGEST_TOTAL, _LARGEST_SUM = 50.0, 500.0


def by_loss_distribution(releases: Sequence[Budget], total: Budget) -> float | None:
    """Epsilon of all releases at the delta of ``total``; None where there is no finite one, or no
    package.

    ``from_privacy_parameters`` knows (epsilon, delta) alone, so the figure is for the relation
    under which the releases were stated.
    """
    delta = total.delta * (1.0 - 1e-9) - _SLACK
    if (
        not releases
        or delta <= 0.0
        or total.epsilon > _LARGEST_TOTAL
        or sums(releases)[0] > _LARGEST_SUM
    ):
        return None
    try:
        from dp_accounting.pld import common, privacy_loss_distribution
    except ImportError:
        return None
    # its accountant takes no (epsilon, delta) event, and counts randomized responses once however
    # often they are repeated; so the distributions are composed directly
    composed = None
    for (epsilon, failure), count in sorted(
        Counter((one.epsilon, one.delta) for one in releases).items()
    ):
        pure = common.DifferentialPrivacyParameters(epsilon, failure)
        one = privacy_loss_distribution.from_privacy_parameters(pure, total.epsilon / _STEPS)
        several = one.self_compose(count) if count > 1 else one
        composed = several if composed is None else composed.compose(several)
    assert composed is not None
    epsilon = float(composed.get_epsilon_for_delta(delta)) * (1.0 + 1e-12)
    return epsilon if math.isfinite(epsilon) else None


#: Part of delta that is not converted. It pays for rounding, and for what a release that counts its
#: arithmetic sets aside: Gaussian noise too long for its numerical error, of probability below
#: exp(-1800).
_SET_ASIDE = 1e-9

#: Between these exp(epsilon) times such a probability is nothing beside the part set aside.
_LARGEST_CONVERTED, _LEAST_DELTA = 500.0, 1e-300


def by_curves(releases: Sequence[Receipt], total: Budget) -> float | None:
    """Epsilon of all releases at the delta of ``total``, or None where there is no finite one.

    Releases with a curve, and pure ones, add their divergences at each order. The sum is converted
    at the delta that the others leave, by the best order, and their epsilons are added on top.
    """
    plain = [r.budget for r in releases if r.curve is None and r.budget.delta > 0.0]
    if len(plain) == len(releases) or total.epsilon > _LARGEST_CONVERTED:
        return None
    epsilon, delta = sums(plain)
    left = down(max(decimal(total.delta) - delta, decimal(0.0))) * (1.0 - _SET_ASIDE)
    if left < _LEAST_DELTA:
        return None
    known = [r.curve for r in releases if r.curve is not None]
    orders = tuple(sorted(set(RENYI_ORDERS).union(*(curve.orders for curve in known))))
    pure = cache(lambda cost: RenyiCurve.pure(cost, orders))  # each of many equal ones once
    known += [pure(r.budget.epsilon) for r in releases if r.curve is None and r.budget.delta == 0.0]
    curve = known[0].plus(*known[1:])
    converted = renyi_epsilon(curve.orders, curve.divergences, left)
    return up(decimal(converted) + epsilon) if math.isfinite(converted) else None


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
    """The (epsilon, delta) that releases spent together, and what is certainly left of the declared
    total.

    ``composition`` is the one the figures follow from, ``relation`` the neighbors they are for.
    Tighter figures than those of basic composition are read off at the whole declared delta, so
    that none of it is left.
    """

    epsilon: float
    delta: float
    left_epsilon: float
    left_delta: float
    composition: Composition
    relation: Neighboring


def fits(releases: Sequence[Receipt], total: Budget, composition: Composition) -> bool:
    """True if the releases together stay within ``total``."""
    epsilon, delta = sums(r.budget for r in releases)
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
    """The smaller of the admitted figures, rounded up, and what is left, rounded down."""
    epsilon, delta = sums(r.budget for r in releases)
    tighter = _tighter(releases, total, composition)
    whole, slack, nothing = decimal(total.epsilon), decimal(total.delta), Fraction(0)
    if tighter is not None and not (delta <= slack and epsilon <= decimal(tighter)):
        left = down(max(whole * (1 - _ROUNDING) - decimal(tighter), nothing))
        return Spent(tighter, total.delta, left, 0.0, composition, relation)
    left, left_delta = down(max(whole - epsilon, nothing)), down(max(slack - delta, nothing))
    return Spent(up(epsilon), up(delta), left, left_delta, Composition.BASIC, relation)


def _tighter(releases: Sequence[Receipt], total: Budget, composition: Composition) -> float | None:
    """Epsilon at the delta of ``total`` by the declared composition, where it is not the basic
    one.
    """
    if composition is Composition.PLD:
        return by_loss_distribution([r.budget for r in releases], total)
    return by_curves(releases, total) if composition is Composition.RENYI else None


@dataclass(frozen=True)
class Receipt:
    """One committed charge: ``number`` is unique in its file, ``charged_at`` is UTC in ISO 8601.

    ``curve`` bounds the Renyi divergences of the release, where it stated them. ``unit`` is who is
    protected.
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
        """Who is protected: "records" or "persons by COLUMN", by the first charge; None before
        it.
        """
        return self.receipts[0].unit if self.receipts else None

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

        The total is for all releases together, under ``relation``. It is declared once: to declare
        the same again changes nothing.

        Raises DeclarationError for an invalid argument, LedgerError where something else was
        declared before or the file cannot be used.
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

        ``relation`` and ``unit`` are those of a ``Budget``; a ``Guarantee`` states its own. The
        unit says who is protected: records, or persons by a column; the first charge of an account
        decides. ``curve`` bounds Renyi divergences of the same release, for the composition
        ``renyi``; all others use the (epsilon, delta). Raises DeclarationError for what is no known
        guarantee, LedgerError where the charge does not fit; then nothing was changed.
        """
        one_line("dataset", dataset)
        one_line("note", note, empty=True)
        if isinstance(guarantee, Guarantee):
            if guarantee.standing in (Standing.NOT_PRIVATE, Standing.UNPROVEN):
                raise DeclarationError(f"this release is {guarantee.standing}: no charge covers it")
            budget, relation = Budget(guarantee.epsilon, guarantee.delta), guarantee.relation
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
            account = self._account(db, dataset)
            if account.relation is not related and account.relation is Neighboring.REPLACE_ONE:
                raise LedgerError(
                    f"data set {dataset!r} counts neighbors as {account.relation}, and this "
                    f"release protects {related} only: release under {account.relation}"
                )
            if account.unit not in (None, unit):
                raise LedgerError(
                    f"data set {dataset!r} protects {account.unit}, and this release {unit}: "
                    "epsilon for the one is none for the other, so give it an account of its own"
                )
            if not fits([*account.receipts, receipt], account.total, account.composition):
                left, total = account.spent, account.total
                raise LedgerError(
                    f"data set {dataset!r}: {law_text(budget, zero=True)} does not "
                    f"fit: epsilon = {digits_of(left.left_epsilon, left=True)}, delta = "
                    f"{digits_of(left.left_delta, left=True)} is left of "
                    f"{law_text(total, zero=True)} ({left.composition} composition, "
                    f"neighbors: {account.relation})"
                )
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
            names = [
                name for (name,) in db.execute("SELECT dataset FROM accounts ORDER BY dataset")
            ]
            return [self._account(db, name) for name in names]

    def _account(self, db: sqlite3.Connection, dataset: str) -> Account:
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
            related, composed = Neighboring(row[2]), Composition(row[3])
            receipts = tuple(
                Receipt(number, dataset, _stored(epsilon, delta), note, at, decode(curve), unit)
                for number, epsilon, delta, note, at, curve, unit in rows
            )
        except ValueError as error:
            raise LedgerError(f"{self.path}: the ledger is damaged: {error}") from None
        figures = spent(receipts, total, composed, related)
        return Account(dataset, total, related, composed, receipts, figures)


def _stored(epsilon: object, delta: object) -> Budget:
    """The budget of a row, whose numbers are decimal texts. Raises ValueError where they are
    none.
    """
    numbers = [float(text) if isinstance(text, str) else text for text in (epsilon, delta)]
    return Budget(*numbers)  # type: ignore[arg-type]


def _budget(value: object) -> Budget:
    if not isinstance(value, Budget):
        raise DeclarationError(
            f"{value!r}: the ledger adds up a Budget or the Guarantee of a release"
        )
    return value
