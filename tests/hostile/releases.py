"""Hostile release files through ``read_release`` and ``dp2erm predict``."""

import functools
import json
from typing import Any

import numpy as np

from dp2erm_cvx import (
    Budget,
    Domain,
    EffectRelease,
    PrivateEffect,
    PrivateRule,
    PrivateTwoStageERM,
    Release,
    RuleRelease,
    read_release,
)
from dp2erm_cvx.data.codebook import Codebook
from tests.hostile.command import NO_NUMBER
from tests.hostile.outcome import Failure, Outcome, strict_json


@functools.cache
def _good(number: int) -> str:
    rng = np.random.default_rng(number)
    X, a, y = rng.uniform(-1, 1, (12, 2)), np.arange(12) % 2, rng.normal(size=12)
    book = None if number % 2 else Codebook(levels={"x1": (0.5, -0.5)}, missing={"x2": 0.0})
    named = {"x1": (-1, 1), "x2": (-1, 1)} if book is None else book.ranges({"x2": (-1, 1)})
    domain, budget = Domain(2.0, 1.0, intercept=0.5, ranges=named, codebook=book), Budget(1.0)
    if number < 3:
        second = ("itr", "arm_means", "plug_in_ate")[number]
        seed = 1 if number == 2 else None
        return (
            PrivateTwoStageERM(domain, budget, "ipw_private", second, seed=seed)
            .fit(X, a, y)
            .release_.to_json()
        )
    trial = {"propensity": 0.5, "value_share": 0.3, "center_share": 0.3}
    model = (
        PrivateEffect(domain, budget)
        if number == 3
        else PrivateRule(domain, budget, settings=trial)
    )
    return model.fit(X, a, y).release_.to_json()


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every entry of nested JSON."""
    entries = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node)
        if isinstance(node, list)
        else ()
    )
    return [path] * bool(path) + [
        place for key, value in entries for place in places(value, (*path, key))
    ]


def good(number: int) -> dict[str, Any]:
    """A release of each second stage, of an effect and of a rule, as plain JSON; ``number`` 2 is
    seeded.
    """
    plain: dict[str, Any] = json.loads(_good(number))
    return plain


def put(plain: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Replace the entry at a path."""
    *path, last = place
    node: Any = plain
    for key in path:
        node = node[key]
    node[last] = value


def read_back(told: str) -> Outcome:
    """An accepted release states finite numbers and a budget, and survives its own JSON."""
    effect, rule = '"estimand"' in told, '"flipped_share"' in told
    release: Any = read_release(told, EffectRelease if effect else RuleRelease if rule else Release)
    guarantee = release.guarantee
    sound = guarantee.epsilon > 0 and 0 <= guarantee.delta < 1 and release.n_samples >= 2
    if not (sound and np.all(np.isfinite(release.estimate if effect else release.theta))):
        raise Failure(f"accepted a release that nobody makes: {told[:1500]}")
    strict_json(release.to_json())
    if read_release(release.to_json()) != release:
        raise Failure(f"does not survive its own JSON: {told[:1500]}")
    if NO_NUMBER.search(release.summary()):
        raise Failure(f"shows what is not finite: {told[:1500]}")
    return Outcome("release read, finite")
