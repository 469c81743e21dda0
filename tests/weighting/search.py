"""Neighboring datasets of a form that are bred to move its weights as far as they can."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp2erm_cvx.arrays import Array
from dp2erm_cvx.weighting.bounds.constants import WeightingConstants, weighting_constants
from dp2erm_cvx.weighting.forms.features import (
    BallSet,
    ConstantSet,
    Features,
    IntervalSet,
    SimilaritySet,
)
from dp2erm_cvx.weighting.forms.form import SumKind, WeightingForm
from tests.weighting.reference import Datasets, solve, variation


@dataclass(frozen=True)
class Pairs:
    """Pairs of datasets: common classes, and a record before and after."""

    phi: dict[str, Array]
    arms: NDArray[np.int64]
    counts: Array

    @property
    def size(self) -> int:
        return len(self.arms)

    def side(self, after: int) -> Datasets:
        """The dataset before (0) or after (1): the last two classes are the record, of which one is
        kept.
        """
        kept = [*range(self.arms.shape[1] - 2), self.arms.shape[1] - 2 + after]
        phi = {name: own[:, kept] for name, own in self.phi.items()}
        return Datasets(phi, self.arms[:, kept], self.counts[:, kept])

    def chosen(self, index: NDArray[np.int64]) -> Pairs:
        return Pairs(
            {name: own[index] for name, own in self.phi.items()},
            self.arms[index],
            self.counts[index],
        )


@dataclass(frozen=True)
class Found:
    """What a search found: V and the largest weights over their bounds, and how many pairs were
    solved.
    """

    ratio: float
    weight_ratio: float
    pairs: int


def into_set(features: Features, values: Array) -> Array:
    """Values (..., width), mapped into the public set."""
    within = features.within
    if isinstance(within, ConstantSet):
        return np.ones_like(values)
    if isinstance(within, IntervalSet):
        return np.clip(values, within.low, within.high)
    size = np.linalg.norm(values, axis=-1, keepdims=True)
    if isinstance(within, SimilaritySet):
        # Vectors of one length, without negative entries where no inner product may be negative.
        kept = values if within.signed else np.abs(values)
        return kept / np.maximum(size, 1e-300) * np.sqrt(within.bound)
    return values * np.minimum(1.0, within.radius / np.maximum(size, 1e-300))


def split(generator: np.random.Generator, total: int, parts: int, cases: int) -> Array:
    """Positive whole numbers (cases, parts) of sum ``total``."""
    alpha = generator.choice([0.3, 1.0, 20.0], (cases, 1))
    shares = generator.gamma(np.repeat(alpha, parts, axis=1)) + 1e-9
    shares /= shares.sum(axis=1, keepdims=True)
    counts = np.floor(shares * (total - parts)) + 1.0
    counts[:, 0] += total - counts.sum(axis=1)
    return counts


def drawn(
    form: WeightingForm, generator: np.random.Generator, cases: int, classes: int = 4
) -> Pairs:
    """Drawn pairs; half of them of the kind that attains Theorem 5: others (f, +-x), a record
    turned over.
    """
    sharp = generator.random(cases) < 0.5
    forward = generator.uniform(0.0, 0.98, cases)
    aside = generator.uniform(0.0, 1.0, cases) * np.sqrt(1.0 - forward**2)
    phi = {}
    for features in form.features:
        within = features.within
        size = within.radius if isinstance(within, BallSet) else 1.0
        own = generator.standard_normal((cases, classes + 2, features.width))
        own *= size * generator.choice([0.3, 1.0, 3.0], (cases, 1, 1))
        if isinstance(within, IntervalSet):
            own = generator.uniform(within.low, within.high, own.shape)
            ends = generator.choice([within.low, within.high], own.shape)
            own = np.where(generator.random(own.shape) < 0.5, ends, own)
        if isinstance(within, BallSet) and features.width >= 2:
            special = np.zeros_like(own)
            signs = np.where(np.arange(classes) % 2 == 0, 1.0, -1.0)
            special[:, :classes, 0] = size * forward[:, None]
            special[:, :classes, 1] = size * aside[:, None] * signs
            special[:, classes, 1] = size
            special[:, classes + 1, 1] = -size
            own = np.where(sharp[:, None, None], special, own)
        phi[features.name] = into_set(features, own)
    arms = generator.integers(0, 2, (cases, classes + 2))
    arms[:, 0] = 0
    arms[:, 1] = 1
    counts = np.ones((cases, classes + 2))
    counts[:, :classes] = split(generator, form.n - 1, classes, cases)
    even = generator.random(cases) < 0.4
    counts[even, :classes] = (form.n - 1) // classes
    counts[even, 0] += form.n - 1 - classes * ((form.n - 1) // classes)
    return Pairs(phi, arms, counts)


def bred(form: WeightingForm, generator: np.random.Generator, parents: Pairs, step: float) -> Pairs:
    """Children: features moved, arms flipped, counts shifted."""
    cases, classes = parents.arms.shape
    phi = {}
    for features in form.features:
        own = parents.phi[features.name].copy()
        scale = step * np.exp(generator.uniform(-5.0, 0.0, (cases, 1, 1)))
        moved = own + scale * generator.standard_normal(own.shape)
        own = np.where(generator.random((cases, classes, 1)) < 0.5, moved, own)
        phi[features.name] = into_set(features, own)
    arms = parents.arms.copy()
    flips = generator.random(arms.shape) < 0.05
    flips[:, :2] = False
    arms = np.where(flips, 1 - arms, arms)
    counts = parents.counts.copy()
    for _ in range(2):
        source = generator.integers(0, classes - 2, cases)
        target = generator.integers(0, classes - 2, cases)
        every = np.arange(cases)
        share = generator.random(cases) * (generator.random(cases) < 0.5)
        moved_counts = np.floor(share * (counts[every, source] - 1.0))
        counts[every, source] -= moved_counts
        counts[every, target] += moved_counts
    return Pairs(phi, arms, counts)


def at_the_floor(pairs: Pairs, generator: np.random.Generator, floors: tuple[int, int]) -> Pairs:
    """Pairs of which half have as few records in one arm as the universe admits: one class has them
    all.
    """
    arms = pairs.arms.copy()
    counts = pairs.counts.copy()
    common = arms.shape[1] - 2
    n_common = counts[:, :common].sum(axis=1)
    for case in np.flatnonzero(generator.random(pairs.size) < 0.5):
        small = int(generator.integers(0, 2))
        stays = arms[case, -2] == small and arms[case, -1] == small
        least = floors[small] - int(stays)
        # where nobody else is in the arm, its class has no records
        arms[case, :common] = 1 - small
        arms[case, small] = small
        rest = n_common[case] - least
        counts[case, :common] = rest // (common - 1)
        counts[case, small] = least
        counts[case, 1 - small] += n_common[case] - counts[case, :common].sum()
    return Pairs(pairs.phi, arms, counts)


def movements(form: WeightingForm, pairs: Pairs) -> tuple[Array, Array, Array]:
    """V of the released weights, the weights of all classes on both sides (2, B, m), what the
    solver left.
    """
    solved = [solve(form, pairs.side(after)) for after in (0, 1)]
    counts = pairs.side(0).counts
    weights = np.stack([own.weights for own in solved])
    released = weights.copy()
    if form.sums.kind is SumKind.TREATED:
        for after in (0, 1):
            data = pairs.side(after)
            released[after] *= form.n / (2.0 * np.sum(data.counts * data.arms, axis=1))[:, None]
    V = variation(released[0], released[1], counts)
    return V, weights, solved[0].residual + solved[1].residual


def admitted(
    form: WeightingForm, pairs: Pairs, floors: tuple[int, int], keeps: bool
) -> NDArray[np.bool_]:
    """Which pairs are of the universe."""
    fine = np.ones(pairs.size, bool)
    for after in (0, 1):
        data = pairs.side(after)
        treated = np.sum(data.counts * data.arms, axis=1)
        fine &= (treated >= floors[1]) & (form.n - treated >= floors[0])
    if keeps:
        fine &= pairs.arms[:, -1] == pairs.arms[:, -2]
    return fine


def searched(
    form: WeightingForm,
    floors: tuple[int, int] = (0, 0),
    *,
    seed: int = 0,
    cases: int = 60,
    generations: int = 6,
    keeps: bool = False,
    changes: bool = False,
    constants: WeightingConstants | None = None,
    by_weight: bool = False,
    arms: tuple[int, int] | None = None,
) -> Found:
    """The largest V over its bound, and the largest weight over its bound, of bred pairs.

    With ``changes`` the replaced record goes from arm 0 to 1.
    ``constants`` may be those of a planted error; ``by_weight`` breeds pairs of large weights, and
    ``arms`` are those of all common records and of the replaced one.
    """
    generator = np.random.default_rng(seed)
    stated = weighting_constants(form, floors, keeps) if constants is None else constants
    bounds = np.array(stated.largest)
    kept = None
    scores = np.zeros(0)
    solved = 0
    heaviest = 0.0
    largest = 0.0
    for _ in range(generations):
        if kept is None:
            young = drawn(form, generator, cases)
        else:
            young = bred(
                form, generator, kept.chosen(generator.integers(0, min(kept.size, 15), cases)), 1.0
            )
        if arms is not None:
            young.arms[:, :-2] = arms[0]
            young.arms[:, -2:] = arms[1]
        if changes:
            young.arms[:, -2:] = 0, 1
        if form.arms_of_means:
            young = at_the_floor(young, generator, floors)
        fine = admitted(form, young, floors, keeps)
        young = young.chosen(np.flatnonzero(fine))
        if young.size == 0:
            continue
        V, weights, left = movements(form, young)
        fine = left < 1e-7
        solved += int(np.sum(fine))
        ratio = np.where(fine, V / stated.V, 0.0)
        largest = max(largest, float(np.max(ratio)))
        score = ratio
        for after in (0, 1):
            side = young.side(after)
            relative = weights[after] / np.maximum(bounds[side.arms], 1e-300)
            # a class without records has any weight
            relative = np.where((weights[after] <= 1e-9) | (side.counts == 0.0), 0.0, relative)
            heaviest = max(heaviest, float(np.max(relative[fine], initial=0.0)))
            if by_weight:
                score = np.where(fine, np.maximum(score, 10.0 * np.max(relative, axis=1)), 0.0)
        pool = young if kept is None else joined(kept, young)
        scores = np.concatenate([scores, score])
        order = np.argsort(-scores)[:cases]
        kept = pool.chosen(order)
        scores = scores[order]
    return Found(largest, heaviest, solved)


def joined(first: Pairs, second: Pairs) -> Pairs:
    phi = {name: np.concatenate([own, second.phi[name]]) for name, own in first.phi.items()}
    arms = np.concatenate([first.arms, second.arms])
    return Pairs(phi, arms, np.concatenate([first.counts, second.counts]))
