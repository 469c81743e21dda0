"""What the ledger shows: receipts of single charges and the account of a data set."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from dp2erm_cvx.ledger.composition import Composition, Spent
from dp2erm_cvx.ledger.tighter import Cost
from dp2erm_cvx.privacy import Budget, Neighboring, RenyiCurve


@dataclass(frozen=True)
class Receipt:
    """One committed charge: ``number`` is unique in its file, ``charged_at`` is UTC in ISO 8601.

    ``curve`` bounds the Renyi divergences of the release, where it stated them.
    """

    number: str
    dataset: str
    budget: Budget
    note: str
    charged_at: str
    curve: RenyiCurve | None = None

    @property
    def cost(self) -> Cost:
        """What composition needs of it."""
        return Cost(self.budget, self.curve)

    def __str__(self) -> str:
        return f"epsilon = {self.budget.epsilon:g}, delta = {self.budget.delta:g}, receipt {self.number}"


@dataclass(frozen=True)
class Account:
    """The state of one data set: what was declared, every charge in its order, and what they spent.

    ``composition`` was declared; ``spent.composition`` is the one in force. Every figure is for neighbors
    under ``relation``.
    """

    dataset: str
    total: Budget
    relation: Neighboring
    composition: Composition
    receipts: tuple[Receipt, ...]
    spent: Spent

    def to_dict(self) -> dict[str, Any]:
        """The account as plain JSON values; of a curve, only whether there is one."""
        plain = asdict(self) | {"relation": self.relation.value, "composition": self.composition.value}
        plain["receipts"] = [
            asdict(replace(one, curve=None)) | {"curve": one.curve is not None} for one in self.receipts
        ]
        return plain
