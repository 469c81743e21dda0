"""Hostile release files through ``Release.from_json`` and ``dp2erm predict``."""

from __future__ import annotations

import copy
import functools
import json
import math
from pathlib import Path
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
)
from dp2erm_cvx.codebook import Codebook
from tests.hostile.command import NO_NUMBER, run
from tests.hostile.outcome import Failure, Outcome, strict_json
from tests.hostile.values import Generator, happens, pick

VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2, 1.5, -0.0, 1e308, -1e308, 5e-324, 10**30, 10**400, math.nan, math.inf, "",
    "x", "1",
    "nan", "a\nb", "\ud800", "x" * 10_000, [], [1], [[]], ["a", "a"], {}, {"a": 1}, {"name": "itr"},
    [math.nan],
    ["x1", "x2"], [0], [True], "replace-one", "private", "conditional on certification", "arm_means", "itr",
)  # fmt: skip
RAW = (
    b"", b"null", b"[]", b"{}", b"1", b'"x"', b"\xff\xfe", b"\x00", b"{", b"[" * 100_000, b'{"a":' * 5000,
    b"NaN",
    b"9" * 5000, b'{"private": true}', b"\xef\xbb\xbf{}", b"true false", b'{"a": 1e999}', b"-" * 100,
)  # fmt: skip


@functools.cache
def _good(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    X, a, y = rng.uniform(-1, 1, (12, 2)), np.arange(12) % 2, rng.normal(size=12)
    book = Codebook(levels={"x1": (0.5, -0.5)}, missing={"x2": 0.0})
    named: Any = {"x1": (-1, 1), "x2": (-1, 1)} if number % 2 else book.ranges({"x2": (-1, 1)})
    domain = Domain(2.0, 1.0, intercept=0.5, ranges=named, codebook=None if number % 2 else book)
    if number == 3:
        effect: dict[str, Any] = json.loads(
            PrivateEffect(domain, Budget(1.0)).fit(X, a, y).release_.to_json()
        )
        return effect
    if number == 4:
        settings = {"propensity": 0.5, "value_share": 0.3, "center_share": 0.3}
        rule = PrivateRule(domain, Budget(1.0), settings=settings).fit(X, a, y)
        found: dict[str, Any] = json.loads(rule.release_.to_json())
        return found
    second = ("itr", "arm_means", "plug_in_ate")[number]
    model = PrivateTwoStageERM(domain, Budget(1.0), "ipw_private", second, seed=1 if number == 2 else None)
    plain: dict[str, Any] = json.loads(model.fit(X, a, y).release_.to_json())
    return plain


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every entry of nested JSON."""
    entries = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path] * bool(path) + [place for key, value in entries for place in places(value, (*path, key))]


def good(number: int) -> dict[str, Any]:
    """A release of each second stage, of an effect and of a rule, as plain JSON; ``number`` 2 is seeded."""
    return copy.deepcopy(_good(number))


def put(plain: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    """Replace the entry at a path."""
    *path, last = place
    node: Any = plain
    for key in path:
        node = node[key]
    node[last] = value


def written(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain).encode()


def mutated(rng: Generator, plain: dict[str, Any]) -> dict[str, Any]:
    *path, last = pick(rng, places(plain))
    node: Any = plain
    for key in path:
        node = node[key]
    how = int(rng.integers(4))
    if how <= 1:
        node[last] = pick(rng, VALUES)
    elif how == 2:
        del node[last]
    elif isinstance(node, dict):
        node[pick(rng, ("nope", "", "theta", "name", "features", "intercept"))] = pick(rng, VALUES)
    else:
        node.append(pick(rng, VALUES))
    return plain


def text(rng: Generator) -> bytes:
    if happens(rng, 0.05):
        return pick(rng, RAW)
    plain = good(int(rng.integers(5)))
    for _ in range(int(pick(rng, (0, 1, 1, 1, 2, 3)))):
        plain = mutated(rng, plain)
    written = json.dumps(plain)
    if happens(rng, 0.05):
        written = written.replace("{", '{"private": true, ', 1)  # a name that stands there twice
    data = written.encode(pick(rng, ("utf-8",) * 9 + ("utf-16", "utf-8-sig", "utf-32")))
    if happens(rng, 0.1):
        spoiled = bytearray(data)
        spoiled[int(rng.integers(len(spoiled)))] = int(rng.integers(256))
        data = bytes(spoiled)
    return data[: int(rng.integers(len(data)))] if happens(rng, 0.03) else data


def case(rng: Generator) -> Outcome:
    data = text(rng)
    if happens(rng, 0.4):
        Path("release.json").write_bytes(data)
        Path("new.csv").write_text("x1,x2,a,y\n0.5,-0.5,0,1\n1e300,-1e300,1,2\n")
        if happens(rng, 0.5):
            return run(["show", "release.json"])
        return run(["predict", "release.json", pick(rng, ("new.csv",) * 9 + ("nope.csv", "release.json"))])
    return read_back(data if happens(rng, 0.8) else data.decode("utf-8", errors="replace"))


def read_back(data: bytes | str) -> Outcome:
    """An accepted release states finite numbers and a budget, and survives its own JSON."""
    told = data.decode("utf-8", errors="replace") if isinstance(data, bytes) else data
    effect, rule = '"estimand"' in told, '"flipped_share"' in told
    release: Any = (EffectRelease if effect else RuleRelease if rule else Release).from_json(data)
    guarantee = release.guarantee
    sound = guarantee.epsilon > 0 and 0 <= guarantee.delta < 1 and release.n_samples >= 2
    if not (sound and np.all(np.isfinite(release.estimate if effect else release.theta))):
        raise Failure(f"accepted a release that nobody makes: {data[:1500]!r}")
    strict_json(release.to_json())
    if type(release).from_json(release.to_json()) != release:
        raise Failure(f"does not survive its own JSON: {data[:1500]!r}")
    if NO_NUMBER.search(release.summary()):
        raise Failure(f"shows what is not finite: {data[:1500]!r}")
    return Outcome("release read, finite")
