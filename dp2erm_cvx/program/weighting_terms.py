"""Terms of a problem in the weights: dispersions of weights, and prices of imbalances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.domain import Array
from dp2erm_cvx.errors import DeclarationError
from dp2erm_cvx.program.declaration import printed
from dp2erm_cvx.program.weighting_data import ONE, ByFeature, FeatureTable
from dp2erm_cvx.program.weighting_sums import AffineReader, RecordSums, WeightLine, feature_groups, flat
from dp2erm_cvx.weighting.dispersion import Dispersion, DispersionPart
from dp2erm_cvx.weighting.features import Features, IntervalSet, SimilaritySet
from dp2erm_cvx.weighting.form import FeatureRows, Imbalance, ImbalancePenalty

#: Atoms that are strictly convex.
_STRICT = ("square", "entropy", "log", "power")
#: Atoms of CVXPY that change the shape of a single number at most.
_RESHAPES = ("Promote", "broadcast_to", "reshape", "Reshape", "Vec", "transpose", "index", "special_index")


@dataclass(frozen=True)
class ScaledNode:
    """A public factor times a function of an expression, added up over its entries.

    Parameters
    ----------
    factor
        One number, or one for every entry.
    node
        The function, a node of CVXPY's tree.
    """

    factor: float | Array
    node: Any

    @property
    def number(self) -> float:
        """The factor, where it is one for all entries. Raises DeclarationError where it is not."""
        if isinstance(self.factor, float):
            return self.factor
        if np.ptp(self.factor) == 0.0:
            return float(self.factor[0])
        raise DeclarationError(f"{printed(self.node)}: has a factor for every entry: write one for all")


def node_kind(e: Any) -> str:
    """Name of the class of a node; approximations of powers and norms have that of the exact ones."""
    return type(e).__name__.removesuffix("Approx")


def is_public(e: Any) -> bool:
    """True if an expression holds neither weights nor data."""
    return not e.variables() and not e.parameters()


def entries_of(e: Any, factor: float | Array = 1.0) -> Iterator[ScaledNode]:
    """Terms that add up to an expression, entry by entry."""
    kind = node_kind(e)
    if is_public(e) or e.is_affine():
        yield ScaledNode(factor, e)
    elif kind == "AddExpression":
        for part in e.args:
            yield from entries_of(part, factor)
    elif kind == "NegExpression":
        yield from entries_of(e.args[0], -factor)
    elif kind in _RESHAPES and e.args[0].size == 1:
        yield from entries_of(e.args[0], factor)
    elif (scaled := _scaled(e)) is not None:
        by, inner = scaled
        yield from entries_of(inner, factor * by)
    elif kind == "Sum" and e.size == 1:
        yield from summed(e.args[0], factor)
    elif kind == "MulExpression" and e.size == 1 and (product := _public_product(e)) is not None:
        weights, inner = product
        yield from summed(inner, factor * weights)
    else:
        yield ScaledNode(factor, e)


def summed(e: Any, factor: float | Array = 1.0) -> Iterator[ScaledNode]:
    """Terms that add up to the sum of all entries of an expression."""
    if node_kind(e) == "Sum":
        if not isinstance(factor, float) and np.ptp(factor) != 0.0:
            raise DeclarationError(f"{printed(e)}: has a factor for every entry: write one for all")
        yield from summed(e.args[0], float(np.ravel(factor)[0]))
        return
    for term in entries_of(e, factor):
        if term.node.size == e.size:
            yield term
        else:  # one number, which every entry has
            entries = np.broadcast_to(term.factor, (e.size,))
            yield ScaledNode(float(np.sum(entries)), term.node)


def _scaled(e: Any) -> tuple[float | Array, Any] | None:
    """A public factor (one number, or one for each entry) and the expression that it scales."""
    kind = node_kind(e)
    if kind == "DivExpression" and is_public(e.args[1]) and e.args[0].size == e.size:
        return _number_or_array(1.0 / flat(e.args[1].value)), e.args[0]
    if kind not in ("multiply", "MulExpression"):
        return None
    for by, inner in (e.args, e.args[::-1]):
        fits = by.size == 1 or (kind == "multiply" and by.size == e.size)
        if is_public(by) and fits and inner.size == e.size:
            return _number_or_array(flat(by.value)), inner
    return None


def _public_product(e: Any) -> tuple[float | Array, Any] | None:
    """A public vector and the vector that it is multiplied by to one number."""
    for by, inner in (e.args, e.args[::-1]):
        if is_public(by) and by.size == inner.size:
            return _number_or_array(flat(by.value)), inner
    return None


def _number_or_array(values: Array) -> float | Array:
    return float(values[0]) if np.ptp(values) == 0.0 else values


@dataclass(frozen=True)
class Price:
    """A price of the entries of an expression, or of their norm.

    Parameters
    ----------
    argument
        The affine expression.
    penalty
        Its price.
    entries
        Factors of the entries, which are priced after they are multiplied by these.
    """

    argument: Any
    penalty: ImbalancePenalty
    entries: float | Array = 1.0


@dataclass
class ObjectiveReader:
    """What has been read of an objective so far.

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
    centered
        Whether a sum of weights was replaced by its public value, which adds a number to every slope.
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
    centered: bool = False
    whole_line: list[DispersionPart] = field(default_factory=list)
    from_base: int = 0

    def read(self, objective: Any, sign: float) -> None:
        """Read all terms of an objective of CVXPY that is multiplied by a sign."""
        for term in entries_of(objective, sign):
            if not np.any(term.factor) or is_public(term.node):
                continue
            if term.node.is_affine():
                self._linear(term)
            else:
                self._term(term)

    def dispersion(self) -> Dispersion:
        """All parts. Raises DeclarationError unless they are strictly convex, and of one kind of base."""
        curved = [part for part in self.parts if part.atom != "line"]
        if not any(part.atom in _STRICT for part in curved):
            raise DeclarationError("objective: is not strictly convex in w: add cp.sum_squares(w - 1)")
        if self.base is not None and self.from_base != len(curved):
            raise DeclarationError(
                f"objective: has a dispersion from {self.base.name} beside another one: keep one of them"
            )
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
            if isinstance(self.table.known[name].within, SimilaritySet):
                raise DeclarationError(f"objective: is linear in {name}: make it a number of every record")
        text = "the linear term of the objective"
        if len(kept) > 1:
            raise DeclarationError(f"{text}: adds {' and '.join(kept)}: make one number of every record")
        groups, _ = feature_groups(RecordSums(kept, {}, np.zeros(1)), self.table, text)
        return groups[0][0]

    def _imbalances_of(self, price: Price) -> None:
        """Add an imbalance with its price; kinks of other prices are imbalances of their own."""
        text = printed(price.argument)
        sums = self.affine.sums(price.argument)
        factors = np.broadcast_to(price.entries, sums.shift.shape)
        for factor in np.unique(factors) if price.penalty.kinked else [factors]:
            if price.penalty.kinked:
                own = sums.at(np.flatnonzero(factors == factor))
                penalty = replace(price.penalty, price=price.penalty.price * float(factor))
            else:
                own = sums.times(np.diag(factors))
                penalty = price.penalty
            found = self.priced(own, penalty, text)
            if found is not None:
                self.imbalances.append(found[0])

    def priced(
        self, sums: RecordSums, penalty: ImbalancePenalty, text: str
    ) -> tuple[Imbalance, NDArray[np.int64]] | None:
        """Sums with their price, and the places of their coordinates; None where they are 0."""
        if not sums.rows:
            raise DeclarationError(f"{text}: holds data and no weights: leave it out")
        groups, order = feature_groups(sums, self.table, text)
        if not groups:
            return None
        tolerance = penalty.tolerance
        if isinstance(tolerance, np.ndarray):
            tolerance = tolerance[order]
        ordered = replace(penalty, tolerance=tolerance)
        for group in groups:
            self._refuse_entries_of_kernels(group[0].features, ordered, sums.shift, text)
        return Imbalance(groups, sums.shift[order], ordered, text), order

    def _refuse_entries_of_kernels(
        self, features: Features, penalty: ImbalancePenalty, shift: Array, text: str
    ) -> None:
        """Raise DeclarationError where the price of features of a kernel depends on their entries."""
        if features.kernel is None:
            return
        squares = penalty.norm is None and math.isinf(penalty.knee) and not np.any(penalty.tolerance)
        plain = squares and not penalty.kinked
        if np.any(shift) or not (plain or penalty.norm == 2.0):
            raise DeclarationError(
                f"{text}: prices entries of {features.name}, which is known by inner products alone: write "
                "cp.sum_squares of all of them or cp.norm"
            )

    def _linear(self, term: ScaledNode) -> None:
        """A term that is affine in the weights."""
        sums = self.affine.sums(_all_entries(term))
        for name, tensor in sums.rows.items():
            self._add_linear(name, tensor)

    def _add_linear(self, name: str, tensor: Array) -> None:
        """Add a linear function (2, 1, width) of a feature to the slopes; a public number to their line."""
        if name == ONE and tensor[0, 0, 0] == tensor[1, 0, 0]:
            self.parts.append(DispersionPart("line", float(tensor[0, 0, 0])))
        else:
            self.linear[name] = self.linear.get(name, 0.0) + tensor

    def _term(self, term: ScaledNode) -> None:
        """A term that is curved: a dispersion, or a price of an imbalance."""
        if self._divergence(term):
            return
        price = price_of(term)
        if price is not None:
            argument = price.argument
            line = self.affine.line(argument)
            if line is None:
                self._imbalances_of(price)
            else:
                self._dispersion_of_price(price, line)
            return
        self._dispersion_of_atom(term)

    def _dispersion_of_price(self, price: Price, line: WeightLine) -> None:
        """A square, a Huber function or a size of single weights."""
        text = printed(price.argument)
        penalty = price.penalty
        if np.any(penalty.tolerance) or (penalty.norm is not None):
            raise DeclarationError(f"{text}: weights have a dispersion of each: write cp.sum_squares(w - 1)")
        entries = price.entries
        if not isinstance(entries, float) and np.ptp(entries) != 0.0:
            raise DeclarationError(f"{text}: has other factors for other records: write one for all")
        by = float(np.ravel(entries)[0])
        slope, offset = self._ends_of(line, text)
        slope = by * slope
        offset = by * offset
        if penalty.kinked:
            self._refuse_data(line, text)
            self.parts.append(DispersionPart("size", penalty.price, slope, offset))
        elif math.isinf(penalty.knee):
            self.parts.append(DispersionPart("square", penalty.factor, slope, offset))
            # (k w + c + l)^2 adds 2 k l w, and a number without w
            for name, tensor in line.data.items():
                self._add_linear(name, 2.0 * penalty.factor * slope * by * tensor)
        else:
            self._refuse_data(line, text)
            self.parts.append(DispersionPart("huber", penalty.factor, slope, offset, penalty.knee))

    def _dispersion_of_atom(self, term: ScaledNode) -> None:
        """An entropy, a logarithm or a power of single weights."""
        node = term.node
        kind = node_kind(node)
        text = printed(node)
        if kind not in ("entr", "log", "Power"):
            _refuse(node)
        line = self.affine.line(node.args[0])
        if line is None:
            _refuse(node)
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

    def _divergence(self, term: ScaledNode) -> bool:
        """Read a divergence of weights from a base, or of a base from weights; False for any other term."""
        node = term.node
        kind = node_kind(node)
        if kind not in ("kl_div", "rel_entr"):
            return False
        text = printed(node)
        first = self._argument(node.args[0], node.size)
        second = self._argument(node.args[1], node.size)
        scale = term.number
        whole = kind == "kl_div"
        if first is not None and second is None:
            slope, offset = self._ends_of(first, text)
            self._refuse_data(first, text)
            base = self._base(node.args[1], text)
            if offset != 0.0 and self.base is not None:
                raise DeclarationError(f"{text}: is measured from data: write the weights without an offset")
            # t log(t / b), and - t of a whole divergence
            self.parts.append(DispersionPart("entropy", scale, slope, offset))
            self.parts.append(DispersionPart("line", -scale * slope * (math.log(base) + float(whole))))
        elif first is None and second is not None:
            slope, offset = self._ends_of(second, text)
            self._refuse_data(second, text)
            base = self._base(node.args[0], text)
            if offset != 0.0 and self.base is not None:
                raise DeclarationError(f"{text}: is measured from data: write the weights without an offset")
            # - b log t, and + t of a whole divergence
            self.parts.append(DispersionPart("log", scale * base, slope, offset))
            if whole:
                self.parts.append(DispersionPart("line", scale * slope))
        else:
            raise DeclarationError(f"{text}: compares weights with weights: write a public base or numbers")
        return True

    def _argument(self, e: Any, size: int) -> WeightLine | None:
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
        if self.base not in (None, features):
            raise DeclarationError(f"{text}: is a second base beside another one: keep one of them")
        self.base = features
        self.from_base += 1
        return factor

    def _positive_number(self, line: WeightLine | None, text: str) -> tuple[Features, float]:
        """The one feature of a base, a positive number, and its public factor."""
        reason = f"{text}: has a base that is no positive number of each record: write records.numbers"
        if line is None or line.slope or line.total or line.offset or line.crossed or len(line.data) != 1:
            raise DeclarationError(reason)
        name, tensor = next(iter(line.data.items()))
        features = self.table.known[name]
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
            raise DeclarationError(f"{text}: multiplies weights by data: the dispersion is the same for all")
        if line.slope == 0.0:
            raise DeclarationError(f"{text}: does not hold the weight of each record: leave it out")
        if line.total == 0.0:
            return line.slope, line.offset
        if self.total is None:
            raise DeclarationError(f"{text}: takes the mean of weights, which is data here: write w - 1")
        self.centered = True
        return line.slope, line.offset + line.total * self.total

    def _refuse_data(self, line: WeightLine, text: str) -> None:
        if not line.public:
            raise DeclarationError(
                f"{text}: is another dispersion for every record: write sum_squares(w - d) or kl_div(w, d)"
            )


def _all_entries(term: ScaledNode) -> Any:
    """The sum of the entries of an affine term, with its factors."""
    if isinstance(term.factor, float):
        return cp.sum(term.factor * term.node)
    return cp.sum(cp.multiply(term.factor, cp.vec(term.node, order="F")))


def price_of(term: ScaledNode) -> Price | None:
    """A term as a price of an affine expression; None for another function.

    Raises DeclarationError for a price that no theorem covers, saying what to write.
    """
    node = term.node
    kind = node_kind(node)
    if kind == "quad_over_lin":
        _refuse_axis(node)
        divisor = node.args[1]
        if not is_public(divisor):
            raise DeclarationError(f"{printed(node)}: divides by data: divide by a public number")
        return _square(node.args[0], term.number / float(flat(divisor.value)[0]))
    if kind == "Power" and exponent_of(node) == 2.0:
        return _square(node.args[0], term.factor)
    if kind == "huber":
        return _huber(node, term)
    if kind in ("abs", "norm1"):
        _refuse_axis(node)
        return _size(node, term)
    if kind == "QuadForm":
        return _quadratic(node, term.number)
    if kind in ("Pnorm", "norm_inf", "max"):
        argument, norm = norm_of(node)
        if not term.number > 0.0:
            _refuse(node)
        return Price(argument, ImbalancePenalty(math.inf, norm=norm, price=term.number))
    return None


def norm_of(node: Any) -> tuple[Any, float]:
    """Argument and order of a norm, 2 or infinity. Raises DeclarationError for another one."""
    kind = node_kind(node)
    _refuse_axis(node)
    argument = node.args[0]
    norm = math.inf
    if kind == "max":
        if node_kind(argument) != "abs":
            raise DeclarationError(f"{printed(node)}: is no size of an imbalance: write cp.norm_inf(m)")
        argument = argument.args[0]
    elif kind == "Pnorm":
        norm = float(getattr(node.p, "value", node.p))
        if norm != 2.0:
            raise DeclarationError(f"{printed(node)}: is of order {norm:g}: write order 1, 2 or infinity")
    if node_kind(argument) == "abs":
        argument = argument.args[0]
    if not argument.is_affine():
        raise DeclarationError(f"{printed(node)}: is a norm of a curved function: write one of an imbalance")
    return argument, norm


def exponent_of(node: Any) -> float:
    """Exponent of a power, as CVXPY takes it."""
    return float(getattr(node.p, "value", node.p))


def beyond_tolerance(e: Any) -> tuple[Any, float | Array, float | Array] | None:
    """Size, its factor and the tolerance of ``pos(factor * size - tolerance)``; None for anything else."""
    if node_kind(e) != "maximum" or len(e.args) != 2:
        return None
    for inner, zero in (e.args, e.args[::-1]):
        if is_public(zero) and not np.any(flat(zero.value)):
            return size_and_limit(inner)
    return None


def size_and_limit(e: Any) -> tuple[Any, float | Array, float | Array] | None:
    """``(size, factor, limit)`` where an expression is ``factor * size - limit`` with a public limit."""
    size: ScaledNode | None = None
    limit: float | Array = 0.0
    for term in entries_of(e):
        if is_public(term.node):
            values = _number_or_array(flat(term.node.value))
            limit = limit - term.factor * values
        elif size is None and not term.node.is_affine():
            size = term
        else:
            return None
    if size is None or not np.all(np.asarray(size.factor) > 0.0):
        return None
    return size.node, size.factor, limit


def _square(argument: Any, factor: float | Array) -> Price:
    """A square of entries, of a norm, or of what is beyond a tolerance."""
    if not np.all(np.asarray(factor) > 0.0):
        raise DeclarationError(f"square({printed(argument)}): has a factor that is not above 0")
    kind = node_kind(argument)
    if argument.is_affine():
        return _entrywise(argument, factor)
    if kind == "abs":
        return _square(argument.args[0], factor)
    if kind == "Pnorm":
        inner, _ = norm_of(argument)
        return Price(inner, ImbalancePenalty(float(np.ravel(factor)[0])))
    found = beyond_tolerance(argument)
    if found is None:
        raise DeclarationError(
            f"square({printed(argument)}): is not read: write cp.sum_squares(m), or "
            "cp.sum_squares(cp.pos(cp.abs(m) - tolerance))"
        )
    size, by, limit = found
    return _beyond(size, by, limit, factor, math.inf)


def _entrywise(argument: Any, factor: float | Array) -> Price:
    """A sum of squares, with a factor for all entries or one for each, by which rows are multiplied."""
    if isinstance(factor, float):
        return Price(argument, ImbalancePenalty(factor))
    return Price(argument, ImbalancePenalty(1.0), np.sqrt(factor))


def _beyond(size: Any, by: float | Array, limit: float | Array, factor: float | Array, knee: float) -> Price:
    """``factor * huber(pos(by * size - limit), knee)`` with a size that is absolute values or a norm."""
    text = printed(size)
    if np.any(np.asarray(limit) < 0.0):
        raise DeclarationError(f"{text}: has a tolerance below 0: leave it out")
    kind = node_kind(size)
    if kind == "Pnorm":
        argument, norm = norm_of(size)
        # huber(by t, knee) = by^2 huber(t, knee / by)
        scale = _single(by, text)
        one = _single(factor, text)
        tolerance = _single(limit, text) / scale
        return Price(argument, ImbalancePenalty(one * scale**2, tolerance, knee / scale, norm))
    if kind != "abs":
        raise DeclarationError(f"{text}: write cp.pos(cp.abs(m) - tolerance), or that of cp.norm(m)")
    argument = size.args[0]
    alike = _number_if_alike(by)
    if math.isinf(knee) and isinstance(alike, float) and isinstance(factor, float):
        return Price(argument, ImbalancePenalty(factor * alike**2, _number_if_alike(limit / alike)))
    if math.isinf(knee):
        root: Any = np.sqrt(factor) * by
        scaled = _number_if_alike(np.sqrt(factor) * limit)
        return Price(argument, ImbalancePenalty(1.0, scaled), _number_if_alike(root))
    one = _single(factor, text)
    return Price(argument, ImbalancePenalty(one, _number_if_alike(limit), knee), _number_if_alike(by))


def _huber(node: Any, term: ScaledNode) -> Price:
    """A Huber function of entries, of a norm, or of what is beyond a tolerance."""
    argument = node.args[0]
    knee = float(flat(node.M.value)[0])
    kind = node_kind(argument)
    factor = term.number
    if not factor > 0.0 or not knee > 0.0:
        raise DeclarationError(f"{printed(node)}: has a factor or a knee that is not above 0")
    if kind == "abs":
        argument = argument.args[0]
    if argument.is_affine():
        return Price(argument, ImbalancePenalty(factor, knee=knee))
    if kind == "Pnorm":
        inner, norm = norm_of(argument)
        return Price(inner, ImbalancePenalty(factor, knee=knee, norm=norm))
    scaled = beyond_tolerance(argument) or size_and_limit(argument)
    if scaled is None:
        _refuse(node)
    size, by, limit = scaled
    if beyond_tolerance(argument) is None and np.any(limit):
        _refuse(node)
    return _beyond(size, by, limit, factor, knee)


def _size(node: Any, term: ScaledNode) -> Price:
    """A sum of sizes: a kink."""
    argument = node.args[0]
    if not argument.is_affine():
        _refuse(node)
    if not np.all(np.asarray(term.factor) > 0.0):
        raise DeclarationError(f"{printed(node)}: has a factor that is not above 0")
    if isinstance(term.factor, float):
        return Price(argument, ImbalancePenalty(math.inf, price=term.factor))
    return Price(argument, ImbalancePenalty(math.inf, price=1.0), term.factor)


def _quadratic(node: Any, factor: float) -> Price:
    """A public quadratic form of an imbalance: its rows are multiplied by a root of the matrix."""
    argument, matrix = node.args
    if not is_public(matrix):
        raise DeclarationError(f"{printed(node)}: has a matrix that is data: write a public one")
    if argument.variables() and argument.size > 1 and argument.is_affine() and not argument.parameters():
        raise DeclarationError(f"{printed(node)}: is a quadratic of weights: write cp.sum_squares(w - 1)")
    values = matrix.value
    dense = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64)
    eigenvalues, vectors = np.linalg.eigh((dense + dense.T) / 2.0)
    root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * vectors.T
    if not factor > 0.0:
        _refuse(node)
    rooted = cp.Constant(root) @ cp.vec(argument, order="F")
    return Price(rooted, ImbalancePenalty(factor))


def _single(value: float | Array, text: str) -> float:
    """One number for all entries."""
    values = np.ravel(value)
    if np.ptp(values) != 0.0:
        raise DeclarationError(f"{text}: has a number for every entry: write one for all")
    return float(values[0])


def _number_if_alike(value: Any) -> float | Array:
    values = np.ravel(np.asarray(value, dtype=np.float64))
    return float(values[0]) if values.size == 1 or np.ptp(values) == 0.0 else values


def _refuse_axis(node: Any) -> None:
    """Raise DeclarationError for a norm or a maximum along an axis."""
    if getattr(node, "axis", None) is not None:
        raise DeclarationError(f"{printed(node)}: is taken along an axis: write one of all entries")


#: What to write in place of atoms that are not read.
_INSTEAD = {
    "log_sum_exp": "cp.norm_inf of the imbalance, or cp.sum_squares",
    "exp": "-cp.sum(cp.entr(w)) or cp.sum_squares(w - 1)",
    "logistic": "cp.sum_squares(w - 1), or two entropies on an interval",
    "maximum": "cp.abs, or cp.sum_squares(cp.pos(cp.abs(m) - tolerance))",
    "Sum": "cp.sum of all entries",
}


def _refuse(node: Any) -> NoReturn:
    """Raise DeclarationError for a node that is not read."""
    default = "squares, entr, log, power or huber of weights, and squares, huber or norms of imbalances"
    instead = _INSTEAD.get(node_kind(node), default)
    raise DeclarationError(f"{printed(node)}: is not read here: write {instead}")
