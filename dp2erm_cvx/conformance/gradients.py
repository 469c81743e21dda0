"""Movement of the gradient that an author states, looked for by gradients alone.

A solve takes milliseconds or more, a gradient a fraction of that, and what is stated is about every
weight.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dp2erm_cvx.arrays import ROUND_UP_SUMS, Array
from dp2erm_cvx.audit.pairs import Pairs, directions, draw_pair, next_pair
from dp2erm_cvx.data.mapped_universe import MappedUniverse
from dp2erm_cvx.data.records import Records
from dp2erm_cvx.program.declaration import Params
from dp2erm_cvx.program.direct_stage import WeightsProgram

#: Share of a budget that goes to pairs which are drawn; the rest changes the best of them.
_DRAWN = 0.6
#: How far weights are from those of a corner of their box, so that no kink is met.
_APART = 1e-3


class DeclaredGradient:
    """Gradients of the declared objective at any records and weights of a universe.

    Parameters
    ----------
    program
        The program.
    universe
        Its records, all of which have this size.
    """

    def __init__(self, program: WeightsProgram, universe: MappedUniverse) -> None:
        self.program = program.at(universe)
        self.floor, self.cap = self.program.box(universe)
        self.universe = universe
        self._parameters: Params | None = None

    def at(self, records: Records, weights: Array) -> Array | None:
        """The gradient (n,) at weights (n,).

        None where they are outside of its domain or constraints.
        """
        data = self.program.data(records)
        if self._parameters is None:
            self._parameters = Params(data, embed=False)
            self._declared = self.program.declare(self._parameters)
        for name, parameter in self._parameters.made.items():
            parameter.value = np.maximum(data[name], 0.0) if parameter.is_nonneg() else data[name]
        (variable,) = self._declared.variables.values()
        variable.value = weights
        if not all(np.all(one.violation() <= 1e-9) for one in self._declared.constraints.values()):
            return None
        gradient = self._declared.objective.grad[variable]
        if gradient is None:
            return None
        flat: Array = np.asarray(gradient.toarray(), dtype=np.float64).ravel()
        return flat if np.all(np.isfinite(flat)) else None

    def moved(self, pair: Pairs, weights: Array) -> float:
        """Norm of the difference of the gradients of two neighbors; 0 where one has none."""
        first, second = pair.records(self.universe.space)
        before = self.at(first, weights)
        after = self.at(second, weights)
        if before is None or after is None:
            return 0.0
        return float(np.linalg.norm(before - after))

    def weights(self, turn: int, rng: np.random.Generator) -> Array:
        """Weights of sum n in the box: the changed record heavy, light or as others, in turns."""
        n = self.universe.n_samples
        toward = rng.exponential(size=n)
        if turn % 3 != 0:
            toward *= _APART
            toward[0] = 1.0
        toward *= n / toward.sum()
        if turn % 3 == 2:
            toward[0] *= _APART
            toward[1:] = (n - toward[0]) / (n - 1)
        away = toward - 1.0
        up = np.max(away) / max(self.cap - 1.0, 1e-300)
        down = np.max(-away) / max(1.0 - self.floor, 1e-300)
        weights: Array = 1.0 + away * (1.0 - _APART) / max(up, down, 1.0)
        return weights


def largest_gradient_movement(
    program: WeightsProgram, universe: MappedUniverse, stated: float, budget: int, seed: int
) -> tuple[float, int]:
    """Largest movement of the gradient between neighbors that is found, and the pairs it took.

    The search ends at the first pair that moves it beyond what is ``stated``. Half of the pairs
    that are drawn have everybody else at one end of a direction, where functions of half spaces and
    of single arms are at their largest; then the best pair is changed again and again.

    Parameters
    ----------
    program
        The program at its settings.
    universe
        Where it is used.
    stated
        The movement of the gradient that its author states.
    budget
        Pairs that are tried at most: a public number.
    seed
        Repeats the search.

    Returns
    -------
    tuple
        The movement, a lower bound of the largest one, and the number of pairs.
    """
    gradient = DeclaredGradient(program, universe)
    rng = np.random.default_rng([seed, 11])
    best: Pairs | None = None
    largest = 0.0
    drawn = _drawn(universe, max(int(_DRAWN * budget), 1), rng)
    for turn in range(max(budget, 1)):
        pair = next(drawn, None)
        if pair is None:
            pair = next_pair(universe, best, rng)
        moved = gradient.moved(pair, gradient.weights(turn, rng))
        if moved > largest:
            best = pair
            largest = moved
        if largest > stated * ROUND_UP_SUMS:
            return largest, turn + 1
    return largest, budget


def _drawn(universe: MappedUniverse, number: int, rng: np.random.Generator) -> Iterator[Pairs]:
    """Pairs that face each other, and pairs of the families of audits, in turns."""
    for turn in range(number):
        if turn % 2 == 0:
            facing = facing_pair(universe, turn // 2, rng)
            if facing.admissible(universe.space):
                yield facing
                continue
        yield draw_pair(universe, rng)


def facing_pair(universe: MappedUniverse, turn: int, rng: np.random.Generator) -> Pairs:
    """Everybody at one end of a direction, while one record jumps to the other end.

    The end is that of an arm, or one for both. Directions are the axes in turns, and now and then
    one that is drawn.

    Parameters
    ----------
    universe
        Where the datasets are.
    turn
        Number of the pair, which chooses its direction.
    rng
        Draws the arms, and the side that the others are on.

    Returns
    -------
    Pairs
        One pair; it may leave an arm below its floor.
    """
    n = universe.n_samples
    k = universe.n_features
    place = turn % (2 * k + 1)
    direction = directions(rng, 1, k)[0]
    if place < 2 * k:
        direction = np.zeros(k)
        direction[place // 2] = 1.0 if place % 2 else -1.0
    end = universe.space.features_bound * direction
    # before, after, and others that differ by arm
    opposite = rng.random() < 0.5
    others = np.stack([end, -end if opposite else end])
    X = np.concatenate([np.stack([end, -end]), others])
    arm = int(rng.integers(2))
    after = 1 - arm if universe.flips and rng.random() < 0.5 else arm
    a = np.array([arm, after, 1, 0], dtype=np.int64)
    few = 1 + int(max(universe.space.arm_floor or 0, 1))
    treated = int(rng.choice([few, n // 2, n - 1 - few]))
    order = np.where(np.arange(n - 1) < treated, 2, 3)
    return Pairs.single(universe.space.inside(X), a, np.zeros(4), order)
