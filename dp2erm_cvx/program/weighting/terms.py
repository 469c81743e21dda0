"""Terms of an objective in the weights: which are a dispersion, which are prices of imbalances."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.curves.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.declaration import printed
from dp2erm_cvx.program.weighting.data import ONE, ByFeature, FeatureTable
from dp2erm_cvx.program.weighting.prices import (
    Price,
    ScaledNode,
    all_entries,
    exponent_of,
    is_public,
    node_kind,
    price_of,
    refuse_node,
)
from dp2erm_cvx.program.weighting.sums import (
    AffineReader,
    SumsOverRecords,
    WeightLine,
    feature_groups,
    flat,
)
from dp2erm_cvx.weighting.forms.features import Features, IntervalSet, SimilaritySet
from dp2erm_cvx.weighting.forms.form import FeatureRows, Imbalance, Penalty

#: Atoms that are strictly convex.
_STRICT = ("square", "entropy", "log", "power")


@dataclass
class TermReader:
    """Reads terms of an objective one by one, and holds what they are.

    Parameters
    ----------
    affine
        Reads affine expressions.
    table
        The features that data are made of.
    total
        Sum of all weights where it is public, else None.
    parts
        Parts of the dispersion.
    imbalances
        Imbalances with their prices.
    linear
        What is added to the slope of each dispersion, as a matrix (2, 1, width) of features.
    base
        The feature that dispersions are measured from.
    from_base
        Number of parts that are measured from it.
    centered
        Whether a sum of weights was replaced by its public value, which adds a number to every
        slope.
    whole_line
        Parts that are powers of numbers of either sign, of which only positive ones are read.
    """

    affine: AffineReader
    table: FeatureTable
    total: float | None
    parts: list[DispersionPart] = field(default_factory=list)
    imbalances: list[Imbalance] = field(default_factory=list)
    linear: ByFeature = field(default_factory=dict)
    base: Features | None = None
    from_base: int = 0
    centered: bool = False
    whole_line: list[DispersionPart] = field(default_factory=list)

    def read(self, term: ScaledNode) -> None:
        """Read a term.

        Raises DeclarationError for one that no theorem covers, saying what to write.
        """
        if term.node.is_affine():
            self._linear(term)
        else:
            self._curved(term)

    def add(self, other: TermReader) -> None:
        """Add what another reader has read. Raises DeclarationError where it has another base."""
        self.parts += other.parts
        self.imbalances += other.imbalances
        for name, tensor in other.linear.items():
            self.linear[name] = self.linear.get(name, 0.0) + tensor
        if other.base is not None:
            self._set_base(other.base, "objective")
        self.from_base += other.from_base
        self.centered = self.centered or other.centered
        self.whole_line += other.whole_line

    def refuse_no_dispersion(self) -> None:
        """Raise DeclarationError unless the parts are strictly convex.

        All parts or none have a base.
        """
        curved = [part for part in self.parts if part.atom != "line"]
        if not any(part.atom in _STRICT for part in curved):
            raise DeclarationError(
                "objective: is not strictly convex in w: add cp.sum_squares(w - 1)"
            )
        if self.base is not None and self.from_base != len(curved):
            raise DeclarationError(
                f"objective: has a dispersion from {self.base.name} beside another one: keep one "
                "of them"
            )

    def dispersion(self) -> Dispersion:
        """All parts, with one line at most."""
        curved = [part for part in self.parts if part.atom != "line"]
        lines = [part.scale for part in self.parts if part.atom == "line"]
        slope = math.fsum(lines)
        if slope != 0.0:
            curved.append(DispersionPart("line", slope))
        return Dispersion(tuple(curved))

    def linear_rows(self) -> FeatureRows | None:
        """What is added to the slopes. Raises DeclarationError where several features are."""
        kept = {name: tensor for name, tensor in self.linear.items() if np.any(tensor)}
        if not kept:
            return None
        for name in kept:
            if isinstance(self.table.features[name].within, SimilaritySet):
                raise DeclarationError(
                    f"objective: is linear in {name}: make it a number of every record"
                )
        text = "the linear term of the objective"
        if len(kept) > 1:
            raise DeclarationError(
                f"{text}: adds {' and '.join(kept)}: make one number of every record"
            )
        groups, _ = feature_groups(SumsOverRecords(kept, {}, np.zeros(1)), self.table, text)
        return groups[0][0]

    def _imbalances_of(self, price: Price) -> None:
        """Add an imbalance with its price; kinks of other prices are imbalances of their own."""
        text = printed(price.argument)
        sums = self.affine.sums(price.argument)
        factors = np.broadcast_to(price.entries, sums.shift.shape)
        if not price.penalty.kinked:
            self._append(sums.times(np.diag(factors)), price.penalty, text)
            return
        for factor in np.unique(factors[factors > 0.0]):
            own = sums.at(np.flatnonzero(factors == factor))
            self._append(own, price.penalty.times(float(factor)), text)

    def _append(self, sums: SumsOverRecords, penalty: Penalty, text: str) -> None:
        """Keep an imbalance with its price, unless it is 0."""
        found = self.priced(sums, penalty, text)
        if found is not None:
            self.imbalances.append(found[0])

    def priced(
        self, sums: SumsOverRecords, penalty: Penalty, text: str
    ) -> tuple[Imbalance, NDArray[np.int64]] | None:
        """Sums with their price, and the places of their coordinates; None where they are 0."""
        if not sums.rows:
            raise DeclarationError(f"{text}: holds no weights: leave it out")
        groups, order = feature_groups(sums, self.table, text)
        if penalty.hard and not np.all(sums.weighted[order]):
            raise DeclarationError(f"{text}: has an entry without weights: leave it out")
        if not groups:
            return None
        if penalty.counts_zeros and len(order) < len(sums.shift):
            raise DeclarationError(f"{text}: has an entry that is 0: leave it out")
        ordered = penalty.ordered(order)
        for group in groups:
            self._refuse_entries_of_kernels(group[0].features, ordered, sums.shift, text)
        return Imbalance(groups, sums.shift[order], ordered, text), order

    def _refuse_entries_of_kernels(
        self, features: Features, penalty: Penalty, shift: Array, text: str
    ) -> None:
        """Raise DeclarationError where a price depends on entries of features of a kernel."""
        if features.kernel is None:
            return
        if np.any(shift) or not (penalty.plain or penalty.norm == 2.0):
            raise DeclarationError(
                f"{text}: prices entries of {features.name}, which is known by inner products "
                "alone: write cp.sum_squares of all of them or cp.norm"
            )

    def _linear(self, term: ScaledNode) -> None:
        """A term that is affine in the weights."""
        sums = self.affine.sums(all_entries(term))
        for name, tensor in sums.rows.items():
            self._add_linear(name, tensor)

    def _add_linear(self, name: str, tensor: Array) -> None:
        """Add a linear function (2, 1, width) of a feature to the slopes.

        A public number goes to their line.
        """
        if name == ONE and tensor[0, 0, 0] == tensor[1, 0, 0]:
            self.parts.append(DispersionPart("line", float(tensor[0, 0, 0])))
        else:
            self.linear[name] = self.linear.get(name, 0.0) + tensor

    def _curved(self, term: ScaledNode) -> None:
        """A term that is curved: a dispersion, or a price of an imbalance."""
        if node_kind(term.node) in ("kl_div", "rel_entr"):
            self._divergence(term)
            return
        price = price_of(term)
        if price is None:
            self._dispersion_of_atom(term)
            return
        line = self.affine.line(price.argument)
        if line is None:
            self._imbalances_of(price)
        else:
            self._dispersion_of_price(price, line)

    def _dispersion_of_price(self, price: Price, line: WeightLine) -> None:
        """A square, a Huber function or a size of single weights."""
        text = printed(price.argument)
        penalty = price.penalty
        if np.any(penalty.tolerance) or not penalty.of_entries:
            raise DeclarationError(
                f"{text}: weights have a dispersion of each: write cp.sum_squares(w - 1)"
            )
        if not isinstance(price.entries, float) and np.ptp(price.entries) != 0.0:
            raise DeclarationError(
                f"{text}: has other factors for other records: write one for all"
            )
        entry = float(np.ravel(price.entries)[0])
        line_slope, line_offset = self._ends_of(line, text)
        slope = entry * line_slope
        offset = entry * line_offset
        if penalty.kinked:
            self._refuse_data(line, text)
            self.parts.append(DispersionPart("size", penalty.price, slope, offset))
        elif math.isinf(penalty.knee):
            self.parts.append(DispersionPart("square", penalty.factor, slope, offset))
            # (k w + c + l)^2 adds 2 k l w, and a number without w
            for name, tensor in line.data.items():
                self._add_linear(name, 2.0 * penalty.factor * slope * entry * tensor)
        else:
            self._refuse_data(line, text)
            self.parts.append(DispersionPart("huber", penalty.factor, slope, offset, penalty.knee))

    def _dispersion_of_atom(self, term: ScaledNode) -> None:
        """An entropy, a logarithm or a power of single weights."""
        node = term.node
        kind = node_kind(node)
        text = printed(node)
        if kind not in ("entr", "log", "Power"):
            refuse_node(node)
        line = self.affine.line(node.args[0])
        if line is None:
            refuse_node(node)
        self._refuse_data(line, text)
        slope, offset = self._ends_of(line, text)
        if kind == "entr":
            self.parts.append(DispersionPart("entropy", -term.number, slope, offset))
        elif kind == "log":
            self.parts.append(DispersionPart("log", -term.number, slope, offset))
        else:
            self._power(node, term.number, slope, offset)

    def _power(self, node: Any, factor: float, slope: float, offset: float) -> None:
        """A power, or the negative of one between 0 and 1."""
        exponent = exponent_of(node)
        concave = 0.0 < exponent < 1.0
        scale = -factor if concave else factor
        part = DispersionPart("power", scale, slope, offset, exponent)
        self.parts.append(part)
        if exponent > 0 and exponent % 2.0 == 0.0:
            self.whole_line.append(part)

    def _divergence(self, term: ScaledNode) -> None:
        """A divergence of weights from base weights, or of base weights from weights."""
        first, second = term.node.args
        line = self._argument(first)
        second_line = self._argument(second)
        scale = term.number
        if line is not None and second_line is None:
            self._divergence_from_base(scale, line, second, term.node)
        elif line is None and second_line is not None:
            self._divergence_of_base(scale, second_line, first, term.node)
        else:
            raise DeclarationError(
                f"{printed(term.node)}: compares weights with weights: write a public base or "
                "numbers"
            )

    def _divergence_from_base(self, scale: float, line: WeightLine, base: Any, node: Any) -> None:
        """``t log(t / b)`` of a line t of the weights and a base b, and ``- t`` of a kl_div."""
        slope, offset, b = self._line_and_base(line, base, printed(node))
        of_kl_div = float(node_kind(node) == "kl_div")
        self.parts.append(DispersionPart("entropy", scale, slope, offset))
        self.parts.append(DispersionPart("line", -scale * slope * (math.log(b) + of_kl_div)))

    def _divergence_of_base(self, scale: float, line: WeightLine, base: Any, node: Any) -> None:
        """``- b log t`` of a line t of the weights and a base b, and ``+ t`` of a kl_div."""
        slope, offset, b = self._line_and_base(line, base, printed(node))
        self.parts.append(DispersionPart("log", scale * b, slope, offset))
        if node_kind(node) == "kl_div":
            self.parts.append(DispersionPart("line", scale * slope))

    def _line_and_base(self, line: WeightLine, base: Any, text: str) -> tuple[float, float, float]:
        """Slope and offset of a line of the weights, and the public factor of its base."""
        slope, offset = self._ends_of(line, text)
        self._refuse_data(line, text)
        factor = self._base(base, text)
        if offset != 0.0 and self.base is not None:
            raise DeclarationError(
                f"{text}: is measured from data: write the weights without an offset"
            )
        return slope, offset, factor

    def _argument(self, e: Any) -> WeightLine | None:
        """An argument of a divergence that holds weights; None for a base."""
        if not e.variables():
            return None
        line = self.affine.line(e)
        if line is None:
            raise DeclarationError(f"{printed(e)}: is no weight of each record: write w")
        return line

    def _base(self, e: Any, text: str) -> float:
        """The public base, or the factor of the datum that is the base, which is kept."""
        if is_public(e):
            values = flat(e.value)
            if np.ptp(values) > 0.0 or not values[0] > 0.0:
                raise DeclarationError(f"{text}: has a base that is no public number above 0")
            return float(values[0])
        line = self.affine.line(e)
        features, factor = self._positive_number(line, text)
        self._set_base(features, text)
        self.from_base += 1
        return factor

    def _set_base(self, base: Features, text: str) -> None:
        """Keep a base. Raises DeclarationError where there is another one already."""
        if self.base not in (None, base):
            raise DeclarationError(f"{text}: has two bases: keep one of them")
        self.base = base

    def _positive_number(self, line: WeightLine | None, text: str) -> tuple[Features, float]:
        """The one feature of a base, a positive number, and its public factor."""
        reason = (
            f"{text}: has a base that is no positive number of each record: write records.numbers"
        )
        if line is None or line.slope or line.total or line.offset:
            raise DeclarationError(reason)
        if line.crossed or len(line.data) != 1:
            raise DeclarationError(reason)
        name, tensor = next(iter(line.data.items()))
        features = self.table.features[name]
        within = features.within
        alike = features.width == 1 and tensor[0, 0, 0] == tensor[1, 0, 0]
        if not isinstance(within, IntervalSet) or not alike:
            raise DeclarationError(reason)
        factor = float(tensor[0, 0, 0])
        if not within.low > 0.0 or not factor > 0.0:
            raise DeclarationError(reason)
        return features, factor

    def _ends_of(self, line: WeightLine, text: str) -> tuple[float, float]:
        """Slope and offset of a line, the sum of all weights put in."""
        if line.crossed:
            raise DeclarationError(
                f"{text}: multiplies weights by data: the dispersion is the same for all"
            )
        if line.slope == 0.0:
            raise DeclarationError(f"{text}: does not hold the weight of each record: leave it out")
        if line.total == 0.0:
            return line.slope, line.offset
        if self.total is None:
            raise DeclarationError(
                f"{text}: takes the mean of weights, which is data here: write w - 1"
            )
        self.centered = True
        return line.slope, line.offset + line.total * self.total

    def _refuse_data(self, line: WeightLine, text: str) -> None:
        """Raise DeclarationError where a line holds data."""
        if not line.public:
            raise DeclarationError(
                f"{text}: is another dispersion for every record: write sum_squares(w - d) or "
                "kl_div(w, d)"
            )
